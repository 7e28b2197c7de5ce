"""Rules of the bars that can come out each way, contenders that agree, and a tiny run."""

import dataclasses
import importlib.util
import json
import math
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn import configs
from attn.report import results
from experiments import (
  benchmark_bars,
  benchmark_workers,
  ops_benchmark,
  ops_benchmark_programs,
  ops_benchmark_timings,
)
from experiments.ops_benchmark import Bar, Config, Sizes
from experiments.ops_benchmark_programs import (
  ATTN,
  BARE,
  BOTH,
  DENSE,
  FORWARD,
  JAX_NN,
  LOCAL,
  PLAIN,
  SCORES,
  WRITE,
  Case,
)
from experiments.ops_benchmark_timings import Timing
from experiments.ops_benchmark_workers import work

SIZES = Sizes(batch=2, target=3, source=7, width=5)
WINDOW = Case(LOCAL, batch=2, target=3, source=29, width=5, half_width=3)
TINY_RUN = Config(
  scores=("dot",), base=SIZES, targets=(), sources=(11,), widths=(), local=Sizes(2, 3, 29, 5),
  local_sources=(31, 59), half_width=3, threads=(1,), repeats=6,
)  # fmt: skip


def timing(case, contender, seconds, *, passes=BOTH, threads=1, **facts):
  return Timing(case, threads, contender, passes, tuple(seconds), tuple(seconds), facts)


def programs(case):
  found = ops_benchmark_programs.programs(case, 3, "jax")
  return {key: program.results for key, program in found.items()}, found


@pytest.mark.parametrize(
  ("at_most", "low", "high", "verdict"),
  [
    (False, 3.0, 3.2, "reached"),
    (False, 2.9, 3.2, "not resolved"),
    (False, 2.7, 2.9, "missed"),
    (True, 2.7, 3.0, "reached"),
    (True, 2.9, 3.2, "not resolved"),
    (True, 3.1, 3.2, "missed"),
  ],
)
def test_a_bar_can_come_out_each_way(at_most, low, high, verdict):
  bar = Bar("dot", BOTH, "time", PLAIN, ATTN, 3, at_most)
  assert benchmark_bars.reached(bar.threshold, low, high, at_most=bar.at_most) == verdict


@pytest.mark.parametrize(
  ("programs", "verdict"),
  [
    ([(90.0, False), (90.0, False)], "reached"),
    ([(90.0, False), (91.0, False)], "missed"),
    ([(90.0, False), (90.0, True)], "not measured"),  # XLA counts a loop's body once
    ([(90.0, False), (None, False)], "not measured"),
    ([(90.0, False)], "not measured"),
  ],
)
def test_equal_flops_can_come_out_each_way(programs, verdict):
  facts = [{"flops": flops, "loops": loops} for flops, loops in programs]
  assert ops_benchmark.equal_flops(facts) == verdict


def test_a_ratio_is_that_of_neighbours_in_time():
  case = Case("dot", *dataclasses.astuple(SIZES))
  # A machine that grows twice as slow in the middle: each pair of turns still tells 3.
  fast = timing(case, ATTN, [1, 1, 1, 1, 2, 2, 2], temp_bytes=10)
  slow = timing(case, PLAIN, [3, 3, 3, 3, 6, 6, 6.6], temp_bytes=150)
  assert slow.over(fast)[:2] == (3, 3) and slow.over(fast)[2] == pytest.approx(3.3)
  assert slow.over(fast, "temporary memory") == (15, 15, 15)
  assert slow.over(timing(case, "x", fast.seconds), "temporary memory") is None


def test_slopes():
  sizes = [16, 32, 64, 128]
  found = ops_benchmark.slope(sizes, [7 * size**1.5 for size in sizes])
  np.testing.assert_allclose(found[:3], 1.5)
  bent = ops_benchmark.slope(sizes, [100 + size for size in sizes])
  assert bent.low < bent.mean < bent.high and 0 < bent.mean < 1
  # Two points have no distance from their line: nothing is known of the slope's error.
  assert ops_benchmark.slope([1, 2], [1, 4])[1:3] == (-math.inf, math.inf)


