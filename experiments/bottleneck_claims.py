"""The rules and verdicts of `experiments.bottleneck`, whose docstring states them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from attn.evaluation.intervals import Interval, mean_interval, paired_interval
from attn.report import results
from attn.report.results import Claim, Verdict
from experiments import claims
from experiments.bottleneck_capacity import BITS, KINDS, REALS, Capacity, Held
from experiments.bottleneck_recall import AFTER, BEFORE, Recall, Recalled
from experiments.bottleneck_runs import ATTENTION, FIRST_STATE, FIXED, PAIR, Measured

LEARNED = 50.0
WELL = 25.0
STILL = 2.0
HELD = 99.0
LOST = 50.0


def same_context(fixed: float, attention: float, fed: float, first_state: float) -> Verdict:
  """Whether contexts are one vector for all steps exactly where there is no attention.

  Args:
    fixed: largest difference between contexts of one target, fixed vector.
    attention: the same with attention.
    fed: largest change of a logit without contexts, fixed vector.
    first_state: the same where the vector is a first state.
  """
  if fixed != 0.0 or not attention > 0.0 or not fed > 0.0:
    return results.CONTRADICTED
  return results.QUALIFIED if first_state == 0.0 else results.REPRODUCED


def falls(
  short: Sequence[float], rises: Sequence[Interval], unknown: Interval | None, *, learned: bool
) -> Verdict:
  """Whether few errors on short sources grow with length, and with unknown letters.

  Args:
    short: errors on the shortest sources, a data set an entry.
    rises: how much they grow to the longest ones, a data set an entry.
    unknown: how much they grow with the share of unknown letters; None if not measured.
    learned: whether attention has learned the task.
  """
  if not learned:
    return results.NOT_RESOLVED
  if any(rise.high < 0 for rise in (*rises, *([unknown] if unknown else []))):
    return results.CONTRADICTED
  if unknown is None or any(rise.low <= 0 for rise in rises) or any(e >= WELL for e in short):
    return results.NOT_RESOLVED
  return results.REPRODUCED if unknown.low > 0 else results.QUALIFIED


def falls_more(
  rises: Sequence[Interval], excesses: Sequence[Interval], *, learned: bool
) -> Verdict:
  """Whether errors rise with length, and by more than with attention; intervals a data set."""
  if not learned:
    return results.NOT_RESOLVED
  if any(rise.high < 0 for rise in rises):
    return results.CONTRADICTED
  if not all(rise.low > 0 for rise in rises):
    return results.NOT_RESOLVED
  return results.REPRODUCED if all(e.low > 0 for e in excesses) else results.QUALIFIED


def on_all(differences: Sequence[Interval], *, learned: bool) -> Verdict:
  """Whether a difference is above 0; an interval a data set, or a width."""
  return claims.above(differences) if learned else results.NOT_RESOLVED


def stays(rises: Sequence[Interval], *, learned: bool) -> Verdict:
  """Whether errors with attention rise with length by no more than `STILL`; a data set an entry."""
  if not learned:
    return results.NOT_RESOLVED
  still = [rise.high <= STILL for rise in rises]
  if all(still):
    return results.REPRODUCED
  if all(rise.low > STILL for rise in rises):
    return results.CONTRADICTED
  return results.QUALIFIED if any(still) else results.NOT_RESOLVED


def enough(largest: Sequence[Interval], smaller: Mapping[int, Interval], bits: float) -> Verdict:
  """Whether bits are not what runs out in a fixed vector.

  Args:
    largest: words read right at the largest width, %, a kind of vector an entry.
    smaller: smaller width to the same of reals.
    bits: that one sentence takes.
  """
  if any(held.high < HELD for held in largest):
    return results.CONTRADICTED
  if any(held.low < HELD for held in largest):
    return results.NOT_RESOLVED
  lost = any(32 * width >= bits and held.high < LOST for width, held in smaller.items())
  return results.REPRODUCED if lost else results.QUALIFIED


class Evidence(NamedTuple):
  """All that the claims and figures are made from.

  Attributes:
    measured: data set to model to a run a seed.
    unknown: model to a run a seed, where some letters are unknown; None if not measured.
    beyond: the same, trained on short sources only; None if not measured.
    widths: units to model to a run a seed.
    capacity: what was put into untrained vectors.
    held: what was read from them.
    recall: the task of recall.
    recalled: what was recalled.
  """

  measured: Mapping[str, Mapping[str, Sequence[Measured]]]
  unknown: Mapping[str, Sequence[Measured]] | None
  beyond: Mapping[str, Sequence[Measured]] | None
  widths: Mapping[int, Mapping[str, Sequence[Measured]]]
  capacity: Capacity
  held: Held
  recall: Recall
  recalled: Recalled


def overall(runs: Sequence[Measured]) -> list[float]:
  """Symbol errors of each run, %."""
  return [one.symbol_errors for one in runs]


def rises(runs: Sequence[Measured]) -> list[float]:
  """How much the symbol error of the longest group exceeds that of the shortest, points."""
  return [one.groups[-1].symbol_errors - one.groups[0].symbol_errors for one in runs]


def unknown_rises(runs: Sequence[Measured]) -> list[float]:
  """The same from no unknown letters to the largest share of them."""
  return [one.unknown[-1].symbol_errors - one.unknown[0].symbol_errors for one in runs]


def gains(recall: Recall, recalled: Recalled, first: str, second: str) -> dict[int, Interval]:
  """Width to what `first` names right more often than `second`, points, all widths together."""
  level = 1 - 0.05 / len(recall.widths)
  pairs = zip(recall.widths, recalled[first], recalled[second], strict=True)
  return {width: paired_interval(a, b, level) for width, a, b in pairs}


def judge(found: Evidence) -> list[Claim]:
  """The claims, by the rules of `experiments.bottleneck`'s docstring."""
  worst = max(np.mean(overall(arms[ATTENTION])) for arms in found.measured.values())
  learned = bool(worst < LEARNED)
  return [
    _judge_capacity(found.capacity, found.held),
    _judge_recall(found.recall, found.recalled),
    *_judge_lengths(found, learned),
    *_judge_channels(found.measured, learned),
  ]


