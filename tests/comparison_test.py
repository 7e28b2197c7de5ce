"""Bootstrap intervals and tests, groups of sentences, and systems side by side."""

import math

import numpy as np
import pytest
import scipy.stats

from attn.evaluation import bootstrap, comparison, corpus_scores
from attn.evaluation.alignment import counted_scores
from attn.evaluation.comparison import compare, compare_counts
from attn.evaluation.error_rates import token_matches
from attn.evaluation.groups import Group, everything, length_groups, share_groups


def edits(n, rate, seed):
  """Edits and symbols of sentences."""
  rng = np.random.default_rng(seed)
  lengths = rng.integers(1, 23, n)
  return np.stack([rng.binomial(lengths, rate), lengths], 1)


# The bootstrap.


def test_the_interval_against_scipy():
  counts = edits(211, 0.3, 1)
  found = bootstrap.estimate(counts, bootstrap.ratio)
  expected = scipy.stats.bootstrap(
    tuple(counts.T),
    lambda edits, symbols, axis: edits.sum(axis) / symbols.sum(axis),
    paired=True,
    method="percentile",
    n_resamples=4000,
    rng=np.random.default_rng(5),
  ).confidence_interval
  width = expected.high - expected.low
  assert found.value == counts[:, 0].sum() / counts[:, 1].sum() and found.n == 211
  assert found.low == pytest.approx(expected.low, abs=0.1 * width)
  assert found.high == pytest.approx(expected.high, abs=0.1 * width)


def test_draws_are_those_of_the_seed_however_many_at_once(monkeypatch):
  counts = edits(31, 0.3, 1)
  whole = bootstrap.estimate(counts, bootstrap.ratio, level=0.5)
  assert bootstrap.estimate(counts, bootstrap.ratio, level=0.5, seed=1) != whole
  monkeypatch.setattr(bootstrap, "_NUMBERS", 31 * 2 * 7)
  assert bootstrap.estimate(counts, bootstrap.ratio, level=0.5) == whole
  rows = np.random.default_rng(0).integers(31, size=(bootstrap.RESAMPLES, 31))
  drawn = [counts[one][:, 0].sum() / counts[one][:, 1].sum() for one in rows]
  np.testing.assert_allclose(whole[1:3], np.quantile(drawn, [0.25, 0.75]))


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
  found = [bootstrap.estimate(edits(60, 0.3, seed), bootstrap.ratio) for seed in range(200)]
  assert 0.88 < np.mean([one.low <= 0.3 <= one.high for one in found]) < 0.99


def test_the_difference_against_a_plain_loop():
  first, second = edits(53, 0.3, 1), edits(53, 0.25, 2)
  found = bootstrap.difference(first, second, bootstrap.ratio)
  rng, drawn = np.random.default_rng(0), []
  for _ in range(bootstrap.RESAMPLES):
    rows = rng.integers(53, size=53)
    a, b = first[rows].sum(0), second[rows].sum(0)
    drawn.append(b[0] / b[1] - a[0] / a[1])
  observed = second[:, 0].sum() / second[:, 1].sum() - first[:, 0].sum() / first[:, 1].sum()
  assert found.value == pytest.approx(observed) and observed < 0
  assert found.p_value == (1 + sum(one >= 0 for one in drawn)) / (bootstrap.RESAMPLES + 1)
  assert 0.001 < found.p_value < 0.5
  np.testing.assert_allclose(found[1:3], np.quantile(drawn, [0.025, 0.975]))


def test_pairing_sees_what_two_intervals_do_not():
  """Koehn 2004: one edit less in every fifth sentence, under a large spread of sentences."""
  first = edits(203, 0.5, 3)
  better = first - np.stack([(np.arange(203) % 5 == 0) & (first[:, 0] > 0), np.zeros(203)], 1)
  one, other = (bootstrap.estimate(counts, bootstrap.ratio) for counts in (first, better))
  assert one.low < other.high and other.low < one.high
  assert bootstrap.difference(first, better, bootstrap.ratio).p_value < 0.005
  same = bootstrap.difference(first, first, bootstrap.ratio)
  assert (same.value, same.low, same.high, same.p_value) == (0, 0, 0, 1)


def test_sentences_without_anything_to_score():
  """A resample of nothing else has no score; a corpus of nothing else has none and no interval."""
  found = bootstrap.estimate([[1, 2], [0, 0]], bootstrap.ratio)
  assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)
  found = bootstrap.estimate([[0, 0]] * 3, bootstrap.ratio)
  assert found.n == 3 and all(map(math.isnan, found[:3]))


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda: bootstrap.estimate(np.zeros((0, 2)), bootstrap.ratio), r"^counts is \[0, 2\]: "),
    (lambda: bootstrap.estimate([1, 2], bootstrap.ratio), r"^counts is \[2\]: expected \[n, k\]"),
    (lambda: bootstrap.estimate([[1, 2]], bootstrap.ratio, level=95), "^level is 95: "),
    (
      lambda: bootstrap.difference([[1, 2]], [[1, 2], [3, 4]], bootstrap.ratio),
      r"^first is \[1, 2\], second \[2, 2\]: no pairs$",
    ),
  ],
)
def test_what_cannot_be_resampled(call, message):
  with pytest.raises(ValueError, match=message):
    call()


# Groups.


