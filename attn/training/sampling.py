"""Scheduled sampling: a decoder that in part reads its own words, in one compiled scan."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from attn.data.vocabulary import BOS
from attn.models import Seq2Seq, State


def logits(
  model: Seq2Seq, batch: dict[str, Array], rng: Array, share: Float[Array, ""]
) -> Float[Array, "b t v"]:
  """Log-probabilities along a batch's targets where each word read may be the model's own.

  After the first word, each previous word is with probability `share` drawn from what the decoder
  predicted in its place, else the true one. No gradient goes through the choice.

  Args:
    model: what decodes.
    batch: a batch of `attn.data.pipeline`.
    rng: of the draws.
    share: from 0 to 1.
  """
  memory = model.encode(batch["source"], batch["source_length"])
  draw, choose = jax.random.split(rng)
  target = batch["target"].T  # Time first, as the scan wants it.
  own = jax.random.bernoulli(choose, share, target.shape)

  def step(carry: tuple[State, Array], x: tuple[Array, ...]) -> tuple[tuple[State, Array], Array]:
    state, previous = carry
    true, own, place = x
    log_probs, made = model.step(memory, state, previous)
    drawn = jax.random.categorical(jax.random.fold_in(draw, place), log_probs)
    return (made.state, jnp.where(own, drawn, true)), log_probs

  first = jnp.full(target.shape[1:], BOS, target.dtype)
  places = jnp.arange(target.shape[0])
  _, found = jax.lax.scan(step, (model.start(memory), first), (target, own, places))
  return found.swapaxes(0, 1)
