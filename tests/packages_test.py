"""Data that packages ship: how a package is fetched and read, and what is taken out of it."""

import errno
import hashlib
import io
import json
import os
import pathlib
import tarfile
import zipfile

import numpy as np
import pytest

from attn.data import catalog, debs, greek_english, libreoffice_help, wheels
from attn.data.builder import split_of
from attn.data.errors import DataError

FOLDER = "usr/share/libreoffice/help/{}/text/"


def _one_line(caught):
  text = str(caught.value)
  assert "\n" not in text
  return text


def _deb(path, files, compression="xz"):
  """Writes a Debian package of these files."""
  data = io.BytesIO()
  with tarfile.open(fileobj=data, mode=f"w:{compression}", preset=0) as tar:
    tar.addfile(tarfile.TarInfo("./usr"))
    for name, content in files.items():
      member = tarfile.TarInfo(f"./{name}")
      member.size = len(content)
      tar.addfile(member, io.BytesIO(content))
  members = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", "data.tar.xz": data.getvalue()}
  with path.open("wb") as archive:
    archive.write(b"!<arch>\n")
    for name, content in members.items():
      archive.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode())
      archive.write(content + b"\n" * (len(content) % 2))
  return path


def _fake_apt(folder, monkeypatch, body):
  program = folder / "bin" / "apt-get"
  program.parent.mkdir()
  program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/log\n{body}\n')
  program.chmod(0o755)
  monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
  return folder / "log"


# Debian packages.


def test_a_package_is_downloaded_kept_and_read(tmp_path, monkeypatch):
  served = _deb(tmp_path / "served", {"usr/a/x/one": b"1", "usr/a/two": b"22", "usr/b/no": b"3"})
  log = _fake_apt(tmp_path, monkeypatch, f"cp '{served}' some-help_1%3a2_all.deb")
  folder = tmp_path / "data" / "downloads"
  (folder / "incomplete.some-help.killed").mkdir(parents=True)
  path = debs.fetch("some-help", folder)
  assert path == folder / "some-help_1%3a2_all.deb"
  assert os.listdir(folder) == [path.name]
  assert debs.fetch("some-help", folder) == path
  assert log.read_text() == "download --quiet some-help\n"
  assert list(debs.files(path, "usr/a/")) == [("x/one", b"1"), ("two", b"22")]


@pytest.mark.parametrize(
  ("body", "reason"),
  [
    ("echo 'W: a' >&2; echo 'E: Unable to locate it' >&2; exit 100", "Unable to locate it"),
    ("exit 1", "apt-get does not say why"),
  ],
)
def test_when_apt_fails_reason_command_and_folder_are_named(tmp_path, monkeypatch, body, reason):
  _fake_apt(tmp_path, monkeypatch, body)
  with pytest.raises(DataError) as caught:
    catalog.prepare("libreoffice_help/en-de", tmp_path / "data")
  folder = tmp_path / "data" / "downloads"
  assert _one_line(caught) == (
    f"cannot download the Debian package libreoffice-help-en-us ({reason}); on a Debian 12 with a"
    f" network run `apt-get download libreoffice-help-en-us`, put the file into {folder} and run"
    " the command again"
  )
  assert not list(folder.glob("*help*"))


def test_without_apt_there_is_still_the_way_by_hand(tmp_path, monkeypatch):
  monkeypatch.setenv("PATH", str(tmp_path))
  with pytest.raises(DataError, match=r"\(there is no apt-get here\); on a Debian 12"):
    debs.fetch("some-help", tmp_path / "downloads")


def test_a_disk_that_apt_fills_is_called_full(tmp_path, monkeypatch):
  _fake_apt(tmp_path, monkeypatch, "echo 'E: write (28: No space left on device)' >&2; exit 100")
  with pytest.raises(OSError) as caught:
    debs.fetch("some-help", tmp_path / "downloads")
  assert caught.value.errno == errno.ENOSPC


@pytest.mark.parametrize("damage", [lambda b: b[:300], lambda b: b"no archive", lambda b: b[:8]])
def test_a_damaged_package_is_named(tmp_path, damage):
  path = _deb(tmp_path / "x.deb", {"usr/a": bytes(range(256)) * 9})
  path.write_bytes(damage(path.read_bytes()))
  with pytest.raises(DataError, match="is damaged, or no package of Debian 12") as caught:
    list(debs.files(path, "usr/"))
  assert _one_line(caught).startswith(f"{path} is ")


# LibreOffice's help.

