"""Times what a sweep costs a run besides the run: planning, the pool of processes, collecting.

Example:
  python -m tools.launch_benchmark

Sweeps of runs that do nothing: each is a `cp` of a result that was made before. All else is what
launch.sweep does with a recipe: its plan, in which every configuration is checked; its record of
what is to come, and its check of what is finished; the local pool, with as many slots as there are
cores; the record and the table at the end. A repeat is a sweep of each size; its slope, by least
squares, is the cost a run, and the intervals are Student's t over the repeats. How long Python, jax
and attn take to start, which every real run pays, is told apart. Leave the machine alone meanwhile.
"""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags as absl_flags

from launch import executors, flags, plan, sweep

FLAGS = flags.define()
absl_flags.DEFINE_list("sizes", ["10", "100", "1000"], "runs of each sweep", flag_values=FLAGS)
absl_flags.DEFINE_integer("repeats", 5, "sweeps of each size", lower_bound=2, flag_values=FLAGS)
absl_flags.DEFINE_integer(
  "collect", 10_000, "finished runs to collect at the end", lower_bound=2, flag_values=FLAGS
)

_START = "import attn.training, jax; jax.devices()"
_LINES = 20  # of each run's metrics.jsonl

# Part of a sweep -> seconds.
Times = dict[str, float]


def main(values: absl_flags.FlagValues) -> int:
  """Measures and prints."""
  sizes = [int(size) for size in values.sizes]
  from attn.evaluation.intervals import mean_interval

  repeats: list[list[Times]] = []
  slots = len(os.sched_getaffinity(0))
  _sweep(sizes[0], slots)  # loads what is loaded once
  for repeat in range(values.repeats):
    print(f"repeat {repeat + 1} of {values.repeats}", file=sys.stderr, flush=True)
    repeats.append([_sweep(size, slots) for size in sizes])
  print(f"ms a run, {slots} slots, sweeps of {', '.join(map(str, sizes))} runs that do nothing:")
  for part in repeats[0][0]:
    told = mean_interval([1e3 * _slope(sizes, [one[part] for one in row]) for row in repeats])
    largest = mean_interval([row[-1][part] for row in repeats])
    print(f"  {part:<10} {told:.2f}; {largest.mean:.2f} s for {sizes[-1]:,}")
  collecting = mean_interval(_collect(values.collect, values.repeats))
  print(f"collecting {values.collect:,} finished runs: {collecting:.2f} s, n = {collecting.n}")
  start = mean_interval([_timed_start() for _ in range(values.repeats)])
  print(f"starting Python, jax and attn, which every real run pays: {start:.2f} s, n = {start.n}")
  return 0


def _slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
  import numpy as np

  return float(np.polyfit(sizes, seconds, 1)[0])


def _timed_start() -> float:
  began = time.perf_counter()
  subprocess.run([sys.executable, "-c", _START], check=True)
  return time.perf_counter() - began


# Sweeps.


def _sweep(size: int, slots: int) -> Times:
  """Runs a sweep of so many runs in a new folder; returns the seconds of its parts."""
  from launch import table

  times: Times = {}
  with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(io.StringIO()):
    folder, made = pathlib.Path(scratch) / "sweep", pathlib.Path(scratch) / "made"
    folder.mkdir()
    with _timing(times, "planning"):
      target, runs = _planned(size, folder)
    with _timing(times, "recording"):
      missing = sweep.without_result(target, runs, table.record(folder, runs))
    assert len(missing) == size
    for run in runs:
      _make(made / run.name, run.config)
    jobs = [
      executors.Job(
        run.name,
        ("cp", "-r", str(made / run.name), str(run.workdir)),
        folder / "logs" / f"{run.name}.log",
      )
      for run in runs
    ]
    with _timing(times, "pool"):
      outcomes = executors.local(jobs, slots)
    assert not any(outcome.code for outcome in outcomes)
    with _timing(times, "collecting"):
      found = table.record(folder, runs)
      table.show_runs(found)
    assert not sweep.without_result(target, runs, found)
  return times


def _collect(size: int, repeats: int) -> list[float]:
  """Seconds that the check and the table of so many finished runs take."""
  from launch import table

  with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(io.StringIO()):
    folder, seconds = pathlib.Path(scratch), []
    target, runs = _planned(size, folder)
    for run in runs:
      _make(run.workdir, run.config)
    for _ in range(repeats):
      times: Times = {}
      with _timing(times, "all"):
        found = table.record(folder, runs)
        assert not sweep.without_result(target, runs, found)
        table.show_runs(found)
      seconds.append(times["all"])
  return seconds


def _planned(size: int, folder: pathlib.Path) -> tuple[plan.Target, list[plan.Run]]:
  """Plans a sweep of a recipe over two axes and the seed."""
  grid = ["--grid=model.units=8,16,24,32,40", "--grid=optimizer.learning_rate=1e-3,3e-3"]
  words = ["--preset=rnnsearch_laptop", "--data=reverse", *grid, f"--workdir={folder}"]
  sweep.FLAGS.unparse_flags()
  flags.parse(sweep.FLAGS, [*words, f"--seeds={size // 10}"])
  target = plan.target(sweep.FLAGS, "sweep")
  return target, plan.runs(sweep.FLAGS, target)


def _make(folder: pathlib.Path, config: Any) -> None:
  """Writes what a run of launch.train leaves, but for its model."""
  from attn import configs

  (folder / "evaluation").mkdir(parents=True)
  (folder / "config.json").write_text(json.dumps(configs.to_dict(config), indent=2))
  lines = [json.dumps({"step": step, "loss": 1 / step}) + "\n" for step in range(1, _LINES)]
  (folder / "metrics.jsonl").write_text("".join(lines))
  scores = {"sources": 1, "word_error_rate": 1 / config.model.units, "symbol_error_rate": 0.5}
  told = {"step": config.steps, "ended": True, "search": {}, "seconds": 1.0, "signatures": {}}
  (folder / "evaluation" / "dev.json").write_text(json.dumps({**scores, **told}, indent=2))


@contextlib.contextmanager
def _timing(times: Times, part: str) -> Iterator[None]:
  began = time.perf_counter()
  yield
  times[part] = time.perf_counter() - began


if __name__ == "__main__":
  flags.run("tools.launch_benchmark", main, FLAGS, __doc__, resumes=False)
