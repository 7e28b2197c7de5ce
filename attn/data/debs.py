"""Data that is had out of Debian packages: downloaded with apt, never installed."""

import os
import pathlib
import tarfile
from collections.abc import Iterator
from typing import BinaryIO

from attn.data import downloads
from attn.data.errors import DataError

_HEADER = 60  # bytes before each member of an archive of `ar`


def fetch(package: str, folder: pathlib.Path) -> pathlib.Path:
  """Returns the path of a package's file in `folder`, downloaded unless one is there already.

  apt downloads, so that whatever mirror the user has set up is used; it need not be root. What
  version that is, is for the caller to check.

  Raises:
    DataError: the package cannot be had.
    OSError: the folder cannot be written to, or the disk is full.
  """
  if found := sorted(folder.glob(f"{package}_*.deb")):
    return found[-1]
  with downloads.scratch(package, folder) as temporary:
    reason = _download(package, temporary)
    downloaded = sorted(temporary.glob("*.deb"))
    if not downloaded:
      raise DataError(
        f"cannot download the Debian package {package} ({reason}); on a Debian 12 with a network"
        f" run `apt-get download {package}`, put the file into {folder.resolve()} and run the"
        " command again"
      )
    return downloaded[0].rename(folder / downloaded[0].name)


def _download(package: str, temporary: pathlib.Path) -> str:
  """Lets apt download a package into a folder; returns why it did not, if it did not."""
  command = ["apt-get", "download", "--quiet", package]
  try:
    done = downloads.run(command, folder=temporary, LC_ALL="C")
  except FileNotFoundError:
    return "there is no apt-get here"
  downloads.refuse_full_disk(done.stderr)
  errors = [line[3:] for line in done.stderr.splitlines() if line.startswith("E: ")]
  return errors[0] if errors else "apt-get does not say why"


def files(path: pathlib.Path, folder: str) -> Iterator[tuple[str, bytes]]:
  """Yields path below `folder` and content of each file that a package has there.

  Raises:
    DataError: the file is damaged or no package that can be read here.
  """
  try:
    with path.open("rb") as archive:
      _seek_data(archive)
      with tarfile.open(fileobj=archive, mode="r|*") as tar:
        for member in tar:
          name = member.name.removeprefix("./")
          if member.isfile() and name.startswith(folder):
            content = tar.extractfile(member)
            assert content is not None  # it is a file
            yield name.removeprefix(folder), content.read()
  except (tarfile.TarError, EOFError, ValueError) as error:
    raise DataError(
      f"{path} is damaged, or no package of Debian 12 ({error}): delete it, then run the command"
      " again"
    ) from error


def _seek_data(archive: BinaryIO) -> None:
  """Goes to where the member `data.tar` of a package begins.

  Raises:
    ValueError: there is none.
  """
  if archive.read(8) != b"!<arch>\n":
    raise ValueError("it does not begin like one")
  while len(header := archive.read(_HEADER)) == _HEADER:
    if header.startswith(b"data.tar"):
      return
    size = int(header[48:58])
    archive.seek(size + size % 2, os.SEEK_CUR)
  raise ValueError("it holds no data")
