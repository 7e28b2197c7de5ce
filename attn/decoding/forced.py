"""Forced scoring: how probable a model holds given targets, and what it attends to along them."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from attn.data import pipeline
from attn.decoding.translation import groups
from attn.models import ModelConfig, bind
from attn.models.functional import Params

_AT_ONCE = 512  # target positions whose logits are held together


class Scored(NamedTuple):
  """A target as its model sees it; EOS is the last of its t symbols.

  Attributes:
    log_prob: of the whole target.
    log_probs: of each symbol, given those before it `[t]`; their sum is `log_prob`.
    weights: attention `[t, s]`, a column a source symbol in the order of the text and one for EOS;
      None unless asked for, and for a model without attention.
  """

  log_prob: float
  log_probs: Float[np.ndarray, " t"]
  weights: Float[np.ndarray, "t s"] | None


@functools.partial(jax.jit, static_argnames=("config", "weights"))
def score_batch(
  config: ModelConfig,
  params: Params,
  source: Int[Array, "b s"],
  length: Int[Array, " b"],
  target: Int[Array, "b t"],
  weights: bool,
) -> tuple[Float[Array, "b t"], Float[Array, "b t s"] | None]:
  """Log-probability of every target symbol, padding's too; one compiled program a shape.

  The logits of a batch, its largest array, are never held together.
  """
  model = bind(config, params)
  forced = model.teacher_forced(source, length, target)

  def of_one(at: tuple[Float[Array, " o"], Int[Array, ""]]) -> Float[Array, ""]:
    narrowed, label = at
    return jax.nn.log_softmax(model.decoder.logits(narrowed).astype(jnp.float32))[label]

  rows = forced.narrowed.reshape(-1, forced.narrowed.shape[-1]), target.reshape(-1)
  log_probs = jax.lax.map(of_one, rows, batch_size=_AT_ONCE)
  return log_probs.reshape(target.shape), forced.weights if weights else None


def score(
  config: ModelConfig,
  params: Params,
  sources: Sequence[Sequence[int]],
  targets: Sequence[Sequence[int]],
  *,
  edges: Sequence[int],
  batch_size: int = 128,
  weights: bool = False,
  done: Callable[[int], None] = lambda count: None,
) -> list[Scored]:
  """Scores a target for each source, in their order, whatever batches they fall into.

  Args:
    config: the model, vocabulary sizes filled in.
    params: its parameters.
    sources: ids of each source, without EOS; may be empty.
    targets: ids of the target of each source, without EOS; may be empty.
    edges: ascending lengths that both sides are padded to, EOS counted; longer ones are padded to
      the next power of two.
    batch_size: most pairs scored together.
    weights: whether to return attention.
    done: called with the number of pairs finished, after each batch.

  Raises:
    ValueError: an id is outside its vocabulary, or there are not as many targets as sources.
  """
  if len(sources) != len(targets):
    raise ValueError(f"{len(sources)} sources but {len(targets)} targets; expected one for each")
  results: dict[int, Scored] = {}
  longer = [max(map(len, pair)) + 1 for pair in zip(sources, targets, strict=True)]
  for rows, size, widths in groups(longer, edges, batch_size):
    store = pipeline.TokenStore.from_ids(
      [sources[row] for row in rows],
      [targets[row] for row in rows],
      source_size=params["source"].shape[0],
      target_size=params["target"].shape[0],
    )
    for batch in pipeline.evaluation_batches(store, batch_size=size, edges=widths):
      found = score_batch(
        config, params, batch["source"], batch["source_length"], batch["target"], weights
      )
      log_probs, seen = jax.device_get(found)
      for at, index in enumerate(batch["index"].tolist()):
        if index >= 0:
          t, s = batch["target_length"][at], batch["source_length"][at]
          own = log_probs[at, :t].copy()  # a view would hold the whole batch
          part = None if seen is None else seen[at, :t, :s].copy()
          results[rows[index]] = Scored(float(own.sum(dtype=np.float64)), own, part)
      done(len(results))
  return [results[row] for row in range(len(sources))]
