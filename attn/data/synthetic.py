"""Generated tasks whose alignment is known: `copy`, `reverse`, `lexicon`, `fertility`, `walk`.

Sources are random letters. Each task is one pure function from a source to its target and their
links; only the walk also draws from `random`, so that no model can predict it better than the
distribution that it was drawn from.
"""

import abc
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds

from attn.data.builder import LINKS, PairsBuilder, links_array

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_FERTILITIES = 4  # 0 to 3 target symbols for a source symbol

Symbols = tuple[str, ...]
Links = list[tuple[int, int]]  # (source position, target position), from 0


@dataclasses.dataclass(eq=False)
class LettersConfig(tfds.core.BuilderConfig):
  """The size of a task.

  Attributes:
    symbols: how many different letters there are, at most 26.
    shortest: fewest letters of a source.
    longest: most letters of a source; lengths between are equally likely.
    train: training pairs.
    dev: development pairs.
    test: test pairs.
    seed: what they are drawn from.
  """

  symbols: int = 20
  shortest: int = 2
  longest: int = 20
  train: int = 20_000
  dev: int = 1_000
  test: int = 2_000
  seed: int = 1


class _Letters(PairsBuilder):
  """A task on random letters: a subclass says what the target of a source is.

  No source of test or dev occurs in another split; short ones may recur within train.
  """

  VERSION = tfds.core.Version("1.0.0")
  BUILDER_CONFIGS = [LettersConfig(name="letters", description="20 letters, 2 to 20 at a time")]
  LICENSE = "CC0-1.0"
  FEATURES = {"alignment": LINKS}
  DISTINCT: ClassVar[bool] = False

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
    del dl_manager  # nothing to download
    drawn = draw(self.builder_config, distinct=self.DISTINCT, accept=self._accept)
    seed = self.builder_config.seed
    return {
      name: self._generate_examples(sources, np.random.RandomState([seed, i]))
      for i, (name, sources) in enumerate(drawn.items())
    }

  def _generate_examples(
    self, sources: list[Symbols], random: np.random.RandomState
  ) -> Iterator[tuple[int, dict[str, Any]]]:
    for i, source in enumerate(sources):
      target, links = self._pair(source, random)
      yield (
        i,
        {
          "source": " ".join(source),
          "target": " ".join(target),
          "alignment": links_array(links),
        },
      )

  def _accept(self, source: Symbols) -> bool:
    """Whether a source has a target."""
    del source
    return True

  @abc.abstractmethod
  def _pair(self, source: Symbols, random: np.random.RandomState) -> tuple[Symbols, Links]:
    """Returns the target of a source and their links."""


class Copy(_Letters):
  """The target is the source: attention has to move on by one, and by nothing else."""

  DESCRIPTION = "Random letters and the same letters again, with the word alignment."

  def _pair(self, source: Symbols, random: np.random.RandomState) -> tuple[Symbols, Links]:
    return source, [(i, i) for i in range(len(source))]


class Reverse(_Letters):
  """The target is the source from last to first.

  A fixed vector has to hold the whole source, where attention has only to walk back along it.
  """

  DESCRIPTION = "Random letters and the same letters in reverse, with the word alignment."

  def _pair(self, source: Symbols, random: np.random.RandomState) -> tuple[Symbols, Links]:
    return backwards(source)


class Lexicon(_Letters):
  """Each letter has one translation, and modifiers come before their head but go behind it."""

  DESCRIPTION = (
    "Random letters and their translations by a permuted lexicon, with the word alignment. The"
    " first half of the alphabet are modifiers: each run of them and the head that follows are"
    " said backwards."
  )

  def _pair(self, source: Symbols, random: np.random.RandomState) -> tuple[Symbols, Links]:
    return translate(source, lexicon(self.builder_config.symbols, self.builder_config.seed))


class Fertility(_Letters):
  """A letter becomes none to three target symbols, so that the sides differ in length."""

  DESCRIPTION = (
    "Random letters and for each its own number of symbols, 0 to 3, in order, with the word"
    " alignment. A letter of fertility 0 has no link."
  )

  def _accept(self, source: Symbols) -> bool:
    return bool(multiply(source)[0])

  def _pair(self, source: Symbols, random: np.random.RandomState) -> tuple[Symbols, Links]:
    return multiply(source)


