"""Systems side by side: every score with its interval, and its difference from the first system."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from attn.evaluation import bootstrap, corpus_scores, error_rates
from attn.evaluation.bootstrap import Counts, Score
from attn.evaluation.groups import Group
from attn.evaluation.references import check_references


class Row(NamedTuple):
  """One score of one system on one group of sentences.

  Attributes:
    metric: which score.
    by: what the sentences were grouped by.
    group: which group they are.
    system: whose score.
    n: how many sentences.
    value: the score; of 100 for BLEU and chrF, else between 0 and 1 (error rates may exceed it).
    low: lower end of its 95% interval, NaN of a single sentence.
    high: upper end.
    difference: this system's score less the first's; None for the first.
    p_value: of the difference, by the paired bootstrap; NaN of a single sentence.
  """

  metric: str
  by: str
  group: str
  system: str
  n: int
  value: float
  low: float
  high: float
  difference: float | None = None
  p_value: float | None = None


def _exact(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Counts:
  wrong = error_rates.word_errors(hypotheses, references)
  return np.stack([1 - wrong, np.ones_like(wrong)], 1)


def _edits(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Counts:
  return np.stack(error_rates.phoneme_edits(hypotheses, references), 1)


_COUNTED: Final[Mapping[str, Callable[[Sequence[str], Sequence[Sequence[str]]], Counts]]] = {
  "sequence_accuracy": _exact,
  "token_accuracy": error_rates.token_matches,
  "token_error_rate": _edits,
}
METRICS: Final = ("bleu", "chrf", *_COUNTED)


def compare(
  metric: str,
  systems: Mapping[str, Sequence[str]],
  references: Sequence[Sequence[str]],
  groups: Sequence[Group],
) -> tuple[list[Row], str]:
  """Scores every system on every group that has members.

  Args:
    metric: one of `METRICS`: BLEU and chrF; the share of outputs that equal a reference; that of
      tokens (between blanks) that stand where a reference has them; edits over reference tokens.
    systems: name to outputs; the first is what the others are compared with.
    references: for each output all texts that count as right.
    groups: as those of `attn.evaluation.groups`.

  Returns:
    The rows, group by group, and sacreBLEU's signature of the first group, "" for other metrics.
  """
  for made in systems.values():
    check_references(made, references)
  if metric in _COUNTED:
    counts = {name: _COUNTED[metric](made, references) for name, made in systems.items()}
    return compare_counts(metric, counts, bootstrap.ratio, groups), ""
  rows: list[Row] = []
  signature = ""
  for group in groups:
    if group.members.size:
      chosen = [[made[at] for at in group.members] for made in systems.values()]
      wanted = [references[at] for at in group.members]
      found, one_signature = corpus_scores.compared(metric, chosen, wanted)
      signature = signature or one_signature
      for name, one in zip(systems, found, strict=True):
        more = None if one.p_value is None else one.value - found[0].value
        place = metric, group.by, group.label, name, group.members.size
        rows.append(_resolved(Row(*place, one.value, one.low, one.high, more, one.p_value)))
  return rows, signature


def compare_counts(
  metric: str, systems: Mapping[str, Counts], score: Score, groups: Sequence[Group]
) -> list[Row]:
  """The same for any score of sums.

  Args:
    metric: its name.
    systems: name to what the score sums, a row a sentence.
    score: from sums to scores.
    groups: of the sentences.
  """
  rows = []
  for group in groups:
    first = None
    for name, counts in systems.items():
      chosen = np.asarray(counts)[group.members]
      if not len(chosen):
        continue
      row = Row(metric, group.by, group.label, name, *_estimated(chosen, score))
      if first is not None:
        against = bootstrap.difference(first, chosen, score)
        row = row._replace(difference=against.value, p_value=against.p_value)
      else:
        first = chosen
      rows.append(_resolved(row))
  return rows


def _resolved(row: Row) -> Row:
  """Without interval and p-value where all draws are the same: of a single sentence."""
  if row.n > 1:
    return row
  return row._replace(low=np.nan, high=np.nan, p_value=None if row.p_value is None else np.nan)


def _estimated(counts: Counts, score: Score) -> tuple[int, float, float, float]:
  value, low, high, n = bootstrap.estimate(counts, score)
  return n, value, low, high
