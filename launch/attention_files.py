"""Files of attention weights, an entry a hypothesis, written as they come."""

import contextlib
import json
import math
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

SUFFIXES = (".npz", ".jsonl")

# Takes an entry: `line` and `rank`, and what `launch.translate` says of them.
Writer = Callable[[dict[str, Any]], None]


@contextlib.contextmanager
def writer(name: str, file: BinaryIO) -> Iterator[Writer]:
  """Yields what writes entries into `file`, in the format that the suffix of `name` asks for."""
  if name.endswith(".jsonl"):
    yield lambda entry: _write_json(entry, file)
    return
  with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
    yield lambda entry: _write_arrays(entry, archive)


def _write_json(entry: dict[str, Any], file: BinaryIO) -> None:
  if not math.isfinite(entry["score"]):  # of a line that no hypothesis was found for
    entry = {**entry, "score": None}  # JSON has no infinities
  line = json.dumps(
    entry,
    ensure_ascii=False,
    allow_nan=False,
    default=lambda array: array.astype(float).round(6).tolist(),
  )
  file.write(f"{line}\n".encode())
  file.flush()


def _write_arrays(entry: dict[str, Any], archive: zipfile.ZipFile) -> None:
  import numpy as np

  for name, value in entry.items():
    if name not in ("line", "rank"):
      member = f"{entry['line']}.{entry['rank']}.{name}.npy"
      with archive.open(member, "w", force_zip64=True) as file:
        np.lib.format.write_array(file, np.asarray(value), allow_pickle=False)
