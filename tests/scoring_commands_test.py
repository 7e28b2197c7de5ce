"""launch.align and launch.score: what they write, and what they say."""

import dataclasses
import functools
import math
import re

import jax
import numpy as np
import pytest

from attn import models
from attn.data.config import DataConfig
from attn.data.vocabulary import EOS, Vocabulary
from attn.evaluation import alignment
from attn.models import ModelConfig
from attn.training import TrainConfig, Trained
from launch import align, resolve, score
from tests.commands import run, write

LETTERS, TONES = tuple("abcde"), tuple("KLMNO")
SOURCES = ["a b c", "", "d", "x x a b", "c"]
TARGETS = ["K L", "K", "", "M N O", "L"]


CONFIG = ModelConfig(
  source_vocabulary=9,
  target_vocabulary=9,
  embedding=5,
  units=7,
  alignment=3,
  maxout=2,
  biases=True,
  initialisation="glorot",
)


@functools.cache
def trained(reverse=False):
  """A model that has learned nothing; large weights make it decided."""
  sides = (Vocabulary(LETTERS, "symbol"), Vocabulary(TONES, "symbol"))[:: -1 if reverse else 1]
  # As many symbols on both sides: the two directions share all programs.
  params = jax.jit(models.init, static_argnums=0)(CONFIG, jax.random.key(5 + reverse))
  params = jax.tree.map(lambda leaf: 4 * leaf, params)
  data = DataConfig(name="reverse", batch_size=8, bucket_edges=(8,))
  return Trained(params, TrainConfig(model=CONFIG, data=data), *sides, 1)


@jax.jit
def teacher_forced(params, *given):
  made = models.bind(CONFIG, params).teacher_forced(*given)
  return jax.nn.log_softmax(made.logits), made.weights


def along(model, pairs):
  """Log-probabilities of the symbols of each target, and attention without EOS."""
  source, target = np.zeros((2, 5, 6), np.int32)
  lengths = []
  for row, texts in enumerate(pairs):
    ids, labels = (
      [*side.encode(text), EOS]
      for side, text in zip((model.source, model.target), texts, strict=True)
    )
    source[row, : len(ids)], target[row, : len(labels)] = ids, labels
    lengths.append((len(ids), len(labels)))
  found = teacher_forced(model.params, source, np.array(lengths)[:, 0], target)
  log_probs, weights = map(np.asarray, found)
  return [
    (log_probs[row, np.arange(t), target[row, :t]], weights[row, : t - 1, : s - 1])
    for row, (s, t) in enumerate(lengths)
  ]


def links_of(reverse=False, threshold=None):
  """The links of every pair, as (source, target)."""
  pairs = zip(SOURCES, TARGETS, strict=True)
  made = along(trained(reverse), [pair[:: -1 if reverse else 1] for pair in pairs])
  found = [alignment.links(weights, threshold) for _, weights in made]
  return [{(s, t) for t, s in one} for one in found] if reverse else found


@pytest.fixture
def runs(tmp_path, monkeypatch):
  """A folder with texts, and runs called `forward`, `reverse` and `blind`."""
  monkeypatch.chdir(tmp_path)
  write(tmp_path, src=SOURCES, tgt=TARGETS, short=["a"])
  config = dataclasses.replace(CONFIG, score="none")
  known = {
    "forward": trained(),
    "reverse": trained(reverse=True),
    "blind": trained()._replace(config=dataclasses.replace(trained().config, model=config)),
    "twin": trained()._replace(params=trained(reverse=True).params),
  }
  monkeypatch.setattr(resolve, "trained", lambda folder, _: known[str(folder)])
  return tmp_path


PAIR = ("--source=src", "--target=tgt")


