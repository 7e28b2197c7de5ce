"""The runs of `experiments.two_roles` with the model family, and attention against plain loops."""

import bisect
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import attn
from attn.data import catalog, pipeline
from attn.data.vocabulary import BOS
from attn.models import ModelConfig, bind
from attn.models.functional import Params, parameter_count
from attn.training import Trained, loop

# The two models of the arithmetic, beside their widths.
MODELS: dict[str, dict[str, Any]] = {
  "additive": {"score": "additive"},
  "dot": {
    "score": "dot", "cell": "lstm", "encoder": "forward", "initial_state": "all_layers",
    "order": "luong", "readout": "tanh",
  },
}  # fmt: skip


def balanced(model: ModelConfig) -> ModelConfig:
  """The model with split annotations and as many parameters, as nearly as its units allow."""
  split = lambda units: dataclasses.replace(model, memory="split", units=units)  # noqa: E731
  count, wanted = lambda units: parameter_count(split(units)), parameter_count(model)  # noqa: E731
  units = range(model.units, 2 * model.units + 1)
  above = units[min(bisect.bisect_left(units, wanted, key=count), len(units) - 1)]
  return split(min((above - 1, above), key=lambda n: abs(count(n) - wanted)))


def recomputed(trained: Trained, label: str) -> dict[str, float]:
  """What `differences` finds along test references of a trained model."""
  del label
  store = _short(trained, 64)
  batch = store.batch(np.arange(len(store), dtype=np.int32), trained.config.data.bucket_edges[-1])
  given = batch["source"], batch["source_length"], batch["target"]
  return differences(trained.config.model, trained.params, *given)


def differences(
  config: ModelConfig, params: Params, source: jax.Array, length: jax.Array, target: jax.Array
) -> dict[str, float]:
  """How far a model's contexts lie from those of `attn.attend`.

  Args:
    config: the model, of the additive or the dot score.
    params: its parameters.
    source: padded sources.
    length: theirs, EOS counted.
    target: padded references, along which it decodes.

  Returns:
    `model`: the largest difference with annotations as keys and values; `other`: with each
    annotation's neighbour as its value.
  """
  query, contexts, annotations, mask = _read(config, params, source, length, target)
  score = attn.dot
  if config.score == "additive":
    own = params["decoder"]["score"]
    score = functools.partial(attn.additive, **{name: own[name] for name in ("w_a", "u_a", "v_a")})
  found = {}
  for name, values in (("model", None), ("other", jnp.roll(annotations, 1, axis=-2))):
    attended = attn.attend(query, annotations, values, mask, score=score).context
    found[name] = float(jnp.abs(attended - contexts).max())
  return found


def _short(trained: Trained, count: int | None) -> pipeline.TokenStore:
  """Test pairs of the lengths trained on."""
  data = trained.config.data
  corpus = catalog.load(data.name, "test", data.data_dir)
  sides = zip(
    map(trained.source.encode, corpus.sources), map(trained.target.encode, corpus.targets),
    strict=True,
  )  # fmt: skip
  kept = [pair for pair in sides if max(map(len, pair)) < data.bucket_edges[-1]][:count]
  sizes = {"source_size": len(trained.source), "target_size": len(trained.target)}
  return pipeline.TokenStore.from_ids(*zip(*kept, strict=True), **sizes)


@functools.partial(jax.jit, static_argnums=0)
def _read(
  config: ModelConfig, params: Params, source: jax.Array, length: jax.Array, target: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """Queries and contexts of all steps `[b, t, ...]`, annotations, and what may be attended to."""
  model = bind(config, params)
  memory = model.encode(source, length)
  previous = jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)

  def advance(state: Any, word: jax.Array) -> tuple[Any, Any]:
    _, step = model.step(memory, state, word)
    return step.state, (step.query, step.context)

  _, made = jax.lax.scan(advance, model.start(memory), previous.T)
  query, context = (jnp.swapaxes(leaf, 0, 1) for leaf in made)
  return query, context, memory.annotations, memory.mask


def scored(trained: Trained, label: str) -> dict[str, float]:
  """Nats a symbol of the test pairs of the lengths trained on, and the number of parameters."""
  del label
  nats = loop.validation(trained.config, trained.params, _short(trained, None))["dev_loss"]
  return {"nats": float(nats), "parameters": parameter_count(trained.config.model)}


def against_loops(seed: int) -> dict[str, float]:
  """The largest difference of `attn.attend` with H twice to loops in float64, for two scores."""
  random = np.random.default_rng(seed)
  t, s, k, n = 5, 7, 11, 13
  query, keys = random.standard_normal((t, k)), random.standard_normal((s, k))
  w_a, u_a = random.standard_normal((2, n, k)) / np.sqrt(k)
  v_a = random.standard_normal(n)
  scores = {
    "dot": (attn.dot, lambda q, h: q @ h),
    "additive": (
      functools.partial(attn.additive, w_a=w_a, u_a=u_a, v_a=v_a),
      lambda q, h: v_a @ np.tanh(w_a @ q + u_a @ h),
    ),
  }
  found = {}
  for name, (op, loop_of) in scores.items():
    contexts = np.zeros((t, k))
    for i in range(t):
      raised = np.exp([loop_of(query[i], h) for h in keys])
      contexts[i] = sum(share * h for share, h in zip(raised / raised.sum(), keys, strict=True))
    found[name] = float(np.abs(attn.attend(query, keys, keys, score=op).context - contexts).max())
  return found
