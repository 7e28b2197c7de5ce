"""Result files, the recorder, the register of claims, and the figures."""

import dataclasses
import errno
import importlib
import itertools
import json
import os
import time
import typing

import numpy as np
import pytest

from attn import configs
from attn.report import clock, figures, provenance, recorder, results
from experiments import claims
from launch import resolve


@dataclasses.dataclass(frozen=True)
class Inner:
  rate: float = 0.5
  name: str = "adam"


@dataclasses.dataclass(frozen=True)
class Config:
  draws: int = 7
  widths: tuple[int, ...] = (3, 5)
  inner: Inner = Inner()


PROFILES = {"smoke": {"draws": 3}, "default": {}, "full": {"draws": 11, "inner.rate": 0.25}}


def judged(number="62", kind="property", **changes):
  fields = {"experiment": "toy", "verdict": results.REPRODUCED, "measured": "1.01", "why": "w"}
  return results.Claim(number, kind, "A sentence.", **{**fields, **changes})


def finish(workdir, config=None, judgements=(), seeds=(0,), metrics=None):
  run = recorder.Recorder("toy", config or Config(), PROFILES, workdir, seeds=seeds)
  run.log(width=3, entropy=1.25)
  metrics = metrics or {"entropy": results.Metric(1.25, 1.0, 1.5, 7, "nats")}
  return run.finish(metrics=metrics, claims=judgements)


def test_result_round_trip_has_exactly_the_published_fields(tmp_path):
  result = finish(tmp_path, judgements=(judged(interval=(0.9, 1.1)),))
  data = json.loads((tmp_path / "result.json").read_text())
  assert list(data) == [
    "experiment", "profile", "config", "seeds", "environment", "command", "seconds", "metrics",
    "figures", "claims",
  ]  # fmt: skip
  assert list(data["metrics"]["entropy"]) == ["mean", "low", "high", "n", "unit"]
  assert list(data["claims"][0]) == [
    "number", "kind", "statement", "published", "measured", "interval", "verdict", "experiment",
    "why",
  ]  # fmt: skip
  assert results.read(tmp_path / "result.json") == result
  assert result.config == {"draws": 7, "widths": [3, 5], "inner": {"rate": 0.5, "name": "adam"}}
  assert {"python", "jax", "flax", "optax", "numpy", "platform", "cpu_count"} <= set(
    result.environment
  )


@pytest.mark.parametrize(
  ("config", "profile", "command"),
  [
    (Config(), "default", "--profile=default"),
    (Config(draws=3), "smoke", "--profile=smoke"),
    (Config(draws=11, inner=Inner(rate=0.25)), "full", "--profile=full"),
    (Config(draws=3, widths=(13,)), "custom", "--profile=smoke '--set=widths=(13,)'"),
    (Config(inner=Inner(name="sgd")), "custom", "--profile=default --set=inner.name=sgd"),
    (Config(inner=Inner(name="a b")), "custom", "--profile=default '--set=inner.name=a b'"),
  ],
)
def test_profile_and_command_are_derived_from_the_config(config, profile, command):
  assert provenance.profile_and_command("toy", config, PROFILES) == (
    profile,
    f"python -m launch.run --experiment=toy {command}",
  )


def test_not_finite_numbers_become_null(tmp_path):
  metrics = {"loss": results.Metric(float("nan"), float("-inf"), float("inf"), 1, "nats")}
  assert finish(tmp_path, metrics=metrics).metrics["loss"] == results.Metric(
    None, None, None, 1, "nats"
  )


def test_another_configuration_in_the_workdir_is_refused(tmp_path):
  finish(tmp_path)
  with pytest.raises(configs.ConfigError, match="another configuration"):
    finish(tmp_path, Config(draws=13))
  assert json.loads((tmp_path / "config.json").read_text())["draws"] == 7


def test_an_interrupted_run_keeps_its_clock_and_a_finished_one_does_not(tmp_path):
  recorder.Recorder("toy", Config(), PROFILES, tmp_path, seeds=(0,))
  log = tmp_path / "metrics.jsonl"
  log.write_text('{"seconds": 10')  # a kill in the middle of a line
  (tmp_path / "seconds.txt").write_text("100.0\n")
  assert 100 <= finish(tmp_path).seconds < 150
  assert [json.loads(line)["seconds"] >= 100 for line in log.read_text().splitlines()] == [True] * 2
  assert finish(tmp_path).seconds < 50


