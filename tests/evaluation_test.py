"""Scores against values worked out by hand and against plain loops."""

import collections
import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats

from attn.evaluation import corpus_scores
from attn.evaluation.alignment import alignment_error_rate, alignment_scores, links
from attn.evaluation.by_length import by_length
from attn.evaluation.error_rates import (
  edit_distance,
  phoneme_edits,
  phoneme_error_rate,
  word_error_rate,
  word_errors,
)
from attn.evaluation.intervals import mean_interval, paired_interval

# Edit distance.


def plain_distance(a, b) -> int:
  table = np.zeros((len(a) + 1, len(b) + 1), int)
  table[:, 0], table[0] = range(len(a) + 1), range(len(b) + 1)
  for i, x in enumerate(a, 1):
    for j, y in enumerate(b, 1):
      table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + int(x != y))
  return int(table[-1, -1])


@pytest.mark.parametrize(
  ("hypothesis_", "reference", "distance"),
  [
    ("", "", 0),
    ("", "K AE T", 3),
    ("K AE T", "", 3),
    ("K AE T", "K AE T", 0),
    ("K AH T", "K AE T", 1),
    ("K AE", "K AE T", 1),
    ("S K AE T", "K AE T", 1),
    ("T AE K", "K AE T", 2),
    ("AE1 T", "AE2 T", 1),
    (list("kitten"), list("sitting"), 3),
  ],
)
def test_edit_distance_by_hand(hypothesis_, reference, distance):
  assert edit_distance(hypothesis_, reference) == distance


symbols = st.lists(st.sampled_from(["K", "AE1", "T", "AE2", "S"]), max_size=7).map(tuple)


@hypothesis.given(a=symbols, b=symbols)
@hypothesis.settings(max_examples=100, deadline=None, derandomize=True)
def test_edit_distance_against_the_table(a, b):
  assert edit_distance(a, b) == edit_distance(" ".join(b), list(a)) == plain_distance(a, b)


# Word and phoneme error rate.

HYPOTHESES = ["T AH M EY T OW", "K AE T", "D AO G Z", ""]
REFERENCES = [
  ["T AH M AA T OW", "T AH M EY T OW"],
  ["K AH T"],
  ["D AO G", "D AA G"],
  ["AH", "AH N"],
]


def test_a_word_is_right_when_it_equals_any_reference():
  assert word_errors(HYPOTHESES, REFERENCES).tolist() == [0, 1, 1, 1]
  assert word_error_rate(HYPOTHESES, REFERENCES) == 0.75


def test_symbols_and_texts_are_the_same():
  split = [tuple(text.split()) for text in HYPOTHESES]
  accepted = [[text.split() for text in texts] for texts in REFERENCES]
  assert word_error_rate(split, accepted) == 0.75
  assert word_error_rate(split, REFERENCES) == 0.75
  assert phoneme_error_rate(split, accepted) == phoneme_error_rate(HYPOTHESES, REFERENCES)


def test_phoneme_errors_are_counted_against_the_nearest_reference():
  edits, lengths = phoneme_edits(HYPOTHESES, REFERENCES)
  assert edits.tolist() == [0, 1, 1, 1]
  assert lengths.tolist() == [6, 3, 3, 1]
  assert phoneme_error_rate(HYPOTHESES, REFERENCES) == 3 / 13


def test_phoneme_error_rate_weighs_words_by_their_length():
  # One edit in 1 symbol and none in 4: 1/5 of all symbols, where the mean of the rates is 1/2.
  assert phoneme_error_rate(["B", "A B C D"], [["A"], ["A B C D"]]) == 0.2


@pytest.mark.parametrize("references", [["A", "A B C"], ["A B C", "A"]])
def test_of_equally_near_references_the_longest_counts(references):
  edits, lengths = phoneme_edits(["A B"], [references])
  assert (edits.tolist(), lengths.tolist()) == ([1], [3])


def test_error_rate_may_exceed_one():
  assert phoneme_error_rate(["A B C D"], [["E"]]) == 4.0


@hypothesis.given(
  st.lists(st.tuples(symbols, st.lists(symbols, min_size=1, max_size=3)), min_size=1, max_size=7)
)
@hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
def test_error_rates_against_a_plain_loop(examples):
  hypothesis.assume(all(all(references) for _, references in examples))
  wrong = edits = total = 0
  for one, references in examples:
    wrong += all(one != reference for reference in references)
    distance = min(plain_distance(one, reference) for reference in references)
    edits += distance
    total += max(len(r) for r in references if plain_distance(one, r) == distance)
  hypotheses, references = zip(*examples, strict=True)
  assert word_error_rate(hypotheses, references) == pytest.approx(wrong / len(examples))
  assert phoneme_error_rate(hypotheses, references) == pytest.approx(edits / total)


