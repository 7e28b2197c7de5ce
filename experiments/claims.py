"""The register of every claim of the chapter: number, kind, statement, what was published, owner.

A claim starts here as `not run`, or as `not measurable` with the reason where it is history or
interpretation. The experiment that owns it hands back the same claim with what it measured:

    claims.judge('62', measured='0.99 to 1.01', interval=(0.98, 1.02), verdict=..., why=...)

Statements say what the chapter says, right or wrong; the verdict is the experiment's. 'The chapter'
under `published` marks a number that the chapter computes itself.
"""

import ast
import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import Any

from attn.evaluation.intervals import Interval
from attn.report import results
from attn.report.results import Claim

SUTSKEVER = "Sutskever et al. 2014"
CHO = "Cho et al. 2014, On the Properties of NMT"
BAHDANAU = "Bahdanau et al. 2015"
LUONG = "Luong et al. 2015"
VASWANI = "Vaswani et al. 2017"
BRITZ = "Britz et al. 2017"


def _claim(
  kind: results.Kind, number: str, owner: str, statement: str, published: str | None = None
) -> Claim:
  return Claim(number, kind, statement, published, experiment=owner)


_arithmetic = functools.partial(_claim, "arithmetic")
_property = functools.partial(_claim, "property")
_trained = functools.partial(_claim, "trained")


def _reading(number: str, owner: str, statement: str, published: str | None, *, why: str) -> Claim:
  """History or interpretation: nothing that is run here could decide it, its owner neither."""
  verdict = results.NOT_MEASURABLE
  return Claim(number, "property", statement, published, verdict=verdict, experiment=owner, why=why)


_ENCODER_DECODER = (
  _property(
    '1', 'path_length',
    'From an input word to an output word an RNN takes O(n) steps; attention makes it 1.',
    f'O(n) longest path of a recurrent layer ({VASWANI}, Table 1)'),
  _property(
    '2', 'anatomy',
    'The sequence-to-sequence model is an encoder and a decoder with weights of their own.',
    f'two LSTMs ({SUTSKEVER}, section 2)'),
  _reading(
    '3', 'anatomy',
    'The two are separate because the statistics of two languages compete in one parameter set.',
    f'reasons given: more parameters at little computation, several languages ({SUTSKEVER}, 2)',
    why='An interpretation; the paper gives other reasons.'),
  _reading(
    '4', 'anatomy',
    "The encoder's end state is the context vector, a language-independent meaning.",
    f'the last state of the encoder ({SUTSKEVER}, section 2)',
    why='The first half is a definition; no measure tells a language-independent state.'),
  _property(
    '5', 'anatomy',
    "The context vector is the decoder's initial state, and each output is fed back as input.",
    f'initial state only ({SUTSKEVER}, section 2)'),
  _property(
    '6', 'teacher_forcing',
    'With teacher forcing the supervision of the whole target is computed at once.'),
  _arithmetic(
    '7', 'anatomy',
    'The model has 4 layers of 1000 cells and 1000-dimensional embeddings; a sentence becomes 8000 '
    'real numbers.',
    f'4 layers, 1000 cells, 1000 dimensions, 8000 reals ({SUTSKEVER}, section 3.4)'),
  _arithmetic(
    '8', 'cost', '8000 is 4 layers times 2 states (c and h) times 1000 cells.',
    f'8000 reals ({SUTSKEVER}, section 3.4)'),
  _arithmetic('9', 'cost', '8000 numbers of 32 bits are 256,000 bits.', '256,000 (the chapter)'),
  _arithmetic('10', 'cost', '256,000 bits are about 31 KiB.', '31 KiB (the chapter)'),
  _arithmetic(
    '11', 'cost', 'The source vocabulary holds the 160,000 most frequent words.',
    f'160,000 ({SUTSKEVER}, section 3.4)'),
  _arithmetic(
    '12', 'cost', 'A word out of 160,000 takes log2(160,000), about 17.3 bits.',
    '17.3 bits (the chapter)'),
  _arithmetic('13', 'cost', '50 such words are at most 865 bits.', '865 bits (the chapter)'),
  _arithmetic(
    '14', 'cost', '865 bits are 0.34% of what the vector can hold.', '0.34% (the chapter)'),
  _property(
    '15', 'cost', 'Natural language carries less entropy a word than a uniform choice of words.',
    f'test perplexity 4.7 a target word, given the source ({SUTSKEVER}, section 3.3)'),
  _property(
    '16', 'bottleneck', 'That the bits do not fit is not why a fixed vector fails on long input.'),
  _trained(
    '17', 'bottleneck', 'The encoder has to compress before it knows what will be asked of it.'),
  _trained(
    '18', 'reversal',
    'The end state of an RNN favours recent input, which is exactly why the source was reversed.',
    f'smaller minimal time lag; no complete explanation claimed ({SUTSKEVER}, section 3.3)'),
  _trained(
    '19', 'reversal', 'Reversing the source lowers the test perplexity from 5.8 to 4.7.',
    f'5.8 to 4.7 ({SUTSKEVER}, section 3.3)'),
  _trained(
    '20', 'reversal', 'Reversing the source raises BLEU from 25.9 to 30.6.',
    f'25.9 to 30.6 ({SUTSKEVER}, section 3.3); 26.17 to 30.59 (Table 1)'),
  _trained(
    '21', 'reversal', 'Reversing the source is worth 4.7 BLEU.',
    f'+4.7 ({SUTSKEVER}, section 3.3), +4.42 (Table 1); +1.3 ({LUONG}, Table 1)'),
  _reading(
    '22', 'bottleneck',
    'So the fault of the fixed vector lies in when it is read, not in how many bits it holds.',
    None,
    why='An interpretation: that reversal helps is as much a result about optimisation.'),
  _trained(
    '23', 'bottleneck',
    'A fixed-vector model does well on short sentences; quality falls fast with length and with '
    'the number of unknown words.',
    f'13.92 BLEU on all lengths, 20.99 on 10 to 20 words, 23.45 without unknown words ({CHO}, '
    'Table 1)'),
  _reading(
    '24', 'bottleneck', 'Cho et al. named this the curse of sentence length.',
    f'the phrase stands in section 6 ({CHO}); Pouget-Abadie et al. 2014 have it in their title',
    why='History: who coined a phrase is not a matter of measurement.'),
  _trained(
    '25', 'bottleneck', 'The quality of the fixed-vector model falls with sentence length.',
    f'drops sharply ({BAHDANAU}, Figure 2)'),
  _trained(
    '26', 'bottleneck', 'RNNsearch-50 does not deteriorate even on sentences of 50 words or more.',
    f'no deterioration at 50 words and more ({BAHDANAU}, section 5.1)'),
  _reading(
    '27', 'anatomy', 'BERT, T5 and GPT descend from the encoder, the pair and the decoder.', None,
    why='History of later models, none of which is built here.'),
)  # fmt: skip

