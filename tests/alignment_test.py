"""Links: thresholds, words of pieces, both directions joined, and files of them."""

import gzip
import itertools
import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from attn.data.errors import DataError
from attn.data.vocabulary import Vocabulary
from attn.evaluation import alignment_files
from attn.evaluation.alignment import (
  alignment_scores,
  counted_scores,
  link_counts,
  links,
  symmetrised,
  word_links,
)

METHODS = ("intersection", "union", "grow-diag-final", "grow-diag-final-and")
link_sets = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=13)


# Thresholds.


def test_links_above_a_threshold():
  weights = [[0.5, 0.25, 0.25], [0.0, 0.0, 0.0], [0.1, 0.1, 0.8]]
  assert links(weights, threshold=0.25) == {(0, 0), (1, 0), (2, 0), (2, 2)}
  assert links(weights, threshold=0.9) == set()
  assert links(np.zeros((0, 3)), threshold=0.5) == set()
  for threshold in (0, 1.1, math.nan):
    with pytest.raises(ValueError, match="^threshold is .*: expected a weight above 0"):
      links(weights, threshold=threshold)


# Words of pieces.


def test_two_words_are_linked_where_pieces_of_them_are():
  # Source: a word of pieces 0 and 1, a blank of no word, a word of piece 3. Target: one a piece.
  found = word_links({(0, 0), (1, 0), (2, 1), (3, 2), (1, 2)}, [0, 0, -1, 1], [0, 1, 2])
  assert found == {(0, 0), (1, 2), (0, 2)}


@pytest.mark.parametrize(
  ("level", "text", "words"),
  [
    ("character", "a b", (0, 1, 2)),
    ("symbol", "K AE  T", (0, 1, 2)),
    ("word", "Don't stop, now .", (0, 0, 0, 1, 1, 2, 3)),
    ("word", "", ()),
  ],
)
def test_words_of_symbols(level, text, words):
  assert Vocabulary((), level).words(text) == words


@pytest.fixture(scope="module")
def pieces():
  texts = ["low lower lowest newer wider new wide"] * 20
  return Vocabulary.build(texts, "unigram", 22)


@pytest.mark.parametrize(
  "text", ["low newest widest", "  low   lower ", "new", " ", "", "low-new x"]
)
def test_pieces_count_the_words_between_blanks(pieces, text):
  """Whatever the pieces: those of each word spell it."""
  split, words = pieces.split(text), pieces.words(text)
  assert len(split) == len(words)
  spelled = [
    "".join(piece for piece, word in zip(split, words, strict=True) if word == number)
    for number in range(len(text.split()))
  ]
  assert [one.replace("\u2581", "") for one in spelled] == text.split()
  assert all(one.count("\u2581") == 1 for one in spelled)
  assert max(words, default=-1) == len(text.split()) - 1


def test_a_blank_of_its_own_belongs_to_the_word_that_it_starts(pieces):
  symbols = {"\u2581", "l", "o", "w"}
  assert symbols < set(pieces.symbols)
  split = pieces.split("wol")
  assert split[0] == "\u2581" and pieces.words("wol") == (0,) * len(split)


# Both directions.


def plain_symmetry(forward, reverse, method):
  """Koehn's pseudocode over every cell, e the target and f the source."""
  union = forward | reverse
  cells = [(f, e) for e in range(5) for f in range(6)]
  around = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]
  made = forward & reverse

  def free(f, e):
    return [all(f != s for s, _ in made), all(e != t for _, t in made)]

  added = True
  while added:
    added = False
    for f, e in cells:
      if (f, e) in made:
        for e_step, f_step in around:
          new = f + f_step, e + e_step
          if any(free(*new)) and new in union and new not in made:
            made = made | {new}
            added = True
  for direction in (forward, reverse):
    for cell in cells:
      test = all if method == "grow-diag-final-and" else any
      if test(free(*cell)) and cell in direction:
        made = made | {cell}
  return made


