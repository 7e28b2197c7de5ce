"""The rules and verdicts of `experiments.cost`, whose docstring states them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax

from attn import cost
from attn.evaluation.intervals import Interval
from attn.report import results
from attn.report.results import Claim, Verdict
from experiments import claims, cost_timings
from experiments.cost_counts import Cache, Kept, Work
from experiments.cost_language import Language
from experiments.cost_timings import ATTENTION, EACH_STEP, At, Times
from experiments.worked_example import printed

SOURCE, TARGET = 50, 60  # words, of the chapter's account
CLOSE = 1e-4


def counted(number: float, stated: float) -> Verdict:
  """Whether a number that was counted is the one stated."""
  return results.REPRODUCED if number == stated else results.CONTRADICTED


def at_most(number: float, bound: float) -> Verdict:
  """Whether a printed bound holds, and is the number rounded."""
  if number > bound:
    return results.CONTRADICTED
  return results.REPRODUCED if round(number) == bound else results.QUALIFIED


def less_than_uniform(saved: Sequence[Interval]) -> Verdict:
  """Whether frequencies save bits in every language."""
  return claims.above(saved)


def same_outputs(difference: float) -> Verdict:
  """Whether two programs compute the same, up to rounding."""
  return results.REPRODUCED if difference <= CLOSE else results.CONTRADICTED  # not so a NaN


def only(named: int, others: int) -> Verdict:
  """Whether the product that is named is all there is, or the most of it."""
  if others == 0:
    return results.REPRODUCED
  return results.QUALIFIED if others < named else results.CONTRADICTED


def one_product(unfed: int, fed: int) -> Verdict:
  """Whether the scores of a whole target are one product, without and with input feeding."""
  if unfed != 1:
    return results.CONTRADICTED
  return results.REPRODUCED if fed == 1 else results.QUALIFIED


def linear(
  annotations: Mapping[int, int], fixed: Mapping[int, int], stated: tuple[int, float]
) -> Verdict:
  """Whether annotations grow in proportion to the length, and the fixed vector does not.

  Args:
    annotations: length to numbers kept, `SOURCE` among them.
    fixed: length to numbers of the fixed vector.
    stated: numbers at `SOURCE`, and how many times the fixed vector's they are.
  """
  (one, *others), there = set(fixed.values()), annotations[SOURCE]
  proportional = all(reals * SOURCE == there * length for length, reals in annotations.items())
  grows = len(annotations) > 1 and not others and proportional
  return results.REPRODUCED if grows and (there, there / one) == stated else results.CONTRADICTED


def one_vector(width: int, at_hand: int, again: int) -> Verdict:
  """Whether a further score adds `width` multiply-adds, with U_a h_j at hand and without."""
  if at_hand != width:
    return results.CONTRADICTED
  return results.REPRODUCED if again == width else results.QUALIFIED


def a_cache(kept: int, key_and_value: int, growth: int, difference: float) -> Verdict:
  """Whether what attention keeps is a key-value cache.

  Args:
    kept: numbers kept a source position.
    key_and_value: the widths of a key and a value together.
    growth: numbers by which it grows with each word written.
    difference: largest between outputs word by word and of the whole pass, over the largest.
  """
  if kept != key_and_value or not difference <= CLOSE:
    return results.CONTRADICTED
  return results.REPRODUCED if growth == key_and_value else results.QUALIFIED


class Measured(NamedTuple):
  """All that the claims and figures are made from.

  Attributes:
    rows: of Sutskever's source embedding.
    fixed: length to what his model hands on.
    annotations: length to Bahdanau's annotations.
    keys: length to their projections U_a h_j.
    scores: of a pair of `SOURCE` and `TARGET` words.
    steps: by whether U_a h_j is at hand, part of a decoding step at `SOURCE` to its work.
    reading: by the same, length to the work of attention in a step, and of its scores.
    projection: the work of U_a h_j for `SOURCE` words.
    products: of the scores of a target, without and with input feeding.
    cache: decoding word by word.
    languages: what words take.
    passes: times and memory at each length.
    dot: times of dot attention.
  """

  rows: int
  fixed: dict[int, Kept]
  annotations: dict[int, Kept]
  keys: dict[int, Kept]
  scores: int
  steps: dict[bool, dict[str, Work]]
  reading: dict[bool, dict[int, dict[str, Work]]]
  projection: Work
  products: tuple[int, int]
  cache: Cache
  languages: list[Language]
  passes: list[At]
  dot: dict[str, Times]


def judge(measured: Measured) -> list[Claim]:
  """The claims, by the rules of this module's docstring."""
  return [*_judge_bits(measured), *_judge_work(measured), *_judge_memory(measured)]


