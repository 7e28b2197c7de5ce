"""How parameters begin: the paper's recipe and one that learns quickly."""

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


def recipe(name: str) -> Recipe:
  """The initializers of `ModelConfig.initialisation`."""
  normal = jax.nn.initializers.normal
  if name == "bahdanau":  # Appendix B.1.
    return Recipe(orthogonal_blocks, normal(0.001), jax.nn.initializers.zeros, normal(0.01))
  glorot = functools.partial(
    jax.nn.initializers.variance_scaling, 1.0, "fan_avg", "uniform", in_axis=-1, out_axis=-2
  )()
  return Recipe(orthogonal_blocks, glorot, normal(0.1), glorot)
