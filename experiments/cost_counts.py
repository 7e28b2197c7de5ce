"""What `experiments.cost` counts: on live arrays, and in traced programs at the papers' sizes.

Nothing is taken from a formula here: reals are those of arrays that a model made, multiply-adds
those of the products that its program runs. `attn.cost` is what they are held against.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

import attn
from attn import models, presets
from attn.data.vocabulary import BOS
from attn.models import Memory, ModelConfig, Seq2Seq, bind, steps
from attn.models.functional import Params

SUTSKEVER, BAHDANAU = "sutskever2014", "rnnsearch"
PARTS = ("previous word", "attention", "state", "readout and output layer")
_WORDS = 5  # of a vocabulary that changes no state: what a model keeps does not depend on it


class AtEachStep:
  """An additive score that keeps no U_a h_j: it begins with the annotations at every step."""

  def __init__(self, score: Any):
    """Takes the matrices of an `Additive` score."""
    self._matrices = {"w_a": score.w_a[...], "u_a": score.u_a[...], "v_a": score.v_a[...]}

  def keys(self, annotations: jax.Array) -> jax.Array:
    """h_j."""
    return annotations

  def __call__(self, query: jax.Array, keys: jax.Array) -> jax.Array:
    """e_ij for one decoder state."""
    # Tied to the query: XLA would see that U_a h_j is the same at all steps, and do it once.
    query, keys = jax.lax.optimization_barrier((query, keys))
    return attn.additive(query, keys, **self._matrices)


def bound(config: ModelConfig, params: Params, *, at_hand: bool = True) -> Seq2Seq:
  """The model, whose score projects the annotations once a sentence or at every step."""
  model = bind(config, params)
  if not at_hand:
    model.decoder.score = AtEachStep(model.decoder.score)
  return model


class Work(NamedTuple):
  """What a program computes.

  Attributes:
    macs: multiply-adds of its products.
    tanh: how many tanh it takes.
    products: how many products it runs, a loop's once a turn.
  """

  macs: int
  tanh: int
  products: int


def work(function: Callable[..., Any], *arguments: Any) -> Work:
  """Traces a program, computing nothing, and sums up its products; a loop's count every turn.

  Args:
    function: the program.
    arguments: arrays, or their shapes.

  Raises:
    ValueError: it has a loop or a branch whose turns are not known.
  """
  closed = jax.make_jaxpr(function)(*arguments)
  return Work(*map(sum, zip((0, 0, 0), *_work(closed.jaxpr), strict=True)))


def _work(jaxpr: Any) -> Iterator[Work]:
  for equation in jaxpr.eqns:
    name = equation.primitive.name
    if name in ("while", "cond"):
      raise ValueError(f"a {name} has no number of turns to count")
    if name == "dot_general":
      (contracted, _), _ = equation.params["dimension_numbers"]
      left = equation.invars[0].aval.shape
      size = math.prod(equation.outvars[0].aval.shape)
      yield Work(size * math.prod(left[axis] for axis in contracted), 0, 1)
    elif name == "tanh":
      yield Work(0, math.prod(equation.outvars[0].aval.shape), 0)
    turns = equation.params["length"] if name == "scan" else 1
    for inner in core.jaxprs_in_params(equation.params):
      for found in _work(inner):
        yield Work(*(turns * number for number in found))


# Traced, at any size.


def read_work(length: int, *, at_hand: bool) -> dict[str, Work]:
  """The work of attention in one decoding step of Bahdanau's model.

  Args:
    length: source positions.
    at_hand: whether U_a h_j is, or has to be computed.

  Returns:
    `attention` for all of it and `score` for e_ij alone.
  """
  config = presets.get(BAHDANAU).model
  params, memory = _shapes(config, length, at_hand)
  query = jax.ShapeDtypeStruct((1, config.units), jnp.float32)

  def read(params: Params, memory: Memory, query: jax.Array) -> Any:
    return steps.attend(bound(config, params, at_hand=at_hand).decoder, memory, query)

  def score(params: Params, keys: Any, query: jax.Array) -> Any:
    return bound(config, params, at_hand=at_hand).decoder.score(query, keys)

  return {
    "attention": work(read, params, memory, query),
    "score": work(score, params, memory.keys, query),
  }


def step_work(length: int, *, at_hand: bool) -> dict[str, Work]:
  """The work of one decoding step of Bahdanau's model: that of each of `PARTS`, and of the `step`.

  Args:
    length: source positions.
    at_hand: whether U_a h_j is, or has to be computed.
  """
  config = presets.get(BAHDANAU).model
  params, memory = _shapes(config, length, at_hand)
  model = lambda params: bound(config, params, at_hand=at_hand)  # noqa: E731
  previous = jax.ShapeDtypeStruct((1,), jnp.int32)
  state = jax.eval_shape(lambda p, m: model(p).start(m), params, memory)
  asked = params, memory, state, previous
  made = jax.eval_shape(lambda p, *a: model(p).step(*a)[1], *asked)
  embedded = jax.ShapeDtypeStruct((1, config.embedding), jnp.float32)
  first = jax.ShapeDtypeStruct((1,), jnp.bool_)
  word = jax.eval_shape(lambda p, *a: model(p).decoder.word(*a), params, embedded, first)

  def emit(params: Params, *read_out: Any) -> Any:
    decoder = model(params).decoder
    return decoder.logits(decoder.narrowed(decoder.readout(*read_out)))

  return {
    PARTS[0]: work(lambda p, *a: model(p).decoder.word(*a), params, embedded, first),
    PARTS[1]: read_work(length, at_hand=at_hand)["attention"],
    PARTS[2]: work(
      lambda p, *a: model(p).decoder.update(*a), params, state.layers, word, made.context
    ),
    PARTS[3]: work(emit, params, made.hidden, word, made.context),
    "step": work(lambda p, *a: model(p).step(*a), *asked),
  }


def keys_work(length: int) -> Work:
  """The work of U_a h_j for one sentence, in Bahdanau's model."""
  config = presets.get(BAHDANAU).model
  params, memory = _shapes(config, length, True)
  return work(lambda p, h: bind(config, p).decoder.score.keys(h), params, memory.annotations)


