"""Tests of `experiments.alignment`: the rules, the columns, and what replacing weights computes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attn
from attn import configs
from attn.data import catalog
from attn.data.config import DataConfig
from attn.data.vocabulary import BOS, Vocabulary
from attn.evaluation.intervals import Interval
from attn.models import ModelConfig, bind
from attn.models.functional import init
from attn.report import results
from attn.training import TrainConfig, Trained
from experiments import alignment, alignment_runs
from experiments.alignment_runs import INPUT, OUTPUT, Sizes

R, Q = results.REPRODUCED, results.QUALIFIED
C, N = results.CONTRADICTED, results.NOT_RESOLVED


def between(low, high):
  return Interval((low + high) / 2, low, high, 3)


ABOVE, BELOW, WIDE = between(0.1, 0.2), between(-0.2, -0.1), between(-0.1, 0.1)
MOST, FEW, HALF = between(0.6, 0.8), between(0.1, 0.3), between(0.4, 0.6)
NEARLY_ALL = between(0.92, 0.99)


@pytest.mark.parametrize(
  ("gains", "found", "changed", "learned", "verdict"),
  [
    ((ABOVE, ABOVE), (MOST, MOST), (MOST, MOST), True, R),
    ((ABOVE, ABOVE), (MOST, FEW), (MOST, MOST), True, Q),
    ((ABOVE, ABOVE), (FEW, FEW), (NEARLY_ALL, NEARLY_ALL), True, C),
    ((ABOVE, BELOW), (MOST, MOST), (MOST, MOST), True, C),
    ((ABOVE, ABOVE), (FEW, FEW), (NEARLY_ALL, MOST), True, Q),
    ((ABOVE, ABOVE), (FEW, FEW), (NEARLY_ALL, between(0.8, 0.95)), True, N),
    ((ABOVE, ABOVE), (FEW, HALF), (NEARLY_ALL, NEARLY_ALL), True, N),
    ((ABOVE, WIDE), (MOST, MOST), (MOST, MOST), True, N),
    ((ABOVE, ABOVE), (MOST, MOST), (MOST, MOST), False, N),
  ],
)
def test_weights_may_be_a_diagnosis_an_explanation_or_neither(
  gains, found, changed, learned, verdict
):
  assert alignment.diagnosis_only(gains, found, changed, learned=learned) == verdict


@pytest.mark.parametrize(
  ("written", "luong", "learned", "verdict"),
  [
    ((ABOVE, ABOVE), (ABOVE, ABOVE), True, R),
    ((ABOVE, ABOVE), (BELOW, BELOW), True, Q),
    ((ABOVE, WIDE), (ABOVE, WIDE), True, Q),
    ((BELOW, BELOW), (BELOW, BELOW), True, C),
    ((WIDE, WIDE), (BELOW, BELOW), True, N),
    ((ABOVE, ABOVE), (ABOVE, ABOVE), False, N),
    ((), (), True, N),
  ],
)
def test_local_attention_may_align_better_in_both_columns_in_one_or_worse(
  written, luong, learned, verdict
):
  assert alignment.lower(written, luong, learned=learned) == verdict


def test_a_column_aside_is_another_error_rate():
  """Two pairs whose steps attend to the word that they write, a source of two and one of three."""
  gold = [[(1, 0), (0, 1)], [(0, 0), (1, 1), (2, 2)]]
  weights = [np.eye(3)[[1, 0, 2]], np.eye(4)]
  found = alignment_runs.error_rates(weights, gold)
  assert found[OUTPUT] == 0.0
  # Read of the word given: of (1, 0), (0, 1) the model says (0, 0), and of the second word nothing,
  # as EOS alone has weight there; of the other pair it says (1, 0), (2, 1).
  assert found[INPUT] == 1.0
  late = [np.roll(one, 1, axis=0) for one in weights]
  assert alignment_runs.error_rates(late, gold)[INPUT] == 0.0
  none = alignment_runs.baselines(weights, gold)
  assert none["diagonal"] == pytest.approx(1 - 2 * 3 / 10)
  assert none["chance"] == pytest.approx(1 - 2 * (2 / 2 + 3 / 3) / 10)


def test_divergence_and_variation_have_their_ends():
  one, other = jnp.array([0.0, 1.0, 0.0]), jnp.array([0.5, 0.0, 0.5])
  assert float(alignment_runs.divergence(one, one)) == 0.0
  assert float(alignment_runs.divergence(one, other)) == pytest.approx(np.log(2), rel=1e-6)
  p, q = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.2, 0.7])
  mean = (p + q) / 2
  expected = (p @ np.log(p / mean) + q @ np.log(q / mean)) / 2
  assert float(alignment_runs.divergence(p, q)) == pytest.approx(expected, rel=1e-5)
  assert float(alignment_runs.variation(np.log(p), np.log(q))) == pytest.approx(0.6, rel=1e-6)


def test_turned_weights_are_the_same_elsewhere():
  weights = jnp.array([[0.7, 0.2, 0.1, 0.0, 0.0], [0.1, 0.2, 0.3, 0.25, 0.15]])
  found = alignment_runs.turned(weights, jnp.array([3, 5]), jax.random.key(3))
  for own, other, length in zip(np.array(weights), np.array(found), (3, 5), strict=True):
    circles = [np.roll(own[:length], by) for by in range(1, length)]
    assert any(np.allclose(other[:length], circle) for circle in circles)
    assert not other[length:].any()


@pytest.mark.slow
def test_a_step_is_computed_with_other_weights_and_from_its_own_past(monkeypatch):
  """What is measured against a loop of whole steps, whose context is another in the last one."""
  config = ModelConfig(
    source_vocabulary=13, target_vocabulary=11, embedding=3, units=5, alignment=7, maxout=2,
    initialisation="luong", biases=True,
  )  # fmt: skip
  params = jax.tree.map(lambda leaf: 8 * leaf, init(config, jax.random.key(3)))
  links = np.array([[0, 1], [3, 0]])
  corpus = catalog.Corpus(("a b c d e f g", "b d h i"), ("A", "B G"), (links[:1], links))
  monkeypatch.setattr(alignment_runs.catalog, "load", lambda *given: corpus)
  sides = Vocabulary(tuple("abcdefghi"), "symbol"), Vocabulary(tuple("ABCDEFG"), "symbol")
  train = TrainConfig(model=config, data=DataConfig(name="lexicon", bucket_edges=(6,)))
  trained = Trained(params, train, *sides, 0)
  measured = alignment_runs.measure(trained, "", sizes=Sizes(starts=3, updates=30))
  assert measured["lengths"] == [5, 5, 5]  # the other source is longer than what is trained on
  found, target = measured["replaced"], [5, 10, 2]
  source, length = np.array([[5, 7, 11, 12, 2]]), np.array([5])
  model = bind(config, params)
  memory = model.encode(source, length)
  for place, label in enumerate(target):
    state, words = model.start(memory), [BOS, *target]
    for before in range(place):
      state = model.step(memory, state, jnp.array([words[before]]))[1].state
    previous = jnp.array([words[place]])
    own, _ = model.step(memory, state, previous)
    even = attn.context(jnp.full((1, 5), 0.2), memory.values)
    word = model.decoder.word(model.target[...][previous], previous == BOS)
    new = model.decoder.update(state.layers, word, even)
    other = jax.nn.log_softmax(model.decoder.logits(model.decoder.readout(new[-1], word, even)))
    change = float(alignment_runs.variation(own, other)[0])
    np.testing.assert_allclose(found["uniform change"][place], change, rtol=1e-3, atol=2e-6)
    lost = float(own[0, label] - other[0, label])
    np.testing.assert_allclose(found["uniform loss"][place], lost, rtol=1e-3, atol=2e-6)
    assert change > 1e-4 and found["turned change"][place] > 1e-4
  assert 0 < max(found["farthest"]) <= np.log(2)


@pytest.mark.parametrize(
  ("watched", "least", "most"),
  # What the output does not see may all move; where it sees all, next to nothing may.
  [((1.0, 0.0, 0.0), 0.78, 0.84), ((1.0, 1.0, 1.0), 0.0, 0.02)],
)
def test_a_search_goes_as_far_as_the_output_lets_it(watched, least, most):
  own = jnp.array([[0.2, 0.8, 0.0]])

  def ends(logits):
    given = jax.nn.softmax(logits)
    change = (jnp.abs(given - own) * jnp.array(watched)).sum(-1) / 2
    far = alignment_runs.divergence(given, own)
    return (alignment_runs.excess(change, sizes) - far).sum(), (far, change)

  sizes = Sizes(updates=300, change=0.01)
  found = alignment_runs.search(ends, jnp.array([[0.0, 1.0, 2.0]]), sizes)
  assert least <= float(found[0]) / np.log(2) <= most


def runs(error, given=0.9, right=0.95, far=0.6, turned=0.95):
  """Three seeds of one model on one task."""
  steps = 40
  made = []
  for jitter in (-0.001, 0.0, 0.001):
    share = lambda of: np.arange(steps) < steps * of  # noqa: E731
    made.append({
      "right": right,
      "nats": 0.1,
      "error_rates": {
        OUTPUT: error + jitter, INPUT: given + jitter, "diagonal": 0.6, "chance": 0.8,
      },
      "replaced": {
        "farthest": np.where(share(far), 0.5, 0.1), "uniform change": share(turned) * 0.5,
        "uniform loss": share(turned) * 1.0, "turned change": share(turned) * 0.5,
        "turned loss": share(turned) * 1.0,
      },
      "weights": np.eye(5)[np.arange(steps) % 3],
      "lengths": np.full(steps, 3),
    })  # fmt: skip
  return made


def measured(**changes):
  cells = {"additive": runs(0.1), "location": runs(0.5, 0.5), "local-m": runs(0.2),
           "local-p": runs(0.3)}  # fmt: skip
  return {f"lexicon-{model}": changes.get(model, found) for model, found in cells.items()}


def test_every_claim_is_judged_from_the_runs():
  config = alignment.Config()

  def judged(**changes):
    return {claim.number: claim for claim in alignment.judge(config, measured(**changes))}

  found = judged()
  assert tuple(found) == alignment.CLAIMS
  assert [claim.verdict for claim in found.values()] == [R, Q]
  assert "not lower" in found["L6"].why and found["L6"].interval[0] > 0
  assert judged(additive=runs(0.1, far=0.2))["55"].verdict == C
  part = judged(additive=runs(0.1, far=0.2, turned=0.5))["55"]
  assert part.verdict == Q and "a part of the steps" in part.why
  assert judged(additive=runs(0.7))["55"].verdict == C
  unsure = judged(additive=runs(0.6))["55"]
  assert unsure.verdict == N and "open for lexicon-additive" in unsure.why
  assert judged(additive=runs(0.1, right=0.5))["55"].verdict == N
  assert judged(location=runs(0.1))["L6"].verdict == C
  only = dataclasses.replace(config, models=("additive",))
  assert alignment.judge(only, {"lexicon-additive": runs(0.1)})[1].verdict == N


def test_seeds_that_agree_are_nearer_than_their_turned_weights():
  found = alignment_runs.agreement(runs(0.1))
  assert max(found["seeds"]) == 0.0
  assert min(found["turned"]) == pytest.approx(np.log(2), rel=1e-5)
  assert 0.1 < min(found["uniform"]) < np.log(2)


def test_cells_leave_a_model_to_one_of_two_processes():
  config = configs.override(alignment.Config(), alignment.profiles()["full"])
  names = list(alignment_runs.cells(config.train, config.models, config.tasks))
  assert len(names) == len(config.models) * len(config.tasks)
  halves = [{name.partition("-")[2] for name in names[start:8:2]} for start in (0, 1)]
  assert not halves[0] & halves[1]


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"seeds": 2}, "seeds is 2"),
    ({"models": ("dot",)}, "models has 'dot'"),
    ({"tasks": ()}, "tasks is"),
    ({"sizes.pairs": 0}, "pairs is 0"),
    ({"sizes.change": 1.0}, "change is 1.0"),
    ({"train.seed": 3}, "train.seed is 3"),
    ({"train.model.window": "local_m"}, "train.model.window is 'local_m'"),
  ],
)
def test_what_shows_nothing_or_is_set_here_is_refused(change, message):
  with pytest.raises(configs.ConfigError, match=message):
    configs.override(alignment.Config(), change)


def test_profiles_and_sweeps_are_configurations():
  for overrides in [
    *alignment.profiles().values(), *alignment.sweep_quick(), *alignment.sweep_paper()
  ]:  # fmt: skip
    configs.override(alignment.Config(), overrides)


def test_a_run_leaves_every_file(tmp_path, monkeypatch):
  monkeypatch.setattr(alignment.workers, "grid", lambda *given: measured())
  monkeypatch.setattr(alignment.catalog, "prepare", lambda *given: None)
  result = alignment.run(alignment.Config(), tmp_path)
  assert tuple(claim.number for claim in result.claims) == alignment.CLAIMS
  assert len(result.figures) == 2
  for path in result.figures:
    assert (tmp_path / path).stat().st_size > 1000
