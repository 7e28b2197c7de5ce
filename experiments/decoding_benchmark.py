"""How fast does search go, next to others that search with the same models?

Beam search of 1,000 test sentences in JoeyNMT, in OpenNMT-py and in attn, one thread each, with the
same weights: RNNsearch's additive attention, read both ways, in Luong's order with input feeding,
against JoeyNMT (`additive`); and, since a decoder of OpenNMT-py is as wide as all of its encoder,
the same read one way against OpenNMT-py (`additive_forward`), once more with its default, Luong's
general score (`general_forward`). GRUs and embeddings of 256, vocabularies of 8,000 as in
`training_benchmark`; float32. A search starts from ids and ends with ids.

How long a search takes is how many symbols it makes. Trained models would each make others and end
them by other rules. So all make the same: weights are random and every system has the same (the
translations are the same too, which is looked at with single sentences), and a sentence of n
symbols is translated to n + 1, for EOS is impossible before and certain then. The work is known
from the sizes, and nobody gains by giving up early: what each system does about an EOS that is
merely probable is not timed here. In attn it is the limit that ends a hypothesis.

(a) The same batches, each batch size and beam: the file is sorted by length for all. (b) Own ones,
32 sentences and a beam of 5: the file comes in its own order, which JoeyNMT and OpenNMT-py keep by
default, while attn sorts; a peer drops a sentence of a batch once it has ended. attn pads sources
to three lengths, the others to the longest of a batch: that padding is attn's to pay for.

Command: make peers, then python -m launch.run --experiment=decoding_benchmark
Without the peers their rows are left out. A benchmark judges no claim of the chapter, and
--experiment=all leaves it out. Leave the machine alone meanwhile; an interrupted run starts over.
Time: default 15 minutes on an idle core, a quarter of it compiling, smoke 20 seconds;
full two hours by estimate.

Rules, stated before the run. Every process is pinned to the same core and has one thread, and gets
its memory as its system's own commands do (attn's in huge pages, `launch/memory.py`). The two of a
match take turns, A B A B ..., after attn has compiled and both have searched once. The batches
that a system makes of the file are dealt into eight parts; a turn searches one part, which in (a)
is its neighbour's too, and the turns after it the next ones. What is compared is sentences a second
of wall time. A ratio is that of two neighbours; stated are its median and the distribution-free 95%
interval. A bar is reached if the whole interval is at or above it, missed if all is below, else not
resolved; not measured without the peer. Own batches of 32, beam 5: 3 times each peer. One sentence
at a time, each beam: 1 time. And attn compiles at most 5 programs for the file of mixed lengths,
counted by its traces.

FLOPs a symbol are counted from the sizes (two a multiply-add, products of matrices only, nothing
twice that need not be) and as each system's own program has them, for a sentence of middle length:
both PyTorch systems multiply the keys of an additive score by their matrix at every step. The
machine's peak is the fastest square product of XLA's or PyTorch's, whichever is faster.

Files: `result.json` has the bars, and of each system, batch and beam the rates, with compiling
apart and counted, GFLOP/s, shares of the peak and peak memory (all that a process held so far, its
libraries included; it has gone through the smaller beams of that batch before). `metrics.jsonl` has
one line a system of a match with a batch and a beam: `model`, `peer`, `contender`, `batch`, `beam`,
`own`, `sentences`, `wall`, `cpu`, `symbols` (one a turn each), `rate` (sentences a second of all
turns), `symbol_rate`, `parameters`, `programs`, `compile_seconds`, `flops_a_symbol`, `peak_bytes`,
`versions`; one a match with `agree` and `matmul`; and one a bar: `bar`, `verdict`, `ratio`, `low`,
`high`, `threshold`.
"""

