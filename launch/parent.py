"""A run that a sweep started ends with it, also where the sweep was killed and could not say so.

Otherwise the run would hold its folder, its cores and its GPU, and the same sweep again could only
name it. Systems differ in what they tell an orphan; that it has another parent, all of them know.
"""

import os
import signal
import threading
import time

VARIABLE = "ATTN_PARENT"
_EVERY = 1.0  # seconds between two looks


def named() -> dict[str, str]:
  """Returns what a process has in its environment that shall end with this one."""
  return {VARIABLE: str(os.getpid())}


def end_with_it() -> None:
  """Has this process get SIGTERM, at which it saves itself, when the one that is named is gone."""
  name = os.environ.pop(VARIABLE, None)  # of this process, not of those that it starts
  if name is not None:
    threading.Thread(target=_watch, args=(int(name),), daemon=True).start()


def _watch(parent: int) -> None:
  while os.getppid() == parent:
    time.sleep(_EVERY)
  signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
