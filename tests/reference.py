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
