"""The processes that `experiments.ops_benchmark` times, each with a back end and cores of its own.

How many threads XLA and PyTorch take is settled when they start, and Keras reads its back end when
it is imported: each choice needs a process. They answer one request at a time, so that runs in
different processes alternate as runs in one do.
"""

import contextlib
import math
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

# No jax comes with it: this module is loaded before a process has been pinned.
from experiments.ops_benchmark_programs import Case, Program, programs

SAMPLE = 0.02  # seconds that one timing takes at least: a short program runs several times in it


class WorkerError(RuntimeError):
  """A process failed; the message holds its traceback."""


class Worker:
  """One process, pinned to the first `threads` of the cores that this one may use."""

  def __init__(self, backend: str, threads: int) -> None:
    """Starts it.

    Args:
      backend: of Keras: jax (and with it everything that is written in JAX) or torch.
      threads: how many threads it may compute with.
    """
    self.name = f"the process of {backend} with {threads} thread(s)"
    self._pipe, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    self._process = context.Process(target=_serve, args=(theirs, backend, threads), daemon=True)
    self._process.start()
    theirs.close()  # else a process that died would never be noticed

  def ask(self, request: str, *arguments: Any) -> Any:
    """Makes a request of `_Server` and returns its answer."""
    try:
      self._pipe.send((request, arguments))
      error, answer = self._pipe.recv()
    except (EOFError, ConnectionError):
      self._process.join()
      code = self._process.exitcode
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
    self._process.join()


@contextlib.contextmanager
def started(backends: tuple[str, ...], threads: int) -> Iterator[list[Worker]]:
  """One process a back end, ended on leaving."""
  with contextlib.ExitStack() as stack:
    workers = []
    for backend in backends:
      workers.append(Worker(backend, threads))
      stack.callback(workers[-1].close)
    yield workers


def cores() -> list[int]:
  """The cores this process may use."""
  if hasattr(os, "sched_getaffinity"):
    return sorted(os.sched_getaffinity(0))
  return list(range(os.cpu_count() or 1))


class _Server:
  """What a worker's process does."""

  def __init__(self, backend: str) -> None:
    self._backend = backend
    self._programs: dict[tuple[str, str], Program] = {}
    self._calls: dict[tuple[str, str], int] = {}

  def prepare(self, case: Case, seed: int) -> dict[tuple[str, str], tuple[Any, Any]]:
    """Compiles and runs every program of a case; returns the results and facts of each."""
    self._programs.clear()
    self._programs = programs(case, seed, self._backend)
    for key, program in self._programs.items():
      start = time.perf_counter()
      program.call()
      self._calls[key] = max(1, math.ceil(SAMPLE / (time.perf_counter() - start)))
    return {key: (program.results, program.facts) for key, program in self._programs.items()}

  def seconds(self, contender: str, passes: str) -> tuple[float, float]:
    """Wall and CPU seconds a call, over as many calls as fill a sample."""
    program, calls = self._programs[contender, passes], self._calls[contender, passes]
    start, cpu_start = time.perf_counter(), time.process_time()
    for _ in range(calls):
      program.call()
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    return wall / calls, cpu / calls


def _serve(pipe: Connection, backend: str, threads: int) -> None:
  """Answers requests until the other end is closed, or its process dead."""
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends us
  if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, cores()[:threads])
  os.environ |= {
    "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "NPROC": str(threads),
    "OMP_NUM_THREADS": str(threads),
  }  # fmt: skip
  if backend == "torch":
    import torch

    torch.set_num_threads(threads)
  server = _Server(backend)
  with contextlib.suppress(EOFError, ConnectionError):
    while True:
      request, arguments = pipe.recv()
      try:
        answer = None, getattr(server, request)(*arguments)
      except Exception:
        answer = traceback.format_exc(), None
      pipe.send(answer)
