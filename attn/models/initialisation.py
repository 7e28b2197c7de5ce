"""How parameters begin: the papers' recipes and one that learns quickly."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

Initializer = Callable[..., Float[Array, "..."]]


class Recipe(NamedTuple):
  """One initializer for each role a parameter can have. Matrices are `[..., out, in]`."""

  recurrent: Initializer
  alignment: Initializer
  vector: Initializer
  other: Initializer


def orthogonal_blocks(
  rng: Array, shape: tuple[int, int], dtype: DTypeLike = jnp.float32
) -> Float[Array, "rows n"]:
  """Square orthogonal blocks one above the other: `[k n, n]`."""
  rows, n = shape
  block = jax.nn.initializers.orthogonal()
  rngs = jax.random.split(rng, rows // n)
  # One block after the other: jaxlib 0.10.2 can deadlock on two batched QR factorisations at once,
  # when each occupies a thread of a small pool and waits there for threads to share its batch.
  blocks: Array = jax.lax.map(lambda rng: block(rng, (n, n), dtype), rngs)
  return blocks.reshape(rows, n)


_UNIFORM = {"sutskever": 0.08, "luong": 0.1}  # Sutskever 2014, 3.4; Luong 2015, 4.1.


def _uniform(bound: float) -> Initializer:
  """U(-bound, bound)."""

  def draw(
    rng: Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32
  ) -> Float[Array, "..."]:
    return jax.random.uniform(rng, shape, dtype, -bound, bound)

  return draw


def recipe(name: str) -> Recipe:
  """The initializers of `ModelConfig.initialisation`."""
  normal = jax.nn.initializers.normal
  if name == "bahdanau":  # Appendix B.1.
    return Recipe(orthogonal_blocks, normal(0.001), jax.nn.initializers.zeros, normal(0.01))
  if name in _UNIFORM:
    return Recipe(*4 * (_uniform(_UNIFORM[name]),))
  glorot = functools.partial(
    jax.nn.initializers.variance_scaling, 1.0, "fan_avg", "uniform", in_axis=-1, out_axis=-2
  )()
  return Recipe(orthogonal_blocks, glorot, normal(0.1), glorot)
