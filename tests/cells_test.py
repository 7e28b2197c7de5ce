"""Cells against float64 loops, against the libraries whose equations agree, and by differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.test_util import check_grads

from attn.models import cells
from tests import reference_models as reference

N, M, B = 7, 5, 3


def drawn(*shape, seed=0):
  return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def gates_and_candidate(u):
  return u[: 2 * N], u[2 * N :]


# name -> (function of inputs, state and drawn weights, the float64 loop for one row)
UNITS = {
  "gru": (
    lambda x, h: cells.gru(x, h, *gates_and_candidate(drawn(3 * N, N))),
    lambda x, h: reference.gru_step(x, h, drawn(3 * N, N)),
  ),
  "gru_cho": (
    lambda x, h: cells.gru_cho(x, h, *gates_and_candidate(drawn(3 * N, N))),
    lambda x, h: reference.gru_cho_step(x, h, drawn(3 * N, N)),
  ),
  "gru_cudnn": (
    lambda x, h: cells.gru_cudnn(x, h, drawn(3 * N, N), drawn(N)),
    lambda x, h: reference.gru_cudnn_step(x, h, drawn(3 * N, N), drawn(N)),
  ),
  "lstm": (
    lambda x, h: jnp.concatenate(cells.lstm(x, pair(h), drawn(4 * N, N), forget_bias=1.5), -1),
    lambda x, h: np.concatenate(reference.lstm_step(x, split(h), drawn(4 * N, N), forget_bias=1.5)),
  ),
  "lstm_peepholes": (
    lambda x, h: jnp.concatenate(cells.lstm(x, pair(h), drawn(4 * N, N), drawn(3 * N)), -1),
    lambda x, h: np.concatenate(
      reference.lstm_step(x, split(h), drawn(4 * N, N), peepholes=drawn(3 * N))
    ),
  ),
}


def pair(h):
  return cells.LSTMState(h[..., :N], h[..., N:])


def split(h):
  return h[:N], h[N:]


def sizes(name):
  return (4 * N, 2 * N) if name.startswith("lstm") else (3 * N, N)


@pytest.mark.parametrize("name", UNITS)
def test_a_cell_equals_its_equations_over_any_leading_axes(name):
  cell, loop = UNITS[name]
  wide, state = sizes(name)
  inputs, states = drawn(2, B, wide), drawn(2, B, state)
  got = cell(inputs, states)
  for at in np.ndindex(2, B):
    expected = loop(inputs[at].astype(np.float64), states[at].astype(np.float64))
    np.testing.assert_allclose(got[at], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", UNITS)
def test_gradients_of_a_cell_by_finite_differences(name):
  cell, _ = UNITS[name]
  wide, state = sizes(name)
  with jax.enable_x64(True):
    args = [jnp.asarray(drawn(B, width), jnp.float64) for width in (wide, state)]
    check_grads(cell, args, order=1, modes=["fwd", "rev"])


def test_chos_update_gate_is_bahdanaus_negated():
  inputs, state, u = drawn(B, 3 * N), drawn(B, N), drawn(3 * N, N)
  flip = np.repeat([-1.0, 1.0, 1.0], N).astype(np.float32)
  flipped = cells.gru(inputs * flip, state, *gates_and_candidate(u * flip[:, None]))
  np.testing.assert_allclose(
    cells.gru_cho(inputs, state, *gates_and_candidate(u)), flipped, rtol=1e-5, atol=1e-6
  )


def test_reset_after_the_matmul_equals_flax():
  """NNX's unit has no bias inside the reset; its gates come in the order r, z, candidate."""
  theirs = nnx.GRUCell(M, N, rngs=nnx.Rngs(0))
  theirs.dense_i.bias[...] = drawn(3 * N)
  x, state = drawn(B, M), drawn(B, N)
  order = np.r_[N : 2 * N, :N, 2 * N : 3 * N]
  w, u = theirs.dense_i.kernel[...].T[order], theirs.dense_h.kernel[...].T[order]
  ours = cells.gru_cudnn(x @ w.T + theirs.dense_i.bias[...][order], state, u)
  np.testing.assert_allclose(ours, theirs(state, x)[0], rtol=1e-5, atol=1e-6)


def test_lstm_equals_flax():
  """NNX's gates come in the order i, f, candidate, o, and its bias with the state."""
  theirs = nnx.LSTMCell(M, N, rngs=nnx.Rngs(0))
  x, h, c = drawn(B, M), drawn(B, N), drawn(B, N, seed=1)
  (theirs_c, theirs_h), _ = theirs((c, h), x)
  w, u, b = (np.concatenate(blocks) for blocks in zip(*map(flax_gate(theirs), "ifog"), strict=True))
  ours = cells.lstm(x @ w.T + b, cells.LSTMState(h, c), u)
  np.testing.assert_allclose(ours.h, theirs_h, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(ours.c, theirs_c, rtol=1e-5, atol=1e-6)


def flax_gate(cell):
  def gate(letter):
    inputs = getattr(cell, "if_" if letter == "f" else f"i{letter}")
    hidden = getattr(cell, f"h{letter}")
    return inputs.kernel[...].T, hidden.kernel[...].T, hidden.bias[...]

  return gate


def test_cells_equal_torch():
  torch = pytest.importorskip("torch", reason="torch is not installed (the extra `peers`)")
  x, h, c = (torch.from_numpy(drawn(B, k, seed=k)) for k in (M, N, N))
  order = np.r_[N : 2 * N, :N, 2 * N : 3 * N]  # Theirs are r, z, candidate.
  gru = torch.nn.GRUCell(M, N)
  w, u, b, b_u = (p.detach().numpy()[order] for p in gru.parameters())
  inputs = x.numpy() @ w.T + b + np.r_[b_u[: 2 * N], np.zeros(N, np.float32)]
  ours = cells.gru_cudnn(inputs, h.numpy(), u, b_u[2 * N :])
  np.testing.assert_allclose(ours, gru(x, h).detach().numpy(), rtol=1e-5, atol=1e-6)
  lstm = torch.nn.LSTMCell(M, N)
  order = np.r_[: 2 * N, 3 * N : 4 * N, 2 * N : 3 * N]  # Theirs are i, f, candidate, o.
  w, u, b, b_u = (p.detach().numpy()[order] for p in lstm.parameters())
  state = cells.lstm(x.numpy() @ w.T + b + b_u, cells.LSTMState(h.numpy(), c.numpy()), u)
  for mine, yours in zip(state, lstm(x, (h, c)), strict=True):
    np.testing.assert_allclose(mine, yours.detach().numpy(), rtol=1e-5, atol=1e-6)
