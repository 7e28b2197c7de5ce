"""Decoding with a model of the family: order, batches, padding and what may be emitted."""

import dataclasses
import functools
import itertools

import jax
import numpy as np
import pytest
import scipy.special

from attn import models
from attn.configs import ConfigError
from attn.data.vocabulary import BOS, EOS, PAD, UNK
from attn.decoding import ensembles, forced, sample, translation
from attn.decoding.config import SearchConfig
from attn.models import ModelConfig
from tests import reference_models as reference

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


def decode(given, *, score="additive", beam=4, batch_size=4, edges=(8, 16), n_best=1):
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
    n_best=n_best,
  )


def assert_same(found, expected, atol=1e-5):
  for one, other in zip(found, expected, strict=True):
    assert one.tokens == other.tokens and one.finished == other.finished
    assert one.score == pytest.approx(other.score, abs=atol)
    if other.weights is None:
      assert one.weights is None
    else:
      np.testing.assert_allclose(one.weights, other.weights, atol=atol)
    assert_same(one.others, other.others, atol)


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
  groups = list(translation.groups([5] * 127 + [4001, 70], (8, 16), 128))
  assert [(len(rows), size, tuple(widths)) for rows, size, widths in groups] == [
    (127, 128, (8, 16)),
    (1, 1, (128,)),
    (1, 1, (4096,)),
  ]
  assert list(translation.groups([17] * 200, (8, 16), 128))[0][1] == 64


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
    assert one.positions.tolist() == list(range(len(tokens)))


# The best few.


@pytest.mark.slow
def test_every_hypothesis_has_its_own_score_and_weights_and_the_best_is_the_best_alone():
  given = sources()
  found = decode(given, n_best=3, edges=(32,), batch_size=16)
  for one, alone in zip(found, decode(given, edges=(32,), batch_size=16), strict=True):
    assert_same([one._replace(others=())], [alone])
  pairs = [
    (source, one) for source, best in zip(given, found, strict=True) for one in (best, *best.others)
  ]
  assert len(pairs) == 3 * len(given)
  scored = forced.score(
    CONFIG,
    params("additive"),
    [source for source, _ in pairs],
    [one.tokens for _, one in pairs],
    edges=(64,),
    batch_size=64,
    weights=True,
  )
  for (source, one), other in zip(pairs, scored, strict=True):
    emitted = len(one.tokens) + one.finished
    assert one.weights.shape == (emitted, len(source) + 1) and one.positions is None
    np.testing.assert_allclose(one.weights, other.weights[:emitted], atol=1e-5)
    assert one.score == pytest.approx(other.log_probs[:emitted].mean(), abs=1e-5)
  for best in found:
    scores = [one.score for one in (best, *best.others)]
    assert scores == sorted(scores, reverse=True)
    assert len({tuple(one.tokens) for one in (best, *best.others)}) == 3


# Settings and ensembles, each against the best of all hypotheses by the float64 equations.

ENSEMBLE = (
  CONFIG,
  dataclasses.replace(CONFIG, score="none", target_vocabulary=31, source_eos=False),
  dataclasses.replace(CONFIG, order="luong", score="general", window="local_p", half_width=2),
)
SOURCES = [[5], [9, 16, 4, 4, 7], []]


@functools.cache
def member(at):
  drawn = models.init(ENSEMBLE[at], jax.random.key(at))
  return jax.tree.map(lambda leaf: 4 * leaf, drawn)


def together(members, source, target, average):
  """Log-probabilities of the symbols of a target, and the mean attention along it."""
  runs = [reference.decode(ENSEMBLE[at], member(at), [*source, EOS], target, BOS) for at in members]
  if average == "logits":
    logits = np.mean([run[0][:, :29] for run in runs], axis=0)
    log_probs = scipy.special.log_softmax(logits, axis=-1)
  else:
    probabilities = [scipy.special.softmax(run[0], axis=-1)[:, :29] for run in runs]
    log_probs = np.log(np.mean(probabilities, axis=0))
  attended = [run[1] for run in runs if run[1] is not None]
  return log_probs[np.arange(len(target)), target], np.mean(attended, axis=0)


def every_hypothesis(members, source, search, symbols, prefix=()):
  """`(score, tokens, finished, weights)` of all that may be found, best first."""
  made = []
  limit = max(search.limit(len(source) + 1), len(prefix) + 1)
  for length in range(limit + 1):
    for tokens in itertools.product(range(3, symbols), repeat=length):
      finished, emitted = length < limit, min(length + 1, limit)
      lacking = (
        tokens[: len(prefix)] != tuple(prefix) or finished and emitted < search.minimum_length
      )
      if lacking or set(tokens[len(prefix) :]) & set(search.forbidden):
        continue
      log_probs, weights = together(members, source, [*tokens, EOS][:emitted], search.ensemble)
      power = (5 + emitted) / 6 if search.normalisation == "gnmt" else emitted
      score = log_probs.sum() / power**search.alpha
      if search.coverage:
        score += search.coverage * np.log(np.minimum(weights.sum(0), 1.0)).sum()
      made.append((score, list(tokens), finished, weights))
  return sorted(made, key=lambda one: -one[0])


