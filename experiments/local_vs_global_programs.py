"""What the programs of global and local attention do, at random parameters; and what they cost."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import attn
from attn.models import ModelConfig, bind, init, steps
from attn.models.functional import Params
from experiments.cost_timings import Times, compiled, take_turns

# What the paper calls them to what `ModelConfig.window` does.
WINDOWS = {"global": "global", "local-m": "local_m", "local-p": "local_p"}
GLOBAL, FIXED, PREDICTED = WINDOWS
LOCAL = (FIXED, PREDICTED)

_SYMBOLS = 16  # of each side; they change nothing that is counted
_SPREAD = 3.0  # deviation of random queries' entries: local-p's centres then lie all over a source


class Program(NamedTuple):
  """What one window does at each of several steps.

  Attributes:
    scored: source positions on whose keys the weights depend, a number a step.
    positive: source positions that weigh something, a number a step.
    farthest: the largest distance of a scored position from the centre; None without a window.
    centres: of the windows; None without one.
    follows: norm of the derivative of the centres to the states; 0 if they are not predicted.
  """

  scored: tuple[int, ...]
  positive: tuple[int, ...]
  farthest: float | None
  centres: tuple[float, ...] | None
  follows: float


def programs(
  model: ModelConfig, *, half_width: int, positions: int, seed: int
) -> dict[str, Program]:
  """Takes every window apart, as it stands in the model's decoding step.

  Args:
    model: the model but for its window; its widths are kept.
    half_width: of the windows.
    positions: of the source, and steps.
    seed: of parameters, source and states.
  """
  sized = dataclasses.replace(_small(model), half_width=half_width)
  return {
    name: _program(dataclasses.replace(sized, window=window), positions, seed)
    for name, window in WINDOWS.items()
  }


def _small(model: ModelConfig) -> ModelConfig:
  return dataclasses.replace(model, source_vocabulary=_SYMBOLS, target_vocabulary=_SYMBOLS)


def _program(config: ModelConfig, positions: int, seed: int) -> Program:
  draw = np.random.default_rng(seed)
  params = jax.jit(init, static_argnums=0)(config, jax.random.key(seed))
  source = jnp.asarray(draw.integers(4, _SYMBOLS, (1, positions + 1)), jnp.int32)
  queries = jnp.asarray(_SPREAD * draw.standard_normal((positions, config.units)), jnp.float32)
  weights, centres, depends, moves = jax.device_get(_steps(config, params, source, queries))
  scored = depends > 0
  distances = np.abs(np.arange(positions) - centres[:, None])[scored]
  windowed = config.window != "global"
  return Program(
    scored=tuple(scored.sum(1).tolist()),
    positive=tuple((weights > 0).sum(1).tolist()),
    farthest=float(distances.max()) if windowed else None,
    centres=tuple(centres.tolist()) if windowed else None,
    follows=float(np.linalg.norm(moves)),
  )


@functools.partial(jax.jit, static_argnames="config")
def _steps(
  config: ModelConfig, params: Params, source: Int[Array, "1 l"], queries: Float[Array, "t n"]
) -> tuple[Float[Array, "t s"], Float[Array, " t"], Float[Array, "t s"], Float[Array, "t n"]]:
  """Weights and centre of step t with query t, and how they depend on each key and on the query.

  Returns:
    Weights; centres, 0 without a window; sums of the weights' absolute derivatives to each key; the
    centres' derivatives to the query.
  """
  model, positions = bind(config, params), len(queries)
  # An encoder that does not read EOS leaves out the last symbol.
  memory = model.encode(source, jnp.array([positions + (not config.source_eos)]))
  fixed = config.window == "local_m"

  def read(
    keys: Float[Array, "1 l k"], query: Float[Array, " n"], time: Int[Array, ""]
  ) -> tuple[Float[Array, " s"], Float[Array, ""]]:
    found = steps.attend(
      model.decoder, memory._replace(keys=keys), query[None], time[None] if fixed else None
    )
    assert found.weights is not None
    centre = jnp.zeros(()) if found.position is None else found.position[0]
    return found.weights[0, :positions], centre

  def one(query: Array, time: Array) -> tuple[Array, Array, Array, Array]:
    by_keys = jax.jacrev(lambda keys: read(keys, query, time)[0])(memory.keys)
    by_query = jax.grad(lambda query: read(memory.keys, query, time)[1])(query)
    return *read(memory.keys, query, time), jnp.abs(by_keys[:, 0, :positions]).sum((0, 2)), by_query

  return jax.vmap(one)(queries, jnp.arange(positions))


def mass_of_equal_scores(half_width: int) -> float:
  """Sum of local-p's weights where all scores are equal and the window lies inside the source."""
  size = 2 * half_width + 1
  query, keys, centre = jnp.zeros((1, 1)), jnp.zeros((size, 1)), jnp.full(1, half_width, float)
  attend = jax.jit(functools.partial(attn.attend_local, half_width=half_width))
  return float(attend(query, keys, keys, centre, jnp.array(size)).weights.sum())


class Cost(NamedTuple):
  """The forward pass of several models at one length of source and target.

  Attributes:
    length: symbols of each side.
    times: by model, in turns.
    memory: by model, bytes of temporary memory by the compiler's account.
  """

  length: int
  times: dict[str, Times]
  memory: dict[str, int]


def costs(
  models: Mapping[str, ModelConfig],
  *,
  lengths: Sequence[int],
  batch: int,
  repeats: int,
  seed: int,
) -> list[Cost]:
  """Compiles and times a pass along the target for each model, and each length of both sides."""
  return [_cost(models, length, batch, repeats, seed) for length in lengths]


def _cost(
  models: Mapping[str, ModelConfig], length: int, batch: int, repeats: int, seed: int
) -> Cost:
  draw = np.random.default_rng((seed, length))
  sides = draw.integers(4, _SYMBOLS, (2, batch, length))
  source, target = (jnp.asarray(side, jnp.int32) for side in sides)
  whole = jnp.full(batch, length, jnp.int32)
  programs = {}
  for name, model in models.items():
    config = _small(model)
    params = jax.jit(init, static_argnums=0)(config, jax.random.key(seed))
    programs[name] = compiled(functools.partial(_logits, config), params, source, whole, target)
  return Cost(
    length,
    take_turns({name: program.call for name, program in programs.items()}, repeats),
    {name: program.temporary for name, program in programs.items()},
  )


def _logits(
  config: ModelConfig, params: Params, source: Array, length: Array, target: Array
) -> Float[Array, "b t v"]:
  return bind(config, params).teacher_forced(source, length, target).logits
