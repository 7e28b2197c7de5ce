"""How fast and how lean are the ops, next to others that compute the same?

Every score through `attn.attend`, and local attention through `attn.attend_local`, against the same
arithmetic in plain batched `jnp` and, where they have it, in `jax.nn.dot_product_attention` and
Keras' `AdditiveAttention` on JAX and on PyTorch. The last has no W_a and U_a: it is compared with
`additive_bare`, v^T tanh(query + key). The other scores carry their matrices. Sources are padded
and masked; keys are the values, of the width n of queries and alignment. Local attention is held
against `attn.attend` with `window_mask`, the Gaussian on its weights, and against that in plain
`jnp`. Each contender starts from the same numbers and has to give the same context and gradients
before it is timed. All of JAX is compiled; Keras runs PyTorch eagerly, as it does by default. Both
passes of all floating arguments are `forward+backward`. Everything on the CPU.

A process a back end, pinned to one core and then to two. Contenders take turns, A B C A B C ...,
`repeats` times, each time for 20 ms or one call; compiling and a warm-up come before. A ratio is
that of two neighbours in time; stated are the median over the repeats, its distribution-free 95%
interval, and 5% and 95% quantiles. Temporary bytes are the compiler's account; PyTorch keeps none.

Command: python -m launch.run --experiment=ops_benchmark
The peers are an extra: python -m pip install -c constraints.txt -e '.[peers]'. Without them their
rows are left out. A benchmark judges no claim of the chapter, and --experiment=all leaves it out.
Time: default 11 minutes on two idle cores; smoke 15 seconds and full 70 minutes by estimate. An
interrupted run starts over. Leave the machine alone meanwhile.

Rules, stated before the run. A bar is reached if the whole interval of the median ratio is on its
side, missed if none of it is, else not resolved; not measured without the peer. With one thread at
B=32, t=30, s=50, n=512, forward and backward: for `additive_bare` Keras on JAX takes at least 3
times as long and 15 times the temporary memory, Keras on PyTorch 5 times as long; for `additive`,
both projections included, plain `jnp` takes 2 times as long and 10 times the memory; `dot` takes at
most 1.1 times as long as jax.nn. At B=4, t=64, s=4096, n=128, D=10 the dense form takes at least 8
times as long forward and 10 times with the backward pass. The forward pass of `attend_local` has
as many FLOPs at every s, by XLA's count, which holds for programs without loops only.

Expect: the time of the dense form grows with s. That of `attend_local` does not, forward; backward
it does, by what writing a dense gradient [B, s, n] takes, which is timed beside it.

Files: `result.json` has the bars, the medians at the sizes above and the slopes of log time over
log s. `metrics.jsonl` has one line a timing: `score`, `batch`, `target`, `source`, `width`,
`half_width`, `threads`, `contender`, `passes`, `times` (wall seconds a call, in order), `median`,
`low`, `high`, `q05`, `q95` (of them), `cpu_times` (the process' own seconds: fewer where the
machine was busy with something else), `compile_seconds`, `temp_bytes`, `flops` and `loops` (XLA's),
and one a bar: `bar`, `verdict`, `ratio`, `low`, `high`, `threshold`.
"""

import dataclasses
import importlib.metadata
import importlib.util
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from attn import configs
from attn.evaluation.intervals import Interval
from attn.report import recorder, results
from attn.report.results import Metric
from attn.training.progress import Progress
from experiments import benchmark_workers as workers
from experiments import ops_benchmark_figures as drawn
from experiments.benchmark_bars import Verdict, reached, tell
from experiments.ops_benchmark_programs import (
  ATTN,
  BARE,
  BOTH,
  DENSE,
  FORWARD,
  JAX_NN,
  KERAS_JAX,
  KERAS_TORCH,
  LOCAL,
  PLAIN,
  SCORES,
  WRITE,
  Case,
)
from experiments.ops_benchmark_timings import Timing, time_case
from experiments.ops_benchmark_workers import work

CLAIMS = ()


@dataclasses.dataclass(frozen=True)
class Sizes:
  """Sizes of one problem.

  Attributes:
    batch: sentences.
    target: queries a sentence, t.
    source: keys a sentence, s.
    width: of queries, keys, values and alignment, n.
  """

  batch: int
  target: int
  source: int
  width: int


