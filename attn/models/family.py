"""The family's one model: embeddings, encoder, decoder."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

import attn
from attn.data.vocabulary import BOS
from attn.models import steps
from attn.models.config import ModelConfig
from attn.models.decoders import Decoder
from attn.models.encoders import Encoded, Encoder
from attn.models.initialisation import recipe
from attn.models.memory import Memory
from attn.models.recurrence import output, plus

# Where dropout draws: 0 source words, 1 target words, 2 readout, and from these on each layer.
_ENCODER, _DECODER = 100, 200


class Forced(NamedTuple):
  """A decoder run along a given target.

  Attributes:
    logits: for every target position `[b, t, v]`.
    weights: attention of every target position `[b, t, s]`, None without attention.
    contexts: what was read at every target position `[b, t, a]`.
    narrowed: what the output matrix multiplied `[b, t, o]`.
  """

  logits: Float[Array, "b t v"]
  weights: Float[Array, "b t s"] | None
  contexts: Float[Array, "b t a"]
  narrowed: Float[Array, "b t o"]


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
    self.dropout, self.zeros_first = config.dropout, config.first_word == "zeros"
    self.units, self.layers = config.units, config.layers
    self.initial, self.split = config.initial_state, config.memory == "split"
    self.source_eos = config.source_eos
    self.known = config.location_length if config.score == "location" else None
    self.source = nnx.Param(make.other(rngs.params(), (config.source_vocabulary, m)))
    self.target = nnx.Param(make.other(rngs.params(), (config.target_vocabulary, m)))
    biased = config.biases == "groundhog"
    self.b_source = nnx.Param(jnp.zeros(m)) if biased else None
    self.b_target = nnx.Param(jnp.zeros(m)) if biased else None
    self.encoder = Encoder(config, rngs)
    square = (config.annotation, config.annotation)
    self.v = nnx.Param(make.other(rngs.params(), square)) if config.project_summary else None
    self.decoder = Decoder(config, rngs)

  def encode(
    self, source: Int[Array, "b s"], length: Int[Array, " b"], *, rng: Array | None = None
  ) -> Memory:
    """Reads right-padded sources; `length` counts their symbols, EOS included, and may be 0.

    A length below 0 acts as 0, above the width as the width. Dropout is on when `rng` is given.
    What stands in the padding has no effect.

    Raises:
      ValueError: sources are padded to more than a strict location score knows.
    """
    size = source.shape[1]
    # EOS is the last symbol: where it is not read it becomes padding.
    length = jnp.clip(length if self.source_eos else length - 1, 0, size)
    valid = attn.length_mask(length, size)
    words = plus(self.source[...][source.T], self.b_source)  # Time first, as the scan wants it.
    encoded = self.encoder(
      self._drop(words, rng, 0), valid.T, lambda x, layer: self._drop(x, rng, _ENCODER + layer)
    )
    summary = encoded.summary
    if self.v is not None:
      summary = jnp.tanh(summary @ self.v[...].T)  # c = tanh(V h_T)
    to_compare = values = encoded.annotations
    if self.split:
      to_compare, values = jnp.split(encoded.annotations, 2, axis=-1)
    score, mask, overflow = self.decoder.score, valid, None
    if self.known is not None:
      mask = valid & (jnp.arange(size) < self.known)
      overflow = jnp.maximum(length - self.known, 0)
    return Memory(
      annotations=encoded.annotations,
      values=values,
      keys=None if score is None else score.keys(to_compare),
      mask=mask,
      length=length,
      overflow=overflow,
      initial=self._initial(encoded, length, summary),
      summary=summary,
    )

  def _initial(self, encoded: Encoded, length: Int[Array, " b"], summary: Array) -> Any:
    """What the decoder's first state is made from."""
    if self.initial == "all_layers":
      return encoded.forward
    if self.initial == "last":
      return encoded.nearest
    if self.initial == "mean":
      return encoded.annotations.sum(1) / jnp.maximum(length, 1)[:, None]
    if self.initial == "zero":
      return None
    return output(encoded.nearest) if self.v is None else summary

  def start(self, memory: Memory) -> steps.State:
    """The decoder's state before the first word."""
    return self.decoder.start(memory)

  def step(
    self, memory: Memory, state: steps.State, previous: Int[Array, "..."]
  ) -> tuple[Float[Array, "... v"], steps.Step]:
    """One decoding step after the word `previous`: log-probabilities and all that led there.

    Leading axes of `memory` broadcast against those of `state`: for a beam pass
    `memory.for_hypotheses()` with states `[b, k, ...]` and words `[b, k]`.
    """
    word = self.decoder.word(self._embed(previous), previous == BOS)
    step = self.decoder.step(self.decoder, memory, state, word)
    return jax.nn.log_softmax(self.decoder.logits(self.decoder.narrowed(step.readout))), step

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
    previous = jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS).T
    kept = self._kept(previous.shape, rng)
    words = self.decoder.word(self._drop(self._embed(previous), rng, 1), previous == BOS, kept)
    hidden, contexts, weights, readouts = self._run(memory, words)
    if readouts is None:
      readouts = self.decoder.readout(hidden, words, contexts)
    contexts = jnp.broadcast_to(contexts, (*hidden.shape[:2], contexts.shape[-1]))
    narrowed = self.decoder.narrowed(self._drop(readouts, rng, 2))
    forced: Forced = jax.tree.map(
      lambda leaf: jnp.swapaxes(leaf, 0, 1),
      Forced(self.decoder.logits(narrowed), weights, contexts, narrowed),
    )
    return forced

  def _run(
    self, memory: Memory, words: steps.Word
  ) -> tuple[Array, Array, Array | None, Array | None]:
    """States to read out, contexts, weights, and readouts if a step had to make its own."""
    start = self.start(memory)
    if self.decoder.at_once:
      read, hidden = steps.luong_at_once(self.decoder, memory, start, words)
      return hidden, read.context, read.weights, None

    def step(
      state: steps.State, word: steps.Word
    ) -> tuple[steps.State, tuple[Array, Array, Array | None, Array | None]]:
      step = self.decoder.step(self.decoder, memory, state, word)
      readout = step.readout if self.decoder.feeding == "readout" else None
      return step.state, (step.hidden, step.context, step.weights, readout)

    _, made = jax.lax.scan(step, start, words)
    return made

  def _embed(self, words: Int[Array, "..."]) -> Float[Array, "... m"]:
    """E y of target words; zeros before the first one, if so configured."""
    embedded = plus(self.target[...][words], self.b_target)
    return jnp.where((words == BOS)[..., None], 0.0, embedded) if self.zeros_first else embedded

  def _kept(self, shape: tuple[int, ...], rng: Array | None) -> tuple[Array, ...]:
    """What dropout multiplies inside the decoder's recurrence, for words of this shape."""
    if rng is None or self.dropout == 0.0:
      return ()
    widths = [self.units] * (self.layers - 1)
    if self.decoder.feeding != "none":
      widths.append(self.decoder.fed_width)
    ones = [jnp.ones((*shape, width), self.target.dtype) for width in widths]
    return tuple(self._drop(one, rng, _DECODER + at) for at, one in enumerate(ones))

  def _drop(self, x: Array, rng: Array | None, place: int) -> Array:
    if rng is None or self.dropout == 0.0:
      return x
    keep = jax.random.bernoulli(jax.random.fold_in(rng, place), 1.0 - self.dropout, x.shape)
    return jnp.where(keep, x / (1.0 - self.dropout), 0.0)