def test_the_clock_of_a_run_that_logs_nothing_is_kept(tmp_path, monkeypatch):
  monkeypatch.setattr(clock, "INTERVAL", 0.01)
  kept = tmp_path / "seconds.txt"
  for least in (0.2, 0.4):
    run = recorder.Recorder("toy", Config(), PROFILES, tmp_path, seeds=(0,))
    deadline = time.monotonic() + 30
    while float(kept.read_text()) < least:
      assert time.monotonic() < deadline
      time.sleep(0.01)
    thread = run._clock._thread
    del run  # it failed: nothing counts on
    thread.join(30)
    assert not thread.is_alive()
  stopped = float(kept.read_text())
  time.sleep(0.2)  # between two tries no time passes
  began = time.monotonic()
  result = finish(tmp_path)
  assert 0.4 <= stopped <= result.seconds <= stopped + time.monotonic() - began + 0.01
  assert not kept.exists()
  kept.write_text("1000\n")  # killed after the result was written
  assert finish(tmp_path).seconds < 500


@pytest.mark.parametrize(
  ("judgements", "seeds", "message"),
  [
    ((judged(kind="trained", interval=(0, 1)),), (3,), "at least 2 seeds"),
    ((judged(kind="trained"),), (3, 5), "at least 2 seeds and an interval"),
    ((judged(experiment="other"),), (3,), "owned by other"),
    ((judged(), judged()), (3,), "judged twice"),
  ],
)
def test_results_against_the_rules_are_not_written(tmp_path, judgements, seeds, message):
  with pytest.raises(results.ResultError, match=message):
    finish(tmp_path, judgements=judgements, seeds=seeds)
  assert not (tmp_path / "result.json").exists()


def test_a_trained_claim_may_stay_unresolved_on_one_seed(tmp_path):
  finish(tmp_path, judgements=(judged(kind="trained", verdict=results.NOT_RESOLVED),))


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda d: d.pop("seeds"), "lacks field seeds"),
    (lambda d: d.update(extra=1), "unknown field extra"),
    (lambda d: d.update(seconds="3"), "seconds has the wrong type str"),
    (lambda d: d["metrics"]["entropy"].update(mean="x"), "entropy.*mean has the wrong type"),
    (lambda d: d["claims"][0].update(verdict="true"), r"claims\[0\].verdict is 'true', not one of"),
    (lambda d: d["claims"][0].update(interval=[1]), "interval has 1 ends, not 2"),
  ],
)
def test_a_broken_result_names_the_file_and_the_field(tmp_path, change, message):
  finish(tmp_path, judgements=(judged(),))
  path = tmp_path / "result.json"
  data = json.loads(path.read_text())
  change(data)
  path.write_text(json.dumps(data))
  with pytest.raises(results.ResultError, match=message) as error:
    results.read(path)
  assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_truncated_result_is_one_clear_line(tmp_path):
  finish(tmp_path)
  path = tmp_path / "result.json"
  path.write_text(path.read_text()[:97])
  with pytest.raises(results.ResultError, match="not JSON.*delete it and run again"):
    results.read(path)
  path.unlink()
  with pytest.raises(results.ResultError, match="has not finished"):
    results.read(path)


def test_the_register_holds_every_claim_once():
  numbers = [str(n) for n in range(1, 81) if n != 70] + [f"70{letter}" for letter in "abcdef"]
  assert len(numbers) == 85
  assert sorted(claim.number for claim in claims.REGISTER) == sorted([*numbers, "L4", "L6"])


def test_every_claim_is_open_or_says_why_it_cannot_be_measured():
  experiments = claims.questions()
  for claim in claims.REGISTER:
    assert claim.verdict in (results.NOT_RUN, results.NOT_MEASURABLE), claim
    assert bool(claim.why) == (claim.verdict == results.NOT_MEASURABLE), claim
    assert claim.experiment in experiments, claim
    assert claim.statement.endswith(".") and claim.measured is None, claim
    assert claim == results.claim_from_dict(results.to_plain(claim)), claim


def test_experiments_own_the_claims_they_judge():
  for name in resolve.experiments():
    owned = importlib.import_module(f"experiments.{name}").CLAIMS
    assert len(set(owned)) == len(owned)
    for number in owned:
      assert claims.BY_NUMBER[number].experiment == name, number
    assert name.endswith(resolve.BENCHMARK) or claims.questions()[name], name


def parts(cls):
  """Yields a configuration's class and those of its groups."""
  yield cls
  for annotation in typing.get_type_hints(cls).values():
    for kind in (annotation, *typing.get_args(annotation)):
      if dataclasses.is_dataclass(kind):
        yield from parts(kind)


