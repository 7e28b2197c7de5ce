"""Runs compared: what counts, over what the means are, what is best, and the page that shows it."""

import csv
import html.parser
import json
import math

import pytest

from attn import configs
from attn.report import comparison, comparison_figures, comparison_text, figures, results, runs
from launch import compare
from tests import commands


def experiment_run(folder, config, **metrics):
  """A finished run of launch.run."""
  folder.mkdir(parents=True)
  metrics = {name.replace("_", " "): value for name, value in metrics.items()}
  result = results.Result(
    "tiny", "custom", config, (), {}, f"run {folder.name}", 1.0, metrics, {}, ()
  )
  (folder / "result.json").write_text(results.to_json(result))


def training_run(folder, config, *, error=None, ended=True, losses=()):
  """A run of launch.train, evaluated if it has an error."""
  folder.mkdir(parents=True)
  (folder / "config.json").write_text(json.dumps(config))
  lines = [json.dumps({"step": 7 * (i + 1), "dev_loss": loss}) for i, loss in enumerate(losses)]
  (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines) + '{"step": 99, "de')
  if error is not None:
    (folder / "evaluation").mkdir()
    record = {"word_error_rate": error, "step": 7, "ended": ended, "search": {}, "seconds": 1.0}
    (folder / "evaluation/dev.json").write_text(json.dumps(record))


def config(units, seed, score="dot"):
  return {"model": {"units": units, "score": score}, "steps": 21, "seed": seed}


