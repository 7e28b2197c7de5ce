"""What does a fixed vector cost, against attention, as sources grow longer?

Three models that differ in what the decoder sees of the source alone are trained side by side:
RNNsearch reads annotations through additive attention; the second decodes from one vector, the
encoder's last states in both directions, fed at every step (RNNencdec, with RNNsearch's encoder in
place of a forward one, so that nothing but attention differs); in the third the whole vector makes
the decoder's first state, through one more matrix and tanh, and enters no step (as in Sutskever
2014). All see the same batches in the same order for the same number of updates. `g2p` is real:
English spelling to sound, the whole of CMUdict or as much of it as the profile's updates reach.
`reverse` is generated: letters to be said backwards, with the alignment known. Lengths lie inside
the training range. In `full` the first two are trained on `reverse` with a vocabulary that lacks
some letters as well, which become unknown words. Below, "the fixed vector" is the second model.

Errors by length are symbol errors (edits to the nearest reference over its symbols), because a
whole word's chance of being wrong grows with its length even if each symbol's does not.

Besides: how many words an untrained vector holds (`bottleneck_capacity`), and what it is worth to
know the question before a list is read into one state (`bottleneck_recall`).

Command: python -m launch.run --experiment=bottleneck
Time: on two cores, two models at once: default 3.5 minutes (12 runs x 14 s / 2 beside recall, 40 s,
and untrained vectors, 8 s; then the third model's 6 x 14 s; compiling 25 s a model), smoke 15
seconds (18 runs of 3 updates, most of it compiling), full 23 minutes by estimate, as its kept
result, from before the third model, took 19 (10 runs x 60 s, 60 x 20 s, compiling 14 cells x 35 s,
/ 2). A killed run goes on where it was.
Expect: on `reverse` the fixed vector gets 60% of the symbols wrong beyond 15 letters, attention
none; on g2p these two do alike up to 7 letters, and from 12 on it makes 2.5 times as many errors,
after 1500 updates as after 600. As first state alone the vector has hardly begun to teach by then:
91% of the symbols of `reverse` are wrong at any length, 49% on g2p. 8000 untrained components hold
50 words out of 20,000, also as bits; 250 hold 2 of them. Unknown letters hurt both models,
attention more.

Rules, stated before the run. Intervals are over seeds, paired where two models are compared, and
hold on all data sets together with 95%. The claims on trained models are not resolved unless
attention makes fewer than LEARNED % symbol errors on each data set: models that have not learned
tell nothing.
  16 `enough`: words of a sentence read right from an untrained vector. At the largest width, with
    reals and with one bit a component, at least HELD %, else contradicted (wholly below) or not
    resolved. Reproduced if a smaller width, whose reals have more bits than the sentence takes,
    holds less than LOST %: the bits suffice and reading fails. Else qualified.
  17 `on_all`: values named right, asked before less asked after, by width of the state. Above 0 at
    every width: reproduced; below at every one: contradicted; above at some: qualified; else, or
    unless the widest state names LEARNED % right when asked before, not resolved. Five seeds, after
    a trial with three whose interval was wide.
  23 `falls`: the fixed vector makes fewer than WELL % symbol errors on the shortest sources, and
    its error rises from them to the longest ones, and from sources of one middling length without
    unknown letters to those with the largest share of them. A rise below 0: contradicted. All of
    it: reproduced. All but that of unknown letters, whose interval holds 0: qualified. Else, or
    where unknown letters are left out, as in all profiles but `full`, not resolved.
  25 `falls_more`: that rise, and how much it exceeds the rise with attention. A rise below 0 on
    some data set: contradicted. Rise and excess above 0 on every one: reproduced. The rise alone:
    qualified, since longer words may be harder for any model. Else not resolved.
  26 `stays`: the rise with attention is at most STILL points on every data set: reproduced; more on
    every one: contradicted; at most so much on some: qualified; else not resolved.
  42 `same_context`: the contexts of the fixed-vector model differ between steps by exactly nothing,
    those of attention do, and without contexts (zeros in their place, the first state as it was)
    the fixed vector's logits change: else contradicted. Then qualified if the logits of the model
    with the vector as first state change by exactly nothing, since no context enters its steps;
    reproduced if they change too. This checks the code as built more than the world.
  73 `on_all`: with the vector cut, the decoder started from zeros, the share of symbols that are
    still predicted along the reference, with attention less without: what arrives by another
    channel. Above 0 on every data set: reproduced; below on every one: contradicted; above on some:
    qualified; else not resolved.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from attn import configs
from attn.data import catalog
from attn.data.config import DataConfig
from attn.decoding.config import SearchConfig
from attn.evaluation.intervals import mean_interval, paired_interval
from attn.models import ModelConfig
from attn.report import recorder, results
from attn.report.results import Metric
from attn.training import OptimizerConfig, TrainConfig
from experiments import bottleneck_capacity, bottleneck_recall, checks, workers
from experiments import bottleneck_figures as drawn
from experiments.bottleneck_capacity import Capacity
from experiments.bottleneck_claims import Evidence, judge, overall
from experiments.bottleneck_recall import Recall
from experiments.bottleneck_runs import ARMS, ATTENTION, FIRST_STATE, FIXED, PAIR, Measured, measure

CLAIMS = ("16", "17", "23", "25", "26", "42", "73")

UNKNOWN, BEYOND = "unknown", "beyond"

# One size of vocabulary and one set of buckets for both data sets, so that the programs compiled
# for one serve the other; rows beyond a data set's symbols stay unused.
_MODEL = ModelConfig(
  source_vocabulary=64,
  target_vocabulary=64,
  embedding=32,
  units=64,
  alignment=64,
  maxout=64,
  biases=True,
  initialisation="glorot",
)
_DATA = DataConfig(batch_size=64, bucket_edges=(10, 22))
_TRAIN = TrainConfig(
  model=_MODEL,
  data=_DATA,
  optimizer=OptimizerConfig(learning_rate=5e-3, warmup=50),
  search=SearchConfig(beam=1),
  validate_every=None,
  checkpoint_every=500,
)


_LETTERS, _LONGEST = 20, 20  # of `reverse`: different ones, and in a source
_RESERVED = 4  # ids of a vocabulary that are no letters


@dataclasses.dataclass(frozen=True)
class Config:
  """What is trained on each data set, and how often.

  Attributes:
    g2p: the run with attention on g2p; those of the others differ in what `ARMS` says alone.
    reverse: the same on `reverse`.
    small: the same on `reverse` for all that follows.
    seed: the first seed.
    seeds: how many, counting up from it; at least 3.
    test: test sources decoded a run; None takes all.
    g2p_edges: longest sources, in letters, of the groups of g2p.
    reverse_edges: longest sources, in letters, of the groups of `reverse`.
    known: letters of `reverse`, of 20, that a vocabulary has, to see unknown ones; None skips it.
    widths: units of the sweep over the vector's width, `small` otherwise.
    beyond: longest sources, in letters, that a model is trained on to see it on longer ones; None
      skips it.
    capacity: what is put into untrained vectors.
    recall: the task of recall.
  """

  g2p: TrainConfig = dataclasses.replace(
    _TRAIN, data=dataclasses.replace(_DATA, name="g2p"), steps=600
  )
  reverse: TrainConfig = dataclasses.replace(
    _TRAIN, data=dataclasses.replace(_DATA, name="reverse"), steps=600
  )
  small: TrainConfig = dataclasses.replace(
    _TRAIN, data=dataclasses.replace(_DATA, name="reverse"), steps=600
  )
  seed: int = 0
  seeds: int = 3
  test: int | None = 2000
  g2p_edges: tuple[int, ...] = (5, 7, 9, 11)
  reverse_edges: tuple[int, ...] = (5, 10, 15)
  known: int | None = None
  widths: tuple[int, ...] = ()
  beyond: int | None = None
  capacity: Capacity = Capacity()
  recall: Recall = Recall()

  def __post_init__(self) -> None:
    """Refuses too few seeds for a verdict, and what it sets itself."""
    checks.at_least(self, seeds=3)
    if self.test is not None and self.test < 1:
      raise configs.ConfigError(f"test is {self.test}: at least one source has to be decoded")
    for name, data in (("g2p", "g2p"), ("reverse", "reverse"), ("small", "reverse")):
      own = {"data.name": data, "model.score": "additive", "seed": 0, "data.source_size": None}
      checks.set_itself(self, {f"{name}.{path}": value for path, value in own.items()})
    for name, (_, edges) in self.data.items():
      if list(edges) != sorted(set(edges)) or not edges:
        raise configs.ConfigError(f"{name}_edges is {edges}: it must be rising lengths")
    if self.known is not None and not 1 <= self.known < _LETTERS:
      raise configs.ConfigError(f"known is {self.known}: `reverse` has {_LETTERS} letters")
    if self.beyond is not None and not 2 <= self.beyond < _LONGEST:
      raise configs.ConfigError(f"beyond is {self.beyond}: `reverse` has 2 to {_LONGEST} letters")

  @property
  def all_seeds(self) -> range:
    """Every seed that is run."""
    return range(self.seed, self.seed + self.seeds)

  @property
  def data(self) -> dict[str, tuple[TrainConfig, tuple[int, ...]]]:
    """By name: the run with attention, and the edges of its groups by length."""
    return {"g2p": (self.g2p, self.g2p_edges), "reverse": (self.reverse, self.reverse_edges)}

  @property
  def cells(self) -> dict[str, tuple[TrainConfig, tuple[int, ...]]]:
    """All that is trained: a name, the run with attention, edges by length."""
    cells = dict(self.data)
    if self.known is not None:
      sized = configs.override(self.small, {"data.source_size": _RESERVED + self.known})
      cells[UNKNOWN] = (sized, self.reverse_edges)
    for units in self.widths:
      sized = configs.override(self.small, {"model.units": units})
      cells[_width(units)] = (sized, self.reverse_edges)
    if self.beyond is not None:
      # Training leaves out what is longer than the last edge, EOS counted.
      short = configs.override(self.small, {"data.bucket_edges": (self.beyond + 1,)})
      cells[BEYOND] = (short, (self.beyond, (self.beyond + _LONGEST) // 2))
    return cells

  def arms(self, cell: str) -> tuple[str, ...]:
    """The models that a cell is trained as: all three on a data set of its own."""
    return tuple(ARMS) if cell in self.data else PAIR


def _width(units: int) -> str:
  return f"units-{units}"


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  both = lambda **values: {  # noqa: E731
    f"{data}.{path.replace('__', '.')}": value
    for data in ("g2p", "reverse")
    for path, value in values.items()
  }
  smoke = {
    **both(
      steps=3, data__limit=200, data__batch_size=32, data__bucket_edges=(36,), model__units=16,
      model__embedding=8, model__alignment=8, model__maxout=8,
      # Less to compile.
      model__encoder="forward", model__biases=False,
    ),
    "seeds": 3, "test": 64,
    "capacity.widths": (250, 8000), "capacity.vocabulary": 2000, "capacity.sentences": 3,
    "recall.widths": (4, 16), "recall.steps": 40, "recall.pairs": 4, "recall.seeds": 3,
  }  # fmt: skip
  full = {
    **both(search__beam=5),
    "g2p.steps": 1500, "seeds": 5, "test": None, "known": 17, "widths": (16, 32, 128), "beyond": 12,
    "capacity.sentences": 20, "recall.steps": 2000,
  }  # fmt: skip
  return {"smoke": smoke, "default": {}, "full": full}


def sweep_quick() -> list[dict[str, Any]]:
  """The width of the states, which bounds what a fixed vector can hold."""
  return [
    {**profiles()["smoke"], "g2p.model.units": units, "reverse.model.units": units}
    for units in (8, 16, 32)
  ]


def sweep_paper() -> list[dict[str, Any]]:
  """The same at the size of the default profile and above, to the 1000 units of the papers."""
  return [
    {"g2p.model.units": units, "reverse.model.units": units} for units in (64, 128, 256, 512, 1000)
  ]


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Trains and decodes what is missing in `workdir`, judges the claims and draws the figures.

  Args:
    config: what is trained.
    workdir: where `result.json`, the figures and, in `checkpoints/`, every training run go.
  """
  record = recorder.Recorder("bottleneck", config, profiles(), workdir, seeds=config.all_seeds)
  for name, (train, _) in config.data.items():
    catalog.prepare(name, train.data.data_dir)
  folder = pathlib.Path(workdir) / "checkpoints"
  with workers.beside(_measure_each, [(config, *one, folder) for one in _shares(config)]):
    held = bottleneck_capacity.measure(config.capacity, config.seed, record.log)
    recalled = bottleneck_recall.train_all(config.recall, config.seed, record.log)
  trained = {
    name: {arm: measure_all(config, name, arm, folder) for arm in config.arms(name)}
    for name in config.cells
  }
  for name, arms in trained.items():
    for arm, runs in arms.items():
      for seed, one in zip(config.all_seeds, runs, strict=True):
        record.log(data=name, arm=arm, seed=seed, symbol_errors=one.symbol_errors)
  found = Evidence(
    measured={name: trained[name] for name in config.data},
    unknown=trained.get(UNKNOWN),
    beyond=trained.get(BEYOND),
    widths={units: trained[_width(units)] for units in config.widths},
    capacity=config.capacity,
    held=held,
    recall=config.recall,
    recalled=recalled,
  )
  _draw(record, config, found)
  metrics = {
    **_metrics(found.measured), **_sweeps(config, found), **_other(found)
  }  # fmt: skip
  return record.finish(metrics=metrics, claims=judge(found))


