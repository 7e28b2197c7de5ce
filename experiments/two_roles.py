"""Is h_j key and value at once, and what does it cost that one vector has both roles?

The arithmetic: contexts of RNNsearch (additive score) and of a Luong model (dot), trained for a
while, are computed again by `attn.attend` with the annotations as keys and as values. The cost:
associative recall (`experiments/two_roles_recall.py`), where a vector holds a key and its value;
shared by both roles, split into halves, or projected for each, at equal parameters and several
widths; and, in `full`, g2p with RNNsearch, its annotations shared or split, at equal parameters.
The family projects no values. A shared vector contains the split one exactly: queries that are 0
where the value is, outputs that are 0 where the key is. So what a shared vector can lack is width.

Command: python -m launch.run --experiment=two_roles
Time: on two cores: default 33 seconds (compiling two models and the recall, 38 s, and training
them, 28 s, / 2), smoke 6, full 5 minutes (g2p 20 runs x 20 s, the recall 200 s, / 2). A killed run
goes on where it was, but for the recall.
Expect: contexts that agree to 1e-6. At equal parameters a split vector is the better one by half a
nat or more where all are narrow; what is left of it at the widest is next to nothing.

Rules, stated before the run.
  54 `same_arithmetic`: the largest difference between contexts, over models and over random
    queries and annotations against a loop in float64, is at most `TOLERANCE`: reproduced; else
    contradicted. If with other values than the keys the contexts are as near, nothing was tested:
    not resolved.
  79 `compromises`: the loss of the shared vector less that of the split one, in nats, paired by
    seed, at each width and on each data set; intervals over seeds that hold together at 95%. It
    costs something where its interval lies above `EQUAL`, a loss too small to matter, which came
    in after a trial with two seeds. Everywhere: reproduced; somewhere: qualified, true at those
    widths. Nowhere, and all intervals below it: contradicted. Else not resolved.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from attn import configs
from attn.data import catalog
from attn.data.config import DataConfig
from attn.evaluation.intervals import Interval, mean_interval, paired_interval
from attn.models import ModelConfig
from attn.report import recorder, results
from attn.report.results import Claim, Metric, Verdict
from attn.training import OptimizerConfig, TrainConfig
from experiments import checks, claims, workers
from experiments import two_roles_figures as figures
from experiments import two_roles_recall as recalling
from experiments.two_roles_recall import ARMS, Found, Recall
from experiments.two_roles_runs import MODELS, against_loops, balanced, recomputed, scored

CLAIMS = ("54", "79")

TOLERANCE = 1e-5
EQUAL = 0.02  # nats
_MODEL = ModelConfig(
  source_vocabulary=64,
  target_vocabulary=64,
  embedding=32,
  units=32,
  alignment=32,
  maxout=32,
  biases=True,
  initialisation="glorot",
)
_TRAIN = TrainConfig(
  model=_MODEL,
  data=DataConfig(name="reverse", batch_size=32, bucket_edges=(12,)),
  optimizer=OptimizerConfig(learning_rate=5e-3, warmup=50),
  steps=100,
  validate_every=None,
  checkpoint_every=1000,
)
_G2P = dataclasses.replace(
  _TRAIN,
  data=DataConfig(name="g2p", batch_size=64, bucket_edges=(12,)),
  steps=600,
)


@dataclasses.dataclass(frozen=True)
class Config:
  """What is trained.

  Attributes:
    train: the training run of the models whose contexts are computed again.
    models: which of `MODELS`.
    recall: associative recall.
    g2p: the training run on g2p, with shared annotations.
    units: widths that it has there; none, and it is not run.
    seed: the first seed.
    seeds: how many, counting up from it; at least 3, for an interval.
  """

  train: TrainConfig = _TRAIN
  models: tuple[str, ...] = tuple(MODELS)
  recall: Recall = Recall()
  g2p: TrainConfig = _G2P
  units: tuple[int, ...] = ()
  seed: int = 0
  seeds: int = 3

  def __post_init__(self) -> None:
    """Refuses too few seeds, unknown models, and what the experiment sets itself."""
    if self.seeds < 3:
      raise configs.ConfigError(f"seeds is {self.seeds}: a verdict needs at least 3")
    if not self.models or not set(self.models) <= set(MODELS):
      raise configs.ConfigError(f"models is {self.models}: choose among {', '.join(MODELS)}")
    own: dict[str, Any] = {"train.seed": 0, "g2p.seed": 0, "g2p.data.name": "g2p"}
    own |= {f"train.model.{k}": getattr(ModelConfig(), k) for k in MODELS["dot"]}
    own |= {"g2p.model.memory": "shared", "g2p.model.units": _MODEL.units}
    checks.set_itself(self, own)

  @property
  def all_seeds(self) -> range:
    """Every seed that is run."""
    return range(self.seed, self.seed + self.seeds)


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  smoke = {
    "models": ("dot",), "train.steps": 4, "train.data.limit": 200, "recall.updates": 20,
    "recall.widths": (3, 6), "recall.test": 128,
  }  # fmt: skip
  full = {
    "recall.widths": (3, 6, 12, 24, 48), "recall.rates": (0.01, 0.02),
    "recall.updates": 1000, "units": (32, 64), "seeds": 5,
  }  # fmt: skip
  return {"smoke": smoke, "default": {}, "full": full}


def sweep_quick() -> list[dict[str, Any]]:
  """How many pairs a memory holds, in very short runs."""
  return [{**profiles()["smoke"], "recall.pairs": pairs} for pairs in (2, 4, 8)]


def sweep_paper() -> list[dict[str, Any]]:
  """How the cost goes on as training does."""
  return [{"recall.updates": updates} for updates in (750, 1500, 3000, 6000)]


def same_arithmetic(differences: Sequence[float], other: float) -> Verdict:
  """Whether attention with h_j as key and value gives the same contexts.

  Args:
    differences: the largest ones to what a model or a loop computed.
    other: the least of the same with values that are not the keys.
  """
  if any(difference > TOLERANCE for difference in differences):
    return results.CONTRADICTED
  return results.REPRODUCED if other > 100 * TOLERANCE else results.NOT_RESOLVED


def compromises(costs: Sequence[Interval]) -> Verdict:
  """Whether one vector in both roles costs something; a loss more at each width and data set."""
  above = [cost.low > EQUAL for cost in costs]
  if any(above):
    return results.REPRODUCED if all(above) else results.QUALIFIED
  equal = all(cost.high < EQUAL for cost in costs)
  return results.CONTRADICTED if equal else results.NOT_RESOLVED


def cells(config: Config) -> dict[str, TrainConfig]:
  """The runs on g2p: shared and split at each width, which share their data and seeds."""
  found = {}
  for units in config.units:
    shared = dataclasses.replace(config.g2p.model, units=units)
    for memory, model in (("shared", shared), ("split", balanced(shared))):
      found[f"{memory}-{units}"] = dataclasses.replace(config.g2p, model=model)
  return found


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Trains what is missing in `workdir`, judges the claims and draws the figures.

  Args:
    config: what is trained.
    workdir: where `result.json`, the figures and, in `checkpoints/`, the family's runs go.
  """
  record = recorder.Recorder("two_roles", config, profiles(), workdir, seeds=config.all_seeds)
  folder = pathlib.Path(workdir) / "checkpoints"
  attending = {
    name: configs.override(config.train, {f"model.{k}": v for k, v in MODELS[name].items()})
    for name in config.models
  }
  catalog.prepare(config.train.data.name, config.train.data.data_dir)
  with workers.grid_beside(attending, [config.seed], folder, recomputed) as attended:
    found, widest = recalling.train(config.recall, config.all_seeds)
    contained = recalling.embedded(config.recall, widest, found["split"][-1].width)
  again = attended()
  real = {}
  if config.units:
    catalog.prepare(config.g2p.data.name, config.g2p.data.data_dir)
    real = workers.grid(cells(config), config.all_seeds, folder, scored)
  for arm, by_width in found.items():
    for one in by_width:
      record.log(arm=arm, **one._asdict())
  for cell, runs in real.items():
    record.log(cell=cell, nats=[one["nats"] for one in runs], parameters=runs[0]["parameters"])
  record.figure("recall", figures.recall(found, costs(config, found, real), EQUAL), caption=(
    f"{config.recall.pairs} pairs of {config.recall.symbols} keys and values in a memory; means"
    f" over {config.seeds} seeds and 95% intervals. Left: loss against parameters; a bar that ends"
    " in the lower edge goes on to 0 or below. Right: what the shared vector loses more than the"
    f" split one, by the width of the former; intervals that hold together; dashed: {EQUAL:g} nats,"
    " held to be equal."
  ))  # fmt: skip
  return record.finish(
    metrics=_metrics(found, real),
    claims=[
      _judge_arithmetic({name: runs[0] for name, runs in again.items()}),
      _judge_compromise(costs(config, found, real), contained),
    ],
  )


