"""Error rates and accuracies of outputs that may have several right answers, as a word has
pronunciations.

A sequence is a tuple or list of symbols, or a text whose symbols stand between spaces.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from rapidfuzz.distance import Levenshtein

from attn.evaluation.references import check_references

Symbols = str | Sequence[str]


class Edits(NamedTuple):
  """Edits to the nearest reference, by example.

  Attributes:
    edits: symbols to insert, delete or substitute.
    lengths: symbols of that reference.
  """

  edits: Int[np.ndarray, " n"]
  lengths: Int[np.ndarray, " n"]


def edit_distance(hypothesis: Symbols, reference: Symbols) -> int:
  """The fewest insertions, deletions and substitutions of symbols between the two."""
  return Levenshtein.distance(_symbols(hypothesis), _symbols(reference))


def word_errors(
  hypotheses: Sequence[Symbols], references: Sequence[Sequence[Symbols]]
) -> Float[np.ndarray, " n"]:
  """1 for each hypothesis that equals none of its references, 0 for each that equals one."""
  check_references(hypotheses, references)
  return np.array(
    [
      float(_symbols(hypothesis) not in map(_symbols, accepted))
      for hypothesis, accepted in zip(hypotheses, references, strict=True)
    ]
  )


def word_error_rate(
  hypotheses: Sequence[Symbols], references: Sequence[Sequence[Symbols]]
) -> float:
  """The share of hypotheses that equal none of their references.

  Args:
    hypotheses: one an example.
    references: for each example all the sequences that count as right.

  Returns:
    A share between 0 and 1.
  """
  return float(word_errors(hypotheses, references).mean())


def phoneme_edits(hypotheses: Sequence[Symbols], references: Sequence[Sequence[Symbols]]) -> Edits:
  """Edits to the nearest reference; of equally near ones, the longest."""
  check_references(hypotheses, references)
  nearest = []
  for hypothesis, accepted in zip(hypotheses, references, strict=True):
    distances = [(edit_distance(hypothesis, one), -len(_symbols(one))) for one in accepted]
    nearest.append(min(distances))
  edits, lengths = np.array(nearest).T
  return Edits(edits, -lengths)


def phoneme_error_rate(
  hypotheses: Sequence[Symbols], references: Sequence[Sequence[Symbols]]
) -> float:
  """All edits to the nearest references over all symbols of those references.

  Args:
    hypotheses: one an example.
    references: for each example all the sequences that count as right.

  Returns:
    A rate of at least 0; above 1 where hypotheses are much too long.
  """
  edits, lengths = phoneme_edits(hypotheses, references)
  if not lengths.sum():
    raise ValueError("references hold no symbols: an error rate is a share of their symbols")
  return float(edits.sum() / lengths.sum())


def token_matches(
  hypotheses: Sequence[Symbols], references: Sequence[Sequence[Symbols]]
) -> Int[np.ndarray, "n 2"]:
  """Symbols that stand where a reference has them, and symbols of the longer of the two.

  One symbol too many shifts all that follow, which `phoneme_edits` forgives. Of several references
  the one with the largest share counts, of equal ones the longest. The sum of the first column over
  that of the second is token accuracy.
  """
  check_references(hypotheses, references)
  best = []
  for hypothesis, accepted in zip(hypotheses, references, strict=True):
    made, matches = _symbols(hypothesis), []
    for wanted in map(_symbols, accepted):
      right = sum(a == b for a, b in zip(made, wanted, strict=False))
      matches.append((right, max(len(made), len(wanted))))
    best.append(max(matches, key=lambda match: (match[0] / max(match[1], 1), match[1])))
  return np.array(best, np.int64)


def _symbols(sequence: Symbols) -> tuple[str, ...]:
  return tuple(sequence.split()) if isinstance(sequence, str) else tuple(sequence)
