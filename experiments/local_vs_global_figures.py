"""The figures of `experiments.local_vs_global`."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attn.evaluation.intervals import mean_interval, paired_interval
from attn.report import figures
from experiments.local_vs_global_programs import FIXED, GLOBAL, LOCAL, PREDICTED, WINDOWS, Cost
from experiments.local_vs_global_runs import Measured, Runs

_SERIES = {window: at for at, window in enumerate(WINDOWS)}  # one colour a window, in all figures
_LINKED = 5  # the series of what is true
_ORDERS = {"copy": "in order", "lexicon": "nearly in order", "reverse": "said backwards"}


def windows(runs: Runs, half_width: int) -> Figure:
  """Symbols wrong by length, a panel a task, and how many links no window around t holds."""
  figure, panels = figures.new(_message(runs), columns=len(runs), size=(10.0, 4.6))
  for axes, (task, by_title) in zip(panels, runs.items(), strict=True):
    found = _by_window(by_title)
    groups = next(iter(found.values()))[0].groups
    places = np.arange(len(groups))
    for window, several in found.items():
      rows = [[group.wrong for group in one.groups] for one in several]
      _band(axes, places, rows, label=window, series=_SERIES[window])
    beyond = [group.beyond for group in groups]
    axes.plot(places, beyond, color="#555555", linestyle=":", label="links beyond t \u00b1 D")
    axes.set_xticks(places, [f"{group.label}\nn={group.sources}" for group in groups])
    figures.axes_text(
      axes, x="letters of the source", y="symbols wrong [%]",
      title=f"{task}: {_ORDERS[task]}, D = {half_width}",
    )  # fmt: skip
  top = max(axes.get_ylim()[1] for axes in panels)
  for axes in panels:
    axes.set_ylim(-0.02 * top, top)
  figures.legend(panels[0], loc="upper left")
  return figure


def _message(runs: Runs) -> str:
  """What a window costs where links leave the diagonal, and where they do not."""
  told = []
  for task, by_title in runs.items():
    found = _by_window(by_title)
    mean = {window: f"{_mean(several, 'wrong'):.1f}%" for window, several in found.items()}
    said = ", ".join(f"{window} {value}" for window, value in mean.items()) + " of symbols wrong"
    if len(found) == len(WINDOWS):
      breaks, repairs = (
        paired_interval(*([one.wrong for one in found[window]] for window in pair)).low > 0
        for pair in ((FIXED, GLOBAL), (FIXED, PREDICTED))
      )
      if breaks and repairs:
        said = (
          f"the fixed window breaks ({mean[FIXED]} of symbols wrong, global {mean[GLOBAL]}), the"
          f" predicted one repairs {_repaired(found):.0%} of that ({mean[PREDICTED]})"
        )
    told.append(f"{_ORDERS[task]}: {said}")
  text = "; ".join(reversed(told))
  return text[0].upper() + text[1:]


def _repaired(found: Mapping[str, Sequence[Measured]]) -> float:
  """Share of what local-m gets wrong beyond global attention that local-p gets right."""
  whole, fixed, predicted = (_mean(found[window], "wrong") for window in (GLOBAL, FIXED, PREDICTED))
  return (fixed - predicted) / (fixed - whole)


def centres(runs: Runs) -> Figure:
  """Where windows lie against where the links are."""
  apart = ", ".join(
    f"{_mean(several, 'apart'):.1f} letters ({task})"
    for task, by_title in runs.items()
    for window, several in _by_window(by_title).items()
    if window == PREDICTED
  )
  title = f"The centre that local-p predicts is on average {apart} from the letter to be read"
  figure, panels = figures.new(title, columns=len(runs), size=(10.0, 4.4))
  for axes, (task, by_title) in zip(panels, runs.items(), strict=True):
    for window, several in _by_window(by_title).items():
      if several[0].centres is not None:
        rows = [one.centres for one in several if one.centres is not None]
        places = np.arange(len(rows[0]))
        _band(axes, places, rows, label=f"{window}, centre", series=_SERIES[window])
        linked = np.array(several[0].linked, float)
    axes.plot(
      places, linked, color=figures.COLOURS[_LINKED], linestyle=":", linewidth=2.2,
      label="linked letter",
    )  # fmt: skip
    figures.axes_text(
      axes, x="target position t", y="source position", title=f"{task}: {_ORDERS[task]}"
    )
  figures.legend(panels[0])
  return figure


def attention(runs: Runs) -> Figure:
  """The weights of one test source, a row a task and a column a window."""
  columns = max(len(_by_window(by_title)) for by_title in runs.values())
  error = {
    (task, window): _mean(several, "alignment_error")
    for task, by_title in runs.items()
    for window, several in _by_window(by_title).items()
  }
  (task, window), most = max(error.items(), key=lambda item: item[1])
  title = f"On {task}, {window} attention misses or misplaces {most:.0f}% of the links"
  size = (4.3 * columns, 0.7 + 3.9 * len(runs))
  figure, panels = figures.new(title, rows=len(runs), columns=columns, size=size)
  for row, (task, by_title) in enumerate(runs.items()):
    for column, (window, several) in enumerate(_by_window(by_title).items()):
      shown = several[0].shown
      figures.heat_map(
        panels[row * columns + column],
        np.array(shown.weights),
        shown.source,
        shown.target,
        links=[(source, target) for source, target in shown.links],
        title=f"{task}, {window}: alignment error {error[task, window]:.0f}%",
      )
  return figure


def mass(runs: Runs, half_width: int, equal: float) -> Figure:
  """How much of the weights a window around t would hold, and what a step's weights sum to."""
  figure, (left, right) = figures.new(_mass_message(runs, half_width), columns=2, size=(10.0, 4.4))
  for axes, field in ((left, "near"), (right, "mass")):
    groups, errors = {}, {}
    for window in _by_window(next(iter(runs.values()))):
      found = [
        mean_interval([getattr(one, field) for one in _by_window(by_title)[window]])
        for by_title in runs.values()
      ]
      groups[window] = [one.mean for one in found]
      errors[window] = ([one.low for one in found], [one.high for one in found])
    form = "{:.0f}" if axes is left else "{:.2f}"
    figures.bars(axes, list(runs), groups, errors=errors, form=form)
    axes.set_ylim(top=1.3 * max(max(values) for values in groups.values()))  # room for the legend
  figures.legend(left, loc="upper left", ncols=len(groups))
  right.axhline(equal, color="#555555", linestyle=":")
  figures.axes_text(left, x="", y=f"weights within {half_width} of t [%]")
  figures.axes_text(right, x="", y="sum of a step's weights (dotted: local-p, equal scores)")
  return figure


