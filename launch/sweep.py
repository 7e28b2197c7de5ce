"""Runs an experiment, or trains a recipe, at many settings.

Examples:
  python -m launch.sweep --experiment=score_scale --sweep=quick --executor=dry_run
  python -m launch.sweep --experiment=score_scale --smoke --grid=positions=10,50,200 \\
    --seeds=3 --jobs=2
  python -m launch.sweep --preset=rnnsearch_laptop --data=reverse --set=steps=500 \\
    --grid=model.units=32,64 --grid=optimizer.learning_rate=1e-3,3e-3

The settings are those of the module's sweep_NAME (--sweep=NAME), times every combination of the
--grid axes, times --seeds. --set changes all runs. Each run is a process of launch.run or
launch.train with a folder and a log of its own in the sweep's folder, which also gets the table of
results as sweep.jsonl and sweep.csv. One run that fails does not stop the others. The same command
again does what is missing: runs that failed, that were interrupted, that are new.
"""

import dataclasses
import hashlib
import itertools
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from absl import flags as absl_flags

from launch import executors, flags, resolve, watch

FLAGS = flags.define(
  "experiment", "profile", "smoke", "preset", "data", "config", "set", "seed", "workdir"
)  # fmt: skip
absl_flags.DEFINE_string("sweep", None, "a sweep_NAME of the experiment", flag_values=FLAGS)
absl_flags.DEFINE_multi_string(
  "grid", [], "dotted.path=value,value: an axis of settings (repeatable)", flag_values=FLAGS
)
absl_flags.DEFINE_integer(
  "seeds", None, "runs a setting: seeds from --seed (or 0) on", lower_bound=1, flag_values=FLAGS
)
absl_flags.DEFINE_enum(
  "executor", "local", ["local", "dry_run"], "who runs the processes", flag_values=FLAGS
)
absl_flags.DEFINE_integer("jobs", 1, "most processes at a time", lower_bound=1, flag_values=FLAGS)

# A setting: path -> value as one would type it after --set=path=.
Setting = dict[str, str]

