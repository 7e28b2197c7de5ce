"""How far an input word is from an output, counted in the program that JAX makes of a model.

The program of `Seq2Seq.teacher_forced` is walked through with distances in place of numbers: each
element of each array holds how many steps it is from each source word. A loop is walked through
pass by pass. So a distance is that of the computation as it runs, at the resolution of single
elements, whatever the model is.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attn.models import ModelConfig, bind, init

# Distances of an array's elements from each source word, `[words, *shape]`; None: no word reaches.
Distances = np.ndarray | None


class Counting(NamedTuple):
  """What a path is, and which of several counts.

  Attributes:
    product: what a product with a matrix, or a weighted sum, adds to a path.
    step: what a step from one state of a recurrence to the next adds.
    best: of two paths to one element.
    worst: what `best` never chooses: the distance of an element from a word that does not reach it.
  """

  product: int
  step: int
  best: Any  # A ufunc of NumPy.
  worst: float


SHORTEST = Counting(product=1, step=1, best=np.minimum, worst=math.inf)
SEQUENTIAL = Counting(product=0, step=1, best=np.maximum, worst=-math.inf)


def distances(config: ModelConfig, words: int, counting: Counting = SHORTEST) -> np.ndarray:
  """Distances of each output from each source word, `[words, words]`, source first.

  Args:
    config: the model; its widths do not matter, as long as they are small.
    words: of the source, and of the target.
    counting: shortest paths, or the longest chains of states.
  """
  jaxpr, seeds = _program(config, words)
  (found,) = _Walk(words, counting).run(jaxpr, seeds)
  if found is None:
    raise ValueError(f"no source word reaches an output of {config}")
  result: np.ndarray = counting.best.reduce(found[:, 0], axis=-1)
  return result


class Paths(NamedTuple):
  """Of one model, at each length.

  Attributes:
    longest: of the shortest paths between a word and an output.
    shortest: the least of them.
    chain: the longest chain of states that wait for each other.
  """

  longest: tuple[int, ...]
  shortest: tuple[int, ...]
  chain: tuple[int, ...]


def paths(config: ModelConfig, lengths: Sequence[int]) -> Paths:
  """Sums up all pairs of a word and an output, at each number of words."""
  near = [distances(config, words) for words in lengths]
  chains = [distances(config, words, SEQUENTIAL) for words in lengths]
  return Paths(
    tuple(int(one.max()) for one in near),
    tuple(int(one.min()) for one in near),
    tuple(int(one.max()) for one in chains),
  )


@functools.lru_cache
def _program(config: ModelConfig, words: int) -> tuple[Any, list[Any]]:
  """The program that makes logits of parameters, sources and targets, and which of these count."""
  shapes = jax.eval_shape(functools.partial(init, config), jax.random.key(0))
  integers = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.int32)

  def logits(params: Any, source: Any, length: Any, target: Any) -> Any:
    return bind(config, params).teacher_forced(source, length, target).logits

  closed = jax.make_jaxpr(logits)(
    shapes, integers((1, words)), integers((1,)), integers((1, words))
  )
  names = [path[0].key for path, _ in jax.tree_util.tree_leaves_with_path(shapes)]
  seeds = [_TABLE if name == "source" else None for name in names]
  return closed.jaxpr, [*seeds, None, None, None]


_TABLE: Any = object()  # the table of source embeddings, whose rows are the words


class _Walk:
  """Evaluates a jaxpr on distances."""

  def __init__(self, words: int, counting: Counting):
    self.words, self.counting = words, counting

  def run(self, jaxpr: Any, inputs: Sequence[Any]) -> list[Any]:
    """Distances of the outputs of a jaxpr from those of its inputs; constants have none."""
    known: dict[Any, Any] = dict(zip(jaxpr.invars, inputs, strict=True))
    for equation in jaxpr.eqns:
      operands = [known.get(v) if not hasattr(v, "val") else None for v in equation.invars]
      if all(operand is None for operand in operands):
        continue
      outputs = self._equation(equation, operands)
      known.update(zip(equation.outvars, outputs, strict=True))
    return [known.get(v) if not hasattr(v, "val") else None for v in jaxpr.outvars]

  def _equation(self, equation: Any, operands: list[Any]) -> list[Any]:
    name, params = equation.primitive.name, equation.params
    if name == "scan":
      return self._scan(params, operands)
    inner = next((params[key] for key in ("jaxpr", "call_jaxpr") if key in params), None)
    if inner is not None:
      return self.run(getattr(inner, "jaxpr", inner), operands)
    shapes = [variable.aval.shape for variable in equation.invars]
    out = equation.outvars[0].aval.shape
    if name == "gather" and operands[0] is _TABLE:
      return [self._rows(out)]
    if name == "dot_general":
      return [self._product(params["dimension_numbers"], operands, shapes, out)]
    if name == "concatenate":
      filled = [self._full(x, shape) for x, shape in zip(operands, shapes, strict=True)]
      return [np.concatenate(filled, params["dimension"] + 1)]
    if name == "split":
      ends = np.cumsum(params["sizes"])[:-1]
      return list(np.split(operands[0], ends, params["axis"] + 1))
    if name in _MOVES:
      return [_MOVES[name](operands[0], self.counting.worst, **params)]
    if name.startswith("reduce_"):
      return [self.counting.best.reduce(operands[0], tuple(axis + 1 for axis in params["axes"]))]
    if name in _EACH:
      return [self._each(operands, out)]
    raise NotImplementedError(f"distances through {name}: give it a rule in {__name__}")

  def _full(self, operand: Distances, shape: tuple[int, ...]) -> np.ndarray:
    if operand is None:
      return np.full((self.words, *shape), self.counting.worst)
    return operand

  def _rows(self, shape: tuple[int, ...]) -> np.ndarray:
    """The embedded words `[words, 1, m]`: each is at distance 0 from itself alone."""
    found = np.full((self.words, *shape), self.counting.worst)
    found[np.arange(self.words), np.arange(self.words)] = 0
    return found

  def _each(self, operands: list[Distances], shape: tuple[int, ...]) -> np.ndarray:
    """Element by element, at no distance."""
    reached = [operand for operand in operands if operand is not None]
    wide = [one.reshape(-1, *(1,) * (len(shape) + 1 - one.ndim), *one.shape[1:]) for one in reached]
    best = functools.reduce(self.counting.best, wide)
    return np.broadcast_to(best, (self.words, *shape))

  def _product(
    self,
    dimensions: Any,
    operands: list[Distances],
    shapes: list[tuple[int, ...]],
    out: tuple[int, ...],
  ) -> np.ndarray:
    """Of a sum over products: from the best of what either factor has along it."""
    best: list[Distances] = []
    free = [
      len(shape) - len(summed) - len(batch)
      for shape, summed, batch in zip(shapes, *dimensions, strict=True)
    ]
    for side, operand in enumerate(operands):
      if operand is None:
        best.append(None)
        continue
      summed, batch = dimensions[0][side], dimensions[1][side]
      kept = [axis for axis in range(operand.ndim - 1) if axis not in (*summed, *batch)]
      ordered = operand.transpose(0, *(axis + 1 for axis in (*batch, *kept, *summed)))
      least = self.counting.best.reduce(
        ordered, tuple(range(1 + len(batch) + len(kept), ordered.ndim))
      )
      lone, shape = len(batch) + 1, least.shape
      ones = (1,) * free[1 - side]
      wide = (*shape, *ones) if side == 0 else (*shape[:lone], *ones, *shape[lone:])
      best.append(least.reshape(wide))
    return self._each(best, out) + self.counting.product

  def _scan(self, params: Any, operands: list[Any]) -> list[Any]:
    """Pass by pass; what one pass hands to the next has taken a step."""
    consts, carries = params["num_consts"], params["num_carry"]
    body, length = params["jaxpr"].jaxpr, params["length"]
    fixed, carry = operands[:consts], operands[consts : consts + carries]
    rows = operands[consts + carries :]
    made: list[list[Any]] = [[] for _ in body.outvars[carries:]]
    for at in reversed(range(length)) if params["reverse"] else range(length):
      stepped = [None if x is None else x + self.counting.step for x in carry]
      here = [None if x is None else x[:, at] for x in rows]
      outputs = self.run(body, [*fixed, *stepped, *here])
      carry = outputs[:carries]
      for row, output in zip(made, outputs[carries:], strict=True):
        row.append(output)
    if params["reverse"]:
      made = [row[::-1] for row in made]
    variables = body.outvars[carries:]
    return [*carry, *(self._stacked(row, v) for row, v in zip(made, variables, strict=True))]

  def _stacked(self, row: list[Distances], variable: Any) -> Distances:
    if all(one is None for one in row):
      return None
    return np.stack([self._full(one, variable.aval.shape) for one in row], axis=1)


def _broadcast(x: np.ndarray, _: float, *, shape: Any, broadcast_dimensions: Any, **__: Any) -> Any:
  ones = [1] * len(shape)
  for axis, place in enumerate(broadcast_dimensions):
    ones[place] = x.shape[axis + 1]
  return np.broadcast_to(x.reshape(len(x), *ones), (len(x), *shape))


def _reshape(x: np.ndarray, _: float, *, new_sizes: Any, **__: Any) -> Any:
  return x.reshape(len(x), *new_sizes)


def _transpose(x: np.ndarray, _: float, *, permutation: Any) -> Any:
  return x.transpose(0, *(axis + 1 for axis in permutation))


def _squeeze(x: np.ndarray, _: float, *, dimensions: Any) -> Any:
  return np.squeeze(x, tuple(axis + 1 for axis in dimensions))


def _slice(x: np.ndarray, _: float, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
  steps = strides or (1,) * len(start_indices)
  return x[:, *map(slice, start_indices, limit_indices, steps)]


def _pad(x: np.ndarray, worst: float, *, padding_config: Any) -> Any:
  if any(low < 0 or high < 0 or inner for low, high, inner in padding_config):
    raise NotImplementedError(f"distances through a padding of {padding_config}")
  around = [(0, 0), *((low, high) for low, high, _ in padding_config)]
  return np.pad(x, around, constant_values=worst)


# What rearranges the elements of one array.
_MOVES: dict[str, Callable[..., Any]] = {
  "broadcast_in_dim": _broadcast,
  "reshape": _reshape,
  "transpose": _transpose,
  "squeeze": _squeeze,
  "slice": _slice,
  "pad": _pad,
}

# What combines arrays element by element.
_EACH = frozenset(
  """add and convert_element_type div eq exp ge gt le log logistic lt max min mul ne neg not or
  select_n stop_gradient sub tanh""".split()
)
