"""attn as `experiments.decoding_benchmark` times it: `attn.decoding.translation.translate`."""

import dataclasses
import importlib.metadata
from typing import Any

import jax
import numpy as np
from flax import traverse_util

from attn import models
from attn.decoding import translation
from attn.decoding.config import SearchConfig
from attn.models import ModelConfig
from attn.models.functional import Params
from experiments.decoding_benchmark_work import (
  ADDITIVE,
  ADDITIVE_FORWARD,
  Cell,
  Searches,
  Tokens,
  Weights,
  Widths,
  limit,
  load,
)
from experiments.training_benchmark_attn import configured as trained
from experiments.training_benchmark_attn import matmul, products
from experiments.training_benchmark_work import ADDITIVE_FED, GENERAL_FED, Sizes

_NO_END = 1_000_000  # fewest symbols of a hypothesis: its limit ends it
_LARGER = 16.0  # than fresh ones, words and output layer: a best symbol then leads in all systems


def configured(model: str, widths: Widths) -> ModelConfig:
  """The member of the family that computes what the other systems do.

  As in training, but for two: a decoder that starts from zero has no layer whose input differs from
  JoeyNMT's, and OpenNMT-py takes no tanh after an additive score.
  """
  sizes = Sizes(**dataclasses.asdict(widths))
  if model == ADDITIVE:
    return dataclasses.replace(trained(ADDITIVE_FED, sizes), initial_state="zero")
  forward = trained(GENERAL_FED, sizes)
  if model == ADDITIVE_FORWARD:
    return dataclasses.replace(forward, score="additive", readout="linear")
  return forward


def drawn(model: str, widths: Widths, seed: int) -> Weights:
  """Weights for all systems of a match, in the order of attn's symbols.

  What JoeyNMT lacks, the output layer's bias, is zero as in all of attn's fresh parameters.
  """
  params = models.init(configured(model, widths), jax.random.key(seed))
  flat = traverse_util.flatten_dict(params, sep="/")
  words = {"source", "target", "decoder/w_o"}
  return {
    name: (_LARGER if name in words else 1.0) * np.asarray(leaf) for name, leaf in flat.items()
  }


class Attn(Searches):
  """Searches with one model."""

  def __init__(self, model: str, widths: Widths, path: str, edges: tuple[int, ...]) -> None:
    """Reads the weights.

    Args:
      model: of MODELS.
      widths: of the model.
      path: of the weights.
      edges: lengths that sources are padded to.
    """
    self._config, self._edges = configured(model, widths), edges
    self._params: Params = jax.device_put(traverse_util.unflatten_dict(load(path), sep="/"))
    self._symbols = widths.vocabulary
    self._seconds = 0.0
    jax.monitoring.register_event_duration_secs_listener(self._timed)

  def search(self, sources: Tokens, cell: Cell, spare: int = 0) -> Tokens:
    """Batches are of neighbours in length, whatever the order of the sources."""
    found = translation.translate(
      self._config,
      self._params,
      sources,
      self._search(cell, spare),
      symbols=self._symbols,
      edges=self._edges,
      batch_size=cell.batch,
    )
    return [one.tokens for one in found]

  def _search(self, cell: Cell, spare: int = 0) -> SearchConfig:
    """Every hypothesis has its sentence's limit; length penalties are the same in all systems."""
    return SearchConfig(
      beam=cell.beam,
      normalisation="gnmt",
      minimum_length=_NO_END,
      ratio=1.0,
      extra=limit(0) + spare,
    )

  def facts(self) -> dict[str, Any]:
    """`parameters` and `versions`."""
    return {
      "parameters": models.parameter_count(self._config),
      "versions": {"attn": importlib.metadata.version("attn"), "jax": jax.__version__},
    }

  def compiled(self) -> tuple[int, float]:
    """Programs are counted by their traces; seconds are JAX's own, from tracing to machine code."""
    return translation.search_batch._cache_size(), self._seconds

  def flops(self, sources: Tokens, cell: Cell) -> int:
    """Of one batch, sources of about one length: the products of the program as it was traced."""
    longest = max(map(len, sources)) + 1
    edge = next(edge for edge in self._edges if edge >= longest)
    traced = translation.search_batch.trace(
      (self._config,),
      self._search(cell),
      limit(edge),
      (self._params,),
      np.zeros((cell.batch, edge), np.int32),
      np.zeros(cell.batch, np.int32),
      np.zeros(cell.batch, np.int32),
      self._symbols,
      False,
    )
    made = products(traced.jaxpr.jaxpr, limit(longest))
    return sum(product.flops * times for product, times in made.items())

  def matmul(self, size: int) -> float:
    """GFLOP/s of a square product."""
    return matmul(size)

  def _timed(self, event: str, seconds: float, **_: Any) -> None:
    if event.startswith("/jax/core/compile/"):
      self._seconds += seconds
