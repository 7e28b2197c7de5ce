"""`attend` against the oracle: masks, empty rows, numbers that are not finite, edges."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import attn
from tests import reference

B, T, S, K, V, N = 2, 3, 7, 5, 13, 11
RNG = np.random.default_rng(0)
W_A, U_A, V_A, W_G, W_C = (
  RNG.normal(size=shape).astype(np.float32) for shape in ((N, K), (N, K), (N,), (K, K), (N, 2 * K))
)
SCORES = {
  "dot": (attn.dot, reference.dot),
  "scaled_dot": (attn.scaled_dot, reference.scaled_dot),
  "additive": (
    functools.partial(attn.additive, w_a=W_A, u_a=U_A, v_a=V_A),
    functools.partial(reference.additive, w_a=W_A, u_a=U_A, v_a=V_A),
  ),
}
for name, parameters in (
  ("cosine", {}),
  ("general", {"w_a": W_G}),
  ("concat", {"w_a": W_C, "v_a": V_A}),
  ("additive_projected", {"w_a": W_A[:K], "v_a": V_A[:K]}),
):
  SCORES[name] = (
    functools.partial(getattr(attn, name), **parameters),
    functools.partial(getattr(reference, name), **parameters),
  )
# The three forms that scoring takes run always, the others with the slow tests.
OFTEN = {"dot", "general", "additive_projected"}
every_score = pytest.mark.parametrize(
  "score", [pytest.param(s, marks=[] if s in OFTEN else pytest.mark.slow) for s in SCORES]
)
scores_and_dtypes = pytest.mark.parametrize(
  'score,dtype',
  [('dot', 'float32'), ('scaled_dot', 'float32'), ('additive', 'float32'),
   ('cosine', 'float32'), ('general', 'float32'), ('concat', 'float32'),
   ('additive_projected', 'float32'), ('additive', 'bfloat16'), ('dot', 'float16')],
)  # fmt: skip
dtypes = pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])


def memory(seed=0, b=B, t=T, s=S):
  """Query, keys and values."""
  rng = np.random.default_rng(seed)
  shapes = (b, t, K), (b, s, K), (b, s, V)
  return tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)


def some_mask():
  """A mask [b, t, s] with an empty row, and one source position that nobody may attend to."""
  mask = np.random.default_rng(3).random((B, T, S)) > 0.3
  mask[1, 2] = False
  mask[:, :, 4] = False
  return mask


def oracle(query, keys, values, mask, score="dot", scale=1.0):
  mask = np.broadcast_to(mask, (*query.shape[:-1], keys.shape[-2]))
  one = functools.partial(reference.attend, score=SCORES[score][1], scale=scale)
  results = [
    [one(query[b, t], keys[b], values[b], mask[b, t]) for t in range(query.shape[1])]
    for b in range(query.shape[0])
  ]
  return tuple(np.array([[pair[i] for pair in row] for row in results]) for i in (0, 1))


# Compiled once for each score, dtype and shape, whichever tests use it.
attend = jax.jit(attn.attend, static_argnames=("score", "chunk", "return_weights"))


def loss(query, keys, values, mask, score=attn.dot, chunk=None):
  context = attn.attend(query, keys, values, mask, score=score, chunk=chunk).context
  return jnp.sum(jnp.square(context.astype(jnp.float32)))


gradients = jax.jit(jax.grad(loss, argnums=(0, 1, 2)), static_argnames=("score", "chunk"))


@every_score
@pytest.mark.parametrize("scale", [1.0, -0.5])
def test_attend_equals_the_oracle(score, scale):
  query, keys, values = memory()
  mask = some_mask()
  call = functools.partial(attend, score=SCORES[score][0])
  result = call(query, keys, values, mask, scale=scale)
  context, weights = oracle(query, keys, values, mask, score, scale)
  np.testing.assert_allclose(result.context, context, atol=3e-6)
  np.testing.assert_allclose(result.weights, weights, atol=1e-6)
  assert result.positions is None
  assert not result.weights[~mask].any()
  alone = call(query, keys, values, mask, scale=scale, return_weights=False)
  assert alone.weights is None
  np.testing.assert_allclose(alone.context, result.context, atol=3e-6)


def test_eager_and_vmap_equal_jit():
  arrays = (*memory(), some_mask())
  expected = attend(*arrays)
  for result in (attn.attend(*arrays), jax.jit(jax.vmap(attn.attend))(*arrays)):
    np.testing.assert_allclose(result.context, expected.context, atol=3e-6)
    np.testing.assert_allclose(result.weights, expected.weights, atol=1e-6)


@every_score
def test_a_masked_batch_equals_each_sentence_alone(score):
  query, keys, values = memory()
  lengths = [4, 7]
  score = SCORES[score][0]
  padded = attend(query, keys, values, attn.length_mask(jnp.array(lengths), S), score=score)
  for b, length in enumerate(lengths):
    alone = attend(query[b], keys[b, :length], values[b, :length], score=score)
    np.testing.assert_allclose(padded.context[b], alone.context, atol=3e-6)
    np.testing.assert_allclose(padded.weights[b, :, :length], alone.weights, atol=1e-6)


@scores_and_dtypes
def test_a_query_with_nothing_to_attend_to_gets_zeros_and_no_gradient(score, dtype):
  """ATT-01, and a query that is not finite itself."""
  query, keys, values = (jnp.asarray(array, dtype) for array in memory())
  query = query.at[0, 1].set(jnp.nan)
  mask = np.ones((B, T, S), bool)
  mask[0, 1] = mask[1] = False
  score = SCORES[score][0]
  context, weights, _ = attend(query, keys, values, mask, score=score)
  assert context.dtype == weights.dtype == dtype
  assert not context[0, 1].any() and not context[1].any()
  assert not weights[0, 1].any() and not weights[1].any()
  d_query, d_keys, d_values = gradients(query, keys, values, mask, score=score)
  assert not d_query[0, 1].any() and d_query[0, 0].any()
  for gradient in (d_query, d_keys, d_values):
    assert jnp.isfinite(gradient).all() and not gradient[1].any()


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float16])
@pytest.mark.parametrize("op", ["softmax", "context", "attend"])
def test_only_boolean_masks(op, dtype):
  """ATT-05."""
  query, keys, values = memory()
  calls = {
    "softmax": lambda mask: attn.softmax(keys[..., 0], mask),
    "context": lambda mask: attn.context(keys[..., 0], values, mask),
    "attend": lambda mask: attn.attend(query, keys, values, mask),
  }
  message = f"^{op}: mask has dtype {np.dtype(dtype)}, expected bool"
  with pytest.raises(TypeError, match=message):
    calls[op](np.ones((B, S), dtype))
  calls[op](np.ones((B, S), bool))


def test_a_key_mask_belongs_to_its_sentence_whatever_the_sizes():
  """ATT-06."""
  zeros = jnp.zeros((2, 2, 2))
  mask = jnp.array([[True, False], [True, True]])
  expected = [[[1, 0], [1, 0]], [[0.5, 0.5], [0.5, 0.5]]]
  assert attend(zeros, zeros, mask=mask).weights.tolist() == expected
  # As many axes as the weights: one row a query.
  for full in (mask[:, None, :], jnp.broadcast_to(mask[:, None, :], (2, 2, 2))):
    assert attend(zeros, zeros, mask=full).weights.tolist() == expected
  per_query = attend(zeros, zeros, mask=mask[None]).weights
  assert per_query.tolist() == [[[1, 0], [0.5, 0.5]]] * 2


@pytest.mark.parametrize(
  "shape", [(S,), (1, S), (B, S), (T, S, 1), (B, 1, S), (1, T, S), (B, T, 1)]
)
def test_masks_of_every_documented_shape(shape):
  query, keys, values = memory()
  mask = np.random.default_rng(4).random(shape) > 0.4
  if shape == (T, S, 1):
    with pytest.raises(ValueError, match=r"^attend: mask has shape \(3, 7, 1\), expected "):
      attn.attend(query, keys, values, mask)
    return
  full = mask[:, None, :] if shape == (B, S) else mask
  weights = attend(query, keys, values, mask).weights
  np.testing.assert_allclose(weights, oracle(query, keys, values, full)[1], atol=1e-6)


@pytest.mark.parametrize("shape", [(T, S), (B, T, S, 1), (B, T), (B, S, T), (B, T, S + 1)])
def test_masks_that_do_not_fit(shape):
  with pytest.raises(ValueError) as error:
    attn.attend(*memory(), np.ones(shape, bool))
  text = str(error.value)
  assert str(shape) in text and str((B, T, S)) in text and "\n" not in text


def test_restrictions_are_anded():
  """ATT-07, as far as a mask goes: lengths, a window and the user's own."""
  values = jnp.array([[1.0], [2.0], [3.0], [4.0]])
  restrictions = {
    "length": attn.length_mask(jnp.array(2), 4),
    "window": jnp.abs(jnp.arange(4) - 2) <= 1,
    "user": jnp.array([True, False, True, True]),
  }
  expected = {
    (): 2.5, ('length',): 1.5, ('window',): 3.0, ('user',): 8 / 3, ('length', 'window'): 2.0,
    ('length', 'user'): 1.0, ('window', 'user'): 3.5, ('length', 'window', 'user'): 0.0,
  }  # fmt: skip
  for names in itertools.chain(*(itertools.combinations(restrictions, n) for n in range(4))):
    mask = functools.reduce(jnp.logical_and, (restrictions[n] for n in names), jnp.ones(4, bool))
    context = attend(jnp.zeros((1, 1)), jnp.zeros((4, 1)), values, mask).context
    assert float(context[0, 0]) == pytest.approx(expected[names]), names


