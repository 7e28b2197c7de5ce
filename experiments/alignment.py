"""Is attention alignment, and is it explanation?

Small models are trained on generated tasks whose alignment is known: RNNsearch (`additive`) and
the same with Luong's order and input feeding, global (`general`, `location`) and local (`local-m`,
`local-p`, with the general score). Read: the links of the largest weights along test references,
as Luong did, against the true ones. A step's weights are held to be of the word that it writes,
y_i, or of the word that it was given, y_{i-1}, as Luong's footnote 14 has it for scores that look
at the source.
Replaced: the weights of single steps, by uniform ones, by their own turned in a circle by a random
number of places, and by those farthest from them (Jensen-Shannon divergence, at most ln 2) that
change the step's output distribution by at most `sizes.change` in total variation, which a gradient
search looks for as Jain and Wallace (2019) did. The rest of the step is computed with them; what
came before it stays. Compared: the weights of different seeds on the same steps.

No model is trained with uniform weights: the family has no such attention. Real text is left out:
what can be trained in minutes aligns too badly there to tell the models apart.

Command: python -m launch.run --experiment=alignment
Time: on two cores, a model a process: default about 55 seconds (6 runs x 10 s and compiling two
models x 15 s, / 2; with both local models 118), smoke 11 (3 runs of 4 updates, nearly all of it
compiling), full 27 minutes on a busy machine and 7 by estimate (50 runs x 13 s and compiling, / 2).
A killed run goes on where it was.
Expect: on `lexicon` RNNsearch links all but 1% of the words right if a step's weights are held to
be of the word that it writes, and hardly any if of the word before; the others do less well. Local
models are trained in full, which L6 is left to: with three seeds it is open. Seeds of RNNsearch
agree. Turned weights change nine outputs in ten there, and half on `fertility`, whose symbols
follow from those before.

Rules, stated before the run. Intervals are over seeds, paired where models are compared, and those
of one claim hold together at 95%. Models that say fewer than `LEARNED` of the symbols right along
the references tell nothing: then not resolved.
  55 `diagnosis_only`, for each trained model of `REPLACED` and each task. A diagnosis: the error
    rate at the word written, below the lower of two that see no weights (of the diagonal; expected
    of random links). Above on some: contradicted; not below on all: not resolved. No explanation:
    weights with a divergence of at least `FAR` ln 2 and an output that stays the same were found
    for more than half of the steps. For all models and tasks: reproduced; for some: qualified. For
    less than half on all: contradicted where turned weights change more than `ALWAYS` of the
    outputs on all, as outputs then hang on the weights; qualified, as true of a part of the steps,
    where they change fewer on some. (That last case came in after a trial, which no case covered.)
    Else not resolved. A search that finds nothing proves nothing: the share is a lower bound.
  L6 `lower`: the error rate of `location` less that of `local-m` and of `local-p`, on each task,
    all read at the word written: above 0 on all reproduced, below on all contradicted, above on
    some qualified, else not resolved. Then again with Luong's columns (`location` at the word
    written, local models at the word given). Where the two verdicts differ: qualified if either
    says that it is so anywhere, else not resolved.
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attn import configs
from attn.data import catalog
from attn.data.config import DataConfig
from attn.evaluation.intervals import Interval, mean_interval, paired_interval
from attn.models import ModelConfig
from attn.report import recorder, results
from attn.report.results import Claim, Metric, Verdict
from attn.training import OptimizerConfig, TrainConfig
from experiments import alignment_figures as figures
from experiments import checks, claims, workers
from experiments.alignment_runs import (
  GLOBAL_LOCATION,
  INPUT,
  LOCAL,
  MODELS,
  OUTPUT,
  REPLACED,
  Sizes,
  agreement,
  cells,
  measure,
)

CLAIMS = ("55", "L6")

LEARNED = 0.8
FAR = 0.5  # of ln 2
ALWAYS = 0.9

Runs = Mapping[str, Sequence[Mapping[str, Any]]]  # TASK-MODEL to what was measured, a seed an entry

_TRAIN = TrainConfig(
  model=ModelConfig(
    source_vocabulary=64,  # room for all tasks, whose models then are of one compiled program
    target_vocabulary=64,
    embedding=32,
    units=64,
    alignment=64,
    maxout=64,
    biases=True,
    initialisation="glorot",
    half_width=2,
  ),
  data=DataConfig(name="lexicon", batch_size=64, bucket_edges=(10,)),
  optimizer=OptimizerConfig(learning_rate=5e-3, warmup=50),
  steps=400,
  validate_every=None,
  checkpoint_every=1000,
)


@dataclasses.dataclass(frozen=True)
class Config:
  """What is trained, and how much of it is looked at.

  Attributes:
    train: the training run of each model but for what makes it that model, and its data.
    seed: the first seed.
    seeds: how many, counting up from it; at least 3, for an interval.
    tasks: data sets with gold alignment.
    models: which are trained, keys of `MODELS`.
    sizes: how much of each is looked at.
  """

  train: TrainConfig = _TRAIN
  seed: int = 0
  seeds: int = 3
  tasks: tuple[str, ...] = ("lexicon",)
  models: tuple[str, ...] = ("additive", "location")
  sizes: Sizes = Sizes()

  def __post_init__(self) -> None:
    """Refuses too few seeds, unknown models, and what the experiment sets itself."""
    if self.seeds < 3:
      raise configs.ConfigError(f"seeds is {self.seeds}: a verdict needs at least 3")
    for name in ("tasks", "models"):
      given = getattr(self, name)
      if not given or len(set(given)) < len(given):
        raise configs.ConfigError(f"{name} is {given}: name at least one, and each once")
    for model in self.models:
      if model not in MODELS:
        raise configs.ConfigError(f"models has {model!r}: choose among {', '.join(MODELS)}")
    own: dict[str, Any] = {"train.seed": 0, "train.data.name": "lexicon"}
    own |= {f"train.model.{k}": getattr(ModelConfig(), k) for made in MODELS.values() for k in made}
    checks.set_itself(self, own)
    cells(self.train, self.models, self.tasks)

  @property
  def all_seeds(self) -> range:
    """Every seed that is run."""
    return range(self.seed, self.seed + self.seeds)


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  smoke = {
    "train.steps": 4, "train.data.limit": 500, "train.data.batch_size": 16,
    "train.model.units": 16, "train.model.embedding": 8, "train.model.alignment": 8,
    "train.model.maxout": 8, "models": ("additive",), "sizes.pairs": 32, "sizes.steps": 20,
    "sizes.starts": 2, "sizes.updates": 5,
  }  # fmt: skip
  full = {
    "tasks": ("lexicon", "fertility"), "models": tuple(MODELS), "seeds": 5,
  }  # fmt: skip
  return {"smoke": smoke, "default": {}, "full": full}


def sweep_quick() -> list[dict[str, Any]]:
  """What counts as the same output, in very short runs."""
  return [{**profiles()["smoke"], "sizes.change": change} for change in (0.001, 0.01, 0.1)]


def sweep_paper() -> list[dict[str, Any]]:
  """The width of Luong's window."""
  return [{"train.model.half_width": half_width} for half_width in (1, 3, 5, 10)]


