"""Scores as modules: the parameters behind `attn.ops`, and what is made once a sentence."""

from flax import nnx
from jaxtyping import Array, Float

import attn
from attn.models.config import ModelConfig
from attn.models.initialisation import recipe


class Additive(nnx.Module):
  """Bahdanau's alignment model a(s, h) = v_a . tanh(W_a s + U_a h) (A.1.2)."""

  def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
    """Parameters `W_a [n', n]`, `U_a [n', a]`, `v_a [n']`."""
    make, width = recipe(config.initialisation), config.alignment
    self.w_a = nnx.Param(make.alignment(rngs.params(), (width, config.units)))
    self.u_a = nnx.Param(make.alignment(rngs.params(), (width, config.annotation)))
    self.v_a = nnx.Param(make.vector(rngs.params(), (width,)))

  def keys(self, annotations: Float[Array, "... s a"]) -> Float[Array, "... s n"]:
    """U_a h_j, once a sentence."""
    return attn.project_keys(annotations, self.u_a[...])

  def __call__(
    self, query: Float[Array, "... q"], keys: Float[Array, "... s n"]
  ) -> Float[Array, "... s"]:
    """e_ij for one decoder state."""
    return attn.additive_projected(query, keys, self.w_a[...], self.v_a[...])
