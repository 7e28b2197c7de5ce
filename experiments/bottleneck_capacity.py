"""How many words a fixed vector holds without any training, for `experiments.bottleneck`.

Each word has a random code of +1 and -1. A sentence's vector is the sum of its words' codes, each
permuted by a permutation of its position. To read a position its permutation is undone, and the
word whose code has the largest product with what comes out is the one that is read: a linear
decoder, as a softmax layer is one.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from experiments import checks

REALS, BITS = KINDS = ("32-bit reals", "1 bit a component")

_CHUNK = 1000  # words whose products are taken at once


@dataclasses.dataclass(frozen=True)
class Capacity:
  """What is put into a vector.

  Attributes:
    widths: components of the vector, ascending; the last should be the chapter's 8000.
    words: of a sentence.
    vocabulary: words that a position may have.
    sentences: how many, each with codes and permutations of its own; at least 3.
  """

  widths: tuple[int, ...] = (250, 500, 1000, 2000, 4000, 8000)
  words: int = 50
  vocabulary: int = 20_000
  sentences: int = 5

  def __post_init__(self) -> None:
    """Refuses what has no widths to compare, or no interval."""
    checks.two_rising("capacity.widths", self.widths)
    checks.at_least(self, "capacity.", words=1, vocabulary=2, sentences=3)

  @property
  def bits(self) -> float:
    """Bits that tell one sentence from all others."""
    return self.words * math.log2(self.vocabulary)


Held = dict[str, list[list[float]]]  # kind to a width to a sentence: words read right, %


def measure(config: Capacity, seed: int, log: Callable[..., None]) -> Held:
  """Writes and reads every sentence at every width, as it is and with one bit a component."""
  held: Held = {kind: [] for kind in KINDS}
  for width in config.widths:
    found = [
      read_back(np.random.default_rng((seed, width, sentence)), config, width)
      for sentence in range(config.sentences)
    ]
    for kind in KINDS:
      held[kind].append([one[kind] for one in found])
      log(width=width, kind=kind, right=held[kind][-1])
  return held


def read_back(draw: np.random.Generator, config: Capacity, width: int) -> dict[str, float]:
  """Words of one sentence that are read right, %, by kind of vector."""
  packed = draw.integers(0, 256, (config.vocabulary, -(-width // 8)), np.uint8)
  sentence = draw.integers(0, config.vocabulary, config.words)
  places = np.stack([draw.permutation(width) for _ in range(config.words)])
  vector = written(codes(packed[sentence], width), places)
  vectors = {REALS: vector, BITS: np.where(vector >= 0, np.float32(1), np.float32(-1))}
  # Undone permutations of both kinds, a column each.
  columns = np.concatenate([one[places].T for one in vectors.values()], axis=1)
  products = np.concatenate(
    [
      codes(packed[start : start + _CHUNK], width) @ columns
      for start in range(0, config.vocabulary, _CHUNK)
    ]
  )
  right = (products.argmax(0).reshape(len(vectors), -1) == sentence).mean(1)
  return dict(zip(vectors, (100 * right).tolist(), strict=True))


def codes(packed: Int[np.ndarray, "n b"], width: int) -> Float[np.ndarray, "n width"]:
  """Codes of +1 and -1 from their bits."""
  bits = np.unpackbits(packed, axis=1, count=width)
  return 2 * bits.astype(np.float32) - 1


def written(
  words: Float[np.ndarray, "t width"], places: Int[np.ndarray, "t width"]
) -> Float[np.ndarray, " width"]:
  """The sum of all codes, component k of the code at position t put at `places[t, k]`."""
  vector = np.zeros(words.shape[1], np.float32)
  for code, place in zip(words, places, strict=True):
    vector[place] += code
  return vector
