"""What is minimised: smoothing, divisors, micro-batches, sampling, bfloat16, averages."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn.data.vocabulary import BOS, PAD
from attn.models import ModelConfig, bind
from attn.training import ObjectiveConfig, OptimizerConfig, TrainConfig, objective, state

MODEL = ModelConfig(
  source_vocabulary=17,
  target_vocabulary=19,
  embedding=5,
  units=7,
  alignment=3,
  maxout=2,
  biases=True,
  initialisation="glorot",
)
SGD = OptimizerConfig(name="sgd", learning_rate=1.0, decay="none", clip_norm=None)


def one_batch(rows=6, width=7):
  rng = np.random.default_rng(0)
  lengths = np.array([5, 0, 7, 1, 3, 4], np.int32)[:rows]
  inside = np.arange(width) < lengths[:, None]
  return {
    "source": np.where(inside, rng.integers(4, 17, (rows, width)), PAD).astype(np.int32),
    "source_length": lengths,
    "target": np.where(inside, rng.integers(4, 19, (rows, width)), PAD).astype(np.int32),
    "target_length": lengths,
    "index": np.arange(rows, dtype=np.int32),
  }


def one_update(objective_config=ObjectiveConfig(), optimizer=SGD, model=MODEL, seed=1):  # noqa: B008
  """The gradient of the first update, and what it reports."""
  fresh = state.create(model, optimizer, 10, jax.random.key(0))
  before = jax.device_get(fresh.params)
  after, reported = state.update(
    model, optimizer, 10, fresh, one_batch(), jax.random.key(seed), objective_config
  )
  return jax.tree.map(lambda old, new: old - np.asarray(new), before, after.params), reported


def assert_close(one, other, **tolerance):
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), one, other)


def test_smoothed_losses_are_cross_entropies_with_what_can_be_a_label():
  rng = np.random.default_rng(3)
  logits, target, length = rng.normal(size=(2, 3, 7)), np.array([[5, 2, 0], [3, 4, 6]]), [2, 3]
  log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  expected = np.zeros((2, 3))
  for b in range(2):
    for t in range(length[b]):
      for k in range(7):
        truth = 0.9 * (k == target[b, t]) + 0.1 * (k not in (PAD, BOS)) / 5
        expected[b, t] -= truth * log_p[b, t, k]
  found = objective.token_losses(
    jnp.float32(logits), jnp.array(target), jnp.array(length), smoothing=0.1
  )
  np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.slow
def test_gradients_per_sentence_and_per_batch_are_multiples_and_losses_stay_per_symbol():
  """Sutskever's and Luong's g/128, and GroundHog's sum; a row without symbols is no sentence."""
  (symbol, one), (sentence, two), (batch, three) = (
    one_update(ObjectiveConfig(per=per)) for per in ("symbol", "sentence", "batch")
  )
  assert_close(batch, jax.tree.map(lambda g: 20 * g, symbol), rtol=1e-3, atol=1e-5)
  assert_close(batch, jax.tree.map(lambda g: 5 * g, sentence), rtol=1e-3, atol=1e-5)
  np.testing.assert_allclose([two.loss, three.loss], one.loss, rtol=1e-6)
  np.testing.assert_allclose(three.gradient_norm, 20 * one.gradient_norm, rtol=1e-5)
  np.testing.assert_allclose(one.update_norm, one.gradient_norm, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("per", ["symbol", "sentence"])
def test_micro_batches_give_the_update_of_their_batch(per):
  whole, one = one_update(ObjectiveConfig(per=per))
  parts, other = one_update(ObjectiveConfig(per=per, micro_batches=3))
  assert_close(parts, whole, rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(other.loss, one.loss, rtol=1e-6)
  assert other.symbols == one.symbols == 20


@pytest.mark.slow
def test_bfloat16_trains_float32_parameters_on_nearly_the_same_gradient():
  exact, _ = one_update()
  rough, reported = one_update(ObjectiveConfig(compute="bfloat16"))
  assert reported.loss.dtype == jnp.float32
  flat = lambda tree: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])  # noqa: E731
  error = np.linalg.norm(flat(rough) - flat(exact)) / np.linalg.norm(flat(exact))
  assert 1e-5 < error < 0.03
  assert {leaf.dtype for leaf in jax.tree.leaves(rough)} == {np.dtype("float32")}


