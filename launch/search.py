"""Searches for the setting of an experiment, or of a recipe, at which a metric is best.

Examples:
  python -m launch.search --preset=rnnsearch_laptop --data=g2p --set=steps=2000 --trials=30 \\
    --minimise=symbol_error_rate --draw=optimizer.learning_rate=log_uniform:1e-4,1e-2 \\
    --draw=model.units=choices:64,128,256 --jobs=2
  python -m launch.search --experiment=bottleneck --smoke --trials=12 --jobs=2 \\
    --minimise='g2p, symbol errors, attention' \\
    --draw=g2p.optimizer.learning_rate=log_uniform:1e-3,3e-2

Each run's setting is drawn from what --draw says, as in launch.sweep, but near where earlier runs
were good: by Optuna's TPE (the extra `optuna`), the first ten at random. The metric is one of an
experiment's results, or of the dev split after training. Runs go in rounds of --jobs, so that a
search draws the same settings however long they take. A run that fails counts as a trial, and is
not tried again. The search's folder has Optuna's journal, a folder and a log a run, and the table
of results as sweep.jsonl and sweep.csv. The same command again, perhaps with more --trials, goes on
where it was; another metric is searched for in the same folder, where no run is done twice.
"""

import contextlib
import dataclasses
import hashlib
import importlib
import os
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags as absl_flags

from experiments import sweeps
from launch import executors, flags, plan, resolve, sweep, watch

if TYPE_CHECKING:
  from attn.report.comparison import Direction

FLAGS = flags.define(
  "experiment", "profile", "smoke", "preset", "data", "config", "set", "seed", "workdir", "draw",
  "draw_seed", "tensorboard", "wandb",
)  # fmt: skip
absl_flags.DEFINE_integer(
  "trials",
  None,
  "runs in all, those of earlier commands included",
  lower_bound=1,
  flag_values=FLAGS,
)
absl_flags.DEFINE_string("minimise", None, "name of the metric to bring down", flag_values=FLAGS)
absl_flags.DEFINE_string("maximise", None, "name of the metric to bring up", flag_values=FLAGS)
absl_flags.DEFINE_integer("jobs", 1, "most processes at a time", lower_bound=1, flag_values=FLAGS)

JOURNAL = "optuna.journal"


def main(values: absl_flags.FlagValues) -> int:
  """Does the trials that are missing, and writes the table."""
  flags.require(values, trials="N", draw="path=KIND:LOW,HIGH")
  if bool(values.minimise) == bool(values.maximise):
    raise flags.UserError("give one of --minimise=METRIC and --maximise=METRIC")
  draws = dict(sorted(plan.draws(values.draw).items()))
  target = plan.target(values, "search")
  refuse_what_no_field_holds(target.base, draws)
  optuna = load_optuna()
  from attn import workdirs

  resolve.make_folder(target.workdir)
  with workdirs.held(target.workdir):
    seed = values.draw_seed or 0
    workdirs.claim(target.workdir, searched(target.base, draws, seed))
    metric, maximise = values.minimise or values.maximise, bool(values.maximise)
    search = Search(optuna, target, draws, metric, maximise=maximise, seed=seed)
    search.go(values.trials, values.jobs)
    return search.report()


def refuse_what_no_field_holds(base: Any, draws: Mapping[str, sweeps.Draw]) -> None:
  """Raises ConfigError for a path or a value that no trial could have."""
  from attn import configs

  for path, draw in draws.items():
    drawn = draw.values if isinstance(draw, sweeps.Choices) else (draw.at(0.0), draw.at(0.5))
    for value in drawn:
      configs.read(base, f"{path}={value}")


def load_optuna() -> Any:
  """Imports Optuna, which says no more than it must."""
  try:
    optuna = importlib.import_module("optuna")
  except ModuleNotFoundError as error:
    raise flags.UserError(
      f"{error.name} is not installed (the extra `optuna`): run `python -m pip install optuna` and"
      " then the command again"
    ) from None
  optuna.logging.set_verbosity(optuna.logging.WARNING)
  return optuna


