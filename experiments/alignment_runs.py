"""The runs of `experiments.alignment`: weights along references, read, and replaced by others."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

import attn
from attn import configs
from attn.data import catalog, pipeline
from attn.data.vocabulary import BOS
from attn.evaluation import alignment
from attn.models import ModelConfig, bind
from attn.models.functional import Params
from attn.report import results
from attn.training import TrainConfig, Trained

_LUONG: dict[str, Any] = {"order": "luong", "readout": "tanh", "input_feeding": "readout"}
# What each model is, beside its widths: RNNsearch, and in Luong's order the scores and windows of
# his Table 6. All have RNNsearch's encoder and cell, so that nothing but the attention differs.
MODELS: dict[str, dict[str, Any]] = {
  "additive": {"score": "additive"},
  "general": {**_LUONG, "score": "general"},
  "location": {**_LUONG, "score": "location"},
  "local-m": {**_LUONG, "score": "general", "window": "local_m"},
  "local-p": {**_LUONG, "score": "general", "window": "local_p"},
}
LOCAL, GLOBAL_LOCATION = ("local-m", "local-p"), "location"
REPLACED = ("additive", "general")  # whose weights are replaced by others
OUTPUT, INPUT = "output word", "input word"  # what the weights of a step are held to be of

_SPREAD = 3.0  # of the logits that a search begins with, as in Jain and Wallace 2019
_RATE = 0.1
# For each factor e by which an output changes too much. A penalty in proportion to the change, as
# theirs, steers at it alone: on a case with a known end it stopped halfway.
_PENALTY = 0.5


@dataclasses.dataclass(frozen=True)
class Sizes:
  """How much of a trained model is looked at.

  Attributes:
    pairs: test pairs whose weights are read.
    steps: their decoding steps whose weights are replaced, the same ones for each model and seed.
    starts: random weights that each search for others begins with.
    updates: of each search.
    change: largest total variation between outputs that count as the same.
  """

  pairs: int = 256
  steps: int = 150
  starts: int = 8
  updates: int = 200
  change: float = 0.01

  def __post_init__(self) -> None:
    """Refuses what leaves nothing to look at."""
    for name in ("pairs", "steps", "starts", "updates"):
      if getattr(self, name) < 1:
        raise configs.ConfigError(f"{name} is {getattr(self, name)}: it must be at least 1")
    if not 0 < self.change < 1:
      raise configs.ConfigError(f"change is {self.change}: a total variation lies between 0 and 1")


def cells(
  train: TrainConfig, models: Sequence[str], tasks: Sequence[str]
) -> dict[str, TrainConfig]:
  """The runs by `TASK-MODEL`, in an order that leaves each model to one of two processes."""
  sides = [[(task, model) for model in models[side::2] for task in tasks] for side in (0, 1)]
  taking_turns = (cell for pair in itertools.zip_longest(*sides) for cell in pair if cell)
  return {f"{task}-{model}": resolved(train, task, model) for task, model in taking_turns}


def resolved(train: TrainConfig, task: str, model: str) -> TrainConfig:
  """The training run of one model on one task."""
  choices = {f"model.{name}": value for name, value in MODELS[model].items()}
  return configs.override(train, {**choices, "data.name": task})


def measure(trained: Trained, label: str, *, sizes: Sizes) -> dict[str, Any]:
  """What the weights of one trained model are like.

  Args:
    trained: the model.
    label: of its run; nothing here takes long enough to show progress.
    sizes: how much is looked at.

  Returns:
    `right`: share of symbols predicted along the references, and `nats` a symbol. `error_rates`: of
    alignment, by what a step's weights are held to be of, and of `diagonal` and `chance`, which see
    no weights. Of a model in `REPLACED` also `replaced`, what that function finds a step, and the
    `weights` and `lengths` of those steps.
  """
  del label
  config, params = trained.config.model, trained.params
  batch, gold = _pairs(trained, sizes.pairs)
  source, target = batch["source"], batch["target"]
  length, until = batch["source_length"], batch["target_length"]
  weights, log_probs, right = jax.device_get(_along(config, params, source, length, target))
  real = np.arange(target.shape[1])[None] < until[:, None]
  cut = [one[:t, :s] for one, t, s in zip(weights, until, length, strict=True)]
  found: dict[str, Any] = {
    "right": float(right[real].mean()),
    "nats": float(-log_probs[real].mean()),
    "error_rates": {**error_rates(cut, gold), **baselines(cut, gold)},
  }
  if config.score in REPLACED and config.window == "global":
    at = np.argwhere(real)
    at = at[np.sort(np.random.default_rng(0).permutation(len(at))[: sizes.steps])]
    given = (config, sizes, params, source, length, target, at, jax.random.key(0))
    found["replaced"] = jax.device_get(replaced(*given))
    found["weights"] = weights[at[:, 0], at[:, 1]]
    found["lengths"] = length[at[:, 0]]
  return dict(results.to_plain(found, 6))


def _pairs(trained: Trained, count: int) -> tuple[pipeline.Batch, list[Any]]:
  """The first test pairs of the lengths trained on, as one batch, and their gold links in order."""
  data = trained.config.data
  corpus, edge = catalog.load(data.name, "test", data.data_dir), data.bucket_edges[-1]
  if corpus.alignments is None:
    raise results.ResultError(f"{data.name} has no gold alignment: choose other tasks")
  ids = [
    (trained.source.encode(source), trained.target.encode(target), links)
    for source, target, links in zip(corpus.sources, corpus.targets, corpus.alignments, strict=True)
  ]
  kept = [one for one in ids if max(len(one[0]), len(one[1])) < edge][:count]
  sources, targets, gold = zip(*kept, strict=True)
  sizes = {"source_size": len(trained.source), "target_size": len(trained.target)}
  store = pipeline.TokenStore.from_ids(sources, targets, **sizes)
  return store.batch(np.arange(len(kept), dtype=np.int32), edge), list(gold)


@functools.partial(jax.jit, static_argnums=0)
def _along(
  config: ModelConfig, params: Params, source: Array, length: Array, target: Array
) -> tuple[Float[Array, "b t s"], Float[Array, "b t"], Array]:
  """Weights along the references, log-probabilities of their symbols, and which are likeliest."""
  forced = bind(config, params).teacher_forced(source, length, target)
  log_probs = jax.nn.log_softmax(forced.logits)
  assert forced.weights is not None
  own = jnp.take_along_axis(log_probs, target[..., None], axis=-1)[..., 0]
  return forced.weights, own, log_probs.argmax(-1) == target


def error_rates(weights: Sequence[np.ndarray], gold: Sequence[Any]) -> dict[str, float]:
  """Alignment error rate where each step's weights are held to be of y_i, and where of y_{i-1}.

  Args:
    weights: a pair's `[t, s]`, a row and a column for EOS last: the last word is the input of the
      step that writes EOS.
    gold: the links of each pair.
  """
  columns = {OUTPUT: [one[:-1, :-1] for one in weights], INPUT: [one[1:, :-1] for one in weights]}
  return {
    name: alignment.alignment_error_rate([alignment.links(one) for one in rows], gold)
    for name, rows in columns.items()
  }


def baselines(weights: Sequence[np.ndarray], gold: Sequence[Any]) -> dict[str, float]:
  """Alignment error rates without weights: of the diagonal, and expected of a source at random.

  Args:
    weights: as in `error_rates`, for their shapes.
    gold: the links of each pair.
  """
  shapes = [(len(one) - 1, one.shape[1] - 1) for one in weights]
  diagonal = [{((2 * i + 1) * s // (2 * t), i) for i in range(t)} for t, s in shapes]
  hits = sum(len(links) / s for links, (_, s) in zip(gold, shapes, strict=True))
  given = sum(t for t, _ in shapes) + sum(map(len, gold))
  return {
    "diagonal": alignment.alignment_error_rate(diagonal, gold),
    "chance": 1 - 2 * hits / given,
  }


def divergence(p: Float[Array, "... s"], q: Float[Array, "... s"]) -> Float[Array, "..."]:
  """Jensen-Shannon divergence of two distributions, from 0 to ln 2 nats."""
  return attn.entropy((p + q) / 2) - (attn.entropy(p) + attn.entropy(q)) / 2


def variation(log_p: Float[Array, "... v"], log_q: Float[Array, "... v"]) -> Float[Array, "..."]:
  """Total variation of two distributions from their logarithms, from 0 to 1."""
  return jnp.abs(jnp.exp(log_p) - jnp.exp(log_q)).sum(-1) / 2


def turned(
  weights: Float[Array, "n s"], length: Int[Array, " n"], rng: Array
) -> Float[Array, "n s"]:
  """The same weights a random number of places on, from 1 to the length less 1, in a circle."""
  by = jax.random.randint(rng, length.shape, 1, jnp.maximum(length, 2))
  places = jnp.arange(weights.shape[-1])[None]
  at = jnp.where(places < length[:, None], (places - by[:, None]) % length[:, None], places)
  return jnp.take_along_axis(weights, at, axis=-1)


@functools.partial(jax.jit, static_argnums=(0, 1))
def replaced(
  config: ModelConfig,
  sizes: Sizes,
  params: Params,
  source: Int[Array, "b s"],
  length: Int[Array, " b"],
  target: Int[Array, "b t"],
  at: Int[Array, "n 2"],
  rng: Array,
) -> dict[str, Float[Array, " n"]]:
  """Gives single steps other weights and computes the rest of the step with them.

  What came before the step stays: the state and the words along the reference.

  Args:
    config: the model, global.
    sizes: of the search.
    params: its parameters.
    source: padded sources.
    length: theirs, EOS counted.
    target: padded references.
    at: row and position of the steps.
    rng: of turned weights and of where the search begins.

  Returns:
    For each step the total variation of its output and what its symbol loses in nats, with uniform
    weights (`uniform change`, `uniform loss`) and with turned ones (`turned change`, ...); and
    `farthest`: the largest Jensen-Shannon divergence of weights from its own that was found among
    those that change the output by at most `sizes.change`.
  """
  model, (row, place) = bind(config, params), at.T
  memory = model.encode(source, length)
  previous = jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)

  def advance(state: Any, word: Array) -> tuple[Any, Any]:
    log_probs, step = model.step(memory, state, word)
    return step.state, (state, step.weights, log_probs)

  _, made = jax.lax.scan(advance, model.start(memory), previous.T)
  state, weights, log_probs = jax.tree.map(lambda leaf: leaf[place, row], made)
  memory, word, label = (
    jax.tree.map(lambda leaf: leaf[row], memory), previous[row, place], target[row, place]
  )  # fmt: skip

  def output(logits: Float[Array, "n s"]) -> Float[Array, "n v"]:
    other = bind(config, params)
    other.decoder.score = lambda query, keys: logits  # of this copy: the softmax stays
    emitted: Array = other.step(memory, state, word)[0]
    return emitted

  def told(name: str, logits: Float[Array, "n s"]) -> dict[str, Array]:
    now = output(logits)
    lost = jnp.take_along_axis(log_probs - now, label[:, None], axis=-1)[:, 0]
    return {f"{name} change": variation(now, log_probs), f"{name} loss": lost}

  turn, begin = jax.random.split(rng)
  around = jnp.log(jnp.maximum(turned(weights, memory.length, turn), 1e-30))

  def ends(logits: Float[Array, "n s"]) -> tuple[Array, tuple[Array, Array]]:
    far = divergence(attn.softmax(logits, memory.mask), weights)
    change = variation(output(logits), log_probs)
    return (excess(change, sizes) - far).sum(), (far, change)

  begun = _SPREAD * jax.random.normal(begin, (sizes.starts, *weights.shape))
  farthest = jax.vmap(lambda logits: search(ends, logits, sizes))(begun).max(0)
  return {
    **told("uniform", jnp.zeros_like(weights)),
    **told("turned", around),
    "farthest": farthest,
  }


def excess(change: Float[Array, " n"], sizes: Sizes) -> Float[Array, " n"]:
  """What a search pays for changes: held a little inside what is allowed, as it goes to and fro."""
  allowed = 0.8 * sizes.change
  return _PENALTY * jnp.log(jnp.maximum(change, allowed) / allowed)


def search(ends: Any, logits: Float[Array, "n s"], sizes: Sizes) -> Float[Array, " n"]:
  """Descends from `logits`; the largest divergence on the way at an allowed change, or 0."""
  optimizer = optax.adam(_RATE, b2=0.9)  # It soon forgets the steep slopes that it began on.

  def update(carry: Any, _: None) -> tuple[Any, None]:
    logits, state, best = carry
    gradient, (far, change) = jax.grad(ends, has_aux=True)(logits)
    best = jnp.where(change <= sizes.change, jnp.maximum(best, far), best)
    moved, state = optimizer.update(gradient, state)
    return (optax.apply_updates(logits, moved), state, best), None

  start = logits, optimizer.init(logits), jnp.zeros(len(logits))
  (_, _, best), _ = jax.lax.scan(update, start, length=sizes.updates)
  return best


def agreement(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
  """How far weights of the seeds of one model lie apart, on the same steps.

  Args:
    runs: what was measured, a seed an entry.

  Returns:
    For each seed the mean divergence of its weights from those of the next one (`seeds`), from the
    same in a circle by a random number of places (`turned`), and of its own from uniform ones.
  """
  lengths = np.array(runs[0]["lengths"])
  all_weights = [np.array(run["weights"]) for run in runs]
  even = (np.arange(all_weights[0].shape[1]) < lengths[:, None]) / lengths[:, None]
  found: dict[str, list[float]] = {"seeds": [], "turned": [], "uniform": []}
  for seed, own in enumerate(all_weights):
    other = all_weights[(seed + 1) % len(all_weights)]
    around = turned(other, lengths, jax.random.key(seed))
    for name, them in (("seeds", other), ("turned", around), ("uniform", even)):
      found[name].append(float(divergence(own, them).mean()))
  return found