_BAHDANAU = (
  _reading(
    '28', 'anatomy', 'Attention for translation appeared in 2015.',
    f'ICLR 2015; on arXiv since September 2014 ({BAHDANAU})',
    why='History: a date of publication.'),
  _property(
    '29', 'anatomy', 'An annotation h_j carries its context; a bare word embedding does not.'),
  _property(
    '30', 'anatomy', 'h_j joins a forward and a backward state and is twice as wide as either.',
    f'Equation 7 ({BAHDANAU})'),
  _property('31', 'anatomy', 'A bidirectional network cannot serve as the generating decoder.'),
  _property(
    '32', 'order_of_the_step',
    'One decoding step is five actions in order: score, softmax, context, state, output.',
    f'section 3.1 ({BAHDANAU}); appendix A.2.2 reads the output from s_{{i-1}}'),
  _property(
    '33', 'order_of_the_step', 'The score uses s_{i-1}, the state just before y_i is emitted.',
    f'section 3.1 ({BAHDANAU})'),
  _property(
    '34', 'order_of_the_step', 'The weights are the softmax of the scores over source positions.',
    f'Equation 6 ({BAHDANAU})'),
  _property(
    '35', 'order_of_the_step', 'The context c_i is the weighted sum of the annotations.',
    f'Equation 5 ({BAHDANAU})'),
  _property(
    '36', 'order_of_the_step', 'The state is s_i = f(s_{i-1}, y_{i-1}, c_i).',
    f'section 3.1 ({BAHDANAU})'),
  _property(
    '37', 'order_of_the_step', 'The output distribution is g(y_{i-1}, s_i, c_i).',
    f'Equation 4 ({BAHDANAU}); appendix A.2.2 has s_{{i-1}}'),
  _property(
    '38', 'order_of_the_step', 'The order cannot be swapped, because s_i needs c_i.'),
  _property(
    '39', 'order_of_the_step', 'Scoring with the current state instead is what Luong et al. do.',
    f'section 3.1 ({LUONG})'),
  _arithmetic(
    '40', 'worked_example', 'The bars of the figure are the softmax of five scores.',
    '.08 .61 .17 .07 .07 (the chapter, figure 1-6)'),
  _property('41', 'anatomy', 'The weights choose where to read, not which word to write.'),
  _property(
    '42', 'bottleneck', 'Without attention the context is the same vector at every step.',
    f'c is fixed to the last encoder state ({BAHDANAU}, A.2.2); only an initial state '
    f'({SUTSKEVER}, section 2)'),
  _property(
    '43', 'anatomy', 'The additive score is v_a tanh(W_a s_{i-1} + U_a h_j).',
    f'appendix A.1.2 ({BAHDANAU})'),
  _arithmetic(
    '44', 'anatomy', 'The sizes are n = 1000, m = 620, l = 500 and n\' = 1000.',
    f'appendix A.2.3 ({BAHDANAU})'),
  _arithmetic(
    '45', 'anatomy', 'W_a is 1000 by 1000, U_a 1000 by 2000 and v_a has 1000 entries.',
    f'appendix A.1.2 ({BAHDANAU})'),
  _property(
    '46', 'cost', 'U_a h_j does not depend on the step and can be computed once a sentence.',
    f'appendix A.1.2 ({BAHDANAU})'),
  _arithmetic('47', 'cost', 'Then a step costs only W_a s_{i-1} and T_x additions and tanh.'),
  _arithmetic('48', 'worked_example', 'The three scores are 2, 4 and 3.', '2, 4, 3 (the chapter)'),
  _arithmetic(
    '49', 'worked_example', 'Their exponentials are 7.389, 54.598 and 20.086, together 82.073.',
    '7.389, 54.598, 20.086; 82.073 (the chapter)'),
  _arithmetic(
    '50', 'worked_example', 'The weights are 0.090, 0.665 and 0.245.',
    '0.090, 0.665, 0.245 (the chapter)'),
  _arithmetic(
    '51', 'worked_example', 'The context is [0.425, 1.575].', '[0.425, 1.575] (the chapter)'),
  _arithmetic(
    '52', 'worked_example',
    'The example is the full computation with every shape reduced to 2 dimensions.'),
  _arithmetic(
    '53', 'worked_example',
    'The scores differ by only 1 and 2, the weights already by 0.090 against 0.665.',
    '0.090 against 0.665 (the chapter)'),
  _property(
    '54', 'two_roles',
    'In terms of query, key and value it is the same arithmetic, with h_j as key and as value.'),
  _trained('55', 'alignment', 'The matrix of weights is a diagnosis, not an explanation.'),
)  # fmt: skip

