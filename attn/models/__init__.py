"""The model family: one configuration, pure functions of parameters (Flax NNX underneath)."""

from attn.models.config import ModelConfig
from attn.models.family import Forced, Seq2Seq
from attn.models.functional import bind, init, parameter_count
from attn.models.memory import Memory
from attn.models.steps import State, Step

__all__ = [
  "Forced",
  "Memory",
  "ModelConfig",
  "Seq2Seq",
  "State",
  "Step",
  "bind",
  "init",
  "parameter_count",
]