PAGE = """<html><body><h1 id="hd_id1" dir="auto">The {word} &amp;
 <span class="emph">Menu</span></h1>
<p id="par_id2" class="paragraph">Opens it. Click {word}, e.g. twice.</p><p id="bm_x">Debug</p>
<p class="paragraph">without id</p><p id="par_id3"> </p><p id="N0012">{rest}</p>
<p id="par_id2">The same id again.</p></body></html>"""


def test_paragraphs_lose_tags_and_entities_and_keep_the_first_of_an_id():
  assert libreoffice_help.paragraphs(PAGE.format(word="File", rest="x")) == {
    "hd_id1": "The File & Menu",
    "par_id2": "Opens it. Click File, e.g. twice.",
    "N0012": "x",
  }


def test_sentences_are_paired_where_both_sides_have_as_many():
  english = {
    "b": {"1": "One. Two!", "2": "Only here.", "3": "A. B. C.", "4": "=SUM()"},
    "a": {"1": "Two! One.", "9": "Two!"},
    "c": {"1": "Alone."},
  }
  other = {
    "b": {"1": "Eins. Zwei!", "3": "A und B. C.", "4": "=SUM()"},
    "a": {"1": "Zwei! Eins.", "9": "Zwei!"},
  }
  pairs, left_out = libreoffice_help.aligned(english, other)
  assert pairs == [("a", "Two!", "Zwei!"), ("a", "One.", "Eins.")]
  assert left_out == {
    "sentences differ in number": 1,
    "the same on both sides": 1,
    "repeated": 3,
  }


def _help_packages(folder, monkeypatch):
  folder.mkdir(parents=True)
  for language, word, end in (("en-US", "File", "More."), ("de", "Datei", "Mehr.")):
    pages = {
      f"{FOLDER.format(language)}p{i}.html": PAGE.format(word=f"{word}{i}", rest=end).encode()
      for i in range(120)
    }
    # TFDS takes two texts for one key if they differ in / and \ only.
    slashes = f'<p id="N1">{word}0 a/b</p><p id="N2">{word}0 a\\b</p>'
    pages[f"{FOLDER.format(language)}p0.html"] += slashes.encode()
    path = _deb(folder / f"libreoffice-help-{language.lower()}_7_all.deb", pages)
    digest = hashlib.sha256()
    for name, content in sorted(debs.files(path, FOLDER.format(language))):
      found = libreoffice_help.paragraphs(content.decode())
      digest.update(f"{name} {found}\n".encode())
    monkeypatch.setitem(libreoffice_help._DIGESTS, language, digest.hexdigest()[:16])


def test_a_page_is_in_one_split_and_what_is_left_out_is_counted(tmp_path, monkeypatch, capsys):
  _help_packages(tmp_path / "downloads", monkeypatch)
  name = "libreoffice_help/en-de"
  corpora = {split: catalog.load(name, split, tmp_path) for split in catalog.SPLITS}
  assert capsys.readouterr().err == (
    f"{name}: left out of the pages: 0 (sentences differ in number), 120 (the same on both"
    " sides), 119 (repeated)\n"
  )
  assert sum(map(len, corpora.values())) == 243
  for split, corpus in corpora.items():
    assert len(corpus)
    for source, target in zip(corpus.sources, corpus.targets, strict=True):
      if source != "More.":
        number = "".join(filter(str.isdigit, source))
        assert target == source.replace("File", "Datei")
        assert split_of(f"p{number}.html") == split
  assert catalog.levels(name) == ("bpe", "bpe")
  with pytest.raises(DataError, match="did you mean 'libreoffice_help/en-"):
    catalog.prepare("libreoffice_help/de-en", tmp_path)


def test_another_version_of_the_help_is_refused(tmp_path, monkeypatch):
  _help_packages(tmp_path / "downloads", monkeypatch)
  monkeypatch.setitem(libreoffice_help._DIGESTS, "de", "0" * 16)
  with pytest.raises(DataError, match="does not hold the text of LibreOffice 7.4.7") as caught:
    catalog.prepare("libreoffice_help/en-de", tmp_path)
  assert _one_line(caught).startswith(f"{tmp_path}/downloads/libreoffice-help-de_7_all.deb does")


def _prepared_or_skip(name):
  folder = os.environ.get("ATTN_DATA_DIR", pathlib.Path(__file__).parents[1] / "data")
  try:
    catalog.prepare(name, folder)
  except DataError as error:
    if "cannot download" not in str(error):
      raise
    pytest.skip(str(error))
  return {split: catalog.load(name, split, folder) for split in catalog.SPLITS}