@scores_and_dtypes
def test_what_every_query_masks_reaches_nothing(score, dtype):
  """Semantics 6 and 9: results as if the numbers were ordinary ones, with no NaN on the way."""
  query, keys, values = (jnp.asarray(array, dtype) for array in memory())
  mask, score = some_mask(), SCORES[score][0]
  clean = attend(query, keys, values, mask, score=score)
  clean_gradients = gradients(query, keys, values, mask, score=score)
  for bad in (np.nan, np.inf, -np.inf):
    keys, values = keys.at[:, 4, 1].set(bad), values.at[:, 4].set(bad)
    dirty = attend(query, keys, values, mask, score=score)
    assert (dirty.context == clean.context).all() and (dirty.weights == clean.weights).all()
    dirty_gradients = gradients(query, keys, values, mask, score=score)
    for dirty_gradient, clean_gradient in zip(dirty_gradients, clean_gradients, strict=True):
      assert (dirty_gradient == clean_gradient).all()
    assert not dirty_gradients[1][:, 4].any() and not dirty_gradients[2][:, 4].any()
  # Eagerly, where each step of the forward and the backward pass is looked at.
  with jax.debug_nans(True):
    result = attn.attend(query, keys, values, mask, score=score)
    eager = jax.grad(loss, argnums=(1, 2))(query, keys, values, mask, score)
  assert np.isfinite(np.asarray(result.context, float)).all()
  for gradient in eager:
    assert np.isfinite(np.asarray(gradient, float)).all()


