"""The rules of `experiments.anatomy` can each come out every way, and a small run is whole."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

import attn
from attn import configs
from attn.report import results
from experiments import anatomy, anatomy_parts, anatomy_rules, anatomy_scores
from experiments.anatomy_parts import Halves
from experiments.anatomy_rules import Seen
from experiments.anatomy_scores import ScoreWork

THERE, MISSING = Seen(0.2, 0.1, 0.3, 0.15), Seen(0.2, -0.1, 0.5, 0.0)
NOWHERE = Seen(0.0, 0.0, 0.0, 0.0)
SIZES = anatomy_parts.Sizes(embedding=5, units=7, alignment=11, maxout=3)
R, Q, C, N = results.REPRODUCED, results.QUALIFIED, results.CONTRADICTED, results.NOT_RESOLVED


def halves(encoder, decoder, every):
  return [Halves(*map(frozenset, (encoder, decoder, every)))]


@pytest.mark.parametrize(
  ("encoder", "decoder", "every", "verdict"),
  [
    ("ab", "cd", "abcd", R),
    ("abc", "cd", "abcd", C),  # one in both
    ("ab", "c", "abcd", C),  # one in neither
    ("", "abcd", "abcd", C),
  ],
)
def test_each_parameter_must_belong_to_one_half(encoder, decoder, every, verdict):
  assert anatomy_rules.apart(halves(encoder, decoder, every)) == verdict
  both = halves("a", "b", "ab") + halves(encoder, decoder, every)
  assert anatomy_rules.apart(both) == verdict


@pytest.mark.parametrize(
  ("start", "initial", "rest", "word", "elsewhere", "verdict"),
  [
    (0.0, THERE, 0.0, THERE, THERE, Q),
    (0.0, THERE, 0.0, THERE, NOWHERE, R),
    (0.1, THERE, 0.0, THERE, THERE, C),
    (0.0, MISSING, 0.0, THERE, THERE, C),
    (0.0, THERE, 1e-9, THERE, THERE, C),
    (0.0, THERE, 0.0, MISSING, THERE, C),
  ],
)
def test_the_source_may_come_in_by_the_first_state_alone(
  start, initial, rest, word, elsewhere, verdict
):
  assert anatomy_rules.initial_only(start, initial, rest, word, elsewhere) == verdict


def test_numbers_must_be_the_stated_ones():
  assert anatomy_rules.exact([4, 1000], [4, 1000]) == R
  assert anatomy_rules.exact([4, 1001], [4, 1000]) == C
  assert anatomy_rules.exact([4], [4, 1000]) == C
  assert anatomy_rules.exact([(3, 2)], [(2, 3)]) == C


@pytest.mark.parametrize(
  ("embedding", "annotation", "verdict"), [(0.0, THERE, R), (1e-9, THERE, C), (0.0, MISSING, C)]
)
def test_an_annotation_must_move_where_an_embedding_does_not(embedding, annotation, verdict):
  assert anatomy_rules.carries(embedding, annotation) == verdict


@pytest.mark.parametrize(
  ("widths", "later", "earlier", "own", "verdict"),
  [
    ((14, 7, 7), 0.0, 0.0, THERE, R),
    ((7, 7, 7), 0.0, 0.0, THERE, C),
    ((14, 7, 7), 1e-9, 0.0, THERE, C),
    ((14, 7, 7), 0.0, 1e-9, THERE, C),
    ((14, 7, 7), 0.0, 0.0, MISSING, C),
  ],
)
def test_an_annotation_must_join_two_states(widths, later, earlier, own, verdict):
  assert anatomy_rules.joined(widths, later, earlier, own) == verdict


@pytest.mark.parametrize(
  ("decoder", "bidirectional", "rerun", "verdict"),
  [
    (0.0, THERE, 0.0, Q),
    (0.0, THERE, 0.1, R),
    (0.1, THERE, 0.0, C),
    (0.0, MISSING, 0.0, C),
  ],
)
def test_a_bidirectional_network_may_or_may_not_generate(decoder, bidirectional, rerun, verdict):
  assert anatomy_rules.generates(decoder, bidirectional, rerun) == verdict


@pytest.mark.parametrize(
  ("weights", "words", "moved", "equal", "verdict"),
  [
    (0.0, THERE, THERE, 1e-6, R),
    (1e-9, THERE, THERE, 1e-6, C),
    (0.0, MISSING, THERE, 1e-6, N),
    (0.0, THERE, MISSING, 1e-6, C),
    (0.0, THERE, THERE, 1e-3, C),
  ],
)
def test_weights_may_say_what_to_write(weights, words, moved, equal, verdict):
  assert anatomy_rules.where_not_what(weights, words, moved, equal) == verdict


@pytest.mark.parametrize(
  ("before", "after", "verdict"), [(1e-7, THERE, R), (1e-3, THERE, C), (1e-7, MISSING, N)]
)
def test_the_equation_may_be_another(before, after, verdict):
  assert anatomy_rules.equation(before, after) == verdict


@pytest.mark.parametrize(
  ("by_keys", "by_query", "verdict"),
  [
    ("dot general concat", "dot general concat location", Q),
    ("dot general concat", "dot general concat", R),
    ("dot general", "dot general concat location", C),
    ("dot general concat location", "dot general concat location", C),
  ],
)
def test_the_scores_may_be_more_or_fewer_than_three(by_keys, by_query, verdict):
  changes = (
    {name: THERE if name in moved.split() else NOWHERE for name in anatomy_scores.LUONG_SCORES}
    for moved in (by_keys, by_query)
  )
  assert anatomy_rules.three(*changes) == verdict


@pytest.mark.parametrize(
  ("dot", "general", "fits_dot", "fits_general", "verdict"),
  [
    (0, 49, False, True, R),
    (1, 49, False, True, C),
    (0, 48, False, True, C),
    (0, 49, True, True, C),
    (0, 49, False, False, C),
  ],
)
def test_dot_may_cost_or_general_may_not_bridge(dot, general, fits_dot, fits_general, verdict):
  parameters, unequal = (
    {"dot": dot, "general": general},
    {"dot": fits_dot, "general": fits_general},
  )
  assert anatomy_rules.bridges(parameters, 7, unequal) == verdict


@pytest.mark.parametrize(
  ("narrow", "wide", "verdict"),
  [
    (ScoreWork(6, 38, 6), ScoreWork(6, 518, 6), Q),
    (ScoreWork(0, 38, 0), ScoreWork(0, 518, 0), R),
    (ScoreWork(6, 38, 6), ScoreWork(7, 518, 6), C),
    (ScoreWork(6, 38, 6), ScoreWork(6, 518, 7), C),
    (ScoreWork(6, 38, 6), ScoreWork(6, 38, 6), C),
  ],
)
def test_attention_may_be_more_than_products(narrow, wide, verdict):
  assert anatomy_rules.all_products(narrow, wide) == verdict


def test_work_outside_products_is_counted_from_the_program():
  t, s, k = 3, 5, 7

  def program(query, keys):
    scores = jnp.tanh(query @ keys.T) + 1.0  # t s tanh, t s additions
    return scores.sum(-1)  # a sum of t s terms

  assert anatomy_scores.element_work(program, (t, k), (s, k)) == 3 * t * s
  additive = lambda q, p, w, v: attn.additive_projected(q, p, w, v)  # noqa: E731
  work = anatomy_scores.element_work(additive, (t, k), (s, 11), (11, k), (11,))
  assert work == 2 * t * s * 11  # an addition and a tanh a unit


def test_a_shared_parameter_is_seen_in_both_halves():
  """Luong's concat has one W_a for keys and queries."""
  config = anatomy_parts.small("luong2015_concat_feed", SIZES)
  found = anatomy_parts.halves(config, anatomy_parts.drawn(config, np.random.default_rng(3)))
  assert found.encoder & found.decoder == {"decoder.score.w_a"}
  assert anatomy_rules.apart([found]) == C


