"""From texts in memory to padded batches of few shapes, in an order that can be resumed.

A training order is a pure function of (seed, epoch): which pairs share a batch, and in which order
batches come, is planned anew each epoch, and batch `i` of a run can be made without those before
it. So the state of a Grain iterator over batches is one number, and every process of a training
plans the same global batches and takes its own rows of each.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import grain
import numpy as np

from attn.data.catalog import Corpus
from attn.data.errors import DataError
from attn.data.vocabulary import EOS, PAD, Vocabulary

Batch = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class TokenStore:
  """Pairs of id sequences in flat arrays, each sequence ended by EOS.

  Attributes:
    source: the ids of all sources, int32, one after the other.
    source_offsets: where each source begins, int64, and a last one where the last source ends.
    target: the ids of all targets.
    target_offsets: where each target begins and the last one ends.
    source_size: size of the source vocabulary.
    target_size: size of the target vocabulary.
  """

  source: np.ndarray
  source_offsets: np.ndarray
  target: np.ndarray
  target_offsets: np.ndarray
  source_size: int
  target_size: int

  def __post_init__(self) -> None:
    """Raises ValueError where an id is outside its vocabulary or the sides differ in length."""
    if len(self.source_offsets) != len(self.target_offsets):
      counts = len(self.source_offsets) - 1, len(self.target_offsets) - 1
      raise ValueError(f"{counts[0]} sources but {counts[1]} targets")
    _check_ids("source", self.source, self.source_offsets, self.source_size)
    _check_ids("target", self.target, self.target_offsets, self.target_size)
    # Only now: an id too large for int32 would have come round to a wrong one.
    object.__setattr__(self, "source", self.source.astype(np.int32))
    object.__setattr__(self, "target", self.target.astype(np.int32))

  @classmethod
  def encode(
    cls, corpus: Corpus, source_vocabulary: Vocabulary, target_vocabulary: Vocabulary
  ) -> Self:
    """Returns the ids of a corpus; symbols that a vocabulary lacks become UNK."""
    return cls.from_ids(
      map(source_vocabulary.encode, corpus.sources),
      map(target_vocabulary.encode, corpus.targets),
      source_size=len(source_vocabulary),
      target_size=len(target_vocabulary),
    )

  @classmethod
  def from_ids(
    cls,
    sources: Iterable[Sequence[int]],
    targets: Iterable[Sequence[int]],
    *,
    source_size: int,
    target_size: int,
  ) -> Self:
    """Returns a store of id sequences, to which it appends EOS.

    Raises:
      ValueError: an id is outside its vocabulary, or the sides differ in number.
    """
    return cls(*_flatten(sources), *_flatten(targets), source_size, target_size)

  def __len__(self) -> int:
    """The number of pairs."""
    return len(self.source_offsets) - 1

  @property
  def lengths(self) -> np.ndarray:
    """Length of the longer side of each pair, EOS counted."""
    return np.maximum(np.diff(self.source_offsets), np.diff(self.target_offsets))

  def batch(self, index: np.ndarray, edge: int) -> Batch:
    """Returns the pairs numbered `index` as arrays, both sides padded to `edge`.

    Args:
      index: int32 [b], example numbers; -1 makes a row without symbols.
      edge: at least the length of each pair.

    Returns:
      `source` [b, edge], `source_length` [b], `target` [b, edge], `target_length` [b] and `index`,
      all int32. Rows are ids, EOS, PAD; lengths count EOS.
    """
    source, source_length = _pad(self.source, self.source_offsets, index, edge)
    target, target_length = _pad(self.target, self.target_offsets, index, edge)
    return {
      "source": source,
      "source_length": source_length,
      "target": target,
      "target_length": target_length,
      "index": index,
    }


def training_batches(
  store: TokenStore,
  *,
  batch_size: int,
  edges: Sequence[int],
  seed: int,
  shard: int = 0,
  shards: int = 1,
  tokens: int | None = None,
  workers: int = 0,
) -> "TrainingBatches":
  """Returns an endless iterator over batches, each epoch in an order of its own.

  An epoch has every pair that is not longer than the last edge, once, in as few batches as hold
  them: what does not fill a batch of its bucket joins the next wider bucket, so that only one
  batch an epoch is filled up with rows of length 0 (`index` -1).

  `get_state()` is a small dict for JSON, and `set_state()` goes on from it. It numbers global
  batches, so that it is the same in all processes and serves any number of them.

  Args:
    store: the pairs.
    batch_size: rows of a batch, over all processes together.
    edges: ascending lengths to pad to, so that there are at most as many shapes.
    seed: of the order.
    shard: which of `shards` equal slices of each batch's rows to give, counted from 0.
    shards: the number of processes that share each batch.
    tokens: instead of `batch_size` rows, a batch has as many as fit into so many positions a side,
      so that every bucket has its own number of rows, a multiple of `shards`.
    workers: processes of Grain's that make batches ahead; 0 makes them here, when they are asked
      for. Order and state do not depend on it. Grain's workers read flags of its own: a program
      that does not parse flags calls `absl.flags.FLAGS.mark_as_parsed()` first.

  Raises:
    DataError: no pair fits the last edge.
    ValueError: a batch cannot be shared evenly.
  """
  rows = _rows(batch_size, tokens, edges, shards)
  if any(count % shards for count in rows) or not 0 <= shard < shards:
    raise ValueError(f"a batch of {rows[-1]} rows has no shard {shard} of {shards} equal ones")
  epochs = _Epochs(store, rows, tuple(edges), seed)
  return TrainingBatches(_Source(store, epochs, shard, shards), workers)


class TrainingBatches(Iterator[Batch]):
  """An endless iterator whose state is the number of batches given."""

  def __init__(self, source: "_Source", workers: int) -> None:
    """Stands before the first batch."""
    self._source, self._workers = source, workers
    self.set_state({"next_index": 0})

  @property
  def epoch(self) -> int:
    """How many batches an epoch has."""
    return self._source.epoch

  def __next__(self) -> Batch:
    """The next batch."""
    batch: Batch = next(self._batches)
    self._given += 1
    return batch

  def get_state(self) -> dict[str, int]:
    """Returns where it stands."""
    return {"next_index": self._given}

  def set_state(self, state: dict[str, int]) -> None:
    """Goes to where an iterator stood, whatever number of workers or shards that one had."""
    self._given = state["next_index"]
    # Everything is in memory: threads would only fight over the interpreter's lock.
    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    dataset = grain.MapDataset.source(self._source)[self._given :].to_iter_dataset(options)
    if self._workers:
      dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=self._workers))
    self._batches = iter(dataset)


def evaluation_batches(
  store: TokenStore, *, batch_size: int, edges: Sequence[int]
) -> "EvaluationBatches":
  """Returns the batches of one pass in which every pair comes once, however long, short ones first.

  Pairs beyond the last edge are padded to the next power of two. The last batch is filled up with
  rows of length 0 (`index` -1).
  """
  lengths = store.lengths
  widened = list(edges)
  while widened[-1] < lengths.max(initial=0):
    widened.append(1 << widened[-1].bit_length())
  order = np.argsort(lengths, kind="stable")
  return EvaluationBatches(store, _plan(lengths, order, [batch_size] * len(widened), widened))


class EvaluationBatches(Sequence[Batch]):
  """The batches of one pass, each made when it is asked for."""

  def __init__(self, store: TokenStore, plan: "list[_Rows]") -> None:
    """Holds the pairs and which of them each batch has."""
    self._store, self._plan = store, plan

  def __len__(self) -> int:
    """The number of batches."""
    return len(self._plan)

  def __getitem__(self, index: Any) -> Any:
    """The batch at a position, or the batches of a slice."""
    if isinstance(index, slice):
      return EvaluationBatches(self._store, self._plan[index])
    rows = self._plan[index]
    return self._store.batch(rows.index, rows.edge)

  def __iter__(self) -> Iterator[Batch]:
    """All batches in order."""
    return (self._store.batch(rows.index, rows.edge) for rows in self._plan)


def dropped_pairs(store: TokenStore, edges: Sequence[int]) -> int:
  """Returns how many pairs training leaves out because they are longer than the last edge."""
  return int(np.count_nonzero(store.lengths > edges[-1]))


def padding_share(
  store: TokenStore,
  *,
  batch_size: int,
  edges: Sequence[int],
  seed: int,
  tokens: int | None = None,
) -> float:
  """Returns the share of all positions, on both sides, that are padding in the first epoch."""
  plan = _Epochs(store, _rows(batch_size, tokens, edges, 1), tuple(edges), seed).plan(0)
  trained = store.lengths <= edges[-1]
  symbols = sum(
    np.diff(offsets)[trained].sum() for offsets in (store.source_offsets, store.target_offsets)
  )
  return float(1 - symbols / sum(2 * rows.edge * len(rows.index) for rows in plan))


def _rows(batch_size: int, tokens: int | None, edges: Sequence[int], shards: int) -> list[int]:
  """Returns the number of rows of a batch of each bucket."""
  if tokens is None:
    return [batch_size] * len(edges)
  return [max(1, tokens // edge // shards) * shards for edge in edges]


@dataclass(frozen=True)
class _Rows:
  """What a batch is made of: example numbers, int32, and the length to pad to."""

  index: np.ndarray
  edge: int


class _Epochs:
  """The plan of each epoch, from the seed alone."""

  def __init__(self, store: TokenStore, rows: list[int], edges: tuple[int, ...], seed: int) -> None:
    self._lengths, self._seed = store.lengths, seed
    self._rows, self._edges = rows, edges
    self._kept = np.flatnonzero(self._lengths <= edges[-1])
    if not len(self._kept):
      raise DataError(
        f"none of {len(store):,} training pairs is at most {edges[-1]} symbols long, EOS counted:"
        " raise the last of bucket_edges"
      )
    self._last: tuple[int, list[_Rows]] | None = None
    # How many pairs a bucket hands on to the next does not depend on which pairs those are.
    self.batches = len(self.plan(0))

  def plan(self, epoch: int) -> list[_Rows]:
    if self._last is None or self._last[0] != epoch:
      random = np.random.default_rng((self._seed, epoch))
      order = random.permutation(self._kept)
      plan = _plan(self._lengths, order, self._rows, self._edges)
      self._last = epoch, [plan[i] for i in random.permutation(len(plan))]
    return self._last[1]


class _Source:
  """All epochs as one random-access source for Grain, an element of which is a batch."""

  def __init__(self, store: TokenStore, epochs: _Epochs, shard: int, shards: int) -> None:
    self._store, self._epochs, self._shard, self._shards = store, epochs, shard, shards

  @property
  def epoch(self) -> int:
    return self._epochs.batches

  def __len__(self) -> int:
    return sys.maxsize

  def __getitem__(self, number: Any) -> Batch:
    epoch, i = divmod(int(number), self._epochs.batches)
    rows = self._epochs.plan(epoch)[i]
    mine = np.split(rows.index, self._shards)[self._shard]
    return self._store.batch(mine, rows.edge)


def _plan(
  lengths: np.ndarray, order: np.ndarray, rows: Sequence[int], edges: Sequence[int]
) -> list[_Rows]:
  """Cuts examples into batches, each as narrow as its longest member allows."""
  bucket = np.searchsorted(edges, lengths[order])
  plan: list[_Rows] = []
  waiting = order[:0]
  for i, edge in enumerate(edges):
    waiting = np.concatenate([waiting, order[bucket == i]])
    full = len(waiting) // rows[i] * rows[i]
    for index in waiting[:full].reshape(-1, rows[i]):
      plan.append(_Rows(index.astype(np.int32), edge))
    waiting = waiting[full:]
  if len(waiting):
    i = int(np.searchsorted(edges, lengths[waiting].max()))
    index = np.full(rows[i], -1, np.int32)
    index[: len(waiting)] = waiting
    plan.append(_Rows(index, edges[i]))
  return plan


def _flatten(sequences: Iterable[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
  """Returns all ids, each sequence ended by EOS, and the offsets."""
  flat: list[int] = []
  offsets = [0]
  for ids in sequences:
    flat += ids
    flat.append(EOS)
    offsets.append(len(flat))
  return np.array(flat, np.int64), np.array(offsets, np.int64)


def _check_ids(side: str, ids: np.ndarray, offsets: np.ndarray, size: int) -> None:
  wrong = np.flatnonzero((ids < 0) | (ids >= size))
  if len(wrong):
    example = np.searchsorted(offsets, wrong[0], side="right") - 1
    raise ValueError(
      f"{side} id {ids[wrong[0]]} of example {example} is outside the vocabulary of {size}"
    )


def _pad(
  flat: np.ndarray, offsets: np.ndarray, index: np.ndarray, edge: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns int32 [b, edge] and the lengths, int32 [b]."""
  example = np.maximum(index, 0)
  start = offsets[example]
  length = np.where(index < 0, 0, offsets[example + 1] - start)
  column = np.arange(edge)
  inside = column < length[:, None]
  padded = np.full(inside.shape, PAD, np.int32)
  padded[inside] = flat[(start[:, None] + column)[inside]]
  return padded, length.astype(np.int32)