def diagnosis_only(
  gains: Sequence[Interval],
  found: Sequence[Interval],
  changed: Sequence[Interval],
  *,
  learned: bool,
) -> Verdict:
  """Whether weights tell alignment but not why an output is what it is; intervals a model and task.

  Args:
    gains: error rate of links without weights less that of links by weights.
    found: share of steps with other weights far from their own, and the same output.
    changed: share of steps whose output turned weights change.
    learned: whether the models have.
  """
  if not learned:
    return results.NOT_RESOLVED
  if any(gain.high < 0 for gain in gains):
    return results.CONTRADICTED
  if not all(gain.low > 0 for gain in gains):
    return results.NOT_RESOLVED
  denied = [share.low > 0.5 for share in found]
  if any(denied):
    return results.REPRODUCED if all(denied) else results.QUALIFIED
  if not all(share.high < 0.5 for share in found):
    return results.NOT_RESOLVED
  if all(one.low > ALWAYS for one in changed):
    return results.CONTRADICTED
  return results.QUALIFIED if any(one.high < ALWAYS for one in changed) else results.NOT_RESOLVED


def lower(written: Sequence[Interval], luong: Sequence[Interval], *, learned: bool) -> Verdict:
  """Whether local attention aligns better than location scores; differences a model and task.

  Args:
    written: error rate of `location` less a local model's, all read at the word written.
    luong: the same with Luong's columns.
    learned: whether the local models have.
  """
  if not learned or not written:
    return results.NOT_RESOLVED
  verdicts = {claims.above(written), claims.above(luong)}
  if len(verdicts) == 1:
    return verdicts.pop()
  true = {results.REPRODUCED, results.QUALIFIED}
  return results.QUALIFIED if verdicts & true else results.NOT_RESOLVED


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Trains what is missing in `workdir`, judges the claims and draws the figures.

  Args:
    config: what is trained and looked at.
    workdir: where `result.json`, the figures and, in `checkpoints/`, every training run go.
  """
  record = recorder.Recorder("alignment", config, profiles(), workdir, seeds=config.all_seeds)
  for task in config.tasks:
    catalog.prepare(task, config.train.data.data_dir)
  measured = workers.grid(
    cells(config.train, config.models, config.tasks),
    config.all_seeds,
    pathlib.Path(workdir) / "checkpoints",
    functools.partial(measure, sizes=config.sizes),
  )
  for cell, runs in measured.items():
    for seed, one in zip(config.all_seeds, runs, strict=True):
      record.log(cell=cell, seed=seed, right=one["right"], nats=one["nats"], **one["error_rates"])
  seeds = f"means over {config.seeds} seeds and 95% intervals"
  record.figure("error_rates", figures.error_rates(config, measured), caption=(
    f"Links of the largest weights along {config.sizes.pairs} test references of each task;"
    f" {seeds}. Lines: the diagonal, and what random links are expected to have."
    f" {figures.CONVENTION}"
  ))  # fmt: skip
  if _replaced(config):
    record.figure("replaced", figures.replaced(config, measured), caption=(
      f"{config.sizes.steps} decoding steps of each task, {config.seeds} seeds. Left: the largest"
      f" divergences that {config.sizes.starts} searches of {config.sizes.updates} updates found"
      f" with at most {config.sizes.change:g} of total variation, sorted; bands: 95% intervals over"
      " seeds. Right: outputs that other weights change by more than that."
    ))  # fmt: skip
  return record.finish(metrics=_metrics(config, measured), claims=judge(config, measured))


def _replaced(config: Config) -> list[str]:
  """The cells whose weights were replaced."""
  models = [model for model in REPLACED if model in config.models]
  return [f"{task}-{model}" for task in config.tasks for model in models]


def rates(runs: Sequence[Mapping[str, Any]], column: str) -> list[float]:
  """Alignment error rates of all seeds, or those of a baseline."""
  return [one["error_rates"][column] for one in runs]


def shares(runs: Sequence[Mapping[str, Any]], name: str, least: float) -> list[float]:
  """Share of the steps, for each seed, that have at least so much of what replacing them found."""
  return [float((np.array(one["replaced"][name]) >= least).mean()) for one in runs]


def judge(config: Config, measured: Runs) -> list[Claim]:
  """The claims, by the rules of this module's docstring."""
  return [_judge_diagnosis(config, measured), _judge_local(config, measured)]


