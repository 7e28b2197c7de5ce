"""Examples grouped by what their sources are like."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class Group(NamedTuple):
  """Some of the examples.

  Attributes:
    by: what they were grouped by.
    label: which of the groups it is.
    members: their numbers.
  """

  by: str
  label: str
  members: Int[np.ndarray, " m"]


def everything(n: int) -> Group:
  """All of `n` examples."""
  return Group("all", "", np.arange(n))


def length_groups(
  lengths: Sequence[int] | Int[np.ndarray, " n"], edges: Sequence[int]
) -> list[Group]:
  """Groups `0-a`, `a+1-b`, ... and an open one above the last edge, empty ones too.

  Args:
    lengths: of each example.
    edges: the longest length of each group but the last, rising.
  """
  lengths = np.asarray(lengths)
  if lengths.size and (lengths.dtype.kind not in "iu" or lengths.min() < 0):
    raise ValueError("lengths: expected whole numbers of at least 0")
  if any(low >= high for low, high in zip([-1, *edges], edges, strict=False)):
    raise ValueError(f"edges is {tuple(edges)}: expected rising lengths of at least 0")
  firsts = [0, *(edge + 1 for edge in edges)]
  labels = [span_label(*span) for span in zip(firsts, [*edges, None], strict=True)]
  return _grouped("source length", lengths, edges, labels)


def span_label(first: int, last: int | None) -> str:
  """`6-10`, `6` for a single length, `11+` for the open end."""
  if last is None:
    return f"{first}+"
  return str(first) if first == last else f"{first}-{last}"


def share_groups(
  shares: Sequence[float] | Float[np.ndarray, " n"], edges: Sequence[float] = (0, 0.1, 0.25)
) -> list[Group]:
  """Groups by a share, as that of unknown words: `0%`, then up to each edge, then above the last.

  Args:
    shares: of each example, between 0 and 1; NaN is in no group.
    edges: the largest share of each group but the last, rising from 0.
  """
  shares = np.asarray(shares, np.float64)
  if (shares < 0).any() or (shares > 1).any():
    raise ValueError("shares: expected numbers between 0 and 1")
  if not edges or edges[0] != 0 or any(a >= b for a, b in zip(edges, edges[1:], strict=False)):
    raise ValueError(f"edges is {tuple(edges)}: expected rising shares, the first 0")
  percents = [f"{100 * edge:g}%" for edge in edges]
  labels = [percents[0], *(f"to {percent}" for percent in percents[1:]), f"over {percents[-1]}"]
  return _grouped("unknown words", shares, edges, labels)


def _grouped(
  by: str, values: np.ndarray, edges: Sequence[float], labels: Sequence[str]
) -> list[Group]:
  """Values up to an edge are in its group; NaN sorts behind all and is put nowhere."""
  place = np.where(np.isnan(values), -1, np.searchsorted(edges, values))
  return [Group(by, label, np.flatnonzero(place == at)) for at, label in enumerate(labels)]
