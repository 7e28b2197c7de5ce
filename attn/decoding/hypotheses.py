"""What a search is given and what it returns.

Letters: `b` sentences, `k` beams, `n` hypotheses a sentence, `T` the most tokens a hypothesis has
room for, `s` source positions, `V` vocabulary.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Step = Callable[
  [Any, Int[Array, "b k"]],
  tuple[Float[Array, "b k V"], Any, Float[Array, "b k s"] | None],
]
"""`step(state, tokens) -> (log_probs, state, weights)`.

`tokens` are the ones emitted last (BOS at first) and `log_probs` are of the next ones, normalised,
so none is above 0; -inf forbids a token. `state` is a pytree of arrays that lead with `[b, k]`.
What all beams of a sentence share (annotations, projected keys, mask) belongs in the step's
closure, one copy a sentence as `[b, 1, s, ...]`, and broadcasts. `weights` are those with which the
next token was predicted, or None.
"""

Penalty = Callable[[Any], Float[Array, "b k"]]
"""`penalty(state)`: what is added to the score of each beam if it ends now, at most 0.

`state` is that which the step returned, after the weights of the token that ends the hypothesis.
"""


class Hypotheses(NamedTuple):
  """The hypotheses of each sentence, best first.

  A sentence with fewer than `n` hypotheses ends with empty ones: length 0, score -inf.

  Attributes:
    tokens: EOS is included where a hypothesis is finished; PAD follows.
    lengths: emitted tokens, EOS included.
    scores: what they are ranked by, `log_probs / lengths**alpha` unless the search was told else.
    log_probs: sum of the tokens' log-probabilities.
    finished: whether it ends in EOS; otherwise it was cut at its sentence's limit.
    weights: row t holds the weights that token t was predicted with; zero from `lengths` on.
  """

  tokens: Int[Array, "b n T"]
  lengths: Int[Array, "b n"]
  scores: Float[Array, "b n"]
  log_probs: Float[Array, "b n"]
  finished: Bool[Array, "b n"]
  weights: Float[Array, "b n T s"] | None


class StepShapes(NamedTuple):
  """The sizes that only the step itself can tell.

  Attributes:
    vocabulary: V.
    source: s, or None where the step returns no weights.
  """

  vocabulary: int
  source: int | None


def check_limits(limits: Int[Array, " b"], maximum_length: int) -> Int[Array, " b"]:
  """`limits` as int32, none above the room there is or below 0."""
  if maximum_length < 1:
    raise ValueError(f"maximum_length is {maximum_length}: a search needs room for one token")
  limits = jnp.asarray(limits)
  if limits.ndim != 1 or not jnp.issubdtype(limits.dtype, jnp.integer):
    raise ValueError(
      f"limits is {limits.dtype}{list(limits.shape)}: expected integers [b], one a sentence"
    )
  return jnp.clip(limits.astype(jnp.int32), 0, maximum_length)


def check_state(state: Any, sentences: int) -> None:
  """Raises a ValueError unless every leaf of the first state leads with `[b, 1]`."""
  for path, leaf in jax.tree_util.tree_leaves_with_path(state):
    if jnp.shape(leaf)[:2] != (sentences, 1):
      raise ValueError(
        f"state{jax.tree_util.keystr(path)} is {list(jnp.shape(leaf))}: expected"
        f" [{sentences}, 1, ...], a row for each of the {sentences} limits and an axis for beams"
      )


def check_step(step: Step, state: Any, tokens: Int[Array, "b k"], eos: int) -> StepShapes:
  """Traces one step without running it and checks what it returns against `Step`."""
  log_probs, after, weights = jax.eval_shape(step, state, tokens)
  if log_probs.ndim != 3 or log_probs.shape[:2] != tokens.shape:
    raise ValueError(
      f"step returned log_probs {list(log_probs.shape)}: expected {[*tokens.shape, 'V']}"
    )
  if not 0 <= eos < log_probs.shape[2]:
    raise ValueError(f"eos is {eos}: expected an id of the step's {log_probs.shape[2]} tokens")
  if weights is not None and (weights.ndim != 3 or weights.shape[:2] != tokens.shape):
    raise ValueError(
      f"step returned weights {list(weights.shape)}: expected {[*tokens.shape, 's']} or None"
    )
  expected: Any = jax.tree.structure(state)
  returned: Any = jax.tree.structure(after)
  if expected != returned:
    raise ValueError(f"step returned a state of structure {returned}: expected {expected}")
  leaves = jax.tree_util.tree_leaves_with_path(jax.eval_shape(lambda s: s, state))
  for (path, before), leaf in zip(leaves, jax.tree.leaves(after), strict=True):
    if (before.shape, before.dtype) != (leaf.shape, leaf.dtype):
      raise ValueError(
        f"step returned state{jax.tree_util.keystr(path)} {leaf.dtype}{list(leaf.shape)}:"
        f" expected {before.dtype}{list(before.shape)} as it was given"
      )
  return StepShapes(log_probs.shape[2], None if weights is None else weights.shape[2])


def check_penalty(penalty: Penalty | None, state: Any, tokens: Int[Array, "b k"]) -> None:
  """Raises a ValueError unless the penalty, if there is one, is a number for each beam."""
  if penalty is None:
    return
  shape = jax.eval_shape(penalty, state).shape
  if shape != tokens.shape:
    raise ValueError(f"penalty returned {list(shape)}: expected {list(tokens.shape)}")


def write_weights(
  history: Float[Array, "T b k s"] | None,
  time: Int[Array, ""],
  weights: Float[Array, "b k s"] | None,
) -> Float[Array, "T b k s"] | None:
  """`history` with this step's weights in its place, None for a step without weights."""
  if history is None or weights is None:
    return None
  return history.at[time].set(weights.astype(jnp.float32))