def _judge_capacity(capacity: Capacity, held: Held) -> Claim:
  """Claim 16."""
  level = 1 - 0.05 / (len(KINDS) + len(capacity.widths) - 1)
  largest = [mean_interval(held[kind][-1], level) for kind in KINDS]
  smaller = {
    width: mean_interval(held[REALS][at], level) for at, width in enumerate(capacity.widths[:-1])
  }
  listed = "; ".join(
    f"{width}: {np.mean(held[REALS][at]):.0f}% and {np.mean(held[BITS][at]):.0f}%"
    for at, width in enumerate(capacity.widths)
  )
  least = min(largest, key=lambda one: one.low)
  return claims.judge(
    "16",
    measured=f"{capacity.words} words of {capacity.vocabulary:,} ({capacity.bits:.0f} bits) in one"
    f" vector without training, read by one matrix product; words right by components, reals and"
    f" 1 bit each: {listed}; {capacity.sentences} sentences",
    interval=(least.low, least.high),
    **claims.told(
      enough(largest, smaller, capacity.bits),
      reproduced="The largest vector holds all even with one bit a component. Narrower ones still"
      " have bits to spare when a linear decoder can no longer tell the words apart.",
      qualified="The largest vector holds all even with one bit a component; no width here is so"
      " narrow that reading fails while the bits suffice.",
      contradicted="Even the largest vector does not hold the sentence.",
    ),
  )


def _judge_recall(recall: Recall, recalled: Recalled) -> Claim:
  """Claim 17."""
  gain = gains(recall, recalled, BEFORE, AFTER)
  learned = float(np.mean(recalled[BEFORE][-1])) >= LEARNED
  means = "; ".join(
    f"{width}: " + ", ".join(f"{np.mean(recalled[arm][at]):.0f}%" for arm in recalled)
    for at, width in enumerate(recall.widths)
  )
  above = [str(width) for width, one in gain.items() if one.low > 0]
  least = min(gain.values(), key=lambda one: one.low)
  return claims.judge(
    "17",
    measured=f"one of {recall.pairs} values asked for; right by width of the state, asked before,"
    f" asked after, asked after with attention: {means}; before less after, points:"
    f" {_points(gain)}",
    interval=(least.low, least.high),
    **claims.told(
      on_all(list(gain.values()), learned=learned),
      reproduced=f"Knowing the question first helps at every width, paired over {least.n} seeds"
      " (the interval is the lowest): not knowing it, the state has to keep all.",
      qualified=f"Knowing the question first helps at widths {', '.join(above)}, paired over"
      f" {least.n} seeds; at the others the interval holds 0.",
      contradicted="Knowing the question first does not help.",
    ),
  )


