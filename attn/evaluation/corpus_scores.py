"""Scores of a whole corpus of translations, by sacreBLEU, with the signatures that define them.

A translation may have several references, and not every one the same number of them.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF


class CorpusScore(NamedTuple):
  """A score and what exactly it is.

  Attributes:
    value: of 100.
    signature: sacreBLEU's, to be printed with the value: scores of other signatures are others.
  """

  value: float
  signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> CorpusScore:
  """BLEU (Papineni 2002) of detokenised text: sacreBLEU's default, tokenizer 13a, smoothing exp.

  Args:
    hypotheses: a translation each.
    references: for each translation all that count as right.

  Raises:
    ValueError: the numbers differ, there are none, or a translation has no reference.
  """
  return _score(BLEU(), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> CorpusScore:
  """chrF2 (Popovic 2015): character n-grams up to 6, recall counted twice. As `bleu` otherwise."""
  return _score(CHRF(), hypotheses, references)


def streams(references: Sequence[Sequence[str]]) -> list[list[Any]]:
  """As sacreBLEU wants them: all first references, all second ones, ..., None for a missing one."""
  return [list(stream) for stream in itertools.zip_longest(*references)]


def _score(
  metric: BLEU | CHRF, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> CorpusScore:
  if len(hypotheses) != len(references) or not hypotheses:
    raise ValueError(
      f"{len(hypotheses)} hypotheses, {len(references)} references: expected a list of references"
      " for each hypothesis, and at least one"
    )
  for index, accepted in enumerate(references):
    if isinstance(accepted, str) or not accepted:
      raise ValueError(f"references[{index}] is {accepted!r}: expected a list of at least one text")
  value = metric.corpus_score(list(hypotheses), streams(references)).score
  return CorpusScore(float(value), str(metric.get_signature()))