def _judge_diagnosis(config: Config, measured: Runs) -> Claim:
  """Claim 55."""
  seen = {cell: measured[cell] for cell in _replaced(config)}
  level = 1 - 0.05 / max(1, 3 * len(seen))
  gains, found, changed = {}, {}, {}
  for cell, runs in seen.items():
    without = min((rates(runs, name) for name in ("diagonal", "chance")), key=np.mean)
    gains[cell] = paired_interval(without, rates(runs, OUTPUT), level)
    found[cell] = mean_interval(shares(runs, "farthest", FAR * np.log(2)), level)
    changed[cell] = mean_interval(shares(runs, "turned change", config.sizes.change), level)
  right = {cell: float(np.mean([one["right"] for one in runs])) for cell, runs in seen.items()}
  learned = bool(seen) and min(right.values()) >= LEARNED
  verdict = diagnosis_only(
    list(gains.values()), list(found.values()), list(changed.values()), learned=learned
  )
  least = min(found.values(), key=lambda one: one.low, default=None)
  most = [cell for cell, share in found.items() if share.low > 0.5]
  lowest = {cell: float(np.mean(rates(runs, OUTPUT))) for cell, runs in seen.items()}
  return claims.judge(
    "55",
    measured="alignment error rates at the word written: "
    + ", ".join(f"{cell} {rate:.2f}" for cell, rate in lowest.items())
    + "; less than without weights by "
    + _told(gains)
    + f"; steps with weights at least {FAR:g} ln 2 away and an output within"
    f" {config.sizes.change:g}: {_told(found)}; outputs that turned weights change: "
    + _told(changed),
    interval=None if least is None else (least.low, least.high),
    **claims.told(
      verdict,
      reproduced="The weights tell alignment, and for most steps others far away give the same"
      " output: that the weights are these explains nothing.",
      qualified="The weights tell alignment. That others far away give the same output for most"
      f" steps is so for some models and tasks only: {', '.join(most)}."
      if most
      else "The weights tell alignment. Others far away give the same output for a part of the"
      " steps, fewer than half; most outputs do hang on the weights.",
      contradicted="The weights tell alignment no better than no weights do."
      if any(gain.high < 0 for gain in gains.values())
      else "The weights tell alignment, and outputs hang on them: for most steps none far away"
      " was found that keeps the output, and turned ones change nearly all.",
      **{results.NOT_RESOLVED: _open(gains) if learned
         else "Such models were not trained, or have not learned."},
    ),
  )  # fmt: skip


def _open(gains: Mapping[str, Interval]) -> str:
  """What is not resolved of claim 55 where the models have learned."""
  if unsure := [cell for cell, gain in gains.items() if gain.low <= 0]:
    return (
      f"Whether weights tell alignment better than no weights do is open for {', '.join(unsure)},"
      " of which the interval holds 0: more seeds would settle."
    )
  return (
    "The weights tell alignment. How many steps could do with others is open, as intervals hold the"
    " thresholds: more seeds would settle."
  )


