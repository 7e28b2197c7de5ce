"""The runs of `experiments.reversal`: losses by place and length, errors, gradients, and lags."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

import attn
from attn import configs
from attn.data import catalog, pipeline
from attn.evaluation.groups import length_groups
from attn.models import ModelConfig, bind
from attn.models.functional import Params
from attn.report import results
from attn.training import TrainConfig, Trained, objective, scoring, state

FIXED, ATTENTION, BOTH = "fixed vector", "attention", "attention and end state"
# Beside what all share: Sutskever 2014; attention alone, its decoder started from zeros; and Luong
# 2015 without input feeding, whose decoder starts from the end state as well.
ARMS: dict[str, dict[str, Any]] = {
  FIXED: {"score": "none", "context": "none", "readout": "state"},
  ATTENTION: {"score": "dot", "readout": "tanh", "initial_state": "zero"},
  BOTH: {"score": "dot", "readout": "tanh"},
}
FORWARD, REVERSED = "forward", "reversed"
DIRECTIONS = {FORWARD: False, REVERSED: True}  # the value of `model.reverse_source`
PLACES = 5  # parts of a target


@dataclasses.dataclass(frozen=True)
class Norms:
  """Of gradients with respect to each word, the first word first.

  Attributes:
    end: log10 of the norm of the Jacobian of the encoder's end state: h and c, or h alone where
      the decoder does not start from it.
    loss: log10 of the norm of the gradient of the summed loss.
  """

  end: list[float]
  loss: list[float]


@dataclasses.dataclass(frozen=True)
class Measured:
  """One trained model on the test split.

  Attributes:
    loss: nats a symbol along the reference, the end counted.
    right: symbols that are the likeliest along the reference, %.
    symbol_errors: edits of decoded outputs over reference symbols, %.
    word_errors: decoded outputs that equal no reference, %.
    loss_by_place: nats a symbol in each fifth of the targets, the end left out.
    right_by_place: the same of `right`.
    loss_by_length: nats a symbol by length of the source, None where there is no source.
    right_by_length: the same of `right`.
    before: gradients before training.
    after: gradients after training.
  """

  loss: float
  right: float
  symbol_errors: float
  word_errors: float
  loss_by_place: list[float]
  right_by_place: list[float]
  loss_by_length: list[float | None]
  right_by_length: list[float | None]
  before: Norms
  after: Norms


# By data set, model and direction: a run a seed.
Runs = Mapping[str, Mapping[str, Mapping[str, Sequence[Measured]]]]


def cell(data: str, arm: str, direction: str) -> str:
  """The name of what one seed trains."""
  return f"{data}-{arm}-{direction}".replace(" ", "-").replace("/", "-")


def resolved(config: TrainConfig, data: str, arm: str, direction: str) -> TrainConfig:
  """The training run of one cell."""
  choices = {**ARMS[arm], "reverse_source": DIRECTIONS[direction]}
  return configs.override(
    config, {"data.name": data, **{f"model.{name}": value for name, value in choices.items()}}
  )


def read(data: Mapping[str, Any]) -> Measured:
  """What `measure` returned, from its plain form."""
  norms = {time: Norms(**data[time]) for time in ("before", "after")}
  return Measured(**{**data, **norms})


def measure(
  trained: Trained,
  label: str,
  *,
  test: int | None,
  edges: tuple[int, ...],
  words: int,
  sentences: int,
) -> dict[str, Any]:
  """Decodes and scores one trained model, and takes its gradients.

  Args:
    trained: the model.
    label: what its progress is called.
    test: test pairs at most; None takes all.
    edges: longest sources of the groups by length.
    words: of each sentence whose gradients are taken.
    sentences: how many of those at most.
  """
  config = trained.config
  corpus = catalog.load(config.data.name, "test", config.data.data_dir)
  store = pipeline.TokenStore.encode(corpus, trained.source, trained.target)
  drawn = _sentences(store, words, sentences, config.data.bucket_edges[-1])
  # The call that training made: the program is at hand.
  start = state.create(
    config.model, config.optimizer, config.steps, jax.random.key(config.seed)
  ).params
  before, after = (_norms(config.model, params, *drawn) for params in (start, trained.params))
  # Longer pairs were not trained on, and would want programs of their own.
  kept = np.flatnonzero(store.lengths <= config.data.bucket_edges[-1])[:test]
  corpus = catalog.Corpus(
    tuple(corpus.sources[i] for i in kept), tuple(corpus.targets[i] for i in kept)
  )
  outputs = scoring.decode(trained, corpus, label=f"{label}, decoding")
  losses, right, real = _along(trained, corpus)
  letters = np.array([len(trained.source.split(text)) for text in corpus.sources])
  measured = Measured(
    loss=float(losses[real].mean()),
    right=100 * float(right[real].mean()),
    symbol_errors=100 * outputs.symbol_error_rate,
    word_errors=100 * outputs.word_error_rate,
    loss_by_place=by_place(losses, real),
    right_by_place=by_place(100 * right, real),
    loss_by_length=_by_length(losses, real, letters, edges),
    right_by_length=_by_length(100 * right, real, letters, edges),
    before=before,
    after=after,
  )
  return dataclasses.asdict(measured)


def _sentences(
  store: pipeline.TokenStore, words: int, most: int, edge: int
) -> tuple[Int[np.ndarray, "b s"], Int[np.ndarray, "b t"], Int[np.ndarray, " b"]]:
  """Ids of sources of one length, their targets padded to `edge`, and the targets' lengths."""
  size = words + 1  # EOS is there, though not read
  fits = (np.diff(store.source_offsets) == size) & (np.diff(store.target_offsets) <= edge)
  kept = np.flatnonzero(fits)[:most]
  if not len(kept):
    raise results.ResultError(f"no test source has {words} symbols: set another number of words")
  batch = store.batch(kept, max(size, edge))
  return batch["source"][:, :size], batch["target"], batch["target_length"]


