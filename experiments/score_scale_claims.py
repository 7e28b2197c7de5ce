"""The rules and verdicts of `experiments.score_scale`, whose docstring states them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import attn
from attn.evaluation import intervals
from attn.evaluation.intervals import Interval
from attn.report import results
from attn.report.results import Claim, Verdict
from experiments import claims
from experiments.score_scale_draws import EXACT, GRADIENTS, LENGTHS, Direction, Spread
from experiments.score_scale_trained import ADDITIVE, RAW, SCALED, Matching, Runs

if TYPE_CHECKING:
  from experiments.score_scale import Config, Measured

MARGIN = 0.1
TINY = 0.01
STEADY = 0.5
ALIKE = 5.0
LEARNED = 50.0


def unit_variance(ratios: Sequence[tuple[float, float]]) -> Verdict:
  """Whether variance / expected is 1 at every width; intervals (low, high)."""
  if any(high < 1 - MARGIN or low > 1 + MARGIN for low, high in ratios):
    return results.CONTRADICTED
  inside = all(low >= 1 - MARGIN and high <= 1 + MARGIN for low, high in ratios)
  return results.REPRODUCED if inside else results.NOT_RESOLVED


def vanishing(gradients: Sequence[Sequence[Spread]], entropies: Sequence[Spread]) -> Verdict:
  """Whether softmax saturates and its gradients become tiny as d_k grows.

  Args:
    gradients: for each gradient one `Spread` a width.
    entropies: one `Spread` a width.
  """
  if entropies[-1].low >= entropies[0].high:
    return results.CONTRADICTED
  thresholds = [TINY * max(at.median for at in gradient) for gradient in gradients]
  ends = [gradient[-1] for gradient in gradients]
  if any(end.low > threshold for end, threshold in zip(ends, thresholds, strict=True)):
    return results.CONTRADICTED
  if any(end.high > threshold for end, threshold in zip(ends, thresholds, strict=True)) or (
    entropies[-1].high >= entropies[0].low
  ):
    return results.NOT_RESOLVED
  means_tiny = all(g[-1].mean <= TINY * max(at.mean for at in g) for g in gradients)
  falling = all(a.median >= b.median for g in gradients for a, b in zip(g, g[1:], strict=False))
  return results.REPRODUCED if means_tiny and falling else results.QUALIFIED


def to_zero(to_scores: Sequence[float], to_unscaled: Sequence[float]) -> Verdict:
  """Whether both gradients fall to zero as the scores are multiplied up."""
  both = (to_scores, to_unscaled)
  if any(norms[-1] > TINY * norms[0] for norms in both):
    return results.CONTRADICTED
  falling = all(a >= b for norms in both for a, b in zip(norms, norms[1:], strict=False))
  return results.REPRODUCED if falling else results.QUALIFIED


def not_direction_alone(found: Direction) -> Verdict:
  """Whether q.k is two lengths and a cosine, and both lengths matter to the weights."""
  if max(found.product, found.cosine) > EXACT or found.kept < 1:
    return results.CONTRADICTED
  matter = (found.falls == 1, found.other.low > 0)
  if all(matter):
    return results.REPRODUCED
  return results.QUALIFIED if any(matter) else results.CONTRADICTED


def stays(raw: Sequence[Spread], additive: Sequence[Spread]) -> bool:
  """Whether the typical gradient of the additive score stays where that of raw q.k vanishes."""
  return (
    additive[-1].low >= STEADY * max(at.median for at in additive)
    and raw[-1].high <= TINY * max(at.median for at in raw)
  )  # fmt: skip


def steadier(form: bool, untrained: bool, falls: Sequence[Interval]) -> Verdict:
  """Whether the additive score has the form that is claimed, and is steadier in high dimensions.

  Args:
    form: whether it has parameters, a tanh, and takes unequal widths.
    untrained: what `stays` says.
    falls: at each setting, how much more raw q.k loses from the narrowest to the widest.
  """
  if not form:
    return results.CONTRADICTED
  if not falls:
    return results.NOT_RESOLVED
  if not untrained and all(fall.high < 0 for fall in falls):
    return results.CONTRADICTED
  shown = [fall.low > 0 for fall in falls]
  if untrained and all(shown):
    return results.REPRODUCED
  return results.QUALIFIED if untrained or any(shown) else results.NOT_RESOLVED


def large_only(untrained: bool, pairs: Sequence[tuple[Interval, Interval]]) -> Verdict:
  """Whether additive and raw q.k do alike when narrow, and additive better when wide.

  Args:
    untrained: what `stays` says.
    pairs: correct queries, additive less raw, at the smallest and at the largest width, points, a
      setting of the optimizer an entry.
  """
  shown = [-ALIKE <= narrow.low and narrow.high <= ALIKE and wide.low > 0 for narrow, wide in pairs]
  denied = [
    wide.high < ALIKE or narrow.low > ALIKE or narrow.high < -ALIKE for narrow, wide in pairs
  ]
  if not pairs:
    return results.NOT_RESOLVED
  if untrained and all(shown):
    return results.REPRODUCED
  if any(shown):
    return results.QUALIFIED
  return results.CONTRADICTED if all(denied) else results.NOT_RESOLVED


class Form(NamedTuple):
  """What the ops themselves are, found by calling them."""

  parameters: int  # of the additive score at these widths
  tanh: bool
  unequal: bool  # whether it takes a query and keys of unequal widths
  dot_unequal: bool  # whether dot does

  @property
  def holds(self) -> bool:
    """Whether the additive score has all that the claim says, and dot has not."""
    return self.parameters > 0 and self.tanh and self.unequal and not self.dot_unequal


def form(query: int = 3, keys: int = 5, hidden: int = 7) -> Form:
  """Traces the additive score and dot with a query and keys of unequal widths."""
  shapes = ((query,), (2, keys), (hidden, query), (hidden, keys), (hidden,))
  arrays = [jnp.zeros(shape) for shape in shapes]
  program = str(jax.make_jaxpr(attn.additive)(*arrays))
  try:
    attn.dot(*arrays[:2])
    dot_unequal = True
  except ValueError:
    dot_unequal = False
  return Form(sum(array.size for array in arrays[2:]), "tanh" in program, True, dot_unequal)


class Compared(NamedTuple):
  """Additive against raw q.k after training, at one setting of the optimizer.

  Attributes:
    narrow: correct queries, additive less raw, at the smallest width, points.
    wide: the same at the largest width.
    falls: how much more raw loses between the two, points.
  """

  narrow: Interval
  wide: Interval
  falls: Interval


def compare(config: Matching, runs: Runs) -> dict[str, Compared]:
  """Setting to paired differences, where a score has learned; all hold together at 95%."""
  level = 1 - 0.05 / (len(Compared._fields) * len(config.settings))
  found = {}
  for at, setting in enumerate(config.settings):
    narrow, wide = ({name: runs[name][k].right[at] for name in (RAW, ADDITIVE)} for k in (0, -1))
    if max(narrow[RAW].mean(), narrow[ADDITIVE].mean()) < LEARNED:
      continue
    found[setting] = Compared(
      intervals.paired_interval(narrow[ADDITIVE], narrow[RAW], level),
      intervals.paired_interval(wide[ADDITIVE], wide[RAW], level),
      intervals.paired_interval(narrow[RAW] - wide[RAW], narrow[ADDITIVE] - wide[ADDITIVE], level),
    )
  return found


def judge(config: "Config", measured: "Measured", runs: Runs) -> list[Claim]:
  """The seven claims, by the rules of `experiments.score_scale`'s docstring."""
  judged = _judge_trained(config, measured, runs)
  for number, name, expected in (("62", "raw", "d_k"), ("67", "scaled", "1")):
    ends = [(ratio.low, ratio.high) for ratio in measured.variance[name]]
    means = [ratio.mean for ratio in measured.variance[name]]
    judged.append(claims.judge(
      number,
      measured=f'variance / {expected} between {min(means):.3f} and {max(means):.3f} over '
      f'{len(means)} widths from {config.widths[0]} to {config.widths[-1]}; 95% at all together',
      interval=(min(low for low, _ in ends), max(high for _, high in ends)),
      verdict=unit_variance(ends),
      why=f'Wants every interval within {MARGIN:.0%} of 1.',
    ))  # fmt: skip
  judged += [_judge_vanishing(config, measured.spreads["raw"]), _judge_example(config, measured)]
  return [*judged, _judge_direction(measured.direction)]


