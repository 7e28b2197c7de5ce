"""Saturation against width: what is measured, rules that can fail, and the files of a tiny run."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attn
from attn import configs
from attn.report import results
from experiments import score_scale
from experiments.score_scale import Spread

TINY_RUN = score_scale.Config(
  widths=(3, 2048), positions=13, draws=67, variance_draws=503, multipliers=(1.0, 2.0, 16.0)
)


def at(median, mean=None, around=0.0):
  mean = median if mean is None else mean
  return Spread(mean, mean, mean, median, median - around, median + around, median, median)


def test_the_spread_of_a_sample():
  values = np.arange(1, 1002) ** 3.0
  found = score_scale.spread(np.random.default_rng(5).permutation(values))
  assert found.median == 501**3 and found.mean == pytest.approx(values.mean())
  assert found.mean_low < found.mean < found.mean_high
  assert (found.q05, found.q95) == (51**3, 951**3)
  # Ranks of the binomial interval at n = 1001: 501 -+ 1.96 * sqrt(1001) / 2.
  assert round(found.low ** (1 / 3)) == 470 and round(found.high ** (1 / 3)) == 532


def test_the_interval_of_the_median_covers_it():
  draw = np.random.default_rng(7)
  spreads = [score_scale.spread(draw.exponential(size=101)) for _ in range(400)]
  covered = np.mean([found.low <= np.log(2) <= found.high for found in spreads])
  assert 0.93 < covered < 0.99


def test_the_fewest_draws_give_an_interval_of_the_median():
  spreads = [score_scale.spread(draw) for draw in np.random.default_rng(3).normal(size=(4001, 6))]
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
  assert score_scale.unit_variance(ratios) == verdict


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
  assert score_scale.vanishing([good, gradient, good], entropies) == verdict


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
  assert score_scale.to_zero(to_scores, to_unscaled) == verdict


def test_both_gradients_of_the_example_have_the_golden_values():
  pairs = [score_scale.example_gradients(multiplier) for multiplier in (1.0, 2.0, 4.0, 8.0)]
  to_scores, to_unscaled = zip(*pairs, strict=True)
  np.testing.assert_allclose(to_scores, [0.389, 0.213, 0.0355, 0.00067], rtol=5e-3)
  np.testing.assert_allclose(to_unscaled, [0.389, 0.426, 0.142, 0.0054], rtol=1e-2)


def test_a_draw_is_measured_as_jax_grad_would():
  found = score_scale.saturation(np.random.default_rng(11), width=7, positions=5, draws=3)
  draw = np.random.default_rng(11)
  query, keys, pull = (
    draw.standard_normal((score_scale.BLOCK, *shape), np.float32) for shape in ((7,), (5, 7), (5,))
  )

  def pulled(query, keys):
    return jnp.vdot(pull[2], attn.softmax(attn.scaled_dot(query, keys)))

  to_query, to_keys = jax.grad(pulled, argnums=(0, 1))(query[2], keys[2])
  weights = attn.softmax(attn.scaled_dot(query[2], keys[2]))
  expected = {
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


@pytest.mark.parametrize("width", [2, 61])
def test_the_squares_average_to_the_variance(width):
  squares = score_scale.squared_scores(np.random.default_rng(13), width=width, draws=40009)
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
  ],
)
def test_sweeps_that_show_nothing_are_refused(changes, message):
  with pytest.raises(configs.ConfigError, match=message):
    configs.override(score_scale.Config(), changes)


def test_profiles_and_sweeps_are_configurations():
  for overrides in [*score_scale.profiles().values(), *score_scale.sweep_quick()]:
    configs.override(score_scale.Config(), overrides)


@pytest.mark.slow
def test_the_smoke_profile_finds_what_the_chapter_leaves_out(tmp_path):
  smoke = configs.override(score_scale.Config(), score_scale.profiles()["smoke"])
  result = score_scale.run(smoke, tmp_path)
  assert result.profile == "smoke"
  verdicts = {claim.number: claim.verdict for claim in result.claims}
  assert verdicts == {
    "62": results.REPRODUCED,
    "63": results.QUALIFIED,
    "66": results.QUALIFIED,
    "67": results.REPRODUCED,
  }
