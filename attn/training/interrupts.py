"""Stopping between updates: Ctrl-C and SIGTERM wait until the state is whole."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class Interrupts:
  """While active, the first SIGINT or SIGTERM only sets `asked`; the same again stops at once.

  The other of the two does not: a terminal's Ctrl-C reaches a process and its parent, which may
  then terminate it.
  """

  def __init__(self) -> None:
    """Not active before `with`."""
    self.asked: int | None = None
    self._seen: set[int] = set()

  def _ask(self, number: int, _: FrameType | None) -> None:
    if number in self._seen:
      raise KeyboardInterrupt
    self._seen.add(number)
    self.asked = self.asked or number

  def __enter__(self) -> Self:
    """Takes over both signals; only a program's main thread may, elsewhere nothing changes."""
    self._former = {}
    if threading.current_thread() is threading.main_thread():
      for number in (signal.SIGINT, signal.SIGTERM):
        self._former[number] = signal.signal(number, self._ask)
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
  ) -> None:
    """Gives both signals back, and passes on the one that came in between."""
    for number, handler in self._former.items():
      signal.signal(number, handler)
    if self.asked is not None and kind is None:
      signal.raise_signal(self.asked)
