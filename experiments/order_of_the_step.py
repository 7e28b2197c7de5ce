"""What does it matter in which order a decoding step scores, reads, updates and writes?

Five orders, each the function of `attn.models.steps` that the models run. First, one step of each
at numbers drawn at random: the Jacobian of every action (scores, weights, context, state, output)
to every input, directly, with what other actions made held fixed, and in all. What is exactly 0 is
no dependency; this gives the table of the chapter as it is computed. Then that of section 3.1, its
released code's and Luong's, in `full` all five, are trained on `walk`, all else alike but for
Luong's readout, which is his h~: a random walk on a ring that each source lays out anew, where the
best loss is ln 2 = 0.693 nats a step, and only attention that has seen the word before can look up
where the walk stands. `g2p` (English spelling to sound) is real and asks for no such thing; it is
trained on in `full`, or with --set=data=walk,g2p.

Command: python -m launch.run --experiment=order_of_the_step
Time: on two cores, two orders at once: default 100 seconds (9 runs of three orders x 16 s / 2, and
compiling), smoke 13 (6 runs of 4 updates, most of it compiling), full 35 minutes beside other work,
25 alone by estimate (25 runs of the walk x 55 s / 2, 25 of g2p x 45 s / 2, and compiling). A killed
run goes on where it was.
Expect: on the walk the orders whose score has seen y_{i-1} (Luong's, the released code's, in full
the conditional GRU's) come nearer to ln 2, and the paper's stay behind: by 0.3 nats after 640
updates; after 1500 the paper's two forms are 0.62 and 0.67 above it, the others 0.08 to 0.13. On
g2p all five make 10.1 to 10.5% symbol errors. The dependencies are those of the equations.

Rules, stated before the run. A form is one of Bahdanau's: section 3.1, A.2.2, the released code.
  32 `stated`: direct dependencies leave the five actions one order, the claimed one. In section 3.1
    not: contradicted. In all forms: reproduced. Else qualified.
  33 `stated`: the score directly depends on s_{i-1} and nothing else but h_j. The same.
  34, 35 `close`: weights are the softmax of the scores, 0 beyond the source, and the context is the
    weighted sum, within CLOSE in every order: reproduced, else contradicted.
  36 `stated`: the state s_i directly depends on s_{i-1}, y_{i-1} and c_i alone.
  37 `stated`: the output directly depends on y_{i-1}, s_i and c_i alone.
  38 `cannot_swap`: s_i does not depend on c_i in some form, or section 3.1 allows more than one
    order of the actions: contradicted. One alone in all forms: reproduced. Else qualified.
  39, 70a `both`: Luong's score directly depends on s_i alone (and, 70a, that of section 3.1 and
    A.2.2 on s_{i-1}): reproduced, else contradicted.
  69 `both`: section 3.1 goes s_{i-1}, score, context, s_i; Luong s_i, score, context, output, and
    his context does not enter the state: reproduced, else contradicted.
  70b `stated`: that path, from a state that has not seen y_{i-1}, while Luong's has. The same.
  70c `goes_into`: Bahdanau's context does not enter s_i, or Luong's enters h_t, or h~ is not
    tanh(W_c [c; h]) within CLOSE: contradicted. Bahdanau's enters the output as well: qualified.
    Else reproduced.
  70d `scores_of`: Bahdanau's presets have another score than the additive, or Luong's have not
    three that look at what they score: contradicted. Luong's have another besides: qualified. Else
    reproduced.
  70e `both`: an annotation of Bahdanau's is twice a state wide and depends on words on both sides;
    one of Luong's is as wide as a state, on top of several layers, and depends on one side.
  70f `both`: Bahdanau's weights are above 0 at all positions; Luong's global ones too, those of
    both local windows at no more than 2D + 1 (at first "at just 2D + 1", which a trial run showed
    to be no property of local-p, whose centre is a real number).
The walk's learning rate and updates were tuned on the released code's order, seed 0, which is one
of the seeds reported; the other orders have the same. The trained runs judge no claim: which order
learns the walk is reported, with intervals, beside those claims that it bears on. Their figure says
that orders differ only if `apart`: the interval of the mean difference, paired by seed, between the
orders whose score has seen y_{i-1} and the others lies on one side of 0.
"""

