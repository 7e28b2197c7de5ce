"""Programs of `experiments.teacher_forcing`: what a decoder does in its loop, and what at once."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from attn.data.vocabulary import BOS
from attn.models import ModelConfig, bind, init
from attn.models.functional import Params
from attn.models.memory import Memory

FIXED, LUONG, FED, SEARCH = "fixed vector", "Luong", "Luong, input feeding", "RNNsearch"

_SIZES = {"source_vocabulary": 30_000, "target_vocabulary": 30_000}
_LSTM = {"cell": "lstm", "encoder": "forward", "initial_state": "all_layers", "order": "luong"}
# Sutskever 2014, Luong 2015 without and with its section 3.3, and Bahdanau 2015: each with the
# widths of Bahdanau 2015, one layer, and Luong's h~ as wide as its states.
_CHOICES: dict[str, dict[str, Any]] = {
  FIXED: {**_LSTM, "score": "none", "context": "none", "readout": "state"},
  LUONG: {**_LSTM, "score": "dot", "readout": "tanh", "maxout": 1000},
  FED: {**_LSTM, "score": "dot", "readout": "tanh", "maxout": 1000, "input_feeding": "readout"},
  SEARCH: {},
}
KINDS = {name: ModelConfig(**_SIZES, **choices) for name, choices in _CHOICES.items()}


class Program(NamedTuple):
  """What a program has to do.

  Attributes:
    steps: passes of its loops that wait for each other.
    inside: multiply-adds of products in loops.
    total: multiply-adds of all products.
  """

  steps: int
  inside: int
  total: int

  @property
  def waiting(self) -> float:
    """Share of the multiply-adds that wait for the pass before, %."""
    return 100 * self.inside / self.total


def forced(config: ModelConfig, words: int) -> Program:
  """Logits along a known target, from an encoded source, both of so many words."""

  def logits(params: Params, memory: Memory, target: Int[Array, "b t"]) -> Array:
    return bind(config, params).along(memory, target).logits

  return _counted(config, words, logits)


def generated(config: ModelConfig, words: int) -> Program:
  """The same where each word is known only once it has been chosen."""

  def chosen(params: Params, memory: Memory, target: Int[Array, "b t"]) -> Array:
    model = bind(config, params)

    def step(carry: tuple[Any, Array], _: None) -> tuple[tuple[Any, Array], Array]:
      log_probs, made = model.step(memory, *carry)
      return (made.state, log_probs.argmax(-1)), log_probs

    first = jnp.full(target.shape[:1], BOS)
    return jax.lax.scan(step, (model.start(memory), first), None, length=target.shape[1])[1]

  return _counted(config, words, chosen)


def _counted(config: ModelConfig, words: int, function: Callable[..., Array]) -> Program:
  params = jax.eval_shape(functools.partial(init, config), jax.random.key(0))
  sentence = jax.ShapeDtypeStruct((1, words), jnp.int32)
  memory = jax.eval_shape(
    lambda params, source: bind(config, params).encode(source, jnp.array([words])), params, sentence
  )
  return count(jax.make_jaxpr(function)(params, memory, sentence).jaxpr)


def count(jaxpr: Any) -> Program:
  """Sums up what of a program reaches its outputs, as if its loops ran one after the other."""
  needed, parts = set(_variables(jaxpr.outvars)), []
  for equation in reversed(jaxpr.eqns):
    if needed.intersection(equation.outvars):
      needed.update(_variables(equation.invars))
      parts.append(_equation(equation))
  return Program(*(sum(column) for column in zip(Program(0, 0, 0), *parts, strict=True)))


def _variables(atoms: Sequence[Any]) -> list[Any]:
  return [atom for atom in atoms if not hasattr(atom, "val")]  # the others are constants


def _equation(equation: Any) -> Program:
  name, params = equation.primitive.name, equation.params
  if name in ("while", "cond"):
    raise NotImplementedError(f"counting a {name}: how often it runs is not in the program")
  inner = next((params[key] for key in ("jaxpr", "call_jaxpr") if key in params), None)
  if name == "scan":
    body, length = count(params["jaxpr"].jaxpr), params["length"]
    return Program(length * max(body.steps, 1), length * body.total, length * body.total)
  if inner is not None:
    return count(getattr(inner, "jaxpr", inner))
  if name == "dot_general":
    (summed, _), _ = params["dimension_numbers"]
    shape = equation.invars[0].aval.shape
    factors = (*equation.outvars[0].aval.shape, *(shape[axis] for axis in summed))
    return Program(0, 0, math.prod(factors))
  return Program(0, 0, 0)


def moved(config: ModelConfig, words: int, seed: int) -> Float[np.ndarray, "t t"]:
  """How far logits move when a word of the target is another, at its row the word's place.

  Args:
    config: the model; it is made small.
    words: of source and target.
    seed: of everything random, parameters included: normal, and large enough to pass words on.
  """
  config, random = small(config), np.random.default_rng(seed)
  shapes = jax.eval_shape(functools.partial(init, config), jax.random.key(0))
  params = jax.tree.map(lambda leaf: random.normal(0, 0.5, leaf.shape).astype(leaf.dtype), shapes)
  source, target = random.integers(4, 11, (2, 1, words))
  other = np.where(target == 4, 5, target - 1)
  targets = np.where(np.eye(words + 1, words, -1, dtype=bool), other, target)
  sources, lengths = np.tile(source, (words + 1, 1)), np.full(words + 1, words)

  @jax.jit
  def logits(params: Params) -> Float[Array, "rows t v"]:
    return bind(config, params).teacher_forced(sources, lengths, targets).logits

  found = np.asarray(logits(params))
  return np.abs(found[1:] - found[:1]).max(-1)


def small(config: ModelConfig) -> ModelConfig:
  """The same model at sizes that take no time."""
  return dataclasses.replace(
    config, source_vocabulary=13, target_vocabulary=11, embedding=8, units=8, alignment=8, maxout=8,
  )  # fmt: skip