def _judge_local(config: Config, measured: Runs) -> Claim:
  """Claim L6."""
  pairs = [
    (f"{task}-{GLOBAL_LOCATION}", f"{task}-{model}") for task in config.tasks for model in LOCAL
  ]
  pairs = pairs if all(cell in measured for pair in pairs for cell in pair) else []
  level = 1 - 0.05 / max(1, 2 * len(pairs))
  by_column = {
    column: {
      local: paired_interval(rates(measured[other], OUTPUT), rates(measured[local], column), level)
      for other, local in pairs
    }
    for column in (OUTPUT, INPUT)
  }
  learned = all(np.mean([one["right"] for one in measured[local]]) >= LEARNED for _, local in pairs)
  written, luong = (list(by_column[column].values()) for column in (OUTPUT, INPUT))
  verdict = lower(written, luong, learned=learned)
  least = min(written, key=lambda one: one.low, default=None)
  lost = [local for local, one in by_column[OUTPUT].items() if one.low <= 0]
  return claims.judge(
    "L6",
    measured="location less local, error rates at the word written: "
    + _told(by_column[OUTPUT])
    + "; local models at the word given, as Luong read them: "
    + _told(by_column[INPUT]),
    interval=None if least is None else (least.low, least.high),
    **claims.told(
      verdict,
      reproduced="Lower for both windows on every task, in whichever column they are read.",
      qualified="Lower where all are read at the word written"
      + (f", but for {', '.join(lost)}" if lost else "")
      + "; in Luong's column for scores that look at the source it is "
      + ("not lower." if claims.above(luong) != results.REPRODUCED else "lower too.")
      + " The interval is that of the difference that reaches lowest.",
      contradicted="Higher for both windows on every task, in whichever column they are read.",
      **{results.NOT_RESOLVED: "Intervals hold 0." if learned and pairs
         else "The local models have not learned, or not all models were trained."},
    ),
  )  # fmt: skip


def _told(found: Mapping[str, Interval]) -> str:
  return ", ".join(f"{one:.2f} ({cell})" for cell, one in found.items()) or "none were trained"


def _metrics(config: Config, measured: Runs) -> dict[str, Metric]:
  """Error rates, and what replacing weights does, with intervals of their own."""
  metrics: dict[str, Metric] = {}
  for cell, runs in measured.items():
    for column in (OUTPUT, INPUT):
      metrics[f"{cell}: alignment error rate, {column}"] = Metric(
        *mean_interval(rates(runs, column))
      )
    right = mean_interval([100 * one["right"] for one in runs])
    metrics[f"{cell}: symbols right along references"] = Metric(*right, "%")
  for task in config.tasks:
    runs = measured[f"{task}-{config.models[0]}"]
    for name in ("diagonal", "chance"):
      metrics[f"{task}: alignment error rate, {name}"] = Metric(rates(runs, name)[0])
  for cell in _replaced(config):
    metrics |= _replacements(cell, measured[cell], config.sizes.change)
  return metrics


def _replacements(cell: str, runs: Sequence[Mapping[str, Any]], change: float) -> dict[str, Metric]:
  """What replacing the weights of one model does, and how far seeds agree."""
  metrics: dict[str, Metric] = {}
  far = [np.array(one["replaced"]["farthest"]) / np.log(2) for one in runs]
  for quantile in (0.1, 0.5, 0.9):
    values = [float(np.quantile(one, quantile)) for one in far]
    name = f"{cell}: {quantile:.0%} quantile of the farthest weights with the same output"
    metrics[name] = Metric(*mean_interval(values), "of ln 2")
  for weights in ("uniform", "turned"):
    moved = mean_interval([100 * x for x in shares(runs, f"{weights} change", change)])
    metrics[f"{cell}: outputs that {weights} weights change"] = Metric(*moved, "%")
    variation = mean_interval(
      [float(np.mean(one["replaced"][f"{weights} change"])) for one in runs]
    )
    metrics[f"{cell}: total variation by {weights} weights"] = Metric(*variation)
    lost = mean_interval([float(np.mean(one["replaced"][f"{weights} loss"])) for one in runs])
    metrics[f"{cell}: loss added by {weights} weights"] = Metric(*lost, "nats a symbol")
  for name, values in agreement(runs).items():
    label = {"seeds": "the next seed's", "turned": "the next seed's turned", "uniform": "uniform"}
    told = f"{cell}: divergence of weights from {label[name]}"
    metrics[told] = Metric(*mean_interval([x / float(np.log(2)) for x in values]), "of ln 2")
  return metrics
