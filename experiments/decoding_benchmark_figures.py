"""The figure of `experiments.decoding_benchmark`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from attn.report import figures
from experiments.training_benchmark_work import ATTN

if TYPE_CHECKING:
  from experiments.decoding_benchmark_trials import Measured


def rates(measured: Sequence["Measured"]) -> Figure:
  """How many times as many sentences a second attn searches, or its own rates without a peer."""
  against = [each for each in measured if any(t.contender != ATTN for t in each.trials)]
  return _ratios(against) if against else _alone(measured)


def _ratios(measured: Sequence["Measured"]) -> Figure:
  found = {}
  for each in measured:
    for trial in each.trials:
      peer = each.trial(trial.cell, each.match.peer)
      if trial.contender == ATTN and peer is not None:
        found[each.match, trial.cell] = trial.over(peer)
  medians = [ratio.median for ratio in found.values()]
  figure, panels = figures.new(
    f"attn searches {min(medians):.2g} to {max(medians):.2g} times as many sentences a second",
    columns=len(measured),
    size=(2.0 + 3.2 * len(measured), 4.2),
  )
  for axes, each in zip(panels, measured, strict=True):
    cells = [cell for match, cell in found if match == each.match]
    for series, batch in enumerate(dict.fromkeys(cell.batch for cell in cells)):
      of_batch = [cell for cell in cells if cell.batch == batch]
      ends = np.array([found[each.match, cell] for cell in of_batch])
      figures.line(
        axes, [cell.beam for cell in of_batch], *ends.T, label=f"batch {batch}", series=series
      )
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.set_xticks(sorted({cell.beam for cell in cells}))
    figures.axes_text(axes, x="beam", y="times the peer's", title=each.match.name)
  figures.legend(panels[0])
  return figure


def _alone(measured: Sequence["Measured"]) -> Figure:
  figure, panels = figures.new(
    "attn's sentences a second, without a peer next to it",
    columns=len(measured),
    size=(2.0 + 3.2 * len(measured), 4.2),
  )
  for axes, each in zip(panels, measured, strict=True):
    for series, batch in enumerate(dict.fromkeys(trial.cell.batch for trial in each.trials)):
      own = [trial for trial in each.trials if trial.cell.batch == batch]
      figures.line(
        axes,
        [trial.cell.beam for trial in own],
        [trial.rate for trial in own],
        label=f"batch {batch}",
        series=series,
      )
    axes.set_ylim(bottom=0)
    figures.axes_text(axes, x="beam", y="sentences a second", title=each.match.model)
  figures.legend(panels[0])
  return figure
