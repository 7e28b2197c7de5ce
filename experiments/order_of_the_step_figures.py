"""The figures of `experiments.order_of_the_step`."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attn.evaluation.intervals import mean_interval
from attn.report import figures
from experiments.order_of_the_step_claims import Evidence, apart, seeing
from experiments.order_of_the_step_jacobians import ANNOTATIONS, NAMES, TITLES, WORD, Step
from experiments.order_of_the_step_runs import G2P, LN2, WALK, excess

_SHORT = {
  "bahdanau": "Bahdanau\n3.1",
  "bahdanau_appendix": "Bahdanau\nA.2.2",
  "groundhog": "Bahdanau\ncode",
  "luong": "Luong",
  "conditional_gru": "conditional\nGRU",
}


def walk(evidence: Evidence) -> Figure:
  """Losses on the walk along the updates, and above the optimum after them."""
  gap, see, runs = apart(evidence), seeing(evidence.steps), evidence.trained[WALK]
  title = (
    f"Attention that has not seen the word before loses {gap.mean:.2f} nats a step on the walk"
    if gap.low > 0
    else "On the walk, scoring before or after the word before makes no difference that shows"
  )
  figure, (left, right) = figures.new(title, columns=2, size=(11.5, 4.6))
  for series, (order, several) in enumerate(runs.items()):
    curves = [mean_interval(at) for at in zip(*(run.dev for run in several), strict=True)]
    means, lows, highs = np.array(curves).T[:3]
    label = f"{TITLES[order]} ({'sees' if order in see else 'blind to'} {_math(WORD)})"
    updates = several[0].updates
    figures.line(left, updates, means, lows, highs, label=label, series=series)
  left.axhline(LN2, color="#555555", linewidth=1, linestyle=":")
  left.annotate("ln 2, the optimum", (left.get_xlim()[0], LN2), va="top", fontsize=8,
                xytext=(4, -2), textcoords="offset points")  # fmt: skip
  losses = [loss for several in runs.values() for run in several for loss in run.dev]
  left.set_ylim(LN2 - 0.15, max(losses) + 0.1)  # A band may leave the picture, no run does.
  figures.axes_text(left, x="updates", y="loss on dev [nats a step]")
  figures.legend(left)
  _bars(right, {order: excess(several) for order, several in runs.items()}, "{:.3f}")
  seeds = len(runs[next(iter(runs))])
  figures.axes_text(right, x="", y="test loss above ln 2 [nats a step]", title=f"{seeds} seeds")
  return figure


def g2p(evidence: Evidence) -> Figure:
  """Symbol errors of the orders on g2p."""
  errors = {
    order: [run.symbol_errors for run in several if run.symbol_errors is not None]
    for order, several in evidence.trained[G2P].items()
  }
  means = {order: float(np.mean(several)) for order, several in errors.items()}
  best = min(means, key=lambda order: means[order])
  title = (
    f"On g2p the orders make {min(means.values()):.1f}% to {max(means.values()):.1f}% symbol"
    f" errors, {TITLES[best]} the fewest"
  )
  figure, (axes,) = figures.new(title, size=(8.0, 4.2))
  _bars(axes, errors, "{:.2f}")
  seeds = len(errors[best])
  figures.axes_text(axes, x="", y="symbol errors [%]", title=f"{seeds} seeds")
  return figure


def _bars(axes: Axes, values: dict[str, Sequence[float]], form: str) -> None:
  """A bar an order with the interval of its mean."""
  means, lows, highs, _ = zip(*(mean_interval(v) for v in values.values()), strict=True)
  names = [_SHORT[order] for order in values]
  figures.bars(axes, names, {"mean": means}, errors={"mean": (lows, highs)}, form=form)


def dependencies(evidence: Evidence) -> Figure:
  """What each action depends on, a panel an order."""
  see = seeing(evidence.steps)
  seers = ", ".join(_SHORT[order].replace("\n", " ") for order in see)
  title = f"What each action depends on: the score has seen the word before in {seers} alone"
  figure, panels = figures.new(title, rows=2, columns=3, size=(12.5, 7.4))
  for axes, (order, step) in zip(panels, evidence.steps.items(), strict=False):
    _matrix(axes, order, step)
  _key(panels[-1])
  return figure


def _matrix(axes: Axes, order: str, step: Step) -> None:
  """Actions by inputs: the norm of a direct dependency, a dot for one through others."""
  columns, state = _columns(order), NAMES[order]["new"]
  between = {"between": "s'_i"} if "between" in step.direct else {}
  rows = {
    **between, "scores": "e_i", "weights": "\u03b1_i", "context": "c_i", "state": state,
    "output": "p(y_i)",
  }  # fmt: skip
  for y, action in enumerate(rows):
    for x, name in enumerate(columns):
      direct, total = (found[action].get(name, 0.0) for found in (step.direct, step.total))
      itself = rows[action] == name
      colour = figures.COLOURS[0] if direct else "#EEEEEE" if itself else "white"
      axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="#BBBBBB"))
      text = f"{direct:.2f}" if direct else "\u2022" if total and not itself else ""
      axes.text(x, y, text, ha="center", va="center", fontsize=9,
                color="white" if direct else "#222222")  # fmt: skip
  axes.set_xlim(-0.5, len(columns) - 0.5)
  axes.set_ylim(len(rows) - 0.5, -0.5)
  axes.grid(False)
  axes.spines[:].set_visible(False)
  axes.set_xticks(range(len(columns)), [_math(name) for name in columns])
  axes.set_yticks(range(len(rows)), [_math(name) for name in rows.values()])
  axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
  figures.axes_text(axes, x="may depend on", y="action", title=TITLES[order])


def _columns(order: str) -> list[str]:
  """The inputs of an order, those from before the step first."""
  names = NAMES[order]
  taps = ["word", "old", *["carried"] * ("carried" in names), "annotations"]
  taps += ["between"] * (order == "conditional_gru") + ["scores", "context", "new"]
  return [names[tap] for tap in taps]


def _key(axes: Axes) -> None:
  """What the marks of the panels mean."""
  axes.axis("off")
  axes.set_xlim(0, 10)
  axes.set_ylim(10, 0)
  marks = (
    (figures.COLOURS[0], "0.37", "white", "in the action's own equation:\nnorm of the Jacobian"),
    ("white", "\u2022", "#222222", "only through other actions"),
    ("white", "", "#222222", "no dependency: exactly 0"),
    ("#EEEEEE", "", "#222222", "the action itself"),
  )
  for row, (colour, text, ink, told) in enumerate(marks):
    y = 1 + 1.7 * row
    axes.add_patch(Rectangle((0.3, y), 1.4, 1.1, facecolor=colour, edgecolor="#BBBBBB"))
    axes.text(1.0, y + 0.55, text, ha="center", va="center", fontsize=9, color=ink)
    axes.text(2.1, y + 0.55, told, va="center", fontsize=9)
  between = _math(NAMES["conditional_gru"]["between"])
  names = (
    f"{_math(ANNOTATIONS)}: annotations; s: the decoder's state, Luong's h;\n"
    f"{between}: its state between the two GRUs"
  )
  axes.text(0.3, 8.6, names, va="center", fontsize=9)


def _math(name: str) -> str:
  """A name of the papers, set as mathematics."""
  return "$" + name.replace("\u03b1", r"\alpha").replace("s'", r"\tilde{s}") + "$"
