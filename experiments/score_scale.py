"""When does the softmax over dot products saturate, and does dividing by sqrt(d_k) prevent it?

Queries and keys are drawn with independent standard normal components, at widths up to 4096 and 50
keys a query. Each draw is scored raw (`attn.dot`) and scaled (`attn.scaled_dot`). Measured are the
variance of the scores, and for each draw the entropy, the largest weight, the norm of the softmax
Jacobian, and the gradients to query and keys of a random linear function of the weights. Medians
and quantiles over draws are what counts: a few unsaturated draws carry the means.

Command: python -m launch.run --experiment=score_scale
Time: on two cores under 15 seconds for smoke, about 30 for default, about 5 minutes for full, plus
a few seconds of imports. One run with one seed: draws are the sample, nothing is trained.
Expect: variance d_k raw and 1 scaled. Raw medians of every gradient collapse by d_k = 4096; the
mean Jacobian falls only slowly and the mean gradient to the query does not fall at all. Scaled,
nothing changes with the width. Scaling up a fixed example (claim 66), the gradient to the scores
falls at once, that to the unscaled scores rises before it falls.

Rules, stated before the run:
  62, 67 `unit_variance`: the interval of variance / expected, at every width and together at 95%,
    lies within `MARGIN` of 1: reproduced. Any lies wholly outside: contradicted. Else not resolved.
  63 `vanishing`: the gradients are tiny when, at the largest width, they are below `TINY` of their
    largest value over widths. For each of Jacobian, gradient to query, gradient to keys: if the
    interval of the median is not wholly below, contradicted (wholly above) or not resolved. If all
    medians are tiny and never rise and the means are tiny too: reproduced. Else qualified: true of
    the typical draw, not of the mean or not from the start. Entropy must fall, else contradicted.
  66 `to_zero`: on the chapter's three scores times 1, 2, 4, ...: if either gradient does not end
    below `TINY` of its first value, contradicted; if both fall at every step, reproduced; else
    qualified.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import attn
from attn.evaluation import intervals
from attn.report import recorder, results
from attn.report.results import Claim, Metric, Verdict
from experiments import claims
from experiments import score_scale_figures as drawn
from experiments.score_scale_figures import GRADIENTS

CLAIMS = ("62", "63", "66", "67")

MARGIN = 0.1
TINY = 0.01
SCORES: dict[str, Callable[..., jax.Array]] = {"raw": attn.dot, "scaled": attn.scaled_dot}
EXAMPLE = (2.0, 4.0, 3.0)
BLOCK = 50


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes of the sweep.

  Attributes:
    widths: values of d_k, ascending.
    positions: keys a query attends to.
    draws: independent (query, keys) at each width; at least 6, for the medians' intervals.
    variance_draws: independent (query, key) pairs at each width for the variance.
    multipliers: factors on the chapter's three scores, ascending.
    seed: of the draws.
  """

  widths: tuple[int, ...] = (1, 4, 16, 64, 256, 1024, 4096)
  positions: int = 50
  draws: int = 1000
  variance_draws: int = 20000
  multipliers: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0)
  seed: int = 0

  def __post_init__(self) -> None:
    """Refuses sweeps that cannot show a change."""
    for name in ("widths", "multipliers"):
      values = getattr(self, name)
      if len(values) < 2 or min(values) <= 0 or list(values) != sorted(set(values)):
        raise ValueError(f"{name} must be at least two ascending positive numbers, not {values}")
    # Of five draws even the least and the largest hold the median between them with 94% only.
    for name, least in (("positions", 2), ("draws", 6), ("variance_draws", 2)):
      if getattr(self, name) < least:
        raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  smoke = {"widths": (1, 16, 256, 4096), "draws": 200, "variance_draws": 10000}
  return {"smoke": smoke, "default": {}, "full": {"draws": 10000, "variance_draws": 200000}}


def sweep_quick() -> list[dict[str, Any]]:
  """The number of keys, which the chapter leaves open, at the sizes of the smoke profile."""
  return [{**profiles()["smoke"], "positions": positions} for positions in (10, 50, 200)]


class Spread(NamedTuple):
  """One quantity over the draws of one width."""

  mean: float
  mean_low: float  # 95% intervals
  mean_high: float
  median: float
  low: float
  high: float
  q05: float
  q95: float


