"""Is the supervision of the whole target computed at once, and what does the model not see there?

Claim 6 is looked at in live programs: whether a word of the target moves what is predicted up to
it; whether a greedy output is as probable along itself as it was when it was made; and which share
of a decoder's multiply-adds waits for the step before, along a known target and where each word is
chosen first. That shows what is at once. What it leaves out is the other half of the question: a
model that was fed the truth reads its own words afterwards. RNNsearch is trained on g2p (spelling
to sound) with several shares of its own words (scheduled sampling) and then fed them at several
shares; after a word's first error, errors are counted fed its own words and fed the truth, at the
same symbols of the same words.

Command: python -m launch.run --experiment=teacher_forcing
Time: on two cores: default 60 seconds (6 runs x 13 s and compiling 2 models x 16 s, / 2), smoke
10 (6 runs of 4 updates, nearly all of it compiling), full 8 minutes beside other work (20 runs x 30
s and 4 models x 20 s, / 2). A killed run goes on where it was.
Expect: along a known target a tenth (Luong) to a third (RNNsearch) of a decoder's products wait for
the step before, where words are chosen 99% or more. Trained on the truth alone, the loss of 0.49
nats is 1.3 when a model reads its own words, and right after an error it is wrong twice as often as
it would be on the truth. Half of its own words in training halve that growth of the loss; greedy
outputs are no better for it.

Rules, stated before the run.
  6 `at_once`: a word that moves logits up to its own place by more than `EXACT`, or none after it
    by more; or a greedy output whose log-probability along itself differs by more than `SAME` nats:
    contradicted, since what is supervised would not be what is generated. So it is if some model's
    share that waits is not smaller along a known target than where words are chosen. If nothing
    waits in any model: reproduced. Else qualified: inputs are known at once and losses come in one
    pass, but states wait for each other, in some models all that they read as well.
The mismatch between training and use is no claim of the chapter, and has no verdict: it is told
with its intervals over seeds.
"""

import dataclasses
import functools
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attn import configs
from attn.data import catalog
from attn.data.config import DataConfig
from attn.evaluation.intervals import mean_interval, paired_interval
from attn.models import ModelConfig
from attn.report import recorder, results
from attn.report.results import Claim, Metric, Verdict
from attn.training import OptimizerConfig, TrainConfig
from experiments import checks, claims, workers
from experiments import teacher_forcing_figures as figures
from experiments import teacher_forcing_programs as programs
from experiments.teacher_forcing_programs import KINDS, Program
from experiments.teacher_forcing_runs import FED_SHARES, Measured, measure, read

CLAIMS = ("6",)

EXACT = 1e-5  # logits
SAME = 1e-3  # nats a sentence

_TRAIN = TrainConfig(
  model=ModelConfig(
    embedding=32,
    units=64,
    alignment=64,
    maxout=64,
    biases=True,
    initialisation="glorot",
  ),
  # More pairs than the updates see would only take time to read.
  data=DataConfig(name="g2p", batch_size=64, bucket_edges=(16,), limit=40_000),
  optimizer=OptimizerConfig(learning_rate=5e-3, warmup=50),
  steps=400,
  validate_every=None,
  checkpoint_every=1000,
)


@dataclasses.dataclass(frozen=True)
class Config:
  """What is trained, and where it is fed its own words.

  Attributes:
    train: the run of each share; `objective.sampling` is set here.
    shares: of the words read in training that are the model's own at its end; 0, fed the truth
      alone, has to be there.
    seed: the first seed.
    seeds: how many, counting up from it; at least 3, for an interval.
    test: test pairs a run; None takes all.
    places: symbols, and symbols after the first error, whose errors are told.
    words: of the targets in whose programs claim 6 is looked at.
  """

  train: TrainConfig = _TRAIN
  shares: tuple[float, ...] = (0.0, 0.5)
  seed: int = 0
  seeds: int = 3
  test: int | None = 1000
  places: int = 8
  words: int = 50

  def __post_init__(self) -> None:
    """Refuses too few seeds, shares without 0, and what the experiment sets itself."""
    checks.at_least(self, seeds=3, places=1, words=3)
    if self.test is not None and self.test < 1:
      raise configs.ConfigError(f"test is {self.test}: at least one source has to be decoded")
    if list(self.shares) != sorted({*self.shares}) or 0.0 not in self.shares:
      raise configs.ConfigError(f"shares is {self.shares}: it must be rising shares, 0 among them")
    checks.set_itself(self, {"train.seed": 0, "train.objective.sampling": 0.0})
    self.cells()

  @property
  def all_seeds(self) -> range:
    """Every seed that is run."""
    return range(self.seed, self.seed + self.seeds)

  def cells(self) -> dict[float, TrainConfig]:
    """The training run of each share."""
    return {
      share: configs.override(self.train, {"objective.sampling": share}) for share in self.shares
    }


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  smoke = {
    "train.steps": 4, "train.data.limit": 500, "train.data.batch_size": 16,
    "train.model.units": 16, "train.model.embedding": 8, "train.model.alignment": 8,
    "train.model.maxout": 8, "test": 64, "places": 3, "words": 5,
  }  # fmt: skip
  full = {"train.steps": 800, "shares": (0.0, 0.25, 0.5, 1.0), "seeds": 5, "test": 3000}
  return {"smoke": smoke, "default": {}, "full": full}


