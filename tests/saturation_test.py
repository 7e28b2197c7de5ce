"""Saturation: corner cases of the measures, and the gradients against finite differences."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attn
from tests import reference

Q, S, K, N = 5, 7, 5, 11
GOLDEN = [1.0, 2.0], [[2.0, 0.0], [0.0, 2.0], [1.0, 1.0]]  # scores 2, 4, 3
half = pytest.mark.parametrize("dtype", ["float16", "bfloat16"])


def test_the_support_of_known_rows():
  rows = jnp.array([[1, 0, 0, 0], [0.25] * 4, [0.5, 0, 0.5, 0], [0, 0, 0, 0]], jnp.float32)
  np.testing.assert_allclose(attn.effective_support(rows), [1, 4, 2, 0], rtol=1e-6)
  assert not jax.grad(attn.effective_support)(rows[3]).any()
  assert attn.effective_support(rows[0]) == 1 and attn.effective_support(rows[3]) == 0


def test_a_nan_is_not_hidden():
  for row in ([0.5, math.nan, 0.5], [math.nan, math.nan], [0.0, math.nan]):
    assert np.isnan(attn.effective_support(jnp.array(row)))
    assert np.isnan(attn.logit_variance(jnp.array(row)))
  assert np.isnan(attn.logit_variance(jnp.array([1.0, math.inf])))


@half
def test_the_support_of_a_long_row_in_16_bits(dtype):
  row = jnp.full(4096, 1 / 4096, dtype)
  assert attn.effective_support(row) == 4096 and attn.effective_support(row).dtype == dtype


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38])
def test_the_variance_does_not_see_what_is_masked(bad):
  scores, mask = jnp.array([2.0, bad, 4.0, 9.0]), jnp.array([True, False, True, True])
  with jax.debug_nans(True):
    variance, gradient = jax.jit(jax.value_and_grad(attn.logit_variance))(scores, mask)
  # Mean 5: deviations -3, -1, 4.
  np.testing.assert_allclose(variance, 26 / 3, rtol=1e-6)
  np.testing.assert_allclose(gradient, np.array([-3, 0, -1, 4]) * 2 / 3, rtol=1e-6)
  nothing = jnp.zeros(4, bool)
  with jax.debug_nans(True):
    variance, gradient = jax.value_and_grad(attn.logit_variance)(scores, nothing)
  assert variance == 0 and not gradient.any()


def test_the_variance_counts_minus_infinity_as_masked():
  inf = math.inf
  scores = jnp.array([[2.0, -inf, 4.0], [-inf, 3.0, -inf], [-inf, -inf, -inf]])
  assert attn.logit_variance(scores).tolist() == [1, 0, 0]
  gradient = jax.grad(lambda scores: attn.logit_variance(scores).sum())(scores)
  assert gradient.tolist() == [[-1, 0, 1], [0, 0, 0], [0, 0, 0]]
  assert attn.logit_variance(scores, jnp.array([True, True, False])).tolist() == [0, 0, 0]


def test_the_variance_far_from_zero_keeps_its_digits():
  scores = np.random.default_rng(3).normal(size=(11, 101)).astype(np.float32)
  for offset in (1e4, -1e6):
    moved = scores + np.float32(offset)
    expected = np.var(moved.astype(np.float64), axis=-1)
    np.testing.assert_allclose(attn.logit_variance(moved), expected, rtol=1e-6)
  # A mean that is rounded would leave a variance; a sum would overflow.
  for constant in (0.1, 3e38):
    assert attn.logit_variance(jnp.full(7, constant)) == 0


@half
def test_the_variance_of_16_bit_scores_is_taken_in_float32(dtype):
  # The sum of squares, 4096 * 100, is past 65504, and 4096 * 10 past what the ulp can count.
  scores = jnp.asarray(np.tile([200.0, 220.0], 2048), dtype)
  assert attn.logit_variance(scores) == 100 and attn.logit_variance(scores).dtype == dtype


def draw(*leading):
  rng = np.random.default_rng(11)
  keys = (*leading[:-1], *[1] * bool(leading), S, K)
  query, keys, mask = rng.normal(size=(*leading, Q)), rng.normal(size=keys), rng.random(keys[:-1])
  return query, keys, mask > 0.3


_RNG = np.random.default_rng(17)
PARAMETERS = {"w_a": _RNG.normal(size=(N, Q)), "u_a": _RNG.normal(size=(N, K))}
PARAMETERS["v_a"] = _RNG.normal(size=N)
BOUND = {"dot": {}, "scaled_dot": {}, "additive": PARAMETERS}


def jacobian(function, at):
  """Central differences of a vector to an array, with every entry of it moved in its turn."""
  columns = []
  for index in np.ndindex(at.shape):
    moved = np.zeros(at.shape)
    moved[index] = 1e-5
    columns.append((function(at + moved) - function(at - moved)) / 2e-5)
  return np.array(columns)


@pytest.mark.parametrize("name,scale", [("dot", 1.0), ("scaled_dot", -2.5), ("additive", 2.0)])
def test_the_norms_are_those_of_finite_differences(name, scale):
  query, keys, mask = draw()
  score = functools.partial(getattr(attn, name), **BOUND[name])
  with jax.enable_x64(True):
    found = attn.softmax_gradients(query, keys, mask, score=score, scale=scale)
  oracle = functools.partial(getattr(reference, name), **BOUND[name])
  softmax = functools.partial(reference.softmax, mask=mask)
  scores = oracle(query, keys)
  expected = attn.SoftmaxGradients(
    scores=jacobian(softmax, scale * scores),
    unscaled=jacobian(lambda scores: softmax(scores, scale=scale), scores),
    query=jacobian(lambda query: softmax(oracle(query, keys), scale=scale), query),
    keys=jacobian(lambda keys: softmax(oracle(query, keys), scale=scale), keys),
  )
  for field, norm, entries in zip(found._fields, found, expected, strict=True):
    assert norm.dtype == np.float64
    assert norm == pytest.approx(np.linalg.norm(entries), rel=1e-7), field


def test_a_score_may_look_at_other_keys_or_at_none():
  query, keys, mask = draw()
  w_a = np.random.default_rng(5).normal(size=(S, Q))

  def centred(query, keys):
    return (keys - keys.mean(0)) @ query

  with jax.enable_x64(True):
    found = attn.softmax_gradients(query, keys, mask, score=centred)
    without = attn.softmax_gradients(query, keys, mask, score=lambda query, keys: w_a @ query)
  expected = jacobian(lambda keys: reference.softmax(centred(query, keys), mask), keys)
  assert found.keys == pytest.approx(np.linalg.norm(expected), rel=1e-7)
  assert float(without.keys) == 0 < float(without.query)


def test_leading_axes_broadcast_as_those_of_a_score():
  query, keys, mask = draw(2, 3)
  found = jax.jit(attn.softmax_gradients)(query, keys, mask)
  assert {norm.shape for norm in found} == {(2, 3)}
  for b, t in np.ndindex(2, 3):
    one = attn.softmax_gradients(query[b, t], keys[b, 0], mask[b, 0])
    np.testing.assert_allclose([norm[b, t] for norm in found], one, rtol=1e-5)


def test_the_scale_is_the_axis_of_a_curve():
  """Claim 66: the gradient to the unscaled scores rises before it falls."""
  query, keys = map(jnp.array, GOLDEN)
  curve = jax.vmap(lambda scale: attn.softmax_gradients(query, keys, scale=scale))
  found = jax.jit(curve)(jnp.array([1.0, 2.0, 4.0, 8.0, 0.0]))
  np.testing.assert_allclose(found.scores[:4], [0.389, 0.213, 0.0355, 0.00067], rtol=5e-3)
  np.testing.assert_allclose(found.unscaled[:4], [0.389, 0.426, 0.142, 0.0054], rtol=1e-2)
  assert found.scores[4] == pytest.approx(math.sqrt(2) / 3)
  assert found.unscaled[4] == found.query[4] == found.keys[4] == 0


@pytest.mark.parametrize("gap", [20.0, 60.0])
def test_saturated_norms_keep_their_digits(gap):
  """The weight of the other is 1e-9 and 1e-26: 1 minus the large one is 0 in float32."""
  found = attn.softmax_gradients(jnp.ones(1), jnp.array([[0.0], [gap]]))
  small = math.exp(-gap)
  # a (1 - a) is `small` to 9 digits, and so is every entry of the Jacobian; its rows times the keys
  # (0, gap) are the gradient to the query; the query is 1, so that to the keys is that to scores.
  expected = [2 * small, 2 * small, math.sqrt(2) * gap * small, 2 * small]
  np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_norms_do_not_see_what_is_masked_and_do_not_hide_the_rest(bad):
  query, keys, mask = draw(2)
  mask = np.broadcast_to(mask, (2, S)).copy()
  mask[:, 3], mask[1] = False, False
  expected = attn.softmax_gradients(query, keys, mask)
  keys[..., 3, 1] = bad
  query[1] = bad
  with jax.debug_nans(True):
    found = attn.softmax_gradients(query, keys, mask)
  for norm, clean in zip(found, expected, strict=True):
    assert norm[0] == clean[0] > 0 and norm[1] == 0
  mask[:, 3] = True
  tanh = functools.partial(attn.additive, **PARAMETERS)
  for norm in attn.softmax_gradients(query[0], keys[0], mask[0], score=tanh):
    assert np.isnan(norm)


def test_the_norms_have_gradients_of_their_own():
  def total(query, keys, mask):
    return sum(attn.softmax_gradients(query, keys, mask))

  query, keys, mask = draw()
  with jax.enable_x64(True):
    gradient = jax.jit(jax.grad(total))(query, keys, mask)
    step = np.random.default_rng(2).normal(size=Q)
    ahead, behind = (total(query + h * step, keys, mask) for h in (1e-5, -1e-5))
    assert gradient @ step == pytest.approx(float(ahead - behind) / 2e-5, rel=1e-6)
  nothing = jax.jit(jax.grad(total, (0, 1)))(query, keys, np.zeros(S, bool))
  assert not any(array.any() for array in nothing)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32"])
def test_norms_have_the_dtype_of_the_inputs(dtype):
  query, keys = (jnp.asarray(array, dtype) for array in GOLDEN)
  # In 16 bits the scores of 40000 times 2, 4 and 3 would overflow.
  found = attn.softmax_gradients(query * 200, keys * 200, scale=1 / 40000)
  assert {norm.dtype for norm in found} == {jnp.dtype("float32" if dtype == "int32" else dtype)}
  assert float(found.scores) == pytest.approx(0.389, rel=1e-2)


def test_an_empty_source_has_no_gradient():
  for norm in attn.softmax_gradients(np.ones((2, Q)), np.ones((2, 0, K))):
    assert norm.tolist() == [0, 0]


@pytest.mark.parametrize(
  "options,message",
  [
    ({"scale": np.ones(3)}, "scale has shape (3,), expected one number"),
    ({"score": lambda query, keys: [1.0]}, "score returned shape (1,), expected (7,), that is [s]"),
    (
      {"score": lambda query, keys: keys @ query[:, None]},
      "score returned shape (7, 1), expected (7,), that is [s]",
    ),
    (
      {"mask": np.ones(5, bool)},
      "mask has shape (5,), expected (..., s) with s = 7 from keys of shape (7, 5)",
    ),
  ],
)
def test_what_does_not_fit_is_one_line(options, message):
  query, keys, _ = draw()
  with pytest.raises(ValueError) as error:
    attn.softmax_gradients(query, keys, **options)
  assert str(error.value) == f"softmax_gradients: {message}"
