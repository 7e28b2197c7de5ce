"""Python packages that write or read some of the data: the extra `data`, loaded when needed."""

import hashlib
import importlib
import importlib.metadata
from collections.abc import Iterable
from typing import Any

from attn.data.errors import DataError


def load(module: str, name: str) -> Any:
  """Returns a module of the extra `data`.

  Args:
    module: what to import; the package has the name of its first part.
    name: the data set that needs it, for the message.

  Raises:
    DataError: the package is not installed.
  """
  package = module.partition(".")[0]
  try:
    return importlib.import_module(module)
  except ModuleNotFoundError as error:
    raise DataError(
      f"{name} is made with {package}, which is not installed (the extra `data`): run"
      f" `python -m pip install {package}` and then the command again"
    ) from error


def digest(lines: Iterable[str]) -> str:
  """Returns the first 16 hexadecimal digits of the SHA-256 of a text, each line ended."""
  return hashlib.sha256("".join(f"{line}\n" for line in lines).encode("utf-8")).hexdigest()[:16]


def check(lines: Iterable[str], expected: str, requirement: str, name: str) -> None:
  """Refuses text that another release of a package has written differently.

  Args:
    lines: the whole text.
    expected: its `digest`.
    requirement: the release that writes it so, `package==version`.
    name: the data set.

  Raises:
    DataError: the text is another one.
  """
  if digest(lines) != expected:
    package = requirement.partition("==")[0]
    raise DataError(
      f"{package} {importlib.metadata.version(package)} does not write {name} as {requirement}"
      f" does: run `python -m pip install {requirement}` and then the command again"
    )
