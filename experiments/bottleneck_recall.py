"""Recall before and after the question is known, for `experiments.bottleneck`.

A gated unit reads a list of pairs, key and value, in random order, into one state; then the value
of one of the keys is asked for. `before`: the key that will be asked for stands beside every pair
while the list is read. `after`: it is known only once the list has been read. `attention`: known
after as well, but every state is kept and read by the additive score. Readout and widths are
the same, and so are the lists. All seeds train in one program under `vmap`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import attn
from attn.models import cells
from experiments import checks

BEFORE, AFTER, ATTENDED = ARMS = ("before", "after", "attention")

_LAST = 20  # The last twentieth of the updates, each on fresh lists, is what a run is judged by.

Params = dict[str, Any]  # arrays


@dataclasses.dataclass(frozen=True)
class Recall:
  """The task and how it is trained.

  Attributes:
    widths: of the state, ascending.
    pairs: keys, each once in a list.
    values: different values, drawn with replacement.
    lists: of an update.
    steps: updates.
    learning_rate: Adam's.
    seeds: runs of each, at least 3.
  """

  widths: tuple[int, ...] = (4, 8, 16, 32)
  pairs: int = 8
  values: int = 16
  lists: int = 64
  steps: int = 1000
  learning_rate: float = 5e-3
  seeds: int = 5

  def __post_init__(self) -> None:
    """Refuses what has no widths to compare, or no interval."""
    checks.two_rising("recall.widths", self.widths)
    checks.at_least(self, "recall.", pairs=2, values=2, lists=1, steps=_LAST, seeds=3)


Recalled = dict[str, list[list[float]]]  # arm to a width to a seed: values named right, %


def train_all(config: Recall, seed: int, log: Callable[..., None]) -> Recalled:
  """Trains every arm at every width.

  Args:
    config: the task.
    seed: the first of `config.seeds`.
    log: takes what each width and arm ends with.
  """
  # Drawn by NumPy: random numbers would be most of what there is to compile, for every width anew.
  seeds = range(seed, seed + config.seeds)
  lists = [draw(np.random.default_rng((one, 0)), config) for one in seeds]
  data = tuple(np.stack(column) for column in zip(*lists, strict=True))
  drawn = [
    [initial(np.random.default_rng((one, width)), width, config) for one in seeds]
    for width in config.widths
  ]
  by_width = [jax.tree.map(lambda *leaves: np.stack(leaves), *one) for one in drawn]
  params = jax.tree.map(lambda *leaves: np.stack(leaves), *by_width)
  found: Recalled = {}
  for arm in ARMS:
    found[arm] = np.asarray(_train(params, data, arm=arm, config=config), np.float64).tolist()
    for width, right in zip(config.widths, found[arm], strict=True):
      log(recall=arm, width=width, right=right)
  return found


@functools.partial(jax.jit, static_argnames=("arm", "config"))
def _train(params: Params, data: tuple[jax.Array, ...], *, arm: str, config: Recall) -> jax.Array:
  """All runs of one arm, `[widths, seeds]`; one program, as it takes seconds to compile."""
  seeds = jax.vmap(functools.partial(_run, arm=arm, config=config))
  found: jax.Array = jax.lax.map(lambda own: seeds(own, data), params)
  return found


def _run(params: Params, data: tuple[jax.Array, ...], *, arm: str, config: Recall) -> jax.Array:
  """One run: values named right at its end, %."""
  adam = optax.adam(config.learning_rate)
  gradients = jax.value_and_grad(functools.partial(_loss, arm=arm, config=config), has_aux=True)

  def step(carry: Any, lists: tuple[jax.Array, ...]) -> tuple[Any, jax.Array]:
    params, state = carry
    (_, right), gradient = gradients(params, *lists)
    updates, state = adam.update(gradient, state)
    return (optax.apply_updates(params, updates), state), right

  _, right = jax.lax.scan(step, (params, adam.init(params)), data)
  return 100 * right[-(config.steps // _LAST) :].mean()


def initial(random: np.random.Generator, width: int, config: Recall) -> Params:
  """First parameters, each matrix scaled by what one output sums up; the same for every arm.

  Zeros fill them up to the largest width, so that one program serves all: such units stay 0 and
  have no gradient.
  """
  read, known = config.pairs + config.values, config.pairs
  # Blocks that will stand one above the other come first; then which axes are as wide as the state.
  shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "w": ((3, width, read + known), (1,)), "u_gates": ((2, width, width), (1, 2)),
    "u": ((width, width), (0, 1)), "w_a": ((width, known), (0,)), "u_a": ((width, width), (0, 1)),
    "v_a": ((width,), (0,)), "w_h": ((4, width, width), (1, 2)), "u_h": ((4, width, known), (1,)),
    "output": ((config.values, 4, width), (2,)),
  }  # fmt: skip
  fill, params = config.widths[-1] - width, {}
  for name, (shape, axes) in shapes.items():
    leaf = random.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-1]))
    params[name] = np.pad(leaf, [(0, fill * (at in axes)) for at in range(leaf.ndim)])
  for name in ("w", "u_gates", "w_h", "u_h"):
    params[name] = params[name].reshape(-1, params[name].shape[-1])
  params["output"] = params["output"].reshape(config.values, -1) / 2  # It sums up four blocks.
  return {**params, "bias": np.zeros(3 * config.widths[-1], np.float32)}


def draw(random: np.random.Generator, config: Recall) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Keys and values of all updates' lists in order, `[steps, lists, pairs]`, and the key asked."""
  shape = (config.steps, config.lists, config.pairs)
  keys = random.permuted(np.broadcast_to(np.arange(config.pairs, dtype=np.int32), shape), axis=-1)
  values = random.integers(0, config.values, shape, np.int32)
  return keys, values, random.integers(0, config.pairs, shape[:2], np.int32)


