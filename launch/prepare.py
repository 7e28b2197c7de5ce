"""Prepares data sets: downloads or generates what is missing and writes it for fast reading.

Examples:
  python -m launch.prepare --data=g2p,reverse
  python -m launch.prepare --data=all --data_dir=/scratch/data
  python -m launch.prepare --data=parallel_text --set=data.source=de.gz --set=data.target=en.gz

What is prepared already is left as it is, so running the command again resumes it. Every command
that reads a data set prepares it if need be; this one does only that. `all` is every data set that
needs no files of the user's.
"""

import dataclasses
import time

from absl import flags as absl_flags

from launch import flags

_FILES = (
  "source", "target", "dev_source", "dev_target", "test_source", "test_target", "columns",
)  # fmt: skip

FLAGS = flags.define("data", "set", "list")
absl_flags.DEFINE_string("data_dir", "data", "folder of the data sets", flag_values=FLAGS)


def main(values: absl_flags.FlagValues) -> int:
  """Prepares the data sets that the flags name."""
  from attn import configs
  from attn.data import catalog
  from attn.data.config import TEXT, DataConfig

  there = catalog.names()
  if values.list:
    print("\n".join(there))
    return 0
  if not values.data:
    raise flags.UserError(f"--data=NAME is missing: there is {', '.join(there)}, or all")
  if values.data == "all":
    names = [name for name in there if name != TEXT]
  else:
    names = [name.strip() for name in values.data.split(",")]
  asked = []
  for name in names:
    catalog.levels(name)  # an unknown name is refused before another one is downloaded
    data = DataConfig(name=name, data_dir=values.data_dir)
    # The paths are those of launch.train, where the data are a field.
    holder = dataclasses.make_dataclass("Prepared", [("data", DataConfig, data)], frozen=True)
    asked.append(configs.assign(holder(), values.set).data)
  known = [f"data.{field}" for field in _FILES]
  if other := [text for text in values.set if text.partition("=")[0].strip() not in known]:
    raise flags.UserError(
      f"--set={other[0]}: of all settings, what is prepared depends on {', '.join(known)} alone"
    )
  for data, files in [(data, data.files()) for data in asked]:
    began = time.monotonic()
    folder = catalog.prepare(data.name, data.data_dir, files)
    print(f"{data.name}: ready in {folder} after {time.monotonic() - began:.1f} s", flush=True)
  return 0


if __name__ == "__main__":
  flags.run("launch.prepare", main, FLAGS, __doc__)
