"""Float64 loops of the recurrent models, written from Bahdanau 2015 A.1 and A.2, word by word.

Parameters come in the nested dicts of `attn.models.init`; nothing else of `attn` is used.
"""

import numpy as np


def sigmoid(x):
  return 1.0 / (1.0 + np.exp(-x))


def gru_step(inputs, h, u):
  """Bahdanau 2015, A.1.1, from `[W_z x; W_r x; W x]` and `[U_z; U_r; U]`: h'."""
  z, candidate = reset_before(inputs, h, u)
  return (1.0 - z) * h + z * candidate


def gru_cho_step(inputs, h, u):
  """Cho 2014, 2.3: z keeps."""
  z, candidate = reset_before(inputs, h, u)
  return z * h + (1.0 - z) * candidate


def reset_before(inputs, h, u):
  n = len(h)
  z = sigmoid(inputs[:n] + u[:n] @ h)
  r = sigmoid(inputs[n : 2 * n] + u[n : 2 * n] @ h)
  return z, np.tanh(inputs[2 * n :] + u[2 * n :] @ (r * h))


def gru_cudnn_step(inputs, h, u, b_u=0.0):
  """cuDNN: r outside the matmul, z keeps."""
  n = len(h)
  z = sigmoid(inputs[:n] + u[:n] @ h)
  r = sigmoid(inputs[n : 2 * n] + u[n : 2 * n] @ h)
  return z * h + (1.0 - z) * np.tanh(inputs[2 * n :] + r * (u[2 * n :] @ h + b_u))


def lstm_step(inputs, state, u, peepholes=None, forget_bias=0.0):
  """Zaremba 2014, and diagonal peepholes if given: (h', c')."""
  h, c = state
  n = len(h)
  w_i, w_f, w_o = np.zeros((3, n)) if peepholes is None else np.reshape(peepholes, (3, n))
  i = sigmoid(inputs[:n] + u[:n] @ h + w_i * c)
  f = sigmoid(inputs[n : 2 * n] + u[n : 2 * n] @ h + w_f * c + forget_bias)
  c = f * c + i * np.tanh(inputs[3 * n :] + u[3 * n :] @ h)
  o = sigmoid(inputs[2 * n : 3 * n] + u[2 * n : 3 * n] @ h + w_o * c)
  return o * np.tanh(c), c


def matrices(params):
  """The paper's separate matrices, in float64, from the stacked ones of one recurrence."""
  w, u_gates, u = (np.asarray(params[k], np.float64) for k in ("w", "u_gates", "u"))
  n = u.shape[0]
  b = np.asarray(params.get("b", np.zeros(3 * n)), np.float64)
  return {
    "W_z": w[:n],
    "W_r": w[n : 2 * n],
    "W": w[2 * n :],
    "U_z": u_gates[:n],
    "U_r": u_gates[n:],
    "U": u,
    "b_z": b[:n],
    "b_r": b[n : 2 * n],
    "b": b[2 * n :],
  }


def gru(p, x, h, extra=(0.0, 0.0, 0.0)):
  """h' of one word vector and state; `extra` is (C_z c, C_r c, C c)."""
  z = sigmoid(p["W_z"] @ x + p["U_z"] @ h + extra[0] + p["b_z"])
  r = sigmoid(p["W_r"] @ x + p["U_r"] @ h + extra[1] + p["b_r"])
  candidate = np.tanh(p["W"] @ x + p["U"] @ (r * h) + extra[2] + p["b"])
  return (1.0 - z) * h + z * candidate


def encode(params, ids):
  """Annotations [s, a], the state behind s_0 and the fixed vector, of one unpadded source."""
  words = [np.asarray(params["source"], np.float64)[i] for i in ids]
  encoder = params["encoder"]
  forward = matrices(encoder["forward"])
  h = np.zeros(forward["U"].shape[0])
  ahead = []
  for x in words:
    h = gru(forward, x, h)
    ahead.append(h)
  last = h
  if "backward" not in encoder:
    return np.array(ahead), last, last
  backward = matrices(encoder["backward"])
  h = np.zeros(backward["U"].shape[0])
  back = []
  for x in reversed(words):
    h = gru(backward, x, h)
    back.append(h)
  joined = [np.concatenate(pair) for pair in zip(ahead, reversed(back), strict=True)]
  return np.array(joined), h, np.concatenate([last, h])


def decode(params, ids, target, bos):
  """Logits [t, v], weights [t, s] or None, and contexts along a target, one word at a time."""
  annotations, initial, summary = encode(params, ids)
  d = params["decoder"]
  get = lambda name, default=0.0: np.asarray(d.get(name, default), np.float64)  # noqa: E731
  cell, n = matrices(d), d["u"].shape[0]
  c_all = get("c")
  embed = np.asarray(params["target"], np.float64)
  s = np.tanh(get("w_s") @ initial + get("b_s"))
  logits, all_weights, contexts = [], [], []
  for previous in [bos, *target[:-1]]:
    y = embed[previous]
    if "score" in d:
      a = {k: np.asarray(v, np.float64) for k, v in d["score"].items()}
      e = np.array([a["v_a"] @ np.tanh(a["w_a"] @ s + a["u_a"] @ h) for h in annotations])
      weights = np.exp(e - e.max()) / np.exp(e - e.max()).sum()
      c = sum(w * h for w, h in zip(weights, annotations, strict=True))
      all_weights.append(weights)
    else:
      c = summary
    extra = (c_all[:n] @ c, c_all[n : 2 * n] @ c, c_all[2 * n :] @ c)
    s = gru(cell, y, s, extra)
    t = get("u_o") @ s + get("v_o") @ y + get("c_o") @ c + get("b_o")
    maxout = np.array([max(t[2 * j], t[2 * j + 1]) for j in range(len(t) // 2)])
    logits.append(get("w_o") @ maxout + get("b_w"))
    contexts.append(c)
  return np.array(logits), np.array(all_weights) if all_weights else None, np.array(contexts)
