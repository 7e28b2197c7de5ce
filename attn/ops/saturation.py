"""Saturation: how far weights are from uniform, and what gradient they let through."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Real

from attn.ops.lifting import (
  check_shapes,
  lifted,
  magnitude,
  mask_array,
  real_array,
  real_number,
  result_dtype,
  widened,
)
from attn.ops.scores import dot
from attn.ops.scoring import Score, check_score
from attn.ops.weights import attended, softmax, top_score


@lifted("(s)->()")
def entropy(weights: Real[Array, "... s"]) -> Float[Array, "..."]:
  """(s)->()

  Entropy of the weights of one query in nats: -sum_j alpha_ij log alpha_ij over positive weights.

  0 for a query that looks at one position or has nothing to attend to, log s for a uniform one. The
  gradient to a weight of 0 is 0.

  Source: Shannon 1948, A Mathematical Theory of Communication, section 6.

  Args:
    weights: alpha_ij over the source positions j, [..., s].

  Returns:
    Entropy [...] in the dtype of the weights.

  Raises:
    TypeError: the weights are no real numbers.
    ValueError: the weights have no axis.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> with jnp.printoptions(precision=3):
    ...   print(attn.entropy(jnp.array([[.5, .5, 0.], [0., 0., 0.]])))
    [0.693 0.   ]
  """
  # Not `weights > 0`, which would hide a NaN.
  safe = jnp.where(weights <= 0, 1, weights)
  return jnp.sum(-safe * jnp.log(safe))


@lifted("(s)->()")
def effective_support(weights: Real[Array, "... s"]) -> Float[Array, "..."]:
  """(s)->()

  Number of source positions that one query spreads over: exp(entropy), as many positions of equal
  weight have the same entropy.

  1 for a query that looks at one position, s for a uniform one, 0 for one with nothing to attend
  to. Weights are taken to sum to 1 or 0: they are not normalised here. The gradient to a weight of
  0 is 0.

  Source: Shannon 1948, A Mathematical Theory of Communication, section 6, for the entropy.

  Args:
    weights: alpha_ij over the source positions j, [..., s].

  Returns:
    Positions [...] in the dtype of the weights.

  Raises:
    TypeError: the weights are no real numbers.
    ValueError: the weights have no axis.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> with jnp.printoptions(precision=3):
    ...   print(attn.effective_support(jnp.array([[.5, .5, 0.], [.8, .1, .1], [0., 0., 0.]])))
    [2.    1.895 0.   ]
  """
  # Not `weights > 0`, which would hide a NaN.
  empty = jnp.all(weights <= 0)
  return jnp.where(empty, 0, jnp.exp(entropy(weights)))


@lifted("(s)->()")
def max_weight(weights: Real[Array, "... s"]) -> Float[Array, "..."]:
  """(s)->()

  Largest weight of one query: max_j alpha_ij, which nears 1 as the softmax saturates.

  Source: a measure of the saturation that Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1,
  scale the dot product to avoid.

  Args:
    weights: alpha_ij over the source positions j, [..., s].

  Returns:
    The largest weight [...] in the dtype of the weights; 0 where there is no position.

  Raises:
    TypeError: the weights are no real numbers.
    ValueError: the weights have no axis.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> print(f'{attn.max_weight(attn.softmax(jnp.array([2., 4., 3.]))):.3f}')
    0.665
  """
  return jnp.max(weights, initial=0)


@lifted("(s)->()")
def jacobian_norm(weights: Real[Array, "... s"]) -> Float[Array, "..."]:
  """(s)->()

  Frobenius norm of the Jacobian of the softmax at the weights of one query: of diag(a) - a a^T.

  It bounds the gradient that the weights let through to the scores. It is that of the weights as
  they are given: one that was rounded to 1 has lost its entry of the diagonal, which
  `attn.softmax_gradients` finds from the scores. Otherwise a saturated row keeps all its
  digits, which the closed form in powers of the weights would lose, at a cost linear in s. Where
  the Jacobian is 0 its norm has a zero gradient.

  Source: the small gradients that Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1, scale the
  dot product to avoid, as one number.

  Args:
    weights: a over the source positions, [..., s].

  Returns:
    The norm [...] in the dtype of the weights.

  Raises:
    TypeError: the weights are no real numbers.
    ValueError: the weights have no axis.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> print(f'{attn.jacobian_norm(attn.softmax(jnp.array([2., 4., 3.]))):.3f}')
    0.389
    >>> print(attn.jacobian_norm(jnp.array([1., 1e-20])) > 0)
    True
  """
  diagonal = weights * (1 - weights)
  # All entries over the largest of the diagonal, or the squares of a saturated row would vanish.
  largest = magnitude(diagonal)
  squares = jnp.square(weights / jnp.sqrt(largest))
  # Off the diagonal a_i^2 a_j^2, each pair once: with the sum of the squares before it, which must
  # not come from a subtraction.
  before = jnp.cumsum(jnp.pad(squares, (1, 0)))[:-1]
  total = jnp.sum(jnp.square(diagonal / largest)) + 2 * jnp.sum(squares * before)
  return largest * _root(total)


@lifted("(s),(s)->()")
def logit_variance(
  scores: Real[Array, "... s"], mask: Bool[Array, "... s"] | None = None
) -> Float[Array, "..."]:
  """(s),(s)->()

  Variance of the scores of one query over the n positions that it may attend to:
  sum_j (e_ij - mean)^2 / n, of the population, where the mean is over the same positions.

  As in `attn.softmax`, a score of -inf counts as masked and what is masked has no part in value or
  gradient, NaN included. With a single position or none the variance is 0, as is its gradient. A
  NaN or +inf that is not masked makes it NaN.

  Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1, footnote 4: variance d_k for the
  dot product of independent components of variance 1, the reason to scale it.

  Args:
    scores: e_ij over the source positions j, [..., s].
    mask: boolean, [..., s], True where the query may attend; None for everywhere.

  Returns:
    Variance [...] in the dtype of the scores.

  Raises:
    TypeError: the mask is not boolean, or the scores are no real numbers.
    ValueError: the mask does not fit the scores.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> scores = jnp.array([2., 4., jnp.nan])
    >>> print(attn.logit_variance(scores, jnp.array([True, True, False])))
    1.0
  """
  live = attended(scores, mask)
  count = jnp.maximum(jnp.sum(live, dtype=scores.dtype), 1)
  # From the largest score, or far from 0 the mean would lose the digits of the differences.
  top = top_score(scores, live)
  shifted = jnp.where(live, scores, top) - top
  mean = jnp.sum(shifted, where=live) / count
  return jnp.sum(jnp.square(shifted - mean), where=live) / count


class SoftmaxGradients(NamedTuple):
  """Norms of the Jacobians of the weights, from `softmax_gradients`, each named after its input."""

  scores: Float[Array, "..."]
  unscaled: Float[Array, "..."]
  query: Float[Array, "..."]
  keys: Float[Array, "..."]


def softmax_gradients(
  query: Real[Array, "... q"],
  keys: Real[Array, "... s k"],
  mask: Bool[Array, "... s"] | None = None,
  *,
  score: Score = dot,
  scale: Real[Array, ""] | float = 1.0,
) -> SoftmaxGradients:
  """(q),(s,k),(s)->(),(),(),()

  Frobenius norms of the Jacobians of one query's weights softmax(scale score(query, keys)): to the
  scaled scores, to the unscaled ones, to the query and to all its keys.

  They are functions of `scale`: larger scores saturate the softmax and shrink the gradient to the
  scaled scores, while the scale itself multiplies all others, which may rise first. `jax.vmap` over
  the scale gives the curve. A saturated row keeps its digits. A query with nothing to attend to has
  norms 0, and what is masked takes no part, NaN included; a NaN or inf in a key that is not masked
  makes them NaN.

  Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1, which suspects that large scores
  leave extremely small gradients.

  Args:
    query: [..., q]. For many queries against one sentence give the keys an axis for them,
      `keys[..., None, :, :]`, and a mask of a sentence likewise.
    keys: [..., s, k].
    mask: boolean, [..., s], True where the query may attend; None for everywhere.
    score: called as score(query [q], keys [s, k]), in at least float32, and has to return [s]: any
      score of this package that takes query and keys, its other parameters bound by
      `functools.partial`. Its gradient is taken for every source position: [..., s, s, k].
    scale: multiplies the scores; one number, which may be traced, zero or negative.

  Returns:
    `SoftmaxGradients(scores, unscaled, query, keys)`, each [...] in the promoted dtype of query and
    keys.

  Raises:
    TypeError: the mask is not boolean, or another argument does not hold real numbers.
    ValueError: a shape does not fit, or `score` is `attn.location` unwrapped or returned another
      shape.

  Example:
    >>> import attn, jax, jax.numpy as jnp
    >>> query, keys = jnp.array([1., 2.]), jnp.array([[2., 0.], [0., 2.], [1., 1.]])
    >>> curve = jax.vmap(lambda scale: attn.softmax_gradients(query, keys, scale=scale))
    >>> found = curve(jnp.array([1., 2., 4., 8.]))
    >>> with jnp.printoptions(precision=3, suppress=True):
    ...   print(found.scores)
    ...   print(found.unscaled)
    [0.389 0.213 0.035 0.001]
    [0.389 0.426 0.142 0.005]
  """
  name = "softmax_gradients"
  check_score(name, score)
  query, keys = real_array(name, "query", query), real_array(name, "keys", keys)
  mask = mask_array(name, mask)
  arrays = {"query": query, "keys": keys, "mask": mask}
  check_shapes(name, [("q",), ("s", "k"), ("s",)], arrays)
  scale = real_number(name, "scale", scale)
  dtype = result_dtype([query, keys])
  read = jnp.ones(keys.shape[-2], bool) if mask is None else mask
  clean = _readable(query, keys, read, widened(dtype))
  one = functools.partial(_gradient_norms, score=score, scale=jnp.asarray(scale, widened(dtype)))
  norms = jnp.vectorize(one, signature="(q),(s,k),(s)->(),(),(),()")(*clean, read)
  return SoftmaxGradients(*(norm.astype(dtype) for norm in norms))


# Compiled, so that a program under `jax_debug_nans` sees what comes out and not what goes in.
@functools.partial(jax.jit, static_argnames="dtype", inline=True)
def _readable(
  query: jax.Array, keys: jax.Array, mask: jax.Array, dtype: np.dtype
) -> tuple[jax.Array, jax.Array]:
  """Zeros for what nobody reads, before the score sees it: later it would leave NaN gradients."""
  query = jnp.where(mask.any(-1)[..., None], query, 0)
  return query.astype(dtype), jnp.where(mask[..., None], keys, 0).astype(dtype)


def _gradient_norms(
  query: jax.Array, keys: jax.Array, mask: jax.Array, *, score: Score, scale: jax.Array
) -> tuple[jax.Array, ...]:
  """The norms of one query, in the order of `SoftmaxGradients`."""

  def real(query: jax.Array, keys: jax.Array) -> jax.Array:
    scores = real_array("softmax_gradients", "what score returned", score(query, keys))
    return jnp.asarray(scores, keys.dtype)

  scores, pull = jax.vjp(real, query, keys)
  if scores.shape != mask.shape:
    raise ValueError(
      f"softmax_gradients: score returned shape {scores.shape}, expected {mask.shape}, that is [s]"
    )
  jacobian, largest = _jacobian(scores, keys, mask, scale)
  norms: tuple[jax.Array, ...] = _norms(
    [jacobian, *jax.vmap(pull)(jacobian)], largest, jnp.abs(scale)
  )
  return norms


# These two and the score are compiled once, where all in one would be at every call: a score with
# bound parameters is no key of a cache.
@functools.partial(jax.jit, inline=True)
def _jacobian(
  scores: jax.Array, keys: jax.Array, mask: jax.Array, scale: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Jacobian of the softmax to the scaled scores over its largest entry, and that entry."""
  weights = jnp.where(jnp.isfinite(keys).all(), softmax(scores, mask, scale=scale), jnp.nan)
  # The diagonal a_i (1 - a_i) from the other weights: 1 - a_i would lose them in a saturated row.
  others = jnp.outer(weights, weights) * (1 - jnp.eye(len(weights), dtype=weights.dtype))
  jacobian = jnp.diag(others.sum(-1)) - others
  largest = magnitude(jacobian)  # or the squares of a saturated row would vanish
  return jacobian / largest, largest


@functools.partial(jax.jit, inline=True)
def _norms(
  jacobians: list[jax.Array], largest: jax.Array, scale: jax.Array
) -> tuple[jax.Array, ...]:
  """Norms of the Jacobian to the scaled scores and of what the score makes of it."""
  to_scores, *others = (largest * _root(jnp.sum(jnp.square(entries))) for entries in jacobians)
  return to_scores, scale * to_scores, *(scale * norm for norm in others)


def _root(square: jax.Array) -> jax.Array:
  """Square root, with a zero gradient at 0."""
  return jnp.where(square == 0, 0, jnp.sqrt(jnp.where(square == 0, 1, square)))
