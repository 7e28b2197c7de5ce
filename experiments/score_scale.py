"""When does the softmax over dot products saturate, and does dividing by sqrt(d_k) prevent it?

Queries and keys are drawn with independent standard normal components, at widths up to 4096 and 50
keys a query. Each draw is scored raw (`attn.dot`), scaled (`attn.scaled_dot`), by cosine, and by
the additive and general scores with random parameters. Measured are the variance of the scores, and
for each draw the entropy, the largest weight, the norm of the softmax Jacobian, and the gradients
to query and keys of a random linear function of the weights. Medians and quantiles over draws are
what counts: a few unsaturated draws carry the means. Then raw, scaled and additive scores are
trained to find the item that a query belongs to, at several widths and with several optimizers.
The full profile also trains Luong's model, and looks at what its scores are made of.

Command: python -m launch.run --experiment=score_scale
Time: on two cores: smoke 10 seconds, default 34 (draws at 7 widths 18, matching 9 programs x 1.2 s,
each of them all seeds and settings, figures 4), full 6.6 minutes on a busy machine (draws 2
minutes, matching 1, 15 runs of Luong's model x 14 s), plus a few seconds of imports.
Expect: variance d_k raw and 1 scaled. Raw and general medians of every gradient collapse by d_k =
4096; the mean Jacobian falls only slowly and the mean gradient to the query does not fall at all.
Scaled and additive, nothing changes with the width. Scaling up a fixed example (claim 66), the
gradient to the scores falls at once, that to the unscaled scores rises before it falls. Trained,
all learn the task at every width with Adam, and with SGD at a rate that suits them. A rate that
suits scaled and additive makes plain SGD diverge with the raw score: not for want of a gradient,
its first one is too large.

Rules, stated before the run:
  60 `steadier`: the additive score has parameters and a tanh and takes unequal widths, where dot
    refuses them, else contradicted. Untrained, it is steady if its median Jacobian at the largest
    width is at least `STEADY` of its largest over widths and raw's below `TINY` of its own.
    Trained, at each setting of the optimizer that teaches one of the two at least `LEARNED` % at
    the smallest width: what raw loses from there to the largest width, less what additive loses.
    Steady and all of these above 0: reproduced. Not steady and all below 0: contradicted. Steady
    or any above 0: qualified. Else, or if nothing was learned: not resolved.
  61 `large_only`, as changed after a trial in which a rate too large for raw at any width made
    additive better: correct queries, additive less raw, at the same settings. A setting shows it
    if they lie within `ALIKE` points at the smallest width and above 0 at the largest; it denies it
    if they lie below `ALIKE` at the largest, or beyond `ALIKE` at the smallest already. All show it
    and steady as in 60: reproduced. Any: qualified. All deny it: contradicted. Else, or if nothing
    was learned: not resolved. All of these are paired over seeds and hold together at 95%.
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
  68 `not_direction_alone`: q.k is |q| |k| cos and multiplying q changes neither cosine nor ranking,
    all to `EXACT`, else contradicted. It changes the entropy in every draw, and the keys' lengths
    which of them is preferred in some: reproduced; one of the two: qualified; none: contradicted.
"""

import dataclasses
import operator
import os
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import attn
from attn.data import catalog
from attn.evaluation import intervals
from attn.report import recorder, results
from attn.report.results import Metric
from attn.training import TrainConfig
from experiments import checks
from experiments import score_scale_draws as draws
from experiments import score_scale_figures as drawn
from experiments import score_scale_real as real
from experiments.score_scale_claims import compare, judge
from experiments.score_scale_draws import QUANTITIES, SCORES, Direction, Spread
from experiments.score_scale_trained import Matching, Runs, train_all

CLAIMS = ("60", "61", "62", "63", "66", "67", "68")