@pytest.mark.parametrize(
  ("members", "settings", "prefixes"),
  [
    ((0,), {"normalisation": "gnmt", "alpha": 0.7, "coverage": 0.3}, None),
    ((0, 2), {"minimum_length": 3}, [[4], [6, UNK, 5, 4, 4], []]),
    pytest.param((0, 1, 2), {"ensemble": "logits", "coverage": 0.2}, None, marks=pytest.mark.slow),
  ],
)
def test_the_search_finds_the_best_of_all_hypotheses(members, settings, prefixes):
  search = SearchConfig(beam=90, ratio=0.0, extra=4, forbidden=(UNK, 5), **settings)
  found = translation.translate(
    tuple(ENSEMBLE[at] for at in members),
    tuple(member(at) for at in members),
    SOURCES,
    search,
    symbols=7,
    edges=(8,),
    batch_size=4,
    weights=True,
    n_best=7,
    prefixes=prefixes,
  )
  for row, (source, best) in enumerate(zip(SOURCES, found, strict=True)):
    expected = every_hypothesis(members, source, search, 7, prefixes[row] if prefixes else ())
    assert len(best.others) == min(7, len(expected)) - 1
    for one, other in zip((best, *best.others), expected, strict=False):
      assert (one.tokens, one.finished) == other[1:3]
      assert one.score == pytest.approx(other[0], rel=1e-5)
      np.testing.assert_allclose(one.weights, other[3], atol=1e-5)


@pytest.mark.slow
def test_whatever_the_settings_a_source_does_not_depend_on_its_batch():
  rng = np.random.default_rng(5)
  given = [source for source in sources() if len(source) < 9]
  begun = [rng.integers(4, SYMBOLS, len(source) % 3).tolist() for source in given]
  settings = {"normalisation": "gnmt", "coverage": 0.2, "minimum_length": 4, "forbidden": (9,)}
  translate = functools.partial(
    translation.translate,
    ENSEMBLE[2],
    member(2),
    search=SearchConfig(beam=4, ratio=1.0, extra=3, **settings),
    symbols=SYMBOLS,
    weights=True,
  )
  together = translate(given, prefixes=begun, edges=(8, 16), batch_size=4, n_best=3)
  reverse = translate(given[::-1], prefixes=begun[::-1], edges=(16,), batch_size=16, n_best=3)
  assert_same(reverse[::-1], together, atol=1e-4)
  alone = [
    translate([one], prefixes=[start], edges=(16,))[0]
    for one, start in zip(given[:4], begun[:4], strict=True)
  ]
  assert_same(alone, [one._replace(others=()) for one in together[:4]], atol=1e-4)
  for one, start in zip(together, begun, strict=True):
    assert one.tokens[: len(start)] == start and 9 not in one.tokens[len(start) :]
    assert len(one.tokens) + one.finished >= 4


@pytest.mark.slow
def test_positions_are_the_centres_of_the_windows(monkeypatch):
  centres, attend = [], reference.attend

  def recording(config, d, s, source, i):
    hidden = np.tanh(d["predict"]["w_p"] @ s)
    centres.append(len(source.compared) * reference.sigmoid(d["predict"]["v_p"] @ hidden))
    return attend(config, d, s, source, i)

  monkeypatch.setattr(reference, "attend", recording)
  search = SearchConfig(beam=3, ratio=1.0, extra=3)
  found = translation.translate(
    ENSEMBLE[2], member(2), SOURCES, search, symbols=SYMBOLS, edges=(8,), weights=True, n_best=2
  )
  for source, best in zip(SOURCES, found, strict=True):
    for one in (best, *best.others):
      centres.clear()
      labels = one.tokens + [EOS] * one.finished
      _, weights, _ = reference.decode(ENSEMBLE[2], member(2), [*source, EOS], labels, BOS)
      np.testing.assert_allclose(one.positions, centres, atol=1e-4)
      np.testing.assert_allclose(one.weights, weights, atol=1e-5)