def _shares(config: Config) -> list[tuple[list[str], str]]:
  """Cells and a model for each process: those of one size share the programs that it compiles."""
  shares: dict[Any, tuple[list[str], str]] = {}
  for name, (train, _) in config.cells.items():
    for arm in config.arms(name):
      size = (arm, train.model, train.data.bucket_edges, train.data.batch_size)
      shares.setdefault(size, ([], arm))[0].append(name)
  return list(shares.values())


def _measure_each(config: Config, names: list[str], arm: str, folder: pathlib.Path) -> None:
  for name in names:
    measure_all(config, name, arm, folder)


def measure_all(config: Config, name: str, arm: str, folder: pathlib.Path) -> list[Measured]:
  """All runs of one cell and model, a run a seed; those that are finished are read back."""
  train, edges = config.cells[name]
  return [
    measure(
      train, arm, seed, folder / f"{name}-{arm.replace(' ', '-')}-{seed}", edges=edges,
      test=config.test,
    )
    for seed in config.all_seeds
  ]  # fmt: skip


def _draw(record: recorder.Recorder, config: Config, found: Evidence) -> None:
  """All figures, that of the question first."""
  record.figure("length", drawn.by_length(found.measured), caption=_caption(found.measured, config))
  record.figure("capacity", drawn.capacity(found.capacity, found.held), caption=(
    f"{found.capacity.sentences} sentences of {found.capacity.words} words out of"
    f" {found.capacity.vocabulary:,}; no training. Lines: means; bands: 95% intervals. Dotted: as"
    " many components as the sentence has bits."
  ))  # fmt: skip
  record.figure("recall", drawn.recall(found.recall, found.recalled), caption=(
    f"Lists of {found.recall.pairs} keys with one of {found.recall.values} values each;"
    f" {found.recall.seeds} seeds. Lines: means; bands: 95% intervals."
  ))  # fmt: skip
  seeds = f"{config.seeds} seeds"
  if found.unknown:
    record.figure("unknown", drawn.by_unknown(found.unknown), caption=(
      f"`reverse`, sources of 8 to 12 letters, {config.known} of {_LETTERS} letters in the"
      f" vocabulary. Means over {seeds}, bars: 95% intervals."
    ))  # fmt: skip
  if found.widths:
    record.figure("widths", drawn.by_width(found.widths), caption=(
      f"Symbol errors on test sources of `reverse` against the units of each state. Means over"
      f" {seeds}, bands: 95% intervals."
    ))  # fmt: skip
  record.figure("attention", drawn.attention(found.measured), caption=(
    "Attention of the first seed along the reference of a test source: a row a target symbol, a"
    " column a source symbol. Each row sums to 1 less what falls on the end of the source."
  ))  # fmt: skip


