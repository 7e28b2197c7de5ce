"""Batches: every example once, padded right, few shapes, an order that resumes and shards."""

import itertools
import json

import hypothesis
import jax
import numpy as np
import pytest
from absl import flags
from hypothesis import given
from hypothesis import strategies as st

from attn.configs import ConfigError
from attn.data import pipeline
from attn.data.catalog import Corpus, DataError
from attn.data.config import DataConfig
from attn.data.pipeline import TokenStore
from attn.data.vocabulary import EOS, PAD, UNK, Vocabulary

EDGES = (3, 5, 11, 17)
SOURCE_SIZE, TARGET_SIZE = 13, 19


def _store(pairs):
  sources, targets = zip(*pairs, strict=True) if pairs else ((), ())
  return TokenStore.from_ids(sources, targets, source_size=SOURCE_SIZE, target_size=TARGET_SIZE)


def _random_pairs(count, longest=16, seed=0):
  random = np.random.default_rng(seed)

  def ids(size):
    return random.integers(UNK, size, random.integers(0, longest + 1)).tolist()

  return [(ids(SOURCE_SIZE), ids(TARGET_SIZE)) for _ in range(count)]


def _ids(size):
  return st.lists(st.integers(UNK, size - 1), max_size=40)


PAIRS = st.lists(st.tuples(_ids(SOURCE_SIZE), _ids(TARGET_SIZE)), max_size=30)


def _check(batch, pairs, batch_size):
  """Asserts that a batch says what `pairs` say, and returns the examples in it."""
  width = batch["source"].shape[1]
  shapes = {"source": (batch_size, width), "target": (batch_size, width)}
  for name, array in batch.items():
    assert array.shape == shapes.get(name, (batch_size,))
    assert array.dtype == np.int32
  for row, example in enumerate(batch["index"].tolist()):
    for side, ids in enumerate(([], []) if example < 0 else pairs[example]):
      name = ("source", "target")[side]
      length = 0 if example < 0 else len(ids) + 1
      symbols = [*ids, EOS] if length else []
      assert batch[f"{name}_length"][row] == length
      assert batch[name][row].tolist() == symbols + [PAD] * (width - length)
  return [example for example in batch["index"].tolist() if example >= 0]


def _longest(pairs, examples):
  return max(max(map(len, pairs[example])) + 1 for example in examples)


