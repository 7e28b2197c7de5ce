"""Intervals of means over a few runs, by Student's t."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

Values = Sequence[float] | Float[np.ndarray, " n"]


class Interval(NamedTuple):
  """A mean, where it lies with the chosen confidence, and of how many values it is.

  One value has no spread to judge by: its interval is the whole line. Formatted with a
  specification for numbers, as in `f"{interval:.2f}"`, it reads `mean [low, high]`.
  """

  mean: float
  low: float
  high: float
  n: int

  def __format__(self, spec: str) -> str:
    """Writes mean and ends by `spec`, or as a tuple without one."""
    return f"{self.mean:{spec}} [{self.low:{spec}}, {self.high:{spec}}]" if spec else str(self)


def mean_interval(values: Values, level: float = 0.95) -> Interval:
  """The mean and its two-sided Student t interval.

  Args:
    values: independent measurements, such as one a seed.
    level: the confidence.

  Returns:
    mean -+ t * deviation / sqrt(n), with n - 1 degrees of freedom.
  """
  values = np.asarray(values, dtype=np.float64)
  if values.ndim != 1 or not values.size:
    raise ValueError(f"values is {list(values.shape)}: expected at least one number in one row")
  if not np.isfinite(values).all():
    index = int(np.flatnonzero(~np.isfinite(values))[0])
    raise ValueError(f"values[{index}] is {values[index]}: expected finite numbers")
  if not 0 < level < 1:
    raise ValueError(f"level is {level}: expected a confidence between 0 and 1")
  mean, n = float(values.mean()), values.size
  if n == 1:
    return Interval(mean, -math.inf, math.inf, n)
  half = float(stdtrit(n - 1, (1 + level) / 2) * values.std(ddof=1) / math.sqrt(n))
  return Interval(mean, mean - half, mean + half, n)


def paired_interval(a: Values, b: Values, level: float = 0.95) -> Interval:
  """The mean of the differences `a - b` and its interval; both measured on the same seeds."""
  if np.shape(a) != np.shape(b):
    raise ValueError(f"a has {np.size(a)} values, b {np.size(b)}: expected pairs")
  return mean_interval(np.asarray(a, np.float64) - np.asarray(b, np.float64), level)
