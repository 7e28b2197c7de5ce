"""How a trained model is searched."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class SearchConfig:
  """Beam search settings.

  Attributes:
    beam: hypotheses kept; 1 is greedy search.
    alpha: a hypothesis scores log p / length^alpha, its length counting EOS; 0 is the plain
      log-probability, 1 the average of a symbol.
    ratio: a hypothesis has at most `ratio` times the source's symbols, plus `extra`.
    extra: see `ratio`.
  """

  beam: int = 5
  alpha: float = 1.0
  ratio: float = 2.0
  extra: int = 10

  def __post_init__(self) -> None:
    """Raises ValueError for a beam below 1, an alpha below 0, or limits without room."""
    if self.beam < 1:
      raise ValueError(f"beam is {self.beam}; it must be at least 1 (1 is greedy search)")
    if self.alpha < 0:  # the bound that ends the search would not hold
      raise ValueError(f"alpha is {self.alpha}; it must not be negative")
    if self.ratio < 0 or self.extra < 1:
      raise ValueError(f"ratio {self.ratio} must not be negative, extra {self.extra} not below 1")

  def limit(self, source_length: int) -> int:
    """The most target symbols for a source of `source_length`, EOS counted in both."""
    return int(self.ratio * source_length) + self.extra
