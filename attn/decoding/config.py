"""How a trained model is searched."""

import dataclasses
from typing import Literal

from attn.data.vocabulary import EOS, UNK

_MOST = 1_000_000  # longer translations, or wider beams, than any machine has room for


@dataclasses.dataclass(frozen=True)
class SearchConfig:
  """Beam search settings. Every length counts EOS.

  Attributes:
    beam: hypotheses kept; 1 is greedy search.
    alpha: a hypothesis scores log p / length^alpha; 0 is the plain log-probability, 1 the average
      of a symbol.
    normalisation: `power`, or `gnmt`: log p / ((5 + length) / 6)^alpha (Wu 2016, Eq. 14).
    coverage: beta of Wu's coverage penalty, added to the score of a hypothesis that ends:
      beta sum_i log(min(sum_j p_ij, 1)) over the source positions that may be attended to.
    minimum_length: fewest target symbols of a hypothesis; a limit below it cuts all the same.
    forbidden: target ids that are never emitted; PAD and BOS never are.
    ensemble: what is averaged of several models: `probabilities`, or their `logits` (Luong's code),
      which is to say their log-probabilities.
    ratio: a hypothesis has at most `ratio` times the source's symbols, plus `extra`.
    extra: see `ratio`.
  """

  beam: int = 5
  alpha: float = 1.0
  normalisation: Literal["power", "gnmt"] = "power"
  coverage: float = 0.0
  minimum_length: int = 1
  forbidden: tuple[int, ...] = (UNK,)
  ensemble: Literal["probabilities", "logits"] = "probabilities"
  ratio: float = 2.0
  extra: int = 10

  def __post_init__(self) -> None:
    """Raises ValueError for a setting out of its range."""
    bounds = {
      "beam": (1, _MOST, "1 is greedy search"),
      "alpha": (0, 10, "0 is the log-probability"),  # beyond, scores of float32 are all equal
      "coverage": (0, 1e6, "0 is no penalty"),  # or scores are infinite
      "minimum_length": (1, _MOST, "it counts EOS, so 1 is no minimum"),
    }
    for name, (least, most, told) in bounds.items():
      if not least <= getattr(self, name) <= most:
        raise ValueError(
          f"{name} is {getattr(self, name)}; it must be from {least} to {most:,.0f} ({told})"
        )
    if wrong := [token for token in self.forbidden if token < 0 or token == EOS]:
      raise ValueError(f"forbidden has {wrong[0]}; it takes ids, and not that of EOS ({EOS})")
    if self.ratio < 0 or self.extra < 1:
      raise ValueError(f"ratio {self.ratio} must not be negative, extra {self.extra} not below 1")
    if max(self.ratio, self.extra) > _MOST:
      raise ValueError(f"ratio {self.ratio:g} and extra {self.extra} must not be above {_MOST:,}")

  def limit(self, source_length: int) -> int:
    """The most target symbols for a source of `source_length`, EOS counted in both."""
    return int(self.ratio * source_length) + self.extra
