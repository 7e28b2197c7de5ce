"""What benchmarks are judged by: ratios of neighbours in time, and bars that they reach or miss."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from attn.report.results import Metric
from experiments.score_scale_draws import spread

Verdict = Literal["reached", "missed", "not resolved", "not measured", "other sizes"]


class Ratio(NamedTuple):
  """The median of a ratio over the turns and its distribution-free 95% interval."""

  median: float
  low: float
  high: float


def ratio(over: Sequence[float], under: Sequence[float]) -> Ratio:
  """Of two series that were measured in turns: each pair are neighbours in time."""
  found = spread(np.divide(over, under))
  return Ratio(found.median, found.low, found.high)


def reached(threshold: float, low: float, high: float, *, at_most: bool = False) -> Verdict:
  """Whether a ratio in [low, high] reaches a bar: all of it, none of it or some of it does."""
  if at_most:
    low, high, threshold = -high, -low, -threshold
  return "reached" if low >= threshold else "missed" if high < threshold else "not resolved"


def tell(bars: Mapping[str, Metric]) -> None:
  """Prints each bar, whose unit says what it is and what became of it."""
  for name, found in bars.items():
    print(f"  {name}: {'-' if found.mean is None else f'{found.mean:.3g}'} {found.unit}")