def _caption(measured: Mapping[str, Mapping[str, Sequence[Measured]]], config: Config) -> str:
  sources = ", ".join(f"{arms[ATTENTION][0].sources} of {name}" for name, arms in measured.items())
  return (
    f"Symbol errors on test sources ({sources}) by length, {config.seeds} seeds. Lines: means; "
    "bands: 95% intervals over seeds. Below: each less attention, paired by seed."
  )


def _metrics(measured: Mapping[str, Mapping[str, Sequence[Measured]]]) -> dict[str, Metric]:
  """Error rates, their differences overall and by length, alignment error, times."""
  metrics: dict[str, Metric] = {}
  for name, arms in measured.items():
    table: dict[str, dict[str, list[float]]] = {"word errors": {}, "symbol errors": {}}
    for arm, runs in arms.items():
      table["word errors"][arm] = [one.word_errors for one in runs]
      table["symbol errors"][arm] = overall(runs)
      for at, group in enumerate(runs[0].groups):
        row = table.setdefault(f"symbol errors of {group.label} letters", {})
        row[arm] = [one.groups[at].symbol_errors for one in runs]
    for quantity, by_arm in table.items():
      for arm, values in by_arm.items():
        metrics[f"{name}, {quantity}, {arm}"] = Metric(*mean_interval(values), "%")
      for arm in (FIXED, FIRST_STATE):
        difference = paired_interval(by_arm[arm], by_arm[ATTENTION])
        metrics[f"{name}, {quantity}, {arm} less attention"] = Metric(*difference, "points")
    aligned = [one.alignment_error for one in arms[ATTENTION] if one.alignment_error is not None]
    if aligned:
      metrics[f"{name}, alignment error of attention"] = Metric(*mean_interval(aligned), "%")
    for arm, runs in arms.items():
      kept = mean_interval([one.kept for one in runs])
      metrics[f"{name}, symbols predicted with the vector cut, {arm}"] = Metric(*kept, "%")
  return metrics


