"""Translates lines of text with a trained model: one line in, one line out.

Examples:
  echo attention | python -m launch.translate --workdir=runs/rnnsearch_laptop-g2p
  python -m launch.translate --workdir=RUN --input=words.txt --output=phonemes.txt
  python -m launch.translate --workdir=RUN --set=search.beam=12 --nbest=12 --attention=weights.npz
  python -m launch.translate --workdir=RUN,ANOTHER,A_THIRD

Only a newline ends a line, with a carriage return right before it or without, and an empty line
stays empty. Text is UTF-8. Lines are answered as they come, so the command works between pipes.
Warnings go to standard error. An output file appears when it is whole.

Several folders are models that translate together; their vocabularies must be the same, and the
first one's settings hold. --set changes how it is searched: search.beam, search.alpha and so on.

With --nbest=N each line becomes up to N lines, as Moses writes them, best first and in the order
of the input: number of the line from 0, text, score.

  0 ||| AH0 T EH1 N SH AH0 N ||| -0.021358

--attention writes, for each hypothesis, `source` and `target` (their symbols, </s> where they end;
a target cut at its limit has none), `weights` (a row for each symbol of `target`, a column for each
of `source`), `score` and, of a model with windows, `positions` (the centre of each row's window,
counted from 0). FILE.jsonl has an object for each, with `line` and `rank` from 0; FILE.npz has the
arrays LINE.RANK.NAME, such as 0.0.weights. Lines without or with thousands of symbols have none.
"""

import contextlib
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from absl import flags as absl_flags

from launch import attention_files, flags

if TYPE_CHECKING:
  from attn import training
  from attn.decoding.translation import Translation

FLAGS = flags.define("workdir", "input", "output", "set", "nbest", "attention")

# From lines and their numbers in the input, from 1, to the lines to write for each.
Translator = Callable[[list[str], list[int]], list[list[str]]]

_LINES = 1024  # most lines translated at once
_BYTES = 1 << 16
_END = "</s>"


def main(values: absl_flags.FlagValues) -> int:
  """Translates what the flags name."""
  if not values.workdir:
    raise flags.UserError("--workdir=RUN is missing: the folder of a trained model")
  files = {"input": values.input or "-", "output": values.output or "-"}
  if values.attention:
    files["attention"] = values.attention
    if not values.attention.endswith(attention_files.SUFFIXES):
      known = " or ".join(attention_files.SUFFIXES)
      raise flags.UserError(f"--attention={values.attention} must end in {known}")
  _refuse_the_same(files)
  with contextlib.ExitStack() as stack:
    source = stack.enter_context(_reading(files["input"]))
    sink = stack.enter_context(_writing("output", files["output"]))
    answers = translator(
      [pathlib.Path(folder) for folder in values.workdir.split(",")],
      assignments=values.set,
      nbest=values.nbest,
      attention=_attention_writer(values.attention, stack),
    )
    translate(source, sink, answers, empty=lambda number: _answer(number, "", 0.0, values.nbest))
  return 0


def _refuse_the_same(files: dict[str, str]) -> None:
  names = {flag: os.path.realpath(name) for flag, name in files.items() if name != "-"}
  for flag, name in names.items():
    same = [f"--{other}" for other, path in names.items() if path == name]
    if len(same) > 1:
      raise flags.UserError(f"{' and '.join(same)} are the same file, {files[flag]}")


def _attention_writer(
  name: str | None, stack: contextlib.ExitStack
) -> attention_files.Writer | None:
  if name is None:
    return None
  file = stack.enter_context(_writing("attention", name))
  return stack.enter_context(attention_files.writer(name, file))