@every_score
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["keys", "values"])
def test_what_is_not_finite_reaches_exactly_the_queries_that_may_attend_to_it(score, bad, where):
  """Semantics 7: inf counts too, even where tanh would make a finite score of it."""
  query, keys, values = memory()
  mask = some_mask()
  mask[:, :, 2] = [[True, False, True], [False, True, False]]
  (keys if where == "keys" else values)[:, 2, 0] = bad
  expected = oracle(query, keys, values, mask, score)
  score = SCORES[score][0]
  context, weights, _ = attend(query, keys, values, mask, score=score)
  np.testing.assert_allclose(context, expected[0], atol=3e-6)
  np.testing.assert_allclose(weights, expected[1], atol=1e-6)
  assert np.isnan(context[0, 0]).all() and np.isfinite(context[0, 1]).all()
  # Without a mask, everybody reads it.
  assert np.isnan(attend(query, keys, values, score=score).context).all()
  # What all queries mask has a finite gradient even beside rows that are NaN.
  for gradient in gradients(query, keys, values, mask, score=score)[1:]:
    assert np.isfinite(gradient[:, 4]).all()


@every_score
def test_gradients_beside_numbers_that_are_not_finite(score):
  """A query that masks them has its own gradient; what all queries mask has a gradient of 0."""
  query, keys, values = memory()
  mask = some_mask()
  mask[0, :, 2] = [True, False, False]
  keys[0, 2] = np.nan
  query[0, 1] = np.nan
  gradient = gradients(query, keys, values, mask, score=SCORES[score][0])
  assert np.isfinite(gradient[0][0, 2]).all() and gradient[0][0, 2].any()
  assert not gradient[1][:, 4].any() and not gradient[2][:, 4].any()


