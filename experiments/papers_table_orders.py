"""The published tables of `experiments.papers_table`, and the order that they put systems in."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from attn.evaluation.intervals import Interval, paired_interval
from experiments.papers_table_runs import SYSTEMS

Outcome = Literal["as published", "the other way round", "undecided"]
SAME: Outcome = "as published"
OTHER: Outcome = "the other way round"
UNDECIDED: Outcome = "undecided"


class Measure(NamedTuple):
  """A number that says how good a system is.

  Attributes:
    name: how it is called.
    unit: of it.
    key: in what `papers_table_runs.measure` returns.
    factor: from there to the unit.
    larger: whether more is better.
  """

  name: str
  unit: str
  key: str
  factor: float
  larger: bool

  @property
  def apart(self) -> str:
    """Unit of a difference."""
    return "points" if self.unit == "%" else self.unit


BLEU = Measure("BLEU", "points", "bleu", 1.0, True)
ERRORS = Measure("symbols wrong", "%", "symbol_error_rate", 100.0, False)
LOSS = Measure("loss", "nats a symbol", "nats", 1.0, False)
ALIGNMENT = Measure("alignment error rate", "%", "alignment_error_rate", 100.0, False)


class Table(NamedTuple):
  """What a paper printed of several systems on one test set.

  Attributes:
    source: paper and table.
    task: languages and test set.
    what: `BLEU`, `perplexity` or `AER`.
    values: of each system, by its preset.
  """

  source: str
  task: str
  what: Literal["BLEU", "perplexity", "AER"]
  values: Mapping[str, float]

  @property
  def larger(self) -> bool:
    """Whether more is better."""
    return self.what == "BLEU"


# Single models, without replacement of unknown words; the architecture of Sutskever 2014 is also
# that of Luong's Base.
PUBLISHED: Final = (
  Table(
    "Sutskever 2014, Table 1", "English to French, newstest2014", "BLEU",
    {"sutskever2014": 30.59, "rnnsearch": 28.45},
  ),
  Table(
    "Bahdanau 2015, Table 1", "English to French, newstest2014", "BLEU",
    {"rnnencdec": 17.82, "rnnsearch": 26.75},
  ),
  Table(
    "Luong 2015, Tables 1 and 4", "English to German, newstest2014", "BLEU",
    {
      "sutskever2014": 14.0, "rnnsearch": 16.5, "luong2015_location_feed": 18.1,
      "luong2015_dot_feed": 18.6, "luong2015_general_feed": 17.3,
      "luong2015_local_m_general": 18.6, "luong2015_local_p_dot": 18.0,
      "luong2015_local_p_general": 19.0,
    },
  ),
  Table(
    "Luong 2015, Tables 1 and 4, footnote 15", "English to German, newstest2014", "perplexity",
    {
      "sutskever2014": 8.1, "luong2015_location_feed": 6.4, "luong2015_dot_feed": 6.1,
      "luong2015_general_feed": 6.1, "luong2015_concat_released_feed": 6.7,
      "luong2015_local_m_general": 6.2, "luong2015_local_p_dot": 6.6,
      "luong2015_local_p_general": 5.9,
    },
  ),
  Table(
    "Luong 2015, Table 6", "English to German, 508 sentences of Europarl", "AER",
    {
      "luong2015_location_feed": 0.39, "luong2015_local_m_general": 0.34,
      "luong2015_local_p_general": 0.36,
    },
  ),
)  # fmt: skip

CITED: Final = (
  "Of Luong 2015 the row of Sutskever 2014 has the Base with reversed sources and dropout; its"
  " RNNsearch is that of Jean et al. 2015, that of Sutskever 2014 is Bahdanau's, both as cited."
)

Measured = Mapping[str, Sequence[Mapping[str, Any]]]  # by system: what each seed measured


def measures(measured: Measured) -> dict[str, Measure]:
  """What is held against published BLEU, perplexity and AER, as far as it was measured.

  Where targets are no text BLEU has no meaning, and the share of symbols that are wrong stands in.
  """
  found = [key for runs in measured.values() for key in runs[0]]
  chosen = {"BLEU": BLEU if BLEU.key in found else ERRORS, "perplexity": LOSS, "AER": ALIGNMENT}
  return {what: measure for what, measure in chosen.items() if measure.key in found}


def values(runs: Sequence[Mapping[str, Any]], measure: Measure) -> list[float]:
  """A measure of each seed; none where the system does not have it."""
  return [measure.factor * run[measure.key] for run in runs if measure.key in run]


class Pair(NamedTuple):
  """Two systems of one published table, measured on one data set.

  Attributes:
    data: the data set.
    table: where they are published.
    measure: what was measured.
    better: the system that the table has ahead.
    worse: the other.
    lead: how much the former is ahead here, paired by seed, in units of the measure.
  """

  data: str
  table: Table
  measure: Measure
  better: str
  worse: str
  lead: Interval

  @property
  def outcome(self) -> Outcome:
    """The order that the interval leaves."""
    if self.lead.low > 0:
      return SAME
    return OTHER if self.lead.high < 0 else UNDECIDED

  @property
  def name(self) -> str:
    """Both systems, the published better one first."""
    return f"{SYSTEMS[self.better]} before {SYSTEMS[self.worse]}"


def published_pairs(table: Table) -> list[tuple[str, str]]:
  """All systems of a table by two, the better one first; ties are no order and left out."""
  ranked = sorted(
    table.values, key=lambda system: -table.values[system] * (1 if table.larger else -1)
  )
  return [
    (one, other)
    for one, other in itertools.combinations(ranked, 2)
    if table.values[one] != table.values[other]
  ]


def disputed(systems: Sequence[str]) -> list[tuple[str, str]]:
  """Systems that two tables put in opposite orders by one measure, each pair once."""
  ordered = {(table.what, *pair) for table in PUBLISHED for pair in published_pairs(table)}
  return [
    (one, other)
    for one, other in itertools.combinations(systems, 2)
    if any({(what, one, other), (what, other, one)} <= ordered for what, *_ in ordered)
  ]


def compare(found: Mapping[str, Measured]) -> list[Pair]:
  """Every published pair that was measured, on each data set; their intervals hold together."""
  asked = [
    (data, table, measure, better, worse)
    for data, measured in found.items()
    for what, measure in measures(measured).items()
    for table in PUBLISHED
    if table.what == what
    for better, worse in published_pairs(table)
    if all(system in measured and values(measured[system], measure) for system in (better, worse))
  ]
  level = 1 - 0.05 / max(len(asked), 1)
  pairs = []
  for data, table, measure, better, worse in asked:
    ahead, behind = (values(found[data][system], measure) for system in (better, worse))
    if not measure.larger:
      ahead, behind = behind, ahead
    lead = paired_interval(ahead, behind, level)
    pairs.append(Pair(data, table, measure, better, worse, lead))
  return pairs


def count(pairs: Sequence[Pair]) -> dict[Outcome, int]:
  """How many pairs came out how."""
  return {
    outcome: sum(pair.outcome == outcome for pair in pairs) for outcome in (SAME, OTHER, UNDECIDED)
  }
