"""The orders of the decoding step: what each action may see, by tainting one input with NaN."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn import models
from attn.models import ModelConfig, steps

BASE = ModelConfig(
  source_vocabulary=17,
  target_vocabulary=19,
  embedding=5,
  units=7,
  alignment=11,
  maxout=3,
  encoder="forward",
  initialisation="glorot",
)
ORDERS = {
  "bahdanau": BASE,
  "bahdanau_appendix": dataclasses.replace(BASE, order="bahdanau_appendix"),
  "groundhog": dataclasses.replace(BASE, order="groundhog"),
  "luong": dataclasses.replace(BASE, order="luong", readout="tanh"),
  "luong_feed": dataclasses.replace(BASE, order="luong", input_feeding="readout"),
  "conditional_gru": dataclasses.replace(BASE, order="conditional_gru"),
}
# What a step shows, in the sequence of `Step`, and which of it a NaN in one input must reach:
# y_{i-1}, then s_{i-1}, then what the step before handed on beside its state.
SHOWN = ("scores", "weights", "context", "state", "readout")
SEES_WORD = {
  "bahdanau": {"state", "readout"},
  "bahdanau_appendix": {"state", "readout"},
  "groundhog": set(SHOWN),
  "luong": set(SHOWN),
  "luong_feed": set(SHOWN),
  "conditional_gru": set(SHOWN),
}
SEES_CARRIED = {"groundhog": set(SHOWN), "luong_feed": set(SHOWN)}


@functools.partial(jax.jit, static_argnames="config")
def one_step(config, params, embedded, taint):
  """Everything a step shows of two sentences; `taint` holds what is added to each of its inputs."""
  model = models.bind(config, params)
  memory = model.encode(jnp.full((2, 3), 5), jnp.array([3, 2]))
  start = model.start(memory)
  state = start._replace(
    layers=jax.tree.map(lambda leaf: leaf + taint["state"], start.layers),
    carried=None if start.carried is None else start.carried + taint["carried"],
  )
  word = model.decoder.word(embedded + taint["word"], jnp.array([False, False]))
  made = model.decoder.step(model.decoder, memory, state, word)
  return {**made._asdict(), "state": made.state.top}


def reached(name, where):
  config = ORDERS[name]
  params = models.init(config, jax.random.key(0))
  taint = {place: jnp.nan if place == where else 0.0 for place in ("word", "state", "carried")}
  made = one_step(config, params, jnp.ones((2, 5)), taint)
  real = np.array([[True, True, True], [True, True, False]])
  for part in SHOWN:
    inside = np.asarray(made[part])[real] if part in ("scores", "weights") else made[part]
    taints = np.isnan(inside)
    assert taints.all() or not taints.any(), part
  return {part for part in SHOWN if np.isnan(made[part]).any()}


@pytest.mark.parametrize("name", ORDERS)
def test_what_sees_the_previous_word(name):
  """In section 3.1 and A.2.2 the score and what it leads to come before y_{i-1}; else after."""
  assert reached(name, None) == set()
  assert reached(name, "word") == SEES_WORD[name]


@pytest.mark.parametrize("name", ORDERS)
def test_everything_sees_the_state_before(name):
  assert reached(name, "state") == set(SHOWN)


@pytest.mark.parametrize("name", ORDERS)
def test_what_is_carried_beside_the_state_goes_into_the_next_one(name):
  """c_{i-1} in the code of Bahdanau 2015, h~_{t-1} with input feeding; else nothing is."""
  assert reached(name, "carried") == SEES_CARRIED.get(name, set())


@pytest.mark.slow
@pytest.mark.parametrize(
  "name, context, sees",
  [
    ("bahdanau", "both", {"state", "readout"}),
    ("bahdanau", "state", {"state", "readout"}),
    ("bahdanau", "readout", {"readout"}),
    ("bahdanau_appendix", "both", {"state", "readout"}),
    ("bahdanau_appendix", "state", {"state"}),
    ("groundhog", "both", {"readout"}),
    ("groundhog", "state", set()),
    ("luong", "readout", {"readout"}),
    ("conditional_gru", "state", {"state", "readout"}),
  ],
)
def test_where_the_context_goes(name, context, sees):
  """By a NaN in the values: into the state (by C), the readout (by C_o), or both."""
  config = dataclasses.replace(ORDERS[name], context=context)
  model = models.bind(config, models.init(config, jax.random.key(0)))

  @jax.jit
  def run():
    memory = model.encode(jnp.full((2, 3), 5), jnp.array([3, 2]))
    memory = memory._replace(values=memory.values + jnp.nan)
    word = model.decoder.word(jnp.ones((2, 5)), jnp.array([False, False]))
    made = model.decoder.step(model.decoder, memory, model.start(memory), word)
    return {"state": made.state.top, "readout": made.readout}

  assert {part for part, value in run().items() if np.isnan(value).all()} == sees


def test_a_maxout_takes_the_larger_of_neighbours():
  """Bahdanau 2015, A.2.2: t_ij = max(t~_{i,2j-1}, t~_{i,2j}), units 1 and 2, 3 and 4, 5 and 6."""
  decoder = models.bind(BASE, models.init(BASE, jax.random.key(0))).decoder
  for matrix in (decoder.u_o, decoder.c_o):
    matrix[...] = jnp.zeros_like(matrix[...])
  word = steps.Word(jnp.zeros(21), jnp.array([1.0, -2.0, 3.0, 4.0, -6.0, -5.0]), jnp.array(False))
  np.testing.assert_array_equal(decoder.readout(jnp.ones(7), word, jnp.ones(7)), [1.0, 4.0, -5.0])


@pytest.mark.slow
def test_in_groundhogs_order_the_first_step_reads_out_of_the_first_state():
  config = ORDERS["groundhog"]
  model = models.bind(config, models.init(config, jax.random.key(0)))
  memory = model.encode(jnp.full((2, 3), 5), jnp.array([3, 2]))
  start = model.start(memory)
  for first in (True, False):
    word = model.decoder.word(jnp.ones((2, 5)), jnp.full(2, first))
    made = model.decoder.step(model.decoder, memory, start, word)
    assert np.array_equal(made.hidden, start.top) is first