@given(PAIRS, st.sampled_from([1, 2, 3, 7]))
def test_evaluation_has_every_example_once_whatever_its_length(pairs, batch_size):
  batches = pipeline.evaluation_batches(_store(pairs), batch_size=batch_size, edges=EDGES)
  assert len(batches) == -(-len(pairs) // batch_size)
  seen = []
  for batch in batches:
    examples = _check(batch, pairs, batch_size)
    width = batch["source"].shape[1]
    assert width == min(e for e in (*EDGES, 32, 64) if e >= _longest(pairs, examples))
    seen += examples
  assert sorted(seen) == list(range(len(pairs)))


@given(PAIRS, st.sampled_from([1, 2, 3, 7]), st.integers(0, 5))
def test_an_epoch_has_every_pair_that_fits_once(pairs, batch_size, seed):
  store = _store(pairs)
  fits = [i for i in range(len(pairs)) if _longest(pairs, [i]) <= EDGES[-1]]
  assert pipeline.dropped_pairs(store, EDGES) == len(pairs) - len(fits)
  if not fits:
    with pytest.raises(DataError, match="at most 17 symbols long.*bucket_edges"):
      pipeline.training_batches(store, batch_size=batch_size, edges=EDGES, seed=seed)
    return
  batches = pipeline.training_batches(store, batch_size=batch_size, edges=EDGES, seed=seed)
  per_epoch = -(-len(fits) // batch_size)
  for _ in range(3):
    epoch = list(itertools.islice(batches, per_epoch))
    examples = [_check(batch, pairs, batch_size) for batch in epoch]
    assert sorted(sum(examples, [])) == fits
    assert sum(len(e) < batch_size for e in examples) <= 1
    for batch, members in zip(epoch, examples, strict=True):
      assert batch["source"].shape[1] == min(
        edge for edge in EDGES if edge >= _longest(pairs, members)
      )


def test_labels_end_with_eos_once_in_every_row():
  vocabulary = Vocabulary.build(["a b c"], "symbol")
  corpus = Corpus(("a b", "c"), ("b c", "a"))
  store = TokenStore.encode(corpus, vocabulary, vocabulary)
  (batch,) = pipeline.evaluation_batches(store, batch_size=2, edges=(3,))
  rows = dict(zip(batch["index"].tolist(), batch["target"].tolist(), strict=True))
  assert rows == {0: [5, 6, EOS], 1: [4, EOS, PAD]}
  assert sorted(batch["target_length"].tolist()) == [2, 3]


def test_encoding_makes_unknown_symbols_unk_and_counts_sides_apart():
  source = Vocabulary.build(["ab"], "character")
  target = Vocabulary.build(["X Y Z"], "symbol")
  store = TokenStore.encode(Corpus(("abz", ""), ("Z Q", "X")), source, target)
  assert store.source.tolist() == [4, 5, UNK, EOS, EOS]
  assert store.target.tolist() == [6, UNK, EOS, 4, EOS]
  assert store.lengths.tolist() == [4, 2]
  assert (store.source_size, store.target_size) == (6, 7)
  assert store.source.dtype == store.target.dtype == np.int32


@pytest.mark.parametrize("bad", [-1, SOURCE_SIZE, 2**32 + 4])
def test_a_source_id_outside_the_vocabulary_is_named(bad):
  with pytest.raises(
    ValueError, match=rf"^source id {bad} of example 1 is outside the vocabulary of {SOURCE_SIZE}$"
  ):
    _store([([4, 5], [4]), ([6, bad], [4]), ([bad], [4])])


@pytest.mark.parametrize("bad", [-1, TARGET_SIZE])
def test_a_target_id_outside_the_vocabulary_is_named(bad):
  with pytest.raises(
    ValueError, match=rf"^target id {bad} of example 2 is outside the vocabulary of {TARGET_SIZE}$"
  ):
    _store([([4], [4, 5]), ([], []), ([6], [bad])])


def test_ids_at_both_ends_of_the_vocabulary_are_fine():
  assert len(_store([([0, SOURCE_SIZE - 1], [0, TARGET_SIZE - 1])])) == 1


def test_sides_of_different_number_are_an_error():
  with pytest.raises(ValueError, match="^2 sources but 1 targets$"):
    TokenStore.from_ids([[4], [5]], [[4]], source_size=7, target_size=7)


def test_shapes_are_no_more_than_buckets():
  pairs = _random_pairs(997, longest=59)
  edges = (8, 16, 32, 64)
  compiled = []

  @jax.jit
  def step(source, target):
    compiled.append((source.shape, target.shape))
    return source.sum() + target.sum()

  batches = pipeline.training_batches(_store(pairs), batch_size=7, edges=edges, seed=3)
  for batch in itertools.islice(batches, 200):
    step(batch["source"], batch["target"])
  for batch in pipeline.evaluation_batches(_store(pairs), batch_size=7, edges=edges):
    step(batch["source"], batch["target"])
  assert len({len(s) for s, _ in pairs}) > 40
  assert len(compiled) <= len(edges)


def _same(one, other):
  return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def _batches(count, **changes):
  arguments = {"batch_size": 6, "edges": EDGES, "seed": 5, **changes}
  iterator = pipeline.training_batches(_store(_random_pairs(101)), **arguments)
  return iterator, list(itertools.islice(iterator, count))


def test_the_order_is_a_function_of_the_seed_and_the_epoch():
  per_epoch = 17
  _, one = _batches(2 * per_epoch)
  _, again = _batches(2 * per_epoch)
  _, other = _batches(2 * per_epoch, seed=6)
  assert all(map(_same, one, again))
  orders = [
    [i for batch in part for i in batch["index"].tolist() if i >= 0]
    for part in (one[:per_epoch], one[per_epoch:], other[:per_epoch])
  ]
  assert sorted(orders[0]) == sorted(orders[1]) == sorted(orders[2]) == list(range(101))
  assert orders[0] != orders[1] != orders[2] != orders[0]
  # Not from short to long, which would teach lengths one after the other.
  widths = [batch["source"].shape[1] for batch in one[:per_epoch]]
  assert widths != sorted(widths)


@pytest.mark.parametrize("taken", [0, 1, 7, 16, 17, 18, 40])
def test_training_resumes_with_the_same_batches(taken):
  iterator, _ = _batches(taken)
  state = json.loads(json.dumps(iterator.get_state()))
  assert len(json.dumps(state)) < 100
  fresh, _ = _batches(3)  # as a new process would, though not at the beginning
  fresh.set_state(state)
  _, uninterrupted = _batches(taken + 20)
  assert all(map(_same, itertools.islice(fresh, 20), uninterrupted[taken:]))
  assert fresh.get_state() == _batches(taken + 20)[0].get_state()


@pytest.mark.parametrize("shards", [2, 3, 6])
def test_shards_put_together_are_the_global_batch(shards):
  parts = [_batches(20, shard=shard, shards=shards) for shard in range(shards)]
  whole_iterator, whole = _batches(20)
  for batch, *rows in zip(whole, *(part for _, part in parts), strict=True):
    assert _same(batch, {k: np.concatenate([r[k] for r in rows]) for k in batch})
  assert all(iterator.get_state() == whole_iterator.get_state() for iterator, _ in parts)


@pytest.mark.parametrize(("shard", "shards"), [(0, 4), (2, 2), (-1, 2)])
def test_uneven_or_missing_shards_are_an_error(shard, shards):
  with pytest.raises(ValueError, match=f"6 rows has no shard {shard} of {shards}"):
    _batches(0, shard=shard, shards=shards)


def test_padding_share_is_what_the_first_epoch_has():
  pairs = _random_pairs(101, longest=20)
  store = _store(pairs)
  share = pipeline.padding_share(store, batch_size=6, edges=EDGES, seed=5)
  kept = len(pairs) - pipeline.dropped_pairs(store, EDGES)
  assert 0 < kept < len(pairs)
  batches = pipeline.training_batches(store, batch_size=6, edges=EDGES, seed=5)
  epoch = list(itertools.islice(batches, -(-kept // 6)))
  arrays = [batch[side] for batch in epoch for side in ("source", "target")]
  counted = sum((array == PAD).sum() for array in arrays) / sum(array.size for array in arrays)
  assert share == pytest.approx(counted, abs=1e-12)
  assert share < pipeline.padding_share(store, batch_size=6, edges=EDGES[-1:], seed=5)


@given(PAIRS, st.sampled_from([17, 40, 100]), st.sampled_from([1, 2]), st.integers(0, 5))
def test_batches_of_tokens_have_every_pair_that_fits_once(pairs, tokens, shards, seed):
  store = _store(pairs)
  fits = [i for i in range(len(pairs)) if _longest(pairs, [i]) <= EDGES[-1]]
  hypothesis.assume(fits)
  arguments = {"batch_size": 1, "tokens": tokens, "edges": EDGES, "seed": seed}
  shares = [
    pipeline.training_batches(store, **arguments, shard=shard, shards=shards)
    for shard in range(shards)
  ]
  for epoch in range(3):
    seen, unfilled = [], 0
    while len(seen) < len(fits):
      parts = [next(share) for share in shares]
      batch = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
      rows, width = batch["source"].shape
      # As many rows as fit, in equal shares; at least one a process.
      assert rows == max(1, tokens // width // shards) * shards
      members = _check(batch, pairs, rows)
      unfilled += len(members) < rows
      seen += members
    assert sorted(seen) == fits
    assert unfilled <= 1
    if epoch == 0 and shards == 1:
      share = pipeline.padding_share(store, **arguments)
      assert 0 <= share < 1


def test_padding_share_of_batches_of_tokens():
  store = _store([([4] * 4, [5] * 2), ([4], [5]), ([4] * 10, [5] * 10)])
  # None fills a batch of its bucket (7 rows of 3, 4 of 5): two of them make one of 2 rows of 11,
  # and the third is left for a batch as wide as its own bucket.
  batches = pipeline.training_batches(store, batch_size=1, tokens=22, edges=EDGES, seed=0)
  shapes = sorted(next(batches)["source"].shape for _ in range(2))
  share = pipeline.padding_share(store, batch_size=1, tokens=22, edges=EDGES, seed=0)
  positions = sum(2 * rows * width for rows, width in shapes)
  assert share == pytest.approx(1 - (5 + 3 + 2 + 2 + 11 + 11) / positions, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_worker_processes_give_the_same_batches_and_resume(workers, monkeypatch):
  # As every command does: Grain's workers look at flags of its own.
  monkeypatch.setitem(flags.FLAGS.__dict__, "__flags_parsed", True)
  _, plain = _batches(30)
  iterator, ahead = _batches(11, workers=workers)
  assert all(map(_same, ahead, plain))
  assert iterator.get_state() == _batches(11)[0].get_state()
  # From one number of workers to another, over the end of an epoch.
  here, _ = _batches(0)
  here.set_state(iterator.get_state())
  assert all(map(_same, itertools.islice(here, 19), plain[11:]))
  iterator.set_state({"next_index": 25})
  assert all(map(_same, itertools.islice(iterator, 5), plain[25:]))


def test_evaluation_can_be_indexed_and_cut():
  batches = pipeline.evaluation_batches(_store(_random_pairs(23)), batch_size=5, edges=EDGES)
  assert len(batches[1:3]) == 2
  assert _same(batches[1:3][1], list(batches)[2])
  assert list(pipeline.evaluation_batches(_store([]), batch_size=5, edges=EDGES)) == []


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"limit": 0}, "limit must be at least 1 or none, not 0"),
    ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
    ({"batch_tokens": 35}, "batch_tokens must hold a row of 36, not 35"),
    ({"workers": -1}, "workers must be at least 0"),
    ({"bucket_edges": ()}, "bucket_edges must be ascending"),
    ({"bucket_edges": (8, 8)}, "bucket_edges must be ascending"),
    ({"bucket_edges": (12, 8)}, "bucket_edges must be ascending"),
    ({"bucket_edges": (1, 8)}, "bucket_edges must be ascending lengths from 2 on"),
  ],
)
def test_a_configuration_that_makes_no_batches_is_refused(changes, message):
  with pytest.raises(ConfigError, match=message):
    DataConfig(**changes)
