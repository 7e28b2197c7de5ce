"""Greedy and beam search against a plain-Python search over hand-written and random models.

A model is an automaton: a table of next-token log-probabilities and one of weights, both by node,
and a table of the node that each token leads to. A tree of prefixes is such an automaton.
"""

import functools
import math
import re
from collections.abc import Callable
from typing import NamedTuple

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn.decoding import Hypotheses, beam_search, greedy
from attn.decoding.beam import _top_k

PAD, BOS = 90, 91


class Automaton(NamedTuple):
  log_probs: np.ndarray  # [node, V]
  after: np.ndarray  # [node, V]
  weights: np.ndarray  # [node, s]


class Found(NamedTuple):
  tokens: tuple[int, ...]
  log_prob: float
  finished: bool
  nodes: tuple[int, ...]

  def score(self, alpha: float) -> float:
    return self.log_prob / len(self.tokens) ** alpha


# The oracle: lists of whole hypotheses, float64 sums, no early exit, an unlimited pool.


def extend(model: Automaton, hypothesis_: Found, eos: int) -> list[Found]:
  node = 0
  if hypothesis_.tokens:
    node = int(model.after[hypothesis_.nodes[-1], hypothesis_.tokens[-1]])
  return [
    Found(
      (*hypothesis_.tokens, token),
      hypothesis_.log_prob + float(log_prob),
      token == eos,
      (*hypothesis_.nodes, node),
    )
    for token, log_prob in enumerate(model.log_probs[node])
    if log_prob > -math.inf
  ]


def plain_beam(
  model: Automaton, rank: Callable[[Found], float], *, beam: int, eos: int, limit: int
) -> list[Found]:
  """Beams ranked by log-probability, what ended ranked by `rank`; no early exit."""
  beams, ended = [Found((), 0.0, False, ())], []
  for length in range(1, limit + 1):
    ranked = [longer for one in beams for longer in extend(model, one, eos)]
    ranked.sort(key=lambda found: -found.log_prob)
    ended += [found for found in ranked[:beam] if found.finished]
    beams = [found for found in ranked if not found.finished][:beam]
    if length == limit:
      ended += beams
  return sorted(ended, key=lambda found: -rank(found))


def by_score(alpha: float) -> Callable[[Found], float]:
  return lambda found: found.score(alpha)


def plain_greedy(model: Automaton, *, eos: int, limit: int) -> Found:
  found = Found((), 0.0, False, ())
  while len(found.tokens) < limit and not found.finished:
    found = max(extend(model, found, eos), key=lambda longer: longer.log_prob)
  return found


def everything(model: Automaton, *, eos: int, limit: int) -> list[Found]:
  ended, open_ = [], [Found((), 0.0, False, ())]
  while open_:
    for found in extend(model, open_.pop(), eos):
      (ended if found.finished or len(found.tokens) == limit else open_).append(found)
  return ended


# Models.


def chain(rows: list[list[float]], width: int = 2) -> Automaton:
  """Probabilities by step; the last row repeats."""
  probabilities = np.array(rows)
  count, vocabulary = probabilities.shape
  with np.errstate(divide="ignore"):
    log_probs = np.log(probabilities).astype(np.float32)
  after = np.repeat(np.minimum(np.arange(count) + 1, count - 1)[:, None], vocabulary, axis=1)
  return Automaton(log_probs, after, np.ones((count, width), np.float32) / width)


def random_nodes(seed: int, after: np.ndarray, width: int = 3) -> Automaton:
  nodes, vocabulary = after.shape
  rng = np.random.default_rng(seed)
  return Automaton(
    np.log(rng.dirichlet(np.ones(vocabulary), size=nodes)).astype(np.float32),
    after,
    rng.dirichlet(np.ones(width), size=nodes).astype(np.float32),
  )


def random_automaton(seed: int, *, layers: int = 7, layer: int = 3) -> Automaton:
  """Five tokens; a layer of nodes for every step: a node met twice would make exact ties."""
  rng = np.random.default_rng(seed)
  nodes = layers * layer
  following = np.arange(nodes)[:, None] // layer * layer + layer
  after = following + rng.integers(layer, size=(nodes, 5))
  return random_nodes(seed, np.where(after < nodes, after, 0))


