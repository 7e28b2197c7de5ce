"""Translates lines of text with a trained model: one line in, one line out.

Examples:
  echo attention | python -m launch.translate --workdir=runs/rnnsearch_laptop-g2p
  python -m launch.translate --workdir=RUN --input=words.txt --output=phonemes.txt

Only a newline ends a line, with a carriage return right before it or without, and an empty line
stays empty. Text is UTF-8. Lines are answered as they come, so the command works between pipes.
Warnings go to standard error. An output file appears when it is whole.
"""

import contextlib
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO

from absl import flags as absl_flags

from launch import flags

FLAGS = flags.define("workdir", "input", "output")

# From lines and their numbers in the input to translations.
Translator = Callable[[list[str], list[int]], list[str]]

_LINES = 1024  # most lines translated at once
_BYTES = 1 << 16


def main(values: absl_flags.FlagValues) -> int:
  """Translates what the flags name."""
  if not values.workdir:
    raise flags.UserError("--workdir=RUN is missing: the folder of a trained model")
  given, wanted = values.input or "-", values.output or "-"
  if wanted != "-" and given != "-" and os.path.realpath(given) == os.path.realpath(wanted):
    raise flags.UserError(f"--input and --output are the same file, {given}")
  with _reading(given) as source, _writing(wanted) as sink:
    translate(source, sink, translator(pathlib.Path(values.workdir)))
  return 0


def translator(workdir: pathlib.Path) -> Translator:
  """Returns the function from lines to translations that the model in `workdir` computes."""
  untrained = flags.UserError(f"{workdir} holds no trained model; launch.train makes one")
  if not (workdir / "config.json").exists():
    raise untrained
  from attn import workdirs

  # An experiment's folder has a configuration too: another one.
  if not {"model", "data", "steps"} <= set(workdirs.saved_config(workdir)):
    raise untrained
  from attn import training
  from attn.data.vocabulary import UNK
  from attn.decoding import translation

  try:
    trained = training.load(workdir)
  except FileNotFoundError as error:
    raise flags.UserError(str(error)) from None
  model, search = trained.config.model, trained.config.search
  edges = trained.config.data.bucket_edges

  def translated(lines: list[str], numbers: list[int]) -> list[str]:
    sources = [trained.source.encode(line) for line in lines]
    unknown = sum(ids.count(UNK) for ids in sources)
    if unknown:
      _warn(f"{unknown} symbols of the input are none that the model was trained on")
    for number, ids in zip(numbers, sources, strict=True):
      if len(ids) >= edges[-1]:
        _warn(f"line {number} has {len(ids)} symbols, more than any the model was trained on")
    found = translation.translate(
      model,
      trained.params,
      sources,
      search,
      symbols=len(trained.target),
      edges=edges,
    )
    if cut := sum(not one.finished for one in found):
      _warn(f"cut at the longest length allowed: {cut} of the translations")
    return [trained.target.decode(one.tokens) for one in found]

  return translated


def translate(source: BinaryIO, sink: BinaryIO, answers: Translator) -> None:
  """Writes the translation of each line of `source` to `sink`, in order and as lines come in."""
  done = 0
  for lines in chunks(source):
    texts = [_decoded(line.removesuffix(b"\r"), done + i) for i, line in enumerate(lines, 1)]
    asked = {done + i: text for i, text in enumerate(texts, 1) if text}
    answered = answers(list(asked.values()), list(asked)) if asked else []
    if len(answered) != len(asked) or any("\n" in answer for answer in answered):
      raise RuntimeError(f"{len(asked)} lines were not answered by as many lines")
    rest = iter(answered)
    out = "".join((next(rest) if text else "") + "\n" for text in texts)
    sink.write(out.encode("utf-8"))
    sink.flush()
    done += len(lines)


def chunks(source: BinaryIO) -> Iterator[list[bytes]]:
  """Yields lists of whole lines, without their newlines, as soon as they can be had.

  A last line without a newline counts; nothing after the last newline is no line.
  """
  partial: list[bytes] = []  # pieces of the line that has not ended
  read = getattr(source, "read1", source.read)  # read1 returns what there is, and does not wait
  while block := read(_BYTES):
    *ended, tail = block.split(b"\n")
    if ended:
      ended[0] = b"".join([*partial, ended[0]])
      partial = []
    if tail:
      partial.append(tail)
    for start in range(0, len(ended), _LINES):
      yield ended[start : start + _LINES]
  if partial:
    yield [b"".join(partial)]


def _decoded(line: bytes, number: int) -> str:
  try:
    return line.decode("utf-8")
  except UnicodeDecodeError:
    _warn(f"line {number} is not UTF-8; what cannot be read is replaced")
    return line.decode("utf-8", errors="replace")


def _warn(text: str) -> None:
  print(f"launch.translate: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _reading(name: str) -> Iterator[BinaryIO]:
  if name == "-":
    yield sys.stdin.buffer
    return
  try:
    file = open(name, "rb")  # noqa: SIM115  # closed below; opening alone is the user's affair
  except OSError as error:
    raise flags.UserError(f"cannot read --input={name}: {error.strerror}") from error
  with file:
    yield file


@contextlib.contextmanager
def _writing(name: str) -> Iterator[BinaryIO]:
  """Yields a file that takes the name `name` when all is written; a device or pipe as it is."""
  if name == "-":
    yield sys.stdout.buffer
    return
  path = pathlib.Path(os.path.realpath(name))
  whole = path.is_file() or not path.exists()
  target = path.with_name(f".{path.name}.{os.getpid()}.part") if whole else path
  try:
    file = target.open("wb")
  except OSError as error:
    raise flags.UserError(f"cannot write --output={name}: {error.strerror}") from error
  try:
    with file:
      yield file
    if whole:
      os.replace(target, path)
  finally:
    if whole:
      target.unlink(missing_ok=True)


if __name__ == "__main__":
  flags.run("launch.translate", main, FLAGS, __doc__, resumes=False)