def test_joined_links_by_hand():
  """(1, 2) and (2, 1) touch (1, 1) and reach a new word each, so that (0, 2) reaches none."""
  forward = {(0, 0), (1, 1), (2, 1), (4, 3)}
  reverse = {(0, 0), (1, 1), (1, 2), (4, 4), (0, 2)}
  grown = {(0, 0), (1, 1), (2, 1), (1, 2), (4, 3)}
  assert symmetrised(forward, reverse, "intersection") == {(0, 0), (1, 1)}
  assert symmetrised(forward, reverse, "union") == forward | reverse
  assert symmetrised(forward, reverse, "grow-diag-final-and") == grown
  assert symmetrised(forward, reverse, "grow-diag-final") == grown | {(4, 4)}
  with pytest.raises(ValueError, match="^method is 'grow-dag': expected one of intersection, "):
    symmetrised(forward, reverse, "grow-dag")


@hypothesis.given(link_sets, link_sets)
@hypothesis.settings(max_examples=80, derandomize=True)
def test_joined_links_against_the_pseudocode(forward, reverse):
  for method in METHODS[2:]:
    made = symmetrised(forward, reverse, method)
    assert made == plain_symmetry(forward, reverse, method)
    assert forward & reverse <= made <= forward | reverse
  as_arrays = (np.array(sorted(one)).reshape(-1, 2) for one in (forward, reverse))
  assert symmetrised(*as_arrays, "grow-diag-final") == symmetrised(
    forward, reverse, "grow-diag-final"
  )


# Counts.


def test_scores_are_those_of_the_summed_counts():
  found = [{(0, 0), (1, 1)}, set(), {(2, 2)}]
  sure = [{(0, 0)}, {(1, 0)}, set()]
  possible = [{(1, 1)}, set(), {(0, 1)}]
  counts = link_counts(found, sure, possible)
  assert counts.tolist() == [[1, 2, 2, 1], [0, 0, 0, 1], [0, 0, 1, 0]]
  assert counted_scores(counts.sum(0)) == alignment_scores(found, sure, possible)
  rate, precision, recall = counted_scores(counts)  # of each sentence
  np.testing.assert_equal(rate, [0, 1, 1])
  np.testing.assert_equal(precision, [1, math.nan, 0])
  np.testing.assert_equal(recall, [1, 0, math.nan])
  assert link_counts([], []).shape == (0, 4)


# Files.


@hypothesis.given(st.lists(link_sets, max_size=5))
@hypothesis.settings(max_examples=30, derandomize=True)
def test_pharaoh_lines_come_back(tmp_path_factory, sentences):
  path = tmp_path_factory.mktemp("links") / "links.txt"
  path.write_text("".join(alignment_files.pharaoh(one) + "\n" for one in sentences))
  assert alignment_files.read_pharaoh(str(path)) == sentences


def test_a_pharaoh_line_is_sorted():
  assert alignment_files.pharaoh(np.array([[10, 0], [2, 3], [2, 1], [2, 1]])) == "2-1 2-3 10-0"
  assert alignment_files.pharaoh(set()) == ""


GOLD = {
  # The same three sentences, the second without a link.
  ("pharaoh", 0): "0-0 1p2 1?1\n\n2-0 2-1\n",
  ("pharaoh", 1): "1-1 2p3 2?2\n\n3-1 3-2",
  ("naacl", None): "0001 1 1 S\n0001 2 3 P 0.5\n0001 2 2 P\n\n0003 3 1\n0003 3 2 S 1\n",
  ("rwth", 1): "SENT: 1\nS 1 1\nP 2 3\nP 2 2\n\nSENT: 2\nSENT: 3\nS 3 1\nS 3 2\n",
  ("rwth", 0): "SENT: 0\nS 0 0\nP 1 2\nP 1 1\nSENT: 2\r\nS 2 0\r\nS 2 1\r\n",
}


@pytest.mark.parametrize(("form", "base"), GOLD)
@pytest.mark.parametrize("lengths", [None, [(2, 3), (0, 5), (3, 2)]])
def test_gold_files(tmp_path, form, base, lengths):
  path = tmp_path / "gold.gz"
  path.write_bytes(gzip.compress(GOLD[form, base].encode()))
  gold = alignment_files.read_gold(str(path), form, base=base, lengths=lengths)
  assert gold.sure == [{(0, 0)}, set(), {(2, 0), (2, 1)}]
  assert gold.possible == [{(1, 2), (1, 1)}, set(), set()]