def test_an_unattended_weight_does_not_hide_a_value():
  """A position that may be attended to counts even where its weight underflows to 0."""
  values = jnp.array([[jnp.inf], [1.0]])
  keys = jnp.array([[-1e4], [0.0]])
  assert jnp.isnan(attend(jnp.ones((1, 1)), keys, values).context).all()


def test_shared_memory_is_cleaned_by_all_who_share_it():
  """Keys without the batch axis of the queries: masked is what every query of the batch masks."""
  query, keys, values = memory()
  keys, values, mask = keys[0], values[0], some_mask()
  expected = oracle(query, np.stack([keys] * B), np.stack([values] * B), mask)
  keys[4], values[4] = np.nan, np.nan
  context, weights, _ = attend(query, keys, values, mask)
  np.testing.assert_allclose(context, expected[0], atol=3e-6)
  np.testing.assert_allclose(weights, expected[1], atol=1e-6)
  for gradient in gradients(query, keys, values, mask):
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("leading", [(), (1,)])
def test_shared_memory_is_not_copied_for_each_sentence(leading):
  query, keys, values = memory()
  seen = []

  def score(query, keys):
    seen.append(keys.shape)
    return attn.dot(query, keys)

  keys, values = keys[0].reshape(*leading, S, K), values[0].reshape(*leading, S, V)
  jax.eval_shape(functools.partial(attn.attend, score=score), query, keys, values, some_mask())
  assert set(seen) == {(*leading, 1, S, K)}


def test_weights_have_the_leading_axes_of_the_context():
  query, keys, values = memory()
  result = attend(query[0], keys[0], values)
  assert result.context.shape == (B, T, V) and result.weights.shape == (B, T, S)


@every_score
@pytest.mark.parametrize("b,t,s", [(B, T, 0), (B, 0, S), (0, T, S), (B, 1, 1)])
def test_edge_lengths(score, b, t, s):
  query, keys, values = memory(b=b, t=t, s=s)
  score = SCORES[score][0]
  for mask in (None, np.ones((b, t, s), bool)):
    context, weights, _ = attend(query, keys, values, mask, score=score)
    assert context.shape == (b, t, V) and weights.shape == (b, t, s)
    assert s or not context.any()
  for gradient in gradients(query, keys, values, None, score=score):
    assert np.isfinite(gradient).all()


def test_keys_are_the_values_when_there_are_none():
  query, keys, _ = memory()
  assert (attend(query, keys).context == attend(query, keys, keys).context).all()
  both = jax.jit(jax.grad(lambda k: loss(query, k, None, None)))(keys)
  parts = gradients(query, keys, keys, None)
  np.testing.assert_allclose(both, parts[1] + parts[2], atol=2e-5)


@dtypes
def test_the_score_sees_float32_and_results_come_back_narrow(dtype):
  query, keys, values = (jnp.asarray(array, dtype) for array in memory())
  seen = []

  def score(query, keys):
    seen.append((query.dtype, query.shape, keys.dtype, keys.shape))
    return attn.dot(query, keys).astype(dtype)

  result = attend(query, keys, values, score=score, scale=np.float64(1))
  assert set(seen) == {(np.dtype(np.float32), (B, T, K), np.dtype(np.float32), (B, 1, S, K))}
  assert result.context.dtype == result.weights.dtype == dtype
  wide = jax.eval_shape(attn.attend, query, keys, jnp.ones((S, V)))
  assert wide.context.dtype == wide.weights.dtype == np.float32


