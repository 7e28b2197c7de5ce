"""Systems that take turns, and what their updates come to: `experiments.training_benchmark`."""

import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from attn.data import corpora
from attn.data.config import DataConfig
from attn.training.progress import Progress
from experiments import benchmark_workers as workers
from experiments.benchmark_bars import Ratio, ratio
from experiments.benchmark_workers import Work
from experiments.score_scale_draws import Spread, spread
from experiments.training_benchmark_work import ATTN, JOEYNMT, OPENNMT, Sizes, Told

PEERS = pathlib.Path(__file__).parents[1] / ".peers"  # where `make peers` puts them


class Match(NamedTuple):
  """Two systems that train the same model.

  Attributes:
    model: of `training_benchmark_work.MODELS`.
    peer: who trains it besides attn.
    threshold: how many times the peer's target symbols a second attn is to reach.
    real: whether batches are those of a data set, as each system makes them.
  """

  model: str
  peer: str
  threshold: float
  real: bool = False

  @property
  def name(self) -> str:
    """The model and its batches."""
    return f"{self.model}, {'real' if self.real else 'fixed'} batches"


class Trial(NamedTuple):
  """One system's turns in one match; a field with a value a turn is a tuple."""

  match: Match
  contender: str
  updates: int  # a turn
  seconds: tuple[float, ...]
  cpu: tuple[float, ...]  # of which the process computed
  symbols: tuple[int, ...]  # real target symbols, EOS counted
  positions: tuple[int, ...]  # of the targets, padding counted
  facts: Mapping[str, Any]

  @property
  def rates(self) -> tuple[float, ...]:
    """Real target symbols a second of each turn."""
    return tuple(count / took for count, took in zip(self.symbols, self.seconds, strict=True))

  @property
  def spread(self) -> Spread:
    """Median of the rates, its interval, and quantiles."""
    return spread(self.rates)

  @property
  def padding(self) -> float:
    """Share of the target's positions."""
    return 1 - sum(self.symbols) / sum(self.positions)

  @property
  def with_compiling(self) -> float:
    """Symbols a second over all turns and the time that compiling took before."""
    return sum(self.symbols) / (sum(self.seconds) + self.facts["compile_seconds"])

  def over(self, other: "Trial") -> Ratio:
    """Ratio of the rates of the turns."""
    return ratio(self.rates, other.rates)


def python_of(peer: str) -> pathlib.Path:
  """The Python of a peer's environment."""
  return PEERS / {JOEYNMT: "joeynmt"}.get(peer, "opennmt") / "bin" / "python"


def is_there(peer: str) -> bool:
  """Whether a peer's environment has been made."""
  return python_of(peer).exists()


def missing() -> list[str]:
  """A line for each peer that is not there."""
  return [
    f"{peer} is not in {PEERS.name}: it is left out (make peers)"
    for peer in (JOEYNMT, OPENNMT)
    if not is_there(peer)
  ]


def versions(facts: Iterable[Mapping[str, Any]]) -> str:
  """What was timed, from what each process said of itself."""
  found: dict[str, str] = {}
  for one in facts:
    found |= one["versions"]
  return ", ".join(f"{name} {version}" for name, version in found.items())


def works(
  match: Match,
  sizes: Sizes,
  seed: int,
  data: DataConfig | None,
  told: Told | None,
  *,
  huge_pages_for_peers: bool = False,
) -> dict[str, Work]:
  """Contender to the work of its process, the peer left out if it is not there.

  attn's process inherits what `launch.memory` chose for a command; a peer's does on request.
  """
  module = f"{__package__}.training_benchmark"
  anew = {"JAX_ENABLE_COMPILATION_CACHE": "false"}  # compiling is timed
  own = (match.model, sizes, seed, data)
  found = {ATTN: Work(ATTN, f"{module}_attn:Attn", own, environment=anew)}
  if is_there(match.peer):
    server, arguments = f"{module}_opennmt:OpenNMT", (match.model, sizes, seed)
    if match.peer == JOEYNMT:
      server, arguments = f"{module}_joeynmt:JoeyNMT", (sizes, seed, told)
    environment = {"PYTHONWARNINGS": "ignore"}  # of what PyTorch will no longer have
    if not huge_pages_for_peers:
      environment["GLIBC_TUNABLES"] = ""
    python = str(python_of(match.peer))
    found[match.peer] = Work(match.peer, server, arguments, python, environment)
  return found


class Measured(NamedTuple):
  """What a match told.

  Attributes:
    trials: one a contender.
    parts: seconds of growing parts of attn's update, empty with real batches.
    matmul: GFLOP/s of square products by contender, the fastest size.
  """

  trials: list[Trial]
  parts: dict[str, float]
  matmul: dict[str, float]


def measure(
  match: Match,
  contenders: Mapping[str, Work],
  *,
  repeats: int,
  updates: int,
  calls: int,
  squares: Sequence[int],
) -> Measured:
  """Lets the contenders of a match take turns, each in a process that begins with it.

  Args:
    match: what they train.
    contenders: their work by name.
    repeats: turns of each.
    updates: in a turn.
    calls: of each part of attn's update; 0 leaves them out.
    squares: sizes of the products that tell what the machine can do.
  """
  with workers.started(list(contenders.values()), threads=1) as processes:
    facts = [process.ask("prepare") for process in processes]
    matmul = {}
    if not match.real:
      for name, process in zip(contenders, processes, strict=True):
        matmul[name] = max(process.ask("matmul", size) for size in squares)
    turns = []
    with Progress(f"{match.name} against {match.peer}", repeats) as progress:
      for done in range(1, repeats + 1):
        turns.append([process.ask("run", updates) for process in processes])
        progress.update(done)
    peaks = [process.ask("peak") for process in processes]
    parts = processes[0].ask("parts", calls) if calls and not match.real else {}
  trials = []
  by_contender = zip(contenders, facts, peaks, zip(*turns, strict=True), strict=True)
  for name, known, peak, own in by_contender:
    series = (tuple(turn[of] for turn in own) for of in ("seconds", "cpu", "symbols", "positions"))
    known = {**known, "peak_bytes": peak, "loss": own[-1]["loss"]}
    trials.append(Trial(match, name, updates, *series, known))
  return Measured(trials, parts, matmul)


def tell(data: DataConfig, folder: pathlib.Path) -> Told:
  """Writes the pairs that attn trains on for another system, as pieces that it need not cut.

  Pairs beyond the last bucket, which attn leaves out, are left out.
  """
  corpus = corpora.load(data, "train")
  vocabularies = corpora.vocabularies(data, corpus)
  sides = [
    [vocabulary.split(text) for text in texts]
    for vocabulary, texts in zip(vocabularies, (corpus.sources, corpus.targets), strict=True)
  ]
  longest = data.bucket_edges[-1] - 1  # EOS comes with them
  kept = [pair for pair in zip(*sides, strict=True) if max(map(len, pair)) <= longest]
  folder.mkdir(parents=True, exist_ok=True)
  told = Told(str(folder))
  for side, vocabulary, pieces in zip(
    (told.source, told.target), vocabularies, zip(*kept, strict=True), strict=True
  ):
    write_lines(told.text().with_suffix(f".{side}"), (" ".join(line) for line in pieces))
    write_lines(told.vocabulary(side), vocabulary.symbols)
  return told


def write_lines(path: pathlib.Path, lines: Iterable[str]) -> None:
  """Writes a file of lines."""
  path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