_DOT = (
  _property(
    '56', 'anatomy', 'The scores are three: dot, general and concat.',
    f'those three, and location as Equation 8 ({LUONG}, section 3.1)'),
  _property(
    '57', 'local_vs_global',
    'Global attention scores every position; local attention predicts p_t and scores a window.',
    f'p_t is t in local-m, predicted in local-p ({LUONG}, Equations 9 and 10)'),
  _property(
    '58', 'anatomy', 'Dot has no parameters and needs equal widths; general bridges two widths.'),
  _property('59', 'cost', 'The dot score is a single matrix product on a GPU.'),
  _trained(
    '60', 'score_scale',
    'The additive score has parameters and a tanh more, needs no equal widths, and is steadier in '
    'high dimensions.',
    f'BLEU at width 1024: additive 22.10, multiplicative 18.22; at 256: 22.33 and 22.33 ({BRITZ}, '
    'section 4.5)'),
  _trained(
    '61', 'score_scale',
    'For small d_k additive and dot do alike; for large d_k additive beats the unscaled dot.',
    f'section 3.2.1 ({VASWANI}), citing {BRITZ}'),
  _property(
    '62', 'score_scale',
    'With independent components of mean 0 and variance 1 the variance of q.k is d_k.',
    f'variance d_k ({VASWANI}, footnote 4)'),
  _property(
    '63', 'score_scale',
    'As d_k grows the scores spread, softmax saturates and its gradient becomes tiny.',
    f'a suspicion of the authors ({VASWANI}, section 3.2.1)'),
  _arithmetic(
    '64', 'worked_example', 'Doubling the scores makes the weights 0.016, 0.867 and 0.117.',
    '0.016, 0.867, 0.117 (the chapter)'),
  _arithmetic(
    '65', 'worked_example', 'Four times the scores makes the weights 0.0003, 0.982 and 0.018.',
    '0.0003, 0.982, 0.018 (the chapter)'),
  _property(
    '66', 'score_scale', 'As the scores are scaled up further the gradient goes to zero.'),
  _property(
    '67', 'score_scale', 'Dividing by the square root of d_k brings the variance back to 1.',
    f'section 3.2.1 ({VASWANI})'),
  _property(
    '68', 'score_scale',
    'q.k is the product of two lengths and a cosine, so it does not measure direction alone.'),
  _property(
    '69', 'order_of_the_step', 'Luong et al. state both paths of computation themselves.',
    f'h_t, a_t, c_t, h~_t against h_{{t-1}}, a_t, c_t, h_t ({LUONG}, section 3.1)'),
  _property(
    '70a', 'order_of_the_step', 'Bahdanau scores with s_{i-1}, Luong with h_t.',
    f'section 3.1 ({LUONG})'),
  _property(
    '70b', 'order_of_the_step',
    'Bahdanau goes from state to weights to context to new state, Luong from the new state on.',
    f'section 3.1 ({LUONG})'),
  _property(
    '70c', 'order_of_the_step',
    "Bahdanau's context enters s_i; Luong's is concatenated with h_t under a tanh.",
    f'it also enters the readout ({BAHDANAU}, A.2.2); Equation 5 ({LUONG})'),
  _property(
    '70d', 'order_of_the_step', 'Bahdanau has the additive score only, Luong three.',
    f'four with location ({LUONG}, section 3.1)'),
  _property(
    '70e', 'order_of_the_step',
    'Bahdanau attends to a bidirectional RNN of width 2n, Luong to the top of stacked LSTMs.'),
  _property(
    '70f', 'order_of_the_step', 'Bahdanau attends to all positions, Luong to all or to a window.'),
  _reading(
    '71', 'order_of_the_step', 'The comparison stands at the end of section 3.1.',
    f'end of section 3.1 ({LUONG})',
    why='History: where a passage is printed.'),
  _property('72', 'anatomy', 'Since then all attention is matrix multiplication.'),
)  # fmt: skip

