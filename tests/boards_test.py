"""Weights & Biases' files, read back; TensorBoard's are tried in training_test.py."""

import json
import struct
import time

import pytest

from attn import configs
from attn.training import metrics
from attn.training.boards import WandB


def records(path):
  """The messages in a file of an offline run, once it is whole: its service writes on its own."""
  from wandb.proto.wandb_internal_pb2 import Record

  deadline = time.monotonic() + 300
  while time.monotonic() < deadline:
    found, data = [], path.read_bytes()[7:]  # behind the file's head
    assert len(data) < 2**15  # what is longer has records in parts
    while len(data) >= 7:  # checksum, length, whether whole, a message
      _, size, whole = struct.unpack("<IHB", data[:7])
      if whole != 1 or len(data) < 7 + size:
        break
      found.append(Record.FromString(data[7 : 7 + size]))
      data = data[7 + size :]
    if found and found[-1].WhichOneof("record_type") == "exit":
      return found
    time.sleep(0.1)
  raise AssertionError(f"{path} has no end")


def history(folder):
  """What `wandb sync` would send: (run, step, name, value)."""
  found = []
  for path in sorted(folder.glob("offline-run-*/run-*.wandb")):
    for record in records(path):
      values = {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
      kept = [(name, value) for name, value in values.items() if not name.startswith("_")]
      found += [(path.stem.removeprefix("run-"), record.history.step.num, *one) for one in kept]
  return found


def test_lines_go_to_weights_and_biases_as_one_run_over_interruptions(tmp_path, monkeypatch):
  pytest.importorskip("wandb", reason="needs the extra wandb")
  monkeypatch.delenv("WANDB_MODE", raising=False)
  run = tmp_path / "sweep" / "units=7"
  run.mkdir(parents=True)
  (run / "config.json").write_text('{"model": {"units": 7}}')
  with metrics.Metrics(run, 0, [WandB]) as lines:
    lines.write(3, loss=0.5)
    lines.write(5, loss=0.25)
    lines.write(5, dev_loss=2.5)
  with metrics.Metrics(run, 3, [WandB]) as lines:  # as after a kill
    lines.write(5, loss=0.25)
    lines.write(7, loss=0.125)
  found = history(run / "wandb")
  (name,) = {name for name, *_ in found}
  assert {one[1:] for one in found} == {
    (3, "loss", 0.5), (5, "loss", 0.25), (5, "dev_loss", 2.5), (7, "loss", 0.125),
  }  # fmt: skip
  assert name == (run / "wandb" / "id").read_text()


def test_what_weights_and_biases_refuses_is_one_line(tmp_path, monkeypatch):
  wandb = pytest.importorskip("wandb", reason="needs the extra wandb")

  def refuse(**_):
    raise wandb.errors.UsageError("no API key")

  monkeypatch.setattr(wandb, "init", refuse)
  (tmp_path / "config.json").write_text("{}")
  with pytest.raises(configs.ConfigError, match="Weights & Biases: no API key"):
    metrics.Metrics(tmp_path, 0, [WandB])