@pytest.mark.parametrize("rate", [word_error_rate, phoneme_error_rate])
@pytest.mark.parametrize(
  ("hypotheses", "references", "error", "message"),
  [
    (["A", "B"], [["A"]], ValueError, "^2 hypotheses, 1 references: expected .*$"),
    ([], [], ValueError, "^0 hypotheses, 0 references: .* and at least one$"),
    (["A"], [[]], ValueError, r"^references\[0\] is empty: .*$"),
    (["A", "B"], [["A"], "B"], TypeError, r"^references\[1\] is the text 'B': expected a list.*$"),
  ],
)
def test_unusable_references_are_named(rate, hypotheses, references, error, message):
  with pytest.raises(error, match=message) as raised:
    rate(hypotheses, references)
  assert "\n" not in str(raised.value)


def test_references_without_symbols_are_refused():
  assert word_error_rate([""], [[""]]) == 0
  with pytest.raises(ValueError, match="^references hold no symbols: .*$"):
    phoneme_error_rate([""], [[""]])


# Alignment.


def test_links_go_to_the_largest_weight():
  weights = [[0.1, 0.7, 0.2], [0.4, 0.4, 0.2], [0.0, 0.0, 0.0], [0.2, 0.3, 0.5], [0.0, 0.1, 0.9]]
  assert links(np.array(weights)) == {(1, 0), (0, 1), (2, 3), (2, 4)}


def test_no_positions_have_no_links():
  assert links(np.zeros((0, 3))) == links(np.zeros((3, 0))) == set()


@pytest.mark.parametrize(
  ("weights", "message"),
  [
    (np.zeros((2, 3, 5)), r"^weights is \[2, 3, 5\]: expected \[t, s\] of one sentence$"),
    ([[1.0, 0.0], [math.nan, 0.0]], r"^weights\[1\] is not finite: .*$"),
  ],
)
def test_weights_without_links_are_refused(weights, message):
  with pytest.raises(ValueError, match=message):
    links(weights)


def test_alignment_scores_by_hand():
  # A and S = 2, A and P = 3, A = 4, S = 3.
  found = [{(0, 0), (1, 1), (2, 2), (3, 0)}]
  sure = [{(0, 0), (1, 1), (4, 3)}]
  possible = [{(0, 0), (1, 1), (4, 3), (2, 2), (5, 5)}]
  scores = alignment_scores(found, sure, possible)
  assert scores.error_rate == pytest.approx(1 - 5 / 7)
  assert scores.precision == 3 / 4
  assert scores.recall == 2 / 3
  assert alignment_error_rate(found, sure, possible) == scores.error_rate
  # The sure links are possible whether or not they are listed again.
  assert alignment_scores(found, sure, [{(2, 2), (5, 5)}]) == scores


def test_without_possible_links_all_are_sure():
  found, sure = [{(0, 0), (1, 1)}], [{(0, 0), (2, 2), (3, 3)}]
  scores = alignment_scores(found, sure)
  assert scores.error_rate == pytest.approx(1 - 2 / 5)
  assert (scores.precision, scores.recall) == (1 / 2, 1 / 3)


def test_alignment_extremes():
  gold = [{(0, 0), (1, 1)}, {(0, 1)}]
  assert alignment_error_rate(gold, gold) == 0
  assert alignment_error_rate([{(5, 5)}, {(6, 6)}], gold) == 1
  nothing = alignment_scores([set(), set()], gold)
  assert (nothing.error_rate, nothing.recall) == (1, 0)
  assert math.isnan(nothing.precision)
  all_possible = alignment_scores([{(0, 0)}], [set()], [{(0, 0)}])
  assert (all_possible.error_rate, all_possible.precision) == (0, 1)
  assert math.isnan(all_possible.recall)


def test_links_may_be_arrays():
  found = [np.array([[0, 0], [1, 1], [1, 1]]), np.zeros((0, 2), np.int64)]
  assert alignment_error_rate(found, [{(0, 0), (1, 1)}, [(2, 2)]]) == pytest.approx(1 - 4 / 5)


link_sets = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=7)


