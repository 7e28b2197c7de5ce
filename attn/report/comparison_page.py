"""The page of runs compared, self-contained, with its table as CSV and its figures beside it."""

import base64
import csv
import io
import math
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from attn.report import comparison as comparing
from attn.report import comparison_figures, figures, page, results
from attn.report.comparison import Comparison, Row
from attn.report.comparison_text import best_lines, cells, notes, summary

_WAITING = 50  # unfinished runs that the page lists; the rest is counted


def write(
  folder: str | os.PathLike[str],
  comparison: Comparison,
  *,
  command: str,
  sources: Sequence[str],
  problems: Sequence[str] = (),
) -> pathlib.Path:
  """Writes `index.html`, `table.csv` and the figures, each in one piece.

  Args:
    folder: where they go; it is made.
    comparison: what they show.
    command: what writes them again.
    sources: the folders that the runs are in.
    problems: a line for each file that could not be used.

  Returns:
    The path of the page.
  """
  folder = pathlib.Path(folder)
  drawn = []
  for name, figure, caption in comparison_figures.draw(comparison):
    figures.save(figure, folder / name)
    data = base64.b64encode((folder / f"{name}.svg").read_bytes()).decode()
    drawn.append({"title": figures.title_of(figure), "caption": caption, "data": data})
  results.write_text(folder / "table.csv", csv_text(comparison))
  waiting = [run for row in comparison.rows for run in row.runs if run.status != "finished"]
  text = page.template("comparison.html.jinja").render(
    comparison=comparison,
    best=best_lines(comparison),
    rows=[_row(comparison, row) for row in comparison.rows],
    figures=drawn,
    summary=summary(comparison),
    notes=notes(comparison),
    waiting=waiting[:_WAITING],
    more=len(waiting[_WAITING:]),
    command=command,
    sources=sources,
    problems=problems,
  )
  results.write_text(folder / "index.html", text)
  return folder / "index.html"


def _row(comparison: Comparison, row: Row) -> dict[str, Any]:
  best = comparison.best
  return {
    "setting": [comparing.shown(value) for value in row.setting.values()],
    "values": [cells(row, metric) for metric in comparison.metrics],
    "best": best is not None and row is best.row,
  }


def csv_text(comparison: Comparison) -> str:
  """The table: a line a setting; an empty cell is not known."""
  text = io.StringIO()
  writer = csv.writer(text, lineterminator="\n")
  ends = ("", ".low", ".high", ".n")
  metrics = [f"{metric}{end}" for metric in comparison.metrics for end in ends]
  writer.writerow([*comparison.axes, *metrics, "finished", "unfinished", "missing"])
  for row in comparison.rows:
    setting = [comparing.text_of(value) for value in row.setting.values()]
    values = [cell for metric in comparison.metrics for cell in _numbers(row, metric)]
    counts = [row.count(state) for state in ("finished", "unfinished", "missing")]
    writer.writerow([*setting, *values, *counts])
  return text.getvalue()


def _numbers(row: Row, metric: str) -> Iterator[float | str]:
  interval = row.values[metric] if metric in row.values else ("",) * 4
  for value in interval:
    yield value if isinstance(value, str) or math.isfinite(value) else ""
