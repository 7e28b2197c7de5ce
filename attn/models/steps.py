"""The decoding step: one function an order, its body the paper's actions in their order.

Each returns everything that it computed. A caller that drops a field (training computes the
readout of all steps at once, after the recurrence) pays nothing for it: under `jit` what is not
used is not run.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

import attn
from attn.models.memory import Memory
from attn.models.recurrence import CellState, output
from attn.ops.weights import normalised

if TYPE_CHECKING:  # The decoder chooses a step, a step calls the decoder.
  from attn.models.decoders import Decoder


class Word(NamedTuple):
  """What a previous word y_{i-1} brings to a step, computed for many words at once.

  Attributes:
    cell: its share of the state's pre-activations `[..., g]`.
    readout: its share of the readout `[..., r]`, None where it has none.
    first: whether no word stands before this step `[...]`.
    kept: while training, the factors of dropout for the input of each layer above the first and,
      last, for the fed vector.
  """

  cell: Float[Array, "... g"]
  readout: Float[Array, "... r"] | None
  first: Bool[Array, "..."]
  kept: tuple[Float[Array, "... n"], ...] = ()


class State(NamedTuple):
  """What a step hands to the next; leaves lead as the words do.

  Attributes:
    layers: the state of each layer.
    carried: c_{i-1} in `groundhog`, what input feeding feeds in `luong`, else None.
    time: the number of the step from 0, where the window follows it, else None.
  """

  layers: tuple[CellState, ...]
  carried: Float[Array, "... k"] | None
  time: Int[Array, "..."] | None

  @property
  def top(self) -> Float[Array, "... n"]:
    """The output of the top layer: the s_i or h_t of the equations."""
    return output(self.layers[-1])

  def after(self, layers: tuple[CellState, ...]) -> "State":
    """The next step's state: these layers, and the time that it is then."""
    return State(layers, self.carried, None if self.time is None else self.time + 1)


class Read(NamedTuple):
  """What was read of the source: the fields of `Step` that an order hands through."""

  query: Float[Array, "... n"]
  scores: Float[Array, "... s"] | None
  weights: Float[Array, "... s"] | None
  position: Float[Array, "..."] | None
  context: Float[Array, "... k"]


class Step(NamedTuple):
  """Everything a decoding step computed.

  Attributes:
    query: the state that reads, s_{i-1}, s_i or s'_i `[..., n]`.
    scores: e_ij `[..., s]`; None without attention, and where only a window was scored.
    weights: alpha_ij `[..., s]`; None without attention.
    position: the centre of the window `[...]`, None without one.
    context: c_i `[..., k]`.
    state: what goes to the next step.
    hidden: the state that is read out `[..., n]`.
    readout: t_i `[..., l]`.
  """

  query: Float[Array, "... n"]
  scores: Float[Array, "... s"] | None
  weights: Float[Array, "... s"] | None
  position: Float[Array, "..."] | None
  context: Float[Array, "... k"]
  state: State
  hidden: Float[Array, "... n"]
  readout: Float[Array, "... l"]


def bahdanau(decoder: "Decoder", memory: Memory, state: State, word: Word) -> Step:
  """Bahdanau 2015, section 3.1: score with s_{i-1}, read, update with c_i, emit from s_i."""
  read = attend(decoder, memory, state.top, state.time)  # e_ij = a(s_{i-1}, h_j), alpha_ij, c_i
  new = state.after(decoder.update(state.layers, word, read.context))  # s_i
  readout = decoder.readout(new.top, word, read.context)  # t_i, from s_i, y_{i-1}, c_i (Eq. 4)
  return Step(*read, new, new.top, readout)


def bahdanau_appendix(decoder: "Decoder", memory: Memory, state: State, word: Word) -> Step:
  """Bahdanau 2015, appendix A.2.2: the same, but t_i is made from s_{i-1}."""
  read = attend(decoder, memory, state.top, state.time)
  readout = decoder.readout(state.top, word, read.context)  # U_o s_{i-1} + V_o E y_{i-1} + C_o c_i
  new = state.after(decoder.update(state.layers, word, read.context))
  return Step(*read, new, state.top, readout)


def groundhog(decoder: "Decoder", memory: Memory, state: State, word: Word) -> Step:
  """The code of Bahdanau 2015: c_i = att(s_{i-1}), p(y_i) from s_{i-1}, s_i = f(s_{i-1}, y_i, c_i).

  The update takes the word that it follows, so it waits here for the next step to bring it.
  """
  updated = decoder.update(state.layers, word, state.carried)  # s_{i-1}, of y_{i-1} and c_{i-1}
  first = word.first[..., None]  # No word has been emitted: s_0 stays.
  layers = jax.tree.map(lambda new, old: jnp.where(first, old, new), updated, state.layers)
  new = state.after(layers)
  read = attend(decoder, memory, new.top, state.time)  # c_i
  readout = decoder.readout(new.top, word, read.context)
  carried = None if state.carried is None else _like(read.context, state.carried)
  return Step(*read, new._replace(carried=carried), new.top, readout)