def test_each_pair_has_its_log_probability(runs, capfd):
  write(runs, src=[*SOURCES, " \t"], tgt=[*TARGETS, " \u3000"])
  assert run(score, "--workdir=forward", *PAIR, "--output=scores.tsv") == 0
  *lines, last = (runs / "scores.tsv").read_text().split("\n")
  assert len(lines) == 6 and lines[-1] == last == ""
  total = symbols = 0
  made = along(trained(), list(zip(SOURCES, TARGETS, strict=True)))
  for line, target, (log_probs, _) in zip(lines, TARGETS, made, strict=False):
    found = line.split("\t")
    assert float(found[0]) == pytest.approx(log_probs.sum(), abs=1e-4)
    assert int(found[1]) == len(target.split()) + 1
    assert float(found[2]) == pytest.approx(math.exp(-log_probs.mean()), rel=1e-4)
    total, symbols = total + log_probs.sum(), symbols + len(log_probs)
  told = capfd.readouterr()
  assert told.err == "" and told.out.endswith(f" of {symbols} symbols, 5 lines\n")
  found = float(told.out.split()[1])
  assert found == pytest.approx(math.exp(-total / symbols), rel=1e-4)
  assert run(score, "--workdir=forward", *PAIR) == 0
  told = capfd.readouterr()
  assert told.out.split("\n")[:-1] == lines and told.err.startswith("perplexity ")


@pytest.mark.parametrize(
  ("words", "joined"),
  [
    ([], lambda one, other: np.logaddexp(one, other) - math.log(2)),
    # The mean of two log-probabilities is normalised again: it was no lower.
    (["--set=search.ensemble=logits"], None),
  ],
)
def test_several_runs_score_together(runs, words, joined):
  assert run(score, "--workdir=forward,twin", *PAIR, "--output=scores.tsv", *words) == 0
  found = [line.split("\t") for line in (runs / "scores.tsv").read_text().split("\n")[:-1]]
  pairs = list(zip(SOURCES, TARGETS, strict=True))
  twin = trained()._replace(params=trained(reverse=True).params)
  both = zip(along(trained(), pairs), along(twin, pairs), strict=True)
  for line, ((one, _), (other, _)) in zip(found, both, strict=True):
    if joined:
      assert float(line[0]) == pytest.approx(joined(one, other).sum(), abs=1e-4)
    else:
      assert float(line[0]) > (one + other).sum() / 2 + 1e-3


def test_links_of_one_run_and_of_two(runs, capfd):
  forward, back = links_of(), links_of(reverse=True)
  assert run(align, "--workdir=forward", *PAIR) == 0
  out = capfd.readouterr().out
  assert out == "".join(" ".join(f"{s}-{t}" for s, t in sorted(one)) + "\n" for one in forward)
  assert out.split("\n")[1:3] == ["", ""]
  assert run(align, "--workdir=forward,reverse", "--symmetrise=union", *PAIR) == 0
  found = capfd.readouterr().out.split("\n")[:-1]
  pairs = [{tuple(map(int, link.split("-"))) for link in line.split()} for line in found]
  assert pairs == [one | other for one, other in zip(forward, back, strict=True)]
  assert run(align, "--workdir=forward", "--threshold=0.1", *PAIR, "--output=links") == 0
  many = [line.split() for line in (runs / "links").read_text().split("\n")[:-1]]
  assert many == [[f"{s}-{t}" for s, t in sorted(one)] for one in links_of(threshold=0.1)]


def test_links_are_held_against_gold(runs, capfd):
  gold = links_of()
  s, t = min(gold[0])
  lines = [f"1 {s + 1} {t + 1} P"] + [f"4 {s + 1} {t + 1}" for s, t in gold[3]] + ["5 1 1 S"]
  write(runs, gold=lines)
  words = ("--workdir=forward", *PAIR, "--gold=gold", "--gold_format=naacl", "--lengths=2")
  assert run(align, *words, "--output=links") == 0
  told = capfd.readouterr()
  assert told.err == ""
  rows = dict(re.findall(r"^(\w+ +\S.*?) +attention +\S+ +(\S+)", told.out, re.M))
  rows = {" ".join(name.split()): float(value) for name, value in rows.items()}
  # 2 + 3 + 1 links, of which 1 + 3 + 1 may be; 3 + 1 must be, and are.
  assert rows["error_rate all"] == pytest.approx(1 - (4 + 5) / (6 + 4), abs=1e-4)
  assert rows["precision all"] == pytest.approx(5 / 6, abs=1e-4) and rows["recall all"] == 1
  assert rows["error_rate source length 0-2"] == 0
  assert rows["precision unknown words over 25%"] == 1
  assert run(align, *words) == 0
  assert "error_rate" in capfd.readouterr().err
  write(runs, gold=lines[1:])
  assert run(align, *words, "--output=links") == 0
  assert capfd.readouterr().err == (
    "launch.align: gold: lines with words but without a link: 1 of 5; what is found there counts as"
    " wrong\n"
  )


