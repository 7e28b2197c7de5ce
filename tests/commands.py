"""Commands called in this process, and the files that they are given."""

from launch import flags


def write(folder, **files):
  for name, lines in files.items():
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def run(command, *words):
  """Runs a command in this process; what it complains of is what a user would read."""
  flags.parse(command.FLAGS, list(words))
  try:
    return command.main(command.FLAGS)
  except Exception as error:
    told = flags.explain(error)
    if told is None:
      raise
    assert "\n" not in told
    return told
  finally:
    command.FLAGS.unparse_flags()
