"""Translates lines of text with a trained model: one line in, one line out.

Examples:
  echo attention | python -m launch.translate --workdir=runs/rnnsearch_laptop-g2p
  python -m launch.translate --workdir=RUN --input=words.txt --output=phonemes.txt
  python -m launch.translate --workdir=RUN --set=search.beam=12 --nbest=12 --attention=weights.npz
  python -m launch.translate --workdir=RUN,ANOTHER,A_THIRD
  python -m launch.translate --workdir=RUN --input=words.txt --replace_unknown=dictionary.tsv

Only a newline ends a line, with a carriage return right before it or without, and a line that is
empty, or holds nothing but space, comes out empty. Text is UTF-8; a file of gzip or xz is unpacked.
Lines are answered as they come, so the command works between pipes. Warnings go to standard error.
An output file appears when it is whole.

Several folders are models that translate together; their vocabularies must be the same, and the
first one's settings hold. --set changes how it is searched: search.beam, search.alpha and so on.
--average=3 takes of each run the mean of the last three checkpoints' parameters, or of the best.

--replace_unknown lets the model say <unk> where it has no word, and writes for it the source word
of the largest weight: as the dictionary has it, a TSV of source and target words, else as it is.

With --nbest=N each line becomes up to N lines, as Moses writes them, best first and in the order
of the input: number of the line from 0, text, score.

  0 ||| AH T EH N SH AH N ||| -0.021358

--attention writes, for each hypothesis, `source` and `target` (their symbols, </s> where they end;
a target cut at its limit has none), `weights` (a row for each symbol of `target`, a column for each
of `source`), `score` and, of a model with windows, `positions` (the centre of each row's window,
counted from 0). FILE.jsonl has an object for each, with `line` and `rank` from 0; FILE.npz has the
arrays LINE.RANK.NAME, such as 0.0.weights. Lines without or with thousands of symbols have none.
"""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from absl import flags as absl_flags

from launch import attention_files, flags, resolve

if TYPE_CHECKING:
  from attn.decoding.translation import Translation
  from attn.training import Trained

FLAGS = flags.define(
  "workdir", "input", "output", "set", "nbest", "attention", "replace_unknown", "average"
)

# From lines and their numbers in the input, from 1, to the lines to write for each.
Translator = Callable[[list[str], list[int]], list[list[str]]]

_LINES = 1024  # most lines translated at once
_BYTES = 1 << 16
_SWITCHES = ("true", "false")  # what a flag is that is given without a value, or as --no...
_END = "</s>"


def main(values: absl_flags.FlagValues) -> int:
  """Translates what the flags name."""
  flags.require(values, workdir="RUN")
  if values.attention and not values.attention.endswith(attention_files.SUFFIXES):
    known = " or ".join(attention_files.SUFFIXES)
    raise flags.UserError(f"--attention={values.attention} must end in {known}")
  dictionary = None if values.replace_unknown in _SWITCHES else values.replace_unknown
  flags.refuse_the_same(
    {"input": values.input, "replace_unknown": dictionary},
    {"output": values.output, "attention": values.attention},
  )
  with contextlib.ExitStack() as stack:
    source = stack.enter_context(_reading(values.input or "-"))
    sink = stack.enter_context(flags.writing("output", values.output))
    answers = translator(
      values.workdir,
      average=values.average,
      assignments=values.set,
      nbest=values.nbest,
      attention=_attention_writer(values.attention, stack),
      replacements=_replacements(values.replace_unknown, dictionary),
    )
    translate(source, sink, answers, empty=lambda number: _answer(number, "", 0.0, values.nbest))
  return 0


def _attention_writer(
  name: str | None, stack: contextlib.ExitStack
) -> attention_files.Writer | None:
  if name is None:
    return None
  file = stack.enter_context(flags.writing("attention", name))
  return stack.enter_context(attention_files.writer(name, file))


def _replacements(asked: str | None, dictionary: str | None) -> dict[str, str] | None:
  """Returns the dictionary of `--replace_unknown`, empty if it names none; None where it is off."""
  if dictionary is None:
    return {} if asked == "true" else None
  from attn.data import textfiles

  return dict(reversed(textfiles.read_pairs(dictionary, None, (1, 2)).pairs))


