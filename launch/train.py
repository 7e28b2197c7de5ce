"""Trains a recipe of attn.presets on a data set.

Examples:
  python -m launch.train --list
  python -m launch.train --preset=rnnsearch_laptop --data=g2p
  python -m launch.train --preset=rnnsearch_laptop --data=g2p --set=model.units=512 --seed=1 \\
    --workdir=runs/wide --evaluate=test

The run lives in runs/PRESET-DATA unless --workdir says otherwise. A run that was interrupted, even
killed, goes on from its last checkpoint when the same command is given again, with the same result;
a finished one is left as it is. --evaluate decodes a split with the finished model: choose by dev,
read test once.
"""

import pathlib
import sys
import time

from absl import flags as absl_flags

from launch import flags, resolve

FLAGS = flags.define("preset", "data", "config", "set", "seed", "workdir", "list")
absl_flags.DEFINE_enum(
  "evaluate", None, ["dev", "test"], "split to decode at the end", flag_values=FLAGS
)


def main(values: absl_flags.FlagValues) -> int:
  """Trains, and evaluates if asked to."""
  if values.list:
    print(presets_text())
    return 0
  config = resolve.train_config(values.preset, values.data, values.config, values.set, values.seed)
  from attn import training, workdirs
  from attn.data import catalog

  catalog.levels(config.data.name)  # an unknown data set is refused before a folder is made
  workdir = pathlib.Path(values.workdir or default_workdir(values.preset, config.data.name))
  workdirs.refuse_another(workdir, config)
  resolve.make_folder(workdir)
  print(f"training in {workdir}", file=sys.stderr, flush=True)
  began = time.monotonic()
  trained = training.train(config, workdir)
  print(f"{workdir}: {trained.step:,} steps, {time.monotonic() - began:.1f} s", flush=True)
  if values.evaluate:
    scores = resolve.evaluation(workdir, config, values.evaluate)
    if scores is None:
      scores = training.evaluate(workdir, values.evaluate)
    print("\n".join(f"{values.evaluate}  {name}: {value:.6g}" for name, value in scores.items()))
  return 0


def default_workdir(preset: str | None, data: str) -> str:
  """Returns the folder of a run that was not given one."""
  if preset is None:
    raise flags.UserError("--workdir is missing: a run from --config has no folder of its own")
  return f"runs/{preset}-{data.replace('/', '_')}"


def presets_text() -> str:
  """Returns the table of recipes."""
  from attn import presets

  table = [("name", "paper", "parameters", "follows")]
  for row in presets.describe():
    count = "by the data" if row.parameters is None else f"{row.parameters:,}"
    table.append((row.name, row.paper, count, row.follows))
  return resolve.rows(table)


if __name__ == "__main__":
  flags.run("launch.train", main, FLAGS, __doc__)
