"""The folder of a run: `config.json` in it says whose it is."""

import contextlib
import datetime
import errno
import json
import os
import pathlib
import platform
from collections.abc import Iterator
from typing import Any

import filelock

from attn import configs

_SHOWN = 6  # differences named in an error; the rest are counted
_WORK = ("checkpoints", "measured.json", "result.json")  # what a run leaves beside config.json

# What a network folder says whose server keeps no locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


def claim(folder: pathlib.Path, config: Any) -> None:
  """Makes `folder` that of the run which `config` describes, creating it if need be.

  Args:
    folder: a new folder, or one claimed before.
    config: a frozen dataclass, written to `config.json` in one piece.

  Raises:
    ConfigError: the folder belongs to a run of another configuration, or nobody knows whose it is.
  """
  if refuse_another(folder, config):
    return
  folder.mkdir(parents=True, exist_ok=True)
  temporary = folder / "config.tmp"
  text = json.dumps(configs.to_dict(config), indent=2) + "\n"
  temporary.write_text(text, encoding="utf-8")
  os.replace(temporary, folder / "config.json")


def refuse_another(folder: pathlib.Path, config: Any) -> bool:
  """Whether the folder has been claimed, by a run of this configuration.

  Raises:
    ConfigError: it belongs to a run of another configuration; what differs is shown as path:
      saved -> asked. Or it holds a run's work, and its `config.json` is missing or damaged.
  """
  if not (folder / "config.json").exists():
    if left := [name for name in _WORK if (folder / name).exists()]:
      raise configs.ConfigError(
        f"{folder} holds {' and '.join(left)} but no config.json that says of which run: put it"
        " back, or give another --workdir"
      )
    return False
  saved = saved_config(folder)
  if saved == configs.to_dict(config):
    return True
  different = configs.differences(configs.up_to_date(type(config), saved), config)
  if different:
    told = [f"{path}: {old!r} -> {new!r}" for path, old, new in different[:_SHOWN]]
    told += [f"and {len(different) - _SHOWN} more"] * (len(different) > _SHOWN)
    raise configs.ConfigError(
      f"{folder} holds a run of another configuration ({'; '.join(told)}): give another"
      " --workdir, or the settings of that run to resume it"
    )
  return True


def saved_config(folder: pathlib.Path) -> dict[str, Any]:
  """The configuration in a claimed folder's `config.json`, as it was saved.

  Raises:
    ConfigError: the file is damaged.
  """
  path = folder / "config.json"
  try:
    saved = json.loads(path.read_bytes())
  except ValueError:
    saved = None
  if not isinstance(saved, dict):
    raise configs.ConfigError(
      f"{path} is damaged, no JSON object: put it back as it was, or give another --workdir"
    )
  return saved


@contextlib.contextmanager
def held(folder: pathlib.Path) -> Iterator[None]:
  """Keeps other processes from working in `folder`, which is created if need be.

  The system lets go of the lock when the process ends, however it ends. Who holds a folder already
  may hold it again. In a network folder hosts see each other's locks if its server keeps them, as
  those of NFS 4 do. Where a file system knows no locks, filelock keeps a file with the holder's
  process and host instead, and one of a host that died has to be deleted by hand.

  Raises:
    ConfigError: another process works in it, which is named; or it cannot be locked.
  """
  folder.mkdir(parents=True, exist_ok=True)
  lock = filelock.FileLock(folder / ".lock", is_singleton=True)
  holder = folder / ".holder"
  try:
    lock.acquire(blocking=False)
  except filelock.Timeout:
    raise configs.ConfigError(
      f"{folder} is in use by {_told(holder)}: wait for it or end it, or give another --workdir"
    ) from None
  except OSError as error:
    if error.errno not in _NO_LOCKS:
      raise
    raise configs.ConfigError(
      f"{folder} cannot be locked against other processes ({error.strerror}): give a --workdir on"
      " another file system"
    ) from error
  try:
    if lock.lock_counter == 1:
      since = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
      text = f"process {os.getpid()} on {platform.node()} since {since}"
      holder.write_text(text, encoding="utf-8")
    yield
  finally:
    lock.release()


def _told(holder: pathlib.Path) -> str:
  """What the holder of a lock says of itself; it may be about to say so."""
  try:
    return holder.read_text(encoding="utf-8") or "another process"
  except FileNotFoundError:
    return "another process"
