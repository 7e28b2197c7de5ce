"""Intervals and tests of a corpus's scores by the bootstrap (Koehn, 2004, "Statistical Significance
Tests for Machine Translation Evaluation", EMNLP).

Such a score is a function of sums over sentences, as an error rate is of edits and symbols. The
bootstrap draws as many sentences as there are, with replacement, and sums and scores again.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

RESAMPLES = 1000
_NUMBERS = 1 << 22  # most that are gathered at once

Counts = Float[np.ndarray, "n k"] | Int[np.ndarray, "n k"]
"""Of each sentence, what the score sums."""
Score = Callable[[Float[np.ndarray, "... k"]], Float[np.ndarray, "..."]]
"""From sums to scores; NaN where there is nothing to score."""


class Estimate(NamedTuple):
  """A score and the percentiles between which the resampled ones lie.

  Attributes:
    value: the score of all sentences.
    low: the lower percentile.
    high: the upper percentile.
    n: how many sentences there are.
  """

  value: float
  low: float
  high: float
  n: int


class Difference(NamedTuple):
  """How a second score differs from a first, on the same sentences.

  Attributes:
    value: second less first.
    low: the lower percentile of the resampled differences.
    high: the upper percentile.
    p_value: share of the resamples in which the second is not on the same side of the first, the
      observed one counted among them: small where the difference is no accident of the sentences.
  """

  value: float
  low: float
  high: float
  p_value: float


def ratio(sums: Float[np.ndarray, "... 2"]) -> Float[np.ndarray, "..."]:
  """The first sum over the second, NaN over 0."""
  part, whole = np.moveaxis(np.asarray(sums, np.float64), -1, 0)
  with np.errstate(divide="ignore", invalid="ignore"):
    return np.where(whole == 0, np.nan, part / whole)


def estimate(counts: Counts, score: Score, *, level: float = 0.95, seed: int = 0) -> Estimate:
  """A score and its percentile interval.

  Resamples without a score, of sentences that have nothing to score, are left out.

  Args:
    counts: what is summed, a row a sentence.
    score: from sums to scores.
    level: the confidence.
    seed: of the draws; the same for the same number of sentences draws the same ones.
  """
  counts = _checked(counts, level)
  value = float(score(counts.sum(0)))
  return Estimate(value, *_percentiles(score(_resampled(counts, seed)), level), len(counts))


def difference(
  first: Counts, second: Counts, score: Score, *, level: float = 0.95, seed: int = 0
) -> Difference:
  """The paired bootstrap test: both systems are scored on the same draws.

  Args:
    first: what the first system's score sums, a row a sentence.
    second: the same of the second system, of the same sentences.
    score: from sums to scores.
    level: the confidence.
    seed: of the draws.
  """
  if np.shape(first) != np.shape(second):
    raise ValueError(f"first is {list(np.shape(first))}, second {list(np.shape(second))}: no pairs")
  both = _checked(np.concatenate([first, second], axis=1), level)
  k = both.shape[1] // 2

  def differences(sums: Float[np.ndarray, "... k"]) -> Float[np.ndarray, "..."]:
    return score(sums[..., k:]) - score(sums[..., :k])

  value = float(differences(both.sum(0)))
  drawn = differences(_resampled(both, seed))
  drawn = drawn[~np.isnan(drawn)]
  turned = np.count_nonzero(drawn * np.sign(value) <= 0)
  low, high = _percentiles(drawn, level)
  return Difference(value, low, high, float((turned + 1) / (len(drawn) + 1)))


def _checked(counts: Counts, level: float) -> Float[np.ndarray, "n k"]:
  counts = np.asarray(counts, np.float64)
  if counts.ndim != 2 or not len(counts):
    raise ValueError(f"counts is {list(counts.shape)}: expected [n, k] of at least one sentence")
  if not 0 < level < 1:
    raise ValueError(f"level is {level}: expected a confidence between 0 and 1")
  return counts


def _resampled(counts: Float[np.ndarray, "n k"], seed: int) -> Float[np.ndarray, "r k"]:
  """The sums of each resample."""
  rng, n = np.random.default_rng(seed), len(counts)
  at_once = max(1, _NUMBERS // counts.size)
  sums = []
  for start in range(0, RESAMPLES, at_once):
    rows = rng.integers(n, size=(min(at_once, RESAMPLES - start), n))
    sums.append(counts[rows].sum(1))
  return np.concatenate(sums)


def _percentiles(scores: Float[np.ndarray, " r"], level: float) -> tuple[float, float]:
  scores = scores[~np.isnan(scores)]
  if not scores.size:
    return float("nan"), float("nan")
  low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2])
  return float(low), float(high)
