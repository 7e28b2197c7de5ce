"""What the decoder may read of a source sentence."""

from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Bool, Float, Int


class Memory(NamedTuple):
  """An encoded batch of sources. Every leaf leads with the batch axis.

  Positions are those of the text, from its first word on, whichever way the encoder reads.

  Attributes:
    annotations: h_j, zeros at padding `[b, s, a]`.
    values: what is summed into a context `[b, s, k]`: h_j, or its second half.
    keys: what the score compares a query with, made once a sentence from h_j or its first half
      `[b, s, ...]`; None without attention.
    mask: True at the positions that may be attended to `[b, s]`: those of the source, its EOS
      included if it is read, and of these only the first L under a location score.
    length: how many positions the source has `[b]`.
    overflow: how many of them lie beyond L `[b]`; None without a location score.
    initial: what the decoder's first state is made from: the backward state at the first word
      (Bahdanau A.2.2) or the last state of a forward encoder `[b, n]`, the mean annotation
      `[b, a]`, the fixed vector, or the states of the decoder's layers; None if that is 0.
    summary: the fixed vector `[b, a]`: last forward state, with the backward state at the first
      word behind it when the encoder is bidirectional.
  """

  annotations: Float[Array, "... s a"]
  values: Float[Array, "... s k"]
  keys: Float[Array, "... s n"] | None
  mask: Bool[Array, "... s"]
  length: Int[Array, "..."]
  overflow: Int[Array, "..."] | None
  initial: Any
  summary: Float[Array, "... a"]

  def for_hypotheses(self) -> "Memory":
    """The same memory with an axis of size 1 after the batch, shared by all hypotheses."""
    shared: Memory = jax.tree.map(lambda leaf: leaf[:, None], self)
    return shared
