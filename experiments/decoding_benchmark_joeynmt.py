"""JoeyNMT as `experiments.decoding_benchmark` times it; runs in an environment of its own.

Model and search are JoeyNMT's own, made and called as its `predict` does, but for texts: sources
come as ids and hypotheses go as ids.
"""

import logging
from typing import Any

import joeynmt
import numpy as np
import torch
from joeynmt.batch import Batch
from joeynmt.model import build_model
from joeynmt.search import search

from experiments.decoding_benchmark_torch import CERTAIN, TorchSearches, batches, gru
from experiments.decoding_benchmark_work import (
  Cell,
  Tokens,
  Weights,
  Widths,
  limit,
  load,
  own_order,
)
from experiments.training_benchmark_joeynmt import model_section, vocabularies
from experiments.training_benchmark_work import Sizes

_EVERYTHING_ELSE_OFF: dict[str, Any] = {
  "n_best": 1, "return_attention": False, "return_prob": "none", "generate_unk": False,
  "repetition_penalty": -1, "no_repeat_ngram_size": -1,
}  # fmt: skip


class JoeyNMT(TorchSearches):
  """Its recurrent model with additive attention and input feeding."""

  def __init__(self, widths: Widths, path: str) -> None:
    """Builds the model.

    Args:
      widths: of the model.
      path: of the weights.
    """
    super().__init__()
    logging.disable(logging.INFO)
    sizes = Sizes(vocabulary=widths.vocabulary, embedding=widths.embedding, units=widths.units)
    section = model_section(sizes)
    section["decoder"]["init_hidden"] = "zero"
    self.model = build_model(section, *vocabularies(sizes))
    self.put(self._named(load(path)))
    self._made = 0  # symbols of the hypotheses so far
    self._decode = self.model.decoder.forward
    self.model.decoder.forward = self._ending

  def facts(self) -> dict[str, Any]:
    """Those of PyTorch, and JoeyNMT's version."""
    found = super().facts()
    found["versions"]["joeynmt"] = joeynmt.__version__
    return found

  def search(self, sources: Tokens, cell: Cell, spare: int = 0) -> Tokens:
    """What its `predict` does with each batch."""
    model, found, self.spare = self.model, [], spare
    for padded, lengths in batches(sources, cell.batch, pad=model.pad_index, end=model.eos_index):
      batch = Batch(
        src=padded,
        src_length=lengths,
        src_prompt_mask=None,
        trg=None,
        trg_prompt_mask=None,
        indices=torch.arange(len(lengths)),
        device=torch.device("cpu"),
        pad_index=model.pad_index,
        eos_index=model.eos_index,
        is_train=False,
      )
      order, self._made = batch.sort_by_src_length(), 0
      output, _, _ = search(
        model=model,
        batch=batch,
        beam_size=cell.beam,
        beam_alpha=1.0,
        max_output_length=limit(int(lengths.max())) + spare,
        **_EVERYTHING_ELSE_OFF,
      )
      ends = (limit(lengths) + spare).tolist()
      found += [row[:end] for row, end in zip(output[order].tolist(), ends, strict=True)]
    return found

  def _ending(self, *inputs: Any, **named: Any) -> Any:
    """Its decoder's step, whose logits say where a hypothesis ends."""
    logits, *rest = self._decode(*inputs, **named)
    ends = self.ends(named["src_mask"].sum((1, 2)), self._made)
    # EOS leaves its share to PAD, which the search rules out after the softmax, as attn does EOS.
    end, pad, step = self.model.eos_index, self.model.pad_index, logits[:, -1]
    step[:, pad] = torch.logaddexp(step[:, pad], step[:, end])
    step[:, end] = torch.where(ends, CERTAIN, -CERTAIN)
    self._made += 1
    return logits, *rest

  def _named(self, weights: Weights) -> dict[str, np.ndarray]:
    """attn's weights by JoeyNMT's names."""
    model = self.model
    order = own_order(
      len(weights["target"]), model.pad_index, model.bos_index, model.eos_index, model.unk_index
    )
    readout = np.hstack([weights["decoder/u_o"], weights["decoder/c_o"]])
    return {
      "src_embed.lut.weight": weights["source"][order],
      "trg_embed.lut.weight": weights["target"][order],
      **gru("encoder/forward", weights, "encoder.rnn.{}_l0"),
      **gru("encoder/backward", weights, "encoder.rnn.{}_l0_reverse"),
      **gru("decoder", weights, "decoder.rnn.{}_l0"),
      "decoder.attention.key_layer.weight": weights["decoder/score/u_a"],
      "decoder.attention.query_layer.weight": weights["decoder/score/w_a"],
      "decoder.attention.energy_layer.weight": weights["decoder/score/v_a"][None],
      "decoder.att_vector_layer.weight": readout,
      "decoder.att_vector_layer.bias": weights["decoder/b_o"],
      "decoder.output_layer.weight": weights["decoder/w_o"][order],
    }
