"""How far is an output from a word of the source, and how much of its gradient gets there?

Four models: the source's vector as the decoder's first state (Sutskever 2014), the same at each
step (RNNencdec), Luong 2015 and RNNsearch. The distance is counted in the program that JAX makes of
each: the least number of products with a matrix, or weighted sums, and of steps from one state of a
recurrence to the next; what is done element by element is at no distance. Then each is trained to
say letters backwards (`reverse`), and before and after that the norm of the gradient of each output
to each word is held against the words between them, by the way along the states: n - j + i from
word j to output i of n, counted from 0.

Command: python -m launch.run --experiment=path_length
Time: on two cores, a process for each model, two at once: default 67 seconds (12 runs x 6 s and
compiling 4 models x 16 s, / 2), smoke 8 (6 runs of 4 updates, nearly all of it compiling two
models), full 22 minutes beside other work (20 runs x 130 s / 2). A killed run goes on where it was.
Expect: paths that grow by one or two steps a word without attention and are 4 at any length with
it. Untrained, ten words between divide the gradient by 5 to 25 without attention and leave it as it
is with attention; trained, no model loses much of it, near or far, after 200 updates as after 1500.

Rules, stated before the run; that of 74 after a trial with one seed and 500 updates. Distances are
exact. Slopes are those of log10 of the gradient's norm on the words between, one a model and seed;
a model with attention less the one of its cell without (Luong less first state, RNNsearch less each
step), paired by seed. Intervals hold together at 95%.
  1 `one_step`: the longest of the shortest paths between a word and an output, at each length. If a
    fixed-vector model's does not grow by the same for every word, or one with attention grows:
    contradicted. If the latter is 1: reproduced. Else qualified: it is another constant.
  74 `falls`: if the distances are not as 1 wants them, contradicted. Gradients follow them, before
    training or after, where each fixed-vector model's slope lies below 0 and each difference above.
    At both times: reproduced; at one: qualified; at neither, or unless both models with attention
    say at least `LEARNED` of the letters right: not resolved.
  80 `still_recurrent`: the longest chain of states that wait for each other. With attention it
    grows by as many a word as without: reproduced; by fewer, but grows: qualified; else
    contradicted.
"""

import dataclasses
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
from experiments import checks, claims, workers
from experiments import path_length_figures as figures
from experiments import path_length_graph as graph
from experiments.path_length_graph import Paths
from experiments.path_length_runs import (
  ARMS,
  ATTENDING,
  FIXED,
  PAIRS,
  SEARCH,
  Measured,
  measure,
  resolved,
)

CLAIMS = ("1", "74", "80")

LEARNED = 0.5
TIMES = ("before", "after")
_TOGETHER = len(TIMES) * (len(FIXED) + len(PAIRS))  # intervals that decide claim 74

_TRAIN = TrainConfig(
  model=ModelConfig(
    embedding=32,
    units=64,
    alignment=64,
    maxout=64,
    biases=True,
    initialisation="glorot",
  ),
  data=DataConfig(name="reverse", batch_size=64, bucket_edges=(22,)),
  optimizer=OptimizerConfig(learning_rate=5e-3, warmup=50),
  steps=200,
  validate_every=None,
  checkpoint_every=1000,
)