@pytest.mark.parametrize("returned", [(B, T, S + 1), (B, S), (T, S), (B, 1, S), (B, T, S, 1)])
def test_a_score_of_the_wrong_shape(returned):
  with pytest.raises(ValueError, match=r"^attend: score returned shape .* expected \(2, 3, 7\)"):
    attn.attend(*memory(), score=lambda query, keys: jnp.zeros(returned))


def test_forward_mode_and_second_derivatives():
  mask = some_mask()
  with jax.enable_x64(True):
    query, *arrays = (jnp.asarray(array, jnp.float64) for array in memory())
    of_query = lambda q: jnp.sum(attn.attend(q, *arrays, mask).context ** 2)  # noqa: E731
    gradient = jax.jit(jax.grad(of_query))
    direction = jnp.asarray(np.random.default_rng(6).normal(size=query.shape))
    _, slope = jax.jvp(jax.jit(of_query), [query], [direction])
    _, curvature = jax.jvp(gradient, [query], [direction])
    step = 1e-5
    ahead, behind = (np.asarray(gradient(query + h * direction)) for h in (step, -step))
    assert float(slope) == pytest.approx(float(jnp.vdot(gradient(query), direction)), rel=1e-12)
  np.testing.assert_allclose(curvature, (ahead - behind) / (2 * step), atol=1e-7)


def test_attending_in_a_scan_equals_attending_at_once():
  query, keys, values = memory()
  keys[:, 4] = np.nan
  mask = some_mask()

  def scanned(query, keys, values):
    def step(total, inputs):
      query, mask = inputs
      return total + loss(query[:, None], keys, values, mask[:, None]), None

    inputs = jnp.swapaxes(query, 0, 1), jnp.swapaxes(mask, 0, 1)
    return jax.lax.scan(step, 0.0, inputs)[0]

  actual = jax.jit(jax.grad(scanned, (0, 1, 2)))(query, keys, values)
  for one, other in zip(actual, gradients(query, keys, values, mask), strict=True):
    np.testing.assert_allclose(one, other, atol=1e-5)


@every_score
@pytest.mark.parametrize("chunk", [1, 2, 3, 4])
def test_chunks_change_no_value_and_no_gradient(score, chunk):
  """One query at a time, a remainder, all at once, and more than there are."""
  query, keys, values = memory()
  mask, score = some_mask(), SCORES[score][0]
  keys[:, 4] = np.nan
  whole = attend(query, keys, values, mask, score=score)
  parts = attend(query, keys, values, mask, score=score, chunk=chunk)
  np.testing.assert_allclose(parts.context, whole.context, atol=2e-6)
  np.testing.assert_allclose(parts.weights, whole.weights, atol=1e-6)
  for one, other in zip(
    gradients(query, keys, values, mask, score=score, chunk=chunk),
    gradients(query, keys, values, mask, score=score),
    strict=True,
  ):
    np.testing.assert_allclose(one, other, atol=2e-5)


def test_chunks_of_parameters_that_are_learned():
  query, keys, values = memory()

  def of_parameters(w_a, v_a, chunk):
    score = functools.partial(attn.additive, w_a=w_a, u_a=U_A, v_a=v_a)
    return loss(query, keys, values, some_mask(), score, chunk)

  gradient = jax.jit(jax.grad(of_parameters, (0, 1)), static_argnums=2)
  for one, other in zip(gradient(W_A, V_A, 2), gradient(W_A, V_A, None), strict=True):
    np.testing.assert_allclose(one, other, atol=2e-5)
  # Forward mode, and a map over the batch.
  along = functools.partial(of_parameters, chunk=2)
  _, slope = jax.jvp(jax.jit(along), (W_A, V_A), (W_A, V_A))
  expected = sum(np.vdot(g, p) for g, p in zip(gradient(W_A, V_A, None), (W_A, V_A), strict=True))
  assert float(slope) == pytest.approx(float(expected), rel=1e-4)
  mapped = jax.jit(jax.vmap(functools.partial(attn.attend, score=SCORES["additive"][0], chunk=2)))
  whole = attend(query, keys, values, score=SCORES["additive"][0])
  np.testing.assert_allclose(mapped(query, keys, values).context, whole.context, atol=2e-6)


