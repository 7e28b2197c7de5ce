"""The rules of `experiments.bottleneck` can each come out every way, and a small run is whole."""

import dataclasses
import json
import os

import pytest

from attn import configs
from attn.data import catalog
from attn.evaluation.intervals import Interval
from attn.report import results
from experiments import bottleneck, workers
from experiments.bottleneck_runs import ARMS, ATTENTION, FIXED, Group, Measured

ABOVE, BELOW, WIDE = (Interval(m, m - 1, m + 1, 3) for m in (2.0, -2.0, 0.5))


@pytest.mark.parametrize(
  "differences, learned, verdict",
  [
    ((ABOVE, ABOVE), True, results.REPRODUCED),
    ((ABOVE, WIDE), True, results.QUALIFIED),
    ((ABOVE, BELOW), True, results.QUALIFIED),
    ((BELOW, BELOW), True, results.CONTRADICTED),
    ((WIDE, BELOW), True, results.NOT_RESOLVED),
    ((ABOVE, ABOVE), False, results.NOT_RESOLVED),
  ],
)
def test_a_difference_must_lie_above_zero_on_every_data_set(differences, learned, verdict):
  assert bottleneck.on_all(differences, learned=learned) == verdict


@pytest.mark.parametrize(
  "short, rises, learned, verdict",
  [
    (5.0, (ABOVE, ABOVE), True, results.QUALIFIED),
    (5.0, (ABOVE, WIDE), True, results.NOT_RESOLVED),
    (60.0, (ABOVE, ABOVE), True, results.NOT_RESOLVED),
    (5.0, (ABOVE, BELOW), True, results.CONTRADICTED),
    (5.0, (ABOVE, ABOVE), False, results.NOT_RESOLVED),
  ],
)
def test_few_errors_must_rise_with_length_on_every_data_set(short, rises, learned, verdict):
  assert bottleneck.falls((short, 1.0), rises, learned=learned) == verdict


@pytest.mark.parametrize(
  "rises, excesses, learned, verdict",
  [
    ((ABOVE, ABOVE), (ABOVE, ABOVE), True, results.REPRODUCED),
    ((ABOVE, ABOVE), (ABOVE, WIDE), True, results.QUALIFIED),
    ((ABOVE, ABOVE), (BELOW, BELOW), True, results.QUALIFIED),
    ((ABOVE, WIDE), (ABOVE, ABOVE), True, results.NOT_RESOLVED),
    ((BELOW, ABOVE), (ABOVE, ABOVE), True, results.CONTRADICTED),
    ((ABOVE, ABOVE), (ABOVE, ABOVE), False, results.NOT_RESOLVED),
  ],
)
def test_a_fall_is_the_fixed_vectors_own_if_attention_falls_less(rises, excesses, learned, verdict):
  assert bottleneck.falls_more(rises, excesses, learned=learned) == verdict


@pytest.mark.parametrize(
  "fixed, attention, verdict",
  [
    (0.0, 0.3, results.QUALIFIED),
    (1e-9, 0.3, results.CONTRADICTED),
    (0.0, 0.0, results.CONTRADICTED),
  ],
)
def test_contexts_must_be_one_vector_exactly_without_attention_only(fixed, attention, verdict):
  assert bottleneck.same_context(fixed, attention) == verdict


def measured(short, long, change, symbol_errors, kept):
  """One run, with a group of short and one of long sources."""
  groups = (Group("1-5", 10, short, short), Group("6+", 10, long, long))
  return Measured(20, symbol_errors, symbol_errors, groups, change, kept, None, None)


def test_every_claim_is_judged_from_the_runs():
  arms = {
    ATTENTION: [measured(1, 2, 0.5, 1.5, 80), measured(1, 2.1, 0.5, 1.6, 81)],
    FIXED: [measured(2, 20, 0.0, 11, 10), measured(2, 20.1, 0.0, 11.1, 11)],
  }
  judged = {claim.number: claim for claim in bottleneck.judge({"g2p": arms, "reverse": arms})}
  assert tuple(judged) == bottleneck.CLAIMS
  assert [judged[n].verdict for n in bottleneck.CLAIMS] == [
    results.QUALIFIED, results.REPRODUCED, results.QUALIFIED, results.REPRODUCED,
  ]  # fmt: skip
  swapped = {ATTENTION: arms[FIXED], FIXED: arms[ATTENTION]}
  judged = {c.number: c for c in bottleneck.judge({"g2p": swapped, "reverse": swapped})}
  assert [judged[n].verdict for n in ("25", "42", "73")] == [
    results.NOT_RESOLVED, results.CONTRADICTED, results.CONTRADICTED,
  ]  # fmt: skip
  for claim in judged.values():
    assert claim.measured and claim.why


