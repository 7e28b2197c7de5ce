"""The processes that benchmarks time, each with a Python, threads and cores of its own.

How many threads XLA and PyTorch take is settled when they start, and another system may need
another environment: each choice needs a process. They answer one request at a time, so that runs in
different processes alternate as runs in one do.

Nothing but the standard library is loaded here: a process pins itself before it loads the rest, and
an environment of another system has no jax.
"""

import contextlib
import importlib
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

_ROOT = pathlib.Path(__file__).parents[1]


class WorkerError(RuntimeError):
  """A process failed; the message holds its traceback."""


class Work(NamedTuple):
  """What a process is for.

  Attributes:
    name: of the process, in messages.
    server: `module:Class` of what answers its requests, each a method of it.
    arguments: of the class; between two Pythons numbers, texts and containers of them.
    python: that runs it.
    environment: variables that are set besides.
  """

  name: str
  server: str
  arguments: tuple[Any, ...] = ()
  python: str = sys.executable
  environment: Mapping[str, str] = {}


class Worker:
  """One process, pinned to the first `threads` of the cores that this one may use."""

  def __init__(self, work: Work, threads: int) -> None:
    """Starts it.

    Args:
      work: what it does.
      threads: how many threads it may compute with.
    """
    self.name = f"the process of {work.name} with {threads} thread(s)"
    ours, theirs = socket.socketpair()
    count = str(threads)
    environment = os.environ | {
      "PYTHONPATH": str(_ROOT), "JAX_PLATFORMS": "cpu", "NPROC": count, "OMP_NUM_THREADS": count,
      "MKL_NUM_THREADS": count, **work.environment,
    }  # fmt: skip
    with theirs:
      self._process = subprocess.Popen(
        [work.python, "-m", "experiments.benchmark_workers", str(theirs.fileno())],
        env=environment,
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=2,  # what a peer prints is no result
      )
    self._pipe = Connection(ours.detach())
    with contextlib.suppress(ConnectionError):  # the first request tells that it died
      self._pipe.send((cores()[:threads], work.server, work.arguments))

  def ask(self, request: str, *arguments: Any) -> Any:
    """Makes a request of the server and returns its answer."""
    try:
      self._pipe.send((request, arguments))
      error, answer = self._pipe.recv()
    except (EOFError, ConnectionError):
      code = self._process.wait()
      raise WorkerError(
        f"{self.name} died with exit code {code}"
        + (": it was killed, perhaps for want of memory" if code == -signal.SIGKILL else "")
      ) from None
    if error:
      raise WorkerError(f"{self.name} failed:\n{error}")
    return answer

  def close(self) -> None:
    """Ends it."""
    self._pipe.close()
    self._process.terminate()
    self._process.wait()


@contextlib.contextmanager
def started(works: Sequence[Work], threads: int) -> Iterator[list[Worker]]:
  """One process for each work, ended on leaving."""
  with contextlib.ExitStack() as stack:
    workers = []
    for work in works:
      workers.append(Worker(work, threads))
      stack.callback(workers[-1].close)
    yield workers


def cores() -> list[int]:
  """The cores this process may use."""
  if hasattr(os, "sched_getaffinity"):
    return sorted(os.sched_getaffinity(0))
  return list(range(os.cpu_count() or 1))


def peak_bytes() -> int:
  """Most bytes that this process has held so far, its libraries included."""
  with contextlib.suppress(OSError):  # Linux; what it tells `getrusage` counts the parent too
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
      if line.startswith("VmHWM:"):
        return int(line.split()[1]) * 1024
  held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  return held if sys.platform == "darwin" else held * 1024


def _serve(pipe: Connection) -> None:
  """Answers requests until the other end is closed, or its process dead."""
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends us
  with contextlib.suppress(EOFError, ConnectionError):
    pinned, name, arguments = pipe.recv()
    if hasattr(os, "sched_setaffinity"):
      os.sched_setaffinity(0, pinned)
    server = None
    while True:
      request, asked = pipe.recv()
      try:
        if server is None:
          module, _, made = name.partition(":")
          server = getattr(importlib.import_module(module), made)(*arguments)
        answer = None, getattr(server, request)(*asked)
      except Exception:
        answer = traceback.format_exc(), None
      pipe.send(answer)


if __name__ == "__main__":
  _serve(Connection(int(sys.argv[1])))
