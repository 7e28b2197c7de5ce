"""What the comparison with JoeyNMT tells it, and that its bar can come out each way."""

import dataclasses
import json
import sys
import time

import pytest

from attn import configs
from attn.data import catalog, corpora
from attn.data.config import DataConfig
from attn.report import recorder
from experiments import translation_benchmark as benchmark
from experiments.training_benchmark_work import ATTN, JOEYNMT

TEXTS = benchmark.Texts(
  ["a b c d", "e f g h"], [["a b c d", "a b d c"], ["the text of this one is its own"]]
)
RIGHT = ["a b c d", "the text of this one is its own"]
WRONG = ["a b c d", "the text of that one is another"]


@pytest.fixture
def record(tmp_path):
  return recorder.Recorder(
    "translation_benchmark", benchmark.Config(), benchmark.profiles(), tmp_path, seeds=(0,)
  )


@pytest.mark.parametrize(
  "ours, theirs, seconds, verdict",
  [
    (RIGHT, WRONG, (1.0, 2.0), "reached"),
    (RIGHT, RIGHT, (1.0, 2.0), "reached"),
    (WRONG, RIGHT, (1.0, 2.0), "missed"),
    (RIGHT, WRONG, (2.0, 1.0), "missed"),
  ],
)
def test_the_bar_needs_both_the_bleu_and_the_time(record, ours, theirs, seconds, verdict):
  config = benchmark.Config(resamples=20)
  times = dict(zip((ATTN, JOEYNMT), seconds, strict=True))
  outputs = {ATTN: ours, JOEYNMT: theirs}
  metrics = benchmark._judge(config, record, TEXTS, outputs, times, times)
  assert metrics["times as fast to train"].unit.endswith(f"{verdict})")
  assert metrics["times as fast to train"].mean == seconds[1] / seconds[0]
  assert metrics[f"{ATTN}: BLEU"].mean == pytest.approx(100) or ours is WRONG
  assert "nrefs:var" in metrics[f"{JOEYNMT}: BLEU"].unit
  assert 0 < metrics["p of the difference"].mean <= 1
  lines = [json.loads(line) for line in (record.workdir / "metrics.jsonl").read_text().splitlines()]
  assert [line["system"] for line in lines if "system" in line] == [ATTN, JOEYNMT]
  assert benchmark._figure(metrics, [ATTN, JOEYNMT]).axes[0].get_ylabel() == "BLEU"


def test_joeynmt_gets_the_same_pieces_and_sizes(tmp_path):
  catalog.prepare("reverse", tmp_path)
  data = DataConfig(name="reverse", data_dir=str(tmp_path), limit=37, bucket_edges=(13,))
  train = dataclasses.replace(benchmark.Config().train, data=data, steps=7)
  corpus = corpora.load(data, "train")
  vocabularies = corpora.vocabularies(data, corpus)
  training, testing = benchmark._joeynmt_commands(train, tmp_path, TEXTS, *vocabularies)
  assert training[-3:-1] == ["train", str(tmp_path / "joeynmt.train.yaml")]
  told, tested = (
    json.loads((tmp_path / f"joeynmt.{k}.yaml").read_text()) for k in ("train", "test")
  )
  assert testing[-3] == str(tmp_path / "joeynmt.test.yaml")
  assert testing[-1] == str(tmp_path / "joeynmt/output")
  assert told["training"]["updates"] == 7 and told["training"]["batch_size"] == data.batch_size
  assert told["model"]["decoder"]["hidden_size"] == train.model.units
  assert "dev" in told["data"] and "dev" not in tested["data"]
  lines = (tmp_path / "text/train.source").read_text().splitlines()
  kept = [t for t in corpus.sources if len(t.split()) < 13]
  assert lines == kept and 0 < len(kept) < 37
  assert (tmp_path / "text/test.target").read_text().splitlines() == [
    r[0] for r in TEXTS.references
  ]
  (tmp_path / "joeynmt").mkdir()
  (tmp_path / "joeynmt/output.test").write_text("a b\n\n")
  assert benchmark._joeynmt_outputs(tmp_path, vocabularies[1]) == ["a b", ""]


def test_systems_run_at_once_and_a_failure_ends_the_other(tmp_path):
  folders = {name: tmp_path / name for name in (ATTN, JOEYNMT)}
  sleep = [sys.executable, "-c", "import time; print('on', flush=True); time.sleep(0.3)"]
  seconds = benchmark._side_by_side(dict.fromkeys(folders, sleep), folders)
  assert seconds.keys() == folders.keys() and min(seconds.values()) > 0.3
  assert (tmp_path / JOEYNMT / "log.txt").read_text() == "on\n"
  commands = {
    ATTN: [sys.executable, "-c", "import time; time.sleep(600)"],
    JOEYNMT: [sys.executable, "-c", "raise SystemExit(3)"],
  }
  start = time.monotonic()
  with pytest.raises(RuntimeError, match=r"JoeyNMT ended with code 3: see .*log.txt"):
    benchmark._side_by_side(commands, folders)
  assert time.monotonic() - start < 300


def test_without_joeynmt_it_says_how_to_get_it(tmp_path, monkeypatch):
  monkeypatch.setattr(benchmark, "is_there", lambda peer: False)
  with pytest.raises(configs.ConfigError, match="make peers"):
    benchmark.run(benchmark.Config(), tmp_path)
  assert not list(tmp_path.iterdir())
