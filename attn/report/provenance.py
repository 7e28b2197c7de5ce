"""Where a result came from: the machine, the versions, the profile and the command line."""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from attn import configs

_PACKAGES = ("jax", "flax", "optax", "numpy")


def environment() -> dict[str, Any]:
  """What `software` says, and the device."""
  import jax  # only to name the device; reading results needs none

  return {**software(), "device": jax.devices()[0].device_kind}


def software() -> dict[str, Any]:
  """Versions, platform, cores and, in a git checkout, the commit; loads and takes no device."""
  found: dict[str, Any] = {"python": platform.python_version()}
  for package in _PACKAGES:
    found[package] = importlib.metadata.version(package)
  found["platform"] = platform.platform()
  found["cpu_count"] = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (
    os.cpu_count()
  )  # fmt: skip
  commit = _commit(pathlib.Path(__file__).resolve().parents[2])
  if commit is not None:
    found["commit"] = commit
  return found


def record_command(
  folder: pathlib.Path, command: Sequence[str], environment: Mapping[str, Any]
) -> None:
  """Appends to `commands.jsonl` what is about to work in a folder: a run may take several starts.

  Args:
    folder: a run's folder.
    command: argument vector, written as one would type it.
    environment: what `environment` or `software` says.
  """
  now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
  line = json.dumps({"time": now, "command": shlex.join(command), **environment})
  with (folder / "commands.jsonl").open("a", encoding="utf-8") as file:
    file.write(line + "\n")


def _commit(root: pathlib.Path) -> str | None:
  """The commit checked out at `root`, '-dirty' added when files differ; None outside git."""
  if not (root / ".git").exists():
    return None
  command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
  try:
    return subprocess.run(
      command, capture_output=True, text=True, check=True, timeout=20
    ).stdout.strip()
  except (OSError, subprocess.SubprocessError):
    return None  # no git on this machine: the result merely lacks its commit


def profile_and_command(
  experiment: str, config: Any, profiles: Mapping[str, Mapping[str, Any]]
) -> tuple[str, str]:
  """The profile that gives exactly `config`, and the command that repeats the run.

  Returns:
    The profile's name, or 'custom', and a command: that of the profile, or of the profile with the
    fewest differences and one `--set` for each difference.
  """
  found: list[tuple[int, bool, str, list[tuple[str, Any, Any]]]] = []
  for name, overrides in profiles.items():
    base = configs.override(type(config)(), overrides)
    differences = configs.differences(base, config)
    found.append((len(differences), name != "default", name, differences))
  count, _, name, differences = min(found)
  words = ["python", "-m", "launch.run", f"--experiment={experiment}", f"--profile={name}"]
  words += ["--set=" + configs.format_assignment(path, value) for path, _, value in differences]
  return ("custom" if count else name), " ".join(shlex.quote(word) for word in words)
