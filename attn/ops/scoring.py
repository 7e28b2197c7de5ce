"""Scoring many queries: at once, or in parts that never hold [..., t, s, n]."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.extend as jex
import jax.numpy as jnp
import numpy as np

from attn.ops.lifting import python_int, real_array, result_dtype
from attn.ops.scores import additive, additive_projected, concat, location, project_keys

Score = Callable[[jax.Array, jax.Array], jax.Array]

# Elements of the largest array that a score makes at once. On a CPU a quarter of a megabyte of
# float32, the share of a cache: measured from 2**15 to 2**20. A device starves on steps so small,
# so elsewhere only memory counts; that was not measured.
_CACHED = 2**16
_LARGE = 2**26

# The additive family, with the axes of parameters that a whole batch shares.
_ADDITIVE: tuple[tuple[Callable[..., Any], dict[str, int]], ...] = (
  (additive, {"w_a": 2, "u_a": 2, "v_a": 1}),
  (additive_projected, {"w_a": 2, "v_a": 1}),
  (concat, {"w_a": 2, "v_a": 1}),
)
_LOCATION = (
  "which takes no keys; use score=lambda query, keys: attn.location(query, w_a[: keys.shape[-2]])"
)


def check_score(op: str, score: Score, location_is: str = _LOCATION) -> None:
  """Raises TypeError unless the score is a function, ValueError where it is `attn.location`.

  That would take the keys for its matrix, and be the dot score.
  """
  if not callable(score):
    raise TypeError(f"{op}: score is a {type(score).__name__}, expected a function")
  if _bound(score)[0] is location:
    raise ValueError(f"{op}: score is attn.location, {location_is}")


def _bound(score: Score) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
  """The function under any number of `functools.partial`, and what they bind."""
  op: Any = score
  args: tuple[Any, ...] = ()
  keywords: dict[str, Any] = {}
  while isinstance(op, functools.partial):
    op, args, keywords = op.func, (*op.args, *args), {**op.keywords, **keywords}
  return op, args, keywords


def held(op: str, score: Score) -> Score:
  """The score, held to its contract: [..., c, s] for queries [..., c, q] and keys [..., s, k]."""

  def checked(query: jax.Array, keys: jax.Array) -> jax.Array:
    scores = real_array(op, "what score returned", score(query, keys))
    core = query.shape[-2], keys.shape[-2]
    expected = (*np.broadcast_shapes(query.shape[:-2], keys.shape[:-3]), *core)
    # What looks at the query alone has its leading axes alone.
    if scores.shape not in (expected, (*query.shape[:-2], *core)):
      raise ValueError(
        f"{op}: score returned shape {scores.shape}, expected {expected}: a number for each "
        f"of {query.shape[-2]} queries and {keys.shape[-2]} source positions"
      )
    return scores

  return checked


def scored(score: Score, query: jax.Array, keys: jax.Array, chunk: int | None) -> jax.Array:
  """Scores [..., t, s] of queries [..., t, q] and keys [..., 1, s, k], of `chunk` at a time."""
  if chunk is not None:
    chunk = python_int("attend", "chunk", chunk, least=1)
  whole = held("attend", score)
  op, args, bound = _bound(score)
  axes = next((axes for known, axes in _ADDITIVE if known is op), None)
  if axes is None or args:
    return _in_parts(whole, query, keys, chunk)
  bound = {name: real_array(op.__name__, name, value) for name, value in bound.items()}
  if {name: array.ndim for name, array in bound.items()} != axes:
    return _in_parts(whole, query, keys, chunk)
  jax.eval_shape(whole, query, keys)  # Raises what the op has to say about its parameters.
  # Both sides projected first: in a loop over queries, the gradient to W_a would be read and
  # written at each.
  w_a, v_a = bound["w_a"], bound["v_a"]
  width = query.shape[-1]
  if op is not additive_projected:
    keys = project_keys(keys, bound["u_a"] if op is additive else w_a[:, width:])
  query = project_keys(query, w_a[:, :width])
  scores: jax.Array = _additive_in_parts(query, keys, v_a, chunk)
  return scores


# Compiled: outside `jax.jit` a loop over a new function would be compiled at each call.
@functools.partial(jax.jit, static_argnames="chunk", inline=True)
def _additive_in_parts(
  query: jax.Array, keys: jax.Array, v_a: jax.Array, chunk: int | None
) -> jax.Array:
  """v_a^T tanh(query + key) of projected queries [..., t, n] and keys [..., 1, s, n]."""
  dtype = result_dtype([query, keys, v_a])
  query, keys, v_a = (array.astype(dtype) for array in (query, keys, v_a))
  return _in_parts(
    lambda query, keys: jnp.tanh(query[..., None, :] + keys) @ v_a, query, keys, chunk
  )


def _in_parts(score: Score, query: jax.Array, keys: jax.Array, chunk: int | None) -> jax.Array:
  """The scores of `chunk` queries at a time, of the sentences together or, if they may, alone."""
  t = query.shape[-2]
  if chunk is None:
    # JAX has no loop over an axis that devices split between them.
    query_axes, keys_axes = (jax.typeof(array).sharding.spec for array in (query, keys))
    queries = t if query_axes[-2] else _at_once(score, query, keys)
    paired = query.shape[:-2] == keys.shape[:-3] and not any((*query_axes, *keys_axes))
    if queries < 1 and paired and _alone(score, query, keys):
      return _sentences(score, query, keys, max(1, int(queries * math.prod(query.shape[:-2]))))
    chunk = max(1, int(queries))
  if chunk >= t:
    return score(query, keys)
  # Inside the loop's body, or the backward pass would still find all of it saved.
  body = jax.checkpoint(lambda block: score(block, keys), prevent_cse=False)
  loops, rest = divmod(t, chunk)
  blocks = query[..., : t - rest, :].reshape(*query.shape[:-2], loops, chunk, query.shape[-1])
  scores: jax.Array = jnp.moveaxis(jax.lax.map(body, jnp.moveaxis(blocks, -3, 0)), 0, -3)
  scores = scores.reshape(*scores.shape[:-3], t - rest, keys.shape[-2])
  if not rest:
    return scores
  last: jax.Array = jax.checkpoint(lambda block: score(block, keys))(query[..., t - rest :, :])
  return jnp.concatenate([scores, last], -2)


def _sentences(score: Score, query: jax.Array, keys: jax.Array, size: int) -> jax.Array:
  """Scores [..., t, s], those of one query of `size` sentences at a time."""
  ones = (1,) * (query.ndim - 2)

  def one(query: jax.Array, keys: jax.Array) -> jax.Array:
    scores = score(query.reshape(*ones, 1, *query.shape), keys.reshape(*ones, *keys.shape))
    return scores.reshape(keys.shape[-2])

  saved = jax.checkpoint(one, prevent_cse=False)

  def sentence(arrays: tuple[jax.Array, jax.Array]) -> jax.Array:
    scores: jax.Array = jax.lax.map(lambda query: saved(query, arrays[1]), arrays[0])
    return scores

  flat = query.reshape(-1, *query.shape[-2:]), keys.reshape(-1, *keys.shape[-3:])
  scores: jax.Array = jax.lax.map(sentence, flat, batch_size=size)
  return scores.reshape(*query.shape[:-1], keys.shape[-2])


def _alone(score: Score, query: jax.Array, keys: jax.Array) -> bool:
  """Whether a sentence can be scored alone: not if the score has parameters of each sentence."""
  ones = (1,) * (query.ndim - 2)
  one = [
    jax.ShapeDtypeStruct((*ones, *shape), query.dtype)
    for shape in ((1, query.shape[-1]), keys.shape[-3:])
  ]
  try:
    return bool(jax.eval_shape(score, *one).shape == (*ones, 1, keys.shape[-2]))
  except Exception:  # Whatever a score says that takes its own batch only, which it took before.
    return False


def _at_once(score: Score, query: jax.Array, keys: jax.Array) -> float:
  """How many queries to score at a time: all, unless what is between the ends outgrows a cache."""
  t = query.shape[-2]
  shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in (query, keys)]
  jaxpr, scores = jax.make_jaxpr(score, return_shape=True)(*shapes)
  largest = max(_sizes(jaxpr.jaxpr), default=0)
  ends = max(query.size, keys.size, scores.size)
  fits = _CACHED if jax.default_backend() == "cpu" else _LARGE
  return max(t, 1) if largest <= max(2 * ends, fits) else t * fits / largest


def _sizes(jaxpr: jex.core.Jaxpr) -> Iterator[int]:
  """How many elements each array of a program has."""
  for equation in jaxpr.eqns:
    avals = (out.aval for out in equation.outvars)
    yield from (aval.size for aval in avals if isinstance(aval, jax.core.ShapedArray))
    for inner in jex.core.jaxprs_in_params(equation.params):
      yield from _sizes(inner)
