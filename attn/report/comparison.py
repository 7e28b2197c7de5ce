"""Runs compared: the mean of a metric over seeds for each setting, and which setting is best.

A setting is what the runs of one row share: the values of the axes. Only finished runs count.
Where a row has several, its interval is Student's t over their values; where it has one, it is the
run's own, if the run gave one.
"""

import collections
import dataclasses
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal

from attn import configs
from attn.evaluation.intervals import Interval, mean_interval, paired_interval
from attn.report import runs as reading
from attn.report.results import ResultError
from attn.report.runs import Run

SEED = "seed"

Direction = Literal["min", "max"]

# Parts of names that say which way is better; the first list is looked at first.
_LARGER = ("accuracy", "bleu", "chrf", "precision", "recall", "per_second", "speedup")
_SMALLER = ("error", "loss", "perplexity", "unfinished", "overflow", "seconds", "bytes", "memory")

# Of these the first that the runs have is the one to compare, unless another is asked for.
_MAIN = ("dev.bleu", "dev.word_error_rate", "test.bleu", "test.word_error_rate", "dev_loss")


@dataclasses.dataclass(frozen=True)
class Row:
  """One setting.

  Attributes:
    setting: axis -> value.
    runs: its runs, finished or not.
    values: metric -> its mean, 95% interval and number of runs; infinite ends stand for no
      interval, and a metric that no finished run has a finite value of is left out.
  """

  setting: Mapping[str, Any]
  runs: tuple[Run, ...]
  values: Mapping[str, Interval]

  def count(self, status: reading.Status) -> int:
    """How many of its runs are in a state."""
    return sum(run.status == status for run in self.runs)


@dataclasses.dataclass(frozen=True)
class Best:
  """The best setting.

  Attributes:
    ranked: the settings that have a value, the best first.
    direction: whether the smallest or the largest mean counts as best.
    lead: by how much the first is better than the second, paired by seed; None without a second
      or two seeds in common.
  """

  ranked: tuple[Row, ...]
  direction: Direction
  lead: Interval | None

  @property
  def row(self) -> Row:
    """The best setting."""
    return self.ranked[0]

  @property
  def next(self) -> Row | None:
    """The second best; None for a single setting."""
    return self.ranked[1] if len(self.ranked) > 1 else None


@dataclasses.dataclass(frozen=True)
class Comparison:
  """Runs side by side.

  Attributes:
    metrics: what is compared; the first decides what is best.
    axes: what the rows differ by.
    implied: further fields that vary, each with one value in a row.
    pooled: further fields that vary inside rows, which are means over them too.
    rows: the settings, in the order of their values.
    best: None where nothing is finished or nobody knows which way is better.
    units: metric -> unit.
    others: the names of the other metrics.
    repeated: runs left out as another one has the same configuration, seed included.
  """

  metrics: tuple[str, ...]
  axes: tuple[str, ...]
  implied: tuple[str, ...]
  pooled: tuple[str, ...]
  rows: tuple[Row, ...]
  best: Best | None
  units: Mapping[str, str]
  others: tuple[str, ...]
  repeated: int

  def count(self, status: reading.Status) -> int:
    """How many runs are in a state."""
    return sum(row.count(status) for row in self.rows)

  @property
  def over(self) -> str:
    """What the means are over."""
    seeds = any(len({run.seed for run in row.runs}) > 1 for row in self.rows)
    return ", ".join([*["seeds"] * seeds, *self.pooled]) or "repeated runs"

  def overrides(self, row: Row) -> list[str]:
    """`path=value` of each field that varies and has one value in a row."""
    config = row.runs[0].config
    implied = [f"{path}={text_of(config[path])}" for path in self.implied if path in config]
    return assignments(row) + implied


