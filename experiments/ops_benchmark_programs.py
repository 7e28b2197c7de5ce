"""The programs of `experiments.ops_benchmark`: one arithmetic, written by attn and by others.

Loaded in the processes that are timed and nowhere else, so that Keras finds its back end and XLA
its cores as they were set. Nothing at the top imports jax: the process of PyTorch has none.
"""

import functools
import importlib
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

ATTN, PLAIN, JAX_NN = "attn", "plain jnp", "jax.nn"
KERAS_JAX, KERAS_TORCH = "Keras on JAX", "Keras on PyTorch"
DENSE, WRITE = "dense attn", "a dense gradient's writing"
FORWARD, BOTH = "forward", "forward+backward"
PASSES = (FORWARD, BOTH)
LOCAL, BARE = "local", "additive_bare"
SCORES = (
  "dot", "scaled_dot", "cosine", "general", "concat", "additive", "additive_projected", BARE,
)  # fmt: skip

Arrays = dict[str, np.ndarray]


class Case(NamedTuple):
  """What is computed, and at which sizes."""

  score: str  # of SCORES, or LOCAL
  batch: int
  target: int
  source: int
  width: int  # of queries, keys, values and alignment
  half_width: int = 0  # of the window; LOCAL only


class Program(NamedTuple):
  """One contender's program, compiled and called once.

  Attributes:
    call: computes once, and returns when that is done.
    results: context, and the gradients by name where they are computed.
    facts: `compile_seconds`, `temp_bytes`, `flops` and `loops`, as far as the compiler tells them.
  """

  call: Callable[[], Any]
  results: Arrays
  facts: dict[str, Any]


def inputs(case: Case, seed: int) -> tuple[Arrays, Arrays, np.ndarray]:
  """What is differentiated, what is not, and the gradient to the context; the same anywhere."""
  draw = np.random.default_rng(seed)
  b, t, s, n = case.batch, case.target, case.source, case.width

  def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return draw.standard_normal(shape, np.float32) * np.float32(scale)

  # Products are kept near variance 1: a softmax of one large score would make any context right.
  additive = case.score.startswith("additive") or case.score == "concat"
  arrays = {
    "query": normal(b, t, n, scale=1.0 if additive else n**-0.5),
    "keys": normal(b, s, n),
  }
  matrices = {
    "general": ("w_a",), "concat": ("w_a",), "additive": ("w_a", "u_a"),
    "additive_projected": ("w_a",),
  }.get(case.score, ())  # fmt: skip
  for name in matrices:
    arrays[name] = normal(n, 2 * n if case.score == "concat" else n, scale=n**-0.5)
  if additive:
    arrays["v_a"] = normal(n, scale=n**-0.5)
  if case.score == "additive_projected":
    arrays["values"] = normal(b, s, n)
  length = draw.integers((s + 1) // 2, s + 1, b).astype(np.int32)
  if case.score == LOCAL:
    arrays["position"] = (draw.random((b, t)) * length[:, None]).astype(np.float32)
    fixed = {"length": length}
  else:
    fixed = {"mask": np.arange(s) < length[:, None]}
  return arrays, fixed, normal(b, t, n)


def programs(case: Case, seed: int, backend: str) -> dict[tuple[str, str], Program]:
  """Contender and pass to its program, of those that a back end's process is there for."""
  if backend == "torch":
    return _torch_programs(case, seed)
  import jax

  arrays, fixed, pull = jax.tree.map(jax.numpy.asarray, inputs(case, seed))
  made = {}
  for name, function in _functions(case).items():
    context = functools.partial(_forward, function)
    made[name, FORWARD] = _compiled(context, arrays, fixed)
    made[name, BOTH] = _compiled(functools.partial(_both, function), arrays, fixed, pull)
  if case.score == LOCAL:
    made[WRITE, BOTH] = _compiled(_written, arrays["keys"])
  return made


def _forward(function: Callable[..., Any], arrays: Any, fixed: Any) -> dict[str, Any]:
  return {"context": function(**arrays, **fixed)}


def _both(function: Callable[..., Any], arrays: Any, fixed: Any, pull: Any) -> dict[str, Any]:
  import jax

  context, pull_back = jax.vjp(lambda arrays: function(**arrays, **fixed), arrays)
  return {"context": context, **pull_back(pull)[0]}


def _written(keys: Any) -> dict[str, Any]:
  import jax.numpy as jnp

  return {"keys": jnp.zeros_like(keys)}


def _compiled(function: Callable[..., Any], *arguments: Any) -> Program:
  import jax

  jitted = jax.jit(function)
  lowered = jitted.lower(*arguments)
  start = time.perf_counter()
  compiled = lowered.compile()
  facts = {
    "compile_seconds": time.perf_counter() - start,
    "temp_bytes": compiled.memory_analysis().temp_size_in_bytes,
    "flops": compiled.cost_analysis().get("flops"),
    "loops": " while(" in compiled.as_text(),  # whose body `flops` counts once
  }

  def call() -> Any:
    return jax.block_until_ready(jitted(*arguments))

  return Program(call, {name: np.asarray(value) for name, value in call().items()}, facts)


# In JAX.


def _functions(case: Case) -> dict[str, Callable[..., Any]]:
  """Contender to the function that computes the context from the arrays by name."""
  if case.score == LOCAL:
    return {
      name: functools.partial(function, half_width=case.half_width)
      for name, function in ((ATTN, _local), (DENSE, _dense), (PLAIN, _plain_dense))
    }
  by_attn = _attend_bare if case.score == BARE else functools.partial(_attend, case.score)
  functions = {ATTN: by_attn}
  functions[PLAIN] = functools.partial(_plain, _PLAIN[case.score])
  if case.score in ("dot", "scaled_dot"):
    scale = 1.0 if case.score == "dot" else case.width**-0.5
    functions[JAX_NN] = functools.partial(_jax_nn, scale=scale)
  if case.score == BARE and importlib.util.find_spec("keras"):
    functions[KERAS_JAX] = _keras_on_jax(case.width)
  return functions


def _attend(score: str, query: Any, keys: Any, mask: Any, values: Any = None, **parameters: Any):
  import attn

  bound = functools.partial(getattr(attn, score), **parameters)
  return attn.attend(query, keys, values, mask, score=bound, return_weights=False).context


def _attend_bare(query: Any, keys: Any, mask: Any, v_a: Any):
  import attn

  def score(query: Any, keys: Any) -> Any:
    import jax.numpy as jnp

    return jnp.tanh(query[..., None, :] + keys) @ v_a

  return attn.attend(query, keys, mask=mask, score=score, return_weights=False).context


def _plain(score: Callable[..., Any], query, keys, mask, values=None, **parameters):
  import jax
  import jax.numpy as jnp

  scores = jnp.where(mask[:, None], score(query, keys, **parameters), -jnp.inf)
  return jax.nn.softmax(scores) @ (keys if values is None else values)


def _products(query: Any, keys: Any) -> Any:
  return query @ keys.mT


def _sums(query: Any, keys: Any, v_a: Any) -> Any:
  import jax.numpy as jnp

  return jnp.tanh(query[:, :, None] + keys[:, None]) @ v_a


def _unit(vectors: Any) -> Any:
  import jax.numpy as jnp

  return vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)


