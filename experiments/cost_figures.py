"""The figures of `experiments.cost`."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attn import cost
from attn.report import figures
from experiments.cost_claims import Measured
from experiments.cost_counts import PARTS
from experiments.cost_timings import ATTENTION, EACH_STEP, FIXED


def step(measured: Measured, length: int) -> Figure:
  """Multiply-adds of one decoding step by part, and of attention by length."""
  parts = measured.steps
  shares = {at_hand: one["attention"].macs / one["step"].macs for at_hand, one in parts.items()}
  title = (
    f"With U_a h_j kept, attention is {shares[True]:.1%} of a decoding step's multiply-adds;"
    f" computed at every step it would be {shares[False]:.0%}"
  )
  figure, (left, right) = figures.new(title, columns=2, size=(11.0, 4.4))
  names = {True: "U_a h_j kept", False: "U_a h_j at every step"}
  groups = {
    names[at_hand]: [one[part].macs / 1e6 for part in PARTS] for at_hand, one in parts.items()
  }
  labels = ["previous\nword", "attention", "state", "readout and\noutput layer"]
  _dots(left, labels, groups, "{:.3g}")
  left.set_ylim(0.5, 500)
  figures.legend(left)
  figures.axes_text(
    left, x="part of the step", y="multiply-adds [millions]", title=f"{length} source positions"
  )
  for series, (at_hand, by_length) in enumerate(measured.reading.items()):
    lengths = [at for at in sorted(by_length) if at != length + 1]  # which tells what one adds
    macs = [by_length[at]["attention"].macs / 1e6 for at in lengths]
    figures.line(right, lengths, macs, label=names[at_hand], series=series)
  rest = parts[True]["step"].macs - parts[True]["attention"].macs
  right.axhline(rest / 1e6, color="#555555", linewidth=1, linestyle=":")
  right.annotate("all the rest of the step", (lengths[-1], rest / 1e6), ha="right", va="bottom",
                 fontsize=8)  # fmt: skip
  right.set_xscale("log")
  right.set_yscale("log")
  _ticks(right, lengths)
  figures.axes_text(right, x="source positions T", y="multiply-adds [millions]",
                    title="attention of one step")  # fmt: skip
  figures.legend(right)
  return figure


def kept(measured: Measured, length: int) -> Figure:
  """Numbers kept of a source against its length."""
  lengths = sorted(measured.annotations)
  fixed, annotations, keys = (
    np.array([found[at].reals for at in lengths], float)
    for found in (measured.fixed, measured.annotations, measured.keys)
  )
  there = lengths.index(length)
  title = (
    f"For {length} words attention keeps {annotations[there] / fixed[there]:.4g} times the"
    " numbers of a fixed vector, and more with every word"
  )
  figure, (axes,) = figures.new(title)
  figures.line(axes, lengths, fixed, label="fixed vector (Sutskever)", series=0)
  figures.line(axes, lengths, annotations, label="annotations h_j (Bahdanau)", series=1)
  figures.line(axes, lengths, annotations + keys, label="h_j and U_a h_j", series=2)
  axes.set_xscale("log")
  axes.set_yscale("log")
  _ticks(axes, lengths)
  figures.axes_text(axes, x="source positions T", y="numbers kept")
  figures.legend(axes, loc="upper left")
  return figure


def time(measured: Measured) -> Figure:
  """Times of the pass against the length, and their ratios."""
  passes = measured.passes
  lengths, last = [at.length for at in passes], passes[-1]
  dearer = last.times[ATTENTION].over(last.times[FIXED])
  slower = last.times[EACH_STEP].over(last.times[ATTENTION])
  title = (
    f"At T = {last.length} attention takes {dearer.median:.2g} times as long as a fixed vector;"
    f" with U_a h_j at every step {slower.median:.2g} times as long as that"
  )
  figure, (left, right) = figures.new(title, columns=2, size=(11.0, 4.4))
  for series, name in enumerate((FIXED, ATTENTION, EACH_STEP)):
    spreads = [at.times[name].spread for at in passes]
    median, low, high = ([1000 * getattr(s, f) for s in spreads] for f in ("median", "low", "high"))
    figures.line(left, lengths, median, low, high, label=name, series=series)
  for series, name, over in ((1, ATTENTION, FIXED), (2, EACH_STEP, ATTENTION)):
    ratios = np.array([at.times[name].over(at.times[over]) for at in passes])
    label = f"{name}\n/ {over}"
    figures.line(right, lengths, *ratios.T, label=label, series=series)
  right.axhline(1, color="#888888", linewidth=0.8)
  right.set_ylim(bottom=0)
  for axes in (left, right):
    axes.set_xscale("log")
    _ticks(axes, lengths)
  left.set_yscale("log")
  figures.axes_text(left, x="symbols T of source and target", y="time of a pass [ms]")
  figures.axes_text(right, x="symbols T of source and target", y="ratio of times")
  figures.legend(left)
  figures.legend(right)
  return figure


def memory(measured: Measured) -> Figure:
  """Temporary memory of the compiled passes against the length."""
  passes = measured.passes
  lengths, last = [at.length for at in passes], passes[-1]
  ratio = last.training[ATTENTION] / last.training[FIXED]
  title = (
    f"At T = {last.length} training with attention takes {ratio:.2g} times the memory of a fixed"
    " vector's"
  )
  figure, (left, right) = figures.new(title, columns=2, size=(11.0, 4.4))
  for axes, found, told in (
    (left, [at.forward for at in passes], "forward"),
    (right, [at.training for at in passes], "with gradients"),
  ):
    for series, name in enumerate((FIXED, ATTENTION, EACH_STEP)):
      if name in found[0]:
        held = [one[name] / 2**20 for one in found]
        figures.line(axes, lengths, held, label=name, series=series)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _ticks(axes, lengths)
    figures.axes_text(
      axes, x="symbols T of source and target", y="temporary memory [MiB]", title=told
    )
    figures.legend(axes)
  return figure


def bits(measured: Measured, length: int) -> Figure:
  """Bits of a sentence against those that the fixed vector takes."""
  vector = measured.fixed[length].bits
  sentence = cost.sentence_bits(length, measured.rows)
  title = f"{length} words take {sentence / vector:.2%} of the bits of the fixed vector"
  figure, (axes,) = figures.new(title, size=(10.0, 4.2))
  amounts = {
    f"{measured.fixed[length].reals} numbers\nof 32 bits": float(vector),
    f"out of {measured.rows:,}\nwords, equally\nlikely": sentence,
  }
  for one in measured.languages:
    side = one.name.partition(", ")[2].removesuffix("s")
    amounts[f"{side}: out of {one.words:,}\nwords, equally\nlikely"] = length * one.uniform
    amounts[f"{side}: the same,\nby their\nfrequencies"] = length * (one.uniform - one.saved.mean)
  _dots(axes, list(amounts), {"bits": list(amounts.values())}, "{:,.0f}")
  axes.set_ylim(100, 3e6)
  figures.axes_text(axes, x="", y=f"bits of {length} words")
  return figure


def _dots(
  axes: Axes, names: Sequence[str], groups: Mapping[str, Sequence[float]], form: str
) -> None:
  """A dot and its number a name and group: a bar has no length on a logarithmic axis."""
  for k, (label, values) in enumerate(groups.items()):
    at = np.arange(len(names)) + 0.3 * (k - (len(groups) - 1) / 2)
    style = {"color": figures.COLOURS[k], "marker": figures.MARKERS[k], "linestyle": "none"}
    axes.plot(at, values, label=label, markersize=7, **style)
    for place, value in zip(at, values, strict=True):
      axes.annotate(form.format(value), (place, value), xytext=(0, 6), textcoords="offset points",
                    ha="center", fontsize=8)  # fmt: skip
  axes.set_xticks(np.arange(len(names)), names)
  axes.set_xlim(-0.5, len(names) - 0.5)
  axes.set_yscale("log")


def _ticks(axes, lengths) -> None:
  """The lengths themselves below a logarithmic axis."""
  axes.set_xticks(lengths, [str(length) for length in lengths])
  axes.set_xticks([], minor=True)
