"""The output layer fused with its loss, against float64 loops and against the plain objective."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn.data.vocabulary import EOS
from attn.models import ModelConfig, init
from attn.training import objective, output_loss
from attn.training.config import ObjectiveConfig
from attn.training.output_loss import summed_output_loss

ROWS, WIDTH, V = 7, 5, 13
RNG = np.random.default_rng(0)
NARROWED, MATRIX, BIAS = (RNG.normal(size=shape) for shape in ((ROWS, WIDTH), (V, WIDTH), (V,)))
LABELS = RNG.integers(EOS, V, ROWS)
COUNTED = np.array([1.0, 0.0, 1.0, 1.0, 0.5, 1.0, 0.0])
smoothings = pytest.mark.parametrize("smoothing", [0.0, 0.1])


def by_hand(narrowed, matrix, bias, smoothing):
  """sum_r counted_r sum_v -q_v log p_v, q the smoothed label, one symbol at a time."""
  total = 0.0
  for row, label, counted in zip(narrowed, LABELS, COUNTED, strict=True):
    logits = [sum(w * x for w, x in zip(matrix[v], row, strict=True)) + bias[v] for v in range(V)]
    norm = math.log(sum(math.exp(logit) for logit in logits))
    for v, logit in enumerate(logits):
      share = (v == label) * (1 - smoothing) + (v >= EOS) * smoothing / (V - EOS)
      total -= counted * share * (logit - norm)
  return total


@pytest.fixture(params=[1, 3, 7, 100])
def rows_at_once(request, monkeypatch):
  monkeypatch.setattr(output_loss, "_AT_ONCE", request.param * V)


@smoothings
def test_value_and_gradient_equal_the_loop_by_hand(rows_at_once, smoothing):
  with jax.enable_x64(True):
    arrays = [jnp.asarray(array) for array in (NARROWED, MATRIX, BIAS)]
    total, pull = jax.vjp(
      lambda *arrays: summed_output_loss(*arrays, LABELS, jnp.asarray(COUNTED), smoothing), *arrays
    )
    gradients = pull(jnp.asarray(-1.5, total.dtype))
  assert float(total) == pytest.approx(by_hand(NARROWED, MATRIX, BIAS, smoothing), rel=1e-6)
  direction = [RNG.normal(size=array.shape) for array in (NARROWED, MATRIX, BIAS)]
  step = 1e-6
  ahead, behind = (
    by_hand(
      *(a + h * d for a, d in zip((NARROWED, MATRIX, BIAS), direction, strict=True)), smoothing
    )
    for h in (step, -step)
  )
  slope = sum(np.vdot(g, d) for g, d in zip(gradients, direction, strict=True))
  assert slope == pytest.approx(-1.5 * (ahead - behind) / (2 * step), rel=1e-5)
  assert not gradients[0][COUNTED == 0].any()


@pytest.mark.slow
@smoothings
def test_the_objective_takes_it_for_large_vocabularies_and_gives_the_same(monkeypatch, smoothing):
  config = ModelConfig(
    source_vocabulary=11, target_vocabulary=V, embedding=3, units=5, alignment=7, maxout=2,
    initialisation="glorot",
  )  # fmt: skip
  params = init(config, jax.random.key(0))
  batch = {
    "source": RNG.integers(EOS, 11, (3, 5)), "source_length": np.array([5, 2, 0]),
    "target": RNG.integers(EOS, V, (3, 7)), "target_length": np.array([7, 3, 0]),
  }  # fmt: skip
  batch = {name: jnp.asarray(array, jnp.int32) for name, array in batch.items()}
  of = ObjectiveConfig(label_smoothing=smoothing)

  def summed():
    # Another function each time: what was traced for the other form is not taken again.
    return jax.jit(jax.value_and_grad(lambda p: objective.summed_loss(p, config, batch, None, of)))(
      params
    )

  plain, plain_gradients = summed()
  monkeypatch.setattr(objective, "_LARGE", 1)
  fused, fused_gradients = summed()
  assert float(fused) == pytest.approx(float(plain), rel=1e-6)
  for one, other in zip(*map(jax.tree.leaves, (fused_gradients, plain_gradients)), strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_it_holds_no_logits_of_the_whole_batch():
  rows, width, symbols = 4096, 64, 8000
  shapes = (rows, width), (symbols, width), (symbols,), (rows,)
  arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
  arrays.insert(3, jax.ShapeDtypeStruct((rows,), jnp.int32))
  step = jax.jit(jax.grad(lambda *arrays: summed_output_loss(*arrays, 0.0), (0, 1, 2)))
  assert step.lower(*arrays).compile().memory_analysis().temp_size_in_bytes < rows * symbols
