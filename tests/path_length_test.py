"""Distances of known programs, gradients against jax.grad, and rules that can fail."""

import contextlib
import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn import configs
from attn.evaluation.intervals import Interval
from attn.models import ModelConfig, bind, init
from attn.report import results
from experiments import path_length, path_length_graph, path_length_runs
from experiments.path_length_graph import Paths
from experiments.path_length_runs import ARMS, ATTENDING, FED, FIXED, INITIAL, LUONG, SEARCH

R, Q, C, N = results.REPRODUCED, results.QUALIFIED, results.CONTRADICTED, results.NOT_RESOLVED
ABOVE, BELOW, WIDE = (Interval(m, m - 1, m + 1, 3) for m in (2.0, -2.0, 0.5))
LENGTHS = (3, 5, 11)

SMALL = ModelConfig(
  source_vocabulary=13,
  target_vocabulary=11,
  embedding=3,
  units=2,
  alignment=5,
  maxout=7,
  biases=True,
  initialisation="luong",
)


def model(arm, **choices):
  return dataclasses.replace(SMALL, **{**ARMS[arm], **choices})


@pytest.mark.parametrize(
  ("arm", "choices", "expected"),
  [
    # Word to state, along the source, along the target, state to output.
    (INITIAL, {}, lambda n, j, i: 1 + (n - 1 - j) + (i + 1) + 1),
    # A layer more is a product more.
    (INITIAL, {"layers": 2}, lambda n, j, i: 2 + (n - 1 - j) + (i + 1) + 1),
    # Read from the end, the first word is the nearest.
    (INITIAL, {"reverse_source": True}, lambda n, j, i: 1 + j + (i + 1) + 1),
    # The vector enters each readout.
    (FED, {}, lambda n, j, i: 1 + (n - 1 - j) + 2),
    # Read both ways, a word is near one end.
    (FED, {"encoder": "bidirectional"}, lambda n, j, i: 1 + min(j, n - 1 - j) + 2),
    (LUONG, {}, lambda n, j, i: 4),
    (LUONG, {"score": "dot"}, lambda n, j, i: 4),
    (SEARCH, {}, lambda n, j, i: 4),
    # Where the context enters the state alone, one product more takes it to the output.
    (SEARCH, {"context": "state"}, lambda n, j, i: 5),
  ],
)
def test_shortest_paths_of_known_models(arm, choices, expected):
  n = 5
  wanted = [[expected(n, j, i) for i in range(n)] for j in range(n)]
  found = path_length_graph.distances(model(arm, **choices), n)
  np.testing.assert_array_equal(found, wanted)


def test_chains_of_states_are_as_long_as_source_and_target():
  n = 5
  forward = [[(n - 1 - j) + (i + 1) for i in range(n)] for j in range(n)]
  for arm in (INITIAL, LUONG):
    found = path_length_graph.distances(model(arm), n, path_length_graph.SEQUENTIAL)
    np.testing.assert_array_equal(found, forward)
  # Read forward, a word gets to the context; read backward, to the first state.
  both = [[max(n - 1 - j + i, j + i + 1) for i in range(n)] for j in range(n)]
  found = path_length_graph.distances(model(SEARCH), n, path_length_graph.SEQUENTIAL)
  np.testing.assert_array_equal(found, both)


def test_a_program_without_a_rule_is_refused():
  """A window gathers keys at places that are computed."""
  with pytest.raises(NotImplementedError, match="distances through .*: give it a rule"):
    path_length_graph.distances(model(LUONG, window="local_m", half_width=1), 5)


@pytest.mark.slow
def test_gradients_are_those_of_jax_grad():
  config = model(SEARCH)
  params = init(config, jax.random.key(3))
  source, target = np.array([[5, 7, 11, 2]]), np.array([[3, 10, 2]])
  norms, right = path_length_runs.gradients(config, params, source, target)
  assert norms.shape == (1, 3, 4) and right.shape == (1, 3)

  def outputs(table):
    model = bind(config, {**params, "source": table})
    logits = model.teacher_forced(source, jnp.array([4]), target).logits[0]
    return logits[jnp.arange(3), target[0]] - logits.mean(-1)

  wanted = jax.jit(jax.jacrev(outputs))(params["source"])[:, source[0]]
  np.testing.assert_allclose(norms[0], np.linalg.norm(wanted, axis=-1), rtol=1e-4)
  likeliest = bind(config, params).teacher_forced(source, jnp.array([4]), target).logits.argmax(-1)
  np.testing.assert_array_equal(right, likeliest == target)


def test_a_curve_has_the_slope_that_was_put_in():
  n = 5
  between = path_length_runs.between_words(n)
  assert between[0].tolist() == [5, 4, 3, 2, 1] and between[-1].tolist() == [9, 8, 7, 6, 5]
  noise = np.array([0.5, -0.5])[:, None, None]  # of two sentences, gone in their mean
  found = path_length_runs.curve(10 ** (1 - 0.3 * between + noise), 0.7)
  assert found.right == 0.7
  np.testing.assert_allclose(found.slope, -0.3)
  np.testing.assert_allclose(found.norms, 1 - 0.3 * np.arange(1, 10))
  np.testing.assert_allclose(found.named, 1 - 0.3 * np.arange(1, 10, 2))


def paths(longest, chain=lambda arm, n: 2 * n):
  return {
    arm: Paths(
      tuple(longest(arm, n) for n in LENGTHS), (3, 3, 3), tuple(chain(arm, n) for n in LENGTHS)
    )
    for arm in ARMS
  }