def temporary(chunk, score, t=61, s=67, n=211, b=2):
  """Bytes that the compiler sets aside for value and gradients, by its own account."""
  shapes = (b, t, n), (b, s, n), (b, s, K)
  arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
  step = jax.jit(jax.grad(functools.partial(loss, mask=None, score=score, chunk=chunk), (0, 1, 2)))
  return step.lower(*arrays).compile().memory_analysis().temp_size_in_bytes


def test_memory_does_not_hold_the_alignment_tensor():
  b, t, s, n = 2, 61, 67, 211
  opaque = lambda query, keys: jnp.tanh(query[..., None, :] + keys).sum(-1)  # noqa: E731
  score = functools.partial(
    attn.additive_projected, w_a=np.eye(n, dtype=np.float32), v_a=np.ones(n)
  )
  tensor = 4 * b * t * s * n
  assert temporary(t, score) > tensor
  # Some buffers as large as one chunk, the queries and the keys; and the same unasked.
  for chunk, of in itertools.product((1, None), (score, opaque)):
    assert temporary(chunk, of) < tensor / 6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["additive", "additive_projected", "concat", "opaque", "each"])
@pytest.mark.parametrize("b,t,s,n", [(3, 5, 131, 173), (11, 3, 61, 127), (2, 13, 17, 1009)])
def test_what_is_chosen_unasked_changes_nothing(name, b, t, s, n):
  """Tensors beyond a cache: sentence by sentence, some sentences or some queries at a time."""
  rng = np.random.default_rng(8)
  query, keys = (rng.normal(size=(b, size, n)).astype(np.float32) / 4 for size in (t, s))
  w_a, u_a = (np.eye(n, dtype=np.float32) + rng.normal(size=(n, n)) / n for _ in range(2))
  v_a = rng.normal(size=n).astype(np.float32)
  mask = attn.length_mask(rng.integers(0, s, b), s)
  each = rng.normal(size=(b, 1, n)).astype(np.float32)
  score = {
    "additive": functools.partial(attn.additive, w_a=w_a, u_a=u_a, v_a=v_a),
    "additive_projected": functools.partial(attn.additive_projected, w_a=w_a, v_a=v_a),
    "concat": functools.partial(attn.concat, w_a=np.concatenate([w_a, u_a], 1), v_a=v_a),
    "opaque": lambda query, keys: jnp.tanh(query[..., None, :] - keys) @ v_a,
    # A parameter of each sentence: those cannot be scored apart from their batch.
    "each": functools.partial(attn.additive_projected, w_a=w_a, v_a=each),
  }[name]
  for one, other in zip(
    jax.tree.leaves(attend(query, keys, mask=mask, score=score)),
    jax.tree.leaves(attend(query, keys, mask=mask, score=score, chunk=t)),
    strict=True,
  ):
    np.testing.assert_allclose(one, other, atol=3e-6)
  values = keys[..., :7]
  for one, other in zip(
    gradients(query, keys, values, mask, score=score),
    gradients(query, keys, values, mask, score=score, chunk=t),
    strict=True,
  ):
    np.testing.assert_allclose(one, other, atol=3e-5)


def test_a_chunk_is_chosen_for_what_the_score_makes():
  seen = []

  def tanh(query, keys):
    seen.append(query.shape)
    return jnp.tanh(query[..., None, :] + keys).sum(-1)

  def dot(query, keys):
    seen.append(query.shape)
    return attn.dot(query, keys)

  def chunks(b, t, s, score=tanh, width=512):
    seen.clear()
    shapes = (b, t, width), (b, s, width)
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    jax.eval_shape(functools.partial(attn.attend, score=score), *arrays)
    return set(seen)

  assert chunks(2, 3, 5) == {(2, 3, 512)}
  # Looked at whole, then five of 61 queries and the last, of all sentences.
  assert chunks(2, 61, 11) == {(2, 61, 512), (2, 5, 512), (2, 1, 512)}
  # Looked at whole, then one query of some sentences: each is traced as one.
  assert chunks(64, 3, 50) == {(64, 3, 512), (1, 1, 512)}
  assert chunks(64, 61, 1024, dot) == {(64, 61, 512)}