class Walk(_Letters):
  """A random walk on a ring of letters that each source lays out anew.

  Every target symbol is one of two, equally likely, whatever came before, and a walk has as many
  steps as the ring has letters. So the best loss is ln 2 = 0.693 nats for each symbol and 0 for
  EOS: `optimum`. Which two they are is beside the previous symbol in the source, so that only a
  model whose attention has seen the previous symbol can get there.
  """

  BUILDER_CONFIGS = [
    LettersConfig(
      name="letters",
      description="rings of 5 to 12 out of 20 letters",
      shortest=5,
      longest=12,
      train=40_000,
    )
  ]
  DESCRIPTION = (
    "Different letters in random order, read as a ring, and a random walk on it from the first"
    " one, which it does not say: each step goes to the left or to the right neighbour. The"
    " alignment has the place of each step."
  )
  DISTINCT = True

  def _pair(self, source: Symbols, random: np.random.RandomState) -> tuple[Symbols, Links]:
    return walk(source, random)


def backwards(source: Symbols) -> tuple[Symbols, Links]:
  """Returns the source from last to first."""
  last = len(source) - 1
  return source[::-1], [(last - j, j) for j in range(len(source))]


def lexicon(symbols: int, seed: int) -> dict[str, str]:
  """Returns the capital that each of the first `symbols` letters is translated by."""
  order = np.random.RandomState(seed).permutation(symbols)
  return {letter: _LETTERS[i].upper() for letter, i in zip(_LETTERS, order.tolist(), strict=False)}


def translate(source: Symbols, words: dict[str, str]) -> tuple[Symbols, Links]:
  """Returns the translations, each run of modifiers and its head said backwards.

  The first half of the words are modifiers; a last run without a head is said backwards too.
  """
  modifiers = set(sorted(words)[: len(words) // 2])
  order: list[int] = []
  run: list[int] = []
  for i, letter in enumerate(source):
    run.append(i)
    if letter not in modifiers or i == len(source) - 1:
      order += run[::-1]
      run = []
  return tuple(words[source[i]] for i in order), [(i, j) for j, i in enumerate(order)]


def multiply(source: Symbols) -> tuple[Symbols, Links]:
  """Returns for each letter as many symbols as its fertility: `b` -> `B1`, `d` -> `D1 D2 D3`."""
  made = [
    (i, f"{letter.upper()}{k + 1}")
    for i, letter in enumerate(source)
    for k in range(_LETTERS.index(letter) % _FERTILITIES)
  ]
  return tuple(symbol for _, symbol in made), [(i, j) for j, (i, _) in enumerate(made)]


def walk(source: Symbols, random: np.random.RandomState) -> tuple[Symbols, Links]:
  """Returns a walk on the ring of the source, as many steps as it has letters."""
  steps = 2 * random.randint(2, size=len(source)) - 1
  places = (np.cumsum(steps) % len(source)).tolist()
  return tuple(source[i] for i in places), [(i, j) for j, i in enumerate(places)]


def optimum(lengths: Iterable[int]) -> float:
  """Returns the least mean loss a symbol, EOS counted, of walks of these lengths, in nats."""
  lengths = list(lengths)
  return math.log(2) * sum(lengths) / (sum(lengths) + len(lengths))


def draw(
  config: LettersConfig,
  *,
  distinct: bool = False,
  accept: Callable[[Symbols], bool] = lambda source: True,
) -> dict[str, list[Symbols]]:
  """Returns the sources of each split.

  Args:
    config: how many, and how long.
    distinct: whether the letters of a source all differ.
    accept: says which sources may be.

  Raises:
    ValueError: there are too few different sources to hold some out.
  """
  count = math.perm if distinct else pow
  held_out_each = (config.dev + config.test) / (config.longest - config.shortest + 1)
  if 2 * held_out_each > count(config.symbols, config.shortest):
    raise ValueError(
      f"{config.symbols} symbols make too few sources of length {config.shortest} to hold out"
      f" {held_out_each:.0f}"
    )
  # The old generator, because NumPy promises that its stream never changes.
  random = np.random.RandomState(config.seed)
  letters = np.array(list(_LETTERS[: config.symbols]))
  held_out: dict[Symbols, None] = {}

  def new_source() -> Symbols:
    """A source not held out. The length stays while letters are drawn again: all as likely."""
    length = random.randint(config.shortest, config.longest + 1)
    while True:
      if distinct:
        index = random.permutation(config.symbols)[:length]
      else:
        index = random.randint(config.symbols, size=length)
      source = tuple(letters[index].tolist())
      if source not in held_out and accept(source):
        return source

  for _ in range(config.test + config.dev):
    held_out[new_source()] = None
  test, dev = list(held_out)[: config.test], list(held_out)[config.test :]
  return {"train": [new_source() for _ in range(config.train)], "dev": dev, "test": test}