@pytest.mark.parametrize(
  ("fixed", "attending", "verdict"),
  [
    (lambda n: n + 3, lambda n: 1, R),
    (lambda n: n + 3, lambda n: 4, Q),
    (lambda n: n + 3, lambda n: n, C),
    (lambda n: 7, lambda n: 1, C),
    (lambda n: n * n, lambda n: 1, C),
  ],
)
def test_the_longest_path_may_be_one_another_constant_or_grow(fixed, attending, verdict):
  found = paths(lambda arm, n: fixed(n) if arm in FIXED else attending(n))
  assert path_length.one_step(found, LENGTHS) == verdict


@pytest.mark.parametrize(
  ("counted", "follow", "learned", "verdict"),
  [
    (Q, (True, True), True, R),
    (Q, (True, False), True, Q),
    (Q, (False, True), True, Q),
    (Q, (False, False), True, N),
    (Q, (True, True), False, N),
    (C, (True, True), True, C),
  ],
)
def test_gradients_may_follow_the_distances_or_not(counted, follow, learned, verdict):
  assert path_length.falls(counted, follow, learned=learned) == verdict


@pytest.mark.parametrize(
  ("fixed", "differences", "follow"),
  [
    ((BELOW, BELOW), (ABOVE, ABOVE), True),
    ((BELOW, WIDE), (ABOVE, ABOVE), False),
    ((BELOW, BELOW), (ABOVE, WIDE), False),
    ((ABOVE, BELOW), (ABOVE, ABOVE), False),
    ((BELOW, BELOW), (BELOW, ABOVE), False),
  ],
)
def test_gradients_follow_where_every_interval_says_so(fixed, differences, follow):
  assert path_length.follows(fixed, differences) == follow


@pytest.mark.parametrize(
  ("with_attention", "verdict"), [(lambda n: 2 * n, R), (lambda n: n, Q), (lambda n: 7, C)]
)
def test_chains_may_grow_as_without_attention_less_or_not(with_attention, verdict):
  chain = lambda arm, n: with_attention(n) if arm in ATTENDING else 2 * n  # noqa: E731
  assert path_length.still_recurrent(paths(lambda arm, n: 4, chain), LENGTHS) == verdict


def measured(slopes, right=0.9):
  """Three seeds of each model, with slopes before and after by model."""
  made = {}
  for arm, (before, after) in slopes.items():
    made[arm] = [
      path_length_runs.Measured(
        *(
          path_length_runs.Curve((0.0, at), at + jitter, (0.0, at), right) for at in (before, after)
        )
      )
      for jitter in (-0.001, 0.0, 0.001)
    ]
  return made


def test_every_claim_is_judged_from_the_runs():
  config = path_length.Config(lengths=LENGTHS)
  found = paths(lambda arm, n: n if arm in FIXED else 4)
  falling = {INITIAL: (-0.3, -0.1), FED: (-0.2, -0.1), LUONG: (0.0, 0.0), SEARCH: (0.0, 0.0)}
  judged = {c.number: c for c in path_length.judge(config, found, measured(falling))}
  assert tuple(judged) == path_length.CLAIMS
  assert [claim.verdict for claim in judged.values()] == [Q, R, R]
  assert judged["74"].interval[0] > 0
  steeper = {**falling, LUONG: (0.0, -0.2)}
  (again,) = (c for c in path_length.judge(config, found, measured(steeper)) if c.number == "74")
  assert again.verdict == Q and "before training alone" in again.why
  (again,) = (
    c for c in path_length.judge(config, found, measured(falling, 0.3)) if c.number == "74"
  )
  assert again.verdict == N and "not all models have learned" in again.why


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"seeds": 2}, "seeds is 2"),
    ({"pairs": 3}, "pairs is 3"),
    ({"lengths": (3, 5)}, "lengths is"),
    ({"lengths": (5, 3, 7)}, "lengths is"),
    ({"words": 2}, "words is 2"),
    ({"sentences": 0}, "sentences is 0"),
    ({"train.seed": 3}, "train.seed is 3"),
    ({"train.data.name": "copy"}, "train.data.name is 'copy'"),
    ({"train.model.score": "general"}, "train.model.score is 'general'"),
    ({"train.model.window": "local_m"}, "window='local_m' without attention"),
  ],
)
def test_what_shows_nothing_or_is_set_here_is_refused(change, message):
  with pytest.raises(configs.ConfigError, match=message):
    configs.override(path_length.Config(), change)


def test_profiles_and_sweeps_are_configurations():
  cells = [
    *path_length.profiles().values(), *path_length.sweep_quick(), *path_length.sweep_paper()
  ]  # fmt: skip
  for overrides in cells:
    configs.override(path_length.Config(), overrides)


@pytest.mark.slow
def test_a_smoke_run_leaves_every_file_and_a_second_one_trains_nothing(tmp_path, monkeypatch):
  monkeypatch.setattr(path_length.workers, "beside", lambda *_: contextlib.nullcontext())
  smoke = {**path_length.profiles()["smoke"], "train.data.data_dir": str(tmp_path / "data")}
  config = configs.override(path_length.Config(), smoke)
  result = path_length.run(config, tmp_path / "run")
  assert result.seeds == (0, 1, 2)
  verdicts = {claim.number: claim.verdict for claim in result.claims}
  assert verdicts == {"1": Q, "74": N, "80": R}  # four updates teach nothing
  for path in result.figures:
    assert (tmp_path / "run" / path).stat().st_size > 1000
  runs = sorted((tmp_path / "run" / "checkpoints").iterdir())
  assert len(runs) == 6  # two models
  before = {run: (run / "metrics.jsonl").stat().st_mtime_ns for run in runs}
  again = path_length.run(config, tmp_path / "run")
  assert {run: (run / "metrics.jsonl").stat().st_mtime_ns for run in runs} == before
  assert again.metrics == result.metrics
  assert set(json.loads((runs[0] / "measured.json").read_text())) == {"before", "after"}
