"""Runs a model along given hypotheses and records all that its steps compute."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from attn.data import pipeline
from attn.data.vocabulary import BOS, EOS, JOINER, UNK, Vocabulary
from attn.decoding.config import SearchConfig
from attn.decoding.translation import Translation, groups, possible
from attn.evaluation import traces
from attn.models import ModelConfig, bind
from attn.models.functional import Params

NUMBERS = 32  # of a vector that are kept
CANDIDATES = 5
_ROWS = 8  # hypotheses run together


def trace(
  config: ModelConfig,
  params: Params,
  texts: Sequence[str],
  hypotheses: Sequence[Sequence[Translation]],
  source: Vocabulary,
  target: Vocabulary,
  *,
  edges: Sequence[int],
  names: Sequence[str] | None = None,
) -> list[traces.Trace]:
  """What the model computes while it writes the hypotheses of each text.

  Scores of a local model are those of all positions, though it looks at its window alone.

  Args:
    config: the model, vocabulary sizes filled in.
    params: its parameters.
    texts: source sentences.
    hypotheses: those of each text, best first: `[best, *best.others]` of a search.
    source: vocabulary of the texts.
    target: vocabulary of the hypotheses.
    edges: ascending lengths that sentences are padded to, EOS counted; one program is compiled for
      each that occurs, and beyond the last for each power of two.
    names: what to call each text; by default `line 1` and so on.
  """
  names = [f"line {n + 1}" for n in range(len(texts))] if names is None else names
  flat = [
    (ids, one)
    for ids, found in zip(map(source.encode, texts), hypotheses, strict=True)
    for one in found
  ]
  found: dict[int, traces.Hypothesis] = {}
  lengths = [max(len(ids), len(one.tokens)) + 1 for ids, one in flat]
  for rows, size, widths in groups(lengths, edges, _ROWS):
    store = pipeline.TokenStore.from_ids(
      [flat[row][0] for row in rows],
      [flat[row][1].tokens for row in rows],
      source_size=params["source"].shape[0],
      target_size=len(target),
    )
    for batch in pipeline.evaluation_batches(store, batch_size=size, edges=widths):
      given = batch["source"], batch["source_length"], batch["target"]
      made = jax.device_get(_run(config, params, *given, len(target)))
      for at, index in enumerate(batch["index"].tolist()):
        if index >= 0:
          one = jax.tree.map(lambda leaf, at=at: leaf[at], made)
          found[rows[index]] = _hypothesis(config, one, flat[rows[index]][1], target)
  rest = iter(found[at] for at in range(len(flat)))
  return [
    traces.Trace(
      name,
      text,
      tuple(symbols(text, source)) + (traces.Symbol("", "end"),) * config.source_eos,
      tuple(next(rest) for _ in written),
    )
    for name, text, written in zip(names, texts, hypotheses, strict=True)
  ]


def symbols(text: str, vocabulary: Vocabulary) -> list[traces.Symbol]:
  """The symbols of a text, as they are written there."""
  pairs = zip(vocabulary.split(text), vocabulary.encode(text), strict=True)
  return [_shown(symbol, i, vocabulary) for symbol, i in pairs]


@functools.partial(jax.jit, static_argnames="config")
def _run(
  config: ModelConfig,
  params: Params,
  source: Int[Array, "b s"],
  length: Int[Array, " b"],
  target: Int[Array, "b t"],
  size: Int[Array, ""],
) -> dict[str, Any]:
  """What is shown of each step of a batch; leaves lead with `[b, t]`, or `[b]` for the start."""
  model = bind(config, params)
  model.decoder.gathers = False  # of this copy: scores of a window alone are not returned
  memory = model.encode(source, length)
  allowed = possible(SearchConfig(), params["target"].shape[0], size)

  def step(state: Any, words: tuple[Array, Array]) -> tuple[Any, dict[str, Any]]:
    previous, now = words
    log_probs, made = model.step(memory, state, previous)
    best = jax.lax.top_k(
      jnp.where(allowed, log_probs, -jnp.inf), min(CANDIDATES, log_probs.shape[-1])
    )
    return made.state, {
      "log_prob": jnp.take_along_axis(log_probs, now[:, None], axis=-1)[:, 0],
      "scores": made.scores,
      "weights": made.weights,
      "centre": made.position,
      "likeliest": best,
      "query": made.query,
      "context": made.context,
      "state": made.state.top,
      "readout": made.readout,
    }

  start = model.start(memory)
  previous = jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
  _, steps = jax.lax.scan(step, start, (previous.T, target.T))
  return {
    "steps": jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), steps),
    "start": start.top,
    "length": memory.length,
    "mask": memory.mask,
  }


def _hypothesis(
  config: ModelConfig, made: dict[str, Any], given: Translation, target: Vocabulary
) -> traces.Hypothesis:
  """The record of one row of a batch, cut to its real size."""
  written = [_symbol(i, target) for i in [*given.tokens, *[EOS] * given.finished]]
  steps = (
    _step(config, jax.tree.map(lambda leaf, at=at: leaf[at], made["steps"]), made, target)
    for at in range(len(written))
  )
  return traces.Hypothesis(
    target.decode(given.tokens),
    tuple(written),
    given.score,
    given.finished,
    _vector(made["start"]),
    tuple(steps),
  )


def _step(
  config: ModelConfig, step: dict[str, Any], made: dict[str, Any], target: Vocabulary
) -> traces.Step:
  """The record of one step; `made` knows how long the source is and what may be attended to."""
  length, scores, weights = int(made["length"]), None, None
  if config.attends:
    pairs = zip(step["scores"][:length].tolist(), made["mask"][:length], strict=True)
    scores = tuple(score if may else None for score, may in pairs)
    weights = tuple(step["weights"][:length].tolist())
  best = zip(*(leaf.tolist() for leaf in step["likeliest"]), strict=True)
  return traces.Step(
    log_prob=float(step["log_prob"]),
    scores=scores,
    weights=weights,
    window=None if step["centre"] is None else _window(step["centre"], config.half_width, length),
    query=_vector(step["query"]),
    context=_vector(step["context"]),
    state=_vector(step["state"]),
    readout=_vector(step["readout"]),
    likeliest=tuple(
      traces.Candidate(**dataclasses.asdict(_symbol(i, target)), probability=math.exp(log_prob))
      for log_prob, i in best
      if log_prob > -math.inf
    ),
  )


def _window(centre: np.floating[Any], half_width: int, length: int) -> traces.Window:
  """The positions that `attn.window_mask` has, in its arithmetic."""
  near = np.abs(np.arange(length, dtype=np.float32) - centre) <= np.float32(half_width)
  inside = np.flatnonzero(near).tolist() or [0, -1]
  return traces.Window(float(centre), inside[0], inside[-1])


def _vector(x: np.ndarray) -> traces.Vector:
  wide = x.astype(np.float64)
  return traces.Vector(len(x), float(np.linalg.norm(wide)), tuple(wide[:NUMBERS].tolist()))


def _symbol(i: int, vocabulary: Vocabulary) -> traces.Symbol:
  if i == EOS:
    return traces.Symbol("", "end")
  return _shown(vocabulary.spell([i])[0], i, vocabulary)


def _shown(symbol: str, i: int, vocabulary: Vocabulary) -> traces.Symbol:
  text = symbol.removeprefix(JOINER) if vocabulary.level == "word" else symbol
  return traces.Symbol(text, "unknown" if i == UNK else "known")


def system(config: ModelConfig, name: str, facts: Sequence[tuple[str, str]] = ()) -> traces.System:
  """What is told of a model beside its sentences: its order, with the equations that it computes.

  Args:
    config: the model.
    name: what to call it.
    facts: what is known beyond the configuration, as name and value.
  """
  window = f"a window ({config.window}) of half-width {config.half_width}"
  window = "all of the source" if config.window == "global" else window
  own = [
    ("encoder", f"{config.encoder}, {config.cell}, {config.units} units"),
    ("score", config.score),
    *([("reads", window)] if config.attends else []),
    ("order of the step", _SOURCES[config.order]),
  ]
  return traces.System(name, config.order, actions(config), (*own, *facts))


_SOURCES = {
  "bahdanau": "bahdanau: Bahdanau 2015, section 3.1",
  "bahdanau_appendix": "bahdanau_appendix: Bahdanau 2015, A.2.2",
  "groundhog": "groundhog: the code of Bahdanau 2015",
  "luong": "luong: Luong 2015, section 3",
  "conditional_gru": "conditional_gru: dl4mt",
}


def actions(config: ModelConfig) -> tuple[tuple[traces.Action, str], ...]:
  """The actions of a decoding step in the order of the model, each with its equation."""
  order, context = config.order, config.context_in
  late = order in ("groundhog", "bahdanau_appendix")  # p(y_i) is made from s_{i-1}
  last = "s_{i-1}" if late else "s_i"
  read_out = [last, *["y_{i-1}"] * config.reads_word, *["c_i"] * (context in ("readout", "both"))]
  readout: traces.Action = "readout"
  emit = (readout, f"p(y_i) = g({', '.join(read_out)})")
  reading = _reading(config, {"luong": "s_i", "conditional_gru": "s\u2032_i"}.get(order, "s_{i-1}"))
  update = _update(config)
  if order == "bahdanau":
    return (*reading, update, emit)
  if order == "bahdanau_appendix":
    return (*reading, emit, update)
  if order == "conditional_gru":
    return (("between", "s\u2032_i = f\u2032(s_{i-1}, y_{i-1})"), *reading, update, emit)
  return (update, *reading, emit)


def _reading(config: ModelConfig, query: str) -> tuple[tuple[traces.Action, str], ...]:
  """Scores, weights and context; the context alone without attention, if anything reads it."""
  if not config.attends:
    fixed: tuple[traces.Action, str] = ("context", "c_i = c, one fixed vector for all steps")
    return () if config.context_in == "none" else (fixed,)
  weights = "\u03b1_i = softmax(e_i)"
  if config.window != "global":
    weights += " inside the window"
  if config.window == "local_p":
    weights += ", times a Gaussian"
  return (
    ("scores", f"e_{{ij}} = a({query}, h_j)"),
    ("weights", weights),
    ("context", "c_i = \u03a3_j \u03b1_{ij} h_j"),
  )


def _update(config: ModelConfig) -> tuple[traces.Action, str]:
  """The state, from the state before, the word before, and a context or what is fed."""
  in_state = config.context_in in ("state", "both")
  if config.order == "conditional_gru":
    return "state", "s_i = f(s\u2032_i, c_i)"
  if config.order == "groundhog":
    return "state", f"s_{{i-1}} = f(s_{{i-2}}, y_{{i-1}}{', c_{i-1}' * in_state})"
  fed = {"none": "", "readout": ", t_{i-1}", "context": ", c_{i-1}"}[config.input_feeding]
  return "state", f"s_i = f(s_{{i-1}}, y_{{i-1}}{', c_i' * in_state}{fed})"
