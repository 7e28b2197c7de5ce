"""Optimizers, schedules and clipping, held against loops written from their papers."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attn.training import OptimizerConfig, optimizers

SHAPES = {"source": (3,), "decoder": (2, 5)}
SUTSKEVER = OptimizerConfig(
  name="sgd", learning_rate=0.7, decay="halving", halve_after=5, halve_every=0.5, clip_norm=5.0
)
LUONG = OptimizerConfig(
  name="sgd", learning_rate=1.0, decay="halving", halve_after=5, halve_every=1, clip_norm=5.0
)


def rates(config, steps):
  return np.broadcast_to(optimizers.schedule(config, steps)(jnp.arange(steps)), steps)


def replace(config, **changes):
  return OptimizerConfig(**{**vars(config), **changes})


def test_sutskevers_rate_is_halved_each_half_epoch_after_five():
  found = rates(replace(SUTSKEVER, epoch=6), 45)
  expected = [0.7] * 30 + [0.35] * 3 + [0.175] * 3 + [0.0875] * 3 + [0.04375] * 3 + [0.021875] * 3
  np.testing.assert_allclose(found, expected, rtol=1e-6)
  odd = replace(SUTSKEVER, epoch=7)  # half an epoch is 3.5 updates
  assert optimizers.halvings(odd, 49) == [35, 39, 42, 46]


def test_luongs_rate_is_halved_each_epoch_after_five():
  found = rates(replace(LUONG, epoch=4), 40)
  np.testing.assert_allclose(found, [1] * 20 + list(np.repeat(0.5 ** np.arange(1, 6), 4)), rtol=0)
  dropout = replace(LUONG, halve_after=8, epoch=4)
  assert optimizers.halvings(dropout, 48) == [32, 36, 40, 44]


def test_halving_counts_the_warm_up_and_halves_more_than_once_an_update():
  warm = rates(replace(LUONG, epoch=4, halve_after=2, warmup=5), 16)
  np.testing.assert_allclose(warm, [0, 0.2, 0.4, 0.6, 0.8, 1, 1, 1] + [0.5] * 4 + [0.25] * 4)
  fast = rates(replace(LUONG, epoch=1, halve_after=1, halve_every=0.5), 3)
  np.testing.assert_allclose(fast, [1, 0.5, 0.125])


def test_schedule_warms_up_and_falls_to_zero():
  rate = optimizers.schedule(OptimizerConfig(learning_rate=2.0, warmup=10), 110)
  np.testing.assert_allclose(
    [rate(0), rate(5), rate(10), rate(60), rate(110)], [0, 1, 2, 1, 0], atol=1e-6
  )
  flat = optimizers.schedule(OptimizerConfig(learning_rate=1.0, decay="none"), 110)
  assert flat(0) == flat(109) == 1.0


def test_linear_decay_falls_to_zero_at_the_end():
  config = OptimizerConfig(learning_rate=2.0, warmup=4, decay="linear")
  rate = optimizers.schedule(config, 14)
  np.testing.assert_allclose(
    rate(jnp.arange(15)), [0, 0.5, 1, 1.5, *np.linspace(2, 0, 11)], atol=1e-6
  )


def test_epochs_need_the_data():
  with pytest.raises(ValueError, match="optimizer.epoch is None: it comes with the data"):
    rates(SUTSKEVER, 3)
  # The state of an optimizer does not depend on it, so that a model can be loaded without data.
  optimizers.build(SUTSKEVER, 3).init(jnp.zeros(2))


def sgd(lr, g, _, config):
  return -lr * g


def adadelta(lr, g, kept, config):
  """Zeiler 2012, Algorithm 1."""
  rho, epsilon = config.rho, config.epsilon
  kept["g"] = rho * kept.get("g", 0) + (1 - rho) * g**2
  step = -np.sqrt(kept.get("x", 0) + epsilon) / np.sqrt(kept["g"] + epsilon) * g
  kept["x"] = rho * kept.get("x", 0) + (1 - rho) * step**2
  return lr * step


def adam(lr, g, kept, config):
  """Kingma and Ba 2015, Algorithm 1."""
  kept["t"] = kept.get("t", 0) + 1
  kept["m"] = 0.9 * kept.get("m", 0) + 0.1 * g
  kept["v"] = 0.999 * kept.get("v", 0) + 0.001 * g**2
  m, v = kept["m"] / (1 - 0.9 ** kept["t"]), kept["v"] / (1 - 0.999 ** kept["t"])
  return -lr * m / (np.sqrt(v) + config.epsilon)


def by_hand(config, rule, params, gradients, rate):
  """Parameters after each update, and their average with weights decay^k, k updates ago."""
  kept, path = {name: {} for name in params}, []
  for g, lr in zip(gradients, rate, strict=True):
    if config.clip_norm:
      counted = [n for n in g if config.clip_embeddings or n not in ("source", "target")]
      norm = np.sqrt(sum((g[n] ** 2).sum() for n in counted))
      if norm > config.clip_norm:
        g = {n: leaf * config.clip_norm / norm for n, leaf in g.items()}
    params = {n: params[n] + rule(lr, g[n], kept[n], config) for n in params}
    path.append(params)
  weights = (config.average or 0.0) ** np.arange(len(path))[::-1]
  return path, {
    n: sum(w * p[n] for w, p in zip(weights, path, strict=True)) / weights.sum() for n in params
  }


@pytest.mark.parametrize(
  "config, rule",
  [
    (replace(SUTSKEVER, epoch=2, halve_after=1.5, average=0.5), sgd),
    (replace(LUONG, epoch=3, halve_after=1, clip_embeddings=False), sgd),
    (
      OptimizerConfig(
        name="adadelta", learning_rate=1.0, decay="none", epsilon=1e-6, average=0.999
      ),
      adadelta,
    ),
    (OptimizerConfig(learning_rate=0.1, warmup=2, decay="linear", clip_norm=None), adam),
  ],
)
def test_updates_are_those_of_the_papers(config, rule):
  rng = np.random.default_rng(0)
  draw = lambda scale: {n: scale * rng.normal(size=shape) for n, shape in SHAPES.items()}  # noqa: E731
  start, gradients = draw(1.0), [draw(scale) for scale in (0.1, 3, 1, 0.01, 7, 2, 0.5)]
  gradients[3] = {name: 0 * leaf for name, leaf in gradients[3].items()}
  expected, average = by_hand(config, rule, start, gradients, rates(config, len(gradients)))

  transform = optimizers.build(config, len(gradients))
  params = jax.tree.map(jnp.float32, start)
  state, update = transform.init(params), jax.jit(transform.update)
  for g, after in zip(gradients, expected, strict=True):
    updates, state = update(jax.tree.map(jnp.float32, g), state, params)
    params = optax.apply_updates(params, updates)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-6), params, after)
  if config.average:
    jax.tree.map(
      lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-6),
      optax.tree.get(state, "average"),
      average,
    )


@pytest.mark.parametrize(
  "changes, message",
  [
    ({"clip_norm": 0.0}, "clip_norm is 0.0"),
    ({"learning_rate": -1.0}, "learning_rate is -1.0"),
    ({"warmup": -1}, "warmup is -1"),
    ({"rho": 0.0}, "rho is 0.0"),
    ({"rho": 1.0}, "rho is 1.0"),
    ({"average": 1.0}, "average is 1.0"),
    ({"halve_after": 5.0}, "halve_after belongs to decay=halving, not to decay=cosine"),
    ({"epoch": 5}, "epoch belongs to decay=halving"),
    ({"decay": "halving", "halve_after": 5.0}, "needs halve_after and halve_every"),
    ({"decay": "halving", "halve_after": -1.0, "halve_every": 1.0}, "halve_after is -1.0"),
    ({"decay": "halving", "halve_after": 1.0, "halve_every": 0.0}, "halve_every is 0.0"),
    ({"clip_norm": None, "clip_embeddings": False}, "clip_embeddings=false needs a clip_norm"),
  ],
)
def test_bad_settings_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    OptimizerConfig(**changes)