@pytest.mark.parametrize(
  "change, message",
  [
    ({"g2p.model.score": "none"}, "g2p.model.score is 'none'"),
    ({"reverse.data.name": "g2p"}, "reverse.data.name is 'g2p'"),
    ({"g2p.seed": 3}, "g2p.seed is 3"),
    ({"test": 0}, "test is 0"),
    ({"reverse_edges": (15, 5)}, "reverse_edges is"),
  ],
)
def test_what_the_experiment_sets_itself_is_refused(change, message):
  with pytest.raises(configs.ConfigError, match=message):
    configs.override(bottleneck.Config(), change)


def test_one_seed_is_refused():
  with pytest.raises(configs.ConfigError, match="seeds is 1"):
    bottleneck.Config(seeds=1)


def test_both_models_differ_in_attention_alone():
  """Same sizes, data, batches and updates; the sizes of vocabulary let them share programs."""
  config = bottleneck.Config()
  assert config.g2p.model == config.reverse.model
  assert set(ARMS.values()) == {"additive", "none"}
  one, other = (configs.override(config.g2p, {"model.score": score}) for score in ARMS.values())
  assert [path for path, *_ in configs.differences(one, other)] == ["model.score"]


@pytest.mark.slow
def test_a_smoke_run_leaves_every_file_and_a_second_one_trains_nothing(tmp_path, monkeypatch):
  # g2p needs the network or its wheel; the generated data set stands in for it here.
  load, prepare = catalog.load, catalog.prepare
  monkeypatch.setattr(catalog, "prepare", lambda name, folder: prepare("reverse", folder))
  monkeypatch.setattr(catalog, "load", lambda name, *args: load("reverse", *args))
  monkeypatch.setattr(catalog, "levels", lambda name: ("symbol", "symbol"))
  monkeypatch.setattr(bottleneck.workers, "side_by_side", lambda function, calls: None)
  data = {f"{name}.data.data_dir": str(tmp_path / "data") for name in ("g2p", "reverse")}
  smoke = {**bottleneck.profiles()["smoke"], **data, "g2p_edges": (5, 10)}
  config = configs.override(bottleneck.Config(), smoke)
  result = bottleneck.run(config, tmp_path / "run")
  assert result.profile == "custom" and result.seeds == (0, 1)
  assert {claim.number for claim in result.claims} == set(bottleneck.CLAIMS)
  for path in result.figures:
    assert (tmp_path / "run" / path).stat().st_size > 1000
  runs = sorted((tmp_path / "run" / "checkpoints").iterdir())
  assert len(runs) == 8
  before = {run: (run / "metrics.jsonl").stat().st_mtime_ns for run in runs}
  again = bottleneck.run(config, tmp_path / "run")
  assert {run: (run / "metrics.jsonl").stat().st_mtime_ns for run in runs} == before
  assert again.metrics == result.metrics
  one = json.loads((runs[0] / "measured.json").read_text())
  assert set(one) == {field.name for field in dataclasses.fields(Measured)}


def leave(folder, name):
  """Something for another process to do: a file that says which it was."""
  (folder / name).write_text(str(os.getpid()))
  if name == "fails":
    raise RuntimeError("seen by the caller's own call")


def test_calls_side_by_side_are_each_made_in_a_process_of_their_own(tmp_path):
  if len(os.sched_getaffinity(0)) < 2:
    pytest.skip("on one core all the work is the caller's")
  workers.side_by_side(leave, [(tmp_path, "one"), (tmp_path, "fails")])
  pids = {(tmp_path / name).read_text() for name in ("one", "fails")}
  assert len(pids | {str(os.getpid())}) == 3
