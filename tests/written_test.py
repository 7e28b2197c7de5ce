"""Data that packages of the extra `data` read or write: aligned verses, numbers, dates."""

import datetime
import lzma
import os
import pathlib
import re
import struct
import sys
import tarfile
import zlib
from io import BytesIO

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from attn.data import catalog, dates, kjv_rv1909, numbers, packages
from attn.data.errors import DataError

OPTIONAL = pathlib.Path(__file__).parents[2] / "shared" / "data"
UNITS = "zero one two three four five six seven eight nine".split()
TEENS = ("ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen").split()
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()


@pytest.fixture(autouse=True)
def _extra():
  for package in ("babel", "num2words", "pysword"):
    pytest.importorskip(package, reason=f"{package}, of the extra `data`, is not installed")


def _one_line(caught):
  text = str(caught.value)
  assert "\n" not in text
  return text


# Packages.


@pytest.mark.parametrize(
  ("name", "module"),
  [("numbers/en", "num2words"), ("dates/ja", "babel.dates"), ("kjv_rv1909", "pysword.modules")],
)
def test_a_package_that_is_not_installed_is_named_with_its_command(
  tmp_path, monkeypatch, name, module
):
  monkeypatch.setitem(sys.modules, module, None)
  package = module.partition(".")[0]
  with pytest.raises(DataError) as caught:
    catalog.prepare(name, tmp_path)
  assert _one_line(caught) == (
    f"{name} is made with {package}, which is not installed (the extra `data`): run"
    f" `python -m pip install {package}` and then the command again"
  )


def test_text_of_another_release_is_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(numbers.Numbers.builder_configs["en"], "draws", 5)
  with pytest.raises(DataError) as caught:
    catalog.prepare("numbers/en", tmp_path)
  assert re.fullmatch(
    r"num2words \S+ does not write numbers/en as num2words==0\.5\.14 does: run"
    r" `python -m pip install num2words==0\.5\.14` and then the command again",
    _one_line(caught),
  )
  assert not list(tmp_path.glob("numbers/en/*"))


# Numbers.


def _say(digits):
  config = numbers.NumbersConfig(name="en")
  say = packages.load("num2words", config.name).num2words
  return say(int(digits), lang="en").replace(",", "").replace("-", " ")


@given(st.text("0123456789", min_size=1, max_size=60).map(lambda s: s.lstrip("0") or "0"))
@example("0")
@example("1000000")
@example("910012000010115")
@example("9" * 60)
def test_a_number_word_is_linked_to_the_digits_that_it_says(digits):
  words = _say(digits).split(" ")
  links = numbers.links(digits, " ".join(words))
  assert links == sorted(links)  # monotone
  for j, word in enumerate(words):
    said = [i for i, k in links if k == j]
    text = "".join(digits[i] for i in said)
    # How many digits follow the last one says which place it is at.
    after = len(digits) - 1 - said[-1] if said else None
    if word == "and":
      assert not said
    elif word in UNITS:
      assert UNITS[int(text)] == word and (after % 3 == 0 or words[j + 1] == "hundred")
    elif word in TEENS:
      assert TEENS[int(text) - 10] == word and after % 3 == 0
    elif word in TENS:
      assert TENS[int(text)] == word and after % 3 == 1
    elif word == "hundred":
      assert after % 3 == 2 and (said[0], j - 1) in links
    else:
      assert _say("1" + "0" * after) == f"one {word}"
  unsaid = set(range(len(digits))) - {i for i, _ in links}
  assert all(digits[i] == "0" for i in unsaid)


def test_links_of_other_words_are_refused():
  with pytest.raises(ValueError, match="zip"):
    numbers.links("12", "twelve thousand")


def test_numbers_are_drawn_once_and_evenly_over_their_lengths():
  drawn = numbers.draw(6000, 60, seed=1)
  assert drawn == numbers.draw(6000, 60, seed=1) != numbers.draw(6000, 60, seed=2)
  assert len(set(drawn)) == len(drawn)
  assert all(digits == str(int(digits)) for digits in drawn)
  counts = np.bincount([len(digits) for digits in drawn])
  assert counts[1] == 10
  assert len(counts) == 61 and 60 < counts[4:].min() and counts.max() < 140


def test_small_numbers_go_through_the_catalog(tmp_path, monkeypatch):
  monkeypatch.setattr(packages, "check", lambda *arguments: None)
  for variety in ("en", "de"):
    monkeypatch.setattr(numbers.Numbers.builder_configs[variety], "draws", 200)
  english, german = (
    [catalog.load(f"numbers/{variety}", split, tmp_path) for split in catalog.SPLITS]
    for variety in ("en", "de")
  )
  for corpus, other in zip(english, german, strict=True):
    assert set(corpus.sources) == set(other.sources) and len(corpus)
    assert other.alignments is None
    for digits, words, links in zip(corpus.sources, corpus.targets, corpus.alignments, strict=True):
      assert words == _say(digits)
      assert list(map(tuple, links)) == numbers.links(digits, words)
  assert catalog.levels("numbers/en") == ("character", "symbol")
  assert catalog.levels("numbers/de") == ("character", "character")