@dataclasses.dataclass(frozen=True)
class Config:
  """What is trained, and where distances and gradients are taken.

  Attributes:
    train: the training run of each model but for what makes it that model.
    seed: the first seed.
    seeds: how many, counting up from it; at least 3, for an interval.
    pairs: of models of one cell, with attention and without, that are trained; 1 takes the LSTMs.
    lengths: words of source and target at which distances are counted, ascending.
    words: letters of the sentences whose gradients are taken; `reverse` has 2 to 20.
    sentences: how many of them at most.
  """

  train: TrainConfig = _TRAIN
  seed: int = 0
  seeds: int = 3
  pairs: int = 2
  lengths: tuple[int, ...] = (4, 8, 16, 32)
  words: int = 20
  sentences: int = 64

  def __post_init__(self) -> None:
    """Refuses too few seeds or lengths, and what the experiment sets itself."""
    if self.seeds < 3:
      raise configs.ConfigError(f"seeds is {self.seeds}: a verdict needs at least 3")
    if (
      len(self.lengths) < 3 or list(self.lengths) != sorted({*self.lengths}) or self.lengths[0] < 2
    ):
      raise configs.ConfigError(
        f"lengths is {self.lengths}: it must be at least three rising numbers of words from 2 on"
      )
    if not 1 <= self.pairs <= len(PAIRS):
      raise configs.ConfigError(f"pairs is {self.pairs}: there are 1 or {len(PAIRS)} to train")
    checks.at_least(self, words=3, sentences=1)
    own: dict[str, Any] = {"train.seed": 0, "train.data.name": "reverse"}
    for name in (name for arm in ARMS.values() for name in arm):
      own[f"train.model.{name}"] = getattr(ModelConfig(), name)
    checks.set_itself(self, own)
    for arm in ARMS:
      resolved(self.train, arm, self.seed)

  @property
  def all_seeds(self) -> range:
    """Every seed that is run."""
    return range(self.seed, self.seed + self.seeds)


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  smoke = {
    "train.steps": 4, "train.data.limit": 500, "train.data.batch_size": 16,
    "train.model.units": 16, "train.model.embedding": 8, "train.model.alignment": 8,
    "train.model.maxout": 8, "pairs": 1, "lengths": (3, 5, 9),
    "sentences": 16,
  }  # fmt: skip
  full = {
    "train.steps": 1500, "train.model.units": 128, "train.model.alignment": 128,
    "train.model.maxout": 128, "seeds": 5, "lengths": (4, 8, 16, 32, 64), "sentences": 128,
  }  # fmt: skip
  return {"smoke": smoke, "default": {}, "full": full}


def sweep_quick() -> list[dict[str, Any]]:
  """The width of the states, in very short runs."""
  return [{**profiles()["smoke"], "train.model.units": units} for units in (8, 16, 32)]


def sweep_paper() -> list[dict[str, Any]]:
  """How the slopes go on as training does."""
  return [{"train.steps": steps} for steps in (150, 300, 600, 1200)]


def paths(config: Config) -> dict[str, Paths]:
  """Distances in every model, at every length; widths do not matter."""
  small = {"source_vocabulary": 5, "target_vocabulary": 3, "embedding": 2, "units": 2,
           "alignment": 2, "maxout": 2}  # fmt: skip
  models = {
    arm: dataclasses.replace(resolved(config.train, arm, config.seed).model, **small)
    for arm in ARMS
  }
  return {arm: graph.paths(model, config.lengths) for arm, model in models.items()}


def grows(values: Sequence[int], lengths: Sequence[int]) -> bool:
  """Whether each word adds the same, and something."""
  slopes = np.diff(values) / np.diff(lengths)
  return bool(slopes[0] > 0 and np.all(slopes == slopes[0]))


def one_step(found: Mapping[str, Paths], lengths: Sequence[int]) -> Verdict:
  """Whether the longest path grows without attention, and with it is 1."""
  attending = {distance for arm in ATTENDING for distance in found[arm].longest}
  if not all(grows(found[arm].longest, lengths) for arm in FIXED) or any(
    len(set(found[arm].longest)) > 1 for arm in ATTENDING
  ):
    return results.CONTRADICTED
  return results.REPRODUCED if attending == {1} else results.QUALIFIED


def falls(counted: Verdict, follow: Sequence[bool], *, learned: bool) -> Verdict:
  """Whether paths are constant with attention alone, and gradients follow.

  Args:
    counted: of claim 1, by the distances.
    follow: whether gradients do, before and after training.
    learned: whether the models with attention have.
  """
  if counted == results.CONTRADICTED:
    return results.CONTRADICTED
  if not learned or not any(follow):
    return results.NOT_RESOLVED
  return results.REPRODUCED if all(follow) else results.QUALIFIED


