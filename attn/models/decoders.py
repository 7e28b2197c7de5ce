"""The decoder: its parameters, and the parts that the orders of `steps` put together."""

from collections.abc import Callable

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from attn.models import cells, steps
from attn.models.config import ModelConfig
from attn.models.initialisation import recipe
from attn.models.memory import Memory
from attn.models.scores import Additive


class Decoder(nnx.Module):
  """A gated recurrent decoder with a maxout readout (Bahdanau 2015, A.2.2)."""

  def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
    """Parameters under the paper's letters, in its orientation `[out, in]`."""
    make, n, m = recipe(config.initialisation), config.units, config.embedding
    l2, vocabulary, biases = 2 * config.maxout, config.target_vocabulary, config.biases

    def param(*shape: int | None) -> nnx.Param[Array]:
      return nnx.Param(make.other(rngs.params(), shape))

    def bias(size: int | None) -> nnx.Param[Array] | None:
      return nnx.Param(jnp.zeros(size)) if biases else None

    self.w_s, self.b_s = param(n, n), bias(n)
    self.w, self.c, self.b = param(3 * n, m), param(3 * n, config.annotation), bias(3 * n)
    self.u_gates = nnx.Param(make.recurrent(rngs.params(), (2 * n, n)))
    self.u = nnx.Param(make.recurrent(rngs.params(), (n, n)))
    self.score = Additive(config, rngs) if config.score == "additive" else None
    self.u_o, self.v_o, self.c_o = param(l2, n), param(l2, m), param(l2, config.annotation)
    self.b_o = bias(l2)
    self.w_o, self.b_w = param(vocabulary, config.maxout), bias(vocabulary)

  @property
  def step(self) -> Callable[..., steps.Step]:
    """The order of the step that the configuration asks for."""
    return steps.fixed_vector if self.score is None else steps.bahdanau

  def start(self, memory: Memory) -> Float[Array, "... n"]:
    """s_0 = tanh(W_s h), h the backward state at word 1 or the last forward one."""
    return jnp.tanh(_plus(memory.initial @ self.w_s[...].T, self.b_s))

  def scores(self, state: Float[Array, "... n"], memory: Memory) -> Float[Array, "... s"]:
    """e_ij of one state with every annotation; only for a decoder with attention."""
    assert self.score is not None and memory.keys is not None
    return self.score(state, memory.keys)

  def word(self, embedded: Float[Array, "... m"]) -> steps.Word:
    """The shares of embedded previous words in state and readout."""
    return steps.Word(
      cell=_plus(embedded @ self.w[...].T, self.b),
      readout=_plus(embedded @ self.v_o[...].T, self.b_o),
    )

  def update(
    self, state: Float[Array, "... n"], word: steps.Word, context: Float[Array, "... a"]
  ) -> Float[Array, "... n"]:
    """s_i = f(s_{i-1}, y_{i-1}, c_i)."""
    inputs = word.cell + context @ self.c[...].T
    return cells.gru(inputs, state, self.u_gates[...], self.u[...])

  def readout(
    self, state: Float[Array, "... n"], word: steps.Word, context: Float[Array, "... a"]
  ) -> Float[Array, "... l"]:
    """t_ij = max(t~_{i,2j-1}, t~_{i,2j}), t~_i = U_o s_i + V_o E y_{i-1} + C_o c_i."""
    pairs = state @ self.u_o[...].T + word.readout + context @ self.c_o[...].T
    return pairs.reshape(*pairs.shape[:-1], -1, 2).max(-1)

  def logits(self, readout: Float[Array, "... l"]) -> Float[Array, "... v"]:
    """W_o t_i, the unnormalised log-probabilities of y_i."""
    return _plus(readout @ self.w_o[...].T, self.b_w)


def _plus(x: Array, bias: nnx.Param[Array] | None) -> Array:
  return x if bias is None else x + bias[...]
