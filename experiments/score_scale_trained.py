"""The trained half of `experiments.score_scale`: which of the items does a query belong to?

Items are drawn anew for each update, in all directions and of one length, so that an item's dot
product with itself is the largest; a query is its item and noise. Learned are the projections of
both to the width d, each with a bias, and for the additive score v_a: the attention dimension of
Britz et al. 2017. Without biases the additive score is odd, and as such could not match at all. All
seeds and all settings of the optimizer train in one program under `vmap`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import attn
from attn.configs import ConfigError
from experiments import checks

RAW, SCALED, ADDITIVE = SCORES = ("raw", "scaled", "additive")

_LAST = 10  # The last tenth of the updates, each on fresh items, is what a run is judged by.


@dataclasses.dataclass(frozen=True)
class Matching:
  """The task and how it is trained.

  Attributes:
    widths: values of d, ascending.
    items: how many, each with one query.
    features: of an item, of variance 1.
    noise: standard deviation of what a query has besides its item's features.
    adam: learning rates with Adam.
    sgd: learning rates with plain SGD.
    steps: updates.
    seeds: runs of each, at least 3; all settings share their items and first parameters.
  """

  widths: tuple[int, ...] = (16, 64, 256)
  items: int = 32
  features: int = 8
  noise: float = 0.1
  adam: tuple[float, ...] = (2e-3, 2e-2)
  sgd: tuple[float, ...] = (0.1, 3.0)
  steps: int = 300
  seeds: int = 3

  def __post_init__(self) -> None:
    """Refuses what gives no comparison between widths, or no interval."""
    checks.two_rising("matching.widths", self.widths)
    if not self.adam or not self.sgd or min(*self.adam, *self.sgd) <= 0:
      raise ConfigError(
        f"matching.adam is {self.adam} and matching.sgd {self.sgd}: each must be positive rates"
      )
    checks.at_least(self, "matching.", items=2, features=1, steps=_LAST, seeds=3)

  @property
  def settings(self) -> tuple[str, ...]:
    """Optimizer and rate of each setting, in the order of the results."""
    rates = (("Adam", self.adam), ("SGD", self.sgd))
    return tuple(f"{name} {rate:g}" for name, each in rates for rate in each)


class Learned(NamedTuple):
  """What the runs of one score and width ended with, `[settings, seeds]` each.

  Attributes:
    right: queries whose item has the largest score, %, over the last tenth of the updates.
    loss: cross-entropy over the same, nats.
    first: norm of the gradient at the first update.
  """

  right: np.ndarray
  loss: np.ndarray
  first: np.ndarray


Params = dict[str, Any]  # arrays
Runs = dict[str, list[Learned]]  # score to a width an entry


def train_all(config: Matching, seed: int, log: Callable[..., None]) -> Runs:
  """Trains every score at every width.

  Args:
    config: the task.
    seed: the first of `config.seeds`.
    log: takes the numbers of each run.
  """
  rates = np.array([*config.adam, *config.sgd], np.float32)
  adaptive = np.arange(len(rates)) < len(config.adam)
  seeds = range(seed, seed + config.seeds)
  # Drawn by NumPy: random numbers would be most of what there is to compile, at every width anew.
  data = np.stack([draw(np.random.default_rng((one, 0)), config) for one in seeds])
  roots = np.sqrt(np.array(config.widths, np.float32))
  runs: Runs = {}
  for score in SCORES:
    drawn = [
      [initial(np.random.default_rng((one, width)), score, width, config) for one in seeds]
      for width in config.widths
    ]
    by_width = [jax.tree.map(lambda *leaves: np.stack(leaves), *one) for one in drawn]
    params = jax.tree.map(lambda *leaves: np.stack(leaves), *by_width)
    found = _train(rates, adaptive, params, roots, data, score=score)
    columns = [np.asarray(one, np.float64) for one in found]
    runs[score] = [Learned(*one) for one in zip(*columns, strict=True)]
    for width, learned in zip(config.widths, runs[score], strict=True):
      for at, setting in enumerate(config.settings):
        log(
          score=score, width=width, setting=setting, right=learned.right[at].tolist(),
          first_gradient=learned.first[at].tolist(),
        )  # fmt: skip
  return runs


@functools.partial(jax.jit, static_argnames="score")
def _train(
  rates: jax.Array, adaptive: jax.Array, params: Params, roots: jax.Array, data: jax.Array, *,
  score: str,
) -> tuple[jax.Array, ...]:  # fmt: skip
  """All runs of a score, `[widths, settings, seeds]` each; one program, as it takes seconds."""

  def at_width(own: tuple[Params, jax.Array]) -> tuple[jax.Array, ...]:
    params, root = own
    run = functools.partial(_run, score=score, root=root)
    seeds = jax.vmap(run, (None, None, 0, 0))
    found: tuple[jax.Array, ...] = jax.vmap(seeds, (0, 0, None, None))(
      rates, adaptive, params, data
    )
    return found

  found: tuple[jax.Array, ...] = jax.lax.map(at_width, (params, roots))
  return found


def _run(
  rate: jax.Array, adaptive: jax.Array, params: Params, data: jax.Array, *, score: str,
  root: jax.Array,
) -> tuple[jax.Array, ...]:  # fmt: skip
  """One run: correct queries and loss at its end, and its first gradient."""
  adam = optax.scale_by_adam()
  gradients = jax.value_and_grad(_loss, has_aux=True)

  def step(carry: Any, drawn: jax.Array) -> tuple[Any, tuple[jax.Array, ...]]:
    params, state = carry
    (loss, right), gradient = gradients(params, *drawn, score, root)
    scaled, state = adam.update(gradient, state)
    # One program for both optimizers: plain SGD is Adam's update left out.
    params = jax.tree.map(
      lambda p, a, g: p - rate * jnp.where(adaptive, a, g), params, scaled, gradient
    )
    return (params, state), (right, loss, optax.tree.norm(gradient))

  _, (right, loss, norm) = jax.lax.scan(step, (params, adam.init(params)), data)
  last = len(data) // _LAST
  return 100 * right[-last:].mean(), loss[-last:].mean(), norm[0]


def initial(random: np.random.Generator, score: str, width: int, config: Matching) -> Params:
  """First parameters: projections have components of variance 1.

  Zeros fill them up to the largest width, so that one program serves all: they add nothing to any
  score and have no gradient.
  """
  inputs = config.features + 1  # The last column is the bias.
  fill = [(0, config.widths[-1] - width)]
  w_q, w_k = random.standard_normal((2, width, inputs), np.float32) / np.float32(np.sqrt(inputs))
  params = {"w_q": np.pad(w_q, [*fill, (0, 0)]), "w_k": np.pad(w_k, [*fill, (0, 0)])}
  if score == ADDITIVE:
    v_a = random.standard_normal(width, np.float32) / np.float32(np.sqrt(width))
    params["v_a"] = np.pad(v_a, fill)
  return params


def draw(random: np.random.Generator, config: Matching) -> np.ndarray:
  """Items and their queries of all updates, `[steps, 2, items, features + 1]`.

  The last feature is 1, for the bias.
  """
  shape = (config.steps, config.items, config.features)
  items, noise = random.standard_normal((2, *shape), np.float32)
  items *= np.float32(np.sqrt(config.features)) / np.linalg.norm(items, axis=-1, keepdims=True)
  pairs = np.stack([items, items + np.float32(config.noise) * noise], axis=1)
  return np.concatenate([pairs, np.ones_like(pairs[..., :1])], axis=-1)


def _loss(
  params: Params, items: jax.Array, queries: jax.Array, score: str, root: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Cross-entropy of each query's item, and the share of queries that prefer it."""
  scores = score_of(params, items, queries, score, root)
  own = jnp.arange(len(items))
  losses = optax.losses.softmax_cross_entropy_with_integer_labels(scores, own)
  return losses.mean(), jnp.mean(scores.argmax(-1) == own)


def score_of(
  params: Params, items: jax.Array, queries: jax.Array, score: str, root: jax.Array | float
) -> jax.Array:
  """Scores of all items for each query, `[items, items]`; `root` is that of the width."""
  if score == ADDITIVE:
    return attn.additive(queries, items[None], params["w_q"], params["w_k"], params["v_a"])
  dots = attn.dot(queries @ params["w_q"].T, (items @ params["w_k"].T)[None])
  # Not `attn.scaled_dot`, which would count the zeros.
  return dots / root if score == SCALED else dots
