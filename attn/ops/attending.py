"""Attending: score, softmax and context in one call, safe against whatever a mask hides."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, Real

from attn.ops.contexts import context
from attn.ops.lifting import check_shapes, mask_array, real_array, result_dtype, widened
from attn.ops.scores import dot
from attn.ops.weights import softmax

Score = Callable[[jax.Array, jax.Array], jax.Array]


class Attention(NamedTuple):
  """What attending returns: three fields, so it does not unpack into a context and weights.

  `weights` is None where they were not asked for. `positions` holds the source position of each
  weight where a window was gathered, and is None where the weights are over the whole source.
  """

  context: Float[Array, "... t v"]
  weights: Float[Array, "... t s"] | None
  positions: Integer[Array, "... t s"] | None


def attend(
  query: Real[Array, "... t q"],
  keys: Real[Array, "... s k"],
  values: Real[Array, "... s v"] | None = None,
  mask: Bool[Array, "... s"] | Bool[Array, "... t s"] | None = None,
  *,
  score: Score = dot,
  scale: Real[Array, ""] | float = 1.0,
  return_weights: bool = True,
) -> Attention:
  """(t,q),(s,k),(s,v),(t,s)->(t,v),(t,s)

  Attention of every query to one memory: score, softmax over the source, weighted sum.

  A query with nothing to attend to has zero weights, zero context and zero gradient. A NaN or inf
  in a key or value makes NaN of the queries that may attend to it, and of no other. Gradients stay
  finite where every query masks what is not finite.

  Source: Bahdanau, Cho and Bengio 2015 (arXiv:1409.0473), Eq. 5 and 6; Luong, Pham and Manning 2015
  (arXiv:1508.04025), section 3.1; with `score=attn.scaled_dot` Vaswani et al. 2017
  (arXiv:1706.03762), Eq. 1.

  Args:
    query: [..., t, q].
    keys: [..., s, k].
    values: [..., s, v]; the keys when None, as h_j has both roles in the papers.
    mask: boolean, True where the query may attend. With r leading axes in query, keys and values
      together, a mask of r + 2 axes is [..., t, s], one of fewer is [..., s]: sizes never decide.
    score: called once as score(query [..., t, q], keys [..., 1, s, k]), and has to return
      [..., t, s]. Any score of this package that takes query and keys, its other parameters bound
      by `functools.partial`. Query and keys arrive in at least float32.
    scale: multiplies the scores; one number, which may be traced, zero or negative.
    return_weights: whether to return the weights beside the context.

  Returns:
    `Attention(context [..., t, v], weights [..., t, s] or None, positions None)`, in the promoted
    dtype of query, keys and values.

  Raises:
    TypeError: the mask is not boolean, or another argument does not hold real numbers.
    ValueError: a shape does not fit, the mask has too many axes, or `score` returned another shape.

  Example:
    >>> import attn, functools, jax.numpy as jnp
    >>> query, keys = jnp.array([[1., 0.], [0., 0.]]), jnp.array([[2., 0.], [4., -2.], [3., -1.]])
    >>> context, weights, _ = attn.attend(query, keys, mask=jnp.array([True, True, False]))
    >>> with jnp.printoptions(precision=3):
    ...   print(weights)
    [[0.119 0.881 0.   ]
     [0.5   0.5   0.   ]]

    The additive score, its keys projected once however often `attend` is called:

    >>> w_a, u_a, v_a = jnp.ones((5, 2)), jnp.ones((5, 2)), jnp.ones(5)
    >>> projected = attn.project_keys(keys, u_a)
    >>> score = functools.partial(attn.additive_projected, w_a=w_a, v_a=v_a)
    >>> print(attn.attend(query, projected, values=keys, score=score).context.shape)
    (2, 2)
  """
  query, keys = real_array("attend", "query", query), real_array("attend", "keys", keys)
  values = keys if values is None else real_array("attend", "values", values)
  arrays = {"query": query, "keys": keys, "values": values}
  leading = check_shapes("attend", [("t", "q"), ("s", "k"), ("s", "v")], arrays)
  full = (*leading, query.shape[-2], keys.shape[-2])
  mask = _full_mask(mask_array("attend", mask), full)
  dtype = result_dtype([query, keys, values])

  # What nobody reads goes before the score sees it: a select after it would leave NaN gradients.
  query = _keep(query, mask.any(-1), widened(dtype))
  keys = _keep(keys, mask.any(-2), widened(dtype))
  values = _keep(values, mask.any(-2), widened(dtype))
  # The score must not see the rest of the non-finite keys either, or they would reach queries that
  # mask them: they become the NaN scores of the queries that do read them.
  finite = jnp.isfinite(keys).all(-1)
  scores = score(query, jnp.where(finite[..., None], keys, 0)[..., None, :, :])
  expected = (*np.broadcast_shapes(query.shape[:-2], keys.shape[:-2]), *full[-2:])
  if jnp.shape(scores) != expected:
    raise ValueError(
      f"attend: score returned shape {jnp.shape(scores)}, expected {expected}, that is [..., t, s]"
    )
  scores = _poison(scores.astype(widened(dtype)), mask & ~finite[..., None, :])
  weights = softmax(scores, mask, scale=scale)
  contexts = context(weights, values[..., None, :, :], mask).astype(dtype)
  if not return_weights:
    return Attention(contexts, None, None)
  shape = (*contexts.shape[:-2], *full[-2:])
  return Attention(contexts, jnp.broadcast_to(weights.astype(dtype), shape), None)


def _full_mask(mask: jax.Array | None, full: tuple[int, ...]) -> jax.Array:
  """The mask as [..., t or 1, s], with as many axes as `full`, the shape of the weights."""
  axes = len(full)
  if mask is None:
    return jnp.ones((*[1] * (axes - 1), full[-1]), bool)
  if mask.ndim > axes:
    raise ValueError(
      f"attend: mask has shape {mask.shape}, expected [..., t, s] of {axes} axes or [..., s] of "
      f"fewer; the weights have shape {full}"
    )
  if mask.ndim < axes:
    padding = (1,) * (axes - 1 - mask.ndim)
    aligned = (*padding, *mask.shape[:-1], 1, *mask.shape[-1:])
  else:
    aligned = mask.shape
  try:
    fits = np.broadcast_shapes(aligned, full)[-2:] == full[-2:]
  except ValueError:
    fits = False
  if not fits:
    kind = "[..., t, s]" if mask.ndim == axes else "[..., s]"
    raise ValueError(
      f"attend: mask has shape {mask.shape}, expected {kind} for weights of shape {full}"
    )
  return jnp.broadcast_to(jnp.reshape(mask, aligned), (*aligned[:-1], full[-1]))


# Compiled, so that a program under `jax_debug_nans` sees what comes out and not what goes in.
@functools.partial(jax.jit, static_argnames="dtype", inline=True)
def _keep(rows: jax.Array, read: jax.Array, dtype: np.dtype) -> jax.Array:
  """Rows [..., p, width] with zeros where `read` [..., p], over all that share them, is False."""
  read = read.any(tuple(range(read.ndim + 1 - rows.ndim)))
  single = tuple(axis for axis, length in enumerate(rows.shape[:-2]) if length == 1)
  return jnp.where(read.any(single, keepdims=True)[..., None], rows, 0).astype(dtype)


@functools.partial(jax.jit, inline=True)
def _poison(scores: jax.Array, where: jax.Array) -> jax.Array:
  return jnp.where(where, jnp.nan, scores)
