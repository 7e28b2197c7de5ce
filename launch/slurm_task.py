"""What runs on a node of SLURM, where submitit loads it: a run's process, and its rescue in time.

Before the time is up SLURM sends SIGUSR2. The run then gets SIGTERM, which has it write a
checkpoint, and the job is queued again.
"""

import json
import os
import pathlib
import signal
import subprocess
import time
from types import FrameType
from typing import Any

from launch import executors
from launch.executors import Job

NOTICE = 90  # seconds before its end that SLURM tells a job of it
_GRACE = 60.0  # seconds of these that a run gets to save itself before it is killed
_TICK = 0.1


class Task:
  """The work of a job on its node: the run's process, and what has to come of it."""

  def __init__(self, job: Job, record: pathlib.Path) -> None:
    """Takes what to run, and the file for how it ended."""
    self._job, self._record = job, record
    self._process: subprocess.Popen[bytes] | None = None
    self._terminated = False

  def __call__(self) -> None:
    """Runs it to its end."""
    signal.signal(signal.SIGTERM, self._terminate)
    began = time.monotonic()
    again = os.environ.get("SLURM_RESTART_COUNT", "0") != "0"
    self._record.unlink(missing_ok=True)
    self._job.log.parent.mkdir(parents=True, exist_ok=True)
    with self._job.log.open("ab" if again else "wb") as log:
      # SLURM sends a signal to all processes of a job. The one that says that time is nearly up is
      # for this process, which passes it on as SIGTERM.
      self._process = subprocess.Popen(
        self._job.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        env=executors.environments(1, executors.visible_gpus())[0],
        preexec_fn=lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN),
      )  # fmt: skip
    code = self._process.wait()
    while code and self._terminated:
      # By scancel, or by the grace time before a preemption, where SLURM queues a job again that it
      # had to end, but not one that ended first. It ends this process soon, either way.
      time.sleep(_TICK)
    partial = self._record.with_suffix(".part")
    partial.write_text(json.dumps({"code": code, "seconds": time.monotonic() - began}))
    os.replace(partial, self._record)
    if code:
      raise SystemExit(1)  # for SLURM's own records

  def checkpoint(self) -> Any:
    """Has the run save itself; submitit calls this on SIGUSR2 and queues the job again."""
    from submitit.helpers import DelayedSubmission

    process, deadline = self._process, time.monotonic() + _GRACE
    if process is not None:
      if not self._terminated:  # a second SIGTERM would end the run at once
        process.terminate()
      while not _has_ended(process.pid):
        if time.monotonic() > deadline:
          process.kill()
        time.sleep(_TICK)
    return DelayedSubmission(Task(self._job, self._record))

  def _terminate(self, number: int, frame: FrameType | None) -> None:
    self._terminated = True


def _has_ended(pid: int) -> bool:
  """Whether a child has ended; leaves it to the `wait` that a signal's handler has interrupted."""
  try:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
  except ChildProcessError:
    return True
