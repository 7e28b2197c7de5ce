"""The three-position example: golden numbers, rules that can fail, and the files of a run."""

import jax.numpy as jnp
import numpy as np
import pytest

import attn
from attn import configs
from attn.report import results
from experiments import worked_example

OUTCOMES = (results.REPRODUCED, results.CONTRADICTED)


def test_the_steps_give_the_golden_numbers():
  query, annotations = jnp.array(worked_example.QUERY), jnp.array(worked_example.ANNOTATIONS)
  scores, weights, context = worked_example.steps(query, annotations)
  np.testing.assert_array_equal(scores, [2, 4, 3])
  np.testing.assert_allclose(weights, [0.0900306, 0.6652410, 0.2447285], atol=1e-6)
  np.testing.assert_allclose(context, [0.4247896, 1.5752104], atol=1e-6)
  for scale, golden in (
    (2, [0.015876, 0.866813, 0.117310]),
    (4, [0.000329, 0.981690, 0.017980]),
  ):
    np.testing.assert_allclose(attn.softmax(scores, scale=scale), golden, atol=1e-6)


@pytest.mark.parametrize(
  ("measured", "values", "digits", "outcome"),
  [
    ((0.0900306, 0.665241), (0.090, 0.665), 3, 0),
    ((0.0905, 0.665241), (0.090, 0.665), 3, 0),  # the edge of rounding
    ((0.0906, 0.665241), (0.090, 0.665), 3, 1),
    ((0.0900306,), (0.090, 0.665), 3, 1),
    ((float("nan"), 0.665), (0.090, 0.665), 3, 1),
  ],
)
def test_a_printed_number_can_be_right_or_wrong(measured, values, digits, outcome):
  assert worked_example.printed(measured, values, digits) == OUTCOMES[outcome]


@pytest.mark.parametrize(
  ("attended", "shape", "example", "paper", "verdict"),
  [
    ((0.4, 1.6), (2000,), "ab", "ab", results.REPRODUCED),
    ((0.4, 1.6), (2000,), "b", "ab", results.QUALIFIED),
    ((0.4, 1.6), (2000,), "ab", "abc", results.CONTRADICTED),
    ((0.5, 1.5), (2000,), "ab", "ab", results.CONTRADICTED),
    ((0.4, 1.6), (50,), "b", "ab", results.CONTRADICTED),
  ],
)
def test_the_reduced_example_can_be_another_program(attended, shape, example, paper, verdict):
  contexts, shapes = ((0.4, 1.6), attended), (shape, (2000,))
  found = worked_example.same_program(contexts, shapes, example=example, small="ab", paper=paper)
  assert found == verdict


def test_a_program_that_depends_on_the_size_is_seen():
  def other(query, annotations, *matrices):
    context = worked_example.full_steps(query, annotations, *matrices)
    return context if annotations.shape[-1] == 2 else jnp.tanh(context)

  for program, same in ((worked_example.full_steps, True), (other, False)):
    small, _ = worked_example.traced(program, worked_example.SMALL)
    paper, shape = worked_example.traced(program, worked_example.PAPER)
    assert shape == (2000,) and (small == paper) == same
  # The dot score of the example does not even fit the paper's sizes.
  with pytest.raises(ValueError):
    worked_example.traced(lambda query, keys, *_: attn.dot(query, keys), worked_example.PAPER)


@pytest.mark.parametrize(
  ("small", "large", "difference", "outcome"),
  [
    (0.09003057, 0.66524096, 2.0, 0),
    (0.09003057, 0.66524096, 1.0, 1),
    (0.1, 0.66524096, 2.0, 1),
  ],
)
def test_the_ratio_of_weights_can_be_wrong(small, large, difference, outcome):
  assert worked_example.exponential(small, large, difference) == OUTCOMES[outcome]


@pytest.mark.parametrize("profile", ["smoke", "full"])
def test_a_run_judges_every_claim(tmp_path, profile):
  config = configs.override(worked_example.Config(), worked_example.profiles()[profile])
  result = worked_example.run(config, tmp_path)
  assert results.read(tmp_path / "result.json") == result
  assert result.profile == profile
  assert sorted(claim.number for claim in result.claims) == sorted(worked_example.CLAIMS)
  verdicts = {claim.number: claim.verdict for claim in result.claims}
  assert verdicts.pop("52") == results.QUALIFIED  # the example's score is not the paper's
  assert set(verdicts.values()) == {results.REPRODUCED}
  # Doubling the scores raises the gradient to the unscaled ones, and lowers that to the scaled.
  for to, doubled in (("scaled", 0.213), ("unscaled", 0.426)):
    found = result.metrics[f"gradient to the {to} scores at scale 2"].mean
    assert found == pytest.approx(doubled, abs=5e-4)
  for path in result.figures:
    assert (tmp_path / path).stat().st_size > 1000
    assert (tmp_path / path).with_suffix(".png").stat().st_size > 1000


def test_one_scale_alone_can_be_drawn(tmp_path):
  (config, *_) = (
    configs.override(worked_example.Config(), cell) for cell in worked_example.sweep_quick()
  )
  assert worked_example.run(config, tmp_path).profile == "custom"
