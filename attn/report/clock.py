"""The clock of a run: wall time summed over interruptions, kept in a file while the run goes on."""

import os
import pathlib
import threading
import time
import weakref

INTERVAL = 5.0  # seconds between two writes: what a kill can lose


class Clock:
  """Counts seconds from where an interrupted run of the same folder left off.

  A thread writes the time down, whatever the run is busy with. It ends with `stop`, or with the
  clock: a run that failed is not counted on.
  """

  def __init__(self, path: pathlib.Path):
    """Starts; `path` is the file that keeps the seconds, in a folder that exists."""
    self._path = path
    self._start = time.monotonic() - _read(path)
    _write(path, self._start)
    ended = threading.Event()
    arguments = (path, self._start, ended, INTERVAL)
    self._thread = threading.Thread(target=_keep, args=arguments, daemon=True, name="clock")
    self._end = weakref.finalize(self, ended.set)
    self._thread.start()

  @property
  def seconds(self) -> float:
    """Seconds so far."""
    return round(time.monotonic() - self._start, 3)

  def stop(self) -> None:
    """Ends the thread and removes the file: the run is finished."""
    self._end()
    self._thread.join()
    self._path.unlink(missing_ok=True)


def _keep(path: pathlib.Path, start: float, ended: threading.Event, interval: float) -> None:
  while not ended.wait(interval):
    try:
      _write(path, start)
    except OSError:
      return  # full or gone: the run itself will find out and say so


def _write(path: pathlib.Path, start: float) -> None:
  temporary = path.with_name(path.name + ".tmp")
  temporary.write_text(f"{time.monotonic() - start:.3f}\n", encoding="utf-8")
  os.replace(temporary, path)


def _read(path: pathlib.Path) -> float:
  try:
    return float(path.read_text(encoding="utf-8"))
  except (FileNotFoundError, ValueError):
    return 0.0