def _judge_bits(measured: Measured) -> list[Claim]:
  """Claims 8 to 15."""
  kept, rows = measured.fixed[SOURCE], measured.rows
  one, sentence = cost.sentence_bits(1, rows), cost.sentence_bits(SOURCE, rows)
  with_end = cost.sentence_bits(SOURCE + 1, rows)
  share, languages = 100 * sentence / kept.bits, measured.languages
  level_words = "; ".join(
    f"{lang.name}: {lang.uniform - lang.saved.mean:.2f} bits a word against {lang.uniform:.2f},"
    f" {lang.saved:.2f} less"
    for lang in languages
  )
  kept_all = all(lang.rarest_kept >= lang.commonest_dropped for lang in languages)
  least = min((lang.saved for lang in languages), key=lambda saved: saved.low)
  return [
    claims.judge(
      "8", measured=f"{len(kept.arrays)} arrays of {kept.arrays[0][0]}: {kept.reals}",
      verdict=counted(kept.reals, 8000),
      why="Four layers, each with c and h of 1000. The paper prints the product, not the factors.",
    ),
    claims.judge(
      "9", measured=f"{kept.bits:,} bits of float32", verdict=counted(kept.bits, 256_000),
      why="Counted on the arrays that the encoder handed on.",
    ),
    claims.judge(
      "10", measured=f"{kept.bits / 8192:.2f} KiB", verdict=printed([kept.bits / 8192], [31], 0),
      why="Compared after rounding to whole KiB.",
    ),
    claims.judge(
      "11", measured=f"{rows:,} rows of the source embedding; of half of the words of real text,"
      f" the rarest kept occurs {languages[0].rarest_kept} times, the commonest dropped"
      f" {languages[0].commonest_dropped}",
      verdict=counted(rows, 160_000) if kept_all else results.CONTRADICTED,
      why="The preset's embedding, and what the project's own vocabulary keeps when it is full.",
    ),
    claims.judge(
      "12", measured=f"{one:.5f} bits", verdict=printed([one], [17.3], 1),
      why="Compared after rounding to one decimal.",
    ),
    claims.judge(
      "13", measured=f"{sentence:.3f} bits; with the end of the sentence as one more word"
      f" {with_end:.2f}",
      **claims.told(at_most(sentence, 865), qualified=(
        "True as the bound that it is said to be. The number is 864: 865 multiplies the factor"
        " after it was rounded to 17.3. And it leaves out the end of the sentence."
      )),
    ),
    claims.judge(
      "14", measured=f"{share:.4f}%", verdict=printed([share], [0.34], 2),
      why="Compared after rounding to two decimals; 865 bits give the same.",
    ),
    claims.judge(
      "15", measured=level_words, interval=(least.low, least.high),
      verdict=less_than_uniform([lang.saved for lang in languages]),
      why="Priced by the frequencies of other text, which can only overstate the entropy. The"
      " interval is that of the smaller saving; all hold together with 95%.",
    ),
  ]  # fmt: skip


