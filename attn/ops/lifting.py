"""Lifts an op written for one query to any leading axes, as NumPy's generalized ufuncs are.

`@lifted('(k),(s,k)->(s)')` stands above every op. It binds the arguments by name, checks dtypes and
shapes against the signature, computes in at least float32, and hands the rest to `jnp.vectorize`.
"""

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

P = ParamSpec("P")
R = TypeVar("R")


def lifted(signature: str, *, wide: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
  """Decorates a function of one query: its positional parameters are arrays, the rest options.

  A parameter `mask` is boolean and may be None: then its dimensions leave the signature. All other
  arrays hold real numbers, and the result has the dtype that the floating ones promote to, or with
  `wide` at least float32. A dimension may be the sum of two others, `q+k`. An option is one real
  number. Arrays enter one compiled call untouched, because even a cast of a NaN that is masked
  later would stop a program that runs under `jax_debug_nans`.
  """
  inputs, output = signature.split("->")
  dims = [tuple(filter(None, core.split(","))) for core in re.findall(r"\((.*?)\)", inputs)]

  def decorate(function: Callable[P, R]) -> Callable[P, R]:
    parameters = inspect.signature(function)
    name = function.__name__

    @functools.partial(jax.jit, inline=True)
    def apply(arrays: Sequence[jax.Array | None], options: dict[str, Any]) -> Any:
      present = [array for array in arrays if array is not None]
      dtype = result_dtype(present)
      widest = [array if array.dtype == bool else array.astype(widened(dtype)) for array in present]
      cores = ",".join(f"({','.join(core)})" for core in dims[: len(present)]).replace("+", "_")
      core = functools.partial(function, **options)
      result = jnp.vectorize(core, signature=f"{cores}->{output}")(*widest)
      return result.astype(widened(dtype) if wide else dtype)

    @functools.wraps(function)
    def op(*args: P.args, **kwargs: P.kwargs) -> R:
      try:
        bound = parameters.bind(*args, **kwargs)
      except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
      bound.apply_defaults()
      arrays = {
        key: mask_array(name, value) if key == "mask" else real_array(name, key, value)
        for key, value in zip(parameters.parameters, bound.args, strict=False)
      }
      check_shapes(name, dims, arrays)
      options = {key: real_number(name, key, value) for key, value in bound.kwargs.items()}
      result: R = apply(tuple(arrays.values()), options)
      return result

    return op

  return decorate


def real_array(op: str, name: str, value: Any) -> jax.Array:
  """Returns `value` as an array if it holds real numbers, or raises TypeError."""
  if value is None:
    raise TypeError(f"{op}: {name} is None, expected real numbers")
  array = _as_array(op, name, value)
  if not any(jnp.issubdtype(array.dtype, kind) for kind in (jnp.floating, jnp.integer)):
    raise TypeError(f"{op}: {name} has dtype {array.dtype}, expected real numbers")
  return array


def real_number(op: str, name: str, value: Any) -> jax.Array:
  """Returns `value` as an array if it is one real number, or raises TypeError or ValueError."""
  array = real_array(op, name, value)
  if array.ndim:
    raise ValueError(f"{op}: {name} has shape {array.shape}, expected one number")
  return array


def mask_array(op: str, value: Any) -> jax.Array | None:
  """Returns a mask as an array if it is boolean, None as None, or raises TypeError."""
  if value is None:
    return None
  array = _as_array(op, "mask", value)
  if array.dtype != bool:
    raise TypeError(
      f"{op}: mask has dtype {array.dtype}, expected bool (True where the query may attend)"
    )
  return array


def integer_array(op: str, name: str, value: Any) -> jax.Array:
  """Returns lengths as int32, cut to what that holds, if they are integers, or raises TypeError."""
  array = _as_array(op, name, value)
  if not jnp.issubdtype(array.dtype, jnp.integer):
    raise TypeError(f"{op}: {name} has dtype {array.dtype}, expected integers")
  # A narrower type cannot hold the limit, nor int32 what a wider one holds.
  wide = array if array.dtype.itemsize >= 4 else array.astype(np.int32)
  return jnp.asarray(wide.clip(0, np.iinfo(np.int32).max), np.int32)


def python_int(op: str, name: str, value: int, *, least: int = 0) -> int:
  """Returns a size that a program is traced for, or raises TypeError or ValueError."""
  if isinstance(value, bool) or not isinstance(value, int | np.integer):
    raise TypeError(f"{op}: {name} is a {type(value).__name__}, expected a Python int")
  if value < least:
    raise ValueError(f"{op}: {name} is {value}, expected at least {least}")
  return int(value)


def _as_array(op: str, name: str, value: Any) -> jax.Array:
  # NumPy's stay as they are: `jnp.asarray` stops at a NaN under `jax_debug_nans`.
  array: jax.Array = value
  if isinstance(value, np.ma.MaskedArray):  # A compiled function of JAX would ignore its mask.
    raise TypeError(f"{op}: {name} is a MaskedArray, whose mask is not read; expected its data")
  if isinstance(value, jax.Array | np.ndarray | np.generic):
    return array
  try:
    return jnp.asarray(value)
  except (TypeError, ValueError, OverflowError) as error:
    raise TypeError(f"{op}: {name} is a {type(value).__name__} that makes no array") from error


def result_dtype(arrays: Sequence[jax.Array]) -> np.dtype:
  """The dtype that the floating arrays promote to; float32 where there is none."""
  floating = [array for array in arrays if jnp.issubdtype(array.dtype, jnp.floating)]
  return jnp.result_type(*floating) if floating else np.dtype(np.float32)


def widened(dtype: np.dtype) -> np.dtype:
  """The dtype to compute in: 16-bit inputs would overflow, or lose the sum of a long row."""
  return dtype if dtype.itemsize >= 4 else np.dtype(np.float32)


def magnitude(array: jax.Array, axis: int | None = None, *, keepdims: bool = False) -> jax.Array:
  """The largest magnitude along an axis, or of all; 1 where all are 0; no gradient.

  What is divided by it has squares that neither overflow nor all vanish.
  """
  largest = jax.lax.stop_gradient(jnp.max(jnp.abs(array), axis, initial=0, keepdims=keepdims))
  return jnp.where(largest < np.finfo(array.dtype).tiny, 1, largest)


# Compiled, so that a program under `jax_debug_nans` sees what comes out and not what is on the way.
@functools.partial(jax.jit, inline=True)
def finite_rows(rows: jax.Array) -> jax.Array:
  """True for each row of [..., width] without a NaN or inf: [...].

  One product: 0 times anything else is 0. XLA reduces `isfinite` more slowly. Behind the barrier it
  does not see the zeros, and at the highest precision no large number is rounded to inf.
  """
  zeros = jax.lax.optimization_barrier(jnp.zeros(rows.shape[-1], rows.dtype))
  return jnp.matmul(rows, zeros, precision="highest") == 0


def check_shapes(op: str, dims: Sequence[Sequence[str]], arrays: dict[str, Any]) -> tuple[int, ...]:
  """Checks arrays against their core dimensions and returns the leading axes they broadcast to.

  A dimension gets its size from the first array that has it. An array that is None is passed over.

  Raises:
    ValueError: one line with the argument, its shape and the one expected.
  """
  sizes: dict[str, tuple[int, str]] = {}
  leading: tuple[int, ...] = ()
  for (name, array), core in zip(arrays.items(), dims, strict=False):
    if array is None:
      continue
    shape = tuple(array.shape)
    split = len(shape) - len(core)
    known = {dim: _size(dim, sizes) for dim in core if set(dim.split("+")) <= sizes.keys()}
    actual = dict(zip(core, shape[split:], strict=False))
    if split < 0 or any(actual[dim] != size for dim, (size, _) in known.items()):
      expected = ", ".join(["...", *core])
      sources = ", ".join(f"{dim} = {size} from {source}" for dim, (size, source) in known.items())
      because = f" with {sources}" if sources else ""
      raise ValueError(f"{op}: {name} has shape {shape}, expected ({expected}){because}")
    try:
      leading = np.broadcast_shapes(leading, shape[:split])
    except ValueError:
      # The usual cause: many queries against one set of keys, without an axis for the queries.
      shared = "t" not in sizes and len(core) == 2 and core[0] == "s"
      hint = f"; one for many queries is {name}[..., None, :, :]" if shared else ""
      raise ValueError(
        f"{op}: {name} has shape {shape}, expected leading axes that broadcast with {leading}{hint}"
      ) from None
    for dim, size in actual.items():
      sizes.setdefault(dim, (size, f"{name} of shape {shape}"))
  return leading


def _size(dim: str, sizes: dict[str, tuple[int, str]]) -> tuple[int, str]:
  """The size of a dimension, or of the sum of several, and the arguments that it comes from."""
  parts = [sizes[part] for part in dim.split("+")]
  return sum(size for size, _ in parts), " and ".join(dict.fromkeys(source for _, source in parts))
