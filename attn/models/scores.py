"""Scores as modules: the parameters behind `attn.ops`, and what is made once a sentence."""

from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

import attn
from attn.configs import ConfigError
from attn.models.config import ModelConfig
from attn.models.initialisation import recipe

# Its tanh is taken again in the backward pass: a scan over steps would keep [t, b, s, n'] of it.
_additive: Callable[..., Array] = jax.checkpoint(
  attn.additive_projected, prevent_cse=False, policy=jax.checkpoint_policies.dots_saveable
)


class Score(Protocol):
  """How well a decoder state matches each annotation."""

  def keys(self, annotations: Float[Array, "... s k"]) -> Float[Array, "... s n"]:
    """What a query is compared with, once a sentence."""

  def __call__(
    self, query: Float[Array, "... q"], keys: Float[Array, "... s n"]
  ) -> Float[Array, "... s"]:
    """e_ij for one decoder state."""


class Compared(nnx.Module):
  """A score without parameters: `dot` (Luong 2015), `scaled_dot` (Vaswani 2017), `cosine`."""

  def __init__(self, score: Callable[[Array, Array], Array]):
    """The op."""
    self.score = score

  def keys(self, annotations: Float[Array, "... s k"]) -> Float[Array, "... s k"]:
    """h_j."""
    return annotations

  def __call__(
    self, query: Float[Array, "... k"], keys: Float[Array, "... s k"]
  ) -> Float[Array, "... s"]:
    """e_ij for one decoder state."""
    return self.score(query, keys)


class Additive(nnx.Module):
  """Bahdanau's alignment model a(s, h) = v_a . tanh(W_a s + U_a h) (A.1.2)."""

  def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
    """Parameters `W_a [n', n]`, `U_a [n', k]`, `v_a [n']`."""
    make, width = recipe(config.initialisation), config.alignment
    self.w_a = nnx.Param(make.alignment(rngs.params(), (width, config.units)))
    self.u_a = nnx.Param(make.alignment(rngs.params(), (width, config.key_width)))
    self.v_a = nnx.Param(make.vector(rngs.params(), (width,)))

  def keys(self, annotations: Float[Array, "... s k"]) -> Float[Array, "... s n"]:
    """U_a h_j, once a sentence."""
    return attn.project_keys(annotations, self.u_a[...])

  def __call__(
    self, query: Float[Array, "... q"], keys: Float[Array, "... s n"]
  ) -> Float[Array, "... s"]:
    """e_ij for one decoder state."""
    return _additive(query, keys, self.w_a[...], self.v_a[...])


class General(nnx.Module):
  """Luong's score(h_t, h_s) = h_t^T W_a h_s (3.1)."""

  def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
    """Parameter `W_a [n, k]`."""
    make = recipe(config.initialisation)
    self.w_a = nnx.Param(make.alignment(rngs.params(), (config.units, config.key_width)))

  def keys(self, annotations: Float[Array, "... s k"]) -> Float[Array, "... s n"]:
    """W_a h_s, once a sentence."""
    return attn.project_keys(annotations, self.w_a[...])

  def __call__(
    self, query: Float[Array, "... n"], keys: Float[Array, "... s n"]
  ) -> Float[Array, "... s"]:
    """The score of one decoder state: what is left is a dot product."""
    return attn.dot(query, keys)


class Concat(nnx.Module):
  """Luong's score(h_t, h_s) = v_a . tanh(W_a [h_t; h_s]) (3.1)."""

  def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
    """Parameters `W_a [n', n + k]`, `v_a [n']`."""
    make, self.query_width = recipe(config.initialisation), config.units
    shape = config.alignment, config.units + config.key_width
    self.w_a = nnx.Param(make.alignment(rngs.params(), shape))
    self.v_a = nnx.Param(make.vector(rngs.params(), (config.alignment,)))

  def keys(self, annotations: Float[Array, "... s k"]) -> Float[Array, "... s n"]:
    """The columns of W_a that meet h_s, once a sentence: W_a [h_t; h_s] is a sum of two."""
    return attn.project_keys(annotations, self.w_a[...][:, self.query_width :])

  def __call__(
    self, query: Float[Array, "... q"], keys: Float[Array, "... s n"]
  ) -> Float[Array, "... s"]:
    """The score of one decoder state."""
    w_a = self.w_a[...][:, : self.query_width]
    return _additive(query, keys, w_a, self.v_a[...])


