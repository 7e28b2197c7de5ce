"""Beam search as one program: a `while_loop` over steps, then one pass back along the beams.

The loop keeps what a step adds (a token and the beam it came from) and never copies histories.
Hypotheses that end move to a pool beside the beams, so that nothing on the beam pushes them out.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from attn.decoding.hypotheses import (
  Hypotheses,
  Penalty,
  Step,
  check_limits,
  check_penalty,
  check_state,
  check_step,
  write_weights,
)

_GROUP = 64  # continuations of a sentence that are looked at by the best of them first


class _Candidates(NamedTuple):
  """Beams made longer by one token, best first; c of them a sentence, impossible ones at -inf."""

  log_probs: Float[Array, "b c"]
  tokens: Int[Array, "b c"]
  parents: Int[Array, "b c"]


class _Pool(NamedTuple):
  """Hypotheses that ended, best first: score, and where to start on the way back."""

  scores: Float[Array, "b n"]
  log_probs: Float[Array, "b n"]
  lengths: Int[Array, "b n"]
  finished: Bool[Array, "b n"]
  tokens: Int[Array, "b n"]
  parents: Int[Array, "b n"]


class _History(NamedTuple):
  """By step: each beam's token and parent, and the weights in the order of the parents."""

  tokens: Int[Array, "T b k"]
  parents: Int[Array, "T b k"]
  weights: Float[Array, "T b k s"] | None


class _Search(NamedTuple):
  time: Int[Array, ""]
  state: Any
  tokens: Int[Array, "b k"]
  log_probs: Float[Array, "b k"]
  pool: _Pool
  history: _History


def beam_search(
  step: Step,
  state: Any,
  limits: Int[Array, " b"],
  *,
  beam: int,
  maximum_length: int,
  eos: int,
  bos: int,
  pad: int,
  alpha: float = 0.0,
  normalisation: Literal["power", "gnmt"] = "power",
  penalty: Penalty | None = None,
  n_best: int = 1,
) -> Hypotheses:
  """Finds the hypotheses of the best score, `log_prob / length**alpha`, length with EOS.

  Each step ranks all one-token continuations of the beams by log-probability. EOS ends a hypothesis
  only from among the first `beam` of them, the first `beam` without EOS go on, and what is left at
  a sentence's limit is a hypothesis too, marked as not finished. A sentence is done when no
  beam can reach a score that would enter its `n_best`. Of equal candidates that of the better beam
  comes first, then the lower token id; of equal hypotheses the one that ended earlier.

  A sentence's result depends on nothing else in the batch, and the first hypotheses do not depend
  on `n_best`.

  Args:
    step: the model, see `Step`; it is called with `beam` beams.
    state: the state before the first token, leaves `[b, 1, ...]`; the search spreads it.
    limits: the most tokens that each sentence may emit, EOS included. Above `maximum_length` it is
      `maximum_length`; below 1 the sentence has no hypothesis (a row that only fills the batch).
    beam: how many beams; it may be more than there are tokens.
    maximum_length: T, the room for tokens; static.
    eos: id that ends a hypothesis.
    bos: id fed at the first step.
    pad: id written after the end.
    alpha: 0 ranks by log-probability, 1 by its mean over tokens; static, at least 0.
    normalisation: `gnmt` divides by `((5 + length) / 6)**alpha` instead (Wu 2016, Eq. 14); static.
    penalty: added to the score of a hypothesis that ends, see `Penalty`. Beams are still ranked by
      log-probability.
    n_best: n, how many hypotheses to return.

  Returns:
    The `n_best` hypotheses of each sentence, best first.
  """
  _check_settings(beam, n_best, alpha)
  limits = check_limits(limits, maximum_length)
  sentences = limits.shape[0]
  check_state(state, sentences)
  state = jax.tree.map(
    lambda leaf: jnp.broadcast_to(leaf, (sentences, beam, *jnp.shape(leaf)[2:])), state
  )
  tokens = jnp.full((sentences, beam), bos, jnp.int32)
  source = check_step(step, state, tokens, eos).source
  check_penalty(penalty, state, tokens)
  # All beams start equal: only the first is alive, or they would find the same hypotheses.
  alive = (limits > 0)[:, None] & (jnp.arange(beam) == 0)
  powers = _powers(maximum_length, alpha, normalisation)

  end = jax.lax.while_loop(
    lambda now: jnp.any(now.log_probs != -jnp.inf),
    lambda now: _advance(step, now, limits, powers, eos, penalty),
    _Search(
      time=jnp.int32(0),
      state=state,
      tokens=tokens,
      log_probs=jnp.where(alive, 0.0, -jnp.inf).astype(jnp.float32),
      pool=_empty_pool(sentences, n_best),
      history=_empty_history(maximum_length, sentences, beam, source),
    ),
  )
  return _trace_back(end.pool, end.history, pad)


