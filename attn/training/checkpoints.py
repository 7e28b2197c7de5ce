"""Orbax checkpoints with everything that a resumed run needs."""

import contextlib
import logging
import pathlib
from collections.abc import Iterator
from typing import Any, Self

import jax
import orbax.checkpoint as ocp

from attn.training.errors import TrainingError
from attn.training.state import TrainState


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
    """Writes `state` and the JSON-able `record` as the checkpoint of `step`."""
    arguments = ocp.args.Composite(
      state=ocp.args.StandardSave(state), record=ocp.args.JsonSave(record)
    )
    with _quiet():
      self._manager.save(step, args=arguments, force=True)

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
  """Keeps Orbax from logging, with a traceback, the error that it raises as well.

  After an error it stays silent: threads of a save that has failed log theirs later.
  """
  levels = {logging.getLogger(name): logging.getLogger(name).level for name in ("absl", "asyncio")}
  for logger in levels:
    logger.setLevel(logging.CRITICAL)
  yield
  for logger, level in levels.items():
    logger.setLevel(level)
