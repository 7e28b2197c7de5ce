"""The SLURM executor: the runs of a sweep as one job array, which submitit sends.

The launcher only looks on: its end is not theirs. What it sent stands in `slurm/` of the sweep's
folder before sbatch hears of it, under a name that is also the jobs', so that whoever comes next
finds by that name what still waits or runs and does not send it twice. What runs on the nodes is in
`launch/slurm_task.py`.
"""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from absl import flags as absl_flags

from launch import flags, resolve, slurm_task
from launch.executors import Job, Outcome, Watcher

_LEAST = 4  # minutes of a run
_MOST_TIMEOUTS = 100  # times that a run may be queued again because its time was up
_TICK = 0.5
_SLOWEST = 15.0  # seconds between two questions to the controller, which others ask as well
_PATIENCE = 60.0  # seconds until a controller counts as silent
_LATE = 20.0  # seconds that a network folder may take to show what a node has written

# A job that is in one of these will not run again; every other state is on the way to one.
_ENDED = (
  "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL",
  "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT", "no longer known",
)  # fmt: skip
_BY_ITSELF = ("COMPLETED", "FAILED", "no longer known")

# Options of sbatch that --slurm may not name: those with a flag, and those that the sweep sets.
_HAVE_FLAGS = {
  "partition": "partition", "time": "time", "cpus-per-task": "cpus", "mem": "memory",
  "gpus-per-node": "gpus", "gpus": "gpus", "array": "jobs",
}  # fmt: skip
_OWN = (
  "error", "job-name", "nodes", "ntasks", "ntasks-per-node", "open-mode", "output", "requeue",
  "signal", "wrap",
)  # fmt: skip


def define(values: absl_flags.FlagValues) -> None:
  """Adds the flags of what each run gets."""
  for name, meaning in (
    ("partition", "SLURM: where to queue (default: the cluster's)"),
    ("time", "SLURM: D-HH:MM:SS, HH:MM:SS or MINUTES until a run is saved and queued again"),
    ("memory", "SLURM: memory of a run, such as 4G (default: the partition's)"),
  ):
    absl_flags.DEFINE_string(name, None, meaning, flag_values=values)
  for name, least, meaning in (
    ("cpus", 1, "SLURM: cores of a run (default: the cluster's)"),
    ("gpus", 0, "SLURM: GPUs of a run (default: none)"),
  ):
    absl_flags.DEFINE_integer(name, None, meaning, lower_bound=least, flag_values=values)
  absl_flags.DEFINE_multi_string(
    "slurm", [], "SLURM: any other option of sbatch, key=value or key (repeatable)",
    flag_values=values,
  )  # fmt: skip


_NAMES = ("partition", "time", "memory", "cpus", "gpus", "slurm")


@dataclasses.dataclass(frozen=True)
class Resources:
  """What each run gets.

  Attributes:
    time: what sbatch is told, which SLURM reads.
    minutes: the same in whole minutes.
    cpus: cores; None is the cluster's default.
    more: further options of sbatch; True for one without a value.
  """

  time: str
  minutes: int
  cpus: int | None
  more: Mapping[str, Any]


def resources(values: absl_flags.FlagValues) -> Resources | None:
  """Returns what the flags ask for, None with another executor.

  Raises:
    UserError: no SLURM or no submitit here, or flags that say nothing sensible.
  """
  if values.executor == "dry_run":
    return None
  if values.executor == "local":
    for name in _NAMES:
      if values[name].present:
        raise flags.UserError(f"--{name} belongs to --executor=slurm")
    return None
  if shutil.which("sbatch") is None or shutil.which("srun") is None:
    raise flags.UserError(
      "--executor=slurm: there is no sbatch here: run this on a cluster's login node, or with"
      " --executor=local"
    )
  if not resolve.installed("submitit"):
    raise flags.UserError(
      "--executor=slurm needs submitit: pip install -c constraints.txt -e '.[slurm]'"
    )
  flags.require(values, time="HOURS:MINUTES:SECONDS")
  whole = minutes(values.time)
  if whole < _LEAST:
    raise flags.UserError(
      f"--time={values.time} is too short: a run is told to save itself {slurm_task.NOTICE} s"
      f" before its end, and SLURM may do so a minute early; give {_LEAST} minutes at least"
    )
  more: dict[str, Any] = {"requeue": True, "time": values.time}
  given = {"partition": values.partition, "mem": values.memory, "gpus-per-node": values.gpus}
  more |= {key: value for key, value in given.items() if value is not None}
  for option in values.slurm:
    key, _, value = option.lstrip("-").partition("=")
    key = key.replace("_", "-")
    if not re.fullmatch("[a-z][a-z0-9-]*", key):
      raise flags.UserError(f"--slurm={option} is no option of sbatch; write --slurm=key=value")
    if key in _HAVE_FLAGS:
      raise flags.UserError(f"--slurm={option}: say --{_HAVE_FLAGS[key]}")
    if key in _OWN:
      raise flags.UserError(f"--slurm={option}: the sweep sets --{key} itself")
    more[key] = value or True
  return Resources(values.time, whole, values.cpus, more)


