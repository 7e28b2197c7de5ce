"""The papers' full recipes and small ones for a laptop, by name."""

import dataclasses
from typing import NamedTuple

from attn import configs
from attn.data.config import DataConfig
from attn.decoding.config import SearchConfig
from attn.models import ModelConfig, parameter_count
from attn.training.config import OptimizerConfig, TrainConfig

# Bahdanau 2015, appendix B.2: Adadelta, gradient norm at most 1, minibatches of 80. The paper does
# not say how many beams; its successors used 10 or 12.
_PAPER = TrainConfig(
  model=ModelConfig(source_vocabulary=30_000, target_vocabulary=30_000),
  data=DataConfig(batch_size=80, bucket_edges=(8, 16, 24, 32, 40, 51)),
  optimizer=OptimizerConfig(
    name="adadelta", learning_rate=1.0, decay="none", clip_norm=1.0, rho=0.95, epsilon=1e-6
  ),
  search=SearchConfig(beam=12, alpha=1.0, ratio=3.0, extra=1),
  steps=288_000,
)

_LAPTOP = TrainConfig(
  model=ModelConfig(
    embedding=128,
    units=256,
    alignment=128,
    maxout=128,
    biases=True,
    initialisation="glorot",
    dropout=0.2,
  ),
  # Words of g2p are short: narrow buckets where most lengths lie keep padding to 14%.
  data=DataConfig(bucket_edges=(7, 8, 9, 10, 12, 15, 36)),
  optimizer=OptimizerConfig(learning_rate=2e-3, warmup=500, clip_norm=1.0),
  steps=10_000,
)
_LONG = dataclasses.replace(
  _LAPTOP, model=dataclasses.replace(_LAPTOP.model, dropout=0.3), steps=20_000
)


class Preset(NamedTuple):
  """A recipe and where it comes from.

  Attributes:
    name: what `--preset` calls it.
    paper: whose model it is.
    follows: what its settings follow.
    config: the recipe.
  """

  name: str
  paper: str
  follows: str
  config: TrainConfig


def _without_attention(config: TrainConfig) -> TrainConfig:
  model = dataclasses.replace(config.model, score="none", encoder="forward")
  return dataclasses.replace(config, model=model)


_ALL = (
  Preset("rnnsearch", "Bahdanau 2015", "RNNsearch-50: sizes A.2.3, training B.2", _PAPER),
  Preset(
    "rnnencdec",
    "Bahdanau 2015",
    "RNNencdec-50: A.2.2 with c_i = h_T, training B.2",
    dataclasses.replace(_without_attention(_PAPER), steps=600_000),
  ),
  Preset("rnnsearch_laptop", "Bahdanau 2015", "RNNsearch, small, Adam, 14 minutes on g2p", _LAPTOP),
  Preset("rnnsearch_laptop_long", "Bahdanau 2015", "the same, more updates and dropout", _LONG),
  Preset(
    "rnnencdec_laptop",
    "Bahdanau 2015",
    "RNNencdec, small, Adam",
    _without_attention(_LAPTOP),
  ),
)


def names() -> tuple[str, ...]:
  """All presets."""
  return tuple(preset.name for preset in _ALL)


def get(name: str) -> TrainConfig:
  """The recipe called `name`.

  Raises:
    ConfigError: there is none of that name (the nearest are shown).
  """
  for preset in _ALL:
    if preset.name == name:
      return preset.config
  raise configs.ConfigError(f"no preset {name!r}{configs.nearest(name, names())}")


class Description(NamedTuple):
  """A row of the table of presets; `parameters` is None where the data decides the vocabulary."""

  name: str
  paper: str
  follows: str
  parameters: int | None


def describe() -> tuple[Description, ...]:
  """A row for each preset. Counts parameters without allocating any."""
  rows = []
  for name, paper, follows, config in _ALL:
    sized = config.model.source_vocabulary is not None
    rows.append(Description(name, paper, follows, parameter_count(config.model) if sized else None))
  return tuple(rows)
