"""Local attention: windows, their Gaussian, and `attend_local` against the oracle."""

import functools
import itertools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attn
from tests import reference
from tests.attend_test import SCORES, every_score

B, T, S, K, V = 2, 3, 7, 5, 13
POSITIONS = np.array([[0.0, 2.5, 6.0], [-1.3, 4.0, 9.0]], np.float32)
LENGTHS = np.array([7, 5])
dtypes = pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])

# Compiled once for each score, option and shape, whichever tests use it.
OPTIONS = ("half_width", "score", "gaussian", "renormalise")
attend_local = jax.jit(attn.attend_local, static_argnames=OPTIONS)


def memory(seed=0, b=B, t=T, s=S):
  """Query, keys and values."""
  rng = np.random.default_rng(seed)
  shapes = (b, t, K), (b, s, K), (b, s, V)
  return tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)


def loss(query, keys, values, position, length, **options):
  context = attn.attend_local(query, keys, values, position, length, **options).context
  return jnp.sum(jnp.square(context.astype(jnp.float32)))


gradients = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)), static_argnames=OPTIONS)


def dense(query, keys, values, position, length, *, half_width, score, mask, bell, renormalise):
  """The same by a mask over the whole source and the Gaussian after the softmax."""
  size = keys.shape[-2]
  window = attn.window_mask(position, length[..., None], half_width=half_width, size=size)
  allowed = window if mask is None else window & mask[..., None, :]
  weights = attn.attend(query, keys, values, allowed, score=score).weights
  if bell:
    weights = weights * attn.gaussian(position, half_width=half_width, size=size)
    if renormalise:
      total = weights.sum(-1, keepdims=True)
      weights = weights / jnp.where(total == 0, 1, total)
  return attn.context(weights, values[..., None, :, :], allowed), weights


def spread(result, size):
  """Weights over the whole source, from those of the slots; slots beyond it have to weigh 0."""
  weights, positions = np.asarray(result.weights), np.asarray(result.positions)
  assert (np.diff(positions, axis=-1) == 1).all() and positions.dtype == np.int32
  assert (positions >= 0).all() and not weights[positions >= size].any()
  out = np.zeros((*weights.shape[:-1], max(size, positions.max(initial=0) + 1)))
  np.put_along_axis(out, positions, weights, -1)
  return out[..., :size]


def check(query, keys, values, position, length, half_width, score="dot", mask=None, **options):
  scale, bell = options.pop("scale", 1.0), options.get("gaussian", True)
  call = functools.partial(attend_local, half_width=half_width, score=SCORES[score][0], **options)
  result = call(query, keys, values, position, length, mask=mask, scale=scale)
  assert result.weights.shape == (*query.shape[:-1], 2 * half_width + 1)
  for b, t in itertools.product(range(query.shape[0]), range(query.shape[1])):
    context, weights = reference.attend_local(
      query[b, t],
      keys[b],
      values[b],
      float(position[b, t]),
      length[b],
      half_width,
      score=SCORES[score][1],
      mask=None if mask is None else mask[b],
      scale=scale,
      bell=bell,
      renormalise=options.get("renormalise", False),
    )
    np.testing.assert_allclose(spread(result, keys.shape[1])[b, t], weights, atol=2e-6)
    np.testing.assert_allclose(result.context[b, t], context, atol=5e-6)


@every_score
def test_attend_local_equals_the_oracle_for_every_score(score):
  mask = np.array([[True] * S, [False, True, True, True, False, True, True]])
  check(*memory(), POSITIONS, LENGTHS, 2, score, mask=mask, scale=-0.5)


@pytest.mark.parametrize("half_width", [0, 1, 3, 5])
@pytest.mark.parametrize(
  "options",
  [{}, {"gaussian": False}, {"renormalise": True}, {"gaussian": False, "renormalise": True}],
  ids=str,
)
def test_windows_of_every_kind(half_width, options):
  """Both edges, a length of 0, lengths under the window and over the source, windows over both."""
  query, keys, values = memory()
  for length in ([7, 0], [2, 90], [1, 3]):
    check(query, keys, values, POSITIONS, np.array(length), half_width, **options)


