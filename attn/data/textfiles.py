"""Parallel text as users have it: files of lines, plain or compressed, read strictly."""

import contextlib
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from attn.data.errors import DataError

LONGEST = 10_000  # characters of a line that is still taken for a sentence


class Pairs(NamedTuple):
  """Pairs of texts, and how many were left out for which reason."""

  pairs: list[tuple[str, str]]
  left_out: dict[str, int]


def read_lines(file: str) -> list[str]:
  """Returns the lines of a UTF-8 file, which may be compressed by gzip or xz.

  Only a newline ends a line: no other line separator of Unicode does, and a carriage return only
  goes where a newline follows it. A byte order mark is dropped.

  Raises:
    DataError: the file cannot be read, or is not UTF-8.
  """
  data = _contents(file)
  try:
    text = data.decode("utf-8")
  except UnicodeDecodeError as error:
    line = data.count(b"\n", 0, error.start) + 1
    raise DataError(
      f"{file}: line {line} is not UTF-8 (byte 0x{data[error.start]:02x} at offset"
      f" {error.start:,}): convert the file to UTF-8, or mend that line"
    ) from None
  lines = text.removeprefix("\ufeff").split("\n")
  if not lines[-1]:
    lines.pop()  # what follows the last newline is no line
  return [line.removesuffix("\r") for line in lines]


def read_parallel(*files: str) -> list[list[str]]:
  """Returns the lines of files of which line n belongs to line n of the others, empty ones too.

  Raises:
    DataError: a file cannot be read, or the files differ in lines.
  """
  texts = [read_lines(file) for file in files]
  for file, lines in zip(files, texts, strict=True):
    if len(lines) != len(texts[0]):
      raise DataError(
        f"{files[0]} has {len(texts[0]):,} lines but {file} has {len(lines):,}: line by line they"
        " must be pairs"
      )
  return texts


def read_pairs(source: str, target: str | None, columns: tuple[int, int]) -> Pairs:
  """Returns the pairs of two files, or of two columns of a TSV if `target` is None.

  A pair with nothing but space on a side, or with a line of more than `LONGEST` characters, is
  left out: both of its sides are, so that no later pair shifts.

  Raises:
    DataError: a file cannot be read, the files differ in lines, or a line lacks a column.
  """
  if target is None:
    return _filtered(_columns(source, columns))
  sources, targets = read_parallel(source, target)
  return _filtered(list(zip(sources, targets, strict=True)))


def _columns(file: str, columns: tuple[int, int]) -> list[tuple[str, str]]:
  pairs = []
  for number, line in enumerate(read_lines(file), 1):
    cells = line.split("\t")
    if line and len(cells) < max(columns):
      raise DataError(
        f"{file}: line {number} has {len(cells)} columns, not {max(columns)}: a TSV has a tab"
        " between source and target; for a file of sources alone give data.target too"
      )
    pairs.append((cells[columns[0] - 1], cells[columns[1] - 1]) if line else ("", ""))
  return pairs


def _filtered(pairs: list[tuple[str, str]]) -> Pairs:
  kept, left_out = [], {"empty source": 0, "empty target": 0, "empty line": 0, "too long": 0}
  for source, target in pairs:
    filled = bool(source.strip()), bool(target.strip())
    if not any(filled):
      left_out["empty line"] += 1
    elif not all(filled):
      left_out["empty target" if filled[0] else "empty source"] += 1
    elif max(len(source), len(target)) > LONGEST:
      left_out["too long"] += 1
    else:
      kept.append((source, target))
  return Pairs(kept, {reason: count for reason, count in left_out.items() if count})


@contextlib.contextmanager
def unpacked(file: io.BufferedReader, name: str) -> Iterator[io.BufferedIOBase]:
  """Yields a file to read, as it is or, if it is compressed by gzip or xz, unpacked.

  Raises:
    DataError: reading it finds that it is damaged; starts with `name`.
  """
  start = file.peek(6)
  if start.startswith(b"\x1f\x8b"):
    content: io.BufferedIOBase = gzip.open(file)
  elif start.startswith(b"\xfd7zXZ\x00"):
    content = lzma.open(file)
  else:
    yield file
    return
  try:
    yield content
  except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
    raise DataError(f"{name}: the compressed file is damaged ({error}): make it anew") from error


def _contents(file: str) -> bytes:
  try:
    with open(file, "rb") as packed, unpacked(packed, file) as content:
      return content.read()
  except OSError as error:
    raise DataError(f"cannot read {file}: {error.strerror}") from error
