"""Decoding token sequences with a model of the family: batches in, hypotheses out."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from attn.data import pipeline
from attn.data.vocabulary import BOS, EOS, PAD, UNK
from attn.decoding.beam import beam_search
from attn.decoding.config import SearchConfig
from attn.decoding.hypotheses import Hypotheses
from attn.models import ModelConfig, State, bind
from attn.models.functional import Params


class Translation(NamedTuple):
  """The best hypothesis of one source.

  Attributes:
    tokens: target ids, without EOS.
    score: what it was ranked by.
    finished: False when it was cut at its length limit.
    weights: attention `[t, s]`, one row a token and one for EOS if finished, one column a source
      symbol and one for EOS; None unless asked for, and for a model without attention.
  """

  tokens: list[int]
  score: float
  finished: bool
  weights: np.ndarray | None


@functools.partial(jax.jit, static_argnames=("config", "search", "maximum_length", "weights"))
def search_batch(
  config: ModelConfig,
  search: SearchConfig,
  maximum_length: int,
  params: Params,
  source: Int[Array, "b s"],
  length: Int[Array, " b"],
  limits: Int[Array, " b"],
  symbols: Int[Array, ""],
  weights: bool,
) -> Hypotheses:
  """Encodes padded sources and searches; one compiled program a shape.

  All hypotheses of a sentence read one copy of its annotations and projected keys. Ids from
  `symbols` on stand for nothing and are never emitted.
  """
  model = bind(config, params)
  memory = model.encode(source, length).for_hypotheses()

  ids = jnp.arange(config.target_vocabulary)
  # None of the others is ever a label, but a model that has learned little may emit it.
  possible = ((ids == EOS) | (ids > UNK)) & (ids < symbols)

  def step(state: State, tokens: Array) -> tuple[Array, State, Array | None]:
    log_probs, made = model.step(memory, state, tokens)
    return jnp.where(possible, log_probs, -jnp.inf), made.state, made.weights if weights else None

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
  symbols: int,
  edges: Sequence[int],
  batch_size: int = 128,
  weights: bool = False,
  done: Callable[[int], None] = lambda count: None,
) -> list[Translation]:
  """Decodes sources of any length, in their order, whatever batches they fall into.

  A few sources make a batch of their own size, rounded up to a power of two, and longer ones than
  the last edge are padded to the next power of two: few programs are compiled.

  Args:
    config: the model, vocabulary sizes filled in.
    params: its parameters.
    sources: ids of each source, without EOS; may be empty.
    search: how to search.
    symbols: size of the target vocabulary, which the model's may exceed.
    edges: ascending lengths that sources are padded to, EOS counted.
    batch_size: most sources decoded together.
    weights: whether to return attention, whose history costs the search beam x target x source
      numbers a sentence.
    done: called with the number of sources finished, after each batch.
  """
  results: dict[int, Translation] = {}
  for rows, size, widths in _groups([len(ids) + 1 for ids in sources], edges, batch_size):
    store = pipeline.TokenStore.from_ids(
      [sources[row] for row in rows],
      [()] * len(rows),
      source_size=params["source"].shape[0],
      target_size=symbols,
    )
    for batch in pipeline.evaluation_batches(store, batch_size=size, edges=widths):
      lengths = batch["source_length"].tolist()
      best = jax.device_get(
        search_batch(
          config,
          search,
          search.limit(batch["source"].shape[1]),
          params,
          batch["source"],
          batch["source_length"],
          np.array([search.limit(n) if n else 0 for n in lengths], np.int32),
          symbols,
          weights,
        )
      )
      for at, index in enumerate(batch["index"].tolist()):
        if index >= 0:
          results[rows[index]] = _first(best, at, lengths[at])
      done(len(results))
  return [results[row] for row in range(len(sources))]


def _groups(
  lengths: Sequence[int], edges: Sequence[int], batch_size: int
) -> Iterator[tuple[list[int], int, Sequence[int]]]:
  """Rows to decode together, most of them in a batch, and the lengths they are padded to.

  One long line must not pad a whole batch: beyond the last edge a batch has fewer rows, so that
  rows times length do not grow, until a row is alone.
  """
  groups: dict[int, list[int]] = {}
  for row, length in enumerate(lengths):
    width = edges[-1] if length <= edges[-1] else _power(length)
    groups.setdefault(width, []).append(row)
  for width, rows in sorted(groups.items()):
    room = max(1, batch_size * edges[-1] // width)
    yield rows, min(room, _power(len(rows))), edges if width == edges[-1] else (width,)


def _power(n: int) -> int:
  """The least power of two that is at least n."""
  return 1 << (n - 1).bit_length()


def _first(found: Hypotheses, row: int, source_length: int) -> Translation:
  """The best hypothesis of one row, cut to its real size."""
  length, finished = int(found.lengths[row, 0]), bool(found.finished[row, 0])
  weights = None
  if found.weights is not None:
    weights = np.asarray(found.weights)[row, 0, :length, :source_length]
  tokens = found.tokens[row, 0, : length - finished].tolist()
  return Translation(tokens, float(found.scores[row, 0]), finished, weights)
