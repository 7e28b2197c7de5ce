"""Executors: what a sweep does with its list of argument vectors.

`local` runs them as processes of this machine, a bounded number at a time; `dry_run` prints them.
"""

import contextlib
import dataclasses
import os
import pathlib
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

_POLL = 0.05
_GRACE = 20.0  # seconds a run gets to save itself before it is killed


@dataclasses.dataclass(frozen=True)
class Job:
  """One process to run.

  Attributes:
    name: what progress and failures call it.
    argv: its argument vector.
    log: file that takes its standard output and standard error.
  """

  name: str
  argv: tuple[str, ...]
  log: pathlib.Path

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
    """The last line of the log of a job that failed; '' for one that did not."""
    if self.code == 0:
      return ""
    text = self.job.log.read_text(encoding="utf-8", errors="replace")
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    if self.code < 0:
      last = f"killed by {signal.Signals(-self.code).name}" + (f" after: {last}" if last else "")
    return last or f"exit code {self.code}, nothing in its log"


def dry_run(jobs: Sequence[Job]) -> None:
  """Prints the command of each job."""
  for job in jobs:
    print(job.command)


def local(
  jobs: Sequence[Job], slots: int, finished: Callable[[Outcome], None] = lambda outcome: None
) -> list[Outcome]:
  """Runs jobs as processes, at most `slots` at a time; a failing one does not stop the others.

  On Ctrl-C, and whatever else ends this function early, no process is left behind: each gets
  SIGTERM, with time to write a checkpoint, and SIGKILL if it does not end.

  Args:
    jobs: what to run, started in this order.
    slots: most processes at a time.
    finished: called in this thread as each job ends.

  Returns:
    How the jobs ended, in the order of `jobs`.
  """
  environment = _environment(min(slots, len(jobs)))
  waiting, outcomes = list(jobs), {}
  running: dict[Job, tuple[subprocess.Popen[bytes], float]] = {}
  with _ended(running):
    while waiting or running:
      while waiting and len(running) < slots:
        job = waiting.pop(0)
        running[job] = (_start(job, environment), time.monotonic())
      for job, (process, began) in list(running.items()):
        if process.poll() is not None:
          del running[job]
          outcomes[job] = Outcome(job, process.returncode, time.monotonic() - began)
          finished(outcomes[job])
      time.sleep(_POLL)
  return [outcomes[job] for job in jobs]


def _environment(slots: int) -> dict[str, str]:
  """Returns the processes' environment: the cores are shared out, so that no two runs fight."""
  cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
  threads = str(max(1, cores // max(1, slots)))
  pinned: Mapping[str, str] = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": threads,
    "MKL_NUM_THREADS": threads,
    # The one variable from which XLA's CPU client takes the size of its pool; its old flags for
    # this no longer do anything.
    "NPROC": threads,
  }
  return {**os.environ, **{k: v for k, v in pinned.items() if k not in os.environ}}


def _start(job: Job, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
  job.log.parent.mkdir(parents=True, exist_ok=True)
  with job.log.open("wb") as log:
    # A session of its own: Ctrl-C reaches this process alone, which then ends its children once
    # each, instead of the terminal and this process doing it twice.
    return subprocess.Popen(
      job.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
      start_new_session=True,
    )  # fmt: skip


@contextlib.contextmanager
def _ended(running: Mapping[Job, tuple[subprocess.Popen[bytes], float]]) -> Iterator[None]:
  """Ends what still runs when the block is left."""
  try:
    yield
  finally:
    processes = [process for process, _ in running.values()]
    for process in processes:
      process.terminate()
    deadline = time.monotonic() + _GRACE
    for process in processes:
      try:
        process.wait(max(0.0, deadline - time.monotonic()))
      except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()  # a second Ctrl-C: at once
        process.wait()
