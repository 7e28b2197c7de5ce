"""`greek_english`: verses of the Greek New Testament and of the Berean Standard Bible, aligned."""

import dataclasses
import json
import pathlib
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import tensorflow_datasets as tfds

from attn.data import wheels
from attn.data.builder import LINKS, PairsBuilder, links_array, splits


class Verse(NamedTuple):
  """A verse: its number, the words of both sides, and their links, (source, target) from 0."""

  number: str
  greek: list[str]
  english: list[str]
  links: list[tuple[int, int]]


@dataclasses.dataclass(eq=False)
class WordsConfig(tfds.core.BuilderConfig):
  """What stands for a Greek word: the `column` of the source's table."""

  column: str = "text"


class GreekEnglish(PairsBuilder):
  """A verse a pair, words between blanks without punctuation, linked by hand.

  A hash of the verse's number decides its split: about 5% test, 5% dev, the rest train.
  """

  VERSION = tfds.core.Version("1.0.0")
  BUILDER_CONFIGS = [
    WordsConfig(name="forms", description="Greek words as they are written"),
    WordsConfig(name="lemmas", description="Greek words as a dictionary has them", column="lemma"),
  ]
  DESCRIPTION = (
    "The SBL Greek New Testament and the Berean Standard Bible with manual word alignment by"
    " BiblioNexus and Clear Bible."
  )
  HOMEPAGE = "https://github.com/Clear-Bible/Alignments"
  LICENSE = "CC BY 4.0 (alignment: BiblioNexus, Clear Bible; SBLGNT: SBL, Logos); BSB public domain"
  FEATURES = {"alignment": LINKS}

  # Read as a zip and never installed: it says that it is for Python below 3.12.
  WHEEL = wheels.Wheel(
    requirement="bible-alignments==0.4.2",
    file="bible_alignments-0.4.2-py3-none-any.whl",
    sha256="84f6b15e706657777824aac811567cb5cb2b38ad2b94497209f5f3c3f67b0984",
    python="3.11",
  )

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
    del dl_manager  # pip knows the user's index
    wheel = wheels.fetch(self.WHEEL, pathlib.Path(self.data_dir_root) / "downloads")
    with zipfile.ZipFile(wheel) as archive:
      aligned = verses(
        _table(archive.read("data/sources/SBLGNT.tsv")),
        _table(archive.read("data/eng/targets/BSB/nt_BSB.tsv")),
        json.loads(archive.read("data/eng/alignments/BSB/SBLGNT-BSB-manual.json"))["records"],
        self.builder_config.column,
      )
    parts = splits(aligned, lambda verse: verse.number)
    return {name: self._generate_examples(part) for name, part in parts.items()}

  def _generate_examples(self, part: list[Verse]) -> Iterator[tuple[str, dict[str, Any]]]:
    for verse in part:
      yield (
        verse.number,
        {
          "source": " ".join(verse.greek),
          "target": " ".join(verse.english),
          "alignment": links_array(verse.links),
        },
      )


def verses(
  greek: Iterable[dict[str, str]],
  english: Iterable[dict[str, str]],
  records: Iterable[dict[str, Any]],
  column: str,
) -> list[Verse]:
  """Returns the verses that have words on both sides and links between them.

  Args:
    greek: rows with `id`, of which letters 2 to 9 number the verse, and the words.
    english: rows with `id`, `source_verse`, `text` and `exclude`, which is filled for punctuation.
    records: groups of `source` and `target` ids; each source is linked to each target of a group.
    column: which one of the Greek words to take.
  """
  found: dict[str, Verse] = {}
  places: dict[str, tuple[str, int]] = {}  # of both sides: their ids differ in the first letter
  for row in greek:
    verse = found.setdefault(row["id"][1:9], Verse(row["id"][1:9], [], [], []))
    places[row["id"]] = verse.number, len(verse.greek)
    verse.greek.append(row[column])
  for row in english:
    if row["source_verse"] in found and not row["exclude"]:
      verse = found[row["source_verse"]]
      places[row["id"]] = verse.number, len(verse.english)
      verse.english.append(row["text"])
  for record in records:
    for source in record["source"]:
      for target in record["target"]:
        if source in places and target in places and places[source][0] == places[target][0]:
          found[places[source][0]].links.append((places[source][1], places[target][1]))
  return [verse._replace(links=sorted(set(verse.links))) for verse in found.values() if verse.links]


def _table(content: bytes) -> list[dict[str, str]]:
  """Returns the rows of a TSV with a header; quotes in it are nothing but quotes."""
  header, *lines = content.decode("utf-8").removesuffix("\n").split("\n")
  names = header.rstrip("\r").split("\t")
  return [dict(zip(names, line.rstrip("\r").split("\t"), strict=False)) for line in lines]