import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attn import configs
from attn.data import corpora
from attn.data.config import DataConfig
from attn.data.errors import DataError
from attn.data.vocabulary import UNK
from attn.report import recorder, results
from attn.report.results import Metric
from experiments import decoding_benchmark_figures as drawn
from experiments import decoding_benchmark_trials as trials
from experiments import sweeps
from experiments.benchmark_bars import Verdict, reached, tell
from experiments.decoding_benchmark_trials import MATCHES, Match, Measured, Trial
from experiments.decoding_benchmark_work import MODELS, Cell, Tokens, Widths, flops, limit
from experiments.training_benchmark_trials import missing, versions
from experiments.training_benchmark_work import ATTN, RESERVED

CLAIMS = ()

HIGH, AS_FAST, HANDFUL = 3.0, 1.0, 5  # bars: times a peer's speed, and programs
HIGH_CELL = Cell(batch=32, beam=5, own=True)


@dataclasses.dataclass(frozen=True)
class Config:
  """What is timed.

  Attributes:
    models: which of `MODELS`.
    widths: of the models.
    data: whose test sentences are searched, in pieces learned from its training sentences; with
      name '' their lengths are drawn.
    edges: lengths that attn pads sources to, EOS counted; longer sentences are left out.
    sentences: how many there are, of all lengths.
    alone: how many of them are searched where a batch is one sentence, of all lengths.
    beams: hypotheses, ascending.
    batches: sentences, ascending.
    repeats: turns of each contender; at least 6, for the medians' intervals.
    parts: what the sentences are dealt into, a turn searches one.
    squares: sizes of products of two square matrices; the fastest is the machine's peak.
    seed: of weights and drawn lengths.
  """

  models: tuple[str, ...] = MODELS
  widths: Widths = Widths()
  data: DataConfig = DataConfig(name="libreoffice_help/en-de", source_size=8000, target_size=8000)
  edges: tuple[int, ...] = (16, 32, 64)
  sentences: int = 1000
  alone: int = 120
  beams: tuple[int, ...] = (1, 5, 10)
  batches: tuple[int, ...] = (1, 32, 128)
  repeats: int = 6
  parts: int = 8
  squares: tuple[int, ...] = (512, 1024, 2048)
  seed: int = 0

  def __post_init__(self) -> None:
    """Refuses unknown models, too few turns for an interval, and parts without a batch."""
    if unknown := [name for name in self.models if name not in MODELS]:
      raise configs.ConfigError(f"no model {unknown[0]!r}{configs.nearest(unknown[0], MODELS)}")
    if self.repeats < 6:
      raise configs.ConfigError(f"repeats is {self.repeats}: a median's interval needs at least 6")
    for name in ("beams", "batches"):
      if min(getattr(self, name), default=0) < 1:
        raise configs.ConfigError(f"{name} is {getattr(self, name)}: each must be at least 1")
    most = max(self.batches)
    if (self.parts - 1) * most >= self.sentences:
      raise configs.ConfigError(
        f"{self.sentences} sentences in batches of {most} are too few for {self.parts} parts"
      )
    if not self.parts <= self.alone <= self.sentences:
      raise configs.ConfigError(
        f"alone is {self.alone}: it must be from {self.parts}, the parts, to {self.sentences}"
      )

  @property
  def matches(self) -> list[Match]:
    """What is timed, of `MATCHES`."""
    return [match for match in MATCHES if match.model in self.models]

  @property
  def cells(self) -> list[Cell]:
    """How sentences are searched."""
    same = [Cell(batch, beam) for batch in sorted(self.batches) for beam in sorted(self.beams)]
    return [*same, *(cell for cell in [HIGH_CELL] if cell._replace(own=False) in same)]


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  smoke = {
    "models": (MODELS[0],), "widths.vocabulary": 60, "widths.embedding": 8, "widths.units": 8,
    "data.name": "", "edges": (8, 16), "sentences": 48, "alone": 6, "beams": (2,),
    "batches": (1,), "repeats": 6, "parts": 6, "squares": (64,),
  }  # fmt: skip
  full = {"alone": 1000, "repeats": 32}
  return {"smoke": smoke, "default": {}, "full": full}


