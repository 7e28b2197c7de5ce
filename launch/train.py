"""Trains a recipe of attn.presets on a data set.

Examples:
  python -m launch.train --list
  python -m launch.train --preset=rnnsearch_laptop --data=g2p
  python -m launch.train --preset=rnnsearch_laptop --data=g2p --set=model.units=512 --seed=1 \\
    --workdir=runs/wide --evaluate=test
  python -m launch.train --preset=rnnsearch_laptop --data=g2p --coordinator=HOST:PORT --process=0/2

The run lives in runs/PRESET-DATA unless --workdir says otherwise. A run that was interrupted, even
killed, goes on from its last checkpoint when the same command is given again, with the same result;
a finished one is left as it is. --evaluate decodes a split with the finished model: choose by dev,
read test once. --wandb sends nothing: `wandb sync RUN/wandb/offline-run-*` does, or, while the run
goes on, the environment variable WANDB_MODE=online.

All devices that jax sees share the rows of each batch. Several processes are one run when each is
given the same command and either --distributed, where jax can tell who they are (SLURM, Open MPI,
TPU pods), or --coordinator with its own --process. They need a --workdir that all of them see.
"""

import pathlib
import re
import sys
import time

from absl import flags as absl_flags

from launch import flags, resolve

FLAGS = flags.define("preset", "data", "config", "set", "seed", "workdir", "list")
absl_flags.DEFINE_enum(
  "evaluate", None, ["dev", "test"], "split to decode at the end", flag_values=FLAGS
)
absl_flags.DEFINE_bool(
  "tensorboard", False, "write metrics for TensorBoard as well", flag_values=FLAGS
)
absl_flags.DEFINE_bool(
  "wandb", False, "write metrics for Weights & Biases as well", flag_values=FLAGS
)
absl_flags.DEFINE_bool(
  "distributed", False, "be one of the processes that the cluster started", flag_values=FLAGS
)
absl_flags.DEFINE_string(
  "coordinator", None, "HOST:PORT of the first of several processes", flag_values=FLAGS
)
absl_flags.DEFINE_string(
  "process", None, "I/N: this is process I, counted from 0, of N", flag_values=FLAGS
)


def main(values: absl_flags.FlagValues) -> int:
  """Trains, and evaluates if asked to."""
  if values.list:
    print(presets_text())
    return 0
  join(values.distributed, values.coordinator, values.process)
  config = resolve.train_config(values.preset, values.data, values.config, values.set, values.seed)
  from attn import training, workdirs
  from attn.data import catalog
  from attn.report import provenance

  catalog.levels(config.data.name)  # an unknown data set is refused before a folder is made
  workdir = pathlib.Path(values.workdir or default_workdir(values.preset, config.data.name))
  workdirs.refuse_another(workdir, config)
  resolve.make_folder(workdir)
  print(f"training in {workdir}", file=sys.stderr, flush=True)
  began = time.monotonic()
  import jax

  first = jax.process_index() == 0  # which alone says what goes in and what came out
  if first:
    command = flags.command_line("launch.train")
    provenance.record_command(workdir, command, provenance.environment())
  boards = {"tensorboard": values.tensorboard, "wandb": values.wandb}
  trained = training.train(config, workdir, **boards)
  if not first:
    return 0
  print(f"{workdir}: {trained.step:,} steps, {time.monotonic() - began:.1f} s", flush=True)
  if values.evaluate:
    with workdirs.held(workdir):
      scores = resolve.evaluation(workdir, config, values.evaluate)
      if scores is None:
        scores = training.evaluate(workdir, values.evaluate)
    print("\n".join(f"{values.evaluate}  {name}: {value:.6g}" for name, value in scores.items()))
  return 0


def join(distributed: bool, coordinator: str | None, process: str | None) -> None:
  """Makes this process one of several that train together, if the flags say so."""
  if not distributed and coordinator is None and process is None:
    return
  place = re.fullmatch(r"(\d+)/(\d+)", process or "")
  if not distributed and (coordinator is None or process is None):
    raise flags.UserError("--coordinator=HOST:PORT and --process=I/N belong together")
  if distributed and (coordinator or process):
    raise flags.UserError("--distributed finds out by itself what --coordinator and --process say")
  if not distributed and (place is None or int(place[1]) >= int(place[2])):
    raise flags.UserError(f"--process={process} is not I/N with I from 0 to N-1, such as 0/2")
  import jax

  try:
    if place:
      jax.distributed.initialize(coordinator, int(place[2]), int(place[1]))
    else:
      jax.distributed.initialize()
  except (RuntimeError, ValueError) as error:
    reason = (str(error).splitlines() or ["no reason given"])[0]
    raise flags.UserError(f"the processes do not find each other: {reason:.200}") from None


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
