"""Scores: how well one query matches each source position.

Every op takes one query, or any leading axes of queries; the body is the paper's equation.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Real

from attn.ops.lifting import lifted, magnitude


@lifted("(k),(s,k)->(s)")
def dot(query: Real[Array, "... k"], keys: Real[Array, "... s k"]) -> Float[Array, "... s"]:
  """(k),(s,k)->(s)

  Dot score: score(h_t, h_s) = h_t^T h_s for every source position s.

  Source: Luong, Pham and Manning 2015 (arXiv:1508.04025), section 3.1, the score `dot` of Eq. 7.

  Args:
    query: the target state h_t, [..., k].
    keys: the source states h_s, [..., s, k], as wide as the query.

  Returns:
    Scores [..., s] in the promoted dtype. For many queries against one sentence:
    `attn.dot(query, keys[..., None, :, :])`, [..., t, s], one matrix product. Without the new axis
    the queries would be paired with the sentences.

  Raises:
    TypeError: an argument does not hold real numbers.
    ValueError: the widths differ, or the leading axes do not broadcast.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> keys = jnp.array([[1., 0.], [0., 2.], [-1., 1.]])
    >>> print(attn.dot(jnp.array([1., -1.]), keys))
    [ 1. -2. -2.]
    >>> print(attn.dot(jnp.ones((4, 5, 2)), jnp.ones((4, 3, 2))[..., None, :, :]).shape)
    (4, 5, 3)
  """
  return jnp.vecdot(query, keys)


@lifted("(k),(s,k)->(s)")
def scaled_dot(query: Real[Array, "... k"], keys: Real[Array, "... s k"]) -> Float[Array, "... s"]:
  """(k),(s,k)->(s)

  Scaled dot score: q^T k_s / sqrt(k), so that independent components of mean 0 and variance 1 give
  scores of variance 1 at any width k.

  Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1, Eq. 1.

  Args:
    query: q, [..., k].
    keys: k_s for every source position, [..., s, k], as wide as the query.

  Returns:
    Scores [..., s] in the promoted dtype. For many queries against one sentence:
    `attn.scaled_dot(query, keys[..., None, :, :])`, [..., t, s], one matrix product.

  Raises:
    TypeError: an argument does not hold real numbers.
    ValueError: the widths differ or are 0, or the leading axes do not broadcast.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> keys = jnp.array([[1., 0., 1., 0.], [2., 2., 2., 2.]])
    >>> print(attn.scaled_dot(jnp.ones(4), keys))
    [1. 4.]
  """
  (width,) = query.shape
  if width == 0:
    raise ValueError("scaled_dot: query has shape (..., 0), expected a width k of at least 1")
  return jnp.vecdot(query, keys) / math.sqrt(width)


@lifted("(k),(s,k)->(s)")
def cosine(query: Real[Array, "... k"], keys: Real[Array, "... s k"]) -> Float[Array, "... s"]:
  """(k),(s,k)->(s)

  Cosine score: q^T k_s / (|q| |k_s|), the angle alone, between -1 and 1.

  The dot product is |q| |k_s| cos(theta), so that long vectors sharpen its softmax; here they do
  not. A zero vector scores 0 with a zero gradient. Norms neither overflow nor vanish.

  Source: the content-based addressing of Graves, Wayne and Danihelka 2014 (arXiv:1410.5401), Eq. 6.

  Args:
    query: q, [..., k].
    keys: k_s for every source position, [..., s, k], as wide as the query.

  Returns:
    Scores [..., s] in the promoted dtype. For many queries against one sentence:
    `attn.cosine(query, keys[..., None, :, :])`, [..., t, s].

  Raises:
    TypeError: an argument does not hold real numbers.
    ValueError: the widths differ, or the leading axes do not broadcast.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> keys = jnp.array([[3., 3.], [0., -2.], [0., 0.]])
    >>> with jnp.printoptions(precision=3):
    ...   print(attn.cosine(jnp.array([0., 1e30]), keys))
    [ 0.707 -1.     0.   ]
  """
  return jnp.vecdot(_direction(query), _direction(keys))


def _direction(vectors: jax.Array) -> jax.Array:
  """Vectors [..., k] of length 1; a zero vector stays zero, with a zero gradient."""
  # The angle does not depend on the largest magnitude, so neither does the gradient.
  vectors = vectors / magnitude(vectors, -1, keepdims=True)
  squares = jnp.sum(jnp.square(vectors), -1, keepdims=True)
  zero = squares == 0
  return jnp.where(zero, 0, vectors / jnp.sqrt(jnp.where(zero, 1, squares)))


@lifted("(q),(s,k),(q,k)->(s)")
def general(
  query: Real[Array, "... q"], keys: Real[Array, "... s k"], w_a: Real[Array, "... q k"]
) -> Float[Array, "... s"]:
  """(q),(s,k),(q,k)->(s)

  General score: score(h_t, h_s) = h_t^T W_a h_s for every source position s.

  The query is projected, not the keys: one product of width k a query, and then the dot score.

  Source: Luong, Pham and Manning 2015 (arXiv:1508.04025), section 3.1, the score `general` of
  Eq. 7.

  Args:
    query: the target state h_t, [..., q].
    keys: the source states h_s, [..., s, k].
    w_a: W_a, [..., q, k].

  Returns:
    Scores [..., s] in the promoted dtype. For many queries against one sentence:
    `attn.general(query, keys[..., None, :, :], w_a)`, [..., t, s].

  Raises:
    TypeError: an argument does not hold real numbers.
    ValueError: a shape does not fit the signature, or the leading axes do not broadcast.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> keys = jnp.array([[1., 0.], [0., 2.], [-1., 1.]])
    >>> print(attn.general(jnp.array([1., -1.]), keys, jnp.array([[1., 2.], [0., 1.]])))
    [1. 2. 0.]
  """
  return jnp.vecdot(query @ w_a, keys)


@lifted("(q),(s,k),(n,q+k),(n)->(s)")
def concat(
  query: Real[Array, "... q"],
  keys: Real[Array, "... s k"],
  w_a: Real[Array, "... n q+k"],
  v_a: Real[Array, "... n"],
) -> Float[Array, "... s"]:
  """(q),(s,k),(n,q+k),(n)->(s)

  Concat score: score(h_t, h_s) = v_a^T tanh(W_a [h_t; h_s]) for every source position s.

  With W_a = [W, U] it is `attn.additive` with W and U, and is computed as that: no concatenation.
  Luong's released code has U fixed to the identity instead: `attn.additive` with `u_a=jnp.eye(n)`.

  Source: Luong, Pham and Manning 2015 (arXiv:1508.04025), section 3.1, the score `concat` of Eq. 7.

  Args:
    query: the target state h_t, [..., q].
    keys: the source states h_s, [..., s, k].
    w_a: W_a, [..., n, q + k], its first q columns for the query.
    v_a: v_a, [..., n].

  Returns:
    Scores [..., s] in the promoted dtype. For many queries against one sentence:
    `attn.concat(query, keys[..., None, :, :], w_a, v_a)`, [..., t, s]; it holds a tensor
    [..., t, s, n].

  Raises:
    TypeError: an argument does not hold real numbers.
    ValueError: a shape does not fit the signature, or the leading axes do not broadcast.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> keys = jnp.array([[1., 0.], [0., 2.], [-1., 1.]])
    >>> w_a = jnp.array([[1., 0., .5, 0.], [0., 1., 0., .5]])
    >>> with jnp.printoptions(precision=3):
    ...   print(attn.concat(jnp.array([1., -1.]), keys, w_a, jnp.array([1., 2.])))
    [-0.618  0.762 -0.462]
  """
  (q,) = query.shape
  return additive(query, keys, w_a[:, :q], w_a[:, q:], v_a)


@lifted("(q),(s,k),(n,q),(n,k),(n)->(s)")
def additive(
  query: Real[Array, "... q"],
  keys: Real[Array, "... s k"],
  w_a: Real[Array, "... n q"],
  u_a: Real[Array, "... n k"],
  v_a: Real[Array, "... n"],
) -> Float[Array, "... s"]:
  """(q),(s,k),(n,q),(n,k),(n)->(s)

  Additive score: e_ij = v_a^T tanh(W_a s_{i-1} + U_a h_j) for every source position j.

  U_a h_j does not depend on the query. Where queries come one after another, compute it once a
  sentence with `attn.project_keys` and score with `attn.additive_projected`.

  Source: Bahdanau, Cho and Bengio 2015 (arXiv:1409.0473), section 3.1 and appendix A.1.2.

  Args:
    query: the decoder state s_{i-1}, [..., q].
    keys: the annotations h_j, [..., s, k].
    w_a: W_a, [..., n, q].
    u_a: U_a, [..., n, k].
    v_a: v_a, [..., n].

  Returns:
    Scores [..., s] in the promoted dtype. For many queries against one sentence:
    `attn.additive(query, keys[..., None, :, :], w_a, u_a, v_a)`, [..., t, s]; it holds a tensor
    [..., t, s, n].

  Raises:
    TypeError: an argument does not hold real numbers.
    ValueError: a shape does not fit the signature, or the leading axes do not broadcast.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> keys = jnp.array([[1., 0.], [0., 2.], [-1., 1.]])
    >>> w_a = jnp.array([[1., .5], [0., 1.]])
    >>> u_a = jnp.array([[.5, 0.], [1., -1.]])
    >>> with jnp.printoptions(precision=3):
    ...   print(attn.additive(jnp.array([1., -1.]), keys, w_a, u_a, jnp.array([1., 2.])))
    [ 0.762 -1.528 -1.99 ]
  """
  return additive_projected(query, project_keys(keys, u_a), w_a, v_a)


@lifted("(s,k),(n,k)->(s,n)")
def project_keys(
  keys: Real[Array, "... s k"], u_a: Real[Array, "... n k"]
) -> Float[Array, "... s n"]:
  """(s,k),(n,k)->(s,n)

  The part of the additive score that no query changes: U_a h_j for every source position j.

  Source: Bahdanau, Cho and Bengio 2015 (arXiv:1409.0473), appendix A.1.2, which computes it once a
  sentence.

  Args:
    keys: the annotations h_j, [..., s, k].
    u_a: U_a, [..., n, k].

  Returns:
    U_a h_j, [..., s, n], in the promoted dtype: the `projected` of `attn.additive_projected`.

  Raises:
    TypeError: an argument does not hold real numbers.
    ValueError: the widths differ, or the leading axes do not broadcast.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> keys = jnp.array([[1., 0.], [0., 2.], [-1., 1.]])
    >>> print(attn.project_keys(keys, jnp.array([[.5, 0.], [1., -1.]])).tolist())
    [[0.5, 1.0], [0.0, -2.0], [-0.5, -2.0]]
  """
  return keys @ u_a.T


@lifted("(q),(s,n),(n,q),(n)->(s)")
def additive_projected(
  query: Real[Array, "... q"],
  projected: Real[Array, "... s n"],
  w_a: Real[Array, "... n q"],
  v_a: Real[Array, "... n"],
) -> Float[Array, "... s"]:
  """(q),(s,n),(n,q),(n)->(s)

  Additive score from projected keys, the part of each step: v_a^T tanh(W_a s_{i-1} + U_a h_j).

  It makes one pass over [..., s, n] and cleans nothing: what a mask hides must be finite here, or
  its gradient is not. `attn.attend` sees to that.

  Source: Bahdanau, Cho and Bengio 2015 (arXiv:1409.0473), section 3.1 and appendix A.1.2.

  Args:
    query: the decoder state s_{i-1}, [..., q].
    projected: U_a h_j, [..., s, n], from `attn.project_keys`.
    w_a: W_a, [..., n, q].
    v_a: v_a, [..., n].

  Returns:
    Scores [..., s] in the promoted dtype. For many queries against one sentence:
    `attn.additive_projected(query, projected[..., None, :, :], w_a, v_a)`, [..., t, s], with the
    `projected` of `attn.project_keys(keys, u_a)`: the new axis that a score of plain keys takes as
    `keys[..., None, :, :]`.

  Raises:
    TypeError: an argument does not hold real numbers.
    ValueError: a shape does not fit the signature, or the leading axes do not broadcast.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> projected = jnp.array([[.5, 1.], [0., -2.], [-.5, -2.]])
    >>> w_a = jnp.array([[1., .5], [0., 1.]])
    >>> with jnp.printoptions(precision=3):
    ...   print(attn.additive_projected(jnp.array([1., -1.]), projected, w_a, jnp.array([1., 2.])))
    [ 0.762 -1.528 -1.99 ]
  """
  # v_a stands on the right of its sum: on the left, XLA copies all of [..., s, n] to transpose it.
  return jnp.tanh(w_a @ query + projected) @ v_a


@lifted("(q),(s,q)->(s)")
def location(query: Real[Array, "... q"], w_a: Real[Array, "... s q"]) -> Float[Array, "... s"]:
  """(q),(s,q)->(s)

  Location score: W_a h_t, a score for each source position from the target state alone.

  W_a has one row for each position of the longest sentence; a shorter one uses its first rows.

  Source: Luong, Pham and Manning 2015 (arXiv:1508.04025), Eq. 8, without its softmax.

  Args:
    query: the target state h_t, [..., q].
    w_a: W_a, [..., s, q].

  Returns:
    Scores [..., s] in the promoted dtype. As a score of `attn.attend`, with keys of any width:
    `score=lambda query, keys: attn.location(query, w_a[: keys.shape[-2]])`.

  Raises:
    TypeError: an argument does not hold real numbers.
    ValueError: the widths differ, or the leading axes do not broadcast.

  Example:
    >>> import attn, jax.numpy as jnp
    >>> w_a = jnp.array([[1., 0.], [0., 2.], [-1., 1.]])
    >>> print(attn.location(jnp.array([1., -1.]), w_a))
    [ 1. -2. -2.]
    >>> score = lambda query, keys: attn.location(query, w_a[: keys.shape[-2]])
    >>> print(attn.attend(jnp.ones((5, 2)), jnp.ones((2, 7)), score=score).weights.shape)
    (5, 2)
  """
  return w_a @ query
