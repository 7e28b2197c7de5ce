"""Greedy search: the most probable next token, until it is EOS."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from attn.decoding.hypotheses import (
  Hypotheses,
  Step,
  check_limits,
  check_state,
  check_step,
  write_weights,
)

Choice = Callable[[Float[Array, "b k V"], Int[Array, ""]], Int[Array, "b k"]]
"""`choose(log_probs, time)`: the next token of each hypothesis."""


class _Progress(NamedTuple):
  time: Int[Array, ""]
  state: Any
  last: Int[Array, "b k"]
  log_probs: Float[Array, "b k"]
  lengths: Int[Array, "b k"]
  alive: Bool[Array, "b k"]
  tokens: Int[Array, "T b k"]
  weights: Float[Array, "T b k s"] | None


def greedy(
  step: Step,
  state: Any,
  limits: Int[Array, " b"],
  *,
  maximum_length: int,
  eos: int,
  bos: int,
  pad: int,
) -> Hypotheses:
  """Takes the most probable token at every step; of equal ones, the lowest id.

  Gives the tokens and scores of `beam_search` with one beam and `alpha=0`, without its bookkeeping.

  Args:
    step: the model, see `Step`; it is called with one beam.
    state: the state before the first token, leaves `[b, 1, ...]`.
    limits: the most tokens that each sentence may emit, EOS included. Above `maximum_length` it is
      `maximum_length`; below 1 the sentence has no hypothesis (a row that only fills the batch).
    maximum_length: T, the room for tokens; static.
    eos: id that ends a hypothesis.
    bos: id fed at the first step.
    pad: id written after the end.

  Returns:
    One hypothesis a sentence.
  """
  return follow(
    step,
    state,
    limits,
    lambda log_probs, _: jnp.argmax(log_probs, axis=-1),
    count=1,
    maximum_length=maximum_length,
    eos=eos,
    bos=bos,
    pad=pad,
  )


def follow(
  step: Step,
  state: Any,
  limits: Int[Array, " b"],
  choose: Choice,
  *,
  count: int,
  maximum_length: int,
  eos: int,
  bos: int,
  pad: int,
) -> Hypotheses:
  """Takes at every step the token that `choose` picks, in `count` hypotheses a sentence.

  The other arguments are those of `greedy`. Scores are the tokens' log-probabilities.
  """
  limits = check_limits(limits, maximum_length)
  sentences = limits.shape[0]
  check_state(state, sentences)
  shape, rows = (sentences, count), limits[:, None]
  state = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*shape, *jnp.shape(leaf)[2:])), state)
  first = jnp.full(shape, bos, jnp.int32)
  source = check_step(step, state, first, eos).source
  alive = jnp.broadcast_to(rows > 0, shape)

  def advance(now: _Progress) -> _Progress:
    log_probs, state, weights = step(now.state, now.last)
    log_probs = log_probs.astype(jnp.float32)
    token = choose(log_probs, now.time).astype(jnp.int32)
    total = now.log_probs + jnp.take_along_axis(log_probs, token[..., None], axis=-1)[..., 0]
    # No token is possible: like a beam without candidates, the sentence is left with nothing.
    stuck = now.alive & (total == -jnp.inf)
    lengths = jnp.where(stuck, 0, jnp.where(now.alive, now.time + 1, now.lengths))
    return _Progress(
      time=now.time + 1,
      state=state,
      last=token,
      log_probs=jnp.where(now.alive, total, now.log_probs),
      lengths=lengths,
      alive=now.alive & ~stuck & (token != eos) & (lengths < rows),
      tokens=now.tokens.at[now.time].set(token),
      weights=write_weights(now.weights, now.time, weights),
    )

  end = jax.lax.while_loop(
    lambda now: jnp.any(now.alive),
    advance,
    _Progress(
      time=jnp.int32(0),
      state=state,
      last=first,
      log_probs=jnp.where(alive, 0.0, -jnp.inf).astype(jnp.float32),
      lengths=jnp.zeros(shape, jnp.int32),
      alive=alive,
      tokens=jnp.full((maximum_length, *shape), pad, jnp.int32),
      weights=None if source is None else jnp.zeros((maximum_length, *shape, source), jnp.float32),
    ),
  )
  return _hypotheses(end, eos=eos, pad=pad)


def _hypotheses(end: _Progress, *, eos: int, pad: int) -> Hypotheses:
  """Cuts each hypothesis at its own end; rows ran on until the last one was done."""
  emitted = jnp.arange(end.tokens.shape[0]) < end.lengths[..., None]
  tokens = jnp.where(emitted, jnp.moveaxis(end.tokens, 0, 2), pad)
  weights = None
  if end.weights is not None:
    weights = jnp.where(emitted[..., None], jnp.moveaxis(end.weights, 0, 2), 0.0)
  return Hypotheses(
    tokens=tokens,
    lengths=end.lengths,
    scores=end.log_probs,
    log_probs=end.log_probs,
    finished=jnp.any(emitted & (tokens == eos), axis=-1),
    weights=weights,
  )
