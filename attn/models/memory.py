"""What the decoder may read of a source sentence."""

from typing import NamedTuple

import jax
from jaxtyping import Array, Bool, Float


class Memory(NamedTuple):
  """An encoded batch of sources. Every leaf leads with the batch axis.

  Attributes:
    annotations: h_j, zeros at padding `[b, s, a]`.
    keys: what the score compares a query with, made once a sentence `[b, s, n']`;
      None without attention.
    mask: True at the source's positions, EOS included `[b, s]`.
    initial: the encoder state that s_0 is made from `[b, n]`: the backward state at the first
      word (Bahdanau A.2.2), or the last state of a forward encoder.
    summary: the fixed vector `[b, a]`: last forward state, with the backward state at the first
      word behind it when the encoder is bidirectional.
  """

  annotations: Float[Array, "... s a"]
  keys: Float[Array, "... s n"] | None
  mask: Bool[Array, "... s"]
  initial: Float[Array, "... n"]
  summary: Float[Array, "... a"]

  def for_hypotheses(self) -> "Memory":
    """The same memory with an axis of size 1 after the batch, shared by all hypotheses."""
    shared: Memory = jax.tree.map(lambda leaf: leaf[:, None], self)
    return shared