def test_a_link_that_is_sure_and_possible_is_sure(tmp_path):
  path = tmp_path / "gold"
  path.write_text("0-0 0p0 1?1\n")
  gold = alignment_files.read_gold(str(path), "pharaoh", base=0)
  assert gold == ([{(0, 0)}], [{(1, 1)}])


@pytest.mark.parametrize(
  ("form", "base", "text", "told"),
  [
    ("pharaoh", 0, "0-0\n0-1 1:1\n", "line 2: '1:1' is no link: expected i-j, or i?j or ipj for"),
    ("pharaoh", 0, "0-0\n-1-1\n", "line 2: '-1-1' is no link"),
    ("pharaoh", 0, f"0-0\n0-{'9' * 5000}\n", "line 2: '0-99"),  # more digits than Python reads
    ("pharaoh", 1, "1-1\n2-2 0-1\n", "line 2: no source position 0 of 2 words, counted from 1"),
    ("pharaoh", 0, "0-0\n1-3\n", "line 2: no target position 3 of 3 words, counted from 0"),
    ("pharaoh", 0, "0-0\n", " has 1 lines, but there are 2 sentences"),
    ("pharaoh", 0, "\n\n\n", " has 3 lines, but there are 2 sentences"),
    ("naacl", None, "1 1 1\n2 0 1 S\n", "line 2: no source position 0 of 2 words, counted from 1"),
    ("naacl", None, "\n3 1 1 S\n", "line 2: no sentence 3 of 2, counted from 1"),
    ("naacl", None, "0 1 1 S\n", "line 1: no sentence 0 of 2, counted from 1"),
    ("naacl", None, "1 1\n", "line 1: '1 1' is no link: expected 'sentence source target [S|P]'"),
    ("naacl", None, "1 1 1 X\n", "line 1: '1 1 1 X' is no link"),
    ("rwth", 0, "\nS 0 0\n", "line 2: a link before the first 'SENT: n'"),
    ("rwth", 0, "SENT: 0\nQ 0 0\n", "line 2: 'Q 0 0' is none of 'SENT: n', 'S i j' and 'P i j'"),
    ("rwth", 0, "SENT: 0\nSENT: 0\n", "line 2: sentence 0 was there before"),
    ("rwth", 0, "SENT: 2\n", "line 1: no sentence 2 of 2, counted from 0"),
    (
      "rwth",
      1,
      "SENT: 1\nS 1 3\nP 3 1\n",
      "line 3: no source position 3 of 2 words, counted from 1",
    ),
  ],
)
def test_what_is_wrong_with_a_gold_file(tmp_path, form, base, text, told):
  path = tmp_path / "gold.txt"
  path.write_text(text)
  with pytest.raises(DataError) as raised:
    alignment_files.read_gold(str(path), form, base=base, lengths=[(2, 3), (2, 3)])
  message = str(raised.value)
  assert message.startswith(str(path)) and told in message and "\n" not in message


def test_links_found_are_all_sure(tmp_path):
  path = tmp_path / "links"
  path.write_text("0-0\n1p1\n")
  with pytest.raises(DataError, match="line 2: '1p1' is no link: expected i-j$"):
    alignment_files.read_pharaoh(str(path))


def test_the_base_is_stated(tmp_path):
  (tmp_path / "gold").write_text("")
  for form, base in itertools.product(("pharaoh", "rwth"), (None, 2)):
    with pytest.raises(ValueError, match=f"^base is {base}: say whether positions in {form} are"):
      alignment_files.read_gold(str(tmp_path / "gold"), form, base=base)
  with pytest.raises(ValueError, match="^base is 0: naacl counts from 1$"):
    alignment_files.read_gold(str(tmp_path / "gold"), "naacl", base=0)
  with pytest.raises(ValueError, match="^form is 'talp': expected one of pharaoh, naacl, rwth$"):
    alignment_files.read_gold(str(tmp_path / "gold"), "talp", base=0)
