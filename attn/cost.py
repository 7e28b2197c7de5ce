"""What attention costs and what the fixed vector holds: reals, bits, scores, multiply-adds.

Everything is counted in plain Python numbers, exactly, from sizes alone. A size is an integer of at
least 0; T_x and T_y are words of source and target, n is the width of the decoder state, 2n that of
the annotations h_j (both directions), n' that of the alignment model, m that of a word embedding, l
that of the maxout layer, K_y the target vocabulary. A multiply-add is one product of a matrix or
weighted sum; element-wise work, such as the n' tanh of a score, is not counted.
"""

import math
import operator


def context_reals(layers: int, units: int, states: int = 2) -> int:
  """Real numbers in the fixed vector of an encoder: layers * states * units.

  Source: Sutskever, Vinyals and Le 2014 (arXiv:1409.3215), section 3.4, whose 8000 real numbers are
  4 layers of 1000 LSTM cells; that each cell counts twice, for c and h, is inferred.

  Args:
    layers: recurrent layers.
    units: cells a layer.
    states: vectors that a layer hands on: 2 for an LSTM (c and h), 1 for a GRU.

  Returns:
    Reals, the same for a source of any length.

  Raises:
    TypeError: a size is not an integer.
    ValueError: a size is negative.

  Example:
    >>> import attn
    >>> attn.cost.context_reals(layers=4, units=1000)
    8000
  """
  layers, units, states = _sizes("context_reals", layers=layers, units=units, states=states)
  return layers * states * units


def bits(reals: int, width: int = 32) -> int:
  """Bits that real numbers take: reals * width. A KiB is 8192 of them.

  Source: for the 8000 real numbers of Sutskever, Vinyals and Le 2014 (arXiv:1409.3215), section
  3.4, stored as float32.

  Args:
    reals: how many numbers.
    width: bits of one, 32 for float32.

  Returns:
    Bits.

  Raises:
    TypeError: a size is not an integer.
    ValueError: a size is negative.

  Example:
    >>> import attn
    >>> attn.cost.bits(8000), attn.cost.bits(8000) / 8192
    (256000, 31.25)
  """
  reals, width = _sizes("bits", reals=reals, width=width)
  return reals * width


def sentence_bits(words: int, vocabulary: int) -> float:
  """Bits that name a sentence, each word at random: words * log2(vocabulary).

  An upper bound: words of natural language are not equally likely, nor independent.

  Source: the logarithmic measure of Shannon 1948, A Mathematical Theory of Communication,
  introduction; 160,000 source words in Sutskever, Vinyals and Le 2014 (arXiv:1409.3215), section
  3.1.

  Args:
    words: words of the sentence.
    vocabulary: words to choose from, at least 1.

  Returns:
    Bits.

  Raises:
    TypeError: a size is not an integer.
    ValueError: `words` is negative, or `vocabulary` is below 1.

  Example:
    >>> import attn
    >>> print(f'{attn.cost.sentence_bits(words=50, vocabulary=160_000):.2f}')
    864.39
  """
  words, vocabulary = _sizes("sentence_bits", words=words, vocabulary=vocabulary)
  if vocabulary == 0:
    raise ValueError("sentence_bits: vocabulary is 0, expected at least 1")
  return words * math.log2(vocabulary)


def annotation_reals(length: int, width: int) -> int:
  """Real numbers in the annotations that attention keeps of a source: T_x * 2n.

  Source: Bahdanau, Cho and Bengio 2015 (arXiv:1409.0473), section 3.2; sizes in appendix A.2.3.

  Args:
    length: T_x, source words.
    width: 2n, of an annotation h_j.

  Returns:
    Reals, linear in the length of the source.

  Raises:
    TypeError: a size is not an integer.
    ValueError: a size is negative.

  Example:
    >>> import attn
    >>> attn.cost.annotation_reals(length=50, width=2000)
    100000
  """
  length, width = _sizes("annotation_reals", length=length, width=width)
  return length * width


def cached_reals(length: int, width: int, alignment: int) -> int:
  """Real numbers in the annotations h_j and their projections U_a h_j: T_x * (2n + n').

  Source: Bahdanau, Cho and Bengio 2015 (arXiv:1409.0473), appendix A.1.2, which computes U_a h_j
  once a sentence.

  Args:
    length: T_x, source words.
    width: 2n, of an annotation h_j.
    alignment: n', of its projection.

  Returns:
    Reals, linear in the length of the source.

  Raises:
    TypeError: a size is not an integer.
    ValueError: a size is negative.

  Example:
    >>> import attn
    >>> attn.cost.cached_reals(length=50, width=2000, alignment=1000)
    150000
  """
  length, width, alignment = _sizes("cached_reals", length=length, width=width, alignment=alignment)
  return length * (width + alignment)


