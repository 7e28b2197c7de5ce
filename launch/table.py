"""The table of a sweep: in the terminal, as CSV and as JSON lines."""

import csv
import dataclasses
import json
import os
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

_SHOWN_METRICS = 6


@dataclasses.dataclass(frozen=True)
class Row:
  """One run.

  Attributes:
    name: its name.
    setting: path -> value of what it has of its own.
    workdir: its folder.
    metrics: metric -> mean; None if the run is not finished.
  """

  name: str
  setting: Mapping[str, str]
  workdir: pathlib.Path
  metrics: Mapping[str, float | None] | None

  @property
  def status(self) -> str:
    """`finished` or `missing`."""
    return "missing" if self.metrics is None else "finished"


def write(folder: pathlib.Path, rows: Sequence[Row]) -> None:
  """Writes `sweep.jsonl` and `sweep.csv` into the sweep's folder."""
  folder.mkdir(parents=True, exist_ok=True)

  def lines(file: TextIO) -> None:
    for row in rows:
      values = {
        "run": row.name, "status": row.status, "setting": row.setting, "metrics": row.metrics,
        "workdir": str(row.workdir),
      }  # fmt: skip
      file.write(json.dumps(values) + "\n")

  def cells(file: TextIO) -> None:
    axes, metrics = _columns(rows)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["run", "status", *axes, *metrics, "workdir"])
    for row in rows:
      measured = row.metrics or {}
      values = [row.setting.get(axis) for axis in axes] + [measured.get(name) for name in metrics]
      writer.writerow([row.name, row.status, *values, row.workdir])

  _replace(folder / "sweep.jsonl", lines)
  _replace(folder / "sweep.csv", cells)


def show(rows: Sequence[Row]) -> None:
  """Prints the settings and the first metrics of each run."""
  from rich.console import Console
  from rich.table import Column, Table

  axes, metrics = _columns(rows)
  shown = metrics[:_SHOWN_METRICS]
  # Names fold rather than lose their ends; a log or a pipe has no width of its own.
  columns = [Column(name, overflow="fold") for name in [*(axes or ["run"]), *shown]]
  table = Table(*columns, box=None, pad_edge=False)
  for row in rows:
    head = [row.setting.get(axis, "") for axis in axes] or [row.name]
    measured = row.metrics or {}
    tail = [_number(measured.get(name)) for name in shown]
    table.add_row(*head, *(tail if row.metrics is not None else [row.status] + tail[1:]))
  Console(width=None if sys.stdout.isatty() else 160).print(table)
  if len(metrics) > len(shown):
    print(f"and {len(metrics) - len(shown)} more metrics in sweep.csv")


def _columns(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
  """Returns all axes and all metrics of the rows, in the order they come up."""
  axes = dict.fromkeys(path for row in rows for path in row.setting)
  metrics = dict.fromkeys(name for row in rows for name in row.metrics or ())
  return list(axes), list(metrics)


def _number(value: float | None) -> str:
  return "" if value is None else f"{value:.5g}"


def _replace(path: pathlib.Path, fill: Callable[[TextIO], None]) -> None:
  """Writes a file that appears whole."""
  temporary = path.with_name(path.name + ".tmp")
  with temporary.open("w", encoding="utf-8", newline="") as file:
    fill(file)
  os.replace(temporary, path)
