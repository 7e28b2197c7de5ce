"""From flags to the runs of a sweep: what is swept, its settings, their names and commands."""

import dataclasses
import hashlib
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags as absl_flags

from experiments import sweeps
from launch import flags, resolve

if TYPE_CHECKING:
  from attn.report import runs as reading

# A setting: path -> value as one would type it after --set=path=.
Setting = dict[str, str]

_NAME_LENGTH = 100  # bytes: most systems take 255, and a log's name is longer
SPLIT = "dev"  # decoded by the runs of a sweep over a recipe


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


@dataclasses.dataclass(frozen=True)
class Target:
  """What a sweep runs again and again.

  Attributes:
    command: the process of a run, without its setting and its folder.
    base: configuration that the settings change.
    workdir: the sweep's folder.
    finished: a run's metrics by name, or None if it is not finished, from what was read in its
      folder, of whose configuration it is known that it is the run's.
    check: raises ConfigError for a configuration whose run would end at once.
  """

  command: tuple[str, ...]
  base: Any
  workdir: pathlib.Path
  finished: "Callable[[Run, reading.Run | None], dict[str, float | None] | None]"
  check: Callable[[Any], None] = lambda _: None


def target(values: absl_flags.FlagValues, kind: str) -> Target:
  """Returns what `--experiment` or `--preset` names, or what a saved `--config` is of.

  Args:
    values: the command's flags.
    kind: what is done with it, which names the folder that it gets without `--workdir`.
  """
  trains = values.preset or (values.config and not values.experiment)
  if bool(values.experiment) == bool(trains):
    raise flags.UserError(
      "give one of --experiment=NAME, --preset=NAME --data=NAME, and --config=FILE.json of a run"
    )
  return _experiment(values, kind) if values.experiment else _training(values, kind)


def _experiment(values: absl_flags.FlagValues, kind: str) -> Target:
  if values.data:
    raise flags.UserError("--data belongs to --preset; an experiment has fields for it (--set)")
  for name in resolve.BOARDS:
    if values[name].value:
      raise flags.UserError(f"--{name} belongs to --preset, not to --experiment")
  profile = flags.profile(values)
  if values.config and (values.profile or values.smoke):
    raise flags.UserError("--config holds a whole configuration; leave out the profile")
  names = resolve.chosen_experiments(values.experiment)
  if len(names) > 1:
    raise flags.UserError("give one experiment at a time")
  module = resolve.experiment(names[0])
  source = f"--config={values.config}" if values.config else f"--profile={profile}"
  return Target(
    command=_command("launch.run", values, f"--experiment={names[0]}", source),
    base=resolve.experiment_config(module, profile, values.config, values.set, values.seed),
    workdir=pathlib.Path(values.workdir or f"results/{names[0]}/{kind}"),
    finished=_experiment_metrics,
  )


def _training(values: absl_flags.FlagValues, kind: str) -> Target:
  for name in ("sweep", "profile", "smoke"):
    if name in values and values[name].value:
      raise flags.UserError(f"--{name} belongs to --experiment, which is missing")
  boards = resolve.boards(values)
  base = resolve.train_config(values.preset, values.data, values.config, values.set, values.seed)
  if not (values.preset or values.workdir):
    raise flags.UserError("--workdir is missing: a sweep from --config has no folder of its own")
  source = f"--preset={values.preset}" if values.preset else f"--config={values.config}"
  command = [source, f"--data={base.data.name}", f"--evaluate={SPLIT}"]
  command += [f"--{name}" for name, asked in boards.items() if asked]
  data = base.data.name.replace("/", "_")
  return Target(
    command=_command("launch.train", values, *command),
    base=base,
    workdir=pathlib.Path(values.workdir or f"runs/{values.preset}-{data}-{kind}"),
    finished=_training_metrics,
    check=resolve.refuse_no_data,
  )


def _command(module: str, values: absl_flags.FlagValues, *words: str) -> tuple[str, ...]:
  # Not --seed, which wins over every --set: a setting may have a seed of its own.
  seed = [] if values.seed is None else [f"--set=seed={values.seed}"]
  common = [f"--set={assignment}" for assignment in values.set]
  return (sys.executable, "-m", module, *words, *common, *seed)


