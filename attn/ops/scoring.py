"""Scoring many queries: at once, or in parts that never hold [..., t, s, n]."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.extend as jex
import jax.numpy as jnp
import numpy as np

from attn.ops.lifting import python_int, result_dtype
from attn.ops.scores import additive, additive_projected, concat, project_keys

Score = Callable[[jax.Array, jax.Array], jax.Array]

# Elements of the largest array that a score makes at once. On a CPU a quarter of a megabyte of
# float32, the share of a cache: measured from 2**15 to 2**20. A device starves on steps so small,
# so elsewhere only memory counts; that was not measured.
_CACHED = 2**16
_LARGE = 2**26

# The additive family, with the axes of parameters that a whole batch shares.
_ADDITIVE: dict[Callable[..., Any], dict[str, int]] = {
  additive: {"w_a": 2, "u_a": 2, "v_a": 1},
  additive_projected: {"w_a": 2, "v_a": 1},
  concat: {"w_a": 2, "v_a": 1},
}


def held(op: str, score: Score, leading: tuple[int, ...]) -> Score:
  """The score, held to its contract: [..., c, s] for queries [..., c, q] and keys [..., s, k]."""

  def checked(query: jax.Array, keys: jax.Array) -> jax.Array:
    scores = score(query, keys)
    expected = (*leading, query.shape[-2], keys.shape[-2])
    if jnp.shape(scores) != expected:
      raise ValueError(
        f"{op}: score returned shape {jnp.shape(scores)}, expected {expected}: a number for each "
        f"of {query.shape[-2]} queries and {keys.shape[-2]} source positions"
      )
    return scores

  return checked


def scored(score: Score, query: jax.Array, keys: jax.Array, chunk: int | None) -> jax.Array:
  """Scores [..., t, s] of queries [..., t, q] and keys [..., 1, s, k], of `chunk` at a time."""
  whole = held("attend", score, np.broadcast_shapes(query.shape[:-2], keys.shape[:-3]))
  projected = _projected(score, query, keys)
  if projected is not None:
    jax.eval_shape(whole, query, keys)  # Raises what the op has to say about its parameters.
    score, query, keys = projected
    whole = score
  t = query.shape[-2]
  if chunk is None:
    queries = _at_once(whole, query, keys)
    if queries < 1 and query.shape[:-2] == keys.shape[:-3] and _alone(score, query, keys):
      return _sentences(score, query, keys, max(1, int(queries * math.prod(query.shape[:-2]))))
    chunk = max(1, int(queries))
  if python_int("attend", "chunk", chunk, least=1) >= t:
    return whole(query, keys)
  # Inside the loop's body, or the backward pass would still find all of it saved.
  body = jax.checkpoint(lambda block: whole(block, keys), prevent_cse=False)
  loops, rest = divmod(t, chunk)
  blocks = query[..., : loops * chunk, :].reshape(*query.shape[:-2], loops, chunk, -1)
  scores: jax.Array = jnp.moveaxis(jax.lax.map(body, jnp.moveaxis(blocks, -3, 0)), 0, -3)
  scores = scores.reshape(*scores.shape[:-3], loops * chunk, -1)
  if not rest:
    return scores
  last: jax.Array = jax.checkpoint(lambda block: whole(block, keys))(query[..., loops * chunk :, :])
  return jnp.concatenate([scores, last], -2)


def _sentences(score: Score, query: jax.Array, keys: jax.Array, size: int) -> jax.Array:
  """Scores [..., t, s], those of one query of `size` sentences at a time."""
  one = jax.checkpoint(lambda query, keys: score(query[None], keys)[0], prevent_cse=False)

  def sentence(arrays: tuple[jax.Array, jax.Array]) -> jax.Array:
    scores: jax.Array = jax.lax.map(lambda query: one(query, arrays[1]), arrays[0])
    return scores

  flat = query.reshape(-1, *query.shape[-2:]), keys.reshape(-1, *keys.shape[-3:])
  scores: jax.Array = jax.lax.map(sentence, flat, batch_size=size)
  return scores.reshape(*query.shape[:-1], keys.shape[-2])


def _alone(score: Score, query: jax.Array, keys: jax.Array) -> bool:
  """Whether a sentence can be scored alone: not if a parameter is bound for each of a batch."""
  one = [
    jax.ShapeDtypeStruct(shape, query.dtype)
    for shape in ((1, query.shape[-1]), (1, *keys.shape[-2:]))
  ]
  return bool(jax.eval_shape(score, *one).shape == (1, keys.shape[-2]))


def _projected(
  score: Score, query: jax.Array, keys: jax.Array
) -> tuple[Score, jax.Array, jax.Array] | None:
  """What is left of an additive score once both sides are projected; None of any other score.

  Its parameters have to be shared by the whole batch. In a loop over queries, the gradient to W_a
  would be read and written at each.
  """
  op: Any = score
  bound: dict[str, Any] = {}
  while isinstance(op, functools.partial) and not op.args:
    op, bound = op.func, {**op.keywords, **bound}
  if op not in _ADDITIVE or {name: np.ndim(bound[name]) for name in bound} != _ADDITIVE[op]:
    return None
  w_a, v_a = bound["w_a"], jnp.asarray(bound["v_a"])
  width = query.shape[-1]
  if op is not additive_projected:
    keys = project_keys(keys, bound["u_a"] if op is additive else w_a[:, width:])
  query = project_keys(query, w_a[:, :width])
  dtype = result_dtype([query, keys, v_a])
  query, keys, v_a = (array.astype(dtype) for array in (query, keys, v_a))
  return lambda query, keys: jnp.tanh(query[..., None, :] + keys) @ v_a, query, keys


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