def dot_products(source: int, target: int) -> tuple[int, int]:
  """How many products make the dot scores of a whole target, without and with input feeding.

  They are what a teacher-forced pass of Luong's model has more than one that scores without any.
  """
  fed = presets.get("luong2015_dot_feed").model
  unfed = dataclasses.replace(fed, input_feeding="none")
  return _score_products(unfed, source, target), _score_products(fed, source, target)


def _score_products(config: ModelConfig, source: int, target: int) -> int:
  params, _ = _shapes(config, source, True)

  def forced(params: Params, *inputs: Any, uniform: bool) -> Any:
    model = bind(config, params)
    if uniform:
      model.decoder.score = _Uniform()
    return model.teacher_forced(*inputs)

  scored, uniform = (
    work(functools.partial(forced, uniform=flag), params, *_pair(source, target)).products
    for flag in (False, True)
  )
  return scored - uniform


class _Uniform:
  """Scores without a product."""

  def keys(self, annotations: jax.Array) -> jax.Array:
    """h_j, of which only the number counts."""
    return annotations

  def __call__(self, query: jax.Array, keys: jax.Array) -> jax.Array:
    """A 0 for each annotation."""
    return jnp.zeros((*query.shape[:-1], keys.shape[-2]), query.dtype)


@functools.lru_cache
def _shapes(config: ModelConfig, length: int, at_hand: bool) -> tuple[Any, Any]:
  params = _shapes_of_parameters(config)
  memory = jax.eval_shape(
    lambda p, *a: bound(config, p, at_hand=at_hand).encode(*a),
    params,
    *_pair(length, 1)[:2],
  )
  return params, memory


@functools.lru_cache
def _shapes_of_parameters(config: ModelConfig) -> Any:
  return jax.eval_shape(functools.partial(models.init, config), jax.random.key(0))


def _pair(source: int, target: int) -> tuple[jax.ShapeDtypeStruct, ...]:
  shapes = (1, source), (1,), (1, target)
  return tuple(jax.ShapeDtypeStruct(shape, jnp.int32) for shape in shapes)


# Live.


class Kept(NamedTuple):
  """What a model keeps of a source for its decoder, counted on the arrays.

  Attributes:
    arrays: shapes of the arrays, the axis of the batch left out.
    reals: their numbers.
    bits: what they take in memory.
  """

  arrays: tuple[tuple[int, ...], ...]
  reals: int
  bits: int


