"""The generated tasks: each target, its links, and what a perfect model would lose."""

import collections
import dataclasses
import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn.data import catalog, corpora, synthetic
from attn.data.config import DataConfig

LETTERS = "abcdefghijklmnopqrst"
SOURCES = st.lists(st.sampled_from(LETTERS), max_size=23).map(tuple)


def test_a_translation_turns_each_run_of_modifiers_round_its_head():
  words = {"a": "Q", "b": "P", "c": "S", "d": "R"}  # a and b are modifiers
  target, links = synthetic.translate(tuple("cabdb"), words)
  assert target == ("S", "R", "P", "Q", "P")
  assert links == [(0, 0), (3, 1), (2, 2), (1, 3), (4, 4)]
  assert synthetic.translate((), words) == ((), [])
  assert synthetic.translate(tuple("ab"), words)[0] == ("P", "Q")  # no head


@given(SOURCES)
def test_a_translation_says_every_letter_once_and_crosses_no_head(source):
  words = synthetic.lexicon(20, seed=1)
  target, links = synthetic.translate(source, words)
  assert sorted(i for i, _ in links) == list(range(len(source)))
  assert [j for _, j in links] == list(range(len(source)))
  assert all(target[j] == words[source[i]] for i, j in links)
  # What stands up to and with a head in the source stands there in the target too.
  for end, letter in enumerate(source, 1):
    if letter >= "k":
      assert {i for i, j in links if j < end} == set(range(end))


def test_the_lexicon_is_a_permutation_that_the_seed_decides():
  words = synthetic.lexicon(20, seed=1)
  assert sorted(words) == list(LETTERS)
  assert sorted(words.values()) == list(LETTERS.upper())
  assert words == synthetic.lexicon(20, seed=1) != synthetic.lexicon(20, seed=2)
  assert words != {letter: letter.upper() for letter in LETTERS}


def test_a_letter_becomes_as_many_symbols_as_its_fertility():
  target, links = synthetic.multiply(tuple("daebc"))
  assert target == ("D1", "D2", "D3", "B1", "C1", "C2")
  assert links == [(0, 0), (0, 1), (0, 2), (3, 3), (4, 4), (4, 5)]
  assert synthetic.multiply(tuple("ae")) == ((), [])


@given(st.lists(st.sampled_from(LETTERS), min_size=3, max_size=20, unique=True), st.integers(0, 9))
def test_a_walk_steps_to_a_neighbour_on_the_ring_of_its_source(source, seed):
  size = len(source)
  target, links = synthetic.walk(tuple(source), np.random.RandomState(seed))
  assert len(target) == size
  here = 0
  for step, symbol in enumerate(target):
    assert symbol in (source[(here + 1) % size], source[(here - 1) % size])
    here = source.index(symbol)
    assert links[step] == (here, step)


def test_both_neighbours_are_equally_likely_whatever_came_before():
  random, turns = np.random.RandomState(3), collections.Counter()
  ring = tuple("abcde")
  for _ in range(4000):
    places = [0, *(i for i, _ in synthetic.walk(ring, random)[1])]
    steps = [(after - before) % 5 for before, after in zip(places, places[1:], strict=False)]
    turns.update(zip(steps, steps[1:], strict=False))
  assert sorted(turns) == [(1, 1), (1, 4), (4, 1), (4, 4)]
  for count in turns.values():  # 16,000 pairs: 0.02 are six standard deviations
    assert abs(count / 16_000 - 0.25) < 0.02


def test_no_model_beats_ln_2_for_each_step_of_a_walk():
  # The mean over the symbols of a loss of ln 2 for each symbol and none for each EOS.
  losses = [loss for length in (5, 7) for loss in [math.log(2)] * length + [0.0]]
  assert synthetic.optimum([5, 7]) == pytest.approx(sum(losses) / len(losses), rel=1e-12)


@pytest.mark.parametrize(
  ("name", "digest"),
  [
    ("Copy", "a70dbb414ec6"),
    ("Reverse", "137996edfd30"),
    ("Lexicon", "c44edf7c6311"),
    ("Fertility", "ffe2ea6b95d6"),
    ("Walk", "347f95248b58"),
  ],
)
def test_a_task_is_written_with_its_alignment_and_always_the_same(
  tmp_path, monkeypatch, name, digest
):
  builder = getattr(synthetic, name)
  config = synthetic.LettersConfig(
    name="letters", symbols=13, shortest=3, longest=7, train=97, dev=11, test=17
  )
  monkeypatch.setattr(builder, "BUILDER_CONFIGS", [config])
  monkeypatch.setattr(builder, "builder_configs", {"letters": config})
  corpora = {split: catalog.load(name.lower(), split, tmp_path) for split in catalog.SPLITS}
  assert {split: len(corpus) for split, corpus in corpora.items()} == {
    "train": 97,
    "dev": 11,
    "test": 17,
  }
  held_out = corpora["dev"].sources + corpora["test"].sources
  assert len(set(held_out)) == 28
  assert not set(held_out) & set(corpora["train"].sources)
  for corpus in corpora.values():
    assert all(corpus.targets)
    for source, target, links in zip(
      corpus.sources, corpus.targets, corpus.alignments, strict=True
    ):
      source, target = source.split(" "), target.split(" ")
      assert 3 <= len(source) <= 7
      assert sorted(j for _, j in links.tolist()) == list(range(len(target)))
      assert links[:, 0].min() >= 0 and links[:, 0].max() < len(source)
      if name == "Walk":
        assert len(set(source)) == len(source)
      if name == "Copy":
        assert source == target
  texts = repr([(corpus.sources, corpus.targets) for corpus in corpora.values()])
  assert hashlib.sha256(texts.encode()).hexdigest()[:12] == digest


def test_too_few_orders_of_different_letters_are_refused():
  config = synthetic.LettersConfig(name="few", symbols=3, shortest=2, longest=3)
  with pytest.raises(ValueError, match="3 symbols make too few sources of length 2"):
    synthetic.draw(config, distinct=True)


def test_swapped_sides_have_their_links_swapped(tmp_path, monkeypatch):
  config = synthetic.LettersConfig(name="letters", symbols=13, train=7, dev=5, test=3)
  monkeypatch.setattr(synthetic.Fertility, "builder_configs", {"letters": config})
  monkeypatch.setattr(synthetic.Fertility, "BUILDER_CONFIGS", [config])
  data = DataConfig(name="fertility", data_dir=str(tmp_path))
  plain, swapped = (
    corpora.load(dataclasses.replace(data, swap=swap), "test") for swap in (False, True)
  )
  assert (swapped.sources, swapped.targets) == (plain.targets, plain.sources)
  for links, back in zip(plain.alignments, swapped.alignments, strict=True):
    assert back.tolist() == [[j, i] for i, j in links.tolist()]
