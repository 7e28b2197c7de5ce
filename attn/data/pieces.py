"""Vocabularies of pieces of words, learned by SentencePiece."""

import base64
import binascii
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import sentencepiece

from attn.data.errors import DataError
from attn.data.vocabulary import BOS, EOS, PAD, PIECES, UNK, Level, Vocabulary

SIZE: Final = 8_000  # ids, unless another number is asked for
_MOST: Final = 1_000_000  # texts to learn from; of more, evenly many are left out
_BLANK: Final = "\u2581"  # what SentencePiece writes for a blank


@dataclass(frozen=True)
class Pieces(Vocabulary):
  """Pieces that a text is cut into, blanks inside them, so that decoding gives the text back.

  Nothing is normalised: a text comes back as it was, unless it has a character that none of the
  texts to learn from had, which becomes UNK, or U+2581, which becomes a blank.

  Attributes:
    model: SentencePiece's serialised model.
  """

  model: bytes
  _processor: Any = field(init=False, repr=False, compare=False)

  def __post_init__(self) -> None:
    """Raises ValueError where the model is none of this level, or has other ids."""
    processor = sentencepiece.SentencePieceProcessor()
    try:
      processor.LoadFromSerializedProto(self.model)
      reserved = [processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id()]
    except RuntimeError as error:
      raise ValueError(f"it holds no SentencePiece model: {error}") from error
    if self.level not in PIECES or reserved != [PAD, BOS, EOS, UNK]:
      raise ValueError(f"it holds no pieces of level {' or '.join(map(repr, PIECES))}")
    symbols = tuple(processor.IdToPiece(i) for i in range(UNK + 1, processor.GetPieceSize()))
    object.__setattr__(self, "symbols", symbols)
    object.__setattr__(self, "_processor", processor)

  @classmethod
  def learn(cls, texts: Iterable[str], level: Level, size: int | None) -> "Pieces":
    """Returns the pieces learned from texts, at most `size` ids (None: `SIZE`).

    The same texts in the same order give the same model: one thread learns, and nothing is drawn.

    Raises:
      DataError: the texts have more characters than `size` has room for, or none.
    """
    texts = list(texts)
    texts = texts[:: -(-len(texts) // _MOST) or 1]
    asked = size or SIZE
    try:
      model = _train(texts, level, asked)
    except RuntimeError as error:
      # BPE says how many pieces there are to be had; unigram takes fewer by itself.
      possible = re.search(r"too high .*<= (\d+)", str(error))
      if not possible:
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else "no reason given"
        raise DataError(
          f"{level} cannot learn {asked:,} pieces from {len(texts):,} texts ({reason}): give"
          " another size or level"
        ) from error
      model = _train(texts, level, int(possible[1]))
    return cls((), level, model)

  @classmethod
  def from_text(cls, text: Any, level: Any) -> "Pieces":
    """Returns the pieces whose model is written in base64.

    Raises:
      ValueError: there is none in it.
    """
    try:
      return cls((), level, base64.b64decode(text, validate=True))
    except (binascii.Error, TypeError) as error:
      raise ValueError("'model' must be in base64") from error

  def split(self, text: str) -> tuple[str, ...]:
    """Returns the pieces of a text."""
    return tuple(self._processor.EncodeAsPieces(text))

  def words(self, text: str) -> tuple[int, ...]:
    """Returns for each piece the number of its word: U+2581 at its beginning starts one."""
    numbers: list[int] = []
    word, ended = -1, True
    for piece in self.split(text):
      ended |= piece.startswith(_BLANK)
      if piece.strip(_BLANK):
        word, ended = word + ended, False
        # The last blank before a word, where it is a piece of its own, is of that word.
        if numbers and numbers[-1] < 0 and not piece.startswith(_BLANK):
          numbers[-1] = word
        numbers.append(word)
      else:
        numbers.append(-1)
    return tuple(numbers)

  def join(self, symbols: Iterable[str]) -> str:
    """Returns the text that has these pieces."""
    return "".join(symbols).replace(_BLANK, " ").removeprefix(" ")

  def encode(self, text: str) -> list[int]:
    """Returns the ids of a text, without BOS and EOS; what no piece has becomes UNK."""
    ids: list[int] = self._processor.EncodeAsIds(text)
    return ids

  def _content(self) -> dict[str, Any]:
    return {"model": base64.b64encode(self.model).decode("ascii")}


def _train(texts: list[str], level: Level, size: int) -> bytes:
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(texts),
    model_writer=model,
    model_type=level,
    vocab_size=size,
    hard_vocab_limit=False,
    character_coverage=1.0,
    normalization_rule_name="identity",
    remove_extra_whitespaces=False,
    max_sentence_length=1 << 20,
    num_threads=1,
    pad_id=PAD,
    bos_id=BOS,
    eos_id=EOS,
    unk_id=UNK,
    minloglevel=2,
  )
  return model.getvalue()
