"""What `experiments.training_benchmark` gives every system to do: models, sizes, batches, counts.

Loaded in every process that is timed, also in environments without jax: numpy alone comes with it.
"""

import dataclasses
import pathlib
import time
from typing import Any, NamedTuple

import numpy as np

from experiments.benchmark_workers import peak_bytes

ATTN, JOEYNMT, OPENNMT = "attn", "JoeyNMT", "OpenNMT-py"
ADDITIVE_FED = "additive_fed"  # with input feeding
GENERAL_FED = "general_fed"
GENERAL = "general"
MODELS = (ADDITIVE_FED, GENERAL_FED, GENERAL)
PARTS = ("encoder", "decoder", "output", "optimizer")  # of an update, in order
PRODUCTS = "products"  # of matrices, in all parts
RESERVED = 4  # ids below are PAD, BOS, EOS and UNK, in an order that is each system's own
LEARNING_RATE, CLIP_NORM = 1e-3, 1.0
_HELD = 8  # batches that fixed ones take turns of


@dataclasses.dataclass(frozen=True)
class Sizes:
  """Sizes of one model and its batches.

  Attributes:
    batch: sentences.
    source: symbols of every source, EOS counted; real batches are as long as their sentences.
    target: symbols of every target, EOS counted.
    vocabulary: symbols of each side, the four reserved ones counted.
    embedding: width m.
    units: width n of each direction of the encoder, of the decoder, alignment and readout.
  """

  batch: int = 64
  source: int = 30
  target: int = 30
  vocabulary: int = 8000
  embedding: int = 256
  units: int = 256


def macs(model: str, sizes: Sizes) -> dict[str, int]:
  """Multiply-adds of one forward pass by part, counted from the sizes; products with matrices only.

  The same for both systems of a comparison: where `general` multiplies keys by its matrix in one
  and queries in the other, sources are taken to be as long as targets.
  """
  b, s, t, v, m, n = dataclasses.astuple(sizes)
  directions = 2 if model == ADDITIVE_FED else 1
  width = directions * n  # of an annotation
  fed = 0 if model == GENERAL else n
  scoring = n * width * s  # keys, or queries, times a matrix
  if model == ADDITIVE_FED:
    scoring += n * n * t
  return {
    "encoder": b * s * directions * 3 * n * (m + n),
    "initial state": b * n * width if model == ADDITIVE_FED else 0,
    "decoder": b * t * 3 * n * (m + fed + n),
    "attention": b * (scoring + t * s * (n + width)),
    "readout": b * t * n * (n + width),
    "output": b * t * n * v,
  }


def flops(model: str, sizes: Sizes) -> int:
  """Of one update: two a multiply-add, and each product has two more in the backward pass."""
  return 6 * sum(macs(model, sizes).values())


class Batches:
  """Batches of random symbols, as long as the sizes say: the same numbers in every process."""

  def __init__(self, sizes: Sizes, seed: int) -> None:
    """Draws a few batches, which then take turns."""
    draw = np.random.default_rng(seed)
    self._held = [
      tuple(
        draw.integers(RESERVED, sizes.vocabulary, (sizes.batch, length - 1), dtype=np.int32)
        for length in (sizes.source, sizes.target)
      )
      for _ in range(_HELD)
    ]
    self._given = 0

  def __next__(self) -> tuple[np.ndarray, np.ndarray]:
    """Sources `[b, s - 1]` and targets `[b, t - 1]`, to which a system adds its EOS."""
    self._given += 1
    return self._held[self._given % _HELD]

  def __iter__(self) -> "Batches":
    """Itself; it has no end."""
    return self


class Told(NamedTuple):
  """One line of pieces a sentence, and a file of each side's symbols: what JoeyNMT reads.

  Attributes:
    folder: where the files lie.
    source: ending of the source's files.
    target: ending of the target's.
  """

  folder: str
  source: str = "source"
  target: str = "target"

  def text(self) -> pathlib.Path:
    """Of the training text, without its ending."""
    return pathlib.Path(self.folder) / "train"

  def vocabulary(self, side: str) -> pathlib.Path:
    """Of a side's symbols, a line each, the reserved ones left out."""
    return pathlib.Path(self.folder) / f"vocabulary.{side}"


class Updates:
  """Base of what trains in a process: counts and times updates."""

  def update(self) -> tuple[int, int]:
    """Makes one update; returns the batch's real target symbols, EOS counted, and positions."""
    raise NotImplementedError

  def finish(self) -> float:
    """Waits for what is still at work; returns the last loss a target symbol, in nats."""
    raise NotImplementedError

  def warm(self) -> None:
    """Makes the updates after which nothing is left to compile or to allocate."""
    self.update()
    self.finish()

  def facts(self) -> dict[str, Any]:
    """`parameters`, `flops` of an update as the system's own program counts them, `versions`."""
    raise NotImplementedError

  def prepare(self) -> dict[str, Any]:
    """Warms up; returns the facts and `compile_seconds`, by which the first time took longer."""
    seconds = []
    for _ in range(2):
      start = time.perf_counter()
      self.warm()
      seconds.append(time.perf_counter() - start)
    return {"compile_seconds": max(seconds[0] - seconds[1], 0.0), **self.facts()}

  def run(self, count: int) -> dict[str, Any]:
    """Makes so many updates.

    Returns:
      Wall `seconds` and the process' own, `cpu`; real target `symbols` and target `positions`,
      padding counted; the last `loss`.
    """
    start, cpu_start = time.perf_counter(), time.process_time()
    counts = [self.update() for _ in range(count)]
    loss = self.finish()
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    symbols, positions = map(sum, zip(*counts, strict=True))
    return {
      "seconds": wall, "cpu": cpu, "symbols": symbols, "positions": positions, "loss": loss,
    }  # fmt: skip

  def peak(self) -> int:
    """Most bytes that the process has held so far, its libraries included."""
    return peak_bytes()


def best_rate(call: Any, size: int, calls: int = 5) -> float:
  """GFLOP/s of a product of two square matrices, the best of a few calls."""
  call()
  best = float("inf")
  for _ in range(calls):
    start = time.perf_counter()
    call()
    best = min(best, time.perf_counter() - start)
  return 2 * size**3 / best / 1e9
