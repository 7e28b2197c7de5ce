"""Trains a recipe of attn.presets on a data set.

Examples:
  python -m launch.train --list
  python -m launch.train --preset=rnnsearch_laptop --data=g2p
  python -m launch.train --preset=rnnsearch_laptop --data=g2p --set=model.units=512 --seed=1 \\
    --workdir=runs/wide --evaluate=test
  python -m launch.train --preset=rnnsearch_laptop --data=g2p --coordinator=HOST:PORT --process=0/2

Without --data it is g2p. The run lives in runs/PRESET-DATA unless --workdir says otherwise. A run
that was interrupted, even killed, goes on from its last checkpoint when the same command is given
again, with the same result; a finished one is left as it is. --evaluate decodes a split with the
finished model: choose by dev, read test once. --wandb sends nothing: `wandb sync
RUN/wandb/offline-run-*` does, or, while the run goes on, the environment variable
WANDB_MODE=online.

All devices that jax sees share the rows of each batch. Several processes are one run when each is
given the same command and either --distributed, where jax can tell who they are (SLURM, Open MPI,
TPU pods), or --coordinator with its own --process. They need a --workdir that all of them see; only
process 0 writes into it. At the start they wait --timeout seconds for each other. When one is lost,
or fails, the others end: at once on CPUs or if it was process 0, else within --timeout seconds and
a few more. The same commands resume.
"""

import contextlib
import pathlib
import sys
import time

from absl import flags as absl_flags

from launch import flags, processes, resolve

FLAGS = flags.define(
  "preset", "data", "config", "set", "seed", "workdir", "tensorboard", "wandb", "list"
)
absl_flags.DEFINE_enum(
  "evaluate", None, ["dev", "test"], "split to decode at the end", flag_values=FLAGS
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
absl_flags.DEFINE_integer(
  "timeout", 60, "seconds after which a process that others wait for counts as lost",
  lower_bound=1, flag_values=FLAGS,
)  # fmt: skip


def main(values: absl_flags.FlagValues) -> int:
  """Trains, and evaluates if asked to."""
  if values.list:
    print(presets_text())
    return 0
  several = (values.distributed, values.coordinator, values.process)
  if values["timeout"].present and not any(several):
    raise flags.UserError("--timeout is for several processes: see --distributed, --coordinator")
  boards = resolve.boards(values)
  with processes.joined("launch.train", *several, values.timeout) as index:
    _train(values, boards, first=index == 0)
  return 0


def _train(values: absl_flags.FlagValues, boards: dict[str, bool], *, first: bool) -> None:
  """Does the work of one process, of which only the first writes and says what came out."""
  config = resolve.train_config(values.preset, values.data, values.config, values.set, values.seed)
  resolve.refuse_no_data(config)  # before a folder is made
  from attn import training, workdirs
  from attn.report import provenance

  workdir = pathlib.Path(values.workdir or default_workdir(values.preset, config.data.name))
  workdirs.refuse_another(workdir, config)
  resolve.make_folder(workdir)
  with workdirs.held(workdir) if first else contextlib.nullcontext():
    if first:
      command = flags.command_line("launch.train")
      provenance.record_command(workdir, command, provenance.environment())
      print(f"training in {workdir}", file=sys.stderr, flush=True)
    began = time.monotonic()
    trained = training.train(config, workdir, **boards)
    if first:
      print(f"{workdir}: {trained.step:,} steps, {time.monotonic() - began:.1f} s", flush=True)
    if values.evaluate:
      scores = resolve.evaluation(workdir, config, values.evaluate)
      if scores is None:
        scores = training.evaluate(workdir, values.evaluate)
      lines = [f"{values.evaluate}  {name}: {value:.6g}" for name, value in scores.items()]
      if first:
        print("\n".join(lines))


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