def costs(
  config: Config,
  found: Mapping[str, Sequence[Found]],
  real: Mapping[str, Sequence[Mapping[str, float]]],
) -> dict[str, Interval]:
  """The loss of the shared vector less that of the split one, by width and data set."""
  level = 1 - 0.05 / (len(config.recall.widths) + len(config.units))
  made = {
    f"recall, {shared.width} wide": paired_interval(shared.nats, split.nats, level)
    for shared, split in zip(found["shared"], found["split"], strict=True)
  }
  for units in config.units:
    shared, split = ([one["nats"] for one in real[f"{m}-{units}"]] for m in ("shared", "split"))
    made[f"g2p, {units} units"] = paired_interval(shared, split, level)
  return made


def _judge_arithmetic(again: Mapping[str, Mapping[str, float]]) -> Claim:
  """Claim 54."""
  loops = against_loops(0)
  models = {name: one["model"] for name, one in again.items()}
  verdict = same_arithmetic(
    [*models.values(), *loops.values()], min(one["other"] for one in again.values())
  )
  told = lambda found: ", ".join(f"{name} {x:.1e}" for name, x in found.items())  # noqa: E731
  return claims.judge(
    "54",
    measured=f"largest difference between contexts of trained models and those of attn.attend with"
    f" h_j as key and value: {told(models)}; between it and loops in float64: {told(loops)}; with"
    " other values than keys "
    + told({name: one["other"] for name, one in again.items()}),
    **claims.told(
      verdict,
      reproduced="The same contexts. With the additive score a key is h_j through U_a, a map of its"
      " own: h_j alone is both only with the dot score.",
      contradicted=f"A context differs by more than {TOLERANCE:g}.",
      **{results.NOT_RESOLVED: "Other values give the same contexts: nothing was tested."},
    ),
  )  # fmt: skip


