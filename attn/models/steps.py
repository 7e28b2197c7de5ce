"""The decoding step: one function an order, its body the paper's actions in their order.

Each returns everything that it computed. A caller that drops a field (training computes the
readout of all steps at once, after the recurrence) pays nothing for it: under `jit` what is not
used is not run.
"""

from typing import TYPE_CHECKING, NamedTuple

from jaxtyping import Array, Float

import attn
from attn.models.memory import Memory

if TYPE_CHECKING:  # The decoder chooses a step, a step calls the decoder.
  from attn.models.decoders import Decoder


class Word(NamedTuple):
  """What a previous word y_{i-1} brings to a step, computed for many words at once.

  Attributes:
    cell: its share of the state's pre-activations `[..., 3n]`.
    readout: its share of the readout `[..., 2l]`.
  """

  cell: Float[Array, "... 3*n"]
  readout: Float[Array, "... 2*l"]


class Step(NamedTuple):
  """Everything a decoding step computed; scores and weights are None without attention.

  Attributes:
    scores: e_ij `[..., s]`.
    weights: alpha_ij `[..., s]`.
    context: c_i `[..., a]`.
    state: s_i `[..., n]`.
    readout: t_i `[..., l]`.
  """

  scores: Float[Array, "... s"] | None
  weights: Float[Array, "... s"] | None
  context: Float[Array, "... a"]
  state: Float[Array, "... n"]
  readout: Float[Array, "... l"]


def bahdanau(decoder: "Decoder", memory: Memory, state: Float[Array, "... n"], word: Word) -> Step:
  """Bahdanau 2015, section 3.1: score with s_{i-1}, read, update with c_i, emit from s_i."""
  scores = decoder.scores(state, memory)  # e_ij = a(s_{i-1}, h_j)
  weights = attn.softmax(scores, memory.mask)  # alpha_ij
  context = attn.context(weights, memory.annotations)  # c_i; annotations are 0 at padding
  state = decoder.update(state, word, context)  # s_i = f(s_{i-1}, y_{i-1}, c_i)
  readout = decoder.readout(state, word, context)  # t_i, from s_i, y_{i-1}, c_i (Eq. 4)
  return Step(scores, weights, context, state, readout)


def fixed_vector(
  decoder: "Decoder", memory: Memory, state: Float[Array, "... n"], word: Word
) -> Step:
  """RNNencdec as in Bahdanau 2015, A.2.2: the same decoder with c_i = h_T at every step."""
  context = memory.summary
  state = decoder.update(state, word, context)
  readout = decoder.readout(state, word, context)
  return Step(None, None, context, state, readout)
