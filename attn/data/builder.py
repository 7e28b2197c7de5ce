"""What the project's TFDS builders share."""

import contextlib
import hashlib
import io
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
import tensorflow_datasets as tfds
from jaxtyping import Int

LINKS: Final = tfds.features.Tensor(shape=(None, 2), dtype=np.int32)  # of a gold alignment
_T = TypeVar("_T")


class PairsBuilder(tfds.core.GeneratorBasedBuilder):
  """A data set of source and target texts; files must be `array_record`, which need no TensorFlow.

  Attributes:
    DESCRIPTION: what it is.
    HOMEPAGE: where it comes from.
    LICENSE: under what terms.
    FEATURES: features besides `source` and `target`.
  """

  DESCRIPTION: ClassVar[str]
  HOMEPAGE: ClassVar[str | None] = None
  LICENSE: ClassVar[str | None] = None
  FEATURES: ClassVar[dict[str, Any]] = {}

  def _info(self) -> tfds.core.DatasetInfo:
    text = {"source": tfds.features.Text(), "target": tfds.features.Text()}
    return _LocalInfo(
      builder=self,
      description=self.DESCRIPTION,
      features=tfds.features.FeaturesDict({**text, **self.FEATURES}),
      supervised_keys=("source", "target"),
      homepage=self.HOMEPAGE,
      license=self.LICENSE,
      metadata=tfds.core.MetadataDict(),
    )


class NumberedBuilder(PairsBuilder):
  """A data set of pairs without names of their own: the keys of the examples are numbers.

  TFDS takes two texts for one key if they differ in / and \\ only.
  """

  def _generate_examples(
    self, pairs: Iterable[tuple[str, str]]
  ) -> Iterator[tuple[int, dict[str, str]]]:
    for i, (source, target) in enumerate(pairs):
      yield i, {"source": source, "target": target}


def splits(items: Iterable[_T], name: Callable[[_T], str]) -> dict[str, list[_T]]:
  """Returns the items of each split, which `split_of` their names decides, in their order."""
  parts: dict[str, list[_T]] = {"train": [], "dev": [], "test": []}
  for item in items:
    parts[split_of(name(item))].append(item)
  return parts


def links_array(links: Iterable[tuple[int, int]]) -> Int[np.ndarray, "n 2"]:
  """Returns links of (source, target) as the feature `LINKS` has them."""
  return np.array(list(links), np.int32).reshape(-1, 2)


def split_of(name: str) -> str:
  """Returns the split of all that has a name, by a hash: 5% `test`, 5% `dev`, the rest `train`."""
  percent = int(hashlib.sha256(name.encode("utf-8")).hexdigest(), 16) % 100
  return "test" if percent < 5 else "dev" if percent < 10 else "train"


class _LocalInfo(tfds.core.DatasetInfo):
  """Information that no bucket holds."""

  def initialize_from_bucket(self) -> None:
    """Does nothing: TFDS would leave a temporary directory behind for each unprepared builder."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
  """Keeps TFDS from printing its bars, banners and warnings while it prepares."""
  tfds.disable_progress_bar()
  # TFDS logs through absl, whose logger is an ordinary one of this name.
  loggers = [logging.getLogger(name) for name in ("absl", "urllib3")]
  levels = [logger.level for logger in loggers]
  for logger in loggers:
    logger.setLevel(logging.ERROR)
  try:
    with contextlib.redirect_stdout(io.StringIO()):
      yield
  finally:
    for logger, level in zip(loggers, levels, strict=True):
      logger.setLevel(level)
