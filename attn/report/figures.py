"""Figures for the report: one style, safe for colour-blind readers and for black-and-white print.

Every figure has one message as its title, names its axes with units, and says its n and what its
bands are. Series differ by colour, marker and dash at once. Nothing here touches the global state
of matplotlib, so that importing it changes nobody's plots.

    figure, (axes,) = figures.new('Scaling keeps the entropy at any width')
    figures.line(axes, widths, medians, low, high, label='q.k', series=0)
    figures.axes_text(axes, x='width d_k', y='entropy [nats]')
"""

import functools
import io
import os
import pathlib
import textwrap
import unicodedata
import warnings
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.transforms import ScaledTranslation

from attn.report import results

# Okabe and Ito's palette without the yellow, which vanishes on paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#000000", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "X", "P")
DASHES = ("-", "--", "-.", ":", "-", "--", "-.")
HATCHES = ("", "//", "..", "xx", "\\\\", "--", "++")

_TITLE, _LABEL, _TICK, _NOTE = 12.0, 10.0, 9.0, 8.0
_FONT = "DejaVu Sans"  # comes with matplotlib
_INK, _GRID = "#222222", "#DDDDDD"


def new(
  title: str,
  *,
  rows: int = 1,
  columns: int = 1,
  size: tuple[float, float] | None = None,
  note: str = "",
) -> tuple[Figure, list[Axes]]:
  """A figure with `rows` times `columns` empty axes.

  Args:
    title: the one message, as a sentence.
    rows: rows of axes.
    columns: columns of axes.
    size: width and height in inches; by default 7 wide (10 for several columns), 4.2 a row.
    note: small print below: n, intervals, conditions.

  Returns:
    The figure and its axes, row by row.
  """
  width, height = size or (7.0 if columns == 1 else 10.0, 0.6 + 3.7 * rows)
  figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
  FigureCanvasAgg(figure)
  wrapped = textwrap.fill(title, int(width * 72 / (_TITLE * 0.64)))
  figure.suptitle(wrapped, fontsize=_TITLE, fontweight="bold", color=_INK, x=0.01, ha="left")
  if note:
    wrapped = textwrap.fill(note, int(width * 72 / (_NOTE * 0.54)))
    figure.supxlabel(wrapped, fontsize=_NOTE, color="#555555", x=0.01, ha="left")
  axes = list(figure.subplots(rows, columns, squeeze=False).flat)
  for each in axes:
    each.spines[["top", "right"]].set_visible(False)
    each.spines[["left", "bottom"]].set_color("#888888")
    each.tick_params(labelsize=_TICK, colors=_INK)
    each.grid(True, color=_GRID, linewidth=0.6)
    each.set_axisbelow(True)
  return figure, axes


def axes_text(axes: Axes, *, x: str, y: str, title: str = "") -> None:
  """Names the axes, with units, and the panel where there are several."""
  axes.set_xlabel(x, fontsize=_LABEL, color=_INK)
  axes.set_ylabel(y, fontsize=_LABEL, color=_INK)
  if title:
    axes.set_title(title, fontsize=_LABEL, color=_INK, loc="left")


def legend(axes: Axes, **options: Any) -> None:
  """A legend without a frame of its own weight; options go to matplotlib."""
  axes.legend(**{"fontsize": _TICK, "framealpha": 0.85, "edgecolor": "none", **options})


def legend_below(axes: Axes, columns: int = 3) -> None:
  """One legend for all panels of a figure, below them, of the series in one of the panels."""
  figure = axes.get_figure(root=True)
  assert figure is not None
  shown = axes.get_legend_handles_labels()
  figure.legend(*shown, loc="outside lower center", ncols=columns, fontsize=_TICK, edgecolor="none")


def line(
  axes: Axes,
  x: Sequence[float] | np.ndarray,
  y: Sequence[float] | np.ndarray,
  low: Sequence[float] | np.ndarray | None = None,
  high: Sequence[float] | np.ndarray | None = None,
  *,
  label: str,
  series: int,
) -> None:
  """One series as a line with markers, and its interval as a band.

  Args:
    axes: where to draw.
    x: positions.
    y: values, same length.
    low: lower ends of the band, or None.
    high: upper ends of the band, or None.
    label: name in the legend.
    series: which colour, marker and dash; the same series has the same number in every panel.
  """
  k = series % len(COLOURS)
  style: dict[str, Any] = {"color": COLOURS[k], "marker": MARKERS[k], "linestyle": DASHES[k]}
  axes.plot(x, y, label=label, linewidth=1.8, markersize=5, **style)
  if low is not None and high is not None:
    axes.fill_between(x, low, high, color=COLOURS[k], alpha=0.18, linewidth=0)


