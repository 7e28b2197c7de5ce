"""The configuration of one training run: model, data, objective, optimizer, search, length."""

import dataclasses
from typing import Literal

from attn.data.config import DataConfig
from attn.decoding.config import SearchConfig
from attn.models.config import ModelConfig


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
  """How gradients become updates.

  Attributes:
    name: `adam`; `adadelta` (Zeiler 2012; rho 0.95 and epsilon 1e-6 in Bahdanau 2015); or `sgd`
      without momentum (Sutskever 2014, Luong 2015).
    learning_rate: the peak rate; adadelta's papers use 1.
    warmup: steps over which the rate rises linearly from 0.
    decay: `linear` and `cosine` fall from the end of the warm-up to 0 at the last step; `halving`
      halves the rate as the next two fields say; `none` keeps it.
    halve_after: epochs before the first halving: 5 in Sutskever 2014 and Luong 2015, 8 in the
      latter with dropout; its code halves an epoch later than the paper says.
    halve_every: epochs from one halving to the next: 0.5 in Sutskever 2014, 1 in Luong 2015.
    epoch: updates an epoch, by which `halving` counts; None takes the data's.
    clip_norm: gradients of a larger global norm are scaled down to it; None leaves them.
    clip_embeddings: whether the embeddings' gradients count in that norm. Luong's code leaves them
      out; they are scaled with the others either way.
    average: decay of a moving average of the parameters, which then serves wherever the model is
      used; None uses the parameters of the last update.
    rho: adadelta's decay of averages.
    epsilon: adadelta's or adam's epsilon.
  """

  name: Literal["adam", "adadelta", "sgd"] = "adam"
  learning_rate: float = 1e-3
  warmup: int = 0
  decay: Literal["none", "linear", "cosine", "halving"] = "cosine"
  halve_after: float | None = None
  halve_every: float | None = None
  epoch: int | None = None
  clip_norm: float | None = 1.0
  clip_embeddings: bool = True
  average: float | None = None
  rho: float = 0.95
  epsilon: float = 1e-8

  def __post_init__(self) -> None:
    """Raises ValueError for a rate, norm or decay outside what it can be."""
    for name in ("clip_norm", "learning_rate", "epsilon", "halve_every"):
      value = getattr(self, name)
      if value is not None and value <= 0:
        raise ValueError(f"{name} is {value}; it must be positive")
    if self.warmup < 0:
      raise ValueError(f"warmup is {self.warmup}; it must not be negative")
    for name in ("rho", "average"):
      value = getattr(self, name)
      if value is not None and not 0 < value < 1:
        raise ValueError(f"{name} is {value}; it must lie between 0 and 1")
    if self.epoch is not None and self.epoch < 1:
      raise ValueError(f"epoch is {self.epoch}; it must be at least 1")
    self._check_halving()
    if self.clip_norm is None and not self.clip_embeddings:
      raise ValueError("clip_embeddings=false needs a clip_norm")

  def _check_halving(self) -> None:
    given = [n for n in ("halve_after", "halve_every", "epoch") if getattr(self, n) is not None]
    if self.decay != "halving" and given:
      raise ValueError(f"{given[0]} belongs to decay=halving, not to decay={self.decay}")
    if self.decay == "halving" and not {"halve_after", "halve_every"} <= set(given):
      raise ValueError("decay=halving needs halve_after and halve_every, in epochs")
    if self.halve_after is not None and self.halve_after < 0:
      raise ValueError(f"halve_after is {self.halve_after}; it must not be negative")


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig:
  """What is minimised, and how its gradient is computed.

  Attributes:
    per: what the gradient is a mean over, padding never counted: each `symbol`; each `sentence`
      (the g/128 of Sutskever 2014 and Luong 2015); or the whole `batch` as one sum, which
      Bahdanau's code clips. Reported losses are per symbol always.
    label_smoothing: share of each label's probability spread evenly over all symbols that can be
      labels, that is all but PAD and BOS. Validation is without it.
    sampling: share of previous words that the decoder draws from its own distribution by the last
      update in place of the true ones (scheduled sampling); it rises linearly from 0.
    micro_batches: parts that a batch is cut into; their gradients are summed before the update, so
      that memory is that of a part and the update that of the batch.
    compute: type of activations and their gradients in training. Parameters, optimizer, losses
      and validation stay in float32.
  """

  per: Literal["symbol", "sentence", "batch"] = "symbol"
  label_smoothing: float = 0.0
  sampling: float = 0.0
  micro_batches: int = 1
  compute: Literal["float32", "bfloat16"] = "float32"

  def __post_init__(self) -> None:
    """Raises ValueError for a share outside its range, or no parts."""
    if not 0 <= self.label_smoothing < 1:
      raise ValueError(f"label_smoothing is {self.label_smoothing}; it must be in [0, 1)")
    if not 0 <= self.sampling <= 1:
      raise ValueError(f"sampling is {self.sampling}; it must be in [0, 1]")
    if self.micro_batches < 1:
      raise ValueError(f"micro_batches is {self.micro_batches}; it must be at least 1")


