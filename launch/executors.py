"""Executors: what a sweep does with its list of argument vectors.

`local` runs them as processes of this machine, a bounded number at a time; `dry_run` prints them;
`launch/slurm.py` sends them to a cluster.
What becomes of each job is told to a `Watcher`; `launch/watch.py` has those that show it.
"""

import contextlib
import dataclasses
import os
import pathlib
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from launch import parent

_TICK = 0.25  # most seconds between two ticks of a watcher
_GRACE = 20.0  # seconds a run gets to save itself before it is killed
_GPU_MEMORY = 0.75  # the share of a GPU's memory that jax takes for itself
_NVIDIA_SMI_PATIENCE = 20.0  # seconds until a driver counts as stuck


@dataclasses.dataclass(frozen=True)
class Job:
  """One process to run.

  Attributes:
    name: what progress and failures call it.
    argv: its argument vector.
    log: file that takes its standard output and standard error.
    workdir: its run's folder, whose files tell how far it is.
  """

  name: str
  argv: tuple[str, ...]
  log: pathlib.Path
  workdir: pathlib.Path | None = None

  @property
  def command(self) -> str:
    """The argument vector as typed in a shell."""
    return shlex.join(self.argv)


@dataclasses.dataclass(frozen=True)
class Outcome:
  """How a job ended.

  Attributes:
    job: the job.
    code: its exit code; negative for the signal that killed it.
    seconds: how long it ran.
  """

  job: Job
  code: int
  seconds: float

  @property
  def error(self) -> str:
    """What the log of a job that failed says of it, on one line; '' for one that did not."""
    if self.code == 0:
      return ""
    try:
      text = self.job.log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:  # somebody has tidied up meanwhile
      text = ""
    last = _last_words(text)
    if self.code < 0:
      last = f"killed by {signal.Signals(-self.code).name}" + (f" after: {last}" if last else "")
    return last or f"exit code {self.code}, nothing in its log"


def _last_words(log: str) -> str:
  """Returns the error that a last traceback ends with, or else the last line."""
  before, _, traceback = log.rpartition("Traceback (most recent call last):\n")
  lines = [line.rstrip() for line in traceback.splitlines() if line.strip()]
  if before or log.startswith("Traceback"):
    # Notes may follow the error, such as jax's on the frames that it left out.
    return next((line for line in lines if not line.startswith(" ")), "")
  return lines[-1].strip() if lines else ""


class Watcher:
  """Who is told what becomes of jobs, by the thread that runs them; this one ignores it."""

  def started(self, job: Job) -> None:
    """The job runs from now on."""

  def waits(self, job: Job) -> None:
    """The job ran, and waits now to go on later."""

  def ended(self, outcome: Outcome) -> None:
    """The job has ended."""

  def tick(self) -> None:
    """Some time has passed; called at least every few seconds while jobs run."""


def dry_run(jobs: Sequence[Job]) -> None:
  """Prints the command of each job."""
  for job in jobs:
    print(job.command)


def local(jobs: Sequence[Job], slots: int, watcher: Watcher | None = None) -> list[Outcome]:
  """Runs jobs as processes, at most `slots` at a time; a failing one does not stop the others.

  Cores are shared out between the slots, and so are the GPUs that there are: each process sees
  those of its slot.

  On Ctrl-C, and whatever else ends this function early, no process is left behind: each gets
  SIGTERM, with time to write a checkpoint, and SIGKILL if it does not end. A command of `launch`
  notices by itself that this process was killed (`launch/parent.py`).

  Args:
    jobs: what to run, started in this order.
    slots: most processes at a time.
    watcher: told of each job, and several times a second that time passes.

  Returns:
    How the jobs ended, in the order of `jobs`.
  """
  watcher = watcher or Watcher()
  free = environments(max(1, min(slots, len(jobs))), visible_gpus())
  waiting, outcomes = list(jobs), {}
  running: dict[Job, _Running] = {}
  ended: queue.SimpleQueue[Job] = queue.SimpleQueue()
  with _none_left(running):
    while waiting or running:
      while waiting and free:
        job, environment = waiting.pop(0), free.pop(0)
        process = _start(job, environment)
        running[job] = _Running(process, environment, time.monotonic())
        threading.Thread(target=_await, args=(process, job, ended), daemon=True).start()
        watcher.started(job)
      watcher.tick()  # before the wait, so that the shortest run is shown at work
      with contextlib.suppress(queue.Empty):
        job = ended.get(timeout=_TICK)
        one = running.pop(job)
        free.append(one.environment)
        outcomes[job] = Outcome(job, one.process.wait(), time.monotonic() - one.began)
        watcher.ended(outcomes[job])
  return [outcomes[job] for job in jobs]