class ConcatReleased(nnx.Module):
  """`concat` as its authors released it: v_a . tanh(W_a h_t + h_s) (their footnote 15)."""

  def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
    """Parameters `W_a [n, n]`, `v_a [n]`."""
    make, n = recipe(config.initialisation), config.units
    self.w_a = nnx.Param(make.alignment(rngs.params(), (n, n)))
    self.v_a = nnx.Param(make.vector(rngs.params(), (n,)))

  def keys(self, annotations: Float[Array, "... s n"]) -> Float[Array, "... s n"]:
    """h_s."""
    return annotations

  def __call__(
    self, query: Float[Array, "... n"], keys: Float[Array, "... s n"]
  ) -> Float[Array, "... s"]:
    """The score of one decoder state."""
    return _additive(query, keys, self.w_a[...], self.v_a[...])


class Location(nnx.Module):
  """Luong's a_t = softmax(W_a h_t) (Eq. 8): the score of a position, whatever stands there."""

  def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
    """Parameter `W_a [L, n]`: a row for each of the first L positions."""
    make, shape = recipe(config.initialisation), (config.location_length, config.units)
    self.strict = config.location_overflow == "error"
    self.w_a = nnx.Param(make.alignment(rngs.params(), shape))

  def keys(self, annotations: Float[Array, "... s k"]) -> Float[Array, "... s k"]:
    """h_s, of which only the number counts.

    Raises:
      ConfigError: with `location_overflow='error'`, for sources padded to more than L.
    """
    size, known = annotations.shape[-2], self.w_a.shape[0]
    if self.strict and size > known:
      raise ConfigError(
        f"sources are padded to {size} positions and model.location_length is {known}: raise it, or"
        " set model.location_overflow=drop"
      )
    return annotations

  def __call__(
    self, query: Float[Array, "... n"], keys: Float[Array, "... s k"]
  ) -> Float[Array, "... s"]:
    """The score of one decoder state; positions beyond L, which are masked, score 0."""
    size = keys.shape[-2]
    scores = attn.location(query, self.w_a[...][:size])
    beyond = [(0, 0)] * (scores.ndim - 1) + [(0, size - scores.shape[-1])]
    return jnp.pad(scores, beyond)


class Position(nnx.Module):
  """The centre of local-p's window, p_t = S sigmoid(v_p . tanh(W_p h_t)) (Luong 2015, Eq. 9)."""

  def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
    """Parameters `W_p [n', n]`, `v_p [n']`."""
    make, width = recipe(config.initialisation), config.alignment
    self.less = int(config.position == "released")  # Their (S - 1) sigmoid(.) + 1 counts from 1.
    self.w_p = nnx.Param(make.alignment(rngs.params(), (width, config.units)))
    self.v_p = nnx.Param(make.vector(rngs.params(), (width,)))

  def __call__(self, query: Float[Array, "... n"], length: Array) -> Float[Array, "..."]:
    """The centre, in positions from 0, for one decoder state and a source of `length`."""
    span = jnp.maximum(length - self.less, 0)
    return attn.predict_position(query, span, self.w_p[...], self.v_p[...])


def build(config: ModelConfig, rngs: nnx.Rngs) -> Score | None:
  """The score that the configuration names, None without attention."""
  if config.score == "none":
    return None
  without_parameters = {"dot": attn.dot, "scaled_dot": attn.scaled_dot, "cosine": attn.cosine}
  if config.score in without_parameters:
    return Compared(without_parameters[config.score])
  makers: dict[str, Callable[[ModelConfig, nnx.Rngs], Score]] = {
    "additive": Additive,
    "general": General,
    "concat": Concat,
    "concat_released": ConcatReleased,
    "location": Location,
  }
  return makers[config.score](config, rngs)
