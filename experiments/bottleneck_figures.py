"""The figures of `experiments.bottleneck`."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from attn.evaluation.intervals import mean_interval, paired_interval
from attn.report import figures
from experiments.bottleneck_runs import ARMS, ATTENTION, FIXED, Measured


def by_length(measured: Mapping[str, Mapping[str, Sequence[Measured]]]) -> Figure:
  """Errors of both models by length, a column a data set, and their difference below."""
  longest = "; ".join(
    f"{name} {_mean_last(arms[FIXED]):.0f}% of symbols wrong with a fixed vector,"
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
    means, lows, highs, _ = zip(
      *(paired_interval(_errors(arms[FIXED], at), _errors(arms[ATTENTION], at)) for at in places),
      strict=True,
    )
    figures.line(lower, places, means, lows, highs, label="difference", series=5)
    lower.axhline(0, color="#888888", linewidth=0.8)
    errors = [group.symbol_errors for arm in ARMS for one in arms[arm] for group in one.groups]
    upper.set_ylim(0, 1.25 * max(errors))  # A band may leave the picture, no run does.
    for axes in (upper, lower):
      axes.set_xticks(places, labels)
    seeds = len(arms[ATTENTION])
    figures.axes_text(upper, x="", y="symbol errors [%]", title=f"{name}, {seeds} seeds")
    figures.axes_text(lower, x="letters of the source", y="fixed less attention [points]")
  figures.legend(panels[0], loc="upper left")
  return figure


def attention(measured: Mapping[str, Mapping[str, Sequence[Measured]]]) -> Figure:
  """The weights of one test source of each data set."""
  found = " and ".join(
    f"{100 - _mean([one.alignment_error for one in arms[ATTENTION]]):.0f}% of the links of {name}"
    for name, arms in measured.items()
    if arms[ATTENTION][0].alignment_error is not None
  )
  title = f"Attention, never shown an alignment, agrees with {found}"
  figure, panels = figures.new(title, columns=len(measured), size=(11.0, 5.0))
  for axes, (name, arms) in zip(panels, measured.items(), strict=True):
    shown = arms[ATTENTION][0].shown
    assert shown is not None  # every run with attention has one
    figures.heat_map(
      axes,
      np.array(shown.weights),
      shown.source,
      shown.target,
      links=[(source, target) for source, target in shown.links or ()],
      title=name,
    )
  return figure


def _errors(runs: Sequence[Measured], group: int) -> list[float]:
  return [one.groups[group].symbol_errors for one in runs]


def _mean_last(runs: Sequence[Measured]) -> float:
  return float(np.mean(_errors(runs, -1)))


def _mean(values: Sequence[float | None]) -> float:
  return float(np.mean([value for value in values if value is not None]))
