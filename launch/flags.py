"""What every command shares: its flags, its help, and how it ends.

A command is a module with a docstring that holds an example, its own `absl.flags.FlagValues` and a
`main(values) -> exit code`. It ends in one of these ways: code 0; code 1 and one line on stderr for
whatever a user or their machine got wrong; 130 or 143 and one line for Ctrl-C or SIGTERM; a
traceback for a fault in the program, and for nothing else.

Nothing here, and nothing at the top of a command, imports jax, numpy or `attn`: a command must show
its help, or say what is wrong with its flags, at once.
"""

import contextlib
import difflib
import errno
import io
import os
import pathlib
import re
import signal
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, BinaryIO, NoReturn, TextIO

from absl import flags

from launch import memory, parent

INTERRUPTED = 130  # 128 + SIGINT, what a shell reports
_EXAMPLE_WIDTH = 100
_SWITCHED = ("true", "false", "t", "f", "1", "0")  # what absl takes as the value of a switch

# Failures of the machine, not of the program; worth one line wherever they come up.
_MACHINE = (
  errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR,
  errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EIO, errno.ESTALE,
  errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE,
)  # fmt: skip

# Exceptions of the library whose message is the one line a user needs. Named, not imported: one
# that was raised has its module loaded already.
_USER_ERRORS = (
  ("attn.configs", "ConfigError"),
  ("attn.data.errors", "DataError"),
  ("attn.report.results", "ResultError"),
  ("attn.training.loop", "TrainingError"),
)


class UserError(Exception):
  """Something the user has to change; the message is the one line they get to see."""


class Terminated(KeyboardInterrupt):
  """The process was told to end; code that tidies up after Ctrl-C tidies up after it as well."""

  def __init__(self, number: int) -> None:
    """Takes the signal's number."""
    super().__init__(number)
    self.number = number


# Flags.


def define(*names: str) -> flags.FlagValues:
  """Returns a command's flags: the shared ones asked for, and `--help`.

  They are not in absl's global registry, which grain and tensorflow_datasets fill with flags of
  their own and where two commands could not define the same name.
  """
  values = flags.FlagValues()
  values.set_gnu_getopt(True)
  flags.DEFINE_bool("help", False, "show this text", short_name="h", flag_values=values)
  for name in names:
    _SHARED[name](values)
  return values


def _text(name: str, meaning: str) -> Callable[[flags.FlagValues], Any]:
  return lambda values: flags.DEFINE_string(name, None, meaning, flag_values=values)


def _switch(name: str, meaning: str) -> Callable[[flags.FlagValues], Any]:
  return lambda values: flags.DEFINE_bool(name, False, meaning, flag_values=values)


def _repeated(name: str, meaning: str) -> Callable[[flags.FlagValues], Any]:
  return lambda values: flags.DEFINE_multi_string(name, [], meaning, flag_values=values)


def _count(name: str, least: int, meaning: str) -> Callable[[flags.FlagValues], Any]:
  return lambda values: flags.DEFINE_integer(
    name, None, meaning, lower_bound=least, flag_values=values
  )


_SHARED: dict[str, Callable[[flags.FlagValues], Any]] = {
  "experiment": _text("experiment", "name of a module of experiments/"),
  "preset": _text("preset", "name of a recipe of attn.presets"),
  "data": _text("data", "name of a data set"),
  "set": _repeated("set", "dotted.path=value: a field of the configuration (repeatable)"),
  "config": _text("config", "FILE.json: a saved configuration to start from"),
  "workdir": _text("workdir", "folder of the run"),
  "source": _text("source", "FILE of source lines in UTF-8, perhaps of gzip or xz"),
  "target": _text("target", "FILE of target lines, one for each source line"),
  "lengths": lambda values: flags.DEFINE_list(
    "lengths", ["10", "20", "30", "40", "50"], "longest source of each group", flag_values=values
  ),
  "seed": _count("seed", 0, "the field `seed` of the configuration"),
  "draw": _repeated("draw", "dotted.path=KIND:LOW,HIGH: what to draw a field from (repeatable)"),
  "draw_seed": _count("draw_seed", 0, "another one gives other draws (default: 0)"),
  "profile": _text("profile", "smoke, default or full"),
  "smoke": _switch("smoke", "short for --profile=smoke"),
  "list": _switch("list", "show what there is, and end"),
  "tensorboard": _switch("tensorboard", "write metrics of training for TensorBoard as well"),
  "wandb": _switch("wandb", "write metrics of training for Weights & Biases as well"),
  "input": _text(
    "input", "FILE of lines in UTF-8, perhaps of gzip or xz; - is standard input (default: -)"
  ),
  "output": _text("output", "FILE; - is standard output (default: -)"),
  "nbest": _count("nbest", 1, "hypotheses to write for each line, with their scores"),
  "replace_unknown": lambda values: flags.DEFINE_flag(
    flags.Flag(
      flags.ArgumentParser(),
      flags.ArgumentSerializer(),
      "replace_unknown",
      None,
      "or --replace_unknown=DICT.tsv: write source words for unknown ones",
      boolean=True,  # needs no value
    ),
    values,
  ),
  "average": lambda values: flags.DEFINE_integer(
    "average",
    1,
    "mean of the parameters of so many checkpoints: the newest, or the best where they are kept",
    lower_bound=1,
    flag_values=values,
  ),
  "attention": _text("attention", "FILE.npz or FILE.jsonl: write the weights of each hypothesis"),
}


