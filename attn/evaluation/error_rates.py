"""Error rates of outputs that may have several right answers, as a word has pronunciations.

A sequence is a tuple or list of symbols, or a text whose symbols stand between spaces.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from rapidfuzz.distance import Levenshtein

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
  _check(hypotheses, references)
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
  _check(hypotheses, references)
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


def _symbols(sequence: Symbols) -> tuple[str, ...]:
  return tuple(sequence.split()) if isinstance(sequence, str) else tuple(sequence)


def _check(hypotheses: Sequence[Symbols], references: Sequence[Sequence[Symbols]]) -> None:
  if len(hypotheses) != len(references):
    raise ValueError(
      f"{len(hypotheses)} hypotheses, {len(references)} references: expected a list of references"
      " for each hypothesis"
    )
  if not len(hypotheses):
    raise ValueError("no hypotheses: an error rate needs at least one")
  for index, accepted in enumerate(references):
    if isinstance(accepted, str):
      raise TypeError(
        f"references[{index}] is the text {accepted!r}: expected a list of references"
      )
    if not len(accepted):
      raise ValueError(f"references[{index}] is empty: expected at least one reference")