def _judge_trained(config: "Config", measured: "Measured", runs: Runs) -> list[Claim]:
  """Claims 60 and 61."""
  matching, shape = config.matching, form()
  raw, additive = (measured.spreads[name][GRADIENTS[0]] for name in (RAW, ADDITIVE))
  untrained, found = stays(raw, additive), compare(matching, runs)
  d = f"from d = {matching.widths[0]} to {matching.widths[-1]}"
  gradients = (
    f"median Jacobian, untrained, from d_k = {config.widths[0]} to {config.widths[-1]}: raw"
    f" {_from_to(raw, 'median')}, additive {_from_to(additive, 'median')}"
  )
  narrow, wide, falls = (
    {setting: getattr(one, part) for setting, one in found.items()} for part in Compared._fields
  )
  seeds = f"paired over {matching.seeds} seeds"
  none = {
    results.NOT_RESOLVED: "Nothing was learned, or the intervals are too wide: more seeds or"
    " updates would settle it."
  }
  # Where additive is better when narrow already, the width is not what decides.
  by_width = {setting: one.wide for setting, one in found.items() if one.narrow.low <= ALIKE}
  apart = {setting: one.wide for setting, one in found.items() if setting not in by_width}
  rate = (
    f" Additive is better {_where(apart)}, but when narrow too: that rate is too large for the"
    " unscaled dot at any width."
    if apart
    else ""
  )
  return [
    claims.judge(
      "60",
      measured=f"{shape.parameters} parameters and a tanh at widths 3 and 5, where dot is refused;"
      f" {gradients}; matching {d}, correct queries that raw loses more than additive, points:"
      f" {_points(falls)}",
      interval=_highest(falls),
      **claims.told(
        steadier(shape.holds, untrained, list(falls.values())),
        reproduced="Its gradients stay at any width where those of raw q.k vanish, and it loses"
        f" less at every setting of the optimizer, {seeds}.",
        qualified="The form is as claimed. Before training its gradients"
        f" {'stay' if untrained else 'do not stay'} where those of raw q.k vanish; what is learned"
        f" holds up better with width {_where(falls)}, {seeds}.",
        contradicted="It has not the form that is claimed, or is less steady.",
        **none,
      ),
    ),
    claims.judge(
      "61",
      measured=f"matching, correct queries, additive less raw q.k, points: at d ="
      f" {matching.widths[0]} {_points(narrow)}; at d = {matching.widths[-1]} {_points(wide)}."
      f" {_instability(matching, runs)}",
      interval=_highest(by_width),
      **claims.told(
        large_only(untrained, [(one.narrow, one.wide) for one in found.values()]),
        reproduced=f"Alike when narrow, better when wide, at every setting, {seeds}.",
        qualified=f"Alike when narrow and better when wide at some settings only, {seeds}: with"
        " others the unscaled dot learns the task at every width.",
        contradicted="Not on this task, which is small and bilinear (Britz et al. translated): the"
        f" unscaled dot does as well at the largest width with {' and '.join(by_width)}, {seeds}."
        f"{rate}",
        **none,
      ),
    ),
  ]  # fmt: skip


