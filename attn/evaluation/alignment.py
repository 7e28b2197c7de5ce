"""Alignment error rate (Och and Ney, 2003, "A Systematic Comparison of Various Statistical
Alignment Models", Computational Linguistics 29, 1) of attention weights.

A link is a pair (source, target) of positions counted from 0. A sure link must be found; a possible
one may be.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

Links = Iterable[tuple[int, int]] | Int[np.ndarray, "n 2"]
"""The links of one sentence, in any order; more than once is once."""


class AlignmentScores(NamedTuple):
  """Of links A against sure S and possible P, S being part of P, each summed over sentences.

  Attributes:
    error_rate: 1 - (|A and S| + |A and P|) / (|A| + |S|).
    precision: |A and P| / |A|; NaN when no link was found.
    recall: |A and S| / |S|; NaN when there is no sure link.
  """

  error_rate: float
  precision: float
  recall: float


def links(weights: Float[Any, "t s"]) -> set[tuple[int, int]]:
  """Links each target position to the source position with the largest weight.

  Rows and columns are the positions that count: those of EOS and padding are to be sliced away
  before. Of equal weights the first is taken. A row of zeros attended to nothing and has no link.
  """
  weights = np.asarray(weights, dtype=np.float64)
  if weights.ndim != 2:
    raise ValueError(f"weights is {list(weights.shape)}: expected [t, s] of one sentence")
  bad = np.flatnonzero(~np.isfinite(weights).all(axis=1))
  if bad.size:
    raise ValueError(f"weights[{bad[0]}] is not finite: expected weights, a row a target")
  attended = np.flatnonzero(weights.any(axis=1))
  return {(int(weights[target].argmax()), int(target)) for target in attended}


def alignment_scores(
  links: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None
) -> AlignmentScores:
  """Error rate, precision and recall of a whole corpus.

  Args:
    links: what was found, one set a sentence.
    sure: the gold links that must be found.
    possible: the gold links that may be found; sure ones are among them whether listed or not. None
      when all are sure.

  Returns:
    The three scores.
  """
  gold = {"links": links, "sure": sure}
  if possible is not None:
    gold["possible"] = possible
  found, must, *may = (_sets(name, sentences) for name, sentences in gold.items())
  if len({len(sentences) for sentences in gold.values()}) != 1:
    counts = ", ".join(f"{name} of {len(sentences)}" for name, sentences in gold.items())
    raise ValueError(f"{counts} sentences: expected as many of each")
  allowed = [s | p for s, p in zip(must, may[0], strict=True)] if may else must
  found_count = sum(map(len, found))
  sure_count = sum(map(len, must))
  if not found_count + sure_count:
    raise ValueError("no links, found or sure: an alignment error rate needs at least one")
  found_sure = sum(len(a & s) for a, s in zip(found, must, strict=True))
  found_allowed = sum(len(a & p) for a, p in zip(found, allowed, strict=True))
  return AlignmentScores(
    error_rate=1 - (found_sure + found_allowed) / (found_count + sure_count),
    precision=found_allowed / found_count if found_count else float("nan"),
    recall=found_sure / sure_count if sure_count else float("nan"),
  )


def alignment_error_rate(
  links: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None
) -> float:
  """The error rate of `alignment_scores`: 0 is best, 1 when nothing agrees."""
  return alignment_scores(links, sure, possible).error_rate


def _sets(name: str, sentences: Sequence[Links]) -> list[set[tuple[int, int]]]:
  result = []
  for index, sentence in enumerate(sentences):
    try:
      result.append({(int(source), int(target)) for source, target in sentence})
    except (TypeError, ValueError):
      raise ValueError(
        f"{name}[{index}] is {sentence!r}: expected the (source, target) links of one sentence"
      ) from None
  return result
