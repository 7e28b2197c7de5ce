"""A user's own text: which lines are read, which are left out, and what is refused, in one line."""

import gzip
import json
import lzma
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn.configs import ConfigError
from attn.data import catalog, corpora, parallel_text, textfiles
from attn.data.config import DataConfig, TextFiles
from attn.data.errors import DataError

# As in the reports: what is no newline is inside a line.
ODD = b"a b\rc\n\xe2\x80\xa8x\ny\x0cz\n\xc2\x85w\n"


def _write(folder, **files):
  paths = {}
  for name, content in files.items():
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    paths[name] = str(path)
  return paths


def _one_line(caught):
  text = str(caught.value)
  assert "\n" not in text
  return text


# Lines.


def test_only_a_newline_ends_a_line(tmp_path):
  path = _write(tmp_path, odd=ODD)["odd"]
  assert textfiles.read_lines(path) == ["a b\rc", "\u2028x", "y\x0cz", "\u0085w"]


@pytest.mark.parametrize(
  ("content", "lines"),
  [
    (b"", []),
    (b"\n", [""]),
    (b"a", ["a"]),
    (b"a\n\nb\n\n", ["a", "", "b", ""]),
    (b"a\r\nb\r\n", ["a", "b"]),
    (b"a\r\r\nb\r", ["a\r", "b"]),
    (b"\xef\xbb\xbfa\n", ["a"]),
  ],
)
def test_ends_of_lines_and_of_the_file(tmp_path, content, lines):
  assert textfiles.read_lines(_write(tmp_path, file=content)["file"]) == lines


@settings(max_examples=20)
@given(st.lists(st.text(st.characters(exclude_characters="\n\r\ufeff", codec="utf-8"))))
def test_compression_changes_no_line(tmp_path_factory, lines):
  folder = tmp_path_factory.mktemp("text")
  plain = "".join(line + "\n" for line in lines).encode("utf-8")
  paths = _write(folder, plain=plain, gz=gzip.compress(plain), xz=lzma.compress(plain, preset=0))
  for path in paths.values():
    assert textfiles.read_lines(path) == lines


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress])
def test_bytes_that_are_not_utf_8_are_named_with_their_line_and_offset(tmp_path, compress):
  path = _write(tmp_path, latin=compress("größe\n".encode() + b"caf\xe9\nx\n"))["latin"]
  with pytest.raises(DataError) as caught:
    textfiles.read_lines(path)
  assert _one_line(caught).startswith(f"{path}: line 2 is not UTF-8 (byte 0xe9 at offset 11): ")


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b[:20] + b"\0\0\0" + b[23:]])
def test_a_damaged_archive_is_named(tmp_path, compress, damage):
  whole = compress(bytes(range(256)) * 40)
  path = _write(tmp_path, broken=damage(whole))["broken"]
  with pytest.raises(DataError, match="the compressed file is damaged") as caught:
    textfiles.read_lines(path)
  assert _one_line(caught).startswith(f"{path}: ")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
  with pytest.raises(DataError, match=r"^cannot read .*nowhere: No such file or directory$"):
    textfiles.read_lines(str(tmp_path / "nowhere"))
  with pytest.raises(DataError, match=r"^cannot read .*: Is a directory$"):
    parallel_text.configuration(TextFiles((str(tmp_path), None)))


# Pairs.


def test_a_blank_line_on_one_side_takes_its_pair_and_shifts_no_other(tmp_path):
  files = _write(tmp_path, s="a\n\nc\n \u3000\nd\n", t="x\ny\nz\n\t\n\r\n")
  read = textfiles.read_pairs(files["s"], files["t"], (1, 2))
  assert read.pairs == [("a", "x"), ("c", "z")]
  assert read.left_out == {"empty source": 1, "empty target": 1, "empty line": 1}


def test_uneven_files_are_refused_with_both_counts(tmp_path):
  files = _write(tmp_path, s="a\nb\nc\n", t="x\ny\n")
  with pytest.raises(DataError) as caught:
    textfiles.read_pairs(files["s"], files["t"], (1, 2))
  assert _one_line(caught) == (
    f"{files['s']} has 3 lines but {files['t']} has 2: line by line they must be pairs"
  )


def test_a_line_too_long_for_a_sentence_is_left_out(tmp_path):
  longest = "ä" * textfiles.LONGEST
  files = _write(tmp_path, s=f"a\n{longest}\n{longest}ä\nb\n", t=f"x\ny\nz\n{longest}ä\n")
  read = textfiles.read_pairs(files["s"], files["t"], (1, 2))
  assert read.pairs == [("a", "x"), (longest, "y")]
  assert read.left_out == {"too long": 2}


def test_a_table_has_its_sides_in_two_columns(tmp_path):
  path = _write(tmp_path, table="a b\tx\tcc-by\n\nc\t\td\n e\ty\t\r\n")["table"]
  assert textfiles.read_pairs(path, None, (1, 2)) == (
    [("a b", "x"), (" e", "y")],
    {"empty target": 1, "empty line": 1},
  )
  assert textfiles.read_pairs(path, None, (3, 1)).pairs == [("cc-by", "a b"), ("d", "c")]
  with pytest.raises(DataError) as caught:
    textfiles.read_pairs(path, None, (1, 4))
  assert _one_line(caught).startswith(f"{path}: line 1 has 3 columns, not 4: ")


# Splits.


def _pairs(count):
  return [(f"source {i}", f"target {i}") for i in range(count)]


