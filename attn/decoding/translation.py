"""Decoding token sequences with a model of the family: batches in, hypotheses out."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from attn.data.vocabulary import BOS, EOS, PAD
from attn.decoding.beam import beam_search
from attn.decoding.config import SearchConfig
from attn.decoding.hypotheses import Hypotheses
from attn.models import ModelConfig, bind
from attn.models.functional import Params


class Translation(NamedTuple):
  """The best hypothesis of one source.

  Attributes:
    tokens: target ids, without EOS.
    score: what it was ranked by.
    finished: False when it was cut at its length limit.
    weights: attention `[t, s]`, one row a token and one for EOS if finished, one column a source
      symbol and one for EOS; None for a model without attention.
  """

  tokens: list[int]
  score: float
  finished: bool
  weights: np.ndarray | None


@functools.partial(jax.jit, static_argnames=("config", "search", "maximum_length"))
def search_batch(
  config: ModelConfig,
  search: SearchConfig,
  maximum_length: int,
  params: Params,
  source: Int[Array, "b s"],
  length: Int[Array, " b"],
  limits: Int[Array, " b"],
) -> Hypotheses:
  """Encodes padded sources and searches; one compiled program a shape.

  All hypotheses of a sentence read one copy of its annotations and projected keys.
  """
  model = bind(config, params)
  memory = model.encode(source, length).for_hypotheses()

  def step(state, tokens):
    log_probs, made = model.step(memory, state, tokens)
    # Neither is ever a label; a small untrained model would emit them all the same.
    log_probs = log_probs.at[..., jnp.array([PAD, BOS])].set(-jnp.inf)
    return log_probs, made.state, made.weights

  return beam_search(
    step,
    model.start(memory),
    limits,
    beam=search.beam,
    maximum_length=maximum_length,
    alpha=search.alpha,
    bos=BOS,
    eos=EOS,
    pad=PAD,
  )


def translate(
  config: ModelConfig,
  params: Params,
  sources: Sequence[Sequence[int]],
  search: SearchConfig,
  *,
  batch_size: int = 128,
  done: Callable[[int], None] = lambda count: None,
) -> list[Translation]:
  """Decodes sources of any length, in their order, whatever batches they fall into.

  Lengths and batch sizes are rounded up to powers of two, so few programs are compiled.

  Args:
    config: the model, vocabulary sizes filled in.
    params: its parameters.
    sources: ids of each source, without EOS; may be empty.
    search: how to search.
    batch_size: most sources decoded together.
    done: called with the number of sources finished, after each batch.
  """
  results: list[Translation | None] = [None] * len(sources)
  finished = 0
  for rows, size, edge in _batches([len(s) + 1 for s in sources], batch_size):
    ids = np.full((size, edge), PAD, np.int32)
    lengths = np.zeros(size, np.int32)
    for at, row in enumerate(rows):
      lengths[at] = len(sources[row]) + 1
      ids[at, : lengths[at]] = [*sources[row], EOS]
    limits = np.array([search.limit(n) if n else 0 for n in lengths.tolist()], np.int32)
    best = jax.device_get(
      search_batch(config, search, search.limit(edge), params, ids, lengths, limits)
    )
    for at, row in enumerate(rows):
      results[row] = _first(best, at, int(lengths[at]))
    finished += len(rows)
    done(finished)
  return results


def _first(found: Hypotheses, row: int, source_length: int) -> Translation:
  """The best hypothesis of one row, cut to its real size."""
  length, finished = int(found.lengths[row, 0]), bool(found.finished[row, 0])
  weights = None if found.weights is None else found.weights[row, 0, :length, :source_length]
  tokens = found.tokens[row, 0, : length - finished].tolist()
  return Translation(tokens, float(found.scores[row, 0]), finished, weights)


def _batches(lengths: Sequence[int], batch_size: int) -> Iterator[tuple[list[int], int, int]]:
  """Rows that share a padded length, with the padded numbers of rows and positions."""
  buckets: dict[int, list[int]] = {}
  for row, length in enumerate(lengths):
    buckets.setdefault(max(8, _power(length)), []).append(row)
  for edge, rows in sorted(buckets.items()):
    for start in range(0, len(rows), batch_size):
      taken = rows[start : start + batch_size]
      yield taken, min(batch_size, _power(len(taken))), edge


def _power(n: int) -> int:
  """The least power of two that is at least n."""
  return 1 << (n - 1).bit_length()
