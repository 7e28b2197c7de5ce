"""Windows of local attention: where the centre is, what lies inside, and the Gaussian around it."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer, Real

from attn.ops.lifting import (
  check_shapes,
  integer_array,
  lifted,
  python_int,
  real_array,
  result_dtype,
  widened,
)
from attn.ops.weights import length_mask


@lifted("(q),(),(n,q),(n)->()", wide=True)
def predict_position(
  query: Real[Array, "... q"],
  length: Real[Array, "..."],
  w_p: Real[Array, "... n q"],
  v_p: Real[Array, "... n"],
) -> Float[Array, "..."]:
  """(q),(),(n,q),(n)->()

  Predicted centre of a query's window: p_t = S sigmoid(v_p^T tanh(W_p h_t)), of local-p.

  A real number between 0 and S, in source positions counted from 0: the last word is S - 1.

  Source: Luong, Pham and Manning 2015 (arXiv:1508.04025), Eq. 9. The authors' released code has
  (S - 1) sigmoid(...) + 1, counted from 1: `attn.predict_position(query, length - 1, w_p, v_p)`.

  Args:
    query: the target state h_t, [..., q].
    length: S, the number of source positions, [...].
    w_p: W_p, [..., n, q].
    v_p: v_p, [..., n].

  Returns:
    Positions [...], in at least float32: bfloat16 would round 701 to 700.

  Raises:
    TypeError: an argument does not hold real numbers.
    ValueError: a shape does not fit the signature, or the leading axes do not broadcast.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> w_p, v_p = jnp.array([[1., .5], [0., 1.]]), jnp.array([1., 2.])
    >>> with jnp.printoptions(precision=3):
    ...   print(attn.predict_position(jnp.array([[1., -1.], [0., 0.]]), jnp.array(7), w_p, v_p))
    [1.8 3.5]
  """
  return length * jax.nn.sigmoid(jnp.tanh(w_p @ query) @ v_p)


def window_mask(
  position: Real[Array, "..."], length: Integer[Array, "..."], *, half_width: int, size: int
) -> Bool[Array, "... size"]:
  """(),()->(size)

  Mask of the window [p - D, p + D] of a query: True where |s - p| <= D and s < length.

  Both ends belong to it: 2D + 1 positions around an integer centre, 2D around any other. A position
  that is NaN, or far from the sentence, has an empty window.

  Source: Luong, Pham and Manning 2015 (arXiv:1508.04025), section 3.2.

  Args:
    position: p, the centre, counted from 0, [...].
    length: integers, the number of source positions, [...]; above `size` it acts as `size`.
    half_width: D, a Python int of at least 0.
    size: the padded length, a Python int.

  Returns:
    Boolean [..., size].

  Raises:
    TypeError: position holds no real numbers, length no integers, or an option is no Python int.
    ValueError: an option is negative, or position and length do not broadcast.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> print(attn.window_mask(jnp.array([2., 3.5]), jnp.array(4), half_width=1, size=6))
    [[False  True  True  True False False]
     [False False False  True False False]]
  """
  half_width = python_int("window_mask", "half_width", half_width)
  size = python_int("window_mask", "size", size)
  arrays = {
    "position": wide_position("window_mask", position),
    "length": integer_array("window_mask", "length", length),
  }
  check_shapes("window_mask", [(), ()], arrays)
  near = jnp.abs(_distances(arrays["position"], size)) <= float(half_width)
  return near & length_mask(arrays["length"], size)


def gaussian(
  position: Real[Array, "..."], *, half_width: int, size: int
) -> Float[Array, "... size"]:
  """()->(size)

  Gaussian around the centre of a window: exp(-(s - p)^2 / (2 sigma^2)) with sigma = D / 2.

  It multiplies the weights of `attn.softmax`, which then do not sum to 1. With D = 0 it has its
  limit, 1 where s = p and else 0, and a zero gradient.

  Source: Luong, Pham and Manning 2015 (arXiv:1508.04025), Eq. 10.

  Args:
    position: p, the centre, counted from 0, [...].
    half_width: D, a Python int of at least 0.
    size: the padded length, a Python int.

  Returns:
    Factors [..., size], in at least float32.

  Raises:
    TypeError: position holds no real numbers, or an option is no Python int.
    ValueError: an option is negative.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> with jnp.printoptions(precision=3):
    ...   print(attn.gaussian(jnp.array(1.5), half_width=2, size=4))
    [0.325 0.882 0.882 0.325]
  """
  half_width = python_int("gaussian", "half_width", half_width)
  size = python_int("gaussian", "size", size)
  return bell(_distances(wide_position("gaussian", position), size), half_width)


def _distances(position: jax.Array, size: int) -> jax.Array:
  """s - p for every source position s: [..., size]."""
  return jnp.arange(size, dtype=position.dtype) - position[..., None]


def bell(distance: jax.Array, half_width: int) -> jax.Array:
  """exp(-distance^2 / (2 (D/2)^2)); infinitely far is 0, with a zero gradient."""
  if half_width == 0:
    return jnp.where(jnp.isnan(distance), jnp.nan, (distance == 0).astype(distance.dtype))
  far = jnp.isinf(distance)
  spread = jnp.exp(-2 * jnp.square(jnp.where(far, 0, distance) / float(half_width)))
  return jnp.where(far, 0, spread)


def wide_position(op: str, position: Real[Array, "..."]) -> jax.Array:
  """Positions in at least float32, in which the integers up to 2^24 are exact."""
  array = real_array(op, "position", position)
  return jnp.asarray(array, widened(result_dtype([array])))
