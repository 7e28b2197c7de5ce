"""From flags to what runs: experiments by name, their configurations, the state of workdirs."""

import ast
import hashlib
import importlib
import importlib.util
import json
import pathlib
import re
import tempfile
import types
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import flags as absl_flags

from launch.flags import UserError, nearest

if TYPE_CHECKING:
  from attn.decoding.config import SearchConfig
  from attn.report.results import Result
  from attn.training import Trained

# Experiments.

BENCHMARK = "_benchmark"  # ends the names of modules that time and judge no claim


class Described(NamedTuple):
  """What the docstring of an experiment says: its first line, and how long it takes."""

  question: str
  time: str


def experiments() -> dict[str, Described]:
  """Returns name and description of each experiment, by reading files: importing them takes jax.

  An experiment is a module of `experiments/` with a function `run` at its top level.
  """
  spec = importlib.util.find_spec("experiments")
  if spec is None:
    raise UserError("there is no experiments/ here: run from the root of the checkout")
  found = {}
  for folder in spec.submodule_search_locations or ():
    for path in sorted(pathlib.Path(folder).glob("[a-z]*.py")):
      tree = ast.parse(path.read_bytes(), str(path))
      if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
        doc = ast.get_docstring(tree) or ""
        time = re.search(r"\bTime: (.+?)(?:\.\s|\.?\Z)", doc, re.S)
        text = " ".join(time[1].split()) if time else "no time stated"
        found[path.stem] = Described(doc.partition("\n")[0], text)
  return found


def chosen_experiments(text: str | None) -> list[str]:
  """Returns the names in `NAME`, `NAME,NAME` or `all`, which leaves out benchmarks."""
  known = experiments()
  if not text:
    raise UserError(f"--experiment=NAME is missing: there is {', '.join(known)}, or all")
  judging = [name for name in known if not name.endswith(BENCHMARK)]
  names = judging if text == "all" else [name.strip() for name in text.split(",")]
  for name in names:
    if name not in known:
      raise UserError(f"no experiment {name!r}{nearest(name, [*known, 'all'])}")
  return names


def experiment(name: str) -> types.ModuleType:
  """Imports one experiment."""
  return importlib.import_module(f"experiments.{name}")


def experiment_config(
  module: types.ModuleType,
  profile: str,
  file: str | None,
  assignments: Sequence[str],
  seed: int | None,
) -> Any:
  """Returns an experiment's configuration: profile or file, then assignments, then the seed."""
  from attn import configs

  profiles = module.profiles()
  if profile not in profiles:
    raise UserError(f"no profile {profile!r}{nearest(profile, profiles)}")
  if file is None:
    config = configs.override(module.Config(), profiles[profile])
  else:
    config = read_config(module.Config, file)
  return _refined(config, assignments, seed)


def train_config(
  preset: str | None,
  data: str | None,
  file: str | None,
  assignments: Sequence[str],
  seed: int | None,
) -> Any:
  """Returns the configuration of a training run: preset or file, data, assignments, seed."""
  if bool(preset) == bool(file):
    raise UserError("give one of --preset=NAME (launch.train --list) and --config=FILE.json")
  from attn import configs, presets
  from attn.training import TrainConfig

  config = presets.get(preset) if preset else read_config(TrainConfig, str(file))
  if data is not None:
    config = configs.override(config, {"data.name": data})
  return _refined(config, assignments, seed)


def refuse_no_data(config: Any) -> None:
  """Raises ConfigError where the data of a training run are none that there is."""
  from attn import configs
  from attn.data import catalog

  try:
    catalog.levels(config.data.name)
  except catalog.DataError as error:
    raise configs.ConfigError(str(error)) from None
  config.data.files()


def _refined(config: Any, assignments: Sequence[str], seed: int | None) -> Any:
  from attn import configs

  config = configs.assign(config, assignments)
  return config if seed is None else configs.override(config, {"seed": seed})


def read_config(cls: type, file: str) -> Any:
  """Reads a saved configuration, strictly."""
  from attn import configs

  try:
    data = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
  except (FileNotFoundError, NotADirectoryError):
    raise UserError(f"--config={file}: no such file") from None
  except OSError as error:
    raise UserError(f"cannot read {file}: {error.strerror}") from error
  except ValueError:
    raise UserError(f"{file} is no JSON: is it the right file?") from None
  try:
    return configs.from_dict(cls, data)
  except configs.ConfigError as error:
    raise UserError(f"--config={file}: {error}") from None


