"""What each action of a decoding step depends on, by Jacobians of the models' own steps.

An action depends on an input if its Jacobian is not exactly 0 at numbers drawn at random. Directly:
with everything that other actions made held fixed, so that what stands in its own equation is left.
In all: through them as well. `Tapped` stands between the actions and holds fixed what they hand on;
the order itself is the function of `attn.models.steps` that the model runs.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import attn
from attn import models, presets
from attn.models import Memory, ModelConfig, State, bind, steps

ORDERS: dict[str, dict[str, Any]] = {  # overrides of a model's configuration
  "bahdanau": {"order": "bahdanau"},
  "bahdanau_appendix": {"order": "bahdanau_appendix"},
  "groundhog": {"order": "groundhog"},
  "luong": {"order": "luong", "readout": "tanh"},
  "conditional_gru": {"order": "conditional_gru"},
}
TITLES = {
  "bahdanau": "Bahdanau, section 3.1",
  "bahdanau_appendix": "Bahdanau, A.2.2",
  "groundhog": "Bahdanau, released code",
  "luong": "Luong",
  "conditional_gru": "conditional GRU",
}
ACTIONS = ("scores", "weights", "context", "state", "output")
WORD, ANNOTATIONS = "y_{i-1}", "h_j"
# What the papers call the state before, what is handed on beside it, and the new state.
_LATE = {"old": "s_{i-2}", "carried": "c_{i-1}", "new": "s_{i-1}"}
NAMES = {
  order: {
    "word": WORD, "old": "s_{i-1}", "annotations": ANNOTATIONS, "between": "s'_i",
    "scores": "e_i", "context": "c_i", "new": "s_i", **(_LATE if order == "groundhog" else {}),
  }
  for order in ORDERS
}  # fmt: skip

_SOURCE, _PADDED = 5, 7
# Programs that run once: without the compiler's dear passes they are ready in half of the time.
_QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
_BASE = ModelConfig(
  source_vocabulary=11, target_vocabulary=13, embedding=3, units=6, alignment=4, maxout=8,
  initialisation="glorot",
)  # fmt: skip


class Tapped:
  """A decoder whose actions hand on what they made plus a tap, of which Jacobians are taken.

  It has the decoder's attributes but for its score, its updates and its readout, which note what
  they made. What an update is given before anything was read is of the step before, and not tapped.
  """

  def __init__(self, decoder: Any, taps: Mapping[str, jax.Array], through: jax.Array):
    """Taps a decoder; what its actions hand on is held fixed where `through` is 0, not if 1."""
    self._decoder, self._taps, self._through = decoder, taps, through
    self.made: dict[str, jax.Array] = {}

  def __getattr__(self, name: str) -> Any:
    """What is not tapped is the decoder's."""
    return getattr(self._decoder, name)

  def score(self, query: jax.Array, keys: jax.Array) -> jax.Array:
    """e_i."""
    return self._handed("scores", self._decoder.score(query, keys))

  def advance(self, inputs: jax.Array, state: jax.Array) -> jax.Array:
    """s'_i of a conditional GRU."""
    return self._handed("between", self._decoder.advance(inputs, state))

  def update(self, layers: Any, word: Any, context: Any = None, fed: Any = None) -> Any:
    """s_i."""
    (new,) = self._decoder.update(layers, word, self._read(context), fed)
    return (self._handed("new", new),)

  def update_again(self, between: Any, context: Any) -> Any:
    """s_i of a conditional GRU."""
    return self._handed("new", self._decoder.update_again(between, self._read(context)))

  def readout(self, state: Any, word: Any, context: Any) -> Any:
    """What p(y_i) is made from."""
    self.made["output"] = self._decoder.readout(state, word, self._read(context))
    return self.made["output"]

  def _read(self, context: Any) -> Any:
    return self._moved("context", context) if "scores" in self.made else context

  def _handed(self, name: str, made: jax.Array) -> jax.Array:
    self.made[name] = made
    return self._moved(name, made)

  def _moved(self, name: str, made: jax.Array) -> jax.Array:
    fixed = jax.lax.stop_gradient(made)
    return fixed + self._through * (made - fixed) + self._taps[name]


class Step(NamedTuple):
  """The dependencies of one order, and what one step of it computed.

  Attributes:
    direct: action to input to the norm of its Jacobian, what others made held fixed.
    total: the same through what others made.
    weights_apart: largest difference between the weights and the softmax of the scores.
    context_apart: largest difference between the context and the weighted sum of annotations.
    padding: the largest weight of a position beyond the source.
    readout_apart: largest difference between the readout and tanh(W_c [c; s]).
  """

  direct: dict[str, dict[str, float]]
  total: dict[str, dict[str, float]]
  weights_apart: float
  context_apart: float
  padding: float
  readout_apart: float

  def needs(self, action: str) -> frozenset[str]:
    """The inputs that an action depends on directly."""
    return frozenset(name for name, norm in self.direct[action].items() if norm > 0)

  def sees(self, action: str) -> frozenset[str]:
    """The inputs that it depends on at all."""
    return frozenset(name for name, norm in self.total[action].items() if norm > 0)