def profile(values: flags.FlagValues) -> str:
  """Returns the profile asked for by `--profile` or `--smoke`."""
  if values.smoke and values.profile not in (None, "smoke"):
    raise UserError(f"--smoke is --profile=smoke; leave out one of it and {values.profile!r}")
  return "smoke" if values.smoke else values.profile or "default"


def require(values: flags.FlagValues, **kinds: str) -> None:
  """Raises UserError for the first flag that has no value."""
  for name, kind in kinds.items():
    if not values[name].value:
      raise UserError(f"--{name}={kind} is missing")


_Named = dict[str, str | Sequence[str] | None]


def refuse_the_same(read: _Named, written: _Named) -> None:
  """Raises UserError where a file to write is one to read, or another one to write.

  Args:
    read: by flag, the file to read, several, or none.
    written: by flag, the file to write, if any.
  """
  known = [(flag, name) for flag, value in read.items() for name in _files(value)]
  for flag, value in written.items():
    for name in _files(value):
      for other, file in known:
        if os.path.realpath(file) == os.path.realpath(name):
          raise UserError(f"--{other} and --{flag} are the same file, {file}")
      known.append((flag, name))


def _files(value: str | Sequence[str] | None) -> list[str]:
  """The files that a flag names; standard input and output are none."""
  names = [value] if isinstance(value, str) else value or []
  return [name for name in names if name != "-"]


def refuse_without(values: flags.FlagValues, needed: str, *names: str) -> None:
  """Raises UserError for a flag that says nothing unless another one is given."""
  for name in names:
    if values[name].present and not values[needed].value:
      raise UserError(f"--{name} belongs to --{needed}, which is missing")


def edges(values: flags.FlagValues) -> list[int]:
  """Returns the numbers of `--lengths`."""
  try:
    numbers = [int(word) for word in values.lengths]
  except ValueError:
    numbers = []
  if not numbers or any(a >= b for a, b in zip([-1, *numbers], numbers, strict=False)):
    told = ",".join(values.lengths)
    raise UserError(f"--lengths={told}: expected rising whole numbers, such as 10,20")
  return numbers


def nearest(word: str, known: Iterable[str]) -> str:
  """Returns a hint at the known words near `word`.

  As `attn.configs.nearest`: a typing mistake should not wait for the library.
  """
  known = list(known)
  near = difflib.get_close_matches(word, known, n=3)
  if near:
    return f" (did you mean {' or '.join(repr(name) for name in near)}?)"
  return f" (there is {', '.join(known) or 'none'})"


# Parsing.


def parse(values: flags.FlagValues, arguments: list[str]) -> None:
  """Parses a command line strictly.

  Raises:
    UserError: unknown flags, wrong values, and whatever is left over, all of it named.
  """
  try:
    left = values(["", *arguments], known_only=True)[1:]
  except (flags.Error, ValueError) as error:
    raise UserError(" ".join(str(error).split())) from None
  # What grain and tensorflow_datasets read from absl's own registry keeps its defaults.
  flags.FLAGS.mark_as_parsed()
  faults = list(_leftovers(values, arguments, left))
  if faults:
    raise UserError("; ".join(faults) + "; --help lists the flags")


