"""The figures of `experiments.teacher_forcing`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attn.evaluation.intervals import mean_interval, paired_interval
from attn.report import figures
from experiments.teacher_forcing_runs import FED_SHARES, Measured


def mismatch(runs: Mapping[float, Sequence[Measured]]) -> Figure:
  """Loss against the share of the words read that are the model's own, a line a training share."""
  told = []
  for share in dict.fromkeys((0.0, max(runs))):
    fed = np.mean([one.losses for one in runs[share]], axis=0)
    told.append(f"{fed[-1] - fed[0]:.2f} nats trained on {share:.0%} of its own")
  figure, (axes,) = figures.new(f"Reading only its own words costs a model {', '.join(told)}")
  for series, (share, seeds) in enumerate(runs.items()):
    _line(axes, 100 * np.array(FED_SHARES), [one.losses for one in seeds],
          f"trained on {share:.0%} of its own", series)  # fmt: skip
  figures.axes_text(axes, x="words read that are the model's own [%]", y="loss a symbol [nats]")
  axes.set_ylim(bottom=0)
  figures.legend(axes)
  return figure


def quality(runs: Mapping[float, Sequence[Measured]]) -> Figure:
  """Errors of greedy outputs against the share of the model's own words in training."""
  measures = {"symbol_errors": "symbols wrong [%]", "word_errors": "words wrong [%]"}
  most = max(runs)
  ends = ([one.symbol_errors for one in runs[share]] for share in (most, 0.0))
  figure, panels = figures.new(
    f"Training on {most:.0%} of its own words changes a model's wrong symbols by"
    f" {paired_interval(*ends):+.1f} points",
    columns=2,
  )
  for axes, (of, label) in zip(panels, measures.items(), strict=True):
    found = [mean_interval([getattr(one, of) for one in seeds]) for seeds in runs.values()]
    mean, low, high, _ = zip(*found, strict=True)
    shares = [100 * share for share in runs]
    figures.points(axes, shares, mean, low, high, label=label, series=0)
    axes.set_xticks(shares)
    axes.set_ylim(bottom=0)
    told = f"greedy outputs, {len(runs[most])} seeds"
    figures.axes_text(axes, x="own words read in training [%]", y=label, title=told)
  return figure


def exposure(runs: Mapping[float, Sequence[Measured]]) -> Figure:
  """Errors by place, and after the first error, fed the truth and fed its own words."""
  truth = runs[0.0]
  own, forced = (
    float(np.mean([getattr(one, of)[0] for one in truth])) for of in ("own_since", "forced_since")
  )
  figure, (left, right) = figures.new(
    f"Right after its first error a model is wrong in {own:.0f}% of the symbols when it reads what"
    f" it wrote, in {forced:.0f}% of the same symbols when it reads the truth",
    columns=2,
  )
  for axes, ends in ((left, "by_place"), (right, "since")):
    for series, (of, label) in enumerate((("own", "its own words"), ("forced", "the truth"))):
      rows = [getattr(one, f"{of}_{ends}") for one in truth]
      size = min(map(len, rows))
      _line(axes, np.arange(1, size + 1), [row[:size] for row in rows], f"fed {label}", series)
    axes.set_ylim(bottom=0)
    axes.set_xticks(np.arange(1, size + 1))
  figures.axes_text(left, x="symbol of the target", y="symbols wrong [%]", title="all outputs")
  figures.axes_text(
    right, x="symbols since the first error", y="symbols wrong [%]", title="after the first error"
  )
  figures.legend(left)
  return figure


def waiting(found: Mapping[str, Any], words: int) -> Figure:
  """Share of the products that wait for the step before, along a known target and generated."""
  order = sorted(found, key=lambda name: found[name].forced.waiting)
  chosen = math.floor(min(one.generated.waiting for one in found.values()))
  figure, (axes,) = figures.new(
    f"Along a known target {found[order[0]].forced.waiting:.0f}% to"
    f" {found[order[-1]].forced.waiting:.0f}% of the products wait for the step before; where"
    f" words are chosen, {chosen}% or more",
    size=(8.0, 4.6),
  )
  figures.bars(
    axes,
    list(found),
    {
      "known target": [one.forced.waiting for one in found.values()],
      "chosen words": [one.generated.waiting for one in found.values()],
    },
    form="{:.0f}",
  )
  figures.axes_text(axes, x=f"model, target of {words} words", y="multiply-adds that wait [%]")
  axes.set_ylim(0, 120)
  axes.set_yticks(range(0, 101, 20))
  figures.legend(axes, loc="upper left", ncols=2)
  return figure


def _line(
  axes: Axes, x: np.ndarray, rows: Sequence[Sequence[float]], label: str, series: int
) -> None:
  columns = np.array(rows).T
  mean, low, high, _ = zip(*(mean_interval(column) for column in columns), strict=True)
  figures.line(axes, x, mean, low, high, label=label, series=series)