def searched(base: Any, draws: Mapping[str, sweeps.Draw], seed: int) -> Any:
  """Returns the configuration of a search: what its folder may not be given another time."""
  fields = [("base", type(base)), ("draws", tuple[str, ...]), ("draw_seed", int)]
  cls = dataclasses.make_dataclass("Searched", fields, frozen=True)
  return cls(base, tuple(f"{path}={draw}" for path, draw in draws.items()), seed)


class Search:
  """A study of Optuna for one metric, and the runs of its trials.

  What Optuna knows is in a journal in the target's folder. A trial that it takes for running when
  no process of this search is there was interrupted. Another metric is another study of the same
  runs.
  """

  def __init__(
    self,
    optuna: Any,
    target: plan.Target,
    draws: Mapping[str, sweeps.Draw],
    metric: str,
    *,
    maximise: bool,
    seed: int,
  ):
    """Opens the journal.

    Args:
      optuna: the package.
      target: what is run.
      draws: dotted path -> what to draw from.
      metric: name of one of a run's metrics.
      maximise: whether more of it is better.
      seed: another one gives another search.
    """
    self._target, self._draws, self._seed = target, draws, seed
    self._metric, self._best = metric, max if maximise else min
    self._optuna, self._states = optuna, optuna.trial.TrialState
    self._study = open_study(optuna, target.workdir / JOURNAL, metric, maximise)
    self._space = {path: distribution(optuna, draw) for path, draw in draws.items()}
    self._failed: list[executors.Outcome] = []
    self._faults = 0
    for trial in self._study.get_trials(deepcopy=False, states=(self._states.RUNNING,)):
      if trial.params.keys() != draws.keys():  # the process ended while the trial was drawn
        self._fail(trial.number, "a trial that was never run", "it was not drawn to its end")

  def go(self, count: int, jobs: int) -> None:
    """Does what is missing of `count` trials, at most `jobs` at a time."""
    began, before = time.monotonic(), len(self._done())
    print(f"{count} trials in {self._target.workdir}, {before} done already", flush=True)
    while trials := self._next(count, jobs):
      self._round(trials, jobs)
      done = len(self._done())
      left = (time.monotonic() - began) / (done - before) * (count - done)
      print(
        f"{done} of {count} trials; {self._best_text()}; about {watch.duration(left)} left",
        flush=True,
      )

  def report(self) -> int:
    """Writes and prints the table of results, and the failures; returns the exit code."""
    from attn import configs
    from launch import table

    runs: dict[str, plan.Run] = {}
    for trial in self._study.get_trials(deepcopy=False):
      if trial.params.keys() == self._draws.keys():
        with contextlib.suppress(configs.ConfigError):  # said when it was drawn
          run = plan.run_of(self._target, self._setting(trial.params))
          runs[run.name] = run
    folder = self._target.workdir
    found = table.record(folder, list(runs.values()))
    names = (self._metric, f"{plan.SPLIT}.{self._metric}")  # the latter of a recipe's runs
    shown = [name for name in names if any(name in run.metrics for run in found)]
    direction: Direction = "max" if self._best is max else "min"
    sweep.show(folder, found, shown, direction if shown else None)
    print(self._best_text())
    sweep.tell_failures(self._failed)
    return 1 if self._faults or self._best_of() is None else 0

  def _done(self) -> list[Any]:
    """Returns the trials that Optuna was told of, failed ones included."""
    return [one for one in self._study.get_trials(deepcopy=False) if one.state.is_finished()]

  def _best_of(self) -> Any:
    """Returns the first of the best trials, if there is one."""
    complete = [one for one in self._done() if one.state == self._states.COMPLETE]
    return self._best(complete, key=lambda one: one.value, default=None)

  def _best_text(self) -> str:
    best = self._best_of()
    if best is None:
      return f"no run has a value of {self._metric} yet"
    return f"best {self._metric} {best.value:.6g}: {plan.run_name(self._setting(best.params))}"

  def _setting(self, parameters: Mapping[str, Any]) -> plan.Setting:
    return plan.drawn_setting({p: draw.short(parameters[p]) for p, draw in self._draws.items()})

  def _next(self, count: int, jobs: int) -> list[Any]:
    """Returns the trials of a round: those that were interrupted, then new ones."""
    trials = self._study.get_trials(deepcopy=False)
    chosen = [one for one in trials if not one.state.is_finished()][:jobs]
    # A sampler a round, so that it draws the same whether or not the search was interrupted.
    text = f"{self._seed}:{len(trials)}"
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    self._study.sampler = self._optuna.samplers.TPESampler(seed=seed)
    new = min(jobs - len(chosen), count - len(trials))
    return chosen + [self._study.ask(self._space) for _ in range(new)]

  def _round(self, trials: Sequence[Any], jobs: int) -> None:
    """Does the runs of some trials, and tells Optuna what came out, in the order of trials."""
    from attn import configs, workdirs

    runs: dict[int, plan.Run] = {}
    for trial in trials:
      setting = self._setting(trial.params)
      try:
        runs[trial.number] = plan.run_of(self._target, setting)
      except configs.ConfigError as error:  # each value may be, but not all of them together
        self._fail(trial.number, plan.run_name(setting), str(error))
        continue
      workdirs.refuse_another(runs[trial.number].workdir, runs[trial.number].config)
    # Two trials may have one setting, and a run may be there already.
    missing = {run.name: run for run in runs.values() if self._metrics(run) is None}
    outcomes = sweep.execute(self._target.workdir, list(missing.values()), jobs)
    self._failed += [outcome for outcome in outcomes if outcome.code]
    for number, run in runs.items():
      self._tell(number, run)

  def _metrics(self, run: plan.Run) -> dict[str, float | None] | None:
    """Returns what a run has left, None if it is not finished."""
    from attn.report import runs

    return self._target.finished(run, runs.read(run.workdir))

  def _tell(self, number: int, run: plan.Run) -> None:
    """Tells Optuna what became of the run of a trial."""
    metrics = self._metrics(run)
    if metrics is None:
      self._fail(number, run.name, "it left no result")
    elif self._metric not in metrics:
      raise flags.UserError(
        f"{run.workdir} has no metric {self._metric!r}{flags.nearest(self._metric, metrics)}"
      )
    elif (value := metrics[self._metric]) is None:
      self._fail(number, run.name, f"its {self._metric} is no finite number")
    else:
      self._study.tell(number, value)

  def _fail(self, number: int, name: str, reason: str) -> None:
    print(f"trial {number} failed: {name}: {reason}", file=sys.stderr, flush=True)
    self._faults += 1
    self._study.tell(number, state=self._states.FAIL)


