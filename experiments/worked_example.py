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
  (`printed`). 52 traces the paper's computation (keys projected, additive score, softmax, context)
  at the paper's sizes and with every width 2: contradicted when an operation differs, when
  the context has not the paper's shape, or when the example's steps do not give what `attn.attend`
  gives; reproduced when the example is that computation; qualified when the two agree but the
  example takes other operations (`same_program`). 53 wants the two weights as printed and their
  ratio e to the difference of the scores (`exponential`).
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import attn
from attn.report import figures, recorder, results
from attn.report.results import Claim, Metric, Verdict
from experiments import claims, sweeps

CLAIMS = ("40", "48", "49", "50", "51", "52", "53", "64", "65")

QUERY = (1.0, 2.0)
ANNOTATIONS = ((2.0, 0.0), (0.0, 2.0), (1.0, 1.0))
FIVE_SCORES = (0.4, 2.4, 1.1, 0.2, 0.3)

# Of the full computation: source positions, width of h_j, width of s_i (n) and of the score (n').
Sizes = tuple[int, int, int, int]
PAPER: Sizes = (50, 2000, 1000, 1000)
SMALL: Sizes = (3, 2, 2, 2)


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
  return sweeps.grid({"scales": (0.5, 1.0, 2.0, 4.0)})


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
  contexts: tuple[Sequence[float], Sequence[float]],
  shapes: tuple[Sequence[int], Sequence[int]],
  *,
  example: Sequence[str],
  small: Sequence[str],
  paper: Sequence[str],
) -> Verdict:
  """Whether the example is the full computation with smaller shapes.

  Args:
    contexts: the example's context step by step, and by `attn.attend`.
    shapes: shape of the context at the paper's sizes, and the shape that the paper states.
    example: operations of the example.
    small: operations of the full computation at size 2.
    paper: operations of the full computation at the paper's sizes.
  """
  agree = np.allclose(*contexts, atol=1e-6) and tuple(shapes[0]) == tuple(shapes[1])
  if not agree or list(small) != list(paper):
    return results.CONTRADICTED
  return results.REPRODUCED if list(example) == list(small) else results.QUALIFIED


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


def full_steps(
  query: jax.Array, annotations: jax.Array, w_a: jax.Array, u_a: jax.Array, v_a: jax.Array
) -> jax.Array:
  """The paper's context: additive scores, their softmax, the weighted mean of the annotations."""
  scores = attn.additive_projected(query, attn.project_keys(annotations, u_a), w_a, v_a)
  return attn.context(attn.softmax(scores), annotations)


def traced(program: Callable[..., Any], sizes: Sizes) -> tuple[list[str], tuple[int, ...]]:
  """The operations of a program like `full_steps`, with their ranks, and its result's shape."""
  positions, width, n, hidden = sizes
  shapes = ((n,), (positions, width), (hidden, n), (hidden, width), (hidden,))
  closed = jax.make_jaxpr(program)(*(jax.ShapeDtypeStruct(one, jnp.float32) for one in shapes))
  return list(_operations(closed.jaxpr)), closed.out_avals[-1].shape


def _operations(jaxpr: Any) -> Iterator[str]:
  """Yields the name and the rank of the result of every operation, inner functions unfolded."""
  for equation in jaxpr.eqns:
    inner = [value.jaxpr for value in equation.params.values() if hasattr(value, "jaxpr")]
    for one in inner:
      yield from _operations(one)
    if not inner:
      yield f"{equation.primitive.name} {equation.outvars[0].aval.ndim}"


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
    norms = attn.softmax_gradients(*_inputs(), scale=scale)
    metrics[f"gradient to the scaled scores at scale {scale:g}"] = Metric(float(norms.scores))
    metrics[f"gradient to the unscaled scores at scale {scale:g}"] = Metric(float(norms.unscaled))
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
  ratio = float(weights[1] / weights[0])
  return [
    _rounded("48", scores, (2, 4, 3), 0),
    _rounded("49", [*exponentials, exponentials.sum()], (7.389, 54.598, 20.086, 82.073), 3),
    _rounded("50", weights, (0.090, 0.665, 0.245), 3),
    _rounded("51", context, (0.425, 1.575), 3),
    _judge_program(context),
    claims.judge(
      "53",
      measured=f"{_text(weights[:2])}; ratio {ratio:.4f}, e^2 = {np.exp(2):.4f}",
      verdict=exponential(float(weights[0]), float(weights[1]), float(scores[1] - scores[0])),
      why="The ratio of two weights is e to the difference of their scores.",
    ),
  ]


def _judge_program(context: np.ndarray) -> Claim:
  """Claim 52."""
  paper, shape = traced(full_steps, PAPER)
  small, _ = traced(full_steps, SMALL)
  example, _ = traced(lambda query, annotations, *_: steps(query, annotations)[2], SMALL)
  attended = attn.attend(_inputs()[0][None], _inputs()[1]).context[0]
  verdict = same_program(
    (context, attended), (shape, (2000,)), example=example, small=small, paper=paper
  )
  why = {
    results.REPRODUCED: "The example and the computation at both sizes take the same operations.",
    results.QUALIFIED: "True from the scores on: the softmax and the context are the same "
    "functions at any size. The score is not: the example's are dot products, with no W_a, U_a, "
    "v_a and tanh, which the full computation keeps at size 2.",
    results.CONTRADICTED: "An operation, a shape or a number differs.",
  }[verdict]
  positions, width, n, hidden = PAPER
  return claims.judge(
    "52",
    measured=f"additive score, softmax and context take {len(paper)} operations with {positions} "
    f"h_j of width {width}, s_i of width {n} and n' = {hidden}, "
    f"{'the same' if small == paper else 'other'} {len(small)} with every width 2; the example "
    f"takes {len(example)}; step by step {_text(context)}, attend {_text(attended)}",
    verdict=verdict,
    why=why,
  )


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