_NAME_LENGTH = 100


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of a sweep.

  Attributes:
    name: made of its setting; also its folder.
    setting: what it has of its own.
    config: its whole configuration.
    workdir: its folder.
    argv: the process that does it.
  """

  name: str
  setting: Setting
  config: Any
  workdir: pathlib.Path
  argv: tuple[str, ...]


def main(values: absl_flags.FlagValues) -> int:
  """Plans the runs, does those that are missing, and writes the table."""
  if bool(values.experiment) == bool(values.preset):
    raise flags.UserError("give one of --experiment=NAME and --preset=NAME --data=NAME")
  target = _experiment(values) if values.experiment else _training(values)
  runs = plan(values, target)
  if values.executor == "dry_run":
    executors.dry_run([_job(target.workdir, run) for run in runs])
    return 0
  from attn import workdirs

  resolve.make_folder(target.workdir)
  with workdirs.held(target.workdir):
    missing = [run for run in runs if target.finished(run) is None]
    print(f"{len(runs)} runs in {target.workdir}, {len(runs) - len(missing)} finished already")
    outcomes = _execute(target.workdir, missing, values.jobs)
    return report(target, runs, [outcome for outcome in outcomes if outcome.code])


# What is swept.


@dataclasses.dataclass(frozen=True)
class Target:
  """What a sweep runs again and again.

  Attributes:
    command: the process of a run, without its setting and its folder.
    base: configuration that the settings change.
    settings: what the module's sweep says; one empty setting without.
    workdir: the sweep's folder.
    finished: a run's metrics by name, or None if it is not finished.
  """

  command: tuple[str, ...]
  base: Any
  settings: list[Setting]
  workdir: pathlib.Path
  finished: Callable[[Run], dict[str, float | None] | None]


def _experiment(values: absl_flags.FlagValues) -> Target:
  """Returns the target of `--experiment`."""
  from attn import configs

  if values.data:
    raise flags.UserError("--data belongs to --preset; an experiment has fields for it (--set)")
  profile = flags.profile(values)
  if values.config and (values.profile or values.smoke):
    raise flags.UserError("--config holds a whole configuration; leave out the profile")
  names = resolve.chosen_experiments(values.experiment)
  if len(names) > 1:
    raise flags.UserError("sweep one experiment at a time")
  module = resolve.experiment(names[0])
  base = resolve.experiment_config(module, profile, values.config, values.set, values.seed)
  source = f"--config={values.config}" if values.config else f"--profile={profile}"
  settings = _module_settings(module, names[0], values.sweep)
  common, settings = split_common(settings)
  words = [f"--set={path}={value}" for path, value in common.items()]
  return Target(
    command=(*_command("launch.run", values, f"--experiment={names[0]}", source), *words),
    base=configs.assign(base, [f"{path}={value}" for path, value in common.items()]),
    settings=settings,
    workdir=pathlib.Path(values.workdir or f"results/{names[0]}/sweep-{values.sweep or 'grid'}"),
    finished=_experiment_metrics,
  )


def _training(values: absl_flags.FlagValues) -> Target:
  """Returns the target of `--preset`."""
  for name in ("sweep", "profile", "smoke"):
    if values[name].value:
      raise flags.UserError(f"--{name} belongs to --experiment; a recipe is swept by --grid")
  base = resolve.train_config(values.preset, values.data, values.config, values.set, values.seed)
  command = [f"--preset={values.preset}", f"--data={base.data.name}", "--evaluate=dev"]
  data = base.data.name.replace("/", "_")
  return Target(
    command=_command("launch.train", values, *command),
    base=base,
    settings=[{}],
    workdir=pathlib.Path(values.workdir or f"runs/{values.preset}-{data}-sweep"),
    finished=_training_metrics,
  )


def _command(module: str, values: absl_flags.FlagValues, *words: str) -> tuple[str, ...]:
  # Not --seed, which wins over every --set: a setting may have a seed of its own.
  seed = [] if values.seed is None else [f"--set=seed={values.seed}"]
  common = [f"--set={assignment}" for assignment in values.set]
  return (sys.executable, "-m", module, *words, *common, *seed)


def _module_settings(module: Any, name: str, sweep: str | None) -> list[Setting]:
  """Returns the settings of a module's `sweep_NAME`."""
  from attn import configs

  if sweep is None:
    return [{}]
  known = {key.removeprefix("sweep_"): key for key in vars(module) if key.startswith("sweep_")}
  if sweep not in known:
    raise flags.UserError(f"{name} has no sweep {sweep!r}{flags.nearest(sweep, known)}")
  return [
    {path: configs.format_assignment(path, value).partition("=")[2] for path, value in one.items()}
    for one in getattr(module, known[sweep])()
  ]


def split_common(settings: Sequence[Setting]) -> tuple[Setting, list[Setting]]:
  """Takes out what all settings agree on, which would only make every name and row longer."""
  first = settings[0] if len(settings) > 1 else {}
  common = {
    path: value
    for path, value in first.items()
    if all(setting.get(path) == value for setting in settings)
  }
  return common, [{p: v for p, v in one.items() if p not in common} for one in settings]


def _experiment_metrics(run: Run) -> dict[str, float | None] | None:
  result = resolve.result(run.workdir, run.config)
  if result is None:
    return None
  return {name: metric.mean for name, metric in result.metrics.items()}


def _training_metrics(run: Run) -> dict[str, float | None] | None:
  scores = resolve.evaluation(run.workdir, run.config, "dev")
  return None if scores is None else dict(scores)


# Settings.


def grid(axes: Sequence[str]) -> Iterator[Setting]:
  """Yields every combination of axes `path=a,b`, the last axis fastest."""
  parts = [axis.partition("=") for axis in axes]
  for axis, (path, _, text) in zip(axes, parts, strict=True):
    if not path or not text:
      raise flags.UserError(f"--grid={axis} is no axis; write --grid=path=value,value")
  paths = [path for path, _, _ in parts]
  if len(set(paths)) < len(paths):
    raise flags.UserError(f"--grid names a path twice: {', '.join(paths)}")
  for chosen in itertools.product(*(_values(text) for _, _, text in parts)):
    yield dict(zip(paths, chosen, strict=True))


