"""The untrained half of `experiments.score_scale`: five scores of random queries and keys.

Components of queries and keys are standard normal. The entries of a score's matrices and vectors
have variance 1 over the number of entries that one output sums up, so that a projected vector has
components of variance 1 again; they are drawn anew for each block of draws.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import attn
from attn.evaluation import intervals

VARIANCE = "variance of scores"
GRADIENTS = ("Jacobian of the softmax", "gradient to query", "gradient to keys")
QUANTITIES = (VARIANCE, "entropy", "largest weight", *GRADIENTS)

BLOCK = 50
EXACT = 1e-5
LENGTHS = (1.0, 2.0, 4.0, 8.0)  # Powers of two: products with them are exact.


class Parameters(NamedTuple):
  """What `general` and `additive` have besides query and keys."""

  general: jax.Array | np.ndarray  # [width, width]
  w_a: jax.Array | np.ndarray  # [hidden, width]
  u_a: jax.Array | np.ndarray  # [hidden, width]
  v_a: jax.Array | np.ndarray  # [hidden]


Score = Callable[[jax.Array, jax.Array, Parameters], jax.Array]

SCORES: dict[str, Score] = {
  "raw": lambda query, keys, _: attn.dot(query, keys),
  "scaled": lambda query, keys, _: attn.scaled_dot(query, keys),
  "cosine": lambda query, keys, _: attn.cosine(query, keys),
  "additive": lambda query, keys, own: attn.additive(query, keys, own.w_a, own.u_a, own.v_a),
  "general": lambda query, keys, own: attn.general(query, keys, own.general),
}


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


def parameters(draw: np.random.Generator, *, width: int, hidden: int) -> Parameters:
  """Fresh parameters of the scores that have some."""

  def normal(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-1]))

  return Parameters(
    normal(width, width), normal(hidden, width), normal(hidden, width), normal(hidden)
  )


def saturation(
  draw: np.random.Generator, *, width: int, positions: int, draws: int, hidden: int = 256
) -> dict[str, dict[str, np.ndarray]]:
  """Score name to quantity to its value in each draw, `[draws]`; the same draws for each score."""
  found: dict[str, dict[str, list[np.ndarray]]] = {name: {} for name in SCORES}
  (own_draw,) = draw.spawn(1)
  # Blocks of one size keep the keys' memory small and the number of compiled programs low.
  for _ in range(0, draws, BLOCK):
    query, keys, pull = (
      draw.standard_normal((BLOCK, *shape), np.float32)
      for shape in ((width,), (positions, width), (positions,))
    )
    own = Parameters(*map(jnp.asarray, parameters(own_draw, width=width, hidden=hidden)))
    scores = _scores(query, keys, own)
    for name in SCORES:
      here, to_scores = _through_softmax(scores[name], pull)
      here |= _through_score(query, keys, own, to_scores, name=name)
      for quantity, values in here.items():
        found[name].setdefault(quantity, []).append(np.asarray(values))
  return {
    name: {quantity: np.concatenate(values)[:draws] for quantity, values in by_quantity.items()}
    for name, by_quantity in found.items()
  }


# Three programs rather than one: that in the middle is the same at every width, so compiled once.


@jax.jit
def _scores(query: jax.Array, keys: jax.Array, own: Parameters) -> dict[str, jax.Array]:
  return {name: score(query, keys, own) for name, score in SCORES.items()}


@jax.jit
def _through_softmax(scores: jax.Array, pull: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
  """Diagnostics of scores and weights, and the gradient to the scores of pull . weights."""
  weights, pull_back = jax.vjp(attn.softmax, scores)
  n = scores.shape[-1]
  found = {
    VARIANCE: attn.logit_variance(scores) * n / (n - 1),  # of the population, not of n keys
    "entropy": attn.entropy(weights),
    "largest weight": attn.max_weight(weights),
    GRADIENTS[0]: attn.jacobian_norm(weights),
  }
  return found, pull_back(pull)[0]


@functools.partial(jax.jit, static_argnames="name")
def _through_score(
  query: jax.Array, keys: jax.Array, own: Parameters, to_scores: jax.Array, *, name: str
) -> dict[str, jax.Array]:
  """Norms of the gradients to the query and to all its keys."""
  score = functools.partial(_with, name, own)
  to_query, to_keys = jax.vjp(score, query, keys)[1](to_scores)
  return {
    GRADIENTS[1]: jnp.linalg.norm(to_query, axis=-1),
    GRADIENTS[2]: jnp.linalg.norm(to_keys, axis=(-2, -1)),
  }


def _with(name: str, own: Parameters, query: jax.Array, keys: jax.Array) -> jax.Array:
  return SCORES[name](query, keys, own)


def squared_scores(draw: np.random.Generator, *, width: int, draws: int) -> dict[str, np.ndarray]:
  """Score name to squares of independent q.k; their mean is the variance, as q.k has mean 0."""
  dots = {"raw": jax.jit(attn.dot), "scaled": jax.jit(attn.scaled_dot)}
  found: dict[str, list[np.ndarray]] = {name: [] for name in dots}
  for _ in range(0, draws, 10 * BLOCK):
    query, keys = draw.standard_normal((2, 10 * BLOCK, width), np.float32)
    for name, score in dots.items():
      found[name].append(np.square(np.asarray(score(query, keys[:, None])[:, 0], np.float64)))
  return {name: np.concatenate(squares)[:draws] for name, squares in found.items()}


class Direction(NamedTuple):
  """How dot and cosine depend on lengths, from live scores of the same draws.

  Attributes:
    product: largest error of q.k = |q| |k| cos, over |q| |k|.
    cosine: largest change of a cosine as the query is multiplied.
    kept: share of draws in which the query's length leaves the dot's ranking of the keys as it is.
    falls: share of draws in which the entropy of the dot's weights falls as q grows: it ends lower
      and no doubling raises it.
    entropies: medians at the lengths of `LENGTHS`, nats.
    other: share of draws in which dot and cosine prefer another key, with its interval.
  """

  product: float
  cosine: float
  kept: float
  falls: float
  entropies: tuple[float, ...]
  other: intervals.Interval


def direction(draw: np.random.Generator, *, width: int, positions: int, draws: int) -> Direction:
  """Holds dot against cosine, with the query at several lengths."""
  query = draw.standard_normal((draws, width), np.float32)
  keys = draw.standard_normal((draws, positions, width), np.float32)
  lengths = np.linalg.norm(query, axis=-1)[:, None] * np.linalg.norm(keys, axis=-1)
  dots, cosines, entropies = (
    np.stack([np.asarray(found) for found in column])
    for column in zip(*(_both(factor * query, keys) for factor in LENGTHS), strict=True)
  )
  ranking = dots.argsort(-1)
  # The tolerance is for weights so saturated that nothing is left to fall.
  falls = (np.diff(entropies, axis=0) <= EXACT).all(0) & (entropies[-1] < entropies[0])
  return Direction(
    product=float(np.abs(dots[0] / lengths - cosines[0]).max()),
    cosine=float(np.abs(cosines - cosines[0]).max()),
    kept=float((ranking == ranking[0]).all((0, 2)).mean()),
    falls=float(falls.mean()),
    entropies=tuple(np.median(entropies, axis=1).tolist()),
    other=intervals.mean_interval(dots[0].argmax(-1) != cosines[0].argmax(-1)),
  )


@jax.jit
def _both(query: jax.Array, keys: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
  scores = attn.dot(query, keys)
  return scores, attn.cosine(query, keys), attn.entropy(attn.softmax(scores))
