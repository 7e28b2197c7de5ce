"""The model family against float64 loops, and what its parts may and may not see."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from attn import configs, models
from attn.configs import ConfigError
from attn.data.vocabulary import BOS
from attn.models import ModelConfig, cells, recurrence
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
LUONG = dataclasses.replace(
  BASE,
  order="luong",
  encoder="forward",
  readout="tanh",
  cell="lstm",
  layers=2,
  biases=False,
  initial_state="all_layers",
  reverse_source=True,
)


def member(base=BASE, **changes):
  return dataclasses.replace(base, **changes)


MEMBERS = {
  "rnnsearch": BASE,
  "rnnsearch_forward": member(encoder="forward"),
  "rnnencdec": member(score="none", encoder="forward"),
  "rnnencdec_bidirectional": member(score="none"),
  "rnnsearch_no_biases": member(biases=False),
  "appendix": member(order="bahdanau_appendix"),
  "groundhog": member(
    order="groundhog", biases="groundhog", output_width=2, first_word="zeros", context="state"
  ),
  "conditional_gru": member(
    order="conditional_gru",
    cell="gru_cudnn",
    initial_state="mean",
    readout="tanh",
    first_word="zeros",
  ),
  "cosine_split": member(
    score="cosine", memory="split", cell="lstm", layers=2, readout="linear", context="readout"
  ),
  "cho": member(
    score="none", encoder="forward", cell="gru_cho", project_summary=True, output_width=2
  ),
  "sutskever": member(
    LUONG, score="none", context="none", readout="state", peepholes=True, forget_bias=1.0
  ),
  "luong_dot_feed": member(LUONG, score="dot", input_feeding="readout", source_eos=False),
  "luong_general": member(LUONG, score="general", initial_state="last", reverse_source=False),
  "luong_concat": member(LUONG, score="concat", cell="gru", initial_state="zero"),
  "luong_concat_released": member(LUONG, score="concat_released", word_in_readout=True),
  "luong_scaled_split": member(
    order="luong",
    score="scaled_dot",
    memory="split",
    initial_state="last",
    input_feeding="context",
    readout="maxout",
  ),
  "luong_location": member(LUONG, score="location", location_length=5),
  "local_m_additive": member(window="local_m", half_width=2),
  "local_m_location": member(
    LUONG, window="local_m", half_width=2, score="location", location_length=5
  ),
  "local_p_general_feed": member(
    LUONG, window="local_p", half_width=2, score="general", input_feeding="readout"
  ),
  "local_p_dot_released": member(
    LUONG, window="local_p", half_width=3, score="dot", position="released"
  ),
  "local_p_appendix": member(
    order="bahdanau_appendix", window="local_p", half_width=2, renormalise=True
  ),
  "local_p_location": member(
    order="groundhog", window="local_p", half_width=3, score="location", renormalise=True
  ),
}
# Those that differ most run always, the others with the slow tests.
OFTEN = {"rnnsearch", "luong_dot_feed", "local_p_general_feed"}
every_member = pytest.mark.parametrize(
  "name", [pytest.param(n, marks=[] if n in OFTEN else pytest.mark.slow) for n in MEMBERS]
)

# Members that between them have every parameter, for what takes long to compile.
FEW = ("rnnsearch", "groundhog", "conditional_gru", "sutskever", "cho", "local_p_general_feed")
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
def both(config, params, source, lengths, target):
  """What teacher forcing makes of a target, and log-probabilities and weights step by step.

  Two hypotheses a sentence read one memory, as in a beam.
  """
  model = models.bind(config, params)
  memory = model.encode(source, lengths).for_hypotheses()
  rows = len(lengths)
  state = jax.tree.map(
    lambda leaf: jnp.broadcast_to(leaf, (rows, 2, *leaf.shape[2:])), model.start(memory)
  )

  def step(carry, word):
    state, previous = carry
    log_probs, made = model.step(memory, state, previous)
    return (made.state, jnp.broadcast_to(word[:, None], (rows, 2))), (log_probs, made.weights)

  _, stepped = jax.lax.scan(step, (state, jnp.full((rows, 2), BOS)), jnp.transpose(target))
  return model.teacher_forced(source, lengths, target), stepped


@functools.cache
def standard(name):
  """Both of the batch that `batch` makes by itself."""
  config = MEMBERS[name]
  return both(config, random_params(config), *batch(config))


@functools.partial(jax.jit, static_argnames="config")
def encoded(config, params, source, lengths):
  return models.bind(config, params).encode(source, lengths)


@every_member
def test_teacher_forcing_equals_the_loop_from_the_equations(name):
  config = MEMBERS[name]
  source, lengths, target = batch(config)
  got, _ = standard(name)
  for row, (s, t) in enumerate(zip(LENGTHS, TARGETS, strict=True)):
    logits, weights, contexts = reference.decode(
      config, random_params(config), source[row, :s].tolist(), target[row, :t].tolist(), BOS
    )
    np.testing.assert_allclose(got.logits[row, :t], logits, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(got.contexts[row, :t], contexts, rtol=2e-5, atol=2e-5)
    if weights is None:
      assert got.weights is None
    else:
      read = weights.shape[1]  # Fewer by one where EOS is not read.
      np.testing.assert_allclose(got.weights[row, :t, :read], weights, rtol=2e-5, atol=2e-6)
      assert (np.asarray(got.weights)[row, :, read:] == 0).all()


@every_member
def test_stepping_equals_teacher_forcing_and_a_beam_shares_the_memory(name):
  got, (log_probs, weights) = standard(name)
  expected = jnp.swapaxes(jax.nn.log_softmax(got.logits), 0, 1)
  np.testing.assert_allclose(log_probs[:, :, 0], expected, rtol=1e-5, atol=1e-5)
  np.testing.assert_allclose(log_probs[:, :, 0], log_probs[:, :, 1], rtol=1e-5, atol=1e-5)
  if weights is not None:
    expected = jnp.swapaxes(got.weights, 0, 1)
    np.testing.assert_allclose(weights[:, :, 1], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["rnnsearch", "rnnencdec"])
def test_encoder_equals_the_loop_and_is_zero_at_padding(name):
  config = MEMBERS[name]
  params = random_params(config)
  source, lengths, _ = batch(config)
  memory = encoded(config, params, source, lengths)
  for row, length in enumerate(LENGTHS):
    annotations, initial, summary = reference.encode(config, params, source[row, :length].tolist())
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
  for layer in (encoder.forward, encoder.backward):
    layer.w[...], layer.b[...] = jnp.ones((3, 1)), jnp.zeros(3)
  return encoder


@pytest.mark.parametrize("width, fill", [(2, 0.0), (5, 99.0), (5, 1e3), (11, 99.0)])
def test_encoder_of_a_known_recurrence_reads_padding_in_neither_direction(
  known_encoder, width, fill
):
  """RNN-01: the row [1, 2] behind padding."""
  words = jnp.full(width, fill).at[:2].set([1.0, 2.0])
  valid = jnp.arange(width)[:, None] < 2
  encoded = known_encoder(words[:, None, None], valid)
  annotations = encoded.annotations
  zeros = [0] * (width - 2)
  np.testing.assert_array_equal(annotations[0, :, 0], [1, 2.5, *zeros])
  np.testing.assert_array_equal(annotations[0, :, 1], [2, 2, *zeros])
  assert encoded.nearest[0, 0] == 2.0
  np.testing.assert_array_equal(encoded.summary[0], [2.5, 2.0])


def test_a_row_of_length_zero_keeps_the_first_state(known_encoder):
  """RNN-02: not the state of its last step, and nothing flows back into it."""
  words = jnp.array([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]]).T[..., None]
  valid = jnp.array([[False] * 3, [True] * 3]).T
  encoded = known_encoder(words, valid)
  np.testing.assert_array_equal(encoded.summary, [[0, 0], [4.25, 2.75]])
  np.testing.assert_array_equal(encoded.nearest[:, 0], [0, 2.75])
  assert not encoded.annotations[0].any()

  def total(words):
    encoded = known_encoder(words, valid)
    return sum(part.sum() for part in (encoded.annotations, encoded.summary))

  gradient = jax.grad(total)(words)
  assert not gradient[:, 0].any() and gradient[:, 1].all()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_recurrence_keeps_its_first_state_over_padding(monkeypatch, cell, reverse):
  """RNN-02: h' = h / 2 + x from h = 7; rows of length 0 and 3, an LSTM's memory too."""
  config = dataclasses.replace(BASE, units=1, cell=cell)
  layer = recurrence.Recurrence(config, 1, reverse=reverse, rngs=nnx.Rngs(0))

  def half(inputs, state, *_, **__):
    return jax.tree.map(lambda leaf: 0.5 * leaf + inputs[..., :1], state)

  monkeypatch.setattr(cells, cell, half)
  words = jnp.array([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]]).T[..., None]
  valid = jnp.array([[False] * 3, [True] * 3]).T[..., None]
  first = jax.tree.map(lambda leaf: leaf + 7.0, layer.as_state(jnp.zeros((2, 1))))
  outputs, last = layer.unroll(words, first, valid, reverse=reverse)
  end = 3.625 if reverse else 5.125
  for leaf in jax.tree.leaves(last):
    np.testing.assert_array_equal(leaf[:, 0], [7.0, end])
  assert not outputs[:, 0].any() and outputs[0 if reverse else 2, 1, 0] == end


@pytest.mark.parametrize(
  "name", ["rnnsearch", pytest.param("local_p_appendix", marks=pytest.mark.slow)]
)
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
  name=st.sampled_from(["rnnsearch", "rnnencdec", "luong_dot_feed", "local_p_general_feed"]),
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


@functools.cache
def changed(name):
  """Outputs before and after another word at position 3 of every target."""
  config = MEMBERS[name]
  source, lengths, target = batch(config, targets=(6, 6, 6))
  other = target.copy()
  other[:, 3] = 4 + (other[:, 3] - 3) % 15
  params = random_params(config)
  return [both(config, params, source, lengths, words)[0] for words in (target, other)]


@every_member
def test_a_target_word_changes_only_later_predictions(name):
  before, after = (np.asarray(made.logits) for made in changed(name))
  np.testing.assert_array_equal(before[:, :4], after[:, :4])
  assert (np.abs(before[:, 4:] - after[:, 4:]).max(-1) > 1e-5).all()


@pytest.mark.slow
@pytest.mark.parametrize(
  "name, first",
  [
    ("rnnsearch", 5),
    ("appendix", 5),
    ("local_p_appendix", 5),
    ("groundhog", 4),
    ("luong_general", 4),
    ("luong_dot_feed", 4),
    ("conditional_gru", 4),
  ],
)
def test_the_first_weights_that_see_a_word(name, first):
  """In Bahdanau's paper the score at step i has seen y_{i-2}, everywhere else y_{i-1}."""
  before, after = (np.asarray(made.weights)[0] for made in changed(name))  # 13 source words
  np.testing.assert_array_equal(before[:first], after[:first])
  assert (np.abs(before[first:] - after[first:]).max(-1) > 1e-6).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_the_program_does_not_grow_with_the_length(name):
  """RNN-03: recurrences are scans, so that compiling takes as long at any length."""
  config = MEMBERS[name]
  params = random_params(config)

  def size(length):
    args = batch(config, (length,) * 3, (length,) * 3)
    gradient = jax.grad(lambda p: forced(config, p, *args).logits.sum())
    return jax.jit(gradient).lower(params).as_text().count("\n")

  assert size(257) < 1.1 * size(17)