def digest(config: Any) -> str:
  """Returns eight letters that name a configuration."""
  from attn import configs

  text = json.dumps(configs.to_dict(config), sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:8]


# What may not be installed.

BOARDS = {"tensorboard": "tensorboardX", "wandb": "wandb"}


def boards(values: absl_flags.FlagValues) -> dict[str, bool]:
  """Returns which of `--tensorboard` and `--wandb` are given.

  Raises:
    UserError: one whose package is not installed, which a run would notice when it has its data.
  """
  asked = {name: values[name].value for name in BOARDS}
  for name, package in BOARDS.items():
    if asked[name] and not installed(package):
      raise UserError(
        f"--{name} needs {package}: python -m pip install -c constraints.txt -e '.[{name}]'"
      )
  return asked


def installed(package: str) -> bool:
  """Whether a package can be imported; a folder that merely has its name is none."""
  spec = importlib.util.find_spec(package)
  return spec is not None and spec.origin is not None


# Workdirs.


def folders(text: str) -> list[pathlib.Path]:
  """Returns the folders in `FOLDER` or `FOLDER,FOLDER`; those of a sweep's runs have commas too."""
  words, found = text.split(","), []
  if not all(word.strip() for word in words):
    raise UserError(f"--workdir={text} has a comma without a folder")
  while words:
    starts = [pathlib.Path(",".join(words[:n]).strip()) for n in range(1, len(words) + 1)]
    count = max((n for n, start in enumerate(starts, 1) if start.is_dir()), default=1)
    found.append(starts[count - 1])
    words = words[count:]
  return found


def make_folder(folder: pathlib.Path, flag: str = "workdir") -> None:
  """Makes the folder that a flag asks for, and refuses one that cannot be written into."""
  try:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
      pass
  except OSError as error:
    raise UserError(
      f"cannot write into {folder}: {error.strerror}; give another --{flag}"
    ) from error


def trained(workdir: pathlib.Path, average: int = 1) -> "Trained":
  """Returns the model that training left in a folder, or the mean of its `average` last or best."""
  untrained = UserError(f"{workdir} holds no trained model; launch.train makes one")
  if not (workdir / "config.json").exists():
    raise untrained
  from attn import workdirs

  # An experiment's folder has a configuration too: another one.
  if not {"model", "data", "steps"} <= set(workdirs.saved_config(workdir)):
    raise untrained
  from attn import training

  try:
    return training.load(workdir, average=average)
  except FileNotFoundError as error:
    raise UserError(str(error)) from None


def together(text: str, average: int = 1) -> "tuple[Trained, ...]":
  """Returns the models in `RUN`, or in `RUN,RUN`, which have the same vocabularies."""
  workdirs = folders(text)
  models = tuple(trained(workdir, average) for workdir in workdirs)
  for workdir, model in zip(workdirs, models, strict=True):
    for side in ("source", "target"):
      if getattr(model, side) != getattr(models[0], side):
        raise UserError(
          f"{workdir} has another {side} vocabulary than {workdirs[0]}: models that work together"
          " need the same"
        )
  return models


def searched(model: "Trained", assignments: Sequence[str]) -> "SearchConfig":
  """Returns how to search: as the run says, and as `--set` does."""
  from attn import configs

  if other := [text for text in assignments if not text.strip().startswith("search.")]:
    raise UserError(
      f"--set={other[0]} is not about the search; a trained model takes search.* alone"
    )
  search: SearchConfig = configs.assign(model.config, assignments).search
  return search


def result(workdir: pathlib.Path, config: Any) -> "Result | None":
  """Returns what `result.json` says if it is there and of this configuration, else None."""
  from attn import configs
  from attn.report import results

  path = workdir / results.RESULT_FILE
  found = results.read(path) if path.exists() else None
  if found is None or found.config == configs.to_dict(config):
    return found
  different = configs.differences(configs.up_to_date(type(config), found.config), config)
  return None if different else found


def evaluation(workdir: pathlib.Path, config: Any, split: str) -> dict[str, float] | None:
  """Returns the scores on a split of the finished training run of this configuration, else None."""
  from attn import workdirs
  from attn.report import runs

  found = runs.scores(workdir, split, config.steps)
  if found is not None:
    workdirs.refuse_another(workdir, config)
  return found


def rows(table: Iterable[Sequence[str]]) -> str:
  """Lays out rows of text in columns."""
  table = [tuple(row) for row in table]
  widths = [max(map(len, column)) for column in zip(*table, strict=True)]
  lines = ["  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)) for row in table]
  return "\n".join(line.rstrip() for line in lines)
