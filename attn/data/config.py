"""What a training reads and how it is cut into batches."""

from dataclasses import dataclass

from attn.configs import ConfigError


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
  """

  name: str = "g2p"
  data_dir: str = "data"
  limit: int | None = None
  batch_size: int = 128
  bucket_edges: tuple[int, ...] = (8, 12, 16, 24, 36)

  def __post_init__(self) -> None:
    """Raises ConfigError for what cannot be."""
    if self.limit is not None and self.limit < 1:
      raise ConfigError(f"limit must be at least 1 or none, not {self.limit}")
    if self.batch_size < 1:
      raise ConfigError(f"batch_size must be at least 1, not {self.batch_size}")
    edges = self.bucket_edges
    if not edges or edges[0] < 2 or list(edges) != sorted(set(edges)):
      raise ConfigError(f"bucket_edges must be ascending lengths from 2 on, not {edges}")