def translator(
  workdirs: Sequence[pathlib.Path],
  *,
  assignments: Sequence[str] = (),
  nbest: int | None = None,
  attention: attention_files.Writer | None = None,
) -> Translator:
  """Returns the function from lines to translations that the models in `workdirs` compute."""
  models = [_trained(workdir) for workdir in workdirs]
  from attn import configs
  from attn.data.vocabulary import UNK
  from attn.decoding import translation

  first = models[0]
  for workdir, model in zip(workdirs, models, strict=True):
    for side in ("source", "target"):
      if getattr(model, side) != getattr(first, side):
        raise flags.UserError(
          f"{workdir} has another {side} vocabulary than {workdirs[0]}: models that translate"
          " together need the same"
        )
  if other := [text for text in assignments if not text.strip().startswith("search.")]:
    raise flags.UserError(
      f"--set={other[0]} is not about the search; a trained model takes search.* alone"
    )
  search = configs.assign(first.config, assignments).search
  edges = first.config.data.bucket_edges

  def decode(sources: list[list[int]]) -> "list[Translation]":
    return translation.translate(
      tuple(model.config.model for model in models),
      tuple(model.params for model in models),
      sources,
      search,
      symbols=len(first.target),
      edges=edges,
      n_best=nbest or 1,
      weights=attention is not None,
    )

  if attention and all(model.config.model.score == "none" for model in models):
    raise flags.UserError(f"--attention: {workdirs[0]} is a model without attention")
  decode([])  # What cannot be searched is told before a line is read.

  def translated(lines: list[str], numbers: list[int]) -> list[list[str]]:
    sources = [first.source.encode(line) for line in lines]
    unknown = sum(ids.count(UNK) for ids in sources)
    if unknown:
      _warn(f"{unknown} symbols of the input are none that the model was trained on")
    for number, ids in zip(numbers, sources, strict=True):
      if len(ids) >= edges[-1]:
        _warn(f"line {number} has {len(ids)} symbols, more than any the model was trained on")
    found = decode(sources)
    if cut := sum(not one.finished for one in found):
      _warn(f"cut at the longest length allowed: {cut} of the translations")
    answers = []
    for line, number, best in zip(lines, numbers, found, strict=True):
      hypotheses = [best, *best.others]
      answers.append(
        [_answer(number, first.target.decode(one.tokens), one.score, nbest) for one in hypotheses]
      )
      if attention and best.weights is None:
        _warn(f"line {number} is too long for its attention to be kept")
      elif attention:
        source = [*first.source.split(line), _END]
        for rank, one in enumerate(hypotheses):
          attention(_entry(number, rank, source, first.target.spell(one.tokens), one))
    return answers

  return translated


def _trained(workdir: pathlib.Path) -> "training.Trained":
  untrained = flags.UserError(f"{workdir} holds no trained model; launch.train makes one")
  if not (workdir / "config.json").exists():
    raise untrained
  from attn import workdirs

  # An experiment's folder has a configuration too: another one.
  if not {"model", "data", "steps"} <= set(workdirs.saved_config(workdir)):
    raise untrained
  from attn import training

  try:
    return training.load(workdir)
  except FileNotFoundError as error:
    raise flags.UserError(str(error)) from None


def _answer(number: int, text: str, score: float, nbest: int | None) -> str:
  """What is written for a hypothesis of the line of this number, counted from 1."""
  return text if nbest is None else f"{number - 1} ||| {text} ||| {score:.6f}"


def _entry(
  number: int, rank: int, source: list[str], target: list[str], one: "Translation"
) -> dict[str, Any]:
  entry = {
    "line": number - 1,
    "rank": rank,
    "score": one.score,
    "source": source,
    "target": [*target, _END] if one.finished else target,
    "weights": one.weights,
  }
  return entry if one.positions is None else {**entry, "positions": one.positions}


def translate(
  source: BinaryIO,
  sink: BinaryIO,
  answers: Translator,
  empty: Callable[[int], str] = lambda number: "",
) -> None:
  """Writes what answers each line of `source` to `sink`, in order and as lines come in.

  Args:
    source: lines.
    sink: where answers go.
    answers: from lines that are not empty to the lines written for each.
    empty: the line written for an empty one of this number, counted from 1.
  """
  done = 0
  for lines in chunks(source):
    texts = [_decoded(line.removesuffix(b"\r"), done + i) for i, line in enumerate(lines, 1)]
    asked = {done + i: text for i, text in enumerate(texts, 1) if text}
    answered = answers(list(asked.values()), list(asked)) if asked else []
    if len(answered) != len(asked) or any("\n" in line for own in answered for line in own):
      raise RuntimeError(f"{len(asked)} lines were not answered by as many lines")
    rest = iter(answered)
    out = [next(rest) if text else [empty(done + i)] for i, text in enumerate(texts, 1)]
    sink.write("".join(f"{line}\n" for own in out for line in own).encode("utf-8"))
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
def _writing(flag: str, name: str) -> Iterator[BinaryIO]:
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
    raise flags.UserError(f"cannot write --{flag}={name}: {error.strerror}") from error
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