@dataclasses.dataclass(frozen=True)
class Config:
  """What is timed.

  Attributes:
    scores: names of `SCORES`, local attention aside.
    base: sizes that the scores are compared at.
    targets: further t, the other sizes as in `base`.
    sources: further s.
    widths: further n.
    local: sizes that local attention is compared at.
    local_sources: further s of it.
    half_width: D, of the window.
    threads: how many threads, ascending; more than there are cores are left out.
    growth_threads: with which of them the further sizes are timed.
    repeats: turns of each contender; at least 6, for the medians' intervals.
    seed: of the numbers.
  """

  scores: tuple[str, ...] = SCORES
  base: Sizes = Sizes(batch=32, target=30, source=50, width=512)
  targets: tuple[int, ...] = (10, 90)
  sources: tuple[int, ...] = (25, 100, 200)
  widths: tuple[int, ...] = (128, 1024)
  local: Sizes = Sizes(batch=4, target=64, source=4096, width=128)
  local_sources: tuple[int, ...] = (256, 1024, 16384)
  half_width: int = 10
  threads: tuple[int, ...] = (1, 2)
  growth_threads: tuple[int, ...] = (1,)
  repeats: int = 11
  seed: int = 0

  def __post_init__(self) -> None:
    """Refuses unknown scores, and too few turns for an interval."""
    if unknown := [name for name in self.scores if name not in SCORES]:
      raise configs.ConfigError(
        f"no score {unknown[0]!r}{configs.nearest(unknown[0], SCORES)}: local attention is always"
        " timed"
      )
    if self.repeats < 6:
      raise configs.ConfigError(f"repeats is {self.repeats}: a median's interval needs at least 6")
    if not self.threads or min(self.threads) < 1:
      raise configs.ConfigError(f"threads is {self.threads}: each must be at least 1")

  @property
  def compared(self) -> list[Case]:
    """Each score, then local attention, at the sizes that the bars are for."""
    base, local = dataclasses.astuple(self.base), dataclasses.astuple(self.local)
    return [*(Case(score, *base) for score in self.scores), Case(LOCAL, *local, self.half_width)]

  def cases(self, threads: int) -> list[Case]:
    """Everything that is timed with so many threads."""
    found = self.compared
    if threads in self.growth_threads:
      *scores, local = found
      grown = ("target", self.targets), ("source", self.sources), ("width", self.widths)
      for case in scores:
        found += [case._replace(**{name: size}) for name, sizes in grown for size in sizes]
      found += [local._replace(source=source) for source in self.local_sources]
    return list(dict.fromkeys(found))


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  smoke = {
    "scores": ("dot", BARE), "threads": (1,), "repeats": 6, "base.batch": 3,
    "base.target": 5, "base.source": 7, "base.width": 32, "targets": (), "sources": (),
    "widths": (), "local.target": 8, "local.source": 256, "local_sources": (512,),
  }  # fmt: skip
  full = {
    "targets": (5, 10, 60, 120), "sources": (13, 25, 100, 200, 400), "widths": (64, 128, 256, 1024),
    "local_sources": (128, 256, 512, 1024, 2048, 8192, 16384), "growth_threads": (1, 2),
    "repeats": 31,
  }  # fmt: skip
  return {"smoke": smoke, "default": {}, "full": full}


def sweep_quick() -> list[dict[str, Any]]:
  """The window's width, which the work of local attention is proportional to."""
  return [{**profiles()["smoke"], "half_width": half_width} for half_width in (5, 10, 20)]


class Bar(NamedTuple):
  """What is to be reached: `over` takes so many times what `under` takes."""

  score: str
  passes: str
  quantity: Literal["time", "temporary memory"]
  over: str
  under: str
  threshold: float
  at_most: bool = False

  @property
  def name(self) -> str:
    """The ratio in words."""
    return f"{self.score}, {self.passes}: {self.quantity} of {self.over} / {self.under}"


