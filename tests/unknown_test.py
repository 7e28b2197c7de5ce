"""Unknown words replaced by what the source has where the model looked."""

import numpy as np
import pytest

from attn.data.vocabulary import Vocabulary
from attn.decoding.unknown import replace_unknown, source_words

WORDS = ["foo", "bar"]


@pytest.mark.parametrize(
  ("weights", "expected"),
  [
    ([0.1, 0.2, 0.6, 0.1], "bar"),  # DMP-01: foo, bar, EOS and padding
    ([0.3, 0.2, 0.5, 0.0], "foo"),
    ([0.2, 0.2, 0.6, 0.0], "foo"),  # of equal ones the first, as links are
    ([0.0, 0.0, 1.0, 0.0], None),  # all on EOS: no word was looked at
  ],
)
def test_the_word_is_never_eos_or_padding(weights, expected):
  assert replace_unknown([None], WORDS, np.array([weights])) == [expected]


def test_a_source_without_words_leaves_it_unknown():
  assert replace_unknown([None, "a"], [], np.array([[1.0], [1.0]])) == [None, "a"]
  assert replace_unknown([], WORDS, np.zeros((1, 4))) == []


def test_only_unknown_symbols_are_replaced_each_by_its_own_row():
  weights = np.eye(4)[[1, 0, 0, 1, 3]]  # the last row is that of EOS
  symbols = ["x", None, "y", None]
  assert replace_unknown(symbols, WORDS, weights) == ["x", "foo", "y", "bar"]
  assert symbols == ["x", None, "y", None]
  translated = replace_unknown(symbols, WORDS, weights, {"foo": "two words", "x": "z"})
  assert translated == ["x", "two words", "y", "bar"]


def test_rows_of_a_batch_with_sources_of_different_lengths():
  weights = np.full((3, 1, 5), 0.1)
  weights[:, :, 4] = 0.6
  for row, words in zip(weights, (["a", "b", "c"], ["d"], []), strict=True):
    assert replace_unknown([None], words, row) == [words[0] if words else None]


def test_what_each_symbol_of_a_source_stands_for():
  assert source_words("a  b", Vocabulary((), "symbol")) == ["a", "b"]
  assert source_words("a b", Vocabulary((), "character")) == ["a", " ", "b"]
  assert source_words("Don't, x", Vocabulary((), "word")) == ["Don", "'", "t", ",", "x"]
  pieces = Vocabulary.build(["low lower lowest newer wider new wide"] * 20, "unigram", 22)
  text = "lowest  widen"
  symbols = pieces.split(text)
  assert len(symbols) > 4
  words = source_words(text, pieces)
  assert len(words) == len(symbols) and set(words) == {"lowest", "widen", ""}
  assert [words[0], words[-1]] == ["lowest", "widen"]