def _values(text: str) -> list[str]:
  """Splits at commas that are in no bracket and no quotes: `(1,2),(3,4)` are two values."""
  found = re.findall(r"""(?:\([^)]*\)|\[[^]]*\]|'[^']*'|"[^"]*"|[^,])+""", text)
  return [value.strip() for value in found]


def product(*factors: Sequence[Setting]) -> list[Setting]:
  """Returns every combination of one setting of each factor, merged; a later factor wins."""
  combined = []
  for chosen in itertools.product(*factors):
    merged: Setting = {}
    for setting in chosen:
      merged |= setting
    combined.append(merged)
  return combined


def plan(values: absl_flags.FlagValues, target: Target) -> list[Run]:
  """Returns the runs that the flags describe, each checked before the first one starts."""
  from attn import configs

  if not (values.sweep or values.grid or values.seeds):
    raise flags.UserError("nothing to sweep: give --grid=path=a,b, --seeds=N or --sweep=NAME")
  first = values.seed or 0
  seeds = [{"seed": str(first + i)} for i in range(values.seeds)] if values.seeds else [{}]
  settings = product(target.settings, list(grid(values.grid)), seeds)
  runs: dict[str, Run] = {}
  for setting in settings:
    name = run_name(setting)
    assignments = [f"{path}={value}" for path, value in setting.items()]
    if name in runs:
      raise flags.UserError(f"two runs of the sweep have the same setting: {name}")
    workdir = target.workdir / name
    argv = (*target.command, *(f"--set={one}" for one in assignments), f"--workdir={workdir}")
    config = configs.assign(target.base, assignments)
    runs[name] = Run(name, setting, config, workdir, argv)
  return list(runs.values())


def run_name(setting: Setting) -> str:
  """Returns a name for a setting, the same whatever else the sweep holds."""
  text = ",".join(f"{path}={value}" for path, value in setting.items()) or "base"
  name = re.sub(r"[^\w.,=+-]+", "_", text)[:_NAME_LENGTH]
  if name != text:  # two settings may look the same now
    name += "-" + hashlib.sha256(text.encode()).hexdigest()[:6]
  return name


# Running and telling.


def _job(folder: pathlib.Path, run: Run) -> executors.Job:
  return executors.Job(run.name, run.argv, folder / "logs" / f"{run.name}.log", run.workdir)


def _execute(folder: pathlib.Path, runs: Sequence[Run], slots: int) -> list[executors.Outcome]:
  """Does runs by the local executor, and shows how they go."""
  jobs = [_job(folder, run) for run in runs]
  with watch.watching(jobs) as watcher:
    return executors.local(jobs, slots, watcher)


def report(target: Target, runs: Sequence[Run], failed: Sequence[executors.Outcome]) -> int:
  """Writes and prints the table of results, and the failures; returns the exit code."""
  from launch import table

  rows = [table.Row(run.name, run.setting, run.workdir, target.finished(run)) for run in runs]
  table.write(target.workdir, rows)
  table.show(rows)
  print(f"table: {target.workdir / 'sweep.csv'}, {target.workdir / 'sweep.jsonl'}")
  for outcome in failed:
    print(f"failed: {outcome.job.name}: {outcome.error}", file=sys.stderr)
    print(f"  log: {outcome.job.log}", file=sys.stderr)
    print(f"  alone: {outcome.job.command}", file=sys.stderr)
  if failed:
    print(
      f"launch.sweep: {len(failed)} of {len(runs)} runs failed; the same command runs only them",
      file=sys.stderr,
    )
  return 1 if failed else 0


if __name__ == "__main__":
  flags.run("launch.sweep", main, FLAGS, __doc__)
