"""Frozen dataclasses as configurations: overrides typed by annotation, dictionaries, differences.

A configuration is a frozen dataclass whose fields are `bool`, `int`, `float`, `str`, `Literal`,
tuples of these, `None` beside any of them, and further frozen dataclasses. The annotation decides
what a field may hold, never the type of its default, so that an optional float whose default is
`None` takes 0.5 and an integer whose default is 64 refuses 64.0.

    config = override(config, {'model.width': 64, 'optimizer.rate': 1})   # from Python
    config = assign(config, ['model.width=64', 'optimizer.rate=1'])       # from a command line

Everything a user can get wrong is a `ConfigError` of one line that names the dotted path.
"""

import ast
import dataclasses
import difflib
import functools
import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

C = TypeVar("C")


class ConfigError(ValueError):
  """A configuration that cannot be: an unknown path, or a value its field may not hold."""


class _MismatchError(ConfigError):
  """A value that is not of the annotated type, and nothing more to say about it."""

  def __init__(self, annotation: Any, value: Any, path: str) -> None:
    super().__init__(f"{path} must be {_describe(annotation)}, not {value!r}")


class _Absent:
  """What `differences` shows for a path that one side does not have."""

  def __repr__(self) -> str:
    return "(absent)"


ABSENT: Final = _Absent()


def override(config: C, values: Mapping[str, Any]) -> C:
  """Returns a copy of `config` with the fields at dotted paths replaced.

  All values go in at once, so that a check across fields in a `__post_init__` sees only the
  result, not what lies between.

  Args:
    config: a frozen dataclass.
    values: dotted path -> value. An int serves for a float; a float never for an int; a single
      value for a tuple becomes a tuple of one; a list serves for a tuple.

  Raises:
    ConfigError: a path that does not exist (the nearest names are shown), a value of the wrong
      type, a number that is not finite, or a combination that the configuration refuses.
  """
  cast = {path: _cast(_annotation(config, path), value, path) for path, value in values.items()}
  return typing.cast(C, _replace(config, cast, ""))


def assign(config: C, assignments: Iterable[str]) -> C:
  """Returns a copy of `config` after assignments as typed on a command line, `'a.b=value'`.

  Differs from `override` in that the annotation also decides how the text is read: `name=5` is
  the text '5' for a `str`, and `names=a,b` is two names for a tuple. The last one to name a path
  wins.
  """
  values = dict(read(config, assignment) for assignment in assignments)
  return typing.cast(C, _replace(config, values, ""))


def read(config: Any, assignment: str) -> tuple[str, Any]:
  """Returns the path of `'a.b=value'` and the value that its field would hold, without setting it.

  Raises:
    ConfigError: no such field, or a value that it may not hold whatever the others do.
  """
  path, text = _split_assignment(assignment)
  return path, _read(_annotation(config, path), text, path)


def parse_assignment(assignment: str) -> tuple[str, Any]:
  """Splits `'a.b=value'` into the path and a Python value, without knowing the field's type.

  The right-hand side is read as a Python literal (`3,4` and `(3,4)` are tuples); `true`, `false`
  and `none` count in any case; all else is the text itself.
  """
  path, text = _split_assignment(assignment)
  return path, _literal(text)


def format_assignment(path: str, value: Any) -> str:
  """Writes `path=value` such that `parse_assignment` gives the value back.

  Args:
    path: dotted path of a field.
    value: a plain value: number, text, boolean, None, or a tuple or list of these.

  Returns:
    The assignment, without quoting for a shell.
  """
  plain = _to_plain(value, tuple)
  bare = isinstance(plain, str) and plain.isprintable() and plain == plain.strip()
  bare = bare and _literal(plain) == plain
  return f"{path}={plain if bare else repr(plain)}"


def to_dict(config: Any) -> dict[str, Any]:
  """Returns the configuration as nested dictionaries and lists that JSON gives back unchanged."""
  return {name: _to_plain(value, list) for name, value in _fields(config).items()}


def from_dict(cls: type[C], data: Mapping[str, Any]) -> C:
  """Builds a configuration from what `to_dict` returned, perhaps before some fields came to be.

  A field that `data` lacks takes its default, which is what it stood for before it had a name.

  Raises:
    ConfigError: unknown fields, all of them named, or a value of the wrong type.
  """
  return typing.cast(C, _build(cls, data, ""))


def up_to_date(cls: type, data: Mapping[str, Any]) -> Mapping[str, Any]:
  """Returns a saved configuration with the fields that came since; as it is if it is no `cls`."""
  try:
    return to_dict(from_dict(cls, data))
  except ConfigError:
    return data


def differences(a: Any, b: Any) -> list[tuple[str, Any, Any]]:
  """Lists where two configurations differ, as (dotted path, value in a, value in b).

  Args:
    a: a configuration, or its dictionary as saved (perhaps by another version of the code).
    b: the same.

  Returns:
    One entry a differing leaf, in the order of `a`, then what only `b` has. A side that lacks the
    path has `ABSENT` there.
  """
  flat_a, flat_b = dict(leaves(a)), dict(leaves(b))
  pairs = [(path, flat_a.get(path, ABSENT), flat_b.get(path, ABSENT)) for path in flat_a | flat_b]
  return [(path, before, after) for path, before, after in pairs if before != after]


