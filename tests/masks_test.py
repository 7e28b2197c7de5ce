"""Masks, and numbers that are not finite behind them: softmax, context and length_mask."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attn

B, T, S, V = 2, 3, 7, 13
dtypes = pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])


def test_published_rows_of_an_empty_softmax():
  """ATT-01 in numbers, with the Jacobian."""
  scores = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
  mask = jnp.array([[True, True, False], [False, False, False]])
  values = jnp.array([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]])
  weights = attn.softmax(scores, mask)
  np.testing.assert_allclose(weights, [[0.26894142, 0.73105858, 0], [0, 0, 0]], atol=1e-7)
  context = attn.context(weights, values, mask)
  np.testing.assert_allclose(context, [[0.26894142, 0.73105858], [0, 0]], atol=1e-7)
  jacobian = jax.jacobian(attn.softmax)(scores, mask)
  a = np.array([0.26894142, 0.73105858, 0])
  np.testing.assert_allclose(jacobian[0, :, 0], np.diag(a) - np.outer(a, a), atol=1e-6)
  assert not jacobian[1].any() and not jacobian[:, :, 1].any()


@dtypes
@pytest.mark.parametrize("big", [300.0, 6e4, np.inf, -np.inf, np.nan])
def test_a_masked_score_of_any_size_leaves_the_gradient_alone(dtype, big):
  """ATT-02 and ATT-03."""
  scores = jnp.array([2.0, 2.0, big], dtype)
  mask = jnp.array([True, True, False])
  weights, pull = jax.vjp(
    lambda scores, scale: attn.softmax(scores, mask, scale=scale), scores, 1.0
  )
  assert weights.dtype == dtype and weights.tolist() == [0.5, 0.5, 0.0]
  d_scores, d_scale = pull(jnp.array([1.0, 0.0, 0.0], dtype))
  assert d_scores.tolist() == [0.25, -0.25, 0.0] and d_scale == 0


@dtypes
def test_a_learned_scale_keeps_the_dtype(dtype):
  """ATT-03."""
  scores = jnp.array([0.5, -0.25, 1.0], dtype)
  mask = jnp.array([True, True, False])
  weights = attn.softmax(scores, mask, scale=jnp.float32(1.5))
  assert weights.dtype == dtype and weights[2] == 0
  np.testing.assert_allclose(np.asarray(weights, float), [0.754915, 0.245085, 0], atol=2e-3)


def test_scores_of_minus_infinity_are_masked_and_nan_is_not_hidden():
  inf = jnp.inf
  assert not attn.softmax(jnp.full(3, -inf)).any()
  assert not jax.jacobian(attn.softmax)(jnp.full(3, -inf)).any()
  some = jnp.array([-inf, 1.0, 1.0])
  weights, d_scale = jax.value_and_grad(lambda c: attn.softmax(some, scale=c)[1])(-2.0)
  assert weights == 0.5 and d_scale == 0
  mask = jnp.array([True, True, False])
  for bad in (jnp.nan, inf):
    weights = attn.softmax(jnp.array([bad, 1.0, 2.0]), mask)
    assert jnp.isnan(weights[:2]).all() and weights[2] == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_context_drops_masked_weights_and_values(bad):
  """Semantics 8: both, without renormalising, for a mask of each query too."""
  rng = np.random.default_rng(5)
  values = rng.normal(size=(B, S, V)).astype(np.float32)
  weights = rng.random((B, T, S), np.float32)
  mask = rng.random((B, T, S)) > 0.3
  mask[:, :, 4] = False
  expected = np.einsum("bts,bsv->btv", np.where(mask, weights, 0), values)
  weights[..., 4] = bad
  values[:, 4] = bad
  values = values[:, None]
  with jax.debug_nans(True):
    context = attn.context(weights, values, mask)
    d_weights, d_values = jax.grad(lambda *a: attn.context(*a, mask).sum(), (0, 1))(weights, values)
  np.testing.assert_allclose(context, expected, atol=2e-6)
  assert not d_weights[~mask].any() and not d_values[:, :, 4].any()
  assert np.isfinite(d_weights).all() and np.isfinite(d_values).all()
  values[0, :, 1] = bad
  strict = attn.context(weights, values, mask)
  assert (np.isnan(strict).all(-1) == (mask[:, :, 1] * [[1], [0]])).all()


def test_a_mask_of_each_query_does_not_copy_the_values_for_each_query():
  b, t, s, v = 2, 97, 101, 103
  shapes = (b, t, s), (b, 1, s, v)
  weights, values = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
  mask = jax.ShapeDtypeStruct((b, t, s), bool)
  compiled = jax.jit(attn.context).lower(weights, values, mask).compile()
  assert compiled.memory_analysis().temp_size_in_bytes < b * t * s * v


def test_length_mask():
  lengths = np.array([[0, 3], [9, -1]], np.int8)
  expected = np.arange(5) < lengths[..., None]
  assert (attn.length_mask(lengths, 5) == expected).all()
  assert (jax.jit(lambda lengths: attn.length_mask(lengths, size=5))(lengths) == expected).all()
  assert attn.length_mask(2, 0).shape == (0,)
  # int8 could not count so far, nor int32 as far as these.
  assert attn.length_mask(np.int8(100), 300).sum() == 100
  for length in (np.int64(2**40), np.uint32(2**32 - 1), np.full((), 2**63, np.uint64)):
    assert attn.length_mask(length, 5).all()
    assert attn.window_mask(2.0, length, half_width=9, size=5).all()