def random_tree(seed: int, *, depth: int) -> Automaton:
  """Its own distribution after every prefix of two tokens and EOS (2): `2**depth - 1` nodes."""
  nodes = 2**depth - 1
  children = 2 * np.arange(nodes)[:, None] + np.array([1, 2, 0])
  return random_nodes(seed, np.where(children < nodes, children, 0))


# The searches under test, one program for each shape.


def table_step(model):
  def step(state, tokens):
    # BOS, the first token, leads nowhere and is in no table.
    known = jnp.minimum(tokens, model.after.shape[1] - 1)
    node = jnp.where(state["started"], model.after[state["node"], known], state["node"])
    state = {"node": node, "started": jnp.ones_like(state["started"])}
    return model.log_probs[node], state, model.weights[node]

  return step


def first_state(sentences: int):
  return {
    "node": jnp.zeros((sentences, 1), jnp.int32),
    "started": jnp.zeros((sentences, 1), bool),
  }


@functools.partial(jax.jit, static_argnames=("beam", "room", "eos", "alpha", "n_best"))
def _beam(model, limits, *, beam, room, eos, alpha, n_best):
  return beam_search(
    table_step(model),
    first_state(limits.shape[0]),
    limits,
    beam=beam,
    maximum_length=room,
    eos=eos,
    bos=BOS,
    pad=PAD,
    alpha=alpha,
    n_best=n_best,
  )


@functools.partial(jax.jit, static_argnames=("room", "eos"))
def _greedy(model, limits, *, room, eos):
  return greedy(
    table_step(model),
    first_state(limits.shape[0]),
    limits,
    maximum_length=room,
    eos=eos,
    bos=BOS,
    pad=PAD,
  )


def device(model: Automaton):
  return jax.tree.map(jnp.asarray, model._replace(after=model.after.astype(np.int32)))


def run_beam(model, *, beam, room, eos, alpha=0.0, n_best=1, limits=None) -> Hypotheses:
  limits = jnp.array([room] if limits is None else limits, jnp.int32)
  return jax.device_get(
    _beam(device(model), limits, beam=beam, room=room, eos=eos, alpha=alpha, n_best=n_best)
  )


def run_greedy(model, *, room, eos, limits=None) -> Hypotheses:
  limits = jnp.array([room] if limits is None else limits, jnp.int32)
  return jax.device_get(_greedy(device(model), limits, room=room, eos=eos))


def found_in(result: Hypotheses, row: int = 0) -> list[tuple[int, ...]]:
  return [
    tuple(int(token) for token in result.tokens[row, rank, : result.lengths[row, rank]])
    for rank in range(result.tokens.shape[1])
    if result.lengths[row, rank]
  ]


def assert_equal(result, expected: list[Found], model, *, alpha=0.0, row=0) -> None:
  """All fields, and empty hypotheses in the places beyond those expected."""
  n, room = result.tokens.shape[1:]
  expected = expected[:n]
  assert found_in(result, row) == [found.tokens for found in expected]
  for rank, found in enumerate(expected):
    length = len(found.tokens)
    assert result.lengths[row, rank] == length
    assert result.tokens[row, rank, length:].tolist() == [PAD] * (room - length)
    assert result.finished[row, rank] == found.finished
    np.testing.assert_allclose(result.log_probs[row, rank], found.log_prob, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.scores[row, rank], found.score(alpha), rtol=1e-5, atol=1e-6)
    weights = result.weights[row, rank]
    np.testing.assert_array_equal(weights[:length], model.weights[list(found.nodes)])
    assert not weights[length:].any()
  for rank in range(len(expected), n):
    assert result.lengths[row, rank] == 0
    assert result.scores[row, rank] == result.log_probs[row, rank] == -np.inf
    assert not result.finished[row, rank]
    assert (result.tokens[row, rank] == PAD).all()
    assert not result.weights[row, rank].any()


# DEC-02: beams of every size.