def _instability(config: Matching, runs: Runs) -> str:
  """How raw and scaled differ before and after training, at every setting."""
  lost = [
    np.sum([~np.isfinite(one.loss[at]) for one in runs[RAW]]) for at in range(len(config.settings))
  ]
  listed = ", ".join(
    f"{count} with {setting}" for count, setting in zip(lost, config.settings, strict=True) if count
  )
  first = " and ".join(f"{name} {runs[name][-1].first[0].mean():.1f}" for name in (RAW, SCALED))
  return (
    f"Norm of the first gradient at d = {config.widths[-1]}: {first}. Of"
    f" {len(config.widths) * config.seeds} runs of raw a setting, those whose loss ends as no"
    f" number: {listed or 'none'}"
  )


def _where(differences: Mapping[str, Interval]) -> str:
  above = [setting for setting, difference in differences.items() if difference.low > 0]
  return f"with {' and '.join(above)}" if above else "at no setting"


def _points(differences: Mapping[str, Interval]) -> str:
  told = (f"{setting} {difference:+.1f}" for setting, difference in differences.items())
  return ", ".join(told) or "nothing learned"


def _highest(differences: Mapping[str, Interval]) -> tuple[float, float] | None:
  """The interval that reaches highest: whether it is above 0 anywhere."""
  if not differences:
    return None
  most = max(differences.values(), key=lambda difference: difference.low)
  return most.low, most.high


