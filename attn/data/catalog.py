"""The data sets: what there is, prepared on disk and loaded into memory.

A name is that of a data set, `g2p`, or of a variety of one, `libreoffice_help/en-de`, or that of a
translation data set of TFDS's own with its configuration, `wmt14_translate/de-en`.
"""

import contextlib
import errno
import importlib
import itertools
import os
import pathlib
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import filelock
import numpy as np

from attn import configs
from attn.data.config import TEXT, TextFiles
from attn.data.errors import DataError
from attn.data.vocabulary import Level

__all__ = ["Corpus", "DataError", "levels", "load", "names", "prepare"]

SPLITS: Final = ("train", "dev", "test")
_PIECES: Final[tuple[Level, Level]] = ("bpe", "bpe")
_DEV: Final = ("dev", "validation")  # what TFDS's own call it
_READ = 10_000  # records a read; one by one they take 20 times as long


@dataclass(frozen=True)
class _Entry:
  """A data set: where its builder is, what a symbol is on its two sides, and which variety."""

  module: str
  builder: str
  levels: tuple[Level, Level]
  variety: str | None = None


_ENTRIES: Final = {
  "g2p": _Entry("attn.data.g2p", "G2p", ("character", "symbol")),
  **{
    name.lower(): _Entry("attn.data.synthetic", name, ("symbol", "symbol"))
    for name in ("Copy", "Reverse", "Lexicon", "Fertility", "Walk")
  },
  **{
    f"greek_english/{variety}": _Entry(
      "attn.data.greek_english", "GreekEnglish", ("symbol", "symbol"), variety
    )
    for variety in ("forms", "lemmas")
  },
  **{
    f"libreoffice_help/en-{other}": _Entry(
      "attn.data.libreoffice_help", "LibreofficeHelp", _PIECES, f"en-{other}"
    )
    for other in ("de", "es", "fr", "it")
  },
  "kjv_rv1909": _Entry("attn.data.kjv_rv1909", "KjvRv1909", ("symbol", "symbol")),
  "numbers/en": _Entry("attn.data.numbers", "Numbers", ("character", "symbol"), "en"),
  "numbers/de": _Entry("attn.data.numbers", "Numbers", ("character", "character"), "de"),
  **{
    f"dates/{locale}": _Entry("attn.data.dates", "Dates", ("character", "character"), locale)
    for locale in ("en", "hu", "ja")
  },
  TEXT: _Entry("attn.data.parallel_text", "ParallelText", _PIECES),
}


@dataclass(frozen=True)
class Corpus:
  """Pairs of texts in memory.

  Attributes:
    sources: the source texts.
    targets: the target texts.
    alignments: for each pair its links, int [n, 2] of (source, target) positions counted from 0
      in symbols of the texts; None where the data set has no gold alignment.
    possible: for each pair further links that may be found; None where the others are all.
  """

  sources: tuple[str, ...]
  targets: tuple[str, ...]
  alignments: tuple[np.ndarray, ...] | None = None
  possible: tuple[np.ndarray, ...] | None = None

  def __post_init__(self) -> None:
    """Raises ValueError where the sides differ in number."""
    counts = [len(self.sources), len(self.targets)]
    counts += [len(links) for links in (self.alignments, self.possible) if links is not None]
    if len(set(counts)) != 1:
      raise ValueError(f"the sides of a corpus differ in number: {counts}")

  def __len__(self) -> int:
    """The number of pairs."""
    return len(self.sources)


def names() -> tuple[str, ...]:
  """Returns the names of the project's own data sets."""
  return tuple(_ENTRIES)


def levels(name: str) -> tuple[Level, Level]:
  """Returns what a symbol is, in the source and in the target.

  Raises:
    DataError: there is no such data set.
  """
  if name in _ENTRIES:
    return _ENTRIES[name].levels
  _refuse_unknown(name)
  return _PIECES


