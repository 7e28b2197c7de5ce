"""Recurrent cells: pure functions of pre-activations, state and recurrent weights.

`inputs` is everything but the state's share of the pre-activations, for all positions at once and
outside the recurrence: `W x` and whatever bias, context or fed vector a model adds to it. Blocks of
n rows stand one above the other, in the order of the equations.
"""

from typing import NamedTuple

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
    inputs: `[W_z x; W_r x; W x]`.
    state: h.
    u_gates: `[U_z; U_r]`.
    u: U.

  Returns:
    h'.
  """
  z, candidate = _reset_before(inputs, state, u_gates, u)
  return (1.0 - z) * state + z * candidate


def gru_cho(
  inputs: Float[Array, "... 3*n"],
  state: Float[Array, "... n"],
  u_gates: Float[Array, "2*n n"],
  u: Float[Array, "n n"],
) -> Float[Array, "... n"]:
  """The unit of Cho 2014 (arXiv:1406.1078v3, 2.3): as `gru`, but `z` keeps the old state.

      h' = z * h + (1 - z) * h~

  It is `gru` with W_z, U_z and the bias of z negated.
  """
  z, candidate = _reset_before(inputs, state, u_gates, u)
  return z * state + (1.0 - z) * candidate


def _reset_before(inputs: Array, state: Array, u_gates: Array, u: Array) -> tuple[Array, Array]:
  """z, and h~ = tanh(W x + U [r * h])."""
  n = state.shape[-1]
  gates = jax.nn.sigmoid(inputs[..., : 2 * n] + state @ u_gates.T)
  z, r = gates[..., :n], gates[..., n:]
  return z, jnp.tanh(inputs[..., 2 * n :] + (r * state) @ u.T)


def gru_cudnn(
  inputs: Float[Array, "... 3*n"],
  state: Float[Array, "... n"],
  u: Float[Array, "3*n n"],
  b_u: Float[Array, " n"] | None = None,
) -> Float[Array, "... n"]:
  """The unit of cuDNN, PyTorch and Flax: reset after the matmul, `z` keeps the old state.

      h~ = tanh(W x + r * (U h + b_u)),  h' = z * h + (1 - z) * h~

  Where r is not the same for all units, no parameters make it the unit of a paper.

  Args:
    inputs: `[W_z x; W_r x; W x]`.
    state: h.
    u: `[U_z; U_r; U]`.
    b_u: the candidate's bias inside the reset, a second one beside that in `inputs`.

  Returns:
    h'.
  """
  n = state.shape[-1]
  recurrent = state @ u.T
  gates = jax.nn.sigmoid(inputs[..., : 2 * n] + recurrent[..., : 2 * n])
  z, r = gates[..., :n], gates[..., n:]
  inside = recurrent[..., 2 * n :]
  if b_u is not None:
    inside += b_u
  candidate = jnp.tanh(inputs[..., 2 * n :] + r * inside)
  return z * state + (1.0 - z) * candidate


class LSTMState(NamedTuple):
  """What an LSTM carries: the output h and the memory c."""

  h: Float[Array, "... n"]
  c: Float[Array, "... n"]


def lstm(
  inputs: Float[Array, "... 4*n"],
  state: LSTMState,
  u: Float[Array, "4*n n"],
  peepholes: Float[Array, " 3*n"] | None = None,
  *,
  forget_bias: float = 0.0,
) -> LSTMState:
  """Long short-term memory as in Zaremba 2014 (arXiv:1409.2329, Eq. 1 on), as Luong 2015 uses it.

      i = sigmoid(W_i x + U_i h),  f = sigmoid(W_f x + U_f h),  o = sigmoid(W_o x + U_o h)
      c' = f * c + i * tanh(W x + U h),  h' = o * tanh(c')

  Peepholes, diagonal as in the unit that Sutskever 2014 cites (Graves 2013, arXiv:1308.0850), let
  gates see the memory: w_i * c and w_f * c are added inside i and f, w_o * c' inside o.

  Args:
    inputs: `[W_i x; W_f x; W_o x; W x]`.
    state: h and c.
    u: `[U_i; U_f; U_o; U]`.
    peepholes: `[w_i; w_f; w_o]`, or None.
    forget_bias: added to the pre-activation of f, which then begins near 1.

  Returns:
    h' and c'.
  """
  n, c = state.c.shape[-1], state.c
  pre = inputs + state.h @ u.T
  i, f, o, candidate = (pre[..., k * n : (k + 1) * n] for k in range(4))
  if peepholes is not None:
    i, f = i + peepholes[:n] * c, f + peepholes[n : 2 * n] * c
  c = jax.nn.sigmoid(f + forget_bias) * c + jax.nn.sigmoid(i) * jnp.tanh(candidate)
  if peepholes is not None:
    o = o + peepholes[2 * n :] * c
  return LSTMState(jax.nn.sigmoid(o) * jnp.tanh(c), c)