def measure(order: str, seed: int) -> Step:
  """Takes the Jacobians of one step of an order, at parameters and inputs drawn at random."""
  config, params = _small(seed, **ORDERS[order])
  inputs = _inputs(config, np.random.default_rng(seed))
  jacobians, found = jax.device_get(_jacobians(config, params, inputs))
  norms = {
    name: {
      action: {
        NAMES[order][tap]: float(np.linalg.norm(jacobian[through]))
        for tap, jacobian in by_tap.items()
        if tap in NAMES[order] and tap != action
      }
      for action, by_tap in jacobians.items()
    }
    for through, name in enumerate(("direct", "total"))
  }
  found = jax.tree.map(lambda leaf: leaf[0], found)
  return Step(**norms, **_held_against(config, params, inputs, found))


def _small(seed: int, **choices: Any) -> tuple[ModelConfig, Any]:
  """A small model, and parameters drawn at random, none of which is 0."""
  config = dataclasses.replace(_BASE, **choices)
  shapes = jax.eval_shape(functools.partial(models.init, config), jax.random.key(0))
  draw = np.random.default_rng(seed)
  params = jax.tree.map(lambda leaf: 0.5 * draw.standard_normal(leaf.shape, np.float32), shapes)
  return config, params


def _inputs(config: ModelConfig, draw: np.random.Generator) -> dict[str, jax.Array]:
  """A word, states, and annotations; each is the place of the tap of its name."""
  shapes = {
    "word": (config.embedding,), "old": (config.units,), "carried": (config.key_width,),
    "annotations": (_PADDED, config.annotation),
  }  # fmt: skip
  drawn = {
    name: jnp.asarray(draw.standard_normal(shape, np.float32)) for name, shape in shapes.items()
  }
  drawn["annotations"] *= (jnp.arange(_PADDED) < _SOURCE)[:, None]
  return drawn


def memory(model: models.Seq2Seq, annotations: jax.Array, length: int) -> Memory:
  """The memory of one source whose annotations are given."""
  size = annotations.shape[0]
  return Memory(
    annotations=annotations,
    values=annotations,
    keys=model.decoder.score.keys(annotations),
    mask=attn.length_mask(length, size),
    length=jnp.array(length),
    overflow=None,
    initial=None,
    summary=annotations[-1],
  )


@functools.partial(jax.jit, static_argnames="config", compiler_options=_QUICK)
def _jacobians(config: ModelConfig, params: Any, inputs: dict[str, jax.Array]) -> Any:
  """Jacobians, action to tap, with what is handed on held fixed (0) and not (1); the step."""
  sizes = {
    "scores": (_PADDED,), "between": (config.units,), "context": (config.key_width,),
    "new": (config.units,),
  }  # fmt: skip
  taps = {name: jnp.zeros(value.shape) for name, value in inputs.items()}
  taps |= {name: jnp.zeros(shape) for name, shape in sizes.items()}

  def step(taps: Any, through: jax.Array) -> tuple[dict[str, jax.Array], steps.Step]:
    model = bind(config, params)
    x = {name: value + taps[name] for name, value in inputs.items()}
    decoder = Tapped(model.decoder, taps, through)
    state = State((x["old"],), x["carried"] if config.order == "groundhog" else None, None)
    word = model.decoder.word(x["word"], jnp.array(False))
    source = memory(model, x["annotations"], _SOURCE)
    found = model.decoder.step(decoder, source, state, word)
    made = {**decoder.made, "weights": found.weights, "context": found.context}
    made["state"] = made.pop("new")
    return made, found

  jacobians = jax.vmap(jax.jacfwd(step, has_aux=True), in_axes=(None, 0))
  return jacobians(taps, jnp.array([0.0, 1.0]))


def _held_against(
  config: ModelConfig, params: Any, inputs: dict[str, jax.Array], step: steps.Step
) -> dict[str, float]:
  """The numbers of a step against its equations, in float64."""
  scores, weights, context, hidden, readout = (
    np.asarray(x, np.float64)
    for x in (step.scores, step.weights, step.context, step.hidden, step.readout)
  )
  raised = np.exp(scores[:_SOURCE] - scores[:_SOURCE].max())
  summed = weights @ np.asarray(inputs["annotations"], np.float64)
  decoder = {name: np.asarray(value, np.float64) for name, value in params["decoder"].items()
             if name in ("c_o", "u_o")}  # fmt: skip
  apart = np.inf
  if config.readout == "tanh":
    w_c = np.concatenate([decoder["c_o"], decoder["u_o"]], axis=1)
    apart = np.abs(np.tanh(w_c @ np.concatenate([context, hidden])) - readout).max()
  return {
    "weights_apart": float(np.abs(raised / raised.sum() - weights[:_SOURCE]).max()),
    "context_apart": float(np.abs(summed - context).max()),
    "padding": float(weights[_SOURCE:].max()),
    "readout_apart": float(apart),
  }


