"""Global attention scores every source position, local attention a window: what does it change?

Luong's three windows, in his own model made small (Luong 2015, Table 4: LSTMs, the source read from
its end, input feeding, h~_t; attention along the references by his protocol). Global scores all
positions; local-m those within D of t; local-p those within D of a centre that it predicts, weighed
by a Gaussian. They are trained on 2 to 12 letters whose alignment is known: `copy` keeps the order,
which a window around t suits; `reverse` says them backwards, and it misses most of a longer source.
By --set=tasks= there is `lexicon` too, where modifiers change sides with their head.

Command: python -m launch.run --experiment=local_vs_global
Time: on two cores, half of the cells a process: default 78 seconds (18 runs x 5 s and compiling 4
models x 10 s, / 2, and 15 s), smoke 10 (6 runs of 4 updates, nearly all of it compiling two
models), full 63 minutes beside other work (110 runs of letters x 14 s, 35 of verses x 75 to 160
s, compiling 18 models x 15 s, / 2). A killed run goes on where it was.
Expect: in order nothing separates the three. Backwards, local-m misses the links that its window
does not hold and no others, 47% of those of 9 to 12 letters, and says 44% of these wrong; local-p
moves its centre to within half a letter of the one to be read, and is as right as global attention.
In `full` sources have up to 20 letters: backwards, local-m says 56% of them wrong at D = 2, 45% at
5, 22% at 10 and none at 20, local-p 14%, 1.6% and none. On 4,440 verses of the Greek New Testament
of at most 23 words, with links by hand, 700 updates teach next to nothing: BLEU is below 0.4 and
85% of the links or more are wrong. Local-p general guesses words best, by 0.07 (global additive) to
0.35 nats.

Left to other commands: all windows x dot, general, concat, additive x input feeding
(--sweep=paper), and four times as many updates on verses (--sweep=verses, hours).

Rules, stated before the run; a first trial had letters up to 20 and `lexicon` in place of `copy`,
which took too long for the default. Differences are paired by seed, and hold together at 95%.
  57 `scores_window`: at random parameters, what a step's weights depend on. Global does not score
    every position, a local window scores more than 2D + 1 or one beyond D, or neither local centre
    depends on the state: contradicted. Both centres do: reproduced. One does: qualified.
  L4 `best`: on each data set, how much lower local-p general's loss is than that of each other
    named cell, and how much higher its share of right letters, or on verses its BLEU. Unless all
    five named cells were trained on every data set, verses among them, and some cell says `LEARNED`
    % of the letters right on each task: not resolved. All differences above 0 on every data set:
    reproduced; on some: qualified. Else, if on every data set some difference is below 0:
    contradicted; else not resolved.
Right letters are those that the model holds likeliest along the reference. The first figure's title
says that a window breaks and what is repaired only where intervals of the differences say so.
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from attn import configs, presets
from attn.data import catalog
from attn.data.config import DataConfig
from attn.decoding.config import SearchConfig
from attn.report import recorder, results
from attn.training import OptimizerConfig, TrainConfig
from experiments import checks, sweeps, workers
from experiments import local_vs_global_figures as drawn
from experiments.local_vs_global_claims import BEST, NAMED, PAPER_WIDTH, judge, metrics
from experiments.local_vs_global_programs import (
  LOCAL,
  WINDOWS,
  Cost,
  costs,
  mass_of_equal_scores,
  programs,
)
from experiments.local_vs_global_runs import VERSES, Measured, Runs, measure

CLAIMS = ("57", "L4")

TASKS = ("copy", "lexicon", "reverse")

_LUONG = presets.get("luong2015_general_feed").model
_MODEL = dataclasses.replace(
  _LUONG, source_vocabulary=32, target_vocabulary=32, layers=1, embedding=32, units=64,
  alignment=64, maxout=64, dropout=0.0, biases=True, initialisation="glorot",
)  # fmt: skip
_LETTERS = TrainConfig(
  model=_MODEL,
  data=DataConfig(name="reverse", batch_size=64, bucket_edges=(13,)),
  optimizer=OptimizerConfig(learning_rate=1e-2, warmup=50),
  search=SearchConfig(beam=1),
  steps=250,
  validate_every=None,
)
_VERSES = dataclasses.replace(
  _LETTERS,
  model=dataclasses.replace(
    _MODEL, source_vocabulary=None, target_vocabulary=None, embedding=64, units=128, alignment=128,
    maxout=128,
  ),
  data=DataConfig(
    name=VERSES, batch_size=64, bucket_edges=(16, 24), source_size=4000, target_size=4000
  ),
  optimizer=OptimizerConfig(learning_rate=3e-3, warmup=100),
  steps=3000,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Config:
  """What is trained on which data, and what is timed.

  Attributes:
    letters: the run on generated letters, but for its task and attention.
    verses: the same on verses.
    tasks: generated data sets with known links.
    cells: windows and scores trained on the tasks, such as `local-p general`.
    verse_cells: the same of verses; none leaves them out.
    half_widths: D of every local cell, then of further ones of local-m and local-p general.
    verse_half_widths: the same of verses.
    seed: the first seed.
    seeds: how many, counting up from it; at least 3, for an interval.
    test: test pairs that models are held against.
    edges: longest sources, in letters, of the groups of the tasks.
    verse_edges: the same of verses, in words.
    words: letters of the sources whose centres are drawn.
    positions: of the source whose windows are taken apart; more than 2D + 1.
    lengths: of sources and targets at which a pass of the tasks' cells is timed; none by default.
    batch: sentences of that pass.
    repeats: how often each is timed.
  """

  letters: TrainConfig = _LETTERS
  verses: TrainConfig = _VERSES
  tasks: tuple[str, ...] = ("copy", "reverse")
  cells: tuple[str, ...] = ("global general", "local-m general", BEST)
  verse_cells: tuple[str, ...] = ()
  half_widths: tuple[int, ...] = (5,)
  verse_half_widths: tuple[int, ...] = (5,)
  seed: int = 0
  seeds: int = 3
  test: int = 500
  edges: tuple[int, ...] = (4, 8)
  verse_edges: tuple[int, ...] = (10, 15)
  words: int = 12
  positions: int = 30
  lengths: tuple[int, ...] = ()
  batch: int = 32
  repeats: int = 9

  def __post_init__(self) -> None:
    """Refuses too few seeds, names that mean nothing, and what the experiment sets itself."""
    if self.seeds < 3:
      raise configs.ConfigError(f"seeds is {self.seeds}: a verdict needs at least 3")
    if not self.tasks or set(self.tasks) - set(TASKS):
      raise configs.ConfigError(f"tasks is {self.tasks}: it must be some of {', '.join(TASKS)}")
    for name, other in (("cells", "half_widths"), ("verse_cells", "verse_half_widths")):
      self._check_cells(name, getattr(self, name), other, getattr(self, other))
    own = {"letters.data.name": "reverse", "verses.data.name": VERSES}
    for side in ("letters", "verses"):
      own |= {f"{side}.seed": 0, f"{side}.model.score": "general", f"{side}.model.window": "global"}
    checks.set_itself(self, own)
    for one in cells(self).values():
      one.resolved(self)

  def _check_cells(
    self, name: str, named: tuple[str, ...], other: str, widths: tuple[int, ...]
  ) -> None:
    for cell in named:
      window, _, score = cell.partition(" ")
      if window not in WINDOWS or not score:
        raise configs.ConfigError(
          f"{name} has {cell!r}: a cell is a window ({', '.join(WINDOWS)}) and a score, such as"
          f" {BEST!r}"
        )
    if len(set(named)) < len(named) or (name == "cells" and not named):
      raise configs.ConfigError(f"{name} is {named}: it must be different cells")
    if not widths or len(set(widths)) < len(widths) or not 0 < max(widths) < self.positions / 2:
      raise configs.ConfigError(
        f"{other} is {widths}: it must be different half widths of less than half of"
        f" {self.positions} positions"
      )
    if named and widths[1:] and not {f"{window} general" for window in LOCAL} <= set(named):
      raise configs.ConfigError(
        f"{other} is {widths}: further half widths are those of {' and '.join(LOCAL)} general,"
        f" which {name} lacks"
      )

  @property
  def all_seeds(self) -> range:
    """Every seed that is run."""
    return range(self.seed, self.seed + self.seeds)


class Cell(NamedTuple):
  """What is trained: some attention on some data.

  Attributes:
    data: the data set.
    name: its window and score, such as `local-p general`.
    half_width: D, which a global cell does not use.
    further: whether D is not that of the other cells.
  """

  data: str
  name: str
  half_width: int
  further: bool = False

  @property
  def title(self) -> str:
    """Its name, and D where it is its own."""
    return f"{self.name}, D={self.half_width}" if self.further else self.name

  def resolved(self, config: Config) -> TrainConfig:
    """The training run, but for the seed."""
    window, _, score = self.name.partition(" ")
    own = {"data.name": self.data, "model.window": WINDOWS[window], "model.score": score}
    if window in LOCAL:
      own["model.half_width"] = self.half_width
    return configs.override(config.verses if self.data == VERSES else config.letters, own)


def cells(config: Config) -> dict[str, Cell]:
  """What is trained, by the name of its folder.

  `workers.grid` gives every other one to the same process: those that differ in their task alone
  come to lie there together, and share their compiled programs.
  """

  def each(names: Sequence[str], widths: Sequence[int]) -> list[tuple[str, int, bool]]:
    further = [(f"{window} general", width, True) for width in widths[1:] for window in LOCAL]
    return [*((name, widths[0], False) for name in names), *further]

  models = each(config.cells, config.half_widths)
  pairs = [models[at : at + 2] for at in range(0, len(models), 2)]
  found = [Cell(task, *model) for pair in pairs for task in config.tasks for model in pair]
  if config.verse_cells:
    found += [Cell(VERSES, *model) for model in each(config.verse_cells, config.verse_half_widths)]
  names = (f"{cell.data} {cell.name} {cell.half_width}" for cell in found)
  return {
    name.replace(" ", "-").replace("/", "-"): cell for name, cell in zip(names, found, strict=True)
  }


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  smoke = {
    "letters.steps": 4, "letters.data.limit": 500, "letters.data.batch_size": 16,
    "letters.model.units": 8, "letters.model.embedding": 8, "letters.model.alignment": 8,
    "letters.model.maxout": 8, "tasks": ("reverse",), "cells": ("local-m general", BEST),
    "test": 100,
  }  # fmt: skip
  full = {
    "cells": NAMED, "half_widths": (5, 2, 10, 20), "seeds": 5, "lengths": (20, 160),
    "letters.steps": 500, "letters.data.bucket_edges": (22,), "edges": (5, 10, 15),
    "positions": 50, "verse_cells": NAMED, "verse_half_widths": (5, 10), "verses.steps": 700,
  }  # fmt: skip
  return {"smoke": smoke, "default": {}, "full": full}


def sweep_quick() -> list[dict[str, Any]]:
  """The half width, in very short runs."""
  return [{**profiles()["smoke"], "half_widths": (width,)} for width in (2, 5, 10)]


def sweep_paper() -> list[dict[str, Any]]:
  """Every window with every score, with input feeding and without: three cells a run."""
  scores = ("dot", "general", "concat", "additive")
  return sweeps.product(
    [{"cells": tuple(f"{window} {score}" for window in WINDOWS)} for score in scores],
    [{"letters.model.input_feeding": feeding} for feeding in ("readout", "none")],
  )


def sweep_verses() -> list[dict[str, Any]]:
  """Four times as many updates on verses as `full` makes, by D."""
  return [
    {**profiles()["full"], "verses.steps": 3000, "verse_half_widths": (width,)} for width in (5, 10)
  ]


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Takes the windows apart, trains what is missing in `workdir`, judges and draws.

  Args:
    config: what is trained.
    workdir: where `result.json`, the figures and, in `checkpoints/`, every training run go.
  """
  record = recorder.Recorder("local_vs_global", config, profiles(), workdir, seeds=config.all_seeds)
  asked, folder = cells(config), pathlib.Path(workdir) / "checkpoints"
  for data in {cell.data: cell.resolved(config).data for cell in asked.values()}.values():
    catalog.prepare(data.name, data.data_dir)
  with workers.grid_beside(*_grid(config, folder, verses=False)) as trained:
    found = programs(
      config.letters.model, half_width=config.half_widths[0], positions=config.positions,
      seed=config.seed,
    )  # fmt: skip
  measured = trained()
  if config.verse_cells:
    measured |= workers.grid(*_grid(config, folder, verses=True), alone=True)
  runs: dict[str, dict[str, list[Measured]]] = {}
  for name, made in measured.items():
    cell = asked[name]
    runs.setdefault(cell.data, {})[cell.title] = [Measured.read(one) for one in made]
  for data, by_title in runs.items():
    for title, several in by_title.items():
      for seed, one in zip(config.all_seeds, several, strict=True):
        record.log(data=data, cell=title, seed=seed, nats=one.nats, wrong=one.wrong,
                   alignment_error=one.alignment_error, bleu=one.bleu)  # fmt: skip
  measured_costs = costs(
    {cell.name: cell.resolved(config).model for cell in asked.values()
     if cell.data in config.tasks and not cell.further},
    lengths=config.lengths, batch=config.batch, repeats=config.repeats, seed=config.seed,
  )  # fmt: skip
  letters = {data: by_title for data, by_title in runs.items() if data != VERSES}
  _draw(record, config, letters, runs.get(VERSES), measured_costs)
  return record.finish(
    metrics=metrics(runs, measured_costs),
    claims=judge(found, runs, half_width=config.half_widths[0], positions=config.positions),
  )


