"""attn as `experiments.training_benchmark` times it: its update as the training loop calls it."""

import collections
import dataclasses
import functools
import importlib.metadata
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval
from jaxtyping import Array

from attn import models
from attn.data import corpora, pipeline
from attn.data.config import DataConfig
from attn.data.vocabulary import EOS
from attn.models import ModelConfig, bind
from attn.models.functional import Params
from attn.training import objective, state
from attn.training.config import PLAIN, OptimizerConfig
from attn.training.devices import Devices
from attn.training.state import StepMetrics
from experiments.training_benchmark_work import (
  ADDITIVE_FED,
  CLIP_NORM,
  GENERAL,
  LEARNING_RATE,
  Batches,
  Sizes,
  Updates,
  best_rate,
)

_STEPS = 1_000_000  # of a run: no learning rate depends on it here
_OPTIMIZER = OptimizerConfig(
  name="adam", learning_rate=LEARNING_RATE, decay="none", clip_norm=CLIP_NORM
)


def configured(model: str, sizes: Sizes) -> ModelConfig:
  """The member of the family that computes what the other system does."""
  additive = model == ADDITIVE_FED
  return ModelConfig(
    source_vocabulary=sizes.vocabulary,
    target_vocabulary=sizes.vocabulary,
    embedding=sizes.embedding,
    units=sizes.units,
    alignment=sizes.units,
    maxout=sizes.units,
    cell="gru_cudnn",
    biases=True,
    initialisation="glorot",
    encoder="bidirectional" if additive else "forward",
    # JoeyNMT's bridge is a layer too, as wide: of the last states, where this is of the mean.
    initial_state="mean" if additive else "last",
    score="additive" if additive else "general",
    order="luong",
    readout="tanh",
    input_feeding="none" if model == GENERAL else "readout",
  )


class Product(NamedTuple):
  """A matrix product of a program: `dot_general` of two shapes."""

  left: tuple[int, ...]
  right: tuple[int, ...]
  dimensions: Any  # as `dot_general` takes them

  @property
  def flops(self) -> int:
    """Two for each multiply-add."""
    (contracted, right_contracted), (_, batch) = self.dimensions
    kept = set(range(len(self.right))) - {*right_contracted, *batch}
    return 2 * math.prod(self.left) * math.prod(self.right[axis] for axis in kept)

  def seconds(self, calls: int) -> float:
    """Median of its time alone."""
    left, right = jnp.ones(self.left), jnp.ones(self.right)
    call = jax.jit(functools.partial(jax.lax.dot_general, dimension_numbers=self.dimensions))
    return _median_seconds(lambda: call(left, right), calls)


def products(program: Any, steps: int = 1) -> collections.Counter[Product]:
  """The matrix products of a traced program, a loop's as often as it goes round.

  What is one number, such as a vector's norm, is no product of matrices.

  Args:
    program: its jaxpr.
    steps: how often a loop goes round that ends when its data say so.
  """
  found: collections.Counter[Product] = collections.Counter()
  for equation in program.eqns:
    if equation.primitive.name == "dot_general" and equation.outvars[0].aval.shape:
      left, right = (variable.aval.shape for variable in equation.invars)
      found[Product(left, right, equation.params["dimension_numbers"])] += 1
    loop = equation.primitive.name
    rounds = {"scan": equation.params.get("length", 1), "while": steps}.get(loop, 1)
    for inner in jax.extend.core.jaxprs_in_params(equation.params):
      for product, times in products(inner, steps).items():
        found[product] += times * rounds
  return found


def update_products(config: ModelConfig, batch: pipeline.Batch) -> collections.Counter[Product]:
  """The matrix products of an update with a batch, whose symbols do not matter."""
  rng = jax.random.key(0)
  fresh = jax.eval_shape(functools.partial(state.create, config, _OPTIMIZER, _STEPS), rng)
  traced = state.update.trace(config, _OPTIMIZER, _STEPS, fresh, batch, rng).jaxpr.jaxpr
  # Without what nothing needs, as the compiler has it: logits where the loss is made without them.
  return products(partial_eval.dce_jaxpr(traced, [True] * len(traced.outvars))[0])


def _median_seconds(call: Callable[[], Any], calls: int) -> float:
  """Of a call's time, compiled before."""
  times = []
  for _ in range(calls + 1):
    start = time.perf_counter()
    jax.block_until_ready(call())
    times.append(time.perf_counter() - start)
  return statistics.median(times[1:])


