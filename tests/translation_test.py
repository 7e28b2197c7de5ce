"""Decoding with a model of the family: order, batches, padding and what may be emitted."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from attn import models
from attn.data.vocabulary import EOS
from attn.decoding import translation
from attn.decoding.config import SearchConfig
from attn.models import ModelConfig

CONFIG = ModelConfig(
  source_vocabulary=17,
  target_vocabulary=29,
  embedding=5,
  units=7,
  alignment=3,
  maxout=2,
  biases=True,
  initialisation="glorot",
)
SYMBOLS = 23  # Ids from here on stand for nothing.
LENGTHS = (1, 3, 7, 0, 13, 5, 30, 2, 6, 4, 8)


@functools.cache
def params(score):
  drawn = models.init(dataclasses.replace(CONFIG, score=score), jax.random.key(5))
  # An untrained model's best token barely leads; larger weights make the lead clear.
  return jax.tree.map(lambda leaf: 4 * leaf, drawn)


def sources():
  rng = np.random.default_rng(0)
  return [rng.integers(4, 17, n).tolist() for n in LENGTHS]


def decode(given, *, score="additive", beam=4, batch_size=4, edges=(8, 16)):
  search = SearchConfig(beam=beam, alpha=1.0, ratio=1.0, extra=3)
  config = dataclasses.replace(CONFIG, score=score)
  return translation.translate(
    config,
    params(score),
    given,
    search,
    symbols=SYMBOLS,
    edges=edges,
    batch_size=batch_size,
    weights=True,
  )


def assert_same(found, expected):
  for one, other in zip(found, expected, strict=True):
    assert one.tokens == other.tokens and one.finished == other.finished
    assert one.score == pytest.approx(other.score, abs=1e-5)
    if other.weights is None:
      assert one.weights is None
    else:
      np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)


@pytest.mark.parametrize("score", ["additive", pytest.param("none", marks=pytest.mark.slow)])
@pytest.mark.parametrize(  # DEC-02: 37 is more than there are tokens.
  "beam", [pytest.param(1, marks=pytest.mark.slow), 4, pytest.param(37, marks=pytest.mark.slow)]
)
def test_a_source_is_decoded_alike_alone_in_any_batch_order_and_padding(score, beam):
  given = sources()
  together = decode(given, score=score, beam=beam)
  reverse = decode(given[::-1], score=score, beam=beam, batch_size=16, edges=(32,))
  assert_same(reverse[::-1], together)
  alone = [decode([one], score=score, beam=beam, edges=(32,))[0] for one in given[:4]]
  assert_same(alone, together[:4])


def test_outputs_keep_their_limit_their_shapes_and_the_symbols_that_exist():
  for source, one in zip(sources(), decode(sources()), strict=True):
    emitted = len(one.tokens) + one.finished
    assert emitted <= len(source) + 1 + 3
    assert all(4 <= token < SYMBOLS for token in one.tokens) and EOS not in one.tokens
    assert one.weights.shape == (emitted, len(source) + 1)
    np.testing.assert_allclose(one.weights.sum(-1), 1.0, atol=1e-5)
    assert one.finished or emitted == len(source) + 4


@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_row_t_of_the_weights_predicted_token_t(beam):
  """DMP-02: EOS has a row and a column, BOS has none."""
  found = decode(sources(), beam=beam)
  ids, targets = np.zeros((2, len(LENGTHS), 37), np.int32)
  for row, (source, one) in enumerate(zip(sources(), found, strict=True)):
    ids[row, : len(source) + 1] = [*source, EOS]
    targets[row, : len(one.tokens) + 1] = [*one.tokens, EOS]
  model = models.bind(CONFIG, params("additive"))
  forced = jax.jit(model.teacher_forced)(ids, np.array(LENGTHS) + 1, targets).weights
  for row, (length, one) in enumerate(zip(LENGTHS, found, strict=True)):
    emitted = len(one.tokens) + one.finished
    np.testing.assert_allclose(one.weights, forced[row, :emitted, : length + 1], atol=1e-5)


def test_decoding_drops_nothing():
  """ATT-09: dropout is for training."""
  config = dataclasses.replace(CONFIG, dropout=0.5)
  search = SearchConfig(beam=4, ratio=1.0, extra=3)
  call = {"search": search, "symbols": SYMBOLS, "edges": (8, 32), "weights": True}
  plain, dropped, again = (
    translation.translate(one, params("additive"), sources(), **call)
    for one in (CONFIG, config, config)
  )
  assert_same(dropped, plain)
  assert_same(again, plain)


def test_no_sources_give_no_translations_and_progress_counts_to_the_end():
  assert decode([]) == []
  counts = []
  search = SearchConfig(beam=1, ratio=1.0, extra=3)
  translation.translate(
    CONFIG, params("additive"), sources(), search, symbols=SYMBOLS, edges=(32,), batch_size=4,
    done=counts.append,
  )  # fmt: skip
  assert counts == sorted(counts) and counts[-1] == len(LENGTHS)


def test_an_id_outside_the_vocabulary_is_refused_by_name():
  with pytest.raises(ValueError, match="source id 17 of example 1 is outside the vocabulary of 17"):
    decode([[4], [5, 17]])


@pytest.mark.slow
def test_few_programs_for_a_file_of_mixed_lengths():
  rng = np.random.default_rng(1)
  given = [rng.integers(4, 17, n).tolist() for n in rng.integers(0, 40, 200)]
  search = SearchConfig(beam=3, ratio=1.0, extra=2)
  traced = translation.search_batch._cache_size()
  translation.translate(
    CONFIG, params("additive"), given, search, symbols=SYMBOLS, edges=(8, 16), batch_size=32
  )
  assert translation.search_batch._cache_size() - traced <= 4  # edges 8, 16, 32, 64


def test_a_long_line_is_decoded_with_few_others():
  """DAT-03: it must not pad every other line to its length."""
  groups = list(translation._groups([5] * 127 + [4001, 70], (8, 16), 128))
  assert [(len(rows), size, tuple(widths)) for rows, size, widths in groups] == [
    (127, 128, (8, 16)),
    (1, 1, (128,)),
    (1, 1, (4096,)),
  ]
  assert list(translation._groups([17] * 200, (8, 16), 128))[0][1] == 64


@pytest.mark.slow
def test_a_beam_gathers_every_kind_of_state():
  """Two LSTM layers, a fed vector and the time of a window: the score is that of the tokens."""
  config = dataclasses.replace(
    CONFIG,
    encoder="forward",
    cell="lstm",
    layers=2,
    order="luong",
    initial_state="all_layers",
    reverse_source=True,
    score="general",
    window="local_m",
    half_width=1,
    input_feeding="readout",
  )
  weights = jax.tree.map(lambda leaf: 3 * leaf, models.init(config, jax.random.key(5)))
  search = SearchConfig(beam=4, alpha=1.0, ratio=1.0, extra=3)
  given = sources()[:3]
  found = translation.translate(
    config, weights, given, search, symbols=SYMBOLS, edges=(8,), batch_size=4, weights=True
  )
  labels = [one.tokens + [EOS] * one.finished for one in found]
  source, target = np.zeros((3, 8), np.int32), np.zeros((3, 11), np.int32)
  for row, (ids, tokens) in enumerate(zip(given, labels, strict=True)):
    source[row, : len(ids) + 1], target[row, : len(tokens)] = [*ids, EOS], tokens
  lengths = np.array([len(ids) + 1 for ids in given], np.int32)

  @jax.jit
  def forced():
    made = models.bind(config, weights).teacher_forced(source, lengths, target)
    return jax.nn.log_softmax(made.logits), made.weights

  log_probs, forced_weights = forced()
  for row, (one, tokens) in enumerate(zip(found, labels, strict=True)):
    steps = np.arange(len(tokens))
    score = np.asarray(log_probs)[row, steps, tokens].mean()
    assert one.score == pytest.approx(float(score), abs=1e-5)
    expected = forced_weights[row, : len(tokens), : lengths[row]]
    np.testing.assert_allclose(one.weights, expected, atol=1e-5)
