"""Decoding a split with a trained model and holding the outputs against their references."""

import json
import os
import pathlib
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from attn import configs
from attn.data import catalog, corpora
from attn.data.vocabulary import PIECES
from attn.decoding.forced import Scored
from attn.decoding.forced import score as score_targets
from attn.decoding.translation import translate
from attn.evaluation import alignment, corpus_scores, error_rates
from attn.training.progress import Progress
from attn.training.workdir import Trained, read


class Outputs(NamedTuple):
  """What a model made of the distinct sources of a split, and how wrong each output is.

  Attributes:
    sources: the texts, each once.
    outputs: the model's texts.
    references: for each source all targets that the split has for it.
    lengths: symbols of each source.
    wrong: 1 where the output equals no reference, else 0.
    edits: edits of symbols to the nearest reference.
    reference_lengths: symbols of that reference.
    unfinished: outputs cut at their length limit.
  """

  sources: list[str]
  outputs: list[str]
  references: list[list[str]]
  lengths: Int[np.ndarray, " n"]
  wrong: Float[np.ndarray, " n"]
  edits: Int[np.ndarray, " n"]
  reference_lengths: Int[np.ndarray, " n"]
  unfinished: int

  @property
  def word_error_rate(self) -> float:
    """Share of sources whose output equals none of their references."""
    return float(self.wrong.mean())

  @property
  def symbol_error_rate(self) -> float:
    """Edits to the nearest references over their symbols."""
    return float(self.edits.sum() / self.reference_lengths.sum())


def decode(trained: Trained, corpus: catalog.Corpus, *, label: str = "decode") -> Outputs:
  """Searches with the run's own settings; references of a source are all its targets."""
  references: dict[str, list[str]] = {}
  for source, target in zip(corpus.sources, corpus.targets, strict=True):
    references.setdefault(source, []).append(target)
  sources = list(references)
  with Progress(label, len(sources)) as progress:
    found = translate(
      trained.config.model,
      trained.params,
      [trained.source.encode(text) for text in sources],
      trained.config.search,
      symbols=len(trained.target),
      edges=trained.config.data.bucket_edges,
      batch_size=trained.config.data.batch_size,
      done=progress.update,
    )
  split = trained.target.split
  outputs = [trained.target.decode(one.tokens) for one in found]
  made = [split(text) for text in outputs]
  accepted = [[split(text) for text in texts] for texts in references.values()]
  edits = error_rates.phoneme_edits(made, accepted)
  return Outputs(
    sources=sources,
    outputs=outputs,
    references=list(references.values()),
    lengths=np.array([len(trained.source.split(text)) for text in sources]),
    wrong=error_rates.word_errors(made, accepted),
    edits=edits.edits,
    reference_lengths=edits.lengths,
    unfinished=sum(not one.finished for one in found),
  )


def forced(
  models: Sequence[Trained],
  corpus: catalog.Corpus,
  *,
  weights: bool = False,
  average: Literal["probabilities", "logits"] = "probabilities",
) -> list[Scored]:
  """What models with the same vocabularies make of the targets together.

  Returns:
    Their log-probabilities, and attention if asked for; `average` is `SearchConfig.ensemble`.
  """
  first = models[0]
  return score_targets(
    tuple(model.config.model for model in models),
    tuple(model.params for model in models),
    [first.source.encode(text) for text in corpus.sources],
    [first.target.encode(text) for text in corpus.targets],
    edges=first.config.data.bucket_edges,
    batch_size=first.config.data.batch_size,
    weights=weights,
    average=average,
  )


def forced_weights(trained: Trained, corpus: catalog.Corpus) -> list[Float[np.ndarray, "t s"]]:
  """Attention along the references (Luong's protocol): rows and columns of real symbols only.

  The source's EOS may draw weight; its column is left out here, and rows are not renormalised.

  Raises:
    ValueError: the model has no attention.
  """
  if trained.config.model.score == "none":
    raise ValueError("a model without attention (model.score='none') has no weights to show")
  found = (one.weights for one in forced([trained], corpus, weights=True))
  return [weights[:-1, :-1] for weights in found if weights is not None]


def forced_links(
  trained: Trained, corpus: catalog.Corpus, threshold: float | None = None
) -> list[set[tuple[int, int]]]:
  """Links of target symbols to source symbols, as `attn.evaluation.alignment.links` makes them."""
  return [alignment.links(weights, threshold) for weights in forced_weights(trained, corpus)]


