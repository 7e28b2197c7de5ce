"""Words for those that a model could not write, copied from where it looked (Luong et al., 2015,
"Addressing the Rare Word Problem in Neural Machine Translation", ACL).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float

from attn.data.vocabulary import JOINER, PIECES, Vocabulary
from attn.evaluation import alignment


def replace_unknown(
  symbols: Sequence[str | None],
  source: Sequence[str],
  weights: Float[Any, "t s"],
  dictionary: Mapping[str, str] | None = None,
) -> list[str | None]:
  """Replaces unknown symbols by what the dictionary has for the source word they are linked to.

  A word that the dictionary lacks is copied as it is. A symbol that is linked to none, as that of
  an empty source, stays unknown.

  Args:
    symbols: of the target, None where unknown.
    source: a word for each source symbol, without EOS.
    weights: attention, a row for each symbol and a column for each word. Those that follow, of EOS
      and padding, are never looked at.
    dictionary: from source words to target words.
  """
  linked = dict(link[::-1] for link in alignment.links(weights[: len(symbols), : len(source)]))
  result = list(symbols)
  for at, symbol in enumerate(symbols):
    if symbol is None and at in linked:
      word = source[linked[at]]
      result[at] = (dictionary or {}).get(word, word)
  return result


def source_words(text: str, vocabulary: Vocabulary) -> list[str]:
  """The word that each symbol of a source stands for: itself, or that of which it is a piece."""
  symbols = vocabulary.split(text)
  if vocabulary.level not in PIECES:
    return [symbol.removeprefix(JOINER) for symbol in symbols]
  numbers = vocabulary.words(text)
  spelled: dict[int, list[str]] = {}
  for number, symbol in zip(numbers, symbols, strict=True):
    spelled.setdefault(number, []).append(symbol)
  return [vocabulary.join(spelled[number]).strip() for number in numbers]
