"""Samples: each next token drawn by its probability, until it is EOS."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from attn.decoding.greedy import follow
from attn.decoding.hypotheses import Hypotheses, Step


def sample(
  step: Step,
  state: Any,
  limits: Int[Array, " b"],
  rngs: Key[Array, "b k"],
  *,
  maximum_length: int,
  eos: int,
  bos: int,
  pad: int,
  temperature: float = 1.0,
  top_k: int | None = None,
) -> Hypotheses:
  """Draws hypotheses; token t of one depends on its own key, t and the model alone.

  So a sentence has the same samples in whatever batch, with whatever other samples.

  Args:
    step: the model, see `Step`; it is called with k beams.
    state: the state before the first token, leaves `[b, 1, ...]`; it is spread over the samples.
    limits: the most tokens that each sentence may emit, as in `greedy`.
    rngs: a key for each of k samples of each sentence.
    maximum_length: T, the room for tokens; static.
    eos: id that ends a hypothesis.
    bos: id fed at the first step.
    pad: id written after the end.
    temperature: log-probabilities are divided by it: below 1 the probable is drawn more often;
      static.
    top_k: draws among so many of the most probable tokens (of equal ones, the lower ids), None
      among all; static.

  Returns:
    The samples of each sentence in the order of their keys, scored by what the model gives them,
    whatever the temperature.
  """
  if not 0 < temperature < math.inf:
    raise ValueError(
      f"temperature is {temperature}: expected a finite number above 0 (greedy search is its limit)"
    )
  if top_k is not None and top_k < 1:
    raise ValueError(f"top_k is {top_k}: expected at least 1, or None for all tokens")
  if rngs.ndim != 2 or rngs.shape[0] != limits.shape[0]:
    raise ValueError(
      f"rngs is {list(rngs.shape)}: expected [{limits.shape[0]}, k], a key for each sample"
    )

  def choose(log_probs: Float[Array, "b k V"], time: Int[Array, ""]) -> Int[Array, "b k"]:
    size = log_probs.shape[-1] if top_k is None else min(top_k, log_probs.shape[-1])

    def draw(rng: Array) -> Array:
      return jax.random.gumbel(jax.random.fold_in(rng, time), (size,))

    noise = jax.vmap(jax.vmap(draw))(rngs)
    if top_k is None:
      return jnp.argmax(_tempered(log_probs, temperature) + noise, axis=-1)
    best, ids = jax.lax.top_k(log_probs, size)
    at = jnp.argmax(_tempered(best, temperature) + noise, axis=-1)
    return jnp.take_along_axis(ids, at[..., None], axis=-1)[..., 0]

  return follow(
    step,
    state,
    limits,
    choose,
    count=rngs.shape[1],
    maximum_length=maximum_length,
    eos=eos,
    bos=bos,
    pad=pad,
  )


def _tempered(log_probs: Float[Array, "b k c"], temperature: float) -> Float[Array, "b k c"]:
  """Divided by the temperature, the best at 0: however low it is, that one is not lost to -inf."""
  below: Array = log_probs - log_probs.max(axis=-1, keepdims=True)
  return below / max(temperature, float(np.finfo(np.float32).tiny))