def test_groups_of_lengths():
  assert [(g.label, g.members.tolist()) for g in length_groups([3, 0, 9, 4, 11], (3, 4, 10))] == [
    ("0-3", [0, 1]),
    ("4", [3]),
    ("5-10", [2]),
    ("11+", [4]),
  ]


def test_groups_of_shares():
  shares = [0.0, 0.1, 0.11, 1.0, math.nan, 0.25]
  assert [(g.label, g.members.tolist()) for g in share_groups(shares)] == [
    ("0%", [0]),
    ("to 10%", [1]),
    ("to 25%", [2, 5]),
    ("over 25%", [3]),
  ]
  for shares, edges, told in (
    ([1.5], (0,), "between 0 and 1"),
    ([0.5], (0.1, 0.2), "the first 0"),
    ([0.5], (0, 0.2, 0.2), "rising shares"),
  ):
    with pytest.raises(ValueError, match=told):
      share_groups(shares, edges)


# Tokens.


def test_tokens_that_stand_where_they_should():
  hypotheses = ["a b c", "a c", "", "x y", "", "p q"]
  references = [["a b c"], ["a b c"], ["a b"], ["y x", "x", "x z y"], [""], ["p", "p z"]]
  expected = [[3, 3], [1, 3], [0, 2], [1, 2], [0, 0], [1, 2]]
  assert token_matches(hypotheses, references).tolist() == expected


# Systems.

REFERENCES = [["the cat sat on the mat", "a cat sat on the mat"], ["it rains on us all"]] * 7
GOOD = ["the cat sat on the mat", "it rains on us"] * 7
BAD = ["the cat sat at a mat", "it rains on us all", *GOOD[2:12], "cat", "it"]


def test_systems_side_by_side():
  lengths = [6, 5] * 7
  groups = [everything(14), *length_groups(lengths, (5, 10))]
  systems = {"good": GOOD, "bad": BAD}
  rows, signature = compare("sequence_accuracy", systems, REFERENCES, groups)
  assert [(r.by, r.group, r.system, r.n) for r in rows] == [
    ("all", "", "good", 14),
    ("all", "", "bad", 14),
    ("source length", "0-5", "good", 7),
    ("source length", "0-5", "bad", 7),
    ("source length", "6-10", "good", 7),
    ("source length", "6-10", "bad", 7),
  ]
  assert [row.value for row in rows] == pytest.approx([1 / 2, 6 / 14, 0, 1 / 7, 1, 5 / 7])
  assert [row.difference for row in rows[::2]] == [row.p_value for row in rows[::2]] == [None] * 3
  assert rows[5].difference == pytest.approx(-2 / 7) and rows[5].p_value < 0.2
  assert signature == "" and all(row.low <= row.value <= row.high for row in rows)
  rates = compare("token_error_rate", systems, REFERENCES, groups[:1])[0]
  assert [row.value for row in rates] == pytest.approx([7 / 77, (2 + 5 + 5 + 4) / 77])
  (accuracy,) = compare("token_accuracy", {"good": GOOD}, REFERENCES, groups[:1])[0]
  assert accuracy.value == pytest.approx((7 * 6 + 7 * 4) / (7 * 6 + 7 * 5))


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_text_scores_are_sacrebleu_s(metric):
  groups = [everything(14), Group("x", "few", np.array([0, 1, 2])), Group("x", "no", np.array([]))]
  systems = {"good": GOOD, "bad": BAD, "again": GOOD}
  rows, signature = compare(metric, systems, REFERENCES, groups)
  assert len(rows) == 6 and "bs:1000|seed:12345" in signature
  for row, made in zip(rows, [GOOD, BAD, GOOD], strict=False):
    expected = getattr(corpus_scores, metric)(made, REFERENCES)
    assert row.value == pytest.approx(expected.value) and row.low < row.value < row.high + 5
    assert signature.startswith(expected.signature.split("|")[0])
  assert (
    rows[1].difference == pytest.approx(rows[1].value - rows[0].value) and rows[1].p_value < 0.2
  )
  assert (rows[2].difference, rows[2].p_value) == (0, 1)
  few = getattr(corpus_scores, metric)(BAD[:3], REFERENCES[:3]).value
  assert rows[4].value == pytest.approx(few)


def test_any_score_of_sums():
  counts = {"a": [[1, 2, 2, 1], [3, 3, 3, 3]], "b": [[1, 1, 2, 1], [3, 3, 4, 3]]}
  rows = compare_counts(
    "rate", counts, lambda sums: counted_scores(sums).error_rate, [everything(2)]
  )
  assert [row.value for row in rows] == pytest.approx([0, 1 - 8 / 10])
  assert rows[1].difference == pytest.approx(0.2)


def test_references_are_checked_alike():
  for metric in comparison.METRICS:
    with pytest.raises(ValueError, match="^2 hypotheses, 1 references: expected a list"):
      compare(metric, {"x": ["a", "b"]}, [["a"]], [Group("all", "", np.array([0]))])


@pytest.mark.parametrize("metric", ["chrf", "sequence_accuracy"])
def test_a_single_sentence_has_no_interval_and_no_p_value(metric):
  systems = {"one": ["a b"], "other": ["c d"]}
  one, other = compare(metric, systems, [["a b"]], [everything(1)])[0]
  assert one.value > other.value and other.difference == other.value - one.value
  assert np.isnan([one.low, one.high, other.low, other.high, other.p_value]).all()
  assert one.p_value is None