@pytest.mark.parametrize("beam", [1, 2, 5, 50])
def test_every_beam_is_a_different_hypothesis_of_the_right_score(beam):
  model = chain([[0.5, 0.3, 0.2]])
  result = run_beam(model, beam=beam, room=3, eos=2, n_best=beam)
  scores = {found.tokens: found.log_prob for found in everything(model, eos=2, limit=3)}
  found = found_in(result)
  assert len(set(found)) == len(found) > 0
  for rank, tokens in enumerate(found):
    np.testing.assert_allclose(result.scores[0, rank], scores[tokens], rtol=1e-6)
  assert_equal(result, plain_beam(model, by_score(0.0), beam=beam, eos=2, limit=3), model)


def test_beam_beyond_the_vocabulary_holds_every_hypothesis():
  result = run_beam(chain([[0.5, 0.3, 0.2]]), beam=50, room=3, eos=2, n_best=50)
  found = found_in(result)
  assert len(found) == 15
  assert np.isfinite(result.scores[0, :15]).all()
  assert (result.scores[0, 15:] == -np.inf).all()
  finished = [tokens for tokens, ended in zip(found, result.finished[0], strict=False) if ended]
  assert finished[:3] == [(2,), (0, 2), (1, 2)]
  probabilities = np.exp(result.scores[0][result.finished[0]])
  np.testing.assert_allclose(probabilities[:3], [0.2, 0.1, 0.06], rtol=1e-6)


# DEC-03: one beam is greedy.


def test_one_beam_is_greedy_on_random_models():
  for seed in range(50):
    model = random_automaton(seed)
    one = run_beam(model, beam=1, room=7, eos=3)
    best = run_greedy(model, room=7, eos=3)
    jax.tree.map(np.testing.assert_array_equal, one, best)
    assert_equal(best, [plain_greedy(model, eos=3, limit=7)], model)


def search_both(model: Automaton, *, room: int, eos: int) -> Hypotheses:
  best = run_greedy(model, room=room, eos=eos)
  jax.tree.map(np.testing.assert_array_equal, run_beam(model, beam=1, room=room, eos=eos), best)
  return best


def test_eos_may_come_first():
  result = search_both(chain([[0.1, 0.2, 0.1, 0.6]]), room=7, eos=3)
  assert found_in(result) == [(3,)]
  assert result.finished[0, 0]
  np.testing.assert_allclose(result.scores[0, 0], math.log(0.6), rtol=1e-6)


def test_eos_in_second_place_does_not_end_a_single_beam():
  result = search_both(chain([[0.55, 0.45], [0.5, 0.5]]), room=4, eos=1)
  assert found_in(result) == [(0, 0, 0, 0)]
  assert not result.finished[0, 0]


def test_of_equal_tokens_the_lower_id_is_taken():
  assert found_in(search_both(chain([[0.1, 0.4, 0.4, 0.1]]), room=3, eos=3)) == [(1, 1, 1)]
  assert found_in(search_both(chain([[0.1, 0.4, 0.4, 0.1]]), room=3, eos=2)) == [(1, 1, 1)]
  assert found_in(search_both(chain([[0.1, 0.4, 0.4, 0.1]]), room=3, eos=1)) == [(1,)]


def test_of_equal_hypotheses_the_better_beams_come_first():
  result = run_beam(chain([[0.25, 0.25, 0.25, 0.25]]), beam=3, room=2, eos=3, n_best=3)
  assert found_in(result) == [(0, 0), (0, 1), (0, 2)]


# DEC-04: a longer hypothesis may win.