PLAIN = ObjectiveConfig()


@dataclasses.dataclass(frozen=True)
class TrainConfig:
  """One training run; everything that its result depends on.

  Attributes:
    model: which member of the family, and its sizes.
    data: data set, batches and buckets.
    objective: what is minimised.
    optimizer: how it learns.
    search: how it decodes when evaluated.
    steps: updates.
    seed: of parameters, data order, dropout and sampling.
    log_every: updates between lines of `metrics.jsonl`.
    validate_every: updates between losses on the dev split; None takes none.
    checkpoint_every: updates between checkpoints; a kill loses at most these.
    keep_last: checkpoints that stay, the newest ones.
    keep_best: checkpoints of lowest dev loss that stay besides. If any, each validation that is
      among the best makes one, and the best of all is the trained model.
    patience: validations in a row without a lower dev loss after which the run ends; None always
      takes all steps.
  """

  model: ModelConfig = ModelConfig()
  data: DataConfig = DataConfig()
  objective: ObjectiveConfig = ObjectiveConfig()
  optimizer: OptimizerConfig = OptimizerConfig()
  search: SearchConfig = SearchConfig()
  steps: int = 10_000
  seed: int = 0
  log_every: int = 100
  validate_every: int | None = 1000
  checkpoint_every: int = 1000
  keep_last: int = 2
  keep_best: int = 0
  patience: int | None = None

  def __post_init__(self) -> None:
    """Raises ValueError for a count below 1, a seed beyond 32 bits, or what cannot go together."""
    for name in (
      "steps",
      "log_every",
      "validate_every",
      "checkpoint_every",
      "keep_last",
      "patience",
    ):
      count = getattr(self, name)
      if count is not None and count < 1:
        raise ValueError(f"{name} is {count}; it must be at least 1")
    if self.keep_best < 0:
      raise ValueError(f"keep_best is {self.keep_best}; it must not be negative")
    if self.validate_every is None and (self.keep_best or self.patience):
      raise ValueError("keep_best and patience need validate_every: they go by the dev loss")
    # jax would take another's lower half for its own, and with it give the same run.
    if not 0 <= self.seed < 2**32:
      raise ValueError(f"seed is {self.seed}; it must lie from 0 to {2**32 - 1}")
    if self.data.batch_size % self.objective.micro_batches:
      raise ValueError(
        f"a batch of {self.data.batch_size} rows cannot be cut into"
        f" objective.micro_batches={self.objective.micro_batches} equal parts"
      )
    if self.data.batch_tokens is not None and self.objective.micro_batches > 1:
      raise ValueError("objective.micro_batches needs batches of data.batch_size, not of tokens")
    if self.objective.sampling and self.model.dropout:
      raise ValueError("objective.sampling needs model.dropout=0: its steps drop no units")
