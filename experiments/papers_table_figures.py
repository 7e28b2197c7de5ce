"""The figures of `experiments.papers_table`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attn import presets
from attn.evaluation.intervals import Interval, mean_interval
from attn.report import figures
from experiments import papers_table_orders as orders
from experiments.papers_table_orders import Measured, Pair, Table
from experiments.papers_table_runs import SYSTEMS

_BAR = {"capsize": 3, "elinewidth": 1.2, "markersize": 6, "linestyle": "none"}


def systems(found: Mapping[str, Measured]) -> Figure:
  """A row a system: BLEU as published, and what was measured on each data set."""
  names = _names(found)
  figure, panels = figures.new(
    _best(found), columns=1 + len(found), size=(4.6 + 3.6 * len(found), 1.9 + 0.42 * len(names))
  )
  _published(panels[0], names, "BLEU")
  figures.axes_text(panels[0], x="BLEU", y="", title="published, better to the right")
  for axes, (data, measured) in zip(panels[1:], found.items(), strict=True):
    measure = orders.measures(measured)["BLEU"]
    intervals = {
      system: mean_interval(orders.values(rows, measure)) for system, rows in measured.items()
    }
    _measured(axes, names, intervals)
    if not measure.larger:
      axes.invert_xaxis()
    figures.axes_text(axes, x=f"{measure.name} [{measure.unit}]", y="", title=f"here, {data}")
  _rows(panels, names)
  return figure


def price(found: Mapping[str, Measured]) -> Figure:
  """A row a system: perplexity as published and measured, and what training costs."""
  names = _names(found)
  width = 3.6 + 3.2 * (1 + len(found))
  figure, panels = figures.new(
    _spans(found), columns=2 + len(found), size=(width, 1.9 + 0.42 * len(names))
  )
  _published(panels[0], names, "perplexity")
  figures.axes_text(panels[0], x="perplexity", y="", title="published, better to the right")
  for axes, (data, measured) in zip(panels[1:-1], found.items(), strict=True):
    intervals = {
      system: mean_interval([float(np.exp(row["nats"])) for row in rows])
      for system, rows in measured.items()
    }
    _measured(axes, names, intervals)
    figures.axes_text(axes, x="perplexity", y="", title=f"here, {data}")
  for axes in panels[:-1]:
    axes.invert_xaxis()
  data, measured = next(iter(found.items()))
  speeds = {
    system: mean_interval([row["speed"] for row in rows]) for system, rows in measured.items()
  }
  _measured(panels[-1], names, speeds)
  for at, system in enumerate(names):
    panels[-1].annotate(
      f"{measured[system][0]['parameters']:,}", (1.02, at), fontsize=8, va="center",
      xycoords=("axes fraction", "data"),
    )  # fmt: skip
  panels[-1].set_xlim(left=0)
  figures.axes_text(
    panels[-1],
    x="target symbols a second",
    y="",
    title=f"training, {data}; parameters at the right",
  )
  _rows(panels, names)
  return figure


def leads(pairs: Sequence[Pair]) -> Figure:
  """Every pair: how much the published better system is ahead here."""
  groups: dict[tuple[str, str, str], list[Pair]] = {}
  for pair in pairs:
    key = pair.data, pair.measure.name, pair.measure.apart
    groups.setdefault(key, []).append(pair)
  columns = min(2, len(groups)) or 1
  lines = -(-len(groups) // columns) or 1
  most = max(map(len, groups.values()), default=1)
  figure, panels = figures.new(
    told(pairs), rows=lines, columns=columns,
    size=(6.4 * columns, 1.0 + lines * (1.0 + 0.24 * most)),
  )  # fmt: skip
  for axes, ((data, name, unit), own) in zip(panels, groups.items(), strict=False):
    for series, outcome in enumerate((orders.SAME, orders.OTHER, orders.UNDECIDED)):
      at = [place for place, pair in enumerate(own) if pair.outcome == outcome]
      if at:
        _dots(axes, at, [own[place].lead for place in at], outcome, (2, 1, 5)[series])
    axes.axvline(0, color="#222222", linewidth=1)
    axes.set_yticks(range(len(own)), [pair.name for pair in own], fontsize=8)
    axes.set_ylim(len(own) - 0.5, -0.5)
    figures.axes_text(axes, x=f"lead [{unit}]", y="", title=f"{data}: {name}")
    figures.legend(axes, loc="best", fontsize=8)
  for axes in panels[len(groups) :]:
    axes.set_visible(False)
  return figure


def told(pairs: Sequence[Pair]) -> str:
  """How many pairs came out as published, a data set at a time."""
  parts = []
  for data in dict.fromkeys(pair.data for pair in pairs):
    own = [pair for pair in pairs if pair.data == data]
    counted = orders.count(own)
    parts.append(
      f"on {data} {counted[orders.SAME]} of {len(own)} published orders of two systems come out"
      f" the same, {counted[orders.OTHER]} the other way round, {counted[orders.UNDECIDED]} open"
    )
  text = "; ".join(parts) or "no two of these systems stand in one published table"
  return text[0].upper() + text[1:]


def _best(found: Mapping[str, Measured]) -> str:
  """The best system on each data set, and the worst."""
  parts = []
  for data, measured in found.items():
    measure = orders.measures(measured)["BLEU"]
    means = {system: np.mean(orders.values(rows, measure)) for system, rows in measured.items()}
    ranked = sorted(means, key=means.__getitem__, reverse=measure.larger)
    unit = "%" * (measure.unit == "%")
    best, worst = (f"{means[one]:.1f}{unit} ({SYSTEMS[one]})" for one in (ranked[0], ranked[-1]))
    parts.append(f"{data}, {measure.name}: from {best} to {worst}")
  return "; ".join(parts)


def _spans(found: Mapping[str, Measured]) -> str:
  data, measured = next(iter(found.items()))
  speeds = {
    system: mean_interval([row["speed"] for row in rows]).mean for system, rows in measured.items()
  }
  shown = {
    system: mean_interval([float(np.exp(row["nats"])) for row in rows]).mean
    for system, rows in measured.items()
  }
  best, worst = min(shown, key=shown.__getitem__), max(shown, key=shown.__getitem__)
  return (
    f"On {data} mean perplexities go from {shown[best]:.2f} ({SYSTEMS[best]}) to"
    f" {shown[worst]:.2f} ({SYSTEMS[worst]}), at {min(speeds.values()):,.0f} to"
    f" {max(speeds.values()):,.0f} symbols a second"
  )


def _names(found: Mapping[str, Measured]) -> list[str]:
  """All systems that were trained, in the register's order."""
  return [name for name in SYSTEMS if any(name in measured for measured in found.values())]


