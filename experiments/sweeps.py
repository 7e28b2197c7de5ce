"""Sweeps in plain Python: lists of overrides, each a dictionary of dotted path to value.

    def sweep_windows():
      cells = sweeps.grid({"model.score": ("dot", "additive"), "model.window.half_width": (5, 10)})
      return sweeps.product(cells, sweeps.seeds(5))

makes ten runs of `python -m launch.sweep --experiment=NAME --sweep=windows`. The arguments alone
decide what is in a list and in which order: no clock, no hash, no process. Only the standard
library is imported, so that a command may read a sweep before it loads anything else.
"""

import abc
import dataclasses
import hashlib
import itertools
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Override = dict[str, Any]

_TRIES = 100  # draws a setting, until a sample counts as exhausted


# Lists.


def grid(axes: Mapping[str, Sequence[Any]]) -> list[Override]:
  """Returns every combination of the axes' values, the last axis fastest; of no axes, `[{}]`.

  Args:
    axes: dotted path -> values.

  Raises:
    ValueError: an axis without values, or with a text for a sequence of them.
  """
  _check(axes)
  return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def zipped(axes: Mapping[str, Sequence[Any]]) -> list[Override]:
  """Returns the axes' first values, then their second ones, and so on.

  Raises:
    ValueError: as `grid`, or axes of different lengths.
  """
  _check(axes)
  lengths = {path: len(values) for path, values in axes.items()}
  if len(set(lengths.values())) > 1:
    told = ", ".join(f"{path} has {length}" for path, length in lengths.items())
    raise ValueError(f"zipped axes need as many values each: {told}")
  return [dict(zip(axes, values, strict=True)) for values in zip(*axes.values(), strict=True)]


def chain(*sweeps: Iterable[Override]) -> list[Override]:
  """Returns one sweep after another; what an earlier one has is not repeated."""
  chained: list[Override] = []
  for override in itertools.chain(*sweeps):
    if override not in chained:
      chained.append(dict(override))
  return chained


def product(*sweeps: Sequence[Override]) -> list[Override]:
  """Returns every combination of one override of each sweep, the last sweep fastest.

  Where two of them set one path, the later sweep wins: `product([profiles()["smoke"]], cells)` has
  the cells at the sizes of a profile.
  """
  combined = []
  for chosen in itertools.product(*sweeps):
    merged: Override = {}
    for override in chosen:
      merged |= override
    combined.append(merged)
  return combined


def seeds(count: int, first: int = 0) -> list[Override]:
  """Returns `count` values of the field `seed`, from `first` on."""
  if count < 1:
    raise ValueError(f"seeds for {count} runs: expected 1 or more")
  return [{"seed": seed} for seed in range(first, first + count)]


def _check(axes: Mapping[str, Sequence[Any]]) -> None:
  for path, values in axes.items():
    if isinstance(values, str) or not len(values):
      raise ValueError(f"axis {path} is {values!r}: expected a sequence of values")


# Draws.


class Draw(abc.ABC):
  """What a field's value is drawn from."""

  @abc.abstractmethod
  def at(self, share: float) -> Any:
    """Returns the value that so large a share of all draws come before; 0 <= share < 1."""

  def short(self, value: Any) -> Any:
    """Returns a value without the digits that nobody reads in a name or a table."""
    return value


@dataclasses.dataclass(frozen=True)
class Uniform(Draw):
  """Numbers from `low` to `high`, rounded to about a thousandth of the range."""

  low: float
  high: float

  def __post_init__(self) -> None:
    """Refuses what is no range."""
    _refuse_no_range(self.low, self.high)

  def at(self, share: float) -> float:
    """See `Draw`."""
    return self.short(self.low + share * (self.high - self.low))

  def short(self, value: float) -> float:
    """See `Draw`."""
    digits = 3 - math.floor(math.log10(self.high - self.low))
    return min(max(round(value, digits), self.low), self.high)


@dataclasses.dataclass(frozen=True)
class LogUniform(Draw):
  """Numbers from `low` to `high` with uniform logarithms, rounded to four significant digits."""

  low: float
  high: float

  def __post_init__(self) -> None:
    """Refuses what is no range of logarithms."""
    _refuse_no_range(self.low, self.high)
    if self.low <= 0:
      raise ValueError(f"expected numbers above 0, not {self.low}")

  def at(self, share: float) -> float:
    """See `Draw`."""
    low, high = math.log(self.low), math.log(self.high)
    return self.short(math.exp(low + share * (high - low)))

  def short(self, value: float) -> float:
    """See `Draw`."""
    return min(max(float(f"{value:.4g}"), self.low), self.high)


@dataclasses.dataclass(frozen=True)
class Integers(Draw):
  """Whole numbers from `low` to `high`, both of them included."""

  low: int
  high: int

  def __post_init__(self) -> None:
    """Refuses what is no range."""
    _refuse_no_range(self.low, self.high)

  def at(self, share: float) -> int:
    """See `Draw`."""
    return self.low + math.floor(share * (self.high - self.low + 1))


@dataclasses.dataclass(frozen=True)
class Choices(Draw):
  """One of `values`, all equally likely."""

  values: tuple[Any, ...]

  def __post_init__(self) -> None:
    """Refuses what is no choice."""
    if len(self.values) < 2:
      raise ValueError(f"expected two values or more to choose from, not {len(self.values)}")

  def at(self, share: float) -> Any:
    """See `Draw`."""
    return self.values[math.floor(share * len(self.values))]


def sample(count: int, draws: Mapping[str, Draw], seed: int) -> list[Override]:
  """Returns `count` different overrides drawn at random.

  Each path has a stream of its own: a larger count goes on from a smaller one, and one more path
  leaves what the others have. The same on every machine and in every version of Python, which
  promises as much of `random.Random.random` alone.

  Args:
    count: how many.
    draws: dotted path -> what to draw from.
    seed: another one gives another sample.

  Raises:
    ValueError: there are not as many different settings to draw.
  """
  streams = {path: random.Random(_digest(f"{seed}:{path}")) for path in draws}
  drawn: list[Override] = []
  for _ in range(_TRIES * count):
    if len(drawn) == count:
      break
    override = {path: draw.at(streams[path].random()) for path, draw in draws.items()}
    if override not in drawn:
      drawn.append(override)
  if len(drawn) < count:
    raise ValueError(f"a sample of {count}, but {len(drawn)} different settings are all there are")
  return drawn


def _digest(text: str) -> int:
  return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _refuse_no_range(low: float, high: float) -> None:
  try:
    finite = math.isfinite(float(high) - float(low))
  except OverflowError:  # whole numbers that are too large for a float
    finite = False
  if not (finite and low < high):
    raise ValueError(f"expected a finite range LOW,HIGH, not {low},{high}")
