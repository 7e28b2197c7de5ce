"""The configuration of one training run: model, data, optimizer, search, length."""

import dataclasses
from typing import Literal

from attn.data.config import DataConfig
from attn.decoding.config import SearchConfig
from attn.models.config import ModelConfig


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
  """How gradients become updates.

  Attributes:
    name: `adam`, or `adadelta` (Zeiler 2012; rho 0.95 and epsilon 1e-6 in Bahdanau 2015).
    learning_rate: the peak rate; adadelta's papers use 1.
    warmup: steps over which the rate rises linearly from 0.
    decay: `cosine` falls to 0 at the last step; `none` keeps the peak rate.
    clip_norm: gradients of a larger global norm are scaled down to it.
    rho: adadelta's decay of averages.
    epsilon: adadelta's or adam's epsilon.
  """

  name: Literal["adam", "adadelta"] = "adam"
  learning_rate: float = 1e-3
  warmup: int = 0
  decay: Literal["none", "cosine"] = "cosine"
  clip_norm: float = 1.0
  rho: float = 0.95
  epsilon: float = 1e-8

  def __post_init__(self) -> None:
    """Raises ValueError for a rate, norm or decay outside what it can be."""
    for name in ("clip_norm", "learning_rate", "epsilon"):
      if getattr(self, name) <= 0:
        raise ValueError(f"{name} is {getattr(self, name)}; it must be positive")
    if self.warmup < 0:
      raise ValueError(f"warmup is {self.warmup}; it must not be negative")
    if not 0 < self.rho < 1:
      raise ValueError(f"rho is {self.rho}; it must lie between 0 and 1")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
  """One training run; everything that its result depends on.

  Attributes:
    model: which member of the family, and its sizes.
    data: data set, batches and buckets.
    optimizer: how it learns.
    search: how it decodes when evaluated.
    steps: updates.
    seed: of parameters, data order and dropout.
    log_every: updates between lines of `metrics.jsonl`.
    validate_every: updates between losses on the dev split; None takes none.
    checkpoint_every: updates between checkpoints; a kill loses at most these.
  """

  model: ModelConfig = ModelConfig()
  data: DataConfig = DataConfig()
  optimizer: OptimizerConfig = OptimizerConfig()
  search: SearchConfig = SearchConfig()
  steps: int = 10_000
  seed: int = 0
  log_every: int = 100
  validate_every: int | None = 1000
  checkpoint_every: int = 1000

  def __post_init__(self) -> None:
    """Raises ValueError for a count below 1, or a seed that does not fit 32 bits."""
    for name in ("steps", "log_every", "validate_every", "checkpoint_every"):
      count = getattr(self, name)
      if count is not None and count < 1:
        raise ValueError(f"{name} is {count}; it must be at least 1")
    # jax would take another's lower half for its own, and with it give the same run.
    if not 0 <= self.seed < 2**32:
      raise ValueError(f"seed is {self.seed}; it must lie from 0 to {2**32 - 1}")