def test_experiments_have_frozen_configurations_and_overrides_of_them():
  for name in resolve.experiments():
    module = importlib.import_module(f"experiments.{name}")
    assert all(cls.__dataclass_params__.frozen for cls in parts(module.Config)), name
    assert {"smoke", "default", "full"} <= set(module.profiles()), name
    sweeps = [getattr(module, key)() for key in vars(module) if key.startswith("sweep_")]
    for override in [*module.profiles().values(), *itertools.chain(*sweeps)]:
      configs.override(module.Config(), override)


def test_a_heat_map_needs_labels_for_every_row_and_column():
  _, (axes,) = figures.new("Map", size=figures.heat_map_size(3, 2))
  with pytest.raises(ValueError, match=r"shape \(2, 3\), the labels want \(3, 2\)"):
    figures.heat_map(axes, np.zeros((2, 3)), ["a", "b"], ["x", "y", "z"])
  figures.heat_map(axes, np.eye(2, 3), ["a", "b", "c"], ["x", "y"], links=[(0, 0)], title="word")
  assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "c"]
  assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y"]


@pytest.mark.parametrize("size", [1, 7, 30])
def test_labels_of_a_heat_map_do_not_overlap(size):
  drawing, (axes,) = figures.new("Attention in order", size=figures.heat_map_size(size, size))
  names = ["AH0", "B", "NG", "ZH", "EY1"] * 6
  figures.heat_map(axes, np.eye(size), names[:size], names[:size])
  drawing.canvas.draw()
  for labels, side in ((axes.get_xticklabels(), "x"), (axes.get_yticklabels(), "y")):
    assert all(label.get_fontsize() >= 7 for label in labels)
    boxes = [label.get_window_extent() for label in labels]
    ends = sorted((getattr(box, f"{side}0"), getattr(box, f"{side}1")) for box in boxes)
    assert all(end <= start for (_, end), (start, _) in zip(ends, ends[1:], strict=False))


def test_figures_are_the_same_bytes_and_leave_matplotlib_alone(tmp_path):
  import matplotlib

  before = dict(matplotlib.rcParams)
  for name in ("a", "b"):
    drawing, (axes,) = figures.new("Bars", note="n = 3")
    figures.bars(axes, ["x", "y"], {"q": [1, 2], "k": [2, 1]}, errors={"q": ([0, 1], [2, 3])})
    figures.axes_text(axes, x="position", y="weight")
    figures.save(drawing, tmp_path / name)
  for ending in (".svg", ".png"):
    assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()
  assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("groups", [1, 9])
def test_a_bars_number_is_at_the_bars_end_and_beside_its_interval(groups):
  drawing, (axes,) = figures.new("Bars")
  values = {str(k): [1.0, 2.0, 0.0] for k in range(groups)}
  ends = {label: ([0.5, 0.2, 0.0], [4.0, 3.0, 0.0]) for label in values}
  figures.bars(axes, ["x", "y", "z"], values, errors=ends)
  drawing.canvas.draw()
  numbers = [text for text in axes.texts if text.get_text()]
  assert [text.get_text() for text in numbers] == ["1.00", "2.00", "0.00"] * groups
  assert {text.get_rotation() for text in numbers} == {90.0 if groups == 9 else 0.0}
  middles = [bar.get_x() + bar.get_width() / 2 for bar in axes.patches]
  intervals = axes.transData.transform([(middle, 0) for middle in middles])[:, 0]
  for text, bar in zip(numbers, axes.patches, strict=True):
    extent = text.get_window_extent()
    end = axes.transData.transform((0, bar.get_height()))[1]
    assert 0 < extent.y0 - end < 8, text
    assert not any(extent.x0 <= x <= extent.x1 for x in intervals), text


def test_a_figure_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
  def full(_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr(os, "fsync", full)
  with pytest.raises(OSError) as caught:
    figures.save(figures.new("Nothing")[0], tmp_path / "a")
  assert caught.value.filename == str(tmp_path / "a.svg") and not list(tmp_path.iterdir())


def test_the_recorder_keeps_the_message_of_a_figure(tmp_path):
  run = recorder.Recorder("toy", Config(), PROFILES, tmp_path, seeds=(0,))
  message = "A message that is long enough to be wrapped over lines, which has to be undone again"
  drawing, _ = figures.new(message)
  assert "\n" in drawing.get_suptitle()
  run.figure("first", drawing, caption="n = 7.")
  result = run.finish(metrics={}, claims=())
  assert result.figures == {"figures/first.svg": results.Figure(message, "n = 7.")}
  assert (tmp_path / "figures" / "first.png").exists()
