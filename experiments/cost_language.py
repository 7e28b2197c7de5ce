"""How many bits a word of real text takes, for `experiments.cost`: words counted, none modelled."""

import collections
import math
from collections.abc import Sequence
from typing import NamedTuple

from attn.data import catalog
from attn.data.vocabulary import UNK, Vocabulary
from attn.evaluation.intervals import Interval, mean_interval


class Language(NamedTuple):
  """The words of one side of a corpus.

  Attributes:
    name: of the corpus and the side.
    words: different words of the training texts.
    uniform: bits a word out of so many takes if all are equally likely.
    saved: bits a word that test texts take less, by the frequencies of training texts; the mean
      and its interval over texts.
    rarest_kept: how often the rarest word of a vocabulary of half of the words occurs.
    commonest_dropped: how often the commonest word occurs that such a vocabulary lacks.
  """

  name: str
  words: int
  uniform: float
  saved: Interval
  rarest_kept: int
  commonest_dropped: int


def measure(corpus: str, data_dir: str) -> list[Language]:
  """Measures both sides of a corpus whose symbols are words."""
  sides = ("sources", "targets")
  level = 1 - 0.05 / len(sides)  # Bonferroni's: 95% for both together.
  train, test = (catalog.load(corpus, split, data_dir) for split in ("train", "test"))
  return [
    of_texts(f"{corpus}, {side}", getattr(train, side), getattr(test, side), level)
    for side in sides
  ]


def of_texts(name: str, train: Sequence[str], test: Sequence[str], level: float = 0.95) -> Language:
  """Counts the words of training texts and prices those of test texts.

  A price is -log2 of a word's frequency, with one more count for each word and for the unknown:
  the mean over text that was not counted is never below the entropy, but by chance.

  Args:
    name: what the texts are.
    train: texts to count, words between blanks.
    test: other texts.
    level: the confidence of the interval.
  """
  vocabulary = Vocabulary.build(train, "symbol")
  counts = collections.Counter(i for text in train for i in vocabulary.encode(text))
  words = len(vocabulary.symbols)
  total = counts.total() + words + 1
  prices = {i: -math.log2((counts[i] + 1) / total) for i in (*counts, UNK)}
  encoded = [vocabulary.encode(text) for text in test]
  uniform = math.log2(words)
  saved = [uniform - sum(prices[i] for i in ids) / len(ids) for ids in encoded if ids]
  reserved = len(vocabulary) - words
  kept = Vocabulary.build(train, "symbol", size=reserved + words // 2).symbols
  inside = {vocabulary.encode(symbol)[0] for symbol in kept}
  return Language(
    name=name,
    words=words,
    uniform=uniform,
    saved=mean_interval(saved, level),
    rarest_kept=min(counts[i] for i in inside),
    commonest_dropped=max(count for i, count in counts.items() if i not in inside),
  )
