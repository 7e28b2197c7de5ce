"""What one sees of a sweep while it runs: a live table on a terminal, plain lines in a log.

How far a run is comes from what it writes anyway: `metrics.jsonl` and `config.json` in its folder,
or the last line of its log.
"""

import collections
import contextlib
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from launch.executors import Job, Outcome, Watcher

_TAIL = 8192  # bytes at the end of a file in which its last whole line is looked for
_OVERHEAD = 6  # lines of a terminal that the table leaves to its head and to what comes before
_REFRESH = 1.0  # seconds between two looks at the runs' files
_LOG_EVERY = 60.0  # seconds between two reports of running jobs in a log


@contextlib.contextmanager
def watching(jobs: Sequence[Job]) -> Iterator[Watcher]:
  """Yields who tells the user of `jobs`, in the way that standard output allows."""
  if sys.stdout.isatty():
    with Table(jobs) as table:
      yield table
  else:
    yield Lines(jobs)


def duration(seconds: float) -> str:
  """`1:05:09`, `2:07`: hours only where there are any."""
  minutes, s = divmod(round(seconds), 60)
  hours, m = divmod(minutes, 60)
  return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"


# How far a run is.


class Pace:
  """How far the run of a job is, and how fast it goes."""

  def __init__(self, job: Job, clock: Callable[[], float] = time.monotonic):
    """Starts to look at a job that begins now."""
    self._job, self._clock, self.began = job, clock, clock()
    self._first: tuple[int, float] | None = None

  def text(self) -> str:
    """Returns step, share, last loss and time left, or what the log says last."""
    folder = self._job.workdir
    row = _last_row(folder / "metrics.jsonl") if folder else {}
    total = _steps(folder / "config.json") if folder else None
    step = row.get("step")
    # A run that has done its steps is busy with something else, which its log tells.
    if not isinstance(step, int) or total is None or step >= total:
      return _last_line(self._job.log)
    told = [f"{step:,}/{total:,} {step / total:.0%}"]
    told += [f"{name} {row[name]:.4f}" for name in ("loss", "dev_loss") if name in row]
    now = self._clock()
    if self._first is None or step < self._first[0]:
      self._first = step, now  # the steps of an earlier process say nothing of this one's pace
    if step > self._first[0]:
      rate = (now - self._first[1]) / (step - self._first[0])
      told.append(f"{duration(rate * (total - step))} left")
    return "  ".join(told)


def _tail(path: pathlib.Path) -> list[str]:
  """Returns the whole lines near the end of a file; none if it cannot be read (yet)."""
  try:
    with path.open("rb") as file:
      file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
      return file.read().decode("utf-8", "replace").split("\n")[:-1]
  except OSError:
    return []


def _last_line(path: pathlib.Path) -> str:
  return next((line.strip() for line in reversed(_tail(path)) if line.strip()), "")


def _last_row(path: pathlib.Path) -> dict[str, Any]:
  """Returns the last line of metrics; nothing where it is not one of training."""
  lines = _tail(path)
  return _object(lines[-1]) if lines else {}


def _steps(path: pathlib.Path) -> int | None:
  """Returns how many steps a training run takes."""
  try:
    steps = _object(path.read_text(encoding="utf-8")).get("steps")
  except OSError:
    return None
  return steps if isinstance(steps, int) else None


def _object(text: str) -> dict[str, Any]:
  try:
    found = json.loads(text)
  except ValueError:
    return {}
  return found if isinstance(found, dict) else {}


# Those who tell.


class _Counting(Watcher):
  """Keeps what has become of each job."""

  def __init__(self, jobs: Sequence[Job]):
    self.jobs = list(jobs)
    self.running: dict[Job, Pace] = {}
    self.outcomes: dict[Job, Outcome] = {}
    self.began = time.monotonic()

  def started(self, job: Job) -> None:
    self.running[job] = Pace(job)

  def waits(self, job: Job) -> None:
    self.running.pop(job, None)

  def ended(self, outcome: Outcome) -> None:
    self.running.pop(outcome.job, None)
    self.outcomes[outcome.job] = outcome

  def left(self) -> float | None:
    """Returns seconds until all have ended, if the others take as long as those before."""
    done = len(self.outcomes)
    return (time.monotonic() - self.began) / done * (len(self.jobs) - done) if done else None


