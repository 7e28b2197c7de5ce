"""Attention before the Transformer: functional ops in JAX, and the models built from them.

The ops and `attn.cost`, which counts, come with `import attn`, which loads jax, numpy and jaxtyping
only. Everything else is a subpackage to import by name: `attn.models`, `attn.training`,
`attn.decoding`, `attn.data`.
"""

from attn import cost as cost
from attn.ops.attending import Attention, attend, attend_local
from attn.ops.contexts import context
from attn.ops.multihead import flax_attention_fn
from attn.ops.saturation import (
  SoftmaxGradients,
  effective_support,
  entropy,
  jacobian_norm,
  logit_variance,
  max_weight,
  softmax_gradients,
)
from attn.ops.scores import (
  additive,
  additive_projected,
  concat,
  cosine,
  dot,
  general,
  location,
  project_keys,
  scaled_dot,
)
from attn.ops.weights import length_mask, softmax
from attn.ops.windows import gaussian, predict_position, window_mask

__version__ = "0.1.0"

__all__ = [
  "Attention",
  "SoftmaxGradients",
  "additive",
  "additive_projected",
  "attend",
  "attend_local",
  "concat",
  "context",
  "cosine",
  "dot",
  "effective_support",
  "entropy",
  "flax_attention_fn",
  "gaussian",
  "general",
  "jacobian_norm",
  "length_mask",
  "location",
  "logit_variance",
  "max_weight",
  "predict_position",
  "project_keys",
  "scaled_dot",
  "softmax",
  "softmax_gradients",
  "window_mask",
]