@pytest.mark.parametrize("axes", [("devices",), (None, "devices")], ids=["batch", "queries"])
def test_parts_are_not_of_an_axis_that_devices_share(axes):
  """In a mesh as `jax.make_mesh` makes it, whose axes JAX does not loop over."""
  mesh = jax.make_mesh((1,), ("devices",))
  rng = np.random.default_rng(10)
  query, keys = (rng.normal(size=(3, size, 173)).astype(np.float32) for size in (5, 131))
  score = lambda query, keys: jnp.tanh(query[..., None, :] - keys).sum(-1)  # noqa: E731
  put = lambda array, axes: jax.device_put(array, NamedSharding(mesh, PartitionSpec(*axes)))  # noqa: E731
  result = attend(put(query, axes), put(keys, axes[:1]), score=score)
  whole = attend(query, keys, score=score, chunk=5)
  np.testing.assert_allclose(result.context, whole.context, atol=3e-6)
  np.testing.assert_allclose(result.weights, whole.weights, atol=1e-6)


@pytest.mark.parametrize(
  "chunk,error,message",
  [
    (0, ValueError, "attend: chunk is 0, expected at least 1"),
    (-3, ValueError, "attend: chunk is -3, expected at least 1"),
    (2.0, TypeError, "attend: chunk is a float, expected a Python int"),
    (True, TypeError, "attend: chunk is a bool, expected a Python int"),
  ],
)
def test_chunks_that_are_none(chunk, error, message):
  with pytest.raises(error) as raised:
    attn.attend(*memory(), chunk=chunk)
  assert str(raised.value) == message


@pytest.mark.parametrize("score", ["dot", "additive"])
def test_chunks_of_no_sentences(score):
  for shape in ((0, T, K), (2, 0, T, K)):
    keys = np.zeros((*shape[:-2], S, K), np.float32)
    result = attn.attend(np.zeros(shape, np.float32), keys, score=SCORES[score][0], chunk=2)
    assert result.context.shape == shape and result.weights.shape == (*shape[:-1], S)


@pytest.mark.parametrize("each", [False, True])
def test_a_score_may_know_its_axes_and_its_batch(each):
  """Whichever parts of them the size suggests, a score sees as many axes as it was given."""
  b, t, s, n = 3, 5, 127, 257
  rng = np.random.default_rng(9)
  query, keys = (rng.normal(size=(b, size, n)).astype(np.float32) for size in (t, s))
  w_a = rng.normal(size=(b, n) if each else (1, n)).astype(np.float32)

  def score(query, keys):
    assert not each or query.shape[0] == b
    projected = jnp.einsum("btn,bn->btn", query, jnp.broadcast_to(w_a, (query.shape[0], n)))
    return jnp.tanh(projected[:, :, None] + keys).sum(-1)

  result = jax.jit(functools.partial(attn.attend, score=score))(query, keys)
  whole = attn.softmax(jnp.tanh((query * w_a[:, None])[:, :, None] + keys[:, None]).sum(-1))
  np.testing.assert_allclose(result.weights, whole, atol=1e-5)


@pytest.mark.parametrize("chunk", [None, 1])
def test_a_score_of_the_query_alone_has_its_axes_alone(chunk):
  query, keys, values = memory()
  w_a = np.random.default_rng(7).normal(size=(S, K)).astype(np.float32)
  score = lambda query, keys: attn.location(query, w_a[: keys.shape[-2]])  # noqa: E731
  for queries in (query[0], query[:1]):
    shared = attn.attend(queries, keys, values, some_mask(), score=score, chunk=chunk)
    each = attn.attend(
      np.broadcast_to(query[0], query.shape), keys, values, some_mask(), score=score
    )
    close = functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-6)
    jax.tree.map(close, shared, each)
  local = attn.attend_local(
    query[0], keys, None, jnp.arange(3.0), S, half_width=1, score=lambda q, k: score(q, k)
  )
  assert local.context.shape == (B, T, K) and local.weights.shape == (B, T, 3)


