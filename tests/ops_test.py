"""Every op of one query against the float64 oracle: one shared suite, parametrised over the ops."""

import dataclasses
import functools
from collections.abc import Callable

import hypothesis
import hypothesis.extra.numpy as arrays_of
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attn
from tests import reference

SIZES = {"s": 7, "k": 5, "q": 17, "n": 11, "v": 13, "q+k": 22}
B, T = 2, 3

# Relative to the largest magnitude of the result, at matmul precision 'highest'. The inputs are
# rounded first, so that only the op's own error counts: 16-bit results are rounded once.
TOLERANCE = {"float64": 1e-13, "float32": 2e-6, "bfloat16": 5e-3, "float16": 6e-4}


@dataclasses.dataclass(frozen=True)
class Case:
  """An op, its oracle and the core dimensions of its arguments, which tests fill with numbers."""

  name: str
  signature: str
  takes_mask: bool = False  # as the last argument
  options: dict[str, float] = dataclasses.field(default_factory=dict)
  wide: bool = False  # returns at least float32

  @property
  def op(self) -> Callable[..., jax.Array]:
    return functools.partial(getattr(attn, self.name), **self.options)

  @property
  def oracle(self) -> Callable[..., np.ndarray]:
    one = functools.partial(getattr(reference, self.name), **self.options)
    return np.vectorize(one, signature=self.signature.replace("+", "_"))

  @property
  def inputs(self) -> list[tuple[str, ...]]:
    cores = self.signature.split("->")[0].strip("()").split("),(")
    return [tuple(filter(None, core.split(","))) for core in cores]

  def arrays(self, leading: tuple[int, ...] = (), seed: int = 0) -> list[np.ndarray]:
    """Float64 arrays; for the leading axes (b, t) the memory is shared by the t queries of b."""
    rng = np.random.default_rng(seed)
    arrays = []
    for core in self.inputs:
      memory, parameter = core[:1] == ("s",) and len(core) == 2, is_parameter(core)
      axes = () if parameter else (*leading[:-1], *[1] * bool(leading)) if memory else leading
      arrays.append(rng.normal(size=(*axes, *(SIZES[dim] for dim in core))))
    if self.inputs[0] == ("s",) and self.name not in ("softmax", "logit_variance"):  # weights
      arrays[0] = np.exp(arrays[0]) / np.exp(arrays[0]).sum(-1, keepdims=True)
    if self.takes_mask:
      arrays[-1] = arrays[-1] > -0.5
    return arrays

  def __str__(self) -> str:
    return "-".join([self.name, *(["mask"] if self.takes_mask else []), *self.options])


def is_parameter(core: tuple[str, ...]) -> bool:
  return core[:1] == ("n",) or core == ("q", "k")


CASES = [
  Case("dot", "(k),(s,k)->(s)"),
  Case("scaled_dot", "(k),(s,k)->(s)"),
  Case("cosine", "(k),(s,k)->(s)"),
  Case("general", "(q),(s,k),(q,k)->(s)"),
  Case("concat", "(q),(s,k),(n,q+k),(n)->(s)"),
  Case("location", "(q),(s,q)->(s)"),
  Case("predict_position", "(q),(),(n,q),(n)->()", wide=True),
  Case("additive", "(q),(s,k),(n,q),(n,k),(n)->(s)"),
  Case("project_keys", "(s,k),(n,k)->(s,n)"),
  Case("additive_projected", "(q),(s,n),(n,q),(n)->(s)"),
  Case("softmax", "(s)->(s)"),
  Case("softmax", "(s),(s)->(s)", takes_mask=True),
  Case("softmax", "(s),(s)->(s)", takes_mask=True, options={"scale": -1.5}),
  Case("context", "(s),(s,v)->(v)"),
  Case("context", "(s),(s,v),(s)->(v)", takes_mask=True),
  Case("entropy", "(s)->()"),
  Case("effective_support", "(s)->()"),
  Case("max_weight", "(s)->()"),
  Case("jacobian_norm", "(s)->()"),
  Case("logit_variance", "(s)->()"),
  Case("logit_variance", "(s),(s)->()", takes_mask=True),
]
every_case = pytest.mark.parametrize("case", CASES, ids=str)


def assert_close(actual, expected, dtype="float32", factor=1.0):
  """Compares within the tolerance of `dtype`, relative to the largest magnitude expected."""
  expected = np.asarray(expected, np.float64)
  scale = max(np.abs(expected).max(initial=0), 1e-30)
  bound = TOLERANCE[dtype] * factor * scale
  np.testing.assert_allclose(np.asarray(actual, np.float64), expected, rtol=0, atol=bound)


