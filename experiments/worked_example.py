"""Does the chapter's example of three positions come out as printed, and when scaled by 2 and 4?

The three annotations have two components each and the query is (1, 2), which gives the scores 2, 4
and 3 under the dot score. All steps are taken with attn's own operations: score, softmax, context.
The five scores behind the chapter's bar chart go through the same softmax.

Command: python -m launch.run --experiment=worked_example
Time: under 5 seconds on two cores in any profile; the profiles differ in the scales they draw.
Expect: every printed number is the exact one rounded. A score that is larger by 2 weighs e^2 = 7.4
times as much, so doubling the scores moves the largest weight from 0.665 to 0.867.

Rules, all decided by exact arithmetic:
  A printed number is reproduced when the computed one rounds to it, contradicted otherwise
  (`printed`). 52 wants that the steps give what `attn.attend` gives and that the same program has
  the paper's shapes at the paper's sizes (`same_program`). 53 wants the two weights as printed and
  their ratio e to the difference of the scores (`exponential`).
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import attn
from attn.report import figures, recorder, results
from attn.report.results import Claim, Metric, Verdict
from experiments import claims

CLAIMS = ("40", "48", "49", "50", "51", "52", "53", "64", "65")

QUERY = (1.0, 2.0)
ANNOTATIONS = ((2.0, 0.0), (0.0, 2.0), (1.0, 1.0))
FIVE_SCORES = (0.4, 2.4, 1.1, 0.2, 0.3)


@dataclasses.dataclass(frozen=True)
class Config:
  """What is drawn; the numbers that are checked are the chapter's and fixed.

  Attributes:
    scales: factors on the three scores in the figure.
  """

  scales: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  return {
    "smoke": {"scales": (1.0, 2.0, 4.0)},
    "default": {},
    "full": {"scales": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)},
  }


def sweep_quick() -> list[dict[str, Any]]:
  """One cell a scale."""
  return [{"scales": (scale,)} for scale in (0.5, 1.0, 2.0, 4.0)]


def printed(measured: Sequence[float], values: Sequence[float], digits: int) -> Verdict:
  """Whether every computed number rounds to the printed one.

  Args:
    measured: computed numbers.
    values: what is printed, as many.
    digits: decimals of the printed numbers.
  """
  half = 0.5 * 10.0**-digits + 1e-6  # the second term for float32
  same = len(measured) == len(values) and np.all(
    np.abs(np.subtract(measured, values)) <= half
  )  # fmt: skip
  return results.REPRODUCED if same else results.CONTRADICTED


def same_program(
  steps: Sequence[float], attended: Sequence[float], shape: Sequence[int], wanted: Sequence[int]
) -> Verdict:
  """Whether the small example is the full computation with smaller shapes.

  Args:
    steps: the context computed step by step.
    attended: the context by `attn.attend`.
    shape: shape of the context when the same program is traced at the paper's sizes.
    wanted: the shape the paper states.
  """
  same = np.allclose(steps, attended, atol=1e-6) and tuple(shape) == tuple(wanted)
  return results.REPRODUCED if same else results.CONTRADICTED


def exponential(small: float, large: float, difference: float) -> Verdict:
  """Whether two weights are 0.090 and 0.665 and their ratio is e to the scores' difference."""
  if printed((small, large), (0.090, 0.665), 3) == results.CONTRADICTED:
    return results.CONTRADICTED
  same = abs(large / small / np.exp(difference) - 1) < 1e-5
  return results.REPRODUCED if same else results.CONTRADICTED


