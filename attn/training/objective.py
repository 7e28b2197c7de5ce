"""What is minimised: negative log-likelihood a real target symbol."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from attn.models import ModelConfig, bind
from attn.models.functional import Params


def token_losses(
  logits: Float[Array, "b t v"], target: Int[Array, "b t"], length: Int[Array, " b"]
) -> Float[Array, "b t"]:
  """-log p(y_i | y_<i, x) in nats; 0 at padding, whose logits do not matter."""
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, target)
  return jnp.where(jnp.arange(target.shape[1]) < length[:, None], losses, 0.0)


def mean_loss(
  params: Params, config: ModelConfig, batch: dict[str, Array], rng: Array | None = None
) -> tuple[Array, Array]:
  """Mean loss of a batch's real symbols, and their number; an empty batch has loss 0.

  Dropout is on when `rng` is given.
  """
  forced = bind(config, params).teacher_forced(
    batch["source"], batch["source_length"], batch["target"], rng=rng
  )
  symbols = batch["target_length"].sum()
  total = token_losses(forced.logits, batch["target"], batch["target_length"]).sum()
  return total / jnp.maximum(symbols, 1), symbols


def largest_norms(params: Params, count: int = 3) -> str:
  """The parameters of largest norm, named, for an error message."""
  norms = {
    jax.tree_util.keystr(path, simple=True, separator="."): float(jnp.linalg.norm(leaf))
    for path, leaf in jax.tree_util.tree_leaves_with_path(params)
  }
  top = sorted(norms.items(), key=lambda item: -item[1])[:count]
  return ", ".join(f"{name} {norm:.3g}" for name, norm in top)
