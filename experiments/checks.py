"""What the configurations of several experiments check of themselves."""

import operator
from collections.abc import Mapping
from typing import Any

from attn.configs import ConfigError


def at_least(config: Any, part: str = "", **least: int) -> None:
  """Refuses counts that are too small.

  Args:
    config: the configuration, or a part of it.
    part: what stands before the fields of that part in a dotted path, such as `recall.`.
    **least: field to its least value.

  Raises:
    ConfigError: naming the first that is below.
  """
  for name, number in least.items():
    if (given := getattr(config, name)) < number:
      raise ConfigError(f"{part}{name} is {given}: it must be at least {number}")


def two_rising(path: str, widths: tuple[int, ...]) -> None:
  """Refuses widths of which none is wider than another, as ConfigError that names their path."""
  if len(widths) < 2 or list(widths) != sorted(set(widths)) or widths[0] < 1:
    raise ConfigError(f"{path} is {widths}: it must be at least two rising widths")


def set_itself(config: Any, own: Mapping[str, Any]) -> None:
  """Refuses other values of what an experiment sets itself: it would overwrite or mislabel them.

  Args:
    config: the configuration.
    own: dotted path to the only value that may stand there.

  Raises:
    ConfigError: naming the first that is another.
  """
  for path, value in own.items():
    if (asked := operator.attrgetter(path)(config)) != value:
      raise ConfigError(
        f"{path} is {asked!r}: it is {value!r} in this experiment, which sets it itself"
      )
