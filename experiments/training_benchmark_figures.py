"""The figures of `experiments.training_benchmark`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from attn.report import figures
from experiments.training_benchmark_work import ATTN, JOEYNMT, OPENNMT, PARTS, PRODUCTS

if TYPE_CHECKING:
  from experiments.training_benchmark_trials import Measured

# The same colour for the same contender in every figure.
SERIES = (ATTN, JOEYNMT, OPENNMT)
_SMALL = 9.0


def figures_of(measured: Sequence["Measured"], peak: float | None) -> dict[str, Figure]:
  """Name to figure, the most telling first."""
  found = {"rates": rates(measured)}
  told = [each for each in measured if each.parts]
  if told:
    found["parts"] = parts(told, peak)
  return found


def rates(measured: Sequence["Measured"]) -> Figure:
  """Real target symbols a second of each system, a group of bars a match."""
  ratios = [each.trials[0].over(each.trials[1]) for each in measured if len(each.trials) > 1]
  title = "attn's target symbols a second, without a peer next to it"
  if ratios:
    least, most = (pick(ratio.median for ratio in ratios) for pick in (min, max))
    title = f"attn trains {least:.2g} to {most:.2g} times as many target symbols a second"
  bars = sum(len(each.trials) for each in measured)
  figure, (axes,) = figures.new(title, size=(9.0, 1.6 + 0.42 * (bars + len(measured))))
  at, ticks, labelled = 0.0, {}, set()
  for each in measured:
    middle = at + (len(each.trials) - 1) / 2
    ticks[middle] = each.trials[0].match.name.replace(", ", "\n")
    for trial in each.trials:
      series, spread = SERIES.index(trial.contender), trial.spread
      style = {"color": figures.COLOURS[series], "hatch": figures.HATCHES[series]}
      label = None if trial.contender in labelled else trial.contender
      labelled.add(trial.contender)
      axes.barh(at, spread.median, 0.9, label=label, edgecolor="white", linewidth=0, **style)
      ends = [[spread.median - spread.low], [spread.high - spread.median]]
      axes.errorbar(spread.median, at, xerr=ends, fmt="none", ecolor="black", capsize=3)
      text = f"{spread.median:,.0f}"
      if trial.contender == ATTN and len(each.trials) > 1:
        ratio = trial.over(each.trials[1])
        text += f"   {ratio.median:.2f} times [{ratio.low:.2f}, {ratio.high:.2f}]"
      axes.annotate(
        text, (max(spread.high, spread.median), at), xytext=(5, 0), textcoords="offset points",
        va="center", fontsize=_SMALL,
      )  # fmt: skip
      at += 1
    at += 0.7
  axes.set_yticks(list(ticks), list(ticks.values()))
  axes.invert_yaxis()
  axes.grid(False, axis="y")
  axes.margins(x=0.5)
  axes.set_xlim(left=0)
  figures.axes_text(axes, x="real target symbols a second", y="")
  figures.legend(axes, loc="lower right")
  return figure


def parts(measured: Sequence["Measured"], peak: float | None) -> Figure:
  """Where the time of attn's update goes, and what its matrix products alone take."""
  whole = [each.parts[PARTS[-1]] for each in measured]
  shares = [each.parts[PRODUCTS] / total for each, total in zip(measured, whole, strict=True)]
  title = f"Matrix products alone are {min(shares):.0%} to {max(shares):.0%} of attn's update"
  if len(shares) == 1:
    title = f"Matrix products alone are {shares[0]:.0%} of attn's update"
  figure, (axes,) = figures.new(title, size=(9.0, 1.8 + 1.1 * len(measured)))
  for row, each in enumerate(measured):
    before = 0.0
    for series, part in enumerate(PARTS):
      width = max(each.parts[part] - before, 0.0)
      style = {"color": figures.COLOURS[series], "hatch": figures.HATCHES[series]}
      label = part if row == 0 else None
      axes.barh(row, 1e3 * width, 0.5, 1e3 * before, label=label, edgecolor="white",
                linewidth=0, **style)  # fmt: skip
      before = max(before, each.parts[part])
    marks = {"products, each alone": each.parts[PRODUCTS]}
    if peak is not None:
      flops = each.trials[0].facts["flops"]
      marks["products at the machine's peak"] = flops / peak / 1e9
    for style, (label, seconds) in zip(("-", ":"), marks.items(), strict=False):
      axes.vlines(1e3 * seconds, row - 0.38, row + 0.38, color="black", linestyle=style,
                  linewidth=2, label=label if row == 0 else None)  # fmt: skip
  axes.set_yticks(range(len(measured)), [each.trials[0].match.model for each in measured])
  axes.invert_yaxis()
  axes.grid(False, axis="y")
  figures.axes_text(axes, x="time of an update [ms]", y="")
  figures.legend(axes, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3)
  return figure