def luong(decoder: "Decoder", memory: Memory, state: State, word: Word) -> Step:
  """Luong 2015, section 3: h_t, then score with it, read, h~_t = tanh(W_c [c_t; h_t]).

  Input feeding (3.3) gives h~_t to the next step beside its word.
  """
  new = state.after(decoder.update(state.layers, word, fed=state.carried))  # h_t
  read = attend(decoder, memory, new.top, state.time)  # a_t, c_t
  readout = decoder.readout(new.top, word, read.context)  # h~_t
  fed = readout if decoder.feeding == "readout" else read.context
  carried = None if state.carried is None else _like(fed, state.carried)
  return Step(*read, new._replace(carried=carried), new.top, readout)


def luong_at_once(
  decoder: "Decoder", memory: Memory, state: State, words: Word
) -> tuple[Read, Float[Array, "t b n"]]:
  """`luong` without input feeding for all words of `[t, b]`: no state waits for a context.

  Returns what was read `[t, b, ...]`, and h_t.
  """
  hidden = decoder.unroll_layers(state.layers, words)
  return attend(decoder, memory, hidden), hidden


def conditional_gru(decoder: "Decoder", memory: Memory, state: State, word: Word) -> Step:
  """The conditional GRU of dl4mt: s'_i from s_{i-1}, y_{i-1}, read with it, s_i from s'_i, c_i."""
  (before,) = state.layers
  between = decoder.advance(word.cell, before)  # s'_i
  read = attend(decoder, memory, output(between), state.time)  # c_i
  new = state.after((decoder.update_again(between, read.context),))  # s_i
  readout = decoder.readout(new.top, word, read.context)
  return Step(*read, new, new.top, readout)


def attend(
  decoder: "Decoder",
  memory: Memory,
  query: Float[Array, "... n"],
  time: Int[Array, "..."] | None = None,
) -> Read:
  """What all orders share: score a state with every annotation, softmax over them, weighted sum."""
  score = decoder.score
  if score is None or memory.keys is None:
    return Read(query, None, None, None, memory.summary)
  position = decoder.centre(memory, query, time)
  if position is not None and decoder.gathers:
    return _attend_window(decoder, memory, query, position)
  scores = score(query, memory.keys)  # e_ij
  if position is None:
    weights = attn.softmax(scores, memory.mask)  # alpha_ij
  else:
    weights = _window_weights(decoder, memory, scores, position)
  context = attn.context(weights, memory.values)  # c_i; values are 0 at padding
  return Read(query, scores, weights, position, context)


def _attend_window(
  decoder: "Decoder", memory: Memory, query: Float[Array, "... n"], position: Float[Array, "..."]
) -> Read:
  """Luong 2015, 3.2: scores, weights and sum of the window alone, which is gathered."""
  assert decoder.score is not None and memory.keys is not None
  found = attn.attend_local(
    query[..., None, :],
    memory.keys,
    memory.values,
    position[..., None],
    memory.length,
    half_width=decoder.half_width,
    score=decoder.score,
    mask=memory.mask,
    gaussian=decoder.gaussian,
    renormalise=decoder.renormalise,
  )
  assert found.weights is not None and found.positions is not None
  size = memory.mask.shape[-1]

  def spread(weights: Array, positions: Array) -> Array:
    return jnp.zeros(size, weights.dtype).at[positions].add(weights, mode="drop")

  weights = jnp.vectorize(spread, signature="(w),(w)->(s)")(
    found.weights[..., 0, :], found.positions[..., 0, :]
  )
  return Read(query, None, weights, position, found.context[..., 0, :])


def _window_weights(
  decoder: "Decoder", memory: Memory, scores: Float[Array, "... s"], position: Float[Array, "..."]
) -> Float[Array, "... s"]:
  """The weights of a window whose scores are those of positions, all of them at hand."""
  window = {"half_width": decoder.half_width, "size": scores.shape[-1]}
  weights = attn.softmax(scores, memory.mask & attn.window_mask(position, memory.length, **window))
  if decoder.gaussian:
    # Eq. 10: not renormalised. Positions, and what is made of them, are never of 16 bits.
    weights = (weights * attn.gaussian(position, **window)).astype(weights.dtype)
  return normalised(weights) if decoder.renormalise else weights


def _like(x: Float[Array, "... k"], other: Float[Array, "... k"]) -> Float[Array, "... k"]:
  """x for all of other's leading axes: a fixed vector is one for all hypotheses."""
  return jnp.broadcast_to(x, other.shape)