_COST = (
  _trained('73', 'bottleneck', 'With attention the fixed vector is no longer the only channel.'),
  _property(
    '74', 'path_length', 'The path from an input word to an output falls from O(n) to O(1).'),
  _arithmetic(
    '75', 'cost',
    'Keeping the annotations of 50 words takes 100,000 numbers, 12.5 times the 8000: O(n) memory.',
    '100,000; 12.5 (the chapter)'),
  _arithmetic(
    '76', 'cost', 'There are n times m scores: 50 by 60 words make 3000.', '3000 (the chapter)'),
  _arithmetic('77', 'cost', "Each score costs one vector operation of width n'."),
  _property('78', 'cost', 'The account is the same as that of a key-value cache.'),
  _trained(
    '79', 'two_roles', 'h_j is key and value at once and has to compromise between the two roles.'),
  _property('80', 'path_length', 'It is still an RNN, with O(n) sequential steps.'),
  _trained(
    'L4', 'local_vs_global',
    'Of the attention models compared, local-p with the general score has the lowest perplexity '
    'and the highest BLEU.',
    'perplexity 5.9, BLEU 19.0; global dot 6.1, 18.6; local-m general 6.2, 18.6 '
    f'({LUONG}, Table 4)'),
  _trained(
    'L6', 'alignment',
    'Local attention has a lower alignment error rate than global location-based attention.',
    'AER 0.34 local-m (general), 0.36 local-p (general), 0.39 global (location), 0.32 Berkeley '
    f'aligner ({LUONG}, Table 6)'),
)  # fmt: skip

REGISTER: tuple[Claim, ...] = _ENCODER_DECODER + _BAHDANAU + _DOT + _COST
BY_NUMBER: dict[str, Claim] = {claim.number: claim for claim in REGISTER}


def judge(
  number: str,
  *,
  measured: str,
  verdict: results.Verdict,
  why: str,
  interval: tuple[float | None, float | None] | None = None,
) -> Claim:
  """The registered claim with what was measured and the verdict of its rule.

  Args:
    number: the claim's number, such as '62' or '70a'.
    measured: what was measured, in words and numbers.
    verdict: what the rule of the owning experiment returned.
    why: one sentence: what decided and under which condition.
    interval: 95% interval of the number that decides; None for exact arithmetic.
  """
  found: dict[str, Any] = {
    'measured': measured, 'verdict': verdict, 'why': why, 'interval': interval
  }  # fmt: skip
  return dataclasses.replace(BY_NUMBER[number], **found)


def told(verdict: results.Verdict, **why: str) -> dict[str, Any]:
  """A verdict for `judge`, with what is to be told if it comes out like that.

  Args:
    verdict: what a rule returned.
    **why: verdict, such as `qualified`, to its sentence.
  """
  other = "Not as it came out before: what was measured decides, by the rule of the experiment."
  return {"verdict": verdict, "why": why.get(verdict, other)}


def above(intervals: Sequence[Interval]) -> results.Verdict:
  """Whether a number is above 0, of which there is an interval a data set, a language, ..."""
  if all(one.high < 0 for one in intervals):
    return results.CONTRADICTED
  shown = [one.low > 0 for one in intervals]
  if all(shown):
    return results.REPRODUCED
  return results.QUALIFIED if any(shown) else results.NOT_RESOLVED


def questions() -> dict[str, str]:
  """The question of each experiment but benchmarks: the first paragraph of its docstring."""
  found = {}
  for path in sorted(pathlib.Path(__file__).parent.glob("[a-z]*.py")):
    if path.stem.endswith("_benchmark"):
      continue
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
      docstring = ast.get_docstring(tree) or ""
      found[path.stem] = " ".join(docstring.partition("\n\n")[0].split())
  return found
