"""Measurements of examples grouped by the length of their sources."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from attn.evaluation.groups import length_groups, span_label
from attn.evaluation.intervals import Interval, Values, mean_interval


class LengthBin(NamedTuple):
  """The examples whose lengths lie from `first` to `last`, both included.

  Attributes:
    first: the shortest length.
    last: the longest, None where there is no end.
    n: how many examples there are.
    interval: their mean and its interval, None when there are none.
  """

  first: int
  last: int | None
  n: int
  interval: Interval | None

  @property
  def label(self) -> str:
    """`6-10`, `6` for a single length, `11+` for the open end."""
    return span_label(self.first, self.last)


def by_length(
  values: Values,
  lengths: Sequence[int] | Int[np.ndarray, " n"],
  edges: Sequence[int],
  level: float = 0.95,
) -> list[LengthBin]:
  """Groups values by length and gives each group its mean and interval.

  Bins are `0..edges[0]`, `edges[0]+1..edges[1]` and so on, and one open above the last edge.
  A bin without examples is listed, so that the bins of two systems correspond.

  Args:
    values: one measurement an example.
    lengths: the length of each example.
    edges: the longest length of each bin but the last, rising.
    level: the confidence of the intervals.

  Returns:
    `len(edges) + 1` bins, short to long.
  """
  values, lengths = np.asarray(values, dtype=np.float64), np.asarray(lengths)
  if values.shape != lengths.shape:
    raise ValueError(f"{values.size} values, {lengths.size} lengths: expected a length for each")
  spans = zip([0, *(edge + 1 for edge in edges)], [*edges, None], strict=True)
  bins = []
  for (first, last), group in zip(spans, length_groups(lengths, edges), strict=True):
    inside = values[group.members]
    interval = mean_interval(inside, level) if inside.size else None
    bins.append(LengthBin(first, last, inside.size, interval))
  return bins