def sweep_quick() -> list[dict[str, Any]]:
  """One share beside none, in very short runs."""
  return [{**profiles()["smoke"], "shares": (0.0, share)} for share in (0.25, 0.5, 1.0)]


def sweep_paper() -> list[dict[str, Any]]:
  """Whether the mismatch closes as training goes on."""
  return [{**profiles()["full"], "train.steps": steps} for steps in (400, 800, 1600, 3200)]


@dataclasses.dataclass(frozen=True)
class Found:
  """Of one kind of model.

  Attributes:
    forced: its program along a known target.
    generated: its program where each word is chosen first.
    before: how far a word of the target moves logits up to its place, at most.
    after: how far it moves those behind it, at least.
  """

  forced: Program
  generated: Program
  before: float
  after: float


def at_once(found: Sequence[Found], gap: float) -> Verdict:
  """Whether all of a target is supervised at once, as what is generated; see the docstring.

  Args:
    found: of each kind of model.
    gap: largest difference between a greedy output's log-probability and that along itself.
  """
  causal = all(one.before <= EXACT < one.after for one in found)
  less = all(one.forced.waiting < one.generated.waiting for one in found)
  if not causal or gap > SAME or not less:
    return results.CONTRADICTED
  return results.QUALIFIED if any(one.forced.inside for one in found) else results.REPRODUCED


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Trains and measures what is missing in `workdir`, judges the claim and draws the figures.

  Args:
    config: what is trained and measured.
    workdir: where `result.json`, the figures and, in `checkpoints/`, every training run go.
  """
  record = recorder.Recorder("teacher_forcing", config, profiles(), workdir, seeds=config.all_seeds)
  catalog.prepare(config.train.data.name, config.train.data.data_dir)
  cells = config.cells()
  with workers.grid_beside(
    {_cell(share): train for share, train in cells.items()},
    config.all_seeds,
    pathlib.Path(workdir) / "checkpoints",
    functools.partial(measure, test=config.test, places=config.places),
  ) as trained:
    found = {name: look(model, config.words, config.seed) for name, model in KINDS.items()}
  measured = trained()
  runs = {share: [read(one) for one in measured[_cell(share)]] for share in cells}
  for share, seeds in runs.items():
    for seed, one in zip(config.all_seeds, seeds, strict=True):
      record.log(share=share, seed=seed, losses=one.losses, symbol_errors=one.symbol_errors)
  told = f"{config.seeds} seeds, bands: 95% intervals"
  record.figure("mismatch", figures.mismatch(runs), caption=(
    f"Loss along the references of {config.train.data.name} after {config.train.steps} updates,"
    " against the share of words read that are drawn by the model itself. A line a share in"
    f" training, which rises linearly to it; means over {told}."
  ))  # fmt: skip
  if len(runs) > 1:
    record.figure("quality", figures.quality(runs), caption=(
      f"Errors of greedy outputs for up to {config.test or 'all'} test pairs of"
      f" {config.train.data.name}, against the share of the words read that were the model's own at"
      f" the end of training; means over {config.seeds} seeds, bars: 95% intervals. The difference"
      " in the title is paired by seed."
    ))  # fmt: skip
  record.figure("exposure", figures.exposure(runs), caption=(
    "Trained on the truth alone. Left: symbols that differ from the reference at the same place."
    " Right: the same symbols after the first error of an output, fed that output and fed the"
    f" reference; an output that is shifted counts as wrong. Means over {told}."
  ))  # fmt: skip
  record.figure("programs", figures.waiting(found, config.words), caption=(
    f"Share of the decoder's multiply-adds that are in a loop over {config.words} target words,"
    f" source of {config.words}, widths of Bahdanau 2015. Counted in the programs."
  ))  # fmt: skip
  return record.finish(metrics=_metrics(runs, found), claims=[judge(found, runs, config.words)])


def _cell(share: float) -> str:
  return f"share-{share:g}"


def look(model: ModelConfig, words: int, seed: int) -> Found:
  """One kind of model's programs, and what a word moves in it."""
  size = min(words, 8)  # Farther on, what a word moves is lost in rounding.
  moved = programs.moved(model, size, seed)
  later = np.triu(np.ones((size, size), bool), 1)
  return Found(
    forced=programs.forced(model, words),
    generated=programs.generated(model, words),
    before=float(moved[~later].max()),
    after=float(moved[later].min()),
  )