EXAMPLE = (2.0, 4.0, 3.0)
_DIRECTION_WIDTH, _DIRECTION_DRAWS = 64, 1000


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes of the sweep.

  Attributes:
    widths: values of d_k, ascending.
    positions: keys a query attends to.
    hidden: units n' of the untrained additive score, at every width.
    draws: independent (query, keys) at each width; at least 6, for the medians' intervals. General
      and additive have one draw of their parameters for 50 of them.
    variance_draws: independent (query, key) pairs at each width for the variance.
    multipliers: factors on the chapter's three scores, ascending.
    matching: the task that scores are trained on, and how.
    train: Luong's model on `reverse` with the unscaled dot score, but for its width.
    train_widths: at which it is trained and looked at; none leaves it out.
    seed: of the draws, and the first of those of `matching.seeds` runs.
  """

  widths: tuple[int, ...] = (1, 4, 16, 64, 256, 1024, 4096)
  positions: int = 50
  hidden: int = 256
  draws: int = 500
  variance_draws: int = 20000
  multipliers: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0)
  matching: Matching = Matching()
  train: TrainConfig = real.TRAIN
  train_widths: tuple[int, ...] = ()
  seed: int = 0

  def __post_init__(self) -> None:
    """Refuses sweeps that cannot show a change, and what the experiment sets itself."""
    for name in ("widths", "multipliers"):
      values = getattr(self, name)
      if len(values) < 2 or min(values) <= 0 or list(values) != sorted(set(values)):
        raise ValueError(f"{name} must be at least two ascending positive numbers, not {values}")
    # Of five draws even the least and the largest hold the median between them with 94% only.
    for name, least in (("positions", 2), ("hidden", 1), ("draws", 6), ("variance_draws", 2)):
      if getattr(self, name) < least:
        raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
    paths = ("seed", "data.name", "model.score", "model.order", "model.cell", "model.units")
    own = {f"train.{path}": operator.attrgetter(path)(real.TRAIN) for path in paths}
    checks.set_itself(self, own)

  @property
  def all_seeds(self) -> range:
    """Every seed that is trained."""
    return range(self.seed, self.seed + self.matching.seeds)


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  smoke = {
    "widths": (1, 64, 4096), "draws": 50, "variance_draws": 10000,
    "matching.widths": (8, 32), "matching.steps": 40,
  }  # fmt: skip
  full = {
    "draws": 2000, "variance_draws": 200000, "matching.widths": (16, 64, 256, 512),
    "matching.sgd": (0.1, 1.0, 3.0), "matching.seeds": 5,
    "train_widths": (32, 64, 128), "train.steps": 400,
  }  # fmt: skip
  return {"smoke": smoke, "default": {}, "full": full}


def sweep_quick() -> list[dict[str, Any]]:
  """The number of keys, which the chapter leaves open, at the sizes of the smoke profile."""
  return [{**profiles()["smoke"], "positions": positions} for positions in (10, 50, 200)]


def sweep_paper() -> list[dict[str, Any]]:
  """The attention dimensions of Britz et al. 2017, each against the smallest."""
  return [{"matching.widths": (128, width)} for width in (256, 512, 1024)]


def example_gradients(multiplier: float) -> tuple[float, float]:
  """Norms of d weights / d scores and d weights / d unscaled scores, on the chapter's scores."""
  # Against unit keys the query's dot scores are its own components.
  norms = attn.softmax_gradients(jnp.array(EXAMPLE), jnp.eye(len(EXAMPLE)), scale=multiplier)
  return float(norms.scores), float(norms.unscaled)


class Measured(NamedTuple):
  """All that is measured without training."""

  variance: dict[str, list[intervals.Interval]]  # of the scores over what is expected, a width
  spreads: dict[str, dict[str, list[Spread]]]  # score, quantity, width
  example: list[tuple[float, float]]  # a multiplier
  direction: Direction


