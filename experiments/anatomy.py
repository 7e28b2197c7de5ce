"""What are the parts of the models, what does each see, and what does it cost in parameters?

Everything is measured on attn's own models with random weights, at small widths, and at the papers'
by shape alone: what moves in one part when another is changed. A source of eight words has each of
its words replaced in turn; annotations, values and keys are swapped between sentences; parameters
are changed one by one. Nothing is trained, because none of these claims depends on what a model has
learned.

Command: python -m launch.run --experiment=anatomy
Time: on two cores 8 seconds in each profile and 40 on a busy machine, most of them compiling and
drawing: smoke 3 draws x 0.1 s, default 10 x 0.1 s, full 30 x 0.1 s.
Expect: changes that must not be are exactly 0, all others above it. Four claims hold with a
condition: Luong 2015 has a fourth score, a bidirectional network could generate if it were run anew
for each word, a fixed vector is an initial state alone in one of the papers only, and a softmax is
no matrix product.

Rules, stated before the run. There is a change where the smallest one is above 0 in every
draw of the parameters; there is none where the largest is exactly 0 in every draw. Intervals are of
means over draws.
  2 `apart`: each parameter moves what the encoder hands over or what the decoder makes of it, and
    none moves both: reproduced; else contradicted.
  5 `initial_only`: in Sutskever's model the first state is the encoder's last, outputs follow it
    and nothing else of the source, and each follows the word before it. If not: contradicted. The
    same in RNNencdec: reproduced. There the source comes in by another way as well: qualified.
  7, 44, 45 `exact`: every number read off the shapes is the stated one: reproduced; else
    contradicted.
  29 `carries`: a changed word changes the annotations at all other places and the embeddings at
    none: reproduced; else contradicted.
  30 `joined`: at the paper's sizes an annotation is as wide as both states; its first half is moved
    by no later word and by all others, its second by no earlier one: reproduced; else contradicted.
  31 `generates`: if outputs change with later words, or states over a prefix do not change when the
    words after it come: contradicted. If they do even when the network is run anew on the prefix:
    reproduced. Else qualified: what cannot generate is one pass.
  41 `where_not_what`: with the same keys and other values no weight changes and some sentences'
    first words do; with other keys and all values alike, weights change and probabilities do not,
    but for rounding: reproduced. If the interval of the share of words holds 0: not resolved. Else
    contradicted.
  43 `equation`: the model's scores are the equation's, at s_{i-1}, to `ROUNDING`, and at s_i they
    are not: reproduced. Not at s_{i-1}: contradicted. At both: not resolved.
  56 `three`: the scores that follow the keys are these three. If not: contradicted. If there is a
    score besides, which follows the query alone: qualified; else reproduced.
  58 `bridges`: dot has 0 parameters and general n times n; a model whose annotations are twice as
    wide as its states can be built with general and not with dot: reproduced; else contradicted.
  72 `all_products`: numbers computed outside matrix products, for a pair of query and key. If those
    of the scaled dot product grow with the width, or those of the additive score do not:
    contradicted. If the dot product has none: reproduced; else qualified.
"""

import dataclasses
import os
from typing import Any, NamedTuple

import numpy as np

from attn.evaluation.intervals import mean_interval
from attn.report import recorder, results
from attn.report.results import Metric
from experiments import anatomy_figures as figures
from experiments import anatomy_parts as parts
from experiments import anatomy_rules as rules
from experiments import anatomy_scores as scores
from experiments import checks