def test_a_formula_that_is_not_the_models_is_off():
  config = anatomy_parts.small(anatomy_parts.SEARCH, SIZES)
  params = anatomy_parts.drawn(config, np.random.default_rng(3))
  luong = dataclasses.replace(config, order="luong", context="readout", word_in_readout=True)
  before, after = anatomy_scores.formula(config, params)
  assert before < anatomy_rules.ROUNDING < after
  del params["decoder"]["c"]  # luong's state reads no context
  before, after = anatomy_scores.formula(luong, params)
  assert after < anatomy_rules.ROUNDING < before  # its scores are those of the new state


def test_a_wider_score_does_not_take_unequal_widths():
  fits = {name: anatomy_scores.fits_unequal(name) for name in anatomy_scores.LUONG_SCORES}
  assert fits == {"dot": False, "general": True, "concat": True, "location": True}


def test_a_change_is_relative_to_the_first_row():
  ids = anatomy_parts.replaced(np.array([5, 7, 5]))
  assert (ids[1:] != ids[0]).tolist() == np.eye(3, dtype=bool).tolist()
  values = np.array([[[3.0, 4.0]], [[3.0, 9.0]]])
  np.testing.assert_allclose(anatomy_parts.change(values), [[1.0]])


@pytest.mark.slow
def test_a_tiny_run_judges_every_claim(tmp_path):
  config = configs.override(anatomy.Config(), {**SIZES._asdict(), "draws": 3})
  result = anatomy.run(config, tmp_path)
  assert results.read(tmp_path / "result.json") == result
  assert result.profile == "custom" and "--set=units=7" in result.command
  verdicts = {claim.number: claim.verdict for claim in result.claims}
  assert tuple(verdicts) == anatomy.CLAIMS
  qualified = {number for number, verdict in verdicts.items() if verdict == Q}
  assert qualified == {"5", "31", "56", "72"}
  assert verdicts["41"] in (R, N)  # the interval of three draws is wide
  assert {verdicts[number] for number in {*verdicts} - qualified - {"41"}} == {R}
  assert result.metrics["parameters of RNNsearch"].mean == 80_401_000
  assert result.metrics["parameters of Sutskever 2014"].mean == 384_000_000
  for claim in result.claims:
    assert claim.interval is None or all(map(math.isfinite, claim.interval))
  for path in result.figures:
    assert (tmp_path / path).stat().st_size > 1000
    assert (tmp_path / path).with_suffix(".png").stat().st_size > 1000


def test_profiles_and_sweeps_are_configurations():
  cells = [*anatomy.profiles().values(), *anatomy.sweep_quick(), *anatomy.sweep_paper()]
  for overrides in cells:
    configs.override(anatomy.Config(), overrides)


@pytest.mark.parametrize("change", [{"draws": 2}, {"units": 1}])
def test_sizes_that_show_nothing_are_refused(change):
  with pytest.raises(configs.ConfigError, match=next(iter(change))):
    configs.override(anatomy.Config(), change)
