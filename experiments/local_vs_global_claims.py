"""The rules of `experiments.local_vs_global`, its claims and its numbers."""

import math
from collections.abc import Mapping, Sequence

from attn.evaluation.intervals import Interval, mean_interval, paired_interval
from attn.report import results
from attn.report.results import Claim, Metric, Verdict
from experiments import claims
from experiments.local_vs_global_programs import (
  FIXED,
  GLOBAL,
  LOCAL,
  PREDICTED,
  Cost,
  Program,
  mass_of_equal_scores,
)
from experiments.local_vs_global_runs import VERSES, Measured, Runs

BEST = "local-p general"
NAMED = ("global general", "local-m general", BEST, "global dot", "global additive")
LEARNED = 50.0
PAPER_WIDTH = 10  # the paper's D, for which the mass of equal scores is told


def scores_window(found: Mapping[str, Program], *, half_width: int, positions: int) -> Verdict:
  """Whether global attention scores all, and local attention a window that it predicts.

  Args:
    found: by window, what its program does.
    half_width: of the windows.
    positions: of the source.
  """
  whole = {*found[GLOBAL].scored, *found[GLOBAL].positive} == {positions}
  width = max(count for name in LOCAL for count in (*found[name].scored, *found[name].positive))
  farthest = max(found[name].farthest or 0.0 for name in LOCAL)
  predicted = [found[name].follows > 0 for name in LOCAL]
  if not whole or width > 2 * half_width + 1 or farthest > half_width or not any(predicted):
    return results.CONTRADICTED
  return results.REPRODUCED if all(predicted) else results.QUALIFIED


def best(differences: Mapping[str, Sequence[Interval]], *, comparable: bool) -> Verdict:
  """Whether one cell is ahead of all others by all measures.

  Args:
    differences: by data set, from each other cell by each measure, above 0 where it is ahead.
    comparable: whether all cells are there that have to be, and have learned.
  """
  if not comparable:
    return results.NOT_RESOLVED
  ahead = [all(one.low > 0 for one in each) for each in differences.values()]
  behind = [any(one.high < 0 for one in each) for each in differences.values()]
  if all(ahead):
    return results.REPRODUCED
  if any(ahead):
    return results.QUALIFIED
  return results.CONTRADICTED if all(behind) else results.NOT_RESOLVED


def judge(
  found: Mapping[str, Program], runs: Runs, *, half_width: int, positions: int
) -> list[Claim]:
  """The claims, by the rules of the experiment's docstring.

  Args:
    found: what the programs do, by window.
    runs: what was trained.
    half_width: of the programs' windows.
    positions: of their source.
  """
  fixed, predicted = found[FIXED], found[PREDICTED]
  scored = ", ".join(
    f"{name} {min(one.scored)} to {max(one.scored)}" for name, one in found.items()
  )
  assert fixed.centres is not None and predicted.centres is not None
  off = max(abs(centre - t) for t, centre in enumerate(fixed.centres))
  return [
    claims.judge(
      "57",
      measured=f"of {positions} positions scored a step, D = {half_width}: {scored}; centre of"
      f" local-m at most {off:g} from t, derivative to the state {fixed.follows:g}; of local-p"
      f" between {min(predicted.centres):.1f} and {max(predicted.centres):.1f}, derivative"
      f" {predicted.follows:.2g}. Weights of local-p with equal scores and D = {PAPER_WIDTH} sum to"
      f" {mass_of_equal_scores(PAPER_WIDTH):.5f}",
      **claims.told(
        scores_window(found, half_width=half_width, positions=positions),
        qualified="Global scores all positions and both local windows no more than 2D + 1, but only"
        " local-p predicts its centre; that of local-m is t, whatever the state.",
        reproduced="Both local windows follow the state.",
        contradicted="A window scores what it should not, or no centre follows the state.",
      ),
    ),
    _judge_best(runs),
  ]


def ahead(runs: Mapping[str, Sequence[Measured]], level: float) -> dict[str, Interval]:
  """By how much the claimed best cell is ahead of each other named one, by each measure."""
  found = {}
  own = runs[BEST]
  for name in NAMED:
    if name == BEST:
      continue
    other = runs[name]
    losses = [one.nats for one in other], [one.nats for one in own]
    found[f"nats, {name}"] = paired_interval(*losses, level)
    if own[0].bleu is None:
      wrong = [one.wrong for one in other], [one.wrong for one in own]
      found[f"letters right, {name}"] = paired_interval(*wrong, level)
    else:
      bleu = [one.bleu or 0.0 for one in own], [one.bleu or 0.0 for one in other]
      found[f"BLEU, {name}"] = paired_interval(*bleu, level)
  return found