def follows(fixed: Sequence[Interval], differences: Sequence[Interval]) -> bool:
  """Whether gradients fall with distance without attention, and more than with it, at one time.

  Args:
    fixed: slopes of the fixed-vector models.
    differences: slopes with attention less those without.
  """
  return all(slope.high < 0 for slope in fixed) and all(more.low > 0 for more in differences)


def still_recurrent(found: Mapping[str, Paths], lengths: Sequence[int]) -> Verdict:
  """Whether chains of states grow with attention as without."""
  if not all(grows(found[arm].chain, lengths) for arm in ATTENDING):
    return results.CONTRADICTED
  rates = {arm: found[arm].chain[-1] - found[arm].chain[0] for arm in ARMS}
  without = min(rates[arm] for arm in FIXED)
  same = all(rates[arm] >= without for arm in ATTENDING)
  return results.REPRODUCED if same else results.QUALIFIED


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Counts, trains what is missing in `workdir`, judges the claims and draws the figures.

  Args:
    config: what is trained and counted.
    workdir: where `result.json`, the figures and, in `checkpoints/`, every training run go.
  """
  record = recorder.Recorder("path_length", config, profiles(), workdir, seeds=config.all_seeds)
  catalog.prepare(config.train.data.name, config.train.data.data_dir)
  folder = pathlib.Path(workdir) / "checkpoints"
  arms = [arm for pair in PAIRS[: config.pairs] for arm in pair]
  # What takes longest is last there, and starts first.
  with workers.beside(measure_all, [(config, arm, folder) for arm in reversed(arms)]):
    found = paths(config)
  measured = {arm: measure_all(config, arm, folder) for arm in ARMS if arm in arms}
  for arm in ARMS:
    record.log(arm=arm, lengths=config.lengths, **found[arm]._asdict())
  for arm, runs in measured.items():
    for seed, one in zip(config.all_seeds, runs, strict=True):
      record.log(arm=arm, seed=seed, before=one.before, after=one.after)
  seeds = f"{config.seeds} seeds"
  record.figure("distance", figures.distance(config.lengths, found), caption=(
    "Counted in the programs of both models of each kind, from every word of the source to every"
    " output. Left: the farthest pair's shortest path. Right: states that wait for each other."
    " Exact, no sampling."
  ))  # fmt: skip
  record.figure("gradient", figures.gradient(measured), caption=(
    f"Gradient of each output to each embedded word, geometric means over test sentences of"
    f" {config.words} letters and over pairs; lines: means over {seeds}, bands: 95% intervals."
    " After training ten words between divide it by"
    f" {max(figures.divisors(measured, 'after').values()):.1f} at most, in all models. Right: to"
    " the letter that the output has to say, after training."
  ))  # fmt: skip
  return record.finish(metrics=_metrics(measured), claims=judge(config, found, measured))


def measure_all(config: Config, arm: str, folder: pathlib.Path) -> list[Measured]:
  """All runs of one model, a run a seed; those that are finished are read back."""
  return [
    measure(
      config.train, arm, seed, folder / f"{arm.replace(' ', '-')}-{seed}", words=config.words,
      sentences=config.sentences,
    )
    for seed in config.all_seeds
  ]  # fmt: skip


def slopes(runs: Sequence[Measured], time: str) -> list[float]:
  """Slopes of all seeds, in decades for ten words."""
  return [10 * getattr(one, time).slope for one in runs]


def judge(
  config: Config, found: Mapping[str, Paths], measured: Mapping[str, Sequence[Measured]]
) -> list[Claim]:
  """The claims, by the rules of this module's docstring."""
  first, last = config.lengths[0], config.lengths[-1]
  counted = one_step(found, config.lengths)
  still = still_recurrent(found, config.lengths)
  listed = "; ".join(f"{arm} {one.longest[0]} and {one.longest[-1]}" for arm, one in found.items())
  chains = "; ".join(f"{arm} {one.chain[0]} and {one.chain[-1]}" for arm, one in found.items())
  near = max(found[arm].shortest[-1] for arm in FIXED)
  constant = found[SEARCH].longest[-1]
  return [
    claims.judge(
      "1",
      measured=f"longest of the shortest paths at {first} and {last} words: {listed}. The nearest"
      f" pair without attention: at most {near} at {last} words",
      **claims.told(
        counted,
        qualified=f"It is {constant} at any length: word to annotation, annotation to"
        " context, context to readout, readout to output. The second alone is attention's, and is"
        " the 1. Without attention it grows for the farthest pair, not for the nearest.",
        reproduced="It grows without attention and is 1 with it.",
        contradicted="It grows with attention, or does not without.",
      ),
    ),
    _judge_gradients(counted, measured),
    claims.judge(
      "80",
      measured=f"states in a chain at {first} and {last} words of source and target: {chains}",
      **claims.told(
        still,
        reproduced="Attention shortens what information has to travel, not what has to be"
        " computed one after the other.",
        qualified="The chain grows, but by less than without attention.",
        contradicted="The chain does not grow by the same for every word.",
      ),
    ),
  ]