def _mass_message(runs: Runs, half_width: int) -> str:
  told = []
  for task, by_title in runs.items():
    found = _by_window(by_title)
    window = GLOBAL if GLOBAL in found else next(iter(found))
    told.append(f"{_mean(found[window], 'near'):.0f}% ({task})")
  held = " and ".join(told)
  return f"Within {half_width} positions of t lie {held} of the weights of {window} attention"


def half_widths(runs: Runs, widths: Sequence[int]) -> Figure:
  """Symbols wrong by D, a panel a task."""
  order = sorted(widths)

  def found(by_title: Mapping[str, Sequence[Measured]], window: str) -> list[list[float]]:
    titles = [
      f"{window} general" + ("" if width == widths[0] else f", D={width}") for width in order
    ]
    return [[one.wrong for one in by_title[title]] for title in titles]

  told = "; ".join(
    f"{task} from {mean_interval(one[0]).mean:.1f}% at D = {order[0]} to"
    f" {mean_interval(one[-1]).mean:.1f}% at D = {order[-1]}"
    for task, one in ((task, found(by_title, FIXED)) for task, by_title in runs.items())
  )
  title = f"Symbols that local-m gets wrong: {told}"
  figure, panels = figures.new(title, columns=len(runs), size=(10.0, 4.4))
  for axes, (task, by_title) in zip(panels, runs.items(), strict=True):
    for window in LOCAL:
      values = [mean_interval(one) for one in found(by_title, window)]
      mean, low, high, _ = zip(*values, strict=True)
      figures.points(axes, order, mean, low, high, label=window, series=_SERIES[window])
    if f"{GLOBAL} general" in by_title:
      level = _mean(by_title[f"{GLOBAL} general"], "wrong")
      axes.axhline(level, color=figures.COLOURS[0], linestyle="--", label=GLOBAL)
    axes.set_xticks(order)
    axes.set_ylim(bottom=0)
    figures.axes_text(axes, x="half width D", y="symbols wrong [%]", title=task)
  figures.legend(panels[0])
  return figure