def _leftovers(values: flags.FlagValues, arguments: list[str], left: list[str]) -> Iterator[str]:
  """Yields a complaint for each unknown flag and each argument that belongs to none."""
  at = -1
  for word in left:
    name, _, value = word.lstrip("-").partition("=")
    places = (i for i in range(at + 1, len(arguments)) if arguments[i] == word)
    # The same word may also be a value that a flag has taken.
    at = next((i for i in places if not i or not _takes(values, arguments[i - 1])), len(arguments))
    before = arguments[at - 1] if 0 < at < len(arguments) else ""
    if word.startswith("-") and name:
      if "." in name:
        following = arguments[at + 1 : at + 2]
        value = value or next((v for v in following if not v.startswith("-")), "VALUE")
        yield f"unknown flag --{name} (a field is set by --set={name}={value})"
      else:
        off = [f"no{one}" for one in values if values[one].boolean and name.startswith("no")]
        yield f"unknown flag --{name}" + nearest(name, [*values, *off])
    elif _takes(values, before) is False:
      known = before.lstrip("-") in values
      plain = known and isinstance(values[before.lstrip("-")], flags.BooleanFlag)
      switched = known and (word.lower() in _SWITCHED or not plain)
      advice = f"write {before}={word}" if switched else f"remove it, {before} takes no value"
      yield f"unexpected argument {word!r} after {before}: {advice}"
    else:
      yield f"unexpected argument {word!r} (a value follows its flag as --flag=value)"


def _takes(values: flags.FlagValues, word: str) -> bool | None:
  """Whether what follows an argument is its value; None where it is no flag, or holds its value."""
  name = word.lstrip("-")
  if not word.startswith("-"):
    return None
  if name in values:
    return not values[name].boolean
  return False if name.startswith("no") and _takes(values, f"-{name[2:]}") is False else None


def command_line(command: str) -> list[str]:
  """Returns the argument vector that this process was given, for any Python."""
  return ["python", "-m", command, *sys.argv[1:]]


def help_text(doc: str, values: flags.FlagValues) -> str:
  """Returns a command's docstring and its flags."""
  lines = [doc.strip(), "", "Flags:"]
  for name in sorted(values):
    flag = values[name]
    if name != flag.name:
      continue  # the short name of one that is listed
    usage = f"--{name}" if flag.boolean else f"--{name}={name.upper()}"
    start = f"  {usage:<26}"
    meaning = flag.help.partition(";\n")[0]  # absl explains at length what repeating a flag does
    body = textwrap.fill(meaning, _EXAMPLE_WIDTH - 28, subsequent_indent=" " * 28)
    lines.append(f"{start}{body}" if len(start) == 28 else f"{start}\n{' ' * 28}{body}")
  return "\n".join(lines)


# Files.


class _Named(io.BufferedWriter):
  """A file to write, whose failures say which one it is.

  Below the buffer no Python runs: an interruption there would have it write again what it wrote.
  """

  def __init__(self, file: pathlib.Path | int, told: str) -> None:
    """Opens a path, or takes a descriptor that others close."""
    super().__init__(io.FileIO(file, "wb", closefd=not isinstance(file, int)))
    self._told = told

  def write(self, data: Any, /) -> int:
    with self._telling():
      return super().write(data)

  def seek(self, offset: int, whence: int = 0, /) -> int:
    with self._telling():
      return super().seek(offset, whence)

  def flush(self) -> None:
    with self._telling():
      super().flush()

  @contextlib.contextmanager
  def _telling(self) -> Iterator[None]:
    try:
      yield
    except OSError as error:
      error.filename = self._told
      raise


@contextlib.contextmanager
def writing(flag: str, name: str | None) -> Iterator[BinaryIO]:
  """Yields a file that takes the name `name` when all is written; a device or pipe as it is.

  Args:
    flag: what named it.
    name: its path; - and None are standard output.
  """
  if name is None or name == "-":
    if sys.stdout is None:
      raise UserError(f"standard output is closed: give --{flag}=FILE")
    yield sys.stdout.buffer
    return
  path = pathlib.Path(os.path.realpath(name))
  whole = path.is_file() or not path.exists()
  target = path.with_name(f".{path.name}.{os.getpid()}.part") if whole else path
  try:
    file = _Named(target, name)
  except OSError as error:
    raise UserError(f"cannot write --{flag}={name}: {error.strerror}") from error
  try:
    with file:
      yield file
    if whole:
      os.replace(target, path)
  finally:
    if whole:
      target.unlink(missing_ok=True)


def beside(output: str | None) -> TextIO:
  """Returns where to tell about an output: standard error where standard output has its lines."""
  return sys.stderr if output in (None, "-") else sys.stdout


# Ending.