def open_study(optuna: Any, journal: pathlib.Path, metric: str, maximise: bool) -> Any:
  """Opens the study of a metric in a journal, which is begun if need be."""
  if journal.exists():
    text = journal.read_bytes()
    if not text.endswith(b"\n"):  # a full disk; what Optuna appended to half a line would be lost
      os.truncate(journal, text.rfind(b"\n") + 1)
  direction = "maximize" if maximise else "minimize"
  try:
    backend = optuna.storages.journal.JournalFileBackend(str(journal))
    return optuna.create_study(
      storage=optuna.storages.JournalStorage(backend),
      study_name=f"{direction} {metric}",
      direction=direction,
      load_if_exists=True,
    )
  except ValueError as error:
    raise flags.UserError(
      f"{journal} is damaged ({error}): put it back as it was, or give another --workdir"
    ) from None


def distribution(optuna: Any, draw: sweeps.Draw) -> Any:
  """Returns Optuna's word for a draw."""
  kinds = optuna.distributions
  match draw:
    case sweeps.Uniform(low, high):
      return kinds.FloatDistribution(low, high)
    case sweeps.LogUniform(low, high):
      return kinds.FloatDistribution(low, high, log=True)
    case sweeps.Integers(low, high):
      return kinds.IntDistribution(low, high)
    case sweeps.Choices(values):
      return kinds.CategoricalDistribution(values)
  raise TypeError(f"Optuna has no {draw!r}")


if __name__ == "__main__":
  flags.run("launch.search", main, FLAGS, __doc__)
