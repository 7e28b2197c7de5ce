"""The figures of `experiments.score_scale`."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from attn.report import figures, results

if TYPE_CHECKING:
  from experiments.score_scale import Config, Measured

GRADIENTS = ("Jacobian of the softmax", "gradient to query", "gradient to keys")


def gradients(config: "Config", measured: "Measured", verdict: results.Verdict) -> Figure:
  """Medians, quantiles and means of each gradient against the width."""
  title = {
    results.QUALIFIED: "Unscaled, the typical gradient vanishes as d_k grows, and the mean hides "
    "it; divided by sqrt(d_k), it stays",
    results.REPRODUCED: "Unscaled, the gradients vanish as d_k grows; divided by sqrt(d_k), they "
    "stay",
  }.get(verdict, "Gradients through the softmax against the width d_k")
  figure, panels = figures.new(title, columns=3, size=(11.5, 4.4))
  floor = 1e-8
  for axes, quantity in zip(panels, GRADIENTS, strict=True):
    for k, name in enumerate(measured.spreads):
      rows = measured.spreads[name][quantity]
      median, low, high = (
        np.maximum([getattr(at, field) for at in rows], floor) for field in ("median", "q05", "q95")
      )
      figures.line(axes, config.widths, median, low, high, label=f"{name}, median", series=k)
    means = [at.mean for at in measured.spreads["raw"][quantity]]
    axes.plot(config.widths, means, color="black", linewidth=1.2, label="raw, mean")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(bottom=floor)
    figures.axes_text(axes, x="width d_k", y="norm", title=quantity)
  figures.legend(panels[0], loc="lower left")
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
      figures.line(axes, config.widths, median, low, high, label=name, series=k)
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
  for k, name in enumerate(measured.spreads):
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
