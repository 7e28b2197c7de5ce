"""Runs an experiment, or trains a recipe, at many settings.

Examples:
  python -m launch.sweep --experiment=score_scale --sweep=quick --executor=dry_run
  python -m launch.sweep --experiment=score_scale --smoke --grid=positions=10,50,200 \\
    --seeds=3 --jobs=2
  python -m launch.sweep --preset=rnnsearch_laptop --data=reverse --set=steps=500 \\
    --grid=model.units=32,64 --grid=optimizer.learning_rate=1e-3,3e-3
  python -m launch.sweep --preset=rnnsearch_laptop --data=reverse --set=steps=500 --sample=20 \\
    --draw=optimizer.learning_rate=log_uniform:1e-4,1e-2 --draw=model.units=choices:32,64,128
  python -m launch.sweep --preset=rnnsearch_laptop --data=g2p --seeds=10 --executor=slurm \\
    --time=4:00:00 --cpus=4 --memory=8G --slurm=account=mine --jobs=5

The settings are those of the module's sweep_NAME (--sweep=NAME), times every combination of the
--grid axes, times --sample settings drawn at random, times --seeds. A --draw is uniform:LOW,HIGH,
log_uniform:LOW,HIGH, integers:LOW,HIGH (both included) or choices:A,B,... A larger --sample keeps
what a smaller one drew. --set changes all runs; a saved --config of a training may stand in for its
--preset. Each run is a process of launch.run or launch.train with a folder and a log of its own in
the sweep's folder, which also gets the table of results as sweep.jsonl and sweep.csv. One run that
fails does not stop the others. The same command again does what is missing: runs that failed, that
were interrupted, that are new. However the sweep ends, its runs on this machine save themselves and
end as well. --tensorboard and --wandb are launch.train's. --executor=dry_run prints the commands,
which --jobs and what is asked of SLURM do not change.

--executor=slurm sends one job array from a login node of a cluster and waits. A run whose --time is
up, or that is preempted, saves itself and is queued again. Ctrl-C ends the waiting only; the same
command attaches to what it sent.
"""

import pathlib
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags as absl_flags

from launch import executors, flags, plan, resolve, slurm, watch

if TYPE_CHECKING:
  from attn.report import runs as reading
  from attn.report.comparison import Direction

FLAGS = flags.define(
  "experiment", "profile", "smoke", "preset", "data", "config", "set", "seed", "workdir", "draw",
  "draw_seed", "tensorboard", "wandb",
)  # fmt: skip
absl_flags.DEFINE_string("sweep", None, "a sweep_NAME of the experiment", flag_values=FLAGS)
absl_flags.DEFINE_multi_string(
  "grid", [], "dotted.path=value,value: an axis of settings (repeatable)", flag_values=FLAGS
)
absl_flags.DEFINE_integer(
  "sample", None, "draw so many settings at random", lower_bound=1, flag_values=FLAGS
)
absl_flags.DEFINE_integer(
  "seeds", None, "runs a setting: seeds from --seed (or 0) on", lower_bound=1, flag_values=FLAGS
)
absl_flags.DEFINE_enum(
  "executor", "local", ["local", "slurm", "dry_run"], "who runs the processes", flag_values=FLAGS
)
absl_flags.DEFINE_integer(
  "jobs", None, "most runs at a time (default: 1, or as many as SLURM lets run)", lower_bound=1,
  flag_values=FLAGS,
)  # fmt: skip
slurm.define(FLAGS)


def main(values: absl_flags.FlagValues) -> int:
  """Plans the runs, does those that are missing, and writes the table."""
  asked = slurm.resources(values)
  target = plan.target(values, f"sweep-{values.sweep}" if values.sweep else "sweep")
  runs = plan.runs(values, target)
  if values.executor == "dry_run":
    executors.dry_run([_job(target.workdir, run) for run in runs])
    return 0
  from attn import workdirs
  from launch import table

  resolve.make_folder(target.workdir)
  with workdirs.held(target.workdir):
    found = table.record(target.workdir, runs)  # what is to come is known while it runs
    missing = without_result(target, runs, found)
    print(f"{len(runs)} runs in {target.workdir}, {len(runs) - len(missing)} finished already")
    outcomes = execute(target.workdir, missing, values.jobs, asked)
    if outcomes:
      found = table.record(target.workdir, runs)
    show(target.workdir, found)
    return tell_end(len(runs), [outcome for outcome in outcomes if outcome.code])


def without_result(
  target: plan.Target, runs: Sequence[plan.Run], found: "Sequence[reading.Run]"
) -> list[plan.Run]:
  """Returns the runs that are still to be done, after what was found in their folders."""
  by_name = {one.name: one for one in found}
  return [run for run in runs if target.finished(run, by_name.get(run.name)) is None]


# Running and telling.


def _job(folder: pathlib.Path, run: plan.Run) -> executors.Job:
  return executors.Job(run.name, run.argv, folder / "logs" / f"{run.name}.log", run.workdir)


def execute(
  folder: pathlib.Path,
  runs: Sequence[plan.Run],
  most: int | None,
  asked: slurm.Resources | None = None,
) -> list[executors.Outcome]:
  """Does runs by SLURM if it is asked for something, else on this machine; shows how they go."""
  jobs = [_job(folder, run) for run in runs]
  if not jobs:
    return []
  with watch.watching(jobs) as watcher:
    if asked is not None:
      return slurm.slurm(jobs, folder, asked, most, watcher)
    return executors.local(jobs, most or 1, watcher)


def show(
  folder: pathlib.Path,
  found: "Sequence[reading.Run]",
  metrics: Sequence[str] = (),
  direction: "Direction | None" = None,
) -> None:
  """Prints the table of results, as `table.show_runs`, and where more of them is."""
  from launch import table

  table.show_runs(found, metrics, direction)
  print(f"a row a run: {folder / 'sweep.csv'}, {folder / 'sweep.jsonl'}")
  words = [f"--workdir={folder}", *(f"--metric={name}" for name in metrics)]
  words += [f"--best={direction}"] if direction else []
  print(f"page and figures: python -m launch.compare {shlex.join(words)}")


def tell_end(count: int, failed: Sequence[executors.Outcome]) -> int:
  """Prints the failures of so many runs; returns the exit code."""
  tell_failures(failed)
  if failed:
    print(
      f"launch.sweep: {len(failed)} of {count} runs failed; the same command runs only them",
      file=sys.stderr,
    )
  return 1 if failed else 0


def tell_failures(failed: Sequence[executors.Outcome]) -> None:
  """Prints what is wrong with each process that failed, and how to run it alone."""
  for outcome in failed:
    print(f"failed: {outcome.job.name}: {outcome.error}", file=sys.stderr)
    print(f"  log: {outcome.job.log}", file=sys.stderr)
    print(f"  alone: {outcome.job.command}", file=sys.stderr)


if __name__ == "__main__":
  flags.run("launch.sweep", main, FLAGS, __doc__)