def mismatch(runs: Sequence[Measured]) -> list[float]:
  """By how much the loss grows when all words read are the model's own, nats, a run each."""
  return [one.losses[-1] - one.losses[0] for one in runs]


def compounding(runs: Sequence[Measured]) -> list[float]:
  """Errors right after the first one, fed its own words less fed the truth, points."""
  return [one.own_since[0] - one.forced_since[0] for one in runs]


def judge(
  found: Mapping[str, Found], runs: Mapping[float, Sequence[Measured]], words: int
) -> Claim:
  """Claim 6, by the rule of this module's docstring."""
  gap = max(one.gap for seeds in runs.values() for one in seeds)
  waiting = "; ".join(
    f"{name} {one.forced.waiting:.0f}% in {one.forced.steps} steps" for name, one in found.items()
  )
  chosen = math.floor(min(one.generated.waiting for one in found.values()))
  most = max(found, key=lambda name: found[name].forced.waiting)
  least = min(found, key=lambda name: found[name].forced.waiting)
  truth = runs[0.0]
  grows, more = mean_interval(mismatch(truth)), mean_interval(compounding(truth))
  return claims.judge(
    "6",
    measured=f"multiply-adds of the decoder that wait for the step before, along a known target of"
    f" {words} words: {waiting}; where words are chosen: {chosen}% or more. A word moves logits"
    f" up to its place by {max(one.before for one in found.values()):.1g} at most. Greedy outputs"
    f" along themselves: {gap:.1g} nats apart at most. Fed its own words, a model trained on the"
    f" truth loses {grows:+.2g} nats a symbol more, and is wrong {more:+.2g} points more"
    " often right after its first error",
    **claims.told(
      at_once(list(found.values()), gap),
      reproduced="Nothing waits.",
      qualified="All inputs are known, and one pass gives all losses, as they are when words are"
      f" chosen; but states wait for each other, {words} steps in every model, and with them"
      f" {found[least].forced.waiting:.0f}% ({least}) to {found[most].forced.waiting:.0f}%"
      f" ({most}) of the products. And it supervises along the truth, not along what the model"
      " writes.",
      contradicted="A loss depends on later words, or on how the words came, or nothing is saved.",
    ),
  )


def _metrics(
  runs: Mapping[float, Sequence[Measured]], found: Mapping[str, Found]
) -> dict[str, Metric]:
  """Losses and errors of each share, what sampling changes, and what waits."""
  metrics: dict[str, Metric] = {}

  def add(name: str, unit: str, of: Any) -> None:
    """One number of each run, for each share and against none."""
    truth = [of(one) for one in runs[0.0]]
    for share, seeds in runs.items():
      values = [of(one) for one in seeds]
      metrics[f"{name}, trained on {share:.0%} of its own"] = Metric(*mean_interval(values), unit)
      if share:
        less = paired_interval(values, truth)
        metrics[f"{name}, trained on {share:.0%} less on none"] = Metric(
          *less, "points" if unit == "%" else unit
        )

  for at, fed in enumerate(FED_SHARES):
    add(f"loss fed {fed:.0%} of its own", "nats", lambda one, at=at: one.losses[at])
  add("loss fed its own less fed the truth", "nats", lambda one: mismatch([one])[0])
  add("symbol errors", "%", lambda one: one.symbol_errors)
  add("word errors", "%", lambda one: one.word_errors)
  add("errors along the reference", "%", lambda one: one.forced_errors)
  add("errors right after the first, fed its own", "%", lambda one: one.own_since[0])
  add("errors at the same symbols, fed the truth", "%", lambda one: one.forced_since[0])
  for name, one in found.items():
    for way, program in (("known target", one.forced), ("chosen words", one.generated)):
      metrics[f"products that wait, {way}, {name}"] = Metric(program.waiting, unit="%")
  return metrics
