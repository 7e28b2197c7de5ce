"""The model family against float64 loops, and what its parts may and may not see."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn import models
from attn.data.vocabulary import BOS
from attn.models import ModelConfig, cells
from tests import reference_models as reference

BASE = ModelConfig(
  source_vocabulary=17,
  target_vocabulary=19,
  embedding=5,
  units=7,
  alignment=11,
  maxout=3,
  biases=True,
  initialisation="glorot",
)
MEMBERS = {
  "rnnsearch": BASE,
  "rnnsearch_forward": dataclasses.replace(BASE, encoder="forward"),
  "rnnencdec": dataclasses.replace(BASE, score="none", encoder="forward"),
  "rnnencdec_bidirectional": dataclasses.replace(BASE, score="none"),
  "rnnsearch_no_biases": dataclasses.replace(BASE, biases=False),
}
LENGTHS = (13, 1, 4)  # Padded to 13.
TARGETS = (6, 2, 1)


@functools.cache
def random_params(config):
  """Parameters of ordinary size everywhere, biases and v_a included."""
  params = models.init(config, jax.random.key(0))
  leaves, tree = jax.tree.flatten(params)
  rngs = jax.random.split(jax.random.key(1), len(leaves))
  drawn = [0.5 * jax.random.normal(r, x.shape) for r, x in zip(rngs, leaves, strict=True)]
  return jax.tree.unflatten(tree, drawn)


def batch(config, lengths=LENGTHS, targets=TARGETS, seed=0, width=None, fill=0):
  rng = np.random.default_rng(seed)
  source = np.full((len(lengths), width or max(lengths)), fill, np.int32)
  target = np.zeros((len(lengths), max(targets)), np.int32)
  for row, (s, t) in enumerate(zip(lengths, targets, strict=True)):
    source[row, :s] = rng.integers(4, config.source_vocabulary, s)
    target[row, :t] = rng.integers(4, config.target_vocabulary, t)
  return source, np.array(lengths, np.int32), target


@functools.partial(jax.jit, static_argnames="config")
def forced(config, params, source, lengths, target):
  return models.bind(config, params).teacher_forced(source, lengths, target)


@functools.partial(jax.jit, static_argnames="config")
def encoded(config, params, source, lengths):
  return models.bind(config, params).encode(source, lengths)


@pytest.mark.parametrize("name", MEMBERS)
def test_teacher_forcing_equals_the_loop_from_the_equations(name):
  config = MEMBERS[name]
  params = random_params(config)
  source, lengths, target = batch(config)
  got = forced(config, params, source, lengths, target)
  for row, (s, t) in enumerate(zip(LENGTHS, TARGETS, strict=True)):
    logits, weights, contexts = reference.decode(
      params, source[row, :s].tolist(), target[row, :t].tolist(), BOS
    )
    np.testing.assert_allclose(got.logits[row, :t], logits, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(got.contexts[row, :t], contexts, rtol=2e-5, atol=2e-5)
    if weights is None:
      assert got.weights is None
    else:
      np.testing.assert_allclose(got.weights[row, :t, :s], weights, rtol=2e-5, atol=2e-6)
      assert (np.asarray(got.weights)[row, :, s:] == 0).all()


@pytest.mark.parametrize("name", ["rnnsearch", "rnnencdec"])
def test_encoder_equals_the_loop_and_is_zero_at_padding(name):
  config = MEMBERS[name]
  params = random_params(config)
  source, lengths, _ = batch(config)
  memory = encoded(config, params, source, lengths)
  for row, length in enumerate(LENGTHS):
    annotations, initial, summary = reference.encode(params, source[row, :length].tolist())
    np.testing.assert_allclose(memory.annotations[row, :length], annotations, atol=1e-5)
    np.testing.assert_allclose(memory.initial[row], initial, atol=1e-5)
    np.testing.assert_allclose(memory.summary[row], summary, atol=1e-5)
    assert (np.asarray(memory.annotations)[row, length:] == 0).all()


@pytest.fixture
def known_encoder(monkeypatch):
  """An encoder with a linear stand-in for the cell: h' = h / 2 + x, from 0."""
  config = dataclasses.replace(BASE, embedding=1, units=1)
  encoder = models.bind(config, random_params(config)).encoder
  monkeypatch.setattr(cells, "gru", lambda inputs, state, u_gates, u: 0.5 * state + inputs[..., :1])
  for recurrence in (encoder.forward, encoder.backward):
    recurrence.w[...], recurrence.b[...] = jnp.ones((3, 1)), jnp.zeros(3)
  return encoder