def sweep_vocabulary() -> list[dict[str, Any]]:
  """Symbols of the output layer, which most of a step's work is for."""
  return sweeps.grid({"widths.vocabulary": (2000, 8000, 32000), "data.name": ("",)})


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Times, judges the bars and draws the figure.

  Args:
    config: what is timed.
    workdir: where `result.json` and the figure go.

  Raises:
    DataError: the data cannot be had, or has too few sentences.
  """
  record = recorder.Recorder(
    "decoding_benchmark", config, profiles(), workdir, seeds=(config.seed,)
  )
  for line in missing():
    print(f"decoding_benchmark: {line}", file=sys.stderr, flush=True)
  sources = sentences(config)
  measured = [measure(config, match, sources, record) for match in config.matches]
  metrics = judge(config, measured, record.log)
  tell(metrics)
  metrics |= table(config, measured, sources)
  facts = [trial.facts for each in measured for trial in each.trials]
  lengths = [len(ids) + 1 for ids in sources]
  record.figure(
    "rates",
    drawn.rates(measured),
    caption=(
      f"{len(sources):,} sentences of {min(lengths)} to {max(lengths)} symbols (half have at most"
      f" {np.median(lengths):.0f}), one by one {config.alone:,} of them; one core, {config.repeats}"
      f" turns each; medians of the ratios with 95% intervals. {versions(facts)}."
    ),
  )
  return record.finish(metrics=metrics, claims=())


def sentences(config: Config) -> Tokens:
  """Ids without EOS, all short enough for the last edge."""
  longest = config.edges[-1] - 1
  random = np.random.default_rng(config.seed)
  if config.data.name:
    corpus = corpora.load(config.data, "test")
    source, _ = corpora.vocabularies(config.data, corpora.load(config.data, "train"))
    found = [source.encode(text) for text in dict.fromkeys(corpus.sources)]
    found = [ids for ids in found if len(ids) <= longest]
    if len(found) < config.sentences:
      raise DataError(
        f"{config.data.name} has {len(found):,} test sentences of at most {longest} symbols: set"
        " fewer sentences"
      )
    chosen = random.permutation(len(found))[: config.sentences]
    # Weights are random: a word that is known stands as well for one that is not.
    return [[RESERVED if id == UNK else id for id in found[at]] for at in chosen]
  lengths = random.integers(1, longest, config.sentences, endpoint=True)
  return [random.integers(RESERVED, config.widths.vocabulary, n).tolist() for n in lengths]


def measure(config: Config, match: Match, sources: Tokens, record: recorder.Recorder) -> Measured:
  """Times a match, and logs a line a trial."""
  contenders = trials.works(
    match, config.widths, config.seed, config.edges, record.workdir / "weights"
  )
  measured = trials.measure(
    match,
    contenders,
    sources,
    [cell for cell in config.cells if match.has(cell)],
    alone=config.alone,
    edges=config.edges,
    repeats=config.repeats,
    parts=config.parts,
    squares=config.squares,
  )
  for trial in measured.trials:
    wall, cpu, symbols = zip(*trial.turns, strict=True)
    record.log(
      model=match.model, peer=match.peer, contender=trial.contender, **trial.cell._asdict(),
      sentences=trial.sentences, wall=wall, cpu=cpu, symbols=symbols, rate=trial.rate,
      symbol_rate=trial.symbol_rate, **trial.facts,
    )  # fmt: skip
  record.log(model=match.model, peer=match.peer, agree=measured.agree, matmul=measured.matmul)
  return measured


def judge(
  config: Config, measured: Sequence[Measured], log: Callable[..., None]
) -> dict[str, Metric]:
  """The bars, by the rules of the module's docstring."""
  by_match = {each.match: each for each in measured}
  usual = config.widths == Widths()
  metrics = {}
  for match in MATCHES:
    for cell, threshold in bars(match):
      each = by_match.get(match)
      pair = [each.trial(cell, name) if each else None for name in (ATTN, match.peer)]
      verdict: Verdict = "not measured"
      found: tuple[float | None, ...] = (None, None, None)
      if pair[0] and pair[1]:
        ratio = found = pair[0].over(pair[1])
        verdict = reached(threshold, ratio.low, ratio.high) if usual else "other sizes"
      name = f"{match.name}: sentences a second of {ATTN} / {match.peer}, {cell.words}"
      unit = f"times (at least {threshold:g}: {verdict})"
      metrics[name] = Metric(*found, config.repeats, unit)
      log(bar=name, verdict=verdict, threshold=threshold,
          **dict(zip(("ratio", "low", "high"), found, strict=True)))  # fmt: skip
  counts = [t.facts["programs"] for each in measured for t in each.trials if t.contender == ATTN]
  most = max(counts, default=None)
  verdict = "not measured" if most is None else reached(HANDFUL, most, most, at_most=True)
  name = f"programs that {ATTN} compiled for the file of mixed lengths, at most"
  metrics[name] = Metric(most, unit=f"(at most {HANDFUL}: {verdict})")
  log(bar=name, verdict=verdict, ratio=most, low=most, high=most, threshold=HANDFUL)
  return metrics


