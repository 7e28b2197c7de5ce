"""From the configuration of a training to its texts and vocabularies."""

import contextlib
import hashlib
import importlib.metadata
import pathlib

from attn.data import catalog
from attn.data.catalog import Corpus
from attn.data.config import DataConfig
from attn.data.vocabulary import PIECES, Level, Vocabulary


def load(data: DataConfig, split: str) -> Corpus:
  """Returns a split of the data of a training, prepared first if it is not.

  Only `train` is cut to `data.limit`. The sides are swapped if asked for, their links too.

  Raises:
    ConfigError: the data set needs files that are not given.
    DataError: the data cannot be had.
  """
  limit = data.limit if split == "train" else None
  corpus = catalog.load(data.name, split, data.data_dir, limit, data.files())
  if not data.swap:
    return corpus
  turned = (
    None if links is None else tuple(pairs[:, ::-1].copy() for pairs in links)
    for links in (corpus.alignments, corpus.possible)
  )
  return Corpus(corpus.targets, corpus.sources, *turned)


def vocabularies(data: DataConfig, train: Corpus) -> tuple[Vocabulary, Vocabulary]:
  """Returns the source and the target vocabulary that a training on `train` has.

  Raises:
    DataError: pieces of words cannot be learned from these texts.
  """
  source_level, target_level = catalog.levels(data.name)[:: -1 if data.swap else 1]
  folder = pathlib.Path(data.data_dir)
  return (
    _vocabulary(train.sources, data.source_level or source_level, data.source_size, folder),
    _vocabulary(train.targets, data.target_level or target_level, data.target_size, folder),
  )


def _vocabulary(
  texts: tuple[str, ...], level: Level, size: int | None, folder: pathlib.Path
) -> Vocabulary:
  """Returns a vocabulary; pieces, which take long to learn, are kept for the runs to come."""
  if level not in PIECES:
    return Vocabulary.build(texts, level, size)
  digest = hashlib.sha256(f"{level} {size} {importlib.metadata.version('sentencepiece')}".encode())
  for text in texts:
    digest.update(f"\n{text}".encode())
  path = folder / "vocabularies" / f"{digest.hexdigest()[:16]}.json"
  with contextlib.suppress(OSError, ValueError):  # not there, or damaged
    return Vocabulary.load(path)
  vocabulary = Vocabulary.build(texts, level, size)
  with contextlib.suppress(OSError):  # a data directory may be read-only: then each run learns
    path.parent.mkdir(parents=True, exist_ok=True)
    vocabulary.save(path)
  return vocabulary
