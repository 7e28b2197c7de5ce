"""`kjv_rv1909`: the King James Version and the Reina-Valera of 1909, verses aligned by Strong."""

import collections
import functools
import pathlib
import re
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow_datasets as tfds

from attn.data import debs, packages
from attn.data.builder import LINKS, PairsBuilder, links_array, splits
from attn.data.errors import DataError

_FOLDER = "usr/share/sword/"
_TAG = re.compile(r"(<[^>]*>)")
_NAME = re.compile(r"<(?P<end>/?)(?P<name>\w+)")
# A phrase of several codes has the prefix before the first, which alone counts.
_CODE = re.compile(r"strong:(\w+)")
_TOKEN = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s¶]")
_NO_TEXT = ("title", "note")  # titles of psalms, which only one of the two sets apart
# Digests of all verses of a package, whatever build of it.
_DIGESTS = {"sword-text-kjv": "c4259d49692f94a5", "sword-text-sparv": "588266819de766ef"}

Links = list[tuple[int, int]]  # (source position, target position), from 0


class Text(NamedTuple):
  """The tokens of a verse, and the words of each phrase that has a code of Strong's, by code."""

  tokens: list[str]
  phrases: dict[str, list[list[int]]]


class Verse(NamedTuple):
  """A verse: its number, the tokens of both sides, their sure links and further possible ones."""

  number: str
  english: list[str]
  spanish: list[str]
  sure: Links
  possible: Links


class KjvRv1909(PairsBuilder):
  """A verse a pair, words and punctuation between blanks.

  Both texts give phrases the code that Strong's concordance has for the word of the original. Where
  a code occurs once on each side, a word and a word are a sure link (`alignment`), longer phrases
  are possible links of each word with each (`possible`). Words without a sure link are unlabelled:
  score the others only. A hash of the verse's number decides its split: about 5% test, 5% dev, the
  rest train.
  """

  VERSION = tfds.core.Version("1.0.0")
  DESCRIPTION = (
    "The King James Version and the Reina-Valera of 1909, as Debian 12 has them, with links from"
    " the codes of Strong's concordance that a verse has once on each side."
  )
  HOMEPAGE = "https://ebible.org"
  LICENSE = "public domain (in the United Kingdom the Crown has a patent on printing the former)"
  FEATURES = {
    "alignment": LINKS,
    "possible": LINKS,
  }

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
    del dl_manager  # it would need TensorFlow to unpack, and apt knows the user's mirror
    folder = pathlib.Path(self.data_dir_root) / "downloads"
    english, spanish = (_verses(package, folder) for package in _DIGESTS)
    parts = splits(verses(english, spanish), lambda verse: verse.number)
    return {name: self._generate_examples(part) for name, part in parts.items()}

  def _generate_examples(self, part: list[Verse]) -> Iterator[tuple[str, dict[str, Any]]]:
    for verse in part:
      yield (
        verse.number,
        {
          "source": " ".join(verse.english),
          "target": " ".join(verse.spanish),
          "alignment": links_array(verse.sure),
          "possible": links_array(verse.possible),
        },
      )


def verses(english: dict[str, str], spanish: dict[str, str]) -> list[Verse]:
  """Returns the verses that have words on both sides, from the marked-up text of each number."""
  found = []
  for number in [number for number in english if number in spanish]:
    source, target = read(english[number]), read(spanish[number])
    if source.tokens and target.tokens:
      found.append(Verse(number, source.tokens, target.tokens, *link(source, target)))
  return found


def read(marked_up: str) -> Text:
  """Returns the tokens and phrases of a verse in OSIS, without titles and notes."""
  tokens: list[str] = []
  phrases: dict[str, list[list[int]]] = collections.defaultdict(list)
  codes: list[str] = []
  start, left_out, run = 0, 0, ""
  for part in _TAG.split(marked_up + "<w>"):  # as if another phrase began: what is left counts
    tag = _NAME.match(part)
    if tag is None:
      run += "" if left_out else part
    elif tag["name"] in _NO_TEXT:
      left_out += -1 if tag["end"] else 1
    elif tag["name"] == "w" and not left_out:
      tokens += _TOKEN.findall(run)  # some phrases have no blank between them
      words = [i for i in range(start, len(tokens)) if tokens[i][0].isalnum()]
      for code in codes if tag["end"] else ():
        phrases[code].append(words)
      codes, start, run = _CODE.findall(part), len(tokens), ""
  return Text(tokens, dict(phrases))


def link(source: Text, target: Text) -> tuple[Links, Links]:
  """Returns the sure links of two sides, and the possible ones that are not sure."""
  sure: set[tuple[int, int]] = set()
  possible: set[tuple[int, int]] = set()
  for code, phrases in source.phrases.items():
    others = target.phrases.get(code, [])
    if len(phrases) == len(others) == 1:
      pairs = {(i, j) for i in phrases[0] for j in others[0]}
      (sure if len(phrases[0]) == len(others[0]) == 1 else possible).update(pairs)
  return sorted(sure), sorted(possible - sure)


def _verses(package: str, folder: pathlib.Path) -> dict[str, str]:
  """Returns the marked-up text of each verse of a package by its number, `Genesis 1:1`."""
  modules = packages.load("pysword.modules", "kjv_rv1909")
  path = debs.fetch(package, folder)
  with tempfile.TemporaryDirectory() as temporary:
    for name, content in debs.files(path, _FOLDER):
      file = pathlib.Path(temporary, name)
      file.parent.mkdir(parents=True, exist_ok=True)
      file.write_bytes(content)
    library = modules.SwordModules(temporary)
    (module,) = library.parse_modules()
    bible = library.get_bible_from_module(module)
    # It unpacks a book again for each verse of it: that would take more than half an hour.
    bible._decompressed_text = functools.cache(bible._decompressed_text)
    found = {
      f"{book.name} {chapter}:{verse}": text
      for books in bible.get_structure().get_books().values()
      for book in books
      for chapter in range(1, book.num_chapters + 1)
      for verse, text in enumerate(bible.get_iter(book.name, chapter, clean=False), 1)
    }
  if packages.digest(f"{n} {text}" for n, text in found.items()) != _DIGESTS[package]:
    raise DataError(
      f"{path} does not hold the text that {package} has in Debian 12: put that package in its"
      " place and run the command again"
    )
  return found
