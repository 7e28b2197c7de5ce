"""How fast does training go, next to others that train the same models?

RNNsearch's additive attention in Luong's order with input feeding (`additive_fed`) against JoeyNMT,
and Luong's general score against OpenNMT-py, with input feeding (`general_fed`, their
`InputFeedRNNDecoder`) and without (`general`, their `StdRNNDecoder`). One update of each is what
its own training loop does with a batch: forward, loss, backward, clipping by global norm, Adam;
float32, no dropout. attn's is `attn.training.state.update`; a peer's are its own model, loss,
optimizer and trainer, made by its own builders in an environment of its own.

The models are the same to the matrix: JoeyNMT reads both ways with 256 + 256 units and starts its
decoder of 256 from a layer over 512 numbers; attn's `initial_state=mean` has that layer too. A
decoder of OpenNMT-py is as wide as all of its encoder, attn's as one direction: that pair reads one
way, as Luong did. PyTorch's GRU (`gru_cudnn`) has two biases where one does, which are all of the
2n more parameters a GRU; attn's output layer has a bias that JoeyNMT's lacks, and attn's readout
one that OpenNMT-py's lacks.

(a) Fixed batches: random symbols, all sentences equally long, so that nothing is padding.
(b) Real batches: sentences of a data set in pieces that attn learned, the same numbers for both,
each batched as by default: attn by length buckets, JoeyNMT at random. Making batches counts.

Command: make peers, then python -m launch.run --experiment=training_benchmark
Without the peers their rows are left out. A benchmark judges no claim of the chapter, and
--experiment=all leaves it out. Leave the machine alone meanwhile; an interrupted run starts over.
Time: default 14 minutes on an idle core, smoke one minute, most of it compiling.

Rules, stated before the run. Every process is pinned to the same core and has one thread, and gets
its memory as its system's own commands do: attn's in huge pages, which the system is asked for by
GLIBC_TUNABLES=glibc.malloc.hugetlb=1 (`launch/memory.py`); `huge_pages_for_peers` gives them to the
peers as well, which tells how much of a ratio is due to them. The two
of a match take turns, A B A B ..., `repeats` times, after one has compiled and both are warm. What
is compared is real target symbols a second of wall time, EOS counted, padding not. A ratio is that
of two neighbours in time; stated are its median and the distribution-free 95% interval. A bar is
reached if the whole interval is at or above it, missed if all is below, else not resolved; not
measured without the peer. Fixed batches of 64 x 30 x 30: 1.3 times JoeyNMT, 1.5 times OpenNMT-py
with input feeding, 1.3 without. Real ones, 64 sentences: 1.5 times JoeyNMT.

FLOPs a symbol are counted three ways: from the sizes, as each system's own program has them
(attn's as traced, PyTorch's by its counter), two a multiply-add, products of matrices only. The
machine's peak is the fastest square product of XLA's or PyTorch's, whichever is faster.

Files: `result.json` has the bars, rates, GFLOP/s, shares of the peak, peak memory (all that a
process held, its libraries included) and compile seconds (by which the first update took longer
than the second, over all shapes). `metrics.jsonl` has one line a contender of a match: `model`,
`real`, `contender`, `updates` (a turn), `wall`, `cpu` (seconds), `symbols`, `positions` (of the
targets; a number a turn each), `median`, `low`, `high`, `q05`, `q95` (of the rates), `parameters`,
`flops`, `flops_by_size` (of an update), `compile_seconds`, `peak_bytes`, `loss`, `versions`; one a
match with `parts` of attn's update (seconds up to the end of each, `products` alone) and `matmul`;
and one a bar: `bar`, `verdict`, `ratio`, `low`, `high`, `threshold`.
"""

import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from attn import configs
from attn.data.config import DataConfig
from attn.data.errors import DataError
from attn.report import recorder, results
from attn.report.results import Metric
from experiments import sweeps
from experiments import training_benchmark_figures as drawn
from experiments import training_benchmark_trials as trials
from experiments.benchmark_bars import Verdict, reached, tell
from experiments.training_benchmark_trials import Match, Measured, Trial, missing, versions
from experiments.training_benchmark_work import (
  ADDITIVE_FED,
  ATTN,
  GENERAL,
  GENERAL_FED,
  JOEYNMT,
  MODELS,
  OPENNMT,
  Sizes,
  flops,
)

CLAIMS = ()

MATCHES = (
  Match(ADDITIVE_FED, JOEYNMT, 1.3),
  Match(GENERAL_FED, OPENNMT, 1.5),
  Match(GENERAL, OPENNMT, 1.3),
  Match(ADDITIVE_FED, JOEYNMT, 1.5, real=True),
)


