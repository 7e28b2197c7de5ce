"""launch.evaluate: what it writes, and what it says."""

import functools
import json
import re
import subprocess
import sys

import pytest
import sacrebleu

from attn.data.vocabulary import Vocabulary
from attn.evaluation import comparison
from launch import evaluate
from tests import commands
from tests.commands import write

OUTPUTS = ["the cat sat on the mat", "it rains", "", "a b c d e f g h i j k l"]
REFERENCES = ["the cat sat on a mat", "it rains", "x", "a b c d e f g h i j k l"]


run = functools.partial(commands.run, evaluate)


def test_scores_of_files(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  write(
    tmp_path,
    out=OUTPUTS,
    new=REFERENCES,
    ref=REFERENCES,
    more=["the cat sat on the mat", "", " ", ""],
  )
  vocabulary = Vocabulary(("a", "b"), "symbol")
  (tmp_path / "run").mkdir()
  vocabulary.save("run/source.vocabulary.json")
  write(tmp_path, src=["a b a", "a z", "", "b " * 11])
  words = ("--references=ref,more", "--source=src", "--vocabulary=run", "--output=o.json")
  assert run("--hypotheses=out,new", *words, "--lengths=2,10") == 0
  out = capsys.readouterr().out
  shown, found = out.splitlines(), json.loads((tmp_path / "o.json").read_text())
  rows = {
    tuple(row[k] for k in ("metric", "by", "group", "system")): row for row in found["scores"]
  }
  assert len(rows) == 4 * 2 * (1 + 3 + 2) and len(shown) == 1 + len(rows) + 2
  exact = rows["sequence_accuracy", "all", "", "out"]
  assert (exact["value"], exact["n"], exact["difference"]) == (0.75, 4, None)
  assert (exact["low"], exact["high"]) == (0.25, 1.0)
  assert rows["sequence_accuracy", "all", "", "new"]["difference"] == 0.25
  assert rows["token_accuracy", "source length", "0-2", "out"]["value"] == pytest.approx(2 / 3)
  assert rows["sequence_accuracy", "source length", "11+", "out"]["n"] == 1
  assert rows["sequence_accuracy", "unknown words", "0%", "out"]["n"] == 2
  assert rows["sequence_accuracy", "unknown words", "over 25%", "out"]["n"] == 1
  expected = sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES, [OUTPUTS[0], None, None, None]])
  assert rows["bleu", "all", "", "out"]["value"] == pytest.approx(expected.score)
  assert "nrefs:var|bs:1000|seed:12345" in found["signatures"]["bleu"]
  (line,) = [one for one in shown if one.startswith("sequence_accuracy  all ") and "out" in one]
  assert line.split() == ["sequence_accuracy", "all", "out", "4", "0.7500", "[0.2500,", "1.0000]"]
  words = (*words[:2], "--vocabulary=run/source.vocabulary.json", "--output=-", "--lengths=2,10")
  assert run("--hypotheses=out,new", *words) == 0
  told = capsys.readouterr()
  assert json.loads(told.out) == found and told.err == out


