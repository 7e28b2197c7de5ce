"""The runs of `experiments.bottleneck`: one model trained, decoded and summed up by length."""

import dataclasses
import functools
import json
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attn import configs
from attn.data import catalog, pipeline
from attn.evaluation import alignment
from attn.models import ModelConfig, bind
from attn.models.functional import Params
from attn.report import results
from attn.training import TrainConfig, Trained, scoring, train

ATTENTION, FIXED = "attention", "fixed vector"
ARMS = {ATTENTION: "additive", FIXED: "none"}  # the value of `model.score`

_SHOWN_LENGTH = 12  # symbols of the source whose attention is drawn


@dataclasses.dataclass(frozen=True)
class Group:
  """Test sources of neighbouring lengths.

  Attributes:
    label: their lengths, such as `6-10`.
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
    alignment_error: against gold along the references, %; None without gold or attention.
    shown: one test pair and the weights between its sides; None without attention.
    seconds: time spent training.
  """

  sources: int
  word_errors: float
  symbol_errors: float
  groups: tuple[Group, ...]
  context_change: float
  alignment_error: float | None
  shown: Shown | None
  seconds: float


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
  config = configs.override(config, {"model.score": ARMS[arm], "seed": seed})
  done = folder / "measured.json"
  if done.exists():
    return _read(done)
  label = f"{config.data.name}, {arm}, seed {seed}"
  began = time.monotonic()
  trained = train(config, folder, label=label)
  seconds = time.monotonic() - began
  corpus = catalog.load(config.data.name, "test", config.data.data_dir, test)
  measured = _sum_up(trained, corpus, edges, seconds, label)
  results.write_text(done, json.dumps(dataclasses.asdict(measured)))
  return measured


def _sum_up(
  trained: Trained, corpus: catalog.Corpus, edges: tuple[int, ...], seconds: float, label: str
) -> Measured:
  outputs = scoring.decode(trained, corpus, label=f"{label}, decoding")
  attends = trained.config.model.score != "none"
  aligned = None
  if attends and corpus.alignments is not None:
    links = scoring.forced_links(trained, corpus)
    aligned = 100 * alignment.alignment_error_rate(links, corpus.alignments)
  return Measured(
    sources=len(outputs.sources),
    word_errors=100 * outputs.word_error_rate,
    symbol_errors=100 * outputs.symbol_error_rate,
    groups=_groups(outputs, edges),
    context_change=_context_change(trained, corpus),
    alignment_error=aligned,
    shown=_shown(trained, corpus) if attends else None,
    seconds=seconds,
  )


def _groups(outputs: scoring.Outputs, edges: tuple[int, ...]) -> tuple[Group, ...]:
  """Sums over the sources of each group; the last one is open."""
  places = np.searchsorted(edges, outputs.lengths)
  groups = []
  for place in range(len(edges) + 1):
    inside = places == place
    if not inside.any():
      raise results.ResultError(
        f"no test source of more than {edges[place - 1] if place else 0} symbols in group"
        f" {place + 1} of edges {edges}: choose other edges or a larger test"
      )
    first = edges[place - 1] + 1 if place else int(outputs.lengths.min())
    label = f"{first}-{edges[place]}" if place < len(edges) else f"{first}+"
    errors = outputs.edits[inside].sum() / outputs.reference_lengths[inside].sum()
    wrong = outputs.wrong[inside].mean()
    groups.append(Group(label, int(inside.sum()), 100 * float(errors), 100 * float(wrong)))
  return tuple(groups)


@functools.partial(jax.jit, static_argnames="config")
def _largest_change(
  config: ModelConfig, params: Params, batch: dict[str, Array]
) -> Float[Array, ""]:
  """Largest difference of any context from the first of its target, at real positions."""
  contexts = (
    bind(config, params)
    .teacher_forced(batch["source"], batch["source_length"], batch["target"])
    .contexts
  )
  real = jnp.arange(contexts.shape[1]) < batch["target_length"][:, None]
  return jnp.max(jnp.abs(contexts - contexts[:, :1]), where=real[..., None], initial=0.0)


def _context_change(trained: Trained, corpus: catalog.Corpus) -> float:
  """Of one batch of test pairs, which is enough: what is exactly constant is so everywhere."""
  store = pipeline.TokenStore.encode(corpus, trained.source, trained.target)
  data = trained.config.data
  batch = pipeline.evaluation_batches(store, batch_size=data.batch_size, edges=data.bucket_edges)[0]
  return float(_largest_change(trained.config.model, trained.params, batch))


def _shown(trained: Trained, corpus: catalog.Corpus) -> Shown:
  """The weights along the first test pair whose source is nearest to the length to show."""
  split = trained.source.split
  lengths = np.array([len(split(text)) for text in corpus.sources])
  at = int(np.abs(lengths - _SHOWN_LENGTH).argmin())
  one = catalog.Corpus((corpus.sources[at],), (corpus.targets[at],))
  weights = scoring.forced_weights(trained, one)[0]
  links = None if corpus.alignments is None else corpus.alignments[at].tolist()
  source, target = split(one.sources[0]), trained.target.split(one.targets[0])
  return Shown(list(source), list(target), weights.tolist(), links)


def _read(path: pathlib.Path) -> Measured:
  data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
  data["groups"] = tuple(Group(**group) for group in data["groups"])
  data["shown"] = Shown(**data["shown"]) if data["shown"] else None
  return Measured(**data)