def verses(runs: Mapping[str, Sequence[Measured]]) -> Figure:
  """Perplexity, BLEU and alignment error of every cell."""
  perplexity = {title: [float(np.exp(one.nats)) for one in several]
                for title, several in runs.items()}  # fmt: skip
  first = min(runs, key=lambda title: mean_interval(perplexity[title]).mean)
  linked = min(runs, key=lambda title: _mean(runs[title], "alignment_error"))
  title = f"Verses: {first} has the lowest mean perplexity, {linked} the lowest alignment error"
  figure, panels = figures.new(title, columns=3, size=(12.0, 0.45 * len(runs) + 2.4))
  values = {
    "perplexity": perplexity,
    "BLEU": {title: [one.bleu or 0.0 for one in several] for title, several in runs.items()},
    "alignment error [%]": {
      title: [one.alignment_error for one in several] for title, several in runs.items()
    },
  }
  places = np.arange(len(runs))[::-1]
  for axes, (what, by_title) in zip(panels, values.items(), strict=True):
    for place, (title, several) in zip(places, by_title.items(), strict=True):
      one = mean_interval(several)
      series = _SERIES[title.split(" ")[0]]
      axes.errorbar(
        one.mean, place, xerr=[[one.mean - one.low], [one.high - one.mean]], capsize=3,
        color=figures.COLOURS[series], marker=figures.MARKERS[series], markersize=5,
      )  # fmt: skip
    axes.set_yticks(places, list(runs) if axes is panels[0] else [""] * len(runs))
    axes.set_ylim(-0.6, len(runs) - 0.4)
    figures.axes_text(axes, x=what, y="")
  return figure


def cost(measured: Sequence[Cost]) -> Figure:
  """Time and memory of a pass against the length."""
  longest = measured[-1]
  medians = {name: 1e3 * times.spread.median for name, times in longest.times.items()}
  slow, fast = max(medians, key=medians.__getitem__), min(medians, key=medians.__getitem__)
  title = (
    f"At {longest.length} symbols a pass takes {medians[fast]:.0f} ms with {fast} attention and"
    f" {medians[slow]:.0f} ms with {slow}"
  )
  figure, (left, right) = figures.new(title, columns=2, size=(10.0, 4.4))
  lengths = [one.length for one in measured]
  for series, name in enumerate(longest.times):
    spreads = [one.times[name].spread for one in measured]
    ms = [[1e3 * getattr(s, end) for s in spreads] for end in ("median", "low", "high")]
    figures.line(left, lengths, *ms, label=name, series=series)
    figures.line(
      right, lengths, [one.memory[name] / 2**20 for one in measured], label=name, series=series
    )
  figures.axes_text(left, x="symbols of source and target", y="forward pass [ms]")
  figures.axes_text(right, x="symbols of source and target", y="temporary memory [MiB]")
  for axes in (left, right):
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.minorticks_off()
  figures.legend(left)
  return figure


def _by_window(by_title: Mapping[str, Sequence[Measured]]) -> dict[str, Sequence[Measured]]:
  """The cells of one score, general if there are any, and of the main D, by window."""
  scores = [title.split(" ", 1)[1] for title in by_title]
  score = "general" if "general" in scores else scores[0]
  titles = ((window, f"{window} {score}") for window in WINDOWS)
  return {window: by_title[title] for window, title in titles if title in by_title}


def _mean(several: Sequence[Measured], field: str) -> float:
  return mean_interval([getattr(one, field) for one in several]).mean


def _band(
  axes: Axes, places: np.ndarray, rows: Sequence[Sequence[float]], *, label: str, series: int
) -> None:
  """Means over seeds, a row each, and their intervals."""
  columns = [mean_interval(column) for column in np.array(rows, float).T]
  mean, low, high, _ = zip(*columns, strict=True)
  figures.line(axes, places, mean, low, high, label=label, series=series)