class Attn(Updates):
  """Trains one model."""

  def __init__(self, model: str, sizes: Sizes, seed: int, data: DataConfig | None) -> None:
    """Makes the first state, and compiles no update yet.

    Args:
      model: of MODELS.
      sizes: of the model and of fixed batches.
      seed: of parameters and batches.
      data: what to train on, with vocabularies of its own; None takes fixed batches.
    """
    config = configured(model, sizes)
    if data is None:
      self._batches = fixed(sizes, seed)
      self._shapes = [next(self._batches)]
    else:
      store = stored(data)
      cut: dict[str, Any] = {"batch_size": data.batch_size, "edges": data.bucket_edges}
      self._batches = pipeline.training_batches(store, **cut, seed=seed, workers=data.workers)
      short = np.full(data.batch_size, np.argmin(store.lengths), np.int32)
      self._shapes = [store.batch(short, edge) for edge in data.bucket_edges]
      config = dataclasses.replace(
        config, source_vocabulary=store.source_size, target_vocabulary=store.target_size
      )
    self._config, self._devices = config, Devices(sizes.batch)
    self._rng = jax.random.key(seed)
    self._state = state.create(config, _OPTIMIZER, _STEPS, self._rng)
    self._pending: StepMetrics | None = None
    self._loss = math.nan

  def warm(self) -> None:
    """One update with a batch of each shape."""
    for batch in self._shapes:
      self._train(batch)
      self.finish()

  def facts(self) -> dict[str, Any]:
    """`parameters`, `flops` of an update's matrix products, and `versions`."""
    made = update_products(self._config, self._shapes[0])
    return {
      "parameters": models.parameter_count(self._config),
      "flops": sum(product.flops * times for product, times in made.items()),
      "versions": {"attn": importlib.metadata.version("attn"), "jax": jax.__version__},
    }

  def update(self) -> tuple[int, int]:
    """What the training loop does between two batches: it looks at a report one update late."""
    batch = next(self._batches)
    late, self._pending = self._pending, self._train(batch)
    self._settle(late)
    return int(batch["target_length"].sum()), batch["target"].size

  def finish(self) -> float:
    """Waits for the last update; the loss it reports."""
    self._settle(self._pending)
    self._pending = None
    jax.block_until_ready(self._state)
    return self._loss

  def parts(self, calls: int) -> dict[str, float]:
    """Median seconds of growing parts of an update, forward and backward, with the first shape.

    Returns:
      Seconds up to the end of the `encoder`, the `decoder`, the `output` layer with the loss, and
      the `optimizer`, which is the whole; and of all `products`, each timed alone.
    """
    batch, config = self._devices.spread(self._shapes[0]), self._config

    def encoded(params: Params) -> Array:
      memory = bind(config, params).encode(batch["source"], batch["source_length"])
      return _total((memory.annotations, memory.keys, memory.initial))

    def decoded(params: Params) -> Array:
      model = bind(config, params)
      forced = model.teacher_forced(batch["source"], batch["source_length"], batch["target"])
      return _total(forced.narrowed)

    def lost(params: Params) -> Array:
      return objective.summed_loss(params, config, batch)

    def trained() -> Any:
      self._train(self._shapes[0])
      return self._state

    seconds = {}
    for name, function in (("encoder", encoded), ("decoder", decoded), ("output", lost)):
      gradient = jax.jit(jax.grad(function))
      seconds[name] = _median_seconds(functools.partial(gradient, self._state.params), calls)
    seconds["optimizer"] = _median_seconds(trained, calls)
    alone = (
      made.seconds(calls) * times
      for made, times in update_products(self._config, self._shapes[0]).items()
    )
    return {**seconds, "products": sum(alone)}

  def matmul(self, size: int) -> float:
    """GFLOP/s of a square product."""
    return matmul(size)

  def _train(self, batch: pipeline.Batch) -> StepMetrics:
    spread, everywhere = self._devices.spread(batch), self._devices.everywhere
    self._state, reported = state.update(
      self._config, _OPTIMIZER, _STEPS, self._state, spread, self._rng, PLAIN, everywhere
    )
    return reported

  def _settle(self, reported: StepMetrics | None) -> None:
    if reported is not None:
      self._loss = float(reported.loss)


def matmul(size: int) -> float:
  """GFLOP/s of XLA's product of two square matrices."""
  matrix = jax.random.normal(jax.random.key(0), (size, size))
  product = jax.jit(jnp.matmul)
  return best_rate(lambda: product(matrix, matrix).block_until_ready(), size)


def stored(data: DataConfig) -> pipeline.TokenStore:
  """The training pairs as numbers."""
  corpus = corpora.load(data, "train")
  return pipeline.TokenStore.encode(corpus, *corpora.vocabularies(data, corpus))


def fixed(sizes: Sizes, seed: int) -> Iterator[pipeline.Batch]:
  """The pipeline's batches of given symbols."""
  for source, target in Batches(sizes, seed):
    ends = np.full((sizes.batch, 1), EOS, np.int32)
    yield {
      "source": np.hstack([source, ends]),
      "source_length": np.full(sizes.batch, sizes.source, np.int32),
      "target": np.hstack([target, ends]),
      "target_length": np.full(sizes.batch, sizes.target, np.int32),
      "index": np.arange(sizes.batch, dtype=np.int32),
    }


def _total(tree: Any) -> Array:
  """Some number that all of its arrays enter."""
  return sum(leaf.sum() for leaf in jax.tree.leaves(tree))
