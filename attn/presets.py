"""The papers' full recipes and small ones for a laptop, by name."""

import dataclasses
from typing import Any, NamedTuple

from attn import configs
from attn.data.config import DataConfig
from attn.decoding.config import SearchConfig
from attn.models import ModelConfig, parameter_count
from attn.training.config import ObjectiveConfig, OptimizerConfig, TrainConfig

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

# Sentences of a small corpus, in pieces of words.
_SENTENCES = dataclasses.replace(
  _LAPTOP,
  model=dataclasses.replace(
    _LAPTOP.model,
    alignment=256,
    maxout=256,
    order="luong",
    readout="tanh",
    cell="gru_cudnn",
    input_feeding="readout",
  ),
  data=DataConfig(
    batch_size=64, bucket_edges=(8, 12, 16, 20, 26, 32, 41), source_size=4000, target_size=4000
  ),
  optimizer=OptimizerConfig(learning_rate=2e-3, warmup=100, clip_norm=1.0),
  steps=1_200,
)

# The authors' code, GroundHog: what it does otherwise than the paper, and UNK counted.
_GROUNDHOG = dataclasses.replace(
  _PAPER,
  model=ModelConfig(
    source_vocabulary=30_001,
    target_vocabulary=30_001,
    order="groundhog",
    biases="groundhog",
    output_width=620,
    first_word="zeros",
  ),
  objective=ObjectiveConfig(per="batch"),
)

# Cho 2014 (1406.1078), 4.1: 15,000 words and UNK, embeddings and output matrix of rank 100. The
# paper trains for about three days and does not say how many updates.
_CHO = TrainConfig(
  model=ModelConfig(
    source_vocabulary=15_001,
    target_vocabulary=15_001,
    embedding=100,
    encoder="forward",
    score="none",
    cell="gru_cho",
    project_summary=True,
    output_width=100,
  ),
  data=DataConfig(batch_size=64, bucket_edges=(4, 8, 16, 31)),
  optimizer=dataclasses.replace(_PAPER.optimizer, clip_norm=None),
  search=SearchConfig(beam=10, alpha=1.0, ratio=3.0, extra=1),
  steps=300_000,
)

# Sutskever 2014, 3.4: 12 million pairs in batches of 128 for 7.5 epochs. The paper states no
# longest sentence. The decoder's first symbol stands for the EOS that ends the source there.
_SUTSKEVER = TrainConfig(
  model=ModelConfig(
    source_vocabulary=160_000,
    target_vocabulary=80_000,
    embedding=1000,
    encoder="forward",
    score="none",
    initialisation="sutskever",
    cell="lstm",
    layers=4,
    reverse_source=True,
    source_eos=False,
    order="luong",
    context="none",
    readout="state",
    initial_state="all_layers",
  ),
  data=DataConfig(batch_size=128, bucket_edges=(10, 20, 30, 40, 50, 80)),
  objective=ObjectiveConfig(per="sentence"),
  optimizer=OptimizerConfig(
    name="sgd", learning_rate=0.7, decay="halving", halve_after=5, halve_every=0.5, clip_norm=5.0
  ),
  search=SearchConfig(beam=12, alpha=0.0, ratio=2.0, extra=10),
  steps=703_125,
)

# Luong 2015, 4.1: 4.5 million pairs of at most 50 words in batches of 128; 10 epochs, the rate
# halved each epoch after 5, or with dropout 12, after 8. By the authors' code there are no biases,
# no EOS of a source is read, and embeddings do not count in the norm.
_LUONG_BASE = TrainConfig(
  model=dataclasses.replace(
    _SUTSKEVER.model,
    source_vocabulary=50_000,
    target_vocabulary=50_000,
    maxout=1000,
    initialisation="luong",
    reverse_source=False,
  ),
  data=DataConfig(batch_size=128, bucket_edges=(8, 16, 24, 32, 40, 51)),
  objective=ObjectiveConfig(per="sentence"),
  optimizer=OptimizerConfig(
    name="sgd",
    learning_rate=1.0,
    decay="halving",
    halve_after=5,
    halve_every=1,
    clip_norm=5.0,
    clip_embeddings=False,
  ),
  search=SearchConfig(beam=12, alpha=0.0, ratio=1.5, extra=1),
  steps=351_562,
)


def _luong(score: str, **choices: Any) -> TrainConfig:
  """Luong's models with attention: reversed sources and dropout, as from row 3 of Table 1 on."""
  choices = {"score": score, "context": "readout", "readout": "tanh", "dropout": 0.2, **choices}
  model = dataclasses.replace(_LUONG_BASE.model, reverse_source=True, **choices)
  optimizer = dataclasses.replace(_LUONG_BASE.optimizer, halve_after=8)
  return dataclasses.replace(_LUONG_BASE, model=model, optimizer=optimizer, steps=421_875)


def _fed(score: str, **choices: Any) -> TrainConfig:
  return _luong(score, input_feeding="readout", **choices)


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
  Preset(
    "rnnsearch_groundhog",
    "Bahdanau 2015",
    "the authors' code: y_i enters s_i, t_i from s_{i-1}, its biases and low-rank output",
    _GROUNDHOG,
  ),
  Preset("cho2014", "Cho 2014", "RNN Encoder-Decoder: 4.1.1, vector fed each step", _CHO),
  Preset(
    "sutskever2014",
    "Sutskever 2014",
    "3.4: four LSTMs of 1000, source reversed, vector as first state",
    _SUTSKEVER,
  ),
  Preset("luong2015_base", "Luong 2015", "Table 1, Base: no attention", _LUONG_BASE),
  Preset("luong2015_location", "Luong 2015", "Table 1, global (location)", _luong("location")),
  Preset("luong2015_location_feed", "Luong 2015", "the same with input feeding", _fed("location")),
  Preset("luong2015_dot_feed", "Luong 2015", "Table 4, global (dot)", _fed("dot")),
  Preset("luong2015_general_feed", "Luong 2015", "Table 4, global (general)", _fed("general")),
  Preset(
    "luong2015_concat_feed", "Luong 2015", "3.1, concat with a W_a of 2n columns", _fed("concat")
  ),
  Preset(
    "luong2015_concat_released_feed",
    "Luong 2015",
    "footnote 15 and the authors' code: v_a tanh(h_s + W_a h_t)",
    _fed("concat_released"),
  ),
  Preset(
    "luong2015_local_m_general",
    "Luong 2015",
    "Table 4, local-m (general)",
    _fed("general", window="local_m"),
  ),
  Preset(
    "luong2015_local_p_dot", "Luong 2015", "Table 4, local-p (dot)", _fed("dot", window="local_p")
  ),
  Preset(
    "luong2015_local_p_general",
    "Luong 2015",
    "Table 4, local-p (general)",
    _fed("general", window="local_p"),
  ),
  Preset("rnnsearch_laptop", "Bahdanau 2015", "RNNsearch, small, Adam, 14 minutes on g2p", _LAPTOP),
  Preset("rnnsearch_laptop_long", "Bahdanau 2015", "the same, more updates and dropout", _LONG),
  Preset(
    "luong_laptop",
    "Luong 2015",
    "input feeding with an additive score, GRUs, small, Adam, for sentences",
    _SENTENCES,
  ),
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