def _experiment_metrics(run: Run, found: "reading.Run | None") -> dict[str, float | None] | None:
  from attn import configs

  if found is None or found.status != "finished":
    return None
  # One that reads otherwise may be of code before some fields came to be.
  if found.config != dict(configs.leaves(run.config)):
    if resolve.result(run.workdir, run.config) is None:
      return None
  return {name: metric.mean for name, metric in found.metrics.items()}


def _training_metrics(run: Run, found: "reading.Run | None") -> dict[str, float | None] | None:
  start = f"{SPLIT}."
  metrics = found.metrics if found else {}
  scores = {name: one.mean for name, one in metrics.items() if name.startswith(start)}
  return {name.removeprefix(start): mean for name, mean in scores.items()} or None


# Settings.


def grid(axes: Sequence[str]) -> list[Setting]:
  """Returns every combination of axes `path=a,b`, the last axis fastest."""
  values = {}
  for path, text in _paths(axes, "grid", "value,value"):
    values[path] = split(text)
  return sweeps.grid(values)


def draws(texts: Sequence[str]) -> dict[str, sweeps.Draw]:
  """Returns what `path=KIND:...` says to draw from; see `_DRAWS` for the kinds."""
  found: dict[str, sweeps.Draw] = {}
  for path, text in _paths(texts, "draw", "log_uniform:1e-4,1e-2"):
    kind, _, inner = text.partition(":")
    if kind not in _DRAWS:
      raise flags.UserError(f"--draw={path}={text}: no kind {kind!r}{flags.nearest(kind, _DRAWS)}")
    try:
      found[path] = _DRAWS[kind](split(inner))
    except ValueError as error:
      raise flags.UserError(f"--draw={path}={text}: {error}") from None
  return found


def _range(kind: Callable[[Any, Any], sweeps.Draw], read: Callable[[str], Any]) -> Any:
  """Returns a function that makes a draw of two texts."""

  def made(ends: list[str]) -> sweeps.Draw:
    if len(ends) != 2:
      raise ValueError("expected LOW,HIGH")
    return kind(read(ends[0]), read(ends[1]))

  return made


_DRAWS: dict[str, Callable[[list[str]], sweeps.Draw]] = {
  "uniform": _range(sweeps.Uniform, float),
  "log_uniform": _range(sweeps.LogUniform, float),
  "integers": _range(sweeps.Integers, int),
  "choices": lambda values: sweeps.Choices(tuple(values)),
}


def _paths(texts: Sequence[str], flag: str, example: str) -> Iterator[tuple[str, str]]:
  """Yields path and text of each `path=text` of a flag."""
  seen = set()
  for typed in texts:
    path, _, text = (part.strip() for part in typed.partition("="))
    if not path or not split(text):
      raise flags.UserError(f"--{flag}={typed} names no values; write --{flag}=path={example}")
    if path in seen:
      raise flags.UserError(f"--{flag} names {path} twice")
    seen.add(path)
    yield path, text


def split(text: str) -> list[str]:
  """Splits at commas that are in no bracket and no quotes: `(1,2),(3,4)` are two values."""
  found = re.findall(r"""(?:\([^)]*\)|\[[^]]*\]|'[^']*'|"[^"]*"|[^,])+""", text)
  return [value.strip() for value in found]


def _module_settings(name: str, sweep: str) -> list[Setting]:
  """Returns the settings of an experiment's `sweep_NAME`."""
  module = resolve.experiment(name)
  known = {key.removeprefix("sweep_"): key for key in vars(module) if key.startswith("sweep_")}
  if sweep not in known:
    raise flags.UserError(f"{name} has no sweep {sweep!r}{flags.nearest(sweep, known)}")
  return [_typed(override) for override in getattr(module, known[sweep])()]


def _typed(override: Mapping[str, Any]) -> Setting:
  """Returns an override as one would type it."""
  from attn import configs

  return {
    path: configs.format_assignment(path, value).partition("=")[2]
    for path, value in override.items()
  }


