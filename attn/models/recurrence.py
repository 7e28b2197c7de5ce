"""Recurrent layers: the parameters of a cell, and how it runs over a sequence."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from attn.models import cells
from attn.models.config import ModelConfig
from attn.models.initialisation import recipe

CellState = Any  # An array h, or an LSTMState.


class Recurrent(nnx.Module):
  """The recurrent weights of one layer, and its step."""

  def add_cell(self, config: ModelConfig, rngs: nnx.Rngs) -> None:
    """Parameters `U_gates [2n, n]` and `U [n, n]`, or `U` of all blocks, and what the cell adds."""
    make, n, self.cell = recipe(config.initialisation), config.units, config.cell
    self.units, self.forget_bias = n, config.forget_bias
    apart = config.cell in ("gru", "gru_cho")  # The candidate's product waits for the reset gate.
    self.u_gates = nnx.Param(make.recurrent(rngs.params(), (2 * n, n))) if apart else None
    rows = n if apart else config.blocks * n
    self.u = nnx.Param(make.recurrent(rngs.params(), (rows, n)))
    inside = config.cell == "gru_cudnn" and config.biases is True
    self.b_u = nnx.Param(jnp.zeros(n)) if inside else None
    self.peepholes = (
      nnx.Param(make.other(rngs.params(), (1, 3 * n))[0]) if config.peepholes else None
    )

  def advance(self, inputs: Float[Array, "... g"], state: CellState) -> CellState:
    """The state after one position, whose share of the pre-activations is `inputs`."""
    if self.cell == "lstm":
      peepholes = None if self.peepholes is None else self.peepholes[...]
      return cells.lstm(inputs, state, self.u[...], peepholes, forget_bias=self.forget_bias)
    if self.cell == "gru_cudnn":
      b_u = None if self.b_u is None else self.b_u[...]
      return cells.gru_cudnn(inputs, state, self.u[...], b_u)
    assert self.u_gates is not None
    step = cells.gru if self.cell == "gru" else cells.gru_cho
    return step(inputs, state, self.u_gates[...], self.u[...])

  def as_state(self, h: Float[Array, "... n"]) -> CellState:
    """A state whose output is h; an LSTM's memory begins at 0."""
    return cells.LSTMState(h, jnp.zeros_like(h)) if self.cell == "lstm" else h

  def unroll(
    self,
    inputs: Float[Array, "s b g"],
    state: CellState,
    valid: Bool[Array, "s b 1"] | None = None,
    *,
    reverse: bool = False,
  ) -> tuple[Float[Array, "s b n"], CellState]:
    """The output at every position (zeros at padding) and the last state.

    A row's padding changes neither: there the state stands still. So the backward direction,
    which meets the padding first, still begins from `state` at the row's last word.
    """

    def step(state: CellState, x: tuple[Array, Array | None]) -> tuple[CellState, Array]:
      inputs, valid = x
      new = self.advance(inputs, state)
      if valid is None:
        return new, output(new)
      new = jax.tree.map(lambda new, old: jnp.where(valid, new, old), new, state)
      return new, jnp.where(valid, output(new), 0.0)

    last, outputs = jax.lax.scan(step, state, (inputs, valid), reverse=reverse)
    return outputs, last


class Recurrence(Recurrent):
  """A layer over a whole sequence in one direction."""

  def __init__(self, config: ModelConfig, width: int, *, reverse: bool, rngs: nnx.Rngs):
    """Parameters `W [blocks n, width]`, those of the cell, and a bias or None."""
    make = recipe(config.initialisation)
    self.reverse = reverse
    self.w = nnx.Param(make.other(rngs.params(), (config.blocks * config.units, width)))
    self.add_cell(config, rngs)
    self.b = cell_bias(config)

  def inputs(self, x: Float[Array, "... w"]) -> Float[Array, "... g"]:
    """W x and the bias, for all positions in one matmul, outside the recurrence."""
    return plus(x @ self.w[...].T, self.b)

  def __call__(
    self, words: Float[Array, "s b w"], valid: Bool[Array, "s b"]
  ) -> tuple[Float[Array, "s b n"], CellState]:
    """The output at every position of right-padded rows, and the last state read."""
    inputs = self.inputs(words)
    state = self.as_state(jnp.zeros((*inputs.shape[1:-1], self.units), inputs.dtype))
    return self.unroll(inputs, state, valid[..., None], reverse=self.reverse)


def output(state: CellState) -> Float[Array, "... n"]:
  """What a layer shows of its state: h."""
  h: Array = state.h if isinstance(state, cells.LSTMState) else state
  return h


def cell_bias(config: ModelConfig) -> nnx.Param[Array] | None:
  """Zeros for every pre-activation, for the candidate's alone (`groundhog`), or None."""
  if config.biases == "groundhog":
    return nnx.Param(jnp.zeros(config.units))
  return nnx.Param(jnp.zeros(config.blocks * config.units)) if config.biases else None


def plus(x: Float[Array, "... g"], bias: nnx.Param[Array] | None) -> Float[Array, "... g"]:
  """x + b; a bias of fewer rows is that of the last ones."""
  if bias is None:
    return x
  short = x.shape[-1] - bias.shape[0]
  return x + (jnp.pad(bias[...], (short, 0)) if short else bias[...])
