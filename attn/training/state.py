"""The state of training, and the compiled step that advances it."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jaxtyping import Array, Float, Int

import attn
from attn import models
from attn.models import ModelConfig, bind
from attn.models.functional import Params
from attn.training import objective as objectives
from attn.training import optimizers
from attn.training.config import PLAIN, ObjectiveConfig, OptimizerConfig


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
    parameter_norm: after the update.
    update_norm: of the update itself.
  """

  loss: Float[Array, ""]
  symbols: Int[Array, ""]
  gradient_norm: Float[Array, ""]
  parameter_norm: Float[Array, ""]
  update_norm: Float[Array, ""]


@functools.partial(jax.jit, static_argnames=("model", "optimizer", "steps"))
def create(model: ModelConfig, optimizer: OptimizerConfig, steps: int, rng: Array) -> TrainState:
  """A run's state before its first update."""
  params = models.init(model, rng)
  return TrainState(params, optimizers.build(optimizer, steps).init(params), jnp.int32(0))


@functools.partial(
  jax.jit,
  static_argnames=("model", "optimizer", "steps", "objective", "everywhere"),
  donate_argnames="state",
)
def update(
  model: ModelConfig,
  optimizer: OptimizerConfig,
  steps: int,
  state: TrainState,
  batch: dict[str, Array],
  rng: Array,
  objective: ObjectiveConfig = PLAIN,
  everywhere: NamedSharding | None = None,
) -> tuple[TrainState, StepMetrics]:
  """One update. Compiled once for each shape of `batch`, whatever the seed.

  A gradient that is not finite is reported, and counts as zeros. `everywhere` is how the state lies
  on several devices.
  """
  total, symbols, gradients = _gradients(model, objective, steps, state, batch, rng)
  updates, moments = optimizers.build(optimizer, steps).update(
    gradients, state.optimizer, state.params
  )
  state = TrainState(optax.apply_updates(state.params, updates), moments, state.step + 1)
  norms = [optimizers.norm(tree) for tree in (gradients, state.params, updates)]
  if everywhere is not None:
    state = jax.lax.with_sharding_constraint(state, everywhere)
  return state, StepMetrics(total, symbols, *norms)


def _gradients(
  model: ModelConfig,
  objective: ObjectiveConfig,
  steps: int,
  state: TrainState,
  batch: dict[str, Array],
  rng: Array,
) -> tuple[Array, Array, Params]:
  """Mean loss a symbol, number of symbols, and the gradient of what is minimised."""
  random = jax.random.fold_in(rng, state.step) if model.dropout or objective.sampling else None
  share = objective.sampling * (state.step + 1) / steps if objective.sampling else None
  divisor = objectives.divisor(batch, objective.per)

  @jax.value_and_grad
  def gradient(params: Params, part: dict[str, Array], random: Array | None) -> Array:
    return objectives.summed_loss(params, model, part, random, objective, share) / divisor

  if objective.micro_batches == 1:
    loss, gradients = gradient(state.params, batch, random)
  else:

    def add(total: Any, x: tuple[dict[str, Array], Array]) -> tuple[Any, None]:
      part, place = x
      own = None if random is None else jax.random.fold_in(random, place)
      return jax.tree.map(jnp.add, total, gradient(state.params, part, own)), None

    nothing = jnp.float32(0), optax.tree.zeros_like(state.params)
    parts = objectives.cut(batch, objective.micro_batches)
    numbers = jnp.arange(objective.micro_batches)
    (loss, gradients), _ = jax.lax.scan(add, nothing, (parts, numbers))
  symbols = batch["target_length"].sum()
  if objective.per != "symbol":
    loss = loss * divisor / jnp.maximum(symbols, 1)
  return loss, symbols, gradients


def usable(state: TrainState) -> Params:
  """The parameters to use: their average where one is kept, else the newest."""
  params: Params = optax.tree.get(state.optimizer, "average", state.params)
  return params


@functools.partial(jax.jit, static_argnames="model")
def validation_sums(
  model: ModelConfig, params: Params, batch: dict[str, Array]
) -> dict[str, Float[Array, ""]]:
  """Sums over a batch's real target symbols, without dropout: `symbols` counts them.

  The others are `loss`, in nats, and with attention the `attention_entropy`, in nats, and
  `attention_max`, the largest weight.
  """
  forced = bind(model, params).teacher_forced(
    batch["source"], batch["source_length"], batch["target"]
  )
  losses = objectives.token_losses(forced.logits, batch["target"], batch["target_length"])
  real = attn.length_mask(batch["target_length"], losses.shape[1])
  symbols = batch["target_length"].sum()
  # By way of the mean, whose rounding runs from before this function have in their losses.
  sums = {"loss": losses.sum() / jnp.maximum(symbols, 1) * symbols, "symbols": symbols}
  if forced.weights is not None:
    sums["attention_entropy"] = jnp.sum(attn.entropy(forced.weights), where=real)
    sums["attention_max"] = jnp.sum(attn.max_weight(forced.weights), where=real)
  return sums
