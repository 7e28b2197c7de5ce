"""The scores of this package inside Flax's multi-head modules."""

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Real

from attn.ops.attending import attend
from attn.ops.lifting import mask_array
from attn.ops.scores import scaled_dot
from attn.ops.scoring import Score, check_score


def flax_attention_fn(*, score: Score = scaled_dot) -> Callable[..., jax.Array]:
  """An `attention_fn=` for the multi-head attention modules of Flax that scores with `score`.

  It serves `flax.nnx.MultiHeadAttention` and `flax.linen.MultiHeadDotProductAttention`, and with
  `attn.scaled_dot` equals their own, but for queries that may attend to nothing: those get zeros,
  not the mean of all values. All heads share the parameters that are bound to `score`. Dropout of
  weights and sowing them are not done, and refused; so are modules with `decode=True`, which make
  float32 masks of their own, and `num_kv_heads` other than 1 or the heads of the query.

  Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.2, with any score for its Eq. 1.

  Args:
    score: as for `attn.attend`; its queries and keys have the width of one head.

  Returns:
    A function of query [..., t, h, k], key [..., s, h, k] and value [..., s, h, v] that returns
    contexts [..., t, h, v]. By keyword it takes what the modules pass: `mask`, boolean and
    [..., h or 1, t, s]; `dtype` to compute in; `precision` of the products; `is_causal`, to see no
    source position after the query's own; `deterministic`, `dropout_rate`, `dropout_rng` and
    `broadcast_dropout`, as long as nothing is dropped; `module`, which has to be None. The
    function raises as `attn.attend` does, TypeError for a mask that is not boolean (Flax's makers
    of masks take `dtype=bool`), and ValueError for dropout that is on, and for a module to sow in.

  Raises:
    TypeError: `score` is no function.
    ValueError: `score` is `attn.location`, unwrapped.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> attention_fn = attn.flax_attention_fn(score=attn.cosine)
    >>> heads = jnp.ones((2, 3, 4, 5))
    >>> print(attention_fn(heads, heads, heads, is_causal=True).shape)
    (2, 3, 4, 5)

    In Flax: `nnx.MultiHeadAttention(4, 20, attention_fn=attention_fn, decode=False, rngs=rngs)`.
  """
  check_score("flax_attention_fn", score)

  def attention_fn(
    query: Real[Array, "... t h k"],
    key: Real[Array, "... s h k"],
    value: Real[Array, "... s h v"],
    *,
    mask: Bool[Array, "... h t s"] | None = None,
    dropout_rng: PRNGKeyArray | None = None,
    dropout_rate: float = 0.0,
    broadcast_dropout: bool = True,
    deterministic: bool = False,
    dtype: Any = None,
    precision: Any = None,
    module: Any = None,
    is_causal: bool = False,
  ) -> Float[Array, "... t h v"]:
    del dropout_rng, broadcast_dropout  # They say how to drop, and nothing is dropped.
    if dropout_rate and not deterministic:
      raise ValueError(
        f"flax_attention_fn: dropout_rate is {dropout_rate}, and dropout of attention weights is "
        "not done; set dropout_rate=0 or deterministic=True"
      )
    if module is not None:
      raise ValueError("flax_attention_fn: sowing weights is not done; set sow_weights=False")
    mask = mask_array("flax_attention_fn", mask)
    arrays = [jnp.asarray(array, dtype) for array in (query, key, value)]
    query, key, value = (jnp.swapaxes(array, -2, -3) for array in arrays)
    t, s = query.shape[-2], key.shape[-2]
    if is_causal:
      causal = jnp.arange(s) <= jnp.arange(t)[:, None]
      mask = causal if mask is None else jnp.logical_and(mask, causal)
    if mask is not None:
      # With all its axes, so that none of the source alone is read into it.
      mask = jnp.reshape(mask, (1,) * (query.ndim - mask.ndim) + mask.shape)
    # By name, as one precision for both operands: a pair of them is an error.
    name = precision.name.lower() if isinstance(precision, jax.lax.Precision) else precision
    # None leaves the precision that is set around the call.
    with contextlib.nullcontext() if name is None else jax.default_matmul_precision(name):
      context = attend(query, key, value, mask, score=score, return_weights=False).context
    return jnp.swapaxes(context, -2, -3)

  return attention_fn