BARS = (
  Bar(BARE, BOTH, "time", KERAS_JAX, ATTN, 3),
  Bar(BARE, BOTH, "temporary memory", KERAS_JAX, ATTN, 15),
  Bar(BARE, BOTH, "time", KERAS_TORCH, ATTN, 5),
  Bar("additive", BOTH, "time", PLAIN, ATTN, 2),
  Bar("additive", BOTH, "temporary memory", PLAIN, ATTN, 10),
  Bar("dot", BOTH, "time", ATTN, JAX_NN, 1.1, at_most=True),
  Bar(LOCAL, FORWARD, "time", DENSE, ATTN, 8),
  Bar(LOCAL, BOTH, "time", DENSE, ATTN, 10),
)


def equal_flops(forward: Sequence[Mapping[str, Any]]) -> Verdict:
  """Whether programs have as many FLOPs; XLA's count says nothing of a loop."""
  if len(forward) < 2 or any(facts["loops"] or not facts["flops"] for facts in forward):
    return "not measured"
  return "reached" if len({facts["flops"] for facts in forward}) == 1 else "missed"


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> Interval:
  """Of log time over log size, with Student's interval for how far the points are from a line."""
  fitted = stats.linregress(np.log(sizes), np.log(seconds))
  free = len(sizes) - 2
  half = float(stats.t.ppf(0.975, free) * fitted.stderr) if free > 0 else math.inf
  return Interval(float(fitted.slope), fitted.slope - half, fitted.slope + half, len(sizes))


def measure(config: Config, log: Callable[..., None]) -> list[Timing]:
  """Times everything, and logs a line each."""
  backends = ("jax", "torch") if _found("keras") and _found("torch") else ("jax",)
  timings = []
  cores = len(workers.cores())
  for threads in config.threads:
    if threads > cores:
      print(f"ops_benchmark: {threads} threads need as many cores: left out", file=sys.stderr)
      continue
    cases = config.cases(threads)
    with (
      workers.started([work(backend) for backend in backends], threads) as processes,
      Progress(f"ops_benchmark, threads: {threads}", len(cases)) as progress,
    ):
      for done, case in enumerate(cases, 1):
        for timing in time_case(case, threads, processes, config.repeats, config.seed):
          timings.append(timing)
          log(
            **case._asdict(), threads=threads, contender=timing.contender, passes=timing.passes,
            times=timing.seconds, cpu_times=timing.cpu, **{
              name: value for name, value in timing.spread._asdict().items() if "mean" not in name
            }, **timing.facts,
          )  # fmt: skip
        progress.update(done, case.score)
  return timings


def _found(package: str) -> bool:
  return importlib.util.find_spec(package) is not None


