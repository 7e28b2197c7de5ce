"""Counts of known programs, errors after a first one, and a rule that can fail."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn import configs
from attn.data import corpora
from attn.models import init
from attn.report import figures, results
from attn.training import Trained
from experiments import (
  teacher_forcing,
  teacher_forcing_figures,
  teacher_forcing_programs,
  teacher_forcing_runs,
)
from experiments.teacher_forcing import Found
from experiments.teacher_forcing_programs import FED, FIXED, KINDS, LUONG, SEARCH, Program

R, Q, C = results.REPRODUCED, results.QUALIFIED, results.CONTRADICTED


def test_products_are_counted_inside_and_outside_of_loops():
  def function(a, b):
    def step(carry, row):
      return jnp.tanh(carry @ b), row @ b

    return jax.lax.scan(step, a[0], a)[1] @ b

  jaxpr = jax.make_jaxpr(function)(jnp.ones((5, 3)), jnp.ones((3, 3))).jaxpr
  found = teacher_forcing_programs.count(jaxpr)
  assert found == Program(steps=5, inside=5 * 2 * 9, total=5 * 3 * 9)
  assert found.waiting == pytest.approx(100 * 2 / 3)


def test_a_loop_of_unknown_length_is_refused():
  jaxpr = jax.make_jaxpr(
    lambda x: jax.lax.while_loop(lambda x: x < 3.0, lambda x: x + 1, x)
  )(0.0).jaxpr  # fmt: skip
  with pytest.raises(NotImplementedError, match="counting a while"):
    teacher_forcing_programs.count(jaxpr)


def test_attention_waits_for_the_step_before_where_it_feeds_a_state():
  words, n = 7, 1000
  forced = {name: teacher_forcing_programs.forced(model, words) for name, model in KINDS.items()}
  assert {one.steps for one in forced.values()} == {words}
  # An LSTM's recurrence alone, or with what input feeding adds: two products of attention over
  # the source, h~ of state and context, and h~'s own way into the gates.
  assert forced[FIXED].inside == forced[LUONG].inside == words * 4 * n * n
  fed = 4 * n * n + 2 * words * n + 2 * n * n + 4 * n * n
  assert forced[FED].inside == words * fed
  assert forced[LUONG].total - forced[FIXED].total == words * (2 * words * n + 2 * n * n)
  gru, context = 3 * n * n, 3 * n * 2 * n
  attention = n * n + words * n + words * 2 * n
  assert forced[SEARCH].inside == words * (gru + context + attention)
  for name, model in KINDS.items():
    made = teacher_forcing_programs.generated(model, words)
    assert made.steps == words and made.waiting > forced[name].waiting
    output = 30_000 * model.maxout  # at least: the fixed vector's states are wider
    assert made.inside - forced[name].inside >= words * output


LESS, SAME, FREE = Program(5, 1, 3), Program(5, 2, 3), Program(0, 0, 3)


@pytest.mark.parametrize(
  ("found", "gap", "verdict"),
  [
    ([Found(FREE, SAME, 0.0, 0.1)], 0.0, R),
    ([Found(LESS, SAME, 0.0, 0.1)], 0.0, Q),
    ([Found(FREE, SAME, 0.0, 0.1), Found(LESS, SAME, 0.0, 0.1)], 0.0, Q),
    ([Found(SAME, SAME, 0.0, 0.1)], 0.0, C),
    ([Found(LESS, SAME, 0.1, 0.1)], 0.0, C),
    ([Found(LESS, SAME, 0.0, 0.0)], 0.0, C),
    ([Found(LESS, SAME, 0.0, 0.1)], 0.1, C),
  ],
)
def test_supervision_may_be_at_once_in_part_or_not(found, gap, verdict):
  assert teacher_forcing.at_once(found, gap) == verdict


def test_errors_after_the_first_are_of_the_same_symbols():
  real = np.arange(5) < np.array([[5], [3], [5], [5]])
  own = np.array([[0, 1, 1, 1, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0], [0, 0, 1, 0, 1]], bool)
  forced = np.array([[0, 1, 0, 1, 0], [0, 0, 1, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 1, 0]], bool)
  fed_truth, fed_own = teacher_forcing_runs.since_first(forced, own, real, 7)
  # Rows 0 and 3 go on after their first error at 1 and 2; row 1 ends with it, row 2 has none.
  np.testing.assert_allclose(fed_own, [50, 100, 0])
  np.testing.assert_allclose(fed_truth, [50, 50, 0])
  np.testing.assert_allclose(teacher_forcing_runs.by_place(own, real, 3), [0, 25, 75])


def measured(fed_own, since):
  return teacher_forcing_runs.Measured(
    losses=[0.5, 0.6, 0.7, 0.8, fed_own], symbol_errors=20.0, word_errors=60.0, forced_errors=15.0,
    forced_by_place=[5.0], own_by_place=[6.0], forced_since=[20.0, 10.0], own_since=[since, 9.0],
    gap=1e-5,
  )  # fmt: skip


def test_the_claim_tells_what_was_counted_and_measured():
  runs = {0.0: [measured(1.5 + jitter, 50 + jitter) for jitter in (-0.1, 0.0, 0.1)]}
  found = {"one": Found(LESS, SAME, 0.0, 0.1), "other": Found(FREE, SAME, 0.0, 0.1)}
  claim = teacher_forcing.judge(found, runs, 5)
  assert claim.number == "6" and claim.verdict == Q
  assert "+1 [+0.75, +1.2] nats" in claim.measured
  assert "+30 [+30, +30] points" in claim.measured
  assert "0% (other) to 33% (one)" in claim.why
  torn = {0.0: [dataclasses.replace(one, gap=0.1) for one in runs[0.0]]}
  assert teacher_forcing.judge(found, torn, 5).verdict == C


def test_quality_is_drawn_against_the_share_in_training():
  truth = [dataclasses.replace(measured(1.5, 50), symbol_errors=x) for x in (19.0, 20.0, 21.0)]
  mixed = [dataclasses.replace(one, symbol_errors=one.symbol_errors + 3) for one in truth]
  drawn = teacher_forcing_figures.quality({0.0: truth, 0.5: mixed})
  assert "50%" in figures.title_of(drawn) and "+3.0 [+3.0, +3.0] points" in figures.title_of(drawn)
  for axes, means in zip(drawn.axes, ([20, 23], [60, 60]), strict=True):
    np.testing.assert_allclose(axes.lines[0].get_xydata(), np.transpose([[0, 50], means]))
    assert "3 seeds" in axes.get_title(loc="left")


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"seeds": 2}, "seeds is 2"),
    ({"places": 0}, "places is 0"),
    ({"words": 2}, "words is 2"),
    ({"test": 0}, "test is 0"),
    ({"shares": (0.5,)}, "shares is"),
    ({"shares": (0.5, 0.0)}, "shares is"),
    ({"shares": (0.0, 1.5)}, "sampling is 1.5"),
    ({"train.seed": 3}, "train.seed is 3"),
    ({"train.objective.sampling": 0.5}, "train.objective.sampling is 0.5"),
    ({"train.model.dropout": 0.1}, "needs model.dropout=0"),
  ],
)
def test_what_shows_nothing_or_is_set_here_is_refused(change, message):
  with pytest.raises(configs.ConfigError, match=message):
    configs.override(teacher_forcing.Config(), change)


def test_profiles_and_sweeps_are_configurations():
  for overrides in (
    *teacher_forcing.profiles().values(),
    *teacher_forcing.sweep_quick(),
    *teacher_forcing.sweep_paper(),
  ):
    configs.override(teacher_forcing.Config(), overrides)


@pytest.mark.slow
def test_a_tiny_run_leaves_every_file(tmp_path, monkeypatch):
  """One model is measured, untrained, in place of every run."""

  def grid(cells, seeds, folder, measure):
    (config,) = cells.values()
    vocabularies = corpora.vocabularies(config.data, corpora.load(config.data, "train"))
    sizes = dict(zip(("source", "target"), map(len, vocabularies), strict=True))
    config = configs.override(config, {f"model.{k}_vocabulary": n for k, n in sizes.items()})
    trained = Trained(init(config.model, jax.random.key(3)), config, *vocabularies, step=0)
    found = json.loads(results.to_json(measure(trained, "one")))
    return {cell: [found] * len(seeds) for cell in cells}

  monkeypatch.setattr(teacher_forcing.workers, "grid", grid)
  monkeypatch.setattr(teacher_forcing, "KINDS", {LUONG: KINDS[LUONG]})
  tiny = {
    **teacher_forcing.profiles()["smoke"],
    "train.data.data_dir": str(tmp_path / "data"),
    "train.data.name": "copy",  # g2p wants a network
    "train.data.bucket_edges": (13,),
    "train.model.score": "none",
    "shares": (0.0,),
  }
  result = teacher_forcing.run(configs.override(teacher_forcing.Config(), tiny), tmp_path / "run")
  assert [claim.verdict for claim in result.claims] == [Q]  # it asks for no training
  assert len(result.figures) == 3
  for path in result.figures:
    assert (tmp_path / "run" / path).stat().st_size > 1000
  loss = result.metrics["loss fed 0% of its own, trained on 0% of its own"].mean
  assert 2 < loss < 4  # 24 symbols, untrained: ln 24
