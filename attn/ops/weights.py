"""Weights: the softmax over the source positions that a query may attend to, and its masks."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer, Real

from attn.ops.lifting import integer_array, lifted, python_int


@lifted("(s),(s)->(s)")
def softmax(
  scores: Real[Array, "... s"],
  mask: Bool[Array, "... s"] | None = None,
  *,
  scale: Real[Array, ""] | float = 1.0,
) -> Float[Array, "... s"]:
  """(s),(s)->(s)

  Weights of one query: alpha_ij = exp(scale e_ij) / sum_k exp(scale e_ik).

  The sum runs over what may be attended to. A masked position has weight exactly 0, whatever its
  score, and a score of -inf counts as masked. A row with nothing to attend to has zero weights and
  a zero gradient. A NaN that is not masked makes every weight of its row NaN, masked ones aside.

  Source: Bahdanau, Cho and Bengio 2015 (arXiv:1409.0473), Eq. 6; with `scale` the softmax of
  Vaswani et al. 2017 (arXiv:1706.03762), Eq. 1.

  Args:
    scores: e_ij over the source positions j, [..., s].
    mask: boolean, [..., s], True where the query may attend; None for everywhere.
    scale: multiplies the scores; one number, which may be traced, zero or negative.

  Returns:
    Weights [..., s] in the dtype of the scores; the sums are taken in at least float32.

  Raises:
    TypeError: the mask is not boolean, or the scores are no real numbers.
    ValueError: the mask does not fit the scores, or `scale` is not one number.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> with jnp.printoptions(precision=3):
    ...   print(attn.softmax(jnp.array([2., 4., 3.])))
    ...   print(attn.softmax(jnp.array([2., 4., jnp.inf]), jnp.array([True, True, False])))
    [0.09  0.665 0.245]
    [0.119 0.881 0.   ]
  """
  scale = jnp.asarray(scale, scores.dtype)
  live = attended(scores, mask)
  # The scale multiplies differences: their largest is exactly 0, while a compiler may fuse product
  # and difference, and round the product it subtracts alone. It sees zeros at masked scores, or the
  # gradient to a learned scale would be 0 * inf.
  sign = jnp.where(scale < 0, -1, 1)
  differences = jnp.where(live, scores - sign * top_score(sign * scores, live), 0)
  exponentials = jnp.exp(jnp.where(live, scale * differences, -jnp.inf))
  # The total of a row with nothing to attend to is 0; that of any other is at least 1, or NaN.
  return jnp.where(live, exponentials / _divisor(jnp.sum(exponentials)), 0)


def attended(scores: jax.Array, mask: jax.Array | None) -> jax.Array:
  """Where one query, of scores [s], may attend: the mask allows it, and the score is not -inf."""
  live = scores != -jnp.inf
  return live if mask is None else live & mask


def top_score(scores: jax.Array, live: jax.Array) -> jax.Array:
  """The largest score of one query where it may attend, 0 if nowhere; it has no gradient."""
  top = jnp.max(scores, where=live, initial=-jnp.inf)
  return jax.lax.stop_gradient(jnp.where(live.any(), top, 0))


def normalised(weights: jax.Array) -> jax.Array:
  """Weights [..., s] over their sum; zeros stay zeros."""
  return weights / _divisor(weights.sum(-1, keepdims=True))


def _divisor(total: jax.Array) -> jax.Array:
  """The total, or 1 in place of 0."""
  return jnp.where(total == 0, 1, total)


def length_mask(lengths: Integer[Array, "..."], size: int) -> Bool[Array, "... size"]:
  """()->(size)

  Mask of sentences padded on the right: True where the source position, from 0, is below length.

  Source: the sum to T_x of Bahdanau, Cho and Bengio 2015 (arXiv:1409.0473), Eq. 5 and 6, which for
  a padded batch is a mask.

  Args:
    lengths: integers, [...]. Below 0 acts as 0, above `size` as `size`.
    size: the padded length, a Python int.

  Returns:
    Boolean [..., size].

  Raises:
    TypeError: the lengths are no integers, or `size` is not a Python int.
    ValueError: `size` is negative.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> print(attn.length_mask(jnp.array([2, 0]), 3))
    [[ True  True False]
     [False False False]]
  """
  lengths = integer_array("length_mask", "lengths", lengths)
  size = python_int("length_mask", "size", size)
  return jnp.arange(size, dtype=lengths.dtype) < lengths[..., None]