def split_common(settings: Sequence[Setting]) -> tuple[Setting, list[Setting]]:
  """Takes out what all settings agree on, which would only make every name and row longer."""
  first = settings[0] if len(settings) > 1 else {}
  common = {
    path: value
    for path, value in first.items()
    if all(setting.get(path) == value for setting in settings)
  }
  return common, [{p: v for p, v in one.items() if p not in common} for one in settings]


def _sampled(values: absl_flags.FlagValues) -> list[Setting]:
  """Returns the settings of `--sample`; a single empty one without."""
  flags.refuse_without(values, "sample", "draw", "draw_seed")
  if not values.sample:
    return [{}]
  flags.require(values, draw="path=KIND:LOW,HIGH")
  try:
    drawn = sweeps.sample(values.sample, draws(values.draw), values.draw_seed or 0)
  except ValueError as error:
    raise flags.UserError(f"--sample={values.sample}: {error}") from None
  return [drawn_setting(one) for one in drawn]


def drawn_setting(override: Mapping[str, Any]) -> Setting:
  """Returns a drawn override as one would type it: numbers, and texts that were typed already."""
  return {path: str(value) for path, value in override.items()}


# Runs.


def runs(values: absl_flags.FlagValues, target: Target) -> list[Run]:
  """Returns the runs that the flags describe, each checked before the first one starts."""
  from attn import workdirs

  if not (values.sweep or values.grid or values.sample or values.seeds):
    raise flags.UserError(
      "nothing to sweep: give --grid=path=a,b, --sample=N, --seeds=N or --sweep=NAME"
    )
  settings: list[Setting] = [{}]
  if values.sweep:
    common, settings = split_common(_module_settings(values.experiment, values.sweep))
    target = fixed(target, common)
  axes = _axes(values)
  planned: dict[Any, Run] = {}
  for setting in sweeps.product(settings, *axes):
    run = run_of(target, setting)
    if run.config in planned:
      same = f"{planned[run.config].name} and {run.name}"
      raise flags.UserError(f"two runs of the sweep have the same setting: {same}")
    workdirs.refuse_another(run.workdir, run.config)
    planned[run.config] = run
  return list(planned.values())


def _axes(values: absl_flags.FlagValues) -> list[list[Setting]]:
  """Returns the settings of `--grid`, of `--sample` and of `--seeds`, which share no field."""
  seeds = sweeps.seeds(values.seeds, values.seed or 0) if values.seeds else [{}]
  axes = {"grid": grid(values.grid), "draw": _sampled(values), "seeds": seeds}
  flag_of: dict[str, str] = {}
  for flag, settings in axes.items():
    for path in settings[0]:
      if path in flag_of:
        raise flags.UserError(f"--{flag_of[path]} and --{flag} both set {path}: leave out one")
      flag_of[path] = flag
  return [[drawn_setting(one) for one in settings] for settings in axes.values()]


def fixed(target: Target, setting: Setting) -> Target:
  """Returns a target all of whose runs have a setting."""
  from attn import configs

  words = _assignments(setting)
  return dataclasses.replace(
    target,
    command=(*target.command, *(f"--set={word}" for word in words)),
    base=configs.assign(target.base, words),
  )


def run_of(target: Target, setting: Setting) -> Run:
  """Returns the run of a setting.

  Raises:
    ConfigError: no such field, a value that it may not hold, or no such data.
  """
  from attn import configs

  assignments = _assignments(setting)
  config = configs.assign(target.base, assignments)
  target.check(config)
  name = run_name(setting)
  workdir = target.workdir / name
  argv = (*target.command, *(f"--set={one}" for one in assignments), f"--workdir={workdir}")
  return Run(name, setting, config, workdir, argv)


def _assignments(setting: Setting) -> list[str]:
  return [f"{path}={value}" for path, value in setting.items()]


def run_name(setting: Setting) -> str:
  """Returns a name for a setting, the same whatever else the sweep holds."""
  text = ",".join(_assignments(setting)) or "base"
  name = re.sub(r"[^\w.,=+-]+", "_", text).encode()[:_NAME_LENGTH].decode(errors="ignore")
  if name != text:  # two settings may look the same now
    name += "-" + hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:6]
  return name
