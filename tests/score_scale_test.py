"""Saturation against width: what is measured, rules that can fail, and the files of a tiny run."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import attn
from attn import configs
from attn.evaluation.intervals import Interval
from attn.report import results
from experiments import score_scale, score_scale_claims, score_scale_draws, score_scale_trained
from experiments.score_scale_draws import Direction, Spread
from experiments.score_scale_trained import Learned, Matching

R, Q, C, N = results.REPRODUCED, results.QUALIFIED, results.CONTRADICTED, results.NOT_RESOLVED
ABOVE, BELOW, WIDE, SMALL = (Interval(m, m - h, m + h, 3) for m, h in
                             ((9.0, 2.0), (-9.0, 2.0), (1.0, 9.0), (1.0, 2.0)))  # fmt: skip

MATCHING = Matching(widths=(2, 5), items=7, features=3, steps=11, adam=(0.1,), sgd=(0.3,))
TINY_RUN = score_scale.Config(
  widths=(3, 2048), positions=13, hidden=17, draws=67, variance_draws=503,
  multipliers=(1.0, 2.0, 16.0),
  matching=MATCHING,
)  # fmt: skip


def at(median, mean=None, around=0.0):
  mean = median if mean is None else mean
  return Spread(mean, mean, mean, median, median - around, median + around, median, median)


def test_the_spread_of_a_sample():
  values = np.arange(1, 1002) ** 3.0
  found = score_scale_draws.spread(np.random.default_rng(5).permutation(values))
  assert found.median == 501**3 and found.mean == pytest.approx(values.mean())
  assert found.mean_low < found.mean < found.mean_high
  assert (found.q05, found.q95) == (51**3, 951**3)
  # Ranks of the binomial interval at n = 1001: 501 -+ 1.96 * sqrt(1001) / 2.
  assert round(found.low ** (1 / 3)) == 470 and round(found.high ** (1 / 3)) == 532


def test_the_interval_of_the_median_covers_it():
  draw = np.random.default_rng(7)
  spreads = [score_scale_draws.spread(draw.exponential(size=101)) for _ in range(400)]
  covered = np.mean([found.low <= np.log(2) <= found.high for found in spreads])
  assert 0.93 < covered < 0.99


def test_the_fewest_draws_give_an_interval_of_the_median():
  spreads = [
    score_scale_draws.spread(draw) for draw in np.random.default_rng(3).normal(size=(4001, 6))
  ]
  assert np.mean([found.low <= 0 <= found.high for found in spreads]) > 0.955


@pytest.mark.parametrize(
  ("ratios", "verdict"),
  [
    ([(0.95, 1.02), (0.99, 1.09)], results.REPRODUCED),
    ([(0.95, 1.02), (0.80, 1.30)], results.NOT_RESOLVED),
    ([(0.95, 1.02), (1.11, 1.30)], results.CONTRADICTED),
    ([(0.70, 0.85), (0.99, 1.01)], results.CONTRADICTED),
  ],
)
def test_unit_variance_can_come_out_each_way(ratios, verdict):
  assert score_scale_claims.unit_variance(ratios) == verdict


FALLING = [at(3.7), at(1.0), at(0.01)]


@pytest.mark.parametrize(
  ("gradient", "entropies", "verdict"),
  [
    ([at(0.3), at(0.1), at(1e-4)], FALLING, results.REPRODUCED),
    ([at(0.2), at(0.3), at(1e-4)], FALLING, results.QUALIFIED),  # rises before it falls
    ([at(0.3), at(0.1), at(1e-4, mean=0.1)], FALLING, results.QUALIFIED),  # the mean stays
    ([at(0.3), at(0.1), at(0.05)], FALLING, results.CONTRADICTED),
    ([at(0.3), at(0.1), at(0.002, around=0.0015)], FALLING, results.NOT_RESOLVED),
    ([at(0.3), at(0.1), at(1e-4)], [at(3.7), at(3.6), at(3.7)], results.CONTRADICTED),
    ([at(0.3), at(0.1), at(1e-4)], [at(3.7), at(3.6), at(3.6, around=0.2)], results.NOT_RESOLVED),
  ],
)
def test_vanishing_can_come_out_each_way(gradient, entropies, verdict):
  good = [at(0.3), at(0.1), at(1e-5)]
  assert score_scale_claims.vanishing([good, gradient, good], entropies) == verdict


@pytest.mark.parametrize(
  ("to_scores", "to_unscaled", "verdict"),
  [
    ([0.4, 0.2, 1e-4], [0.4, 0.3, 1e-3], results.REPRODUCED),
    ([0.4, 0.2, 1e-4], [0.4, 0.5, 1e-3], results.QUALIFIED),
    ([0.4, 0.2, 1e-4], [0.4, 0.5, 0.1], results.CONTRADICTED),
    ([0.4, 0.2, 0.1], [0.4, 0.3, 1e-3], results.CONTRADICTED),
  ],
)
def test_to_zero_can_come_out_each_way(to_scores, to_unscaled, verdict):
  assert score_scale_claims.to_zero(to_scores, to_unscaled) == verdict


def test_both_gradients_of_the_example_have_the_golden_values():
  pairs = [score_scale.example_gradients(multiplier) for multiplier in (1.0, 2.0, 4.0, 8.0)]
  to_scores, to_unscaled = zip(*pairs, strict=True)
  np.testing.assert_allclose(to_scores, [0.389, 0.213, 0.0355, 0.00067], rtol=5e-3)
  np.testing.assert_allclose(to_unscaled, [0.389, 0.426, 0.142, 0.0054], rtol=1e-2)


def test_a_draw_is_measured_as_jax_grad_would():
  found = score_scale_draws.saturation(np.random.default_rng(11), width=7, positions=5, draws=3)
  draw = np.random.default_rng(11)
  query, keys, pull = (
    draw.standard_normal((score_scale_draws.BLOCK, *shape), np.float32)
    for shape in ((7,), (5, 7), (5,))
  )

  def pulled(query, keys):
    return jnp.vdot(pull[2], attn.softmax(attn.scaled_dot(query, keys)))

  to_query, to_keys = jax.grad(pulled, argnums=(0, 1))(query[2], keys[2])
  weights = attn.softmax(attn.scaled_dot(query[2], keys[2]))
  expected = {
    "variance of scores": jnp.var(attn.scaled_dot(query[2], keys[2]), ddof=1),
    "entropy": attn.entropy(weights),
    "largest weight": attn.max_weight(weights),
    "Jacobian of the softmax": jnp.linalg.norm(jnp.diag(weights) - jnp.outer(weights, weights)),
    "gradient to query": jnp.linalg.norm(to_query),
    "gradient to keys": jnp.linalg.norm(to_keys),
  }
  assert set(found["scaled"]) == set(expected)
  for quantity, value in expected.items():
    assert found["scaled"][quantity].shape == (3,)
    np.testing.assert_allclose(found["scaled"][quantity][2], value, rtol=1e-4)


def test_random_parameters_keep_the_variance_of_a_projection():
  own = score_scale_draws.parameters(np.random.default_rng(3), width=211, hidden=307)
  assert [one.shape for one in own] == [(211, 211), (307, 211), (307, 211), (307,)]
  keys = np.random.default_rng(5).standard_normal((503, 211))
  for projected in (keys @ own.general.T, keys @ own.w_a.T, keys @ own.u_a.T):
    assert projected.var() == pytest.approx(1, abs=0.03)
  assert np.sum(np.square(own.v_a)) == pytest.approx(1, abs=0.2)


def test_every_score_is_measured_on_the_same_draws():
  found = score_scale_draws.saturation(
    np.random.default_rng(7), width=5, positions=11, draws=53, hidden=3
  )
  assert tuple(found) == ("raw", "scaled", "cosine", "additive", "general")
  variances = {name: by["variance of scores"] for name, by in found.items()}
  assert all(values.shape == (53,) for values in variances.values())
  np.testing.assert_allclose(variances["raw"], 5 * variances["scaled"], rtol=1e-4)
  assert (variances["cosine"] < 1).all() and (variances["additive"] > 0).all()


def test_lengths_change_the_dot_and_not_the_cosine():
  found = score_scale_draws.direction(np.random.default_rng(11), width=13, positions=17, draws=211)
  assert found.product < 1e-6 and found.cosine < 1e-6
  assert found.kept == 1 and found.falls == 1
  assert list(found.entropies) == sorted(found.entropies, reverse=True)
  assert 0 < found.other.low < found.other.mean < 1
  assert score_scale_claims.not_direction_alone(found) == R


@pytest.mark.parametrize(
  ("changes", "verdict"),
  [
    ({}, R),
    ({"falls": 0.5}, Q),
    ({"other": Interval(0.0, 0.0, 0.0, 9)}, Q),
    ({"falls": 0.5, "other": Interval(0.0, 0.0, 0.0, 9)}, C),
    ({"product": 0.1}, C),
    ({"cosine": 0.1}, C),
    ({"kept": 0.9}, C),
  ],
)
def test_what_lengths_do_can_come_out_each_way(changes, verdict):
  good = Direction(1e-7, 1e-7, 1.0, 1.0, (3.0, 1.0), Interval(0.3, 0.2, 0.4, 9))
  assert score_scale_claims.not_direction_alone(good._replace(**changes)) == verdict


@pytest.mark.parametrize(
  ("raw", "additive", "steady"),
  [
    ([at(0.3), at(1e-4)], [at(0.2), at(0.2)], True),
    ([at(0.3), at(1e-4)], [at(0.2), at(0.05)], False),
    ([at(0.3), at(0.1)], [at(0.2), at(0.2)], False),
  ],
)
def test_additive_is_steady_where_its_gradient_stays_and_that_of_dot_does_not(
  raw, additive, steady
):
  assert score_scale_claims.stays(raw, additive) == steady


@pytest.mark.parametrize(
  ("form", "untrained", "falls", "verdict"),
  [
    (True, True, (ABOVE, ABOVE), R),
    (True, True, (ABOVE, WIDE), Q),
    (True, True, (BELOW, BELOW), Q),
    (True, False, (ABOVE, ABOVE), Q),
    (True, False, (BELOW, BELOW), C),
    (True, False, (WIDE, BELOW), N),
    (True, True, (), N),
    (False, True, (ABOVE, ABOVE), C),
  ],
)
def test_additive_can_be_steadier_or_not(form, untrained, falls, verdict):
  assert score_scale_claims.steadier(form, untrained, falls) == verdict


@pytest.mark.parametrize(
  ("untrained", "pairs", "verdict"),
  [
    (True, ((SMALL, ABOVE), (SMALL, ABOVE)), R),
    (False, ((SMALL, ABOVE), (SMALL, ABOVE)), Q),
    (True, ((SMALL, ABOVE), (SMALL, SMALL)), Q),
    (True, ((SMALL, SMALL), (SMALL, BELOW)), C),
    (True, ((SMALL, SMALL), (ABOVE, ABOVE)), C),  # better already when narrow
    (True, ((SMALL, SMALL), (WIDE, ABOVE)), N),
    (True, ((SMALL, WIDE),), N),
    (True, (), N),
  ],
)
def test_additive_can_win_when_wide_or_not(untrained, pairs, verdict):
  assert score_scale_claims.large_only(untrained, pairs) == verdict


def test_the_form_of_the_ops_is_found_by_calling_them():
  found = score_scale_claims.form(query=3, keys=5, hidden=7)
  assert found == (7 * 3 + 7 * 5 + 7, True, True, False) and found.holds
  assert not found._replace(tanh=False).holds and not found._replace(dot_unequal=True).holds


def test_scores_are_compared_where_one_has_learned():
  config = Matching(widths=(2, 5), adam=(0.1,), sgd=(0.1, 1.0))
  jitter = np.array([-0.1, 0.0, 0.1])

  def learned(*means):
    right = np.array([mean + jitter for mean in means])
    return Learned(right, right, right)

  runs = {
    "raw": [learned(99, 99, 20), learned(98, 3, 3)],
    "additive": [learned(98, 60, 20), learned(97, 60, 20)],
  }
  found = score_scale_claims.compare(config, runs)
  assert list(found) == ["Adam 0.1", "SGD 0.1"]  # with SGD 1 neither has learned
  assert found["SGD 0.1"].wide.mean == pytest.approx(57)
  assert found["SGD 0.1"].falls.mean == pytest.approx(96)
  assert found["Adam 0.1"].narrow.mean == pytest.approx(-1)
  assert found["Adam 0.1"].falls.mean == pytest.approx(0)


def test_all_that_trains_in_one_program_trains_as_it_would_alone():
  """Against optax's own optimizers, one at a time and without zeros up to the largest width."""
  runs = score_scale_trained.train_all(MATCHING, 3, lambda **row: None)
  assert set(runs) == {"raw", "scaled", "additive"}
  assert runs["raw"][1].right.shape == (2, 3)

  @functools.partial(jax.jit, static_argnames="name")
  def gradients(params, items, queries, *, name):
    def cross_entropy(params):
      width = len(params["w_q"])
      scores = score_scale_trained.score_of(params, items, queries, name, width**0.5)
      return -jnp.mean(jnp.diag(jax.nn.log_softmax(scores)))

    return jax.value_and_grad(cross_entropy)(params)

  data = score_scale_trained.draw(np.random.default_rng((4, 0)), MATCHING)  # the second seed
  for name, setting, optimizer in (("additive", 0, optax.adam(0.1)), ("scaled", 1, optax.sgd(0.3))):
    padded = score_scale_trained.initial(np.random.default_rng((4, 2)), name, 2, MATCHING)
    assert all((leaf[2:] == 0).all() and leaf.shape[0] == 5 for leaf in padded.values())
    params = {key: leaf[:2] for key, leaf in padded.items()}
    state = optimizer.init(params)
    for items, queries in data:
      loss, gradient = gradients(params, items, queries, name=name)
      updates, state = optimizer.update(gradient, state)
      params = optax.apply_updates(params, updates)
    assert runs[name][0].loss[setting, 1] == pytest.approx(float(loss), rel=1e-4)


