"""Associative recall, the task of `experiments.two_roles`: keys and values in one vector, or two.

A memory holds pairs of a key symbol and a value symbol, and a query asks for the value of one key.
Each pair is one vector h = tanh(A key + B value); attention is Luong's dot, with a query vector a
key symbol and an output vector a value symbol. An arm says which components of h a query may meet
and which an output may read: all (`shared`); the first half and the second (`split`); all, after a
matrix for keys and one for values (`projected`). What an arm does not have is a zero that stays, so
that one program trains all arms, widths, rates and seeds at once.
"""

import dataclasses
import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

import attn
from attn import configs
from attn.training.progress import Progress

ARMS = ("shared", "split", "projected")
_AT_ONCE = 100  # updates of one call
_ROWS = 128  # queries scored at once


@dataclasses.dataclass(frozen=True)
class Recall:
  """The task and its training.

  Attributes:
    symbols: key symbols, and as many value symbols.
    pairs: in a memory, of different keys.
    widths: of h in the shared arm, multiples of 3; the others get as many parameters.
    rates: learning rates, of which each arm and width is told with its best.
    updates: of each run, by Adam, its rate falling to 0 along a cosine.
    batch: queries of an update.
    test: queries of the test, and as many to choose the rate by.
  """

  symbols: int = 64
  pairs: int = 8
  widths: tuple[int, ...] = (6, 12, 24, 48)
  rates: tuple[float, ...] = (0.02,)
  updates: int = 800
  batch: int = 64
  test: int = 2048

  def __post_init__(self) -> None:
    """Refuses widths that have no equal, and a task that asks nothing."""
    if list(self.widths) != sorted({*self.widths}) or any(
      width < 3 or width % 3 for width in self.widths
    ):
      raise configs.ConfigError(
        f"widths is {self.widths}: rising multiples of 3, as a split vector of equal parameters is"
        " 4/3 as wide"
      )
    if not 1 < self.pairs <= self.symbols:
      raise configs.ConfigError(f"pairs is {self.pairs}: from 2 to the number of symbols")
    for name in ("widths", "rates", "updates", "batch", "test"):
      if not getattr(self, name):
        raise configs.ConfigError(f"{name} is {getattr(self, name)}: there must be some")


class Parameters(NamedTuple):
  """Of one run; d components, of which an arm has some."""

  key: Float[Array, "k d"]  # A
  value: Float[Array, "v d"]  # B
  query: Float[Array, "k d"]
  out: Float[Array, "v d"]
  to_keys: Float[Array, "d d"]
  to_values: Float[Array, "d d"]


Carry = tuple[Parameters, optax.OptState]


class Draw(NamedTuple):
  """A batch of memories, and which pair each query asks for."""

  keys: Int[Array, "b n"]
  values: Int[Array, "b n"]
  asked: Int[Array, " b"]


class Found(NamedTuple):
  """What the runs of one arm and width came to, at their best rate.

  Attributes:
    width: of h.
    parameters: how many.
    rate: that had the lowest mean loss on the queries to choose by.
    nats: a seed, on the test.
    right: share of test queries, a seed.
  """

  width: int
  parameters: int
  rate: float
  nats: tuple[float, ...]
  right: tuple[float, ...]


def width(arm: str, shared: int, symbols: int) -> int:
  """The width of h that gives an arm the parameters of the shared one, or nearly."""
  if arm == "shared":
    return shared
  if arm == "split":
    return 4 * shared // 3  # 2 tables of d and 2 of d / 2 against 4 of d
  wanted = 4 * symbols * shared
  return min(range(1, shared + 1), key=lambda d: abs(4 * symbols * d + 2 * d * d - wanted))


def shape(arm: str, size: int, symbols: int, room: int) -> Parameters:
  """1 where an arm of that width has a parameter, 0 elsewhere in `room` components."""
  at = np.arange(room)
  whole, first = at < size, at < size // 2
  keys, values = (first, whole & ~first) if arm == "split" else (whole, whole)
  square = np.outer(whole, whole) & (arm == "projected")
  table = lambda columns: np.tile(columns, (symbols, 1))  # noqa: E731
  parts = table(whole), table(whole), table(keys), table(values), square, square
  return Parameters(*(part.astype(np.float32) for part in parts))