# Dates.


def test_digits_are_linked_one_to_one_and_names_with_the_whole_month():
  parts = [("E", "Mon"), (None, ", "), ("M", "Mai"), (None, " "), ("d", "7"), ("y", "2031")]
  assert dates.aligned(parts, "2031-05-07") == (
    "Mon, Mai 72031",
    "2031-05-07",
    [(i, j) for i in (5, 6, 7) for j in (5, 6)] + [(9, 9), (10, 0), (11, 1), (12, 2), (13, 3)],
  )


@pytest.mark.parametrize("locale", ["en", "hu", "ja"])
def test_dates_are_what_babel_writes_and_links_join_what_is_the_same(monkeypatch, locale):
  monkeypatch.setattr(dates, "_LAST", datetime.date(1951, 12, 31))
  babel = packages.load("babel.dates", "dates")
  skeletons = babel.Locale.parse(locale).datetime_skeletons
  found = dates.dates(dates.Dates.builder_configs[locale])
  assert len(found) == 730
  styles = set()
  for written, iso, links in found:
    day = datetime.date.fromisoformat(iso)
    by = {style: babel.format_date(day, style, locale=locale) for style in dates._STYLES}
    by |= {s: babel.format_date(day, skeletons[s].pattern, locale) for s in dates._SKELETONS}
    styles |= {style for style, text in by.items() if text == written}
    assert written in by.values()
    for i, j in links:
      assert written[i] == iso[j] if written[i].isdecimal() else j in (5, 6)
    joined = {j for _, j in links}
    # All but the hyphens, and the zeros that are not written.
    assert all(iso[j] == "0" and j in (5, 8) for j in set(range(10)) - joined - {4, 7})
    linked = {i for i, _ in links}
    assert all(i in linked for i, letter in enumerate(written) if letter.isdecimal())
  assert styles == {*dates._STYLES, *dates._SKELETONS}


def test_a_year_of_dates_goes_through_the_catalog(tmp_path, monkeypatch):
  monkeypatch.setattr(dates, "_LAST", datetime.date(1950, 12, 31))
  monkeypatch.setattr(packages, "check", lambda *arguments: None)
  corpora = [catalog.load("dates/hu", split, tmp_path) for split in catalog.SPLITS]
  assert sum(map(len, corpora)) == 365 and all(map(len, corpora))
  for corpus in corpora:
    assert all(len(links) >= 7 for links in corpus.alignments)
  assert catalog.levels("dates/hu") == ("character", "character")


# Verses.

ENGLISH = (
  '<title>A <w lemma="strong:H9">Psalm</w></title><div sID="x"/>¶ In <w lemma="strong:H1">the'
  ' beginning</w> <w lemma="strong:H2">God\'s</w>, <w lemma="strong:H3">a</w>'
  '<note>not <w lemma="strong:H2">this</w></note> <w lemma="strong:H4 strong:H5">b</w>'
  ' <w lemma="strong:H4">c</w>d<w>e</w>f<x>g</x>.'
)
SPANISH = (
  '<w lemma="strong:H2">Dios</w> ¡<w lemma="strong:H1">el principio</w>!'
  ' <w lemma="strong:H4">x</w> <w lemma="strong:H5">y</w> <w lemma="strong:H9">z</w>'
)


def test_titles_notes_and_signs_are_left_out_and_phrases_keep_their_codes():
  assert kjv_rv1909.read(ENGLISH) == (
    ["In", "the", "beginning", "God's", ",", "a", "b", "c", "d", "e", "fg", "."],
    {"H1": [[1, 2]], "H2": [[3]], "H3": [[5]], "H4": [[6], [7]], "H5": [[6]]},
  )
  assert kjv_rv1909.read("<title>x</title> ") == ([], {})


def test_codes_that_both_sides_have_once_are_links():
  (verse,) = kjv_rv1909.verses(
    {"a": ENGLISH, "b": "", "c": "only"}, {"a": SPANISH, "b": SPANISH, "d": "only"}
  )
  assert verse.number == "a"
  assert verse.sure == [(3, 0), (6, 6)]
  assert verse.possible == [(1, 2), (1, 3), (2, 2), (2, 3)]


