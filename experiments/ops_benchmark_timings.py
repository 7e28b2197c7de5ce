"""Contenders that take turns, and what their times come to, for `experiments.ops_benchmark`."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.benchmark_bars import Ratio, ratio
from experiments.benchmark_workers import Worker
from experiments.ops_benchmark_programs import ATTN, PASSES, WRITE, Arrays, Case
from experiments.score_scale_draws import Spread, spread

CLOSE = 1e-3  # largest difference between two contenders, over the largest number of that array


class Timing(NamedTuple):
  """One contender's times in one pass of one case."""

  case: Case
  threads: int
  contender: str
  passes: str
  seconds: tuple[float, ...]  # a call, a turn
  cpu: tuple[float, ...]  # of which the process computed
  facts: Mapping[str, Any]  # of `Program`

  @property
  def spread(self) -> Spread:
    """Median, its interval, and quantiles."""
    return spread(np.asarray(self.seconds))

  def over(self, other: "Timing", quantity: str = "time") -> Ratio | None:
    """Median ratio of the turns and its interval, or the one ratio of bytes; None where unknown."""
    if quantity == "time":
      return ratio(self.seconds, other.seconds)
    sizes = [timing.facts.get("temp_bytes") for timing in (self, other)]
    if None in sizes:
      return None
    only = sizes[0] / max(sizes[1], 1)
    return Ratio(only, only, only)


def check(case: Case, found: Mapping[str, Arrays]) -> None:
  """Refuses to time contenders that do not compute the same.

  Args:
    case: for the message.
    found: contender to its context and gradients.

  Raises:
    RuntimeError: naming the first array that differs.
  """
  for contender, arrays in found.items():
    for name, expected in found[ATTN].items():
      apart = float(np.max(np.abs(arrays[name] - expected)) / np.max(np.abs(expected)))
      if not apart <= CLOSE:  # a NaN too
        raise RuntimeError(
          f"{case}: {name} of {contender} and {ATTN} differ by {apart:.1e} of the largest"
        )


def time_case(
  case: Case, threads: int, processes: Sequence[Worker], repeats: int, seed: int
) -> list[Timing]:
  """Prepares, checks, and lets the contenders of each pass take turns."""
  owner: dict[tuple[str, str], Worker] = {}
  facts: dict[tuple[str, str], Mapping[str, Any]] = {}
  found: dict[str, dict[str, Arrays]] = {passes: {} for passes in PASSES}
  for process in processes:
    for key, (arrays, known) in process.ask("prepare", case, seed).items():
      owner[key], facts[key] = process, known
      contender, passes = key
      if contender != WRITE:
        found[passes][contender] = arrays
  timings = []
  for passes in PASSES:
    check(case, found[passes])
    keys = [key for key in owner if key[1] == passes]
    turns = [[owner[key].ask("seconds", *key) for key in keys] for _ in range(repeats)]
    for key, pairs in zip(keys, zip(*turns, strict=True), strict=True):
      timings.append(Timing(case, threads, *key, *zip(*pairs, strict=True), facts[key]))
  return timings
