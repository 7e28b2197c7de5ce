"""Processes side by side, for training runs too small to keep several cores busy."""

import collections
import contextlib
import functools
import json
import multiprocessing
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import forkserver
from typing import Any

import jax

from attn import configs
from attn.report import results
from attn.training import TrainConfig, Trained, train


def grid(
  cells: Mapping[str, TrainConfig],
  seeds: Sequence[int],
  folder: pathlib.Path,
  measure: Callable[[Trained, str], Mapping[str, Any]],
  *,
  alone: bool = False,
) -> dict[str, list[dict[str, Any]]]:
  """Trains every cell with every seed, half of the cells in a process each, and measures them.

  A killed grid goes on where it was; what is measured is read back from `measured.json` in
  `folder/CELL/seed-N`, the run's own folder.

  Args:
    cells: name, which becomes a folder's, to a run; its seed is set here.
    seeds: those of each cell, which share its compiled programs.
    folder: where all runs lie.
    measure: importable by name; from the trained model and a label for its progress to plain data
      that JSON can hold.
    alone: whether each cell has a process of its own: where no two share a compiled program, that
      keeps no core waiting.

  Returns:
    Of each cell what was measured, a seed an entry.
  """
  with grid_beside(cells, seeds, folder, measure, alone=alone) as measured:
    pass
  return measured()


@contextlib.contextmanager
def grid_beside(
  cells: Mapping[str, TrainConfig],
  seeds: Sequence[int],
  folder: pathlib.Path,
  measure: Callable[[Trained, str], Mapping[str, Any]],
  *,
  alone: bool = False,
) -> Iterator[Callable[[], dict[str, list[dict[str, Any]]]]]:
  """The same while the caller does something else, in the `with` block: see `beside`.

  Yields:
    What returns, after the block, what was measured.
  """
  parts = len(cells) if alone else min(2, len(cells))
  shares = [{name: cells[name] for name in list(cells)[at::parts]} for at in range(parts)]
  with beside(_in_turn, [(share, seeds, folder, measure) for share in shares]):
    yield functools.partial(_in_turn, cells, seeds, folder, measure)


def _in_turn(
  cells: Mapping[str, TrainConfig],
  seeds: Sequence[int],
  folder: pathlib.Path,
  measure: Callable[[Trained, str], Mapping[str, Any]],
) -> dict[str, list[dict[str, Any]]]:
  found: dict[str, list[dict[str, Any]]] = {}
  for name, config in cells.items():
    found[name] = []
    for seed in seeds:
      own, label = folder / name / f"seed-{seed}", f"{name}, seed {seed}"
      done = own / "measured.json"
      if not done.exists():
        trained = train(configs.override(config, {"seed": seed}), own, label=label)
        results.write_text(done, results.to_json(measure(trained, label)))
      found[name].append(json.loads(done.read_text(encoding="utf-8")))
  return found


@contextlib.contextmanager
def beside(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Iterator[None]:
  """Makes each call of `function` in a process of its own, beside the `with` block's own work.

  As many processes as cores run at once: more would take several times as long, since those that
  wait for a core keep others waiting. The end of the block waits for all. The function has to leave
  what it makes in files and to return at once where they are. The caller then makes the same calls
  itself: that reads back what succeeded, and tries again what failed, so that an error shows where
  it can be handled. On a single core, or on an accelerator, whose memory processes do not share, no
  process starts and the caller does all the work.

  A signal or an error in this process ends the others; if it is killed they notice and end.

  Args:
    function: importable by name.
    calls: the arguments of each call.
  """
  cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
  if cores < 2 or jax.default_backend() != "cpu":
    yield
    return
  at_once = min(cores, len(calls))
  context = _server()
  waiting, begun, one_starts = iter(calls), [], threading.Lock()

  def serve() -> None:
    while True:
      with one_starts:
        call = next(waiting, None)
        if call is None:
          return
        process = context.Process(target=_work, args=(cores // at_once, function, *call))
        process.start()
        begun.append(process)
      process.join()

  threads = [threading.Thread(target=serve) for _ in range(at_once)]
  try:
    for thread in threads:
      thread.start()
    yield
    for thread in threads:
      thread.join()
  except BaseException:
    with one_starts:
      collections.deque(waiting, maxlen=0)  # No more of them start.
      for process in begun:
        process.terminate()  # Training takes it as a wish: it saves a checkpoint, then ends.
    for thread in threads:
      thread.join()
    raise


def _server() -> multiprocessing.context.ForkServerContext:
  """Where processes start at once: one that has loaded what takes seconds, and has no threads."""
  context = multiprocessing.get_context("forkserver")
  context.set_forkserver_preload([__name__, "attn.report.figures"])
  former = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # It outlives a terminal, as they save.
  try:
    forkserver.ensure_running()
  finally:
    signal.signal(signal.SIGHUP, former)
  return context


def _work(cores: int, function: Callable[..., Any], *arguments: Any) -> None:
  os.environ["NPROC"] = str(cores)  # The size of XLA's pools, which are not there yet.
  # Ctrl-C reaches a whole group: out of it, only the parent's SIGTERM comes, and comes once.
  os.setsid()
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by an exception: what is begun is saved
  threading.Thread(target=_end_with_parent, daemon=True).start()
  try:
    function(*arguments)
  except (Exception, KeyboardInterrupt):
    sys.exit(1)  # The parent's own call meets the same fault, and says so.


def _end_with_parent() -> None:
  parent = multiprocessing.parent_process()
  assert parent is not None
  parent.join()
  os._exit(1)  # As a kill would: every run goes on from its last checkpoint.