def translator(
  workdirs: str,
  *,
  average: int = 1,
  assignments: Sequence[str] = (),
  nbest: int | None = None,
  attention: attention_files.Writer | None = None,
  replacements: Mapping[str, str] | None = None,
) -> Translator:
  """Returns the function from lines to translations that the models in `workdirs` compute."""
  models = resolve.together(workdirs, average)
  from attn.data.vocabulary import UNK
  from attn.decoding import translation

  first = models[0]
  search = resolve.searched(first, assignments)
  edges = few(first.config.data.bucket_edges)
  if replacements is not None:
    _refuse_pieces(workdirs, first)
    search = dataclasses.replace(search, forbidden=tuple(set(search.forbidden) - {UNK}))
  for flag, asked in (("attention", attention), ("replace_unknown", replacements)):
    if asked is not None and all(model.config.model.score == "none" for model in models):
      raise flags.UserError(f"--{flag}: {workdirs} is a model without attention")

  def decode(sources: list[list[int]]) -> "list[Translation]":
    return translation.translate(
      tuple(model.config.model for model in models),
      tuple(model.params for model in models),
      sources,
      search,
      symbols=len(first.target),
      edges=edges,
      n_best=nbest or 1,
      weights=attention is not None or replacements is not None,
    )

  decode([])  # What cannot be searched is told before a line is read.

  def translated(lines: list[str], numbers: list[int]) -> list[list[str]]:
    sources = [first.source.encode(line) for line in lines]
    _warn_of_sources(sources, numbers, edges[-1])
    found = decode(sources)
    if cut := sum(not one.finished for one in found):
      _warn(f"cut at the longest length allowed: {cut} of the translations")
    answers = []
    for line, number, best in zip(lines, numbers, found, strict=True):
      hypotheses = [best, *best.others]
      texts = [_text(line, one, first, replacements) for one in hypotheses]
      rows = zip(texts, hypotheses, strict=True)
      answers.append([_answer(number, text, one.score, nbest) for text, one in rows])
      if (attention or replacements is not None) and best.weights is None:
        _warn(f"line {number} is too long for its attention to be kept")
      elif attention:
        source = [*first.source.split(line), _END]
        for rank, one in enumerate(hypotheses):
          attention(_entry(number, rank, source, first.target.spell(one.tokens), one))
    return answers

  return translated


def few(edges: Sequence[int], most: int = 4) -> Sequence[int]:
  """Returns at most so many of the lengths, the last among them: each costs seconds of compiling.

  What is translated does not depend on how it is padded.
  """
  return edges[::-1][:: -(-len(edges) // most)][::-1]


def _refuse_pieces(workdirs: str, model: "Trained") -> None:
  from attn.data.vocabulary import PIECES

  if model.target.level in PIECES:
    raise flags.UserError(
      f"--replace_unknown: {workdirs} writes pieces of words, and what has no piece is no word"
    )


def _warn_of_sources(sources: list[list[int]], numbers: list[int], longest: int) -> None:
  from attn.data.vocabulary import UNK

  if unknown := sum(ids.count(UNK) for ids in sources):
    _warn(f"symbols of the input that the model was not trained on: {unknown}")
  for number, ids in zip(numbers, sources, strict=True):
    if len(ids) >= longest:
      _warn(f"line {number} has {len(ids)} symbols, more than any the model was trained on")


def _text(
  line: str, one: "Translation", model: "Trained", replacements: Mapping[str, str] | None
) -> str:
  """Returns the text of a hypothesis of a line, unknown symbols replaced if asked for."""
  if replacements is None or one.weights is None:
    return model.target.decode(one.tokens)
  from attn.data.vocabulary import UNK
  from attn.decoding.unknown import replace_unknown, source_words

  spelled = model.target.spell(one.tokens)
  known = [None if i == UNK else symbol for i, symbol in zip(one.tokens, spelled, strict=True)]
  words = source_words(line, model.source)
  made = replace_unknown(known, words, one.weights, replacements)
  pairs = zip(made, spelled, strict=True)
  return model.target.join(symbol if new is None else new for new, symbol in pairs)


def _answer(number: int, text: str, score: float, nbest: int | None) -> str:
  """What is written for a hypothesis of the line of this number, counted from 1."""
  text = text.replace("\n", " ")  # a model whose texts had lines of their own may write their ends
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
    answers: from lines that hold more than space to the lines written for each.
    empty: the line written for any other one, of this number, counted from 1.
  """
  done = 0
  for lines in chunks(source):
    texts = [_decoded(line.removesuffix(b"\r"), done + i) for i, line in enumerate(lines, 1)]
    asked = {done + i: text for i, text in enumerate(texts, 1) if text.strip()}
    answered = answers(list(asked.values()), list(asked)) if asked else []
    if len(answered) != len(asked) or any("\n" in line for own in answered for line in own):
      raise RuntimeError(f"{len(asked)} lines were not answered by as many lines")
    rest = iter(answered)
    out = [next(rest) if i in asked else [empty(i)] for i in range(done + 1, done + 1 + len(texts))]
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
    text = line.decode("utf-8")
  except UnicodeDecodeError:
    _warn(f"line {number} is not UTF-8; what cannot be read is replaced")
    text = line.decode("utf-8", errors="replace")
  return text.removeprefix("\ufeff") if number == 1 else text


def _warn(text: str) -> None:
  print(f"launch.translate: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _reading(name: str) -> Iterator[BinaryIO]:
  if name == "-":
    if sys.stdin is None:
      raise flags.UserError("standard input is closed: give --input=FILE")
    yield sys.stdin.buffer
    return
  try:
    file = open(name, "rb")  # noqa: SIM115  # closed below; opening alone is the user's affair
  except OSError as error:
    raise flags.UserError(f"cannot read --input={name}: {error.strerror}") from error
  with file:
    from attn.data import textfiles

    with textfiles.unpacked(file, f"--input={name}") as content:
      yield content


if __name__ == "__main__":
  flags.run("launch.translate", main, FLAGS, __doc__, resumes=False)
