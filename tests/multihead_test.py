"""`flax_attention_fn` inside the multi-head modules of Flax, against their own attention."""

import functools

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import attn
from tests import reference

B, T, S, H, K = 2, 3, 7, 5, 11
RNG = np.random.default_rng(0)
QUERY, KEY, VALUE = (RNG.normal(size=(B, size, H, K)).astype(np.float32) for size in (T, S, S))
MASK = RNG.random((B, 1, T, S)) > 0.4
MASK[..., 0] = True
ours = attn.flax_attention_fn()


@pytest.mark.parametrize("dtype", [None, jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize(
  "theirs",
  [
    nnx.dot_product_attention,
    pytest.param(flax.linen.dot_product_attention, marks=pytest.mark.slow),
  ],
)
def test_scaled_dot_equals_what_flax_computes(theirs, dtype):
  for mask in (None, MASK, np.broadcast_to(MASK, (B, H, T, S))):
    options = {"mask": mask, "dtype": dtype, "precision": "highest"}
    expected = theirs(QUERY, KEY, VALUE, **options)
    result = ours(QUERY, KEY, VALUE, **options)
    assert result.dtype == expected.dtype
    tolerance = 2e-2 if dtype == jnp.bfloat16 else 2e-6
    np.testing.assert_allclose(
      np.asarray(result, float), np.asarray(expected, float), atol=tolerance
    )


@pytest.mark.parametrize("causal", [False, True])
def test_in_the_module_of_nnx(causal):
  build = functools.partial(nnx.MultiHeadAttention, H, H * K, decode=False, dropout_rate=0.5)
  theirs, mine = (build(rngs=nnx.Rngs(0), **extra) for extra in ({}, {"attention_fn": ours}))
  inputs = QUERY.reshape(B, T, H * K), KEY.reshape(B, S, H * K)
  if causal:
    inputs = inputs[1], inputs[1]
  mask = None if causal else MASK
  expected, result = (
    module(*inputs, mask=mask, is_causal=causal, deterministic=True) for module in (theirs, mine)
  )
  np.testing.assert_allclose(result, expected, atol=3e-6)


def test_in_the_module_of_linen():
  build = functools.partial(flax.linen.MultiHeadDotProductAttention, H, dropout_rate=0.5)
  inputs = QUERY.reshape(B, T, H * K), KEY.reshape(B, S, H * K)
  theirs, mine = build(), build(attention_fn=ours)
  parameters = theirs.init(jax.random.key(0), *inputs, deterministic=True)
  expected, result = (
    module.apply(parameters, *inputs, mask=MASK, deterministic=True) for module in (theirs, mine)
  )
  np.testing.assert_allclose(result, expected, atol=3e-6)


def test_every_score_and_a_query_that_may_attend_to_nothing():
  w_a = RNG.normal(size=(K, K)).astype(np.float32)
  attention_fn = attn.flax_attention_fn(score=functools.partial(attn.general, w_a=w_a))
  mask = MASK.copy()
  mask[1, 0, 2] = False
  result = attention_fn(QUERY, KEY, VALUE, mask=mask)
  for b, t, h in np.ndindex(B, T, H):
    score = functools.partial(reference.general, w_a=w_a)
    context, _ = reference.attend(
      QUERY[b, t, h], KEY[b, :, h], VALUE[b, :, h], mask[b, 0, t], score
    )
    np.testing.assert_allclose(result[b, t, h], context, atol=1e-5)
  assert not result[1, 2].any()


def test_masks_of_fewer_axes_are_of_queries_and_sources():
  """Never of the source alone, as a mask of `attn.attend` with fewer axes would be."""
  square, mask = KEY, np.tri(S, dtype=bool)
  causal = ours(square, square, square, is_causal=True)
  np.testing.assert_array_equal(ours(square, square, square, mask=mask), causal)
  both = ours(square, square, square, mask=np.ones((1, S, S), bool), is_causal=True)
  np.testing.assert_array_equal(both, causal)


@pytest.mark.parametrize("precision", [jax.lax.Precision.HIGHEST, "highest", None])
def test_precision_is_honoured(precision):
  """And where none is given, that which is set around the call."""
  with jax.default_matmul_precision("default" if precision else "highest"):
    call = jax.jit(functools.partial(ours, precision=precision))
    lowered = call.lower(QUERY, KEY, VALUE).as_text()
  products = lowered.count("dot_general")
  assert products >= 2 and lowered.count("HIGHEST") == 2 * products  # both operands of each


def test_evaluation_needs_no_rng_and_repeats():
  """ATT-09: with dropout off, two calls agree with each other and with a rate of 0."""
  first, second = (ours(QUERY, KEY, VALUE, dropout_rate=0.5, deterministic=True) for _ in range(2))
  np.testing.assert_array_equal(first, second)
  np.testing.assert_array_equal(first, ours(QUERY, KEY, VALUE))


@pytest.mark.parametrize(
  "options,error,message",
  [
    (
      {"dropout_rate": 0.5},
      ValueError,
      "flax_attention_fn: dropout_rate is 0.5, and dropout of attention weights is not done; set "
      "dropout_rate=0 or deterministic=True",
    ),
    (
      {"module": object()},
      ValueError,
      "flax_attention_fn: sowing weights is not done; set sow_weights=False",
    ),
    (
      {"mask": MASK.astype(np.float32), "is_causal": True},
      TypeError,
      "flax_attention_fn: mask has dtype float32, expected bool (True where the query may attend)",
    ),
    ({"bias": 1.0}, TypeError, None),
  ],
)
def test_what_is_not_done_is_refused(options, error, message):
  with pytest.raises(error) as raised:
    ours(QUERY, KEY, VALUE, **options)
  assert message is None or str(raised.value) == message


def test_a_score_has_to_be_a_function():
  with pytest.raises(TypeError, match="^flax_attention_fn: score is a str, expected a function$"):
    attn.flax_attention_fn(score="dot")