def leaves(config: Any, prefix: str = "") -> list[tuple[str, Any]]:
  """Lists (dotted path, plain value) of every leaf of a configuration or its dictionary."""
  items = config if isinstance(config, Mapping) else _fields(config)
  found: list[tuple[str, Any]] = []  # a sweep has thousands of configurations: no generators
  for name, value in items.items():
    if isinstance(value, _SIMPLE):
      found.append((prefix + name, value))
    elif isinstance(value, Mapping) or _is_config(value):
      found += leaves(value, f"{prefix}{name}.")
    else:
      found.append((prefix + name, _to_plain(value, list)))
  return found


def nearest(word: str, words: Iterable[str]) -> str:
  """Returns a hint for a word that is not among the known ones, to append to an error.

  Dotted paths are also compared by their last part, so that `hidden` finds `model.hidden`.

  Args:
    word: what was asked for.
    words: what exists.

  Returns:
    `" (did you mean 'rnnsearch'?)"`, or the whole list if nothing is near.
  """
  known = list(words)
  if not known:
    return " (there is none)"
  by_lower = {name.lower(): name for name in known}
  close = [by_lower[key] for key in difflib.get_close_matches(word.lower(), by_lower, n=3)]
  last = word.lower().rpartition(".")[2]
  ends = [name for name in known if "." in name and name.lower().rpartition(".")[2] == last]
  hits = list(dict.fromkeys(close[:1] + ends + close[1:]))[:3]
  if not hits:
    return f" (known: {', '.join(known)})"
  return f" (did you mean {' or '.join(repr(hit) for hit in hits)}?)"


# Paths.


def _fields(config: Any) -> dict[str, Any]:
  return {name: getattr(config, name) for name in _names(config.__class__)}


@functools.cache
def _names(cls: Any) -> tuple[str, ...]:
  return tuple(field.name for field in dataclasses.fields(cls))


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
  return typing.get_type_hints(cls)


def _is_config(value: Any) -> bool:
  return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _annotation(config: Any, path: str) -> Any:
  """Returns the annotation of the field at a dotted path."""
  here = config
  *parents, last = path.split(".")
  for name in parents:
    here = getattr(here, name, None) if _is_config(here) and name in _fields(here) else None
  if not _is_config(here) or last not in _fields(here):
    raise ConfigError(f"no field {path!r}{nearest(path, dict(leaves(config)))}")
  return _hints(here.__class__)[last]


def _replace(config: Any, values: Mapping[str, Any], prefix: str) -> Any:
  """Applies cast values by dotted path, once for each nested dataclass."""
  own = {path: value for path, value in values.items() if "." not in path}
  below: dict[str, dict[str, Any]] = {}
  for path, value in values.items():
    name, dot, rest = path.partition(".")
    if dot:
      below.setdefault(name, {})[rest] = value
  for name, nested in below.items():
    own[name] = _replace(own.get(name, getattr(config, name)), nested, f"{prefix}{name}.")
  return _construct(functools.partial(dataclasses.replace, config), own, prefix) if own else config


def _construct(make: Any, fields: Mapping[str, Any], prefix: str) -> Any:
  """Calls a dataclass's constructor; what its `__post_init__` refuses is a user's mistake."""
  try:
    return make(**fields)
  except ValueError as error:
    where = f"{prefix[:-1]}: " if prefix else ""
    raise ConfigError(f"{where}{error}") from error


# Values.


_SIMPLE = (str, int, float, type(None))  # most values are, and the rest takes longer to tell


def _to_plain(value: Any, sequence: type) -> Any:
  if isinstance(value, _SIMPLE):
    return value
  if _is_config(value):
    return to_dict(value)
  if isinstance(value, (tuple, list)):
    return sequence(_to_plain(item, sequence) for item in value)
  return value


def _describe(annotation: Any) -> str:
  """Names an annotation the way an error message should."""
  origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
  if origin is typing.Literal:
    return "one of " + ", ".join(repr(argument) for argument in arguments)
  if origin in (typing.Union, types.UnionType):
    return " or ".join(_describe(argument) for argument in arguments)
  if origin is tuple:
    inner = ", ".join("..." if item is Ellipsis else _describe(item) for item in arguments)
    return f"a tuple of ({inner})"
  names = {int: "an int", float: "a float", bool: "true or false", str: "text"}
  if annotation is type(None):
    return "None"
  return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _cast(annotation: Any, value: Any, path: str) -> Any:
  """Returns `value` as the annotation wants it, or raises `ConfigError`."""
  origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
  if origin in (typing.Union, types.UnionType):
    return _cast_union(annotation, value, path)
  if origin is tuple:
    return _cast_tuple(annotation, value, path)
  if dataclasses.is_dataclass(annotation):
    return _cast_group(annotation, value, path)
  if annotation is float:
    return _cast_float(value, path)
  if origin is typing.Literal:
    # By type as well: True == 1 must not pass for Literal[1].
    fits = any(type(value) is type(option) and value == option for option in arguments)
  elif annotation in (int, bool, str, type(None)):
    fits = type(value) is annotation
  else:
    raise TypeError(f"{path} has the annotation {annotation!r}, which attn.configs does not know")
  if not fits:
    raise _MismatchError(annotation, value, path)
  return value


