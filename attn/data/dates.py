"""`dates`: from a date as a language writes it to year-month-day, by Babel's copy of CLDR."""

import dataclasses
import datetime
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow_datasets as tfds

from attn.data import packages
from attn.data.builder import LINKS, PairsBuilder, links_array, splits

_REQUIREMENT = "babel==2.19.0"
_FIRST = datetime.date(1950, 1, 1)
_LAST = datetime.date(2049, 12, 31)
_STYLES = ("full", "long", "medium")
_SKELETONS = ("yMMMEd", "yMd", "yMEd")
# Where the fields of a pattern stand in yyyy-mm-dd.
_PLACES = {"y": range(0, 4), "M": range(5, 7), "L": range(5, 7), "d": range(8, 10)}


class Date(NamedTuple):
  """A date: as it is written, in ISO 8601, and the links of their characters, from 0."""

  written: str
  iso: str
  links: list[tuple[int, int]]


@dataclasses.dataclass(eq=False)
class DatesConfig(tfds.core.BuilderConfig):
  """In what language.

  Attributes:
    locale: what CLDR calls it.
    digest: of the text, `packages.digest`.
    seed: what the styles are drawn from.
  """

  locale: str = "en"
  digest: str = ""
  seed: int = 1


class Dates(PairsBuilder):
  """Every day of 1950 to 2049 once, in one of six styles drawn at random.

  A hash of the target decides the split: about 5% test, 5% dev, the rest train. Links are of
  characters: a digit with itself, each character of a month's name with both digits of the month.
  """

  VERSION = tfds.core.Version("1.0.0")
  BUILDER_CONFIGS = [
    DatesConfig(name="en", description="English, the year last", digest="73c9249dd3cd5588"),
    DatesConfig(
      name="hu", description="Hungarian, the year first", locale="hu", digest="6921f6f8e3a3d169"
    ),
    DatesConfig(
      name="ja", description="Japanese, the year first", locale="ja", digest="4900deadf2c256f1"
    ),
  ]
  DESCRIPTION = (
    "Dates as CLDR has a language write them and as ISO 8601 does, with the alignment of their"
    " characters."
  )
  HOMEPAGE = "https://babel.pocoo.org"
  LICENSE = "Unicode-3.0 (the patterns and names of CLDR)"
  FEATURES = {"alignment": LINKS}

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
    del dl_manager  # nothing to download
    config = self.builder_config
    written = dates(config)
    lines = (f"{date.iso} {date.written}" for date in written)
    packages.check(lines, config.digest, _REQUIREMENT, f"dates/{config.name}")
    parts = splits(written, lambda date: date.iso)
    return {name: self._generate_examples(part) for name, part in parts.items()}

  def _generate_examples(self, part: list[Date]) -> Iterator[tuple[str, dict[str, Any]]]:
    for date in part:
      yield (
        date.iso,
        {
          "source": date.written,
          "target": date.iso,
          "alignment": links_array(date.links),
        },
      )


def dates(config: DatesConfig) -> list[Date]:
  """Returns all days, each in a style of its own.

  Raises:
    DataError: Babel is not installed.
  """
  babel = packages.load("babel.dates", f"dates/{config.name}")
  locale = babel.Locale.parse(config.locale)
  styles = [babel.get_date_format(style, locale).pattern for style in _STYLES]
  styles += [locale.datetime_skeletons[skeleton].pattern for skeleton in _SKELETONS]
  patterns = [babel.tokenize_pattern(style) for style in styles]
  days = (_LAST - _FIRST).days + 1
  # The old generator, because NumPy promises that its stream never changes.
  drawn = np.random.RandomState(config.seed).randint(len(patterns), size=days)
  found = []
  for i, style in enumerate(drawn.tolist()):
    day = _FIRST + datetime.timedelta(days=i)
    fields = babel.DateTimeFormat(day, locale)
    parts = [
      (None, value) if kind == "chars" else (value[0], fields[value[0] * value[1]])
      for kind, value in patterns[style]
    ]
    found.append(aligned(parts, day.isoformat()))
  return found


def aligned(parts: list[tuple[str | None, str]], iso: str) -> Date:
  """Returns a date from its parts: the letter of each field, None of what is between, and its text.

  A number has its digits linked one to one from the right, a name with the whole number.
  """
  written, links = "", []
  for field, text in parts:
    places = _PLACES.get(field or "", range(0))
    here = range(len(written), len(written) + len(text))
    if text.isdecimal():
      links += list(zip(reversed(here), reversed(places), strict=False))
    else:
      links += [(i, j) for i in here for j in places]
    written += text
  return Date(written, iso, sorted(links))