@functools.partial(jax.jit, static_argnums=0)
def gradients(
  config: ModelConfig,
  params: Params,
  source: Int[Array, "b s"],
  target: Int[Array, "b t"],
  target_length: Int[Array, " b"],
) -> tuple[Float[Array, "b s"], Float[Array, "b s"]]:
  """Norms of what each embedded source word does to the end state, and to the summed loss."""

  def one(source: Array, target: Array, size: Array) -> tuple[Array, Array]:
    # A table of this sentence's words alone: its gradient is that of each word at its place.
    places, length = jnp.arange(len(source))[None], jnp.array([len(source)])

    def end(table: Array) -> Array:
      memory = bind(config, {**params, "source": table}).encode(places, length)
      leaves = jax.tree.leaves(memory.initial) or [memory.summary]
      return jnp.concatenate([leaf.ravel() for leaf in leaves])

    def loss(table: Array) -> Array:
      forced = bind(config, {**params, "source": table}).teacher_forced(
        places, length, target[None]
      )
      return objective.token_losses(forced.logits, target[None], size[None]).sum()

    table = params["source"][source]
    jacobian, gradient = jax.jacrev(end)(table), jax.grad(loss)(table)
    return jnp.sqrt((jacobian**2).sum((0, 2))), jnp.linalg.norm(gradient, axis=-1)

  return jax.vmap(one)(source, target, target_length)


def _norms(config: ModelConfig, params: Params, *sentences: np.ndarray) -> Norms:
  """Geometric means over sentences; EOS, which is not read, is left out."""
  end, loss = (
    np.log10(np.asarray(norms, np.float64)[:, :-1]).mean(0).tolist()
    for norms in gradients(config, params, *sentences)
  )
  return Norms(end, loss)


