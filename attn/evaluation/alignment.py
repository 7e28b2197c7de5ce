"""Links read off attention weights, and their alignment error rate (Och and Ney, 2003, "A
Systematic Comparison of Various Statistical Alignment Models", Computational Linguistics 29, 1).

A link is a pair (source, target) of positions counted from 0. A sure link must be found; a possible
one may be.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float, Int

Links = Iterable[tuple[int, int]] | Int[np.ndarray, "n 2"]
"""The links of one sentence, in any order; more than once is once."""


class AlignmentScores(NamedTuple):
  """Of links A against sure S and possible P, S being part of P, each summed over sentences.

  Attributes:
    error_rate: 1 - (|A and S| + |A and P|) / (|A| + |S|).
    precision: |A and P| / |A|; NaN when no link was found.
    recall: |A and S| / |S|; NaN when there is no sure link.
  """

  error_rate: float
  precision: float
  recall: float


def links(weights: Float[Any, "t s"], threshold: float | None = None) -> set[tuple[int, int]]:
  """Links each target position to the source position with the largest weight.

  Rows and columns are the positions that count: those of EOS and padding are to be sliced away
  before. Of equal weights the first is taken. A row of zeros attended to nothing and has no link.

  Args:
    weights: a row a target position, a column a source position.
    threshold: links every pair of positions with at least this weight instead, so that a target
      position may have several links or none.
  """
  weights = np.asarray(weights, dtype=np.float64)
  if weights.ndim != 2:
    raise ValueError(f"weights is {list(weights.shape)}: expected [t, s] of one sentence")
  bad = np.flatnonzero(~np.isfinite(weights).all(axis=1))
  if bad.size:
    raise ValueError(f"weights[{bad[0]}] is not finite: expected weights, a row a target")
  if threshold is not None:
    if not 0 < threshold <= 1:
      raise ValueError(f"threshold is {threshold}: expected a weight above 0 and at most 1")
    targets, sources = np.nonzero(weights >= threshold)
    return set(zip(sources.tolist(), targets.tolist(), strict=True))
  attended = np.flatnonzero(weights.any(axis=1))
  return {(int(weights[target].argmax()), int(target)) for target in attended}


def word_links(
  links: Links, source_words: Sequence[int], target_words: Sequence[int]
) -> set[tuple[int, int]]:
  """Links of words from links of their pieces: two words are linked where any of their pieces are.

  Args:
    links: those of the pieces.
    source_words: for each piece of the source the number of its word, below 0 for a piece of none;
      `attn.data.vocabulary.Vocabulary.words` counts them.
    target_words: the same of the target.
  """
  words = ((source_words[source], target_words[target]) for source, target in links)
  return {(source, target) for source, target in words if source >= 0 and target >= 0}


Symmetry = Literal["intersection", "union", "grow-diag-final", "grow-diag-final-and"]


def symmetrised(forward: Links, reverse: Links, method: Symmetry) -> set[tuple[int, int]]:
  """One set of links from those of both directions.

  The growing methods (Koehn et al., 2005, "Edinburgh System Description for the 2005 IWSLT Speech
  Translation Evaluation") begin with the intersection. Until nothing is added, they add to each
  link, target by target, the neighbouring links of the union, diagonal ones too, that reach a word
  without a link. In the end come the links of `forward`, then of `reverse`, that reach a word
  without one (`final`), or two of them (`final-and`).

  Args:
    forward: links of a model from source to target, as (source, target).
    reverse: links of a model from target to source, as (source, target) too.
    method: how to join them.
  """
  if method not in get_args(Symmetry):
    raise ValueError(f"method is {method!r}: expected one of {', '.join(get_args(Symmetry))}")
  one, other = ({(int(s), int(t)) for s, t in given} for given in (forward, reverse))
  if method in ("intersection", "union"):
    return one & other if method == "intersection" else one | other
  grown = one & other
  linked = {s for s, _ in grown}, {t for _, t in grown}

  def add(candidates: Iterable[tuple[int, int]], enough: int) -> None:
    for s, t in candidates:
      if (s, t) not in grown and (s not in linked[0]) + (t not in linked[1]) >= enough:
        grown.add((s, t))
        linked[0].add(s)
        linked[1].add(t)

  by_target = sorted(one | other, key=lambda link: link[::-1])
  size = -1
  while size < len(grown):
    size = len(grown)
    for link in by_target:  # one that was added on the way has its turn too
      if link in grown:
        add(_neighbours(link, one | other), 1)
  for direction in (one, other):
    add(sorted(direction, key=lambda link: link[::-1]), 2 if method.endswith("and") else 1)
  return grown


# Koehn's order, as (target, source): it decides which of two candidates for a word comes first.
_AROUND = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def _neighbours(link: tuple[int, int], union: set[tuple[int, int]]) -> Iterator[tuple[int, int]]:
  for down, right in _AROUND:
    near = link[0] + right, link[1] + down
    if near in union:
      yield near


def link_counts(
  links: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None
) -> Int[np.ndarray, "n 4"]:
  """For each sentence |A and S|, |A and P|, |A| and |S|, of which the three scores are made.

  The arguments are those of `alignment_scores`.
  """
  gold = {"links": links, "sure": sure}
  if possible is not None:
    gold["possible"] = possible
  found, must, *may = (_sets(name, sentences) for name, sentences in gold.items())
  if len({len(sentences) for sentences in gold.values()}) != 1:
    told = ", ".join(f"{name} of {len(sentences)}" for name, sentences in gold.items())
    raise ValueError(f"{told} sentences: expected as many of each")
  allowed = [s | p for s, p in zip(must, may[0], strict=True)] if may else must
  triples = zip(found, must, allowed, strict=True)
  counts = [(len(a & s), len(a & p), len(a), len(s)) for a, s, p in triples]
  return np.array(counts, np.int64).reshape(-1, 4)


def counted_scores(
  counts: Float[np.ndarray, "... 4"] | Int[np.ndarray, "... 4"],
) -> AlignmentScores:
  """The three scores of summed `link_counts`; NaN where nothing is there to score."""
  found_sure, found_allowed, found, sure = np.moveaxis(np.asarray(counts, np.float64), -1, 0)
  with np.errstate(invalid="ignore"):
    return AlignmentScores(
      1 - (found_sure + found_allowed) / (found + sure), found_allowed / found, found_sure / sure
    )


def alignment_scores(
  links: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None
) -> AlignmentScores:
  """Error rate, precision and recall of a whole corpus.

  Args:
    links: what was found, one set a sentence.
    sure: the gold links that must be found.
    possible: the gold links that may be found; sure ones are among them whether listed or not. None
      when all are sure.

  Returns:
    The three scores.
  """
  counts = link_counts(links, sure, possible).sum(0)
  if not counts[2:].any():
    raise ValueError("no links, found or sure: an alignment error rate needs at least one")
  return AlignmentScores(*map(float, counted_scores(counts)))


def alignment_error_rate(
  links: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None
) -> float:
  """The error rate of `alignment_scores`: 0 is best, 1 when nothing agrees."""
  return alignment_scores(links, sure, possible).error_rate


def _sets(name: str, sentences: Sequence[Links]) -> list[set[tuple[int, int]]]:
  result = []
  for index, sentence in enumerate(sentences):
    try:
      result.append({(int(source), int(target)) for source, target in sentence})
    except (TypeError, ValueError):
      raise ValueError(
        f"{name}[{index}] is {sentence!r}: expected the (source, target) links of one sentence"
      ) from None
  return result