class Lines(_Counting):
  """A line as each job ends, and now and then one of each that runs."""

  def __init__(self, jobs: Sequence[Job]):
    """Takes what will run."""
    super().__init__(jobs)
    self._said = self.began

  def ended(self, outcome: Outcome) -> None:
    """Says how it ended."""
    super().ended(outcome)
    how = f"failed: {outcome.error}" if outcome.code else "finished"
    left = duration(self.left() or 0.0)
    count = f"[{len(self.outcomes)}/{len(self.jobs)}]"
    told = f"{outcome.job.name} {how} ({duration(outcome.seconds)}; about {left} left)"
    print(count, told, flush=True)

  def waits(self, job: Job) -> None:
    """Says that it waits again."""
    super().waits(job)
    print(f"{job.name} waits to go on", flush=True)

  def tick(self) -> None:
    """Says now and then how far the running ones are."""
    now = time.monotonic()
    if now - self._said < _LOG_EVERY:
      return
    self._said = now
    for job, pace in self.running.items():
      print(f"  {job.name}  {duration(now - pace.began)}  {pace.text()}", flush=True)


class Table(_Counting):
  """A table of the jobs that a terminal shows anew each second."""

  def __init__(self, jobs: Sequence[Job]):
    """Takes what will run."""
    super().__init__(jobs)
    from rich.console import Console
    from rich.live import Live

    self._console = Console()
    self._live = Live(console=self._console, auto_refresh=False)
    self._drawn = 0.0

  def __enter__(self) -> "Table":
    """Begins to show it."""
    self._live.start()
    return self

  def __exit__(self, *_: object) -> None:
    """Leaves it as it was last, with every job."""
    self._live.update(self.render(len(self.jobs)), refresh=True)
    self._live.stop()

  def tick(self) -> None:
    """Draws it anew, not too often."""
    now = time.monotonic()
    if now - self._drawn >= _REFRESH:
      self._drawn = now
      self._live.update(self.render(self._console.height - _OVERHEAD), refresh=True)

  def render(self, most: int) -> Any:
    """Returns the table, of at most `most` jobs: running, failed, waiting and finished ones."""
    from rich.table import Column
    from rich.table import Table as RichTable
    from rich.text import Text

    progress = Column("progress", ratio=1, no_wrap=True, overflow="ellipsis")
    columns = [Column("run", overflow="fold"), "state", "time", progress]
    table = RichTable(*columns, box=None, pad_edge=False, expand=True)
    table.caption, table.caption_justify = self._summary(), "left"
    ranked = sorted(self.jobs, key=lambda job: _RANK[self._state(job)])
    shown = set(ranked[: max(1, most)])
    for job in self.jobs:
      if job in shown:
        # Text: what stands in brackets is no markup.
        table.add_row(*map(Text, (job.name, self._state(job), *self._cells(job))))
    return table

  def _state(self, job: Job) -> str:
    if job in self.running:
      return "running"
    if job in self.outcomes:
      return "failed" if self.outcomes[job].code else "finished"
    return "waiting"

  def _cells(self, job: Job) -> tuple[str, str]:
    if job in self.running:
      pace = self.running[job]
      return duration(time.monotonic() - pace.began), pace.text()
    if job in self.outcomes:
      outcome = self.outcomes[job]
      return duration(outcome.seconds), outcome.error
    return "", ""

  def _summary(self) -> str:
    counts = collections.Counter(map(self._state, self.jobs))
    told = ", ".join(f"{counts[state]} {state}" for state in _RANK if counts[state])
    left = self.left()
    return f"{told}; about {duration(left)} left" if left else told


_RANK = {"running": 0, "failed": 1, "waiting": 2, "finished": 3}
