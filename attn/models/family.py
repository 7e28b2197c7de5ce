"""The family's one model: embeddings, encoder, decoder."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

import attn
from attn.data.vocabulary import BOS
from attn.models import steps
from attn.models.config import ModelConfig
from attn.models.decoders import Decoder
from attn.models.encoders import Encoder
from attn.models.initialisation import recipe
from attn.models.memory import Memory


class Forced(NamedTuple):
  """A decoder run along a given target.

  Attributes:
    logits: for every target position `[b, t, v]`.
    weights: attention of every target position `[b, t, s]`, None without attention.
    contexts: what was read at every target position `[b, t, a]`.
  """

  logits: Float[Array, "b t v"]
  weights: Float[Array, "b t s"] | None
  contexts: Float[Array, "b t a"]


class Seq2Seq(nnx.Module):
  """A sequence-to-sequence model; see `ModelConfig` for what it can be."""

  def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
    """Creates the parameters.

    Raises:
      ValueError: a vocabulary size is None: it comes with the data.
    """
    if config.source_vocabulary is None or config.target_vocabulary is None:
      raise ValueError(
        "model.source_vocabulary and model.target_vocabulary must be numbers to create a model;"
        " None stands for the data's own size and is filled in by training"
      )
    make, m = recipe(config.initialisation), config.embedding
    self.dropout = config.dropout
    self.source = nnx.Param(make.other(rngs.params(), (config.source_vocabulary, m)))
    self.target = nnx.Param(make.other(rngs.params(), (config.target_vocabulary, m)))
    self.encoder = Encoder(config, rngs)
    self.decoder = Decoder(config, rngs)

  def encode(
    self, source: Int[Array, "b s"], length: Int[Array, " b"], *, rng: Array | None = None
  ) -> Memory:
    """Reads right-padded sources; `length` counts their symbols, EOS included, and may be 0.

    Dropout is on when `rng` is given. What stands in the padding has no effect.
    """
    valid = attn.length_mask(length, source.shape[1])
    words = self._drop(self.source[...][source.T], rng, 0)  # Time first, as the scan wants it.
    annotations, initial, summary = self.encoder(words, valid.T)
    score = self.decoder.score
    return Memory(
      annotations=annotations,
      keys=None if score is None else score.keys(annotations),
      mask=valid,
      initial=initial,
      summary=summary,
    )

  def start(self, memory: Memory) -> Float[Array, "... n"]:
    """The decoder's state before the first word."""
    return self.decoder.start(memory)

  def step(
    self, memory: Memory, state: Float[Array, "... n"], previous: Int[Array, "..."]
  ) -> tuple[Float[Array, "... v"], steps.Step]:
    """One decoding step after the word `previous`: log-probabilities and all that led there.

    Leading axes of `memory` broadcast against those of `state`: for a beam pass
    `memory.for_hypotheses()` with states `[b, k, n]` and words `[b, k]`.
    """
    word = self.decoder.word(self.target[...][previous])
    step = self.decoder.step(self.decoder, memory, state, word)
    return jax.nn.log_softmax(self.decoder.logits(step.readout)), step

  def teacher_forced(
    self,
    source: Int[Array, "b s"],
    source_length: Int[Array, " b"],
    target: Int[Array, "b t"],
    *,
    rng: Array | None = None,
  ) -> Forced:
    """Runs the decoder along `target` (labels, EOS last): position i sees words before i only.

    Words' shares are computed before the recurrence and readouts after it, each for all steps
    at once; dropout is on when `rng` is given.
    """
    return self.along(self.encode(source, source_length, rng=rng), target, rng=rng)

  def along(self, memory: Memory, target: Int[Array, "b t"], *, rng: Array | None = None) -> Forced:
    """The second half of `teacher_forced`: decodes along `target` from an encoded source."""
    previous = jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
    words = self.decoder.word(self._drop(self.target[...][previous.T], rng, 1))

    def step(state: Array, word: steps.Word) -> tuple[Array, tuple[Array, Array, Array | None]]:
      step = self.decoder.step(self.decoder, memory, state, word)
      return step.state, (step.state, step.context, step.weights)

    _, (states, contexts, weights) = jax.lax.scan(step, self.start(memory), words)
    readouts = self._drop(self.decoder.readout(states, words, contexts), rng, 2)
    forced: Forced = jax.tree.map(
      lambda leaf: jnp.swapaxes(leaf, 0, 1),
      Forced(self.decoder.logits(readouts), weights, contexts),
    )
    return forced

  def _drop(self, x: Array, rng: Array | None, place: int) -> Array:
    if rng is None or self.dropout == 0.0:
      return x
    keep = jax.random.bernoulli(jax.random.fold_in(rng, place), 1.0 - self.dropout, x.shape)
    return jnp.where(keep, x / (1.0 - self.dropout), 0.0)
