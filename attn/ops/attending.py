"""Attending: score, softmax and context in one call, safe against whatever a mask hides."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, Real

from attn.ops.contexts import context
from attn.ops.lifting import (
  check_shapes,
  finite_rows,
  integer_array,
  mask_array,
  python_int,
  real_array,
  real_number,
  result_dtype,
  widened,
)
from attn.ops.scores import dot
from attn.ops.scoring import Score, check_score, held, scored
from attn.ops.weights import normalised, softmax
from attn.ops.windows import bell, wide_position


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
  chunk: int | None = None,
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
    score: called as score(query [..., c, q], keys [..., 1, s, k]), and has to return [..., c, s],
      for all c = t queries, some of them or, where it can, one sentence of the leading axes. Any
      score of this package that takes query and keys, its other parameters bound by
      `functools.partial`. Query and keys arrive in at least float32. A score of the query alone
      may have the leading axes of the query alone.
    scale: multiplies the scores; one number, which may be traced, zero or negative.
    chunk: how many queries are scored at a time, of the whole batch at once; at least 1. The
      backward pass scores each chunk again, so that a tensor [..., t, s, n] of additive attention
      is never whole. None scores all at once, unless the score makes an array that is larger than
      a cache and larger than all that goes in and comes out: then as many at a time as fit, or
      one of as many sentences. The additive scores of this package project both sides once. In
      parts, any other score is compiled at each call that is not itself inside `jax.jit`.
    return_weights: whether to return the weights beside the context.

  Returns:
    `Attention(context [..., t, v], weights [..., t, s] or None, positions None)`, in the promoted
    dtype of query, keys and values.

  Raises:
    TypeError: the mask is not boolean, or another argument does not hold real numbers.
    ValueError: a shape does not fit, the mask has too many axes, `score` is `attn.location`
      unwrapped or returned another shape, or `chunk` is below 1.

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
  check_score("attend", score)
  query, keys = real_array("attend", "query", query), real_array("attend", "keys", keys)
  values = keys if values is None else real_array("attend", "values", values)
  arrays = {"query": query, "keys": keys, "values": values}
  leading = check_shapes("attend", [("t", "q"), ("s", "k"), ("s", "v")], arrays)
  full = (*leading, query.shape[-2], keys.shape[-2])
  mask = _full_mask(mask_array("attend", mask), full)
  scale = real_number("attend", "scale", scale)
  dtype = result_dtype([query, keys, values])

  # What nobody reads goes before the score sees it: a select after it would leave NaN gradients.
  query = _keep(query, mask.any(-1), widened(dtype))
  keys = _keep(keys, mask.any(-2), widened(dtype))
  values = _keep(values, mask.any(-2), widened(dtype))
  # The score must not see the rest of the non-finite keys either, or they would reach queries that
  # mask them: they become the NaN scores of the queries that do read them.
  finite = finite_rows(keys)
  scores = scored(score, query, jnp.where(finite[..., None], keys, 0)[..., None, :, :], chunk)
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


def attend_local(
  query: Real[Array, "... t q"],
  keys: Real[Array, "... s k"],
  values: Real[Array, "... s v"] | None,
  position: Real[Array, "... t"],
  length: Integer[Array, "..."],
  *,
  half_width: int,
  score: Score = dot,
  mask: Bool[Array, "... s"] | None = None,
  scale: Real[Array, ""] | float = 1.0,
  gaussian: bool = True,
  renormalise: bool = False,
) -> Attention:
  """(t,q),(s,k),(s,v),(t),()->(t,v),(t,w)

  Local attention: each query sees the w = 2D + 1 source positions around its centre alone.

  Softmax over the window, then the Gaussian around the centre, not renormalised. Only the keys and
  values of the window are gathered, so the forward work does not grow with s; the gradient to the
  keys is dense, and to write it grows with s. It equals `attn.attend` with `attn.window_mask`, its
  weights multiplied by `attn.gaussian`.

  A query whose window holds nothing to attend to has zero weights, zero context and zero gradient.
  What is outside its window or masked, NaN included, never reaches a query, nor what is only there
  any gradient. A NaN or inf inside makes NaN of the query, and so does a position that is NaN.

  Source: Luong, Pham and Manning 2015 (arXiv:1508.04025), section 3.2: local-p, with the centre of
  `attn.predict_position`, Eq. 9 and 10; local-m, with the centre t and `gaussian=False`.

  Args:
    query: h_t, [..., t, q].
    keys: [..., s, k].
    values: [..., s, v]; the keys when None.
    position: the centre of each query's window, counted from 0, [..., t]. Its gradient comes
      through the Gaussian; the ends of the window have none.
    length: integers, the number of source positions, [...]; above s it acts as s.
    half_width: D, a Python int of at least 0. With D = 0 the window is the centre, if an integer.
    score: called once as score(query [..., t, q], keys [..., t, w, k]), and has to return
      [..., t, w]. Any score of this package that takes query and keys, its other parameters bound
      by `functools.partial`. Not `attn.location`, which scores absolute positions: that is
      `attn.attend` with `attn.window_mask`.
    mask: boolean, [..., s], True where it may be attended to inside the window as well.
    scale: multiplies the scores; one number, which may be traced, zero or negative.
    gaussian: whether to multiply the weights by the Gaussian, as local-p does and local-m does not.
    renormalise: whether to divide them by their sum after that, as the paper does not.

  Returns:
    `Attention(context [..., t, v], weights [..., t, w], positions [..., t, w])`; the positions,
    int32, are the consecutive source positions of the weights. The window is moved inside the
    source at its ends, so that some of them lie further than D from the centre, and weigh 0; where
    s < w some are s and above, and weigh 0.

  Raises:
    TypeError: the mask is not boolean, length holds no integers, half_width is no Python int, or
      another argument no real numbers.
    ValueError: a shape does not fit, half_width is negative, or `score` is `attn.location` or
      returned another shape.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> memory = jnp.array([[2., 0.], [0., 2.], [1., 1.], [9., 9.]])
    >>> query, position = jnp.array([[1., 2.], [1., 2.]]), jnp.array([0., 1.5])
    >>> local = attn.attend_local(query, memory, memory, position, jnp.array(3), half_width=1)
    >>> with jnp.printoptions(precision=3):
    ...   print(local.weights, local.positions.tolist())
    [[0.119 0.119 0.   ]
     [0.    0.443 0.163]] [[0, 1, 2], [0, 1, 2]]
  """
  check_score(
    "attend_local",
    score,
    "which scores absolute positions; use attn.attend with mask=attn.window_mask(...)",
  )
  half_width = python_int("attend_local", "half_width", half_width)
  query, keys = real_array("attend_local", "query", query), real_array("attend_local", "keys", keys)
  values = keys if values is None else real_array("attend_local", "values", values)
  position = wide_position("attend_local", position)
  length = integer_array("attend_local", "length", length)
  mask = mask_array("attend_local", mask)
  arrays = {"query": query, "keys": keys, "values": values, "position": position, "length": length}
  dims = [("t", "q"), ("s", "k"), ("s", "v"), ("t",), ()]
  leading = check_shapes("attend_local", [*dims, ("s",)], {**arrays, "mask": mask})
  scale = real_number("attend_local", "scale", scale)
  dtype = result_dtype([query, keys, values])

  first, positions, distance, inside = _window(position, length, half_width, keys.shape[-2])
  live = inside
  if mask is not None:
    live &= _slots(mask[..., None], first, inside.shape[-1])[..., 0]
  live = live.reshape((1,) * (len(leading) + 2 - live.ndim) + live.shape)
  near_keys, finite = _gathered(keys, first, live, widened(dtype))
  near_values, finite_values = (
    (near_keys, finite) if values is keys else _gathered(values, first, live, widened(dtype))
  )
  scores = held("attend_local", score)(_keep(query, live.any(-1), widened(dtype)), near_keys)
  lost = inside & jnp.isnan(distance)
  scores = _poison(scores.astype(widened(dtype)), live & (~finite | lost))
  weights = softmax(scores, live, scale=scale)
  if gaussian:
    weights = weights * bell(jnp.where(live, distance, 0), half_width).astype(weights.dtype)
    if renormalise:
      weights = normalised(weights)
  # A mask may hide all slots of a window, but not that nobody knows where it is.
  missing = (live & ~finite_values) | (lost & ~live)
  contexts = _poison(context(weights, near_values), missing.any(-1, keepdims=True))
  shape = (*leading, *positions.shape[-2:])
  return Attention(
    jnp.broadcast_to(contexts, (*leading, *contexts.shape[-2:])).astype(dtype),
    jnp.broadcast_to(weights, shape).astype(dtype),
    jnp.broadcast_to(positions, shape),
  )


def _window(
  position: jax.Array, length: jax.Array, half_width: int, size: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """The slots that are gathered for each query.

  Returns:
    The position of the first, int32 [..., t]; and of each slot, [..., t, w], the position, its
    distance from the centre, and whether it is in the window.
  """
  width = 2 * half_width + 1
  # Clipped as floats: an integer could not hold a position far outside.
  first = jnp.clip(jnp.floor(position) - half_width, 0, max(0, size - width))
  first = jnp.where(jnp.isnan(first), 0, first).astype(jnp.int32)
  positions = first[..., None] + jnp.arange(width, dtype=first.dtype)
  distance = positions.astype(position.dtype) - position[..., None]
  far = jnp.abs(distance) > half_width
  # Not what is `<=`: a position that is NaN keeps its slots, to make NaN of them.
  inside = (positions < jnp.minimum(length, size)[..., None, None]) & ~far
  return first, positions, distance, inside


def _slots(rows: jax.Array, first: jax.Array, width: int) -> jax.Array:
  """Rows first ... first + width - 1 of [..., s, k], for each first [..., t]: [..., t, w, k]."""
  missing = max(0, width - rows.shape[-2])
  rows = jnp.pad(rows, [*[(0, 0)] * (rows.ndim - 2), (0, missing), (0, 0)])
  # One slice a query, not `width` single rows.
  take = lambda rows, first: jax.lax.dynamic_slice_in_dim(rows, first, width)  # noqa: E731
  slots: jax.Array = jnp.vectorize(take, signature="(s,k),()->(w,k)")(rows[..., None, :, :], first)
  return slots


# Compiled, as `_keep` is.
@functools.partial(jax.jit, static_argnames="dtype", inline=True)
def _gathered(
  rows: jax.Array, first: jax.Array, live: jax.Array, dtype: np.dtype
) -> tuple[jax.Array, jax.Array]:
  """The slots of rows, zeros for what no query may see or is not finite, and which are finite."""
  slots = _slots(rows, first, live.shape[-1])
  finite = finite_rows(slots)
  return jnp.where((live & finite)[..., None], slots, 0).astype(dtype), finite