def compare(
  runs: Sequence[Run],
  metrics: Sequence[str] = (),
  by: Sequence[str] = (),
  direction: Direction | None = None,
) -> Comparison:
  """Compares runs.

  Args:
    runs: as `attn.report.runs.collect` finds them.
    metrics: names; by default the main one.
    by: axes; by default all that vary, the seed aside.
    direction: whether small or large is good; by default what the first metric's name says.

  Raises:
    ConfigError: no such metric, or no such axis.
    ResultError: there is nothing to compare.
  """
  runs, repeated = _distinct(runs)
  known = _names(runs)
  if not known or set(metrics) - set(known) or not metrics:
    main = _main(known) if not metrics else None
    if main is None:  # perhaps in the logs, which take longer to read
      runs = reading.with_logged(runs)
      known = _names(runs)
      main = _main(known) or next(iter(known), None)
    metrics = metrics or ([main] if main else [])
  if not known:
    unfinished = sum(run.status != "finished" for run in runs)
    raise ResultError(f"no run has finished with a number so far; {unfinished} have not finished")
  for name in metrics:
    if name not in known:
      raise configs.ConfigError(f"no metric {name!r}{configs.nearest(name, known)}")
  varying = axes(runs)
  for path in by:
    if not any(path in run.config for run in runs):
      known_paths = varying or dict.fromkeys(path for run in runs for path in run.config)
      raise configs.ConfigError(f"no axis {path!r}{configs.nearest(path, known_paths)}")
  metrics = tuple(dict.fromkeys(metrics))  # what is asked for twice is one column
  by = tuple(dict.fromkeys(by)) or _independent(runs, varying)
  rows = _rows(runs, metrics, by)
  pooled = [path for path in varying if any(_several(row.runs, path) for row in rows)]
  return Comparison(
    metrics=metrics,
    axes=by,
    implied=tuple(path for path in varying if path not in by and path not in pooled),
    pooled=tuple(pooled),
    rows=rows,
    best=_best(rows, metrics[0], direction or direction_of(metrics[0])),
    units={name: known[name] for name in metrics},
    others=tuple(name for name in known if name not in metrics),
    repeated=repeated,
  )


def direction_of(metric: str) -> Direction | None:
  """Whether a metric of this name is better small or large; None where the name does not say."""
  for direction, parts in (("max", _LARGER), ("min", _SMALLER)):
    if any(part in metric.lower() for part in parts):
      return "max" if direction == "max" else "min"
  return None


def axes(runs: Sequence[Run]) -> dict[str, list[Any]]:
  """Fields that have several values, the seed aside, with their values in order.

  A field that some configurations lack varies if the others differ: it may have come later.
  """
  found: dict[str, dict[Hashable, Any]] = {path: {} for path in _differing(runs)}
  for run in runs:
    for path, values in found.items():
      if path in run.config:
        values[_key(run.config[path])] = run.config[path]
  return {
    path: sorted(values.values(), key=order)
    for path, values in found.items()
    if len(values) > 1 and path != SEED
  }


def _differing(runs: Sequence[Run]) -> list[str]:
  """Fields that not all configurations have alike: a few of many, of which alone more is asked."""
  known: dict[str, Any] = {}
  found: set[str] = set()
  for run in runs:
    for path, value in run.config.items():
      if known.setdefault(path, value) != value:
        found.add(path)
  for run in runs:
    if len(run.config) < len(known):
      found |= known.keys() - run.config.keys()
  return [path for path in known if path in found]


def _independent(runs: Iterable[Run], varying: Iterable[str]) -> tuple[str, ...]:
  """Fields less those that go with an earlier one: each value of one with one of the other."""
  kept: dict[str, list[Hashable]] = {}
  for path in varying:
    values = [_key(run.config.get(path, configs.ABSENT)) for run in runs]
    many = len(set(values))
    pairs = (
      set(zip(values, others, strict=True)) for others in kept.values() if len(set(others)) == many
    )
    if not any(len(one) == many for one in pairs):
      kept[path] = values
  return tuple(kept)


def _several(runs: Iterable[Run], path: str) -> bool:
  return len({_key(run.config[path]) for run in runs if path in run.config}) > 1


def order(value: Any) -> tuple[int, float, str]:
  """Sorts numbers by size, then texts and lists, then what is absent."""
  if reading.is_number(value):
    return 0, float(value), ""
  return (2 if value is configs.ABSENT or value is None else 1), 0.0, text_of(value)


def text_of(value: Any) -> str:
  """A value of a field as one would type it."""
  if value is configs.ABSENT:
    return repr(value)
  return configs.format_assignment("", tuple(value) if isinstance(value, list) else value)[1:]


