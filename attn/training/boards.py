"""Writers of a run's numbers for others' viewers, beside `metrics.jsonl`, each an extra."""

import os
import pathlib
import uuid
from typing import Any, Protocol

from attn import workdirs
from attn.configs import ConfigError


class Board(Protocol):
  """What takes the lines of `metrics.jsonl`."""

  def __init__(self, folder: pathlib.Path, step: int) -> None:
    """Opens it for the run in a folder that has done `step` updates."""

  def write(self, step: int, values: dict[str, float | int]) -> None:
    """Adds one line."""

  def close(self) -> None:
    """Ends writing."""


class TensorBoard:
  """Event files in `tensorboard/`."""

  def __init__(self, folder: pathlib.Path, step: int):
    """Opens a file; whatever is shown beyond `step` is to be forgotten.

    Raises:
      ConfigError: the writer is not installed.
    """
    try:
      from tensorboardX import SummaryWriter
    except ImportError:
      raise ConfigError(
        "files for TensorBoard need tensorboardX: python -m pip install 'attn[tensorboard]'"
      ) from None
    # The step in its name keeps it from writing over a file of the same second.
    self._writer = SummaryWriter(
      str(folder / "tensorboard"), purge_step=step + 1, filename_suffix=f".{step}"
    )

  def write(self, step: int, values: dict[str, float | int]) -> None:
    """Adds one line."""
    for name, value in values.items():
      self._writer.add_scalar(name, value, step)
    self._writer.flush()

  def close(self) -> None:
    """Closes the file."""
    self._writer.close()


class WandB:
  """A run of Weights & Biases, in `wandb/` until `wandb sync` or sent at once.

  It stays one run over interruptions. Lines that a kill has undone come again with the same
  values, and Weights & Biases takes each step once.
  """

  def __init__(self, folder: pathlib.Path, step: int):
    """Begins the run, or goes on with it; nothing is sent unless WANDB_MODE says so.

    Raises:
      ConfigError: the package is not installed, or its service refuses.
    """
    try:
      import wandb
    except ImportError:
      raise ConfigError(
        "files for Weights & Biases need wandb: python -m pip install 'attn[wandb]'"
      ) from None
    try:
      self._run: Any = wandb.init(
        project="attn",
        group=folder.resolve().parent.name,  # a sweep's runs are beside each other
        name=folder.name,
        id=_identity(folder / "wandb" / "id"),
        resume="allow",
        dir=folder,
        config=workdirs.saved_config(folder),
        mode=os.environ.get("WANDB_MODE", "offline"),
        settings=wandb.Settings(silent=True, console="off"),
      )
    except wandb.errors.Error as error:
      raise ConfigError(f"Weights & Biases: {error}") from None

  def write(self, step: int, values: dict[str, float | int]) -> None:
    """Adds one line."""
    self._run.log(values, step=step)

  def close(self) -> None:
    """Waits until all is written."""
    self._run.finish()


def _identity(path: pathlib.Path) -> str:
  """The run's name at Weights & Biases, the same whenever it is resumed."""
  if not path.exists():
    path.parent.mkdir(exist_ok=True)
    path.write_text(uuid.uuid4().hex[:12], encoding="utf-8")
  return path.read_text(encoding="utf-8")