def prepare(
  name: str, data_dir: str | os.PathLike[str], files: TextFiles | None = None
) -> pathlib.Path:
  """Makes sure that a data set lies prepared under `data_dir`, and returns its folder.

  Does nothing if it does. Processes that prepare the same data set at once prepare it once, and
  one that is killed leaves nothing that the next one trips over. What was left out is counted on
  stderr, and under `left_out` in the folder's `metadata.json`.

  Args:
    name: the data set.
    data_dir: where prepared data sets lie.
    files: what `parallel_text` consists of; None for all others.

  Raises:
    DataError: there is no such data set, or it cannot be had or written.
  """
  root = pathlib.Path(data_dir)
  return pathlib.Path(_prepared(name, root, files).data_path)


def load(
  name: str,
  split: str,
  data_dir: str | os.PathLike[str],
  limit: int | None = None,
  files: TextFiles | None = None,
) -> Corpus:
  """Returns a split of a data set, prepared first if it is not.

  Args:
    name: the data set.
    split: `train`, `dev` or `test`.
    data_dir: where prepared data sets lie.
    limit: only the first so many pairs, and no more is read; TFDS shuffled them when it prepared
      them, always in the same way.
    files: what `parallel_text` consists of; None for all others.

  Raises:
    DataError: the data cannot be had.
    ValueError: there is no such split.
  """
  if split not in SPLITS:
    raise ValueError(f"there is no split {split!r}{configs.nearest(split, SPLITS)}")
  builder = _prepared(name, pathlib.Path(data_dir), files)
  try:
    return _read(builder, split, limit) if name in _ENTRIES else _read_tfds(builder, split, limit)
  except (OSError, RuntimeError, ValueError, LookupError) as error:
    raise _damaged(pathlib.Path(builder.data_path), error) from error


def _refuse_unknown(name: str) -> None:
  """Raises DataError for what is no translation data set of TFDS's."""
  from attn.data import tfds_sets

  own = {entry.partition("/")[0] for entry in _ENTRIES}  # TFDS knows those that are imported
  if name.partition("/")[0] in own or not tfds_sets.known(name):
    raise DataError(f"there is no data set {name!r}{configs.nearest(name, _ENTRIES)}")
  tfds_sets.builder_class(name)


def _prepared(name: str, root: pathlib.Path, files: TextFiles | None) -> Any:
  """Returns the builder of a data set, prepared."""
  if name not in _ENTRIES:
    return _prepared_tfds(name, root)
  entry = _ENTRIES[name]
  with _failures(name, root):
    builder = _builder(entry, root, files)
    folder = pathlib.Path(builder.data_path)
    if not folder.exists():
      root.mkdir(parents=True, exist_ok=True)
      with filelock.FileLock(root / f"{builder.name}.lock"):
        if not folder.exists():  # else another process was faster
          for leftover in folder.parent.glob("incomplete.*"):  # of a process that was killed
            shutil.rmtree(leftover)
          _write(builder)
          for split, reasons in builder.info.metadata.get("left_out", {}).items():
            told = ", ".join(f"{count:,} ({reason})" for reason, count in reasons.items())
            print(f"{name}: left out of {split}: {told}", file=sys.stderr)
      builder = _builder(entry, root, files)
  return builder


def _prepared_tfds(name: str, root: pathlib.Path) -> Any:
  """Returns the builder of a data set of TFDS's own, prepared."""
  from google.protobuf import json_format

  from attn.data import tfds_sets

  try:
    with _failures(name, root):
      builder = tfds_sets.prepared(name, root)
      if builder is None:
        _refuse_unknown(name)
        root.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(root / f"{name.partition('/')[0]}.lock"):
          builder = tfds_sets.prepared(name, root) or tfds_sets.prepare(name, root)
      return builder
  except json_format.ParseError as error:
    raise _damaged(root / name, error) from error


def _builder(entry: _Entry, root: pathlib.Path, files: TextFiles | None) -> Any:
  """Returns the TFDS builder; TFDS is loaded here, when it is needed."""
  from google.protobuf import json_format

  from attn.data.builder import quiet

  module = importlib.import_module(entry.module)
  builder = getattr(module, entry.builder)
  config = entry.variety if files is None else module.configuration(files)
  try:
    with quiet():  # TFDS warns of each configuration that is not one of the builder's own
      return builder(data_dir=root, file_format="array_record", config=config)
  except json_format.ParseError as error:
    raise _damaged(root / builder.name, error) from error


