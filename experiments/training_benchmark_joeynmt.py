"""JoeyNMT as `experiments.training_benchmark` times it; runs in an environment of its own.

Model, batches, loss, clipping and optimizer are JoeyNMT's own objects, made by its own builders
from a configuration as its files have them. An update is the body of the loop in its
`train_and_validate`, without logging, validation and checkpoints, on both sides.
"""

import itertools
import logging
import pathlib
import tempfile
import types
from collections.abc import Iterator
from typing import Any

import joeynmt
import numpy as np
import torch
from joeynmt.batch import Batch
from joeynmt.config import _check_special_symbols, parse_test_args, parse_train_args
from joeynmt.data import load_data
from joeynmt.model import Model, build_model
from joeynmt.training import TrainManager
from joeynmt.vocabulary import Vocabulary

from experiments.training_benchmark_torch import TorchUpdates
from experiments.training_benchmark_work import (
  CLIP_NORM,
  LEARNING_RATE,
  RESERVED,
  Batches,
  Sizes,
  Told,
)

_CPU = torch.device("cpu")


class JoeyNMT(TorchUpdates):
  """Its model with additive attention and input feeding."""

  def __init__(self, sizes: Sizes, seed: int, told: Told | None) -> None:
    """Builds the model.

    Args:
      sizes: of the model and of fixed batches.
      seed: of parameters and batches.
      told: files to train on; None takes fixed batches.
    """
    super().__init__(seed)
    logging.disable(logging.INFO)
    self._sizes = sizes
    data = None if told is None else _load(told)
    self._source, self._target = vocabularies(sizes) if data is None else data[:2]
    self.model = build_model(model_section(sizes), self._source, self._target)
    # As its `prediction.prepare` does.
    self.model.loss_function = ("crossentropy", 0.0)
    self._manager = _manager(self.model, seed, sizes.batch)
    self._batches = self._fixed(seed) if data is None else self._shuffled(data[2], seed)
    self._loss = 0.0
    self.model.train()
    self.model.zero_grad()

  def facts(self) -> dict[str, Any]:
    """Those of PyTorch, and JoeyNMT's version."""
    found = super().facts()
    found["versions"]["joeynmt"] = joeynmt.__version__
    return found

  def update(self) -> tuple[int, int]:
    """The body of its training loop."""
    batch, manager = next(self._batches), self._manager
    loss, _ = manager._train_step(batch)  # a sentence's mean
    self._loss = loss * batch.nseqs / batch.ntokens
    manager.clip_grad_fun(parameters=self.model.parameters())
    manager.optimizer.step()
    self.model.zero_grad()
    return batch.ntokens, batch.trg.numel()

  def finish(self) -> float:
    """The loss: nothing is left at work."""
    return self._loss

  def _fixed(self, seed: int) -> Iterator[Batch]:
    """Its batches of given symbols."""
    bos, eos, pad = self._source.bos_index, self._source.eos_index, self._source.pad_index
    for source, target in Batches(self._sizes, seed):
      ends = np.full((len(source), 1), eos)
      begins = np.full((len(target), 1), bos)
      yield Batch(
        src=torch.tensor(np.hstack([source, ends])).long(),
        src_length=torch.full((len(source),), self._sizes.source),
        src_prompt_mask=None,
        trg=torch.tensor(np.hstack([begins, target, ends])).long(),
        trg_prompt_mask=None,
        indices=torch.arange(len(source)),
        device=_CPU,
        pad_index=pad,
        eos_index=eos,
      )

  def _shuffled(self, data: Any, seed: int) -> Iterator[Batch]:
    """Its batches of a data set: sentences in a random order, as its `train_and_validate` asks."""
    batches = data.make_iter(
      batch_size=self._sizes.batch,
      batch_type="sentence",
      seed=seed,
      shuffle=True,
      num_workers=0,
      device=_CPU,
      eos_index=self._target.eos_index,
      pad_index=self._target.pad_index,
    )
    for epoch in itertools.count(1):
      data.seed = seed + epoch
      batches.batch_sampler.set_seed(seed + epoch)
      yield from batches


def model_section(sizes: Sizes) -> dict[str, Any]:
  """The `model` section of a configuration."""
  layer = {
    "type": "recurrent", "rnn_type": "gru", "hidden_size": sizes.units, "num_layers": 1,
    "embeddings": {"embedding_dim": sizes.embedding}, "dropout": 0.0,
  }  # fmt: skip
  attention = {"attention": "bahdanau", "input_feeding": True, "init_hidden": "bridge"}
  return {"encoder": {**layer, "bidirectional": True}, "decoder": {**layer, **attention}}


def _special() -> types.SimpleNamespace:
  """The reserved symbols, as its `prediction.prepare` hands them on."""
  return types.SimpleNamespace(**_check_special_symbols({}))


def vocabularies(sizes: Sizes) -> tuple[Vocabulary, Vocabulary]:
  """Of symbols that are numbers, as many as asked for with the reserved ones."""
  symbols = [str(number) for number in range(RESERVED, sizes.vocabulary)]
  return Vocabulary(symbols, _special()), Vocabulary(symbols, _special())


def _load(told: Told) -> tuple[Any, ...]:
  """Vocabularies and training data, of pieces that are separated by blanks."""
  sides = {
    side: {"lang": ending, "level": "word", "voc_file": str(told.vocabulary(ending))}
    for side, ending in (("src", told.source), ("trg", told.target))
  }
  data = {
    "train": str(told.text()), "dataset_type": "plain", "special_symbols": _special(), **sides,
  }  # fmt: skip
  return load_data(data, datasets=["train"])


def _manager(model: Model, seed: int, batch: int) -> TrainManager:
  """Its trainer; Adam, the loss a sentence's mean, as by default."""
  training = {
    "optimizer": "adam", "learning_rate": LEARNING_RATE, "clip_grad_norm": CLIP_NORM,
    "batch_size": batch, "scheduling": "exponential",
  }  # fmt: skip
  folder = tempfile.mkdtemp(prefix="joeynmt-")  # for its writer of events
  return TrainManager(
    rank=0,
    model=model,
    model_dir=pathlib.Path(folder),
    device=_CPU,
    autocast={"device_type": "cpu", "enabled": False},
    seed=seed,
    train_args=parse_train_args(training),
    dev_args=parse_test_args({}),
  )
