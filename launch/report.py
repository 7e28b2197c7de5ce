"""Writes the report: every claim of the chapter with its verdict, as one page and as JSON.

Example:
  python -m launch.report --workdir=results

Reads the result of every experiment below the workdir and writes report/index.html and
report/claims.json there. Experiments that have not run are shown as such. Of several results of one
experiment it shows that of the profile default, else full, else smoke, else another, and of these
the newest; --profile=NAME shows that profile only. Results of full runs that come with the
experiments have sections of their own, marked as not run again, and their verdict counts where the
run shown settles none; not on a page of smoke.
"""

import pathlib

from absl import flags as absl_flags

from launch import flags

FLAGS = flags.define("workdir", "profile")


def main(values: absl_flags.FlagValues) -> int:
  """Writes the report of the workdir that the flags name."""
  workdir = pathlib.Path(values.workdir or "results")
  if not workdir.is_dir():
    raise flags.UserError(
      f"there is no folder {workdir}: run python -m launch.run --experiment=all first, or give"
      " --workdir"
    )
  from attn.report import page
  from experiments import claims

  path = page.write(
    workdir,
    claims.REGISTER,
    questions=claims.questions(),
    profile=values.profile,
    stored=pathlib.Path(claims.__file__).with_name("full"),
  )
  print(f"report: {path}")
  return 0


if __name__ == "__main__":
  flags.run("launch.report", main, FLAGS, __doc__)
