"""Presets: the papers' sizes to the last parameter, and names that are found or hinted at."""

import dataclasses

import pytest

from attn import configs, presets


def test_paper_sizes_to_the_last_parameter():
  counts = {row.name: row.parameters for row in presets.describe()}
  assert counts["rnnsearch"] == 80_401_000
  assert counts["rnnencdec"] == 68_540_000


def test_biases_add_what_the_papers_count_leaves_out():
  model = dataclasses.replace(presets.get("rnnsearch").model, biases=True)
  from attn.models import parameter_count

  n, maxout, k = 1000, 500, 30_000
  assert parameter_count(model) == 80_401_000 + 3 * 3 * n + n + 2 * maxout + k


def test_each_preset_is_a_whole_configuration():
  assert set(presets.names()) == {row.name for row in presets.describe()}
  for name in presets.names():
    config = presets.get(name)
    assert configs.from_dict(type(config), configs.to_dict(config)) == config


def test_an_unknown_preset_names_the_nearest():
  with pytest.raises(configs.ConfigError, match="no preset 'rnnserch'.*rnnsearch"):
    presets.get("rnnserch")
