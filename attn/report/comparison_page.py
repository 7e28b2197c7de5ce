"""The page of runs compared, self-contained, with its table as CSV and its figures beside it."""

import base64
import csv
import io
import math
import os
import pathlib
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from attn.report import comparison as comparing
from attn.report import comparison_figures, figures, page, results
from attn.report.comparison import Comparison, Row
from attn.report.comparison_figures import interval_text

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


def cells(row: Row, metric: str) -> tuple[str, str, str]:
  """A metric's mean, its interval, over how many runs, and what became of the others."""
  interval = row.values.get(metric)
  mean, _, ends = interval_text(interval).partition(" ") if interval else ("", "", "")
  n = interval.n if interval else 0
  without = row.count("finished") - n
  rest = [f"{without} without a number"] * bool(without)
  rest += [f"{row.count(one)} {one}" for one in ("unfinished", "missing") if row.count(one)]
  return mean, ends, f"{n} ({', '.join(rest)})" if rest else str(n)


def summary(comparison: Comparison) -> str:
  """How many runs there are, in which state."""
  total = sum(len(row.runs) for row in comparison.rows)
  states = [f"{comparison.count(one)} {one}" for one in ("finished", "unfinished", "missing")]
  settings = f"{len(comparison.rows)} setting{'s' * (len(comparison.rows) != 1)}"
  return f"{total} run{'s' * (total != 1)} of {settings}: {', '.join(states)}"


def notes(comparison: Comparison) -> list[str]:
  """What has to be known to read the numbers."""
  counts = {i.n for row in comparison.rows for i in row.values.values()}
  told = []
  if counts - {1}:
    told.append(f"Means over {comparison.over} of finished runs, 95% intervals by Student's t.")
  if 1 in counts:
    told.append("Of a single run the interval is the one that it gives itself, if it does.")
  if len({tuple(i.n for i in row.values.values()) for row in comparison.rows}) > 1:
    told.append(
      f"Settings have unequal numbers of runs that count: {min(counts)} to {max(counts)}."
    )
  if comparison.implied:
    told.append(f"These go with the columns: {', '.join(comparison.implied)}.")
  if comparison.repeated:
    told.append(f"Left out: {comparison.repeated} with the configuration and seed of another run.")
  return told


def best_lines(comparison: Comparison) -> list[tuple[str, str]]:
  """What the best setting is, by which rule, how far ahead, and what runs it."""
  best, metric = comparison.best, comparison.metrics[0]
  if best is None:
    known = comparing.direction_of(metric) is not None
    why = (
      "no run has a value" if known else "its name does not tell (--best=min or --best=max does)"
    )
    return [("best", f"not named for {metric}: {why}")]
  word = "minimised" if best.direction == "min" else "maximised"
  value = best.row.values[metric]
  lines = [
    ("best", f"{metric} {word}: {interval_text(value)}, n = {value.n}"),
    ("overrides", _overrides(comparison, best.row)),
  ]
  if best.next is not None:
    other = best.next.values[metric]
    told = f"{_overrides(comparison, best.next)}: {interval_text(other)}, n = {other.n}"
    if best.lead is not None:
      told += f"; the best is better by {interval_text(best.lead)}, of {best.lead.n} pairs"
    lines.append(("next", told))
  commands = [run.command for run in best.row.runs if run.status == "finished" and run.command]
  return lines + [("command", command) for command in commands[:1]]


def _overrides(comparison: Comparison, row: Row) -> str:
  return " ".join(shlex.quote(f"--set={one}") for one in comparison.overrides(row)) or "none"


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