def _write(builder: Any) -> None:
  import tensorflow_datasets as tfds

  from attn.data.builder import quiet

  with quiet():
    builder.download_and_prepare(
      download_config=tfds.download.DownloadConfig(try_download_gcs=False)
    )


def _read(
  builder: Any, split: str, limit: int | None, sides: tuple[str, str] = ("source", "target")
) -> Corpus:
  """Reads the first records of a split.

  TFDS decodes a record in 16 us; parsing the two texts out of its bytes here takes 2, which makes
  loading all of g2p three times as fast.
  """
  from tensorflow_datasets.proto import tf_example_pb2

  sources, targets = [], []
  links: dict[str, list[np.ndarray]] = {
    name: [] for name in ("alignment", "possible") if name in builder.info.features
  }
  for record in itertools.islice(_records(builder, split, limit), limit):
    feature = tf_example_pb2.Example.FromString(record).features.feature
    sources.append(feature[sides[0]].bytes_list.value[0].decode("utf-8"))
    targets.append(feature[sides[1]].bytes_list.value[0].decode("utf-8"))
    for name, found in links.items():
      found.append(np.array(feature[name].int64_list.value, np.int32).reshape(-1, 2))
  gold = [tuple(links[name]) if name in links else None for name in ("alignment", "possible")]
  return Corpus(tuple(sources), tuple(targets), *gold)


def _records(builder: Any, split: str, limit: int | None) -> Iterator[bytes]:
  """Yields the first records of a split, undecoded."""
  import tensorflow_datasets as tfds

  from attn.data import tfds_sets

  if builder.info.file_format == tfds.core.FileFormat.TFRECORD:
    yield from tfds_sets.records(builder, split)
    return
  count = builder.info.splits[split].num_examples
  if limit is not None:
    count = min(count, limit)
  raw = builder.as_data_source(
    f"{split}[:{count}]", deserialize_method=tfds.decode.DeserializeMethod.RAW_BYTES
  )
  for start in range(0, count, _READ):
    yield from raw.__getitems__(range(start, min(start + _READ, count)))


def _read_tfds(builder: Any, split: str, limit: int | None) -> Corpus:
  """Reads a split of a data set of TFDS's own; what it lacks is split off its training pairs."""
  from attn.data import parallel_text, tfds_sets

  sides, there = tfds_sets.sides(builder), builder.info.splits
  stored = {"train": "train", "test": "test", "dev": next(filter(there.__contains__, _DEV), "dev")}
  missing = [name for name, kept in stored.items() if kept not in there]
  if split not in missing and (split != "train" or not missing):
    return _read(builder, stored[split], limit, sides)
  if "train" in missing:
    raise DataError(f"{builder.name} has no training pairs, only {', '.join(there)}")
  whole = _read(builder, "train", None, sides)
  pairs = list(zip(whole.sources, whole.targets, strict=True))
  given = {name: pairs[:1] for name in stored if name not in missing}  # to leave them alone
  part = parallel_text.split_off({**given, "train": pairs})[split][:limit]
  return Corpus(tuple(source for source, _ in part), tuple(target for _, target in part))


@contextlib.contextmanager
def _failures(name: str, root: pathlib.Path) -> Iterator[None]:
  """Turns what the system says into one line that says what to do."""
  try:
    yield
  except DataError:
    raise
  except (OSError, RuntimeError) as error:
    reason = error.strerror if isinstance(error, OSError) else None
    reason, full = reason or _first_line(error), os.strerror(errno.ENOSPC)
    advice = "make it a folder that can be written to"
    if full in reason:  # the record writer says so too, in C++ and at length
      reason, advice = full, "make room there"
    raise DataError(
      f"cannot prepare {name!r} in {root.resolve()} ({reason}); {advice}, or choose another data"
      " directory, and run the command again"
    ) from error


def _damaged(folder: pathlib.Path, error: Exception) -> DataError:
  return DataError(
    f"{folder} cannot be read ({_first_line(error)}); delete that folder and run the command again"
  )


def _first_line(error: Exception) -> str:
  # A KeyError shows its message quoted, ends of lines and all.
  text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
  lines = text.splitlines()
  return lines[0] if lines else type(error).__name__