def test_what_is_not_given_is_split_off_by_a_hash_of_the_source():
  pairs = _pairs(4000) + [("source 7", "another")]
  parts = parallel_text.split_off({"train": pairs})
  assert list(parts) == ["train", "dev", "test"]
  assert sorted(sum(parts.values(), [])) == sorted(pairs)
  sources = [{source for source, _ in part} for part in parts.values()]
  assert sum(map(len, sources)) == len(set.union(*sources)) == 4000
  for split in ("dev", "test"):
    assert 150 < len(parts[split]) < 250
  # Other files of the same sources are split in the same way, and so is a longer one.
  again = parallel_text.split_off({"train": pairs[:2000]})
  assert all(set(part) <= set(parts[split]) for split, part in again.items())
  given_dev = parallel_text.split_off({"train": pairs, "dev": [("d", "e")]})
  assert given_dev["dev"] == [("d", "e")]
  assert given_dev["test"] == parts["test"]
  assert sorted(given_dev["train"]) == sorted(parts["train"] + parts["dev"])


def test_a_large_file_gives_about_two_thousand_pairs_to_a_split():
  parts = parallel_text.split_off({"train": _pairs(100_000)})
  assert all(1800 < len(parts[split]) < 2200 for split in ("dev", "test"))


def test_too_few_pairs_to_split_are_refused():
  with pytest.raises(DataError, match=r"^3 pairs are too few to split dev off: give data.dev_so"):
    parallel_text.split_off({"train": _pairs(3)})
  dev, test = [("d", "e")], [("f", "g")]
  parts = parallel_text.split_off({"train": _pairs(3), "dev": dev, "test": test})
  assert parts == {"train": _pairs(3), "dev": dev, "test": test}


# Prepared.


def test_text_is_prepared_once_and_what_is_left_out_is_printed_and_kept(tmp_path, capsys):
  files = _write(
    tmp_path,
    source="".join(f"ein Satz {i}\n" for i in range(97)) + "\nnoch einer\n",
    target="".join(f"a sentence {i}\n" for i in range(97)) + "alone\none more\n",
    dev_source="eins\tone\nzwei\n".replace("zwei", "zwei\t"),
    test_source="drei\u2028\n",
    test_target="three\n",
  )
  data = DataConfig(name="parallel_text", data_dir=str(tmp_path / "data"), **files)
  train = corpora.load(data, "train")
  told = "parallel_text: left out of"
  assert capsys.readouterr().err.splitlines() == [
    f"{told} train: 1 (empty source)",
    f"{told} dev: 1 (empty target)",
  ]
  assert len(train) == 98
  assert ("noch einer", "one more") in zip(train.sources, train.targets, strict=True)
  dev, test = corpora.load(data, "dev"), corpora.load(data, "test")
  assert (dev.sources, dev.targets) == (("eins",), ("one",))
  assert (test.sources, test.targets) == (("drei\u2028",), ("three",))
  assert capsys.readouterr().err == ""
  folder = catalog.prepare(data.name, data.data_dir, data.files())
  assert json.loads((folder / "metadata.json").read_text()) == {
    "left_out": {"train": {"empty source": 1}, "dev": {"empty target": 1}}
  }
  # The name of the folder is that of the contents.
  (tmp_path / "moved").mkdir()
  for path in files.values():
    os.rename(path, tmp_path / "moved" / os.path.basename(path))
  moved = {name: str(tmp_path / "moved" / name) for name in files}
  changed = DataConfig(name="parallel_text", data_dir=data.data_dir, **moved)
  assert catalog.prepare(data.name, data.data_dir, changed.files()) == folder
  (tmp_path / "moved" / "test_target").write_text("trois\n")
  assert corpora.load(changed, "test").targets == ("trois",)
  assert corpora.load(changed, "train") == train


def test_what_is_wrong_with_a_file_comes_through_preparation_in_one_line(tmp_path):
  files = _write(tmp_path, source=b"a\nb\xff\n", target="x\ny\n")
  with pytest.raises(DataError, match=r"source: line 2 is not UTF-8 \(byte 0xff at offset 3\)"):
    corpora.load(DataConfig(name="parallel_text", data_dir=str(tmp_path / "data"), **files), "dev")
  (tmp_path / "source").write_text("\n \n")
  with pytest.raises(DataError, match="source holds no pair of two lines that are not empty"):
    corpora.load(DataConfig(name="parallel_text", data_dir=str(tmp_path / "data"), **files), "dev")
  assert not list((tmp_path / "data" / "parallel_text").glob("*/*"))


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"name": "g2p", "source": "a"}, "^source is for name=parallel_text, not g2p$"),
    ({"name": "g2p", "test_source": "a"}, "^test_source is for name=parallel_text"),
    ({"target": "b"}, "^target is given without source$"),
    ({"source": "a", "dev_target": "b"}, "^dev_target is given without dev_source$"),
    ({"source": "a", "target": "b", "columns": (2, 1)}, "a source without a target"),
    ({"source": "a", "columns": (0, 1)}, "counted from 1"),
  ],
)
def test_files_that_do_not_go_together_are_refused(changes, message):
  with pytest.raises(ConfigError, match=message):
    DataConfig(**{"name": "parallel_text", **changes})


def test_missing_files_are_asked_for(tmp_path):
  data = DataConfig(name="parallel_text", data_dir=str(tmp_path))
  with pytest.raises(ConfigError, match="give data.source=FILE and data.target=FILE, or a TSV"):
    corpora.load(data, "train")
