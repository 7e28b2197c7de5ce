"""The figures of `experiments.reversal`."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attn.evaluation.groups import length_groups
from attn.evaluation.intervals import mean_interval, paired_interval
from attn.report import figures
from experiments.reversal_runs import DIRECTIONS, FIXED, FORWARD, PLACES, REVERSED, Runs


def loss(runs: Runs, edges: Sequence[int]) -> Figure:
  """Loss by place in the target and by length of the source, a row a data set."""
  figure, panels = figures.new(_message(runs), rows=len(runs), columns=2)
  labels = [group.label for group in length_groups([], edges)]
  places = [f"{part + 1}" for part in range(PLACES)]
  for row, (name, arms) in enumerate(runs.items()):
    left, right = panels[2 * row : 2 * row + 2]
    series = 0
    for arm, ways in arms.items():
      for way, measured in ways.items():
        label = f"{arm}, {way}"
        _line(left, [one.loss_by_place for one in measured], label, series)
        _line(right, [one.loss_by_length for one in measured], label, series)
        series += 1
    figures.axes_text(left, x="fifth of the target", y="loss [nats]", title=f"{name}, by place")
    figures.axes_text(right, x="symbols of the source", y="loss [nats]", title="by length")
    highest = max(axes.get_ylim()[1] for axes in (left, right))
    for axes, ticks in ((left, places), (right, labels)):
      axes.set_xticks(range(len(ticks)), ticks)
      axes.set_ylim(0, highest)
  figures.legend_below(panels[0])
  return figure


def _message(runs: Runs) -> str:
  told = []
  for name, arms in runs.items():
    gains = {
      arm: paired_interval(*([one.loss for one in ways[way]] for way in DIRECTIONS))
      for arm, ways in arms.items()
    }
    told.append(f"on {name} {', '.join(f'{-one.mean:+.2f} ({arm})' for arm, one in gains.items())}")
  return f"Reading from the end changes the loss, in nats, {'; '.join(told)}"


def gradient(runs: Runs) -> Figure:
  """Norms of the end state's and of the loss's gradients to each word, before and after."""
  name, arms = next(iter(runs.items()))
  ways = arms[FIXED]
  figure, panels = figures.new(_gradient_message(runs), columns=4, size=(14.0, 4.4))
  titles = (
    ("end state, before training", "before", "end"),
    ("end state, after training", "after", "end"),
    ("loss, before training", "before", "loss"),
    ("loss, after training", "after", "loss"),
  )
  for axes, (title, time, of) in zip(panels, titles, strict=True):
    for series, (way, measured) in enumerate(ways.items()):
      logs = np.array([getattr(getattr(one, time), of) for one in measured])
      mean, low, high = (10**ends for ends in _ends(logs))
      at = np.arange(1, logs.shape[1] + 1)
      figures.line(axes, at, mean, low, high, label=f"read {way}", series=series)
    axes.set_yscale("log")
    figures.axes_text(axes, x="word of the source", y="norm of the gradient", title=title)
  for pair in (panels[:2], panels[2:]):
    low = min(axes.get_ylim()[0] for axes in pair)
    high = max(axes.get_ylim()[1] for axes in pair)
    for axes in pair:
      axes.set_ylim(low, high)
  figures.legend(panels[0])
  return figure


def _gradient_message(runs: Runs) -> str:
  """How much more the word read last moves the end state than the word read first."""
  name, arms = next(iter(runs.items()))
  told = []
  for time in ("before", "after"):
    ratios = []
    for way, measured in arms[FIXED].items():
      ends = np.mean([getattr(one, time).end for one in measured], axis=0)
      last, first = (ends[-1], ends[0]) if way == FORWARD else (ends[0], ends[-1])
      ratios.append(10 ** (last - first))
    told.append(f"{min(ratios):.2g} to {max(ratios):.2g}")
  return (
    f"On {name} the word read last moves the end state {told[0]} times as much as the word read"
    f" first before training, {told[1]} times after it"
  )


def lag(waits: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]) -> Figure:
  """Least, mean and largest lag against the mean one, which grows with the length of the pair."""
  name, table = next(iter(waits.items()))
  means = {way: float(np.mean(table[way]["mean"])) for way in DIRECTIONS}
  least = {way: float(np.mean(table[way]["least"])) for way in DIRECTIONS}
  figure, (axes,) = figures.new(
    f"Reading from the end leaves the mean lag at {means[FORWARD]:.1f} and"
    f" {means[REVERSED]:.1f} steps, and brings the least from {least[FORWARD]:.1f} to"
    f" {least[REVERSED]:.1f} ({name})"
  )
  length = np.array(table[FORWARD]["mean"]).round().astype(int)
  sizes = np.unique(length)
  for series, way in enumerate(DIRECTIONS):
    by_size = {
      of: np.array([np.mean(np.array(values)[length == size]) for size in sizes])
      for of, values in table[way].items()
    }
    figures.line(
      axes, sizes, by_size["mean"], by_size["least"], by_size["largest"],
      label=f"read {way}: mean, band from least to largest", series=series,
    )  # fmt: skip
  axes.set_xticks(sizes[:: max(1, len(sizes) // 10)])
  figures.axes_text(axes, x="mean lag forward, the length of a monotone pair", y="lag [steps]")
  figures.legend(axes)
  return figure


def _line(axes: Axes, rows: Sequence[Sequence[float | None]], label: str, series: int) -> None:
  values = np.array(rows, float)
  there = np.flatnonzero(np.isfinite(values).all(0))
  figures.line(axes, there, *_ends(values[:, there]), label=label, series=series)


def _ends(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Means of the columns and their intervals' ends."""
  mean, low, high, _ = zip(*(mean_interval(column) for column in values.T), strict=True)
  return np.array(mean), np.array(low), np.array(high)
