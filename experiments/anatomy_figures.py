"""The figures of `experiments.anatomy`."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attn.evaluation.intervals import Interval, mean_interval
from attn.report import figures
from experiments import anatomy_parts as parts
from experiments import anatomy_scores as scores


def reach(found: Sequence[parts.Reach], *, shown: bool) -> Figure:
  """Which words move which embedding, state, annotation and output; `shown`: as is claimed."""
  title = (
    "A word moves its own embedding, the forward states from it on, every annotation, and of the"
    " outputs the later ones"
    if shown
    else "What moves when a word is changed"
  )
  figure, panels = figures.new(title, columns=4, size=(12.5, 3.9))
  labels = {
    "embedding": "embedding E x",
    "forward": "forward state",
    "annotation": "annotation [forward; backward]",
    "output": "decoder's output",
  }
  for axes, (name, label) in zip(panels, labels.items(), strict=True):
    changes = np.stack([getattr(one, name) for one in found])
    _matrix(axes, changes)
    side = "target" if name == "output" else "source"
    figures.axes_text(axes, x=f"place in the {side}", y=f"{side} word that is changed", title=label)
  return figure


def _matrix(axes: Axes, changes: np.ndarray) -> None:
  """One square of changes `[draws, n, n]`, dark for large; 0 where no draw has any."""
  shade, n = np.sqrt(changes.mean(0).clip(0, 1)), changes.shape[-1]
  axes.imshow(shade, cmap="Greys", vmin=0, vmax=1)
  axes.grid(False)
  for k, j in np.ndindex(n, n):
    mean = f"{changes[:, k, j].mean():.1f}".removeprefix("0") if changes[:, k, j].any() else "0"
    color = "white" if shade[k, j] > 0.65 else "black"
    axes.text(j, k, mean, ha="center", va="center", fontsize=7, color=color)
  axes.set_xticks(range(n), parts.SENTENCE, rotation=90)
  axes.set_yticks(range(n), parts.SENTENCE)


def contexts(found: Sequence[Mapping[str, np.ndarray]]) -> Figure:
  """What of each word changes with the last word of its sentence."""
  at = parts.SHOWN
  moved = mean_interval([float(one["annotation"][at]) for one in found]).mean
  figure, (axes,) = figures.new(
    f"When {parts.SENTENCE[-1]} becomes {parts.ENDING}, the embedding of {parts.SENTENCE[at]} stays"
    f" and its annotation moves by {moved:.0%}",
    size=(10.0, 4.2),
  )
  groups, errors = {}, {}
  for name in found[0]:
    at_words = [
      mean_interval([100 * float(one[name][j]) for one in found])
      for j in range(len(parts.SENTENCE) - 1)
    ]
    groups[name] = [one.mean for one in at_words]
    errors[name] = _ends(at_words)
  figures.bars(axes, parts.SENTENCE[:-1], groups, errors=errors, form="{:.2g}")
  figures.axes_text(axes, x="word of the source", y="change [% of its norm]")
  axes.set_ylim(bottom=0)
  figures.legend(axes, loc="upper left")
  return figure


def same_weights(found: Sequence[scores.Swapped], *, shown: bool) -> Figure:
  """The weights and the words of one step, on two sets of values; `shown`: as is claimed."""
  weights, words = (100 * values for values in found[0].example)
  title = "The same weights over other values say another word" if shown else "One step, two values"
  figure, (left, right) = figures.new(title, columns=2, size=(11.0, 4.2))
  labels = ("own values", "values of another sentence")
  places = [str(j + 1) for j in range(weights.shape[1])]
  both = {label: row.tolist() for label, row in zip(labels, weights, strict=True)}
  figures.bars(left, places, both, form="{:.0f}")
  figures.axes_text(left, x="place in the source", y="weight [%]", title="where it reads")
  left.set_ylim(0, 1.35 * float(weights.max()))
  likeliest = np.argsort(-words.max(0))[:6]
  both = {label: row[likeliest].tolist() for label, row in zip(labels, words, strict=True)}
  figures.bars(right, [str(word) for word in likeliest], both, form="{:.0f}")
  figures.axes_text(right, x="target word (id)", y="probability [%]", title="what it says")
  right.set_ylim(0, 1.35 * float(words.max()))
  return figure


def parameters() -> Figure:
  """Parameters of four papers' models by part, in millions."""
  table = {label: parts.by_part(parts.paper(preset)) for label, preset in parts.PAPERS.items()}
  search = table["RNNsearch"]
  figure, (axes,) = figures.new(
    f"Attention is {search['attention'] / 1e6:.1f} of RNNsearch's {sum(search.values()) / 1e6:.1f}"
    " million parameters; most belong to words",
    size=(9.5, 4.0),
  )
  left = np.zeros(len(table))
  for k, part in enumerate(search):
    millions = np.array([by_part[part] / 1e6 for by_part in table.values()])
    axes.barh(
      list(table), millions, left=left, color=figures.COLOURS[k], hatch=figures.HATCHES[k],
      edgecolor="white", linewidth=0.5, label=part,
    )  # fmt: skip
    left += millions
  for row, (label, total) in enumerate(zip(table, left, strict=True)):
    attention = table[label]["attention"] / 1e6
    text = f"{total:.1f}" + (f", attention {attention:.1f}" if attention else ", no attention")
    axes.annotate(
      text, (total, row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
    )
  axes.invert_yaxis()
  axes.set_xlim(0, 1.25 * left.max())
  axes.grid(False, axis="y")
  figures.axes_text(axes, x="parameters [millions]", y="")
  figures.legend(axes, loc="lower right")
  return figure


def four_scores(found: Sequence[Mapping[str, scores.ScoreFacts]], *, fourth: bool) -> Figure:
  """What Luong's scores cost, and whether they see the keys; `fourth`: whether one does not."""
  names = list(found[0])
  title = "Luong has a fourth score: location costs little and sees no key"
  figure, (left, right) = figures.new(title if fourth else "Luong's scores", columns=2)
  millions = [found[0][name].parameters / 1e6 for name in names]
  figures.bars(left, names, {"parameters": millions})
  figures.axes_text(left, x="score", y="parameters [millions]", title="1000 units, 50 positions")
  moved = [mean_interval([one[name].by_keys for one in found]) for name in names]
  changes = {"other keys": [one.mean for one in moved]}
  figures.bars(right, names, changes, errors={"other keys": _ends(moved)})
  figures.axes_text(
    right, x="score", y="change of the scores [of their norm]", title="one query, all keys others"
  )
  right.set_ylim(bottom=0)
  return figure


def _ends(found: Sequence[Interval]) -> tuple[list[float], list[float]]:
  return [one.low for one in found], [one.high for one in found]