def spread(values: np.ndarray) -> Spread:
  """Mean with its t interval, median with its distribution-free one, 5% and 95% quantiles."""
  values = np.sort(np.asarray(values, np.float64))
  n = values.size
  # The median lies between two order statistics whose ranks are binomial.
  rank = int(stats.binom.ppf(0.025, n, 0.5))
  low, high = values[max(rank - 1, 0)], values[min(n - rank, n - 1)]
  q05, median, q95 = np.quantile(values, (0.05, 0.5, 0.95))
  mean = intervals.mean_interval(values)
  return Spread(*map(float, (*mean[:3], median, low, high, q05, q95)))


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


def saturation(
  draw: np.random.Generator, *, width: int, positions: int, draws: int
) -> dict[str, dict[str, np.ndarray]]:
  """Score name to quantity to its value in each draw, `[draws]`; the same draws for each score."""
  found: dict[str, dict[str, list[np.ndarray]]] = {name: {} for name in SCORES}
  # Blocks of one size keep the keys' memory small and the number of compiled programs low.
  for _ in range(0, draws, BLOCK):
    query, keys, pull = (
      draw.standard_normal((BLOCK, *shape), np.float32)
      for shape in ((width,), (positions, width), (positions,))
    )
    scores = _scores(query, keys)
    for name in SCORES:
      here, to_scores = _through_softmax(scores[name], pull)
      here |= _through_score(query, keys, to_scores, name=name)
      for quantity, values in here.items():
        found[name].setdefault(quantity, []).append(np.asarray(values))
  return {
    name: {quantity: np.concatenate(values)[:draws] for quantity, values in by_quantity.items()}
    for name, by_quantity in found.items()
  }


# Three programs rather than one: that in the middle is the same at every width, so compiled once.


@jax.jit
def _scores(query: jax.Array, keys: jax.Array) -> dict[str, jax.Array]:
  return {name: score(query, keys) for name, score in SCORES.items()}


