"""What any search may be told about its hypotheses, written as a step around a step.

Each function takes a step and the state before the first token and returns both anew, so that
greedy and beam search and samples obey alike. What is not asked for adds nothing to the state.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from attn.decoding.hypotheses import Penalty, Step

_LEAST = float(np.finfo(np.float32).tiny)  # what a position without any weight counts as


class _Timed(NamedTuple):
  inner: Any
  time: Int[Array, "b k"]


class _Covered(NamedTuple):
  inner: Any
  coverage: Float[Array, "b k s"]


def constrained(
  step: Step,
  state: Any,
  sentences: int,
  *,
  possible: Bool[Array, " V"],
  eos: int,
  minimum_length: int = 1,
  prefix: Int[Array, "b p"] | None = None,
) -> tuple[Step, Any]:
  """Forbids what must not be emitted.

  Args:
    step: the model.
    state: its state before the first token.
    sentences: b.
    possible: which tokens may be emitted at all.
    eos: id that ends a hypothesis.
    minimum_length: fewest tokens of one that ends, EOS counted.
    prefix: the tokens that each sentence's hypotheses begin with, -1 after its last one. They are
      emitted whatever else is forbidden, with the model's probability.
  """
  tokens = jnp.arange(possible.shape[0])
  if minimum_length <= 1 and prefix is None:

    def masked(state: Any, last: Array) -> tuple[Array, Any, Array | None]:
      log_probs, after, weights = step(state, last)
      return jnp.where(possible, log_probs, -jnp.inf), after, weights

    return masked, state

  def timed(state: _Timed, last: Array) -> tuple[Array, _Timed, Array | None]:
    log_probs, after, weights = step(state.inner, last)
    time = state.time[..., None]
    allowed = possible & ((tokens != eos) | (time + 1 >= minimum_length))
    if prefix is not None:
      given = jnp.take_along_axis(prefix, state.time, axis=1, mode="fill", fill_value=-1)[..., None]
      allowed = jnp.where(given >= 0, tokens == given, allowed)
    return jnp.where(allowed, log_probs, -jnp.inf), _Timed(after, state.time + 1), weights

  return timed, _Timed(state, jnp.zeros((sentences, 1), jnp.int32))


def covering(
  step: Step, state: Any, real: Bool[Array, "b s"], *, beta: float
) -> tuple[Step, Any, Penalty]:
  """Sums the weights along each hypothesis, for the coverage penalty of Wu 2016, Eq. 14.

  `cp = beta sum_i log(min(sum_j p_ij, 1))` over the source positions i. One that no window reached
  counts as the smallest float32 number, so that a score is never infinite.

  Args:
    step: the model, which must return weights.
    state: its state before the first token.
    real: the positions that count.
    beta: at least 0.

  Returns:
    The step, its first state, and cp.
  """

  def summing(state: _Covered, last: Array) -> tuple[Array, _Covered, Array | None]:
    log_probs, after, weights = step(state.inner, last)
    assert weights is not None
    coverage = state.coverage + weights[..., : real.shape[1]].astype(jnp.float32)
    return log_probs, _Covered(after, coverage), weights

  def penalty(state: _Covered) -> Array:
    logs = jnp.log(jnp.clip(state.coverage, _LEAST, 1.0))
    return beta * jnp.where(real[:, None], logs, 0.0).sum(-1)

  return summing, _Covered(state, jnp.zeros((real.shape[0], 1, real.shape[1]))), penalty