@hypothesis.given(st.lists(st.tuples(link_sets, link_sets, link_sets), min_size=1, max_size=5))
@hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
def test_alignment_error_rate_against_a_plain_loop(sentences):
  count = {"a": 0, "s": 0, "as": 0, "ap": 0}
  for found, sure, possible in sentences:
    for link in {(i, j) for i in range(5) for j in range(3)}:
      count["a"] += link in found
      count["s"] += link in sure
      count["as"] += link in found and link in sure
      count["ap"] += link in found and (link in possible or link in sure)
  hypothesis.assume(count["a"] + count["s"])
  rate = alignment_error_rate(*zip(*sentences, strict=True))
  expected = 1 - (count["as"] + count["ap"]) / (count["a"] + count["s"])
  assert rate == pytest.approx(expected)
  assert 0 <= rate <= 1


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (([{(0, 0)}], [{(0, 0)}, {(1, 1)}]), "^links of 1, sure of 2 sentences: expected as many"),
    (
      ([{(0, 0)}], [{(0, 0)}], []),
      "^links of 1, sure of 1, possible of 0 sentences: expected as many of each$",
    ),
    (([set()], [set()]), "^no links, found or sure: "),
    (
      ([(0, 0)], [(0, 0)]),
      r"^links\[0\] is \(0, 0\): expected the \(source, target\) links of one",
    ),
  ],
)
def test_unusable_alignments_are_named(arguments, message):
  with pytest.raises(ValueError, match=message) as raised:
    alignment_error_rate(*arguments)
  assert "\n" not in str(raised.value)


# Intervals.


def test_interval_by_hand():
  # 1, 2, 3: deviation 1, t(2 degrees, 97.5%) = 4.302653, half-width 4.302653 / sqrt(3).
  mean, low, high, n = mean_interval([1.0, 2.0, 3.0])
  assert (mean, n) == (2.0, 3)
  assert low == pytest.approx(2 - 2.484138, abs=1e-6)
  assert high == pytest.approx(2 + 2.484138, abs=1e-6)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("n", [2, 3, 7, 101])
def test_interval_against_scipy(level, n):
  values = np.random.default_rng(n).normal(3.0, 2.0, size=n)
  interval = mean_interval(values, level)
  expected = scipy.stats.t.interval(level, n - 1, loc=values.mean(), scale=scipy.stats.sem(values))
  np.testing.assert_allclose(interval[1:3], expected, rtol=1e-9)
  assert interval.mean == pytest.approx(values.mean())


def test_interval_covers_the_truth_as_often_as_it_says():
  rng = np.random.default_rng(0)
  covered = [low <= 0 <= high for _, low, high, _ in map(mean_interval, rng.normal(size=(2000, 3)))]
  assert 0.935 < np.mean(covered) < 0.965


def test_one_value_says_nothing_about_the_spread():
  assert mean_interval([7.0]) == (7.0, -math.inf, math.inf, 1)


def test_an_interval_is_written_as_a_mean_with_its_ends():
  interval = mean_interval([1.0, 2.0, 3.0])
  assert f"{interval:+.1f}" == "+2.0 [-0.5, +4.5]"
  assert f"{interval}" == str(interval)


def test_equal_values_have_no_spread():
  assert mean_interval([0.25] * 3) == (0.25, 0.25, 0.25, 3)


def test_pairing_removes_what_both_share():
  shared = np.array([0.0, 10.0, 20.0, 30.0])
  a, b = shared + [1.0, 2.0, 1.0, 2.0], shared
  interval = paired_interval(a, b)
  assert interval == mean_interval([1.0, 2.0, 1.0, 2.0])
  assert interval.low > 0
  assert paired_interval(b, a).mean == -1.5


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda: mean_interval([]), r"^values is \[0\]: expected at least one number in one row$"),
    (lambda: mean_interval([[1.0]]), r"^values is \[1, 1\]: "),
    (lambda: mean_interval([1.0, math.nan]), r"^values\[1\] is nan: expected finite numbers$"),
    (lambda: mean_interval([1.0, 2.0], 95), "^level is 95: expected a confidence between 0 and 1$"),
    (lambda: paired_interval([1.0, 2.0], [1.0]), "^a has 2 values, b 1: expected pairs$"),
  ],
)
def test_unusable_values_are_named(call, message):
  with pytest.raises(ValueError, match=message):
    call()


# By length.


