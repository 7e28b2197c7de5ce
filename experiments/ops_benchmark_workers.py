"""What the processes that `experiments.ops_benchmark` times do, one process a back end of Keras."""

import math
import os
import time
from typing import Any

# No jax comes with it: this module is loaded in the process of PyTorch too.
from experiments.benchmark_workers import Work
from experiments.ops_benchmark_programs import Case, Program, programs

SAMPLE = 0.02  # seconds that one timing takes at least: a short program runs several times in it


def work(backend: str) -> Work:
  """The work of a process of jax (and with it all that is written in JAX) or torch.

  Keras reads its back end when it is imported.
  """
  server = f"{__name__}:Server"
  return Work(backend, server, (backend,), environment={"KERAS_BACKEND": backend})


class Server:
  """Prepares the programs of a case, and times them."""

  def __init__(self, backend: str) -> None:
    """Has no programs yet."""
    if backend == "torch":
      import torch

      torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
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