def _grid(
  config: Config, folder: pathlib.Path, *, verses: bool
) -> tuple[dict[str, TrainConfig], range, pathlib.Path, Callable[..., dict[str, Any]]]:
  """What `workers.grid` takes to train and measure the cells of the tasks, or those of verses."""
  each = {
    name: cell.resolved(config)
    for name, cell in cells(config).items()
    if (cell.data == VERSES) == verses
  }
  how = functools.partial(
    measure,
    half_width=(config.verse_half_widths if verses else config.half_widths)[0],
    edges=config.verse_edges if verses else config.edges,
    words=config.words,
    test=config.test,
    translate=verses,
  )
  return each, config.all_seeds, folder, how


def _draw(
  record: recorder.Recorder,
  config: Config,
  letters: Runs,
  verses: Mapping[str, Sequence[Measured]] | None,
  measured: Sequence[Cost],
) -> None:
  """Draws every figure that there is something for, the one that opens the page first."""
  seeds, width = f"{config.seeds} seeds", config.half_widths[0]
  record.figure("windows", drawn.windows(letters, width), caption=(
    "Symbols that the model does not hold likeliest along the references of test pairs, by length;"
    f" lines: means over {seeds}; bands: 95% intervals. Dotted: links that no window of D = {width}"
    " around t holds."
  ))  # fmt: skip
  record.figure("centres", drawn.centres(letters), caption=(
    f"Where windows lie in sources of {config.words} letters: mean centre at each target letter,"
    f" over test pairs and {seeds} (bands: 95% intervals over seeds), and the mean linked position."
  ))  # fmt: skip
  record.figure("attention", drawn.attention(letters), caption=(
    "Weights of the first seed along the reference of a test source. Those of local-p do not sum"
    " to 1."
  ))  # fmt: skip
  mass = mass_of_equal_scores(width)
  record.figure("mass", drawn.mass(letters, width, mass), caption=(
    f"Shares of all weights that lie within {width} positions of t (left), and the mean sum of a"
    f" step's weights (right), {seeds}, bars: 95% intervals. Line: the sum with equal scores,"
    f" {mass:.3f}."
  ))  # fmt: skip
  if len(config.half_widths) > 1:
    record.figure("half_widths", drawn.half_widths(letters, config.half_widths), caption=(
      f"Symbols wrong on all test pairs by D, general score, {seeds}, bars: 95% intervals; global"
      " attention has no D."
    ))  # fmt: skip
  if verses is not None:
    record.figure("verses", drawn.verses(verses), caption=(
      f"Test verses of {VERSES}, {seeds}, bars: 95% intervals. D ="
      f" {config.verse_half_widths[0]} where none is told; published: D = {PAPER_WIDTH}."
    ))  # fmt: skip
  if measured:
    record.figure("cost", drawn.cost(measured), caption=(
      f"One forward pass along the target, batch {config.batch}, D = {width}: medians of"
      f" {config.repeats} turns and their 95% intervals; temporary memory by the compiler's"
      " account."
    ))  # fmt: skip