def _check_settings(beam: int, n_best: int, alpha: float) -> None:
  for name, value in (("beam", beam), ("n_best", n_best)):
    if value < 1:
      raise ValueError(f"{name} is {value}: expected at least 1")
  if not 0 <= alpha < float("inf"):
    raise ValueError(f"alpha is {alpha}: expected a finite number of at least 0")


def _powers(
  maximum_length: int, alpha: float, normalisation: Literal["power", "gnmt"]
) -> Float[Array, " T+1"]:
  """What a log-probability is divided by, for each length.

  From the host: the bound on what a beam can reach needs them to grow with the length to the last
  bit.
  """
  lengths = np.maximum(np.arange(maximum_length + 1), 1).astype(np.float64)
  if normalisation == "gnmt":
    lengths = (5 + lengths) / 6
  return jnp.asarray(np.minimum(lengths**alpha, np.finfo(np.float32).max), jnp.float32)


def _empty_pool(sentences: int, size: int) -> _Pool:
  nothing = jnp.full((sentences, size), -jnp.inf, jnp.float32)
  zeros = jnp.zeros((sentences, size), jnp.int32)
  return _Pool(nothing, nothing, zeros, zeros.astype(bool), zeros, zeros)


def _empty_history(length: int, sentences: int, beam: int, source: int | None) -> _History:
  zeros = jnp.zeros((length, sentences, beam), jnp.int32)
  weights = None
  if source is not None:
    weights = jnp.zeros((length, sentences, beam, source), jnp.float32)
  return _History(zeros, zeros, weights)


def _advance(
  step: Step,
  now: _Search,
  limits: Int[Array, " b"],
  powers: Float[Array, " T+1"],
  eos: int,
  penalty: Penalty | None,
) -> _Search:
  """Makes every beam longer by one token.

  A sentence that is done has all beams at -inf. They are stepped on with the rest, and nothing can
  come of them.
  """
  beam = now.tokens.shape[1]
  log_probs, state, weights = step(now.state, now.tokens)
  ranked = _rank(now.log_probs, log_probs.astype(jnp.float32))
  ends = ranked.tokens == eos
  survivors = _take_best(
    ranked._replace(log_probs=jnp.where(ends, -jnp.inf, ranked.log_probs)), beam
  )

  length = now.time + 1
  at_limit = (length >= limits)[:, None]
  # By a mask: XLA for CPU sorts the whole vocabulary where what top_k returns is sliced again.
  may_end = ends & (jnp.arange(ends.shape[1]) < beam)
  finished = ranked._replace(log_probs=jnp.where(may_end, ranked.log_probs, -jnp.inf))
  cut = survivors._replace(log_probs=jnp.where(at_limit, survivors.log_probs, -jnp.inf))
  penalties = None if penalty is None else penalty(state)
  pool = _admit(now.pool, finished, cut, length, powers[length], penalties)

  # Log-probabilities only fall, so a beam can at best keep its own until the limit, and the best
  # that a penalty can be is 0: coverage grows until nothing is left to punish.
  bound = jnp.max(survivors.log_probs, axis=1) / powers[limits]
  done = at_limit | (bound <= pool.scores[:, -1])[:, None]
  return _Search(
    time=length,
    state=jax.tree.map(lambda leaf: _select(leaf, survivors.parents), state),
    tokens=survivors.tokens,
    log_probs=jnp.where(done, -jnp.inf, survivors.log_probs),
    pool=pool,
    history=_History(
      tokens=now.history.tokens.at[now.time].set(survivors.tokens),
      parents=now.history.parents.at[now.time].set(survivors.parents),
      weights=write_weights(now.history.weights, now.time, weights),
    ),
  )


