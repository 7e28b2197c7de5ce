"""The output layer and its loss as one function, which never holds the logits of a batch.

With a large vocabulary they are the largest arrays of a training step: they, their softmax and its
gradient are each written and read whole.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from attn.data.vocabulary import EOS

# Logits at a time. Measured with V = 8000, from 131 to 524 rows: the more, the faster.
_AT_ONCE = 2**22


def summed_output_loss(
  narrowed: Float[Array, "r o"],
  matrix: Float[Array, "v o"],
  bias: Float[Array, " v"],
  labels: Int[Array, " r"],
  counted: Float[Array, " r"],
  smoothing: float,
) -> Float[Array, ""]:
  """sum_r counted_r * loss_r, loss_r that of `attn.training.objective.token_losses` at W_o t + b.

  A loss is the log of the logits' summed exponentials, less the mean of the logits under the
  label's smoothed distribution. The mean needs a row of W_o for each label, not the logits.

  Args:
    narrowed: what W_o multiplies.
    matrix: W_o.
    bias: b.
    labels: the right symbols.
    counted: the weight of each row: 1 for a real symbol, 0 for padding.
    smoothing: share of the label's probability spread over all symbols but PAD and BOS.
  """
  rows, offset = matrix[labels], bias[labels]
  if smoothing:
    rows = (1 - smoothing) * rows + smoothing * matrix[EOS:].mean(0)
    offset = (1 - smoothing) * offset + smoothing * bias[EOS:].mean()
  means = jnp.vecdot(narrowed, rows, preferred_element_type=_wide(narrowed)) + offset
  return _summed_logsumexp(narrowed, matrix, bias, counted) - jnp.vdot(counted, means)


def _wide(x: Array) -> jnp.dtype:
  """The type that sums over a vocabulary, or over rows, are of."""
  return jnp.promote_types(x.dtype, jnp.float32)


@jax.custom_vjp
def _summed_logsumexp(narrowed: Array, matrix: Array, bias: Array, counted: Array) -> Array:
  """sum_r counted_r log sum_v exp(W_o t + b)_v.

  The gradient is formed in the forward pass, while a part of the exponentials is there, so there
  is no forward mode, and no gradient to `counted`.
  """
  return _with_gradient(narrowed, matrix, bias, counted)[0]


def _with_gradient(
  narrowed: Array, matrix: Array, bias: Array, counted: Array
) -> tuple[Array, tuple[Array, Array, Array]]:
  rows, symbols, wide = narrowed.shape[0], matrix.shape[0], _wide(narrowed)
  parts = -(-rows * symbols // _AT_ONCE)
  size = -(-rows // parts)
  across = matrix.T  # laid out so once: XLA:CPU multiplies by it faster than by its transpose

  def part(
    sums: tuple[Array, Array, Array], x: tuple[Array, Array]
  ) -> tuple[tuple[Array, Array, Array], Array]:
    total, d_across, d_bias = sums
    narrowed, counted = x
    logits = jnp.matmul(narrowed, across, preferred_element_type=wide) + bias
    top = logits.max(-1, keepdims=True)
    powers = jnp.exp(logits - top)
    norm = powers.sum(-1)
    total += counted @ (top[:, 0] + jnp.log(norm))
    # The softmax is powers / norm: rows are divided where they are short, outside the products.
    share = (counted / norm)[:, None]
    powers = powers.astype(narrowed.dtype)
    scaled = (share * narrowed).astype(narrowed.dtype)
    sums = total, d_across + scaled.T @ powers, d_bias + share[:, 0] @ powers
    return sums, (share * (powers @ matrix)).astype(narrowed.dtype)

  # Rows added to fill the last part are not counted.
  fill = parts * size - rows
  narrowed_parts = jnp.pad(narrowed, ((0, fill), (0, 0))).reshape(parts, size, -1)
  counted_parts = jnp.pad(counted, (0, fill)).reshape(parts, size)
  start = jnp.zeros((), wide), jnp.zeros_like(across), jnp.zeros(symbols, wide)
  (total, d_across, d_bias), d_narrowed = jax.lax.scan(part, start, (narrowed_parts, counted_parts))
  d_narrowed = d_narrowed.reshape(-1, narrowed.shape[1])[:rows]
  return total, (d_narrowed, d_across.T, d_bias.astype(bias.dtype))


def _pull(gradients: tuple[Array, Array, Array], cotangent: Array) -> tuple[Array | None, ...]:
  return (*((cotangent * g).astype(g.dtype) for g in gradients), None)


_summed_logsumexp.defvjp(_with_gradient, _pull)
