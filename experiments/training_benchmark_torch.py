"""What both systems on PyTorch share in `experiments.training_benchmark`."""

import os
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from experiments.training_benchmark_work import Updates, best_rate


class TorchUpdates(Updates):
  """Updates of a PyTorch model, which a subclass has as `model`."""

  model: torch.nn.Module

  def __init__(self, seed: int) -> None:
    """Takes as many threads as the process is for."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(seed)

  def facts(self) -> dict[str, Any]:
    """`parameters`, `flops` of an update as PyTorch counts them, and `versions`."""
    with FlopCounterMode(display=False) as counter:
      self.update()
      self.finish()
    return {
      "parameters": sum(p.numel() for p in self.model.parameters()),
      "flops": counter.get_total_flops(),
      "versions": {"torch": str(torch.__version__)},
    }

  def matmul(self, size: int) -> float:
    """GFLOP/s of a square product."""
    return matmul(size)


def matmul(size: int) -> float:
  """GFLOP/s of PyTorch's product of two square matrices."""
  matrix = torch.randn(size, size)
  return best_rate(lambda: matrix @ matrix, size)
