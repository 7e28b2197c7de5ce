"""Parameters as a plain pytree: the one place where Flax modules are split and merged."""

import functools
import math
from typing import Any

import jax
from flax import nnx
from jaxtyping import Array

from attn.models.config import ModelConfig
from attn.models.family import Seq2Seq

Params = dict[str, Any]


def init(config: ModelConfig, rng: Array) -> Params:
  """Fresh parameters of the model that `config` describes: nested dicts of arrays.

  Args:
    config: the model; its vocabulary sizes must be numbers.
    rng: a typed key (`jax.random.key`).
  """
  _, state = nnx.split(Seq2Seq(config, nnx.Rngs(params=rng)))
  return nnx.to_pure_dict(state)


def bind(config: ModelConfig, params: Params) -> Seq2Seq:
  """The model with these parameters; its methods are pure functions, free to `jit` and `grad`."""
  return nnx.merge(_graph(config), params)


def parameter_count(config: ModelConfig) -> int:
  """Number of parameters, without allocating any."""
  shapes = jax.eval_shape(functools.partial(init, config), jax.random.key(0))
  return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))


@functools.lru_cache
def _graph(config: ModelConfig) -> nnx.GraphDef[Seq2Seq]:
  model = nnx.eval_shape(lambda: Seq2Seq(config, nnx.Rngs(0)))
  return nnx.split(model)[0]