def bars(match: Match) -> list[tuple[Cell, float]]:
  """Which cells of a match have a bar, and how high it is."""
  all_bars = [(HIGH_CELL, HIGH), *((Cell(1, beam), AS_FAST) for beam in Config().beams)]
  return [(cell, threshold) for cell, threshold in all_bars if match.has(cell)]


def table(config: Config, measured: Sequence[Measured], sources: Tokens) -> dict[str, Metric]:
  """What each system came to.

  Args:
    config: the sizes.
    measured: what was timed.
    sources: what was searched.
  """
  peaks = [rate for each in measured for rate in each.matmul.values()]
  peak = max(peaks, default=None)
  metrics = {}
  if peak is not None:
    metrics["the machine's peak"] = Metric(peak, unit="GFLOP/s (fastest square product)")
  for each in measured:
    for beam, share in each.agree.items():
      name = f"{each.match.name}: the same translations, beam {beam}"
      metrics[name] = Metric(100 * share, unit="% of single sentences")
    for trial in each.trials:
      metrics |= _rows(config, trial, sources, peak)
  return metrics


def _rows(config: Config, trial: Trial, sources: Tokens, peak: float | None) -> dict[str, Metric]:
  facts, cell = trial.facts, trial.cell
  name = f"{trial.match.name}: {trial.contender}, {cell.words}"
  rows = {
    name: Metric(trial.rate, n=config.repeats, unit="sentences/s"),
    f"{name}, compiling counted": Metric(
      trial.with_compiling(config.sentences), unit="sentences/s"
    ),
    f"{name}, compiling": Metric(facts["compile_seconds"], unit="s"),
    f"{name}, programs": Metric(facts["programs"], unit=""),
    f"{name}, symbols": Metric(trial.symbol_rate, unit="target symbols/s"),
    f"{name}, peak memory": Metric(facts["peak_bytes"] / 2**30, unit="GiB"),
    f"{name}, parameters": Metric(facts["parameters"], unit=""),
  }
  lengths = [len(ids) + 1 for ids in sources]
  whole = flops(trial.match.model, config.widths, lengths, cell.beam)
  each = whole / sum(map(limit, lengths))  # FLOPs a symbol
  rows[f"{name}, FLOPs a symbol by the sizes"] = Metric(each / 1e6, unit="MFLOP")
  rows[f"{name}, FLOPs a symbol by its program"] = Metric(
    facts["flops_a_symbol"] / 1e6, unit="MFLOP (a sentence of middle length alone)"
  )
  achieved = each * trial.symbol_rate / 1e9
  rows[f"{name}, achieved"] = Metric(achieved, unit="GFLOP/s")
  if peak is not None:
    rows[f"{name}, share of the machine's peak"] = Metric(100 * achieved / peak, unit="%")
  return rows
