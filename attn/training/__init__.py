"""Training: objective, optimizers, one loop, checkpoints, metrics."""

from attn.training.config import ObjectiveConfig, OptimizerConfig, TrainConfig
from attn.training.errors import TrainingError
from attn.training.loop import train
from attn.training.scoring import evaluate
from attn.training.workdir import Trained, load

__all__ = [
  "ObjectiveConfig",
  "OptimizerConfig",
  "TrainConfig",
  "Trained",
  "TrainingError",
  "evaluate",
  "load",
  "train",
]