@pytest.mark.parametrize("s,t,b", [(0, T, B), (1, T, B), (S, 0, B), (S, T, 0)])
def test_edge_sizes(s, t, b):
  query, keys, values = memory(b=b, t=t, s=s)
  position, length = np.zeros((b, t), np.float32), np.full(b, s)
  result = attend_local(query, keys, values, position, length, half_width=2)
  assert result.context.shape == (b, t, V) and result.weights.shape == (b, t, 5)
  assert s or not result.context.any()
  for gradient in gradients(query, keys, values, position, length, half_width=2):
    assert np.isfinite(gradient).all()


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(
  # In eighths, whose distances float32 holds: what is just outside must not be rounded inside.
  st.lists(st.integers(-160, 160).map(lambda n: n / 8), min_size=T, max_size=T),
  st.integers(0, 2 * S),
)
def test_any_position_and_length(position, length):
  query, keys, values = (array[:1] for array in memory(2))
  check(query, keys, values, np.array([position], np.float32), np.array([length]), 2)


@every_score
@pytest.mark.parametrize(
  "bell,renormalise",
  [(True, True), *(pytest.param(bell, False, marks=pytest.mark.slow) for bell in (True, False))],
)
def test_gradients_equal_those_of_the_dense_form(score, bell, renormalise):
  """To queries, keys, values and, through the Gaussian, to the predicted position."""
  arrays = (*memory(), POSITIONS)
  options = {"half_width": 2, "score": SCORES[score][0], "renormalise": renormalise}
  mask = np.array([[True] * S, [False, True, True, True, False, True, True]])

  def of_dense(*arrays):
    context, _ = dense(*arrays, LENGTHS, mask=mask, bell=bell, **options)
    return jnp.sum(jnp.square(context))

  local = gradients(*arrays, LENGTHS, mask=mask, gaussian=bell, **options)
  for one, other in zip(local, jax.jit(jax.grad(of_dense, (0, 1, 2, 3)))(*arrays), strict=True):
    np.testing.assert_allclose(one, other, atol=3e-5)
  assert bool(local[3].any()) == bell


def test_gradients_equal_finite_differences_of_the_oracle():
  query, keys, values = (array[0].astype(np.float64) for array in memory(3))
  position, direction = np.array([1.3, 2.6, 5.8]), np.random.default_rng(4).normal(size=T)

  def of_oracle(position):
    rows = [reference.attend_local(query[t], keys, values, position[t], 6, 2)[0] for t in range(T)]
    return np.square(rows).sum()

  with jax.enable_x64(True):
    gradient = jax.grad(loss, 3)(query, keys, values, position, np.array(6), half_width=2)
  step = 1e-6
  ahead, behind = (of_oracle(position + h * direction) for h in (step, -step))
  assert np.vdot(gradient, direction) == pytest.approx((ahead - behind) / (2 * step), rel=1e-7)


def test_a_predicted_position_learns():
  """Through Eq. 9 and 10 to the parameters, until the centre is where the target is."""
  values, w_p = jnp.eye(S), jnp.eye(K)
  query = jnp.ones((1, K))

  def distance(v_p):
    position = attn.predict_position(query, S, w_p, v_p)
    local = attn.attend_local(
      jnp.zeros((1, K)), jnp.zeros((S, K)), values, position, jnp.array(S), half_width=3
    )
    return -jnp.log(local.context[0, 5] + 1e-6), position[0]

  step = jax.jit(jax.grad(distance, has_aux=True))
  v_p = jnp.zeros(K)
  for _ in range(200):
    gradient, _ = step(v_p)
    v_p -= 0.02 * gradient
  assert abs(float(distance(v_p)[1]) - 5) < 0.3


