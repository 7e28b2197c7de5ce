"""Do the papers' systems, trained alike at one small size, come out in the order they published?

One row a system of the chapter: Sutskever 2014, RNNencdec (Cho 2014's encoder-decoder, the vector
fed at each step), RNNsearch and Luong's global and local attention. Each keeps its preset's cell,
order of the step, score, readout, feeding and direction of reading; all share data, batches,
updates, optimizer, seeds, units and embedding, so that they are small and trained far less than
the papers' (`papers_table_runs.small` says what shrinks). Published numbers are of other languages
and sizes: only their order is compared, and only within one table on one test set, never across.

Command: python -m launch.run --experiment=papers_table
`--set=data=sounds,sentences,verses` chooses among English spelling to sound (g2p), short sentences
of help pages (English to German, from apt) and short verses (Greek to English, whose links by hand
give alignment error rates); `--set=systems=...` takes further presets.
Time: on two cores, a process a system, two at once: default 93 seconds (15 runs x 9 s and the
rest compiling 5 models, / 2); smoke 9 (6 runs of 4 updates, nearly all of it compiling two
models); full 18 minutes (40 runs of g2p x 15 s, 40 of sentences x 28 s, and compiling 16 models x
10 s, / 2). A killed run goes on where it was.
Expect: on g2p both fixed vectors far behind (66 to 72% of the phones wrong, against 30 to 41%);
RNNsearch before Sutskever 2014, as Luong has it and against Sutskever's own table, and before dot;
local-p too close to both to tell. In full, after 600 updates, 42 to 45% against 16 to 19%, Luong's
five too close to each other and to RNNsearch; on sentences 600 updates decide nothing. Sutskever's
four layers are one here.

Rules, stated before the run. The experiment owns no numbered claim and gives no verdict: those on
Luong's tables are L4 of `local_vs_global` and L6 of `alignment`. Of each two systems of a published
table that differ there, the lead of the published better one is measured here, paired by seed, on
what the table has: BLEU (where targets are no text, symbols wrong), perplexity (as nats a symbol),
alignment error rate. An interval above 0: as published; below 0: the other way round; else
undecided. All intervals of a run hold together at 95%. The agreement of a data set is Kendall's
with open pairs as ties: those as published less those the other way round, over all. A lead after
so few updates is one in learning fast; what would come out at the end is another question.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from attn import configs
from attn.data import corpora
from attn.data.config import DataConfig
from attn.decoding.config import SearchConfig
from attn.evaluation.intervals import Interval, mean_interval
from attn.models import ModelConfig
from attn.report import recorder, results
from attn.report.results import Metric
from attn.training import OptimizerConfig, TrainConfig
from experiments import papers_table_figures as figures
from experiments import papers_table_orders as orders
from experiments import papers_table_runs as runs
from experiments import workers
from experiments.papers_table_orders import Measured, Pair
from experiments.papers_table_runs import SHARED, SYSTEMS

CLAIMS = ()  # it puts systems side by side, and judges no statement of the chapter

# Dropout, which Luong's systems have, has no time to help here.
_MODEL = ModelConfig(embedding=32, units=64, half_width=4, biases=True, initialisation="glorot")
_SOUNDS = TrainConfig(
  model=_MODEL,
  data=DataConfig(name="g2p", batch_size=64, bucket_edges=(16,)),
  optimizer=OptimizerConfig(learning_rate=5e-3, warmup=50),
  search=SearchConfig(beam=1),
  steps=200,
  log_every=50,
  validate_every=None,
  checkpoint_every=1000,
)
_SENTENCES = dataclasses.replace(
  _SOUNDS,
  data=DataConfig(
    name="libreoffice_help/en-de", batch_size=64, bucket_edges=(16,), source_size=2000,
    target_size=2000,
  ),
  steps=600,
)  # fmt: skip
_VERSES = dataclasses.replace(
  _SENTENCES,
  data=dataclasses.replace(
    _SENTENCES.data, name="greek_english/lemmas", bucket_edges=(24,), target_level="word"
  ),
)


@dataclasses.dataclass(frozen=True)
class Config:
  """What is trained on which data, and how often.

  Attributes:
    sounds: the run on the first data set; the model's choices are each system's own, its sizes
      (`papers_table_runs.SHARED`) those given here.
    sentences: the same on the second.
    verses: the same on the third.
    data: which of these are run.
    systems: their presets.
    seed: the first seed.
    seeds: how many, counting up from it; at least 3, for an interval.
    test: test sources decoded a run; None takes all that are as short as those trained on.
  """

  sounds: TrainConfig = _SOUNDS
  sentences: TrainConfig = _SENTENCES
  verses: TrainConfig = _VERSES
  data: tuple[Literal["sounds", "sentences", "verses"], ...] = ("sounds",)
  systems: tuple[str, ...] = (
    "sutskever2014",
    "rnnencdec",
    "rnnsearch",
    "luong2015_dot_feed",
    "luong2015_local_p_general",
  )
  seed: int = 0
  seeds: int = 3
  test: int | None = 500

  def __post_init__(self) -> None:
    """Refuses too few seeds, systems that are not compared, and what these choose themselves."""
    if self.seeds < 3:
      raise configs.ConfigError(f"seeds is {self.seeds}: an order needs at least 3")
    if self.test is not None and self.test < 1:
      raise configs.ConfigError(f"test is {self.test}: at least one source has to be decoded")
    for name in ("data", "systems"):
      chosen = getattr(self, name)
      if not chosen or len(set(chosen)) < len(chosen):
        raise configs.ConfigError(f"{name} is {chosen}: it must be different names")
    for system in self.systems:
      if system not in SYSTEMS:
        raise configs.ConfigError(f"no system {system!r}{configs.nearest(system, SYSTEMS)}")
    if len({train.data.name for train in self.chosen.values()}) < len(self.data):
      raise configs.ConfigError(f"{' and '.join(self.data)} are of one data set")
    for name, train in self.chosen.items():
      if train.seed != 0:
        raise configs.ConfigError(f"{name}.seed is {train.seed}: set seed instead")
      own = {key: getattr(ModelConfig(), key) for key in SHARED}
      others = dataclasses.replace(train.model, **own)
      for path, asked, _ in configs.differences(others, ModelConfig()):
        raise configs.ConfigError(
          f"{name}.model.{path} is {asked!r}: each system chooses that itself"
        )

  @property
  def all_seeds(self) -> range:
    """Every seed that is run."""
    return range(self.seed, self.seed + self.seeds)

  @property
  def chosen(self) -> dict[str, TrainConfig]:
    """The runs that `data` names."""
    return {name: getattr(self, name) for name in self.data}


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  smoke = {
    "sounds.steps": 4, "sounds.log_every": 2, "sounds.data.limit": 300,
    "sounds.data.batch_size": 16, "sounds.model.units": 8, "sounds.model.embedding": 8,
    "systems": ("rnnsearch", "luong2015_local_p_general"), "test": 20,
  }  # fmt: skip
  full = {
    "data": ("sounds", "sentences"), "sounds.steps": 600, "seeds": 5, "test": 1000,
    "systems": (
      "sutskever2014", "rnnencdec", "rnnsearch", "luong2015_location_feed", "luong2015_dot_feed",
      "luong2015_general_feed", "luong2015_local_m_general", "luong2015_local_p_general",
    ),
  }  # fmt: skip
  return {"smoke": smoke, "default": {}, "full": full}


def sweep_quick() -> list[dict[str, Any]]:
  """The width of the states, in very short runs."""
  return [{**profiles()["smoke"], "sounds.model.units": units} for units in (8, 16, 32)]


def sweep_paper() -> list[dict[str, Any]]:
  """Whether the order stays as training goes on."""
  return [{"sounds.steps": steps} for steps in (300, 600, 1200, 2400)]


def sweep_gold() -> list[dict[str, Any]]:
  """All systems where links are known: by hand, and by the codes of a concordance."""
  full = {**profiles()["full"], "data": ("verses",)}
  return [{**full, "verses.data.name": name} for name in ("greek_english/lemmas", "kjv_rv1909")]


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Trains what is missing in `workdir`, compares the orders and draws the figures.

  Args:
    config: which systems are trained on what.
    workdir: where `result.json`, the figures, `systems.md`, a row a system, and, in
      `checkpoints/`, every training run go.
  """
  record = recorder.Recorder("papers_table", config, profiles(), workdir, seeds=config.all_seeds)
  folder = record.workdir / "checkpoints"
  cells = {}
  for name, train in config.chosen.items():
    corpora.load(train.data, "test")  # prepared once, before two processes ask for it
    cells |= {f"{name}-{system}": runs.small(train, system) for system in config.systems}
  trained = workers.grid(
    cells,
    config.all_seeds,
    folder,
    functools.partial(runs.measure, sources=config.test),
    alone=True,
  )
  found: dict[str, dict[str, list[dict[str, Any]]]] = {}
  for name, train in config.chosen.items():
    rows = found.setdefault(train.data.name, {})
    for system in config.systems:
      cell = f"{name}-{system}"
      rows[system] = [
        {**one, "speed": runs.speed(folder / cell / f"seed-{seed}")}
        for seed, one in zip(config.all_seeds, trained[cell], strict=True)
      ]
      for seed, one in zip(config.all_seeds, rows[system], strict=True):
        record.log(data=train.data.name, system=system, seed=seed, **one)
  pairs = orders.compare(found)
  text = "\n\n".join(as_table(name, rows) for name, rows in found.items())
  text += f"\n\n{orders.CITED}\n"
  results.write_text(record.workdir / "systems.md", text)
  print(text)
  _draw(record, config, found, pairs)
  return record.finish(metrics=_metrics(found, pairs), claims=())