# `concat` takes its matrix apart: pairs [query; key] held in memory would be a straw man.
_PLAIN: dict[str, Callable[..., Any]] = {
  "dot": _products,
  "scaled_dot": lambda query, keys: _products(query, keys) / math.sqrt(query.shape[-1]),
  "cosine": lambda query, keys: _products(_unit(query), _unit(keys)),
  "general": lambda query, keys, w_a: _products(query @ w_a, keys),
  "concat": lambda query, keys, w_a, v_a: _sums(
    query @ w_a[:, : query.shape[-1]].T, keys @ w_a[:, query.shape[-1] :].T, v_a
  ),
  "additive": lambda query, keys, w_a, u_a, v_a: _sums(query @ w_a.T, keys @ u_a.T, v_a),
  "additive_projected": lambda query, keys, w_a, v_a: _sums(query @ w_a.T, keys, v_a),
  BARE: _sums,
}


def _jax_nn(query: Any, keys: Any, mask: Any, *, scale: float) -> Any:
  import jax

  one_head = keys[:, :, None]
  return jax.nn.dot_product_attention(
    query[:, :, None], one_head, one_head, mask=mask[:, None, None], scale=scale
  )[:, :, 0]


def _local(query: Any, keys: Any, position: Any, length: Any, *, half_width: int) -> Any:
  import attn

  return attn.attend_local(query, keys, None, position, length, half_width=half_width).context


def _dense(query: Any, keys: Any, position: Any, length: Any, *, half_width: int) -> Any:
  import attn

  window = {"half_width": half_width, "size": keys.shape[-2]}
  mask = attn.window_mask(position, length[:, None], **window)
  weights = attn.attend(query, keys, mask=mask).weights
  return attn.context(weights * attn.gaussian(position, **window), keys[:, None])


def _plain_dense(query: Any, keys: Any, position: Any, length: Any, *, half_width: int) -> Any:
  import jax
  import jax.numpy as jnp

  source = jnp.arange(keys.shape[-2])
  away = source - position[..., None]
  inside = (jnp.abs(away) <= half_width) & (source < length[:, None, None])
  weights = jax.nn.softmax(jnp.where(inside, _products(query, keys), -jnp.inf))
  return (weights * jnp.exp(-(away**2) / (half_width**2 / 2))) @ keys


# In Keras.


def _keras_layer(width: int) -> Any:
  """`AdditiveAttention`; its only parameter is a vector that multiplies each tanh, as v_a does."""
  import keras

  layer = keras.layers.AdditiveAttention(use_scale=True)
  layer.build([(None, None, width), (None, None, width)])
  return layer


def _keras_on_jax(width: int) -> Callable[..., Any]:
  layer = _keras_layer(width)

  def context(query: Any, keys: Any, mask: Any, v_a: Any) -> Any:
    return layer.stateless_call([v_a], [], [query, keys], mask=[None, mask])[0]

  return context


def _torch_programs(case: Case, seed: int) -> dict[tuple[str, str], Program]:
  """Keras on PyTorch, eager, which is how Keras itself runs that back end."""
  if case.score != BARE:
    return {}
  import torch

  layer = _keras_layer(case.width)
  arrays, fixed, pull = inputs(case, seed)
  layer.scale.assign(arrays["v_a"])
  query, keys = (torch.tensor(arrays[name], requires_grad=True) for name in ("query", "keys"))
  leaves = {"query": query, "keys": keys, "v_a": layer.scale.value}
  mask, pulled = torch.tensor(fixed["mask"]), torch.tensor(pull)

  def context() -> Any:
    return layer([query, keys], mask=[None, mask])

  def forward() -> Any:
    with torch.no_grad():
      return {"context": context()}

  def both() -> Any:
    found = context()
    gradients = torch.autograd.grad(found, list(leaves.values()), pulled)
    return {"context": found, **dict(zip(leaves, gradients, strict=True))}

  made = {}
  for passes, call in ((FORWARD, forward), (BOTH, both)):
    results = {name: value.detach().numpy() for name, value in call().items()}
    made[KERAS_TORCH, passes] = Program(call, results, {})
  return made
