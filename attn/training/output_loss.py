"""The output layer and its loss as one function, which never holds the logits of a batch.

With a large vocabulary they are the largest arrays of a training step: they, their softmax and its
gradient are each written and read whole.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from attn.data.vocabulary import EOS

# Logits at a time. Measured with V = 8000, from 96 to 480 rows: all the same within the noise.
_AT_ONCE = 2**21


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def summed_output_loss(
  narrowed: Float[Array, "r o"],
  matrix: Float[Array, "v o"],
  bias: Float[Array, " v"],
  labels: Int[Array, " r"],
  counted: Float[Array, " r"],
  smoothing: float,
) -> Float[Array, ""]:
  """sum_r counted_r * loss_r, loss_r that of `attn.training.objective.token_losses` at W_o t + b.

  The gradient is formed in the forward pass, while a part of the logits is there, so there is no
  forward mode, and no gradient to `counted`.

  Args:
    narrowed: what W_o multiplies.
    matrix: W_o.
    bias: b.
    labels: the right symbols.
    counted: the weight of each row: 1 for a real symbol, 0 for padding.
    smoothing: share of the label's probability spread over all symbols but PAD and BOS.
  """
  return _with_gradient(narrowed, matrix, bias, labels, counted, smoothing)[0]


def _with_gradient(
  narrowed: Array, matrix: Array, bias: Array, labels: Array, counted: Array, smoothing: float
) -> tuple[Array, tuple[Array, Array, Array]]:
  rows, symbols = narrowed.shape[0], matrix.shape[0]
  size = min(rows, max(1, _AT_ONCE // symbols))
  spread = jnp.where(jnp.arange(symbols) >= EOS, smoothing / (symbols - EOS), 0.0)

  def part(
    sums: tuple[Array, Array, Array], x: tuple[Array, ...]
  ) -> tuple[tuple[Array, Array, Array], Array]:
    total, d_matrix, d_bias = sums
    narrowed, labels, counted = x
    logits = (narrowed @ matrix.T + bias).astype(jnp.float32)
    share = jax.nn.one_hot(labels, symbols) * (1 - smoothing) + spread
    log_probs = jax.nn.log_softmax(logits)
    d_logits = (counted[:, None] * (jnp.exp(log_probs) - share)).astype(narrowed.dtype)
    total -= jnp.vdot(counted, jnp.vecdot(share, log_probs)).astype(jnp.float32)
    sums = total, d_matrix + d_logits.T @ narrowed, d_bias + d_logits.sum(0)
    return sums, d_logits @ matrix

  # Rows added to fill the last part are not counted.
  fill = -rows % size
  parts = tuple(
    jnp.pad(x, [(0, fill), *[(0, 0)] * (x.ndim - 1)]).reshape(-1, size, *x.shape[1:])
    for x in (narrowed, labels, counted)
  )
  start = jnp.zeros((), jnp.float32), jnp.zeros_like(matrix), jnp.zeros_like(bias)
  (total, d_matrix, d_bias), d_narrowed = jax.lax.scan(part, start, parts)
  return total, (d_narrowed.reshape(-1, narrowed.shape[1])[:rows], d_matrix, d_bias)


def _pull(
  _: float, gradients: tuple[Array, Array, Array], cotangent: Array
) -> tuple[Array | None, ...]:
  return (*((cotangent * g).astype(g.dtype) for g in gradients), None, None)


summed_output_loss.defvjp(_with_gradient, _pull)
