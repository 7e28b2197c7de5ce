"""Attention before the Transformer: functional ops in JAX, and the models built from them.

The ops and `attn.cost`, which counts, come with `import attn`. They load jax, numpy and jaxtyping
only, when the first op is asked for. Everything else is a subpackage to import by name:
`attn.models`, `attn.training`, `attn.decoding`, `attn.data`, `attn.evaluation`.
"""

import importlib
import typing

from attn import cost as cost

if typing.TYPE_CHECKING:
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


_MODULES = ("attending", "contexts", "multihead", "saturation", "scores", "weights", "windows")


def __getattr__(name: str) -> typing.Any:
  """Loads the ops and jax when the first is asked for; counting and scores of text need neither."""
  if name not in __all__:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  for module in _MODULES:
    ops = vars(importlib.import_module(f"attn.ops.{module}"))
    globals().update({public: ops[public] for public in __all__ if public in ops})
  return globals()[name]


def __dir__() -> list[str]:
  """All that is public, loaded or not."""
  return sorted({*globals(), *__all__})
