"""The state of training, and the compiled step that advances it."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from attn import models
from attn.models import ModelConfig
from attn.models.functional import Params
from attn.training import objective, optimizers
from attn.training.config import OptimizerConfig


class TrainState(NamedTuple):
  """Everything that an update changes.

  Attributes:
    params: the model's parameters.
    optimizer: optax's state.
    step: updates done.
  """

  params: Params
  optimizer: optax.OptState
  step: Int[Array, ""]


class StepMetrics(NamedTuple):
  """What one update reports.

  Attributes:
    loss: mean over the batch's real symbols, nats.
    symbols: how many those are.
    gradient_norm: before clipping.
    parameter_norm: after the update, whether or not it was kept.
  """

  loss: Float[Array, ""]
  symbols: Int[Array, ""]
  gradient_norm: Float[Array, ""]
  parameter_norm: Float[Array, ""]


@functools.partial(jax.jit, static_argnames=("model", "optimizer", "steps"))
def create(model: ModelConfig, optimizer: OptimizerConfig, steps: int, rng: Array) -> TrainState:
  """A run's state before its first update."""
  params = models.init(model, rng)
  return TrainState(params, optimizers.build(optimizer, steps).init(params), jnp.int32(0))


@functools.partial(
  jax.jit, static_argnames=("model", "optimizer", "steps"), donate_argnames="state"
)
def update(
  model: ModelConfig,
  optimizer: OptimizerConfig,
  steps: int,
  state: TrainState,
  batch: dict[str, Array],
  rng: Array,
) -> tuple[TrainState, StepMetrics]:
  """One update. Compiled once for each shape of `batch`, whatever the seed.

  A loss, gradient or new parameter that is not finite leaves the state as it was, for the
  loop to report.
  """
  dropout = jax.random.fold_in(rng, state.step) if model.dropout else None
  (loss, symbols), gradients = jax.value_and_grad(objective.mean_loss, has_aux=True)(
    state.params, model, batch, dropout
  )
  norm = optax.tree.norm(gradients)
  updates, moments = optimizers.build(optimizer, steps).update(
    gradients, state.optimizer, state.params
  )
  new = TrainState(optax.apply_updates(state.params, updates), moments, state.step + 1)
  size = optax.tree.norm(new.params)
  finite = jnp.isfinite(loss) & jnp.isfinite(norm) & jnp.isfinite(size)
  state = jax.tree.map(lambda new, old: jnp.where(finite, new, old), new, state)
  return state, StepMetrics(loss, symbols, norm, size)


@functools.partial(jax.jit, static_argnames="model")
def loss_sum(model: ModelConfig, params: Params, batch: dict[str, Array]) -> tuple[Array, Array]:
  """Summed loss of a batch without dropout, and its number of symbols."""
  loss, symbols = objective.mean_loss(params, model, batch)
  return loss * symbols, symbols
