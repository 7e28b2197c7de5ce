"""What `experiments.anatomy` measures: models and ops of attn, taken apart."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from attn import presets
from attn.data.vocabulary import BOS
from attn.models import Memory, ModelConfig, State, Step, bind, init
from attn.models.functional import Params

SUTSKEVER, ENCDEC, SEARCH = "sutskever2014", "rnnencdec", "rnnsearch"

PAPERS = {
  "Sutskever 2014": SUTSKEVER,
  "RNNencdec": ENCDEC,
  "RNNsearch": SEARCH,
  "Luong 2015, local-p": "luong2015_local_p_general",
}

SENTENCE = ("we", "sat", "on", "the", "bank", "of", "the", "river")
SHOWN = SENTENCE.index("bank")
ENDING = "city"  # the last word of the other context
_WORDS = (*dict.fromkeys(SENTENCE), ENDING)
FIRST = 4  # below it are ids that no text can spell
IDS = np.array([FIRST + _WORDS.index(word) for word in SENTENCE])
ROWS = 32  # sentences of every program
VOCABULARY = 24  # ids of either side; those from `_UNUSED` on are words that SENTENCE has not
_UNUSED = FIRST + len(_WORDS)


class Sizes(NamedTuple):
  """Widths of the small models: m, n, n' and l."""

  embedding: int
  units: int
  alignment: int
  maxout: int


def paper(preset: str) -> ModelConfig:
  """A paper's model at its own sizes."""
  return presets.get(preset).model


def small(preset: str, sizes: Sizes) -> ModelConfig:
  """The same model with other widths, a small vocabulary and at most two layers."""
  model = paper(preset)
  return dataclasses.replace(
    model,
    source_vocabulary=VOCABULARY,
    target_vocabulary=VOCABULARY,
    layers=min(model.layers, 2),
    **sizes._asdict(),
  )


@functools.cache
def shapes(config: ModelConfig) -> Params:
  """Shapes of a model's parameters; nothing is allocated."""
  shapes: Params = jax.eval_shape(functools.partial(init, config), jax.random.key(0))
  return shapes


def drawn(config: ModelConfig, random: np.random.Generator) -> Params:
  """Random parameters, biases and v_a too, of which contexts differ as much as words do."""

  def draw(path: Any, leaf: Any) -> Array:
    scale = 1.0 if path[0].key in ("source", "target") else 2.0 * leaf.shape[-1] ** -0.5
    return jnp.asarray(scale * random.standard_normal(leaf.shape), jnp.float32)

  params: Params = jax.tree_util.tree_map_with_path(draw, shapes(config))
  return params


@functools.partial(jax.jit, static_argnums=0)
def _encode(config: ModelConfig, params: Params, source: Any, length: Any) -> Memory:
  return bind(config, params).encode(source, length)


@functools.partial(jax.jit, static_argnums=0)
def _along(config: ModelConfig, params: Params, memory: Memory, target: Any) -> Array:
  return bind(config, params).along(memory, target).logits


@functools.partial(jax.jit, static_argnums=0)
def _step(
  config: ModelConfig, params: Params, memory: Memory, state: State | None, word: Any
) -> tuple[State, Array, Step]:
  model = bind(config, params)
  state = model.start(memory) if state is None else state
  return state, *model.step(memory, state, word)


def _filled(rows: Any) -> Any:
  """As many rows as every program here takes: each is compiled once."""
  return jax.tree.map(lambda leaf: np.resize(leaf, (ROWS, *leaf.shape[1:])), rows)


def _cut(rows: Any, count: int) -> Any:
  return jax.tree.map(lambda leaf: np.asarray(leaf)[:count], rows)


def encode(
  config: ModelConfig, params: Params, source: np.ndarray, length: np.ndarray | None = None
) -> Memory:
  """What the encoder makes of at most `ROWS` sources; those without a length have no padding."""
  length = np.full(len(source), source.shape[1]) if length is None else length
  memory: Memory = _cut(_encode(config, params, *_filled((source, length))), len(source))
  return memory


def along(config: ModelConfig, params: Params, memory: Memory, target: np.ndarray) -> np.ndarray:
  """The decoder's logits along targets."""
  logits: np.ndarray = _cut(_along(config, params, *_filled((memory, target))), len(target))
  return logits


