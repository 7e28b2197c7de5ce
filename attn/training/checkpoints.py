"""Orbax checkpoints with everything that a resumed run needs."""

import contextlib
import errno
import logging
import os
import pathlib
import shutil
import sys
from collections.abc import Iterator
from typing import Any, Self

import jax
import orbax.checkpoint as ocp

from attn.training.errors import TrainingError
from attn.training.state import TrainState

_UNFINISHED = ".orbax-checkpoint-tmp"  # what Orbax calls a save until it is whole

# Failures of the disk, which Orbax and tensorstore tell of in errors of any type.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


class Checkpoints:
  """The checkpoints of one run: arrays, and a JSON record beside them.

  A save is atomic: it is written under a temporary name and renamed when it is whole, so a kill
  at any moment leaves the one before. The last two are kept.
  """

  def __init__(self, folder: pathlib.Path):
    """Opens (creating it if need be) the folder that holds one subfolder a step."""
    self._folder = folder
    self._manager = ocp.CheckpointManager(
      folder.resolve(),
      options=ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False),
    )

  @property
  def latest(self) -> int | None:
    """The newest whole checkpoint's step, None when there is none."""
    step: int | None = self._manager.latest_step()
    return step

  def save(self, step: int, state: TrainState, record: dict[str, Any]) -> None:
    """Writes `state` and the JSON-able `record` as the checkpoint of `step`.

    Only the one process that trains in the folder may save.

    Raises:
      TrainingError: the disk is full or otherwise refuses; the checkpoints before are whole.
    """
    for left in self._folder.glob(f"*{_UNFINISHED}*"):  # by a save that was killed or failed
      shutil.rmtree(left, ignore_errors=True)
    arguments = ocp.args.Composite(
      state=ocp.args.StandardSave(state), record=ocp.args.JsonSave(record)
    )
    try:
      with _quiet():
        self._manager.save(step, args=arguments, force=True)
    except Exception as error:
      reason = next((name for name in map(os.strerror, _DISK) if name in str(error)), None)
      if reason is None:
        raise
      then = "begins anew" if self.latest is None else f"goes on from step {self.latest}"
      raise TrainingError(
        f"the checkpoint of step {step} cannot be written into {self._folder} ({reason}): put that"
        f" right and give the same command, which {then}"
      ) from error

  def restore(self, step: int, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
    """The state and record of `step`; `like` gives the tree, shapes and dtypes expected.

    Raises:
      TrainingError: the checkpoint is damaged.
    """
    device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    target = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device), like)
    arguments = ocp.args.Composite(
      state=ocp.args.StandardRestore(target), record=ocp.args.JsonRestore()
    )
    try:
      with _quiet():
        restored = self._manager.restore(step, args=arguments)
      return restored["state"], restored["record"]
    except Exception as error:  # Orbax and tensorstore tell of damage in errors of any type
      reason = (str(error).splitlines() or [type(error).__name__])[0].partition(". See")[0]
      raise TrainingError(
        f"the checkpoint of step {step} in {self._folder} cannot be read ({reason:.160}): if it is"
        f" damaged, delete {self._folder / str(step)} to go on from the one before"
      ) from error

  def close(self) -> None:
    """Releases the manager's threads."""
    self._manager.close()

  def __enter__(self) -> Self:
    """Nothing to open."""
    return self

  def __exit__(self, *_: object) -> None:
    """Closes."""
    self.close()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Keeps Orbax from showing, with a traceback, the error that it raises as well.

  After an error it stays silent: threads of what has failed tell of theirs later, to loggers and to
  the event loop that Orbax has closed by then.
  """
  levels = {logging.getLogger(name): logging.getLogger(name).level for name in ("absl", "asyncio")}
  for logger in levels:
    logger.setLevel(logging.CRITICAL)
  hook = sys.unraisablehook
  sys.unraisablehook = lambda told: None if _late(told) else hook(told)
  yield
  sys.unraisablehook = hook
  for logger, level in levels.items():
    logger.setLevel(level)


def _late(told: "sys.UnraisableHookArgs") -> bool:
  """Whether it is tensorstore's report, from no Python code, to an event loop that is closed."""
  return told.object is None and str(told.exc_value) == "Event loop is closed"