@pytest.mark.parametrize("width", [2, 61])
def test_the_squares_average_to_the_variance(width):
  squares = score_scale_draws.squared_scores(np.random.default_rng(13), width=width, draws=40009)
  error = 4 * np.sqrt((2 + 6 / width) / 40009)
  assert abs(squares["raw"].mean() / width - 1) < error
  assert abs(squares["scaled"].mean() - 1) < error


def test_a_tiny_run_judges_every_claim(tmp_path):
  result = score_scale.run(TINY_RUN, tmp_path)
  assert results.read(tmp_path / "result.json") == result
  assert result.profile == "custom" and "--set=draws=67" in result.command
  verdicts = {claim.number: claim.verdict for claim in result.claims}
  assert set(verdicts) == set(score_scale.CLAIMS)
  assert verdicts["66"] == results.QUALIFIED
  assert verdicts["62"] == results.NOT_RESOLVED  # 503 pairs are too few for 10%
  assert verdicts["68"] == results.REPRODUCED
  assert list(result.figures)[0] == "figures/gradients.svg"
  for path in result.figures:
    assert (tmp_path / path).exists() and (tmp_path / path).with_suffix(".png").exists()


def test_the_same_seed_gives_the_same_numbers():
  small = dataclasses.replace(TINY_RUN, widths=(3, 17), draws=13, variance_draws=61)
  rows = []
  first = score_scale.measure(small, lambda **row: rows.append(row))
  assert first == score_scale.measure(small, lambda **row: None)
  assert first != score_scale.measure(dataclasses.replace(small, seed=1), lambda **row: None)
  assert {row.get("width") for row in rows} == {3, 17, None}


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"widths": (4,)}, "widths must be at least two ascending"),
    ({"widths": (16, 4)}, "widths must be"),
    ({"multipliers": (0.0, 1.0)}, "multipliers must be"),
    ({"draws": 5}, "^draws must be at least 6"),
    ({"variance_draws": 1}, "variance_draws must be at least 2"),
    ({"matching.widths": (4,)}, "matching.widths is"),
    ({"matching.seeds": 2}, "matching.seeds is 2"),
    ({"matching.sgd": (0.0,)}, "matching.adam is .* and matching.sgd"),
    ({"train.model.score": "general"}, "train.model.score is 'general'"),
  ],
)
def test_sweeps_that_show_nothing_are_refused(changes, message):
  with pytest.raises(configs.ConfigError, match=message):
    configs.override(score_scale.Config(), changes)


def test_profiles_and_sweeps_are_configurations():
  for overrides in [*score_scale.profiles().values(), *score_scale.sweep_quick(),
                    *score_scale.sweep_paper()]:  # fmt: skip
    configs.override(score_scale.Config(), overrides)


@pytest.mark.slow
def test_the_smoke_profile_finds_what_the_chapter_leaves_out(tmp_path):
  smoke = configs.override(score_scale.Config(), score_scale.profiles()["smoke"])
  # The task is trained in the tiny run above: here it may share those programs.
  result = score_scale.run(dataclasses.replace(smoke, matching=MATCHING), tmp_path)
  verdicts = {claim.number: claim.verdict for claim in result.claims}
  assert {number: verdicts[number] for number in ("62", "63", "66", "67")} == {
    "62": results.REPRODUCED,
    "63": results.QUALIFIED,
    "66": results.QUALIFIED,
    "67": results.REPRODUCED,
  }
