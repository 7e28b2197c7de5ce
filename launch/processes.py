"""One training by several processes: how they find each other, and that none outlives the others.

When a process is killed or fails, what the others wait for never comes. On CPUs their collectives
notice at once and raise. Elsewhere jax's coordinator, in process 0, misses the heartbeats of the
lost one and has the others abort in C++; and so they do at once when the coordinator is lost. In
each case the others say so on one line and end with code 1.
"""

import contextlib
import ctypes
import os
import re
import signal
import sys
from collections.abc import Iterator

from launch import flags

# What stands in errors that come from waiting for others: gloo's, NCCL's, the coordinator's.
_WAITING = re.compile(r"gloo|nccl|coordination service|barrier|heartbeat", re.IGNORECASE)


@contextlib.contextmanager
def joined(
  command: str, distributed: bool, coordinator: str | None, process: str | None, timeout: int
) -> Iterator[int]:
  """Makes this process one of several that train together, if the flags say so.

  Args:
    command: what messages start with.
    distributed: whether the cluster says who the processes are.
    coordinator: HOST:PORT of process 0, where it does not.
    process: I/N, which of how many this one is.
    timeout: seconds to wait for the others at the start, and for heartbeats from then on.

  Yields:
    The number of this process; 0 where it is alone.

  Raises:
    UserError: the flags contradict each other, or the processes do not find each other.
  """
  if distributed and (coordinator or process):
    raise flags.UserError("--distributed finds out by itself what --coordinator and --process say")
  place = _place(coordinator, process)
  if not distributed and place is None:
    yield 0
    return
  index, count = _initialize(command, coordinator, place, timeout)
  lost = (
    f"process {index} of {count} ends because another one is lost: see what that one said last."
    " The same commands resume."
  )
  _say_when_aborted(f"{command}: {lost}")
  try:
    yield index
  except Exception as error:
    waited = flags.explain(error) is None and _WAITING.search(str(error))
    flags.tell(command, flags.UserError(lost) if waited else error)
    sys.stdout.flush()
    # Not by way of Python's end, where jax waits for the others, and they for this process.
    os._exit(1)


def _place(coordinator: str | None, process: str | None) -> tuple[int, int] | None:
  """Returns the I and N of `--process`, if it is given."""
  if coordinator is None and process is None:
    return None
  if coordinator is None or process is None:
    raise flags.UserError("--coordinator=HOST:PORT and --process=I/N belong together")
  place = re.fullmatch(r"(\d+)/(\d+)", process)
  if place is None or int(place[1]) >= int(place[2]):
    raise flags.UserError(f"--process={process} is not I/N with I from 0 to N-1, such as 0/2")
  if not re.fullmatch(r".+:\d+", coordinator):
    raise flags.UserError(f"--coordinator={coordinator} is not HOST:PORT, such as 10.0.0.1:1234")
  return int(place[1]), int(place[2])


def _initialize(
  command: str, coordinator: str | None, place: tuple[int, int] | None, timeout: int
) -> tuple[int, int]:
  """Joins the others; returns the number of this process and how many there are."""
  import jax

  # SIGTERM is for the loop, which saves and ends; jax would catch it for a service of its own.
  jax.config.update("jax_enable_preemption_service", False)
  index, count = place or (None, None)
  at = f" at {coordinator}" if coordinator else ""
  apart = f"the processes do not find each other{at} within {timeout} s (--timeout)"
  try:
    # Whoever waits in vain is aborted in C++, with two dozen lines of its own.
    with _silent() as stderr:
      _say_when_aborted(f"{command}: {apart}", stderr)
      jax.distributed.initialize(
        coordinator,
        count,
        index,
        initialization_timeout=timeout,
        heartbeat_timeout_seconds=timeout,
        shutdown_timeout_seconds=timeout,
      )
  except ValueError:  # which names the first argument that no cluster gave
    raise flags.UserError(
      "--distributed: no SLURM, Open MPI or TPU pod says who the processes are: start them with"
      " srun, or give each --coordinator=HOST:PORT and --process=I/N"
    ) from None
  except RuntimeError as error:
    reason = (str(error).splitlines() or ["no reason given"])[0]
    if "start RPC server" in reason:
      reason = "process 0 cannot listen there, is the port taken?"
    raise flags.UserError(f"{apart}: {reason:.200}") from None
  return jax.process_index(), jax.process_count()


@contextlib.contextmanager
def _silent() -> Iterator[int]:
  """Lets nothing through to standard error, C++'s words included; yields another way to it."""
  sys.stderr.flush()
  stderr = os.dup(2)
  nowhere = os.open(os.devnull, os.O_WRONLY)
  os.dup2(nowhere, 2)
  os.close(nowhere)
  try:
    yield stderr
  finally:
    os.dup2(stderr, 2)
    os.close(stderr)


_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int)
_handlers = []  # what C calls has to stay


def _say_when_aborted(line: str, stderr: int = 2) -> None:
  """Lets an abort end this process with a line and code 1.

  Python's own handlers run between its instructions, where an aborting process never comes again.
  """

  @_Handler
  def say(_: int) -> None:
    os.write(stderr, f"{line}\n".encode())
    os._exit(1)

  _handlers.append(say)
  ctypes.CDLL(None).signal(signal.SIGABRT, say)
