"""The figures of `experiments.score_scale`."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attn.evaluation.intervals import mean_interval
from attn.report import figures, results
from experiments.score_scale_draws import GRADIENTS, VARIANCE
from experiments.score_scale_real import TIMES, Real
from experiments.score_scale_trained import RAW, SCALED, Matching, Runs

if TYPE_CHECKING:
  from experiments.score_scale import Config, Measured

_BANDS = (RAW, SCALED)  # Five bands would hide each other.
FLOOR = 1e-8  # Smaller norms are drawn there.


def gradients(config: "Config", measured: "Measured", verdict: results.Verdict) -> Figure:
  """Medians, quantiles and means of each gradient against the width."""
  title = {
    results.QUALIFIED: "Unscaled, the typical gradient vanishes as d_k grows, and the mean hides "
    "it; divided by sqrt(d_k), it stays",
    results.REPRODUCED: "Unscaled, the gradients vanish as d_k grows; divided by sqrt(d_k), they "
    "stay",
  }.get(verdict, "Gradients through the softmax against the width d_k")
  figure, panels = figures.new(title, columns=3, size=(11.5, 4.4))
  for axes, quantity in zip(panels, GRADIENTS, strict=True):
    for k, name in enumerate(measured.spreads):
      rows = measured.spreads[name][quantity]
      median, low, high = (
        np.maximum([getattr(at, field) for at in rows], FLOOR) for field in ("median", "q05", "q95")
      )
      band = (low, high) if name in _BANDS else (None, None)
      figures.line(axes, config.widths, median, *band, label=f"{name}, median", series=k)
    means = [at.mean for at in measured.spreads["raw"][quantity]]
    axes.plot(config.widths, means, color="black", linewidth=1.2, label="raw, mean")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(bottom=FLOOR / 4)
    axes.axhline(FLOOR, color="#555555", linewidth=1, linestyle=":")
    axes.annotate(
      f"{FLOOR:g} or less", (config.widths[0], FLOOR), xytext=(6, -3),
      textcoords="offset points", va="top", fontsize=8,
    )  # fmt: skip
    figures.axes_text(axes, x="width d_k", y="norm", title=quantity)
  figures.legend_below(panels[0], columns=len(measured.spreads) + 1)
  return figure


def weights(config: "Config", measured: "Measured") -> Figure:
  """Entropy and largest weight against the width."""
  largest = measured.spreads["raw"]["largest weight"][-1].median
  scaled = measured.spreads["scaled"]["largest weight"][-1].median
  title = (
    f"At d_k = {config.widths[-1]} one of {config.positions} keys takes {largest:.0%} of the "
    f"weight unscaled, {scaled:.0%} scaled"
  )
  figure, panels = figures.new(title, columns=2)
  for axes, quantity, unit in zip(
    panels, ("entropy", "largest weight"), (" [nats]", ""), strict=True
  ):
    for k, name in enumerate(measured.spreads):
      rows = measured.spreads[name][quantity]
      median, low, high = ([getattr(at, f) for at in rows] for f in ("median", "q05", "q95"))
      band = (low, high) if name in _BANDS else (None, None)
      figures.line(axes, config.widths, median, *band, label=name, series=k)
    axes.set_xscale("log", base=2)
    figures.axes_text(axes, x="width d_k", y=quantity + unit)
  panels[0].axhline(np.log(config.positions), color="#888888", linewidth=0.8)
  panels[0].annotate(
    "uniform", (config.widths[0], np.log(config.positions)), va="bottom", fontsize=8
  )
  figures.legend(panels[0], loc="lower left")
  return figure


def variance(config: "Config", measured: "Measured", verdict: results.Verdict) -> Figure:
  """Variance of the scores against the width."""
  title = {
    results.REPRODUCED: "The variance of q.k is d_k; divided by sqrt(d_k), q.k has variance 1",
  }.get(verdict, "Variance of the scores against the width d_k")
  figure, (axes,) = figures.new(title)
  for k, (name, by_quantity) in enumerate(measured.spreads.items()):
    if name not in measured.variance:
      means = [at.mean for at in by_quantity[VARIANCE]]
      figures.line(axes, config.widths, means, label=name, series=k)
      continue
    expected = np.asarray(config.widths if name == "raw" else [1] * len(config.widths), float)
    mean, low, high = (
      expected * [getattr(at, f) for at in measured.variance[name]] for f in ("mean", "low", "high")
    )
    figures.line(axes, config.widths, mean, label=name, series=k)
    around = np.stack([mean - low, high - mean])
    axes.errorbar(config.widths, mean, around, fmt="none", ecolor="black", capsize=4)
  axes.set_xscale("log", base=2)
  axes.set_yscale("log", base=2)
  figures.axes_text(axes, x="width d_k", y="variance of the scores")
  figures.legend(axes)
  return figure


def example(config: "Config", measured: "Measured", verdict: results.Verdict) -> Figure:
  """Both gradients of the chapter's example against the multiplier."""
  title = {
    results.QUALIFIED: "Larger scores end with no gradient, but that to the unscaled scores rises "
    "first",
    results.REPRODUCED: "Larger scores have smaller gradients at every step",
  }.get(verdict, "Softmax gradients as the scores are multiplied up")
  figure, (axes,) = figures.new(title)
  names = ("to the multiplied scores", "to the unscaled scores")
  for k, (name, norms) in enumerate(zip(names, zip(*measured.example, strict=True), strict=True)):
    figures.line(axes, config.multipliers, norms, label=name, series=k)
  axes.set_xscale("log", base=2)
  axes.set_xticks(config.multipliers, [f"{m:g}" for m in config.multipliers])
  figures.axes_text(axes, x="multiplier of the scores 2, 4, 3", y="norm of the Jacobian")
  figures.legend(axes)
  return figure


