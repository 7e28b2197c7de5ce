"""Systems that take turns, and what their searches come to: `experiments.decoding_benchmark`."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from attn.training.progress import Progress
from experiments import benchmark_workers as workers
from experiments.benchmark_bars import Ratio, ratio
from experiments.benchmark_workers import Work, Worker
from experiments.decoding_benchmark_attn import drawn
from experiments.decoding_benchmark_work import (
  ADDITIVE,
  ADDITIVE_FORWARD,
  GENERAL_FORWARD,
  Cell,
  Tokens,
  Turn,
  Widths,
  limit,
)
from experiments.training_benchmark_trials import is_there, python_of
from experiments.training_benchmark_work import ATTN, JOEYNMT, OPENNMT

AGREE = 0.9  # least share of translations that are the same in all systems
_COMPARED = 24  # sentences that this is looked at for


class Match(NamedTuple):
  """Two systems that search with the same weights.

  Attributes:
    model: of `decoding_benchmark_work.MODELS`.
    peer: who searches besides attn.
    beams: of those that are timed, the only ones for this match; empty for all.
  """

  model: str
  peer: str
  beams: tuple[int, ...] = ()

  @property
  def name(self) -> str:
    """The model and the peer."""
    return f"{self.model.replace('_', ', ')}, {self.peer}"

  def has(self, cell: Cell) -> bool:
    """Whether a cell is timed."""
    return not self.beams or cell.beam in self.beams


MATCHES = (
  Match(ADDITIVE, JOEYNMT),
  Match(ADDITIVE_FORWARD, OPENNMT),
  Match(GENERAL_FORWARD, OPENNMT, beams=(5,)),
)


class Trial(NamedTuple):
  """One system's turns with one cell of one match."""

  match: Match
  cell: Cell
  contender: str
  sentences: tuple[int, ...]  # a turn
  turns: tuple[Turn, ...]
  facts: Mapping[str, Any]

  @property
  def rates(self) -> tuple[float, ...]:
    """Sentences a second of each turn."""
    return tuple(n / turn.seconds for n, turn in zip(self.sentences, self.turns, strict=True))

  @property
  def seconds(self) -> float:
    """Of all turns."""
    return sum(turn.seconds for turn in self.turns)

  @property
  def rate(self) -> float:
    """Sentences a second, of all turns."""
    return sum(self.sentences) / self.seconds

  @property
  def symbol_rate(self) -> float:
    """Target symbols of the best hypotheses a second, of all turns."""
    return sum(turn.symbols for turn in self.turns) / self.seconds

  def with_compiling(self, sentences: int) -> float:
    """Sentences a second of a file of so many, whose programs are compiled for it."""
    return sentences / (sentences / self.rate + self.facts["compile_seconds"])

  def over(self, other: "Trial") -> Ratio:
    """Ratio of the rates of the turns."""
    return ratio(self.rates, other.rates)


class Measured(NamedTuple):
  """What a match told.

  Attributes:
    match: who searched with what.
    trials: two a cell, or attn's alone.
    matmul: GFLOP/s of square products by contender, the fastest size.
    agree: share of translations that are the same in both, by beam; empty without the peer.
  """

  match: Match
  trials: list[Trial]
  matmul: dict[str, float]
  agree: dict[int, float]

  def trial(self, cell: Cell, contender: str) -> Trial | None:
    """The trial of a contender with a cell, if it is there."""
    found = [one for one in self.trials if (one.cell, one.contender) == (cell, contender)]
    return found[0] if found else None


def works(
  match: Match, widths: Widths, seed: int, edges: tuple[int, ...], folder: pathlib.Path
) -> dict[str, Work]:
  """Contender to the work of its process, the peer left out if it is not there.

  attn's process inherits what `launch.memory` chose for a command.
  """
  folder.mkdir(parents=True, exist_ok=True)
  path = folder / f"{match.model}.npz"
  np.savez(path, **drawn(match.model, widths, seed))
  module = f"{__package__}.decoding_benchmark"
  anew = {"JAX_ENABLE_COMPILATION_CACHE": "false"}  # compiling is timed
  own = (match.model, widths, str(path), edges)
  found = {ATTN: Work(ATTN, f"{module}_attn:Attn", own, environment=anew)}
  if is_there(match.peer):
    server, arguments = f"{module}_opennmt:OpenNMT", own[:3]
    if match.peer == JOEYNMT:
      server, arguments = f"{module}_joeynmt:JoeyNMT", (widths, str(path))
    # Without warnings of what PyTorch will no longer have; with memory as its own commands get it.
    environment = {"PYTHONWARNINGS": "ignore", "GLIBC_TUNABLES": ""}
    python = str(python_of(match.peer))
    found[match.peer] = Work(match.peer, server, arguments, python, environment)
  return found


def batches(sources: Tokens, size: int) -> list[Tokens]:
  """Sources cut into batches in their order."""
  return [sources[at : at + size] for at in range(0, len(sources), size)]