def _rows(panels: Sequence[Axes], names: Sequence[str]) -> None:
  """Systems from the top down, named at the left."""
  for at, axes in enumerate(panels):
    axes.set_yticks(range(len(names)), [SYSTEMS[name] for name in names] if at == 0 else [])
    axes.set_ylim(len(names) - 0.5, -0.5)


def _published(axes: Axes, names: Sequence[str], what: str) -> None:
  """A marker a table."""
  tables: list[Table] = [table for table in orders.PUBLISHED if table.what == what]
  for series, table in enumerate(tables, 3):
    at = [place for place, name in enumerate(names) if name in table.values]
    values = [Interval(table.values[names[place]], np.nan, np.nan, 1) for place in at]
    if at:
      _dots(axes, at, values, table.source, series)
  if axes.get_legend_handles_labels()[0]:
    figures.legend(axes, loc="best", fontsize=7)
  else:
    axes.set_xticks([], [])  # no paper printed any


def _measured(axes: Axes, names: Sequence[str], intervals: Mapping[str, Interval]) -> None:
  """With attention and without."""
  for series, (label, attends) in enumerate((("attention", True), ("fixed vector", False))):
    at = [
      place
      for place, name in enumerate(names)
      if name in intervals and presets.get(name).model.attends == attends
    ]
    if at:
      _dots(axes, at, [intervals[names[place]] for place in at], label, series)
  figures.legend(axes, loc="best", fontsize=7)


def _dots(
  axes: Axes, at: Sequence[int], intervals: Sequence[Interval], label: str, series: int
) -> None:
  """Intervals as lines across; an infinite end, or none, is not drawn."""
  means = np.array([one.mean for one in intervals])
  ends = np.array([(one.mean - one.low, one.high - one.mean) for one in intervals]).T
  k = series % len(figures.COLOURS)
  style: dict[str, Any] = {"color": figures.COLOURS[k], "marker": figures.MARKERS[k], **_BAR}
  known = np.isfinite(ends)
  across = np.where(known, ends, np.nan) if known.any() else None
  axes.errorbar(means, at, xerr=across, label=label, **style)
