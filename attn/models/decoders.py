"""The decoder: its parameters, and the parts that the orders of `steps` put together."""

from collections.abc import Callable

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from attn.models import scores, steps
from attn.models.config import ModelConfig
from attn.models.initialisation import recipe
from attn.models.memory import Memory
from attn.models.recurrence import CellState, Recurrence, Recurrent, cell_bias, output, plus

_ORDERS: dict[str, Callable[..., steps.Step]] = {
  "bahdanau": steps.bahdanau,
  "bahdanau_appendix": steps.bahdanau_appendix,
  "groundhog": steps.groundhog,
  "luong": steps.luong,
  "conditional_gru": steps.conditional_gru,
}
_LARGE = ("additive", "concat", "concat_released")  # They hold [t, s, n'].


class Again(Recurrent):
  """The second GRU of a conditional GRU: its recurrent weights and its bias."""

  def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
    """Parameters of the cell."""
    self.add_cell(config, rngs)
    self.b = cell_bias(config)


class Decoder(Recurrent):
  """A recurrent decoder; its first layer's parameters have the letters of Bahdanau 2015, A.2.2."""

  def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
    """Parameters under the paper's letters, in its orientation `[out, in]`."""
    make, n, m = recipe(config.initialisation), config.units, config.embedding
    rows, vocabulary, context = config.blocks * n, config.target_vocabulary, config.context_in

    def param(*shape: int | None) -> nnx.Param[Array]:
      return nnx.Param(make.other(rngs.params(), shape))

    def bias(size: int | None) -> nnx.Param[Array] | None:
      return nnx.Param(jnp.zeros(size)) if config.biases else None

    self.layers, self.initial, self.order = config.layers, config.initial_state, config.order
    self.feeding, self.fed_width = config.input_feeding, _fed_width(config)
    self.window, self.half_width = config.window, config.half_width
    self.gaussian, self.renormalise = config.window == "local_p", config.renormalise
    self.gathers = config.score != "location"
    # Where no state waits for a context, all steps attend together, if that fits into memory.
    self.at_once = config.order == "luong" and self.feeding == "none"
    self.at_once &= config.window == "global" and config.score not in _LARGE

    projected = config.initial_state in ("projected", "mean")
    whole = config.initial_state == "mean" or config.project_summary
    self.w_s = param(self.layers * n, config.annotation if whole else n) if projected else None
    self.b_s = bias(self.layers * n) if projected else None
    self.w = param(rows, m)
    self.c = param(rows, config.key_width) if context in ("state", "both") else None
    self.w_f = param(rows, self.fed_width) if self.feeding != "none" else None
    self.b = cell_bias(config)
    self.add_cell(config, rngs)
    self.second = Again(config, rngs) if config.order == "conditional_gru" else None
    for layer in range(1, self.layers):
      setattr(self, f"layer_{layer + 1}", Recurrence(config, n, reverse=False, rngs=rngs))
    self.score = scores.build(config, rngs)
    self.predict = scores.Position(config, rngs) if config.window == "local_p" else None

    self.kind, width = config.readout, n if config.readout == "state" else config.maxout
    out = 2 * width if self.kind == "maxout" else width
    reads = context in ("readout", "both")
    self.u_o = param(out, n) if self.kind != "state" else None
    self.v_o = param(out, m) if config.reads_word else None
    self.c_o = param(out, config.key_width) if reads else None
    self.b_o = bias(out) if self.kind != "state" else None
    low = config.output_width
    self.w_t = param(low, width) if low is not None else None
    self.w_o, self.b_w = param(vocabulary, low or width), bias(vocabulary)

  @property
  def step(self) -> Callable[..., steps.Step]:
    """The order of the step that the configuration asks for."""
    return _ORDERS[self.order]

  def start(self, memory: Memory) -> steps.State:
    """The state before the first word."""
    leading, dtype = memory.mask.shape[:-1], memory.annotations.dtype
    # In groundhog's order the pending context, in luong's what is fed: 0 before the first word.
    carries = self.feeding != "none" or (self.order == "groundhog" and self.c is not None)
    return steps.State(
      layers=self._first_layers(memory),
      carried=jnp.zeros((*leading, self.fed_width), dtype) if carries else None,
      time=jnp.zeros(leading, jnp.int32) if self.window == "local_m" else None,
    )

  def _first_layers(self, memory: Memory) -> tuple[CellState, ...]:
    if self.initial == "all_layers":
      layers: tuple[CellState, ...] = memory.initial
      return layers
    if self.initial == "last":
      return (memory.initial,) * self.layers
    if self.w_s is None:
      zeros = jnp.zeros((*memory.mask.shape[:-1], self.units), memory.annotations.dtype)
      return (self.as_state(zeros),) * self.layers
    h = jnp.tanh(plus(memory.initial @ self.w_s[...].T, self.b_s))  # s_0 = tanh(W_s h)
    return tuple(self.as_state(part) for part in jnp.split(h, self.layers, axis=-1))

  def word(
    self,
    embedded: Float[Array, "... m"],
    first: Bool[Array, "..."],
    kept: tuple[Array, ...] = (),
  ) -> steps.Word:
    """The shares of embedded previous words in state and readout."""
    readout = None if self.v_o is None else plus(embedded @ self.v_o[...].T, self.b_o)
    return steps.Word(plus(embedded @ self.w[...].T, self.b), readout, first, kept)

  def update(
    self,
    layers: tuple[CellState, ...],
    word: steps.Word,
    context: Float[Array, "... k"] | None = None,
    fed: Float[Array, "... f"] | None = None,
  ) -> tuple[CellState, ...]:
    """The layers after a word: s_i = f(s_{i-1}, y_{i-1}, c_i), or with a fed vector for c_i."""
    inputs = word.cell
    if self.c is not None and context is not None:
      inputs = inputs + context @ self.c[...].T
    if self.w_f is not None and fed is not None:
      inputs = inputs + (fed * word.kept[-1] if word.kept else fed) @ self.w_f[...].T
    new = [self.advance(inputs, layers[0])]
    for at, layer in enumerate(self._above):
      x = output(new[-1])
      x = x * word.kept[at] if word.kept else x
      new.append(layer.advance(layer.inputs(x), layers[at + 1]))
    return tuple(new)

  def update_again(
    self, between: CellState, context: Float[Array, "... k"]
  ) -> Float[Array, "... n"]:
    """The second GRU of a conditional GRU, which reads the context."""
    assert self.second is not None and self.c is not None
    s: Array = self.second.advance(plus(context @ self.c[...].T, self.second.b), between)
    return s

  def unroll_layers(
    self, layers: tuple[CellState, ...], words: steps.Word
  ) -> Float[Array, "t b n"]:
    """The top layer's output after each word `[t, b]`, where no context or fed vector enters."""
    x, _ = self.unroll(words.cell, layers[0])
    for at, layer in enumerate(self._above):
      x = x * words.kept[at] if words.kept else x
      x, _ = layer.unroll(layer.inputs(x), layers[at + 1])
    return x

  @property
  def _above(self) -> list[Recurrence]:
    return [getattr(self, f"layer_{layer + 1}") for layer in range(1, self.layers)]

  def centre(
    self, memory: Memory, query: Float[Array, "... n"], time: Int[Array, "..."] | None
  ) -> Float[Array, "..."] | None:
    """The centre of the window of one step; None if it reads all of the source."""
    if self.predict is not None:
      return self.predict(query, memory.length)
    return None if time is None else time.astype(jnp.float32)  # p_t = t

  def readout(
    self,
    state: Float[Array, "... n"],
    word: steps.Word,
    context: Float[Array, "... k"],
  ) -> Float[Array, "... l"]:
    """t_ij = max(t~_{i,2j-1}, t~_{i,2j}), t~_i = U_o s_i + V_o E y_{i-1} + C_o c_i.

    Or tanh(t~_i), as Luong's h~_t is with W_c = [C_o, U_o]; or t~_i; or the state.
    """
    if self.u_o is None:
      return state
    units = state @ self.u_o[...].T
    units = plus(units, self.b_o) if word.readout is None else units + word.readout
    if self.c_o is not None:
      units = units + context @ self.c_o[...].T
    if self.kind == "maxout":
      return units.reshape(*units.shape[:-1], -1, 2).max(-1)
    return jnp.tanh(units) if self.kind == "tanh" else units

  def narrowed(self, readout: Float[Array, "... l"]) -> Float[Array, "... o"]:
    """What W_o multiplies: t_i, or W_t t_i where the output matrix is a product of two."""
    return readout if self.w_t is None else readout @ self.w_t[...].T

  def logits(self, narrowed: Float[Array, "... o"]) -> Float[Array, "... v"]:
    """W_o t_i, the unnormalised log-probabilities of y_i."""
    return plus(narrowed @ self.w_o[...].T, self.b_w)


def _fed_width(config: ModelConfig) -> int:
  """Width of what a step carries beside its state: a readout or a context."""
  if config.input_feeding != "readout":
    return config.key_width
  return config.units if config.readout == "state" else config.maxout
