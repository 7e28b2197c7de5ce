"""The schema of `result.json` and of `claims.json`, and reading and writing them.

`Result` is the whole of the file an experiment leaves in its workdir, `Metric` one entry of its
`metrics`, `Figure` one of its `figures`, `Claim` one of its `claims`; `attn.report.recorder` writes
them during a run. `claims.json` is the report's: a list of `Settled`, which is a `Claim` with what
a stored full run made of it, `full`: null or `Full`.

JSON has no infinities: a number that is not finite is written as null, and null reads as "not
known".
"""

import dataclasses
import json
import math
import os
import pathlib
import tempfile
import typing
from collections.abc import Mapping
from typing import Any, Literal

Verdict = Literal[
  "reproduced", "qualified", "contradicted", "not resolved here", "not measurable", "not run"
]
REPRODUCED: Verdict = "reproduced"
QUALIFIED: Verdict = "qualified"  # true under a condition, which the experiment shows
CONTRADICTED: Verdict = "contradicted"
NOT_RESOLVED: Verdict = "not resolved here"  # the interval is too wide to say
NOT_MEASURABLE: Verdict = "not measurable"  # history or interpretation
NOT_RUN: Verdict = "not run"
VERDICTS: tuple[Verdict, ...] = typing.get_args(Verdict)

Kind = Literal["arithmetic", "property", "trained"]
KINDS: tuple[Kind, ...] = typing.get_args(Kind)

RESULT_FILE = "result.json"