@dtypes
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_seen_reaches_nothing(dtype, bad):
  """Outside the window, past the length, or masked: neither a result nor a gradient."""
  arrays = [jnp.asarray(array, dtype) for array in memory()]
  position = jnp.array([[1.0, 2.0, 1.0], [1.0, 1.0, 2.0]])
  mask = np.ones((B, S), bool)
  mask[0, 2] = False
  length = jnp.array([6, 3])
  options = {"half_width": 1, "mask": mask}
  clean = attend_local(*arrays, position, length, **options)
  clean_gradients = gradients(*arrays, position, length, **options)
  for b, j in ((0, 2), (0, 5), (0, 6), (1, 3), (1, 5)):
    arrays[1], arrays[2] = arrays[1].at[b, j, 1].set(bad), arrays[2].at[b, j].set(bad)
  with jax.debug_nans(True):
    dirty = attend_local(*arrays, position, length, **options)
    dirty_gradients = gradients(*arrays, position, length, **options)
    eager = attn.attend_local(*arrays, position, length, **options)
  assert dirty.context.dtype == dirty.weights.dtype == dtype
  for one, other in zip((*clean, *clean_gradients), (*dirty, *dirty_gradients), strict=True):
    assert (one == other).all()
  np.testing.assert_allclose(
    np.asarray(eager.context, float), np.asarray(clean.context, float), atol=2e-2
  )


@every_score
@pytest.mark.parametrize("where", ["keys", "values"])
def test_what_is_seen_is_never_hidden(where, score):
  """A NaN or inf inside the window makes NaN of that query alone."""
  query, keys, values = memory()
  (keys if where == "keys" else values)[0, 3, 0] = np.inf
  position = np.array([[0.0, 2.0, 6.0], [3.0, 3.0, 3.0]], np.float32)
  result = attend_local(
    query, keys, values, position, np.array([7, 7]), half_width=1, score=SCORES[score][0]
  )
  assert (np.isnan(result.context).all(-1) == [[False, True, False], [False] * 3]).all()
  assert np.isnan(result.weights[0, 1]).any() == (where == "keys")


def test_a_query_with_an_empty_window():
  """Zeros and no gradient, even if it is not finite itself: local-m past the end, or length 0."""
  query, keys, values = memory()
  query[0, 2] = query[1] = np.nan
  position, length = np.array([[0.0, 1, 9], [0, 1, 2]], np.float32), np.array([7, 0])
  result = attend_local(query, keys, values, position, length, half_width=1, gaussian=False)
  assert not result.context[0, 2].any() and not result.context[1].any()
  for far in (1e30, -1e30, np.inf):
    position[0, 2] = far
    moved = attend_local(query, keys, values, position, length, half_width=1)
    assert not moved.context[0, 2].any() and np.isfinite(moved.context).all()
    for gradient in gradients(query, keys, values, position, length, half_width=1):
      assert np.isfinite(gradient).all()
      assert not gradient[1].any() and (gradient.shape[1] != T or not gradient[0, 2].any())


def test_a_position_that_is_nan_is_not_hidden():
  position = POSITIONS.copy()
  position[0, 1] = np.nan
  result = attend_local(*memory(), position, LENGTHS, half_width=2)
  assert np.isnan(result.context[0, 1]).all() and np.isnan(result.weights[0, 1]).all()
  assert np.isfinite(result.context[1]).all()
  assert not attn.window_mask(np.float32(np.nan), 5, half_width=2, size=5).any()
  assert np.isnan(attn.gaussian(np.float32(np.nan), half_width=2, size=5)).all()


