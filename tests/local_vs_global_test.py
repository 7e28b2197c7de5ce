"""The rules of `experiments.local_vs_global` come out every way; weights and links are counted."""

import contextlib
import dataclasses
import json

import numpy as np
import pytest

from attn import configs
from attn.evaluation import alignment
from attn.evaluation.intervals import Interval
from attn.report import results
from experiments import local_vs_global, local_vs_global_claims, local_vs_global_figures
from experiments import local_vs_global_runs as runs
from experiments.local_vs_global_claims import BEST, NAMED
from experiments.local_vs_global_programs import Program, mass_of_equal_scores
from experiments.local_vs_global_runs import VERSES, Followed, Group, Measured, Shown

R, Q, C, N = results.REPRODUCED, results.QUALIFIED, results.CONTRADICTED, results.NOT_RESOLVED
ABOVE, BELOW, WIDE = (Interval(m, m - 1, m + 1, 3) for m in (2.0, -2.0, 0.5))

# Eleven positions, D = 2.
ALL = Program((11, 11), (11, 11), None, None, 0.0)
STILL = Program((3, 5), (3, 5), 2.0, (0.0, 1.0), 0.0)
MOVES = Program((4, 4), (4, 4), 1.7, (3.2, 4.1), 0.6)
WINDOWS = {"global": ALL, "local-m": STILL, "local-p": MOVES}


@pytest.mark.parametrize(
  ("changed", "verdict"),
  [
    ({}, Q),
    ({"local-m": STILL._replace(follows=0.1)}, R),
    ({"local-p": MOVES._replace(follows=0.0)}, C),
    ({"global": ALL._replace(scored=(11, 10))}, C),
    ({"global": ALL._replace(positive=(11, 10))}, C),
    ({"local-p": MOVES._replace(scored=(4, 6))}, C),
    ({"local-m": STILL._replace(farthest=3.0)}, C),
  ],
)
def test_windows_must_hold_what_they_say_and_one_may_be_predicted_or_both(changed, verdict):
  found = {**WINDOWS, **changed}
  assert local_vs_global_claims.scores_window(found, half_width=2, positions=11) == verdict


@pytest.mark.parametrize(
  ("first", "second", "comparable", "verdict"),
  [
    ((ABOVE, ABOVE), (ABOVE, ABOVE), True, R),
    ((ABOVE, ABOVE), (ABOVE, WIDE), True, Q),
    ((ABOVE, ABOVE), (BELOW, BELOW), True, Q),
    ((ABOVE, BELOW), (WIDE, BELOW), True, C),
    ((ABOVE, WIDE), (WIDE, BELOW), True, N),
    ((ABOVE, ABOVE), (ABOVE, ABOVE), False, N),
  ],
)
def test_the_best_is_ahead_of_all_by_all_measures_on_all_data(first, second, comparable, verdict):
  found = {"one": first, "other": second}
  assert local_vs_global_claims.best(found, comparable=comparable) == verdict


def measured(nats, wrong, bleu=None, error=20.0):
  """Three seeds of one cell."""
  return [
    Measured(
      nats=nats + jitter,
      wrong=wrong + jitter,
      alignment_error=error + jitter,
      input_error=50.0,
      bleu=None if bleu is None else bleu + jitter,
      near=70.0 + jitter,
      mass=0.8,
      apart=1.5,
      reached=90.0,
      groups=(Group("0-5", 7, wrong, error, 0.0), Group("6+", 3, wrong, error, 40.0)),
      centres=(0.5, 1.5),
      linked=(1.0, None),
      shown=Shown(["a", "b"], ["B", "A"], [[0.1, 0.7], [0.6, 0.2]], [[0, 1], [1, 0]]),
    )
    for jitter in (-0.001, 0.0, 0.001)
  ]


def trained(best, others, *, verses=True):
  """All named cells on a task and, if asked for, on verses; loss and errors of best and others."""
  letters = {name: measured(*(best if name == BEST else others)) for name in NAMED}
  if not verses:
    return {"reverse": letters}
  bleu = {name: measured(2.0, 60.0, 9.0 if name == BEST else 7.0) for name in NAMED}
  lower = [dataclasses.replace(one, nats=one.nats - 1) for one in bleu[BEST]]
  return {"reverse": letters, VERSES: {**bleu, BEST: lower}}


@pytest.mark.parametrize(
  ("best", "others", "verses", "verdict", "told"),
  [
    ((0.1, 3.0), (0.2, 5.0), True, R, "by both measures on all data"),
    ((0.3, 3.0), (0.2, 5.0), True, Q, f"True on {VERSES} alone"),
    ((0.1, 3.0), (0.2, 5.0), False, N, "verses among them"),
    ((3.0, 90.0), (3.5, 95.0), True, N, "have learned their letters"),
  ],
)
def test_the_best_cell_is_judged_from_the_runs(best, others, verses, verdict, told):
  found = local_vs_global_claims.judge(
    WINDOWS, trained(best, others, verses=verses), half_width=2, positions=11
  )
  judged = {claim.number: claim for claim in found}
  assert tuple(judged) == local_vs_global.CLAIMS
  assert judged["57"].verdict == Q and "sum to 0.57568" in judged["57"].measured
  assert judged["L4"].verdict == verdict and told in judged["L4"].why


def test_without_all_named_cells_nothing_is_compared():
  by_title = {BEST: measured(0.1, 3.0), "global general": measured(0.2, 5.0)}
  *_, judged = local_vs_global_claims.judge(
    WINDOWS, {"reverse": by_title}, half_width=2, positions=11
  )
  assert judged.verdict == N and judged.interval is None


