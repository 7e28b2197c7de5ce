"""`parallel_text`: a user's own pairs of lines."""

import dataclasses
import hashlib
import pathlib
from typing import Any

import tensorflow_datasets as tfds

from attn.data import textfiles
from attn.data.builder import NumberedBuilder
from attn.data.config import TEXT, TextFiles
from attn.data.errors import DataError

_MOST, _SHARE = 2_000, 0.05  # pairs that a split by hash has at most, and their share
_Pairs = list[tuple[str, str]]


@dataclasses.dataclass(eq=False)
class ParallelTextConfig(tfds.core.BuilderConfig):
  """A user's files; `name` is a digest of their contents, so that changed files are other data."""

  files: TextFiles | None = None


class ParallelText(NumberedBuilder):
  """Lines of two files, or of two columns of a TSV.

  Where dev or test is not given, a hash of the source splits it off, see `split_off`.
  """

  VERSION = tfds.core.Version("1.0.0")
  DESCRIPTION = "A user's own parallel text."

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
    del dl_manager  # nothing to download
    files = self.builder_config.files
    parts: dict[str, _Pairs] = {}
    for split in ("train", "dev", "test"):
      if (given := getattr(files, split)) is not None:
        source, target = given
        read = textfiles.read_pairs(source, target, files.columns)
        if not read.pairs:
          raise DataError(f"{source} holds no pair of two lines that are not empty")
        parts[split] = read.pairs
        if read.left_out:
          self.info.metadata.setdefault("left_out", {})[split] = read.left_out
    parts = split_off(parts)
    return {split: self._generate_examples(pairs) for split, pairs in parts.items()}


def configuration(files: TextFiles) -> ParallelTextConfig:
  """Returns the builder's configuration for files, which it reads once to name their contents.

  Raises:
    DataError: a file cannot be read.
  """
  digest = hashlib.sha256(repr(files.columns).encode())
  for given in (files.train, files.dev, files.test):
    for file in given or ():
      try:
        content = b"" if file is None else pathlib.Path(file).read_bytes()
      except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}") from error
      digest.update(hashlib.sha256(content).digest())
    digest.update(b"|")
  return ParallelTextConfig(name=digest.hexdigest()[:16], description=TEXT, files=files)


def split_off(parts: dict[str, _Pairs]) -> dict[str, _Pairs]:
  """Returns train, dev and test, those of them that are missing split off train.

  A hash of the source decides, so that a source is in one of the splits only, and stays there
  when the file grows up to the size where a split has all it may: 5% of the pairs, or the share
  that makes about 2,000 of them.

  Raises:
    DataError: there are too few pairs to split one off.
  """
  pairs = parts["train"]
  share = min(_SHARE, _MOST / len(pairs))
  result: dict[str, _Pairs] = {"train": [], "dev": [], "test": []}
  for pair in pairs:
    digest = hashlib.sha256(pair[0].encode("utf-8")).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    split = "test" if place < share else "dev" if place < 2 * share else "train"
    result["train" if split in parts else split].append(pair)
  for split in ("dev", "test"):
    if split in parts:
      result[split] = parts[split]
    elif not result[split] or not result["train"]:
      raise DataError(
        f"{len(pairs):,} pairs are too few to split {split} off: give data.{split}_source"
      )
  return result