@pytest.mark.parametrize(
  ("alpha", "tokens", "score"), [(1.0, (0, 2), -0.409355), (0.0, (2,), -0.693147)]
)
def test_search_goes_on_while_a_longer_hypothesis_can_win(alpha, tokens, score):
  model = chain([[0.45, 0.05, 0.5], [0.01, 0.01, 0.98]])
  result = run_beam(model, beam=2, room=4, eos=2, alpha=alpha)
  assert found_in(result) == [tokens]
  assert result.finished[0, 0]
  np.testing.assert_allclose(result.scores[0, 0], score, atol=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_beam_that_holds_everything_finds_the_exhaustive_ranking(alpha):
  for seed in range(50):
    model = random_tree(seed, depth=4)
    expected = everything(model, eos=2, limit=4)
    expected.sort(key=lambda found: -found.score(alpha))
    result = run_beam(model, beam=81, room=4, eos=2, alpha=alpha, n_best=31)
    assert_equal(result, expected, model, alpha=alpha)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("n_best", [1, 4])
def test_narrow_beams_match_a_search_without_early_exit(alpha, n_best):
  for seed in range(25):
    model = random_automaton(100 + seed)
    result = run_beam(model, beam=4, room=7, eos=1, alpha=alpha, n_best=n_best)
    expected = plain_beam(model, by_score(alpha), beam=4, eos=1, limit=7)
    assert_equal(result, expected, model, alpha=alpha)


def test_the_first_hypotheses_do_not_depend_on_how_many_are_asked_for():
  for seed in range(20):
    model = random_automaton(200 + seed)
    all_ = run_beam(model, beam=3, room=7, eos=1, alpha=1.0, n_best=7)
    for count in (1, 2):
      few = run_beam(model, beam=3, room=7, eos=1, alpha=1.0, n_best=count)
      for field, more in zip(few, all_, strict=True):
        np.testing.assert_array_equal(field, more[:, :count])


# DEC-05: nothing is lost when nothing ends.


def test_hypotheses_cut_at_the_limit_are_returned_and_flagged():
  model = chain([[0.6, 0.4, 0.0]], width=3)
  result = run_beam(model, beam=2, room=4, eos=2, n_best=2)
  assert found_in(result)[0] == (0, 0, 0, 0)
  assert result.lengths.tolist() == [[4, 4]]
  assert result.finished.tolist() == [[False, False]]
  assert np.isfinite(result.scores).all()
  assert result.weights.shape == (1, 2, 4, 3)
  np.testing.assert_allclose(result.weights.sum(-1), 1.0, rtol=1e-6)


def test_room_for_one_token():
  model = chain([[0.6, 0.3, 0.1]])
  result = run_beam(model, beam=2, room=1, eos=2, n_best=2)
  assert found_in(result) == [(0,), (1,)]
  assert not result.finished.any()
  assert found_in(search_both(model, room=1, eos=2)) == [(0,)]


def test_a_finished_hypothesis_is_kept_when_the_beams_go_another_way():
  # [EOS] ends at the first step, and all that the beams hold later is less likely.
  model = chain([[0.5, 0.2, 0.3], [0.3, 0.3, 0.4], [0.4, 0.4, 0.2]])
  result = run_beam(model, beam=2, room=7, eos=2, n_best=1)
  assert found_in(result) == [(2,)]


def test_no_token_possible_leaves_nothing():
  model = chain([[0.6, 0.4, 0.0], [0.0, 0.0, 0.0]])
  for result in (search_both(model, room=5, eos=2), run_beam(model, beam=3, room=5, eos=2)):
    assert found_in(result) == []
    assert result.scores[0, 0] == -np.inf
    assert (result.tokens == PAD).all()


def test_nan_is_not_hidden():
  model = chain([[0.6, 0.4, 0.0], [math.nan] * 3])
  for result in (run_greedy(model, room=5, eos=2), run_beam(model, beam=3, room=5, eos=2)):
    assert np.isnan(result.scores[0, 0])


# Rows: limits of their own.


def test_each_row_has_its_own_limit():
  limits = [5, 0, 1, 7, 3, 99, -2]
  for seed in range(10):
    model = random_automaton(300 + seed)
    beams = run_beam(model, beam=3, room=7, eos=1, alpha=1.0, n_best=2, limits=limits)
    greedily = run_greedy(model, room=7, eos=1, limits=limits)
    for row, limit in enumerate(limits):
      limit = min(limit, 7)
      expected = plain_beam(model, by_score(1.0), beam=3, eos=1, limit=limit)
      assert_equal(beams, expected, model, alpha=1.0, row=row)
      expected = [plain_greedy(model, eos=1, limit=limit)] if limit > 0 else []
      assert_equal(greedily, expected, model, row=row)


def test_rows_with_nothing_to_do_are_not_touched_by_nan():
  def step(state, tokens):
    log_probs = jnp.log(jnp.array([0.3, 0.6, 0.1]))
    return jnp.where(state[..., None] == 0, jnp.nan, log_probs), state, None

  for search in (functools.partial(beam_search, beam=2, alpha=1.0, n_best=2), greedy):
    result = search(
      step,
      jnp.array([[0.0], [1.0]]),
      jnp.array([0, 3]),
      maximum_length=5,
      eos=2,
      bos=BOS,
      pad=PAD,
    )
    assert result.weights is None
    assert result.lengths[0].max() == 0
    assert result.scores[0, 0] == -np.inf
    assert found_in(result, 1)[0] == (1, 1, 1)


def test_no_sentences():
  model = chain([[0.5, 0.3, 0.2]])
  assert run_beam(model, beam=3, room=2, eos=2, limits=[]).tokens.shape == (0, 1, 2)
  assert run_greedy(model, room=2, eos=2, limits=[]).tokens.shape == (0, 1, 2)


# DEC-01: a small recurrent model that attends to its source.

WIDTH, TOKENS, ROOM = 5, 7, 11


def attending_step(parameters, memory, lengths):
  """One query a beam; `memory` `[b, s, d]` stays one copy a sentence."""
  memory = memory[:, None]
  valid = (jnp.arange(memory.shape[2]) < lengths[:, None])[:, None]

  def step(state, tokens):
    scores = jnp.einsum("bkd,bksd->bks", state, jnp.where(valid[..., None], memory, 0.0))
    weights = jax.nn.softmax(scores, where=valid)
    weights = jnp.where(valid, weights, 0.0)
    context = jnp.einsum("bks,bksd->bkd", weights, jnp.where(valid[..., None], memory, 0.0))
    inputs = jnp.concatenate([state, context, parameters["embedding"][tokens]], axis=-1)
    state = jnp.tanh(inputs @ parameters["recurrent"])
    return jax.nn.log_softmax(state @ parameters["output"]), state, weights

  return step


@functools.partial(jax.jit, static_argnames=("beam",))
def _translate(parameters, memory, lengths, *, beam):
  step = attending_step(parameters, memory, lengths)
  state = jnp.zeros((memory.shape[0], 1, WIDTH))
  limits = jnp.where(lengths > 0, lengths + 4, 0)
  room = {"maximum_length": ROOM, "eos": 2, "bos": 1, "pad": 0}
  if beam is None:
    return greedy(step, state, limits, **room)
  return beam_search(step, state, limits, beam=beam, alpha=1.0, n_best=3, **room)


def random_parameters(rng):
  draw = functools.partial(rng.normal, scale=0.5)
  return {
    "embedding": draw(size=(TOKENS, WIDTH)).astype(np.float32),
    "recurrent": draw(size=(3 * WIDTH, WIDTH)).astype(np.float32),
    "output": draw(size=(WIDTH, TOKENS)).astype(np.float32),
  }


def batch_of(sources, rows, size, padding):
  memory = np.full((rows, size, WIDTH), padding, np.float32)
  for row, source in enumerate(sources):
    memory[row, : len(source)] = source
  lengths = np.array([len(source) for source in sources] + [0] * (rows - len(sources)), np.int32)
  return memory, lengths


@pytest.mark.parametrize("beam", [None, 4])
@hypothesis.given(
  seed=st.integers(0, 2**16),
  lengths=st.lists(st.integers(1, 7), min_size=1, max_size=5),
  data=st.data(),
)
@hypothesis.settings(max_examples=30, deadline=None, derandomize=True)
def test_a_sentence_does_not_depend_on_its_batch(beam, seed, lengths, data):
  rng = np.random.default_rng(seed)
  parameters = random_parameters(rng)
  sources = [rng.normal(size=(length, WIDTH)) for length in lengths]
  order = data.draw(st.permutations(range(len(lengths))))
  together = jax.device_get(
    _translate(parameters, *batch_of([sources[i] for i in order], 5, 13, 1e4), beam=beam)
  )
  for row, i in enumerate(order):
    alone = jax.device_get(_translate(parameters, *batch_of([sources[i]], 1, 7, np.nan), beam=beam))
    assert found_in(alone) == found_in(together, row)
    np.testing.assert_array_equal(alone.finished[0], together.finished[row])
    np.testing.assert_allclose(alone.scores[0], together.scores[row], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(alone.weights[0], together.weights[row, ..., :7], atol=1e-5)
    assert not together.weights[row, ..., lengths[i] :].any()


@pytest.mark.parametrize(("size", "count"), [(3 * 64, 2), (661, 5), (661, 10), (640, 12)])
def test_the_best_of_many_are_those_of_all(size, count):
  """In their order too: of equal ones the first, among few values, none possible or only some."""
  rng = np.random.default_rng(size + count)
  few = rng.integers(-3, 3, (7, size)).astype(np.float32)
  values = np.stack(
    [rng.normal(size=(7, size)).astype(np.float32), few, np.where(few < 2, -np.inf, few)]
  )
  values[2, 3:] = -np.inf
  values[2, 5, [size - 1, 70]] = -4.0
  values[0, 2, 130] = np.nan
  for rows in values:
    found, expected = (jax.device_get(call(rows, count)) for call in (_top_k, jax.lax.top_k))
    for one, other in zip(found, expected, strict=True):
      np.testing.assert_array_equal(one, other)


# DMP-02: row t of the weights belongs to token t.


@pytest.mark.parametrize("beam", [None, 3])
def test_row_t_of_the_weights_predicted_token_t(beam):
  # Emits 20, 21, EOS (here 4, 5, 2) and looks at source position t for token t.
  likely = np.full((4, 6), 0.02)
  likely[np.arange(4), [4, 5, 2, 2]] = 0.9
  model = chain(likely.tolist())._replace(weights=np.eye(4, 5, dtype=np.float32))
  if beam is None:
    result = run_greedy(model, room=7, eos=2)
  else:
    result = run_beam(model, beam=beam, room=7, eos=2)
  assert found_in(result) == [(4, 5, 2)]
  weights = result.weights[0, 0, : result.lengths[0, 0]]
  assert weights.shape == (3, 5)
  assert weights.argmax(-1).tolist() == [0, 1, 2]
  np.testing.assert_array_equal(weights.sum(-1), 1.0)


# One program, and no longer than needed.


@pytest.mark.parametrize("beam", [None, 3])
def test_one_shape_is_traced_once(beam):
  traced = []

  @jax.jit
  def search(model, limits):
    inner = table_step(model)

    def step(state, tokens):
      traced.append(tokens.shape)
      return inner(state, tokens)

    room = {"maximum_length": 5, "eos": 1, "bos": BOS, "pad": PAD}
    if beam is None:
      return greedy(step, first_state(2), limits, **room)
    return beam_search(step, first_state(2), limits, beam=beam, **room)

  search(device(random_automaton(0)), jnp.array([5, 3]))
  assert set(traced) == {(2, beam or 1)}
  count = len(traced)
  search(device(random_automaton(1)), jnp.array([2, 4]))
  assert len(traced) == count


@pytest.mark.parametrize("alpha", [None, 0.0, 1.0])
def test_search_stops_when_every_sentence_is_decided(alpha):
  steps = []
  inner = table_step(device(chain([[0.9, 0.05, 0.05], [0.02, 0.97, 0.01]])))

  def step(state, tokens):
    jax.debug.callback(lambda: steps.append(1))
    return inner(state, tokens)

  room = {"maximum_length": 500, "eos": 1, "bos": BOS, "pad": PAD}
  limits = jnp.array([500, 9])
  if alpha is None:
    result = greedy(step, first_state(2), limits, **room)
  else:
    result = beam_search(step, first_state(2), limits, beam=2, alpha=alpha, **room)
  jax.effects_barrier()
  assert found_in(result, 0) == found_in(result, 1) == [(0, 1)]
  # With a length penalty the bound is looser: an unlikely beam must fall below it first.
  assert len(steps) <= (2 if not alpha else 60)


def test_the_vocabulary_is_not_sorted():
  # A full sort a step takes a hundred times as long as the best few, at vocabularies of words.
  model = device(random_automaton(0))
  room = {"beam": 2, "room": 7, "eos": 1, "alpha": 0.0, "n_best": 1}
  program = _beam.lower(model, jnp.array([7]), **room).compile().as_text()
  assert re.search(r" while\(", program)
  assert not re.search(r" sort\(", program)


def test_searches_run_under_vmap():
  models = [random_automaton(seed) for seed in (5, 6, 7)]
  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(device, models))
  run = functools.partial(_beam, beam=3, room=7, eos=1, alpha=1.0, n_best=2)
  together = jax.vmap(run, in_axes=(0, None))(stacked, jnp.array([7]))
  for i, model in enumerate(models):
    alone = run_beam(model, beam=3, room=7, eos=1, alpha=1.0, n_best=2)
    np.testing.assert_array_equal(together.tokens[i], alone.tokens)
    np.testing.assert_allclose(together.scores[i], alone.scores, rtol=1e-6)


# Faults are one clear line.

SETTINGS = {"maximum_length": 3, "eos": 2, "bos": 1, "pad": 0}


def good_step(state, tokens):
  return jnp.zeros((*tokens.shape, 3)), state, jnp.ones((*tokens.shape, 5))


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"beam": 0}, "beam is 0: expected at least 1"),
    ({"n_best": 0}, "n_best is 0: expected at least 1"),
    ({"alpha": -0.5}, "alpha is -0.5: expected a finite number of at least 0"),
    ({"alpha": math.nan}, "alpha is nan: expected a finite number of at least 0"),
    ({"maximum_length": 0}, "maximum_length is 0: a search needs room for one token"),
    ({"eos": 3}, "eos is 3: expected an id of the step's 3 tokens"),
  ],
)
def test_wrong_settings_are_named(change, message):
  settings = {"beam": 2, **SETTINGS, **change}
  with pytest.raises(ValueError, match=f"^{message}$"):
    beam_search(good_step, jnp.zeros((2, 1)), jnp.array([3, 3]), **settings)