import dataclasses
import os
import pathlib
from typing import Any

from attn import configs
from attn.data import catalog
from attn.data.config import DataConfig
from attn.decoding.config import SearchConfig
from attn.evaluation.intervals import mean_interval
from attn.models import ModelConfig
from attn.report import recorder, results
from attn.report.results import Metric
from attn.training import OptimizerConfig, TrainConfig
from experiments import checks, workers
from experiments import order_of_the_step_figures as drawn
from experiments.order_of_the_step_claims import Evidence, apart, judge
from experiments.order_of_the_step_jacobians import ORDERS, TITLES, papers
from experiments.order_of_the_step_jacobians import measure as dependencies
from experiments.order_of_the_step_runs import G2P, WALK, Measured, Runs, excess, measure

CLAIMS = (
  "32", "33", "34", "35", "36", "37", "38", "39", "69", "70a", "70b", "70c", "70d", "70e", "70f",
)  # fmt: skip

_MODEL = ModelConfig(
  embedding=32, units=64, alignment=64, maxout=64, biases=True, initialisation="glorot"
)
_TRAIN = TrainConfig(
  model=_MODEL,
  optimizer=OptimizerConfig(learning_rate=1e-2, warmup=100),
  search=SearchConfig(beam=1),
  checkpoint_every=500,
)


@dataclasses.dataclass(frozen=True)
class Config:
  """What is trained, and how often.

  Attributes:
    walk: the run on `walk`; each order's differs in what its step asks for alone.
    g2p: the same on g2p.
    data: which of the two are trained on.
    orders: which orders are trained, those of section 3.1 and of Luong among them. Jacobians are
      taken of all five.
    seed: the first seed, also of the step whose Jacobians are taken.
    seeds: how many, counting up from it; at least 3.
    test: test pairs that trained models are held against; None takes all.
  """

  walk: TrainConfig = dataclasses.replace(
    _TRAIN,
    data=DataConfig(name=WALK, batch_size=64, bucket_edges=(13,)),
    steps=640,
    validate_every=160,
  )
  g2p: TrainConfig = dataclasses.replace(
    _TRAIN,
    data=DataConfig(name=G2P, batch_size=128, bucket_edges=(10, 22, 36)),
    steps=1000,
    validate_every=250,
  )
  data: tuple[str, ...] = (WALK,)
  orders: tuple[str, ...] = ("bahdanau", "groundhog", "luong")
  seed: int = 0
  seeds: int = 3
  test: int | None = None

  def __post_init__(self) -> None:
    """Refuses too few seeds, and what the experiment sets itself."""
    checks.at_least(self, seeds=3)
    if self.test is not None and self.test < 1:
      raise configs.ConfigError(f"test is {self.test}: at least one pair has to be scored")
    if not self.data or set(self.data) - {WALK, G2P} or len(set(self.data)) != len(self.data):
      raise configs.ConfigError(f"data is {self.data}: it must be some of {WALK} and {G2P}")
    both = {"bahdanau", "luong"} <= set(self.orders) <= set(ORDERS)
    if not both or len(set(self.orders)) != len(self.orders):
      raise configs.ConfigError(
        f"orders is {self.orders}: it must be bahdanau, luong and others of {', '.join(ORDERS)}"
      )
    for name in (WALK, G2P):
      own = {"data.name": name, "model.order": "bahdanau", "seed": 0}
      checks.set_itself(self, {f"{name}.{path}": value for path, value in own.items()})
      if getattr(self, name).validate_every is None:
        raise configs.ConfigError(f"{name}.validate_every is none: the curves are drawn from it")

  @property
  def all_seeds(self) -> range:
    """Every seed that is run."""
    return range(self.seed, self.seed + self.seeds)


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  smoke = {
    "walk.steps": 4, "walk.validate_every": 2, "walk.data.limit": 200, "walk.data.batch_size": 16,
    "walk.model.units": 8, "walk.model.embedding": 8, "walk.model.alignment": 8,
    "walk.model.maxout": 8, "orders": ("bahdanau", "luong"), "seeds": 3, "test": 64,
  }  # fmt: skip
  full = {
    "data": (WALK, G2P), "orders": tuple(ORDERS), "seeds": 5, "walk.steps": 1500,
    "walk.validate_every": 150,
  }  # fmt: skip
  return {"smoke": smoke, "default": {}, "full": full}


