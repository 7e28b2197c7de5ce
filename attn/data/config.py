"""What a training reads and how it is cut into batches."""

from dataclasses import dataclass
from typing import Final

from attn.configs import ConfigError
from attn.data.vocabulary import Level

TEXT: Final = "parallel_text"  # the data set of a user's own files
_COLUMNS: Final = (1, 2)


@dataclass(frozen=True)
class TextFiles:
  """A user's files: for each split two of them, line by line a pair, or one TSV and None.

  Attributes:
    train: what to train on.
    dev: None splits it off `train`.
    test: None splits it off `train`.
    columns: of a TSV, source and target, counted from 1.
  """

  train: tuple[str, str | None]
  dev: tuple[str, str | None] | None = None
  test: tuple[str, str | None] | None = None
  columns: tuple[int, int] = _COLUMNS


@dataclass(frozen=True)
class DataConfig:
  """The data of a training.

  Attributes:
    name: a data set of `attn.data.catalog.names()`.
    data_dir: where prepared data sets lie.
    limit: use only the first so many training pairs of the prepared order, which TFDS has
      shuffled once and for all; None uses all.
    batch_size: rows of every batch.
    bucket_edges: lengths that batches are padded to, ascending from 2 (a symbol and EOS) on. A
      pair belongs to the first edge that holds its longer side, EOS counted, and both sides are
      padded to it; training leaves out pairs beyond the last edge.
    batch_tokens: instead of `batch_size` rows, as many as fit into so many positions a side: rows
      times the length padded to.
    workers: processes that make batches ahead of the training; 0 makes them in it.
    source: of `parallel_text`, the file of the sources, a line each, or a TSV of both sides. Files
      may be compressed by gzip or xz.
    target: of `parallel_text`, the file of the targets; None if `source` is a TSV.
    dev_source: the same of development pairs; None splits them off by a hash of the source.
    dev_target: the same.
    test_source: the same of test pairs.
    test_target: the same.
    columns: which columns of a TSV are source and target, counted from 1.
    source_level: what a symbol of the source is (`attn.data.vocabulary.Vocabulary`); None leaves
      it to the data set.
    target_level: the same of the target.
    source_size: most ids of the source vocabulary, the four reserved ones counted; rarer symbols
      become UNK. None takes all symbols, or 8,000 pieces.
    target_size: the same of the target.
    swap: what the data set has as targets is translated into what it has as sources. All the
      fields above name the sides as they are translated, but for `source` and `target`, which
      are files, and `columns`.
  """

  name: str = "g2p"
  data_dir: str = "data"
  limit: int | None = None
  batch_size: int = 128
  bucket_edges: tuple[int, ...] = (8, 12, 16, 24, 36)
  batch_tokens: int | None = None
  workers: int = 0
  source: str | None = None
  target: str | None = None
  dev_source: str | None = None
  dev_target: str | None = None
  test_source: str | None = None
  test_target: str | None = None
  columns: tuple[int, int] = _COLUMNS
  source_level: Level | None = None
  target_level: Level | None = None
  source_size: int | None = None
  target_size: int | None = None
  swap: bool = False

  def __post_init__(self) -> None:
    """Raises ConfigError for what cannot be."""
    if self.limit is not None and self.limit < 1:
      raise ConfigError(f"limit must be at least 1 or none, not {self.limit}")
    if self.batch_size < 1:
      raise ConfigError(f"batch_size must be at least 1, not {self.batch_size}")
    edges = self.bucket_edges
    if not edges or edges[0] < 2 or list(edges) != sorted(set(edges)):
      raise ConfigError(f"bucket_edges must be ascending lengths from 2 on, not {edges}")
    if self.batch_tokens is not None and self.batch_tokens < edges[-1]:
      raise ConfigError(f"batch_tokens must hold a row of {edges[-1]}, not {self.batch_tokens}")
    if self.workers < 0:
      raise ConfigError(f"workers must be at least 0, not {self.workers}")
    for side in ("source", "target"):
      size = getattr(self, f"{side}_size")
      if size is not None and size < 5:
        raise ConfigError(f"{side}_size must be at least 5, a symbol and four reserved, not {size}")
    self._check_files()

  def _check_files(self) -> None:
    files = {
      prefix: (getattr(self, f"{prefix}source"), getattr(self, f"{prefix}target"))
      for prefix in ("", "dev_", "test_")
    }
    for prefix, (source, target) in files.items():
      if source is not None and self.name != TEXT:
        raise ConfigError(f"{prefix}source is for name={TEXT}, not {self.name}")
      if target is not None and source is None:
        raise ConfigError(f"{prefix}target is given without {prefix}source")
    tables = [source for source, target in files.values() if source and not target]
    if self.columns != _COLUMNS and not tables:
      raise ConfigError("columns are those of a TSV: a source without a target")
    if min(self.columns) < 1:
      raise ConfigError(f"columns are counted from 1, not {self.columns}")

  def files(self) -> TextFiles | None:
    """Returns the user's files, or None where the data set has none.

    Raises:
      ConfigError: they are needed and missing.
    """
    if self.name != TEXT:
      return None
    if self.source is None:
      raise ConfigError(
        f"{TEXT} is a user's own text: give data.source=FILE and data.target=FILE, or a TSV as"
        " data.source alone"
      )
    return TextFiles(
      (self.source, self.target),
      None if self.dev_source is None else (self.dev_source, self.dev_target),
      None if self.test_source is None else (self.test_source, self.test_target),
      self.columns,
    )