def judged(timings, config):
  rows = []
  metrics = ops_benchmark.judge(config, timings, lambda **row: rows.append(row))
  return metrics, {row["bar"]: row["verdict"] for row in rows}


def test_bars_are_judged_at_the_sizes_compared_at_with_one_thread(capsys):
  config = Config(repeats=6, sources=(11,), local_sources=(31,))
  dot, local = config.compared[0], config.compared[-1]
  timings = [
    timing(dot, ATTN, [1.0] * 6),
    timing(dot, JAX_NN, [0.5] * 6),
    timing(dot, ATTN, [0.1] * 6, threads=2),
    timing(dot._replace(source=11), ATTN, [0.1] * 6),
    timing(local, DENSE, [9.0] * 6, passes=FORWARD),
    timing(local, ATTN, [1.0] * 6, passes=FORWARD, flops=90.0, loops=False),
    timing(local._replace(source=31), ATTN, [1.0] * 6, passes=FORWARD, flops=91.0, loops=False),
  ]
  metrics, verdicts = judged(timings, config)
  assert verdicts == {
    **{bar.name: "not measured" for bar in ops_benchmark.BARS},
    "dot, forward+backward: time of attn / jax.nn": "missed",
    "local, forward: time of dense attn / attn": "reached",
    "local, forward: FLOPs of attn from s = 31 to 4096": "missed",
  }
  assert metrics["dot, forward+backward: time of attn / jax.nn"] == results.Metric(
    2, 2, 2, 6, "times (at most 1.1: missed)"
  )
  assert capsys.readouterr().out.count("\n") == len(verdicts)


def test_bars_are_for_their_own_sizes():
  case, local = TINY_RUN.compared
  timings = [timing(case, ATTN, [1.0] * 6), timing(case, JAX_NN, [1.0] * 6)]
  timings.append(timing(local, ATTN, [1.0] * 6, passes=FORWARD, flops=90.0, loops=False))
  metrics, verdicts = judged(timings, TINY_RUN)
  name = "dot, forward+backward: time of attn / jax.nn"
  assert verdicts[name] == "other sizes" and metrics[name].mean == 1


def test_contenders_that_differ_are_not_timed():
  case = Case("dot", *dataclasses.astuple(SIZES))
  right = {"context": np.array([1.0, 2.0])}
  ops_benchmark_timings.check(case, {ATTN: right, PLAIN: {"context": np.array([1.0, 2.0001])}})
  for wrong in ([1.0, 2.01], [1.0, np.nan]):
    with pytest.raises(RuntimeError, match="context of plain jnp and attn differ by"):
      ops_benchmark_timings.check(case, {ATTN: right, PLAIN: {"context": np.array(wrong)}})


@pytest.mark.slow
@pytest.mark.parametrize("score", SCORES)
def test_contenders_compute_the_same(score):
  case = Case(score, *dataclasses.astuple(SIZES))
  found, made = programs(case)
  for passes in (FORWARD, BOTH):
    of_pass = {contender: arrays for (contender, at), arrays in found.items() if at == passes}
    assert {ATTN, PLAIN} <= set(of_pass)
    ops_benchmark_timings.check(case, of_pass)
  arrays, fixed, pull = ops_benchmark_programs.inputs(case, 3)
  assert set(found[ATTN, BOTH]) == {"context", *arrays}
  assert all(made[ATTN, BOTH].facts[name] for name in ("temp_bytes", "flops", "compile_seconds"))

  # A difference quotient along a random direction, so that equal contenders are not equally wrong.
  with jax.enable_x64():
    function = ops_benchmark_programs._functions(case)[PLAIN]
    wide = {name: jnp.asarray(value, jnp.float64) for name, value in arrays.items()}
    draw = np.random.default_rng(5)
    away = {name: draw.standard_normal(value.shape) for name, value in arrays.items()}

    @jax.jit
    def pulled(step):
      moved = {name: wide[name] + step * away[name] for name in wide}
      return jnp.vdot(function(**moved, **fixed), pull)

    slope = (pulled(1e-5) - pulled(-1e-5)) / 2e-5
  gradients = found[ATTN, BOTH]
  assert slope == pytest.approx(sum(np.vdot(gradients[name], away[name]) for name in away), 1e-3)


