"""Presets: the papers' sizes to the last parameter, and names that are found or hinted at."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from attn import configs, presets
from attn.models import parameter_count
from attn.training import state
from attn.training.optimizers import schedule

COUNTS = {
  "sutskever2014": 384_000_000,
  "cho2014": 18_250_300,
  "rnnsearch": 80_401_000,
  "rnnencdec": 68_540_000,
  "rnnsearch_groundhog": 84_349_101,
  "luong2015_base": 214_000_000,
  "luong2015_location": 216_050_000,
  "luong2015_location_feed": 220_050_000,
  "luong2015_dot_feed": 220_000_000,
  "luong2015_general_feed": 221_000_000,
  "luong2015_concat_feed": 222_001_000,
  "luong2015_concat_released_feed": 221_001_000,
  "luong2015_local_m_general": 221_000_000,
  "luong2015_local_p_dot": 221_001_000,
  "luong2015_local_p_general": 222_001_000,
}


@functools.cache
def rows():
  return {row.name: row for row in presets.describe()}


def test_paper_sizes_to_the_last_parameter():
  sized = {name: row.parameters for name, row in rows().items() if row.parameters is not None}
  assert sized == COUNTS


@pytest.mark.parametrize(
  "changes, more",
  [
    ({"biases": True}, 8 * 4 * 1000 + 80_000),
    ({"peepholes": True}, 8 * 3 * 1000),
  ],
)
def test_what_sutskevers_figure_cannot_decide(changes, more):
  """The paper says 384M; biases of LSTMs and output, or peepholes, would still round to it."""
  model = dataclasses.replace(presets.get("sutskever2014").model, **changes)
  assert parameter_count(model) == 384_000_000 + more


def test_biases_add_what_the_papers_count_leaves_out():
  model = dataclasses.replace(presets.get("rnnsearch").model, biases=True)
  n, maxout, k = 1000, 500, 30_000
  assert parameter_count(model) == 80_401_000 + 3 * 3 * n + n + 2 * maxout + k


def test_each_preset_is_a_whole_configuration():
  assert set(presets.names()) == set(rows())
  for name in presets.names():
    config = presets.get(name)
    assert configs.from_dict(type(config), configs.to_dict(config)) == config


def test_an_unknown_preset_names_the_nearest():
  with pytest.raises(configs.ConfigError, match="no preset 'rnnserch'.*rnnsearch"):
    presets.get("rnnserch")


def test_the_schedules_of_the_papers():
  """Sutskever 2014: 0.7 for 5 epochs, then halved every half epoch, 7.5 epochs in all."""
  config = presets.get("sutskever2014")
  epoch = config.steps * 2 // 15
  optimizer = dataclasses.replace(config.optimizer, epoch=epoch)
  rate = schedule(optimizer, config.steps)
  at = [0.5, 4.99, 5.01, 5.51, 6.01, 6.51, 7.01]
  rates = [float(rate(int(epochs * epoch))) for epochs in at]
  expected = [0.7, 0.7, 0.35, 0.175, 0.0875, 0.04375, 0.021875]
  np.testing.assert_allclose(rates, expected, rtol=1e-6)


@pytest.mark.slow
def test_a_training_step_of_rnnsearch_at_full_size():
  """80,401,000 parameters, 30,000 words, 8 pairs of 20 symbols."""
  config = presets.get("rnnsearch")
  rng = np.random.default_rng(0)
  ids = [rng.integers(4, 30_000, (8, 20)).astype(np.int32) for _ in range(2)]
  lengths = np.full(8, 20, np.int32)
  batch = {"source": ids[0], "source_length": lengths, "target": ids[1], "target_length": lengths}
  before = state.create(config.model, config.optimizer, config.steps, jax.random.key(0))
  first = np.asarray(before.params["decoder"]["w_o"][0])
  after, metrics = state.update(
    config.model, config.optimizer, config.steps, before, batch, jax.random.key(1)
  )
  np.testing.assert_allclose(metrics.loss, np.log(30_000), rtol=0.01)
  assert metrics.symbols == 160 and 0 < metrics.gradient_norm < np.inf
  assert np.abs(np.asarray(after.params["decoder"]["w_o"][0]) - first).max() > 0