def test_one_metric_by_words_of_the_source(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  write(tmp_path, out=OUTPUTS, ref=REFERENCES, src=["a"] * 4)
  words = ("--hypotheses=out", "--references=ref", "--metric=token_error_rate", "--source=src")
  assert run(*words) == 0
  out = capsys.readouterr().out
  assert re.findall(r"^token_error_rate +(\S.*?) +out +4 +(\S+)", out, re.M) == [
    ("all", "0.0952"),  # 2 edits of 21 tokens
    ("source length 0-10", "0.0952"),
  ]


@pytest.mark.parametrize(
  ("words", "told"),
  [
    (["--references=ref"], "--hypotheses=FILE is missing"),
    (["--hypotheses=out"], "--references=FILE is missing"),
    (["--hypotheses=out,out"], "--hypotheses has out twice"),
    (["--hypotheses=out,"], "--hypotheses=out, has a comma without a file"),
    (["--hypotheses=out", "--references=ref,,ref"], "--references=ref,,ref has a comma without"),
    (["--hypotheses=none"], "cannot read none: No such file"),
    (["--hypotheses=short"], "short has 1 lines but ref has 4: line by line they must be pairs"),
    (["--hypotheses=out", "--source=short"], "out has 4 lines but short has 1"),
    (["--hypotheses=empty", "--references=empty"], "empty has no lines"),
    (["--hypotheses=out", "--vocabulary=out"], "--vocabulary belongs to --source, which"),
    (
      ["--hypotheses=out", "--source=ref", "--vocabulary=out"],
      "--vocabulary=out: not a vocabulary",
    ),
    (["--hypotheses=out", "--source=ref", "--vocabulary=none"], "cannot read --vocabulary=none"),
    (
      ["--hypotheses=out", "--source=ref", "--vocabulary=run"],
      "cannot read --vocabulary=run/source.vocabulary.json: No such file",
    ),
    (
      ["--hypotheses=out", "--source=ref", "--vocabulary=a.json", "--output=a.json"],
      "--vocabulary and --output are the same file, a.json",
    ),
    (
      [
        "--hypotheses=out",
        "--source=ref",
        "--vocabulary=run",
        "--output=run/source.vocabulary.json",
      ],
      "--vocabulary and --output are the same file, run/source.vocabulary.json",
    ),
    (["--hypotheses=out", "--lengths=5"], "--lengths belongs to --source, which is missing"),
    (
      ["--hypotheses=out", "--source=ref", "--lengths=5,3"],
      "--lengths=5,3: expected rising whole numbers",
    ),
    (
      ["--hypotheses=out", "--source=ref", "--lengths=x"],
      "--lengths=x: expected rising whole numbers",
    ),
    (["--hypotheses=out", "--output=no/o.json"], "cannot write --output=no/o.json: No such file"),
    (["--hypotheses=no", "--output=no/o.json"], "cannot write --output=no/o.json: No such file"),
    (["--hypotheses=out", "--output=./ref"], "--references and --output are the same file, ref"),
    (["--hypotheses=bytes"], "bytes: line 2 is not UTF-8"),
  ],
)
def test_what_cannot_be_scored(tmp_path, monkeypatch, words, told):
  monkeypatch.chdir(tmp_path)
  write(tmp_path, out=OUTPUTS, ref=REFERENCES, short=["x"], empty=[])
  (tmp_path / "run").mkdir()
  (tmp_path / "bytes").write_bytes(b"a\n\xff\nb\nc\n")
  if not any(word.startswith("--references") for word in words) and words != ["--hypotheses=out"]:
    words = [*words, "--references=ref"]
  assert told in run(*words)


def test_evaluation_loads_no_models_and_no_data_sets(tmp_path):
  write(tmp_path, out=OUTPUTS, ref=REFERENCES)
  Vocabulary(("a",), "symbol").save(tmp_path / "v.json")
  program = (
    "import runpy, sys\n"
    f"sys.argv = ['x', '--hypotheses={tmp_path}/out', '--references={tmp_path}/ref', "
    f"'--source={tmp_path}/ref', '--vocabulary={tmp_path}/v.json']\n"
    "try:\n"
    "  runpy.run_module('launch.evaluate', run_name='__main__')\n"
    "except SystemExit as error:\n"
    "  assert error.code == 0\n"
    "assert 'attn.evaluation.comparison' in sys.modules\n"
    "print('LOADED', sorted({'flax', 'grain', 'tensorflow_datasets'} & set(sys.modules)))\n"
  )
  done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
  assert done.stdout.endswith("LOADED []\n") and done.stderr == "", done.stderr


def test_metrics_are_those_that_there_are():
  assert evaluate.METRICS == comparison.METRICS