def _judge_compromise(paid: Mapping[str, Interval], contained: float) -> Claim:
  """Claim 79."""
  verdict = compromises(list(paid.values()))
  listed = ", ".join(f"{at} {cost:+.3f}" for at, cost in paid.items())
  largest = max(paid.values(), key=lambda cost: cost.low)
  where = [at for at, cost in paid.items() if cost.low > EQUAL]
  against = [at for at, cost in paid.items() if cost.high < -EQUAL]
  width = (
    f"A shared vector as wide as a split one contains it (probabilities differ by {contained:.1g}"
    " at most): what it lacks is width, not a role."
  )
  return claims.judge(
    "79",
    measured=f"loss of the shared vector less that of the split one at equal parameters, nats:"
    f" {listed}",
    interval=(largest.low, largest.high),
    **claims.told(
      verdict,
      reproduced=f"At equal parameters one vector in both roles costs at every width. {width}",
      qualified=f"It costs at {'; '.join(where)}"
      + (f", and is the better one at {'; '.join(against)}" if against else "")
      + f"; elsewhere not by more than {EQUAL:g} nats for sure. {width}",
      contradicted=f"At equal parameters it costs nowhere as much as {EQUAL:g} nats. {width}",
      **{results.NOT_RESOLVED: f"Intervals are too wide to say; more seeds would settle. {width}"},
    ),
  )  # fmt: skip


def _metrics(
  found: Mapping[str, Sequence[Found]], real: Mapping[str, Sequence[Mapping[str, float]]]
) -> dict[str, Metric]:
  """Losses and how much is right, of all arms."""
  metrics: dict[str, Metric] = {}
  for arm in ARMS:
    for one in found[arm]:
      label = f"recall, {arm}, {one.width} wide, {one.parameters:,} parameters"
      metrics[f"{label}: loss"] = Metric(*mean_interval(one.nats), "nats")
      right = mean_interval([100 * share for share in one.right])
      metrics[f"{label}: right"] = Metric(*right, "%")
  for cell, runs in real.items():
    memory, _ = cell.split("-")
    label = f"g2p, {memory}, {runs[0]['parameters']:,} parameters"
    metrics[f"{label}: loss"] = Metric(
      *mean_interval([one["nats"] for one in runs]), "nats a symbol"
    )
  return metrics
