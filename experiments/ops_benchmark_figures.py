"""The figures of `experiments.ops_benchmark`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from attn.report import figures
from experiments.ops_benchmark_programs import (
  ATTN,
  BARE,
  BOTH,
  DENSE,
  FORWARD,
  JAX_NN,
  KERAS_JAX,
  KERAS_TORCH,
  LOCAL,
  PASSES,
  PLAIN,
  WRITE,
)

if TYPE_CHECKING:
  from experiments.ops_benchmark import Config
  from experiments.ops_benchmark_timings import Timing

# The same colour for the same contender in every figure.
SERIES = (ATTN, PLAIN, KERAS_JAX, KERAS_TORCH, JAX_NN, DENSE, WRITE)
_AXES = {"target": "queries a sentence, t", "source": "keys a sentence, s", "width": "width n"}


def figures_of(config: "Config", timings: Sequence["Timing"]) -> dict[str, Figure]:
  """Name to figure, the most telling first; of the lowest number of threads unless stated."""
  one = [timing for timing in timings if timing.threads == min(config.threads)]
  grown = [timing for timing in one if timing.passes == BOTH]
  found = {
    score: growth(config, score, [timing for timing in grown if timing.case.score == score])
    for score in (BARE, "additive")
    if score in config.scores
  }
  found[LOCAL] = local([timing for timing in one if timing.case.score == LOCAL])
  found["scores"] = scores(config, timings)
  return found


def growth(config: "Config", score: str, timings: Sequence["Timing"]) -> Figure:
  """Time and temporary memory of both passes over t, s and n."""
  base = next(case for case in config.compared if case.score == score)
  times = {timing.contender: timing.spread.median for timing in timings if timing.case == base}
  slowest = max(times.keys() - {ATTN}, key=lambda contender: times[contender])
  title = (
    f"{score}, forward and backward: attn takes {times[ATTN] * 1e3:.3g} ms where {slowest} takes "
    f"{times[slowest] * 1e3:.3g}"
  )
  figure, panels = figures.new(title, rows=2, columns=3, size=(11.5, 7.4))
  for k, (axis, label) in enumerate(_AXES.items()):
    others = {name: getattr(config.base, name) for name in _AXES if name != axis}
    along = [t for t in timings if all(getattr(t.case, o) == size for o, size in others.items())]
    _lines(panels[k], along, axis)
    figures.axes_text(panels[k], x=label, y="time [ms]")
    _lines(panels[3 + k], along, axis, memory=True)
    figures.axes_text(panels[3 + k], x=label, y="temporary memory [MiB]")
  figures.legend(panels[0])
  return figure


def local(timings: Sequence["Timing"]) -> Figure:
  """Time of each pass of local attention over s."""
  last = max(timing.case.source for timing in timings)
  at_last = {(t.contender, t.passes): t.spread.median for t in timings if t.case.source == last}
  less = at_last[DENSE, FORWARD] / at_last[ATTN, FORWARD]
  title = f"A gathered window takes 1/{less:.3g} of the masked dense form's time at s = {last}"
  if less < 1:
    title = f"A gathered window takes {1 / less:.3g} times the dense form's time at s = {last}"
  figure, panels = figures.new(title, columns=2)
  for axes, passes in zip(panels, PASSES, strict=True):
    _lines(axes, [timing for timing in timings if timing.passes == passes], "source")
    figures.axes_text(axes, x=_AXES["source"], y="time [ms]", title=passes)
  figures.legend(panels[1])
  return figure


def _lines(
  axes: figures.Axes, timings: Sequence["Timing"], axis: str, *, memory: bool = False
) -> None:
  """A line a contender on logarithmic axes, with the medians' intervals."""
  for series, contender in enumerate(SERIES):
    points = sorted(
      (getattr(timing.case, axis), timing) for timing in timings if timing.contender == contender
    )
    if memory:
      points = [(size, timing) for size, timing in points if timing.facts.get("temp_bytes")]
    if not points:
      continue
    sizes, along = zip(*points, strict=True)
    if memory:
      figures.line(axes, sizes, [t.facts["temp_bytes"] / 2**20 for t in along],
                   label=contender, series=series)  # fmt: skip
    else:
      ends = ([1e3 * getattr(t.spread, end) for t in along] for end in ("median", "low", "high"))
      figures.line(axes, sizes, *ends, label=contender, series=series)
  axes.set_xscale("log", base=2)
  axes.set_yscale("log")
  sizes = sorted({getattr(timing.case, axis) for timing in timings})
  axes.set_xticks(sizes, [str(size) for size in sizes])
  axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)


def scores(config: "Config", timings: Sequence["Timing"]) -> Figure:
  """How many times attn's time plain `jnp` takes, for every score and number of threads."""
  at_base = {(t.case, t.threads, t.passes, t.contender): t for t in timings}
  threads = sorted({timing.threads for timing in timings})
  cases = [case for case in config.compared if case.score != LOCAL]
  groups, errors = {}, {}
  for count in threads:
    for passes in PASSES:
      found = [
        at_base[case, count, passes, PLAIN].over(at_base[case, count, passes, ATTN])
        for case in cases
      ]
      label = f"{passes}, {count} thread{'s' * (count > 1)}"
      medians, lows, highs = zip(*found, strict=True)
      groups[label], errors[label] = list(medians), (list(lows), list(highs))
  worst = min(min(values) for values in groups.values())
  best = max(max(values) for values in groups.values())
  title = f"Plain batched jnp takes {worst:.2g} to {best:.2g} times as long as attn.attend"
  figure, (axes,) = figures.new(title, size=(11.5, 4.6))
  figures.bars(axes, [case.score.replace("_", "\n") for case in cases], groups, errors=errors)
  axes.axhline(1, color="black", linewidth=0.8)
  figures.axes_text(axes, x="score", y="time of plain jnp / time of attn")
  return figure
