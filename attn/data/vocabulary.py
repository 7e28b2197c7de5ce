"""Vocabularies: symbols to ids and back."""

import collections
import hashlib
import itertools
import json
import os
import pathlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

Level = Literal["character", "symbol", "word", "unigram", "bpe"]
PIECES: Final = ("unigram", "bpe")

PAD: Final = 0
BOS: Final = 1
EOS: Final = 2
UNK: Final = 3
_RESERVED: Final = 4
_UNKNOWN: Final = "<unk>"
JOINER: Final = "\uffed"  # before a word that no space precedes, at level `word`
_WORD: Final = re.compile(rf"\w+|[^\w\s{JOINER}]")


@dataclass(frozen=True)
class Vocabulary:
  """The symbols of one side of a data set.

  Ids 0 to 3 are PAD, BOS, EOS and UNK, which no text can spell; the symbols follow in order.

  Attributes:
    symbols: the symbols from id 4 on, all different.
    level: `character` has a symbol for each code point of a text; `symbol` for each run of
      characters between blanks; `word` for each run of letters and digits and for each other
      character that is not space, with a joiner (U+FFED, which itself counts as space) before
      what no space precedes. Pieces (`unigram`, `bpe`) are `attn.data.pieces.Pieces`.
  """

  symbols: tuple[str, ...]
  level: Level
  _ids: dict[str, int] = field(init=False, repr=False, compare=False)

  def __post_init__(self) -> None:
    """Raises ValueError where the symbols are not different symbols of the level."""
    plain = [level for level in get_args(Level) if level not in PIECES]
    if self.level not in plain:
      raise ValueError(f"the level is one of {', '.join(map(repr, plain))}, not {self.level!r}")
    counts = collections.Counter(self.symbols)
    if repeated := [symbol for symbol, count in counts.items() if count > 1]:
      raise ValueError(f"the symbol {repeated[0]!r} is in the vocabulary more than once")
    for symbol in self.symbols:
      alone = symbol.removeprefix(JOINER) if self.level == "word" else symbol
      if self.split(alone) != (alone,):
        raise ValueError(f"{symbol!r} is not one symbol at level {self.level!r}")
    ids = {symbol: i for i, symbol in enumerate(self.symbols, _RESERVED)}
    object.__setattr__(self, "_ids", ids)

  def __len__(self) -> int:
    """The number of ids, the four reserved ones counted."""
    return _RESERVED + len(self.symbols)

  @staticmethod
  def build(texts: Iterable[str], level: Level, size: int | None = None) -> "Vocabulary":
    """Returns the vocabulary of the symbols in `texts`, sorted by code points.

    Args:
      texts: what to count.
      level: what a symbol is.
      size: most ids, the four reserved ones counted. Then the commonest symbols stay; of equally
        common ones those that come first by code points. None keeps all; of pieces it learns
        `attn.data.pieces.SIZE`.

    Raises:
      DataError: pieces cannot be learned from these texts.
    """
    if level in PIECES:
      from attn.data.pieces import Pieces  # sentencepiece is loaded where it is needed

      return Pieces.learn(texts, level, size)
    empty = Vocabulary((), level)
    counts = collections.Counter(symbol for text in texts for symbol in empty.split(text))
    kept = sorted(counts)
    if size is not None:
      kept = sorted(sorted(kept, key=lambda symbol: -counts[symbol])[: max(0, size - _RESERVED)])
    return Vocabulary(tuple(kept), level)

  def split(self, text: str) -> tuple[str, ...]:
    """Returns the symbols of a text.

    Of `symbol` only the blank (U+0020) separates; no other space does.
    """
    if self.level == "character":
      return tuple(text)
    if self.level == "word":
      return _words(text)
    return tuple(symbol for symbol in text.split(" ") if symbol)

  def words(self, text: str) -> tuple[int, ...]:
    """Returns for each symbol of a text the number of its word, of those between blanks, from 0.

    Characters, and symbols between blanks, are words of their own. Blanks that no word follows are
    of none, -1.
    """
    symbols = self.split(text)
    joined = (self.level == "word" and symbol.startswith(JOINER) for symbol in symbols)
    return tuple(itertools.accumulate((not one for one in joined), initial=-1))[1:]

  def join(self, symbols: Iterable[str]) -> str:
    """Returns the text that has these symbols."""
    text = ("" if self.level == "character" else " ").join(symbols)
    return text.replace(f" {JOINER}", "") if self.level == "word" else text

  def encode(self, text: str) -> list[int]:
    """Returns the ids of a text, without BOS and EOS; an unknown symbol becomes UNK."""
    return [self._ids.get(symbol, UNK) for symbol in self.split(text)]

  def decode(self, ids: Iterable[int]) -> str:
    """Returns the text of ids up to the first EOS; PAD and BOS are left out, UNK is `<unk>`.

    Raises:
      ValueError: an id is not of this vocabulary.
    """
    return self.join(self.spell(ids))

  def spell(self, ids: Iterable[int]) -> list[str]:
    """Returns the symbols of which `decode` makes a text."""
    symbols = []
    for i in map(int, ids):
      if not 0 <= i < len(self):
        raise ValueError(f"id {i} is outside the vocabulary of {len(self)}")
      if i == EOS:
        break
      if i not in (PAD, BOS):
        symbols.append(_UNKNOWN if i == UNK else self.symbols[i - _RESERVED])
    return symbols

  def save(self, path: str | os.PathLike[str]) -> None:
    """Writes the vocabulary as JSON; the same vocabulary gives the same bytes.

    The file appears whole or not at all, whenever the process dies.
    """
    path = pathlib.Path(path)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(self._bytes())
    os.replace(temporary, path)

  def digest(self) -> str:
    """Returns letters that tell it from any other vocabulary."""
    return hashlib.sha256(self._bytes()).hexdigest()[:16]

  def _bytes(self) -> bytes:
    text = json.dumps({"level": self.level, **self._content()}, indent=1)
    return f"{text}\n".encode("ascii")

  def _content(self) -> dict[str, Any]:
    """What the file holds besides the level."""
    return {"symbols": self.symbols}

  @staticmethod
  def load(path: str | os.PathLike[str]) -> "Vocabulary":
    """Reads what `save` wrote.

    Raises:
      ValueError: the file holds no vocabulary.
    """
    data: Any
    try:
      data = json.loads(pathlib.Path(path).read_bytes())
    except ValueError as error:  # not JSON, or not UTF-8
      raise ValueError(f"{path}: not a vocabulary ({error})") from error
    try:
      return _from_content(data)
    except ValueError as error:
      raise ValueError(f"{path}: not a vocabulary ({error})") from error


def _from_content(data: Any) -> Vocabulary:
  if isinstance(data, dict) and set(data) == {"level", "model"}:
    from attn.data.pieces import Pieces

    return Pieces.from_text(data["model"], data["level"])
  if not isinstance(data, dict) or set(data) != {"level", "symbols"}:
    raise ValueError("its keys must be 'level' and 'symbols', or 'level' and 'model'")
  if not _all_strings(data["symbols"]):
    raise ValueError("'symbols' must be a list of strings")
  return Vocabulary(tuple(data["symbols"]), data["level"])


def _words(text: str) -> tuple[str, ...]:
  words: list[str] = []
  end = 0
  for found in _WORD.finditer(text):
    joined = found.start() == end and words
    words.append(f"{JOINER}{found[0]}" if joined else found[0])
    end = found.end()
  return tuple(words)


def _all_strings(values: Sequence[Any]) -> bool:
  return isinstance(values, list) and all(isinstance(value, str) for value in values)