def _package(path, module, word):
  """Writes a Debian package of a Bible: 400 places of the Old Testament, a word and a number."""
  texts = [f'<w lemma="strong:H1">{word}</w> {i}'.encode() for i in range(400)]
  block = zlib.compress(b"".join(texts))
  starts = np.cumsum([0, *map(len, texts)]).tolist()
  folder = f"modules/texts/ztext/{module}/"
  files = {
    f"mods.d/{module}.conf": (
      f"[{module}]\nDataPath=./{folder}\nModDrv=zText\nSourceType=OSIS\nEncoding=UTF-8\n"
      "CompressType=ZIP\nBlockType=BOOK\nVersification=KJV\n"
    ).encode(),
    f"{folder}ot.bzz": block,
    f"{folder}ot.bzs": struct.pack("<III", 0, len(block), starts[-1]),
    f"{folder}ot.bzv": b"".join(
      struct.pack("<IIH", 0, start, len(text)) for start, text in zip(starts, texts, strict=False)
    ),
  }
  data = BytesIO()
  with tarfile.open(fileobj=data, mode="w:xz", preset=0) as tar:
    for name, content in files.items():
      member = tarfile.TarInfo(f"./usr/share/sword/{name}")
      member.size = len(content)
      tar.addfile(member, BytesIO(content))
  content = data.getvalue()
  header = f"{'data.tar.xz':<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
  path.write_bytes(b"!<arch>\n" + header.encode() + content)


def test_verses_come_out_of_their_packages(tmp_path, monkeypatch):
  folder = tmp_path / "downloads"
  folder.mkdir()
  _package(folder / "sword-text-kjv_1_all.deb", "engX", "word")
  _package(folder / "sword-text-sparv_1_all.deb", "spaX", "palabra")
  with pytest.raises(DataError, match="does not hold the text that sword-text-kjv has") as caught:
    catalog.prepare("kjv_rv1909", tmp_path)
  assert _one_line(caught).startswith(f"{folder}/sword-text-kjv_1_all.deb does not")
  monkeypatch.setattr(packages, "digest", lambda lines: "right")
  for package in kjv_rv1909._DIGESTS:
    monkeypatch.setitem(kjv_rv1909._DIGESTS, package, "right")
  corpora = [catalog.load("kjv_rv1909", split, tmp_path) for split in catalog.SPLITS]
  assert all(map(len, corpora)) and 350 < sum(map(len, corpora)) < 400
  for corpus in corpora:
    for source, target, sure, possible in zip(
      corpus.sources, corpus.targets, corpus.alignments, corpus.possible, strict=True
    ):
      assert source.replace("word", "palabra") == target
      assert sure.tolist() == [[0, 0]] and not possible.size
  assert catalog.levels("kjv_rv1909") == ("symbol", "symbol")


# All of it.


@pytest.fixture(scope="module")
def bible():
  """All real verses."""
  data = os.environ.get("ATTN_DATA_DIR", pathlib.Path(__file__).parents[1] / "data")
  folder = pathlib.Path(data) / "downloads"
  try:
    english, spanish = (kjv_rv1909._verses(package, folder) for package in kjv_rv1909._DIGESTS)
  except DataError as error:
    if "cannot download" not in str(error):
      raise
    pytest.skip(str(error))
  return kjv_rv1909.verses(english, spanish)


@pytest.mark.slow
def test_the_real_verses_have_all_links(bible):
  assert len(bible) == 31_084
  assert sum(len(verse.sure) for verse in bible) == 107_054
  assert sum(len(verse.possible) for verse in bible) == 364_797


@pytest.mark.slow
def test_the_real_verses_are_those_of_an_extract(bible):
  path = OPTIONAL / "apt_bible_kjv_rv1909_aligned" / "kjv_rv1909_wa.tsv.xz"
  if not path.exists():
    pytest.skip(f"the optional {path.name} is not there")
  with lzma.open(path, "rt", encoding="utf-8") as table:
    rows = [line.rstrip("\n").split("\t") for line in table]
  assert len(rows) == len(bible)
  for row, verse in zip(rows, bible, strict=True):
    links = [f"{i}-{j}" for i, j in verse.sure] + [f"{i}p{j}" for i, j in verse.possible]
    assert row[:3] == [verse.number, " ".join(verse.english), " ".join(verse.spanish)]
    assert sorted(row[3].split()) == sorted(links)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "pairs"),
  [(f"numbers/{variety}", 11_649) for variety in ("en", "de")]
  + [(f"dates/{locale}", 36_525) for locale in ("en", "hu", "ja")],
)
def test_the_text_is_that_of_the_pinned_release(tmp_path, name, pairs):
  corpora = [catalog.load(name, split, tmp_path) for split in catalog.SPLITS]
  assert sum(map(len, corpora)) == pairs
  assert len({source for corpus in corpora for source in corpus.sources}) == pairs
  if name == "numbers/en":
    assert max(target.count(" ") + 1 for c in corpora for target in c.targets) == 118
