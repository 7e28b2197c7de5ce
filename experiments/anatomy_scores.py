"""What `experiments.anatomy` measures on scores and weights."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array

import attn
from attn import configs
from attn.data.vocabulary import BOS
from attn.models import ModelConfig, bind
from attn.models.functional import Params
from experiments.anatomy_parts import (
  FIRST,
  IDS,
  ROWS,
  SEARCH,
  VOCABULARY,
  Sizes,
  count,
  drawn,
  encode,
  largest,
  paper,
  shapes,
  small,
  step,
)

LUONG_SCORES = ("dot", "general", "concat", "location")


class Swapped(NamedTuple):
  """What became of first steps when values, or keys, were those of other sentences.

  Attributes:
    weights: largest change of a weight when only the values are others.
    words: share of the sentences whose likeliest word is another then.
    moved: least change of a sentence's weights when only the keys are others, all values equal.
    equal: largest change of a log-probability then.
    example: weights and probabilities of one sentence, `[2, s]` and `[2, v]`: own values, others.
  """

  weights: float
  words: float
  moved: float
  equal: float
  example: tuple[np.ndarray, np.ndarray]


def swapped(config: ModelConfig, params: Params, random: np.random.Generator) -> Swapped:
  """One step on the keys of each sentence and the values of another, and the other way round."""
  one, two = random.integers(FIRST, VOCABULARY, (2, ROWS, len(IDS)))
  memory, other = (encode(config, params, sentences) for sentences in (one, two))
  first = functools.partial(step, config, params)
  before = np.full(ROWS, BOS)
  state, scored, read = first(memory, None, before)
  _, scored_other, read_other = first(memory._replace(values=other.values), state, before)
  alike = memory._replace(values=np.broadcast_to(memory.values[:, :1], memory.values.shape))
  (_, here, read_here), (_, there, read_there) = (
    first(alike._replace(keys=keys), state, before) for keys in (memory.keys, other.keys)
  )
  changed = np.asarray(scored.argmax(-1) != scored_other.argmax(-1))
  at = int(changed.argmax())
  return Swapped(
    weights=largest(read.weights, read_other.weights),
    words=float(changed.mean()),
    moved=float(np.abs(read_here.weights - read_there.weights).max(-1).min()),
    equal=largest(here, there),
    example=(
      np.stack([read.weights[at], read_other.weights[at]]),
      np.exp(np.stack([scored[at], scored_other[at]])),
    ),
  )


def formula(config: ModelConfig, params: Params) -> tuple[float, float]:
  """How far the second step's scores are from v_a tanh(W_a s + U_a h_j), over the largest score.

  Returns:
    The error with the state before the step, s_{i-1}, and that with s_i.
  """
  memory = encode(config, params, IDS[None])
  _, _, first = step(config, params, memory, None, np.array([BOS]))
  before, _, second = step(config, params, memory, first.state, IDS[:1])
  score = {name: np.float64(leaf) for name, leaf in params["decoder"]["score"].items()}
  keys = np.float64(memory.annotations[0]) @ score["u_a"].T
  errors = []
  for state in (before, second.state):
    query = score["w_a"] @ np.float64(state.top[0])
    wanted = np.tanh(query + keys) @ score["v_a"]
    errors.append(float(np.abs(second.scores[0] - wanted).max() / np.abs(wanted).max()))
  return errors[0], errors[1]


class ScoreFacts(NamedTuple):
  """One of Luong's scores.

  Attributes:
    parameters: its own at the paper's sizes.
    by_keys: relative change of the scores of one query when the keys are others.
    by_query: the same when the query is another.
    unequal: whether it takes annotations twice as wide as the state.
  """

  parameters: int
  by_keys: float
  by_query: float
  unequal: bool


def score_facts(name: str, sizes: Sizes, random: np.random.Generator) -> ScoreFacts:
  """What a score costs, reads and fits."""
  preset = f"luong2015_{name}_feed"
  config = small(preset, sizes)
  score = bind(config, drawn(config, random)).decoder.score
  assert score is not None  # each of these presets has attention
  query, other_query = (jnp.asarray(q) for q in random.standard_normal((2, sizes.units)))
  keys, other = (
    score.keys(jnp.asarray(h)) for h in random.standard_normal((2, len(IDS), config.key_width))
  )
  scores = score(query, keys)
  return ScoreFacts(
    parameters=count(shapes(paper(preset))["decoder"].get("score", {})),
    by_keys=relative(score(query, other), scores),
    by_query=relative(score(other_query, keys), scores),
    unequal=fits_unequal(name),
  )


def fits_unequal(name: str) -> bool:
  """Whether a model that compares states with annotations of twice their width can be built."""
  try:
    config = dataclasses.replace(paper(SEARCH), score=name)
  except configs.ConfigError:
    return False
  return "score" in shapes(config)["decoder"]


def relative(one: Any, other: Any) -> float:
  """The norm of a difference over that of the second."""
  return float(np.linalg.norm(np.subtract(one, other)) / np.linalg.norm(other))


_MOVES = frozenset(
  """broadcast_in_dim reshape transpose squeeze slice concatenate convert_element_type select_n
  stop_gradient copy eq ne lt le gt ge and or not iota""".split()
)  # These hand numbers on, or choose among them; the others compute.


def element_work(function: Callable[..., Any], *shapes: tuple[int, ...]) -> int:
  """Numbers that a function computes one by one, outside matrix products; a sum counts its terms.

  Args:
    function: of arrays.
    shapes: theirs.
  """
  closed = jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(one, jnp.float32) for one in shapes))
  return sum(_elements(closed.jaxpr))


def _elements(jaxpr: Any) -> Iterator[int]:
  for equation in jaxpr.eqns:
    inner = [value.jaxpr for value in equation.params.values() if hasattr(value, "jaxpr")]
    if inner:
      for one in inner:
        yield from _elements(one)
    elif equation.primitive.name not in (*_MOVES, "dot_general"):
      avals = [variable.aval for variable in (*equation.invars, *equation.outvars)]
      yield max(math.prod(aval.shape) for aval in avals)


class ScoreWork(NamedTuple):
  """Numbers computed outside matrix products for a pair of a query and a key.

  Attributes:
    dot: by scaled dot-product attention.
    additive: by additive attention, with keys projected before.
    flax: by Flax's `dot_product_attention`.
  """

  dot: float
  additive: float
  flax: float


def score_work(width: int, positions: int = 64) -> ScoreWork:
  """Counts the work of attention from as many queries as keys.

  Args:
    width: of queries and keys, and of the additive score's hidden layer.
    positions: queries, and keys.
  """
  rows, square = (positions, width), (width, width)

  def read(scores: Array, values: Array) -> Array:
    return attn.context(attn.softmax(scores), values)

  def dot(query: Array, keys: Array) -> Array:
    return read(attn.scaled_dot(query, keys), keys)

  def additive(query: Array, keys: Array, projected: Array, w_a: Array, v_a: Array) -> Array:
    return read(attn.additive_projected(query, projected, w_a, v_a), keys)

  def flax(query: Array, keys: Array) -> Array:
    out: Array = nnx.dot_product_attention(*(x[None, :, None] for x in (query, keys, keys)))
    return out

  works = (
    element_work(dot, rows, rows),
    element_work(additive, rows, rows, rows, square, (width,)),
    element_work(flax, rows, rows),
  )
  return ScoreWork(*(work / positions**2 for work in works))
