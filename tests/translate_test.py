"""launch.translate with models that have learned nothing: what it writes, and what it refuses."""

import dataclasses
import functools
import gzip
import io
import json
import lzma
import pathlib

import jax
import numpy as np
import pytest

from attn import models, training
from attn.configs import ConfigError
from attn.data.errors import DataError
from attn.data.vocabulary import UNK, Vocabulary
from attn.decoding import translation
from attn.models import ModelConfig
from launch import attention, attention_files, flags, resolve, translate
from tests import commands

SOURCE, TARGET = Vocabulary(tuple("abcd"), "character"), Vocabulary(("x", "y", "zz"), "symbol")
MODEL = ModelConfig(
  source_vocabulary=8, target_vocabulary=7, embedding=3, units=5, alignment=3, maxout=2,
  initialisation="glorot",
)  # fmt: skip
MODELS = {
  "a": (MODEL, SOURCE),
  "b": (dataclasses.replace(MODEL, units=7), SOURCE),
  "other": (MODEL, Vocabulary(tuple("abcde"), "character")),
  "fixed": (dataclasses.replace(MODEL, score="none"), SOURCE),
  "pieces": (MODEL, SOURCE),
}
SHORT = "ab\n\nd?c\nabab\n"
LINES = "ab\n\nd?c\n" + "a" * 37


@functools.cache
def params(model):
  drawn = jax.jit(models.init, static_argnums=0)(model, jax.random.key(0))
  return jax.tree.map(lambda leaf: 4 * leaf, drawn)


@pytest.fixture(autouse=True)
def trained(monkeypatch):
  """Folders of these names hold models."""

  def load(folder, average):
    assert average == 1
    model, source = MODELS[folder.name]
    config = training.TrainConfig(model=model)
    config = dataclasses.replace(
      config,
      data=dataclasses.replace(config.data, bucket_edges=(8,)),
      search=dataclasses.replace(config.search, beam=4, ratio=0.0, extra=3),
    )
    pieces = folder.name == "pieces"
    target = Vocabulary.build(["low lower"] * 20, "unigram", 12) if pieces else TARGET
    return training.Trained(params(model), config, source, target, 1)

  monkeypatch.setattr(resolve, "trained", load)


def run(folder, *words, text=LINES):
  """What is written for `text`, and the folder it is in."""
  (folder / "in").write_text(text)
  translate.FLAGS.unparse_flags()
  flags.parse(translate.FLAGS, [f"--input={folder}/in", f"--output={folder}/out", *words])
  assert translate.main(translate.FLAGS) == 0
  return (folder / "out").read_text()


