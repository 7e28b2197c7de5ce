"""The runs in a sweep's folder, read from the files that they leave: whatever ran, is running, or
waits.

A run of launch.run has `result.json`; a run of launch.train has `config.json`, `metrics.jsonl` and
`evaluation/SPLIT.json`. What has not begun is known from the plan in the sweep's `sweep.jsonl`.
"""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from attn import configs, workdirs
from attn.report import results
from attn.report.results import Metric

PLAN = "sweep.jsonl"
SPLITS = ("dev", "test")

# In evaluation/SPLIT.json beside the scores.
_NOT_SCORES = ("step", "ended", "seconds", "search", "signatures")

Status = Literal["finished", "unfinished", "missing"]


@dataclasses.dataclass(frozen=True)
class Run:
  """One run.

  Attributes:
    name: of its folder.
    folder: where its files are, or will be.
    status: `unfinished` has begun and left no result yet; `missing` is planned only.
    config: dotted path -> plain value, of every field.
    metrics: name -> value; those of an evaluation are `SPLIT.NAME`.
    command: what runs it, or '' where nothing says so.
  """

  name: str
  folder: pathlib.Path
  status: Status
  config: Mapping[str, Any]
  metrics: Mapping[str, Metric]
  command: str = ""

  @property
  def seed(self) -> Any:
    """Its field `seed`; None without one."""
    return self.config.get("seed")


def collect(folders: Iterable[str | os.PathLike[str]]) -> tuple[list[Run], list[str]]:
  """All runs in some folders, each a sweep's or a run's own.

  Returns:
    The runs, and a line for each file that cannot be used.

  Raises:
    ResultError: a folder holds no run, or its plan is damaged.
  """
  runs: list[Run] = []
  problems: list[str] = []
  for folder in map(pathlib.Path, folders):
    found, faults = in_folder(folder, read_plan(folder))
    if not found and not faults:
      raise results.ResultError(
        f"{folder} holds no runs: give the folder of a launch.sweep, or of a run"
      )
    runs += found
    problems += faults
  return runs, problems


def in_folder(
  folder: pathlib.Path, plan: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Run], list[str]]:
  """The runs in a folder and one level below, those of the plan first.

  Args:
    folder: a sweep's or a run's own.
    plan: name of a run -> its `command` and `config`.

  Returns:
    As `collect`.
  """
  try:
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
  except (FileNotFoundError, NotADirectoryError):
    raise results.ResultError(f"there is no folder {folder}") from None
  found = _read([folder / name for name in dict.fromkeys([*plan, *names])], plan)
  # A search's folder has a configuration too, of no run: it counts where there is nothing below.
  return found if any(found) else _read([folder], plan)


def _read(
  folders: Iterable[pathlib.Path], plan: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Run], list[str]]:
  runs, problems = [], []
  for folder in folders:
    try:
      run = read(folder, plan.get(folder.name))
    except (results.ResultError, configs.ConfigError) as error:
      problems.append(str(error))
    else:
      runs += [run] if run else []
  return runs, problems


def read_plan(folder: pathlib.Path) -> dict[str, dict[str, Any]]:
  """The lines of a sweep's plan by the run's name; none without one.

  Raises:
    ResultError: a line is none of a plan.
  """
  path = folder / PLAN
  lines = path.read_bytes().splitlines() if path.exists() else []
  plan = {}
  for number, text in enumerate(lines, 1):
    try:
      line = json.loads(text)
    except ValueError:
      line = None
    if not isinstance(line, dict) or "run" not in line:
      raise results.ResultError(
        f"{path}: line {number} is none of a plan: delete the file, launch.sweep writes it again"
      )
    if "config" in line:  # plans had none before they were read
      plan[line["run"]] = line
  return plan