def _rank(beams: Float[Array, "b k"], log_probs: Float[Array, "b k V"]) -> _Candidates:
  """The best `2 k` continuations: at most k of them end, so that k that go on are among them."""
  sentences, beam, vocabulary = log_probs.shape
  # A dead beam stays dead whatever the step makes of it, NaN included.
  dead = (beams == -jnp.inf)[:, :, None]
  totals = jnp.where(dead, -jnp.inf, beams[:, :, None] + log_probs)
  best, index = _top_k(
    totals.reshape(sentences, beam * vocabulary), min(2 * beam, beam * vocabulary)
  )
  return _Candidates(best, index % vocabulary, index // vocabulary)


def _top_k(
  values: Float[Array, "b c"], count: int
) -> tuple[Float[Array, "b n"], Int[Array, "b n"]]:
  """`jax.lax.top_k` of many values, by the largest of each group of neighbours.

  XLA for CPU compares every value with the best so far, one by one; maxima it takes eight at a
  time. The best `count` lie in the `count` groups of the largest maxima: each of the others has as
  many that are better, or as good and before it. Taken in their order, they leave ties as they are.
  """
  sentences, size = values.shape
  groups = -(-size // _GROUP)
  if groups <= count:
    best: tuple[Array, Array] = jax.lax.top_k(values, count)
    return best
  values = jnp.pad(values, ((0, 0), (0, groups * _GROUP - size)), constant_values=-jnp.inf)
  grouped = values.reshape(sentences, groups, _GROUP // 8, 8)
  # A NaN is above all numbers in `top_k`, and lost in a maximum on CPU.
  largest = jnp.where(jnp.isnan(grouped), jnp.inf, grouped).max(2).max(2)
  _, chosen = jax.lax.top_k(largest, count)
  chosen = jnp.sort(chosen, axis=1)
  inside = _select(grouped, chosen).reshape(sentences, count * _GROUP)
  highest, at = jax.lax.top_k(inside, count)
  group = jnp.take_along_axis(chosen, at // _GROUP, axis=1)
  return highest, group * _GROUP + at % _GROUP


def _take_best(candidates: _Candidates, count: int) -> _Candidates:
  _, index = jax.lax.top_k(candidates.log_probs, count)
  return _Candidates(*(jnp.take_along_axis(field, index, axis=1) for field in candidates))


def _admit(
  pool: _Pool,
  finished: _Candidates,
  cut: _Candidates,
  length: Int[Array, ""],
  power: Float[Array, ""],
  penalties: Float[Array, "b k"] | None,
) -> _Pool:
  """Merges hypotheses of this length into the pool, and keeps as many as it holds."""
  parts = [pool]
  for entering, ended in ((finished, True), (cut, False)):
    possible = entering.log_probs != -jnp.inf
    scores = entering.log_probs / power
    if penalties is not None:
      scores = scores + _select(penalties, entering.parents)
    parts.append(
      _Pool(
        scores=jnp.where(possible, scores, -jnp.inf),
        log_probs=entering.log_probs,
        lengths=jnp.where(possible, length, 0),
        finished=possible & ended,
        tokens=entering.tokens,
        parents=entering.parents,
      )
    )
  merged = _Pool(*(jnp.concatenate(fields, axis=1) for fields in zip(*parts, strict=True)))
  _, index = jax.lax.top_k(merged.scores, pool.scores.shape[1])
  return _Pool(*(jnp.take_along_axis(field, index, axis=1) for field in merged))


def _select(leaf: Float[Array, "b k ..."], beams: Int[Array, "b c"]) -> Float[Array, "b c ..."]:
  """Rows of whole beams: a gather of contiguous blocks, not of single numbers."""
  rows: Array = jax.vmap(lambda of, index: of.at[index].get(mode="promise_in_bounds"))(leaf, beams)
  return rows


def _trace_back(pool: _Pool, history: _History, pad: int) -> Hypotheses:
  """Follows each pooled hypothesis from its last token to its first."""

  def back(
    beams: Int[Array, "b n"], at: tuple[Int[Array, ""], _History]
  ) -> tuple[Int[Array, "b n"], tuple[Int[Array, "b n"], Float[Array, "b n s"] | None]]:
    time, step = at
    is_last, is_before = time == pool.lengths - 1, time < pool.lengths - 1
    tokens = jnp.where(is_before, _select(step.tokens, beams), pad)
    tokens = jnp.where(is_last, pool.tokens, tokens)
    parents = jnp.where(is_before, _select(step.parents, beams), pool.parents)
    weights = None
    if step.weights is not None:
      emitted = (is_last | is_before)[:, :, None]
      weights = jnp.where(emitted, _select(step.weights, parents), 0.0)
    return parents, (tokens, weights)

  times = jnp.arange(history.tokens.shape[0])
  _, (tokens, weights) = jax.lax.scan(back, pool.parents, (times, history), reverse=True)
  return Hypotheses(
    tokens=jnp.moveaxis(tokens, 0, 2),
    lengths=pool.lengths,
    scores=pool.scores,
    log_probs=pool.log_probs,
    finished=pool.finished,
    weights=None if weights is None else jnp.moveaxis(weights, 0, 2),
  )
