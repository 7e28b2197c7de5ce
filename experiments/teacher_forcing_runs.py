"""The runs of `experiments.teacher_forcing`: a model fed the truth, and fed its own words."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

import attn
from attn.data import catalog, pipeline
from attn.data.vocabulary import BOS, EOS, PAD
from attn.decoding.greedy import greedy
from attn.evaluation import error_rates
from attn.models import ModelConfig, State, bind
from attn.models.functional import Params
from attn.training import Trained, objective, sampling
from attn.training.progress import Progress

# Of the words read, those that are the model's own; the first is the truth alone.
FED_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclasses.dataclass(frozen=True)
class Measured:
  """One trained model on the test split. Errors along the reference are unlikeliest symbols.

  Attributes:
    losses: nats a symbol along the reference, at each of `FED_SHARES`.
    symbol_errors: edits of greedy outputs over reference symbols, %.
    word_errors: greedy outputs that equal no reference, %.
    forced_errors: symbols wrong along the reference, fed the truth, %.
    forced_by_place: the same at the first, second, ... symbol.
    own_by_place: symbols that differ from the reference at the same place, fed its own, %.
    forced_since: errors fed the truth at the first, second, ... symbol after the first error, %.
    own_since: the same fed its own words, of the same symbols of the same words.
    gap: largest difference between the log-probability of a greedy output as it was made and along
      itself, nats.
  """

  losses: list[float]
  symbol_errors: float
  word_errors: float
  forced_errors: float
  forced_by_place: list[float]
  own_by_place: list[float]
  forced_since: list[float]
  own_since: list[float]
  gap: float


class Probed(NamedTuple):
  """A batch.

  Attributes:
    forced: the likeliest symbol at each place of the reference, fed the truth.
    own: the greedy output, PAD behind its end.
    real: where the reference has a symbol.
    losses: summed, at each of `FED_SHARES`.
    gap: see `Measured`.
  """

  forced: Int[Array, "b t"]
  own: Int[Array, "b t"]
  real: Bool[Array, "b t"]
  losses: Float[Array, " shares"]
  gap: Float[Array, ""]


@functools.partial(jax.jit, static_argnums=0)
def probe(config: ModelConfig, params: Params, batch: dict[str, Array], rng: Array) -> Probed:
  """Decodes a batch by itself, along what came of that, and along its targets in part."""
  model, target, length = bind(config, params), batch["target"], batch["target_length"]
  memory, room = model.encode(batch["source"], batch["source_length"]), target.shape[1]
  shared = memory.for_hypotheses()

  def step(state: State, previous: Array) -> tuple[Array, State, None]:
    log_probs, made = model.step(shared, state, previous)
    return log_probs, made.state, None

  limits = jnp.where(length > 0, room, 0)
  found = greedy(step, model.start(shared), limits, maximum_length=room, eos=EOS, bos=BOS, pad=PAD)
  own, made = found.tokens[:, 0], jnp.where(length > 0, found.log_probs[:, 0], 0.0)
  again = objective.token_losses(model.along(memory, own).logits, own, found.lengths[:, 0])
  fed = jax.vmap(lambda share: sampling.logits(model, batch, rng, share))(jnp.array(FED_SHARES))
  losses = jax.vmap(lambda log_probs: objective.token_losses(log_probs, target, length))(fed)
  return Probed(
    forced=fed[0].argmax(-1),
    own=own,
    real=attn.length_mask(length, room),
    losses=losses.sum((1, 2)),
    gap=jnp.abs(again.sum(1) + made).max(),
  )


def measure(trained: Trained, label: str, *, test: int | None, places: int) -> dict[str, Any]:
  """Feeds a trained model the truth, and its own words.

  Args:
    trained: the model.
    label: what its progress is called.
    test: test pairs at most; None takes all.
    places: how many symbols, and how many after the first error.
  """
  config = trained.config
  corpus = catalog.load(config.data.name, "test", config.data.data_dir)
  store = pipeline.TokenStore.encode(corpus, trained.source, trained.target)
  size, edge = config.data.batch_size, config.data.bucket_edges[-1]
  kept = np.flatnonzero(store.lengths <= edge)[:test]  # longer pairs want programs of their own
  rng, probed, targets = jax.random.key(config.seed), [], []
  with Progress(f"{label}, fed its own", len(kept)) as progress:
    for start in range(0, len(kept), size):
      index = np.full(size, -1, np.int32)
      rows = kept[start : start + size]
      index[: len(rows)] = rows
      batch = store.batch(index, edge)
      drawn = jax.random.fold_in(rng, start)
      probed.append(jax.device_get(probe(config.model, trained.params, batch, drawn)))
      targets.append(batch["target"])
      progress.update(start + len(rows))
  # Rows that only fill the last batch are behind the others.
  target, forced, own, real = (
    np.concatenate(parts)[: len(kept)]
    for parts in (targets, *zip(*(one[:3] for one in probed), strict=True))
  )
  symbol_errors, word_errors = _decoded(trained, corpus, kept, own)
  forced_since, own_since = since_first(forced != target, own != target, real, places)
  return dataclasses.asdict(
    Measured(
      losses=(sum(one.losses for one in probed) / real.sum()).tolist(),
      symbol_errors=symbol_errors,
      word_errors=word_errors,
      forced_errors=100 * float((forced != target)[real].mean()),
      forced_by_place=by_place(forced != target, real, places),
      own_by_place=by_place(own != target, real, places),
      forced_since=forced_since,
      own_since=own_since,
      gap=max(float(one.gap) for one in probed),
    )
  )


def _decoded(
  trained: Trained, corpus: catalog.Corpus, kept: np.ndarray, own: np.ndarray
) -> tuple[float, float]:
  """Symbol and word errors of greedy outputs, a source once, against all its targets, %."""
  references: dict[str, list[Sequence[str]]] = {}
  for source, target in zip(corpus.sources, corpus.targets, strict=True):
    references.setdefault(source, []).append(trained.target.split(target))
  made = {corpus.sources[at]: trained.target.spell(ids) for at, ids in zip(kept, own, strict=True)}
  accepted = [references[source] for source in made]
  outputs = list(made.values())
  return (
    100 * error_rates.phoneme_error_rate(outputs, accepted),
    100 * error_rates.word_error_rate(outputs, accepted),
  )


def by_place(
  wrong: Bool[np.ndarray, "n t"], real: Bool[np.ndarray, "n t"], places: int
) -> list[float]:
  """Share that is wrong at the first, second, ... symbol, %."""
  return [100 * float(wrong[:, at][real[:, at]].mean()) for at in range(places)]


def since_first(
  forced: Bool[np.ndarray, "n t"],
  own: Bool[np.ndarray, "n t"],
  real: Bool[np.ndarray, "n t"],
  places: int,
) -> tuple[list[float], list[float]]:
  """Share that is wrong 1, 2, ... symbols after a word's first error fed its own words, %.

  Up to that error both were fed the same. Words and symbols are the same for both.

  Args:
    forced: where the model is wrong, fed the truth.
    own: where it is, fed its own words.
    real: where the reference has a symbol.
    places: how many.
  """
  own = own & real
  rows = np.flatnonzero(own.any(1))
  first = own[rows].argmax(1)
  shares: list[tuple[float, float]] = []
  for distance in range(1, places + 1):
    at = first + distance
    inside = at < real.shape[1]
    row, at = rows[inside], at[inside]
    row, at = row[real[row, at]], at[real[row, at]]
    if not len(row):
      break
    shares.append((100 * float(forced[row, at].mean()), 100 * float(own[row, at].mean())))
  return [one for one, _ in shares], [one for _, one in shares]


def read(data: Mapping[str, Any]) -> Measured:
  """What `measure` returned, from its plain form."""
  return Measured(**data)