def _judge_best(runs: Runs) -> Claim:
  """Claim L4."""
  whole = {data: by_title for data, by_title in runs.items() if set(NAMED) <= set(by_title)}
  comparable = whole.keys() == runs.keys() and VERSES in runs
  comparable &= all(_learned(by_title) for data, by_title in runs.items() if data != VERSES)
  level = 1 - 0.05 / max(1, 2 * (len(NAMED) - 1) * len(whole))
  found = {data: ahead(by_title, level) for data, by_title in whole.items()}
  losses = [one for each in found.values() for what, one in each.items() if what.startswith("nats")]
  least = min(losses, key=lambda one: one.low) if losses else None
  ahead_on = [data for data, each in found.items() if all(one.low > 0 for one in each.values())]
  tail = " The interval is that of the loss difference that reaches lowest."
  return claims.judge(
    "L4",
    measured="; ".join(_compared(data, whole[data], found[data]) for data in whole)
    or "the five named cells were not trained on one data set together",
    interval=None if least is None else (least.low, least.high),
    **claims.told(
      best({data: list(each.values()) for data, each in found.items()}, comparable=comparable),
      reproduced=f"{BEST} is ahead of every named cell by both measures on all data.{tail}",
      qualified=f"True on {' and '.join(ahead_on)} alone.{tail}",
      contradicted="On all data another named cell is ahead by loss or by the other measure, at"
      f" this size.{tail}",
      **{
        results.NOT_RESOLVED: "Intervals hold 0."
        if comparable
        else "It needs all five named cells on every data set, verses among them, as"
        " the profile full trains them, and models that have learned their letters."
      },
    ),
  )


def _learned(by_title: Mapping[str, Sequence[Measured]]) -> bool:
  """Whether some cell says `LEARNED` of the letters right."""
  wrong = [mean_interval([one.wrong for one in several]).mean for several in by_title.values()]
  return min(wrong) <= 100 - LEARNED


def _compared(
  data: str, by_title: Mapping[str, Sequence[Measured]], differences: Mapping[str, Interval]
) -> str:
  """Both measures of all named cells on one data set, and what is ahead of the claimed best."""
  translated = by_title[BEST][0].bleu is not None
  cells = []
  for name in NAMED:
    perplexity = mean_interval([math.exp(one.nats) for one in by_title[name]]).mean
    other = [(one.bleu or 0.0) if translated else 100 - one.wrong for one in by_title[name]]
    cells.append(f"{name} {perplexity:.4g}, {mean_interval(other).mean:.1f}")
  behind = [what for what, one in differences.items() if one.high < 0]
  return (
    f"{data}, perplexity and {'BLEU' if translated else '% of letters right'}: {'; '.join(cells)};"
    f" ahead of {BEST} by {', '.join(behind) or 'nothing'}"
  )


def metrics(runs: Runs, measured: Sequence[Cost]) -> dict[str, Metric]:
  """Losses, errors and windows of every cell, differences of the three windows, and costs."""
  quantities = {
    "loss": ("nats", "nats a symbol"), "symbols wrong": ("wrong", "%"),
    "alignment error": ("alignment_error", "%"), "BLEU": ("bleu", ""),
    "alignment error of the input symbol": ("input_error", "%"),
    "weights within D of t": ("near", "% of the weights"), "sum of weights": ("mass", ""),
    "centre to link": ("apart", "positions"), "links in the window": ("reached", "%"),
  }  # fmt: skip
  found = {}
  for data, by_title in runs.items():
    for title, several in by_title.items():
      for name, (field, unit) in quantities.items():
        values = [getattr(one, field) for one in several]
        if None not in values:
          found[f"{data}, {title}: {name}"] = Metric(*mean_interval(values), unit)
      for at, group in enumerate(several[0].groups):
        wrong = mean_interval([one.groups[at].wrong for one in several])
        found[f"{data}, {title}: symbols wrong, sources of {group.label}"] = Metric(*wrong, "%")
    for more, less in (("local-m general", "global general"), ("local-m general", BEST)):
      if {more, less} <= set(by_title):
        both = ([one.wrong for one in by_title[title]] for title in (more, less))
        found[f"{data}, {more} less {less}: symbols wrong"] = Metric(
          *paired_interval(*both), "points"
        )
  for one in measured:
    for name, times in one.times.items():
      at = f"{one.length} symbols, {name}"
      median, low, high = (
        1e3 * x for x in (times.spread.median, times.spread.low, times.spread.high)
      )
      found[f"forward pass, {at}: median"] = Metric(median, low, high, len(times.seconds), "ms")
      found[f"forward pass, {at}: memory"] = Metric(one.memory[name] / 2**20, unit="MiB")
  return found