def measure(config: Config, log: Callable[..., None]) -> Measured:
  """Draws and measures at every width."""
  # NumPy draws: jax.random would compile for seconds at every width. Each width has its own stream.
  level = 1 - 0.05 / len(config.widths)  # all widths together hold at 95%
  variance: dict[str, list[intervals.Interval]] = {"raw": [], "scaled": []}
  spreads: dict[str, dict[str, list[Spread]]] = {
    name: {quantity: [] for quantity in QUANTITIES} for name in SCORES
  }
  for width in config.widths:
    draw = np.random.default_rng((config.seed, width))
    squares = draws.squared_scores(draw, width=width, draws=config.variance_draws)
    found = draws.saturation(
      draw, width=width, positions=config.positions, draws=config.draws, hidden=config.hidden
    )
    for name, expected in (("raw", width), ("scaled", 1)):
      variance[name].append(intervals.mean_interval(squares[name] / expected, level))
      log(width=width, score=name, quantity="variance / expected", **variance[name][-1]._asdict())
    for name, quantity in ((name, quantity) for name in SCORES for quantity in QUANTITIES):
      here = draws.spread(np.asarray(found[name][quantity]))
      spreads[name][quantity].append(here)
      log(width=width, score=name, quantity=quantity, **here._asdict())
  example = [example_gradients(multiplier) for multiplier in config.multipliers]
  for multiplier, (to_scores, to_unscaled) in zip(config.multipliers, example, strict=True):
    log(multiplier=multiplier, to_scores=to_scores, to_unscaled=to_unscaled)
  direction = draws.direction(
    np.random.default_rng((config.seed, 0)), width=_DIRECTION_WIDTH, positions=config.positions,
    draws=_DIRECTION_DRAWS,
  )  # fmt: skip
  return Measured(variance, spreads, example, direction)


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Measures, trains, judges the claims and draws the figures.

  Args:
    config: sizes of the sweep.
    workdir: where `result.json`, the figures and, in `checkpoints/`, models' runs go.
  """
  record = recorder.Recorder("score_scale", config, profiles(), workdir, seeds=config.all_seeds)
  measured = measure(config, record.log)
  runs = train_all(config.matching, config.seed, record.log)
  states = _states(config, pathlib.Path(workdir) / "checkpoints")
  for width, by_time in states.items():
    for time, found in by_time.items():
      for seed, one in zip(config.all_seeds, found, strict=True):
        record.log(units=width, time=time, seed=seed, **one._asdict())
  judged = judge(config, measured, runs)
  verdicts = {claim.number: claim.verdict for claim in judged}
  sample = f"{config.draws} draws of a query and {config.positions} keys at each width"
  record.figure('gradients', drawn.gradients(config, measured, verdicts['63']), caption=(
    f'{sample}. Lines with markers: median; bands, of raw and scaled: 5% to 95% of the draws; thin '
    f'line: mean of the raw score; what is less than {drawn.FLOOR:g} is drawn there. The '
    f'gradients are those of a random linear function of the weights.'))  # fmt: skip
  record.figure('weights', drawn.weights(config, measured), caption=(
    f'{sample}. Lines: median; bands, of raw and scaled: 5% to 95% of the draws.'))  # fmt: skip
  record.figure('variance', drawn.variance(config, measured, verdicts['62']), caption=(
    f'Raw and scaled: {config.variance_draws} independent pairs a width; bars: intervals that hold '
    f'at all widths together with 95% confidence, mostly smaller than the markers. Others: variance'
    f' over the keys of a query, mean over {sample}.'))  # fmt: skip
  record.figure('example', drawn.example(config, measured, verdicts['66']), caption=(
    'Frobenius norms of the softmax Jacobian at the scores 2, 4 and 3 times the multiplier. Exact '
    'arithmetic, no sampling.'))  # fmt: skip
  record.figure('trained', drawn.trained(config.matching, runs), caption=(
    f'Queries whose item of {config.matching.items} has the largest score, over the last tenth of '
    f'{config.matching.steps} updates, against the width d of the projections; means over '
    f'{config.matching.seeds} seeds, bands: 95% intervals.'))  # fmt: skip
  if states:
    record.figure('states', drawn.states(states), caption=(
      f"Luong's model with the unscaled dot score on {config.train.data.name}, along the references"
      f' of test sentences; means over {config.matching.seeds} seeds, bars: 95% intervals.'
    ))  # fmt: skip
  metrics = _metrics(config, measured) | _trained_metrics(config.matching, runs) | _seen(states)
  return record.finish(metrics=metrics, claims=judged)


def _states(config: Config, folder: pathlib.Path) -> real.Real:
  """What the scores of trained models are made of; nothing if none are asked for."""
  if not config.train_widths:
    return {}
  catalog.prepare(config.train.data.name, config.train.data.data_dir)
  return real.measure_all(config.train, config.train_widths, config.all_seeds, folder)


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


def _trained_metrics(config: Matching, runs: Runs) -> dict[str, Metric]:
  """Correct queries and first gradients of every score, width and setting, and differences."""
  metrics = {}
  for score, by_width in runs.items():
    for width, learned in zip(config.widths, by_width, strict=True):
      for at, setting in enumerate(config.settings):
        label = f"matching, {score}, d = {width}, {setting}"
        metrics[f"{label}: correct"] = Metric(*intervals.mean_interval(learned.right[at]), "%")
      # The first gradient is before any update: the same at every setting.
      first = intervals.mean_interval(learned.first[0])
      metrics[f"matching, {score}, d = {width}: norm of the first gradient"] = Metric(*first)
  for setting, compared in compare(config, runs).items():
    for width, difference in zip(config.widths[:: len(config.widths) - 1], compared, strict=False):
      label = f"matching, d = {width}, {setting}: additive less raw (all settings together)"
      metrics[label] = Metric(*difference, "points")
  return metrics


def _seen(states: real.Real) -> dict[str, Metric]:
  """What the scores of trained models are made of."""
  return {
    f"Luong dot, d = {width}, {time} training: {name}": Metric(
      *intervals.mean_interval([getattr(one, name) for one in found])
    )
    for width, by_time in states.items()
    for time, found in by_time.items()
    for name in real.State._fields
  }