def test_values_are_grouped_by_length():
  values = [1.0, 0.0, 1.0, 1.0, 0.0, 0.5]
  lengths = [5, 1, 6, 16, 17, 3]
  bins = by_length(values, lengths, edges=(5, 6, 10, 15))
  assert [one.label for one in bins] == ["0-5", "6", "7-10", "11-15", "16+"]
  assert [one.n for one in bins] == [3, 1, 0, 0, 2]
  assert bins[0].interval == mean_interval([1.0, 0.0, 0.5])
  assert bins[1].interval == (1.0, -math.inf, math.inf, 1)
  assert bins[2].interval is bins[3].interval is None
  assert bins[4].interval == mean_interval([1.0, 0.0])
  assert (bins[4].first, bins[4].last) == (16, None)


def test_bins_keep_all_examples_and_the_mean():
  rng = np.random.default_rng(3)
  values, lengths = rng.normal(size=211), rng.integers(0, 41, size=211)
  bins = by_length(values, lengths, edges=(2, 7, 11, 37), level=0.9)
  assert sum(one.n for one in bins) == 211
  total = sum(one.n * one.interval.mean for one in bins)
  assert total / 211 == pytest.approx(values.mean())
  for one in bins:
    last = one.last if one.last is not None else 1000
    inside = [v for v, n in zip(values, lengths, strict=True) if one.first <= n <= last]
    assert one.interval == mean_interval(inside, 0.9)


def test_no_examples_leave_every_bin_empty():
  assert [(one.n, one.interval) for one in by_length([], [], edges=(3,))] == [(0, None)] * 2


@pytest.mark.parametrize(
  ("values", "lengths", "edges", "message"),
  [
    ([1.0, 2.0], [3], (5,), "^2 values, 1 lengths: expected a length for each$"),
    ([1.0], [3.5], (5,), "^lengths: expected whole numbers of at least 0$"),
    ([1.0], [-1], (5,), "^lengths: expected whole numbers of at least 0$"),
    ([1.0], [3], (5, 5), r"^edges is \(5, 5\): expected rising lengths of at least 0$"),
    ([1.0], [3], (-1, 5), r"^edges is \(-1, 5\): expected rising"),
  ],
)
def test_unusable_lengths_are_named(values, lengths, edges, message):
  with pytest.raises(ValueError, match=message):
    by_length(values, lengths, edges)


# Scores of a corpus.


def plain_bleu(hypotheses, references):
  """BLEU of texts split at blanks: geometric mean of clipped precisions, brevity penalty."""
  logs, made, closest = [], 0, 0
  for hypothesis_, accepted in zip(hypotheses, references, strict=True):
    size = len(hypothesis_.split())
    made += size
    closest += min((abs(len(one.split()) - size), len(one.split())) for one in accepted)[1]
  for n in range(1, 5):
    right = total = 0
    for hypothesis_, accepted in zip(hypotheses, references, strict=True):
      counts, *allowed = (
        collections.Counter(zip(*(text.split()[k:] for k in range(n)), strict=False))
        for text in (hypothesis_, *accepted)
      )
      total += sum(counts.values())
      right += sum(min(c, max(one[gram] for one in allowed)) for gram, c in counts.items())
    logs.append(math.log(right / total))
  return 100 * min(1.0, math.exp(1 - closest / made)) * math.exp(sum(logs) / 4)


def test_bleu_by_hand_with_as_many_references_as_there_are():
  hypotheses = ["the cat sat on a mat today", "it rains and it pours on us"]
  references = [["the cat sat on the mat", "a cat sat on a mat today"], ["it rains and it pours"]]
  score = corpus_scores.bleu(hypotheses, references)
  assert score.value == pytest.approx(plain_bleu(hypotheses, references))
  assert "tok:13a" in score.signature and "nrefs:var" in score.signature
  assert corpus_scores.bleu(["a b c d"], [["a b c d"]]).value == pytest.approx(100)


def test_chrf_is_about_characters():
  near = corpus_scores.chrf(["Sprachen"], [["Sprache"]])
  assert 0 < near.value < 100 and "nc:6" in near.signature
  assert corpus_scores.chrf(["Sprache"], [["ganz", "Sprache"]]).value == pytest.approx(100)


@pytest.mark.parametrize("score", [corpus_scores.bleu, corpus_scores.chrf])
def test_scores_of_a_corpus_say_what_is_wrong(score):
  with pytest.raises(ValueError, match="1 hypotheses, 2 references"):
    score(["a"], [["a"], ["b"]])
  with pytest.raises(ValueError, match="at least one"):
    score([], [])
  with pytest.raises(ValueError, match=r"references\[1\] is empty"):
    score(["a", "b"], [["a"], []])
  with pytest.raises(TypeError, match=r"references\[0\] is the text 'a'"):
    score(["a"], ["a"])
