"""What `experiments.cost` times: compiled passes of the models, which take turns."""

import dataclasses
import functools
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import attn
from attn import models
from attn.models import ModelConfig
from experiments.benchmark_bars import Ratio, ratio
from experiments.cost_counts import bound
from experiments.score_scale_draws import Spread, spread

FIXED, ATTENTION, EACH_STEP = "fixed vector", "attention", "attention, U_a h_j at every step"
AT_ONCE, ONE_BY_ONE = "all queries at once", "one query after the other"
SAMPLE = 0.01  # seconds that one timing takes at least: a short program runs several times in it


@dataclasses.dataclass(frozen=True)
class Sizes:
  """Sizes of the model that is timed; its vocabularies are small, so that they hide nothing.

  Attributes:
    batch: sentences.
    units: n, of every recurrent state.
    embedding: m, of a word.
    alignment: n'.
    maxout: l.
    vocabulary: of each side.
  """

  batch: int = 16
  units: int = 256
  embedding: int = 128
  alignment: int = 256
  maxout: int = 128
  vocabulary: int = 500

  def model(self, score: str) -> ModelConfig:
    """RNNsearch at these sizes, or with `none` the same without attention."""
    return ModelConfig(
      source_vocabulary=self.vocabulary, target_vocabulary=self.vocabulary,
      embedding=self.embedding, units=self.units, alignment=self.alignment, maxout=self.maxout,
      initialisation="luong", score=score,
    )  # fmt: skip


class Program(NamedTuple):
  """A compiled program with its arguments.

  Attributes:
    call: computes once, and returns the result when it is there.
    temporary: bytes of temporary memory, by the compiler's account.
  """

  call: Callable[[], Any]
  temporary: int


class Times(NamedTuple):
  """Seconds a call, one number a turn."""

  seconds: tuple[float, ...]

  @property
  def spread(self) -> Spread:
    """Median, its distribution-free interval, and quantiles."""
    return spread(np.asarray(self.seconds))

  def over(self, other: "Times") -> Ratio:
    """Median ratio of the turns, neighbours in time, and its interval."""
    return ratio(self.seconds, other.seconds)


class At(NamedTuple):
  """What was measured at one length.

  Attributes:
    length: positions of the source, and of the target.
    times: contender to seconds of the forward pass.
    forward: contender to bytes of temporary memory of that pass.
    training: contender to the same with the gradients.
    difference: largest between the outputs with U_a h_j computed once and at every step, over the
      largest output.
  """

  length: int
  times: dict[str, Times]
  forward: dict[str, int]
  training: dict[str, int]
  difference: float


def measure_length(sizes: Sizes, length: int, repeats: int, seed: int) -> At:
  """Compiles the passes of all contenders at one length, compares and times them."""
  inputs = _inputs(sizes, length, seed)
  passes, gradients = {}, {}
  for name, score in ((FIXED, "none"), (ATTENTION, "additive"), (EACH_STEP, "additive")):
    config = sizes.model(score)
    params = _params(config, seed)
    forward = functools.partial(_logits, config, at_hand=name != EACH_STEP)
    passes[name] = functools.partial(compiled, forward, params, *inputs)
    if name != EACH_STEP:
      gradient = jax.grad(lambda params, *inputs, f=forward: f(params, *inputs).sum())
      gradients[name] = functools.partial(compiled, gradient, params, *inputs)
  with futures.ThreadPoolExecutor(2) as pool:  # XLA compiles outside Python's lock
    training = pool.map(operator.call, gradients.values())
    programs = dict(zip(passes, pool.map(operator.call, passes.values()), strict=True))
  found = {name: np.asarray(programs[name].call()) for name in (ATTENTION, EACH_STEP)}
  apart = np.max(np.abs(found[ATTENTION] - found[EACH_STEP]))
  return At(
    length=length,
    times=take_turns({name: program.call for name, program in programs.items()}, repeats),
    forward={name: program.temporary for name, program in programs.items()},
    training={name: one.temporary for name, one in zip(gradients, training, strict=True)},
    difference=float(apart / np.max(np.abs(found[ATTENTION]))),
  )


def measure_dot(sizes: Sizes, length: int, repeats: int, seed: int) -> dict[str, Times]:
  """Times dot attention of all queries in one product, and of one query after the other."""
  draw = np.random.default_rng(seed)
  shape = (sizes.batch, length, sizes.units)
  query, keys = (jnp.asarray(draw.standard_normal(shape, np.float32)) for _ in range(2))
  query /= sizes.units**0.5  # Large scores would have a softmax that rounding decides.

  def at_once(query: jax.Array, keys: jax.Array) -> jax.Array:
    return attn.attend(query, keys).context

  def one_by_one(query: jax.Array, keys: jax.Array) -> jax.Array:
    one = lambda _, q: (None, attn.attend(q[:, None], keys).context[:, 0])  # noqa: E731
    return jnp.swapaxes(jax.lax.scan(one, None, jnp.swapaxes(query, 0, 1))[1], 0, 1)

  programs = {
    name: compiled(function, query, keys)
    for name, function in ((AT_ONCE, at_once), (ONE_BY_ONE, one_by_one))
  }
  np.testing.assert_allclose(*(program.call() for program in programs.values()), atol=1e-4)
  return take_turns({name: program.call for name, program in programs.items()}, repeats)


def take_turns(calls: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, Times]:
  """Times each call once a turn, A B C A B C ..., after a first call that is not counted.

  Args:
    calls: what is timed, by name.
    repeats: turns.
  """
  often = {}
  for name, call in calls.items():
    call()
    often[name] = max(1, round(SAMPLE / _seconds(call, 1)))
  turns = [{name: _seconds(call, often[name]) for name, call in calls.items()}
           for _ in range(repeats)]  # fmt: skip
  return {name: Times(tuple(turn[name] for turn in turns)) for name in calls}


def compiled(function: Callable[..., Any], *arguments: Any) -> Program:
  """Compiles a program for its arguments."""
  program = jax.jit(function).lower(*arguments).compile()
  return Program(
    lambda: jax.block_until_ready(program(*arguments)),
    program.memory_analysis().temp_size_in_bytes,
  )


def growth(lengths: Sequence[int], values: Sequence[float]) -> float:
  """The power of the length that values grow by, between the first and the last."""
  return float(np.log(values[-1] / values[0]) / np.log(lengths[-1] / lengths[0]))


def _seconds(call: Callable[[], Any], often: int) -> float:
  start = time.perf_counter()
  for _ in range(often):
    call()
  return (time.perf_counter() - start) / often


def _logits(
  config: ModelConfig, params: Any, source: Any, length: Any, target: Any, *, at_hand: bool
) -> jax.Array:
  model = bound(config, params, at_hand=at_hand)
  return model.teacher_forced(source, length, target).logits


def _params(config: ModelConfig, seed: int) -> Any:
  return jax.jit(models.init, static_argnums=0)(config, jax.random.key(seed))


def _inputs(sizes: Sizes, length: int, seed: int) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Sources of full length, their lengths, and targets; the same for every contender."""
  draw = np.random.default_rng((seed, length))
  source, target = draw.integers(4, sizes.vocabulary, (2, sizes.batch, length))
  whole = np.full(sizes.batch, length)
  return tuple(jnp.asarray(array, jnp.int32) for array in (source, whole, target))