def steps(query: jax.Array, annotations: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Scores, weights and context, each by its own operation."""
  scores = attn.dot(query, annotations)
  weights = attn.softmax(scores)
  return scores, weights, attn.context(weights, annotations)


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Computes the example, checks each printed number and draws the weights.

  Args:
    config: what to draw.
    workdir: where `result.json` and the figures go.
  """
  record = recorder.Recorder("worked_example", config, profiles(), workdir, seeds=())
  scores, weights, context = (np.asarray(x) for x in steps(*_inputs()))
  scaled = {scale: np.asarray(attn.softmax(jnp.array(scores), scale=scale)) for scale in
            {1.0, 2.0, 4.0, *config.scales}}  # fmt: skip
  five = np.asarray(attn.softmax(jnp.array(FIVE_SCORES)))
  for scale in sorted(scaled):
    entropy = float(attn.entropy(jnp.array(scaled[scale])))
    record.log(scale=scale, weights=scaled[scale], entropy=entropy)
  record.figure(
    'scaled_weights', _scaled_figure(scaled, config.scales),
    caption='Softmax weights of the scores 2, 4 and 3 multiplied by each factor. Exact arithmetic, '
    'no sampling.',
  )  # fmt: skip
  record.figure(
    'five_scores', _five_figure(five),
    caption='Scores 0.4, 2.4, 1.1, 0.2 and 0.3 (left) and their softmax weights (right). Exact '
    'arithmetic, no sampling.',
  )  # fmt: skip
  metrics = {f"weight {j + 1} at scale 1": Metric(w) for j, w in enumerate(weights)}
  for scale in sorted(scaled):
    metrics[f"largest weight at scale {scale:g}"] = Metric(float(scaled[scale].max()))
  judged = _judge_steps(scores, weights, context) + _judge_scales(five, scaled)
  return record.finish(metrics=metrics, claims=judged)


def _inputs() -> tuple[jax.Array, jax.Array]:
  return jnp.array(QUERY), jnp.array(ANNOTATIONS)


def _text(values: Sequence[float] | np.ndarray, digits: int = 6) -> str:
  return ", ".join(f"{value:.{digits}f}" for value in np.ravel(values))


def _rounded(
  number: str, measured: Sequence[float] | np.ndarray, values: Sequence[float], digits: int
) -> Claim:
  """The claim that a few printed numbers are right."""
  measured = [float(value) for value in np.ravel(measured)]
  places = f"{digits} decimals" if digits else "whole numbers"
  return claims.judge(
    number,
    measured=_text(measured),
    verdict=printed(measured, values, digits),
    why=f"Compared after rounding to {places}.",
  )


def _judge_steps(scores: np.ndarray, weights: np.ndarray, context: np.ndarray) -> list[Claim]:
  """Claims 48 to 53."""
  exponentials = np.exp(np.float64(scores))
  paper = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((2000,), (50, 2000))]
  shape = jax.eval_shape(steps, *paper)[2].shape
  attended = attn.attend(_inputs()[0][None], _inputs()[1]).context[0]
  ratio = float(weights[1] / weights[0])
  return [
    _rounded("48", scores, (2, 4, 3), 0),
    _rounded("49", [*exponentials, exponentials.sum()], (7.389, 54.598, 20.086, 82.073), 3),
    _rounded("50", weights, (0.090, 0.665, 0.245), 3),
    _rounded("51", context, (0.425, 1.575), 3),
    claims.judge(
      "52",
      measured=f"step by step {_text(context)}, attend {_text(attended)}; traced with 50 "
      f"annotations of width 2000 the context has shape {list(shape)}",
      verdict=same_program(context, attended, shape, (2000,)),
      why="The same functions run at both sizes; only shapes differ.",
    ),
    claims.judge(
      "53",
      measured=f"{_text(weights[:2])}; ratio {ratio:.4f}, e^2 = {np.exp(2):.4f}",
      verdict=exponential(float(weights[0]), float(weights[1]), float(scores[1] - scores[0])),
      why="The ratio of two weights is e to the difference of their scores.",
    ),
  ]


def _judge_scales(five: np.ndarray, scaled: dict[float, np.ndarray]) -> list[Claim]:
  """Claims 40, 64 and 65."""
  quadrupled = printed(scaled[4.0][:1], (0.0003,), 4), printed(scaled[4.0][1:], (0.982, 0.018), 3)
  worst = results.CONTRADICTED if results.CONTRADICTED in quadrupled else results.REPRODUCED
  return [
    _rounded("40", five, (0.08, 0.61, 0.17, 0.07, 0.07), 2),
    _rounded("64", scaled[2.0], (0.016, 0.867, 0.117), 3),
    claims.judge(
      "65",
      measured=_text(scaled[4.0]),
      verdict=worst,
      why="Compared after rounding to 4 decimals for the first, 3 for the others.",
    ),
  ]


def _scaled_figure(scaled: dict[float, np.ndarray], scales: Sequence[float]) -> Any:
  first, last = scaled[min(scales)].max(), scaled[max(scales)].max()
  title = (
    f"Scores 2, 4, 3: multiplied by {max(scales):g}, the largest weight is {last:.3f} instead of "
    f"{first:.3f}"
    if len(scales) > 1
    else f"Scores 2, 4, 3 multiplied by {scales[0]:g}"
  )
  figure, (axes,) = figures.new(title, size=(8.5, 4.2))
  groups = {f"scores x {scale:g}": scaled[scale].tolist() for scale in scales}
  figures.bars(axes, ["h1 (score 2)", "h2 (score 4)", "h3 (score 3)"], groups, form="{:.3f}")
  figures.axes_text(axes, x="source position", y="weight")
  axes.set_ylim(0, 1.1)
  return figure


def _five_figure(weights: np.ndarray) -> Any:
  title = (
    f"A lead of 1.3 in score gives the second of five positions {weights[1]:.0%} of the weight"
  )
  figure, (left, right) = figures.new(title, columns=2, size=(9.0, 3.8))
  names = [str(j + 1) for j in range(len(FIVE_SCORES))]
  figures.bars(left, names, {"score": FIVE_SCORES}, form="{:.1f}")
  figures.axes_text(left, x="source position", y="score")
  figures.bars(right, names, {"weight": weights.tolist()})
  figures.axes_text(right, x="source position", y="weight")
  return figure