def test_a_mask_does_not_hide_a_position_that_is_nan():
  query, keys, values = memory()
  mask = np.zeros((B, S), bool)
  mask[:, 4:] = True  # Of what could be any window it leaves nothing in the first one.
  position = np.full((B, T), np.nan, np.float32)
  call = functools.partial(attn.attend_local, half_width=1, mask=mask)
  result = call(query, keys, values, position, np.array([S, 0]))
  assert np.isnan(result.context[0]).all() and not result.weights.any()
  assert not result.context[1].any()
  pull = jax.vjp(lambda keys: call(query, keys, values, position, S).context, keys)[1]
  assert not pull(jnp.ones((B, T, V)))[0][~mask].any()


@pytest.mark.parametrize("kind", ["uint8", "int8", "uint32", "int64", "uint64"])
def test_lengths_of_any_integer_type(kind):
  """A size that the type cannot hold, and a length that int32 cannot."""
  size = 300
  query, keys, _ = memory(s=size)
  length = np.array([np.iinfo(kind).max, 100], kind)
  position = np.array([[99.0, 100.0, 120.0]] * B, np.float32)
  held = np.array([min(np.iinfo(kind).max, size), 100], np.int32)
  wanted = attend_local(query, keys, None, position, held, half_width=2)
  for call in (attend_local, attn.attend_local):
    if call is attend_local and np.iinfo(kind).bits == 64:
      continue  # Compiled, JAX makes 32 bits of 64 before an op can see them.
    result = call(query, keys, None, position, length, half_width=2)
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-6), result, wanted)
  assert result.weights[0].any() and not result.weights[1, 2].any()


@pytest.mark.parametrize("half_width", [0, 2])
def test_positions_are_int32_and_promotion_strict_where_64_bits_are_on(half_width):
  query, keys, values = memory()
  wanted = attn.attend_local(query, keys, values, POSITIONS, LENGTHS, half_width=half_width)
  with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
    for wide in (np.float32, np.float64):
      arrays = (array.astype(wide) for array in (query, keys, values))
      lengths = LENGTHS.astype(np.int32 if wide is np.float32 else np.int64)
      result = attn.attend_local(*arrays, POSITIONS, lengths, half_width=half_width)
      assert result.positions.dtype == np.int32 and result.weights.dtype == wide
      np.testing.assert_allclose(result.context, wanted.context, atol=1e-5)
      assert attn.length_mask(lengths, S).sum() == LENGTHS.sum()
      window = attn.window_mask(POSITIONS[0, 0], lengths[0], half_width=half_width, size=S)
      assert window.sum() == half_width + 1


def test_a_window_may_be_wider_than_int32():
  wide = 2**40
  assert attn.window_mask(2.0, 3, half_width=wide, size=4).tolist() == [True, True, True, False]
  np.testing.assert_array_equal(attn.gaussian(2.0, half_width=wide, size=4), np.ones(4))


@dtypes
def test_positions_are_not_rounded_to_sixteen_bits(dtype):
  """bfloat16 would make 700 of 701, and float16 2048 of 2049."""
  size, centre = 2051, 2049
  query, keys = jnp.ones((1, K), dtype), jnp.zeros((size, K), dtype)
  result = attn.attend_local(
    query, keys, keys, jnp.array([centre], jnp.int32), jnp.array(size), half_width=1
  )
  assert result.positions.tolist() == [[2048, 2049, 2050]]
  assert result.weights.dtype == dtype and result.weights[0].argmax() == 1
  position = attn.predict_position(
    jnp.zeros(K, dtype), 1402, jnp.eye(K, dtype=dtype), jnp.ones(K, dtype)
  )
  assert position.dtype == np.float32 and position == 701
  assert attn.gaussian(jnp.asarray(2, dtype), half_width=2, size=5).dtype == np.float32


@pytest.mark.parametrize("half_width", [0, 1, 2, 5])
@pytest.mark.parametrize("position", [-2.0, 0.0, 2.5, 4.0, 7.25])
def test_windows_and_gaussians_equal_the_oracle(half_width, position):
  for length in (0, 3, 5, 9):
    window = attn.window_mask(position, length, half_width=half_width, size=5)
    assert (window == reference.window_mask(position, length, half_width, 5)).all()
  bell = attn.gaussian(position, half_width=half_width, size=5)
  np.testing.assert_allclose(bell, reference.gaussian(position, half_width, 5), atol=1e-6)
  slope = jax.grad(lambda p: attn.gaussian(p, half_width=half_width, size=5).sum())(position)
  assert np.isfinite(slope) and (half_width or slope == 0)