def test_every_line_has_an_answer_whatever_is_in_it(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(translation, "_MOST_WEIGHTS", 4 * 4 * 3 * 8)  # too few for the last line
  lines = run(tmp_path, "--workdir=a", f"--attention={tmp_path}/w.jsonl").split("\n")
  assert len(lines) == 5 and lines[1] == lines[4] == ""
  assert set(" ".join(lines).split()) <= {"x", "y", "zz"}
  entries = [json.loads(line) for line in (tmp_path / "w.jsonl").read_text().splitlines()]
  assert [entry["line"] for entry in entries] == [0, 2]
  told = capsys.readouterr().err
  assert "symbols of the input that the model was not trained on: 1" in told
  assert "line 4 has 37 symbols" in told
  assert "line 4 is too long for its attention to be kept" in told


def test_the_best_few_and_their_attention(tmp_path):
  words = ["--workdir=a,b", "--nbest=3", f"--attention={tmp_path}/w.npz"]
  rows = [line.split(" ||| ") for line in run(tmp_path, *words, text=SHORT).splitlines()]
  assert [int(number) for number, _, _ in rows] == [0, 0, 0, 1, 2, 2, 2, 3, 3, 3]
  assert rows[3] == ["1", "", "0.000000"]
  for at in (0, 4, 7):
    scores = [float(score) for _, _, score in rows[at : at + 3]]
    assert scores == sorted(scores, reverse=True)
  run(tmp_path, *words[:2], f"--attention={tmp_path}/w.jsonl", text=SHORT)
  entries = [json.loads(line) for line in (tmp_path / "w.jsonl").read_text().splitlines()]
  answered = [row for row in rows if row[0] != "1"]
  assert [str(entry["line"]) for entry in entries] == [number for number, _, _ in answered]
  assert [entry["rank"] for entry in entries] == [0, 1, 2] * 3
  arrays = np.load(tmp_path / "w.npz")
  for entry, (_, text, score) in zip(entries, answered, strict=True):
    line = SHORT.split("\n")[entry["line"]]
    assert entry["source"] == [*line, "</s>"]
    assert " ".join(entry["target"]).removesuffix("</s>").strip() == text
    assert entry["score"] == pytest.approx(float(score), abs=1e-6)
    assert np.shape(entry["weights"]) == (len(entry["target"]), len(line) + 1)
    np.testing.assert_allclose(np.sum(entry["weights"], axis=1), 1.0, atol=1e-4)
    for name in ("source", "target", "weights", "score"):
      array = arrays[f"{entry['line']}.{entry['rank']}.{name}"]
      if name == "weights":
        np.testing.assert_allclose(array, entry[name], atol=1e-6)
      else:
        assert array.tolist() == pytest.approx(entry[name])
  assert len(arrays.files) == 4 * len(entries)


@pytest.mark.parametrize(
  ("words", "expected"),
  [
    (["--replace_unknown"], "b x a\nc x d\n"),
    (["--replace_unknown", "--nbest=1"], "0 ||| b x a ||| -1.000000\n1 ||| c x d ||| -1.000000\n"),
    (["--replace_unknown=words.tsv"], "two words x a\nc x d\n"),
    (["--noreplace_unknown"], "<unk> x <unk>\n<unk> x <unk>\n"),
    ([], "<unk> x <unk>\n<unk> x <unk>\n"),
  ],
)
def test_unknown_symbols_are_replaced_where_asked(words, expected, tmp_path, monkeypatch):
  """DMP-01: by the row that wrote them, never by EOS, whatever it draws."""
  monkeypatch.chdir(tmp_path)
  (tmp_path / "words.tsv").write_text("b\ttwo words\nb\tanother\n\ny\tz\n")
  asked = bool(words) and words != ["--noreplace_unknown"]

  def decoded(config, params, sources, search, **options):
    assert (UNK in search.forbidden, options["weights"]) == (not asked, asked)
    rows = [[0.1, 0.3, 0.6], [0.0, 0.0, 1.0], [0.2, 0.1, 0.7], [0.0, 0.0, 1.0]]
    weights = {"ab": np.array(rows), "cd": np.array(rows)[:, [1, 0, 2]]}
    return [
      translation.Translation(
        [UNK, 4, UNK], -1.0, True, weights[SOURCE.decode(ids)] if asked else None
      )
      for ids in sources
    ]

  monkeypatch.setattr(translation, "translate", decoded)
  assert run(tmp_path, "--workdir=a", *words, text="ab\ncd\n") == expected


def test_a_dictionary_has_two_columns(tmp_path):
  (tmp_path / "words.tsv").write_text("a\tb\nc\n")
  with pytest.raises(DataError, match="words.tsv: line 2 has 1 columns, not 2"):
    run(tmp_path, "--workdir=a", f"--replace_unknown={tmp_path}/words.tsv")


def test_without_weights_what_is_unknown_stays(tmp_path, monkeypatch, capsys):
  made = translation.Translation([UNK], -1.0, True, None)
  monkeypatch.setattr(
    translation, "translate", lambda c, p, sources, s, **_: [made for _ in sources]
  )
  assert run(tmp_path, "--workdir=a", "--replace_unknown", text="ab\n") == "<unk>\n"
  assert "line 1 is too long for its attention to be kept" in capsys.readouterr().err


@pytest.mark.parametrize(
  ("words", "error", "told"),
  [
    (["--workdir=a", "--nbest=5"], ConfigError, "n_best is 5; it must be from 1 to search.beam"),
    (["--workdir=a,other"], flags.UserError, "other has another source vocabulary than a: "),
    (["--workdir=a", "--set=model.units=3"], flags.UserError, "--set=model.units=3 is not about"),
    (["--workdir=a", "--set=search.bean=3"], ConfigError, "search.bea"),
    (["--workdir=fixed", "--set=search.coverage=1"], ConfigError, "search.coverage is 1.0; it"),
    (["--workdir=fixed", "--replace_unknown"], flags.UserError, "--replace_unknown: fixed is a"),
    (["--workdir=pieces", "--replace_unknown"], flags.UserError, "pieces writes pieces of words"),
    (["--workdir=fixed", "--attention=w.npz"], flags.UserError, "--attention: fixed is a model"),
  ],
)
def test_what_cannot_be_is_told_before_a_line_is_read(words, error, told, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(error, match=told):
    run(tmp_path, *words, text="")
  assert sorted(path.name for path in pathlib.Path().iterdir()) == ["in"]


@pytest.mark.parametrize("packed", [gzip.compress, lzma.compress])
def test_a_compressed_file_is_unpacked(packed, tmp_path, monkeypatch):
  monkeypatch.setattr(
    translate,
    "translator",
    lambda *_, **__: lambda lines, numbers: [[line.upper()] for line in lines],
  )
  data = packed(b"ab\n\ncd")
  for name, given in (("in", data), ("cut", data[:-5])):
    (tmp_path / name).write_bytes(given)
  words = [f"--input={tmp_path}/in", f"--output={tmp_path}/out", "--workdir=a"]
  translate.FLAGS.unparse_flags()  # what another test left
  assert commands.run(translate, *words) == 0
  assert (tmp_path / "out").read_bytes() == b"AB\n\nCD\n"
  told = commands.run(translate, f"--input={tmp_path}/cut", *words[1:])
  assert told.startswith(f"--input={tmp_path}/cut: the compressed file is damaged (")


def test_a_symbol_with_a_newline_makes_no_line_of_its_own(tmp_path, monkeypatch):
  """Data sets of TFDS have texts of several lines."""
  monkeypatch.setattr(TARGET.__class__, "decode", lambda self, ids: "x\ny")
  assert run(tmp_path, "--workdir=a", "--nbest=1", text="ab\n").startswith("0 ||| x y ||| -")


def test_a_page_leaves_out_lines_that_are_too_long_to_be_shown(capsys):
  trained = resolve.trained(pathlib.Path("a"), 1)
  lines = {"line 1": "a" * 500, "line 2": "ab" * 5_000, "line 4": "c"}
  assert list(attention.shown("in", lines, trained)) == ["line 1", "line 4"]
  assert capsys.readouterr().err == (
    "launch.attention: line 2 has 10,000 symbols and is left out: a page shows 500 at most\n"
  )
  with pytest.raises(flags.UserError, match="--input=in holds no line of at most 500 symbols"):
    attention.shown("in", {"line 2": "a" * 501}, trained)


def test_a_line_without_a_hypothesis_has_no_score():
  file = io.BytesIO()
  with attention_files.writer("x.jsonl", file) as write:
    write({"line": 0, "rank": 0, "score": float("-inf"), "weights": np.float32([[0.25]])})
  assert json.loads(file.getvalue()) == {"line": 0, "rank": 0, "score": None, "weights": [[0.25]]}


@pytest.mark.parametrize("count", range(1, 12))
def test_a_file_takes_at_most_four_programs_for_the_lengths_of_training(count):
  edges = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)[:count]
  kept = translate.few(edges)
  assert 1 <= len(kept) <= 4 and kept[-1] == edges[-1] and set(kept) <= set(edges)
  assert list(kept) == sorted(kept) and (count > 4 or kept == edges)