def step(
  config: ModelConfig, params: Params, memory: Memory, state: State | None, word: np.ndarray
) -> tuple[State, np.ndarray, Step]:
  """The state before a step, its log-probabilities and all that led there; None starts."""
  found: tuple[State, np.ndarray, Step] = _cut(
    _step(config, params, *_filled((memory, state, word))), len(word)
  )
  return found


def largest(a: Any, b: Any) -> float:
  """The largest difference between two trees of arrays."""
  pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
  return max(float(np.abs(np.float64(x) - np.float64(y)).max()) for x, y in pairs)


class Halves(NamedTuple):
  """Names of parameters: those that what is read of a source depends on, the others' effect, all.

  Attributes:
    encoder: those that change what the decoder is given.
    decoder: those that change the outputs with that given.
    all: every one.
  """

  encoder: frozenset[str]
  decoder: frozenset[str]
  all: frozenset[str]


def halves(config: ModelConfig, params: Params) -> Halves:
  """Changes each parameter in turn and sees which half of the model notices."""
  source = IDS[None]
  memory = encode(config, params, source)
  logits = along(config, params, memory, source)
  leaves, tree = jax.tree_util.tree_flatten_with_path(params)
  names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
  found: dict[str, set[str]] = {"encoder": set(), "decoder": set()}
  for at, name in enumerate(names):
    values = [leaf * (1.5 if k == at else 1.0) for k, (_, leaf) in enumerate(leaves)]
    other = jax.tree.unflatten(tree, values)
    if largest(encode(config, other, source), memory):
      found["encoder"].add(name)
    if largest(along(config, other, memory, source), logits):
      found["decoder"].add(name)
  return Halves(frozenset(found["encoder"]), frozenset(found["decoder"]), frozenset(names))


class Channels(NamedTuple):
  """Largest changes of logits, and of a state, in one fixed-vector model.

  Attributes:
    start: how far the decoder's first state is from the encoder's last.
    initial: of the logits, when what the first state is made from comes of another source.
    rest: of the logits, when everything else does.
    word: of the logits of each position, when the word before it is another; the smallest of them.
  """

  start: float
  initial: float
  rest: float
  word: float


def channels(config: ModelConfig, params: Params) -> Channels:
  """By which way a source reaches the outputs, and whether outputs are fed back."""
  both = np.stack([IDS, IDS[::-1]])
  memory = encode(config, params, both)
  other = jax.tree.map(lambda leaf: leaf[::-1], memory)
  logits = along(config, params, memory, both)
  state, *_ = step(config, params, memory, None, np.full(2, BOS))
  started, ends = jax.tree.leaves(state.layers), jax.tree.leaves(memory.initial)
  same = [leaf.shape for leaf in started] == [leaf.shape for leaf in ends]
  targets = replaced(IDS)
  shared = jax.tree.map(lambda leaf: np.repeat(leaf[:1], len(targets), 0), memory)
  changes = change(along(config, params, shared, targets))
  return Channels(
    start=largest(started, ends) if same else math.inf,
    initial=largest(along(config, params, memory._replace(initial=other.initial), both), logits),
    rest=largest(along(config, params, other._replace(initial=memory.initial), both), logits),
    word=float(np.diag(changes, 1).min()),
  )


def replaced(ids: np.ndarray) -> np.ndarray:
  """A sentence, and below it one for each of its words, in which that word is another one."""
  rows = np.repeat(ids[None], len(ids) + 1, 0)
  rows[np.arange(1, len(rows)), np.arange(len(ids))] = _UNUSED
  return rows


def change(values: Any) -> np.ndarray:
  """Of `[1 + n, n, w]` made from `replaced`: how far row 1 + k is from row 0 at j, relative."""
  values = np.asarray(values, np.float64)
  size = np.linalg.norm(values[0], axis=-1)
  return np.asarray(np.linalg.norm(values[1:] - values[0], axis=-1) / size)


class Reach(NamedTuple):
  """Where a changed word k is noticed at position j: relative changes, a row a word `[n, n]`."""

  embedding: np.ndarray
  forward: np.ndarray
  backward: np.ndarray
  annotation: np.ndarray
  output: np.ndarray


