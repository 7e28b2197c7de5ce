"""OpenNMT-py as `experiments.decoding_benchmark` times it; runs in an environment of its own.

Model and search are its own: `Translator.translate_batch` of batches as its iterator makes them,
the longest source first, but for texts: sources come as ids and hypotheses go as ids.
"""

import logging
from typing import Any

import numpy as np
import onmt
import onmt.translate
import torch
from onmt.constants import DefaultTokens
from onmt.model_builder import build_base_model

from experiments.decoding_benchmark_torch import CERTAIN, TorchSearches, batches, gru
from experiments.decoding_benchmark_work import (
  ADDITIVE_FORWARD,
  Cell,
  Tokens,
  Weights,
  Widths,
  limit,
  load,
  own_order,
)
from experiments.training_benchmark_opennmt import options_of, vocabularies
from experiments.training_benchmark_work import Sizes


class _Ending(onmt.translate.Translator):
  """Its translator, whose log-probabilities say where a hypothesis ends."""

  def __init__(self, searches: TorchSearches, *inputs: Any, **named: Any) -> None:
    """Its own arguments, after what knows the ends."""
    super().__init__(*inputs, **named)
    self._searches = searches

  def _decode_and_generate(self, *inputs: Any, **named: Any) -> Any:
    log_probs, weights = super()._decode_and_generate(*inputs, **named)
    ends = self._searches.ends(named["src_len"], named["step"])
    log_probs[ends] = -CERTAIN
    log_probs[:, [self._tgt_pad_idx, self._tgt_bos_idx]] = -CERTAIN  # its search lets them pass
    log_probs[:, self._tgt_eos_idx] = torch.where(ends, 0.0, -CERTAIN)
    return log_probs, weights


class OpenNMT(TorchSearches):
  """Its `InputFeedRNNDecoder`, with Luong's general score or the additive one."""

  def __init__(self, model: str, widths: Widths, path: str) -> None:
    """Builds the model.

    Args:
      model: of MODELS, with a forward encoder.
      widths: of the model.
      path: of the weights.
    """
    super().__init__()
    logging.disable(logging.INFO)
    self._additive = model == ADDITIVE_FORWARD
    sizes = Sizes(vocabulary=widths.vocabulary, embedding=widths.embedding, units=widths.units)
    self._vocabularies = vocabularies(sizes)
    chosen = options_of(sizes, fed=True, score="mlp" if self._additive else "general")
    self.model = build_base_model(chosen, self._vocabularies, gpu=False)
    self.put(self._named(load(path)))
    self.model.generator.eval()
    self._translators: dict[int, Any] = {}

  def facts(self) -> dict[str, Any]:
    """Those of PyTorch, and OpenNMT-py's version."""
    found = super().facts()
    found["versions"]["OpenNMT-py"] = onmt.__version__
    return found

  def search(self, sources: Tokens, cell: Cell, spare: int = 0) -> Tokens:
    """What its `Translator` does with each batch."""
    self.spare = spare
    translator, symbols = self._translator(cell.beam), self._vocabularies["src"]
    pad, end = symbols[DefaultTokens.PAD], symbols[DefaultTokens.EOS]
    found = []
    for padded, lengths in batches(sources, cell.batch, pad=pad, end=end):
      order = lengths.argsort(descending=True, stable=True)
      translator.max_length = limit(int(lengths.max())) + spare
      batch = {"src": padded[order][..., None], "srclen": lengths[order]}
      predictions = translator.translate_batch(batch, attn_debug=False)["predictions"]
      back = order.argsort()
      found += [predictions[row][0].tolist() for row in back.tolist()]
    return found

  def _translator(self, beam: int) -> Any:
    """Greedy search is its beam search too, unless samples are asked for."""
    return self._translators.setdefault(
      beam,
      _Ending(
        self,
        self.model,
        self._vocabularies,
        beam_size=beam,
        ban_unk_token=True,
        dump_beam="",
        global_scorer=onmt.translate.GNMTGlobalScorer(1.0, 0.0, "wu", "none"),
      ),
    )

  def _named(self, weights: Weights) -> dict[str, np.ndarray]:
    """attn's weights by OpenNMT-py's names."""
    symbols = self._vocabularies["src"]
    reserved = (DefaultTokens.PAD, DefaultTokens.BOS, DefaultTokens.EOS, DefaultTokens.UNK)
    order = own_order(len(weights["target"]), *(symbols[name] for name in reserved))
    lookup = "{}.embeddings.make_embedding.emb_luts.0.weight"
    named = {
      lookup.format("encoder"): weights["source"][order],
      lookup.format("decoder"): weights["target"][order],
      **gru("encoder/forward", weights, "encoder.rnn.{}_l0"),
      **gru("decoder", weights, "decoder.rnn.layers.0.{}"),
      "decoder.attn.linear_out.weight": np.hstack([weights["decoder/c_o"], weights["decoder/u_o"]]),
      "generator.weight": weights["decoder/w_o"][order],
      "generator.bias": weights["decoder/b_w"][order],
    }
    if not self._additive:
      return {**named, "decoder.attn.linear_in.weight": weights["decoder/score/w_a"].T}
    return {
      **named,
      "decoder.attn.linear_out.bias": weights["decoder/b_o"],
      "decoder.attn.linear_context.weight": weights["decoder/score/u_a"],
      "decoder.attn.linear_query.weight": weights["decoder/score/w_a"],
      "decoder.attn.linear_query.bias": np.zeros_like(weights["decoder/b_o"]),
      "decoder.attn.v.weight": weights["decoder/score/v_a"][None],
    }
