"""The tables of a sweep: a row a run in its folder, a row a setting in the terminal."""

import csv
import io
import json
import pathlib
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from attn.report.comparison import Comparison, Direction, Row
  from attn.report.runs import Run
  from launch import plan

_SHOWN = 40  # rows in the terminal
_NAMED = 8  # metrics that it names beside the one it shows


def record(folder: pathlib.Path, planned: "Sequence[plan.Run]") -> "list[Run]":
  """Writes `sweep.jsonl` and `sweep.csv`: a line a planned run, with what came of it so far.

  Args:
    folder: the sweep's.
    planned: its runs.

  Returns:
    All runs in the folder, those of earlier plans as well.
  """
  from attn import configs
  from attn.report import results, runs

  lines = {
    run.name: {"command": shlex.join(run.argv), "config": configs.to_dict(run.config)}
    for run in planned
  }
  found, problems = runs.in_folder(folder, lines)
  for problem in problems:
    print(f"launch.sweep: {problem}", file=sys.stderr)
  by_name = {run.name: run for run in found}
  text, cells = io.StringIO(), io.StringIO()
  axes = dict.fromkeys(path for run in planned for path in run.setting)
  metrics = dict.fromkeys(name for run in found for name in run.metrics)
  writer = csv.writer(cells, lineterminator="\n")
  writer.writerow(["run", "status", *axes, *metrics, "workdir"])
  for run in planned:
    one = by_name.get(run.name)
    values = {name: metric.mean for name, metric in one.metrics.items()} if one else {}
    status = one.status if one else "unfinished"  # its files are damaged
    told = {"run": run.name, "status": status, "setting": run.setting, "metrics": values}
    text.write(json.dumps({**told, "workdir": str(run.workdir), **lines[run.name]}) + "\n")
    setting = [run.setting.get(axis) for axis in axes]
    writer.writerow([run.name, status, *setting, *map(values.get, metrics), run.workdir])
  results.write_text(folder / runs.PLAN, text.getvalue())
  results.write_text(folder / "sweep.csv", cells.getvalue())
  return found


def show_runs(
  runs: "Sequence[Run]", metrics: Sequence[str] = (), direction: "Direction | None" = None
) -> None:
  """Prints the table of metrics by all that varies, or why there is none yet.

  Args:
    runs: what to compare.
    metrics: their names; by default the main one.
    direction: whether small or large is good; by default what the first metric's name says.
  """
  from attn.report import comparison, results

  try:
    show(comparison.compare(runs, metrics, direction=direction))
  except results.ResultError as error:
    print(error)


def show(comparison: "Comparison") -> None:
  """Prints a row a setting, what has to be known to read it, and the best."""
  from rich.console import Console
  from rich.table import Column, Table
  from rich.text import Text

  from attn.report import comparison as comparing
  from attn.report import comparison_text

  # Names fold rather than lose their ends; a log or a pipe has no width of its own.
  heads = [Column(axis, overflow="fold") for axis in comparison.axes]
  for metric in comparison.metrics:
    unit = comparison.units[metric]
    name = f"{metric} [{unit}]" if unit else metric
    heads += [Column(name, justify="right", overflow="fold"), Column("95% interval"), Column("n")]
  table = Table(*heads, "", box=None, pad_edge=False)
  for row in _shown(comparison):
    values = [text for metric in comparison.metrics for text in comparison_text.cells(row, metric)]
    setting = map(comparing.shown, row.setting.values())
    best = "best" if comparison.best and row is comparison.best.row else ""
    table.add_row(*(Text(text) for text in (*setting, *values, best)))
  console = Console(width=None if sys.stdout.isatty() else 160)
  print(comparison_text.summary(comparison))
  console.print(table)
  if len(comparison.rows) > _SHOWN:
    print(f"and {len(comparison.rows) - _SHOWN} more settings")
  for note in comparison_text.notes(comparison):
    print(note)
  for name, told in comparison_text.best_lines(comparison):
    print(f"{name}: {told}")
  if comparison.others:
    more = len(comparison.others) - _NAMED
    told = "; ".join(comparison.others[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
    print(f"other metrics: {told}")


def _shown(comparison: "Comparison") -> "Sequence[Row]":
  """All settings or, of many, the best ones."""
  best = comparison.best
  if best is None or len(comparison.rows) <= _SHOWN:
    return comparison.rows[:_SHOWN]
  return best.ranked[:_SHOWN]