def test_forms_of_local_attention_compute_the_same():
  found, _ = programs(WINDOW)
  for passes in (FORWARD, BOTH):
    of_pass = {name: found[name, passes] for name in (ATTN, DENSE, PLAIN)}
    ops_benchmark_timings.check(WINDOW, of_pass)
  assert set(found[ATTN, BOTH]) == {"context", "query", "keys", "position"}
  assert not found[WRITE, BOTH]["keys"].any()


@pytest.mark.slow
def test_keras_computes_the_same():
  if not importlib.util.find_spec("keras"):
    pytest.skip("Keras, of the extra `peers`, is not installed")
  backends = ("jax", "torch") if importlib.util.find_spec("torch") else ("jax",)
  case = Case(BARE, *dataclasses.astuple(SIZES))
  with benchmark_workers.started([work(backend) for backend in backends], 1) as processes:
    timings = ops_benchmark_timings.time_case(case, 1, processes, 6, 3)
  assert len({timing.contender for timing in timings}) == 2 + len(backends)


def test_a_process_that_fails_or_dies_is_told_of():
  with benchmark_workers.started([work("jax")], 1) as (process,):
    with pytest.raises(benchmark_workers.WorkerError, match="KeyError"):
      process.ask("seconds", "nobody", FORWARD)
    process._process.kill()
    with pytest.raises(benchmark_workers.WorkerError, match="perhaps for want of memory"):
      process.ask("seconds", "nobody", FORWARD)


def test_a_process_keeps_to_its_cores():
  if not hasattr(os, "sched_getaffinity"):
    pytest.skip("this system does not pin processes to cores")
  with benchmark_workers.started([work("jax")], 1) as (process,):
    with pytest.raises(benchmark_workers.WorkerError):
      process.ask("seconds", "nobody", FORWARD)  # it has pinned itself by the time it answers
    assert os.sched_getaffinity(process._process.pid) == set(benchmark_workers.cores()[:1])


def test_what_is_not_installed_is_told_of(monkeypatch):
  for there, told in (
    ((), ["Keras is not installed"]),
    (("keras",), ["PyTorch is not installed"]),
    (("keras", "torch"), []),
  ):
    monkeypatch.setattr(ops_benchmark, "_found", lambda name, there=there: name in there)
    lines = ops_benchmark.missing()
    assert [line.partition(":")[0] for line in lines] == told
    assert all(line.endswith(".[peers]')") for line in lines)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"scores": ("dott",)}, "no score 'dott' .*'dot'"),
    ({"repeats": 5}, "at least 6"),
    ({"threads": (0, 1)}, "each must be at least 1"),
  ],
)
def test_what_cannot_be_timed_is_refused(changes, message):
  with pytest.raises(configs.ConfigError, match=message):
    configs.override(Config(), changes)


def test_profiles_and_sweeps_are_configurations():
  for overrides in [*ops_benchmark.profiles().values(), *ops_benchmark.sweep_quick()]:
    config = configs.override(Config(), overrides)
    for threads in config.threads:
      cases = config.cases(threads)
      assert len(set(cases)) == len(cases)
      assert {case.score for case in cases} == {*config.scores, LOCAL}


@pytest.mark.slow
def test_a_tiny_run_writes_its_files(tmp_path):
  result = ops_benchmark.run(TINY_RUN, tmp_path)
  assert results.read(tmp_path / "result.json") == result
  assert result.claims == () and list(result.figures)[0] == "figures/local.svg"
  for path in result.figures:
    assert (tmp_path / path).exists() and (tmp_path / path).with_suffix(".png").exists()
  rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
  timed = [row for row in rows if "contender" in row]
  # dot: 3 contenders at 2 sizes, local: 3 and the writing at 3 sizes.
  assert len(timed) == 2 * (3 * 2 + 3 * 3) + 3
  assert all(len(row["times"]) == TINY_RUN.repeats and min(row["times"]) > 0 for row in timed)
  assert len([row for row in rows if "bar" in row]) == len(ops_benchmark.BARS) + 1
  slopes = [name for name in result.metrics if "slope over s" in name]
  assert len(slopes) == 2 * (3 + 3) + 1
