"""Runs experiments and says what became of their claims.

Examples:
  python -m launch.run --list
  python -m launch.run --experiment=score_scale --smoke
  python -m launch.run --experiment=score_scale --set=seed=3 --workdir=results/mine
  python -m launch.run --experiment=all --profile=smoke --workdir=results

A configuration is the experiment's own, changed by the profile (`default` unless --profile says
otherwise) or replaced by --config, then changed by each --set, then by --seed. The results go to
results/EXPERIMENT/PROFILE, those of a changed configuration to results/EXPERIMENT/custom-LETTERS;
--workdir is another folder for one experiment, and another folder than results for several. Running
a command again resumes it; what is finished is left as it is. Of several experiments, one that
fails does not stop the others, and one that draws nothing runs without the seed. `all` leaves out
the benchmarks, whose names end in `_benchmark`.
"""

import dataclasses
import importlib.metadata
import os
import pathlib
import sys
import textwrap
import traceback
from typing import TYPE_CHECKING, Any

from absl import flags as absl_flags

from launch import flags, resolve

if TYPE_CHECKING:
  from attn.report.results import Result

FLAGS = flags.define(
  "experiment", "profile", "smoke", "config", "set", "seed", "workdir", "list"
)  # fmt: skip


def main(values: absl_flags.FlagValues) -> int:
  """Runs what the flags ask for."""
  if values.list:
    print(list_text())
    return 0
  profile = flags.profile(values)
  if values.config and (values.profile or values.smoke):
    raise flags.UserError("--config holds a whole configuration; leave out the profile")
  if profile == "smoke":
    compile_quickly()
  names = resolve.chosen_experiments(values.experiment)
  if len(names) == 1 and values.experiment != "all":
    workdir = pathlib.Path(values.workdir) if values.workdir else None
    run_one(names[0], profile, values, values.seed, workdir)
    return 0
  if values.config:
    raise flags.UserError("--config is that of one experiment, which --experiment=NAME names")
  return _run_all(names, profile, values)


def compile_quickly() -> None:
  """Has programs compiled in a third of the time, where they hardly run; call before JAX loads."""
  os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # LLVM's passes
  # XLA's former emitters take half as long. A jaxlib that lacks such a flag ends the process.
  if importlib.metadata.version("jaxlib") == "0.10.2":
    asked = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"--xla_cpu_use_fusion_emitters=false {asked}".strip()


def list_text() -> str:
  """Returns name, question and time of each experiment."""
  found = resolve.experiments()
  width = max(map(len, found)) + 2
  lines = []
  for name, described in found.items():
    for head, text in ((name, described.question), ("", described.time)):
      lines.append(textwrap.fill(head.ljust(width) + text, 100, subsequent_indent=" " * width))
  return "\n".join(lines)


def _run_all(names: list[str], profile: str, values: absl_flags.FlagValues) -> int:
  """Runs experiments in turn, going on after one that fails."""
  failures = {}
  for name in names:
    try:
      run_one(name, profile, values, _seed_of(name, values.seed))
    except Exception as error:
      line = flags.explain(error)
      if line is None:
        traceback.print_exc()
        line = f"{type(error).__name__}: {error}"
      failures[name] = line
      print(f"launch.run: {name}: {line}", file=sys.stderr, flush=True)
  if failures:
    told = "; ".join(f"{name} ({line})" for name, line in failures.items())
    print(f"launch.run: {len(failures)} of {len(names)} failed: {told}", file=sys.stderr)
  return 1 if failures else 0


def _seed_of(name: str, seed: int | None) -> int | None:
  """Returns the seed, or None for an experiment that has none to set."""
  fields = {field.name for field in dataclasses.fields(resolve.experiment(name).Config)}
  if seed is None or "seed" in fields:
    return seed
  print(f"launch.run: {name}: has no seed, runs without --seed={seed}", file=sys.stderr)
  return None


def run_one(
  name: str,
  profile: str,
  values: absl_flags.FlagValues,
  seed: int | None,
  workdir: pathlib.Path | None = None,
) -> None:
  """Runs one experiment unless it is finished, and prints its claims."""
  from attn import workdirs
  from attn.report import provenance

  module = resolve.experiment(name)
  config = resolve.experiment_config(module, profile, values.config, values.set, seed)
  if workdir is None:
    workdir = pathlib.Path(values.workdir or "results") / name / _folder(module, config, profile)
  workdirs.refuse_another(workdir, config)
  result = resolve.result(workdir, config)
  if result is None:
    resolve.make_folder(workdir)
    with workdirs.held(workdir):
      # Not the device: who asks for it takes it, and some experiments' processes need it whole.
      provenance.record_command(workdir, flags.command_line("launch.run"), provenance.software())
      print(f"{name}: running in {workdir}", flush=True)
      module.run(config, workdir)
    result = resolve.result(workdir, config)
    if result is None:
      raise RuntimeError(f"experiment {name} returned without a result.json of its configuration")
    print(f"{name}: finished in {result.seconds:.1f} s, in {workdir}")
  else:
    print(f"{name}: was finished already, after {result.seconds:.1f} s, in {workdir}")
  print(claims_text(result), flush=True)


def _folder(module: Any, config: Any, profile: str) -> str:
  """Returns the profile's name, if its overrides give this configuration, or a name of its own."""
  from attn import configs

  # The profile asked for comes first: two of them may be the same.
  for name in sorted(module.profiles(), key=lambda other: other != profile):
    if configs.override(module.Config(), module.profiles()[name]) == config:
      return str(name)
  return f"custom-{resolve.digest(config)}"


def claims_text(result: "Result") -> str:
  """Returns the claims of a result, each with its verdict and what was measured."""
  lines = []
  for claim in result.claims:
    head = f"  {claim.number:>4}  {claim.verdict:<17}  "
    text = claim.statement + (f" Measured: {claim.measured}" if claim.measured else "")
    text = textwrap.shorten(text, 200, placeholder=" ...")  # the report has all of it
    lines.append(textwrap.fill(text, 100, initial_indent=head, subsequent_indent=" " * len(head)))
  return "\n".join(lines) or "  (no claims)"


if __name__ == "__main__":
  flags.run("launch.run", main, FLAGS, __doc__)
