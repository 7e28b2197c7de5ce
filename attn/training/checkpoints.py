"""Orbax checkpoints with everything that a resumed run needs."""

import contextlib
import errno
import logging
import os
import pathlib
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.sharding import Sharding, SingleDeviceSharding

from attn.training import devices
from attn.training.errors import TrainingError
from attn.training.state import TrainState

_UNFINISHED = ".orbax-checkpoint-tmp"  # what Orbax calls a save until it is whole

# Failures of the disk, which Orbax and tensorstore tell of in errors of any type.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


class Restored(NamedTuple):
  """What a checkpoint held."""

  step: int
  state: TrainState
  record: dict[str, Any]


class Checkpoints:
  """The checkpoints of one run: arrays, and a JSON record beside them.

  A save is atomic: it is written under a temporary name and renamed when it is whole, so a kill
  at any moment leaves the one before. It is written while the run goes on; what goes wrong with
  it is raised by the next save, or at the end.

  Attributes:
    folder: where they are.
    best: steps to keep besides the newest ones.
  """

  def __init__(self, folder: pathlib.Path, keep: int = 2):
    """Opens (creating it if need be) the folder that holds one subfolder a step.

    Args:
      folder: where they live.
      keep: how many of the newest stay.
    """
    self.best: Sequence[int] = ()
    self.folder, self._keep = folder, keep
    self._saving: int | None = None
    self._quiet = _Quiet()
    self._manager = ocp.CheckpointManager(
      folder.resolve(), options=ocp.CheckpointManagerOptions(preservation_policy=self)
    )

  def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
    """Orbax's question which of all checkpoints, oldest first, to keep."""
    del context
    newest = [info.step for info in checkpoints[-self._keep :]]
    return [info.step in newest or info.step in self.best for info in checkpoints]

  @property
  def steps(self) -> list[int]:
    """The steps of all whole checkpoints, ascending."""
    self._wait()
    return sorted(self._manager.all_steps())

  @property
  def latest(self) -> int | None:
    """The newest whole checkpoint's step, None when there is none."""
    return max(self.steps, default=None)

  def save(self, step: int, state: TrainState, record: dict[str, Any]) -> None:
    """Begins to write `state` and the JSON-able `record` as the checkpoint of `step`.

    Only the one run that trains in the folder may save.

    Raises:
      TrainingError: the disk is full or otherwise refuses; the checkpoints before are whole.
    """
    self._wait()
    if jax.process_index() == 0:
      for left in self.folder.glob(f"*{_UNFINISHED}*"):  # by a save that was killed or failed
        shutil.rmtree(left, ignore_errors=True)
    # On a CPU Orbax would read the very memory that the next update, which owns the state, fills.
    own = _copied(state) if jax.default_backend() == "cpu" else state
    arguments = ocp.args.Composite(
      state=ocp.args.StandardSave(own), record=ocp.args.JsonSave(record)
    )
    self._saving = step
    with self._disk():
      self._manager.save(step, args=arguments, force=True)

  def _wait(self) -> None:
    with self._disk():
      self._manager.wait_until_finished()

  @contextlib.contextmanager
  def _disk(self) -> Iterator[None]:
    """Says in one line what a disk that refuses has done to the save under way."""
    try:
      yield
    except Exception as error:
      reason = next((name for name in map(os.strerror, _DISK) if name in str(error)), None)
      if reason is None:
        raise
      latest = max(self._manager.all_steps(), default=None)
      then = "begins anew" if latest is None else f"goes on from step {latest}"
      raise TrainingError(
        f"the checkpoint of step {self._saving} cannot be written into {self.folder} ({reason}):"
        f" put that right and give the same command, which {then}"
      ) from error

  def restore(
    self, step: int, like: TrainState, sharding: Sharding | None = None
  ) -> tuple[TrainState, dict[str, Any]]:
    """The state and record of `step`.

    Args:
      step: which checkpoint.
      like: the tree, shapes and dtypes expected.
      sharding: how its arrays are to lie on the devices, however they lay when saved; None puts
        them on this process's first one.

    Raises:
      TrainingError: the checkpoint is damaged.
    """
    sharding = sharding or SingleDeviceSharding(jax.local_devices()[0])
    target = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), like)
    restored = self._read(
      step, state=ocp.args.StandardRestore(target), record=ocp.args.JsonRestore()
    )
    return restored["state"], restored["record"]

  def record(self, step: int) -> dict[str, Any]:
    """The record of `step` alone, which is small.

    Raises:
      TrainingError: it is damaged.
    """
    found: dict[str, Any] = self._read(step, record=ocp.args.JsonRestore())["record"]
    return found

  def _read(self, step: int, **items: ocp.args.CheckpointArgs) -> Any:
    try:
      return self._manager.restore(step, args=ocp.args.Composite(**items))
    except Exception as error:  # Orbax and tensorstore tell of damage in errors of any type
      reason = (str(error).splitlines() or [type(error).__name__])[0].partition(". See")[0]
      raise TrainingError(
        f"the checkpoint of step {step} in {self.folder} cannot be read ({reason:.160})"
      ) from error

  def newest(
    self, like: TrainState, steps: Iterable[int], sharding: Sharding | None = None
  ) -> tuple[Restored | None, list[TrainingError]]:
    """The first of `steps` that can be read, and what was wrong with those before it.

    Raises:
      TrainingError: there are some, and none of them can be read.
    """
    faults: list[TrainingError] = []
    for step in steps:
      try:
        return Restored(step, *self.restore(step, like, sharding)), faults
      except TrainingError as error:
        faults.append(error)
    if faults:
      raise TrainingError(f"{faults[0]}, nor can another: give another --workdir") from faults[0]
    return None, faults

  def set_aside(self, step: int) -> pathlib.Path:
    """Moves a damaged checkpoint to where no run looks for it."""
    aside = self.folder.parent / "damaged" / str(step)
    if jax.process_index() == 0:
      aside.parent.mkdir(exist_ok=True)
      while aside.exists():
        aside = aside.with_name(f"{aside.name}.again")
      os.replace(self.folder / str(step), aside)
    devices.meet(f"{step} set aside")
    self._manager.reload()
    return aside

  def close(self) -> None:
    """Waits for the last save and releases the manager's threads."""
    try:
      self._wait()
    finally:
      with contextlib.suppress(Exception):  # which would be the same one again
        self._manager.close()
    self._quiet.end()

  def __enter__(self) -> Self:
    """Nothing to open."""
    return self

  def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
    """Closes; an error that is under way comes before one of the last save."""
    with contextlib.suppress(Exception) if kind else contextlib.nullcontext():
      self.close()


@jax.jit
def _copied(state: TrainState) -> TrainState:
  """All arrays anew, by one program: leaf by leaf, each shape would compile one of its own."""
  copied: TrainState = jax.tree.map(jnp.copy, state)
  return copied


class _Quiet:
  """Keeps Orbax from showing, with a traceback, the errors that it raises as well.

  After an error it stays silent: threads of what has failed tell of theirs later, to loggers and to
  the event loop that Orbax has closed by then.
  """

  def __init__(self) -> None:
    self._levels = {name: logging.getLogger(name).level for name in ("absl", "asyncio")}
    for name in self._levels:
      logging.getLogger(name).setLevel(logging.CRITICAL)
    self._hook = hook = sys.unraisablehook
    sys.unraisablehook = lambda told: None if _late(told) else hook(told)

  def end(self) -> None:
    sys.unraisablehook = self._hook
    for name, level in self._levels.items():
      logging.getLogger(name).setLevel(level)


def _late(told: "sys.UnraisableHookArgs") -> bool:
  """Whether it is tensorstore's report, from no Python code, to an event loop that is closed."""
  return told.object is None and str(told.exc_value) == "Event loop is closed"
