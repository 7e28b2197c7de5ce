"""The rules of `experiments.order_of_the_step` can come out every way; its Jacobians are right."""

import contextlib
import dataclasses
import json

import numpy as np
import pytest

from attn import configs
from attn.report import results
from experiments import order_of_the_step, workers
from experiments import order_of_the_step_claims as judging
from experiments import order_of_the_step_jacobians as jacobians
from experiments import order_of_the_step_runs as runs
from experiments.order_of_the_step_jacobians import ORDERS

REPRODUCED, QUALIFIED, CONTRADICTED = results.REPRODUCED, results.QUALIFIED, results.CONTRADICTED


@pytest.mark.parametrize(
  ("rule", "arguments", "verdict"),
  [
    ("stated", ([True, True, True],), REPRODUCED),
    ("stated", ([True, False, True],), QUALIFIED),
    ("stated", ([False, True, True],), CONTRADICTED),
    ("both", (True, True), REPRODUCED),
    ("both", (True, False), CONTRADICTED),
    ("close", ([1e-7, 1e-6],), REPRODUCED),
    ("close", ([1e-7, 1e-3],), CONTRADICTED),
    ("close", ([float("nan")],), CONTRADICTED),
    ("close", ([1e-7], [0.0, 1e-9]), CONTRADICTED),
    ("cannot_swap", ([True] * 3, [1, 1, 1]), REPRODUCED),
    ("cannot_swap", ([True] * 3, [1, 2, 1]), QUALIFIED),
    ("cannot_swap", ([True] * 3, [2, 1, 1]), CONTRADICTED),
    ("cannot_swap", ([True, True, False], [1, 1, 1]), CONTRADICTED),
    ("scores_of", ({"additive"}, {"dot", "a", "b"}, {"dot", "a", "b"}), REPRODUCED),
    ("scores_of", ({"additive"}, {"dot", "a", "b", "c"}, {"dot", "a", "b"}), QUALIFIED),
    ("scores_of", ({"additive"}, {"dot", "a"}, {"dot", "a"}), CONTRADICTED),
    ("scores_of", ({"additive", "dot"}, {"dot", "a", "b"}, {"dot", "a", "b"}), CONTRADICTED),
  ],
)
def test_every_rule_can_come_out_every_way(rule, arguments, verdict):
  assert getattr(judging, rule)(*arguments) == verdict


@pytest.mark.parametrize(
  ("change", "verdict"),
  [
    ({}, QUALIFIED),
    ({"readout": False}, REPRODUCED),
    ({"state": False}, CONTRADICTED),
    ({"luongs_state": True}, CONTRADICTED),
    ({"luongs_readout": 0.1}, CONTRADICTED),
    ({"luongs_readout": float("nan")}, CONTRADICTED),
  ],
)
def test_where_the_context_goes_can_be_elsewhere(change, verdict):
  usual = {"state": True, "luongs_state": False, "luongs_readout": 1e-7, "readout": True}
  assert judging.goes_into(**{**usual, **change}) == verdict


def test_possible_orders_are_those_in_which_each_action_has_what_it_needs():
  needs = {"scores": (), "weights": ("scores",), "context": ("weights",), "state": ("context",)}
  assert judging.possible({**needs, "output": ("state",)}) == [judging.STATED]
  assert len(judging.possible({**needs, "output": ("context",)})) == 2
  assert not judging.possible({**needs, "output": (), "scores": ("context",)})