def read(folder: pathlib.Path, planned: Mapping[str, Any] | None = None) -> Run | None:
  """The run in a folder, None where there is none.

  Args:
    folder: where its files are.
    planned: its line of the plan.

  Raises:
    ResultError: its result is damaged.
    ConfigError: its configuration is.
  """
  command = planned["command"] if planned else ""
  if (folder / results.RESULT_FILE).exists():
    result = results.read(folder / results.RESULT_FILE)
    leaves = dict(configs.leaves(result.config))
    command = command or result.command
    return Run(folder.name, folder, "finished", leaves, result.metrics, command)
  if (folder / "config.json").exists():
    config = workdirs.saved_config(folder)
    evaluated = {split: scores(folder, split, config.get("steps")) for split in SPLITS}
    metrics = {
      f"{split}.{name}": Metric(value)
      for split, values in evaluated.items()
      for name, value in (values or {}).items()
    }
    # A sweep's runs are evaluated, and have not finished before.
    ended = any(values is not None for values in evaluated.values())
    ended = ended or (planned is None and _trained(folder, config))
    status: Status = "finished" if ended else "unfinished"
    command = command or _command(folder)
    return Run(folder.name, folder, status, dict(configs.leaves(config)), metrics, command)
  if planned is None:
    return None
  return Run(folder.name, folder, "missing", dict(configs.leaves(planned["config"])), {}, command)


def _command(folder: pathlib.Path) -> str:
  """What worked in a folder last, of the lines that no kill has cut off; '' without one."""
  path = folder / "commands.jsonl"
  for text in reversed(path.read_bytes().splitlines() if path.exists() else []):
    with contextlib.suppress(ValueError):
      return str(json.loads(text)["command"])
  return ""


def scores(folder: pathlib.Path, split: str, steps: Any) -> dict[str, float] | None:
  """What an evaluation of a training run found, None where it had not ended by then.

  Args:
    folder: the run's.
    split: of the data.
    steps: how many the run takes.

  Raises:
    ResultError: the file is damaged.
  """
  path = folder / "evaluation" / f"{split}.json"
  try:
    record = json.loads(path.read_bytes())
  except (FileNotFoundError, NotADirectoryError):
    return None
  except ValueError:
    record = None
  if isinstance(record, dict) and isinstance(record.get("step"), int):
    values = {name: value for name, value in record.items() if name not in _NOT_SCORES}
    if all(isinstance(value, int | float) for value in values.values()):
      # Without the end of the run it is of a checkpoint on the way.
      return values if record.get("ended", record["step"] == steps) else None
  raise results.ResultError(f"{path} holds no scores of a run: delete it")


def _trained(folder: pathlib.Path, config: Mapping[str, Any]) -> bool:
  """Whether a training run that was not evaluated has done all of its steps."""
  return "steps" in config and any(line["step"] == config["steps"] for line in log(folder))


def log(folder: pathlib.Path) -> list[dict[str, Any]]:
  """The lines of a run's `metrics.jsonl` that have a step, in order; what a kill cut off aside."""
  path = folder / "metrics.jsonl"
  if not path.exists():
    return []
  lines = []
  for text in path.read_bytes().split(b"\n")[:-1]:
    try:
      line = json.loads(text)
    except ValueError:
      raise results.ResultError(f"{path} has a line that is no JSON: delete that line") from None
    if isinstance(line, dict) and isinstance(line.get("step"), int):
      lines.append(line)
  return lines


def with_logged(runs: Iterable[Run]) -> list[Run]:
  """The runs, the finished ones with the last values in their logs as metrics as well."""
  return [
    dataclasses.replace(run, metrics={**_last(run.folder), **run.metrics})
    if run.status == "finished"
    else run
    for run in runs
  ]


def _last(folder: pathlib.Path) -> dict[str, Metric]:
  last: dict[str, Metric] = {}
  for line in log(folder):
    last |= {name: Metric(value) for name, value in line.items() if is_number(value)}
  last.pop("step", None)
  return last


def is_number(value: Any) -> bool:
  """Whether a value of a JSON file is a finite number."""
  return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