def minutes(text: str) -> int:
  """Returns a time as SLURM writes it, in minutes, rounded up."""
  found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
  if found is None:
    raise flags.UserError(
      f"--time={text} is no time: write MINUTES, HOURS:MINUTES:SECONDS or DAYS-HOURS:MINUTES"
    )
  days, *parts = found.groups()
  numbers = [int(part) for part in parts if part is not None]
  if days is None and len(numbers) < 3:
    numbers = [0, *numbers]  # M and M:S, where a time with days is D-H and D-H:M
  h, m, s = [*numbers, 0, 0][:3]
  return max(1, math.ceil(int(days or 0) * 1440 + h * 60 + m + s / 60))


# The queue.


class Place(NamedTuple):
  """Where a run is in the queue: its array's name, its index, and the file for how it ended."""

  array: str
  index: int
  record: pathlib.Path


class State(NamedTuple):
  """What the controller says of a job: its state, and why it waits."""

  name: str
  reason: str

  @property
  def ended(self) -> bool:
    """Whether it will not run again."""
    return self.name in _ENDED


class _States(dict[tuple[str, int], State]):
  """The states of jobs by array and index; the controller forgets them minutes after their end."""

  def __missing__(self, key: tuple[str, int]) -> State:
    return State("no longer known", "")


@dataclasses.dataclass(frozen=True)
class Ended(Outcome):
  """How a job ended that left no exit code.

  Attributes:
    state: SLURM's word for it.
    folder: where submitit keeps what it has to say.
  """

  state: str
  folder: pathlib.Path

  @property
  def error(self) -> str:
    """SLURM's word, and what the run's log says last if the run began."""
    after = f" after: {super().error}" if self.job.log.exists() else f", see {self.folder}"
    return f"no exit code, SLURM says {self.state}{after}"


def slurm(
  jobs: Sequence[Job], folder: pathlib.Path, asked: Resources, most: int | None, watcher: Watcher
) -> list[Outcome]:
  """Runs jobs as an array, and waits; attaches to those that an earlier call has sent.

  Ctrl-C ends the waiting and nothing else: a place in the queue may have taken days to get, and a
  lost connection must not cost it.

  Args:
    jobs: what to run; names and commands say which ones are the same as earlier.
    folder: the sweep's folder, which all nodes see.
    asked: what each run gets.
    most: most runs at a time; None is no bound.
    watcher: told of each job.

  Returns:
    How the jobs ended, in the order of `jobs`.

  Raises:
    UserError: sbatch refuses them, or the controller does not answer, or a job of the same name and
      another command is queued.
  """
  places = _queued(jobs, folder)
  if places:
    print(f"slurm: {len(places)} of {len(jobs)} runs are in the queue already: attached to them")
  new = [job for job in jobs if job not in places]
  if new:
    at_once = len(new) if most is None else max(1, most - len(places))
    places |= _send(new, folder, asked, at_once)
  try:
    return _wait(jobs, places, watcher)
  except KeyboardInterrupt:
    arrays = ",".join(sorted({place.array for place in places.values()}))
    print(
      f"slurm: what was sent goes on, and the same command attaches to it; scancel --name={arrays}"
      " ends it",
      file=sys.stderr,
    )
    raise


def _queued(jobs: Sequence[Job], folder: pathlib.Path) -> dict[Job, Place]:
  """Returns the places of the jobs that are in the queue."""
  records = {path.parent.name: path for path in (folder / "slurm").glob("*/jobs.json")}
  if not records:
    return {}
  states = _ask(list(records))
  if isinstance(states, str):
    raise flags.UserError(f"squeue does not answer: {states}")
  known = {job.name: job for job in jobs}
  found = {}
  for array, path in records.items():
    for index, (name, command) in enumerate(json.loads(path.read_text(encoding="utf-8"))):
      if name not in known or states[array, index].ended:
        continue
      if tuple(command) != known[name].argv[1:]:
        raise flags.UserError(
          f"{name} is queued with other settings: give another --workdir, or end it:"
          f" scancel --name={array}"
        )
      found[known[name]] = _place(path.parent, index)
  return found


def _place(folder: pathlib.Path, index: int) -> Place:
  return Place(folder.name, index, folder / f"{index}.json")