def sampled_by_hand(params, batch, own):
  """Losses of a decoder that reads its likeliest words where `own` says so, step by step."""
  model = bind(MODEL, params)
  memory = model.encode(batch["source"], batch["source_length"])
  at = model.start(memory)
  previous, total = np.full(len(own), BOS), 0.0
  for t in range(own.shape[1]):
    log_p, made = model.step(memory, at, jnp.array(previous))
    for b in range(len(own)):
      if t < batch["target_length"][b]:
        total -= float(log_p[b, batch["target"][b, t]])
    at, likeliest = made.state, np.asarray(log_p).argmax(-1)
    previous = np.where(own[:, t], likeliest, batch["target"][:, t])
  return total


@pytest.mark.slow
def test_sampled_words_are_the_models_own():
  """A decoder so sure that what it draws is its likeliest word."""
  batch, share = one_batch(), jnp.float32(0.5)
  params = state.create(MODEL, SGD, 10, jax.random.key(0)).params
  params["decoder"]["w_o"] = 1e4 * params["decoder"]["w_o"]
  rng = jax.random.key(5)
  own = np.asarray(jax.random.bernoulli(jax.random.split(rng)[1], share, (7, 6))).T
  assert 0 < own.mean() < 1
  found = objective.summed_loss(params, MODEL, batch, rng, ObjectiveConfig(sampling=1.0), share)
  np.testing.assert_allclose(found, sampled_by_hand(params, batch, own), rtol=1e-4)
  forced = objective.summed_loss(params, MODEL, batch)
  none = objective.summed_loss(
    params, MODEL, batch, rng, ObjectiveConfig(sampling=1.0), jnp.float32(0)
  )
  np.testing.assert_allclose(none, forced, rtol=1e-5)
  assert abs(found - forced) > 1


@pytest.mark.slow
def test_the_share_that_is_sampled_rises_to_the_last_update():
  """At the last of 10 updates all words are drawn; at the first, a tenth."""
  fresh = state.create(MODEL, SGD, 10, jax.random.key(0))
  shares = []

  def spy(model, batch, rng, share):
    jax.debug.callback(lambda share: shares.append(float(share)), share)
    return original(model, batch, rng, share)

  original = objective.sampling.logits
  with pytest.MonkeyPatch.context() as patched:
    patched.setattr(objective.sampling, "logits", spy)
    config = ObjectiveConfig(sampling=0.5)
    for _ in range(3):
      fresh, _ = state.update(MODEL, SGD, 10, fresh, one_batch(), jax.random.key(1), config)
  jax.effects_barrier()
  np.testing.assert_allclose(sorted(shares), [0.05, 0.1, 0.15], rtol=1e-6)


@pytest.mark.slow
def test_an_average_of_parameters_is_used_in_their_place():
  optimizer = dataclasses.replace(SGD, learning_rate=0.1, average=0.5)
  at, path = state.create(MODEL, optimizer, 10, jax.random.key(0)), []
  for _ in range(3):
    at, _ = state.update(MODEL, optimizer, 10, at, one_batch(), jax.random.key(1))
    path.append(jax.device_get(at.params))
  expected = jax.tree.map(lambda a, b, c: (a + 2 * b + 4 * c) / 7, *path)
  assert_close(state.usable(at), expected, rtol=1e-5, atol=1e-7)
  plain = state.create(MODEL, SGD, 10, jax.random.key(0))
  assert state.usable(plain) is plain.params


@pytest.mark.parametrize(
  "make, message",
  [
    (lambda: ObjectiveConfig(label_smoothing=1.0), "label_smoothing is 1.0"),
    (lambda: ObjectiveConfig(sampling=1.5), "sampling is 1.5"),
    (lambda: ObjectiveConfig(micro_batches=0), "micro_batches is 0"),
    (
      lambda: TrainConfig(objective=ObjectiveConfig(micro_batches=3)),
      "a batch of 128 rows cannot be cut into objective.micro_batches=3",
    ),
    (
      lambda: TrainConfig(
        model=dataclasses.replace(MODEL, dropout=0.1), objective=ObjectiveConfig(sampling=0.1)
      ),
      "objective.sampling needs model.dropout=0",
    ),
    (lambda: TrainConfig(keep_best=-1), "keep_best is -1"),
    (lambda: TrainConfig(patience=0), "patience is 0"),
    (lambda: TrainConfig(patience=1, validate_every=None), "keep_best and patience need"),
  ],
)
def test_bad_settings_are_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()