def _loss(
  params: Params, keys: jax.Array, values: jax.Array, asked: jax.Array, *, arm: str, config: Recall
) -> tuple[jax.Array, jax.Array]:
  """Cross-entropy of the values asked for, and the share that is named right."""
  logits = answer(params, keys, values, asked, arm=arm, config=config)
  wanted = jnp.take_along_axis(values, (keys == asked[:, None]).argmax(-1)[:, None], 1)[:, 0]
  losses = optax.losses.softmax_cross_entropy_with_integer_labels(logits, wanted)
  return losses.mean(), jnp.mean(logits.argmax(-1) == wanted)


def answer(
  params: Params, keys: jax.Array, values: jax.Array, asked: jax.Array, *, arm: str, config: Recall
) -> jax.Array:
  """Logits of the value, `[lists, values]`."""
  question = jax.nn.one_hot(asked, config.pairs)
  known = question if arm == BEFORE else jnp.zeros_like(question)
  pairs = jnp.concatenate(
    [
      jax.nn.one_hot(keys, config.pairs),
      jax.nn.one_hot(values, config.values),
      jnp.broadcast_to(known[:, None], (*keys.shape, config.pairs)),
    ],
    axis=-1,
  )
  inputs = jnp.swapaxes(pairs @ params["w"].T + params["bias"], 0, 1)

  def step(state: jax.Array, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    state = cells.gru(inputs, state, params["u_gates"], params["u"])
    return state, state

  start = jnp.zeros((len(asked), params["u"].shape[0]))
  last, states = jax.lax.scan(step, start, inputs)
  if arm == ATTENDED:
    states = jnp.swapaxes(states, 0, 1)
    scores = attn.additive(question, states, params["w_a"], params["u_a"], params["v_a"])
    last = attn.context(attn.softmax(scores), states)
  hidden = jnp.tanh(last @ params["w_h"].T + question @ params["u_h"].T)
  return hidden @ params["output"].T
