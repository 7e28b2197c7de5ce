"""`metrics.jsonl`: one JSON object a line, in step order, consistent with the checkpoint."""

import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any, Self

from attn.training.boards import Board
from attn.training.errors import TrainingError


class Metrics:
  """Where a run's numbers go: `metrics.jsonl` and the boards that were asked for.

  Every line has `step`, the number of updates done. Lines beyond `step` were written by work
  that a kill has undone, and a last line without an end by a kill in mid-write: both are dropped.
  """

  def __init__(self, folder: pathlib.Path, step: int, boards: Sequence[type[Board]] = ()):
    """Opens all in the folder of a run that has done `step` updates.

    Raises:
      TrainingError: a line is damaged.
      ConfigError: a board's writer is not installed.
    """
    path = folder / "metrics.jsonl"
    kept = [line for line in read_metrics(path) if line["step"] <= step] if path.exists() else []
    self._boards = [board(folder, step) for board in boards]
    # In one piece: a kill or a full disk between two lines must not lose those that follow.
    temporary = path.with_suffix(".tmp")
    temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    os.replace(temporary, path)
    self._file = path.open("a", encoding="utf-8")

  def write(self, step: int, **values: float | int) -> None:
    """Adds one line."""
    self._file.write(json.dumps({"step": step, **values}) + "\n")
    self._file.flush()
    for board in self._boards:
      board.write(step, values)

  def __enter__(self) -> Self:
    """Nothing to open."""
    return self

  def __exit__(self, *_: object) -> None:
    """Closes."""
    self.close()

  def close(self) -> None:
    """Closes the files."""
    self._file.close()
    for board in self._boards:
      board.close()


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
