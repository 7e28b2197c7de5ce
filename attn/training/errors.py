"""What stops a training and is the user's to put right."""


class TrainingError(RuntimeError):
  """Training cannot go on; the message says where it stopped, why, and what to do."""
