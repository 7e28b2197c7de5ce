"""The verdicts of `experiments.reversal`: its rules, and the claims that they judge."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from attn.evaluation.intervals import Interval, mean_interval, paired_interval
from attn.report import results
from attn.report.results import Claim, Verdict
from experiments import claims
from experiments.reversal_runs import (
  ATTENTION,
  FIXED,
  FORWARD,
  REVERSED,
  Measured,
  Runs,
  slope,
)

LEARNED = 30.0
CLAIMED, ROUNDING = 4.7, 0.1  # both ends of a difference are printed with a decimal or two
# BLEU forward and reversed, as published.
PUBLISHED = {
  f"{claims.SUTSKEVER}, section 3.3": (25.9, 30.6),
  "its Table 1": (26.17, 30.59),
  "its Table 2, rescoring": (35.61, 35.85),
  f"{claims.LUONG}, Table 1": (11.3, 12.6),
}
TIMES = ("before", "after")


def exactly_why(
  recent: Sequence[bool],
  gains: Sequence[Interval],
  excesses: Sequence[Interval],
  late: Sequence[Interval],
) -> Verdict:
  """Whether that the end state favours recent words is why reversing helped; see the docstring.

  Args:
    recent: whether it does, before training and after.
    gains: of the fixed vector's loss, of each data set.
    excesses: by how much they exceed those of attention; none if that was not trained.
    late: gains of the fixed vector's loss in the last fifth of the targets.
  """
  if not gains or not excesses:
    return results.NOT_RESOLVED
  found = claims.above(gains), claims.above(excesses)
  if results.CONTRADICTED in found:
    return results.CONTRADICTED
  shown = [a.low > 0 and b.low > 0 for a, b in zip(gains, excesses, strict=True)]
  if not any(recent) or not any(shown):
    return results.NOT_RESOLVED
  whole = all(recent) and all(shown) and all(one.high < 0 for one in late)
  return results.REPRODUCED if whole else results.QUALIFIED


def direction(gains: Sequence[Interval]) -> Verdict:
  """Whether reversing gains on some data set; a figure of another size is never reproduced."""
  found = claims.above(gains) if gains else results.NOT_RESOLVED
  return results.QUALIFIED if found == results.REPRODUCED else found


def worth(differences: Sequence[float], symbols: Verdict) -> Verdict:
  """Whether reversing is worth `CLAIMED` BLEU, by the published pairs and what is seen here.

  Args:
    differences: of the published pairs.
    symbols: what `direction` says of the symbol errors.
  """
  same = [abs(one - CLAIMED) <= ROUNDING for one in differences]
  if not any(same) or symbols == results.CONTRADICTED:
    return results.CONTRADICTED
  if symbols == results.NOT_RESOLVED:
    return results.NOT_RESOLVED
  return results.REPRODUCED if all(same) else results.QUALIFIED


def gain(
  arms: Mapping[str, Mapping[str, Sequence[Measured]]], arm: str, of: str
) -> Float[np.ndarray, "n ..."]:
  """Forward less reversed of each seed, in an attribute of `Measured`."""
  forward, reversed_ = (
    np.array([getattr(one, of) for one in arms[arm][way]]) for way in (FORWARD, REVERSED)
  )
  return forward - reversed_


def learned(arms: Mapping[str, Mapping[str, Sequence[Measured]]]) -> bool:
  """Whether the models compared, reversed, have at least `LEARNED` % right on a data set."""
  return all(
    mean_interval([one.right for one in arms[arm][REVERSED]]).mean >= LEARNED
    for arm in (FIXED, ATTENTION)
    if arm in arms
  )


def end_slopes(runs: Runs, time: str, level: float) -> list[Interval]:
  """Of the fixed vector's end state, a data set and direction an interval."""
  return [
    mean_interval([slope(getattr(one, time).end, way) for one in measured], level)
    for arms in runs.values()
    for way, measured in arms[FIXED].items()
  ]


def judge(runs: Runs, waits: Mapping[str, Mapping[str, Any]]) -> list[Claim]:
  """The claims, by the rules of this module's docstring."""
  able = {name: arms for name, arms in runs.items() if learned(arms)}
  level = 1 - 0.05 / len(runs)
  nats, symbols = (
    {name: mean_interval(gain(arms, FIXED, of), level) for name, arms in runs.items()}
    for of in ("loss", "symbol_errors")
  )
  at_loss, at_symbols = (direction([one[name] for name in able]) for one in (nats, symbols))
  open_ = _open(runs, able)
  differences = {name: after - before for name, (before, after) in PUBLISHED.items()}
  published = ", ".join(f"{one:+.2f} ({name})" for name, one in differences.items())
  return [
    _judge_why(runs, able, waits),
    claims.judge(
      "19",
      measured=f"perplexity, fixed vector: {_perplexities(runs)}; loss forward less reversed:"
      f" {_told(nats, 'nats')}",
      interval=_least(nats),
      **claims.told(
        at_loss,
        qualified=f"The direction, {_where(nats, able)}: the two figures are of a model of 384"
        f" million parameters on 12 million sentence pairs.{open_}",
        contradicted=f"Reversing raises the loss of the fixed vector here.{open_}",
        **{"not resolved here": f"No data set shows a gain.{open_}"},
      ),
    ),
    claims.judge(
      "20",
      measured=f"symbol errors of decoded outputs, fixed vector, forward less reversed:"
      f" {_told(symbols, 'points')}",
      interval=_least(symbols),
      **claims.told(
        at_symbols,
        qualified=f"The direction, in symbol errors in place of BLEU, {_where(symbols, able)}."
        f" The paper's own Table 1 has 26.17 and 30.59.{open_}",
        contradicted=f"Reversing adds errors here.{open_}",
        **{"not resolved here": f"No data set shows a gain.{open_}"},
      ),
    ),
    claims.judge(
      "21",
      measured=f"published differences: {published}; here, in symbol errors:"
      f" {_told(symbols, 'points')}",
      interval=_least(symbols),
      **claims.told(
        worth(list(differences.values()), at_symbols),
        qualified="True of one published pair of figures, of one model decoded by itself; others"
        " in the same paper and in Luong's differ, and so do the data sets and models here.",
        reproduced="All published pairs differ by as much.",
        contradicted="No published pair differs by as much, or reversing adds errors here.",
        **{"not resolved here": f"The published pairs disagree; no gain is shown here.{open_}"},
      ),
    ),
  ]