def reach(config: ModelConfig, params: Params) -> Reach:
  """Replaces each word of the source, then of the target, and compares.

  Args:
    config: of a model with a bidirectional encoder.
    params: its parameters.
  """
  rows, n = replaced(IDS), config.units
  memory = encode(config, params, rows)
  states = np.asarray(memory.annotations)
  shared = jax.tree.map(lambda leaf: np.repeat(leaf[:1], len(rows), 0), memory)
  return Reach(
    embedding=change(np.asarray(params["source"])[rows]),
    forward=change(states[..., :n]),
    backward=change(states[..., n:]),
    annotation=change(states),
    output=change(along(config, params, shared, rows)),
  )


def contexts(config: ModelConfig, params: Params) -> dict[str, np.ndarray]:
  """Relative changes at each word but the last, `[n - 1]`, when that is `ENDING`."""
  other = IDS.copy()
  other[-1] = FIRST + _WORDS.index(ENDING)
  pair = np.stack([IDS, other])
  states = np.asarray(encode(config, params, pair).annotations)
  of = {
    "embedding": np.asarray(params["source"])[pair],
    "forward state": states[..., : config.units],
    "annotation": states,
  }
  return {name: change(values)[0, :-1] for name, values in of.items()}


class Prefixes(NamedTuple):
  """How states over a growing target change with the words that come later, relative.

  Attributes:
    bidirectional: least change of a state that had been computed, when the next words come.
    forward: largest change of a forward state.
    rerun: largest change of the last state of a prefix read anew, whatever words come later.
  """

  bidirectional: float
  forward: float
  rerun: float


def prefixes(config: ModelConfig, params: Params) -> Prefixes:
  """Runs the bidirectional network over every prefix of a sentence, as generating would have to."""
  n = len(IDS)
  rows, lengths = np.repeat(IDS[None], n, 0), np.arange(1, n + 1)
  later = np.where(np.arange(n) < lengths[:, None], rows, _UNUSED)
  states, anew = (
    np.asarray(encode(config, params, words, lengths).annotations, np.float64)
    for words in (rows, later)
  )
  size = np.linalg.norm(states[-1], axis=-1)
  known = np.tri(n, dtype=bool)[:-1]  # states of each prefix that is not the whole
  both, forward = (
    (np.linalg.norm(part[:-1] - part[-1], axis=-1) / size)[known]
    for part in (states, states[..., : config.units])
  )
  return Prefixes(float(both.min()), float(forward.max()), largest(states, anew))


def count(params: Any) -> int:
  """Parameters of a tree of arrays or of shapes."""
  return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def by_part(config: ModelConfig) -> dict[str, int]:
  """Parameters by what they are for, at a model's own sizes."""
  tree = shapes(config)
  decoder = dict(tree["decoder"])
  attention = [decoder.pop(name, {}) for name in ("score", "predict")]
  output = [decoder.pop(name, {}) for name in ("u_o", "v_o", "c_o", "b_o", "w_t", "w_o", "b_w")]
  return {
    "embeddings": count([tree["source"], tree["target"]]),
    "encoder": count(tree["encoder"]),
    "decoder": count(decoder),
    "attention": count(attention),
    "output": count(output),
  }


def annotation_widths(config: ModelConfig) -> tuple[int, int, int]:
  """Widths of an annotation, a forward and a backward state, at a model's own sizes."""
  tree = shapes(config)
  directions = [tree["encoder"][name]["u"].shape[1] for name in ("forward", "backward")]
  return _encoded(config, 7).annotations.shape[-1], directions[0], directions[1]


def sentence_reals(config: ModelConfig, words: int) -> int:
  """Numbers that the decoder of a fixed-vector model starts from, for a sentence of some words."""
  return count(_encoded(config, words).initial)


def _encoded(config: ModelConfig, words: int) -> Memory:
  """Shapes of what an encoder makes of one sentence."""
  source = jax.ShapeDtypeStruct((1, words), jnp.int32)
  length = jax.ShapeDtypeStruct((1,), jnp.int32)
  memory: Memory = jax.eval_shape(
    functools.partial(_encode, config), shapes(config), source, length
  )
  return memory
