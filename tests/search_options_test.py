"""Normalisation, coverage, constraints and samples against exhaustive search over automata."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn.decoding import beam_search, constraints, greedy, sample
from attn.decoding.config import SearchConfig
from tests.decoding_test import (
  BOS,
  PAD,
  assert_equal,
  chain,
  device,
  everything,
  first_state,
  found_in,
  good_step,
  plain_beam,
  plain_greedy,
  random_automaton,
  random_tree,
  table_step,
)

TINY = float(np.finfo(np.float32).tiny)


def coverage_penalty(model, found, beta, real):
  covered = np.clip(model.weights[list(found.nodes)].astype(np.float64).sum(0), TINY, 1.0)
  return beta * np.log(covered[real]).sum()


def score(model, found, alpha, gnmt, beta, real):
  length = len(found.tokens)
  power = (5 + length) / 6 if gnmt else length
  return found.log_prob / power**alpha + coverage_penalty(model, found, beta, real)


@functools.partial(jax.jit, static_argnames=("beam", "room", "eos", "alpha", "gnmt", "beta", "n"))
def penalised(model, limits, real, *, beam, room, eos, alpha, gnmt=False, beta=0.0, n=1):
  step, state, penalty = table_step(model), first_state(limits.shape[0]), None
  if beta:
    step, state, penalty = constraints.covering(step, state, real, beta=beta)
  return beam_search(
    step,
    state,
    limits,
    beam=beam,
    maximum_length=room,
    eos=eos,
    bos=BOS,
    pad=PAD,
    alpha=alpha,
    normalisation="gnmt" if gnmt else "power",
    penalty=penalty,
    n_best=n,
  )


@functools.partial(jax.jit, static_argnames=("search", "room", "eos", "minimum"))
def begun(model, limits, possible, prefix, *, search, room, eos, minimum):
  step, state = constraints.constrained(
    table_step(model),
    first_state(limits.shape[0]),
    limits.shape[0],
    possible=possible,
    eos=eos,
    minimum_length=minimum,
    prefix=prefix,
  )
  return search(step, state, limits, maximum_length=room, eos=eos, bos=BOS, pad=PAD)


wide = functools.partial(beam_search, beam=81, alpha=1.0, n_best=31)


# Scores.


@pytest.mark.slow
@pytest.mark.parametrize(("alpha", "gnmt", "beta"), [(0.8, True, 0.4)])
def test_a_beam_that_holds_everything_finds_the_exhaustive_ranking(alpha, gnmt, beta):
  real = np.array([True, False, True])
  for seed in range(25):
    model = random_tree(seed, depth=4)
    rank = functools.partial(score, model, alpha=alpha, gnmt=gnmt, beta=beta, real=real)
    expected = sorted(everything(model, eos=2, limit=4), key=lambda found: -rank(found))
    result = jax.device_get(
      penalised(
        device(model), jnp.array([4]), real[None], beam=81, room=4, eos=2, alpha=alpha, gnmt=gnmt,
        beta=beta, n=31,
      )
    )  # fmt: skip
    assert found_in(result) == [found.tokens for found in expected]
    np.testing.assert_allclose(result.scores[0], [rank(f) for f in expected], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.log_probs[0], [f.log_prob for f in expected], rtol=1e-5)
    np.testing.assert_array_equal(result.weights[0, 0, 0], model.weights[expected[0].nodes[0]])


COVERED = {"alpha": 1.0, "gnmt": True, "beta": 1.0}


def covered(model, n=1):
  room = {"beam": 4, "room": 7, "eos": 1}
  return penalised(device(model), jnp.array([7]), np.ones((1, 3), bool), n=n, **room, **COVERED)


def test_the_early_exit_loses_nothing_under_a_coverage_penalty():
  """What a beam lacks in coverage it can still make up for, so its bound is a penalty of 0."""
  differs = 0
  for seed in range(25):
    model = random_automaton(100 + seed)
    rank = functools.partial(score, model, real=np.ones(3, bool), **COVERED)
    expected = plain_beam(model, rank, beam=4, eos=1, limit=7)
    (best,), more = found_in(covered(model)), found_in(covered(model, n=4))
    assert more == [found.tokens for found in expected[:4]]
    assert best == more[0]
    differs += best != max(expected, key=lambda found: found.score(1.0)).tokens
  assert differs > 3  # coverage decides


def test_a_position_that_nothing_attends_to_leaves_a_finite_score():
  model = random_automaton(100)
  model = model._replace(weights=np.where(np.arange(3) == 1, 0.0, model.weights))
  rank = functools.partial(score, model, real=np.ones(3, bool), **COVERED)
  expected = plain_beam(model, rank, beam=4, eos=1, limit=7)[0]
  result = covered(model._replace(weights=model.weights.astype(np.float32)))
  assert found_in(result) == [expected.tokens]
  np.testing.assert_allclose(result.scores[0, 0], rank(expected), rtol=1e-5)
  assert result.scores[0, 0] < math.log(TINY)


# What may be emitted.


def test_prefixes_minimum_and_forbidden_tokens_against_exhaustive_search():
  prefixes = [(), (0,), (1, 0), (0, 0, 1), (3,), (0, 1, 0, 1)]  # 3 is forbidden but for prefixes
  padded = np.full((len(prefixes), 5), -1)
  for row, prefix in enumerate(prefixes):
    padded[row, : len(prefix)] = prefix
  possible = np.array([True, True, True, False])
  for seed in range(10):
    tree = random_tree(seed, depth=5)
    # A fourth token, as likely as the first, that leads where the first does.
    model = tree._replace(
      log_probs=np.log(np.exp(tree.log_probs[:, [0, 1, 2, 0]]) / 2).astype(np.float32),
      after=tree.after[:, [0, 1, 2, 0]],
    )
    result = jax.device_get(
      begun(
        device(model), jnp.full(len(prefixes), 4), possible, padded, search=wide, room=4, eos=2,
        minimum=3,
      )
    )  # fmt: skip
    for row, prefix in enumerate(prefixes):
      expected = [
        found
        for found in everything(model, eos=2, limit=4)
        if found.tokens[: len(prefix)] == prefix
        and 3 not in found.tokens[len(prefix) :]
        and (len(found.tokens) >= 3 or not found.finished)
      ]
      expected.sort(key=lambda found: -found.score(1.0))
      assert_equal(result, expected, model, alpha=1.0, row=row)
      assert expected


def test_greedy_search_obeys_too_and_a_limit_below_the_minimum_cuts():
  result = begun(
    device(chain([[0.3, 0.2, 0.5]])), jnp.array([4, 4, 2]), np.ones(3, bool),
    np.array([[1, -1], [-1, -1], [-1, -1]]), search=greedy, room=4, eos=2, minimum=3,
  )  # fmt: skip
  assert [found_in(result, row) for row in range(3)] == [[(1, 0, 2)], [(0, 0, 2)], [(0, 0)]]
  assert result.finished[:, 0].tolist() == [True, True, False]


def test_what_is_not_asked_for_adds_nothing_to_the_state():
  state = first_state(2)
  _, after = constraints.constrained(good_step, state, 2, possible=jnp.ones(3, bool), eos=2)
  assert after is state


# Samples.


@functools.partial(jax.jit, static_argnames=("room", "eos", "temperature", "top_k"))
def drawn(model, limits, rngs, *, room, eos, temperature=1.0, top_k=None):
  return sample(
    table_step(model), first_state(limits.shape[0]), limits, rngs, maximum_length=room, eos=eos,
    bos=BOS, pad=PAD, temperature=temperature, top_k=top_k,
  )  # fmt: skip


def tempered(model, temperature, top_k):
  """The automaton that is drawn from."""
  log_probs = model.log_probs.astype(np.float64) / temperature
  for row in log_probs:
    row[np.argsort(-row, kind="stable")[top_k:]] = -np.inf
  total = np.log(np.exp(log_probs).sum(-1, keepdims=True))
  return model._replace(log_probs=log_probs - total)


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, None), (0.6, 2)])
def test_samples_come_as_often_as_they_are_probable(temperature, top_k):
  count, model = 4000, random_tree(3, depth=3)
  rngs = jax.random.split(jax.random.key(7), (1, count))
  result = jax.device_get(
    drawn(device(model), jnp.array([3]), rngs, room=3, eos=2, temperature=temperature, top_k=top_k)
  )
  found = found_in(result)
  exact = {one.tokens: one.log_prob for one in everything(model, eos=2, limit=3)}
  likely = everything(tempered(model, temperature, top_k or 3), eos=2, limit=3)
  assert set(found) <= {one.tokens for one in likely}
  for one in likely:
    p = math.exp(one.log_prob)
    assert abs(found.count(one.tokens) / count - p) < 4.5 * math.sqrt(p * (1 - p) / count)
  np.testing.assert_allclose(result.log_probs[0], [exact[tokens] for tokens in found], rtol=1e-5)
  assert result.finished[0].tolist() == [t[-1] == 2 for t in found]


def test_a_sample_depends_on_its_key_alone():
  model, room = random_automaton(11), {"room": 7, "eos": 1}
  rngs = jax.random.split(jax.random.key(1), (5, 3))
  limits = jnp.array([7, 2, 7, 0, 7])
  together = drawn(device(model), limits, rngs, **room)
  backwards = drawn(device(model), limits[::-1], rngs[::-1], **room)
  for field, other in zip(together, backwards, strict=True):
    np.testing.assert_array_equal(field, other[::-1])
  alone = drawn(device(model), limits[2:3], rngs[2:3, 1:2], **room)
  assert found_in(alone) == found_in(together, 2)[1:2]
  assert len({tokens for row in range(5) for tokens in found_in(together, row)}) > 5
  assert found_in(together, 3) == []
  assert max(map(len, found_in(together, 1))) <= 2


@pytest.mark.slow
def test_a_sample_of_the_single_best_token_is_greedy():
  model = random_automaton(12)
  rngs = jax.random.split(jax.random.key(1), (1, 2))
  best = [plain_greedy(model, eos=1, limit=7).tokens] * 2
  assert found_in(drawn(device(model), jnp.array([7]), rngs, room=7, eos=1, top_k=1)) == best


@pytest.mark.parametrize("temperature", [1e-30, pytest.param(1e-60, marks=pytest.mark.slow)])
def test_a_sample_at_the_lowest_temperature_is_greedy(temperature):
  """What is divided by less than float32 can tell from 0 is infinite, the best token is not."""
  model = random_automaton(12)
  rngs = jax.random.split(jax.random.key(1), (1, 2))
  room = {"room": 7, "eos": 1, "temperature": temperature}
  best = [plain_greedy(model, eos=1, limit=7).tokens] * 2
  for top_k in (None, 3):
    assert found_in(drawn(device(model), jnp.array([7]), rngs, top_k=top_k, **room)) == best


# Faults are one clear line.

ROOM = {"maximum_length": 3, "eos": 2, "bos": 1, "pad": 0}


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"temperature": 0.0}, "temperature is 0.0: expected a finite number above 0"),
    ({"temperature": math.nan}, "temperature is nan: expected"),
    ({"top_k": 0}, "top_k is 0: expected at least 1, or None"),
    ({"rngs": jax.random.key(0)}, r"rngs is \[\]: expected \[2, k\], a key for each sample"),
  ],
)
def test_wrong_settings_of_samples_are_named(change, message):
  settings = {"rngs": jax.random.split(jax.random.key(0), (2, 1)), **ROOM, **change}
  with pytest.raises(ValueError, match=f"^{message}"):
    sample(good_step, jnp.zeros((2, 1)), jnp.array([3, 3]), **settings)


def test_a_penalty_of_another_shape_is_named():
  with pytest.raises(ValueError, match=r"^penalty returned \[2\]: expected \[2, 5\]$"):
    beam_search(
      good_step, jnp.zeros((2, 1)), jnp.array([3, 3]), beam=5, penalty=lambda s: s[:, 0], **ROOM
    )


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"coverage": -0.1}, "coverage is -0.1; it must be from 0 to 1,000,000"),
    ({"coverage": 1e308}, "coverage is 1e\\+308; it must be from 0 to 1,000,000"),
    ({"alpha": 1000.0}, "alpha is 1000.0; it must be from 0 to 10"),
    ({"beam": 10**12}, "beam is 1000000000000; it must be from 1 to 1,000,000"),
    ({"minimum_length": 10**11}, "minimum_length is 100000000000; it must be from 1 to 1,000,000"),
    ({"coverage": math.inf}, "coverage is inf"),
    ({"alpha": math.nan}, "alpha is nan"),
    ({"minimum_length": 0}, "minimum_length is 0; .* \\(it counts EOS, so 1 is no minimum"),
    ({"forbidden": (5, 2)}, r"forbidden has 2; it takes ids, and not that of EOS \(2\)"),
    ({"forbidden": (-1,)}, "forbidden has -1"),
    ({"ratio": 1e30}, r"ratio 1e\+30 and extra 10 must not be above 1,000,000"),
    ({"extra": 10**9}, "ratio 2 and extra 1000000000 must not be above"),
  ],
)
def test_wrong_settings_of_a_configuration_are_named(change, message):
  with pytest.raises(ValueError, match=f"^{message}"):
    SearchConfig(**change)