def _cast_float(value: Any, path: str) -> float:
  if isinstance(value, bool) or not isinstance(value, (int, float)):
    raise _MismatchError(float, value, path)
  try:
    number = float(value)
  except OverflowError:
    number = math.inf
  if not math.isfinite(number):
    raise ConfigError(f"{path} must be a finite number, not {number}")
  return number


def _cast_group(cls: Any, value: Any, path: str) -> Any:
  if isinstance(value, Mapping):
    return _build(cls, value, f"{path}.")
  if isinstance(value, cls):
    return value
  names = [f"{path}.{field.name}" for field in dataclasses.fields(cls)]
  raise ConfigError(f"{path} is a group of fields; set one of {', '.join(names)}")


def _cast_union(annotation: Any, value: Any, path: str) -> Any:
  told: list[ConfigError] = []
  for member in typing.get_args(annotation):
    try:
      return _cast(member, value, path)
    except _MismatchError:
      continue
    except ConfigError as error:
      told.append(error)
  raise told[0] if told else _MismatchError(annotation, value, path)


def _cast_tuple(annotation: Any, value: Any, path: str) -> tuple[Any, ...]:
  items = tuple(value) if isinstance(value, (tuple, list)) else (value,)
  inner = typing.get_args(annotation)
  if len(inner) == 2 and inner[1] is Ellipsis:
    inner = (inner[0],) * len(items)
  if len(inner) != len(items):
    raise _MismatchError(annotation, value, path)
  try:
    return tuple(_cast(kind, item, path) for kind, item in zip(inner, items, strict=True))
  except _MismatchError:
    raise _MismatchError(annotation, value, path) from None


def _build(cls: Any, data: Mapping[str, Any], prefix: str) -> Any:
  """Builds a dataclass from a dictionary of its fields; those with defaults may be absent."""
  if not isinstance(data, Mapping):
    raise ConfigError(f"{prefix[:-1] or cls.__name__} must be a dictionary, not {data!r}")
  names = [field.name for field in dataclasses.fields(cls)]
  unknown = [f"{prefix + name!r}{nearest(name, names)}" for name in data if name not in names]
  missing = [repr(prefix + name) for name in _required(cls) if name not in data]
  faults = [f"no field {', '.join(unknown)}"] if unknown else []
  faults += [f"missing {', '.join(missing)}"] if missing else []
  if faults:
    raise ConfigError("; ".join(faults))
  hints = _hints(cls)
  fields = {n: _cast(hints[n], data[n], prefix + n) for n in names if n in data}
  return _construct(cls, fields, prefix)


def _required(cls: Any) -> list[str]:
  absent = dataclasses.MISSING
  fields = dataclasses.fields(cls)
  return [f.name for f in fields if f.default is absent and f.default_factory is absent]


# Text.


def _split_assignment(assignment: str) -> tuple[str, str]:
  path, equals, text = assignment.partition("=")
  if not equals or not path.strip():
    raise ConfigError(f"{assignment!r} is no assignment; write path=value, e.g. model.width=64")
  return path.strip(), text.strip()


def _literal(text: str) -> Any:
  named = {"true": True, "false": False, "none": None}
  if text.lower() in named:
    return named[text.lower()]
  try:
    value = ast.literal_eval(text)
  except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
    return text
  plain = (bool, int, float, str, type(None), tuple, list)
  return value if isinstance(value, plain) else text


def _readings(annotation: Any, text: str) -> Iterator[Any]:
  """Yields the ways to read a text, the most literal first."""
  members = typing.get_args(annotation)
  is_tuple = tuple in (typing.get_origin(annotation), *map(typing.get_origin, members))
  value = _literal(text)
  if is_tuple and isinstance(value, str) and "," in text:
    value = tuple(_literal(part) for part in _parts(text))
  yield value
  if is_tuple and "," in text:
    yield tuple(_parts(text))
  yield text


def _parts(text: str) -> list[str]:
  inner = text[1:-1] if (text[:1] + text[-1:]) in ("()", "[]") else text
  parts = [part.strip() for part in inner.split(",")]
  return parts[:-1] if parts[-1] == "" else parts


def _read(annotation: Any, text: str, path: str) -> Any:
  """Reads a text as the annotation wants it; the error is that of the most literal reading."""
  errors = []
  for value in _readings(annotation, text):
    try:
      return _cast(annotation, value, path)
    except ConfigError as error:
      errors.append(error)
  raise errors[0]
