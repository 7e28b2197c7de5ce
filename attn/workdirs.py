"""The folder of a run: `config.json` in it says whose it is."""

import json
import os
import pathlib
from typing import Any

from attn import configs

_SHOWN = 6  # differences named in an error; the rest are counted


def claim(folder: pathlib.Path, config: Any) -> None:
  """Makes `folder` that of the run which `config` describes, creating it if need be.

  Args:
    folder: a new folder, or one claimed before.
    config: a frozen dataclass, written to `config.json` in one piece.

  Raises:
    ConfigError: the folder belongs to a run of another configuration.
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
      saved -> asked.
  """
  path = folder / "config.json"
  if not path.exists():
    return False
  try:
    saved = json.loads(path.read_text(encoding="utf-8"))
  except ValueError:
    raise configs.ConfigError(f"{path} is no JSON: delete it, or give another --workdir") from None
  different = configs.differences(saved, config)
  if different:
    told = [f"{path}: {old!r} -> {new!r}" for path, old, new in different[:_SHOWN]]
    told += [f"and {len(different) - _SHOWN} more"] * (len(different) > _SHOWN)
    raise configs.ConfigError(
      f"{folder} holds a run of another configuration ({'; '.join(told)}): give another"
      " --workdir, or the settings of that run to resume it"
    )
  return True