CLAIMS = ("2", "5", "7", "29", "30", "31", "41", "43", "44", "45", "56", "58", "72")


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes of the small models and how often their parameters are drawn.

  Attributes:
    embedding: width m.
    units: width n.
    alignment: width n'.
    maxout: width l.
    draws: independent draws of all parameters; at least 3, for an interval.
    seed: of the draws.
  """

  embedding: int = 32
  units: int = 64
  alignment: int = 64
  maxout: int = 32
  draws: int = 10
  seed: int = 0

  def __post_init__(self) -> None:
    """Refuses what makes no model, or no interval."""
    checks.at_least(self, embedding=2, units=2, draws=3, seed=0)

  @property
  def sizes(self) -> parts.Sizes:
    """The widths alone."""
    return parts.Sizes(self.embedding, self.units, self.alignment, self.maxout)


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  return {"smoke": {"draws": 3}, "default": {}, "full": {"draws": 30}}


def sweep_quick() -> list[dict[str, Any]]:
  """The width of the states."""
  return [{**profiles()["smoke"], "units": units} for units in (16, 64, 256)]


def sweep_paper() -> list[dict[str, Any]]:
  """The widths of Bahdanau 2015 and of Sutskever 2014, with a small vocabulary."""
  bahdanau = {"embedding": 620, "units": 1000, "alignment": 1000, "maxout": 500}
  return [{**bahdanau, "draws": 3}, {**bahdanau, "embedding": 1000, "maxout": 1000, "draws": 3}]


class Measured(NamedTuple):
  """One entry a draw of the parameters; `work` is counted, at both widths."""

  halves: list[parts.Halves]
  sutskever: list[parts.Channels]
  encdec: list[parts.Channels]
  reach: list[parts.Reach]
  contexts: list[dict[str, np.ndarray]]
  prefixes: list[parts.Prefixes]
  swapped: list[scores.Swapped]
  formula: list[tuple[float, float]]
  scores: list[dict[str, scores.ScoreFacts]]
  work: tuple[scores.ScoreWork, scores.ScoreWork]


def measure(config: Config) -> Measured:
  """Takes the models apart, once a draw."""
  sutskever, encdec, search = (
    parts.small(preset, config.sizes) for preset in (parts.SUTSKEVER, parts.ENCDEC, parts.SEARCH)
  )
  found: dict[str, list[Any]] = {name: [] for name in Measured._fields if name != "work"}
  for draw in range(config.draws):
    random = np.random.default_rng((config.seed, draw))
    models = {model: parts.drawn(model, random) for model in (sutskever, encdec, search)}
    found["halves"].append(parts.halves(sutskever, models[sutskever]))
    found["sutskever"].append(parts.channels(sutskever, models[sutskever]))
    found["encdec"].append(parts.channels(encdec, models[encdec]))
    found["reach"].append(parts.reach(search, models[search]))
    found["contexts"].append(parts.contexts(search, models[search]))
    found["prefixes"].append(parts.prefixes(search, models[search]))
    found["swapped"].append(scores.swapped(search, models[search], random))
    found["formula"].append(scores.formula(search, models[search]))
    found["scores"].append(
      {name: scores.score_facts(name, config.sizes, random) for name in scores.LUONG_SCORES}
    )
  narrow, wide = (scores.score_work(width) for width in rules.WIDTHS)
  return Measured(**found, work=(narrow, wide))


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Measures, judges the claims and draws the figures.

  Args:
    config: sizes and draws.
    workdir: where `result.json` and the figures go.
  """
  record = recorder.Recorder("anatomy", config, profiles(), workdir, seeds=(config.seed,))
  measured = measure(config)
  for draw in range(config.draws):
    record.log(
      draw=draw, sutskever=measured.sutskever[draw]._asdict(),
      encdec=measured.encdec[draw]._asdict(), prefixes=measured.prefixes[draw]._asdict(),
      contexts=measured.contexts[draw], formula=measured.formula[draw],
    )  # fmt: skip
  judged = rules.judge(measured)
  verdicts = {claim.number: claim.verdict for claim in judged}
  reaches = results.CONTRADICTED not in (verdicts["29"], verdicts["30"], verdicts["31"])
  words = rules.share(rules.over(measured.swapped, "words"))
  draws = f"{config.draws} draws of all parameters, {config.units} units"
  record.figure('reach', figures.reach(measured.reach, shown=reaches), caption=(
    f'{draws}. Each word of a sentence of {len(parts.SENTENCE)} is replaced (rows); how far that '
    'moves what stands at each place (columns), relative, mean over draws. 0: exactly 0 in every '
    'draw.'))  # fmt: skip
  record.figure('contexts', figures.contexts(measured.contexts), caption=(
    f'{draws}. Relative change at each word when the last one is city instead of river. Bars: '
    'means; whiskers: 95% intervals over draws.'))  # fmt: skip
  read = verdicts["41"] == results.REPRODUCED
  record.figure('same_weights', figures.same_weights(measured.swapped, shown=read), caption=(
    'First step of one sentence of the first draw, with its own values and with those of another '
    f'sentence. Over {parts.ROWS} sentences in each of {config.draws} draws no weight changes, '
    f'and {words} of the likeliest words do.'))  # fmt: skip
  record.figure('parameters', figures.parameters(), caption=(
    "Parameters at the papers' sizes, counted from shapes. Exact, no sampling."))  # fmt: skip
  fourth = verdicts["56"] == results.QUALIFIED
  record.figure('scores', figures.four_scores(measured.scores, fourth=fourth), caption=(
    f"Left: parameters at Luong's sizes (1000 units, 50 positions), exact. Right: {draws}; "
    'relative change of the scores of one query when all keys are others; means and 95% intervals '
    'over draws.'))  # fmt: skip
  return record.finish(metrics=_metrics(measured), claims=judged)


def _metrics(measured: Measured) -> dict[str, Metric]:
  """Changes over draws, and counts."""
  shown = parts.SENTENCE[parts.SHOWN]
  metrics = {
    f"change of the {name} of {shown} with the last word": Metric(
      *mean_interval([float(one[name][parts.SHOWN]) for one in measured.contexts])
    )
    for name in measured.contexts[0]
  }
  words = rules.over(measured.swapped, "words")
  metrics["first words that change with the values alone"] = Metric(
    words.mean, words.low, words.high, len(measured.swapped)
  )
  for name, facts in measured.scores[0].items():
    metrics[f"parameters of the score {name}"] = Metric(facts.parameters)
  for label, preset in parts.PAPERS.items():
    total = sum(parts.by_part(parts.paper(preset)).values())
    metrics[f"parameters of {label}"] = Metric(total)
  for name, work in measured.work[1]._asdict().items():
    metrics[f"work outside products at width {rules.WIDTHS[1]}, {name}"] = Metric(
      work, unit="numbers a pair"
    )
  return metrics
