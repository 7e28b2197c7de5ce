"""`libreoffice_help`: the help pages of LibreOffice 7.4, English and another language."""

import dataclasses
import hashlib
import html
import pathlib
import re
from typing import Any

import tensorflow_datasets as tfds

from attn.data import debs
from attn.data.builder import NumberedBuilder, splits
from attn.data.errors import DataError

_FOLDER = "usr/share/libreoffice/help/{}/text/"
_PARAGRAPH = re.compile(r'<(h[1-6]|p)\b[^>]*? id="((?:hd_|par_|N)\w+)"[^>]*>(.*?)</\1>', re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
# A sentence ends where its mark is followed by a blank and no small letter.
_END = re.compile(r"(?<=[.!?:]) (?=[^a-zà-öø-ÿ])")
# Digests of all paragraphs of a language: the text of 7.4.7, whatever build of the package.
_DIGESTS = {
  "en-US": "e6a59f1732dc3f0f",
  "de": "1ec810372aa84dee",
  "es": "402326b947b83b82",
  "fr": "6864c46548e5a81e",
  "it": "3f25998e703f5bb0",
}

Pages = dict[str, dict[str, str]]  # path of a page -> id of a paragraph -> its text


@dataclasses.dataclass(eq=False)
class LanguagesConfig(tfds.core.BuilderConfig):
  """English and the `other` language."""

  other: str = "de"


class LibreofficeHelp(NumberedBuilder):
  """Sentences of paragraphs that the pages of both languages have under one id.

  A paragraph whose sentences differ in number is left out, for it is a free translation, and so is
  what is the same on both sides and what was there before. All of a page is in one split, which a
  hash of its path decides: about 5% of the pages test, 5% dev, the rest train.
  """

  VERSION = tfds.core.Version("1.0.0")
  BUILDER_CONFIGS = [
    LanguagesConfig(name=f"en-{other}", description=f"English and {name}", other=other)
    for other, name in [("de", "German"), ("es", "Spanish"), ("fr", "French"), ("it", "Italian")]
  ]
  DESCRIPTION = "Sentences of the help pages of LibreOffice 7.4.7, as Debian 12 has them."
  HOMEPAGE = "https://help.libreoffice.org"
  LICENSE = "MPL-2.0"

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
    del dl_manager  # it would need TensorFlow to unpack, and apt knows the user's mirror
    folder = pathlib.Path(self.data_dir_root) / "downloads"
    english, other = (_pages(name, folder) for name in ("en-US", self.builder_config.other))
    pairs, left_out = aligned(english, other)
    self.info.metadata["left_out"] = {"the pages": left_out}
    return {
      name: self._generate_examples([(source, target) for _, source, target in part])
      for name, part in splits(pairs, lambda pair: pair[0]).items()
    }


def paragraphs(page: str) -> dict[str, str]:
  """Returns the text of each paragraph and heading of a page by its id, without tags."""
  found: dict[str, str] = {}
  for _, name, content in _PARAGRAPH.findall(page):
    text = " ".join(html.unescape(_TAG.sub("", content)).split())
    if text:
      found.setdefault(name, text)
  return found


def aligned(english: Pages, other: Pages) -> tuple[list[tuple[str, str, str]], dict[str, int]]:
  """Returns page, source and target of each pair, and how often what was left out."""
  pairs: dict[tuple[str, str], str] = {}
  left_out = {"sentences differ in number": 0, "the same on both sides": 0, "repeated": 0}
  for page in sorted(english.keys() & other.keys()):
    for name in [name for name in english[page] if name in other[page]]:
      sources, targets = _END.split(english[page][name]), _END.split(other[page][name])
      if len(sources) != len(targets):
        left_out["sentences differ in number"] += 1
        continue
      for pair in zip(sources, targets, strict=True):
        if pair[0] == pair[1]:
          left_out["the same on both sides"] += 1
        elif pair in pairs:
          left_out["repeated"] += 1
        else:
          pairs[pair] = page
  return [(page, *pair) for pair, page in pairs.items()], left_out


def _pages(language: str, folder: pathlib.Path) -> Pages:
  """Returns the paragraphs of all pages in a language."""
  path = debs.fetch(f"libreoffice-help-{language.lower()}", folder)
  pages, digest = {}, hashlib.sha256()
  for name, content in sorted(debs.files(path, _FOLDER.format(language))):
    pages[name] = paragraphs(content.decode("utf-8"))
    digest.update(f"{name} {pages[name]}\n".encode())
  if digest.hexdigest()[:16] != _DIGESTS[language]:
    raise DataError(
      f"{path} does not hold the text of LibreOffice 7.4.7: put the package of that name of Debian"
      " 12 in its place and run the command again"
    )
  return pages