@pytest.mark.parametrize(
  ("step", "state", "limits", "message"),
  [
    (good_step, jnp.zeros((2, 1)), jnp.array([3.0, 3.0]), r"limits is float32\[2\]: expected"),
    (good_step, {"s": jnp.zeros((3, 1))}, jnp.array([3, 3]), r"state\['s'\] is \[3, 1\]: expected"),
    (good_step, jnp.zeros((2, 7)), jnp.array([3, 3]), r"state is \[2, 7\]: expected \[2, 1, "),
    (
      lambda state, tokens: (jnp.zeros((2, 3)), state, None),
      jnp.zeros((2, 1)),
      jnp.array([3, 3]),
      r"log_probs \[2, 3\]: expected",
    ),
    (
      lambda state, tokens: (jnp.zeros((*tokens.shape, 3)), state, jnp.zeros((2, 5))),
      jnp.zeros((2, 1)),
      jnp.array([3, 3]),
      r"weights \[2, 5\]: expected",
    ),
    (
      lambda state, tokens: (jnp.zeros((*tokens.shape, 3)), (state, state), None),
      jnp.zeros((2, 1)),
      jnp.array([3, 3]),
      r"state of structure .*: expected",
    ),
    (
      lambda state, tokens: (jnp.zeros((*tokens.shape, 3)), state.astype(jnp.float16), None),
      jnp.zeros((2, 1)),
      jnp.array([3, 3]),
      r"state float16\[2, .\]: expected float32\[2, .\]",
    ),
  ],
)
def test_wrong_shapes_are_named(step, state, limits, message):
  for search in (functools.partial(beam_search, beam=2), greedy):
    with pytest.raises(ValueError, match=message) as error:
      search(step, state, limits, **SETTINGS)
    assert "\n" not in str(error.value)
