"""`metrics.jsonl`: one JSON object a line, in step order, consistent with the checkpoint."""

import json
import pathlib
from typing import Any


class MetricsFile:
  """Appends lines to a metrics file that agrees with the step a run resumes from.

  Every line has `step`, the number of updates done. Lines beyond `step` were written by work
  that a kill has undone, and a last line without an end by a kill in mid-write: both are dropped.
  """

  def __init__(self, path: pathlib.Path, step: int):
    """Opens `path` for a run that has done `step` updates."""
    kept = [line for line in read_metrics(path) if line["step"] <= step] if path.exists() else []
    self._file = path.open("w", encoding="utf-8")
    self._file.writelines(json.dumps(line) + "\n" for line in kept)
    self._file.flush()

  def write(self, step: int, **values: float | int) -> None:
    """Adds one line."""
    self._file.write(json.dumps({"step": step, **values}) + "\n")
    self._file.flush()

  def close(self) -> None:
    """Closes the file."""
    self._file.close()


def read_metrics(path: pathlib.Path) -> list[dict[str, Any]]:
  """All whole lines of a metrics file; one cut off by a kill is left out."""
  text = path.read_text(encoding="utf-8")
  return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