def points(
  axes: Axes,
  x: Sequence[float] | np.ndarray,
  y: Sequence[float] | np.ndarray,
  low: Sequence[float] | np.ndarray,
  high: Sequence[float] | np.ndarray,
  *,
  label: str,
  series: int,
  joined: bool = True,
  shift: float = 0.0,
) -> None:
  """One series as markers with their intervals as bars; an infinite end is not drawn.

  Args:
    axes: where to draw.
    x: positions.
    y: values, same length.
    low: lower ends of the intervals.
    high: upper ends of the intervals.
    label: name in the legend.
    series: which colour, marker and dash; the same series has the same number in every panel.
    joined: whether a line joins the markers: positions are numbers, not names.
    shift: points to the right, so that bars of several series do not hide each other.
  """
  k = series % len(COLOURS)
  dash = DASHES[k] if joined else "none"
  spread = np.stack([np.subtract(y, low), np.subtract(high, y)])
  drawn = axes.errorbar(
    x, y, np.where(np.isfinite(spread), spread, np.nan), label=label, linewidth=1.8, markersize=5,
    capsize=3, elinewidth=1.2, color=COLOURS[k], marker=MARKERS[k], linestyle=dash,
  )  # fmt: skip
  axes.autoscale_view()  # while matplotlib knows where all of it is
  aside = ScaledTranslation(shift / 72, 0, axes.figure.dpi_scale_trans)
  for artist in drawn.get_children():
    artist.set_transform(axes.transData + aside)


def bars(
  axes: Axes,
  names: Sequence[str],
  groups: dict[str, Sequence[float]],
  *,
  errors: dict[str, tuple[Sequence[float], Sequence[float]]] | None = None,
  form: str = "{:.2f}",
) -> None:
  """Grouped bars with their values printed at their ends, beside an interval, never at its end.

  Args:
    axes: where to draw.
    names: what stands below each group.
    groups: series name to one value a group.
    errors: series name to (low, high) ends of the intervals.
    form: format of the printed values.
  """
  width = 0.8 / len(groups)
  for k, (label, values) in enumerate(groups.items()):
    at = np.arange(len(names)) + (k - (len(groups) - 1) / 2) * width
    style: dict[str, Any] = {"color": COLOURS[k % len(COLOURS)], "hatch": HATCHES[k % len(HATCHES)]}
    axes.bar(at, values, width * 0.92, label=label, edgecolor="white", linewidth=0, **style)
    told = [form.format(value) for value in values]
    text: dict[str, Any] = {"xytext": (0, 2), "ha": "center"}
    if errors and label in errors:
      low, high = errors[label]
      spread = np.stack([np.subtract(values, low), np.subtract(high, values)])
      axes.errorbar(at, values, spread, fmt="none", ecolor=_INK, capsize=3, linewidth=1.2)
      text = {"xytext": (5, 2), "ha": "left"}
      needed = 8 + 0.64 * _NOTE * max(map(len, told))  # points to the next bar's interval
      between = axes.bbox.width * 72 / axes.figure.dpi * width / len(names)
      text["rotation"] = 90 if needed > between else 0
    for place, value, number in zip(at, values, told, strict=True):
      axes.annotate(
        number, (place, value), textcoords="offset points", fontsize=_NOTE, color=_INK,
        path_effects=[withStroke(linewidth=2, foreground="white")], **text,
      )  # fmt: skip
  axes.set_xticks(np.arange(len(names)), names)
  axes.grid(False, axis="x")
  axes.margins(y=0.12)
  if len(groups) > 1:
    legend(axes)


def heat_map_size(source: int, target: int) -> tuple[float, float]:
  """Width and height in inches of a figure with one heat map whose labels can be read."""
  cell = float(np.clip(4.5 / max(source, target, 1), 0.21, 0.45))
  return max(5.0, source * cell + 2.0), max(3.2, target * cell + 1.8)


