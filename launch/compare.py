"""Compares the runs of a sweep: a metric by the axes that vary, with intervals over seeds.

Examples:
  python -m launch.compare --workdir=runs/rnnsearch_laptop-reverse-sweep
  python -m launch.compare --workdir=runs/a,runs/b --by=model.score,model.units \\
    --metric=dev.symbol_error_rate --metric=dev_loss
  python -m launch.compare --workdir=results/score_scale/sweep-grid \\
    --by=positions --best=max --output=results/positions

Reads what the runs themselves have written, so it also serves while a sweep goes on, for several
sweeps side by side, and for folders of single runs. Scores of launch.train --evaluate are called
dev.NAME and test.NAME, the last values in metrics.jsonl by their names there, metrics of launch.run
as result.json has them. --metric may be given several times; the first decides which setting is
best, and its name tells which way is better unless --best does. --by is all fields that vary, the
seed aside. Prints the table and writes it into the folder `compare` of the (first) workdir, as
index.html and table.csv with a figure for each axis and the curves of training.
"""

import pathlib
import shlex
import sys

from absl import flags as absl_flags

from launch import flags, resolve

FLAGS = flags.define("workdir")
absl_flags.DEFINE_multi_string("metric", [], "what to compare (repeatable)", flag_values=FLAGS)
absl_flags.DEFINE_list("by", [], "fields that make the rows, dotted.path,...", flag_values=FLAGS)
absl_flags.DEFINE_enum(
  "best", None, ["min", "max"], "which way the first metric is better", flag_values=FLAGS
)
absl_flags.DEFINE_string("output", None, "folder for the page", flag_values=FLAGS)


def main(values: absl_flags.FlagValues) -> int:
  """Prints and writes the comparison."""
  flags.require(values, workdir="SWEEP")
  from attn.report import comparison, comparison_page, runs
  from launch import table

  folders = resolve.folders(values.workdir)
  found, problems = runs.collect(folders)
  for problem in problems:
    print(f"launch.compare: {problem}", file=sys.stderr)
  compared = comparison.compare(found, values.metric, values.by, values.best)
  table.show(compared)
  output = pathlib.Path(values.output or folders[0] / "compare")
  resolve.make_folder(output, "output")
  path = comparison_page.write(
    output,
    compared,
    command=shlex.join(["python", "-m", "launch.compare", *sys.argv[1:]]),
    sources=list(map(str, folders)),
    problems=problems,
  )
  print(f"page: {path}")
  return 0


if __name__ == "__main__":
  flags.run("launch.compare", main, FLAGS, __doc__, resumes=False)