@pytest.mark.parametrize(
  ("command", "words", "told"),
  [
    (score, ["--workdir=forward", "--source=src"], "--target=FILE is missing"),
    (score, [*PAIR], "--workdir=RUN is missing"),
    (score, ["--workdir=forward", "--source=src", "--target=short"], "src has 5 lines but short"),
    (
      score,
      ["--workdir=forward", *PAIR, "--output=src"],
      "--source and --output are the same file",
    ),
    (
      align,
      ["--workdir=forward", *PAIR, "--output=tgt"],
      "--target and --output are the same file",
    ),
    (
      score,
      ["--workdir=forward,reverse", *PAIR],
      "reverse has another source vocabulary than forward: models that work together",
    ),
    (
      score,
      ["--workdir=forward", *PAIR, "--set=search.beam=2"],
      "--set=search.beam=2: of all settings, scores depend on search.ensemble alone",
    ),
    (score, ["--workdir=forward", *PAIR, "--output=no/o"], "cannot write --output=no/o: No such"),
    (align, ["--workdir=none", *PAIR, "--output=no/o"], "cannot write --output=no/o: No such"),
    (align, ["--workdir=forward", "--target=tgt"], "--source=FILE is missing"),
    (align, ["--workdir=a,b,c", *PAIR], "--workdir=a,b,c: give one run, or one and its reverse"),
    (align, ["--workdir=blind", *PAIR], "blind is a model without attention: it links nothing"),
    (align, ["--workdir=forward", "--threshold=0", *PAIR], "--threshold=0: give a weight above 0"),
    (align, ["--workdir=forward", "--threshold=nan", *PAIR], "--threshold=nan: give a weight"),
    (align, ["--workdir=forward", "--symmetrise=union", *PAIR], "--symmetrise joins the links of"),
    (align, ["--workdir=forward", "--gold_base=1", *PAIR], "--gold_base belongs to --gold, which"),
    (align, ["--workdir=forward", *PAIR, "--gold=none"], "cannot read none: No such file"),
    (
      align,
      ["--workdir=forward", *PAIR, "--gold=tgt"],
      "tgt: line 1: 'K' is no link: expected i-j, or i?j or ipj for a possible one",
    ),
    (
      align,
      ["--workdir=forward", *PAIR, "--gold=beyond", "--gold_base=1"],
      "beyond: line 1: no source position 0 of 3 words, counted from 1",
    ),
    (
      align,
      ["--workdir=forward", *PAIR, "--gold=blank"],
      "--gold=blank has no links: there is nothing to score against",
    ),
    (
      align,
      ["--workdir=forward", *PAIR, "--gold=nothing", "--gold_format=naacl"],
      "--gold=nothing has no links: there is nothing to score against",
    ),
    (
      align,
      ["--workdir=forward", *PAIR, "--gold=x", "--gold_format=rwth"],
      "--gold_base is missing",
    ),
    (
      align,
      ["--workdir=forward", *PAIR, "--gold=x", "--gold_format=naacl", "--gold_base=0"],
      "--gold_base=0: naacl counts from 1",
    ),
  ],
)
def test_what_cannot_be_aligned_or_scored(runs, command, words, told):
  write(runs, beyond=["0-0", *[""] * 4], blank=[""] * 5, nothing=[])
  assert told in run(command, *words)


def test_two_runs_count_the_same_words(runs, monkeypatch):
  """A character is no word between blanks."""
  other = trained(reverse=True)._replace(target=Vocabulary(LETTERS, "character"))
  known = {"forward": trained(), "other": other}
  monkeypatch.setattr(resolve, "trained", lambda folder, _: known[str(folder)])
  monkeypatch.setattr(align, "check", lambda values: ["forward", "other"])
  told = run(align, "--workdir=forward,other", *PAIR)
  assert told.startswith("line 1: forward counts 3 and 2 words, other 5 and 2: is the second run")