# What stands in the equations of each order, besides the annotations.
EQUATIONS = {
  "bahdanau": ({"s_{i-1}"}, {"y_{i-1}", "s_{i-1}", "c_i"}, {"y_{i-1}", "s_i", "c_i"}),
  "bahdanau_appendix": (
    {"s_{i-1}"}, {"y_{i-1}", "s_{i-1}", "c_i"}, {"y_{i-1}", "s_{i-1}", "c_i"},
  ),
  "groundhog": ({"s_{i-1}"}, {"y_{i-1}", "s_{i-2}", "c_{i-1}"}, {"y_{i-1}", "s_{i-1}", "c_i"}),
  "luong": ({"s_i"}, {"y_{i-1}", "s_{i-1}"}, {"s_i", "c_i"}),
  "conditional_gru": ({"s'_i"}, {"s'_i", "c_i"}, {"y_{i-1}", "s_i", "c_i"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def steps():
  return {order: jacobians.measure(order, 1) for order in ORDERS}


@pytest.mark.parametrize("order", ORDERS)
def test_direct_jacobians_are_what_stands_in_the_equations(steps, order):
  step = steps[order]
  scores, state, output = EQUATIONS[order]
  assert step.needs("scores") == scores | {"h_j"}
  assert step.needs("weights") == {"e_i"}
  assert step.needs("context") == {"e_i", "h_j"}
  assert step.needs("state") == state
  assert step.needs("output") == output
  assert max(step.weights_apart, step.context_apart) < 1e-6 and step.padding == 0
  blind = order in ("bahdanau", "bahdanau_appendix")
  assert (jacobians.WORD in step.sees("scores")) == (not blind)
  assert (step.readout_apart < 1e-6) == (order == "luong")


def test_total_jacobians_hold_what_goes_through_other_actions(steps):
  assert "h_j" in steps["bahdanau"].sees("state") - steps["bahdanau"].needs("state")
  assert "c_i" not in steps["bahdanau"].sees("scores")


def test_the_papers_attend_with_and_to_what_they_say():
  found = jacobians.papers(0)
  assert found.scores == {
    "Bahdanau": {"additive"},
    "Luong": {"location", "dot", "general", "concat"},
  }
  assert found.content == {"dot", "general", "concat"}
  assert found.widths == {"Bahdanau": (2.0, 1), "Luong": (1.0, 4)}
  assert found.both_ways == {"Bahdanau": True, "Luong": False}
  *whole, local_m, local_p = found.reads.values()
  assert whole == [13, 13] and local_m == 5 and local_p in (4, 5)


def trained(losses):
  """Runs of two seeds whose test loss is the order's, and hardly another."""
  return {
    order: [runs.Measured((1, 2), (2.0, loss), loss + shift, None) for shift in (0.0, 0.01)]
    for order, loss in losses.items()
  }


def evidence(steps, losses):
  papers = jacobians.Papers(
    scores={"Bahdanau": {"additive"}, "Luong": {"location", "dot", "general", "concat"}},
    content={"dot", "general", "concat"}, widths={"Bahdanau": (2.0, 1), "Luong": (1.0, 4)},
    both_ways={"Bahdanau": True, "Luong": False},
    reads={"Bahdanau, global": 13, "Luong, global": 13, "Luong, local_m": 5}, positions=13,
    window=5,
  )  # fmt: skip
  return judging.Evidence(steps, papers, {runs.WALK: trained(losses)})


def test_every_claim_is_judged_and_can_be_judged_otherwise(steps):
  losses = dict(zip(ORDERS, (1.3, 1.35, 0.75, 0.75, 0.75), strict=True))
  judged = {claim.number: claim for claim in judging.judge(evidence(steps, losses))}
  assert tuple(judged) == order_of_the_step.CLAIMS
  qualified = {number for number, claim in judged.items() if claim.verdict == QUALIFIED}
  assert qualified == {"32", "36", "37", "38", "70b", "70c", "70d"}
  assert {claim.verdict for claim in judged.values()} == {REPRODUCED, QUALIFIED}
  assert all(claim.measured and claim.why for claim in judged.values())
  np.testing.assert_allclose(judged["70b"].interval, 0.575, atol=1e-9)
  # With the two papers' steps exchanged, what is said of each is wrong.
  swapped = {**steps, "bahdanau": steps["luong"], "luong": steps["bahdanau"]}
  judged = {claim.number: claim.verdict for claim in judging.judge(evidence(swapped, losses))}
  for number in ("32", "33", "36", "37", "38", "39", "69", "70a", "70b", "70c"):
    assert judged[number] == CONTRADICTED, number


@pytest.mark.parametrize(
  ("number", "change"),
  [
    ("70e", {"widths": {"Bahdanau": (1.0, 1), "Luong": (1.0, 4)}}),
    ("70e", {"widths": {"Bahdanau": (2.0, 1), "Luong": (2.0, 4)}}),
    ("70e", {"widths": {"Bahdanau": (2.0, 1), "Luong": (1.0, 1)}}),
    ("70e", {"both_ways": {"Bahdanau": False, "Luong": False}}),
    ("70e", {"both_ways": {"Bahdanau": True, "Luong": True}}),
    ("70f", {"reads": {"Bahdanau, global": 12, "Luong, global": 13, "Luong, local_m": 5}}),
    ("70f", {"reads": {"Bahdanau, global": 13, "Luong, global": 12, "Luong, local_m": 5}}),
    ("70f", {"reads": {"Bahdanau, global": 13, "Luong, global": 13, "Luong, local_m": 6}}),
    ("70f", {"reads": {"Bahdanau, global": 13, "Luong, global": 13, "Luong, local_m": 0}}),
  ],
)
def test_what_the_papers_attend_to_can_be_otherwise(steps, number, change):
  found = evidence(steps, dict.fromkeys(ORDERS, 1.0))
  verdicts = {
    each: {claim.number: claim.verdict for claim in judging.judge(found._replace(papers=papers))}
    for each, papers in (("as told", found.papers), ("otherwise", found.papers._replace(**change)))
  }
  assert verdicts["as told"][number] == REPRODUCED
  assert verdicts["otherwise"] == {**verdicts["as told"], number: CONTRADICTED}


def test_orders_are_apart_by_whether_the_score_has_seen_the_word(steps):
  losses = dict(zip(ORDERS, (1.3, 1.4, 0.7, 0.8, 0.9), strict=True))
  gap = judging.apart(evidence(steps, losses))
  assert gap.n == 2 and gap.low > 0
  np.testing.assert_allclose(gap.mean, 1.35 - 0.8)


@pytest.mark.parametrize(
  "change, message",
  [
    ({"seeds": 2}, "seeds is 2"),
    ({"test": 0}, "test is 0"),
    ({"data": ()}, "data is"),
    ({"data": ("walk", "copy")}, "data is"),
    ({"orders": ("bahdanau", "groundhog")}, "orders is"),
    ({"orders": ("bahdanau", "luong", "luong")}, "orders is"),
    ({"walk.model.order": "luong"}, "walk.model.order is 'luong'"),
    ({"walk.validate_every": None}, "walk.validate_every is none"),
    ({"g2p.data.name": "walk"}, "g2p.data.name is 'walk'"),
    ({"g2p.seed": 3}, "g2p.seed is 3"),
  ],
)
def test_settings_that_show_nothing_are_refused(change, message):
  with pytest.raises(configs.ConfigError, match=message):
    configs.override(order_of_the_step.Config(), change)


@pytest.mark.parametrize(
  "cells", [order_of_the_step.sweep_quick(), order_of_the_step.sweep_paper()]
)
def test_sweeps_are_of_different_settings(cells):
  made = [configs.override(order_of_the_step.Config(), cell) for cell in cells]
  assert len(set(made)) == len(cells) > 1


def test_the_orders_differ_in_what_their_step_asks_for_alone():
  config = order_of_the_step.Config().walk
  for order, choices in ORDERS.items():
    own = configs.override(config, {f"model.{name}": value for name, value in choices.items()})
    changed = {path for path, *_ in configs.differences(config, own)}
    assert changed <= {"model.order", "model.readout"}, order


@pytest.mark.slow
def test_a_smoke_run_leaves_every_file_and_a_second_one_trains_nothing(tmp_path, monkeypatch):
  monkeypatch.setattr(workers, "beside", lambda *_: contextlib.nullcontext())
  smoke = {**order_of_the_step.profiles()["smoke"], "walk.data.data_dir": str(tmp_path / "data")}
  config = configs.override(order_of_the_step.Config(), smoke)
  result = order_of_the_step.run(config, tmp_path / "run")
  assert result.seeds == (0, 1, 2)
  assert {claim.number for claim in result.claims} == set(order_of_the_step.CLAIMS)
  for path in result.figures:
    assert (tmp_path / "run" / path).stat().st_size > 1000
  folders = sorted((tmp_path / "run" / "checkpoints").iterdir())
  assert len(folders) == 6
  before = {folder: (folder / "metrics.jsonl").stat().st_mtime_ns for folder in folders}
  again = order_of_the_step.run(config, tmp_path / "run")
  assert {f: (f / "metrics.jsonl").stat().st_mtime_ns for f in folders} == before
  assert again.metrics == result.metrics
  one = json.loads((folders[0] / "measured.json").read_text())
  assert set(one) == {field.name for field in dataclasses.fields(runs.Measured)}
  assert len(one["dev"]) == len(one["updates"]) == 2
