"""Scores of a whole corpus of translations, by sacreBLEU, with the signatures that define them.

A translation may have several references, and not every one the same number of them.
"""

import itertools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from attn.evaluation.bootstrap import RESAMPLES
from attn.evaluation.references import check_references

_METRICS: Final = {"bleu": BLEU, "chrf": CHRF}


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
    TypeError: a text stands where a list of them should.
  """
  return _score(BLEU(), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> CorpusScore:
  """chrF2 (Popovic 2015): character n-grams up to 6, recall counted twice. As `bleu` otherwise."""
  return _score(CHRF(), hypotheses, references)


def streams(references: Sequence[Sequence[str]]) -> list[list[Any]]:
  """As sacreBLEU wants them: all first references, all second ones, ..., None for a missing one."""
  return [list(stream) for stream in itertools.zip_longest(*references)]


class Compared(NamedTuple):
  """One of several systems under sacreBLEU's paired bootstrap.

  Attributes:
    value: its score.
    low: lower end of sacreBLEU's 95% interval, about the mean of the resamples.
    high: its upper end.
    p_value: sacreBLEU's, of the difference from the first system; 1 where the scores are equal,
      None for the first system itself.
  """

  value: float
  low: float
  high: float
  p_value: float | None


def compared(
  metric: str, systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> tuple[list[Compared], str]:
  """Scores of one system, or of several against the first, with intervals and p-values.

  Args:
    metric: `bleu` or `chrf`.
    systems: the hypotheses of each.
    references: for each translation all that count as right.

  Returns:
    A row a system, and sacreBLEU's signature, which names draws and seed (`SACREBLEU_SEED`).
  """
  for hypotheses in systems:
    check_references(hypotheses, references)
  named = [(str(at), hypotheses) for at, hypotheses in enumerate(systems)]
  test = PairedTest(named, {metric: _METRICS[metric]()}, streams(references), "bs", RESAMPLES)
  signatures, found = test()
  ((name, signature),) = signatures.items()
  rows: list[Compared] = []
  for result in found[name]:
    assert not isinstance(result, str) and result.mean is not None and result.ci is not None
    low, high = float(result.mean - result.ci), float(result.mean + result.ci)
    equal = bool(rows) and result.score == rows[0].value
    rows.append(Compared(float(result.score), low, high, 1.0 if equal else result.p_value))
  return rows, str(signature)


def _score(
  metric: BLEU | CHRF, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> CorpusScore:
  check_references(hypotheses, references)
  value = metric.corpus_score(list(hypotheses), streams(references)).score
  return CorpusScore(float(value), str(metric.get_signature()))
