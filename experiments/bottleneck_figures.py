"""The figures of `experiments.bottleneck`."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attn.evaluation.intervals import mean_interval, paired_interval
from attn.report import figures
from experiments.bottleneck_capacity import BITS, REALS, Capacity, Held
from experiments.bottleneck_recall import AFTER, ATTENDED, BEFORE, Recall, Recalled
from experiments.bottleneck_runs import ARMS, ATTENTION, FIRST_STATE, FIXED, PAIR, Measured

_SAID = {BEFORE: "asked before", AFTER: "asked after", ATTENDED: "asked after, attention"}


def by_length(measured: Mapping[str, Mapping[str, Sequence[Measured]]]) -> Figure:
  """Errors of all models by length, a column a data set, and what exceeds attention's below."""
  longest = "; ".join(
    f"{name} {_mean_last(arms[FIRST_STATE]):.0f}% of symbols wrong with a fixed vector as first"
    f" state, {_mean_last(arms[FIXED]):.0f}% with it at each step,"
    f" {_mean_last(arms[ATTENTION]):.0f}% with attention"
    for name, arms in measured.items()
  )
  figure, panels = figures.new(f"On the longest sources: {longest}", rows=2, columns=len(measured))
  for column, (name, arms) in enumerate(measured.items()):
    upper, lower = panels[column], panels[len(measured) + column]
    groups = arms[ATTENTION][0].groups
    places = np.arange(len(groups))
    labels = [f"{group.label}\nn={group.sources}" for group in groups]
    for series, arm in enumerate(ARMS):
      means, lows, highs, _ = zip(
        *(mean_interval(_errors(arms[arm], at)) for at in places), strict=True
      )
      figures.line(upper, places, means, np.maximum(lows, 0), highs, label=arm, series=series)
      if arm != ATTENTION:
        means, lows, highs, _ = zip(
          *(paired_interval(_errors(arms[arm], at), _errors(arms[ATTENTION], at)) for at in places),
          strict=True,
        )
        figures.line(lower, places, means, lows, highs, label=arm, series=series)
    lower.axhline(0, color="#888888", linewidth=0.8)
    errors = [group.symbol_errors for arm in ARMS for one in arms[arm] for group in one.groups]
    upper.set_ylim(0, 1.25 * max(errors))  # A band may leave the picture, no run does.
    for axes in (upper, lower):
      axes.set_xticks(places, labels)
    seeds = len(arms[ATTENTION])
    figures.axes_text(upper, x="", y="symbol errors [%]", title=f"{name}, {seeds} seeds")
    figures.axes_text(lower, x="letters of the source", y="more than attention [points]")
  figures.legend_below(panels[0])
  return figure


def attention(measured: Mapping[str, Mapping[str, Sequence[Measured]]]) -> Figure:
  """The weights of one test source of each data set."""
  found = " and ".join(
    f"{100 - _mean([one.alignment_error for one in arms[ATTENTION]]):.0f}% of the links of {name}"
    for name, arms in measured.items()
    if arms[ATTENTION][0].alignment_error is not None
  )
  title = f"Attention, never shown an alignment, agrees with {found}"
  pairs = {name: arms[ATTENTION][0].shown for name, arms in measured.items()}
  shown = {name: one for name, one in pairs.items() if one is not None}
  sizes = [figures.heat_map_size(len(one.source), len(one.target)) for one in shown.values()]
  widths, heights = zip(*sizes, strict=True)
  size = sum(widths), max(heights)
  figure, panels = figures.new(title, columns=len(shown), size=size)
  for axes, (name, one) in zip(panels, shown.items(), strict=True):
    links = [(source, target) for source, target in one.links or ()]
    figures.heat_map(axes, np.array(one.weights), one.source, one.target, links=links, title=name)
  return figure


def capacity(config: Capacity, held: Held) -> Figure:
  """Words read right from an untrained vector against its width."""
  title = (
    f"Untrained, {config.widths[-1]} components hold {np.mean(held[REALS][-1]):.0f}% of"
    f" {config.words} words, {np.mean(held[BITS][-1]):.0f}% with one bit each;"
    f" {config.widths[0]} hold {np.mean(held[REALS][0]):.0f}%"
  )
  figure, (axes,) = figures.new(title)
  for series, (kind, by_width) in enumerate(held.items()):
    _band(axes, config.widths, by_width, label=kind, series=series)
  axes.axvline(config.bits, color="#888888", linewidth=1.2, linestyle=":")
  axes.annotate(
    f" {config.bits:.0f} bits", (config.bits, 2), color="#555555", fontsize=8, va="bottom"
  )
  axes.set_xscale("log", base=2)
  axes.set_xticks(config.widths, [str(width) for width in config.widths])
  figures.axes_text(axes, x="components of the vector", y="words read right [%]")
  figures.legend(axes, loc="upper left")
  return figure