class ResultError(ValueError):
  """A result file, or what was to become one, is wrong; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Metric:
  """A measured number with its interval.

  Attributes:
    mean: the value; whatever centre `unit` or the metric's name says (a median is named as one).
    low: lower end of the 95% interval, or None where there is none.
    high: upper end of the interval, or None.
    n: how many independent observations the interval rests on.
    unit: unit in words, such as 'nats' or '% of words'; '' for a pure number.
  """

  mean: float | None
  low: float | None = None
  high: float | None = None
  n: int = 1
  unit: str = ""


@dataclasses.dataclass(frozen=True)
class Figure:
  """What a figure says: its one message, and how it was made."""

  title: str
  caption: str


@dataclasses.dataclass(frozen=True)
class Claim:
  """One claim of the chapter and what became of it.

  Attributes:
    number: '1' ... '80' with '70a' ... '70f', and 'L4', 'L6' for Luong's tables.
    kind: 'arithmetic' (counting), 'property' (holds or fails without training), 'trained'.
    statement: the claim in one sentence.
    published: the value that was published and where, or None where it has no number.
    measured: what was measured here, in words and numbers; None before a run.
    interval: 95% interval of the number that decides; None for exact arithmetic.
    verdict: computed by a rule stated in the owning experiment before it ran.
    experiment: the one experiment that owns the claim, be it measurable or not.
    why: one sentence: what decided, under which condition, or why there is no measurement.
  """

  number: str
  kind: Kind
  statement: str
  published: str | None = None
  measured: str | None = None
  interval: tuple[float | None, float | None] | None = None
  verdict: Verdict = NOT_RUN
  experiment: str | None = None
  why: str = ""


@dataclasses.dataclass(frozen=True)
class Full:
  """What a stored full run found of a claim, whichever run's verdict counts.

  Attributes:
    verdict: as in `Claim`, as are the next two.
    measured: what it measured.
    interval: of the number that decided.
    seeds: how many seeds it had.
  """

  verdict: Verdict
  measured: str | None
  interval: tuple[float | None, float | None] | None
  seeds: int


@dataclasses.dataclass(frozen=True)
class Settled(Claim):
  """An entry of `claims.json`: a claim with the verdict that counts.

  Attributes:
    full: what the stored full run of its experiment found; None where none is stored, or it does
      not judge the claim, and on a page of smoke runs.
  """

  full: Full | None = None


@dataclasses.dataclass(frozen=True)
class Result:
  """The whole of `result.json`.

  Attributes:
    experiment: name of the experiment's module.
    profile: the profile whose overrides give exactly this config, whoever asked for it (a sweep's
      cell may be one), else 'custom'.
    config: the experiment's configuration as plain data.
    seeds: every seed used.
    environment: versions, machine, commit and the time it finished.
    command: the command line that repeats the run.
    seconds: wall time, summed over interruptions.
    metrics: name to `Metric`.
    figures: path of the SVG below the workdir to `Figure`, the most telling first. A PNG of the
      same name stands beside each.
    claims: the claims this run judged.
  """

  experiment: str
  profile: str
  config: dict[str, Any]
  seeds: tuple[int, ...]
  environment: dict[str, Any]
  command: str
  seconds: float
  metrics: dict[str, Metric]
  figures: dict[str, Figure]
  claims: tuple[Claim, ...]


def to_json(data: Any) -> str:
  """Any of the dataclasses above, or plain data, as JSON text (non-finite numbers as null)."""
  return json.dumps(to_plain(data), indent=2, allow_nan=False) + "\n"


def to_plain(data: Any, digits: int | None = None) -> Any:
  """Plain JSON data; NumPy and JAX scalars become Python numbers, rounded to digits if given."""
  if dataclasses.is_dataclass(data) and not isinstance(data, type):
    return {f.name: to_plain(getattr(data, f.name), digits) for f in dataclasses.fields(data)}
  if isinstance(data, Mapping):
    return {str(key): to_plain(value, digits) for key, value in data.items()}
  if isinstance(data, tuple | list):
    return [to_plain(value, digits) for value in data]
  if hasattr(data, "tolist"):
    return to_plain(data.tolist(), digits)
  if isinstance(data, float):
    if not math.isfinite(data):
      return None
    return data if digits is None else round(data, digits)
  return data


def _fields(cls: type, data: Any, where: str) -> dict[str, Any]:
  """Checks that `data` is an object with exactly the fields of `cls`."""
  if not isinstance(data, dict):
    raise ResultError(f"{where}: expected an object, found {type(data).__name__}")
  names = {field.name for field in dataclasses.fields(cls)}
  for problem, wrong in (("lacks", names - set(data)), ("has the unknown", set(data) - names)):
    if wrong:
      raise ResultError(f"{where} {problem} field {', '.join(sorted(wrong))}")
  return data


def _typed(value: Any, types: type | tuple[type, ...], where: str) -> Any:
  """Checks the type of one value, so that a broken file is found when it is read."""
  if isinstance(value, bool) or not isinstance(value, types):
    raise ResultError(f"{where} has the wrong type {type(value).__name__}: {value!r:.60}")
  return value


_NUMBER = (int, float)
_MAYBE_NUMBER = (int, float, type(None))
_MAYBE_TEXT = (str, type(None))


def _metric(data: Any, where: str) -> Metric:
  data = _fields(Metric, data, where)
  for name in ("mean", "low", "high"):
    _typed(data[name], _MAYBE_NUMBER, f"{where}.{name}")
  _typed(data["n"], int, f"{where}.n")
  _typed(data["unit"], str, f"{where}.unit")
  return Metric(**data)


def _figure(data: Any, where: str) -> Figure:
  data = _fields(Figure, data, where)
  for name in ("title", "caption"):
    _typed(data[name], str, f"{where}.{name}")
  return Figure(**data)


def claim_from_dict(data: Any, where: str = "claim") -> Claim:
  """A `Claim` from plain data, strictly checked.

  Raises:
    ResultError: naming `where` and the field that is wrong.
  """
  data = dict(_fields(Claim, data, where))
  for name in ("number", "kind", "statement", "verdict", "why"):
    _typed(data[name], str, f"{where}.{name}")
  for name in ("published", "measured", "experiment"):
    _typed(data[name], _MAYBE_TEXT, f"{where}.{name}")
  for name, allowed in (("kind", KINDS), ("verdict", VERDICTS)):
    if data[name] not in allowed:
      raise ResultError(f"{where}.{name} is {data[name]!r}, not one of {', '.join(allowed)}")
  if data["interval"] is not None:
    ends = _typed(data["interval"], list, f"{where}.interval")
    if len(ends) != 2:
      raise ResultError(f"{where}.interval has {len(ends)} ends, not 2")
    data["interval"] = tuple(_typed(end, _MAYBE_NUMBER, f"{where}.interval") for end in ends)
  return Claim(**data)


def result_from_dict(data: Any, where: str = RESULT_FILE) -> Result:
  """A `Result` from plain data, strictly checked.

  Raises:
    ResultError: naming `where` and the field that is wrong.
  """
  data = dict(_fields(Result, data, where))
  types = {
    "experiment": str, "profile": str, "command": str, "config": dict, "environment": dict,
    "metrics": dict, "figures": dict, "claims": list, "seeds": list,
  }  # fmt: skip
  for name, expected in types.items():
    _typed(data[name], expected, f"{where}: {name}")
  _typed(data["seconds"], _NUMBER, f"{where}: seconds")
  data["seeds"] = tuple(_typed(seed, int, f"{where}: seeds") for seed in data["seeds"])
  for name, parse in (("metrics", _metric), ("figures", _figure)):
    data[name] = {k: parse(v, f"{where}: {name}[{k!r}]") for k, v in data[name].items()}
  data["claims"] = tuple(
    claim_from_dict(claim, f"{where}: claims[{i}]") for i, claim in enumerate(data["claims"])
  )
  return Result(**data)


def read(path: str | os.PathLike[str]) -> Result:
  """Reads one `result.json`.

  Raises:
    ResultError: one line naming the file and what is wrong with it.
  """
  path = pathlib.Path(path)
  try:
    text = path.read_text(encoding="utf-8")
    data = json.loads(text)
  except FileNotFoundError:
    raise ResultError(f"{path}: no such file; the experiment has not finished") from None
  except (OSError, UnicodeDecodeError) as error:
    raise ResultError(f"{path}: cannot be read: {error}") from None
  except ValueError as error:
    raise ResultError(f"{path}: not JSON: {error}; delete it and run again") from None
  if "\\ud" in text.lower():  # an escape such as \ud800 may stand alone, and no page can hold it
    try:
      json.dumps(data, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
      raise ResultError(f"{path}: holds half a character; delete it and run again") from None
  try:
    return result_from_dict(data, str(path))
  except ResultError as error:
    raise ResultError(f"{error}; delete it and run again") from None


def write_text(path: str | os.PathLike[str], text: str) -> None:
  """`write_bytes` of a text in UTF-8."""
  write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
  """Writes a file in one piece: after a crash there is the old file or the new one, never half."""
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
  try:
    with os.fdopen(descriptor, "wb") as file:
      file.write(data)
      file.flush()
      os.fsync(file.fileno())
    os.chmod(temporary, 0o644)  # mkstemp makes it private; a report is for others to read
    os.replace(temporary, path)
  except BaseException as error:
    pathlib.Path(temporary).unlink(missing_ok=True)
    if isinstance(error, OSError):  # a write that fails does not say of which file
      error.filename = str(path)
    raise


def check(result: Result) -> None:
  """Refuses a result that breaks a rule of the report.

  Raises:
    ResultError: for a trained claim decided by one seed or without an interval, a number judged
      twice, or a claim judged by an experiment that does not own it.
  """
  decided = (REPRODUCED, QUALIFIED, CONTRADICTED)
  seen: set[str] = set()
  for claim in result.claims:
    where = f"{result.experiment}: claim {claim.number}"
    if claim.number in seen:
      raise ResultError(f"{where} is judged twice")
    seen.add(claim.number)
    if claim.experiment != result.experiment:
      raise ResultError(f"{where} is owned by {claim.experiment}, which must judge it")
    if claim.kind == "trained" and claim.verdict in decided:
      if len(set(result.seeds)) < 2 or claim.interval is None:
        raise ResultError(
          f"{where} is {claim.verdict!r} on {len(set(result.seeds))} seed(s) and interval "
          f"{claim.interval}; a trained verdict needs at least 2 seeds and an interval"
        )
