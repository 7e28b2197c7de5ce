"""Prepares data sets: downloads or generates what is missing and writes it for fast reading.

Examples:
  python -m launch.prepare --data=g2p,reverse
  python -m launch.prepare --data=all --data_dir=/scratch/data

What is prepared already is left as it is, so running the command again resumes it. Every command
that reads a data set prepares it if need be; this one does only that.
"""

import time

from absl import flags as absl_flags

from launch import flags

FLAGS = flags.define("data", "list")
absl_flags.DEFINE_string("data_dir", "data", "folder of the data sets", flag_values=FLAGS)


def main(values: absl_flags.FlagValues) -> int:
  """Prepares the data sets that the flags name."""
  from attn.data import catalog

  known = catalog.names()
  if values.list:
    print("\n".join(known))
    return 0
  if not values.data:
    raise flags.UserError(f"--data=NAME is missing: there is {', '.join(known)}, or all")
  names = known if values.data == "all" else [name.strip() for name in values.data.split(",")]
  for name in names:
    catalog.levels(name)  # an unknown name is refused before another one is downloaded
  for name in names:
    began = time.monotonic()
    folder = catalog.prepare(name, values.data_dir)
    print(f"{name}: ready in {folder} after {time.monotonic() - began:.1f} s", flush=True)
  return 0


if __name__ == "__main__":
  flags.run("launch.prepare", main, FLAGS, __doc__)