def start(has: Parameters, rng: Array) -> Parameters:
  """Parameters to begin with: normal, and outputs scaled by the components they read."""
  drawn = [
    jax.random.normal(key, part.shape) * part
    for key, part in zip(jax.random.split(rng, len(has)), has, strict=True)
  ]
  key, value, query, out, *square = drawn
  read = jnp.maximum(has.out[0].sum(), 1)
  there = jnp.maximum(has.to_keys.sum(), 1)  # d^2 of a projected arm
  to_keys, to_values = (
    jnp.where(has.to_keys.any(), matrix / there**0.25, jnp.eye(len(matrix))) for matrix in square
  )
  return Parameters(0.5 * key, 0.5 * value, query, out / jnp.sqrt(read), to_keys, to_values)


def draw(recall: Recall, count: int, rng: Array) -> Draw:
  """Fresh memories and queries."""
  keys, values, asked = jax.random.split(rng, 3)
  order = jax.lax.top_k(jax.random.uniform(keys, (count, recall.symbols)), recall.pairs)[1]
  return Draw(
    order,
    jax.random.randint(values, (count, recall.pairs), 0, recall.symbols),
    jax.random.randint(asked, (count,), 0, recall.pairs),
  )


def logits(parameters: Parameters, given: Draw) -> Float[Array, "b v"]:
  """A score for each value symbol, by attention to the memory."""
  memory = jnp.tanh(parameters.key[given.keys] + parameters.value[given.values])
  query = parameters.query[_asked(given.keys, given)]
  # Projecting a query and a context rather than each key and value is the same, and less.
  weights = attn.softmax(attn.dot(query @ parameters.to_keys, memory))
  context = attn.context(weights, memory) @ parameters.to_values
  return context @ parameters.out.T


def _asked(symbols: Int[Array, "b n"], given: Draw) -> Int[Array, " b"]:
  return jnp.take_along_axis(symbols, given.asked[:, None], axis=-1)[:, 0]


def _losses(parameters: Parameters, given: Draw) -> tuple[Float[Array, " b"], Array]:
  log_probs, label = jax.nn.log_softmax(logits(parameters, given)), _asked(given.values, given)
  nats = -jnp.take_along_axis(log_probs, label[:, None], axis=-1)[:, 0]
  return nats, log_probs.argmax(-1) == label


def train(recall: Recall, seeds: range) -> tuple[dict[str, list[Found]], Parameters]:
  """Trains all arms, widths, rates and seeds.

  Returns:
    For each arm what was found, a width an entry; and the widest split run of the first seed.
  """
  cells = list(itertools.product(ARMS, recall.widths, recall.rates))
  sizes = [width(arm, shared, recall.symbols) for arm, shared, _ in cells]
  shapes = [
    shape(cell[0], size, recall.symbols, max(sizes))
    for cell, size in zip(cells, sizes, strict=True)
  ]
  has = jax.tree.map(lambda *parts: jnp.stack(parts), *shapes)
  rates = jnp.array([rate for _, _, rate in cells])
  roots = jnp.stack([jax.random.key(seed) for seed in seeds])
  carry = _begin(has, roots)
  with Progress("recall", recall.updates) as progress:
    for done in range(0, recall.updates, _AT_ONCE):
      count = min(_AT_ONCE, recall.updates - done)
      carry = _advance(recall, count, carry, has, rates, roots, jnp.int32(done))
      jax.block_until_ready(carry)
      progress.update(done + count)
  scored = [jax.device_get(_score(recall, carry[0], roots, jnp.int32(split))) for split in (1, 2)]
  (dev, _), (nats, right) = (jax.tree.map(lambda x: np.asarray(x, np.float64), s) for s in scored)
  found: dict[str, list[Found]] = {arm: [] for arm in ARMS}
  for arm, shared in itertools.product(ARMS, recall.widths):
    mine = [i for i, cell in enumerate(cells) if cell[:2] == (arm, shared)]
    best = min(mine, key=lambda i: dev[:, i].mean())
    count = int(sum(part.sum() for part in shapes[best]))
    ends = tuple(nats[:, best].tolist()), tuple(right[:, best].tolist())
    found[arm].append(Found(sizes[best], count, cells[best][2], *ends))
  widest = cells.index(("split", recall.widths[-1], found["split"][-1].rate))
  return found, jax.tree.map(lambda leaf: leaf[0, widest], carry[0])