def cast(arrays, dtype):
  return [a if a.dtype == bool else jnp.asarray(a, dtype) for a in arrays]


@every_case
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_values_equal_the_oracle_in_every_dtype(case, dtype):
  with jax.enable_x64(dtype == "float64"):
    arrays = cast(case.arrays((B, T)), dtype)
    result = case.op(*arrays)
    dtype = np.promote_types(dtype, np.float32).name if case.wide else dtype
    assert result.dtype == dtype
  exact = [a if a.dtype == bool else np.asarray(a, np.float64) for a in arrays]
  expected = case.oracle(*exact)
  assert result.shape == expected.shape
  assert_close(result, expected, dtype)


@every_case
def test_one_query_needs_no_leading_axes(case):
  arrays = case.arrays()
  assert_close(case.op(*arrays), case.oracle(*arrays))


@every_case
def test_jit_and_vmap_equal_a_batch(case):
  arrays = cast(case.arrays((B, T)), jnp.float32)
  expected = case.op(*arrays)
  assert_close(jax.jit(case.op)(*arrays), expected)
  # Over b, then over t where an argument has it, so that the op itself sees one query.
  batched = [a.ndim > len(core) for a, core in zip(arrays, case.inputs, strict=True)]
  queries = [b and a.shape[1] == T for a, b in zip(arrays, batched, strict=True)]
  one = [a[:, 0] if b and not q else a for a, b, q in zip(arrays, batched, queries, strict=True)]
  op = jax.vmap(case.op, [0 if q else None for q in queries]) if any(queries) else case.op
  result = jax.jit(jax.vmap(op, [0 if b else None for b in batched]))(*one)
  assert_close(result, expected if any(queries) else expected[:, 0])


