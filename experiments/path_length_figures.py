"""The figures of `experiments.path_length`."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attn.evaluation.intervals import mean_interval
from attn.report import figures
from experiments.path_length_graph import Paths
from experiments.path_length_runs import ARMS, ATTENDING, FIXED, Curve, Measured


def distance(lengths: Sequence[int], found: Mapping[str, Paths]) -> Figure:
  """The longest path and the longest chain of states against the length."""
  without = max(found[arm].longest[-1] for arm in FIXED)
  attended = max(found[arm].longest[-1] for arm in ATTENDING)
  figure, (left, right) = figures.new(
    f"At {lengths[-1]} words the farthest word is {without} steps from an output without attention,"
    f" {attended} with it; the chain of states is the same",
    columns=2,
  )
  for series, (arm, one) in enumerate(found.items()):
    figures.line(left, lengths, one.longest, label=arm, series=series)
    figures.line(right, lengths, one.chain, label=arm, series=series)
  figures.axes_text(left, x="words of source and target", y="steps", title="path of the farthest")
  figures.axes_text(right, x="words of source and target", y="states", title="chain of states")
  for axes in (left, right):
    axes.set_ylim(bottom=0)
    axes.set_xticks(lengths)
  figures.legend(left)
  return figure


def gradient(measured: Mapping[str, Sequence[Measured]]) -> Figure:
  """Gradients against the words between, before and after, and to the letters to be said."""
  figure, panels = figures.new(_message(measured), columns=3, size=(12.5, 4.6))
  for arm, runs in measured.items():
    series = list(ARMS).index(arm)  # the same colour as in the other figure
    before, after = [one.before for one in runs], [one.after for one in runs]
    _curves(panels[0], [one.norms for one in before], arm, series)
    _curves(panels[1], [one.norms for one in after], arm, series)
    _named(panels[2], after, arm, series)
  titles = ("before training, every word", "after training, every word", "after, the word to say")
  for axes, title in zip(panels, titles, strict=True):
    axes.set_yscale("log")
    figures.axes_text(axes, x="words between", y="norm of the gradient", title=title)
  low = min(axes.get_ylim()[0] for axes in panels)
  high = max(axes.get_ylim()[1] for axes in panels)
  for axes in panels:
    axes.set_ylim(low, high)
  figures.legend(panels[0], loc="lower left")
  return figure


def divisors(measured: Mapping[str, Sequence[Measured]], time: str) -> dict[str, float]:
  """By what ten words more between divide each model's gradient, "before" or "after" training."""
  return {
    arm: 10 ** -np.mean([10 * getattr(one, time).slope for one in runs])
    for arm, runs in measured.items()
  }


def _message(measured: Mapping[str, Sequence[Measured]]) -> str:
  before = divisors(measured, "before")
  fixed, attending = (
    [before[arm] for arm in arms if arm in measured] for arms in (FIXED, ATTENDING)
  )
  return (
    f"Before training, ten words between divide the gradient by {min(fixed):.0f} or more without"
    f" attention, by {max(attending):.1f} with it"
  )


def _curves(axes: Axes, logs: Sequence[Sequence[float]], arm: str, series: int) -> None:
  """Means over seeds at 1, 2, ... words between."""
  _band(axes, np.arange(1, len(logs[0]) + 1), np.array(logs), arm, series)


def _named(axes: Axes, curves: Sequence[Curve], arm: str, series: int) -> None:
  """The same where the output has to say the word: 1, 3, ... words between."""
  logs = np.array([one.named for one in curves])
  _band(axes, 2 * np.arange(logs.shape[1]) + 1, logs, arm, series)


def _band(axes: Axes, x: np.ndarray, logs: np.ndarray, arm: str, series: int) -> None:
  mean, low, high, _ = zip(*(mean_interval(column) for column in logs.T), strict=True)
  mean, low, high = (10 ** np.array(values) for values in (mean, low, high))
  figures.line(axes, x, mean, low, high, label=arm, series=series)
