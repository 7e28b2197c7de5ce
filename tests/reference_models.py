"""Float64 loops of the recurrent models, written from the papers' equations, word by word.

Parameters come in the nested dicts of `attn.models.init`, and what is computed from the fields of a
`ModelConfig`; nothing else of `attn` is used.
"""

import math

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


def float64(params):
  """The nested dicts with arrays in float64."""
  if isinstance(params, dict):
    return {name: float64(value) for name, value in params.items()}
  return np.asarray(params, np.float64)


def affine(params, name, x, bias):
  """W x + b; a bias of fewer rows is that of the last ones, a missing one 0."""
  out = params[name] @ x
  if bias in params:
    out[len(out) - len(params[bias]) :] += params[bias]
  return out


def advance(config, layer, inputs, state):
  """A layer's (h, c) after one position; gated units have no c."""
  if config.cell == "lstm":
    return lstm_step(inputs, state, layer["u"], layer.get("peepholes"), config.forget_bias)
  if config.cell == "gru_cudnn":
    return gru_cudnn_step(inputs, state[0], layer["u"], layer.get("b_u", 0.0)), None
  u = np.concatenate([layer["u_gates"], layer["u"]])
  step = {"gru": gru_step, "gru_cho": gru_cho_step}[config.cell]
  return step(inputs, state[0], u), None


def zero_state(config):
  return np.zeros(config.units), np.zeros(config.units) if config.cell == "lstm" else None


def read_layer(config, layer, xs):
  """A layer's outputs along xs, and its last state."""
  state, outputs = zero_state(config), []
  for x in xs:
    state = advance(config, layer, affine(layer, "w", x, "b"), state)
    outputs.append(state[0])
  return outputs, state


class Source:
  """An encoded source, unpadded, in the order of its text."""

  def __init__(self, config, params, ids):
    ids = list(ids) if config.source_eos else list(ids)[:-1]
    xs = [params["source"][i] + params.get("b_source", 0.0) for i in ids]
    self.forward, self.backward = [], []
    for layer in range(config.layers):
      suffix = f"_{layer + 1}" if layer else ""
      order = -1 if config.reverse_source else 1
      ahead, last = read_layer(config, params["encoder"]["forward" + suffix], xs[::order])
      self.forward.append(last)
      if config.encoder == "bidirectional":
        back, first = read_layer(config, params["encoder"]["backward" + suffix], xs[::-1])
        self.backward.append(first)
        xs = [np.concatenate(pair) for pair in zip(ahead, back[::-1], strict=True)]
      else:
        xs = ahead[::order]
    self.annotations = xs
    self.nearest = (self.backward or self.forward)[-1]
    ends = [states[-1][0] for states in (self.forward, self.backward) if states]
    self.summary = np.concatenate(ends)
    if config.project_summary:
      self.summary = np.tanh(params["v"] @ self.summary)
    half = len(self.summary) // 2
    split = config.memory == "split"
    self.compared = [h[:half] for h in xs] if split else xs
    self.values = [h[half:] for h in xs] if split else xs
    self.width = half if split else len(self.summary)


def encode(config, params, ids):
  """Annotations, the state nearest to the first word and the fixed vector of one source."""
  source = Source(config, float64(params), ids)
  return np.array(source.annotations), source.nearest[0], source.summary


def first_layers(config, d, source):
  """The decoder's layers before the first word, as pairs (h, c)."""
  if config.initial_state == "all_layers":
    return list(source.forward)
  if config.initial_state == "last":
    return [source.nearest] * config.layers
  if config.initial_state == "zero":
    return [zero_state(config)] * config.layers
  mean = config.initial_state == "mean"
  h = source.summary if config.project_summary else source.nearest[0]
  h = sum(source.annotations) / max(len(source.annotations), 1) if mean else h
  parts = np.split(np.tanh(affine(d, "w_s", h, "b_s")), config.layers)
  return [(part, zero_state(config)[1]) for part in parts]


def scored(config, a, s, source):
  """e_j of a state with every annotation, and which of them may be attended to."""
  n, inside = len(s), np.ones(len(source.compared), bool)
  if config.score == "location":
    e = np.zeros(len(inside))
    inside[config.location_length :] = False
    e[inside] = a["w_a"][: len(e)] @ s
    return e, inside
  one = {
    "additive": lambda h: a["v_a"] @ np.tanh(a["w_a"] @ s + a["u_a"] @ h),
    "dot": lambda h: s @ h,
    "scaled_dot": lambda h: s @ h / math.sqrt(n),
    "cosine": lambda h: s @ h / (np.linalg.norm(s) * np.linalg.norm(h)),
    "general": lambda h: s @ a["w_a"] @ h,
    "concat": lambda h: a["v_a"] @ np.tanh(a["w_a"] @ np.concatenate([s, h])),
    "concat_released": lambda h: a["v_a"] @ np.tanh(h + a["w_a"] @ s),
  }[config.score]
  return np.array([one(h) for h in source.compared]), inside


