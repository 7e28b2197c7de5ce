"""What is recorded of a model along given hypotheses, against loops from the equations."""

import ast
import dataclasses
import functools
import inspect
import math

import jax
import numpy as np
import pytest

from attn import models
from attn.data.vocabulary import BOS, EOS, JOINER, UNK, Vocabulary
from attn.decoding import inspection
from attn.decoding.translation import Translation
from attn.models import ModelConfig, decoders, steps
from tests import reference_models as reference

SOURCE = Vocabulary(tuple("abcdefghijklm"), "character")
TARGET = Vocabulary(tuple("nopqrstuvwxyz"), "character")
BAHDANAU = ModelConfig(
  source_vocabulary=17,
  target_vocabulary=23,  # of which those from 17 on stand for nothing
  embedding=5,
  units=7,
  alignment=11,
  maxout=3,
  biases=True,
  initialisation="glorot",
)
LUONG = dataclasses.replace(
  BAHDANAU,
  order="luong",
  cell="lstm",
  encoder="forward",
  initial_state="all_layers",
  readout="tanh",
)
MEMBERS = {
  "bahdanau": BAHDANAU,
  "luong_local_p": dataclasses.replace(
    LUONG, score="general", window="local_p", half_width=1, input_feeding="readout"
  ),
  "luong_local_m_without_end": dataclasses.replace(
    LUONG, score="dot", window="local_m", half_width=1, source_eos=False
  ),
  "appendix_location": dataclasses.replace(
    BAHDANAU, order="bahdanau_appendix", score="location", location_length=5
  ),
  "groundhog_local_m": dataclasses.replace(
    BAHDANAU, order="groundhog", window="local_m", half_width=2
  ),
  "conditional_gru": dataclasses.replace(BAHDANAU, order="conditional_gru"),
  "fixed_vector": dataclasses.replace(BAHDANAU, score="none", encoder="forward"),
  "initial_state": dataclasses.replace(LUONG, score="none", context="none", readout="state"),
}
FAST = ("bahdanau", "luong_local_p")
every_member = pytest.mark.parametrize(
  "name", [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in MEMBERS]
)
TEXTS = ("abcdefg", "m?")
# The second of the second is long: a window that moves on leaves its source behind.
WRITTEN = (("nop",), ("z", "yxwvuts"))
FINISHED = ((True,), (False, True))


@functools.cache
def recorded(name):
  config = MEMBERS[name]
  shapes = jax.eval_shape(functools.partial(models.init, config), jax.random.key(0))
  leaves, tree = jax.tree.flatten(shapes)
  rng = np.random.default_rng(1)
  drawn = [0.5 * rng.standard_normal(leaf.shape).astype(np.float32) for leaf in leaves]
  params = jax.tree.unflatten(tree, drawn)
  given = [
    [
      Translation(TARGET.encode(text), -0.5, finished, None)
      for text, finished in zip(*pair, strict=True)
    ]
    for pair in zip(WRITTEN, FINISHED, strict=True)
  ]
  found = inspection.trace(config, params, TEXTS, given, SOURCE, TARGET, edges=(11,))
  return config, params, found


def each(found):
  """Sources with EOS, hypotheses with what follows, and their records."""
  for text, one in zip(TEXTS, found, strict=True):
    for hypothesis in one.hypotheses:
      target = [*TARGET.encode(hypothesis.text), EOS][: len(hypothesis.target)]
      yield [*SOURCE.encode(text), EOS], target, hypothesis


@every_member
def test_steps_are_those_of_the_equations(name):
  config, params, found = recorded(name)
  for ids, target, hypothesis in each(found):
    logits, weights, contexts = reference.decode(config, params, ids, target, BOS)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    read = len(ids) - (not config.source_eos)
    for i, step in enumerate(hypothesis.steps):
      np.testing.assert_allclose(step.log_prob, log_probs[i, target[i]], atol=2e-5)
      np.testing.assert_allclose(step.context.norm, np.linalg.norm(contexts[i]), atol=2e-5)
      np.testing.assert_allclose(step.context.values, contexts[i], atol=2e-5)
      assert step.context.width == len(contexts[i]) and step.state.width == 7
      if config.attends:
        assert len(step.weights) == len(step.scores) == read
        np.testing.assert_allclose(step.weights, weights[i], atol=2e-5)
      else:
        assert step.weights is step.scores is step.window is None
      possible = [EOS, *range(UNK + 1, len(TARGET))]
      best = sorted(possible, key=lambda word: -log_probs[i, word])[: inspection.CANDIDATES]
      shown = [EOS if one.kind == "end" else TARGET.encode(one.text)[0] for one in step.likeliest]
      assert shown == best
      expected = np.exp(log_probs[i, best])
      np.testing.assert_allclose([one.probability for one in step.likeliest], expected, atol=2e-5)


