"""`reverse`: symbols to be said backwards, generated, with the alignment known."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from attn.data.builder import PairsBuilder

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclasses.dataclass(eq=False)
class ReverseConfig(tfds.core.BuilderConfig):
  """One variety of the task.

  Attributes:
    symbols: how many different symbols there are, at most 26.
    shortest: fewest symbols of a source.
    longest: most symbols of a source; lengths between are equally likely.
    train: training pairs.
    dev: development pairs.
    test: test pairs.
    seed: what they are drawn from.
  """

  symbols: int = 20
  shortest: int = 2
  longest: int = 20
  train: int = 20_000
  dev: int = 1_000
  test: int = 2_000
  seed: int = 1


class Reverse(PairsBuilder):
  """A source of random symbols; the target is the same from last to first.

  A fixed vector has to hold the whole source, where attention has only to walk back along it. No
  source of test or dev occurs in another split; short ones may recur within train.
  """

  VERSION = tfds.core.Version("1.0.0")
  BUILDER_CONFIGS = [ReverseConfig(name="letters", description="20 letters, 2 to 20 at a time")]
  DESCRIPTION = "Random letters and the same letters in reverse, with the word alignment."
  LICENSE = "CC0-1.0"
  FEATURES = {"alignment": tfds.features.Tensor(shape=(None, 2), dtype=np.int32)}

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
    del dl_manager  # nothing to download
    drawn = draw(self.builder_config)
    return {name: self._generate_examples(sources) for name, sources in drawn.items()}

  def _generate_examples(
    self, sources: list[tuple[str, ...]]
  ) -> Iterator[tuple[int, dict[str, Any]]]:
    for i, source in enumerate(sources):
      backwards = range(len(source))[::-1]
      yield (
        i,
        {
          "source": " ".join(source),
          "target": " ".join(source[::-1]),
          "alignment": np.array([*zip(backwards, range(len(source)), strict=True)], np.int32),
        },
      )


def draw(config: ReverseConfig) -> dict[str, list[tuple[str, ...]]]:
  """Returns the sources of each split.

  Raises:
    ValueError: there are too few different sources to hold some out.
  """
  held_out_each = (config.dev + config.test) / (config.longest - config.shortest + 1)
  if 2 * held_out_each > config.symbols**config.shortest:
    raise ValueError(
      f"{config.symbols} symbols make too few sources of length {config.shortest} to hold out"
      f" {held_out_each:.0f}"
    )
  # The old generator, because NumPy promises that its stream never changes.
  random = np.random.RandomState(config.seed)
  letters = np.array(list(_LETTERS[: config.symbols]))
  held_out: dict[tuple[str, ...], None] = {}

  def new_source() -> tuple[str, ...]:
    """A source not held out. The length stays while symbols are drawn again: all as likely."""
    length = random.randint(config.shortest, config.longest + 1)
    while True:
      source = tuple(letters[random.randint(config.symbols, size=length)].tolist())
      if source not in held_out:
        return source

  for _ in range(config.test + config.dev):
    held_out[new_source()] = None
  test, dev = list(held_out)[: config.test], list(held_out)[config.test :]
  return {"train": [new_source() for _ in range(config.train)], "dev": dev, "test": test}
