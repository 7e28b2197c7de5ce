"""Saturation: how far weights are from uniform, and what gradient they let through."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Real

from attn.ops.lifting import lifted


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

  It bounds the gradient that the weights let through to the scores. A saturated row keeps all its
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
  largest = jax.lax.stop_gradient(jnp.max(jnp.abs(diagonal), initial=0))
  largest = jnp.where(largest < np.finfo(weights.dtype).tiny, 1, largest)
  squares = jnp.square(weights / jnp.sqrt(largest))
  # Off the diagonal a_i^2 a_j^2, each pair once: with the sum of the squares before it, which must
  # not come from a subtraction.
  before = jnp.cumsum(jnp.pad(squares, (1, 0)))[:-1]
  total = jnp.sum(jnp.square(diagonal / largest)) + 2 * jnp.sum(squares * before)
  return largest * jnp.where(total == 0, 0, jnp.sqrt(jnp.where(total == 0, 1, total)))