def _judge_gradients(counted: Verdict, measured: Mapping[str, Sequence[Measured]]) -> Claim:
  """Claim 74."""
  level = 1 - 0.05 / _TOGETHER
  pairs = [(other, arm) for other, arm in PAIRS if arm in measured]
  fixed, more, follow = {}, {}, {}
  for time in TIMES:
    fixed[time] = {arm: mean_interval(slopes(measured[arm], time), level) for arm, _ in pairs}
    more[time] = {
      arm: paired_interval(slopes(measured[arm], time), slopes(measured[other], time), level)
      for other, arm in pairs
    }
    follow[time] = follows(list(fixed[time].values()), list(more[time].values()))
  right = {arm: float(np.mean([one.after.right for one in runs])) for arm, runs in measured.items()}
  learned = len(pairs) == len(PAIRS) and all(right[arm] >= LEARNED for arm in ATTENDING)
  verdict = falls(counted, list(follow.values()), learned=learned)
  least = min((one for time in TIMES for one in more[time].values()), key=lambda one: one.low)
  shown = "before" if follow["before"] else "after"
  why = {
    results.REPRODUCED: "Distances are constant with attention alone, and gradients follow them"
    " before and after training.",
    results.QUALIFIED: f"True of the distances. That the gradients follow them is shown {shown}"
    " training alone: training can undo the fall, though the path stays as long.",
    results.CONTRADICTED: "The distances grow with attention, or do not without.",
    results.NOT_RESOLVED: "The distances are as claimed; whether the gradients follow is open, as"
    + (" intervals hold 0." if learned else " not all models have learned their task."),
  }[verdict]
  times = (
    f"{time} training without attention {_told(fixed[time])}, with it more by {_told(more[time])}"
    for time in TIMES
  )
  return claims.judge(
    "74",
    measured=f"decades of the gradient for ten words between: {'; '.join(times)}; letters right"
    " after training: " + ", ".join(f"{arm} {share:.0%}" for arm, share in right.items()),
    interval=(least.low, least.high),
    verdict=verdict,
    why=f"{why} The interval is that of the difference that reaches lowest.",
  )


def _told(found: Mapping[str, Interval]) -> str:
  return ", ".join(f"{one:+.2f} ({arm})" for arm, one in found.items())


def _metrics(measured: Mapping[str, Sequence[Measured]]) -> dict[str, Metric]:
  """Slopes and their differences, and how well the task was learned."""
  metrics: dict[str, Metric] = {}
  for time in TIMES:
    for arm, runs in measured.items():
      interval = mean_interval(slopes(runs, time))
      metrics[f"slope {time} training, {arm}"] = Metric(*interval, "decades for ten words")
    for other, arm in [pair for pair in PAIRS if pair[1] in measured]:
      both = slopes(measured[arm], time), slopes(measured[other], time)
      metrics[f"slope {time} training, {arm} less {other}"] = Metric(
        *paired_interval(*both), "decades for ten words"
      )
  for arm, runs in measured.items():
    right = mean_interval([100 * one.after.right for one in runs])
    metrics[f"letters right after training, {arm}"] = Metric(*right, "%")
  return metrics
