"""Recurrent cells: pure functions of pre-activations, state and recurrent weights."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def gru(
  inputs: Float[Array, "... 3*n"],
  state: Float[Array, "... n"],
  u_gates: Float[Array, "2*n n"],
  u: Float[Array, "n n"],
) -> Float[Array, "... n"]:
  """The gated unit of Bahdanau 2015, A.1.1: reset before the matmul, `z` takes the new state.

      z = sigmoid(W_z x + U_z h),  r = sigmoid(W_r x + U_r h)
      h~ = tanh(W x + U [r * h]),  h' = (1 - z) * h + z * h~

  Args:
    inputs: everything but the state's share of the pre-activations, `[W_z x; W_r x; W x]`,
      computed for all positions at once outside the recurrence.
    state: h.
    u_gates: `[U_z; U_r]`.
    u: U.

  Returns:
    h'.
  """
  n = state.shape[-1]
  gates = jax.nn.sigmoid(inputs[..., : 2 * n] + state @ u_gates.T)
  z, r = gates[..., :n], gates[..., n:]
  candidate = jnp.tanh(inputs[..., 2 * n :] + (r * state) @ u.T)
  return (1.0 - z) * state + z * candidate
