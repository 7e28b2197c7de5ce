"""Forced scoring: how probable a model holds given targets, and what it attends to along them."""

import functools
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from attn.data import pipeline
from attn.decoding import ensembles
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
      of several models, the mean. None unless asked for, and for a model without attention.
  """

  log_prob: float
  log_probs: Float[np.ndarray, " t"]
  weights: Float[np.ndarray, "t s"] | None


@functools.partial(jax.jit, static_argnames=("configs", "weights", "average"))
def score_batch(
  configs: tuple[ModelConfig, ...],
  params: tuple[Params, ...],
  source: Int[Array, "b s"],
  length: Int[Array, " b"],
  target: Int[Array, "b t"],
  weights: bool,
  average: Literal["probabilities", "logits"] = "probabilities",
) -> tuple[Float[Array, "b t"], Float[Array, "b t s"] | None]:
  """Log-probability of every target symbol, padding's too; one compiled program a shape.

  The logits of a batch, its largest array, are never held together.
  """
  models = [bind(config, one) for config, one in zip(configs, params, strict=True)]
  forced = [model.teacher_forced(source, length, target) for model in models]
  vocabulary = min(one["target"].shape[0] for one in params)

  def of_one(at: tuple[list[Float[Array, " o"]], Int[Array, ""]]) -> Float[Array, ""]:
    narrowed, label = at
    logits = [model.decoder.logits(one) for model, one in zip(models, narrowed, strict=True)]
    log_probs = [jax.nn.log_softmax(one.astype(jnp.float32))[:vocabulary] for one in logits]
    return ensembles.averaged(log_probs, average)[label]

  narrowed = [one.narrowed.reshape(-1, one.narrowed.shape[-1]) for one in forced]
  log_probs = jax.lax.map(of_one, (narrowed, target.reshape(-1)), batch_size=_AT_ONCE)
  seen = ensembles.mean([one.weights for one in forced]) if weights else None
  return log_probs.reshape(target.shape), seen


def score(
  config: ModelConfig | tuple[ModelConfig, ...],
  params: Params | tuple[Params, ...],
  sources: Sequence[Sequence[int]],
  targets: Sequence[Sequence[int]],
  *,
  edges: Sequence[int],
  batch_size: int = 128,
  weights: bool = False,
  average: Literal["probabilities", "logits"] = "probabilities",
  done: Callable[[int], None] = lambda count: None,
) -> list[Scored]:
  """Scores a target for each source, in their order, whatever batches they fall into.

  Args:
    config: the model, vocabulary sizes filled in; of an ensemble, a tuple.
    params: its parameters; of an ensemble, a tuple as long. All have the same vocabularies.
    sources: ids of each source, without EOS; may be empty.
    targets: ids of the target of each source, without EOS; may be empty.
    edges: ascending lengths that both sides are padded to, EOS counted; longer ones are padded to
      the next power of two.
    batch_size: most pairs scored together.
    weights: whether to return attention.
    average: what is averaged of an ensemble, see `SearchConfig.ensemble`.
    done: called with the number of pairs finished, after each batch.

  Raises:
    ValueError: an id is outside its vocabulary, or there are not as many targets as sources.
  """
  if len(sources) != len(targets):
    raise ValueError(f"{len(sources)} sources but {len(targets)} targets; expected one for each")
  configs = config if isinstance(config, tuple) else (config,)
  members = params if isinstance(params, tuple) else (params,)
  results: dict[int, Scored] = {}
  longer = [max(map(len, pair)) + 1 for pair in zip(sources, targets, strict=True)]
  for rows, size, widths in groups(longer, edges, batch_size):
    store = pipeline.TokenStore.from_ids(
      [sources[row] for row in rows],
      [targets[row] for row in rows],
      source_size=min(one["source"].shape[0] for one in members),
      target_size=min(one["target"].shape[0] for one in members),
    )
    for batch in pipeline.evaluation_batches(store, batch_size=size, edges=widths):
      arrays = batch["source"], batch["source_length"], batch["target"]
      found = score_batch(configs, members, *arrays, weights, average)
      log_probs, seen = jax.device_get(found)
      for at, index in enumerate(batch["index"].tolist()):
        if index >= 0:
          t, s = batch["target_length"][at], batch["source_length"][at]
          own = log_probs[at, :t].copy()  # a view would hold the whole batch
          part = None if seen is None else seen[at, :t, :s].copy()
          results[rows[index]] = Scored(float(own.sum(dtype=np.float64)), own, part)
      done(len(results))
  return [results[row] for row in range(len(sources))]