@pytest.mark.parametrize("width, fill", [(2, 0.0), (5, 99.0), (5, 1e3), (11, 99.0)])
def test_encoder_of_a_known_recurrence_reads_padding_in_neither_direction(
  known_encoder, width, fill
):
  """RNN-01: the row [1, 2] behind padding."""
  words = jnp.full(width, fill).at[:2].set([1.0, 2.0])
  valid = jnp.arange(width)[:, None] < 2
  annotations, first, summary = known_encoder(words[:, None, None], valid)
  zeros = [0] * (width - 2)
  np.testing.assert_array_equal(annotations[0, :, 0], [1, 2.5, *zeros])
  np.testing.assert_array_equal(annotations[0, :, 1], [2, 2, *zeros])
  assert first[0, 0] == 2.0
  np.testing.assert_array_equal(summary[0], [2.5, 2.0])


def test_a_row_of_length_zero_keeps_the_first_state(known_encoder):
  """RNN-02: not the state of its last step, and nothing flows back into it."""
  words = jnp.array([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]]).T[..., None]
  valid = jnp.array([[False] * 3, [True] * 3]).T
  annotations, first, summary = known_encoder(words, valid)
  np.testing.assert_array_equal(summary, [[0, 0], [4.25, 2.75]])
  np.testing.assert_array_equal(first[:, 0], [0, 2.75])
  assert not annotations[0].any()
  gradient = jax.grad(lambda w: sum(part.sum() for part in known_encoder(w, valid)))(words)
  assert not gradient[:, 0].any() and gradient[:, 1].all()


@pytest.mark.parametrize("name", ["rnnsearch", "rnnencdec"])
def test_an_empty_source_gives_zeros_and_no_gradient(name):
  config = MEMBERS[name]
  params = random_params(config)
  source, _, target = batch(config)
  lengths = np.array([0, 1, 4], np.int32)
  got = forced(config, params, source, lengths, target)
  assert np.isfinite(got.logits).all()
  assert (np.asarray(got.contexts)[0] == 0).all()
  gradient = jax.grad(
    lambda p: forced(config, p, source[:1], lengths[:1], target[:1]).logits.sum()
  )(params)
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
  assert (np.asarray(gradient["source"]) == 0).all()


@settings(max_examples=15, deadline=None)
@given(
  name=st.sampled_from(["rnnsearch", "rnnencdec"]),
  length=st.integers(0, 13),
  fill=st.integers(0, 16),
  seed=st.integers(0, 99),
)
def test_a_row_does_not_depend_on_its_padding_or_its_batch(name, length, fill, seed):
  config = MEMBERS[name]
  params = random_params(config)
  alone = batch(config, (length,), (6,), seed, width=13)
  source, lengths, target = batch(config, (length, 13, 2), (6, 6, 6), seed, fill=fill)
  together = forced(config, params, source, lengths, target)
  single = forced(config, params, *alone)
  np.testing.assert_allclose(together.logits[0], single.logits[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["rnnsearch", "rnnencdec"])
def test_stepping_equals_teacher_forcing_and_a_beam_shares_the_memory(name):
  config = MEMBERS[name]
  params = random_params(config)
  source, lengths, target = batch(config)
  expected = jax.nn.log_softmax(forced(config, params, source, lengths, target).logits)
  model = models.bind(config, params)
  memory = model.encode(source, lengths).for_hypotheses()
  state = jnp.broadcast_to(model.start(memory), (3, 2, config.units))
  previous = jnp.full((3, 2), BOS)
  for t in range(target.shape[1]):
    log_probs, step = model.step(memory, state, previous)
    np.testing.assert_allclose(log_probs[:, 0], expected[:, t], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(log_probs[:, 0], log_probs[:, 1])
    state, previous = step.state, jnp.broadcast_to(target[:, t, None], (3, 2))


def test_in_bahdanaus_order_the_score_does_not_see_the_previous_word():
  """Section 3.1: e_ij comes from s_{i-1}, which y_{i-1} has not entered; state and readout do."""
  model = models.bind(BASE, random_params(BASE))
  source, lengths, _ = batch(BASE)
  memory = model.encode(source, lengths)
  state = model.start(memory)

  def run(embedded):
    step = model.decoder.step(model.decoder, memory, state, model.decoder.word(embedded))
    return step._asdict()

  tainted = run(jnp.full((3, BASE.embedding), jnp.nan))
  assert all(np.isfinite(tainted[k]).all() for k in ("scores", "weights", "context"))
  assert all(np.isnan(tainted[k]).all() for k in ("state", "readout"))


@pytest.mark.parametrize("name", ["rnnsearch", "rnnencdec"])
def test_a_target_word_changes_only_later_predictions(name):
  config = MEMBERS[name]
  params = random_params(config)
  source, lengths, target = batch(config, targets=(6, 6, 6))
  changed = target.copy()
  changed[:, 3] = 4 + (changed[:, 3] - 3) % 15
  before = np.asarray(forced(config, params, source, lengths, target).logits)
  after = np.asarray(forced(config, params, source, lengths, changed).logits)
  np.testing.assert_array_equal(before[:, :4], after[:, :4])
  assert (np.abs(before[:, 4:] - after[:, 4:]).max(-1) > 1e-4).all()


@pytest.mark.parametrize("name", MEMBERS)
def test_the_program_does_not_grow_with_the_length(name):
  """RNN-03: recurrences are scans, so that compiling takes as long at any length."""
  config = MEMBERS[name]
  params = random_params(config)

  def size(length):
    args = batch(config, (length,) * 3, (length,) * 3)
    gradient = jax.grad(lambda p: forced(config, p, *args).logits.sum())
    return jax.jit(gradient).lower(params).as_text().count("\n")

  assert size(257) < 1.1 * size(17)


@pytest.mark.parametrize("name", MEMBERS)
def test_gradients_by_finite_differences(name):
  config = MEMBERS[name]
  source, lengths, target = batch(config)
  with jax.enable_x64(True):
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), random_params(config))

    @jax.jit
    def loss(p):
      logits = models.bind(config, p).teacher_forced(source, lengths, target).logits
      return jnp.sin(logits).sum()

    leaves, tree = jax.tree.flatten(params)
    gradient = jax.tree.leaves(jax.grad(loss)(params))
    rng = np.random.default_rng(0)
    direction = [jnp.asarray(rng.normal(size=x.shape)) for x in leaves]
    for at, (leaf, toward) in enumerate(zip(leaves, direction, strict=True)):
      ends = []
      for e in (1e-6, -1e-6):
        shifted = [*leaves[:at], leaf + e * toward, *leaves[at + 1 :]]
        ends.append(loss(jax.tree.unflatten(tree, shifted)))
      slope = (ends[0] - ends[1]) / 2e-6
      np.testing.assert_allclose((gradient[at] * toward).sum(), slope, rtol=1e-5, atol=1e-7)