@pytest.mark.parametrize(
  "name", ["rnnsearch", *(pytest.param(name, marks=pytest.mark.slow) for name in FEW[1:])]
)
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
      assert slope != 0.0  # Every parameter is there for something.
      np.testing.assert_allclose((gradient[at] * toward).sum(), slope, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rnnsearch", "luong_dot_feed"])
def test_dropout_needs_an_rng_and_differs_by_rng(name):
  config = dataclasses.replace(MEMBERS[name], dropout=0.5)
  params = random_params(config)
  args = batch(config, lengths=(13, 2, 4))
  plain = np.asarray(forced(config, params, *args).logits)
  np.testing.assert_array_equal(plain, forced(MEMBERS[name], params, *args).logits)

  @jax.jit
  def dropped(rng):
    return models.bind(config, params).teacher_forced(*args, rng=rng)

  one, again, other = (dropped(jax.random.key(seed)) for seed in (0, 0, 1))
  np.testing.assert_array_equal(one.logits, again.logits)
  assert np.abs(one.logits - other.logits).max() > 1e-3
  # ATT-09: weights are never dropped.
  np.testing.assert_allclose(one.weights.sum(-1), 1.0, rtol=1e-5)


def test_dropout_keeps_the_mean_between_layers_too():
  """What an upper layer and a fed vector are multiplied by, a factor a layer, a word and a unit."""
  config = dataclasses.replace(MEMBERS["luong_dot_feed"], dropout=0.5)
  model = models.bind(config, random_params(config))
  kept = model._kept((4001, 3), jax.random.key(0))
  assert [factors.shape for factors in kept] == [(4001, 3, 7), (4001, 3, config.maxout)]
  assert not np.array_equal(kept[0][..., :3], kept[1])
  dropped = model._drop(jnp.ones(100_003), jax.random.key(2), 0)
  assert set(np.unique(dropped)) == {0.0, 2.0}
  np.testing.assert_allclose(dropped.mean(), 1.0, atol=0.02)


def test_positions_that_a_location_score_does_not_know_are_counted_or_refused():
  config = MEMBERS["luong_location"]  # It knows 5.
  params, (source, lengths, _) = random_params(config), batch(config)
  memory = encoded(config, params, source, lengths)
  np.testing.assert_array_equal(memory.overflow, [8, 0, 0])
  np.testing.assert_array_equal(memory.mask.sum(1), [5, 1, 4])
  strict = dataclasses.replace(config, location_overflow="error")
  with pytest.raises(ConfigError, match="padded to 13 positions and model.location_length is 5"):
    encoded(strict, params, source, lengths)


@pytest.mark.parametrize("name, bound", [("sutskever", 0.08), ("luong", 0.1)])
def test_uniform_initialisations(name, bound):
  params = models.init(member(LUONG, initialisation=name, score="concat"), jax.random.key(0))
  values = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])
  np.testing.assert_allclose([values.min(), values.max()], [-bound, bound], rtol=0.02)
  np.testing.assert_allclose(values.std(), bound / np.sqrt(3), rtol=0.06)


