"""Tests of `experiments.two_roles`: the rules, what is trained, and the arithmetic."""

import dataclasses

import jax
import numpy as np
import pytest

from attn import configs
from attn.evaluation.intervals import Interval
from attn.models import ModelConfig
from attn.models.functional import init, parameter_count
from attn.report import results
from experiments import two_roles, two_roles_recall, two_roles_runs
from experiments.two_roles_recall import Found, Recall

R, Q = results.REPRODUCED, results.QUALIFIED
C, N = results.CONTRADICTED, results.NOT_RESOLVED
ABOVE, BELOW, EQUAL, WIDE = (
  Interval((low + high) / 2, low, high, 3)
  for low, high in ((1.0, 2.0), (-2.0, -1.0), (-0.01, 0.01), (-1.0, 1.0))
)
TASK = Recall(symbols=11, pairs=5, widths=(3, 6))


@pytest.mark.parametrize(
  ("differences", "other", "verdict"),
  [
    ((1e-7, 1e-6), 0.5, R),
    ((1e-7, 1e-4), 0.5, C),
    ((1e-7, 1e-6), 1e-6, N),
  ],
)
def test_contexts_may_be_the_same_differ_or_be_the_same_whatever_the_values(
  differences, other, verdict
):
  assert two_roles.same_arithmetic(differences, other) == verdict


@pytest.mark.parametrize(
  ("costs", "verdict"),
  [
    ((ABOVE, ABOVE), R),
    ((ABOVE, EQUAL), Q),
    ((ABOVE, BELOW), Q),
    ((EQUAL, BELOW), C),
    ((EQUAL, WIDE), N),
  ],
)
def test_one_vector_may_cost_everywhere_somewhere_or_nowhere(costs, verdict):
  assert two_roles.compromises(costs) == verdict


def test_arms_have_as_many_parameters():
  for shared in (3, 6, 12, 24, 48):
    counts = {}
    for arm in two_roles_recall.ARMS:
      size = two_roles_recall.width(arm, shared, 64)
      has = two_roles_recall.shape(arm, size, 64, 64)
      counts[arm] = sum(part.sum() for part in has)
    assert counts["shared"] == counts["split"] == 4 * 64 * shared
    assert abs(counts["projected"] / counts["shared"] - 1) < 0.06


def parameters(arm, size=8, room=13):
  has = two_roles_recall.shape(arm, size, TASK.symbols, room)
  return two_roles_recall.start(has, jax.random.key(3))


@pytest.mark.parametrize("arm", two_roles_recall.ARMS)
def test_arms_compute_what_their_equations_say(arm):
  given = two_roles_recall.draw(TASK, 7, jax.random.key(5))
  mine = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), parameters(arm))
  found = two_roles_recall.logits(parameters(arm), given)
  for row, (keys, values, asked) in enumerate(zip(*map(np.asarray, given), strict=True)):
    assert len(set(keys)) == TASK.pairs
    memory = np.tanh(mine.key[keys] + mine.value[values])
    # Where a vector is split its first half alone is a key, and its second a value.
    as_keys, as_values = memory[:, :8], memory[:, :8]
    query, out = mine.query[keys[asked], :8], mine.out[:, :8]
    if arm == "split":
      as_keys, as_values, query, out = memory[:, :4], memory[:, 4:8], query[:4], out[:, 4:]
    if arm == "projected":
      as_keys = as_keys @ mine.to_keys[:8, :8].T
      as_values = as_values @ mine.to_values[:8, :8]
    raised = np.exp(as_keys @ query)
    expected = out @ (raised / raised.sum() @ as_values)
    np.testing.assert_allclose(found[row], expected, rtol=1e-4, atol=1e-5)


def test_a_shared_vector_contains_the_split_one_and_no_narrower_one_does():
  split = parameters("split")
  assert two_roles_recall.embedded(TASK, split, 8) < 1e-6
  given = two_roles_recall.draw(TASK, 7, jax.random.key(5))
  narrower = jax.tree.map(lambda leaf: leaf.at[..., 7:].set(0), split)
  whole, less = (two_roles_recall.logits(one, given) for one in (split, narrower))
  assert abs(whole - less).max() > 1e-3


def test_attend_with_one_matrix_twice_is_the_loop():
  assert set(two_roles_runs.against_loops(7)) == {"dot", "additive"}
  assert max(two_roles_runs.against_loops(7).values()) < two_roles.TOLERANCE


