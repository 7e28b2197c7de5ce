"""Figures of runs compared: a metric against each axis, and the curves of training."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from attn.evaluation.intervals import Interval, mean_interval
from attn.report import comparison as comparing
from attn.report import figures, runs
from attn.report.comparison import Comparison, Row

_SERIES = len(figures.COLOURS)
_DECADE = 10.0  # from this ratio of the largest to the smallest value on, an axis is logarithmic
_ASIDE = 4.0  # points between neighbouring series
_TICKS = 9  # so many values or fewer each have their tick
_CURVES = ("dev_loss", "loss")  # of the logs, the first that there is


class Drawn(NamedTuple):
  """A figure, the name of its file, and what stands below it."""

  name: str
  figure: Figure
  caption: str


def draw(comparison: Comparison) -> Iterator[Drawn]:
  """Yields a figure for each metric and axis that has several values, then the curves."""
  for metric in comparison.metrics:
    for axis in comparison.axes:
      rows = [row for row in comparison.rows if metric in row.values]
      if len({comparing.text_of(row.setting[axis]) for row in rows}) > 1:
        yield _against(comparison, metric, axis, rows)
  curves = _curves(comparison)
  if curves is not None:
    yield curves


# A metric against an axis.


def _against(comparison: Comparison, metric: str, axis: str, rows: Sequence[Row]) -> Drawn:
  series: dict[str, list[Row]] = {}
  for row in rows:
    series.setdefault(_label(row, axis), []).append(row)
  caption = _caption(comparison, rows, metric)
  chosen = series
  if len(series) > _SERIES:
    chosen, told = _through_best(comparison, series)
    caption = f"Dots: all {len(rows)} settings. {told}{caption}"
  figure, (axes,) = figures.new(_message(comparison, metric, axis, rows), note=caption)
  places = _places(axes, [row.setting[axis] for row in rows])
  if chosen is not series:
    x = [places[comparing.text_of(row.setting[axis])] for row in rows]
    y = [row.values[metric].mean for row in rows]
    axes.plot(x, y, "o", color="#888888", markersize=3.5, alpha=0.6, zorder=1)
  numeric = all(runs.is_number(row.setting[axis]) for row in rows)
  for k, (label, members) in enumerate(chosen.items()):
    x = [places[comparing.text_of(row.setting[axis])] for row in members]
    found = [row.values[metric] for row in members]
    y, low, high = ([getattr(one, end) for one in found] for end in ("mean", "low", "high"))
    shift = (k - (len(chosen) - 1) / 2) * (_ASIDE if numeric else 3 * _ASIDE)
    figures.points(axes, x, y, low, high, label=label, series=k, joined=numeric, shift=shift)
  _scale(axes, [row.values[metric] for row in rows])
  unit = comparison.units[metric]
  figures.axes_text(axes, x=axis, y=f"{metric} [{unit}]" if unit else metric)
  if any(chosen):
    figures.legend(axes)
  return Drawn(f"{_slug(metric)}-by-{_slug(axis)}", figure, caption)


def _through_best(
  comparison: Comparison, series: Mapping[str, list[Row]]
) -> tuple[dict[str, list[Row]], str]:
  """The series that the best setting is in, and what it is."""
  for label, members in series.items():
    if comparison.best and any(row is comparison.best.row for row in members):
      if len(members) == 1:
        return {"best": members}, "Coloured: the best. "
      return {label: members}, "Line: those that differ from the best by this axis alone. "
  return {}, ""


def _label(row: Row, axis: str = "") -> str:
  """A setting without one of its axes."""
  setting = row.setting.items()
  return ", ".join(f"{path}={comparing.shown(value)}" for path, value in setting if path != axis)


def _places(axes: Axes, values: Sequence[Any]) -> dict[str, float]:
  """Where each value stands on the x axis, whose scale and ticks are set."""
  distinct = {comparing.text_of(value): value for value in sorted(values, key=comparing.order)}
  numeric = all(runs.is_number(value) for value in distinct.values())
  if not numeric:
    axes.set_xlim(-0.5, len(distinct) - 0.5)
  places = {
    text: float(value) if numeric else k for k, (text, value) in enumerate(distinct.items())
  }
  if numeric and _spans_decades(places.values()):
    axes.set_xscale("log")
  if not numeric or len(places) <= _TICKS:
    axes.xaxis.set_minor_locator(NullLocator())
    crowded = sum(map(len, places)) > 60
    axes.set_xticks(list(places.values()), list(places), rotation=30 if crowded else 0)
  return places


def _scale(axes: Axes, found: Sequence[Interval]) -> None:
  """Makes the y axis logarithmic where means and intervals are positive and span decades."""
  ends = [end for one in found for end in one[:3] if math.isfinite(end)]
  if _spans_decades(ends):
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    few = max(ends) / min(ends) < _DECADE**2
    axes.yaxis.set_minor_formatter(FuncFormatter(_labelled) if few else NullFormatter())


def _labelled(value: float, _: float) -> str:
  """Labels 2 and 5 of each decade: it may be the only one on the axis."""
  return f"{value:g}" if f"{value:e}"[0] in "25" else ""


def _spans_decades(values: Collection[float]) -> bool:
  return min(values) > 0 and max(values) / min(values) >= _DECADE


def _message(comparison: Comparison, metric: str, axis: str, rows: Sequence[Row]) -> str:
  means = {id(row): row.values[metric].mean for row in rows}
  low, high = (choose(rows, key=lambda row: means[id(row)]) for choose in (min, max))
  direction = comparing.direction_of(metric)
  if metric == comparison.metrics[0] and comparison.best:
    direction = comparison.best.direction
  if direction is None:
    return f"{metric} lies between {means[id(low)]:.4g} and {means[id(high)]:.4g} over {axis}"
  row, word = (low, "lowest") if direction == "min" else (high, "highest")
  others = _label(row, axis)
  here = f"{axis}={comparing.shown(row.setting[axis])}"
  return f"{metric} is {word} at {here}" + (f" with {others}" if others else "")


def _caption(comparison: Comparison, rows: Sequence[Row], metric: str) -> str:
  counts = sorted({row.values[metric].n for row in rows})
  n = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
  if counts[-1] == 1:
    return "n = 1 run each; bars: the 95% interval that a run gives itself, if it does."
  alone = "; no bar where n = 1" if counts[0] == 1 else ""
  return f"Means over {comparison.over}, n = {n} runs; bars: 95% intervals, Student's t{alone}."


# The curves of training.


def _curves(comparison: Comparison) -> Drawn | None:
  """What the logs say over the updates, for the best settings if there are many."""
  best = comparison.best
  rows = [row for row in comparison.rows if comparison.metrics[0] in row.values]
  shown = (best.ranked if best and len(rows) > _SERIES else rows)[:_SERIES]
  logs = [[runs.log(run.folder) for run in row.runs if run.status == "finished"] for row in shown]
  names = {name for row in logs for lines in row for line in lines for name in line}
  asked = [name for name in (*comparison.metrics, *_CURVES) if name in names]
  if not asked:
    return None
  curves = {}
  for row, lines in zip(shown, logs, strict=True):
    steps = _common(lines, asked[0])
    if steps:
      curves[_label(row) or "all"] = steps
  if not any(len(steps) > 1 for steps in curves.values()):
    return None
  return _drawn_curves(asked[0], curves, len(rows), comparison)


def _common(logs: Sequence[Sequence[Mapping[str, Any]]], name: str) -> dict[int, Interval]:
  """The mean at each step that all runs have a value at."""
  series = [
    {line["step"]: line[name] for line in lines if runs.is_number(line.get(name))} for lines in logs
  ]
  steps = sorted(set.intersection(*map(set, series))) if series else []
  return {step: mean_interval([one[step] for one in series]) for step in steps}


def _drawn_curves(
  name: str, curves: Mapping[str, Mapping[int, Interval]], settings: int, comparison: Comparison
) -> Drawn:
  counts = sorted({one.n for steps in curves.values() for one in steps.values()})
  n = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
  which = f"The {len(curves)} best of {settings} settings by {comparison.metrics[0]}. "
  which = which if settings > len(curves) and comparison.best else ""
  bands = "; bands: 95% intervals, Student's t" if counts[-1] > 1 else ""
  caption = f"{which}Means of n = {n} finished runs, where all of them have a value{bands}."
  last = {label: list(steps.values())[-1].mean for label, steps in curves.items()}
  larger = comparing.direction_of(name) == "max"
  label = (max if larger else min)(last, key=lambda one: last[one])
  word = "highest" if larger else "lowest"
  told = f"at {last[label]:.4g}" if len(last) == 1 else f"{word} for {label}, at {last[label]:.4g}"
  figure, (axes,) = figures.new(f"{name} ends {told}", note=caption)
  for k, (label, steps) in enumerate(curves.items()):
    y, low, high = (
      np.array([getattr(one, end) for one in steps.values()]) for end in ("mean", "low", "high")
    )
    low, high = (np.where(np.isfinite(end), end, np.nan) for end in (low, high))
    figures.line(axes, list(steps), y, low, high, label=label, series=k)
    axes.lines[-1].set_markevery(max(1, len(steps) // 10))
  _scale(
    axes,
    [
      Interval(one.mean, one.mean, one.mean, one.n)
      for steps in curves.values()
      for one in steps.values()
    ],
  )
  figures.axes_text(axes, x="updates", y=name)
  figures.legend(axes)
  return Drawn(f"curves-{_slug(name)}", figure, caption)


def _slug(text: str) -> str:
  return "".join(c if c.isalnum() or c in "._-" else "_" for c in text)
