"""The rules of `experiments.bottleneck` can each come out every way, and a small run is whole."""

import dataclasses
import json

import pytest

from attn import configs
from attn.evaluation.intervals import Interval
from attn.report import results
from experiments import bottleneck
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
  "rises, learned, verdict",
  [
    ((ABOVE, ABOVE), True, results.QUALIFIED),
    ((ABOVE, WIDE), True, results.NOT_RESOLVED),
    ((ABOVE, BELOW), True, results.CONTRADICTED),
    ((ABOVE, ABOVE), False, results.NOT_RESOLVED),
  ],
)
def test_errors_must_rise_with_length_on_every_data_set(rises, learned, verdict):
  assert bottleneck.falls(rises, learned=learned) == verdict


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


def measured(short, long, change, symbol_errors):
  """One run, with a group of short and one of long sources."""
  groups = (Group("1-5", 10, short, short), Group("6+", 10, long, long))
  return Measured(20, symbol_errors, symbol_errors, groups, change, None, None, 1.0)


def test_every_claim_is_judged_from_the_runs():
  arms = {
    ATTENTION: [measured(1, 2, 0.5, 1.5), measured(1, 2.5, 0.5, 1.6)],
    FIXED: [measured(2, 20, 0.0, 11), measured(2, 21, 0.0, 11.5)],
  }
  judged = {claim.number: claim for claim in bottleneck.judge({"g2p": arms, "reverse": arms})}
  assert tuple(judged) == bottleneck.CLAIMS
  assert [judged[n].verdict for n in bottleneck.CLAIMS] == [
    results.QUALIFIED, results.REPRODUCED, results.QUALIFIED, results.REPRODUCED,
  ]  # fmt: skip
  swapped = {ATTENTION: arms[FIXED], FIXED: arms[ATTENTION]}
  judged = {c.number: c for c in bottleneck.judge({"g2p": swapped, "reverse": swapped})}
  assert [judged[n].verdict for n in ("25", "42", "73")] == [results.CONTRADICTED] * 3
  for claim in judged.values():
    assert claim.measured and claim.why


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
def test_a_smoke_run_leaves_every_file_and_a_second_one_trains_nothing(tmp_path):
  data = {f"{name}.data.data_dir": str(tmp_path / "data") for name in ("g2p", "reverse")}
  # g2p needs the network or its wheel; the second data set stands in for it here.
  data["g2p.data.name"] = "reverse"
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
