"""Every public op lowers for GPU and TPU: `jax.export` needs no device of the kind."""

import functools
import importlib.util
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

import attn

B, T, S, Q, K, V, N = 2, 3, 7, 17, 5, 13, 11


def array(*shape, dtype=jnp.float32):
  return jax.ShapeDtypeStruct(shape, dtype)


QUERY, KEYS, VALUES, MASK = array(B, T, K), array(B, S, K), array(B, S, V), array(B, S, dtype=bool)
ROWS, POSITION, LENGTH = array(B, T, S), array(B, T), array(B, dtype=jnp.int32)
EACH = array(B, 1, S, K)
# What each function of the package is called with.
CALLS = {
  "additive": ([QUERY, EACH, array(N, K), array(N, K), array(N)], {}),
  "additive_projected": ([QUERY, array(B, 1, S, N), array(N, K), array(N)], {}),
  "attend": ([QUERY, KEYS, VALUES, MASK], {"chunk": 2}),
  "attend_local": ([QUERY, KEYS, VALUES, POSITION, LENGTH], {"half_width": 2}),
  "concat": ([QUERY, EACH, array(N, 2 * K), array(N)], {}),
  "context": ([ROWS, array(B, 1, S, V), array(B, 1, S, dtype=bool)], {}),
  "cosine": ([QUERY, EACH], {}),
  "dot": ([QUERY, EACH], {}),
  "effective_support": ([ROWS], {}),
  "entropy": ([ROWS], {}),
  "gaussian": ([POSITION], {"half_width": 2, "size": S}),
  "general": ([array(B, T, Q), EACH, array(Q, K)], {}),
  "jacobian_norm": ([ROWS], {}),
  "length_mask": ([LENGTH], {"size": S}),
  "location": ([QUERY, array(S, K)], {}),
  "logit_variance": ([ROWS], {}),
  "max_weight": ([ROWS], {}),
  "predict_position": ([QUERY, array(B, 1, dtype=jnp.int32), array(N, K), array(N)], {}),
  "project_keys": ([KEYS, array(N, K)], {}),
  "scaled_dot": ([QUERY, EACH], {}),
  "softmax": ([ROWS, array(B, T, S, dtype=bool)], {}),
  "softmax_gradients": ([QUERY, EACH], {}),
  "window_mask": ([POSITION, array(B, 1, dtype=jnp.int32)], {"half_width": 2, "size": S}),
}
DIFFERENTIABLE = ["attend", "attend_local", "predict_position", "gaussian"]


def test_no_op_is_left_out():
  functions = {name for name in attn.__all__ if callable(getattr(attn, name)) and name.islower()}
  assert functions - {"flax_attention_fn"} == CALLS.keys()


@pytest.mark.parametrize("name", sorted(CALLS))
def test_every_op_lowers_for_gpu_and_tpu(name):
  arrays, options = CALLS[name]
  op = jax.jit(functools.partial(getattr(attn, name), **options))
  exported = jax.export.export(op, platforms=["cuda", "tpu"])(*arrays)
  assert exported.platforms == ("cuda", "tpu")


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_lower_for_gpu_and_tpu(name):
  arrays, options = CALLS[name]

  def total(first, *rest):
    result = getattr(attn, name)(first, *rest, **options)
    return jnp.sum(getattr(result, "context", result))

  jax.export.export(jax.jit(jax.grad(total)), platforms=["cuda", "tpu"])(*arrays)


def test_attention_in_parts_lowers_for_gpu_and_tpu():
  """With the parts that a CPU takes at these sizes."""
  score = functools.partial(attn.additive_projected, w_a=jnp.eye(97), v_a=jnp.ones(97))
  attend = jax.jit(jax.grad(lambda *arrays: attn.attend(*arrays, score=score).context.sum()))
  arrays = array(5, 31, 97), array(5, 211, 97)
  assert "while" in attend.lower(*arrays).as_text()
  jax.export.export(attend, platforms=["cuda", "tpu"])(*arrays)


@pytest.mark.slow
@pytest.mark.skipif(
  importlib.util.find_spec("libtpu") is None,
  reason="libtpu, the compiler for TPUs, is not installed",
)
def test_attend_and_attend_local_compile_for_a_tpu_v5e():
  """Ahead of time and without a TPU; that they compile does not say that they ran."""
  program = """
import jax, jax.numpy as jnp
from jax.experimental import topologies
import attn
device = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices[0]
place = jax.sharding.SingleDeviceSharding(device)
query, memory, position = (
  jax.ShapeDtypeStruct(shape, jnp.float32, sharding=place)
  for shape in ((2, 3, 128), (2, 257, 128), (2, 3))
)
attend = lambda query, keys: attn.attend(query, keys, chunk=1).context.sum()
local = lambda query, keys, position: attn.attend_local(
  query, keys, None, position, jnp.array(257), half_width=10
).context.sum()
for function, arrays in ((attend, (query, memory)), (local, (query, memory, position))):
  jax.jit(jax.grad(function)).lower(*arrays).compile()
print("compiled")
"""
  environment = {**os.environ, "TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "cpu"}
  command = [sys.executable, "-c", program]
  result = subprocess.run(command, capture_output=True, text=True, env=environment)
  assert result.stdout.split()[-1:] == ["compiled"], result.stderr
