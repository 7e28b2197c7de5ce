"""Optimizers from their configuration."""

import collections
import functools
import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from attn.training.config import OptimizerConfig

_EMBEDDINGS = ("source", "target")


def schedule(config: OptimizerConfig, steps: int) -> optax.Schedule:
  """The learning rate at every step of a run of `steps` updates."""
  peak, warmup = config.learning_rate, config.warmup
  rest = max(steps - warmup, 1)
  after: optax.Schedule
  if config.decay == "cosine":
    after = optax.cosine_decay_schedule(peak, rest)
  elif config.decay == "linear":
    after = optax.linear_schedule(peak, 0.0, rest)
  elif config.decay == "halving":
    after = functools.partial(_halved, config, steps)
  else:
    after = optax.constant_schedule(peak)
  if not warmup:
    return after
  return optax.join_schedules([optax.linear_schedule(0.0, peak, warmup), after], [warmup])


def halvings(config: OptimizerConfig, steps: int) -> list[int]:
  """The updates, counted from 0, before which a run of `steps` halves its rate: epochs in steps.

  Raises:
    ValueError: `epoch` is None: it comes with the data.
  """
  if config.epoch is None:
    raise ValueError("optimizer.epoch is None: it comes with the data and is filled in by training")
  assert config.halve_after is not None and config.halve_every is not None
  found = []
  for number in itertools.count():
    epochs = config.halve_after + number * config.halve_every
    found.append(math.ceil(epochs * config.epoch - 1e-6))
    if found[-1] >= steps:
      return found[:-1]
  raise AssertionError


def _halved(config: OptimizerConfig, steps: int, count: Int[Array, ""]) -> Array:
  """The rate `count` updates after the warm-up, which belongs to the first epoch."""
  times = collections.Counter(halvings(config, steps))
  scales = {before: 0.5**number for before, number in times.items()}
  rate = optax.piecewise_constant_schedule(config.learning_rate, scales)
  return jnp.asarray(rate(count + config.warmup))


class AverageState(NamedTuple):
  """A moving average of parameters.

  Attributes:
    average: mean of the parameters after each update, the one k updates ago weighted by decay^k.
    updates: how many went in.
  """

  average: Any
  updates: Int[Array, ""]


def build(config: OptimizerConfig, steps: int) -> optax.GradientTransformation:
  """Clipping by global norm, then the optimizer, then the average of parameters if asked for.

  A gradient that is not finite counts as zeros: parameters stay finite for the loop to name their
  norms. To choose between the old and the new state instead would read and write both once more.
  """
  rate = schedule(config, steps)
  update = {
    "adam": functools.partial(optax.adam, eps=config.epsilon),
    "adadelta": functools.partial(optax.adadelta, rho=config.rho, eps=config.epsilon),
    "sgd": optax.sgd,
  }[config.name](rate)
  average = [] if config.average is None else [_averaged(config.average)]
  return optax.chain(_clipping(config), update, *average)


def norm(tree: Any) -> Float[Array, ""]:
  """The Euclidean norm of all leaves together.

  By products, which XLA:CPU computes with vectors. A sum of squares that something else needs too,
  as Adam does the gradient's, would be written out first.
  """
  squares = [jnp.vdot(leaf, leaf, precision="highest") for leaf in jax.tree.leaves(tree)]
  return jnp.sqrt(sum(squares, jnp.float32(0)))


def _clipping(config: OptimizerConfig) -> optax.GradientTransformation:
  """Clips a gradient by its norm; in place of one that is not finite it puts zeros."""

  def update(gradients: Any, state: optax.OptState, _: Any = None) -> tuple[Any, optax.OptState]:
    size, scale = norm(gradients), jnp.float32(1)
    sound = jnp.isfinite(size)
    if config.clip_norm is not None:
      if not config.clip_embeddings:
        size = norm({name: leaf for name, leaf in gradients.items() if name not in _EMBEDDINGS})
      scale = config.clip_norm / jnp.maximum(size, config.clip_norm)
    return jax.tree.map(lambda leaf: jnp.where(sound, leaf * scale, 0), gradients), state

  return optax.GradientTransformation(lambda _: optax.EmptyState(), update)


def _averaged(decay: float) -> optax.GradientTransformation:
  def init(params: Any) -> AverageState:
    return AverageState(optax.tree.zeros_like(params), jnp.int32(0))

  def update(updates: Any, state: AverageState, params: Any = None) -> tuple[Any, AverageState]:
    count = state.updates + 1
    # (1 - decay) / (1 - decay^count): that of the newest, all weights summing to 1.
    share = math.expm1(math.log(decay)) / jnp.expm1(count * math.log(decay))
    new = optax.apply_updates(params, updates)
    average = jax.tree.map(lambda mean, leaf: mean + share * (leaf - mean), state.average, new)
    return updates, AverageState(average, count)

  return optax.GradientTransformation(init, update)