def _judge_work(measured: Measured) -> list[Claim]:
  """Claims 46, 47, 59 and 77."""
  once, again = measured.reading[True], measured.reading[False]
  here, more = once[SOURCE], once[SOURCE + 1]
  width = more["score"].macs - here["score"].macs
  width_again = again[SOURCE + 1]["score"].macs - again[SOURCE]["score"].macs
  query = here["score"].macs - SOURCE * width
  others = here["attention"].macs - query
  turning = query * SOURCE // others
  share = here["attention"].macs / measured.steps[True]["step"].macs
  whole = measured.projection.macs + TARGET * here["attention"].macs
  whole_again = TARGET * again[SOURCE]["attention"].macs
  difference = max(at.difference for at in measured.passes)
  last = measured.passes[-1]
  slower = last.times[EACH_STEP].over(last.times[ATTENTION])
  dot = measured.dot[cost_timings.ONE_BY_ONE].over(measured.dot[cost_timings.AT_ONCE])
  return [
    claims.judge(
      "46", measured=f"outputs differ by {difference:.1g} of the largest; for {SOURCE} and {TARGET}"
      f" words {whole / 1e6:,.0f} million multiply-adds, with U_a h_j at every step"
      f" {whole_again / 1e6:,.0f} million, {whole_again / whole:.1f} times as many; at T ="
      f" {last.length} the pass takes {slower.median:.2g} times as long [{slower.low:.2g},"
      f" {slower.high:.2g}]",
      verdict=same_outputs(difference),
      why=f"Wants at most {CLOSE:g}. Times are of {backend()} and of the whole pass, encoder"
      " included; they decide nothing.",
    ),
    claims.judge(
      "47", measured=f"W_a s {query:,} multiply-adds, {here['attention'].tanh:,} tanh; besides,"
      f" sums with v_a {SOURCE * width:,} and the weighted sum of h_j"
      f" {others - SOURCE * width:,}; together {share:.1%} of the step",
      **claims.told(only(query, others), qualified=(
        f"True in the main, of sources of up to {turning} words: the sums with v_a and of the"
        " h_j are left out, and beyond that they are more than W_a s."
      )),
    ),
    claims.judge(
      "59", measured=f"for {TARGET} target words {measured.products[0]} product without input"
      f" feeding, {measured.products[1]} with it; on {backend()} at T = {last.length}"
      f" {dot.median:.2g} times as long one query after the other [{dot.low:.2g}, {dot.high:.2g}]",
      **claims.told(one_product(*measured.products), qualified=(
        "One product where no state waits for a context: in Luong's order without input feeding."
        " With it, as in Bahdanau's order, it is a product a step. The claim is of a GPU, the"
        f" times are of a {backend()}."
      )),
    ),
    claims.judge(
      "77", measured=f"a further score takes {width:,} multiply-adds and"
      f" {more['score'].tanh - here['score'].tanh:,} tanh with U_a h_j at hand,"
      f" {width_again:,} multiply-adds without",
      **claims.told(one_vector(1000, width, width_again), qualified=(
        "With U_a h_j at hand. Without, each score has a product of a matrix of n' rows and 2n"
        " columns besides."
      )),
    ),
  ]  # fmt: skip


def _judge_memory(measured: Measured) -> list[Claim]:
  """Claims 75, 76 and 78."""
  kept, fixed, cached = (
    {length: one.reals for length, one in by_length.items()}
    for by_length in (measured.annotations, measured.fixed, measured.keys)
  )
  ratio = kept[SOURCE] / fixed[SOURCE]
  with_keys = kept[SOURCE] + cached[SOURCE]
  cache = measured.cache
  return [
    claims.judge(
      "75", measured=f"{kept[SOURCE]:,} numbers for {SOURCE} positions, {ratio} times"
      f" {fixed[SOURCE]}; in proportion at {', '.join(map(str, kept))}; with U_a h_j"
      f" {with_keys:,}, {with_keys / fixed[SOURCE]} times",
      **claims.told(linear(kept, fixed, (100_000, 12.5)), reproduced=(
        "The annotations alone. A decoder that keeps U_a h_j as well keeps half as much again,"
        " and one that reads the end of the source has a position more. Up to"
        f" {fixed[SOURCE] * SOURCE // kept[SOURCE]} words attention keeps no more than the vector."
      )),
    ),
    claims.judge(
      "76", measured=f"{measured.scores:,} weights in the array of a pair of {SOURCE} and"
      f" {TARGET} symbols", verdict=counted(measured.scores, 3000),
      why="Counted on the live array of weights, one a score; ends of sentences would add to both"
      " sides.",
    ),
    claims.judge(
      "78", measured=f"{cache.position:g} numbers a position, key and value"
      f" {cache.key_and_value}; each word written adds {cache.growth:g}; word by word and whole"
      f" pass differ by {cache.difference:.1g} of the largest",
      **claims.told(a_cache(*cache), qualified=(
        "The same as that of the cache of a decoder that attends to its source: linear in the"
        " source and written once. The cache of self-attention grows with every word besides."
      )),
    ),
  ]  # fmt: skip


def backend() -> str:
  """What the times are of."""
  return jax.default_backend().upper()
