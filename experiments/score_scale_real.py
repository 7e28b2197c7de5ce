"""Scores of trained models for `experiments.score_scale`: have LSTM states unit variance?

Luong's model with the unscaled dot score, whose queries are the decoder's states and whose keys are
the encoder's, at several widths d. Both are bounded by 1, as o tanh(c) is.
"""

import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import attn
from attn import configs
from attn.data import catalog, pipeline
from attn.data.config import DataConfig
from attn.data.vocabulary import BOS
from attn.models import ModelConfig, bind, init
from attn.models.functional import Params
from attn.training import OptimizerConfig, TrainConfig, Trained
from experiments import workers

TRAIN = TrainConfig(
  model=ModelConfig(
    cell="lstm",
    encoder="forward",
    order="luong",
    score="dot",
    initial_state="all_layers",
    readout="tanh",
    embedding=32,
    units=64,
    maxout=64,
    biases=True,
    initialisation="glorot",
  ),
  data=DataConfig(name="reverse", batch_size=64, bucket_edges=(22,)),
  optimizer=OptimizerConfig(learning_rate=5e-3, warmup=50),
  steps=500,
  validate_every=None,
  checkpoint_every=1000,
)

TIMES = ("before", "after")
_SENTENCES = 128


class State(NamedTuple):
  """What the scores of a model are made of, over test sentences along their references.

  Attributes:
    query: variance of a component of the queries, mean over components.
    keys: the same of the keys.
    scores: variance of a query's scores over its keys, median over queries.
    largest: largest weight of a query, median.
    right: letters predicted along the reference, %.
  """

  query: float
  keys: float
  scores: float
  largest: float
  right: float


Real = dict[int, dict[str, list[State]]]  # width to `before` and `after` to a seed an entry


def measure_all(
  train: TrainConfig, widths: Sequence[int], seeds: Sequence[int], folder: pathlib.Path
) -> Real:
  """Trains a model at each width with each seed, and measures it before and after."""
  cells = {
    f"units-{width}": configs.override(train, {"model.units": width, "model.maxout": width})
    for width in widths
  }
  found = workers.grid(cells, seeds, folder, measure)
  return {
    width: {time: [State(**one[time]) for one in runs] for time in TIMES}
    for width, runs in zip(widths, found.values(), strict=True)
  }


def measure(trained: Trained, label: str) -> Mapping[str, Any]:
  """The states of a trained model, and of one with fresh parameters of the same seed."""
  del label  # It takes a moment: there is no progress to show.
  config, data = trained.config.model, trained.config.data
  corpus = catalog.load(data.name, "test", data.data_dir, _SENTENCES)
  store = pipeline.TokenStore.encode(corpus, trained.source, trained.target)
  edges = data.bucket_edges
  (batch,) = pipeline.evaluation_batches(store, batch_size=_SENTENCES, edges=edges[-1:])
  fresh = init(config, jax.random.key(trained.config.seed))
  both = zip(TIMES, (fresh, trained.params), strict=True)
  return {time: _state(config, params, batch)._asdict() for time, params in both}


def _state(config: ModelConfig, params: Params, batch: pipeline.Batch) -> State:
  queries, keys, variances, largest, right, mask, real = map(
    np.asarray, _along(config, params, batch)
  )
  return State(
    query=float(queries[real].var(0).mean()),
    keys=float(keys[mask].var(0).mean()),
    scores=float(np.median(variances[real])),
    largest=float(np.median(largest[real])),
    right=float(100 * right[real].mean()),
  )


@functools.partial(jax.jit, static_argnames="config")
def _along(config: ModelConfig, params: Params, batch: pipeline.Batch) -> tuple[jax.Array, ...]:
  """What each step along the references reads with, and from what; steps lead."""
  model = bind(config, params)
  memory = model.encode(batch["source"], batch["source_length"])
  previous = jnp.pad(batch["target"][:, :-1], ((0, 0), (1, 0)), constant_values=BOS)

  def step(state: Any, words: jax.Array) -> tuple[Any, tuple[jax.Array, ...]]:
    log_probabilities, made = model.step(memory, state, words)
    variance = attn.logit_variance(made.scores, memory.mask)
    largest = attn.max_weight(made.weights)
    return made.state, (made.query, variance, largest, log_probabilities.argmax(-1))

  _, (queries, variances, largest, words) = jax.lax.scan(step, model.start(memory), previous.T)
  real = jnp.arange(previous.shape[1])[:, None] < batch["target_length"]
  right = words == batch["target"].T
  return queries, memory.annotations, variances, largest, right, memory.mask, real