def count(arrays: Any) -> Kept:
  """Counts live arrays of a batch of one."""
  leaves = jax.tree.leaves(arrays)
  return Kept(
    tuple(leaf.shape[1:] for leaf in leaves),
    sum(leaf.size for leaf in leaves),
    sum(8 * leaf.nbytes for leaf in leaves),
  )


def fixed_vector(lengths: Iterable[int]) -> tuple[dict[int, Kept], int]:
  """Source length to what Sutskever's encoder hands to its decoder; rows of its embedding."""
  config, rows, encode = _encoder(SUTSKEVER)
  assert config.initial_state == "all_layers"
  return {length: count(encode(length).initial) for length in lengths}, rows


def annotations(lengths: Iterable[int]) -> tuple[dict[int, Kept], dict[int, Kept]]:
  """Source length to Bahdanau's annotations h_j, and to their projections U_a h_j."""
  _, _, encode = _encoder(BAHDANAU)
  memories = {length: encode(length) for length in lengths}
  values = {length: count(memory.values) for length, memory in memories.items()}
  return values, {length: count(memory.keys) for length, memory in memories.items()}


def _encoder(preset: str) -> tuple[ModelConfig, int, Callable[[int], Memory]]:
  """A preset's model with small vocabularies, the rows that its source embedding has, its encoder.

  All parameters are 0: what it makes of a sentence has its true size and says nothing.
  """
  full = presets.get(preset).model
  config = dataclasses.replace(full, source_vocabulary=_WORDS, target_vocabulary=_WORDS)
  params = jax.tree.map(
    lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), _shapes_of_parameters(config)
  )
  read = jax.jit(lambda params, *source: bind(config, params).encode(*source))

  def encode(length: int) -> Memory:
    memory: Memory = read(params, jnp.ones((1, length), jnp.int32), jnp.full(1, length))
    return memory

  return config, _shapes_of_parameters(full)["source"].shape[0], encode


_SMALL = ModelConfig(
  source_vocabulary=_WORDS, target_vocabulary=_WORDS, embedding=16, units=32, alignment=24,
  maxout=16, initialisation="glorot",
)  # fmt: skip


def scores(source: int, target: int) -> int:
  """How many scores a model makes of one pair: a weight each, counted on the live array."""
  inputs = (jnp.ones(shape.shape, shape.dtype) for shape in _pair(source, target))
  forced = jax.jit(lambda params, *inputs: bind(_SMALL, params).teacher_forced(*inputs).weights)
  return int(forced(_parameters(0), *inputs).size)


def _parameters(seed: int) -> Params:
  """Numbers at random: an initialisation would have to be compiled."""
  draw = np.random.default_rng(seed)
  params: Params = jax.tree.map(
    lambda leaf: jnp.asarray(0.3 * draw.standard_normal(leaf.shape, np.float32)),
    _shapes_of_parameters(_SMALL),
  )
  return params


class Cache(NamedTuple):
  """Decoding word by word from what is kept of the source.

  Attributes:
    position: numbers kept a source position.
    key_and_value: the widths of a key and a value together.
    growth: numbers by which all that is kept grows with each word.
    difference: largest between log-probabilities and those of the whole pass, over the largest.
  """

  position: float
  key_and_value: int
  growth: float
  difference: float


def cache(seed: int, source: int = 11, target: int = 7) -> Cache:
  """Decodes a small model word by word, and holds it against the pass along the whole target."""
  config, draw = _SMALL, np.random.default_rng(seed)
  model = bind(config, _parameters(seed))
  words, labels = (
    jnp.asarray(draw.integers(3, _WORDS, (1, n)), jnp.int32) for n in (source, target)
  )
  inputs = words, jnp.array([source])
  whole = jax.nn.log_softmax(jax.jit(lambda *a: model.teacher_forced(*a).logits)(*inputs, labels))
  memory = jax.jit(model.encode)(*inputs)
  step, state, previous = jax.jit(model.step), model.start(memory), jnp.array([BOS])
  made, kept = [], []
  for i in range(target):
    found, one = step(memory, state, previous)
    state, previous = one.state, labels[:, i]
    made.append(found)
    kept.append(count((memory.keys, memory.values, state)).reals)
  apart = jnp.max(jnp.abs(jnp.stack(made, 1) - whole)) / jnp.max(jnp.abs(whole))
  return Cache(
    position=count((memory.keys, memory.values)).reals / source,
    key_and_value=config.alignment + config.key_width,
    growth=(kept[-1] - kept[0]) / (target - 1),
    difference=float(apart),
  )
