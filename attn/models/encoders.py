"""Encoders: a padded batch of source words to annotations."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from attn.models.config import ModelConfig
from attn.models.recurrence import CellState, Recurrence, output

Drop = Callable[[Array, int], Array]  # Dropout of what enters the layer of a number.


class Encoded(NamedTuple):
  """What an encoder made of a batch.

  Attributes:
    annotations: of the top layer `[b, s, a]`, zeros at padding.
    forward: each layer's last state; of a reversed source, that at word 1.
    backward: each layer's backward state at word 1; empty for one direction.
  """

  annotations: Float[Array, "b s a"]
  forward: tuple[CellState, ...]
  backward: tuple[CellState, ...]

  @property
  def nearest(self) -> CellState:
    """The top state that s_0 is made from: the backward one at word 1, or the last one."""
    return (self.backward or self.forward)[-1]

  @property
  def summary(self) -> Float[Array, "b a"]:
    """The fixed vector: the top layer's last states."""
    ends = [output(states[-1]) for states in (self.forward, self.backward) if states]
    return ends[0] if len(ends) == 1 else jnp.concatenate(ends, axis=-1)


class Encoder(nnx.Module):
  """Annotations h_j of a source: forward states, or [forward; backward] (Bahdanau Eq. 7)."""

  def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
    """Parameters of one or two directions; the embedding is shared by both and lives outside."""
    self.layers, self.both = config.layers, config.encoder == "bidirectional"
    width = config.embedding
    for layer in range(self.layers):
      # To read from the end is to scan right-padded rows backward: positions stay where they are.
      forward = Recurrence(config, width, reverse=config.reverse_source, rngs=rngs)
      setattr(self, _name("forward", layer), forward)
      if self.both:
        backward = Recurrence(config, width, reverse=True, rngs=rngs)
        setattr(self, _name("backward", layer), backward)
      width = config.annotation

  def __call__(
    self, words: Float[Array, "s b m"], valid: Bool[Array, "s b"], drop: Drop | None = None
  ) -> Encoded:
    """Reads embedded words; `drop` acts on what passes from each layer to the next."""
    x, forward, backward = words, [], []
    for layer in range(self.layers):
      if layer and drop is not None:
        x = drop(x, layer)
      states, last = getattr(self, _name("forward", layer))(x, valid)
      forward.append(last)
      if self.both:
        back, first = getattr(self, _name("backward", layer))(x, valid)
        backward.append(first)
        states = jnp.concatenate([states, back], axis=-1)
      x = states
    return Encoded(jnp.swapaxes(x, 0, 1), tuple(forward), tuple(backward))


def _name(direction: str, layer: int) -> str:
  """`forward`, `forward_2`, ...: the first layer has the name of its direction."""
  return f"{direction}_{layer + 1}" if layer else direction
