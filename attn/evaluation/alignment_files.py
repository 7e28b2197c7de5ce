"""Alignments as files: links found, in Pharaoh's format, and gold ones in three formats.

`pharaoh`: a line a sentence, of `i-j`, source and target position, or of `i?j` or `ipj` where a
gold link is only possible. `naacl` (Mihalcea and Pedersen, 2003, "An Evaluation Exercise for Word
Alignment"; the Hansards): a line a link, `sentence source target`, then S for sure (also if it is
left out) or P for possible, then perhaps a confidence; all counted from 1. `rwth`: a line
`SENT: n`, then `S i j` and `P i j`, a line each.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, get_args

from attn.data.errors import DataError
from attn.data.textfiles import read_lines
from attn.evaluation.alignment import Links

GoldFormat = Literal["pharaoh", "naacl", "rwth"]

_NUMBER: Final = r"(\d{1,9})"  # Python refuses to read thousands of digits
_PHARAOH: Final = re.compile(rf"{_NUMBER}([-?p]){_NUMBER}")
_NAACL: Final = re.compile(rf"{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}(?:\s+([SP]))?(?:\s+\d*\.?\d+)?")
_RWTH: Final = re.compile(rf"(?:SENT:\s*{_NUMBER}|([SP])\s+{_NUMBER}\s+{_NUMBER})")


class Gold(NamedTuple):
  """What people linked, sentence by sentence.

  Attributes:
    sure: links that must be found.
    possible: links that may be found, the sure ones not among them.
  """

  sure: list[set[tuple[int, int]]]
  possible: list[set[tuple[int, int]]]


class _Link(NamedTuple):
  """A link as its file has it; None for positions where a line only announces a sentence."""

  line: int
  sentence: int
  source: int | None = None
  target: int | None = None
  sure: bool = True


def pharaoh(links: Links) -> str:
  """The line `i-j i-j ...` of a sentence's links, sorted and counted from 0."""
  return " ".join(f"{s}-{t}" for s, t in sorted({(int(s), int(t)) for s, t in links}))


def read_pharaoh(
  file: str, lengths: Sequence[tuple[int, int]] | None = None
) -> list[set[tuple[int, int]]]:
  """The links of each line, counted from 0, as `pharaoh` writes them.

  Raises:
    DataError: as from `read_gold`; a link that is only possible is a fault here.
  """
  lines = read_lines(file)
  return _gathered(file, _pharaoh(file, lines, "-"), 0, 0, lengths, len(lines)).sure


def read_gold(
  file: str,
  form: GoldFormat,
  *,
  base: Literal[0, 1] | None = None,
  lengths: Sequence[tuple[int, int]] | None = None,
) -> Gold:
  """The gold links of a file, from 0 on whatever the file counts from.

  Args:
    file: its path; may be compressed by gzip or xz.
    form: its format.
    base: what the file counts positions, and `rwth` sentences, from. `naacl` says so itself: None.
    lengths: words of source and target of each sentence, to hold the links against; without them
      the sentences are those up to the last that the file has.

  Raises:
    DataError: a line is no link, or its positions are outside the sentence; names the line.
    ValueError: there is no such format, or the base is missing.
  """
  if form not in get_args(GoldFormat):
    raise ValueError(f"form is {form!r}: expected one of {', '.join(get_args(GoldFormat))}")
  if form == "naacl":
    if base not in (None, 1):
      raise ValueError(f"base is {base}: naacl counts from 1")
    return _gathered(file, _naacl(file), 1, 1, lengths)
  if base not in (0, 1):
    raise ValueError(f"base is {base}: say whether positions in {form} are counted from 0 or 1")
  if form == "rwth":
    return _gathered(file, _rwth(file), base, base, lengths)
  lines = read_lines(file)
  return _gathered(file, _pharaoh(file, lines, "-?p"), base, 0, lengths, len(lines))


def _pharaoh(file: str, lines: Sequence[str], marks: str) -> Iterator[_Link]:
  for number, line in enumerate(lines, 1):
    for word in line.split():
      found = _PHARAOH.fullmatch(word)
      if not found or found[2] not in marks:
        forms = "i-j" if marks == "-" else "i-j, or i?j or ipj for a possible one"
        raise DataError(f"{file}: line {number}: {word!r} is no link: expected {forms}")
      yield _Link(number, number - 1, int(found[1]), int(found[3]), found[2] == "-")


def _naacl(file: str) -> Iterator[_Link]:
  for number, line in _filled(file):
    found = _NAACL.fullmatch(line)
    if not found:
      raise DataError(
        f"{file}: line {number}: {line!r} is no link: expected 'sentence source target [S|P]'"
      )
    yield _Link(number, int(found[1]), int(found[2]), int(found[3]), found[4] != "P")


def _rwth(file: str) -> Iterator[_Link]:
  sentence, seen = None, set()
  for number, line in _filled(file):
    found = _RWTH.fullmatch(line)
    if not found:
      raise DataError(f"{file}: line {number}: {line!r} is none of 'SENT: n', 'S i j' and 'P i j'")
    if found[1]:
      sentence = int(found[1])
      if sentence in seen:
        raise DataError(f"{file}: line {number}: sentence {sentence} was there before")
      seen.add(sentence)
      yield _Link(number, sentence)
    elif sentence is None:
      raise DataError(f"{file}: line {number}: a link before the first 'SENT: n'")
    else:
      yield _Link(number, sentence, int(found[3]), int(found[4]), found[2] == "S")


def _filled(file: str) -> Iterator[tuple[int, str]]:
  """The lines that are not empty, without the space around them, and their numbers."""
  stripped = ((number, line.strip()) for number, line in enumerate(read_lines(file), 1))
  return ((number, line) for number, line in stripped if line)


def _gathered(
  file: str,
  found: Iterable[_Link],
  base: int,
  first: int,
  lengths: Sequence[tuple[int, int]] | None,
  lines: int | None = None,
) -> Gold:
  """The links by sentence; `first` is the number of the first one, `lines` how many there are."""
  if lengths is not None and lines not in (None, len(lengths)):
    raise DataError(f"{file} has {lines:,} lines, but there are {len(lengths):,} sentences")
  found = list(found)
  count = max((link.sentence - first + 1 for link in found), default=0)
  count = len(lengths) if lengths is not None else count if lines is None else lines
  gold = Gold([set() for _ in range(count)], [set() for _ in range(count)])
  for link in found:
    at = link.sentence - first
    if not 0 <= at < count:
      raise DataError(
        f"{file}: line {link.line}: no sentence {link.sentence} of {count:,}, counted from {first}"
      )
    if link.source is None or link.target is None:
      continue
    for name, side, position in (("source", 0, link.source), ("target", 1, link.target)):
      words = None if lengths is None else lengths[at][side]
      if position < base or (words is not None and position - base >= words):
        held = "" if words is None else f" of {words} words"
        raise DataError(
          f"{file}: line {link.line}: no {name} position {position}{held}, counted from {base}"
        )
    links = gold.sure if link.sure else gold.possible
    links[at].add((link.source - base, link.target - base))
  return Gold(gold.sure, [may - must for may, must in zip(gold.possible, gold.sure, strict=True)])
