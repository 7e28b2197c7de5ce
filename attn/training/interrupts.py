"""Stopping between updates: Ctrl-C, SIGTERM and a hang-up wait until the state is whole."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # the last one not on every system
_ASKING = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


class Interrupts:
  """While active, the first signal only sets `asked`; SIGINT or SIGTERM again stops at once.

  The other of the two does not: a terminal's Ctrl-C reaches a process and its parent, which may
  then terminate it. Nor does SIGHUP, which a shell that ends sends, and then the system. A signal
  that is ignored, as `nohup` has it, stays so.
  """

  def __init__(self) -> None:
    """Not active before `with`."""
    self.asked: int | None = None
    self._seen: set[int] = set()

  def _ask(self, number: int, _: FrameType | None) -> None:
    if number in self._seen and number in _ASKING[:2]:
      raise KeyboardInterrupt
    self._seen.add(number)
    self.asked = self.asked or number

  def __enter__(self) -> Self:
    """Takes over the signals; only a program's main thread may, elsewhere nothing changes."""
    self._former = {}
    if threading.current_thread() is threading.main_thread():
      for number in _ASKING:
        if signal.getsignal(number) is not signal.SIG_IGN:
          self._former[number] = signal.signal(number, self._ask)
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
  ) -> None:
    """Gives the signals back, and passes on the one that came in between."""
    for number, handler in self._former.items():
      signal.signal(number, handler)
    if self.asked is not None and kind is None:
      signal.raise_signal(self.asked)
