"""What scores of text are given: hypotheses, each with the texts that count as right."""

from collections.abc import Sequence
from typing import Any


def check_references(hypotheses: Sequence[Any], references: Sequence[Sequence[Any]]) -> None:
  """Raises unless every hypothesis has a list of references.

  Raises:
    ValueError: the numbers differ, there are none, or a hypothesis has no reference.
    TypeError: a text stands where a list of them should.
  """
  if len(hypotheses) != len(references) or not len(hypotheses):
    raise ValueError(
      f"{len(hypotheses)} hypotheses, {len(references)} references: expected a list of references"
      " for each hypothesis, and at least one"
    )
  for index, accepted in enumerate(references):
    if isinstance(accepted, str):
      raise TypeError(
        f"references[{index}] is the text {accepted!r}: expected a list of references"
      )
    if not len(accepted):
      raise ValueError(f"references[{index}] is empty: expected at least one reference")