def _draw(
  record: recorder.Recorder, config: Config, found: Mapping[str, Measured], pairs: Sequence[Pair]
) -> None:
  """All figures with their captions."""
  sizes = "; ".join(
    f"{train.data.name} {train.steps:,} updates of {train.data.batch_size} pairs of at most"
    f" {train.data.bucket_edges[-1] - 1} symbols, of the preset "
    + runs.scaled_down(train, config.systems)
    for train in config.chosen.values()
  )
  disputed = "".join(
    f" {SYSTEMS[one]} and {SYSTEMS[other]} are published in both orders."
    for one, other in orders.disputed(config.systems)
  )
  within = (
    "Published numbers of one marker are of one paper and test set, and comparable with each other"
    " alone; none is with a number measured here."
  )
  record.figure("systems", figures.systems(found), caption=(
    f"{within} Measured on up to {config.test or 'all'} test sources: means over {config.seeds}"
    f" seeds, bars: 95% intervals. {orders.CITED}{disputed} Scaled down: {sizes}."
  ))  # fmt: skip
  record.figure("pairs", figures.leads(pairs), caption=(
    "How far the system is ahead that is so in the published table, paired by seed;"
    f" {config.seeds} seeds; all {len(pairs)} intervals hold together at 95%. Right of the line:"
    " the published order."
  ))  # fmt: skip
  record.figure("price", figures.price(found), caption=(
    f"Left and middle: published and measured perplexity. {within} Right: target symbols a second"
    " in training, two runs side by side beside whatever else the machine did, and parameters."
    f" Means over {config.seeds} seeds, bars: 95% intervals."
  ))  # fmt: skip


