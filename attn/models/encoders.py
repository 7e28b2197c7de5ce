"""Encoders: a padded batch of source words to annotations."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from attn.models import cells
from attn.models.config import ModelConfig
from attn.models.initialisation import recipe


class Recurrence(nnx.Module):
  """One direction of gated units over a whole sequence."""

  def __init__(self, config: ModelConfig, *, reverse: bool, rngs: nnx.Rngs):
    """Parameters `W [3n, m]`, `U_gates [2n, n]`, `U [n, n]`, bias `[3n]` or None."""
    make, n, m = recipe(config.initialisation), config.units, config.embedding
    self.reverse = reverse
    self.w = nnx.Param(make.other(rngs.params(), (3 * n, m)))
    self.u_gates = nnx.Param(make.recurrent(rngs.params(), (2 * n, n)))
    self.u = nnx.Param(make.recurrent(rngs.params(), (n, n)))
    self.b = nnx.Param(jnp.zeros(3 * n)) if config.biases else None

  def __call__(
    self, words: Float[Array, "s b m"], valid: Bool[Array, "s b"]
  ) -> tuple[Float[Array, "s b n"], Float[Array, "b n"]]:
    """The state at every position (zeros at padding) and the last state read.

    A row's padding changes neither: there the state stands still. So the backward direction,
    which meets the padding first, still begins from zeros at the row's last word.
    """
    inputs = words @ self.w[...].T  # All positions in one matmul, outside the recurrence.
    if self.b is not None:
      inputs += self.b[...]

    def step(state: Array, x: tuple[Array, Array]) -> tuple[Array, Array]:
      inputs, valid = x
      state = jnp.where(valid, cells.gru(inputs, state, self.u_gates[...], self.u[...]), state)
      return state, jnp.where(valid, state, 0.0)

    zeros = jnp.zeros((*inputs.shape[1:-1], self.u.shape[0]), inputs.dtype)
    last, states = jax.lax.scan(step, zeros, (inputs, valid[..., None]), reverse=self.reverse)
    return states, last


class Encoder(nnx.Module):
  """Annotations h_j of a source: forward states, or [forward; backward] (Bahdanau Eq. 7)."""

  def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
    """Parameters of one or two directions; the embedding is shared by both and lives outside."""
    self.forward = Recurrence(config, reverse=False, rngs=rngs)
    both = config.encoder == "bidirectional"
    self.backward = Recurrence(config, reverse=True, rngs=rngs) if both else None

  def __call__(
    self, words: Float[Array, "s b m"], valid: Bool[Array, "s b"]
  ) -> tuple[Float[Array, "b s a"], Float[Array, "b n"], Float[Array, "b a"]]:
    """Returns annotations, the state that s_0 is made from, and the fixed vector."""
    states, last = self.forward(words, valid)
    initial = summary = last
    if self.backward is not None:
      backward, first = self.backward(words, valid)
      states = jnp.concatenate([states, backward], axis=-1)
      initial, summary = first, jnp.concatenate([last, first], axis=-1)
    return jnp.swapaxes(states, 0, 1), initial, summary