def explain(error: BaseException) -> str | None:
  """Returns the one line for a mistake of the user or a failure of the machine.

  None means that the program is at fault and its traceback is wanted.
  """
  if isinstance(error, UserError):
    return str(error)
  for module, name in _USER_ERRORS:
    kind = getattr(sys.modules.get(module), name, None)
    if kind is not None and isinstance(error, kind):
      return str(error)
  for link in _chain(error):
    # Orbax and tensorstore put the system's words into errors of other types.
    if getattr(link, "errno", None) == errno.ENOSPC or "No space left on device" in str(link):
      found = re.search(r"/[^\s'\":\]]+", str(link))
      where = getattr(link, "filename", None) or (found and found.group())
      place = f" ({where})" if where else ""
      return f"no space left on the device{place}: free some, then give the same command again"
    if isinstance(link, MemoryError) or "RESOURCE_EXHAUSTED" in str(link):  # the latter is XLA's
      return "not enough memory: make batches, beams or the longest length smaller"
    if isinstance(link, OSError) and link.errno in _MACHINE:
      place = f"{link.filename}: " if link.filename is not None else ""
      return f"{place}{os.strerror(link.errno)}"
  return None


def _chain(error: BaseException) -> Iterator[BaseException]:
  """Yields an error and what it came from."""
  seen: list[BaseException] = []
  link: BaseException | None = error
  while link is not None and link not in seen:
    seen.append(link)
    yield link
    link = link.__cause__ or link.__context__


def run(
  command: str,
  main: Callable[[flags.FlagValues], int],
  values: flags.FlagValues,
  doc: str | None,
  *,
  resumes: bool = True,
) -> NoReturn:
  """Runs a command and ends the process.

  Args:
    command: its name, which starts every message.
    main: its work; takes the parsed flags, returns the exit code.
    values: its flags.
    doc: its help: the module's docstring.
    resumes: whether the same command goes on after an interruption.
  """
  # Some initialisers take seconds at random while OpenBLAS's threads fight over busy cores. It
  # reads this once, when numpy is first imported.
  os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
  if isinstance(sys.stdout, io.TextIOWrapper):
    sys.stdout = io.TextIOWrapper(
      _Named(sys.stdout.fileno(), "standard output"),
      encoding=sys.stdout.encoding,
      errors="backslashreplace",  # a name of a file may be in no encoding at all
      line_buffering=sys.stdout.line_buffering or sys.stdout.write_through,
    )
  if sys.stderr is None:  # closed: what is told would go to standard output
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
  for name in ("SIGTERM", "SIGHUP"):
    number = getattr(signal, name, None)
    if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
      signal.signal(number, _terminate)
  code = _run(command, main, values, doc or "", " The same command resumes." if resumes else "")
  try:
    _flush()
  except OSError:
    # Nobody reads it, or there is no room. Python would complain again when it flushes.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
  sys.exit(code)


def _flush() -> None:
  if sys.stdout is not None:  # it may be closed
    sys.stdout.flush()


def _terminate(number: int, _: FrameType | None) -> None:
  if number == getattr(signal, "SIGHUP", None):
    # A terminal that goes says so twice, by its shell and by the system: that is no second order.
    signal.signal(number, signal.SIG_IGN)
  raise Terminated(number)


def _run(
  command: str,
  main: Callable[[flags.FlagValues], int],
  values: flags.FlagValues,
  doc: str,
  hint: str,
) -> int:
  try:
    helped = any(word in ("--help", "-h", "-help", "--helpfull") for word in sys.argv[1:])
    if not helped:
      parse(values, sys.argv[1:])
    if helped or values.help:  # --help=true
      print(help_text(doc, values))
      code = 0
    else:
      memory.restart_in_huge_pages()
      parent.end_with_it()
      code = main(values)
    _flush()
    return code
  except Terminated as error:
    _say(command, f"ended by {signal.Signals(error.number).name}.{hint}")
    return 128 + error.number
  except KeyboardInterrupt:
    _say(command, f"interrupted.{hint}")
    return INTERRUPTED
  except BrokenPipeError:  # whoever read the output has seen enough
    return 128 + getattr(signal, "SIGPIPE", 13)
  except Exception as error:
    tell(command, error)
    return 1


def tell(command: str, error: Exception) -> None:
  """Says what ended a command: on one line, or by a traceback where the program is at fault."""
  line = explain(error)
  if line is None:
    traceback.print_exception(error)
  else:
    _say(command, line)


def _say(command: str, line: str) -> None:
  print(f"{command}: {' '.join(line.split())}", file=sys.stderr, flush=True)