def test_the_mass_of_equal_scores_is_that_of_the_facts():
  np.testing.assert_allclose(mass_of_equal_scores(10), 0.57568, atol=5e-6)
  offsets = np.arange(-3, 4)
  np.testing.assert_allclose(
    mass_of_equal_scores(3), np.exp(-2 * (offsets / 3) ** 2).mean(), rtol=1e-6
  )


def followed(weights, centre=None):
  """A target of t symbols and its end, which attends to the first symbol of the source."""
  weights = np.array([*weights, [1.0, *[0.0] * (len(weights[0]) - 1)]])
  centre = None if centre is None else np.array([*centre, 0.0])
  return Followed(np.zeros(len(weights)), np.ones(len(weights), bool), weights, centre)


def test_weights_near_t_are_counted_without_the_end():
  found = [followed([[0.5, 0.1, 0.4], [0.2, 0.3, 0.5], [0.1, 0.2, 0.2]])]
  np.testing.assert_allclose(runs.near(found, 1), (0.6 + 1.0 + 0.4) / 2.5)
  np.testing.assert_allclose(runs.near(found, 0), (0.5 + 0.3 + 0.2) / 2.5)


def test_errors_are_summed_by_length():
  links = [[(0, 0)], [(0, 2), (1, 1), (2, 0)], [(0, 0), (1, 2)]]
  made = [[(0, 0)], [(0, 2), (1, 1), (0, 0)], [(1, 0), (0, 2)]]
  found = runs.groups(
    np.array([[0, 1], [1, 3], [2, 3]]),
    alignment.link_counts(made, links),
    links,
    np.array([1, 3, 3]),
    edges=(2,),
    half_width=1,
  )
  assert [one.label for one in found] == ["0-2", "3+"] and [one.sources for one in found] == [1, 2]
  np.testing.assert_allclose([one.wrong for one in found], [0, 50])
  np.testing.assert_allclose([one.alignment_error for one in found], [0, 100 * (1 - 4 / 10)])
  np.testing.assert_allclose([one.beyond for one in found], [0, 100 * 2 / 5])
  with pytest.raises(results.ResultError, match="no test source has 0 symbols"):
    runs.groups(
      np.array([[0, 1]]), alignment.link_counts(made[:1], links[:1]), links[:1], np.array([1]),
      edges=(0,), half_width=1,
    )  # fmt: skip


def three_windows(fixed, predicted):
  numbers = {"global": 4.0, "local-m": fixed, "local-p": predicted}
  return {f"{window} general": measured(0.5, wrong) for window, wrong in numbers.items()}


def test_the_title_says_that_a_window_breaks_only_where_it_does():
  said = local_vs_global_figures.windows(
    {"lexicon": three_windows(4.0, 5.0), "reverse": three_windows(44.0, 9.0)}, 2
  ).get_suptitle()
  said = " ".join(said.split())
  assert said.startswith(
    "Said backwards: the fixed window breaks (44.0% of symbols wrong, global 4.0%)"
  )
  assert "repairs 88% of that (9.0%)" in said
  assert said.endswith("in order: global 4.0%, local-m 4.0%, local-p 5.0% of symbols wrong")


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"seeds": 2}, "seeds is 2"),
    ({"tasks": ("walk",)}, "tasks is"),
    ({"cells": ("local dot",)}, "a cell is a window"),
    ({"cells": (BEST, BEST)}, "must be different cells"),
    ({"cells": ()}, "must be different cells"),
    ({"half_widths": (15,)}, "half_widths is"),
    ({"cells": (BEST,), "half_widths": (2, 5)}, "which cells lacks"),
    ({"cells": ("global none",)}, "without attention|whose context|score"),
    ({"letters.seed": 3}, "letters.seed is 3"),
    ({"letters.model.window": "local_m"}, "letters.model.window is 'local_m'"),
    ({"verses.data.name": "g2p"}, "verses.data.name is 'g2p'"),
  ],
)
def test_what_means_nothing_or_is_set_here_is_refused(change, message):
  with pytest.raises(configs.ConfigError, match=message):
    configs.override(local_vs_global.Config(), change)


def test_profiles_and_sweeps_are_configurations_and_share_programs():
  for overrides in (
    *local_vs_global.profiles().values(),
    *local_vs_global.sweep_quick(),
    *local_vs_global.sweep_paper(),
    *local_vs_global.sweep_verses(),
  ):
    configs.override(local_vs_global.Config(), overrides)
  # Of two models on two tasks, `workers.grid` gives every other cell to the same process.
  first = list(local_vs_global.cells(local_vs_global.Config()).values())[:4]
  assert [cell.name for cell in first[::2]] == ["global general"] * 2


@pytest.mark.slow
def test_a_tiny_run_leaves_every_file(tmp_path, monkeypatch):
  monkeypatch.setattr(local_vs_global.workers, "beside", lambda *_: contextlib.nullcontext())
  smoke = {
    **local_vs_global.profiles()["smoke"],
    "letters.data.data_dir": str(tmp_path / "data"),
    "cells": (BEST,),
    "lengths": (5,),
    "repeats": 3,
  }
  config = configs.override(local_vs_global.Config(), smoke)
  result = local_vs_global.run(config, tmp_path / "run")
  assert {claim.number: claim.verdict for claim in result.claims} == {"57": Q, "L4": N}
  found = Measured.read(
    json.loads(
      (tmp_path / "run/checkpoints/reverse-local-p-general-5/seed-0/measured.json").read_text()
    )
  )
  rows = np.array(found.shown.weights)
  assert rows.shape == (len(found.shown.target), len(found.shown.source))
  assert 0 < found.mass < 1 and 0 < found.near <= 100
  for path in result.figures:
    assert (tmp_path / "run" / path).stat().st_size > 1000
