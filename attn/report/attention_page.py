"""What a model reads while it writes: one self-contained page a system, and heat maps of it.

The page holds a record of `attn.evaluation.traces` for each sentence, as JSON, and a script that
shows them. It loads nothing.

    attention_page.write('attention.html', system, sentences)
    figures.save(attention_page.heat_map(sentences[0]), 'attention-1')
"""

import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from attn.evaluation.traces import Symbol, System, Trace
from attn.report import figures, page, results

_DIGITS = 5  # after the point, of every number of the page
_LONGEST = 24  # characters of a label; of a longer one the middle is left out
_FORBIDDEN = re.compile("[^ -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML
_CHARACTER = 0.075  # inches that one takes in a label, at most


def write(path: str | os.PathLike[str], system: System, sentences: Sequence[Trace]) -> None:
  """Writes the page; it appears whole, and its folder is made."""
  results.write_text(path, html(system, sentences))


def html(system: System, sentences: Sequence[Trace]) -> str:
  """The page.

  Args:
    system: the model that wrote the sentences.
    sentences: its traces, at least one.
  """
  if not sentences:
    raise ValueError("an attention page needs at least one sentence")
  return page.template("attention.html.jinja").render(
    system=system, sentences=[(one, record(one)) for one in sentences], told=record(system)
  )


def record(data: Any) -> Any:
  """Records as plain JSON data: numbers rounded, null for one that is not finite."""
  return results.to_plain(data, _DIGITS)


def heat_map(sentence: Trace, hypothesis: int = 0) -> Figure:
  """The weights of one hypothesis, a row a target symbol and a column a source symbol.

  Characters that no font of this machine has are boxes, and a note below the map names them.

  Raises:
    ValueError: the model has no attention, or nothing was written.
  """
  one = sentence.hypotheses[hypothesis]
  if not one.steps or one.steps[0].weights is None:
    raise ValueError(f"{sentence.name}: there are no weights to draw")
  weights = np.array([step.weights for step in one.steps], float)
  source, target = ([label(symbol) for symbol in side] for side in (sentence.source, one.target))
  width, height = figures.heat_map_size(len(source), len(target))
  most = weights.max(axis=1).mean()
  drawing, (axes,) = figures.new(
    f"{sentence.name}: a step puts {most:.0%} of its weight on one symbol, on average",
    size=(width + _room(target), height + _room(source)),
  )
  figures.heat_map(axes, weights, source, target)
  return drawing


def label(symbol: Symbol) -> str:
  """A symbol as figures show it: blanks and controls by a sign, a long one without its middle."""
  if symbol.kind == "end":
    return "(end)"
  text = _FORBIDDEN.sub("\ufffd", symbol.text) if symbol.text.strip() else "\N{OPEN BOX}"
  half = _LONGEST // 2
  return (
    text if len(text) <= _LONGEST else f"{text[:half]}\N{HORIZONTAL ELLIPSIS}{text[1 - half :]}"
  )


def _room(labels: Sequence[str]) -> float:
  return _CHARACTER * max(map(len, labels))