@every_member
def test_scores_are_those_of_the_state_that_reads_with_every_position(name):
  config, params, found = recorded(name)
  wide = reference.float64(params)
  for ids, _, hypothesis in each(found):
    before = hypothesis.start.values
    for i, step in enumerate(hypothesis.steps):
      query = np.array(step.query.values)
      reads_new = config.order in ("luong", "groundhog")
      if config.order != "conditional_gru":
        np.testing.assert_array_equal(query, step.state.values if reads_new else before)
      before = step.state.values
      if not config.attends:
        continue
      source = reference.Source(config, wide, ids)
      scores, may = reference.scored(config, wide["decoder"].get("score", {}), query, source)
      assert [one is not None for one in step.scores] == may.tolist()
      np.testing.assert_allclose(np.array(step.scores)[may].astype(float), scores[may], atol=2e-5)
      if step.window is not None:
        near = np.abs(np.arange(len(scores)) - step.window.centre) <= config.half_width
        inside = range(step.window.first, step.window.last + 1)
        assert np.flatnonzero(near).tolist() == list(inside)
        assert not np.array(step.weights)[~near].any()
        assert config.window == "local_p" or step.window.centre == i


@pytest.mark.parametrize("name", [n for n in MEMBERS if n in FAST])
def test_sentences_are_recorded_as_they_are_written(name):
  _, _, found = recorded(name)
  first, second = found
  assert [one.name for one in found] == ["line 1", "line 2"]
  assert [symbol.kind for symbol in second.source] == ["known", "unknown", "end"]
  assert [symbol.text for symbol in second.source] == ["m", "?", ""]
  assert "".join(symbol.text for symbol in first.source) == first.text == "abcdefg"
  cut, whole = second.hypotheses
  assert [symbol.text for symbol in cut.target] == ["z"] and not cut.finished
  assert whole.text == "yxwvuts" and whole.target[-1].kind == "end" and len(whole.steps) == 8
  assert whole.score == -0.5 and math.isclose(whole.start.norm, math.hypot(*whole.start.values))


def test_a_window_that_holds_nothing_ends_before_it_begins():
  assert inspection._window(np.float32(6.0), 2, 3) == inspection.traces.Window(6.0, 0, -1)
  assert inspection._window(np.float32(1.5), 1, 9) == inspection.traces.Window(1.5, 1, 2)


def test_words_lose_their_joiner_and_vectors_their_rest():
  words = Vocabulary((f"{JOINER},", "a"), "word")
  assert [one.text for one in inspection.symbols("a, b", words)] == ["a", ",", "b"]
  assert [inspection._symbol(i, words).text for i in (3, 4, 5)] == ["<unk>", ",", "a"]
  kept = inspection._vector(np.full(100, 2.0, np.float32))
  assert kept == inspection.traces.Vector(100, 20.0, (2.0,) * inspection.NUMBERS)


# The calls of attn.models.steps, and what they make.
MADE = {
  "attend": ["scores", "weights", "context"],
  "update": ["state"],
  "advance": ["between"],
  "update_again": ["state"],
  "readout": ["readout"],
}


@pytest.mark.parametrize("order", decoders._ORDERS)
def test_actions_come_in_the_order_of_the_code(order):
  (function,) = ast.parse(inspect.getsource(getattr(steps, order))).body
  calls = [
    (node.lineno, node.func.id if isinstance(node.func, ast.Name) else node.func.attr)
    for node in ast.walk(function)
    if isinstance(node, ast.Call)
  ]
  expected = [action for _, name in sorted(calls) for action in MADE.get(name, [])]
  config = dataclasses.replace(BAHDANAU, order=order)
  assert [action for action, _ in inspection.actions(config)] == expected


EQUATIONS = {
  "bahdanau": {
    "scores": "e_{ij} = a(s_{i-1}, h_j)",
    "state": "s_i = f(s_{i-1}, y_{i-1}, c_i)",
    "readout": "p(y_i) = g(s_i, y_{i-1}, c_i)",
  },
  "luong_local_p": {
    "weights": "\u03b1_i = softmax(e_i) inside the window, times a Gaussian",
    "state": "s_i = f(s_{i-1}, y_{i-1}, t_{i-1})",
    "readout": "p(y_i) = g(s_i, c_i)",
  },
  "appendix_location": {"readout": "p(y_i) = g(s_{i-1}, y_{i-1}, c_i)"},
  "groundhog_local_m": {"state": "s_{i-1} = f(s_{i-2}, y_{i-1}, c_{i-1})"},
  "conditional_gru": {"scores": "e_{ij} = a(s\u2032_i, h_j)", "state": "s_i = f(s\u2032_i, c_i)"},
  "fixed_vector": {"context": "c_i = c, one fixed vector for all steps"},
  "initial_state": {"state": "s_i = f(s_{i-1}, y_{i-1})", "readout": "p(y_i) = g(s_i)"},
}


@pytest.mark.parametrize("name", EQUATIONS)
def test_equations_are_those_of_the_configuration(name):
  system = inspection.system(MEMBERS[name], "model", [("updates", "7")])
  equations = dict(system.actions)
  assert EQUATIONS[name].items() <= equations.items()
  assert system.attends == MEMBERS[name].attends == ("scores" in equations)
  assert system.facts[-1] == ("updates", "7")
