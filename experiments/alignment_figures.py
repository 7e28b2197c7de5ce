"""The figures of `experiments.alignment`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attn.evaluation.intervals import mean_interval
from attn.report import figures
from experiments.alignment_runs import INPUT, OUTPUT, REPLACED

if TYPE_CHECKING:  # The experiment draws its figures here.
  from experiments.alignment import Config, Runs

CONVENTION = (
  "Word written: a step's weights are held to be of y_i; word given: of y_{i-1}, which Luong's"
  " footnote 14 wants for all scores but location."
)
_COLUMNS = {OUTPUT: "at the word written", INPUT: "at the word given"}


def error_rates(config: "Config", measured: "Runs") -> Figure:
  """The alignment error rate of each model in both columns, a panel a task."""
  width = 7.0 if len(config.tasks) == 1 else 4.2 * len(config.tasks)
  figure, panels = figures.new(
    _message(config, measured), columns=len(config.tasks), size=(width, 4.6)
  )
  for axes, task in zip(panels, config.tasks, strict=True):
    runs = [measured[f"{task}-{model}"] for model in config.models]
    for series, (column, told) in enumerate(_COLUMNS.items()):
      found = [mean_interval([one["error_rates"][column] for one in seeds]) for seeds in runs]
      mean, low, high, _ = zip(*found, strict=True)
      figures.points(
        axes, range(len(runs)), mean, low, high, label=told, series=series, joined=False,
        shift=8 * series - 4,
      )  # fmt: skip
    for dash, name in (("--", "diagonal"), (":", "chance")):
      axes.axhline(
        runs[0][0]["error_rates"][name], color="#888888", linestyle=dash, linewidth=1.2, label=name
      )
    axes.set_xticks(range(len(config.models)), config.models, rotation=30, ha="right")
    axes.set_xlim(-0.6, len(config.models) - 0.4)
    axes.set_ylim(-0.03, 1.03)
    figures.axes_text(axes, x="", y="alignment error rate", title=task)
  figures.legend_below(panels[0], columns=4)
  return figure


def _message(config: "Config", measured: "Runs") -> str:
  """The least and the largest error in each column, over models and tasks."""
  spans = []
  for column in _COLUMNS:
    means = [np.mean([one["error_rates"][column] for one in runs]) for runs in measured.values()]
    spans.append(f"{min(means):.2f} to {max(means):.2f}")
  return (
    f"Read at the word written, weights have an alignment error rate of {spans[0]}, at the word"
    f" given one of {spans[1]}"
  )


def replaced(config: "Config", measured: "Runs") -> Figure:
  """How far other weights may lie with the same output, and what others do to outputs."""
  cells = {
    f"{model}, {task}": measured[f"{task}-{model}"]
    for model in REPLACED
    for task in config.tasks
    if model in config.models
  }
  figure, (left, right) = figures.new(
    _farthest(cells, config.sizes.change), columns=2, size=(11.0, 4.6)
  )
  for series, (name, runs) in enumerate(cells.items()):
    _quantiles(left, name, runs, series)
  left.axhline(0.5, color="#888888", linestyle="--", linewidth=1.2)
  left.annotate("held to be far", (1, 0.5), ha="right", va="bottom", fontsize=8)
  left.set_ylim(-0.03, 1.03)
  figures.axes_text(
    left, x="share of the steps", y="divergence [of ln 2]",
    title=f"farthest weights, output within {config.sizes.change:g}",
  )  # fmt: skip
  figures.legend(left)
  kinds = ("uniform", "turned")
  for series, (name, runs) in enumerate(cells.items()):
    found = [
      mean_interval(
        [float(np.mean(np.array(one["replaced"][f"{kind} change"]) > config.sizes.change))
         for one in runs]
      )
      for kind in kinds
    ]  # fmt: skip
    mean, low, high, _ = zip(*found, strict=True)
    shift = 8 * (series - (len(cells) - 1) / 2)
    figures.points(
      right, (0, 1), mean, low, high, label=name, series=series, joined=False, shift=shift
    )
  right.set_xticks((0, 1), kinds)
  right.set_xlim(-0.6, 1.6)
  right.set_ylim(-0.03, 1.08)
  figures.axes_text(right, x="weights instead", y="share of the steps", title="outputs changed")
  return figure


def _quantiles(axes: Axes, name: str, runs: Sequence[Mapping[str, Any]], series: int) -> None:
  """Divergences from the largest on: what share of the steps has at least so much."""
  at = np.linspace(0, 1, 21)
  all_seeds = [
    np.quantile(np.array(one["replaced"]["farthest"]) / np.log(2), 1 - at) for one in runs
  ]
  mean, low, high, _ = zip(*map(mean_interval, np.array(all_seeds).T), strict=True)
  figures.line(axes, at, mean, np.clip(low, 0, 1), np.clip(high, 0, 1), label=name, series=series)


def _farthest(cells: "Runs", change: float) -> str:
  """The medians of the farthest weights."""
  medians = [
    np.mean([np.median(one["replaced"]["farthest"]) / np.log(2) for one in runs])
    for runs in cells.values()
  ]
  low, high = f"{min(medians):.2f}", f"{max(medians):.2f}"
  return (
    f"Half of the steps give the same output, within {change:g}, with weights"
    f" {low if low == high else f'{low} to {high}'} ln 2 from their own"
  )