def test_what_cannot_be_searched_is_told_before_anything_is():
  plain = SearchConfig(beam=4)
  for search, settings, told in (
    (plain, {"n_best": 5}, "n_best is 5; it must be from 1 to search.beam, which is 4"),
    (plain, {"n_best": 0}, "n_best is 0"),
    (
      SearchConfig(forbidden=(3, 23)),
      {},
      "search.forbidden has 23; there are 23 target ids from 0",
    ),
    (SearchConfig(coverage=0.2), {}, "search.coverage is 0.2; it must be 0 for a model without"),
    (plain, {"prefixes": [[4]]}, "0 sources but 1 prefixes; expected one for each"),
    (plain, {"sources": [[4]], "prefixes": [[4, EOS]]}, "prefix 0 has the reserved id 2"),
    (plain, {"sources": [[4]], "prefixes": [[23]]}, "target id 23 of example 0 is outside"),
  ):
    call = {"sources": [], "symbols": SYMBOLS, "edges": (8,), **settings}
    with pytest.raises(ValueError, match=f"^{told}") as error:
      translation.translate(
        dataclasses.replace(CONFIG, score="none"), params("none"), search=search, **call
      )
    assert isinstance(error.value, ConfigError) == told.startswith(("n_best", "search"))


# Forced scoring.


def test_scores_of_targets_are_those_of_the_equations_in_whatever_batch():
  rng = np.random.default_rng(3)
  given = [(rng.integers(4, 17, s).tolist(), rng.integers(3, 29, t).tolist())
           for s, t in ((3, 5), (0, 2), (7, 0), (11, 4), (2, 13))]  # fmt: skip
  score = functools.partial(forced.score, CONFIG, params("additive"), weights=True)
  found = score(*zip(*given, strict=True), edges=(8, 16), batch_size=2)
  backwards = score(*zip(*given[::-1], strict=True), edges=(16,), batch_size=8)
  for (source, target), one, other in zip(given, found, backwards[::-1], strict=True):
    labels = [*target, EOS]
    logits, weights, _ = reference.decode(CONFIG, params("additive"), [*source, EOS], labels, BOS)
    expected = scipy.special.log_softmax(logits, axis=-1)[np.arange(len(labels)), labels]
    for scored in (one, other):
      np.testing.assert_allclose(scored.log_probs, expected, atol=1e-4)
      assert scored.log_prob == pytest.approx(expected.sum(), abs=1e-4)
      np.testing.assert_allclose(scored.weights, weights, atol=1e-5)


@pytest.mark.parametrize(
  ("members", "average"),
  [
    ((0, 1, 2), "probabilities"),
    pytest.param((0, 1, 2), "logits", marks=pytest.mark.slow),
    pytest.param((2, 0), "logits", marks=pytest.mark.slow),
  ],
)
def test_an_ensemble_scores_targets_as_it_searches(members, average):
  targets = [[6, 4], [], [9, 28, 5]]
  found = forced.score(
    tuple(ENSEMBLE[at] for at in members),
    tuple(member(at) for at in members),
    SOURCES,
    targets,
    edges=(8,),
    batch_size=4,
    weights=True,
    average=average,
  )
  for source, target, one in zip(SOURCES, targets, found, strict=True):
    log_probs, weights = together(members, source, [*target, EOS], average)
    np.testing.assert_allclose(one.log_probs, log_probs, atol=1e-4)
    np.testing.assert_allclose(one.weights, weights, atol=1e-5)


@pytest.mark.slow
def test_samples_of_a_model_are_scored_as_given_targets_are():
  source, lengths = np.array([[5, 7, 9, EOS], [8, EOS, 0, 0]]), np.array([4, 2])

  @jax.jit
  def draw(weights, rngs):
    joint = ensembles.joined((CONFIG,), (weights,), source, lengths)
    room = {"maximum_length": 7, "eos": EOS, "bos": BOS, "pad": PAD}
    return sample(joint.step, joint.state, np.array([7, 5]), rngs, **room)

  found = jax.device_get(draw(params("additive"), jax.random.split(jax.random.key(3), (2, 3))))
  given = [source[row, : lengths[row] - 1].tolist() for row in range(2) for _ in range(3)]
  emitted, flat = found.lengths.reshape(-1), found.tokens.reshape(6, -1)
  finished = found.finished.reshape(-1)
  targets = [row[: n - end].tolist() for row, n, end in zip(flat, emitted, finished, strict=True)]
  assert len({tuple(target) for target in targets}) > 3
  scored = forced.score(CONFIG, params("additive"), given, targets, edges=(8, 16), batch_size=2)
  for one, n, log_prob in zip(scored, emitted, found.log_probs.reshape(-1), strict=True):
    assert one.log_probs[:n].sum() == pytest.approx(log_prob, abs=1e-4)


def test_targets_that_cannot_be_scored_are_told():
  score = functools.partial(forced.score, CONFIG, params("additive"), edges=(8,))
  assert score([], []) == []
  with pytest.raises(ValueError, match="^1 sources but 2 targets; expected one for each$"):
    score([[4]], [[4], [5]])
  with pytest.raises(ValueError, match="^target id 29 of example 0 is outside"):
    score([[4]], [[29]])
  with pytest.raises(ValueError, match="^target id 29 of example 0 is outside"):  # of one of them
    forced.score(ENSEMBLE[:2], (member(0), member(1)), [[4]], [[29]], edges=(8,))