def heat_map(
  axes: Axes,
  weights: np.ndarray,
  source: Sequence[str],
  target: Sequence[str],
  *,
  links: Collection[tuple[int, int]] = (),
  title: str = "",
) -> None:
  """Attention weights: a row a target symbol, a column a source symbol, black for 1.

  Args:
    axes: where to draw; give the figure `heat_map_size`.
    weights: `[t, s]`, in [0, 1].
    source: `s` labels.
    target: `t` labels.
    links: (source, target) pairs to frame, such as the true alignment.
    title: of this panel.
  """
  weights = np.asarray(weights, float)
  if weights.shape != (len(target), len(source)):
    raise ValueError(
      f"heat_map: weights have shape {weights.shape}, the labels want {(len(target), len(source))}"
    )
  image = axes.imshow(weights, cmap="Greys", vmin=0, vmax=1, aspect="equal", interpolation="none")
  axes.grid(False)
  axes.spines[:].set(visible=True, color="#888888")
  crowded = max(len(source), len(target)) > 15
  families, boxes = fonts_for([*source, *target])
  font: dict[str, Any] = {"fontsize": 7.5 if crowded else _TICK, "fontfamily": families}
  font["parse_math"] = False  # a symbol may have dollars
  upright = max(map(len, source), default=0) <= (1 if crowded else 3)
  stacked = ["\n".join(text) if _is_wide(text) else text for text in source]
  axes.set_xticks(range(len(source)), stacked, linespacing=1.0, **font)
  axes.set_yticks(range(len(target)), target, **font)
  axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
  for label, text in zip(axes.get_xticklabels(), source, strict=True):
    label.set_rotation(0 if upright or _is_wide(text) else 90)
  for s, t in links:
    frame: dict[str, Any] = {"fill": False, "edgecolor": COLOURS[1], "linewidth": 1.4}
    axes.add_patch(Rectangle((s - 0.46, t - 0.46), 0.92, 0.92, **frame))
  bar = axes.figure.colorbar(image, ax=axes, shrink=0.6, aspect=18, pad=0.02)
  bar.set_label("weight", fontsize=_NOTE)
  bar.ax.tick_params(labelsize=_NOTE)
  notes = ["source", *["framed: true alignment"] * bool(links)]
  if boxes:
    shown = ", ".join(f"U+{ord(character):04X}" for character in boxes[:4])
    more = f" and {len(boxes) - 4} more" if len(boxes) > 4 else ""
    notes.append(f"a box is a character that no font here has: {shown}{more}")
  axes.set_xlabel("; ".join(notes), fontsize=_NOTE, color=_INK)
  axes.set_ylabel("target", fontsize=_NOTE, color=_INK)
  if title:
    axes.set_title(title, fontsize=_LABEL, color=_INK, loc="left")


def _is_wide(text: str) -> bool:
  """Whether all is Chinese, Japanese or Korean, which is read from top to bottom as well."""
  return all(unicodedata.east_asian_width(character) in "WF" for character in text)


def fonts_for(texts: Iterable[str]) -> tuple[list[str], str]:
  """Families of installed fonts that have the characters of some texts, the usual one first.

  Returns:
    The families, each for what those before it lack, and the characters that no font has.
  """
  families, left = [_FONT], {c for c in "".join(texts) if unicodedata.category(c)[0] not in "CZ"}
  left -= _characters(font_manager.findfont(_FONT))
  entries = font_manager.fontManager.ttflist if left else []
  plain = [e for e in entries if e.style == "normal" and e.weight in (400, "normal", "regular")]
  for entry in sorted(plain, key=lambda entry: ("Sans" not in entry.name, entry.name)):
    found = set() if "LastResort" in entry.fname else left & _characters(entry.fname)
    if found:
      families.append(entry.name)
      left -= found
    if not left:
      break
  return families, "".join(sorted(left))


@functools.cache
def _characters(path: str) -> frozenset[str]:
  return frozenset(map(chr, font_manager.get_font(path).get_charmap()))


def title_of(figure: Figure) -> str:
  """The figure's message, on one line."""
  return " ".join(figure.get_suptitle().split())


def save(figure: Figure, stem: str | os.PathLike[str]) -> None:
  """Writes `STEM.svg` and `STEM.png`, each whole; the same figure gives the same bytes.

  Where no font of this machine has a character, the PNG has a box, and the SVG text in place of
  outlines: whoever has a font sees it.

  Args:
    figure: as made by `new`.
    stem: path without an ending; the folder is made.
  """
  stem = pathlib.Path(stem)
  boxes = fonts_for(text.get_text() for text in figure.findobj(Text))[1]
  kind = "none" if boxes else "path"
  with (
    matplotlib.rc_context({"svg.hashsalt": "attn", "svg.fonttype": kind}),
    warnings.catch_warnings(),
  ):
    if boxes:
      warnings.filterwarnings("ignore", "Glyph .* missing from font")
    _write(figure, stem, "svg", metadata={"Date": None})
    layout = figure.get_layout_engine()
    figure.set_layout_engine(None)  # What has been laid out stays: to do it again takes a third.
    _write(figure, stem, "png", dpi=150)
    figure.set_layout_engine(layout)


def _write(figure: Figure, stem: pathlib.Path, kind: str, **options: Any) -> None:
  drawn = io.BytesIO()
  figure.savefig(drawn, format=kind, **options)
  results.write_bytes(stem.with_name(f"{stem.name}.{kind}"), drawn.getvalue())
