"""OpenNMT-py as `experiments.training_benchmark` times it; runs in an environment of its own.

Model, loss, optimizer and trainer are its own objects, made by its own builders from options as its
command line has them. An update is its `Trainer._gradient_accumulation` of one batch.
"""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import onmt
import onmt.opts
import pyonmttok
import torch
from onmt.constants import DefaultTokens
from onmt.model_builder import build_base_model
from onmt.trainer import build_trainer
from onmt.utils.optimizers import Optimizer
from onmt.utils.parse import ArgumentParser

from experiments.training_benchmark_torch import TorchUpdates
from experiments.training_benchmark_work import (
  CLIP_NORM,
  GENERAL_FED,
  LEARNING_RATE,
  RESERVED,
  Batches,
  Sizes,
)

_SPECIAL = (DefaultTokens.UNK, DefaultTokens.PAD, DefaultTokens.BOS, DefaultTokens.EOS)


class OpenNMT(TorchUpdates):
  """Its model with Luong's general attention: `InputFeedRNNDecoder` or `StdRNNDecoder`."""

  def __init__(self, model: str, sizes: Sizes, seed: int) -> None:
    """Builds the model.

    Args:
      model: of MODELS, with a general score.
      sizes: of the model and its batches.
      seed: of parameters and batches.
    """
    super().__init__(seed)
    logging.disable(logging.INFO)
    self._sizes = sizes
    chosen = options_of(sizes, fed=model == GENERAL_FED)
    named = vocabularies(sizes)
    self._eos, self._bos = (
      named["tgt"][symbol] for symbol in (DefaultTokens.EOS, DefaultTokens.BOS)
    )
    self.model = build_base_model(chosen, named, gpu=False)
    optimizer = Optimizer.from_opt(self.model, chosen)
    self._trainer = build_trainer(chosen, -1, self.model, named, optimizer)
    self._statistics = onmt.utils.Statistics()
    self._batches = self._fixed(seed)

  def facts(self) -> dict[str, Any]:
    """Those of PyTorch, and OpenNMT-py's version."""
    found = super().facts()
    found["versions"]["OpenNMT-py"] = onmt.__version__
    return found

  def update(self) -> tuple[int, int]:
    """What its trainer does with a batch."""
    batch = next(self._batches)
    self._statistics = onmt.utils.Statistics()
    symbols = self._sizes.batch * self._sizes.target
    self._trainer._gradient_accumulation(
      [batch], symbols, onmt.utils.Statistics(), self._statistics
    )
    return symbols, symbols

  def finish(self) -> float:
    """The loss: nothing is left at work."""
    return self._statistics.xent()

  def _fixed(self, seed: int) -> Iterator[dict[str, Any]]:
    """Its batches of given symbols."""
    for source, target in Batches(self._sizes, seed):
      ends = np.full((len(source), 1), self._eos)
      begins = np.full((len(target), 1), self._bos)
      yield {
        "src": torch.tensor(np.hstack([source, ends])).long()[..., None],
        "srclen": torch.full((len(source),), self._sizes.source),
        "tgt": torch.tensor(np.hstack([begins, target, ends])).long()[..., None],
      }


def options_of(sizes: Sizes, *, fed: bool, score: str = "general") -> Any:
  """The options of its command line. It wants files to be named, which nobody opens here."""
  parser = ArgumentParser()
  onmt.opts.train_opts(parser)
  settings = {
    "data": "{}", "src_vocab": "none", "tgt_vocab": "none", "encoder_type": "rnn",
    "decoder_type": "rnn", "rnn_type": "GRU", "layers": 1, "hidden_size": sizes.units,
    "word_vec_size": sizes.embedding, "input_feed": int(fed), "global_attention": score,
    "dropout": 0.0, "optim": "adam", "adam_beta2": 0.999, "learning_rate": LEARNING_RATE,
    "max_grad_norm": CLIP_NORM, "batch_size": sizes.batch, "normalization": "tokens",
  }  # fmt: skip
  words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
  options = parser.parse_args(words)
  options.data = {}
  ArgumentParser.update_model_opts(options)
  ArgumentParser.validate_model_opts(options)
  return options


def vocabularies(sizes: Sizes) -> dict[str, Any]:
  """Of symbols that are numbers, as many as asked for with the reserved ones."""
  symbols = [str(number) for number in range(RESERVED, sizes.vocabulary)]
  made = {}
  for side in ("src", "tgt"):
    made[side] = pyonmttok.build_vocab_from_tokens(symbols, special_tokens=list(_SPECIAL))
    made[side].default_id = made[side][DefaultTokens.UNK]
  return {**made, "data_task": "seq2seq"}
