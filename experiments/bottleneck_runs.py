"""The runs of `experiments.bottleneck`: one model trained, decoded and summed up by length."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attn import configs
from attn.data import catalog, pipeline
from attn.data.vocabulary import UNK
from attn.evaluation import alignment
from attn.evaluation.by_length import by_length
from attn.evaluation.groups import share_groups
from attn.models import ModelConfig, bind
from attn.models.functional import Params
from attn.models.memory import Memory
from attn.report import results
from attn.training import TrainConfig, Trained, scoring, train

ATTENTION, FIXED, FIRST_STATE = "attention", "fixed vector", "first state"
PAIR = (ATTENTION, FIXED)  # what every cell is trained as
# How each model differs from that with attention. Without `project_summary` a first state is made
# from the backward half of the fixed vector alone.
ARMS: dict[str, dict[str, Any]] = {
  ATTENTION: {},
  FIXED: {"model.score": "none"},
  FIRST_STATE: {
    "model.score": "none", "model.context": "none", "model.project_summary": True,
  },
}  # fmt: skip

_SHOWN_LENGTH = 12  # symbols of the source whose attention is drawn
_SHARES = (0.0, 0.2)  # largest shares of unknown symbols of the groups but the last
_MIDDLE = (8, 12)  # lengths of the sources grouped by it: short ones have fewer unknown symbols


@dataclasses.dataclass(frozen=True)
class Group:
  """Test sources of neighbouring lengths, or of like shares of unknown symbols.

  Attributes:
    label: their lengths, such as `6-10`, or shares.
    sources: how many.
    symbol_errors: edits over reference symbols, %.
    word_errors: outputs that equal no reference, %.
  """

  label: str
  sources: int
  symbol_errors: float
  word_errors: float


@dataclasses.dataclass(frozen=True)
class Shown:
  """The attention of one test pair.

  Attributes:
    source: symbols.
    target: symbols of the reference.
    weights: a row a target symbol, a column a source symbol.
    links: the true (source, target) links; None where they are not known.
  """

  source: list[str]
  target: list[str]
  weights: list[list[float]]
  links: list[list[int]] | None


@dataclasses.dataclass(frozen=True)
class Measured:
  """What one trained model did on the test split.

  Attributes:
    sources: how many were decoded.
    word_errors: outputs that equal no reference, %.
    symbol_errors: edits over reference symbols, %.
    groups: the same by length, short to long.
    context_change: largest difference between the contexts of two steps of one target.
    context_effect: largest change of a logit when every context is zeros, the first state the same.
    kept: symbols of one batch still predicted along the reference, %, when the decoder starts from
      zeros and reads zeros in place of the fixed vector: what arrives by other channels.
    alignment_error: against gold along the references, %; None without gold or attention.
    shown: one test pair and the weights between its sides; None without attention.
    unknown: sources of middling length by their share of unknown symbols; none where the data's
      vocabulary has all symbols.
  """

  sources: int
  word_errors: float
  symbol_errors: float
  groups: tuple[Group, ...]
  context_change: float
  context_effect: float
  kept: float
  alignment_error: float | None
  shown: Shown | None
  unknown: tuple[Group, ...] = ()


def measure(
  config: TrainConfig,
  arm: str,
  seed: int,
  folder: pathlib.Path,
  *,
  edges: tuple[int, ...],
  test: int | None,
) -> Measured:
  """Trains and decodes one model, or goes on with it; what is finished is read back.

  Args:
    config: the run with attention.
    arm: which model, a key of `ARMS`.
    seed: of everything random.
    folder: the training run's folder; `measured.json` appears in it when all is done.
    edges: longest sources of the groups by length.
    test: test pairs to decode; None takes all.
  """
  config = configs.override(config, {**ARMS[arm], "seed": seed})
  done = folder / "measured.json"
  if done.exists():
    return _read(done)
  label = f"{config.data.name}, {arm}, seed {seed}"
  trained = train(config, folder, label=label)
  corpus = catalog.load(config.data.name, "test", config.data.data_dir, test)
  measured = _sum_up(trained, corpus, edges, label)
  results.write_text(done, json.dumps(dataclasses.asdict(measured)))
  return measured


def _sum_up(
  trained: Trained, corpus: catalog.Corpus, edges: tuple[int, ...], label: str
) -> Measured:
  outputs = scoring.decode(trained, corpus, label=f"{label}, decoding")
  aligned = shown = None
  if trained.config.model.attends:
    weights = scoring.forced_weights(trained, corpus)
    shown = _shown(trained, corpus, weights)
    if corpus.alignments is not None:
      links = list(map(alignment.links, weights))
      aligned = 100 * alignment.alignment_error_rate(links, corpus.alignments)
  change, effect, kept = _probed(trained, corpus)
  return Measured(
    sources=len(outputs.sources),
    word_errors=100 * outputs.word_error_rate,
    symbol_errors=100 * outputs.symbol_error_rate,
    groups=_groups(outputs, edges),
    context_change=change,
    context_effect=effect,
    kept=kept,
    alignment_error=aligned,
    shown=shown,
    unknown=_by_unknown(trained, outputs) if trained.config.data.source_size else (),
  )


def _groups(outputs: scoring.Outputs, edges: tuple[int, ...]) -> tuple[Group, ...]:
  """Sums over the sources of each group; the last one is open."""
  grouped = [
    by_length(values, outputs.lengths, edges)
    for values in (outputs.edits, outputs.reference_lengths, outputs.wrong)
  ]
  groups = []
  for edits, symbols, wrong in zip(*grouped, strict=True):
    if edits.interval is None or symbols.interval is None or wrong.interval is None:
      raise results.ResultError(
        f"no test source has {edits.label} symbols: choose other edges than {edges}, or a larger"
        " test"
      )
    errors = edits.interval.mean / symbols.interval.mean
    groups.append(Group(edits.label, edits.n, 100 * errors, 100 * wrong.interval.mean))
  return tuple(groups)


def _by_unknown(trained: Trained, outputs: scoring.Outputs) -> tuple[Group, ...]:
  """Sums over the sources of middling length by their share of unknown symbols."""
  middle = (outputs.lengths >= _MIDDLE[0]) & (outputs.lengths <= _MIDDLE[1])
  shares = [np.mean(np.equal(trained.source.encode(text), UNK)) for text in outputs.sources]
  groups = []
  for group in share_groups(np.where(middle, shares, np.nan), _SHARES):
    at = group.members
    if not at.size:
      raise results.ResultError(
        f"no test source of {_MIDDLE[0]} to {_MIDDLE[1]} symbols has {group.label} unknown ones:"
        " choose another data.source_size, or a larger test"
      )
    errors = outputs.edits[at].sum() / outputs.reference_lengths[at].sum()
    groups.append(
      Group(group.label, at.size, 100 * float(errors), 100 * float(outputs.wrong[at].mean()))
    )
  return tuple(groups)


@functools.partial(jax.jit, static_argnames="config")
def probe(
  config: ModelConfig, params: Params, batch: dict[str, Array]
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
  """What the contexts and the fixed vector of a batch do.

  Returns:
    The largest change of a context from its target's first; the largest change of a logit without
    contexts; the share kept without the vector.
  """
  model = bind(config, params)
  memory, target = model.encode(batch["source"], batch["source_length"]), batch["target"]
  real = jnp.arange(target.shape[1]) < batch["target_length"][:, None]
  no_vector = jnp.zeros_like(memory.summary)
  no_contexts = memory._replace(values=jnp.zeros_like(memory.values), summary=no_vector)
  cut = memory._replace(initial=jnp.zeros_like(memory.initial), summary=no_vector)
  # One program runs all three, so that what is not read changes nothing, not even by rounding.
  memories = jax.tree.map(lambda *leaves: jnp.stack(leaves), memory, no_contexts, cut)

  def along(one: Memory) -> tuple[Float[Array, "b t v"], Float[Array, "b t k"]]:
    forced = model.along(one, target)
    return forced.logits, forced.contexts

  def largest(difference: Float[Array, "b t k"]) -> Float[Array, ""]:
    return jnp.max(jnp.abs(difference), where=real[..., None], initial=0.0)

  logits, contexts = jax.lax.map(along, memories)
  right = logits[2].argmax(-1) == target
  return (
    largest(contexts[0] - contexts[0][:, :1]),
    largest(logits[1] - logits[0]),
    jnp.sum(right, where=real) / real.sum(),
  )


def _probed(trained: Trained, corpus: catalog.Corpus) -> tuple[float, float, float]:
  """What `probe` finds in the batch of middling length, the share in %."""
  store = pipeline.TokenStore.encode(corpus, trained.source, trained.target)
  data = trained.config.data
  batches = pipeline.evaluation_batches(store, batch_size=data.batch_size, edges=data.bucket_edges)
  found = probe(trained.config.model, trained.params, batches[len(batches) // 2])
  change, effect, kept = map(float, found)
  return change, effect, 100 * kept


def _shown(
  trained: Trained, corpus: catalog.Corpus, weights: Sequence[Float[np.ndarray, "t s"]]
) -> Shown:
  """The weights along the first test pair whose source is nearest to the length to show."""
  split = trained.source.split
  lengths = np.array([len(split(text)) for text in corpus.sources])
  at = int(np.abs(lengths - _SHOWN_LENGTH).argmin())
  links = None if corpus.alignments is None else corpus.alignments[at].tolist()
  source, target = split(corpus.sources[at]), trained.target.split(corpus.targets[at])
  return Shown(list(source), list(target), weights[at].tolist(), links)


def _read(path: pathlib.Path) -> Measured:
  data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
  for name in ("groups", "unknown"):
    data[name] = tuple(Group(**group) for group in data[name])
  data["shown"] = Shown(**data["shown"]) if data["shown"] else None
  return Measured(**data)