def _judge_lengths(found: Evidence, learned: bool) -> list[Claim]:
  """Claims 23, 25 and 26."""
  level = 1 - 0.05 / (len(found.measured) + 1)  # Bonferroni's, with the unknown letters.
  rise, excess, attending = (
    {name: of(arms) for name, arms in found.measured.items()}
    for of in (
      lambda arms: mean_interval(rises(arms[FIXED]), level),
      lambda arms: paired_interval(rises(arms[FIXED]), rises(arms[ATTENTION]), level),
      lambda arms: mean_interval(rises(arms[ATTENTION]), level),
    )
  )
  short = [
    float(np.mean([one.groups[0].symbol_errors for one in arms[FIXED]]))
    for arms in found.measured.values()
  ]
  unknown, told = None, "; unknown letters: not measured in this profile"
  if found.unknown:
    unknown = mean_interval(unknown_rises(found.unknown[FIXED]), level)
    other = mean_interval(unknown_rises(found.unknown[ATTENTION]), level)
    first, last = found.unknown[FIXED][0].unknown[0], found.unknown[FIXED][0].unknown[-1]
    told = (
      f"; from {first.label} to {last.label} unknown letters by {_points({'reverse': unknown})},"
      f" with attention by {_points({'reverse': other})}"
    )
  shown = unknown is not None and unknown.low > 0
  half = "" if shown else "; the latter is not shown, or not measured, by these runs"
  still = [name for name, one in attending.items() if one.high <= STILL]
  return [
    claims.judge(
      "23",
      measured=f"symbol errors of the fixed vector: {max(short):.1f}% or less on the shortest"
      f" sources; on the longest more by {_points(rise)}{told}",
      interval=_least(rise),
      verdict=falls(short, list(rise.values()), unknown, learned=learned),
      why=f"Wants under {WELL:.0f}% on short sources, and a rise with length and with unknown"
      f" letters{half}. The interval is the lower one by length.{_untrained(learned)}",
    ),
    claims.judge(
      "25",
      measured=f"symbol errors rise from the shortest to the longest sources by {_points(rise)};"
      f" that exceeds the rise with attention by {_points(excess)}",
      interval=_least(excess),
      verdict=falls_more(list(rise.values()), list(excess.values()), learned=learned),
      why=_where("The rise exceeds that with attention", excess) + _untrained(learned),
    ),
    claims.judge(
      "26",
      measured="symbol errors with attention rise from the shortest to the longest sources by"
      f" {_points(attending)}{_beyond(found.beyond)}",
      interval=_most(attending),
      verdict=stays(list(attending.values()), learned=learned),
      why=f"Wants a rise of at most {STILL:.0f} points on every data set, inside the lengths that"
      f" were trained; so on {' and '.join(still) or 'neither data set'}. Sentences are far shorter"
      f" than 50 words here. The interval is the higher one.{_untrained(learned)}",
    ),
  ]


def _beyond(runs: Mapping[str, Sequence[Measured]] | None) -> str:
  """What becomes of sources longer than any that was trained."""
  if not runs:
    return ""
  told = ", ".join(
    f"{arm} "
    + ", ".join(
      f"{np.mean([one.groups[at].symbol_errors for one in of]):.0f}% at {group.label}"
      for at, group in enumerate(of[0].groups)
    )
    for arm, of in runs.items()
  )
  return f". Trained on short ones only, by letters: {told}"


def _judge_channels(
  measured: Mapping[str, Mapping[str, Sequence[Measured]]], learned: bool
) -> list[Claim]:
  """Claims 42 and 73."""
  level = 1 - 0.05 / len(measured)
  kept, cost = (
    {name: paired_interval(of(arms[a]), of(arms[b]), level) for name, arms in measured.items()}
    for of, a, b in (
      (lambda runs: [one.kept for one in runs], ATTENTION, FIXED),
      (overall, FIXED, ATTENTION),
    )
  )
  change = {
    arm: max(one.context_change for arms in measured.values() for one in arms[arm]) for arm in PAIR
  }
  effect = {
    arm: max(one.context_effect for arms in measured.values() for one in arms[arm])
    for arm in (FIXED, FIRST_STATE)
  }
  return [
    claims.judge(
      "42",
      measured=f"largest difference between two contexts of one target: {change[FIXED]:.2g} with"
      f" the fixed vector, {change[ATTENTION]:.2g} with attention; largest change of a logit when"
      f" every context is zeros: {effect[FIXED]:.2g} where the vector is fed at each step,"
      f" {effect[FIRST_STATE]:.2g} where it is the first state alone",
      **claims.told(
        same_context(change[FIXED], change[ATTENTION], effect[FIXED], effect[FIRST_STATE]),
        qualified="Literally so where the vector is fed at each step; as a mere first state it is"
        " no context at all: no step reads one.",
        contradicted="Wants contexts that are read, and are exactly one vector only without"
        " attention.",
      ),
    ),
    claims.judge(
      "73",
      measured="with the vector cut, symbols still predicted along the reference, attention less"
      f" fixed vector: {_points(kept)}; symbol errors uncut, fixed vector less attention:"
      f" {_points(cost)}",
      interval=_least(kept),
      verdict=on_all(list(kept.values()), learned=learned),
      why=_where("More arrives with attention", kept) + _untrained(learned),
    ),
  ]


def _where(what: str, differences: Mapping[str, Interval]) -> str:
  above = [name for name, difference in differences.items() if difference.low > 0]
  seeds = next(iter(differences.values())).n
  return f"{what} on {' and '.join(above) or 'neither data set'}, paired over {seeds} seeds."


def _untrained(learned: bool) -> str:
  return "" if learned else f" Attention makes {LEARNED:.0f}% errors or more: not trained enough."


def _points(differences: Mapping[Any, Interval]) -> str:
  return ", ".join(f"{name} {gap:+.1f} points" for name, gap in differences.items())


def _least(differences: Mapping[str, Interval]) -> tuple[float, float]:
  """The interval that reaches lowest, which decides whether all are above 0."""
  least = min(differences.values(), key=lambda difference: difference.low)
  return least.low, least.high


def _most(differences: Mapping[str, Interval]) -> tuple[float, float]:
  """The interval that reaches highest, which decides whether all are small."""
  most = max(differences.values(), key=lambda difference: difference.high)
  return most.low, most.high