@pytest.mark.slow
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


@pytest.mark.slow
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
  "choices, message",
  [
    ({"units": 0}, "units is 0"),
    ({"dropout": 1.0}, "dropout is 1.0"),
    ({"half_width": -1}, "half_width is -1"),
    ({"output_width": 0}, "output_width is 0"),
    ({"forget_bias": 1.0}, "belong to an LSTM"),
    ({"cell": "lstm", "biases": "groundhog"}, "gated units"),
    ({"reverse_source": True}, "reads both ways"),
    ({"initial_state": "all_layers"}, "encoder=forward"),
    ({"encoder": "forward", "units": 7, "memory": "split"}, "7 is odd"),
    ({"project_summary": True}, "fixed vector"),
    ({"score": "none", "window": "local_m"}, "window='local_m' without attention"),
    ({"score": "none", "memory": "split"}, "memory='split' without attention"),
    (
      {"score": "none", "order": "luong", "input_feeding": "readout"},
      "input_feeding='readout' without attention",
    ),
    ({"input_feeding": "readout"}, "belongs to order='luong'"),
    ({"order": "luong", "context": "both"}, "the readout alone"),
    ({"order": "conditional_gru", "cell": "lstm"}, "made of GRUs"),
    ({"order": "conditional_gru", "layers": 2}, "one layer, not 2"),
    ({"order": "conditional_gru", "context": "readout"}, "the second GRU"),
    ({"readout": "state", "context": "both"}, "the state alone"),
    ({"readout": "state", "word_in_readout": True}, "the state alone"),
    ({"context": "none"}, "nothing reads"),
    ({"order": "luong", "readout": "state"}, "nothing reads"),
    ({"score": "dot"}, "1000 units with keys of 2000"),
    ({"window": "local_m", "renormalise": True}, "belong to window='local_p'"),
    ({"position": "released"}, "belong to window='local_p'"),
    ({"location_overflow": "error"}, "belongs to score='location'"),
  ],
)
def test_what_has_no_meaning_is_refused_in_one_line(choices, message):
  with pytest.raises(ConfigError, match=message) as raised:
    ModelConfig(**choices)
  assert "\n" not in str(raised.value)


def test_a_configuration_from_before_the_family_grew_is_rnnsearch():
  old = ("source_vocabulary", "target_vocabulary", "embedding", "units", "alignment", "maxout")
  old += ("encoder", "score", "biases", "initialisation", "dropout")
  saved = {name: configs.to_dict(BASE)[name] for name in old}
  assert configs.from_dict(ModelConfig, saved) == BASE


def test_a_model_without_vocabulary_sizes_is_refused():
  with pytest.raises(ValueError, match="source_vocabulary"):
    models.init(ModelConfig(), jax.random.key(0))
