"""`numbers`: from the digits of a number to its words, as num2words writes them."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow_datasets as tfds

from attn.data import packages
from attn.data.builder import LINKS, PairsBuilder, links_array, splits

_REQUIREMENT = "num2words==0.5.14"


class Number(NamedTuple):
  """A number: its digits, its words, and where they are known their links, from 0."""

  digits: str
  words: str
  links: list[tuple[int, int]] | None


@dataclasses.dataclass(eq=False)
class NumbersConfig(tfds.core.BuilderConfig):
  """Which numbers, and in what language.

  Attributes:
    language: what num2words calls it.
    aligned: whether each word has links to the digits that it says.
    digest: of the text, `packages.digest`.
    longest: most digits; all lengths are equally likely, so that numbers are log-uniform.
    draws: how many numbers are drawn; what is drawn again, as short ones are, counts once.
    seed: what they are drawn from.
  """

  language: str = "en"
  aligned: bool = False
  digest: str = ""
  longest: int = 60
  draws: int = 12_000
  seed: int = 1


class Numbers(PairsBuilder):
  """A number a pair: digits, and words between blanks without commas and hyphens.

  A hash of the digits decides the split: about 5% test, 5% dev, the rest train. German writes what
  is below a million as one word and says ones before tens; it has no alignment.
  """

  VERSION = tfds.core.Version("1.0.0")
  BUILDER_CONFIGS = [
    NumbersConfig(name="en", description="English words", aligned=True, digest="4c0c8e7c194a92e8"),
    NumbersConfig(name="de", description="German words", language="de", digest="e54e23a0efd4543b"),
  ]
  DESCRIPTION = "Numbers of 1 to 60 digits and their words, as num2words 0.5.14 writes them."
  HOMEPAGE = "https://github.com/savoirfairelinux/num2words"
  LICENSE = "CC0-1.0 (the words; num2words, which writes them, is LGPL)"

  @property
  def FEATURES(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
    """English alone has links."""
    return {"alignment": LINKS} if self.builder_config.aligned else {}

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
    del dl_manager  # nothing to download
    config = self.builder_config
    said = numbers(config)
    lines = (f"{number.digits} {number.words}" for number in said)
    packages.check(lines, config.digest, _REQUIREMENT, f"numbers/{config.name}")
    parts = splits(said, lambda number: number.digits)
    return {name: self._generate_examples(part) for name, part in parts.items()}

  def _generate_examples(self, part: list[Number]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number in part:
      example: dict[str, Any] = {"source": number.digits, "target": number.words}
      if number.links is not None:
        example["alignment"] = links_array(number.links)
      yield number.digits, example


def numbers(config: NumbersConfig) -> list[Number]:
  """Returns different numbers with their words.

  Raises:
    DataError: num2words is not installed.
  """
  say = packages.load("num2words", f"numbers/{config.name}").num2words
  said = []
  for digits in draw(config.draws, config.longest, config.seed):
    words = say(int(digits), lang=config.language).replace(",", "").replace("-", " ")
    said.append(Number(digits, words, links(digits, words) if config.aligned else None))
  return said


def draw(draws: int, longest: int, seed: int) -> list[str]:
  """Returns the digits of random numbers, each once, without leading zeros."""
  # The old generator, because NumPy promises that its stream never changes.
  random = np.random.RandomState(seed)
  lengths = random.randint(1, longest + 1, size=draws)
  drawn = []
  for length in lengths.tolist():
    first = random.randint(0 if length == 1 else 1, 10)
    drawn.append("".join(map(str, [first, *random.randint(10, size=length - 1).tolist()])))
  return list(dict.fromkeys(drawn))


def links(digits: str, words: str) -> list[tuple[int, int]]:
  """Returns which digit each English word says, as (digit, word).

  `hundred` says the digit before it again, ten to nineteen say two digits, `thousand` and what is
  larger say the last of the three digits whose place they name, and `and` says none.

  Raises:
    ValueError: these are not the words of the number.
  """
  said: list[tuple[int, ...]] = []  # the digits of each word but `and`
  for end in range((len(digits) - 1) % 3 + 1, len(digits) + 1, 3):
    hundreds, tens, ones = list(digits[max(0, end - 3) : end].rjust(3, "0"))
    before = len(said)
    if hundreds != "0":
      said += [(end - 3,), (end - 3,)]
    if tens == "1":
      said.append((end - 2, end - 1))
    elif tens != "0":
      said.append((end - 2,))
    if (ones != "0" and tens != "1") or digits == "0":
      said.append((end - 1,))
    if len(said) > before and end < len(digits):
      said.append((end - 1,))
  spoken = [j for j, word in enumerate(words.split(" ")) if word != "and"]
  return [(i, j) for j, places in zip(spoken, said, strict=True) for i in places]