@pytest.mark.slow
def test_real_help_has_the_totals_of_its_pages():
  corpora = _prepared_or_skip("libreoffice_help/en-de")
  assert {split: len(c) for split, c in corpora.items()} == {
    "train": 39_505,
    "dev": 1_799,
    "test": 1_695,
  }
  pairs = [set(zip(c.sources, c.targets, strict=True)) for c in corpora.values()]
  assert len(set.union(*pairs)) == sum(map(len, pairs)) == 42_999


# Greek and English.

GREEK = [
  {"id": "n40001001001", "text": "Βίβλος", "lemma": "βίβλος"},
  {"id": "n40001001002", "text": "γενέσεως", "lemma": "γένεσις"},
  {"id": "n40001002001", "text": "Ἀβραὰμ", "lemma": "Ἀβραάμ"},
  {"id": "n40001003001", "text": "δὲ", "lemma": "δέ"},
]
ENGLISH = [
  {"id": "40001001001", "source_verse": "40001001", "text": "The", "exclude": ""},
  {"id": "40001001002", "source_verse": "40001001", "text": ",", "exclude": "y"},
  {"id": "40001001003", "source_verse": "40001001", "text": "book", "exclude": ""},
  {"id": "40001002001", "source_verse": "40001001", "text": "generation", "exclude": ""},
  {"id": "40001002002", "source_verse": "40001002", "text": "Abraham", "exclude": ""},
  {"id": "40001003001", "source_verse": "40001003", "text": "And", "exclude": ""},
  {"id": "40001004001", "source_verse": "40001004", "text": "nobody", "exclude": ""},
]
RECORDS = [
  {"source": ["n40001001002"], "target": ["40001002001"]},
  {"source": ["n40001001001"], "target": ["40001001001", "40001001002", "40001001003"]},
  {"source": ["n40001002001"], "target": ["40001002002", "40001002001"]},
  {"source": ["n40001009001"], "target": ["40001002002"]},
]


def test_verses_are_those_of_the_source_and_links_stay_inside_them():
  assert greek_english.verses(GREEK, ENGLISH, RECORDS, "text") == [
    ("40001001", ["Βίβλος", "γενέσεως"], ["The", "book", "generation"], [(0, 0), (0, 1), (1, 2)]),
    ("40001002", ["Ἀβραὰμ"], ["Abraham"], [(0, 0)]),
  ]
  (first, second) = greek_english.verses(GREEK, ENGLISH, RECORDS, "lemma")
  assert (first.greek, second.greek) == (["βίβλος", "γένεσις"], ["Ἀβραάμ"])


def test_greek_comes_out_of_its_wheel(tmp_path, monkeypatch):
  (tmp_path / "downloads").mkdir()
  path = tmp_path / "downloads" / greek_english.GreekEnglish.WHEEL.file

  def table(rows):
    lines = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
    return "\r\n".join(lines) + "\r\n"

  greek = [{**row, "id": f"n4{i:04}001001"} for i, row in enumerate(GREEK[:1] * 99)]
  english = [
    {**row, "id": f"4{i:04}001001", "source_verse": f"4{i:04}001"}
    for i, row in enumerate(ENGLISH[:1] * 99)
  ]
  records = [{"source": [f"n4{i:04}001001"], "target": [f"4{i:04}001001"]} for i in range(99)]
  with zipfile.ZipFile(path, "w") as archive:
    archive.writestr("data/sources/SBLGNT.tsv", table(greek))
    archive.writestr("data/eng/targets/BSB/nt_BSB.tsv", table(english))
    links = json.dumps({"records": records})
    archive.writestr("data/eng/alignments/BSB/SBLGNT-BSB-manual.json", links)
  digest = hashlib.sha256(path.read_bytes()).hexdigest()
  wheel = wheels.Wheel("bible-alignments==0.4.2", path.name, digest, python="3.11")
  monkeypatch.setattr(greek_english.GreekEnglish, "WHEEL", wheel)
  corpora = [catalog.load("greek_english/lemmas", split, tmp_path) for split in catalog.SPLITS]
  assert sum(map(len, corpora)) == 99 and all(map(len, corpora))
  for corpus in corpora:
    assert set(corpus.sources) == {"βίβλος"} and set(corpus.targets) == {"The"}
    assert all(np.array_equal(links, [[0, 0]]) for links in corpus.alignments)


@pytest.mark.slow
def test_real_greek_has_all_links():
  corpora = _prepared_or_skip("greek_english/lemmas")
  assert {split: len(corpus) for split, corpus in corpora.items()} == {
    "train": 7_128,
    "dev": 408,
    "test": 383,
  }
  assert sum(len(links) for c in corpora.values() for links in c.alignments) == 189_473
  words = {word for c in corpora.values() for source in c.sources for word in source.split(" ")}
  assert len(words) == 5_466