def sweep_quick() -> list[dict[str, Any]]:
  """The width of the states, in which the blind orders have to keep what they could not look up."""
  return [{**profiles()["smoke"], "walk.model.units": units} for units in (8, 16, 32)]


def sweep_paper() -> list[dict[str, Any]]:
  """The parameters' beginning as in the paper's appendix B.1, against Glorot's."""
  return [{"walk.model.initialisation": name} for name in ("bahdanau", "glorot")]


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Takes the Jacobians, trains what is missing in `workdir`, judges and draws.

  Args:
    config: what is trained.
    workdir: where `result.json`, the figures and, in `checkpoints/`, every training run go.
  """
  seeds = config.all_seeds
  record = recorder.Recorder("order_of_the_step", config, profiles(), workdir, seeds=seeds)
  for name in config.data:
    catalog.prepare(name, getattr(config, name).data.data_dir)
  folder = pathlib.Path(workdir) / "checkpoints"
  # A process a data set and order: each compiles its programs once for all seeds.
  calls = [(config, name, order, folder) for name in config.data for order in config.orders]
  with workers.beside(measure_all, calls):
    steps = {order: dependencies(order, config.seed) for order in ORDERS}
    attended = papers(config.seed)
  trained: dict[str, Runs] = {
    name: {order: measure_all(config, name, order, folder) for order in config.orders}
    for name in config.data
  }
  for name, runs in trained.items():
    for order, several in runs.items():
      for seed, one in zip(seeds, several, strict=True):
        record.log(data=name, order=order, seed=seed, nats=one.nats, errors=one.symbol_errors)
  evidence = Evidence(steps=steps, papers=attended, trained=trained)
  if WALK in trained:
    record.figure("walk", drawn.walk(evidence), caption=(
      f"Nats a step of dev during training (left, lines: means over {config.seeds} seeds, bands:"
      " 95% intervals) and of test after it, above ln 2 (right, bars: 95% intervals)."
    ))  # fmt: skip
  record.figure("dependencies", drawn.dependencies(evidence), caption=(
    "Rows: actions of one step; columns: what they may depend on. A number is the norm of the"
    " Jacobian with everything that other actions made held fixed; a dot depends through others"
    " alone; blank: exactly 0. One step at random parameters."
  ))  # fmt: skip
  if G2P in trained:
    record.figure("g2p", drawn.g2p(evidence), caption=(
      f"Symbol errors on test words of g2p; bars: 95% intervals over {config.seeds} seeds."
    ))  # fmt: skip
  return record.finish(metrics=_metrics(evidence), claims=judge(evidence))


def measure_all(config: Config, name: str, order: str, folder: pathlib.Path) -> list[Measured]:
  """All runs of one order on one data set, a run a seed; those finished are read back."""
  return [
    measure(getattr(config, name), order, seed, folder / f"{name}-{order}-{seed}", test=config.test)
    for seed in config.all_seeds
  ]


def _metrics(evidence: Evidence) -> dict[str, Metric]:
  """Losses and errors of every order."""
  metrics: dict[str, Metric] = {}
  for name, runs in evidence.trained.items():
    for order, several in runs.items():
      label = f"{name}, {TITLES[order]}"
      if name == WALK:
        above = Metric(*mean_interval(excess(several)), "nats a step")
        metrics[f"{label}: above ln 2"] = above
      else:
        nats = [one.nats for one in several]
        metrics[f"{label}: loss a symbol"] = Metric(*mean_interval(nats), "nats")
        errors = [one.symbol_errors for one in several if one.symbol_errors is not None]
        metrics[f"{label}: symbol errors"] = Metric(*mean_interval(errors), "%")
  if WALK in evidence.trained:
    difference = apart(evidence)
    metrics["walk, blind orders less seeing ones"] = Metric(*difference, "nats a step")
  return metrics