def shown(value: Any) -> str:
  """A value of a field as tables show it: long numbers rounded."""
  text = text_of(value)
  return f"{value:.4g}" if isinstance(value, float) and len(text) > 8 else text


def assignments(row: Row) -> list[str]:
  """`path=value` of each axis."""
  return [f"{path}={text_of(value)}" for path, value in row.setting.items()]


def _key(value: Any) -> Hashable:
  return tuple(map(_key, value)) if isinstance(value, list) else value


def _distinct(runs: Sequence[Run]) -> tuple[list[Run], int]:
  """Leaves out runs whose configuration and seed another one has: they are no further draws."""
  rank = ("missing", "unfinished", "finished")
  kept: dict[Hashable, Run] = {}
  differing = _differing(runs)
  for number, run in enumerate(runs):
    own = tuple(_key(run.config.get(path, configs.ABSENT)) for path in differing)
    key = own if SEED in run.config else number
    if key not in kept or rank.index(run.status) > rank.index(kept[key].status):
      kept[key] = run
  return list(kept.values()), len(runs) - len(kept)


def _names(runs: Iterable[Run]) -> dict[str, str]:
  """All metrics with their units."""
  return {name: metric.unit for run in runs for name, metric in run.metrics.items()}


def _main(known: Mapping[str, str]) -> str | None:
  """The metric to compare by default; None where the logs may have a better one."""
  for name in _MAIN:
    if name in known:
      return name
  return next((name for name in known if not re.match(r"(dev|test)\.", name)), None)


def _rows(runs: Sequence[Run], metrics: Sequence[str], by: Sequence[str]) -> tuple[Row, ...]:
  grouped: dict[Hashable, list[Run]] = collections.defaultdict(list)
  for run in runs:
    grouped[tuple(_key(run.config.get(path, configs.ABSENT)) for path in by)].append(run)
  rows = []
  for members in grouped.values():
    setting = {path: members[0].config.get(path, configs.ABSENT) for path in by}
    values = {name: _interval(members, name) for name in metrics}
    rows.append(Row(setting, tuple(members), {n: v for n, v in values.items() if v is not None}))
  return tuple(sorted(rows, key=lambda row: [order(value) for value in row.setting.values()]))


def _interval(runs: Iterable[Run], name: str) -> Interval | None:
  """A metric of the finished runs that have a finite value; of a single one its own interval."""
  found = [run.metrics.get(name) for run in runs if run.status == "finished"]
  whole = [(one, one.mean) for one in found if one is not None and one.mean is not None]
  if not whole:
    return None
  if len(whole) > 1:
    return mean_interval([mean for _, mean in whole])
  ((one, mean),) = whole
  if one.low is None or one.high is None:
    return mean_interval([mean])
  return Interval(mean, one.low, one.high, 1)


def _best(rows: Sequence[Row], metric: str, direction: Direction | None) -> Best | None:
  sign = -1 if direction == "max" else 1
  ranked = sorted(
    (row for row in rows if metric in row.values),
    key=lambda row: sign * row.values[metric].mean,
  )
  if direction is None or not ranked:
    return None
  lead = _lead(ranked[0], ranked[1], metric, sign) if len(ranked) > 1 else None
  return Best(tuple(ranked), direction, lead)


def _lead(first: Row, second: Row, metric: str, sign: int) -> Interval | None:
  """How much better the first is, over what the two have in common besides their setting."""
  a, b = (_paired(row, metric) for row in (first, second))
  common = [key for key in a if key in b]
  if len(common) < 2:
    return None
  better, worse = ([sign * side[key] for key in common] for side in (a, b))
  return paired_interval(worse, better)


def _paired(row: Row, metric: str) -> dict[Hashable, float]:
  """A row's values by whatever else its runs' configurations say."""
  found: dict[Hashable, float] = {}
  for run in row.runs:
    value = run.metrics.get(metric)
    if run.status == "finished" and value is not None and value.mean is not None:
      rest = [(path, told) for path, told in run.config.items() if path not in row.setting]
      found[frozenset((path, _key(told)) for path, told in rest)] = value.mean
  return found
