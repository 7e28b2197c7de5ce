"""What goes wrong with data and is the user's to put right."""


class DataError(RuntimeError):
  """Data that cannot be had, in one line: what is wrong, where, and what to do."""