def _sweeps(config: Config, found: Evidence) -> dict[str, Metric]:
  """Error rates of the cells that are no data set of their own."""
  metrics: dict[str, Metric] = {}
  for arm in PAIR:
    for units, arms in found.widths.items():
      errors = mean_interval(overall(arms[arm]))
      metrics[f"reverse, {units} units, symbol errors, {arm}"] = Metric(*errors, "%")
    for runs, field, what in (
      (found.unknown, "unknown", "unknown letters"),
      (found.beyond, "groups", f"letters, trained on at most {config.beyond}"),
    ):
      for at, group in enumerate(getattr(runs[arm][0], field) if runs else ()):
        errors = mean_interval([getattr(one, field)[at].symbol_errors for one in runs[arm]])
        metrics[f"reverse, symbol errors of {group.label} {what}, {arm}"] = Metric(*errors, "%")
  return metrics


def _other(found: Evidence) -> dict[str, Metric]:
  """What untrained vectors hold, and what is recalled."""
  metrics: dict[str, Metric] = {}
  for kind, by_width in found.held.items():
    for width, values in zip(found.capacity.widths, by_width, strict=True):
      metrics[f"untrained, {width} components, {kind}: words right"] = Metric(
        *mean_interval(values), "%"
      )
  for arm, by_width in found.recalled.items():
    for width, values in zip(found.recall.widths, by_width, strict=True):
      metrics[f"recall, state of {width}, {arm}: values right"] = Metric(
        *mean_interval(values), "%"
      )
  return metrics