def test_a_split_model_gets_the_parameters_of_the_shared_one():
  shared = ModelConfig(
    source_vocabulary=13, target_vocabulary=11, embedding=7, units=16, alignment=5, maxout=3
  )
  split = two_roles_runs.balanced(shared)
  assert split.memory == "split" and split.units > shared.units
  off = [
    abs(
      parameter_count(dataclasses.replace(split, units=split.units + by)) - parameter_count(shared)
    )
    for by in (-1, 0, 1)
  ]
  assert min(off) == off[1]


def test_costs_are_judged_and_told():
  config = two_roles.Config(recall=TASK)

  def of(*losses):
    """Runs of three seeds at each width."""
    return [
      Found(width, 44 * width, 0.02, tuple(nats + x * nats for x in (-1e-3, 0.0, 1e-3)), (0.5,) * 3)
      for width, nats in zip(TASK.widths, losses, strict=True)
    ]

  def judged(narrow, wide):
    found = {"shared": of(narrow, wide), "split": of(1.0, 1.0)}
    return two_roles._judge_compromise(two_roles.costs(config, found, {}), 1e-8)

  assert judged(2.0, 2.0).verdict == R
  qualified = judged(2.0, 1.0)
  assert qualified.verdict == Q and "recall, 3 wide" in qualified.why
  assert judged(1.0, 1.0).verdict == C
  assert judged(2.0, 0.5).why.count("better") == 1


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"seeds": 2}, "seeds is 2"),
    ({"models": ("general",)}, "models is"),
    ({"train.model.score": "general"}, "train.model.score is 'general'"),
    ({"g2p.data.name": "reverse"}, "g2p.data.name is 'reverse'"),
    ({"recall.widths": (3, 4)}, "widths is"),
    ({"recall.widths": (6, 3)}, "widths is"),
    ({"recall.pairs": 1}, "pairs is 1"),
    ({"recall.updates": 0}, "updates is 0"),
  ],
)
def test_what_shows_nothing_or_is_set_here_is_refused(change, message):
  with pytest.raises(configs.ConfigError, match=message):
    configs.override(two_roles.Config(), change)


def test_profiles_and_sweeps_are_configurations():
  for overrides in [
    *two_roles.profiles().values(), *two_roles.sweep_quick(), *two_roles.sweep_paper()
  ]:  # fmt: skip
    configs.override(two_roles.Config(), overrides)


@pytest.mark.parametrize("name", two_roles_runs.MODELS)
def test_contexts_of_a_model_are_those_of_attend_with_annotations_twice(name):
  sizes = {"embedding": 3, "units": 2, "alignment": 5, "maxout": 7, "initialisation": "luong"}
  vocabularies = {"source_vocabulary": 13, "target_vocabulary": 11}
  config = ModelConfig(**vocabularies, **sizes, **two_roles_runs.MODELS[name])
  params = jax.tree.map(lambda leaf: 8 * leaf, init(config, jax.random.key(3)))
  source, target = np.array([[5, 7, 11, 12, 2], [5, 9, 2, 0, 0]]), np.array([[3, 2], [10, 2]])
  found = two_roles_runs.differences(config, params, source, np.array([5, 3]), target)
  assert found["model"] < two_roles.TOLERANCE and found["other"] > 1e-2


@pytest.mark.slow
def test_recall_is_learned_in_every_arm_and_a_run_leaves_every_file(tmp_path, monkeypatch):
  monkeypatch.setattr(two_roles.workers, "grid", lambda *given: {"dot": [{"model": 0, "other": 1}]})
  monkeypatch.setattr(two_roles.catalog, "prepare", lambda *given: None)
  easy = {"recall.symbols": 4, "recall.pairs": 2, "recall.widths": (12,), "recall.updates": 100,
          "recall.test": 128}  # fmt: skip
  result = two_roles.run(configs.override(two_roles.Config(), easy), tmp_path)
  verdicts = {claim.number: claim.verdict for claim in result.claims}
  assert tuple(verdicts) == two_roles.CLAIMS and verdicts["54"] == R
  losses = {name: metric.mean for name, metric in result.metrics.items() if "loss" in name}
  assert len(losses) == 3 and max(losses.values()) < np.log(2)
  for path in result.figures:
    assert (tmp_path / path).stat().st_size > 1000
