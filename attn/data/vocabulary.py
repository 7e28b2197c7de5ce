"""Vocabularies: symbols to ids and back."""

import collections
import json
import os
import pathlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

Level = Literal["character", "symbol"]

PAD: Final = 0
BOS: Final = 1
EOS: Final = 2
UNK: Final = 3
_RESERVED: Final = 4
_UNKNOWN: Final = "<unk>"


@dataclass(frozen=True)
class Vocabulary:
  """The symbols of one side of a data set.

  Ids 0 to 3 are PAD, BOS, EOS and UNK, which no text can spell; the symbols follow in order.

  Attributes:
    symbols: the symbols from id 4 on, all different.
    level: `character` has a symbol for each code point of a text; `symbol` for each run of
      characters between blanks.
  """

  symbols: tuple[str, ...]
  level: Level
  _ids: dict[str, int] = field(init=False, repr=False, compare=False)

  def __post_init__(self) -> None:
    """Raises ValueError where the symbols are not different symbols of the level."""
    if self.level not in ("character", "symbol"):
      raise ValueError(f"the level is 'character' or 'symbol', not {self.level!r}")
    counts = collections.Counter(self.symbols)
    if repeated := [symbol for symbol, count in counts.items() if count > 1]:
      raise ValueError(f"the symbol {repeated[0]!r} is in the vocabulary more than once")
    for symbol in self.symbols:
      if self.split(symbol) != (symbol,):
        raise ValueError(f"{symbol!r} is not one symbol at level {self.level!r}")
    ids = {symbol: i for i, symbol in enumerate(self.symbols, _RESERVED)}
    object.__setattr__(self, "_ids", ids)

  def __len__(self) -> int:
    """The number of ids, the four reserved ones counted."""
    return _RESERVED + len(self.symbols)

  @classmethod
  def build(cls, texts: Iterable[str], level: Level) -> Self:
    """Returns the vocabulary of every symbol in `texts`, sorted by code points."""
    empty = cls((), level)
    return cls(tuple(sorted({symbol for text in texts for symbol in empty.split(text)})), level)

  def split(self, text: str) -> tuple[str, ...]:
    """Returns the symbols of a text. Only the blank (U+0020) separates; no other space does."""
    if self.level == "character":
      return tuple(text)
    return tuple(symbol for symbol in text.split(" ") if symbol)

  def join(self, symbols: Iterable[str]) -> str:
    """Returns the text that has these symbols."""
    return ("" if self.level == "character" else " ").join(symbols)

  def encode(self, text: str) -> list[int]:
    """Returns the ids of a text, without BOS and EOS; an unknown symbol becomes UNK."""
    return [self._ids.get(symbol, UNK) for symbol in self.split(text)]

  def decode(self, ids: Iterable[int]) -> str:
    """Returns the text of ids up to the first EOS; PAD and BOS are left out, UNK is `<unk>`.

    Raises:
      ValueError: an id is not of this vocabulary.
    """
    symbols = []
    for i in map(int, ids):
      if not 0 <= i < len(self):
        raise ValueError(f"id {i} is outside the vocabulary of {len(self)}")
      if i == EOS:
        break
      if i not in (PAD, BOS):
        symbols.append(_UNKNOWN if i == UNK else self.symbols[i - _RESERVED])
    return self.join(symbols)

  def save(self, path: str | os.PathLike[str]) -> None:
    """Writes the vocabulary as JSON; the same vocabulary gives the same bytes.

    The file appears whole or not at all, whenever the process dies.
    """
    path = pathlib.Path(path)
    text = json.dumps({"level": self.level, "symbols": self.symbols}, indent=1) + "\n"
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(text.encode("ascii"))
    os.replace(temporary, path)

  @classmethod
  def load(cls, path: str | os.PathLike[str]) -> Self:
    """Reads what `save` wrote.

    Raises:
      ValueError: the file holds no vocabulary.
    """
    data: Any
    try:
      data = json.loads(pathlib.Path(path).read_bytes())
    except ValueError as error:  # not JSON, or not UTF-8
      raise ValueError(f"{path}: not a vocabulary ({error})") from error
    if not isinstance(data, dict) or set(data) != {"level", "symbols"}:
      raise ValueError(f"{path}: not a vocabulary (its keys must be 'level' and 'symbols')")
    symbols = data["symbols"]
    if not _all_strings(symbols):
      raise ValueError(f"{path}: not a vocabulary ('symbols' must be a list of strings)")
    try:
      return cls(tuple(symbols), data["level"])
    except ValueError as error:
      raise ValueError(f"{path}: not a vocabulary ({error})") from error


def _all_strings(values: Sequence[Any]) -> bool:
  return isinstance(values, list) and all(isinstance(value, str) for value in values)