# What the two papers attend with, and to.


class Papers(NamedTuple):
  """What both papers attend with and to, by their presets and by what such models do.

  Attributes:
    scores: paper to the scores of its presets.
    content: Luong's scores that depend on what stands at a position.
    widths: paper to the width of an annotation over that of a decoder state, and the encoder's
      layers.
    both_ways: paper to whether an annotation depends on words before and behind it.
    reads: window to how many of the positions get weight.
    positions: of the source.
    window: the most that local attention may read, 2D + 1.
  """

  scores: dict[str, frozenset[str]]
  content: frozenset[str]
  widths: dict[str, tuple[float, int]]
  both_ways: dict[str, bool]
  reads: dict[str, int]
  positions: int
  window: int


BAHDANAU, LUONG = "Bahdanau", "Luong"
BAHDANAU_READS, LUONG_READS = f"{BAHDANAU}, global", f"{LUONG}, global"
_PRESET = {BAHDANAU: "rnnsearch", LUONG: "luong2015_local_p_general"}
_POSITIONS, _HALF_WIDTH = 13, 2


def papers(seed: int) -> Papers:
  """Looks at the presets, and runs small models with their choices."""
  # Recipes of a laptop are not the papers'; a score as it was released is a form of the same.
  scores = {
    paper: {
      presets.get(name).model.score.removesuffix("_released")
      for name in presets.names()
      if name.startswith(beginning) and "laptop" not in name and presets.get(name).model.attends
    }
    for paper, beginning in ((BAHDANAU, "rnnsearch"), (LUONG, "luong2015"))
  }
  chosen = {paper: presets.get(name).model for paper, name in _PRESET.items()}
  local = {
    f"{LUONG}, {window}": {"order": "luong", "window": window, "half_width": _HALF_WIDTH}
    for window in ("local_m", "local_p")
  }
  reading = {BAHDANAU_READS: {}, LUONG_READS: {"order": "luong"}, **local}
  return Papers(
    scores={paper: frozenset(names) for paper, names in scores.items()},
    content=frozenset(score for score in scores[LUONG] if _looks(score, seed)),
    widths={paper: (one.annotation / one.units, one.layers) for paper, one in chosen.items()},
    both_ways={paper: _both_ways(one, seed) for paper, one in chosen.items()},
    reads={name: _positions_read(choices, seed) for name, choices in reading.items()},
    positions=_POSITIONS,
    window=2 * _HALF_WIDTH + 1,
  )


def _looks(score: str, seed: int) -> bool:
  """Whether a score changes with the annotations that it scores."""
  config, params = _small(seed, score=score, encoder="forward", order="luong")
  query = _normal(seed, config.units)

  def scores(annotations: jax.Array) -> jax.Array:
    module = bind(config, params).decoder.score
    return module(query, module.keys(annotations))

  one, other = _quickly(jax.vmap(scores), _normal(seed, 2, _SOURCE, config.annotation))
  return bool(np.any(one != other))


def _both_ways(chosen: ModelConfig, seed: int) -> bool:
  """Whether annotations of two layers of an encoder change with words before and behind."""
  names = ("encoder", "cell", "reverse_source", "initial_state")
  config, params = _small(seed, layers=2, **{name: getattr(chosen, name) for name in names})
  words = np.repeat(_normal(seed, _SOURCE, 1, config.embedding), 2, axis=1)
  middle = _SOURCE // 2
  words[middle, 1] += 1
  valid = jnp.ones(words.shape[:2], bool)
  one, other = _quickly(lambda x: bind(config, params).encoder(x, valid).annotations, words)
  changed = np.any(one != other, axis=-1)
  return bool(changed[:middle].any() and changed[middle + 1 :].any())


def _positions_read(choices: dict[str, Any], seed: int) -> int:
  """How many positions one state gives weight to, amid a source."""
  config, params = _small(seed, **choices)
  time = jnp.array(_POSITIONS // 2) if config.window == "local_m" else None

  def read(query: jax.Array, annotations: jax.Array) -> jax.Array:
    model = bind(config, params)
    source = memory(model, annotations, _POSITIONS)
    return steps.attend(model.decoder, source, query, time).weights

  inputs = _normal(seed, config.units), _normal(seed, _POSITIONS, config.annotation)
  return int(np.sum(_quickly(read, *inputs) > 0))


def _normal(seed: int, *shape: int) -> np.ndarray:
  return np.random.default_rng((seed, *shape)).standard_normal(shape, np.float32)


def _quickly(function: Callable[..., jax.Array], *arguments: np.ndarray) -> np.ndarray:
  return np.asarray(jax.jit(function, compiler_options=_QUICK)(*arguments))