def test_dropout_needs_an_rng_keeps_the_mean_and_differs_by_rng():
  config = dataclasses.replace(BASE, dropout=0.5)
  params = random_params(config)
  model = models.bind(config, params)
  args = batch(config)
  plain = np.asarray(forced(config, params, *args).logits)
  np.testing.assert_array_equal(plain, forced(BASE, params, *args).logits)
  one = model.teacher_forced(*args, rng=jax.random.key(0)).logits
  np.testing.assert_array_equal(one, model.teacher_forced(*args, rng=jax.random.key(0)).logits)
  assert np.abs(one - model.teacher_forced(*args, rng=jax.random.key(1)).logits).max() > 1e-3
  # ATT-09: weights are never dropped.
  weights = model.teacher_forced(*args, rng=jax.random.key(0)).weights
  np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-6)
  dropped = model._drop(jnp.ones(100_003), jax.random.key(2), 0)
  assert set(np.unique(dropped)) == {0.0, 2.0}
  np.testing.assert_allclose(dropped.mean(), 1.0, atol=0.02)


def test_the_papers_initialisation():
  config = ModelConfig(
    source_vocabulary=101,
    target_vocabulary=103,
    units=59,
    embedding=61,
    alignment=67,
    maxout=31,
    biases=True,
  )
  params = models.init(config, jax.random.key(0))
  decoder = params["decoder"]
  for block in (decoder["u"], decoder["u_gates"][:59], decoder["u_gates"][59:]):
    np.testing.assert_allclose(block @ block.T, np.eye(59), atol=1e-5)
  assert (np.asarray(decoder["score"]["v_a"]) == 0).all()
  assert (np.asarray(decoder["b"]) == 0).all()
  np.testing.assert_allclose(np.std(decoder["score"]["u_a"]), 0.001, rtol=0.05)
  np.testing.assert_allclose(np.std(decoder["w"]), 0.01, rtol=0.05)
  np.testing.assert_allclose(np.std(params["source"]), 0.01, rtol=0.05)


def test_v_a_of_zero_attends_uniformly_and_only_v_a_moves_first():
  """The consequence of appendix B.1 for the alignment model's first update."""
  config = dataclasses.replace(BASE, initialisation="bahdanau")
  params = models.init(config, jax.random.key(3))
  source, lengths, target = batch(config, (13, 13, 13))
  weights = forced(config, params, source, lengths, target).weights
  np.testing.assert_allclose(weights, 1 / 13, rtol=1e-6)
  score = jax.grad(
    lambda p: jnp.sin(models.bind(config, p).teacher_forced(source, lengths, target).logits).sum()
  )(params)["decoder"]["score"]
  assert (np.asarray(score["w_a"]) == 0).all() and (np.asarray(score["u_a"]) == 0).all()
  assert np.abs(score["v_a"]).max() > 0


@pytest.mark.parametrize(
  "settings_, message",
  [({"units": 0}, "units is 0"), ({"dropout": 1.0}, "dropout is 1.0")],
)
def test_bad_sizes_are_refused(settings_, message):
  with pytest.raises(ValueError, match=message):
    ModelConfig(**settings_)


def test_a_model_without_vocabulary_sizes_is_refused():
  with pytest.raises(ValueError, match="source_vocabulary"):
    models.init(ModelConfig(), jax.random.key(0))