def word_links(
  trained: Trained, corpus: catalog.Corpus, threshold: float | None = None
) -> list[set[tuple[int, int]]]:
  """The same between words, as `Vocabulary.words` counts them, whatever the symbols are."""
  links = forced_links(trained, corpus, threshold)
  words = (map(trained.source.words, corpus.sources), map(trained.target.words, corpus.targets))
  return [alignment.word_links(*one) for one in zip(links, *words, strict=True)]


def _gold_counts_words(trained: Trained) -> bool:
  """Whether the positions of the data's gold links are those of `word_links`.

  Gold links are of the data set's own symbols: what a run read may have other positions.
  """
  data = trained.config.data
  own = catalog.levels(data.name)[:: -1 if data.swap else 1]
  read_as = trained.source.level, trained.target.level
  return all(
    level == gold or (gold == "symbol" and level != "character")
    for level, gold in zip(read_as, own, strict=True)
  )


class Scores(NamedTuple):
  """How well a model does on a corpus.

  Attributes:
    values: by name, those that `evaluate` returns.
    signatures: sacreBLEU's, of the scores that have one.
    outputs: what it made of the sources.
  """

  values: dict[str, float]
  signatures: dict[str, str]
  outputs: Outputs


def scored(trained: Trained, corpus: catalog.Corpus, *, label: str = "decode") -> Scores:
  """Scores a model as `evaluate` does on any corpus of its data, such as a part of a split."""
  outputs = decode(trained, corpus, label=label)
  scores: dict[str, float] = {
    "sources": len(outputs.sources),
    "word_error_rate": outputs.word_error_rate,
    "symbol_error_rate": outputs.symbol_error_rate,
    "unfinished": outputs.unfinished,
  }
  signatures = {}
  if trained.target.level in ("word", *PIECES):
    for name, score in (("bleu", corpus_scores.bleu), ("chrf", corpus_scores.chrf)):
      scores[name], signatures[name] = score(outputs.outputs, outputs.references)
  model = trained.config.model
  if model.score == "location":
    beyond = outputs.lengths + model.source_eos - model.location_length
    scores["overflow"] = int(np.maximum(beyond, 0).sum())
  if corpus.alignments is not None and model.score != "none" and _gold_counts_words(trained):
    scores["alignment_error_rate"] = alignment.alignment_error_rate(
      word_links(trained, corpus), corpus.alignments, corpus.possible
    )
  return Scores(scores, signatures, outputs)


def evaluate(workdir: str | os.PathLike[str], split: str = "test") -> dict[str, float]:
  """Scores the model in `workdir` on a split; reads the split once.

  Writes `evaluation/SPLIT.json` (the numbers returned, with sacreBLEU's signatures, step, whether
  training had ended, search and time) and `evaluation/SPLIT.tsv` (source, output, and the
  references, a line each source). Processes that jax.distributed has made one must all call it:
  each decodes all, and the first writes.

  Returns:
    `sources`, `word_error_rate`, `symbol_error_rate`, `unfinished`; where targets are text (words
    or pieces of them, not characters or symbols), `bleu` and `chrf`; and, where the data set has
    gold alignments of the run's symbols, or of the words that it reads pieces of, and the model has
    attention, `alignment_error_rate` along the references; with a location score `overflow`, the
    source positions that it has no weights for.

  Raises:
    FileNotFoundError: the folder holds no trained model.
    DataError: the data cannot be had.
  """
  folder, began = pathlib.Path(workdir), time.monotonic()
  trained, ended = read(folder)
  scores, signatures, outputs = scored(
    trained, corpora.load(trained.config.data, split), label=f"decode {split}"
  )
  if jax.process_index():
    return scores
  (folder / "evaluation").mkdir(exist_ok=True)
  rows = zip(outputs.sources, outputs.outputs, outputs.references, strict=True)
  lines = ["\t".join([source, output, *references]) for source, output, references in rows]
  (folder / "evaluation" / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
  record = {
    **scores,
    "signatures": signatures,
    "step": trained.step,
    "ended": ended,
    "search": configs.to_dict(trained.config.search),
    "seconds": round(time.monotonic() - began, 1),
  }
  # Written last and in one piece: where it stands, the split has been scored.
  path = folder / "evaluation" / f"{split}.json"
  path.with_suffix(".tmp").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
  os.replace(path.with_suffix(".tmp"), path)
  return scores
