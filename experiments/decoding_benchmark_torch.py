"""What both systems on PyTorch share in `experiments.decoding_benchmark`."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from experiments.decoding_benchmark_work import Cell, Searches, Tokens, cell_biases, gates, limit
from experiments.training_benchmark_torch import matmul

CERTAIN = 1e9  # the logit of a symbol that nothing else comes near


class TorchSearches(Searches):
  """Searches with a PyTorch model, which a subclass has as `model`."""

  model: torch.nn.Module

  def __init__(self) -> None:
    """Takes as many threads as the process is for."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    self.spare = 0

  def ends(self, lengths: torch.Tensor, made: int) -> torch.Tensor:
    """Which hypotheses end with the symbol that follows `made`; of sources so long, EOS counted."""
    return limit(lengths) + self.spare <= made + 1

  def facts(self) -> dict[str, Any]:
    """`parameters` and `versions`."""
    return {
      "parameters": sum(p.numel() for p in self.model.parameters()),
      "versions": {"torch": str(torch.__version__)},
    }

  def flops(self, sources: Tokens, cell: Cell) -> int:
    """Of searching these sources, as PyTorch counts them: products of matrices only."""
    with FlopCounterMode(display=False) as counter:
      self.search(sources, cell)
    return counter.get_total_flops()

  def matmul(self, size: int) -> float:
    """GFLOP/s of a square product."""
    return matmul(size)

  def put(self, weights: Mapping[str, np.ndarray]) -> None:
    """Sets every parameter of the model, by its own names.

    Raises:
      ValueError: one is missing, or none of the model's.
    """
    missing, unknown = self.model.load_state_dict(
      {name: torch.from_numpy(np.ascontiguousarray(one)) for name, one in weights.items()},
      strict=False,
    )
    if missing or unknown:
      raise ValueError(f"missing {missing}, unknown {unknown}")
    self.model.eval()


def batches(
  sources: Tokens, size: int, *, pad: int, end: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
  """Padded sources `[b, s]` in the order given, and their lengths `[b]`, EOS counted."""
  for at in range(0, len(sources), size):
    rows = [torch.tensor([*ids, end]) for ids in sources[at : at + size]]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)
    yield padded, torch.tensor([len(row) for row in rows])


def gru(prefix: str, weights: Mapping[str, np.ndarray], own: str) -> dict[str, np.ndarray]:
  """attn's unit as PyTorch has it, `own` its parameters' name with `{}` for their kind."""
  inputs = weights[f"{prefix}/w"]
  if f"{prefix}/w_f" in weights:
    inputs = np.hstack([inputs, weights[f"{prefix}/w_f"]])
  outer, inner = cell_biases(weights[f"{prefix}/b"], weights[f"{prefix}/b_u"])
  return {
    own.format("weight_ih"): gates(inputs),
    own.format("weight_hh"): gates(weights[f"{prefix}/u"]),
    own.format("bias_ih"): outer,
    own.format("bias_hh"): inner,
  }
