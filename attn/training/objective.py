"""What is minimised: negative log-likelihood a real target symbol."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

import attn
from attn.data.vocabulary import EOS
from attn.models import Forced, ModelConfig, Seq2Seq, bind
from attn.models.functional import Params
from attn.training import sampling
from attn.training.config import PLAIN, ObjectiveConfig
from attn.training.output_loss import summed_output_loss

# Logits of a batch beyond which they are not held: 16 MB in float32.
_LARGE = 2**22


def token_losses(
  logits: Float[Array, "b t v"],
  target: Int[Array, "b t"],
  length: Int[Array, " b"],
  smoothing: float = 0.0,
) -> Float[Array, "b t"]:
  """-log p(y_i | y_<i, x) in nats; 0 at padding, whose logits do not matter.

  With `smoothing`, that share of the label's probability is spread evenly over all symbols but PAD
  and BOS, which never are labels.
  """
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, target)
  if smoothing:
    even = jax.nn.logsumexp(logits, axis=-1) - logits[..., EOS:].mean(-1)
    losses = (1 - smoothing) * losses + smoothing * even
  return jnp.where(attn.length_mask(length, target.shape[1]), losses, 0.0)


def summed_loss(
  params: Params,
  config: ModelConfig,
  batch: dict[str, Array],
  rng: Array | None = None,
  objective: ObjectiveConfig = PLAIN,
  share: Float[Array, ""] | None = None,
) -> Float[Array, ""]:
  """Summed loss of a batch's real symbols.

  Dropout is on when `rng` is given; with `share` as well, that share of the previous words is the
  model's own.
  """
  if objective.compute == "bfloat16":
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
  model = bind(config, params)
  if share is not None and rng is not None:
    logits = sampling.logits(model, batch, rng, share)
  else:
    forced = model.teacher_forced(batch["source"], batch["source_length"], batch["target"], rng=rng)
    if forced.logits.size > _LARGE:
      return _without_logits(model, forced, batch, objective.label_smoothing)
    logits = forced.logits
  return token_losses(
    logits.astype(jnp.float32), batch["target"], batch["target_length"], objective.label_smoothing
  ).sum()


def _without_logits(
  model: Seq2Seq, forced: Forced, batch: dict[str, Array], smoothing: float
) -> Float[Array, ""]:
  """The same sum from what the output layer reads; nothing is left that needs the logits."""
  matrix, bias = model.decoder.w_o[...], model.decoder.b_w
  counted = attn.length_mask(batch["target_length"], batch["target"].shape[1])
  return summed_output_loss(
    forced.narrowed.reshape(-1, matrix.shape[1]),
    matrix,
    jnp.zeros(matrix.shape[0], matrix.dtype) if bias is None else bias[...],
    batch["target"].reshape(-1),
    counted.reshape(-1).astype(jnp.float32),
    smoothing,
  )


def divisor(batch: dict[str, Array], per: str) -> Array:
  """What the summed loss of a batch is divided by; 1 for one without symbols."""
  length = batch["target_length"]
  counts = {"symbol": length.sum(), "sentence": (length > 0).sum(), "batch": jnp.int32(1)}
  return jnp.maximum(counts[per], 1)


def cut(batch: dict[str, Array], parts: int) -> dict[str, Array]:
  """The batch as `parts` batches of every so manieth row, on a new first axis."""
  result: dict[str, Array] = jax.tree.map(
    lambda leaf: leaf.reshape(-1, parts, *leaf.shape[1:]).swapaxes(0, 1), batch
  )
  return result


def largest_norms(params: Any, count: int = 3) -> str:
  """The leaves of largest norm, named, for an error message."""
  norms = {
    jax.tree_util.keystr(path, simple=True, separator="."): float(jnp.linalg.norm(leaf))
    for path, leaf in jax.tree_util.tree_leaves_with_path(params)
  }
  top = sorted(norms.items(), key=lambda item: -item[1])[:count]
  return ", ".join(f"{name} {norm:.3g}" for name, norm in top)
