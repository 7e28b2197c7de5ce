"""`metrics.jsonl`: one JSON object a line, in step order, consistent with the checkpoint."""

import json
import os
import pathlib
from typing import Any, Self

from attn.configs import ConfigError
from attn.training.errors import TrainingError


class Metrics:
  """Where a run's numbers go: `metrics.jsonl` and, if asked for, files for TensorBoard.

  Every line has `step`, the number of updates done. Lines beyond `step` were written by work
  that a kill has undone, and a last line without an end by a kill in mid-write: both are dropped,
  and TensorBoard is told to forget the same.
  """

  def __init__(self, folder: pathlib.Path, step: int, *, tensorboard: bool = False):
    """Opens both in the folder of a run that has done `step` updates.

    Raises:
      TrainingError: a line is damaged.
      ConfigError: TensorBoard is asked for and its writer is not installed.
    """
    path = folder / "metrics.jsonl"
    kept = [line for line in read_metrics(path) if line["step"] <= step] if path.exists() else []
    self._board = _board(folder / "tensorboard", step) if tensorboard else None
    # In one piece: a kill or a full disk between two lines must not lose those that follow.
    temporary = path.with_suffix(".tmp")
    temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    os.replace(temporary, path)
    self._file = path.open("a", encoding="utf-8")

  def write(self, step: int, **values: float | int) -> None:
    """Adds one line."""
    self._file.write(json.dumps({"step": step, **values}) + "\n")
    self._file.flush()
    if self._board:
      for name, value in values.items():
        self._board.add_scalar(name, value, step)
      self._board.flush()

  def __enter__(self) -> Self:
    """Nothing to open."""
    return self

  def __exit__(self, *_: object) -> None:
    """Closes."""
    self.close()

  def close(self) -> None:
    """Closes the files."""
    self._file.close()
    if self._board:
      self._board.close()


def _board(folder: pathlib.Path, step: int) -> Any:
  try:
    from tensorboardX import SummaryWriter
  except ImportError:
    raise ConfigError(
      "files for TensorBoard need tensorboardX: python -m pip install 'attn[tensorboard]'"
    ) from None
  # The step in its name keeps it from writing over a file of the same second.
  return SummaryWriter(str(folder), purge_step=step + 1, filename_suffix=f".{step}")


def read_metrics(path: pathlib.Path) -> list[dict[str, Any]]:
  """All whole lines of a metrics file; one cut off by a kill is left out.

  Raises:
    TrainingError: a whole line is damaged.
  """
  return [_parse(path, i, line) for i, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1)]


def _parse(path: pathlib.Path, number: int, line: bytes) -> dict[str, Any]:
  try:
    row = json.loads(line)
  except ValueError:
    row = None
  if not isinstance(row, dict) or not isinstance(row.get("step"), int):
    raise TrainingError(
      f"{path}: line {number} is no JSON object with a step: delete that line, or give another"
      " --workdir"
    )
  return row