def scores(source: int, target: int) -> int:
  """Scores e_ij of a pair of sentences: T_x * T_y.

  Source: Bahdanau, Cho and Bengio 2015 (arXiv:1409.0473), appendix A.1.2, which counts them.

  Args:
    source: T_x, source words.
    target: T_y, target words.

  Returns:
    Scores.

  Raises:
    TypeError: a size is not an integer.
    ValueError: a size is negative.

  Example:
    >>> import attn
    >>> attn.cost.scores(source=50, target=60)
    3000
  """
  source, target = _sizes("scores", source=source, target=target)
  return source * target


def attention_macs(
  source: int,
  width: int,
  alignment: int,
  query: int,
  target: int = 1,
  precomputed: bool = True,
) -> int:
  """Multiply-adds of additive attention: T_y (n' n + T_x n' + T_x 2n), and T_x n' 2n for U_a h_j.

  Each target word takes W_a s_{i-1} (n' n), the sums with v_a (T_x n') and the weighted sum of the
  annotations (T_x 2n). U_a h_j takes T_x n' 2n: for each target word again, or precomputed once a
  sentence. A single target word is priced as one more step of a sentence, with U_a h_j at hand:
  then, `target=1` and precomputed, it is left out.

  Source: Bahdanau, Cho and Bengio 2015 (arXiv:1409.0473), appendix A.1.2; sizes in appendix A.2.3.

  Args:
    source: T_x, source words.
    width: 2n, of an annotation h_j.
    alignment: n', of the alignment model.
    query: n, of the decoder state s_{i-1}.
    target: T_y, target words.
    precomputed: whether U_a h_j is computed once a sentence rather than at every target word.

  Returns:
    Multiply-adds.

  Raises:
    TypeError: a size is not an integer.
    ValueError: a size is negative.

  Example:
    >>> import attn
    >>> paper = dict(source=50, width=2000, alignment=1000, query=1000)
    >>> attn.cost.attention_macs(**paper)
    1150000
    >>> attn.cost.attention_macs(**paper, target=60)
    169000000
    >>> attn.cost.attention_macs(**paper, target=60, precomputed=False)
    6069000000
  """
  source, width, alignment, query, target = _sizes(
    "attention_macs", source=source, width=width, alignment=alignment, query=query, target=target
  )
  step = alignment * query + source * alignment + source * width
  projections = int(target > 1) if precomputed else target
  return target * step + projections * source * alignment * width


def decoder_macs(
  embedding: int,
  state: int,
  width: int,
  alignment: int,
  source: int,
  maxout: int,
  vocabulary: int,
) -> dict[str, int]:
  """Multiply-adds of one step of the RNNsearch decoder, by part.

  The attention is `attention_macs` of a single step. The GRU multiplies E y_{i-1}, s_{i-1} and c_i
  by three matrices each: 3 n (m + n + 2n). The readout takes V_o, U_o and C_o to 2l units, of which
  the maxout keeps l, and W_o: 2l (m + n + 2n) + K_y l.

  Source: Bahdanau, Cho and Bengio 2015 (arXiv:1409.0473), appendices A.1.2 and A.2.2; sizes in
  appendix A.2.3.

  Args:
    embedding: m, of a target word.
    state: n, of the decoder state.
    width: 2n, of an annotation h_j.
    alignment: n', of the alignment model.
    source: T_x, source words.
    maxout: l, of the readout after its maxout.
    vocabulary: K_y, target words to choose from.

  Returns:
    Multiply-adds: `attention`, `gru` and `readout`.

  Raises:
    TypeError: a size is not an integer.
    ValueError: a size is negative.

  Example:
    >>> import attn
    >>> step = attn.cost.decoder_macs(
    ...   embedding=620, state=1000, width=2000, alignment=1000, source=50, maxout=500,
    ...   vocabulary=30_000)
    >>> step
    {'attention': 1150000, 'gru': 10860000, 'readout': 18620000}
    >>> print(f"{step['attention'] / sum(step.values()):.1%}")
    3.8%
  """
  embedding, state, width, alignment, source, maxout, vocabulary = _sizes(
    "decoder_macs",
    embedding=embedding,
    state=state,
    width=width,
    alignment=alignment,
    source=source,
    maxout=maxout,
    vocabulary=vocabulary,
  )
  inputs = embedding + state + width
  return {
    "attention": attention_macs(source, width, alignment, state),
    "gru": 3 * state * inputs,
    "readout": 2 * maxout * inputs + vocabulary * maxout,
  }


def _sizes(function: str, **sizes: int) -> list[int]:
  """The sizes as Python ints, NumPy's among them, or the error that names the first bad one."""
  found = []
  for name, size in sizes.items():
    try:
      # A bool is an int to Python, but here a flag that stands in a size's place.
      count = None if isinstance(size, bool) else operator.index(size)
    except TypeError:
      count = None
    if count is None:
      raise TypeError(f"{function}: {name} is a {type(size).__name__}, expected an int")
    if count < 0:
      raise ValueError(f"{function}: {name} is {count}, expected at least 0")
    found.append(count)
  return found