@jax.jit
def _begin(has: Parameters, roots: Array) -> Carry:
  cells = jnp.arange(len(has.key))
  one = lambda root, part, cell: start(part, jax.random.fold_in(root, cell))  # noqa: E731
  parameters = jax.vmap(jax.vmap(one, (None, 0, 0)), (0, None, None))(roots, has, cells)
  return parameters, optax.scale_by_adam().init(parameters)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _advance(
  recall: Recall,
  count: int,
  carry: Carry,
  has: Parameters,
  rates: Float[Array, " c"],
  roots: Array,
  done: Int[Array, ""],
) -> Carry:
  """Some updates of all runs; those of a seed see the same queries."""

  def loss(parameters: Parameters, given: Draw) -> Float[Array, ""]:
    return _losses(parameters, given)[0].mean()

  gradients = jax.vmap(jax.vmap(jax.grad(loss), (0, None)))

  def update(carry: Carry, step: Int[Array, ""]) -> tuple[Carry, None]:
    parameters, state = carry
    given = jax.vmap(lambda root: draw(recall, recall.batch, jax.random.fold_in(root, step)))(
      jax.vmap(lambda root: jax.random.fold_in(root, 1_000_000))(roots)
    )
    moved, state = optax.scale_by_adam().update(gradients(parameters, given), state)
    rate = rates * (1 + jnp.cos(jnp.pi * step / recall.updates)) / 2

    def move(old: Array, by: Array, part: Array) -> Array:
      return old - rate[None, :, None, None] * part * by

    return (jax.tree.map(move, parameters, moved, has), state), None

  carry, _ = jax.lax.scan(update, carry, done + jnp.arange(count))
  return carry


@functools.partial(jax.jit, static_argnums=0)
def _score(
  recall: Recall, parameters: Parameters, roots: Array, split: Int[Array, ""]
) -> tuple[Float[Array, "seed cell"], Float[Array, "seed cell"]]:
  """Mean loss and share right of each run, on queries of their own for each seed and split."""
  batches = -(-recall.test // _ROWS)

  def batch(at: Int[Array, ""]) -> tuple[Array, Array]:
    def one(root: Array, runs: Parameters) -> tuple[Array, Array]:
      rng = jax.random.fold_in(jax.random.fold_in(root, 1_000_000 + split), at)
      given = draw(recall, _ROWS, rng)
      nats, right = jax.vmap(_losses, (0, None))(runs, given)
      return nats.mean(-1), right.mean(-1)

    return jax.vmap(one)(roots, parameters)

  nats, right = jax.lax.map(batch, jnp.arange(batches))
  return nats.mean(0), right.mean(0)


def embedded(recall: Recall, parameters: Parameters, size: int) -> float:
  """Largest difference between a split model's distributions and those of the shared one it is in.

  The split model has keys and values apart. The shared one has the same h for both, a query that is
  0 where the value is, and outputs that are 0 where the key is.

  Args:
    recall: the task.
    parameters: of the split model.
    size: the width of its h.
  """
  given, half = draw(recall, _ROWS, jax.random.key(0)), size // 2
  memory = jnp.tanh(parameters.key[given.keys] + parameters.value[given.values])[..., :size]
  query = parameters.query[_asked(given.keys, given)][:, None, :half]
  out = parameters.out[:, half:size]
  apart = attn.attend(query, memory[..., :half], memory[..., half:]).context[:, 0] @ out.T
  beside = [(0, 0), (0, 0), (0, size - half)]
  together = attn.attend(jnp.pad(query, beside), memory).context[:, 0]
  shared = together @ jnp.pad(out, [(0, 0), (half, 0)]).T
  return float(jnp.abs(jax.nn.softmax(apart) - jax.nn.softmax(shared)).max())
