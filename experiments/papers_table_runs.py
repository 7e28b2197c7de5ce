"""The runs of `experiments.papers_table`: each paper's system at one small size, and its scores."""

import dataclasses
import math
import pathlib
import statistics
from typing import Any, Final

from attn import presets
from attn.data import corpora
from attn.data.catalog import Corpus
from attn.models import ModelConfig, parameter_count
from attn.training import TrainConfig, Trained, metrics, scoring

# By its preset: how a system is called here.
SYSTEMS: Final = {
  "sutskever2014": "Sutskever 2014",
  "cho2014": "Cho 2014, own unit",
  "rnnencdec": "RNNencdec (Cho 2014)",
  "rnnsearch": "RNNsearch",
  "luong2015_location_feed": "Luong, global location",
  "luong2015_dot_feed": "Luong, global dot",
  "luong2015_general_feed": "Luong, global general",
  "luong2015_concat_released_feed": "Luong, global concat",
  "luong2015_local_m_general": "Luong, local-m general",
  "luong2015_local_p_dot": "Luong, local-p dot",
  "luong2015_local_p_general": "Luong, local-p general",
}

# What all systems have in common; the rest of a model is its preset's.
SHARED: Final = (
  "source_vocabulary", "target_vocabulary", "embedding", "units", "layers", "biases",
  "initialisation", "dropout", "half_width",
)  # fmt: skip


def small(train: TrainConfig, system: str) -> TrainConfig:
  """The run of a system: cell, order, scores, readout, feeding of its preset, sizes of `train`.

  The inner layers of scores and readout shrink with the units, a low-rank output matrix with the
  embedding; a system of several layers has at most those of `train`.
  """
  paper, base = presets.get(system).model, train.model
  changes: dict[str, Any] = {name: getattr(base, name) for name in SHARED}
  changes["layers"] = min(paper.layers, base.layers)
  for name in ("alignment", "maxout"):
    changes[name] = _shrunk(getattr(paper, name), base.units, paper.units)
  if paper.output_width is not None:
    changes["output_width"] = _shrunk(paper.output_width, base.embedding, paper.embedding)
  return dataclasses.replace(train, model=dataclasses.replace(paper, **changes))


def _shrunk(width: int, units: int, former: int) -> int:
  return max(1, round(width * units / former))


def scaled_down(train: TrainConfig, systems: tuple[str, ...]) -> str:
  """What the systems have otherwise than their presets, such as `units 1000 to 64`."""
  told = []
  for name in (field.name for field in dataclasses.fields(ModelConfig)):
    if name.endswith("_vocabulary"):
      continue
    pairs = {
      (getattr(presets.get(system).model, name), getattr(small(train, system).model, name))
      for system in systems
    }
    if changed := sorted((pair for pair in pairs if pair[0] != pair[1]), key=str):
      before = "/".join(dict.fromkeys(str(one) for one, _ in changed))
      after = "/".join(dict.fromkeys(str(other) for _, other in changed))
      told.append(f"{name.replace('_', ' ')} {before} to {after}")
  return ", ".join(told)


def measure(trained: Trained, label: str, *, sources: int | None) -> dict[str, float]:
  """What `attn.training.scoring.scored` finds on test pairs, `nats` a symbol and `parameters`.

  Args:
    trained: a system.
    label: of the progress.
    sources: most test sources to decode; None takes all.
  """
  test = corpora.load(trained.config.data, "test")
  corpus = fitting(test, trained, trained.config.data.bucket_edges[-1], sources)
  forced = scoring.forced([trained], corpus)
  nats = -math.fsum(one.log_prob for one in forced) / sum(len(one.log_probs) for one in forced)
  found = scoring.scored(trained, corpus, label=f"{label}, decoding")
  return {**found.values, "nats": nats, "parameters": parameter_count(trained.config.model)}


def fitting(corpus: Corpus, trained: Trained, longest: int, sources: int | None) -> Corpus:
  """The pairs of the first sources whose sides have at most `longest` symbols, EOS counted.

  Sources keep all of their targets that fit.
  """
  sides = zip(corpus.sources, corpus.targets, strict=True)
  fit = [
    at
    for at, (source, target) in enumerate(sides)
    if max(len(trained.source.split(source)), len(trained.target.split(target))) < longest
  ]
  kept = set(list(dict.fromkeys(corpus.sources[at] for at in fit))[:sources])
  rows = [at for at in fit if corpus.sources[at] in kept]
  parts = (corpus.sources, corpus.targets, corpus.alignments, corpus.possible)
  return Corpus(*(None if part is None else tuple(part[at] for at in rows) for part in parts))


def speed(folder: pathlib.Path) -> float:
  """Real target symbols a second: the median of a run's windows but the first, which compiles."""
  lines = metrics.read_metrics(folder / "metrics.jsonl")
  rates = [line["symbols_per_second"] for line in lines if "symbols_per_second" in line]
  return statistics.median(rates[1:] or rates)
