"""What `experiments.local_vs_global` measures of a model, along the targets of a test split."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from attn.data import catalog, pipeline
from attn.data.vocabulary import BOS
from attn.evaluation import alignment, corpus_scores
from attn.evaluation.groups import length_groups
from attn.models import ModelConfig, bind
from attn.models.functional import Params
from attn.report import results
from attn.training import Trained, scoring

VERSES = "greek_english/forms"


@dataclasses.dataclass(frozen=True)
class Group:
  """Test pairs whose sources are of neighbouring lengths.

  Attributes:
    label: their lengths, such as `6-10`.
    sources: how many.
    wrong: as in `Measured`.
    alignment_error: as in `Measured`.
    beyond: links that no window of the run's half width around t holds, %.
  """

  label: str
  sources: int
  wrong: float
  alignment_error: float
  beyond: float


@dataclasses.dataclass(frozen=True)
class Shown:
  """The attention of one test pair: a row a target symbol, a column a source symbol."""

  source: list[str]
  target: list[str]
  weights: list[list[float]]
  links: list[list[int]]


@dataclasses.dataclass(frozen=True)
class Measured:
  """What one trained model does along the references of the test split.

  Attributes:
    nats: loss a symbol, the end counted.
    wrong: symbols that another is likelier than, given those before, %; the end not counted.
    alignment_error: of the source positions of the largest weights against the true links, %.
    input_error: the same with a step's weights read as those of the symbol that entered it, not of
      the one that leaves it, as Luong reads them for content scores (footnote 14).
    bleu: of a greedy search; None where targets are letters.
    near: share of the weights at source positions within the half width of t, %.
    mass: mean sum of the weights of a step.
    apart: mean distance from the window's centre to a linked source position; None without window.
    reached: links whose source position lies in the window, %; None without one.
    groups: by length, short to long.
    centres: mean centre at each target position of the sources of one length; None without window.
    linked: mean linked source position at the same; None where none is linked.
    shown: one of these sources.
  """

  nats: float
  wrong: float
  alignment_error: float
  input_error: float
  bleu: float | None
  near: float
  mass: float
  apart: float | None
  reached: float | None
  groups: tuple[Group, ...]
  centres: tuple[float, ...] | None
  linked: tuple[float | None, ...]
  shown: Shown

  @classmethod
  def read(cls, data: dict[str, Any]) -> "Measured":
    """Back from JSON."""
    made = {
      "groups": tuple(Group(**group) for group in data["groups"]),
      "centres": None if data["centres"] is None else tuple(data["centres"]),
      "linked": tuple(data["linked"]),
      "shown": Shown(**data["shown"]),
    }
    return cls(**{**data, **made})


Runs = Mapping[str, Mapping[str, Sequence[Measured]]]  # by data set and title, a run a seed


class Followed(NamedTuple):
  """What a model did along one target; leaves lead with its t symbols, the end the last.

  Attributes:
    log_probs: of each symbol.
    right: whether it was the likeliest.
    weights: over the s symbols of the source.
    centre: of the window; None without one.
  """

  log_probs: Float[np.ndarray, " t"]
  right: Bool[np.ndarray, " t"]
  weights: Float[np.ndarray, "t s"]
  centre: Float[np.ndarray, " t"] | None


@functools.partial(jax.jit, static_argnames="config")
def _follow(
  config: ModelConfig,
  params: Params,
  source: Int[Array, "b s"],
  length: Int[Array, " b"],
  target: Int[Array, "b t"],
) -> Any:
  """The leaves of `Followed` for a batch, padding and all."""
  model = bind(config, params)
  memory = model.encode(source, length)

  def step(state: Any, words: tuple[Array, Array]) -> tuple[Any, Any]:
    previous, now = words
    log_probs, made = model.step(memory, state, previous)
    found = jnp.take_along_axis(log_probs, now[:, None], axis=-1)[:, 0]
    return made.state, (found, log_probs.argmax(-1) == now, made.weights, made.position)

  previous = jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
  _, steps = jax.lax.scan(step, model.start(memory), (previous.T, target.T))
  return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), steps)


def follow(trained: Trained, corpus: catalog.Corpus) -> list[Followed]:
  """Runs a model along the targets of a corpus, in its order."""
  store = pipeline.TokenStore.encode(corpus, trained.source, trained.target)
  data, found = trained.config.data, dict[int, Followed]()
  for batch in pipeline.evaluation_batches(
    store, batch_size=data.batch_size, edges=data.bucket_edges
  ):
    given = batch["source"], batch["source_length"], batch["target"]
    made = jax.device_get(_follow(trained.config.model, trained.params, *given))
    for at, index in enumerate(batch["index"].tolist()):
      if index >= 0:
        t, s = int(batch["target_length"][at]), int(batch["source_length"][at]) - 1
        log_probs, right, weights, centre = made
        found[index] = Followed(
          log_probs[at, :t], right[at, :t], weights[at, :t, :s],
          None if centre is None else centre[at, :t],
        )  # fmt: skip
  return [found[index] for index in range(len(corpus))]


def measure(
  trained: Trained,
  label: str,
  *,
  half_width: int,
  edges: tuple[int, ...],
  words: int,
  test: int | None,
  translate: bool,
) -> dict[str, Any]:
  """`Measured` of a trained model, as plain data.

  Args:
    trained: the model.
    label: what its progress is called.
    half_width: of the window around t that all models are held against.
    edges: longest sources of the groups by length.
    words: symbols of the sources whose centres are kept, or the nearest number that occurs.
    test: most test pairs that are used, of those that are no longer than training's; None takes
      all.
    translate: whether to search for translations, for BLEU.
  """
  corpus = fitting(trained, test)
  lengths = np.array([len(trained.source.split(text)) for text in corpus.sources])
  links = [one.tolist() for one in corpus.alignments or ()]
  found = follow(trained, corpus)
  bleu = None
  if translate:
    outputs = scoring.decode(trained, corpus, label=f"{label}, decoding")
    bleu = corpus_scores.bleu(outputs.outputs, outputs.references).value
  at = int(np.abs(lengths - words).argmin())
  shown = Shown(
    source=list(trained.source.split(corpus.sources[at])),
    target=list(trained.target.split(corpus.targets[at])),
    weights=found[at].weights[:-1].tolist(),
    links=links[at],
  )
  alike = [one for one, length in enumerate(lengths) if length == lengths[at]]
  wrong = np.array([[(~one.right[:-1]).sum(), len(one.right) - 1] for one in found])
  agreed = alignment.link_counts([alignment.links(one.weights[:-1]) for one in found], links)
  return dataclasses.asdict(
    Measured(
      nats=-float(np.concatenate([one.log_probs for one in found]).mean()),
      wrong=100 * _share(wrong),
      alignment_error=100 * alignment.counted_scores(agreed.sum(0)).error_rate,
      input_error=100
      * alignment.alignment_error_rate([alignment.links(one.weights[1:]) for one in found], links),
      bleu=bleu,
      near=100 * near(found, half_width),
      mass=float(np.concatenate([one.weights[:-1].sum(1) for one in found]).mean()),
      **_windows(found, links, trained.config.model.half_width),
      groups=groups(wrong, agreed, links, lengths, edges, half_width),
      centres=_by_target([found[one].centre for one in alike], len(found[at].right) - 1),
      linked=_linked([links[one] for one in alike], len(found[at].right) - 1),
      shown=shown,
    )
  )


def fitting(trained: Trained, test: int | None) -> catalog.Corpus:
  """The first test pairs whose longer side, the end counted, is in the range of training."""
  data = trained.config.data
  corpus = catalog.load(data.name, "test", data.data_dir)
  split = trained.source.split, trained.target.split
  sides = list(zip(corpus.sources, corpus.targets, strict=True))
  kept = [
    at
    for at, pair in enumerate(sides)
    if max(len(of(text)) for of, text in zip(split, pair, strict=True)) < data.bucket_edges[-1]
  ][:test]
  assert corpus.alignments is not None  # every data set here has gold
  sources, targets = zip(*(sides[at] for at in kept), strict=True)
  return catalog.Corpus(sources, targets, tuple(corpus.alignments[at] for at in kept))


def near(found: Sequence[Followed], half_width: int) -> float:
  """Share of all weights that lie at source positions within `half_width` of their step."""
  inside = total = 0.0
  for one in found:
    weights = one.weights[:-1]
    steps, positions = np.indices(weights.shape)
    inside += float(weights[np.abs(positions - steps) <= half_width].sum())
    total += float(weights.sum())
  return inside / total


def groups(
  wrong: Int[np.ndarray, "n 2"],
  agreed: Int[np.ndarray, "n 4"],
  links: Sequence[Sequence[Sequence[int]]],
  lengths: Int[np.ndarray, " n"],
  edges: Sequence[int],
  half_width: int,
) -> tuple[Group, ...]:
  """Errors by length.

  Args:
    wrong: of each pair the symbols that were not the likeliest, and all.
    agreed: of each pair the counts of `alignment.link_counts`.
    links: of each pair.
    lengths: symbols of each source.
    edges: longest sources of the groups but the last.
    half_width: of the window that may hold a link.

  Raises:
    ResultError: there is no pair of some group.
  """
  beyond = np.array(
    [[sum(abs(s - t) > half_width for s, t in one), len(one)] for one in links], np.int64
  )
  made = []
  for group in length_groups(lengths, edges):
    if not group.members.size:
      raise results.ResultError(
        f"no test source has {group.label} symbols: choose other edges than {tuple(edges)}, or a"
        " larger test"
      )
    at = group.members
    made.append(
      Group(
        group.label, len(at), 100 * _share(wrong[at]),
        100 * alignment.counted_scores(agreed[at].sum(0)).error_rate, 100 * _share(beyond[at]),
      )
    )  # fmt: skip
  return tuple(made)


def _windows(
  found: Sequence[Followed], links: Sequence[Sequence[Sequence[int]]], half_width: int
) -> dict[str, float | None]:
  """How far centres are from linked positions, and how many of these the windows hold."""
  distances = [
    abs(float(one.centre[t]) - s)
    for one, own in zip(found, links, strict=True)
    for s, t in own
    if one.centre is not None
  ]
  if not distances:
    return {"apart": None, "reached": None}
  held = np.array(distances) <= half_width
  return {"apart": float(np.mean(distances)), "reached": 100 * float(held.mean())}


def _by_target(
  centres: Sequence[Float[np.ndarray, " t"] | None], size: int
) -> tuple[float, ...] | None:
  """Mean centre at each of the first target positions, of the targets that have them."""
  if centres[0] is None:
    return None
  rows = np.array([np.append(one[:-1], np.full(size, np.nan))[:size] for one in centres])
  return tuple(np.nanmean(rows, 0).tolist())


def _linked(links: Sequence[Sequence[Sequence[int]]], size: int) -> tuple[float | None, ...]:
  """Mean linked source position of each of the first target positions."""
  at = [[s for own in links for s, t in own if t == target] for target in range(size)]
  return tuple(float(np.mean(one)) if one else None for one in at)


def _share(counts: Int[np.ndarray, "n 2"]) -> float:
  part, whole = counts.sum(0).tolist()
  return part / whole