@dataclasses.dataclass(frozen=True)
class Config:
  """What is timed.

  Attributes:
    models: which of `MODELS`; real batches are for the first alone.
    sizes: of models and fixed batches; with real ones the data decides lengths and vocabularies.
    data: of real batches; name '' leaves them out.
    repeats: turns of each contender; at least 6, for the medians' intervals.
    updates: of a turn with fixed batches.
    real_updates: of a turn with real ones.
    calls: of each part of attn's update; 0 leaves the parts out.
    squares: sizes of products of two square matrices; the fastest is the machine's peak.
    huge_pages_for_peers: whether peers get memory as attn's commands do, not as their own.
    seed: of parameters and batches.
  """

  models: tuple[str, ...] = MODELS
  sizes: Sizes = Sizes()
  data: DataConfig = DataConfig(
    name="libreoffice_help/en-de",
    batch_size=64,
    bucket_edges=(6, 9, 12, 15, 18, 22, 27, 34, 45, 64),
    source_size=8000,
    target_size=8000,
  )
  repeats: int = 15
  updates: int = 3
  real_updates: int = 15
  calls: int = 5
  squares: tuple[int, ...] = (512, 1024, 2048)
  huge_pages_for_peers: bool = False
  seed: int = 0

  def __post_init__(self) -> None:
    """Refuses unknown models, and too few turns for an interval."""
    if unknown := [name for name in self.models if name not in MODELS]:
      raise configs.ConfigError(f"no model {unknown[0]!r}{configs.nearest(unknown[0], MODELS)}")
    if self.repeats < 6:
      raise configs.ConfigError(f"repeats is {self.repeats}: a median's interval needs at least 6")
    for name in ("updates", "real_updates"):
      if getattr(self, name) < 1:
        raise configs.ConfigError(f"{name} is {getattr(self, name)}: it must be at least 1")
    if self.data.name and self.data.batch_size != self.sizes.batch:
      raise configs.ConfigError(
        f"data.batch_size is {self.data.batch_size} and sizes.batch {self.sizes.batch}: make them"
        " equal, or leave real batches out with data.name=''"
      )

  @property
  def matches(self) -> list[Match]:
    """What is timed, of `MATCHES`."""
    return [
      match
      for match in MATCHES
      if match.model in self.models and (self.data.name or not match.real)
    ]


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  smoke = {
    "models": (ADDITIVE_FED,), "sizes.batch": 4, "sizes.source": 5, "sizes.target": 7,
    "sizes.vocabulary": 30, "sizes.embedding": 8, "sizes.units": 8, "data.name": "",
    "data.batch_size": 4, "repeats": 6, "updates": 1, "real_updates": 1, "calls": 0,
    "squares": (64,),
  }  # fmt: skip
  full = {"repeats": 31, "updates": 5, "real_updates": 30, "calls": 15}
  return {"smoke": smoke, "default": {}, "full": full}