def dealt(made: Sequence[Tokens], parts: int) -> list[Tokens]:
  """The sources of each part that batches are dealt into."""
  return [[ids for batch in made[part::parts] for ids in batch] for part in range(parts)]


def one_of_each(made: Sequence[Tokens], edges: Sequence[int]) -> Tokens:
  """The sources of a batch for each length to pad to: the shortest of those that need it."""
  needed = np.searchsorted(edges, [len(batch[-1]) + 1 for batch in made])
  _, first = np.unique(needed, return_index=True)
  return [ids for at in first for ids in made[at]]


def measure(
  match: Match,
  contenders: Mapping[str, Work],
  sources: Tokens,
  cells: Sequence[Cell],
  *,
  alone: int,
  edges: Sequence[int],
  repeats: int,
  parts: int,
  squares: Sequence[int],
) -> Measured:
  """Lets the contenders of a match take turns, in processes of their own for each size of batch.

  Args:
    match: what they search with.
    contenders: their work by name.
    sources: ids, without EOS.
    cells: how they search, beams and batches ascending.
    alone: how many sources are searched where a batch is one, of all lengths.
    edges: lengths that attn pads sources to.
    repeats: turns of each.
    parts: what the batches are dealt into; a turn searches one part.
    squares: sizes of the products that tell what the machine can do.
  """
  trials: list[Trial] = []
  matmul: dict[str, float] = {}
  agree: dict[int, float] = {}
  for size, own in dict.fromkeys((cell.batch, cell.own) for cell in cells):
    made = batches(sorted(sources, key=len), size)
    if size == 1:
      made = [made[at * len(made) // alone] for at in range(alone)]
    theirs = batches(sources, size) if own else made
    work = {name: dealt(made if name == ATTN else theirs, parts) for name in contenders}
    with workers.started(list(contenders.values()), threads=1) as processes:
      servers = dict(zip(contenders, processes, strict=True))
      for name, server in servers.items():
        rate = max(server.ask("matmul", square) for square in squares)
        matmul[name] = max(rate, matmul.get(name, 0.0))
      for cell in (cell for cell in cells if (cell.batch, cell.own) == (size, own)):
        trials += _turns(match, cell, servers, made, work, edges, repeats)
        if size == 1 and len(servers) > 1:
          agree[cell.beam] = _agreement(cell, servers, sources)
  return Measured(match, trials, matmul, agree)


def _turns(
  match: Match,
  cell: Cell,
  servers: Mapping[str, Worker],
  made: Sequence[Tokens],
  work: Mapping[str, Sequence[Tokens]],
  edges: Sequence[int],
  repeats: int,
) -> list[Trial]:
  middle = made[len(made) // 2][-1]
  facts = {}
  for name, server in servers.items():
    # What is compiled depends on the lengths that attn pads to; nothing is for the others.
    one = one_of_each(made, edges) if name == ATTN else made[0]
    known = {**server.ask("facts"), **server.ask("prepare", one, cell)}
    counted = server.ask("flops", [middle], cell._replace(batch=1))
    facts[name] = {**known, "flops_a_symbol": counted / limit(len(middle) + 1)}
  programs = {name: server.ask("compiled") for name, server in servers.items()}
  turns = []
  with Progress(f"{match.name}: {cell.words}", repeats) as progress:
    for done in range(repeats):
      parts = [work[name][done % len(work[name])] for name in servers]
      ran = zip(servers.values(), parts, strict=True)
      turns.append([(len(part), Turn(*server.ask("run", part, cell))) for server, part in ran])
      progress.update(done + 1)
  if programs != {name: server.ask("compiled") for name, server in servers.items()}:
    raise RuntimeError(f"{match.name}, {cell.words}: a program was compiled against the clock")
  trials = []
  for (name, server), own in zip(servers.items(), zip(*turns, strict=True), strict=True):
    known = {**facts[name], "peak_bytes": server.ask("peak")}
    trials.append(Trial(match, cell, name, *zip(*own, strict=True), known))
  return trials


def _agreement(cell: Cell, servers: Mapping[str, Worker], sources: Tokens) -> float:
  """The share of some sentences' translations that are the same in all systems.

  Raises:
    RuntimeError: so few are that the systems do not compute the same.
  """
  some = sorted(sources, key=len)[:: max(1, len(sources) // _COMPARED)]
  ours, theirs = (
    server.ask("search", some, cell, 0 if name == ATTN else 1) for name, server in servers.items()
  )
  # A peer's has one symbol more, the EOS that it is certain of: attn's was cut before.
  share = sum(one == other[:-1] for one, other in zip(ours, theirs, strict=True)) / len(some)
  if share < AGREE:
    raise RuntimeError(
      f"{' and '.join(servers)} with a beam of {cell.beam}: {share:.0%} of {len(some)}"
      " translations are the same"
    )
  return share
