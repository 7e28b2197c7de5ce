"""Runs compared in words: what a terminal and a page both say of them, without drawing."""

import math
import shlex

from attn.evaluation.intervals import Interval
from attn.report import comparison as comparing
from attn.report.comparison import Comparison, Row


def interval_text(interval: Interval) -> str:
  """A mean with its interval, if it has one."""
  ends = f" [{interval.low:.4g}, {interval.high:.4g}]" if math.isfinite(interval.low) else ""
  return f"{interval.mean:.4g}{ends}"


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
  by_row = {
    tuple(row.values[name].n if name in row.values else 0 for name in comparison.metrics)
    for row in comparison.rows
  }
  counts = {n for row in by_row for n in row}
  told = []
  if counts - {0, 1}:
    told.append(f"Means over {comparison.over} of finished runs, 95% intervals by Student's t.")
  if 1 in counts:
    told.append("Of a single run the interval is the one that it gives itself, if it does.")
  if len(by_row) > 1:
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