def attend(config, d, s, source, i):
  """(weights, context) of a state at step i, counted from 0."""
  if config.score == "none":
    return None, source.summary
  e, inside = scored(config, d.get("score", {}), s, source)
  positions, width = np.arange(len(e)), config.half_width
  centre = i
  if config.window == "local_p":
    length = len(e) - (config.position == "released")
    centre = length * sigmoid(d["predict"]["v_p"] @ np.tanh(d["predict"]["w_p"] @ s))
  if config.window != "global":
    inside = inside & (np.abs(positions - centre) <= width)
  weights = np.where(inside, np.exp(e - e.max(initial=-100.0)), 0.0)
  weights = weights / weights.sum() if inside.any() else weights
  if config.window == "local_p":
    weights = weights * np.exp(-((positions - centre) ** 2) / (2 * (width / 2) ** 2))
    if config.renormalise and inside.any():
      weights = weights / weights.sum()
  pairs = zip(weights, source.values, strict=True)
  return weights, sum((w * v for w, v in pairs), np.zeros(source.width))


def update(config, d, layers, y, c=None, fed=None):
  """Every layer after a word y, a context and a fed vector."""
  inputs = affine(d, "w", y, "b")
  if "c" in d and c is not None:
    inputs = inputs + d["c"] @ c
  if fed is not None:
    inputs = inputs + d["w_f"] @ fed
  new = [advance(config, d, inputs, layers[0])]
  for at in range(1, config.layers):
    layer = d[f"layer_{at + 1}"]
    new.append(advance(config, layer, affine(layer, "w", new[-1][0], "b"), layers[at]))
  return new


def read_out(config, d, s, y, c):
  """t_i from the state, the previous word and the context, as far as they have a matrix."""
  if config.readout == "state":
    return s
  t = affine(d, "u_o", s, "b_o")
  if "v_o" in d:
    t = t + d["v_o"] @ y
  if "c_o" in d:
    t = t + d["c_o"] @ c
  if config.readout == "maxout":
    return np.array([max(t[2 * j], t[2 * j + 1]) for j in range(len(t) // 2)])
  return np.tanh(t) if config.readout == "tanh" else t


def decode(config, params, ids, target, bos):
  """Logits [t, v], weights [t, s] or None, and contexts along a target, one word at a time."""
  params = float64(params)
  d, source = params["decoder"], Source(config, params, ids)
  layers = first_layers(config, d, source)
  fed, pending, logits, all_weights, contexts = None, None, [], [], []
  if config.input_feeding == "readout":
    fed = np.zeros(config.units if config.readout == "state" else config.maxout)
  if config.input_feeding == "context":
    fed = np.zeros(source.width)
  for i, previous in enumerate([bos, *target[:-1]]):
    y = params["target"][previous] + params.get("b_target", 0.0)
    if i == 0 and config.first_word == "zeros":
      y = np.zeros_like(y)
    if config.order in ("bahdanau", "bahdanau_appendix"):
      weights, c = attend(config, d, layers[-1][0], source, i)
      before, layers = layers[-1][0], update(config, d, layers, y, c)
      s = layers[-1][0] if config.order == "bahdanau" else before
    elif config.order == "groundhog":
      if i:  # The word before this step updates the state with the context it was emitted from.
        layers = update(config, d, layers, y, pending)
      s = layers[-1][0]
      weights, c = attend(config, d, s, source, i)
      pending = c
    elif config.order == "luong":
      layers = update(config, d, layers, y, fed=fed)
      s = layers[-1][0]
      weights, c = attend(config, d, s, source, i)
    else:
      between, _ = advance(config, d, affine(d, "w", y, "b"), layers[0])
      weights, c = attend(config, d, between, source, i)
      layers = [advance(config, d["second"], again(d, c), (between, None))]
      s = layers[0][0]
    t = read_out(config, d, s, y, c)
    fed = {"none": None, "readout": t, "context": c}[config.input_feeding]
    shown = d["w_t"] @ t if "w_t" in d else t
    logits.append(affine(d, "w_o", shown, "b_w"))
    all_weights.append(weights)
    contexts.append(c)
  attends = config.score != "none"
  return np.array(logits), np.array(all_weights) if attends else None, np.array(contexts)


def again(d, c):
  """What the second GRU of a conditional GRU adds to its state's share."""
  return affine({"c": d["c"], **d["second"]}, "c", c, "b")