def _send(
  jobs: Sequence[Job], folder: pathlib.Path, asked: Resources, most: int
) -> dict[Job, Place]:
  """Sends jobs as an array; returns their places in it."""
  import submitit
  from submitit.core.utils import FailedJobError, FailedSubmissionError

  array = f"attn-{secrets.token_hex(4)}"
  home = (folder / "slurm" / array).absolute()
  home.mkdir(parents=True)
  places = {job: _place(home, index) for index, job in enumerate(jobs)}
  for job in jobs:
    job.log.unlink(missing_ok=True)  # an earlier attempt's would seem to be of this one
  told = json.dumps([(job.name, job.argv[1:]) for job in jobs])
  (home / "jobs.json").write_text(told, encoding="utf-8")
  executor = submitit.SlurmExecutor(home, max_num_timeout=_MOST_TIMEOUTS)
  executor.update_parameters(
    job_name=array,
    time=asked.minutes,  # for submitit; `more` has it for SLURM
    cpus_per_task=asked.cpus,
    # Releases from 22.05 on do not hand this on to srun by themselves.
    srun_args=[f"--cpus-per-task={asked.cpus}"] if asked.cpus else [],
    array_parallelism=most,
    signal_delay_s=slurm_task.NOTICE,
    additional_parameters=dict(asked.more),
  )
  try:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere), executor.batch():
      for job, place in places.items():
        executor.submit(slurm_task.Task(job, place.record))
  except (FailedJobError, FailedSubmissionError) as error:
    shutil.rmtree(home)
    lines = [line.removeprefix("sbatch: error: ") for line in str(error).splitlines()]
    raise flags.UserError(f"sbatch refuses the sweep: {'; '.join(lines)}") from None
  print(f"slurm: {len(jobs)} sent as {array}, at most {most} at a time", flush=True)
  return places


def _ask(arrays: Collection[str]) -> _States | str:
  """Returns the states of all jobs of arrays, or why the controller does not tell."""
  command = ["squeue", "--noheader", "--array", "--states=all", f"--name={','.join(arrays)}"]
  try:
    told = subprocess.run(
      [*command, "--format=%j|%K|%T|%r"], capture_output=True, text=True, timeout=_PATIENCE
    )
  except subprocess.TimeoutExpired:
    return f"nothing in {_PATIENCE:.0f} s"
  if told.returncode:
    return " ".join(told.stderr.split()) or f"exit code {told.returncode}"
  states = _States()
  for line in told.stdout.splitlines():
    array, index, name, reason = line.split("|", 3)
    states[array, int(index) if index.isdigit() else 0] = State(name, reason)  # a lone job has none
  return states


def _wait(jobs: Sequence[Job], places: Mapping[Job, Place], watcher: Watcher) -> list[Outcome]:
  """Waits until all jobs have ended, and tells what becomes of them."""
  arrays = {place.array for place in places.values()}
  began, told = time.monotonic(), ""
  looked = _Looked(places, watcher)
  while True:
    states = _ask(arrays)
    line = f"squeue does not answer: {states}" if isinstance(states, str) else looked.look(states)
    if line != told:
      told = line
      print(f"slurm: {line}", flush=True)
    if len(looked.outcomes) == len(jobs):
      return [looked.outcomes[job] for job in jobs]
    now = time.monotonic()
    while time.monotonic() < now + min(_SLOWEST, 1 + (now - began) / 20):
      watcher.tick()
      time.sleep(_TICK)


class _Looked:
  """What has been seen of jobs so far."""

  def __init__(self, places: Mapping[Job, Place], watcher: Watcher) -> None:
    """Nothing yet."""
    self.outcomes: dict[Job, Outcome] = {}
    self._places, self._watcher, self._began = places, watcher, time.monotonic()
    self._running: set[Job] = set()
    self._late: dict[Job, float] = {}  # since when a job has ended and its record is not to be seen

  def look(self, states: _States) -> str:
    """Tells the watcher what is new; returns a summary."""
    counts: Counter[str] = Counter()
    for job, place in self._places.items():
      if job in self.outcomes:
        continue
      state = states[place[:2]]
      if state.ended:
        self._end(job, place, state.name)
      elif state.name == "RUNNING" and job not in self._running:
        self._running.add(job)
        self._watcher.started(job)
      elif state.name == "PENDING" and job in self._running:
        self._running.remove(job)
        self._watcher.waits(job)
      if job not in self.outcomes:
        why = f" ({state.reason})" if state.name == "PENDING" else ""
        counts[state.name.lower() + why] += 1
    if self.outcomes:
      counts["ended"] = len(self.outcomes)
    return ", ".join(f"{number} {name}" for name, number in counts.items())

  def _end(self, job: Job, place: Place, state: str) -> None:
    """Notes how a job has ended, unless its record may yet come."""
    now = time.monotonic()
    outcome: Outcome
    try:
      ending = json.loads(place.record.read_text(encoding="utf-8"))
      outcome = Outcome(job, ending["code"], ending["seconds"])
    except FileNotFoundError:
      if state in _BY_ITSELF and now - self._late.setdefault(job, now) < _LATE:
        return
      outcome = Ended(job, 1, now - self._began, state, place.record.parent)
    self.outcomes[job] = outcome
    self._watcher.ended(outcome)