def _judge_vanishing(config: "Config", raw: dict[str, list[Spread]]) -> Claim:
  jacobian, to_query = raw[GRADIENTS[0]], raw[GRADIENTS[1]]
  peak, end = max(at.median for at in jacobian), jacobian[-1]
  verdict = vanishing([raw[name] for name in GRADIENTS], raw["entropy"])
  why = {
    results.REPRODUCED: "Medians and means end tiny and never rise.",
    results.QUALIFIED: "True of the typical draw at large d_k: the medians end tiny. Not of the "
    "average, which a few unsaturated draws carry, nor from the start.",
    results.CONTRADICTED: "The entropy does not fall or a typical gradient does not end tiny.",
    results.NOT_RESOLVED: "The interval of a median holds the threshold; more draws would settle.",
  }[verdict]
  return claims.judge(
    "63",
    measured=f"raw, d_k from {config.widths[0]} to {config.widths[-1]}: median entropy "
    f"{_from_to(raw['entropy'], 'median')} nats; Jacobian norm, median "
    f"{_from_to(jacobian, 'median')}, mean {_from_to(jacobian, 'mean')}; gradient to the query, "
    f"median {_from_to(to_query, 'median')}, mean {_from_to(to_query, 'mean')}; last median "
    f"Jacobian over the largest {end.median / peak:.2g}",
    interval=(end.low / peak, end.high / peak),
    verdict=verdict,
    why=f"{why} (Tiny: below {TINY:.0%} of the largest over the widths.)",
  )


def _judge_example(config: "Config", measured: "Measured") -> Claim:
  to_scores, to_unscaled = zip(*measured.example, strict=True)
  verdict = to_zero(to_scores, to_unscaled)
  why = {
    results.REPRODUCED: "Both gradients fall at every step and end tiny.",
    results.QUALIFIED: "Both gradients end tiny, but not both fall at every step: true of large "
    "multipliers.",
    results.CONTRADICTED: "A gradient does not end tiny.",
  }[verdict]
  return claims.judge(
    "66",
    measured=f"at scores times {_listed(config.multipliers)}: gradient to the scores "
    f"{_listed(to_scores)}; to the unscaled scores {_listed(to_unscaled)}",
    verdict=verdict,
    why=f"{why} (Tiny: below {TINY:.0%} of the first.)",
  )


def _judge_direction(found: Direction) -> Claim:
  """Claim 68."""
  return claims.judge(
    "68",
    measured=f"q.k is |q||k| cos to {found.product:.1g} of |q||k|; with q times"
    f" {_listed(LENGTHS)} the ranking of the keys is kept in {found.kept:.0%} of the draws and the"
    f" median entropy goes {_listed(found.entropies)} nats, the cosine changes by"
    f" {found.cosine:.1g}; dot and cosine prefer another key in {found.other.mean:.1%}",
    interval=(found.other.low, found.other.high),
    **claims.told(
      not_direction_alone(found),
      reproduced="The query's length sets how sharp the weights are, never their order; the keys'"
      " lengths change the order too. A cosine sees neither.",
      qualified="Only one of the two lengths matters to the weights in these draws.",
      contradicted="Lengths and cosine do not make the score, or do not matter to its weights.",
    ),
  )


def _from_to(spreads: Sequence[Spread], field: str) -> str:
  return f"{getattr(spreads[0], field):.3g} to {getattr(spreads[-1], field):.2g}"


def _listed(values: Sequence[float]) -> str:
  return ", ".join(f"{value:.3g}" for value in values)