@jax.jit
def _through_softmax(scores: jax.Array, pull: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
  """Diagnostics of the weights, and the gradient to the scores of pull . weights."""
  weights, pull_back = jax.vjp(attn.softmax, scores)
  found = {
    "entropy": attn.entropy(weights),
    "largest weight": attn.max_weight(weights),
    GRADIENTS[0]: attn.jacobian_norm(weights),
  }
  return found, pull_back(pull)[0]


@functools.partial(jax.jit, static_argnames="name")
def _through_score(
  query: jax.Array, keys: jax.Array, to_scores: jax.Array, *, name: str
) -> dict[str, jax.Array]:
  """Norms of the gradients to the query and to all its keys."""
  to_query, to_keys = jax.vjp(SCORES[name], query, keys)[1](to_scores)
  return {
    GRADIENTS[1]: jnp.linalg.norm(to_query, axis=-1),
    GRADIENTS[2]: jnp.linalg.norm(to_keys, axis=(-2, -1)),
  }


def squared_scores(draw: np.random.Generator, *, width: int, draws: int) -> dict[str, np.ndarray]:
  """Score name to squares of independent q.k; their mean is the variance, as q.k has mean 0."""
  found: dict[str, list[np.ndarray]] = {name: [] for name in SCORES}
  for _ in range(0, draws, 10 * BLOCK):
    query, keys = draw.standard_normal((2, 10 * BLOCK, width), np.float32)
    for name, scores in _scores(query, keys[:, None]).items():
      found[name].append(np.square(np.asarray(scores[:, 0], np.float64)))
  return {name: np.concatenate(squares)[:draws] for name, squares in found.items()}


def example_gradients(multiplier: float) -> tuple[float, float]:
  """Norms of d weights / d scores and d weights / d unscaled scores, on the chapter's scores."""
  # Against unit keys the query's dot scores are its own components.
  norms = attn.softmax_gradients(jnp.array(EXAMPLE), jnp.eye(len(EXAMPLE)), scale=multiplier)
  return float(norms.scores), float(norms.unscaled)


class Measured(NamedTuple):
  """All that the claims and figures are made from."""

  variance: dict[str, list[intervals.Interval]]  # of the scores over what is expected, a width
  spreads: dict[str, dict[str, list[Spread]]]  # score, quantity, width
  example: list[tuple[float, float]]  # a multiplier


def measure(config: Config, log: Callable[..., None]) -> Measured:
  """Draws and measures at every width."""
  # NumPy draws: jax.random would compile for seconds at every width. Each width has its own stream.
  level = 1 - 0.05 / len(config.widths)  # all widths together hold at 95%
  variance: dict[str, list[intervals.Interval]] = {name: [] for name in SCORES}
  quantities = ("entropy", "largest weight", *GRADIENTS)
  spreads: dict[str, dict[str, list[Spread]]] = {
    name: {quantity: [] for quantity in quantities} for name in SCORES
  }
  for width in config.widths:
    draw = np.random.default_rng((config.seed, width))
    squares = squared_scores(draw, width=width, draws=config.variance_draws)
    found = saturation(draw, width=width, positions=config.positions, draws=config.draws)
    for name, expected in (("raw", width), ("scaled", 1)):
      variance[name].append(intervals.mean_interval(squares[name] / expected, level))
      log(width=width, score=name, quantity="variance / expected", **variance[name][-1]._asdict())
      for quantity in quantities:
        here = spread(np.asarray(found[name][quantity]))
        spreads[name][quantity].append(here)
        log(width=width, score=name, quantity=quantity, **here._asdict())
  example = [example_gradients(multiplier) for multiplier in config.multipliers]
  for multiplier, (to_scores, to_unscaled) in zip(config.multipliers, example, strict=True):
    log(multiplier=multiplier, to_scores=to_scores, to_unscaled=to_unscaled)
  return Measured(variance, spreads, example)


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Measures, judges the claims and draws the figures.

  Args:
    config: sizes of the sweep.
    workdir: where `result.json` and the figures go.
  """
  record = recorder.Recorder("score_scale", config, profiles(), workdir, seeds=(config.seed,))
  measured = measure(config, record.log)
  judged = judge(config, measured)
  verdicts = {claim.number: claim.verdict for claim in judged}
  draws = f"{config.draws} draws of a query and {config.positions} keys at each width"
  record.figure('gradients', drawn.gradients(config, measured, verdicts['63']), caption=(
    f'{draws}. Lines with markers: median; bands: 5% to 95% of the draws; thin line: mean of the '
    f'raw score. The gradients are those of a random linear function of the weights.'))  # fmt: skip
  record.figure('weights', drawn.weights(config, measured), caption=(
    f'{draws}. Lines: median; bands: 5% to 95% of the draws.'))  # fmt: skip
  record.figure('variance', drawn.variance(config, measured, verdicts['62']), caption=(
    f'{config.variance_draws} independent pairs a width; bars: intervals that hold at all widths '
    'together with 95% confidence, mostly smaller than the markers.'))  # fmt: skip
  record.figure('example', drawn.example(config, measured, verdicts['66']), caption=(
    'Frobenius norms of the softmax Jacobian at the scores 2, 4 and 3 times the multiplier. Exact '
    'arithmetic, no sampling.'))  # fmt: skip
  return record.finish(metrics=_metrics(config, measured), claims=judged)


def _metrics(config: Config, measured: Measured) -> dict[str, Metric]:
  """Variances at every width, everything else at the largest."""
  metrics = {}
  for name, expected in (("raw", "d_k"), ("scaled", "1")):
    for width, ratio in zip(config.widths, measured.variance[name], strict=True):
      label = f"{name}, d_k = {width}: variance of scores / {expected} (all widths together)"
      metrics[label] = Metric(*ratio)
  for name in SCORES:
    for quantity, spreads in measured.spreads[name].items():
      end, label = spreads[-1], f"{name}, d_k = {config.widths[-1]}: {quantity}"
      unit = "nats" if quantity == "entropy" else ""
      metrics[f"{label}, median"] = Metric(end.median, end.low, end.high, config.draws, unit)
      metrics[f"{label}, mean"] = Metric(end.mean, end.mean_low, end.mean_high, config.draws, unit)
  return metrics


def judge(config: Config, measured: Measured) -> list[Claim]:
  """The four claims, by the rules of this module's docstring."""
  judged = []
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
  return judged


def _judge_vanishing(config: Config, raw: dict[str, list[Spread]]) -> Claim:
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


def _judge_example(config: Config, measured: Measured) -> Claim:
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


def _from_to(spreads: Sequence[Spread], field: str) -> str:
  return f"{getattr(spreads[0], field):.3g} to {getattr(spreads[-1], field):.2g}"


def _listed(values: Sequence[float]) -> str:
  return ", ".join(f"{value:.3g}" for value in values)