def missing() -> list[str]:
  """A line for each peer that is not installed."""
  lines = []
  if not _found("keras"):
    lines.append("Keras is not installed: it is left out")
  elif not _found("torch"):
    lines.append("PyTorch is not installed: Keras on PyTorch is left out")
  return [f"{line} (python -m pip install -c constraints.txt -e '.[peers]')" for line in lines]


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Times, judges the bars and draws the figures.

  Args:
    config: what is timed.
    workdir: where `result.json` and the figures go.
  """
  record = recorder.Recorder("ops_benchmark", config, profiles(), workdir, seeds=(config.seed,))
  for line in missing():
    print(f"ops_benchmark: {line}", file=sys.stderr, flush=True)
  peers = {name: importlib.metadata.version(name) for name in ("keras", "torch") if _found(name)}
  record.log(event="peers", **peers)
  timings = measure(config, record.log)
  metrics = judge(config, timings, record.log)
  told = ", ".join(f"{name} {version}" for name, version in peers.items())
  note = (
    f"{config.repeats} turns each on the CPU; medians with 95% intervals; one thread unless"
    f" stated.{f' {told}.' if told else ''}"
  )
  for name, figure in drawn.figures_of(config, timings).items():
    record.figure(name, figure, caption=note)
  return record.finish(metrics={**metrics, **table(config, timings)}, claims=())


def judge(config: Config, timings: Sequence[Timing], log: Callable[..., None]) -> dict[str, Metric]:
  """The bars, with one thread at the sizes compared at, by the rules of the module's docstring."""
  here = {(t.case, t.contender, t.passes): t for t in timings if t.threads == min(config.threads)}
  metrics = {}
  for bar in BARS:
    case = next((case for case in config.compared if case.score == bar.score), None)
    pair = [here.get((case, contender, bar.passes)) for contender in (bar.over, bar.under)]
    found = None if None in pair else pair[0].over(pair[1], bar.quantity)
    verdict: Verdict = (
      "not measured" if found is None else reached(bar.threshold, *found[1:], at_most=bar.at_most)
    )
    if found and case not in Config().compared:
      verdict = "other sizes"  # than those that the bar is for
    side = "at most" if bar.at_most else "at least"
    values = found or (None, None, None)
    n = config.repeats if bar.quantity == "time" else 1
    metrics[bar.name] = Metric(*values, n, f"times ({side} {bar.threshold:g}: {verdict})")
    log(bar=bar.name, verdict=verdict, threshold=bar.threshold,
        **dict(zip(("ratio", "low", "high"), values, strict=True)))  # fmt: skip
  local = {
    case.source: timing.facts
    for (case, contender, passes), timing in here.items()
    if (case.score, contender, passes) == (LOCAL, ATTN, FORWARD)
  }
  verdict = equal_flops(list(local.values()))
  name = f"{LOCAL}, {FORWARD}: FLOPs of {ATTN} from s = {min(local)} to {max(local)}"
  flops = [facts["flops"] for facts in local.values()]
  metrics[name] = Metric(flops[0], min(flops), max(flops), len(flops), f"(all equal: {verdict})")
  log(bar=name, verdict=verdict, ratio=max(flops) / min(flops))
  tell(metrics)
  return metrics


def table(config: Config, timings: Sequence[Timing]) -> dict[str, Metric]:
  """Medians and memory at the sizes compared at, ratios to attn, slopes over s."""
  metrics = {}
  base = {(t.case, t.threads, t.passes, t.contender): t for t in timings}
  for (case, threads, passes, contender), timing in base.items():
    if case not in config.compared or contender == WRITE:
      continue
    name = f"{case.score}, {passes}, {threads} thread{'s' * (threads > 1)}: {contender}"
    median, low, high = (1e3 * getattr(timing.spread, end) for end in ("median", "low", "high"))
    metrics[name] = Metric(median, low, high, config.repeats, "ms (median)")
    temporary = timing.facts.get("temp_bytes")
    if temporary is not None:
      metrics[f"{name}, temporary"] = Metric(temporary / 2**20, unit="MiB")
    if contender != ATTN:
      against = timing.over(base[case, threads, passes, ATTN])
      metrics[f"{name} / {ATTN}"] = Metric(*against, config.repeats, "times (median)")
  return metrics | _growth(config, timings)


def _growth(config: Config, timings: Sequence[Timing]) -> dict[str, Metric]:
  """Slopes over s, and how the rise of local attention compares with writing its gradient."""
  metrics = {}
  series: dict[tuple[str, int, str, str], dict[int, float]] = {}
  for timing in timings:
    case, sizes = timing.case, config.local if timing.case.score == LOCAL else config.base
    if (case.target, case.width) == (sizes.target, sizes.width):
      key = case.score, timing.threads, timing.passes, timing.contender
      series.setdefault(key, {})[case.source] = timing.spread.median
  for (score, threads, passes, contender), by_source in series.items():
    if len(by_source) < 2:
      continue
    name = f"{score}, {passes}, {threads} thread{'s' * (threads > 1)}: slope over s of {contender}"
    sources = sorted(by_source)
    found = slope(sources, [by_source[source] for source in sources])
    metrics[name] = Metric(
      *found, unit=f"d log time / d log s, s from {sources[0]} to {sources[-1]}"
    )
    if (score, passes, contender) == (LOCAL, BOTH, ATTN):
      written = series[LOCAL, threads, BOTH, WRITE]
      rise, writing = (by[sources[-1]] - by[sources[0]] for by in (by_source, written))
      metrics[
        f"{score}, {passes}, {threads} thread{'s' * (threads > 1)}: rise with s of {ATTN}"
      ] = Metric(rise / writing, unit=f"times that of {WRITE}")
  return metrics