def _judge_why(runs: Runs, able: Runs, waits: Mapping[str, Mapping[str, Any]]) -> Claim:
  """Claim 18."""
  attends = all(ATTENTION in arms for arms in runs.values())
  level = 1 - 0.05 / (len(runs) * (2 * len(TIMES) + 2 + attends))
  ends = {time: end_slopes(runs, time, level) for time in TIMES}
  recent = [all(one.high < 0 for one in ends[time]) for time in TIMES]
  gains, excesses, late = {}, {}, {}
  for name, arms in runs.items():
    gains[name] = mean_interval(gain(arms, FIXED, "loss"), level)
    late[name] = mean_interval(gain(arms, FIXED, "loss_by_place")[:, -1], level)
    if attends:
      excesses[name] = paired_interval(
        gain(arms, FIXED, "loss"), gain(arms, ATTENTION, "loss"), level
      )
  verdict = exactly_why(recent, *([one[name] for name in able if name in one]
                                  for one in (gains, excesses, late)))  # fmt: skip
  kept = [time for time, holds in zip(TIMES, recent, strict=True) if holds]
  last = (
    f"the last words, read first when reversed, lose on {_names(late, below=True)} and gain on"
    f" {_names(late)}"
  )
  why = {
    results.REPRODUCED: "The end state favours what was read last; the gain is where the end state"
    " is all there is, and is paid for by the last words.",
    results.QUALIFIED: f"The end state favours recent words {' and '.join(kept)} training; the"
    f" gain is the fixed vector's on {_names(gains)}, beyond that of attention without the end"
    f" state on {_names(excesses)};"
    f" {last}. The authors name the least lag, not recency alone, and claim no full explanation."
    + _open(runs, able),
    results.CONTRADICTED: "Reversing does not help the fixed vector, or helps attention without"
    " the end state more.",
    results.NOT_RESOLVED: "Some interval holds 0, or the model with attention is not compared."
    + _open(runs, able),
  }[verdict]
  slopes = "; ".join(
    f"{time} training {min(means):+.2f} to {max(means):+.2f}"
    for time in TIMES
    if (means := [one.mean for one in ends[time]])
  )
  lags = "; ".join(
    f"{name}: mean lag {np.mean(one[FORWARD]['mean']):.2f} forward and"
    f" {np.mean(one[REVERSED]['mean']):.2f} reversed, least {np.mean(one[FORWARD]['least']):.2f}"
    f" and {np.mean(one[REVERSED]['least']):.2f}"
    for name, one in waits.items()
  )
  return claims.judge(
    "18",
    measured=f"decades of the end state's gradient for ten words read since: {slopes}; gain in"
    f" loss, fixed vector: {_told(gains, 'nats')}; beyond that of attention alone:"
    f" {_told(excesses, 'nats')}; in the last fifth of the targets: {_told(late, 'nats')}; {lags}",
    interval=_least(excesses or gains),
    verdict=verdict,
    why=why,
  )


def _open(runs: Runs, able: Runs) -> str:
  missing = [name for name in runs if name not in able]
  return f" Models have not learned {' and '.join(missing)}." if missing else ""


def _names(found: Mapping[str, Interval], *, below: bool = False) -> str:
  names = [name for name, one in found.items() if (one.high < 0 if below else one.low > 0)]
  return " and ".join(names) or "no data set"


def _where(found: Mapping[str, Interval], able: Runs) -> str:
  shown = _names({name: found[name] for name in able})
  return f"on {shown}, over {next(iter(found.values())).n} seeds"


def _told(found: Mapping[str, Interval], unit: str) -> str:
  return ", ".join(f"{name} {one:+.3g} {unit}" for name, one in found.items()) or "not measured"


def _perplexities(runs: Runs) -> str:
  return ", ".join(
    name
    + " "
    + " and ".join(
      f"{math.exp(mean_interval([one.loss for one in measured]).mean):.2f} {way}"
      for way, measured in arms[FIXED].items()
    )
    for name, arms in runs.items()
  )


def _least(found: Mapping[str, Interval]) -> tuple[float, float]:
  """The interval that reaches lowest."""
  least = min(found.values(), key=lambda one: one.low)
  return least.low, least.high