def test_the_mass_inside_a_window_of_uniform_weights():
  """Luong's Eq. 10 is not renormalised: with D = 10 the weights sum to 0.5757."""
  query, keys = jnp.zeros((1, K)), jnp.zeros((101, K))
  local = functools.partial(
    attn.attend_local, query, keys, keys, jnp.array([50.0]), jnp.array(101), half_width=10
  )
  assert float(local().weights.sum()) == pytest.approx(0.57568, abs=1e-5)
  assert float(local(renormalise=True).weights.sum()) == pytest.approx(1, abs=1e-6)
  assert float(local().weights[0, 0] / local().weights[0, 10]) == pytest.approx(
    np.exp(-2), rel=1e-5
  )


def test_restrictions_are_anded():
  """ATT-07: lengths, a window and the user's own mask, each alone and together."""
  values = jnp.array([[1.0], [2.0], [3.0], [4.0]])
  expected = {
    (): 2.5, ('length',): 1.5, ('window',): 3.0, ('user',): 8 / 3, ('length', 'window'): 2.0,
    ('length', 'user'): 1.0, ('window', 'user'): 3.5, ('length', 'window', 'user'): 0.0,
  }  # fmt: skip
  for names, mean in expected.items():
    context = attend_local(
      jnp.zeros((1, 1)),
      jnp.zeros((4, 1)),
      values,
      jnp.array([2.0]),
      jnp.array(2 if "length" in names else 4),
      half_width=1 if "window" in names else 4,
      mask=jnp.array([True, False, True, True]) if "user" in names else None,
      gaussian=False,
    ).context
    assert float(context[0, 0]) == pytest.approx(mean), names


def test_leading_axes_broadcast_and_shared_memory_is_not_copied():
  query, keys, values = memory()
  keys, values = keys[0], values[0]
  result = attend_local(query, keys, values, POSITIONS, np.array(7), half_width=2)
  for b in range(B):
    alone = attend_local(query[b], keys, values, POSITIONS[b], np.array(7), half_width=2)
    for one, other in zip(alone, result, strict=True):
      np.testing.assert_allclose(one, other[b], atol=2e-6)
  seen = []

  def score(query, keys):
    seen.append(keys.shape)
    return attn.dot(query, keys)

  one_position = POSITIONS[0]
  lengths = np.array([7, 5])
  shared = attn.attend_local(
    query, keys, values, one_position, np.array(7), half_width=2, score=score
  )
  assert seen == [(1, T, 5, K)] and shared.weights.shape == (B, T, 5)
  many = attn.attend_local(query[0], keys, values, one_position, lengths, half_width=2)
  assert many.context.shape == (B, T, V) and many.positions.shape == (B, T, 5)


def test_vmap_scan_and_forward_mode():
  query, keys, values = memory()
  call = functools.partial(attn.attend_local, half_width=2, score=SCORES["additive"][0])
  whole = attend_local(
    query, keys, values, POSITIONS, LENGTHS, half_width=2, score=SCORES["additive"][0]
  )
  mapped = jax.jit(jax.vmap(call))(query, keys, values, POSITIONS, LENGTHS)

  def step(_, inputs):
    query, position = inputs
    return None, call(query[:, None], keys, values, position[:, None], LENGTHS).context[:, 0]

  swapped = np.swapaxes(query, 0, 1), np.swapaxes(POSITIONS, 0, 1)
  _, scanned = jax.jit(lambda *inputs: jax.lax.scan(step, None, inputs))(*swapped)
  for contexts in (mapped.context, np.swapaxes(scanned, 0, 1)):
    np.testing.assert_allclose(contexts, whole.context, atol=3e-6)
  along = functools.partial(
    loss, query, keys, values, length=LENGTHS, half_width=2, score=SCORES["additive"][0]
  )
  _, slope = jax.jvp(jax.jit(along), [POSITIONS], [np.ones_like(POSITIONS)])
  assert float(slope) == pytest.approx(float(jax.jit(jax.grad(along))(POSITIONS).sum()), rel=1e-4)