@every_case
def test_gradients_equal_finite_differences_of_the_oracle(case):
  arrays = case.arrays()
  options = [a for a in arrays if a.dtype == bool]
  arrays = arrays[: len(arrays) - len(options)]
  rng = np.random.default_rng(1)
  tangents = [rng.normal(size=a.shape) for a in arrays]
  cotangent = rng.normal(size=np.shape(case.oracle(*arrays, *options)))
  with jax.enable_x64(True):
    op = jax.jit(lambda *arrays: case.op(*arrays, *options))
    _, pull = jax.vjp(op, *arrays)
    reverse = sum(
      np.vdot(gradient, tangent)
      for gradient, tangent in zip(pull(jnp.asarray(cotangent)), tangents, strict=True)
    )
    _, moved = jax.jvp(op, arrays, tangents)
    forward = np.vdot(cotangent, moved)
  step = 1e-6
  ahead, behind = (
    case.oracle(*(a + h * d for a, d in zip(arrays, tangents, strict=True)), *options)
    for h in (step, -step)
  )
  expected = np.vdot(cotangent, ahead - behind) / (2 * step)
  assert reverse == pytest.approx(expected, rel=1e-7, abs=1e-9)
  assert forward == pytest.approx(expected, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize(
  "name", ["dot", "scaled_dot", "cosine", "general", "concat", "additive_projected"]
)
def test_a_scan_over_queries_equals_the_batch_with_its_gradient(name):
  case = next(case for case in CASES if case.name == name)
  query, memory, *parameters = cast(case.arrays((B, T)), jnp.float32)

  def batched(query, memory):
    return jnp.tanh(case.op(query, memory, *parameters)).sum()

  def scanned(query, memory):
    def step(total, query):
      return total + jnp.tanh(case.op(query, memory[:, 0], *parameters)).sum(), None

    return jax.lax.scan(step, 0.0, jnp.swapaxes(query, 0, 1))[0]

  for actual, expected in zip(
    jax.jit(jax.grad(scanned, (0, 1)))(query, memory),
    jax.jit(jax.grad(batched, (0, 1)))(query, memory),
    strict=True,
  ):
    assert_close(actual, expected)


@every_case
def test_integers_become_float32_and_strict_promotion_holds(case):
  arrays = [a if a.dtype == bool else np.round(3 * a).astype(np.int32) for a in case.arrays()]
  with jax.numpy_dtype_promotion("strict"):
    result = case.op(*arrays)
  assert result.dtype == np.float32
  assert_close(result, case.oracle(*arrays))


def test_float_arrays_promote_and_integers_take_no_part():
  half, single = np.ones(5, np.float16), np.ones((7, 5), np.float32)
  assert attn.dot(half, single).dtype == np.float32
  assert attn.dot(half, single.astype(jnp.bfloat16)).dtype == np.float32
  assert attn.dot(half, single.astype(np.int32)).dtype == np.float16
  assert attn.softmax(half, scale=np.float32(2)).dtype == np.float16


@pytest.mark.parametrize(
  "name,products", [("dot", 1), ("scaled_dot", 1), ("cosine", 1), ("general", 2)]
)
def test_many_queries_against_many_sentences_are_one_matrix_product(name, products):
  """`general` has one more, of all queries with W_a."""
  case = next(case for case in CASES if case.name == name)
  arrays = cast(case.arrays((B, T)), jnp.float32)
  assert jax.jit(case.op).lower(*arrays).as_text().count("dot_general") == products


def test_scores_that_are_others_in_another_dress():
  query, keys, w_a, u_a, v_a = next(c for c in CASES if c.name == "additive").arrays((B, T))
  additive = attn.additive(query, keys, w_a, u_a, v_a)
  assert_close(attn.concat(query, keys, np.concatenate([w_a, u_a], -1), v_a), additive)
  # Luong's released code: v_a^T tanh(W_a h_t + h_s).
  wide = np.random.default_rng(2).normal(size=(B, 1, 7, 11))
  released = np.tanh((query @ w_a.T)[:, :, None] + wide) @ v_a
  assert_close(attn.additive(query, wide, w_a, np.eye(11), v_a), released)
  assert_close(attn.additive_projected(query, wide, w_a, v_a), released)
  same = query[..., :5]
  assert_close(attn.general(same, keys, np.eye(5)), attn.dot(same, keys))
  assert_close(attn.scaled_dot(same, keys), attn.dot(same, keys) / np.sqrt(5))
  lengths = np.linalg.norm(same, axis=-1, keepdims=True) * np.linalg.norm(keys, axis=-1)
  assert_close(attn.cosine(same, keys) * lengths, attn.dot(same, keys))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_cosine_of_vectors_of_any_length(dtype):
  """The angle alone; a zero vector scores 0 with zero gradient."""
  rng = np.random.default_rng(0)
  query, keys = (jnp.asarray(rng.normal(size=shape), dtype) for shape in ((5,), (7, 5)))
  expected = reference.cosine(np.asarray(query, float), np.asarray(keys, float))
  limits = jnp.finfo(dtype)
  for factor in (0.1 * limits.max, limits.tiny * 64, -1.0):
    assert_close(
      attn.cosine(query * jnp.asarray(factor, dtype), keys), np.sign(factor) * expected, dtype, 4
    )
  keys = keys.at[2].set(0)
  zero = jnp.zeros_like(query)
  scores, pull = jax.vjp(attn.cosine, query, keys)
  d_query, d_keys = pull(jnp.ones_like(scores))
  assert scores[2] == 0 and not d_keys[2].any() and jnp.isfinite(d_query).all()
  scores, pull = jax.vjp(attn.cosine, zero, keys)
  assert not scores.any() and not any(gradient.any() for gradient in pull(jnp.ones_like(scores)))
  # The gradient to a vector is orthogonal to it, and does not follow its length.
  assert abs(float(jnp.vdot(d_query.astype(jnp.float32), query.astype(jnp.float32)))) < 0.02


def test_additive_never_transposes_the_alignment_tensor():
  """It would cost a copy of [b, s, n] each step, three times the time of the whole step."""
  arrays = Case("additive_projected", "(q),(s,n),(n,q),(n)->(s)").arrays((B,))
  arrays[1] = arrays[1].repeat(B, 0)
  compiled = jax.jit(attn.additive_projected).lower(*cast(arrays, jnp.float32)).compile()
  assert "tanh" in compiled.as_text() and "transpose(" not in compiled.as_text()


def test_golden_numbers_of_the_chapter():
  values = jnp.array([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
  weights = attn.softmax(jnp.array([2.0, 4.0, 3.0]))
  np.testing.assert_allclose(weights, [0.0900306, 0.6652410, 0.2447285], atol=1e-7)
  np.testing.assert_allclose(attn.context(weights, values), [0.4247896, 1.5752104], atol=2e-7)
  # The scores grow: claims 64 to 66 of the chapter.
  for scale, expected in ((2, [0.015876, 0.866813, 0.117310]), (4, [0.000329, 0.981690, 0.017980])):
    np.testing.assert_allclose(
      attn.softmax(jnp.array([2.0, 4.0, 3.0]), scale=scale), expected, atol=1e-6
    )
  norms = [
    float(attn.jacobian_norm(attn.softmax(jnp.array([2.0, 4.0, 3.0]), scale=scale)))
    for scale in (1, 2, 4, 8)
  ]
  np.testing.assert_allclose(norms, [0.389, 0.213, 0.0355, 0.00067], rtol=5e-3)


@pytest.mark.parametrize(
  "name,expected",
  [
    ("dot", [0.909443, 0.0452785, 0.0452785]),
    ("general", [0.24472847, 0.66524096, 0.09003057]),
    ("concat", [0.16280854, 0.64691125, 0.19028021]),
    ("additive", [0.85827525, 0.08695044, 0.0547743]),
  ],
)
def test_golden_weights_of_each_score(name, expected):
  """ATT-08: the named formula, normalised over the source, at batch size 1."""
  query, keys = jnp.array([[[1.0, -1.0]]]), jnp.array([[[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]]])
  score = {
    "dot": attn.dot,
    "general": functools.partial(attn.general, w_a=jnp.array([[1.0, 2.0], [0.0, 1.0]])),
    "concat": functools.partial(
      attn.concat,
      w_a=jnp.array([[1.0, 0.0, 0.5, 0.0], [0.0, 1.0, 0.0, 0.5]]),
      v_a=jnp.array([1.0, 2.0]),
    ),
    "additive": functools.partial(
      attn.additive,
      w_a=jnp.array([[1.0, 0.5], [0.0, 1.0]]),
      u_a=jnp.array([[0.5, 0.0], [1.0, -1.0]]),
      v_a=jnp.array([1.0, 2.0]),
    ),
  }[name]
  attend = jax.jit(functools.partial(attn.attend, score=score))
  context, weights, _ = attend(query, keys)
  np.testing.assert_allclose(weights, [[expected]], atol=1e-6)
  order = np.array([2, 0, 1])
  moved = attend(query, keys[:, order])
  np.testing.assert_allclose(moved.weights, weights[..., order], atol=1e-7)
  np.testing.assert_allclose(moved.context, context, atol=1e-6)


def test_half_precision_scores_do_not_overflow_before_the_scale():
  """ATT-04."""
  query = np.full(64, 40, np.float16)
  keys = np.stack([np.full(64, 40, np.float16), np.full(64, 39.96875, np.float16)])
  weights = jax.jit(attn.attend)(query[None], keys, scale=1 / 256).weights
  np.testing.assert_allclose(np.asarray(weights, float), [[0.57749537, 0.42250463]], atol=2e-3)
  np.testing.assert_allclose(
    attn.softmax(jnp.array([[1000.0, 1001.0], [-1000.0, -1001.0]])),
    [[0.26894142, 0.73105858], [0.73105858, 0.26894142]],
    atol=1e-6,
  )


@pytest.mark.parametrize("scale", [128**-0.5, -0.3, 0.0, 10.0])
def test_a_scale_of_large_scores_loses_no_row(scale):
  """ATT-04: a product that is rounded where the maximum is taken, and fused where it is used."""
  scores = np.random.default_rng(4).normal(size=(53, 7)).astype(np.float32)
  for magnitude in (3e10, 3e37):
    large = scores * np.float32(magnitude)
    weights, pull = jax.vjp(lambda x, c: attn.softmax(x, scale=c), large, scale)
    expected = [reference.softmax(row, scale=scale) for row in large.astype(np.float64)]
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    assert all(np.isfinite(gradient).all() for gradient in pull(jnp.asarray(scores / 1000)))
  query, keys = np.full((1, 128), 30000, np.float16), np.full((2, 128), 30000, np.float16)
  keys[1] = 29984
  weights = jax.jit(attn.attend)(query, keys, scale=scale).weights
  assert weights.tolist() == [[0.5, 0.5] if scale == 0 else [1, 0] if scale > 0 else [0, 1]]


def test_long_rows_of_half_precision_still_sum_to_one():
  weights = attn.softmax(jnp.zeros(8192, jnp.float16))
  assert float(np.asarray(weights, np.float64).sum()) == pytest.approx(1, abs=1e-3)
  assert float(attn.context(weights, jnp.ones((8192, 1), jnp.float16))[0]) == pytest.approx(
    1, abs=1e-3
  )


@every_case
@pytest.mark.parametrize("b,s", [(0, 7), (2, 0)])
def test_empty_batches_and_empty_sources(case, b, s):
  sizes = {**SIZES, "s": s}
  arrays = [
    np.ones((*(() if is_parameter(core) else (b,)), *(sizes[dim] for dim in core)), np.float32)
    for core in case.inputs
  ]
  if case.takes_mask:
    arrays[-1] = arrays[-1] > 0
  result = case.op(*arrays)
  output = [sizes[dim] for dim in case.signature.split("->")[1].strip("()").split(",") if dim]
  assert result.shape == (b, *output)
  assert not result.any() or s or "s" not in case.signature
  gradient = jax.jit(jax.grad(lambda a: case.op(a, *arrays[1:]).sum()))(arrays[0])
  assert np.isfinite(gradient).all()


saturated = pytest.mark.parametrize(
  "weights",
  [
    [1, 1e-9],
    [1, 1e-20],
    [1 - 2**-20, 2**-20],
    [1e-30, 1, 1e-30],
    [0.5, 0.5],
    [0.9, 0.2, 0.1],
    [1, 1],
  ],
)


@saturated
def test_jacobian_norm_keeps_its_digits(weights):
  weights = np.array(weights, np.float32)
  expected = reference.jacobian_norm(weights.astype(np.float64))
  np.testing.assert_allclose(attn.jacobian_norm(weights), expected, rtol=1e-6)
  np.testing.assert_allclose(attn.jacobian_norm(weights[::-1]), expected, rtol=1e-6)


@pytest.mark.parametrize("weights", [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
def test_measures_of_rows_without_spread(weights):
  weights = jnp.array(weights)
  for measure in (attn.entropy, attn.jacobian_norm):
    assert measure(weights) == 0
    assert (jax.grad(measure)(weights)[weights == 0] == 0).all()
  assert not jax.grad(attn.jacobian_norm)(weights).any()
  assert attn.max_weight(weights) == weights.max()


@pytest.mark.parametrize("measure", [attn.entropy, attn.max_weight, attn.jacobian_norm])
def test_measures_do_not_hide_a_nan(measure):
  assert np.isnan(measure(jnp.array([0.5, jnp.nan, 0.5])))


finite = st.floats(-30, 30, width=32)
rows = arrays_of.arrays(np.float32, (5,), elements=finite)
masks = arrays_of.arrays(bool, (5,))


@hypothesis.settings(max_examples=40)
@hypothesis.given(rows, masks, st.floats(-20, 20, width=32))
def test_softmax_rows_sum_to_one_or_zero_and_ignore_a_shift(scores, mask, shift):
  weights = np.asarray(attn.softmax(scores, mask))
  assert weights.sum() == pytest.approx(float(mask.any()), abs=1e-6)
  assert not weights[~mask].any() and (weights >= 0).all()
  np.testing.assert_allclose(attn.softmax(scores + shift, mask), weights, atol=2e-5)


@hypothesis.settings(max_examples=40)
@hypothesis.given(
  rows, masks, arrays_of.arrays(np.float32, (5, 2), elements=finite), st.permutations(range(5))
)
def test_the_context_lies_in_the_hull_and_does_not_depend_on_the_order(scores, mask, values, order):
  weights = attn.softmax(scores, mask)
  context = np.asarray(attn.context(weights, values, mask))
  if mask.any():
    assert (context >= values[mask].min(0) - 1e-4).all()
    assert (context <= values[mask].max(0) + 1e-4).all()
  else:
    assert not context.any()
  order = np.array(order)
  moved = attn.softmax(scores[order], mask[order])
  np.testing.assert_allclose(moved, np.asarray(weights)[order], atol=1e-6)
  np.testing.assert_allclose(attn.context(moved, values[order], mask[order]), context, atol=1e-4)


def test_functions_with_bound_parameters_are_scores():
  query, keys, w_a, u_a, v_a = next(c for c in CASES if c.name == "additive").arrays()
  score = functools.partial(attn.additive, w_a=w_a, u_a=u_a, v_a=v_a)
  assert_close(score(query, keys), reference.additive(query, keys, w_a, u_a, v_a))


def test_scales_may_be_traced_zero_or_negative():
  scores = jnp.array([2.0, 4.0, jnp.inf])
  mask = jnp.array([True, True, False])
  for scale in (0.0, -2.0, 1.5):
    expected = reference.softmax(np.asarray(scores), np.asarray(mask), scale)
    result = jax.jit(lambda c: attn.softmax(scores, mask, scale=c))(scale)
    assert_close(result, expected)
    assert np.isfinite(jax.grad(lambda c: attn.softmax(scores, mask, scale=c)[0])(scale))
