"""Data parallelism: the rows of a batch over all devices of all processes, the rest on each."""

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from attn.configs import ConfigError
from attn.data.pipeline import Batch


class Devices:
  """All devices of a run. With one, arrays stay what they are.

  Attributes:
    everywhere: how a value lies that each device has a copy of; None on a single device.
  """

  def __init__(self, batch_size: int, batch_tokens: int | None = None):
    """Spreads batches of `batch_size` rows, over all processes together, or of tokens.

    Raises:
      ConfigError: the devices cannot share the rows evenly.
    """
    devices = jax.devices()
    self.everywhere = self._rows = None
    if len(devices) == 1:
      return
    if batch_size % len(devices):
      raise ConfigError(
        f"data.batch_size is {batch_size}, which {len(devices)} devices cannot share evenly: give a"
        " multiple, or show jax fewer devices"
      )
    if batch_tokens is not None and jax.local_device_count() > 1:
      raise ConfigError(
        f"data.batch_tokens needs a process for each device, and this one has"
        f" {jax.local_device_count()}: give data.batch_size alone, or show jax fewer devices"
      )
    mesh = Mesh(np.array(devices), ("rows",), axis_types=(AxisType.Auto,))
    self.everywhere = NamedSharding(mesh, PartitionSpec())
    self._rows = NamedSharding(mesh, PartitionSpec("rows"))

  def spread(self, rows: Batch) -> dict[str, Any]:
    """The batch of which this process has `rows`."""
    if self._rows is None:
      return rows
    return {k: jax.make_array_from_process_local_data(self._rows, v) for k, v in rows.items()}

  def share(self, batch: Batch) -> dict[str, Any]:
    """A batch that every process has whole."""
    size = len(batch["index"]) // jax.process_count()
    first = jax.process_index() * size
    return self.spread({name: value[first : first + size] for name, value in batch.items()})


def agree(number: int | None) -> int | None:
  """The largest number that any process has; all of them must ask at the same time."""
  if jax.process_count() == 1:
    return number
  from jax.experimental import multihost_utils

  return int(multihost_utils.process_allgather(np.int32(number or 0)).max()) or None


def meet(name: str) -> None:
  """Waits until all processes are here."""
  if jax.process_count() > 1:
    from jax.experimental import multihost_utils

    multihost_utils.sync_global_devices(name)