@pytest.mark.parametrize("score", ["dot", "general", "additive"])
def test_forward_work_does_not_grow_with_the_source(score):
  def flops(s):
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((B, T, K), (B, s, K), (B, T))]
    call = lambda q, k, p: attn.attend_local(  # noqa: E731
      q, k, k, p, jnp.full(B, s), half_width=2, score=SCORES[score][0]
    )
    return jax.jit(call).lower(*arrays).compile().cost_analysis()["flops"]

  assert flops(11) == flops(1009)


def local(**changes):
  query, keys, values = memory()
  given = {
    "query": query, "keys": keys, "values": values, "position": POSITIONS, "length": LENGTHS,
    "half_width": 2,
  }  # fmt: skip
  return lambda: attn.attend_local(**{**given, **changes})


@pytest.mark.parametrize(
  "call,error,message",
  [
    (local(half_width=-1), ValueError, "attend_local: half_width is -1, expected at least 0"),
    (
      local(half_width=2.5),
      TypeError,
      "attend_local: half_width is a float, expected a Python int",
    ),
    (
      local(length=np.ones(B, np.float32)),
      TypeError,
      "attend_local: length has dtype float32, expected integers",
    ),
    (
      local(mask=np.ones((B, S), np.float32)),
      TypeError,
      "attend_local: mask has dtype float32, expected bool (True where the query may attend)",
    ),
    (
      local(mask=np.ones((B, T), bool)),
      ValueError,
      "attend_local: mask has shape (2, 3), expected (..., s) with s = 7 from keys of shape "
      "(2, 7, 5)",
    ),
    (
      local(position=np.ones((B, S), np.float32)),
      ValueError,
      "attend_local: position has shape (2, 7), expected (..., t) with t = 3 from query of shape "
      "(2, 3, 5)",
    ),
    (
      local(score=attn.location),
      ValueError,
      "attend_local: score is attn.location, which scores absolute positions; use attn.attend with "
      "mask=attn.window_mask(...)",
    ),
    (
      local(score=functools.partial(functools.partial(attn.location), w_a=np.ones((S, K)))),
      ValueError,
      "attend_local: score is attn.location, which scores absolute positions; use attn.attend with "
      "mask=attn.window_mask(...)",
    ),
    (
      local(score=lambda query, keys: jnp.zeros((B, T, S))),
      ValueError,
      "attend_local: score returned shape (2, 3, 7), expected (2, 3, 5): a number for each of 3 "
      "queries and 5 source positions",
    ),
    (
      lambda: attn.window_mask(np.ones(3), np.ones(2, int), half_width=1, size=5),
      ValueError,
      "window_mask: length has shape (2,), expected leading axes that broadcast with (3,)",
    ),
    (
      lambda: attn.window_mask(1.0, 2.0, half_width=1, size=5),
      TypeError,
      "window_mask: length has dtype float32, expected integers",
    ),
    (
      lambda: attn.gaussian(1.0, half_width=1.0, size=5),
      TypeError,
      "gaussian: half_width is a float, expected a Python int",
    ),
    (
      lambda: attn.gaussian(1.0, half_width=1, size=-5),
      ValueError,
      "gaussian: size is -5, expected at least 0",
    ),
  ],
)
def test_faults_are_one_line_at_trace_time(call, error, message):
  with pytest.raises(error) as raised:
    jax.eval_shape(call)
  assert str(raised.value) == message
