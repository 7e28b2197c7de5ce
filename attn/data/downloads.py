"""What a download by a package manager takes: a folder for what is not whole yet, and a run."""

import contextlib
import errno
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def scratch(name: str, folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """Gives a new folder in `folder`, which is created if need be, and removes it in the end.

  It is called `incomplete.NAME.*`. Those that killed processes have left are removed too, so one
  process at a time may have one for a name.

  Raises:
    OSError: the folder cannot be written to.
  """
  folder.mkdir(parents=True, exist_ok=True)
  prefix = f"incomplete.{name}."
  for leftover in folder.glob(f"{prefix}*"):
    shutil.rmtree(leftover)
  with tempfile.TemporaryDirectory(prefix=prefix, dir=folder) as temporary:
    yield pathlib.Path(temporary)


def run(
  command: Sequence[str], *, folder: pathlib.Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
  """Runs a command that reads nothing; the result holds what it wrote, and how it ended.

  Args:
    command: the program and its arguments.
    folder: where it runs; here when None.
    environment: variables that it has besides those of this process.

  Raises:
    FileNotFoundError: there is no such program.
  """
  return subprocess.run(
    command,
    cwd=folder,
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    errors="replace",
    env={**os.environ, **environment},
    check=False,
  )


def refuse_full_disk(stderr: str) -> None:
  """Raises what a program that could not write has told on `stderr`, if it has.

  Raises:
    OSError: the disk is full.
  """
  reason = os.strerror(errno.ENOSPC)
  if reason in stderr:
    raise OSError(errno.ENOSPC, reason)
