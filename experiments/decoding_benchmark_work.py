"""What `experiments.decoding_benchmark` gives every system to do: models, weights, batches, counts.

Loaded in every process that is timed, also in environments without jax: numpy alone comes with it.
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.benchmark_workers import peak_bytes

ADDITIVE = "additive"  # reads both ways, as RNNsearch does
ADDITIVE_FORWARD = "additive_forward"
GENERAL_FORWARD = "general_forward"
MODELS = (ADDITIVE, ADDITIVE_FORWARD, GENERAL_FORWARD)

Tokens = list[list[int]]
Weights = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Widths:
  """Sizes of a model.

  Attributes:
    vocabulary: symbols of each side, the reserved ones counted.
    embedding: width m of the word embeddings.
    units: width n of each direction of the encoder, of the decoder, alignment and readout.
  """

  vocabulary: int = 8000
  embedding: int = 256
  units: int = 256


class Cell(NamedTuple):
  """How sentences are searched.

  Attributes:
    batch: most sentences searched together.
    beam: hypotheses of each.
    own: every system makes batches as by default: of the file as it comes, or attn of neighbours in
      length. Else the file is sorted by length for all, and the batches are the same.
  """

  batch: int
  beam: int
  own: bool = False

  @property
  def words(self) -> str:
    """The cell in words."""
    return f"{'own batches of' if self.own else 'batch'} {self.batch}, beam {self.beam}"


class Turn(NamedTuple):
  """What one turn came to.

  Attributes:
    seconds: of wall time.
    cpu: seconds that the process computed.
    symbols: emitted in the best hypotheses.
  """

  seconds: float
  cpu: float
  symbols: int


def limit(length: Any) -> Any:
  """The symbols that a source of `length` symbols, its EOS counted, is translated to."""
  return length + 1


def encoder_macs(model: str, widths: Widths) -> int:
  """Multiply-adds of reading one source symbol, keys included: products with matrices only."""
  _, m, n = dataclasses.astuple(widths)
  directions = 2 if model == ADDITIVE else 1
  return directions * 3 * n * (m + n) + directions * n * n


def step_macs(model: str, widths: Widths, source: int) -> int:
  """Multiply-adds of one symbol of one hypothesis of a source of so many symbols.

  Keys are multiplied by their matrix once a sentence; who does it at every step does more.
  """
  v, m, n = dataclasses.astuple(widths)
  width = (2 if model == ADDITIVE else 1) * n  # of an annotation
  query = 0 if model == GENERAL_FORWARD else n * n
  return 3 * n * (m + 2 * n) + query + source * (n + width) + n * (n + width) + n * v


def flops(model: str, widths: Widths, sources: Sequence[int], beam: int) -> int:
  """Of searching sources of so many symbols, EOS counted: two a multiply-add, no padding."""
  read = encoder_macs(model, widths)
  return 2 * sum(s * read + limit(s) * beam * step_macs(model, widths, s) for s in sources)


class Searches:
  """Base of what searches in a process: counts and times."""

  def search(self, sources: Tokens, cell: Cell, spare: int = 0) -> Tokens:
    """Translates sources, without EOS, in batches of `cell.batch`; returns them in their order.

    Every hypothesis has the `limit` of its source and so many symbols to spare. A peer's last one
    is the EOS that it needs to end it.
    """
    raise NotImplementedError

  def facts(self) -> dict[str, Any]:
    """`parameters` and `versions`."""
    raise NotImplementedError

  def compiled(self) -> tuple[int, float]:
    """How many programs have been compiled so far, and the seconds that it took."""
    return 0, 0.0

  def prepare(self, sources: Tokens, cell: Cell) -> dict[str, Any]:
    """Searches once, so that nothing is left to compile or to allocate.

    Returns:
      `programs` that were compiled and `compile_seconds`.
    """
    programs, seconds = self.compiled()
    self.search(sources, cell)
    after = self.compiled()
    return {"programs": after[0] - programs, "compile_seconds": after[1] - seconds}

  def run(self, sources: Tokens, cell: Cell) -> Turn:
    """Searches once more, against the clock."""
    start, cpu = time.perf_counter(), time.process_time()
    found = self.search(sources, cell)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    return Turn(wall, cpu, sum(map(len, found)))

  def peak(self) -> int:
    """Most bytes that the process has held so far, its libraries included."""
    return peak_bytes()


def load(path: str) -> Weights:
  """Reads the weights that all systems of a match have, by attn's names."""
  with np.load(path) as file:
    return dict(file)


def own_order(vocabulary: int, *reserved: int) -> np.ndarray:
  """attn's id of each of a system's: its own PAD, BOS, EOS and UNK, attn's first four."""
  order = np.arange(vocabulary)
  order[list(reserved)] = np.arange(len(reserved))
  return order


def gates(weights: np.ndarray) -> np.ndarray:
  """Rows of a GRU in PyTorch's order: attn has update, reset, candidate, it has reset first."""
  update, reset, candidate = np.split(weights, 3)
  return np.concatenate([reset, update, candidate])


def cell_biases(bias: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """PyTorch's two biases of a GRU: that of the inputs, and that of the state's products."""
  zeros = np.zeros_like(inside)
  return gates(bias), np.concatenate([zeros, zeros, inside])
