"""Contexts: the weighted sum of the values."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Real

from attn.ops.lifting import finite_rows, lifted


@lifted("(s),(s,v),(s)->(v)")
def context(
  weights: Real[Array, "... s"],
  values: Real[Array, "... s v"],
  mask: Bool[Array, "... s"] | None = None,
) -> Float[Array, "... v"]:
  """(s),(s,v),(s)->(v)

  Context of one query: c_i = sum_j alpha_ij h_j.

  Without a mask this is one matrix product and nothing else. A mask drops masked weights and values
  both, without renormalising. A NaN or inf in the value of a masked position stays out of the
  context, and in that of any other makes it NaN, even at weight 0. This costs one reduction and one
  select over [..., s, v] for all queries that share the values. XLA moves both out of a
  `lax.scan` over queries; the select of the backward pass stays in it. Where that matters, and the
  weights are those of `attn.softmax` with the same mask, clean the values once before the loop,
  `jnp.where(mask[..., None], values, 0)`, and pass no mask.

  Source: Bahdanau, Cho and Bengio 2015 (arXiv:1409.0473), Eq. 5.

  Args:
    weights: alpha_ij over the source positions j, [..., s].
    values: h_j, [..., s, v].
    mask: boolean, [..., s], True where the query may attend; None for everywhere.

  Returns:
    The context, [..., v], in the promoted dtype of weights and values. For many queries against one
    sentence: `attn.context(weights, values[..., None, :, :])`, [..., t, v].

  Raises:
    TypeError: the mask is not boolean, or another argument does not hold real numbers.
    ValueError: a shape does not fit the signature, or the leading axes do not broadcast.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> weights = attn.softmax(jnp.array([2., 4., 3.]))
    >>> with jnp.printoptions(precision=3):
    ...   print(attn.context(weights, jnp.array([[2., 0.], [0., 2.], [1., 1.]])))
    [0.425 1.575]
  """
  if mask is None:
    return weights @ values
  # Per row of values and not per query: a select by the mask would hold [t, s, v].
  finite = finite_rows(values)
  summed = jnp.where(mask, weights, 0) @ jnp.where(finite[:, None], values, 0)
  return jnp.where(jnp.any(mask & ~finite), jnp.nan, summed)
