"""Decoding token sequences with a model of the family: batches in, hypotheses out."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from attn.configs import ConfigError
from attn.data import pipeline
from attn.data.vocabulary import BOS, EOS, PAD
from attn.decoding.beam import beam_search
from attn.decoding.config import SearchConfig
from attn.decoding.constraints import constrained, covering
from attn.decoding.ensembles import joined
from attn.decoding.hypotheses import Hypotheses
from attn.models import ModelConfig
from attn.models.functional import Params

_MOST_WEIGHTS = 2**30  # numbers that a batch may keep of attention: 4 GiB


class Translation(NamedTuple):
  """The best hypothesis of one source, and those after it.

  Attributes:
    tokens: target ids, without EOS.
    score: what it was ranked by.
    finished: False when it was cut at its length limit.
    weights: attention `[t, s]`, one row a token and one for EOS if finished, one column a source
      symbol in the order of the text and one for EOS (zeros where the model does not read it). Of
      several models, the mean. None unless asked for, for a model without attention, and for a
      source so long (thousands of symbols) that its search would keep gigabytes.
    positions: centre of the window of each row `[t]`, source positions from 0; None where there are
      no weights or no windows.
    others: the second best hypothesis and on, as many as were asked for and found.
  """

  tokens: list[int]
  score: float
  finished: bool
  weights: Float[np.ndarray, "t s"] | None
  positions: Float[np.ndarray, " t"] | None = None
  others: tuple["Translation", ...] = ()


@functools.partial(
  jax.jit, static_argnames=("configs", "search", "maximum_length", "weights", "n_best")
)
def search_batch(
  configs: tuple[ModelConfig, ...],
  search: SearchConfig,
  maximum_length: int,
  params: tuple[Params, ...],
  source: Int[Array, "b s"],
  length: Int[Array, " b"],
  limits: Int[Array, " b"],
  symbols: Int[Array, ""],
  weights: bool,
  n_best: int = 1,
  prefix: Int[Array, "b p"] | None = None,
) -> Hypotheses:
  """Encodes padded sources and searches with one or several models; one compiled program a shape.

  Ids from `symbols` on stand for nothing and are never emitted. Weights are those of `Joint`: they
  may have one column more than the source.
  """
  joint = joined(configs, params, source, length, average=search.ensemble)
  step, state = constrained(
    joint.step,
    joint.state,
    source.shape[0],
    possible=possible(search, joint.vocabulary, symbols),
    eos=EOS,
    minimum_length=search.minimum_length,
    prefix=prefix,
  )
  penalty = None
  if search.coverage:
    assert joint.real is not None
    step, state, penalty = covering(step, state, joint.real, beta=search.coverage)

  def kept(state: Any, tokens: Array) -> tuple[Array, Any, Array | None]:
    log_probs, state, seen = step(state, tokens)
    return log_probs, state, seen if weights else None

  return beam_search(
    kept,
    state,
    limits,
    beam=search.beam,
    maximum_length=maximum_length,
    alpha=search.alpha,
    normalisation=search.normalisation,
    penalty=penalty,
    n_best=n_best,
    bos=BOS,
    eos=EOS,
    pad=PAD,
  )


def possible(search: SearchConfig, size: int, symbols: Int[Array, ""]) -> Bool[Array, " V"]:
  """Which ids may be emitted: PAD and BOS are never labels, but a model may rank them first."""
  never = np.isin(np.arange(size), (PAD, BOS, *search.forbidden))
  return (jnp.arange(size) < symbols) & ~never


def translate(
  config: ModelConfig | tuple[ModelConfig, ...],
  params: Params | tuple[Params, ...],
  sources: Sequence[Sequence[int]],
  search: SearchConfig,
  *,
  symbols: int,
  edges: Sequence[int],
  batch_size: int = 128,
  weights: bool = False,
  n_best: int = 1,
  prefixes: Sequence[Sequence[int]] | None = None,
  done: Callable[[int], None] = lambda count: None,
) -> list[Translation]:
  """Decodes sources of any length, in their order, whatever batches they fall into.

  A few sources make a batch of their own size, rounded up to a power of two, and longer ones than
  the last edge are padded to the next power of two: few programs are compiled.

  Args:
    config: the model, vocabulary sizes filled in; of an ensemble, a tuple.
    params: its parameters; of an ensemble, a tuple as long. All have the same vocabularies.
    sources: ids of each source, without EOS; may be empty.
    search: how to search.
    symbols: size of the target vocabulary, which the model's may exceed.
    edges: ascending lengths that sources are padded to, EOS counted.
    batch_size: most sources decoded together.
    weights: whether to return attention, whose history costs the search beam x target x source
      numbers a sentence.
    n_best: how many hypotheses of each source to return, at most `search.beam`.
    prefixes: for each source, ids that its translation begins with; the limit makes room for them.
    done: called with the number of sources finished, after each batch.

  Raises:
    ConfigError: more hypotheses than beams, coverage without attention, or an id that is none.
    ValueError: an id is outside its vocabulary, or a prefix has a reserved one.
  """
  configs = config if isinstance(config, tuple) else (config,)
  members = params if isinstance(params, tuple) else (params,)
  _check(search, symbols, n_best, any(one.score != "none" for one in configs))
  _check_prefixes(prefixes, len(sources))
  results: dict[int, Translation] = {}
  starts = [()] * len(sources) if prefixes is None else prefixes
  lengths = [max(len(ids), len(start)) + 1 for ids, start in zip(sources, starts, strict=True)]
  windows = any(one.window != "global" for one in configs)
  for rows, size, widths in groups(lengths, edges, batch_size):
    store = pipeline.TokenStore.from_ids(
      [sources[row] for row in rows],
      [starts[row] for row in rows],
      source_size=min(one["source"].shape[0] for one in members),
      target_size=symbols,
    )
    for batch in pipeline.evaluation_batches(store, batch_size=size, edges=widths):
      room, limits, prefix = _limits(search, batch, prefixes is not None)
      keep = weights and search.beam * room * batch["source"].size <= _MOST_WEIGHTS
      found = jax.device_get(
        search_batch(
          configs,
          search,
          room,
          members,
          batch["source"],
          batch["source_length"],
          limits,
          symbols,
          keep,
          n_best,
          prefix,
        )
      )
      for at, index in enumerate(batch["index"].tolist()):
        if index >= 0:
          results[rows[index]] = _best(found, at, batch["source_length"][at], windows)
      done(len(results))
  return [results[row] for row in range(len(sources))]


def groups(
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


def _check(search: SearchConfig, symbols: int, n_best: int, attends: bool) -> None:
  if not 1 <= n_best <= search.beam:
    raise ConfigError(
      f"n_best is {n_best}; it must be from 1 to search.beam, which is {search.beam}"
    )
  if search.coverage and not attends:
    raise ConfigError(
      f"search.coverage is {search.coverage}; it must be 0 for a model without attention"
    )
  if max(search.forbidden, default=0) >= symbols:
    raise ConfigError(
      f"search.forbidden has {max(search.forbidden)}; there are {symbols} target ids from 0"
    )


def _check_prefixes(prefixes: Sequence[Sequence[int]] | None, sources: int) -> None:
  if prefixes is None:
    return
  if len(prefixes) != sources:
    raise ValueError(f"{sources} sources but {len(prefixes)} prefixes; expected one for each")
  for row, prefix in enumerate(prefixes):
    if reserved := {PAD, BOS, EOS}.intersection(prefix):
      raise ValueError(f"prefix {row} has the reserved id {min(reserved)}; leave it out")


def _limits(
  search: SearchConfig, batch: pipeline.Batch, begun: bool
) -> tuple[int, Int[np.ndarray, " b"], Int[np.ndarray, "b p"] | None]:
  """Room for tokens, each row's limit, and where targets are begun, their beginnings."""
  room = search.limit(batch["source"].shape[1])
  limits = np.array(
    [search.limit(n) if n else 0 for n in batch["source_length"].tolist()], np.int32
  )
  if not begun:
    return room, limits, None
  start, length = batch["target"], batch["target_length"]  # EOS counted: one token may follow
  inside = np.arange(start.shape[1]) < length[:, None] - 1
  return max(room, start.shape[1]), np.maximum(limits, length), np.where(inside, start, -1)


def _best(found: Hypotheses, row: int, source_length: int, windows: bool) -> Translation:
  """The hypotheses of one row, cut to their real size."""
  cut = functools.partial(_cut, found, row, source_length=source_length, windows=windows)
  others = range(1, int((found.lengths[row] > 0).sum()))
  return cut(0)._replace(others=tuple(map(cut, others)))


def _cut(
  found: Hypotheses, row: int, rank: int, *, source_length: int, windows: bool
) -> Translation:
  length, finished = int(found.lengths[row, rank]), bool(found.finished[row, rank])
  weights = positions = None
  if found.weights is not None:
    whole = np.asarray(found.weights)[row, rank, :length]
    weights = whole[:, :source_length].copy()  # a view would hold the whole batch
    positions = whole[:, -1].copy() if windows else None
  tokens = found.tokens[row, rank, : length - finished].tolist()
  return Translation(tokens, float(found.scores[row, rank]), finished, weights, positions)