def sweep_batch() -> list[dict[str, Any]]:
  """Sentences a batch, which the share of the machine's peak depends on."""
  return sweeps.grid({"sizes.batch": (16, 64, 128), "data.name": ("",)})


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Times, judges the bars and draws the figures.

  Args:
    config: what is timed.
    workdir: where `result.json` and the figures go.
  """
  record = recorder.Recorder(
    "training_benchmark", config, profiles(), workdir, seeds=(config.seed,)
  )
  _say(missing())
  measured = measure(config, record)
  peak = max((rate for each in measured for rate in each.matmul.values()), default=None)
  metrics = judge(config, measured, record.log)
  tell(metrics)
  metrics |= table(config, measured, peak)
  facts = [trial.facts for each in measured for trial in each.trials]
  note = (
    f"{config.repeats} turns each on one core; medians with 95% intervals of real target symbols a"
    f" second. {versions(facts)}."
  )
  for name, figure in drawn.figures_of(measured, peak).items():
    record.figure(name, figure, caption=note)
  return record.finish(metrics=metrics, claims=())


def measure(config: Config, record: recorder.Recorder) -> list[Measured]:
  """Times every match, and logs a line a contender."""
  told = None
  matches = config.matches
  if any(match.real for match in matches):
    try:
      told = trials.tell(config.data, record.workdir / "text")
    except DataError as error:
      _say([f"{error}: real batches are left out"])
      matches = [match for match in matches if not match.real]
  found = []
  for match in matches:
    data, files = (config.data, told) if match.real else (None, None)
    each = trials.measure(
      match,
      trials.works(
        match,
        config.sizes,
        config.seed,
        data,
        files,
        huge_pages_for_peers=config.huge_pages_for_peers,
      ),
      repeats=config.repeats,
      updates=config.real_updates if match.real else config.updates,
      calls=config.calls,
      squares=config.squares,
    )
    found.append(each)
    for trial in each.trials:
      _log_trial(config, trial, record.log)
    record.log(model=match.model, real=match.real, parts=each.parts, matmul=each.matmul)
  return found


def _say(lines: Sequence[str]) -> None:
  for line in lines:
    print(f"training_benchmark: {line}", file=sys.stderr, flush=True)


def _log_trial(config: Config, trial: Trial, log: Callable[..., None]) -> None:
  match = trial.match
  spread = {name: value for name, value in trial.spread._asdict().items() if "mean" not in name}
  by_size = None if match.real else flops(match.model, config.sizes)
  log(
    model=match.model, real=match.real, contender=trial.contender, updates=trial.updates,
    wall=trial.seconds, cpu=trial.cpu, symbols=trial.symbols,
    positions=trial.positions, **spread, **trial.facts, flops_by_size=by_size,
  )  # fmt: skip


def judge(
  config: Config, measured: Sequence[Measured], log: Callable[..., None]
) -> dict[str, Metric]:
  """The bars, by the rules of the module's docstring."""
  by_match = {
    each.trials[0].match: {trial.contender: trial for trial in each.trials} for each in measured
  }
  metrics = {}
  for match in MATCHES:
    pair = by_match.get(match, {})
    name = f"{match.name}: symbols a second of {ATTN} / {match.peer}"
    verdict: Verdict = "not measured"
    found: tuple[float | None, ...] = (None, None, None)
    if match.peer in pair:
      ratio = found = pair[ATTN].over(pair[match.peer])
      verdict = reached(match.threshold, ratio.low, ratio.high)
      usual = Config()
      if config.sizes != usual.sizes or (match.real and config.data != usual.data):
        verdict = "other sizes"  # than those that the bar is for
    unit = f"times (at least {match.threshold:g}: {verdict})"
    metrics[name] = Metric(*found, config.repeats, unit)
    log(bar=name, verdict=verdict, threshold=match.threshold,
        **dict(zip(("ratio", "low", "high"), found, strict=True)))  # fmt: skip
  return metrics


def table(config: Config, measured: Sequence[Measured], peak: float | None) -> dict[str, Metric]:
  """What each system came to, and where attn's update spends its time.

  Args:
    config: the sizes.
    measured: what was timed.
    peak: GFLOP/s of the machine.
  """
  metrics = {}
  if peak is not None:
    metrics["the machine's peak"] = Metric(peak, unit="GFLOP/s (fastest square product)")
  for each in measured:
    for trial in each.trials:
      metrics |= _rows(config, trial, peak)
    name, before = f"{each.trials[0].match.name}: {ATTN}", 0.0
    for part, seconds in each.parts.items():
      alone = part == "products"
      taken = seconds if alone else seconds - before
      before = before if alone else seconds
      unit = "ms (each product alone)" if alone else "ms (more, with it)"
      metrics[f"{name}, {part}"] = Metric(1e3 * taken, unit=unit)
  return metrics


def _rows(config: Config, trial: Trial, peak: float | None) -> dict[str, Metric]:
  match, facts, spread = trial.match, trial.facts, trial.spread
  name = f"{match.name}: {trial.contender}"
  symbols = sum(trial.symbols)
  made = trial.updates * len(trial.seconds)
  rows = {
    name: Metric(spread.median, spread.low, spread.high, config.repeats, "symbols/s (median)"),
    f"{name}, compiling counted": Metric(trial.with_compiling, unit="symbols/s"),
    f"{name}, compiling": Metric(facts["compile_seconds"], unit="s"),
    f"{name}, peak memory": Metric(facts["peak_bytes"] / 2**30, unit="GiB"),
    f"{name}, parameters": Metric(facts["parameters"], unit=""),
  }
  if match.real:
    rows[f"{name}, padding"] = Metric(100 * trial.padding, unit="% of the target's positions")
    return rows
  by_size = flops(match.model, config.sizes)
  each = symbols / made  # symbols an update
  rows[f"{name}, FLOPs a symbol by the sizes"] = Metric(by_size / each / 1e6, unit="MFLOP")
  rows[f"{name}, FLOPs a symbol by its program"] = Metric(facts["flops"] / each / 1e6, unit="MFLOP")
  rates = [by_size * value / each / 1e9 for value in (spread.median, spread.low, spread.high)]
  rows[f"{name}, achieved"] = Metric(*rates, config.repeats, "GFLOP/s")
  if peak is not None:
    shares = [100 * rate / peak for rate in rates]
    rows[f"{name}, share of the machine's peak"] = Metric(*shares, config.repeats, "%")
  return rows
