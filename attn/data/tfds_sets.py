"""Translation data sets that TFDS itself has, `wmt14_translate/de-en`, without TensorFlow.

A prepared folder is read as it is, whichever of TFDS's two formats it has. Anything else TFDS
downloads with code that calls a little of TensorFlow, for which `_standing_in` stands in.
"""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import pathlib
import struct
import types
from collections.abc import Iterator
from typing import Any, Final

import tensorflow_datasets as tfds
from tensorflow_datasets.core import registered
from tensorflow_datasets.core.download import downloader, extractor

from attn import configs
from attn.data.builder import quiet
from attn.data.errors import DataError

_VERSION: Final = "4.9."  # of TFDS, whose insides `_standing_in` knows


def known(name: str) -> bool:
  """Whether TFDS has a data set of a name, `NAME` or `NAME/CONFIG`."""
  try:
    _builder_class(name)
  except (registered.DatasetNotFoundError, ValueError):  # ValueError: it is no name for TFDS
    return False
  return True


def builder_class(name: str) -> Any:
  """Returns TFDS's builder of a name that it knows.

  Raises:
    DataError: it has no such configuration.
  """
  builder, (plain, _, config) = _builder_class(name), name.partition("/")
  configurations = list(builder.builder_configs)
  if config not in configurations and (config or configurations):
    raise DataError(
      f"{plain} is named with a configuration, as {plain}/NAME, not"
      f" {name!r}{configs.nearest(config, configurations)}"
    )
  return builder


def _builder_class(name: str) -> Any:
  plain = name.partition("/")[0]
  with contextlib.suppress(ImportError):  # some builders are known only once they are imported
    importlib.import_module(f"tensorflow_datasets.translate.{plain.removesuffix('_translate')}")
  return tfds.builder_cls(plain)


def prepared(name: str, root: pathlib.Path) -> Any:
  """Returns the builder of a folder that lies prepared under `root`, or None.

  The newest version is taken, whatever prepared it.
  """
  versions = [path.parent for path in (root / name).glob("*/dataset_info.json")]
  if not versions:
    return None
  newest = max(versions, key=lambda path: [int(n) for n in path.name.split(".") if n.isdigit()])
  return tfds.builder_from_directory(newest)


def prepare(name: str, root: pathlib.Path) -> Any:
  """Downloads and prepares a data set under `root`, and returns its builder.

  Raises:
    DataError: it cannot be downloaded.
  """
  make, (plain, _, config) = builder_class(name), name.partition("/")
  with _standing_in(), quiet():
    try:
      builder = make(data_dir=root, config=config or None, file_format="array_record")
      sides(builder)  # what cannot be used is not downloaded
      builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(try_download_gcs=False)
      )
    except DataError:
      raise
    except (AssertionError, OSError, RuntimeError, ValueError) as error:
      raise DataError(
        f"cannot download {name} ({_reason(error)}); prepare it where that works, and put the"
        f" folder {plain} into {root.resolve()}"
      ) from error
  return builder


def sides(builder: Any) -> tuple[str, str]:
  """Returns the names of the source's and the target's feature.

  Raises:
    DataError: the data set has no pairs of texts.
  """
  names = builder.info.supervised_keys or ()
  texts = [name for name in names if isinstance(builder.info.features[name], tfds.features.Text)]
  if len(texts) != 2:
    raise DataError(f"{builder.name} is no translation data set: it has no pairs of two texts")
  return texts[0], texts[1]


def records(builder: Any, split: str) -> Iterator[bytes]:
  """Yields the records of a split as they are stored in files of the format `tfrecord`."""
  for file in builder.info.splits[split].filepaths:
    with open(file, "rb") as stream:
      # A record is its length, a checksum of that, its bytes, and a checksum of those.
      while header := stream.read(12):
        (length,) = struct.unpack("<Q", header[:8])
        record = stream.read(length + 4)
        if len(record) != length + 4:
          raise OSError(f"{file} ends inside a record")
        yield record[:-4]


@contextlib.contextmanager
def _standing_in() -> Iterator[None]:
  """Lets TFDS download and unpack without TensorFlow, and give up soon without a network.

  Raises:
    DataError: this version of TFDS may call more of TensorFlow than what stands in.
  """
  retries, downloader.MAX_RETRIES = downloader.MAX_RETRIES, 1
  real = extractor.tf
  if importlib.util.find_spec("tensorflow") is None:
    version = importlib.metadata.version("tensorflow-datasets")
    if not version.startswith(_VERSION):
      raise DataError(
        f"tensorflow-datasets {version} downloads only with TensorFlow: install tensorflow, or"
        f" tensorflow-datasets {_VERSION}*"
      )
    gfile = types.SimpleNamespace(GFile=open)
    extractor.tf = types.SimpleNamespace(
      io=types.SimpleNamespace(gfile=gfile),
      compat=types.SimpleNamespace(as_text=lambda s: s.decode() if isinstance(s, bytes) else s),
    )
  try:
    yield
  finally:
    downloader.MAX_RETRIES, extractor.tf = retries, real


def _reason(error: BaseException) -> str:
  """Returns in a few words why a download failed."""
  request = getattr(error, "request", None)  # of an error of requests, which are long
  if request is not None:
    host = request.url.partition("://")[2].partition("/")[0]
    return f"{host} cannot be reached"
  lines = str(error).strip().splitlines()
  return lines[0] if lines else type(error).__name__