def trained(config: Matching, runs: Runs) -> Figure:
  """Correct queries of each score against the width, a panel a setting of the optimizer."""
  raw, scaled = (runs[name][-1].right.mean(1) for name in (RAW, SCALED))
  title = (
    f"At d = {config.widths[-1]} the raw score has {raw.min():.0f}% to {raw.max():.0f}% of the"
    f" queries right, by the optimizer's setting, the scaled one {scaled.min():.0f}% to"
    f" {scaled.max():.0f}%"
  )
  columns = len(config.settings)
  figure, panels = figures.new(title, columns=columns, size=(2.0 + 2.5 * columns, 4.2))
  for at, (axes, setting) in enumerate(zip(panels, config.settings, strict=True)):
    for series, (name, by_width) in enumerate(runs.items()):
      found = [mean_interval(learned.right[at]) for learned in by_width]
      mean, low, high, _ = (np.array(column) for column in zip(*found, strict=True))
      band = (np.clip(low, 0, 100), np.clip(high, 0, 100))
      figures.line(axes, config.widths, mean, *band, label=name, series=series)
    axes.axhline(100 / config.items, color="#888888", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 103)
    y = "correct queries [%]" if not at else ""
    figures.axes_text(axes, x="width d", y=y, title=setting)
  panels[-1].annotate(
    "chance", (config.widths[-1], 100 / config.items), ha="right", va="bottom", fontsize=8
  )
  figures.legend_below(panels[0])
  return figure


def states(found: Real) -> Figure:
  """Variances of a trained model's queries, keys and scores, beside independent components."""
  widths = list(found)
  end = found[widths[-1]]["after"]
  query, keys, scores = (
    float(np.mean([getattr(one, name) for one in end])) for name in ("query", "keys", "scores")
  )
  title = (
    f"Trained LSTM states have variance {query:.2f} (queries) and {keys:.2f} (keys) where 1 is"
    f" assumed; at d = {widths[-1]} a query's scores have variance {scores:.3g}"
  )
  figure, (left, right) = figures.new(title, columns=2)
  series = 0
  for name in ("query", "keys"):
    for time in TIMES:
      _bars(left, found, time, name, label=f"{name}, {time} training", series=series)
      series += 1
  left.axhline(1, color="black", linewidth=0.8)
  left.annotate("as is assumed", (widths[0], 1), va="bottom", fontsize=8)
  for series, time in enumerate(TIMES):
    _bars(right, found, time, "scores", label=f"model, {time} training", series=series)
  right.plot(widths, widths, color="black", linewidth=1.2, label="unit variance: d")
  for axes, y in ((left, "variance of a component"), (right, "variance of a query's scores")):
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    figures.axes_text(axes, x="width d of the states", y=y)
    figures.legend(axes, loc="best")
  return figure


def _bars(axes: Axes, found: Real, time: str, name: str, *, label: str, series: int) -> None:
  """One number of the models against their width."""
  intervals = [mean_interval([getattr(one, name) for one in by[time]]) for by in found.values()]
  mean, low, high, _ = (np.array(column) for column in zip(*intervals, strict=True))
  low = np.maximum(low, mean / 10)  # The axis is logarithmic.
  figures.points(axes, list(found), mean, low, high, label=label, series=series)