@dataclasses.dataclass(frozen=True)
class _Running:
  """A process of a job, and the environment of the slot that it has taken."""

  process: subprocess.Popen[bytes]
  environment: Mapping[str, str]
  began: float


def _await(process: subprocess.Popen[bytes], job: Job, ended: "queue.SimpleQueue[Job]") -> None:
  process.wait()
  ended.put(job)


def environments(slots: int, gpus: Sequence[str]) -> list[dict[str, str]]:
  """Returns what processes of each slot find in their environment, so that no two runs fight.

  A variable that the user has set stays, but for the GPUs, which are those that the user left
  visible. Where there are fewer of them than slots, runs share one and its memory.
  """
  threads = str(max(1, _cores() // slots))
  limits = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": threads,
    "MKL_NUM_THREADS": threads,
    # The one variable from which XLA's CPU client takes the size of its pool; its old flags for
    # this no longer do anything.
    "NPROC": threads,
  }
  if gpus and slots > len(gpus) and "XLA_PYTHON_CLIENT_MEM_FRACTION" not in os.environ:
    sharers = -(-slots // len(gpus))
    limits["XLA_CLIENT_MEM_FRACTION"] = f"{_GPU_MEMORY / sharers:.3f}"
  common = {**limits, **os.environ}
  if not gpus:
    return [dict(common) for _ in range(slots)]
  return [
    {**common, "CUDA_VISIBLE_DEVICES": ",".join(_share(gpus, slot, slots))} for slot in range(slots)
  ]


def _cores() -> int:
  """Returns how many cores processes of this one may use."""
  cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
  granted = os.environ.get("SLURM_CPUS_ON_NODE", "")  # not every cluster keeps jobs to theirs
  return min(cores, int(granted)) if granted.isdigit() else cores


def _share(gpus: Sequence[str], slot: int, slots: int) -> Sequence[str]:
  """Returns the GPUs of a slot: neighbours, as many for each slot as there are; at least one."""
  each = max(1, len(gpus) // slots)
  first = slot * each % len(gpus)
  return gpus[first : first + each]


def visible_gpus() -> list[str]:
  """Returns the names of the GPUs that a process here would see, without loading jax."""
  told = os.environ.get("CUDA_VISIBLE_DEVICES")
  if told is not None:
    names = [name.strip() for name in told.split(",")]
    return [name for name in names if name and not name.startswith("-")]
  if shutil.which("nvidia-smi") is None:
    return []
  command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
  try:
    found = subprocess.run(command, capture_output=True, text=True, timeout=_NVIDIA_SMI_PATIENCE)
  except subprocess.TimeoutExpired:
    return []
  # Without a driver it explains so on standard output.
  return re.findall(r"^\s*(\d+)\s*$", found.stdout, re.M) if found.returncode == 0 else []


def _start(job: Job, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
  job.log.parent.mkdir(parents=True, exist_ok=True)
  with job.log.open("wb") as log:
    # A session of its own: Ctrl-C reaches this process alone, which then ends its children once
    # each, instead of the terminal and this process doing it twice.
    return subprocess.Popen(
      job.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
      env={**environment, **parent.named()}, start_new_session=True,
    )  # fmt: skip


@contextlib.contextmanager
def _none_left(running: Mapping[Job, _Running]) -> Iterator[None]:
  """Ends what still runs when the block is left."""
  try:
    yield
  finally:
    processes = [one.process for one in running.values()]
    for process in processes:
      process.terminate()
    if processes:
      told = f"ending {len(processes)} runs, which save what they have (Ctrl-C: at once)"
      with contextlib.suppress(OSError):  # the terminal may be gone, and they are to be waited for
        print(told, file=sys.stderr, flush=True)
    deadline = time.monotonic() + _GRACE
    for process in processes:
      try:
        process.wait(max(0.0, deadline - time.monotonic()))
      except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()  # a second Ctrl-C: at once
        process.wait()
