"""Progress with an estimate: a live bar on a terminal, a plain line now and then in a log."""

import multiprocessing
import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress


def duration(seconds: float) -> str:
  """`1:05:09`, `2:07`: hours only where there are any."""
  minutes, s = divmod(round(seconds), 60)
  hours, m = divmod(minutes, 60)
  return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"


class Progress:
  """Shows on stderr how far long work is and how long the rest will take."""

  def __init__(self, label: str, total: int, done: int = 0, *, every: float = 10.0):
    """Work called `label` of `total` units, `done` of them already; plain lines `every` s."""
    self._label, self._total, self._first, self._every = label, total, done, every
    self._bar: RichProgress | None = None
    # Processes side by side would draw over each other's bars.
    alone = multiprocessing.parent_process() is None and not multiprocessing.active_children()
    if sys.stderr.isatty() and alone:
      columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
      self._bar = RichProgress(
        *columns,
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
        transient=True,
      )
      self._task = self._bar.add_task(label, total=total, completed=done, note="")

  def __enter__(self) -> Self:
    """Starts the clock."""
    self._began = self._said = time.monotonic()
    if self._bar:
      self._bar.start()
    return self

  def update(self, done: int, note: str = "") -> None:
    """`done` units are done; `note` is what is worth knowing besides."""
    now = time.monotonic()
    if self._bar:
      self._bar.update(self._task, completed=done, note=note)
    elif now - self._said >= self._every:
      self._said = now
      rate = (now - self._began) / max(done - self._first, 1)
      left = duration(rate * (self._total - done))
      tail = f"  {note}" if note else ""
      print(f"{self._label}  {done:,}/{self._total:,}  {left} left{tail}", file=sys.stderr)

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
  ) -> None:
    """Removes the bar."""
    if self._bar:
      self._bar.stop()