@pytest.fixture
def sweep(tmp_path):
  """Three settings: of three seeds, of two and one that waits, of one beside one on its way."""
  errors = {3: (0.5, 0.25, 0.75), 30: (0.125, 0.375), 5: (0.5,)}
  for units, found in errors.items():
    for seed, error in enumerate(found):
      training_run(tmp_path / f"u{units}s{seed}", config(units, seed), error=error)
  training_run(tmp_path / "u5s1", config(5, 1), error=0.0, ended=False)
  plan = [("u30s2", config(30, 2)), ("u3s0", config(3, 0))]
  lines = [{"run": name, "command": f"do {name}", "config": one} for name, one in plan]
  (tmp_path / "sweep.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
  return tmp_path


def compared(folder, *arguments, **options):
  found, problems = runs.collect([folder])
  assert problems == []
  return comparison.compare(found, *arguments, **options)


# What counts, and over what.


def test_means_and_intervals_are_over_the_finished_runs_of_a_setting(sweep):
  found = compared(sweep)
  assert (found.metrics, found.axes, found.pooled) == (
    ("dev.word_error_rate",),
    ("model.units",),
    (),
  )
  assert [row.setting["model.units"] for row in found.rows] == [3, 5, 30]
  three, one, two = (row.values["dev.word_error_rate"] for row in found.rows)
  half = 4.302653 * 0.25 / math.sqrt(3)  # Student's t with two degrees of freedom
  assert three == pytest.approx((0.5, 0.5 - half, 0.5 + half, 3))
  assert two == pytest.approx((0.25, 0.25 - 12.706205 * 0.125, 0.25 + 12.706205 * 0.125, 2))
  assert (one.mean, one.n) == (0.5, 1) and math.isinf(one.high)
  states = [[row.count(s) for s in ("finished", "unfinished", "missing")] for row in found.rows]
  assert states == [[3, 0, 0], [1, 1, 0], [2, 0, 1]]


def test_a_setting_without_a_finished_run_has_none_that_counts(tmp_path):
  training_run(tmp_path / "a", config(3, 0), error=0.5)
  training_run(tmp_path / "b", config(5, 0), ended=False)
  assert "Settings have unequal numbers of runs that count: 0 to 1." in comparison_text.notes(
    compared(tmp_path)
  )


def test_of_a_single_run_the_interval_is_its_own(tmp_path):
  for width, metric in ((2, results.Metric(0.5, 0.25, 0.75, 11, "nats")), (3, results.Metric(0.7))):
    experiment_run(tmp_path / f"w{width}", {"width": width}, entropy=metric)
  found = compared(tmp_path)
  assert found.units == {"entropy": "nats"} or found.units == {"entropy": ""}
  first, second = (row.values["entropy"] for row in found.rows)
  assert first == (0.5, 0.25, 0.75, 1)
  assert second.mean == 0.7 and math.isinf(second.low)


def test_a_metric_without_a_finite_value_does_not_count(tmp_path):
  for seed, value in enumerate((1.0, None, 3.0)):
    experiment_run(tmp_path / f"s{seed}", {"seed": seed}, loss=results.Metric(value))
  (row,) = compared(tmp_path).rows
  assert (row.values["loss"].mean, row.values["loss"].n) == (2.0, 2)
  assert comparison_text.cells(row, "loss")[2] == "2 (1 without a number)"


def test_axes_are_what_varies_by_itself(tmp_path):
  """Not the seed, nor what goes with another field, nor one that came later and has one value."""
  for seed in (0, 1):
    for units, depth in ((3, 1), (5, 1), (5, 2)):
      one = {"units": units, "dims": [1, units], "depth": depth, "seed": seed, "kept": True}
      later = {"later": 2.0} if units == 5 else {}
      folder = tmp_path / f"u{units}d{depth}s{seed}"
      experiment_run(folder, one | later, error=results.Metric(units + depth + seed))
  found = compared(tmp_path)
  assert (found.axes, found.implied, found.pooled) == (("units", "depth"), ("dims",), ())
  assert [tuple(row.setting.values()) for row in found.rows] == [(3, 1), (5, 1), (5, 2)]
  assert found.overrides(found.rows[0]) == ["units=3", "depth=1", "dims=(1, 3)"]
  found = compared(tmp_path, by=["units", "kept"])
  assert (found.implied, found.pooled) == (("dims",), ("depth",))
  assert [list(row.setting.values()) for row in found.rows] == [[3, True], [5, True]]
  assert [row.values["error"][::3] for row in found.rows] == [(4.5, 2), (7.0, 4)]
  assert "Means over seeds, depth of finished runs" in comparison_text.notes(found)[0]


def test_the_same_configuration_and_seed_is_no_further_draw(tmp_path):
  training_run(tmp_path / "a" / "x", config(3, 0), error=0.5)
  training_run(tmp_path / "b" / "x", config(3, 0))
  training_run(tmp_path / "b" / "y", config(3, 1), error=0.75)
  found = comparison.compare(runs.collect([tmp_path / "b", tmp_path / "a"])[0])
  (row,) = found.rows
  assert (row.values["dev.word_error_rate"].n, len(row.runs), found.repeated) == (2, 2, 1)
  assert all(run.status == "finished" for run in row.runs)


def test_last_values_of_logs_are_metrics_of_finished_runs(tmp_path):
  training_run(tmp_path / "a", config(3, 0), losses=(5.0, 4.0, 2.0))  # 21 steps of 21
  training_run(tmp_path / "b", config(5, 0), losses=(5.0, 1.0))
  found = compared(tmp_path)
  assert found.metrics == ("dev_loss",)
  assert [row.values.get("dev_loss", (None,))[0] for row in found.rows] == [2.0, None]


def test_a_folder_that_is_a_run_counts_unless_there_are_runs_in_it(tmp_path):
  training_run(tmp_path / "search", {"base": {}, "draws": []})  # as launch.search begins one
  training_run(tmp_path / "search" / "x", config(3, 0), error=0.5)
  assert [run.name for run in runs.collect([tmp_path / "search"])[0]] == ["x"]
  assert [run.name for run in runs.collect([tmp_path / "search" / "x"])[0]] == ["x"]


# What is best.


def test_the_best_is_the_smallest_error_and_its_lead_is_paired_by_seed(sweep):
  best = compared(sweep).best
  assert best.direction == "min" and best.row.setting == {"model.units": 30}
  assert [row.setting["model.units"] for row in best.ranked] == [30, 3, 5]
  # Seeds 0 and 1: 0.5 - 0.125 and 0.25 - 0.375.
  assert (best.lead.mean, best.lead.n) == (0.125, 2)
  assert best.lead.high == pytest.approx(0.125 + 12.706205 * 0.25)
  assert compared(sweep, direction="max").best.row.setting == {"model.units": 3}


@pytest.mark.parametrize(
  "name, direction",
  [
    ("dev.word_error_rate", "min"), ("dev_loss", "min"), ("dev.bleu", "max"), ("attn: BLEU", "max"),
    ("symbols_per_second", "max"), ("token_accuracy", "max"), ("entropy", None),
  ],
)  # fmt: skip
def test_which_way_is_better(name, direction):
  assert comparison.direction_of(name) == direction


def test_no_best_where_nobody_knows_the_way(tmp_path):
  for width in (2, 3):
    experiment_run(tmp_path / f"w{width}", {"width": width}, entropy=results.Metric(width))
  found = compared(tmp_path)
  assert found.best is None and "--best=min or" in comparison_text.best_lines(found)[0][1]
  assert compared(tmp_path, direction="max").best.row.setting == {"width": 3}


def test_the_command_of_the_best_is_that_of_the_plan_or_the_last_in_its_folder(sweep):
  training_run(sweep / "alone", config(50, 0), error=0.0)
  lines = [json.dumps({"command": f"python -m launch.train --start={n}"}) for n in (1, 2)]
  (sweep / "alone" / "commands.jsonl").write_text("\n".join(lines) + '\n{"comm')
  told = dict(comparison_text.best_lines(compared(sweep)))
  assert told["command"] == "python -m launch.train --start=2"
  told = dict(comparison_text.best_lines(compared(sweep, direction="max")))
  assert told["command"] == "do u3s0" and told["best"].startswith("dev.word_error_rate maximised")


# What is wrong.


def test_unknown_names_get_the_nearest(sweep):
  with pytest.raises(configs.ConfigError, match="no metric 'dev.word_eror_rate' .did you mean"):
    compared(sweep, ["dev.word_eror_rate"])
  with pytest.raises(configs.ConfigError, match="no axis 'units' .did you mean 'model.units'"):
    compared(sweep, by=["units"])


def test_damaged_files_are_told_and_the_rest_is_compared(sweep):
  (sweep / "u3s0/evaluation/dev.json").write_text("{")
  (sweep / "u3s1/config.json").write_text("[]")
  found, problems = runs.collect([sweep])
  assert len(problems) == 2 and "u3s0/evaluation/dev.json holds no scores" in problems[0]
  assert comparison.compare(found).rows[0].values["dev.word_error_rate"].mean == 0.75


def test_folders_without_runs(tmp_path):
  told = commands.run(compare, f"--workdir={tmp_path}")
  assert "holds no runs" in told
  assert "there is no folder" in commands.run(compare, f"--workdir={tmp_path}/none")
  assert "--workdir=SWEEP is missing" in commands.run(compare)
  training_run(tmp_path / "a", config(3, 0))
  for words in ((), ("--metric=dev_loss",)):
    assert "no run has finished" in commands.run(compare, f"--workdir={tmp_path}", *words)
  assert "compare" not in [path.name for path in tmp_path.iterdir()]
  (tmp_path / "sweep.jsonl").write_text("{}\n")
  assert "line 1 is none of a plan" in commands.run(compare, f"--workdir={tmp_path}")


def test_a_page_that_cannot_be_written(sweep):
  (sweep / "compare").write_text("")
  assert commands.run(compare, f"--workdir={sweep}") == (
    f"cannot write into {sweep}/compare: File exists; give another --output"
  )


# What is written.


class Sources(html.parser.HTMLParser):
  """What a page would load, and its text."""

  def __init__(self, text):
    super().__init__()
    self.loaded, self.text = [], ""
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    self.loaded += [value for name, value in attrs if name in ("src", "href")]

  def handle_data(self, data):
    self.text += data


def test_the_command_writes_a_page_a_table_and_figures(sweep, capsys):
  words = [f"--workdir={sweep},{sweep}", f"--output={sweep}/out"]
  assert commands.run(compare, *words) == 0
  told = capsys.readouterr().out
  assert (
    "10 runs" not in told and "8 runs of 3 settings: 6 finished, 1 unfinished, 1 missing" in told
  )
  assert "unequal numbers of runs that count: 1 to 3" in told
  assert "overrides: --set=model.units=30" in told
  page = Sources((sweep / "out/index.html").read_text(encoding="utf-8"))
  assert page.loaded and all(value.startswith("data:image/svg") for value in page.loaded)
  for text in (
    "dev.word_error_rate minimised: 0.25",
    "2 (1 missing)",
    "u30s2",
    "u5s1",
    "python -m launch.compare",
  ):
    assert text in page.text
  with (sweep / "out/table.csv").open() as file:
    rows = list(csv.DictReader(file))
  assert [(row["model.units"], row["dev.word_error_rate"], row["missing"]) for row in rows] == [
    ("3", "0.5", "0"), ("5", "0.5", "0"), ("30", "0.25", "1"),
  ]  # fmt: skip
  assert rows[1]["dev.word_error_rate.low"] == "" and rows[1]["dev.word_error_rate.n"] == "1"
  stem = "dev.word_error_rate-by-model.units"
  assert {f"{stem}.svg", f"{stem}.png"} <= {path.name for path in (sweep / "out").iterdir()}


def test_what_is_asked_for_twice_is_one_column(sweep):
  once = compared(sweep, ["dev.word_error_rate"], ["model.units"])
  assert compared(sweep, ["dev.word_error_rate"] * 2, ["model.units"] * 2) == once


def test_figures_have_names_of_axes_and_logarithms_where_values_span_decades(sweep):
  for units in (3, 30):
    training_run(sweep / f"general{units}", config(units, 0, "general"), error=0.625)
  by_name = {one.name: one for one in comparison_figures.draw(compared(sweep))}
  (axes,) = by_name["dev.word_error_rate-by-model.units"].figure.axes
  assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
  assert (axes.get_xlabel(), axes.get_ylabel()) == ("model.units", "dev.word_error_rate")
  assert [text.get_text() for text in axes.get_xticklabels()] == ["3", "5", "30"]
  assert [text.get_text() for text in axes.get_legend().texts] == [
    "model.score=dot", "model.score=general",
  ]  # fmt: skip
  drawn = by_name["dev.word_error_rate-by-model.score"]
  assert drawn.figure.axes[0].get_xscale() == "linear" and "n = 1 to 3 runs" in drawn.caption
  assert figures.title_of(drawn.figure).endswith("lowest at model.score=dot with model.units=30")


def test_of_many_settings_those_beside_the_best_are_joined(tmp_path):
  for a in range(1, 9):
    for b in (2, 4):
      error = results.Metric((a - 5) ** 2 + b)
      experiment_run(tmp_path / f"a{a}b{b}", {"a": a, "b": b}, error=error)
  drawn = next(comparison_figures.draw(compared(tmp_path, by=["b", "a"])))
  (axes,) = drawn.figure.axes
  dots, joined = axes.lines[0], axes.lines[1]
  assert drawn.name == "error-by-b" and drawn.caption.startswith("Dots: all 16 settings.")
  assert len(dots.get_xdata()) == 16 and list(joined.get_xdata()) == [2, 4]
  assert list(joined.get_ydata()) == [2, 4]


def test_curves_are_means_where_all_runs_have_a_value(tmp_path):
  training_run(tmp_path / "a", config(3, 0), error=0.5, losses=(5.0, 4.0, 2.0))
  training_run(tmp_path / "b", config(3, 1), error=0.5, losses=(7.0, 2.0))
  training_run(tmp_path / "c", config(5, 1), error=0.5, losses=(9.0, 8.0))
  *_, drawn = comparison_figures.draw(compared(tmp_path))
  assert drawn.name == "curves-dev_loss" and "n = 1 to 2" in drawn.caption
  first, second = drawn.figure.axes[0].lines
  assert (list(first.get_xdata()), list(first.get_ydata())) == ([7, 14], [6.0, 3.0])
  assert list(second.get_ydata()) == [9.0, 8.0]
  assert "lowest for model.units=3, at 3" in figures.title_of(drawn.figure)