def test_location_is_no_score_of_keys():
  """It would take them for its matrix, and be the dot score."""
  query, keys, _ = memory()
  expected = (
    "attend: score is attn.location, which takes no keys; use score=lambda query, keys: "
    "attn.location(query, w_a[: keys.shape[-2]])"
  )
  for score in (attn.location, functools.partial(attn.location, w_a=np.ones((S, K)))):
    with pytest.raises(ValueError) as error:
      attn.attend(query, keys, score=score)
    assert str(error.value) == expected
    with pytest.raises(ValueError, match="^softmax_gradients: score is attn.location"):
      attn.softmax_gradients(query[0, 0], keys[0], score=score)
    with pytest.raises(ValueError, match="^flax_attention_fn: score is attn.location"):
      attn.flax_attention_fn(score=score)


def test_parameters_may_be_lists_and_their_faults_name_the_score():
  query, keys, _ = memory()
  for name, parameters in (
    ("additive", {"w_a": W_A, "u_a": U_A, "v_a": V_A}),
    ("concat", {"w_a": W_C, "v_a": V_A}),
  ):
    score = functools.partial(getattr(attn, name), **parameters)
    lists = functools.partial(score, **{key: value.tolist() for key, value in parameters.items()})
    np.testing.assert_array_equal(
      attn.attend(query, keys, score=lists).weights, attn.attend(query, keys, score=score).weights
    )
    for key in {"w_a", "u_a"} & parameters.keys():
      for wrong in (parameters[key][:, :-1], np.hstack([parameters[key]] * 2)):
        with pytest.raises(ValueError, match=f"^{name}: {key} has shape"):
          attn.attend(query, keys, score=functools.partial(score, **{key: wrong}))


def test_a_score_need_not_be_hashable():
  class Score:
    __hash__ = None

    def __call__(self, query, keys):
      return attn.dot(query, keys)

  query, keys, _ = memory()
  for attend in (attn.attend, functools.partial(attn.attend, chunk=2)):
    np.testing.assert_array_equal(
      attend(query, keys, score=Score()).weights, attend(query, keys).weights
    )


def test_an_additive_score_in_parts_is_compiled_once(caplog):
  """Outside `jax.jit` too, whose cache does not know a function made anew."""
  query, keys, values = memory()
  attend = lambda: attn.attend(query, keys, values, score=SCORES["additive"][0], chunk=2)  # noqa: E731
  attend()
  with jax.log_compiles(), caplog.at_level("WARNING"):
    attend()
    assert not [record for record in caplog.messages if "Compiling" in record]
    jax.jit(lambda scores: scores - 1)(query)
    assert [record for record in caplog.messages if "Compiling" in record]


def test_location_scores_in_attend():
  """Luong's Eq. 8: the first rows of the matrix for a shorter sentence, an error for a longer."""
  query, keys, values = memory()
  w_a = np.random.default_rng(7).normal(size=(11, K)).astype(np.float32)
  mask = some_mask()
  keys[:, 4] = np.nan
  result = attend(
    query, keys, values, mask, score=lambda query, keys: attn.location(query, w_a[: keys.shape[-2]])
  )
  for b, t in itertools.product(range(B), range(T)):
    weights = reference.softmax(reference.location(query[b, t], w_a[:S]), mask[b, t])
    np.testing.assert_allclose(result.weights[b, t], weights, atol=1e-6)
    np.testing.assert_allclose(result.context[b, t], weights @ values[b], atol=3e-6)
  with pytest.raises(ValueError) as error:
    attn.attend(query, keys, score=lambda query, keys: attn.location(query, w_a[:5]))
  assert str(error.value) == (
    "attend: score returned shape (2, 3, 5), expected (2, 3, 7): a number for each of 3 queries "
    "and 7 source positions"
  )