def perplexity(rows: Sequence[Mapping[str, Any]]) -> Interval:
  """Of a symbol, over seeds."""
  return mean_interval([math.exp(row["nats"]) for row in rows])


def as_table(data: str, measured: Measured) -> str:
  """A row a system in Markdown: what was measured, and what the papers have, table by table."""
  chosen = [one for what, one in orders.measures(measured).items() if what != "perplexity"]
  head = [data, *(f"{one.name}, {one.unit}" for one in chosen), "perplexity", "symbols/s"]
  lines = [[*head, "parameters", "published"]]
  for system, rows in measured.items():
    cells = [SYSTEMS[system]]
    for measure in chosen:
      known = orders.values(rows, measure)
      cells.append(f"{mean_interval(known):.1f}" if known else "")
    cells += [
      f"{perplexity(rows):.2f}",
      f"{mean_interval([row['speed'] for row in rows]).mean:,.0f}",
    ]
    published = (
      f"{table.values[system]:g} {table.what} ({table.source})"
      for table in orders.PUBLISHED
      if system in table.values
    )
    lines.append([*cells, f"{rows[0]['parameters']:,}", "; ".join(published)])
  lines.insert(1, ["---"] * len(lines[0]))
  return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _metrics(found: Mapping[str, Measured], pairs: Sequence[Pair]) -> dict[str, Metric]:
  """Agreement, then each system, then each pair."""
  metrics: dict[str, Metric] = {}
  for data in found:
    own = [pair for pair in pairs if pair.data == data]
    counted = orders.count(own)
    for outcome, number in counted.items():
      metrics[f"{data}: published pairs {outcome}"] = Metric(number, unit=f"of {len(own)}")
    if own:
      agreement = (counted[orders.SAME] - counted[orders.OTHER]) / len(own)
      metrics[f"{data}: agreement"] = Metric(agreement, unit="-1 to 1")
  for data, measured in found.items():
    for system, rows in measured.items():
      name = f"{data}, {SYSTEMS[system]}"
      for what, measure in orders.measures(measured).items():
        if what != "perplexity" and (known := orders.values(rows, measure)):
          metrics[f"{name}: {measure.name}"] = Metric(*mean_interval(known), measure.unit)
      metrics[f"{name}: perplexity"] = Metric(*perplexity(rows))
      speed = mean_interval([row["speed"] for row in rows])
      metrics[f"{name}: training"] = Metric(*speed, "target symbols a second")
      metrics[f"{name}: parameters"] = Metric(rows[0]["parameters"])
  for pair in pairs:
    metrics[f"{pair.data}, {pair.name}: {pair.measure.name}"] = Metric(
      *pair.lead, f"{pair.measure.apart}, {pair.outcome} ({pair.table.source})"
    )
  trained = {system for measured in found.values() for system in measured}
  for table in orders.PUBLISHED:
    for system in [system for system in SYSTEMS if system in table.values and system in trained]:
      metrics[f"published, {SYSTEMS[system]}: {table.what} ({table.source})"] = Metric(
        table.values[system], unit=f"{table.what}, {table.task}"
      )
  return metrics