def recall(config: Recall, recalled: Recalled) -> Figure:
  """Values named right against the width of the state."""
  title = (
    f"A state of {config.widths[-1]} units names {np.mean(recalled[BEFORE][-1]):.0f}% right if"
    f" asked before it reads, {np.mean(recalled[AFTER][-1]):.0f}% if after; with attention"
    f" {config.widths[0]} units name {np.mean(recalled[ATTENDED][0]):.0f}% after"
  )
  figure, (axes,) = figures.new(title)
  for series, (arm, by_width) in enumerate(recalled.items()):
    _band(axes, config.widths, by_width, label=_SAID[arm], series=series)
  axes.axhline(100 / config.values, color="#888888", linewidth=0.8)
  axes.annotate("chance", (config.widths[-1], 100 / config.values), ha="right", fontsize=8)
  axes.set_xscale("log", base=2)
  axes.set_xticks(config.widths, [str(width) for width in config.widths])
  figures.axes_text(axes, x="units of the state", y="values named right [%]")
  figures.legend(axes, loc="best")
  return figure


def by_unknown(runs: Mapping[str, Sequence[Measured]]) -> Figure:
  """Errors of both models by the share of unknown letters."""
  first, last = (
    {arm: float(np.mean([one.unknown[at].symbol_errors for one in runs[arm]])) for arm in PAIR}
    for at in (0, -1)
  )
  groups = runs[ATTENTION][0].unknown
  title = (
    f"With {groups[-1].label} unknown letters {last[FIXED]:.0f}% of symbols are wrong with a fixed"
    f" vector ({first[FIXED]:.0f}% without unknown ones), {last[ATTENTION]:.0f}% with attention"
    f" ({first[ATTENTION]:.0f}%)"
  )
  figure, (axes,) = figures.new(title)
  places = np.arange(len(groups))
  for series, arm in enumerate(PAIR):
    errors = [[one.unknown[at].symbol_errors for one in runs[arm]] for at in places]
    means, lows, highs, _ = zip(*map(mean_interval, errors), strict=True)
    low = np.maximum(lows, 0)
    figures.points(axes, places, means, low, highs, label=arm, series=series, shift=4 * series)
  axes.set_xticks(places, [f"{group.label}\nn={group.sources}" for group in groups])
  axes.set_ylim(bottom=0)
  figures.axes_text(axes, x="share of unknown letters in the source", y="symbol errors [%]")
  figures.legend(axes, loc="center right")
  return figure


def by_width(found: Mapping[int, Mapping[str, Sequence[Measured]]]) -> Figure:
  """Errors of both models against the units of their states."""
  widths = list(found)
  ends = [float(np.mean([one.symbol_errors for one in found[w][FIXED]])) for w in widths]
  other = [float(np.mean([one.symbol_errors for one in found[w][ATTENTION]])) for w in widths]
  title = (
    f"From {widths[0]} to {widths[-1]} units a fixed vector's errors go from {ends[0]:.0f} to"
    f" {ends[-1]:.0f}%, attention's from {other[0]:.0f} to {other[-1]:.0f}%"
  )
  figure, (axes,) = figures.new(title)
  for series, arm in enumerate(PAIR):
    errors = [[one.symbol_errors for one in found[width][arm]] for width in widths]
    _band(axes, widths, errors, label=arm, series=series)
  axes.set_xscale("log", base=2)
  axes.set_xticks(widths, [str(width) for width in widths])
  figures.axes_text(axes, x="units of each state", y="symbol errors [%]")
  figures.legend(axes)
  return figure


def _band(
  axes: Axes, x: Sequence[int], values: Sequence[Sequence[float]], *, label: str, series: int
) -> None:
  """Means of percentages with their intervals."""
  means, lows, highs, _ = zip(*map(mean_interval, values), strict=True)
  band = np.clip(lows, 0, 100), np.clip(highs, 0, 100)
  figures.line(axes, x, means, *band, label=label, series=series)
  axes.set_ylim(0, 103)


def _errors(runs: Sequence[Measured], group: int) -> list[float]:
  return [one.groups[group].symbol_errors for one in runs]


def _mean_last(runs: Sequence[Measured]) -> float:
  return float(np.mean(_errors(runs, -1)))


def _mean(values: Sequence[float | None]) -> float:
  return float(np.mean([value for value in values if value is not None]))
