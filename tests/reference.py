"""The oracle of the ops: float64 NumPy loops over the papers' equations, independent of `attn`.

Every function takes one query. A position that the mask leaves out never enters a sum.
"""

import math
from collections.abc import Callable

import numpy as np

Array = np.ndarray


def dot(query: Array, keys: Array) -> Array:
  """Luong 2015, 3.1: h_t^T h_s."""
  return np.array([sum(q * h for q, h in zip(query, key, strict=True)) for key in keys], float)


def scaled_dot(query: Array, keys: Array) -> Array:
  """Vaswani 2017, Eq. 1: q^T k_s / sqrt(d_k)."""
  return dot(query, keys) / math.sqrt(len(query))


def cosine(query: Array, keys: Array) -> Array:
  """q^T k / (|q| |k|), 0 for a vector of zeros."""
  norms = [math.hypot(*query) * math.hypot(*key) for key in keys]
  scores = dot(query, keys)
  return np.array([e / n if n else 0.0 for e, n in zip(scores, norms, strict=True)], float)


def general(query: Array, keys: Array, w_a: Array) -> Array:
  """Luong 2015, 3.1: h_t^T W_a h_s."""
  return np.array(
    [
      sum(query[i] * w_a[i, j] * key[j] for i in range(len(query)) for j in range(len(key)))
      for key in keys
    ],
    float,
  )


def concat(query: Array, keys: Array, w_a: Array, v_a: Array) -> Array:
  """Luong 2015, 3.1: v_a^T tanh(W_a [h_t; h_s])."""
  scores = []
  for key in keys:
    joined = [*query, *key]
    hidden = [math.tanh(sum(w * x for w, x in zip(row, joined, strict=True))) for row in w_a]
    scores.append(sum(v * h for v, h in zip(v_a, hidden, strict=True)))
  return np.array(scores, float)


def location(query: Array, w_a: Array) -> Array:
  """Luong 2015, Eq. 8 before its softmax: W_a h_t."""
  return np.array([sum(w * q for w, q in zip(row, query, strict=True)) for row in w_a], float)


def project_keys(keys: Array, u_a: Array) -> Array:
  """Bahdanau 2015, A.1.2: U_a h_j."""
  rows = [[sum(u * h for u, h in zip(row, key, strict=True)) for row in u_a] for key in keys]
  return np.array(rows, float).reshape(len(keys), len(u_a))


def additive(query: Array, keys: Array, w_a: Array, u_a: Array, v_a: Array) -> Array:
  """Bahdanau 2015, A.1.2: v_a^T tanh(W_a s_{i-1} + U_a h_j)."""
  return additive_projected(query, project_keys(keys, u_a), w_a, v_a)


def additive_projected(query: Array, projected: Array, w_a: Array, v_a: Array) -> Array:
  """The same from U_a h_j."""
  scores = []
  for row in projected:
    score = 0.0
    for weights, term, v in zip(w_a, row, v_a, strict=True):
      score += v * math.tanh(sum(w * q for w, q in zip(weights, query, strict=True)) + term)
    scores.append(score)
  return np.array(scores, float)


def softmax(scores: Array, mask: Array | None = None, scale: float = 1.0) -> Array:
  """Bahdanau 2015, Eq. 6, over the positions of the mask."""
  allowed = [j for j in range(len(scores)) if mask is None or mask[j]]
  weights = np.zeros(len(scores))
  if allowed:
    top = max(scale * scores[j] for j in allowed)
    total = sum(math.exp(scale * scores[j] - top) for j in allowed)
    for j in allowed:
      weights[j] = math.exp(scale * scores[j] - top) / total
  return weights


def context(weights: Array, values: Array, mask: Array | None = None) -> Array:
  """Bahdanau 2015, Eq. 5, over the positions of the mask."""
  summed = np.zeros(values.shape[1])
  for j in range(len(weights)):
    if mask is None or mask[j]:
      summed += weights[j] * values[j]
  return summed


def attend(
  query: Array,
  keys: Array,
  values: Array,
  mask: Array,
  score: Callable[[Array, Array], Array] = dot,
  scale: float = 1.0,
) -> tuple[Array, Array]:
  """Context and weights of one query; NaN where it may attend to what is not finite."""
  readable = [j for j in range(len(keys)) if mask[j]]
  weights = np.zeros(len(keys))
  if any(not np.isfinite(keys[j]).all() for j in readable):
    weights[readable] = np.nan
  elif readable:
    weights[readable] = softmax(score(query, keys[readable]), scale=scale)
  if any(not np.isfinite(values[j]).all() for j in readable):
    return np.full(values.shape[1], np.nan), weights
  return context(weights, values, mask), weights


def predict_position(query: Array, length: float, w_p: Array, v_p: Array) -> float:
  """Luong 2015, Eq. 9: S sigmoid(v_p^T tanh(W_p h_t))."""
  inner = sum(v * math.tanh(x) for v, x in zip(v_p, location(query, w_p), strict=True))
  return length / (1 + math.exp(-inner))


def window_mask(position: float, length: int, half_width: int, size: int) -> Array:
  """Luong 2015, 3.2: the positions of the sentence in [p - D, p + D]."""
  return np.array([abs(s - position) <= half_width and s < length for s in range(size)], bool)


def gaussian(position: float, half_width: int, size: int) -> Array:
  """Luong 2015, Eq. 10, its second factor; with D = 0 the limit."""
  if half_width == 0:
    return np.array([float(s == position) for s in range(size)])
  sigma = half_width / 2
  return np.array([math.exp(-((s - position) ** 2) / (2 * sigma**2)) for s in range(size)], float)


def attend_local(
  query: Array,
  keys: Array,
  values: Array,
  position: float,
  length: int,
  half_width: int,
  *,
  score: Callable[[Array, Array], Array] = dot,
  mask: Array | None = None,
  scale: float = 1.0,
  bell: bool = True,
  renormalise: bool = False,
) -> tuple[Array, Array]:
  """Luong 2015, Eq. 10: context and weights over the whole source of one query."""
  allowed = window_mask(position, length, half_width, len(keys))
  if mask is not None:
    allowed = allowed & mask
  _, weights = attend(query, keys, values, allowed, score, scale)
  if bell:
    weights = weights * gaussian(position, half_width, len(keys))
  if renormalise and weights.any():
    weights = weights / weights.sum()
  return context(weights, values, allowed), weights


def entropy(weights: Array) -> float:
  """In nats, over positive weights."""
  return -sum(a * math.log(a) for a in weights if a > 0)


def effective_support(weights: Array) -> float:
  """exp(entropy); 0 where no weight is positive."""
  return math.exp(entropy(weights)) if any(a > 0 for a in weights) else 0.0


def max_weight(weights: Array) -> float:
  """The largest weight."""
  return max(weights, default=0.0)


def jacobian_norm(weights: Array) -> float:
  """Frobenius norm of diag(a) - a a^T, entry by entry."""
  entries = [
    a * (1 - a) if i == j else -a * b for i, a in enumerate(weights) for j, b in enumerate(weights)
  ]
  return math.hypot(*entries)


def logit_variance(scores: Array, mask: Array | None = None) -> float:
  """Of the population of scores in the mask that are not -inf; 0 where there is none."""
  live = [e for j, e in enumerate(scores) if (mask is None or mask[j]) and e != -math.inf]
  mean = sum(live) / max(len(live), 1)
  return sum((e - mean) ** 2 for e in live) / max(len(live), 1)