@functools.partial(jax.jit, static_argnums=0)
def _scored(
  config: ModelConfig, params: Params, batch: dict[str, Array]
) -> tuple[Float[Array, "b t"], Bool[Array, "b t"], Bool[Array, "b t"]]:
  """Loss of each symbol along the reference, whether it is the likeliest, whether it is real."""
  target, length = batch["target"], batch["target_length"]
  logits = bind(config, params).teacher_forced(batch["source"], batch["source_length"], target)
  losses = objective.token_losses(logits.logits, target, length)
  right = logits.logits.argmax(-1) == target
  return losses, right, attn.length_mask(length, target.shape[1])


def _along(
  trained: Trained, corpus: catalog.Corpus
) -> tuple[Float[np.ndarray, "n t"], Bool[np.ndarray, "n t"], Bool[np.ndarray, "n t"]]:
  """The same of all pairs, in the order of the corpus."""
  store = pipeline.TokenStore.encode(corpus, trained.source, trained.target)
  data = trained.config.data
  batches = pipeline.evaluation_batches(
    store, batch_size=data.batch_size, edges=data.bucket_edges[-1:]
  )
  found = [
    (batch["index"], *_scored(trained.config.model, trained.params, batch)) for batch in batches
  ]
  index, losses, right, real = (np.concatenate(parts) for parts in zip(*found, strict=True))
  order = np.argsort(index)[-len(store) :]  # rows that only fill a batch have index -1
  return losses[order], right[order], real[order]


def by_place(values: Float[np.ndarray, "n t"], real: Bool[np.ndarray, "n t"]) -> list[float]:
  """Means over symbols in each of `PLACES` equal parts of the targets, whose end does not count.

  Args:
    values: of each symbol.
    real: whether there is one; the last of a row is EOS.
  """
  symbols = real.sum(1, keepdims=True) - 1
  at = np.arange(values.shape[1])
  place = np.where(at < symbols, PLACES * (2 * at + 1) // np.maximum(2 * symbols, 1), -1)
  if missing := set(range(PLACES)) - set(np.unique(place).tolist()):
    raise results.ResultError(f"no test target has a symbol in part {min(missing)}: raise test")
  return [float(values[place == part].mean()) for part in range(PLACES)]


def _by_length(
  values: np.ndarray, real: np.ndarray, letters: np.ndarray, edges: Sequence[int]
) -> list[float | None]:
  members = (group.members for group in length_groups(letters, edges))
  return [float(values[m][real[m]].mean()) if len(m) else None for m in members]


def slope(logs: Sequence[float], direction: str) -> float:
  """Decades of a norm for ten words more that were read after a word.

  Args:
    logs: log10 of the norm for each word, the first of the text first.
    direction: in which it was read.
  """
  since = np.arange(len(logs))
  if direction == FORWARD:
    since = since[::-1]
  return 10 * float(np.polyfit(since, logs, 1)[0])


def lags(links: Int[np.ndarray, "n 2"], words: int, direction: str) -> Int[np.ndarray, " n"]:
  """Steps from reading a source word to writing its target word, in a chain of both sentences.

  Args:
    links: (source, target) positions from 0.
    words: of the source.
    direction: in which it is read.
  """
  source, target = np.asarray(links).T
  read_at = source if direction == FORWARD else words - 1 - source
  return words + target - read_at


def lag_table(corpus: catalog.Corpus) -> dict[str, dict[str, list[float]]]:
  """By direction the least, mean and largest lag of each pair, whose alignment has to be known."""
  assert corpus.alignments is not None
  table: dict[str, dict[str, list[float]]] = {}
  sizes = [len(text.split()) for text in corpus.sources]
  for direction in DIRECTIONS:
    found = [
      lags(links, size, direction) for links, size in zip(corpus.alignments, sizes, strict=True)
    ]
    table[direction] = {
      name: [float(of(one)) for one in found]
      for name, of in (("least", np.min), ("mean", np.mean), ("largest", np.max))
    }
  return table
