"""Objective, optimizer, loop: the numbers, and that a killed run is the same run."""

import contextlib
import dataclasses
import errno
import functools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attn import configs, training
from attn.data import catalog, pipeline
from attn.data.config import DataConfig
from attn.data.vocabulary import BOS, EOS, PAD
from attn.decoding.config import SearchConfig
from attn.evaluation import corpus_scores
from attn.models import ModelConfig, bind
from attn.training import (
  OptimizerConfig,
  TrainConfig,
  checkpoints,
  devices,
  loop,
  metrics,
  objective,
  optimizers,
  scoring,
  state,
)
from attn.training.interrupts import Interrupts

MODEL = ModelConfig(
  source_vocabulary=17,
  target_vocabulary=19,
  embedding=5,
  units=7,
  alignment=3,
  maxout=2,
  biases=True,
  initialisation="glorot",
)


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
  """The `reverse` task, prepared once for this file."""
  folder = tmp_path_factory.mktemp("data")
  catalog.prepare("reverse", folder)
  return folder


def small(data_dir, **changes):
  """A run of seconds: one shape, one batch a step."""
  config = TrainConfig(
    model=dataclasses.replace(MODEL, source_vocabulary=None, target_vocabulary=None, dropout=0.1),
    data=DataConfig(
      name="reverse", data_dir=str(data_dir), limit=499, batch_size=31, bucket_edges=(22,)
    ),
    optimizer=OptimizerConfig(learning_rate=0.01, warmup=3),
    search=SearchConfig(beam=2),
    steps=60,
    log_every=4,
    validate_every=30,
    checkpoint_every=7,
  )
  return dataclasses.replace(config, **changes)


def one_batch(rows=5, width=7):
  rng = np.random.default_rng(0)
  lengths = rng.integers(1, width + 1, rows).astype(np.int32)
  inside = np.arange(width) < lengths[:, None]
  return {
    "source": np.where(inside, rng.integers(4, 17, (rows, width)), PAD).astype(np.int32),
    "source_length": lengths,
    "target": np.where(inside, rng.integers(4, 19, (rows, width)), PAD).astype(np.int32),
    "target_length": lengths,
    "index": np.arange(rows, dtype=np.int32),
  }


def test_losses_are_those_of_real_symbols_and_their_mean_does_not_see_padding():
  logits = jnp.log(jnp.array([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]], [[0.2, 0.3, 0.5]] * 2]))
  losses = objective.token_losses(logits, jnp.array([[1, 2], [0, 1]]), jnp.array([2, 1]))
  np.testing.assert_allclose(losses, -np.log([[0.25, 0.8], [0.2, 1.0]]), rtol=1e-6)


def mean_loss(params, config, batch):
  """What an update minimises, and the number of real symbols that it is the mean of."""
  total = objective.summed_loss(params, config, batch)
  return total / objective.divisor(batch, "symbol"), batch["target_length"].sum()


@pytest.mark.slow
def test_mean_loss_is_the_same_in_wider_batches_and_zero_in_an_empty_one():
  params = state.create(MODEL, OptimizerConfig(), 10, jax.random.key(0)).params
  batch = one_batch()
  wider = {k: np.pad(v, ((0, 2), (0, 4)) if v.ndim == 2 else (0, 2)) for k, v in batch.items()}
  grad = jax.jit(jax.value_and_grad(mean_loss, has_aux=True), static_argnums=1)
  (loss, symbols), gradient = grad(params, MODEL, batch)
  (padded, same), padded_gradient = grad(params, MODEL, wider)
  assert symbols == same == batch["target_length"].sum()
  np.testing.assert_allclose(loss, padded, rtol=1e-6)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7), gradient, padded_gradient
  )
  empty = {k: np.zeros_like(v) for k, v in batch.items()}
  (loss, symbols), gradient = grad(params, MODEL, empty)
  assert loss == 0 and symbols == 0
  assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(gradient))


def test_what_stands_in_padding_changes_neither_loss_nor_gradient():
  params = state.create(MODEL, OptimizerConfig(), 10, jax.random.key(0)).params
  batch = one_batch()
  filled = dict(batch)
  for side in ("source", "target"):
    padding = np.arange(7) >= batch[f"{side}_length"][:, None]
    filled[side] = np.where(padding, EOS, batch[side])
  grad = jax.jit(jax.value_and_grad(mean_loss, has_aux=True), static_argnums=1)
  one, other = grad(params, MODEL, batch), grad(params, MODEL, filled)
  jax.tree.map(np.testing.assert_array_equal, one, other)


def test_the_decoder_reads_what_came_before_each_label_in_short_rows_too():
  """TRN-01: of [5, 6] and [7] it reads BOS 5 6 and BOS 7, EOS is a label, and no pad counts."""
  params = state.create(MODEL, OptimizerConfig(), 10, jax.random.key(0)).params
  batch = {
    "source": np.array([[5, EOS, PAD], [7, 9, EOS]], np.int32),
    "source_length": np.array([2, 3], np.int32),
    "target": np.array([[5, 6, EOS], [7, EOS, PAD]], np.int32),
    "target_length": np.array([3, 2], np.int32),
  }
  grad = jax.jit(jax.value_and_grad(mean_loss, has_aux=True), static_argnums=1)
  (_, symbols), gradient = grad(params, MODEL, batch)
  assert symbols == 5
  read = np.flatnonzero(np.asarray(gradient["target"]).any(axis=1))
  assert read.tolist() == [BOS, 5, 6, 7]


@pytest.mark.slow
def test_mean_losses_of_parts_weigh_by_their_symbols():
  """TRN-02: however a split is batched."""
  params = state.create(MODEL, OptimizerConfig(), 10, jax.random.key(0)).params
  rng = np.random.default_rng(2)
  rows = [(rng.integers(4, 17, n).tolist(), rng.integers(4, 19, n).tolist()) for n in range(11)]
  store = pipeline.TokenStore.from_ids(*zip(*rows, strict=True), source_size=17, target_size=19)
  losses = []
  for batch_size, edges in ((13, (11,)), (3, (5, 7)), (1, (2, 3, 5))):
    data = DataConfig(batch_size=batch_size, bucket_edges=edges)
    found = loop.validation(TrainConfig(model=MODEL, data=data), params, store)
    losses.append(found["dev_loss"])
  np.testing.assert_allclose(losses, losses[0], rtol=1e-6)


@pytest.mark.parametrize(
  "gradient, expected",
  [([3.0, 4.0], [3.0, 4.0]), ([30.0, 40.0], [3.0, 4.0]), ([0.0, 0.0], [0.0, 0.0])],
)
def test_clipping_scales_to_the_norm(gradient, expected):
  """TRN-04; adam's first average holds a tenth of the gradient that it was given."""
  transform = optimizers.build(OptimizerConfig(clip_norm=5.0), 10)
  _, after = transform.update(jnp.array(gradient), transform.init(jnp.zeros(2)))
  np.testing.assert_allclose(10 * optax.tree.get(after, "mu"), expected, rtol=1e-6)


@pytest.mark.parametrize(
  "make, message",
  [
    (lambda: TrainConfig(steps=0), "steps is 0"),
    (lambda: TrainConfig(seed=-1), "seed is -1"),
    (lambda: TrainConfig(seed=2**32), "seed is 4294967296"),
    (lambda: SearchConfig(alpha=-0.5), "alpha is -0.5"),
    (lambda: SearchConfig(beam=0), "beam is 0"),
    (lambda: SearchConfig(extra=0), "extra 0"),
  ],
)
def test_bad_settings_are_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_a_gradient_that_is_not_finite_counts_as_zeros_and_is_reported(bad):
  config = OptimizerConfig()
  fresh = lambda: state.create(MODEL, config, 10, jax.random.key(0))  # noqa: E731
  broken = fresh()
  broken.params["decoder"]["b_w"] = broken.params["decoder"]["b_w"].at[3].set(bad)
  before = jax.device_get(broken)
  after, reported = state.update(MODEL, config, 10, broken, one_batch(), jax.random.key(1))
  assert not np.isfinite(reported.loss)
  jax.tree.map(np.testing.assert_array_equal, before.params, jax.device_get(after.params))
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.optimizer))


@pytest.mark.slow
def test_parameters_that_become_infinite_are_reported():
  config = OptimizerConfig(learning_rate=3e38, decay="none")
  fresh = state.create(MODEL, config, 10, jax.random.key(0))
  huge = jax.tree.map(lambda leaf: leaf * jnp.float32(1e38), fresh.optimizer)
  _, reported = state.update(
    MODEL, config, 10, fresh._replace(optimizer=huge), one_batch(), jax.random.key(1)
  )
  assert np.isfinite(reported.loss) and np.isfinite(reported.gradient_norm)
  assert not np.isfinite(reported.parameter_norm)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_stops_training_and_names_the_step(data_dir, tmp_path):
  wild = small(data_dir, optimizer=OptimizerConfig(learning_rate=1e38, decay="none"))
  with pytest.raises(training.TrainingError, match=r"step \d: loss .* largest parameter norms: .*"):
    training.train(wild, tmp_path / "run")


@pytest.mark.slow
def test_one_program_a_shape_whatever_the_seed(data_dir, tmp_path, monkeypatch):
  traces = []
  original = objective.token_losses

  def counting(logits, target, length, *smoothing):
    traces.append((target.shape, not smoothing))
    return original(logits, target, length, *smoothing)

  monkeypatch.setattr(objective, "token_losses", counting)
  data = dataclasses.replace(small(data_dir).data, bucket_edges=(12, 22), batch_size=37)
  for seed in (0, 1):
    config = small(data_dir, data=data, steps=20, validate_every=20, seed=seed)
    training.train(config, tmp_path / str(seed))
  training_shapes = [shape for shape, validating in traces if not validating]
  assert sorted(training_shapes) == [(37, 12), (37, 22)]
  assert len(traces) == 4  # and two for validation


RUN = """
import sys, json
from attn import configs, training
from attn.training import TrainConfig
config = configs.from_dict(TrainConfig, json.loads(sys.argv[1]))
training.train(config, sys.argv[2])
"""


@contextlib.contextmanager
def running(config, folder, cache):
  """A process that trains; what it says on stderr is in `folder.err`."""
  environment = {
    **os.environ,
    "JAX_COMPILATION_CACHE_DIR": str(cache),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
  }
  command = [sys.executable, "-c", RUN, json.dumps(configs.to_dict(config)), str(folder)]
  with open(f"{folder}.err", "w") as errors:
    process = subprocess.Popen(command, env=environment, stderr=errors)
    try:
      yield process
    finally:
      process.kill()
      process.wait()


def assert_finishes(config, folder, cache):
  with running(config, folder, cache) as process:
    assert process.wait(timeout=600) == 0, pathlib.Path(f"{folder}.err").read_text()


def lines(folder):
  path = folder / "metrics.jsonl"
  rows = metrics.read_metrics(path) if path.exists() else []
  return [{k: v for k, v in row.items() if k != "symbols_per_second"} for row in rows]


def wait_for_step(folder, process, step):
  deadline = time.monotonic() + 600
  while not any(row["step"] >= step for row in lines(folder)):
    assert process.poll() is None, pathlib.Path(f"{folder}.err").read_text()
    assert time.monotonic() < deadline, f"no step {step} within ten minutes"
    time.sleep(0.01)


def wait_for_save(folder, process):
  """Until a checkpoint is being written, under the name that Orbax gives it until it is whole."""
  while not any("tmp" in path.name for path in (folder / "checkpoints").iterdir()):
    assert process.poll() is None, "it ended before it saved again"


def assert_same_run(folder, other):
  assert lines(folder) == lines(other)
  jax.tree.map(
    np.testing.assert_array_equal, training.load(folder).params, training.load(other).params
  )


@pytest.mark.slow
def test_a_run_killed_in_the_middle_ends_bit_identical(data_dir, tmp_path):
  """kill -9 at two moments, one of them in a save, SIGTERM and Ctrl-C at two more.

  Each time the same command again.
  """
  config = small(data_dir, steps=300, checkpoint_every=7)
  whole, killed, cache = tmp_path / "whole", tmp_path / "killed", tmp_path / "cache"
  assert_finishes(config, whole, cache)
  for step, number in (
    (40, signal.SIGKILL),
    (120, signal.SIGTERM),
    (180, "save"),
    (240, signal.SIGINT),
  ):
    with running(config, killed, cache) as process:
      wait_for_step(killed, process, step)
      if number == "save":
        wait_for_save(killed, process)
      process.send_signal(signal.SIGKILL if number == "save" else number)
      assert process.wait(timeout=600) != 0
    assert 0 < training.load(killed).step < 300
  assert_finishes(config, killed, cache)
  assert_same_run(killed, whole)


PARALLEL = """
import json, sys
import jax
config, folder, devices, coordinator, process, processes = sys.argv[1:]
if int(processes) > 1:
  jax.distributed.initialize(coordinator, int(processes), int(process))
assert jax.device_count() == int(devices)
from attn import configs, training
from attn.training import TrainConfig
trained = training.train(configs.from_dict(TrainConfig, json.loads(config)), folder)
assert trained.step == json.loads(config)["steps"]
"""


def train_in_parallel(config, folder, *, devices, processes=1):
  """Trains with `devices` virtual ones over all processes."""
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    coordinator = f"127.0.0.1:{free.getsockname()[1]}"
  environment = {
    **os.environ,
    "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices // processes}",
  }
  text = json.dumps(configs.to_dict(config))
  running = []
  try:
    for process in range(processes):
      words = [text, str(folder), str(devices), coordinator, str(process), str(processes)]
      command = [sys.executable, "-c", PARALLEL, *words]
      running.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    for process in running:
      _, told = process.communicate(timeout=600)
      assert process.returncode == 0, told
  finally:
    for process in running:
      process.kill()


def assert_nearly_same_run(folder, other):
  for one, two in zip(lines(folder), lines(other), strict=True):
    assert one.keys() == two.keys()
    for name in one.keys() & {"step", "loss", "dev_loss", "gradient_norm", "attention_entropy"}:
      assert one[name] == pytest.approx(two[name], rel=1e-5), (one["step"], name)


@pytest.mark.slow
def test_rates_are_halved_by_the_epochs_of_the_data(data_dir, tmp_path):
  optimizer = OptimizerConfig(
    name="sgd", learning_rate=0.5, decay="halving", halve_after=0.5, halve_every=0.5
  )
  config = small(data_dir, optimizer=optimizer, steps=20, log_every=1, validate_every=None)
  trained = training.train(config, tmp_path)
  assert trained.config.optimizer.epoch == 17  # 499 pairs in batches of 31
  rates = [row["learning_rate"] for row in lines(tmp_path)]
  np.testing.assert_allclose(rates, [0.5] * 9 + [0.25] * 8 + [0.125] * 3)


def for_devices(data_dir, **changes):
  config = small(data_dir, steps=12, validate_every=12, checkpoint_every=6, **changes)
  return configs.override(config, {"data.batch_size": 32})


@pytest.mark.slow
def test_eight_devices_have_the_losses_of_one_and_a_run_may_change_their_number(data_dir, tmp_path):
  config = for_devices(data_dir)
  one, eight, changed = tmp_path / "one", tmp_path / "eight", tmp_path / "changed"
  training.train(config, one)
  train_in_parallel(config, eight, devices=8)
  assert_nearly_same_run(eight, one)
  shutil.copytree(eight, changed)
  shutil.rmtree(changed / "checkpoints" / "12")
  training.train(config, changed)  # the second half on one device
  assert_nearly_same_run(changed, one)


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one_and_a_run_may_change_their_number(data_dir, tmp_path):
  """As whole runs of two processes have, in processes_test.py."""
  config = for_devices(data_dir)
  one, two = tmp_path / "one", tmp_path / "two"
  training.train(config, one)
  shutil.copytree(one, two)
  shutil.rmtree(two / "checkpoints" / "12")
  train_in_parallel(config, two, devices=4, processes=2)  # the second half
  train_in_parallel(config, two, devices=2, processes=2)  # finished: nothing to do
  assert_nearly_same_run(two, one)
  assert training.load(two).step == 12


def test_a_batch_that_the_devices_cannot_share_is_refused(monkeypatch):
  monkeypatch.setattr(jax, "devices", lambda: [None] * 3)
  with pytest.raises(configs.ConfigError, match="batch_size is 32, which 3 devices cannot share"):
    devices.Devices(32)


def fresh_state(seed=0):
  return state.create(MODEL, OptimizerConfig(warmup=2), 10, jax.random.key(seed))


def test_the_newest_checkpoint_is_that_of_the_largest_step_and_two_are_kept(tmp_path):
  """TRN-06: steps are numbers, not texts."""
  with checkpoints.Checkpoints(tmp_path) as kept:
    assert kept.latest is None
    for step in (900, 9000, 10_000):
      kept.save(step, fresh_state(), {"step": step})
  assert sorted(path.name for path in tmp_path.iterdir()) == ["10000", "9000"]
  with checkpoints.Checkpoints(tmp_path) as again:
    assert again.latest == 10_000
    assert again.restore(10_000, fresh_state())[1] == {"step": 10_000}


SAVE_LIMITED = """
import pathlib, resource, sys
import jax, jax.numpy as jnp
from attn.training import TrainingError, checkpoints
with checkpoints.Checkpoints(pathlib.Path(sys.argv[1])) as kept:
  kept.save(3, {"w": jnp.arange(5.0)}, {"rate": 0.5})
  resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
  try:
    kept.save(7, {"w": jax.random.normal(jax.random.key(0), (101, 1009))}, {"rate": 0.5})
    kept.save(9, {"w": jnp.arange(5.0)}, {"rate": 0.5})  # which waits for the one before
  except TrainingError as error:
    print(error)
  print(kept.latest)
"""


def test_a_disk_that_takes_no_more_is_named_once_and_costs_no_checkpoint(tmp_path):
  done = subprocess.run(
    [sys.executable, "-c", SAVE_LIMITED, str(tmp_path)], capture_output=True, text=True, check=True
  )
  assert done.stderr == ""  # neither Orbax nor the threads of its save say it again
  assert done.stdout == (
    f"the checkpoint of step 7 cannot be written into {tmp_path} (File too large): put that right"
    " and give the same command, which goes on from step 3\n3\n"
  )
  assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "7.orbax-checkpoint-tmp"]
  with checkpoints.Checkpoints(tmp_path) as again:
    restored, record = again.restore(3, {"w": jnp.zeros(5)})
    np.testing.assert_array_equal(restored["w"], np.arange(5.0))
    assert record == {"rate": 0.5}
    again.save(11, restored, record)
  assert sorted(path.name for path in tmp_path.iterdir()) == ["11", "3"]


SAVE_SHARDED = """
import pathlib, sys
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from attn.models import ModelConfig
from attn.training import OptimizerConfig, checkpoints, state
model = eval(sys.argv[1])
fresh = state.create(model, OptimizerConfig(warmup=2), 10, jax.random.key(0))
mesh = Mesh(jax.devices(), ("d",))
assert mesh.size == 7
def spread(leaf):
  axes = [axis for axis, size in enumerate(leaf.shape) if size % 7 == 0][:1]
  spec = ["d" if axis in axes else None for axis in range(leaf.ndim)]
  return jax.device_put(leaf, NamedSharding(mesh, PartitionSpec(*spec)))
with checkpoints.Checkpoints(pathlib.Path(sys.argv[2])) as kept:
  kept.save(3, jax.tree.map(spread, fresh), {"rate": 0.5})
"""


@pytest.mark.slow
def test_a_checkpoint_holds_what_was_saved_though_updates_go_on(tmp_path):
  """It is written while the memory of the state that was given becomes that of the next one."""
  model = dataclasses.replace(MODEL, units=257)
  at = state.create(model, OptimizerConfig(), 10, jax.random.key(0))
  with checkpoints.Checkpoints(tmp_path, keep=5) as kept:
    saved = []
    for step in range(3):
      saved.append(jax.tree.map(np.array, at))
      kept.save(step, at, {})
      at, _ = state.update(model, OptimizerConfig(), 10, at, one_batch(), jax.random.key(1))
    for step, expected in enumerate(saved):
      jax.tree.map(np.testing.assert_array_equal, kept.restore(step, at)[0], expected)


@pytest.mark.slow
def test_a_checkpoint_of_seven_devices_is_read_on_one(tmp_path):
  """TRN-07: with the types of a fresh state, and the next losses those of one never saved."""
  environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=7"}
  subprocess.run(
    [sys.executable, "-c", SAVE_SHARDED, repr(MODEL), str(tmp_path)], env=environment, check=True
  )
  with checkpoints.Checkpoints(tmp_path) as kept:
    restored, record = kept.restore(3, fresh_state(1))
  fresh = fresh_state()
  assert record == {"rate": 0.5}
  assert jax.tree.structure(restored) == jax.tree.structure(fresh)
  for leaf, expected in zip(jax.tree.leaves(restored), jax.tree.leaves(fresh), strict=True):
    assert (leaf.dtype, leaf.shape, leaf.sharding.num_devices) == (
      expected.dtype,
      expected.shape,
      1,
    )
  for _ in range(3):
    restored, one = state.update(
      MODEL, OptimizerConfig(warmup=2), 10, restored, one_batch(), jax.random.key(1)
    )
    fresh, other = state.update(
      MODEL, OptimizerConfig(warmup=2), 10, fresh, one_batch(), jax.random.key(1)
    )
    np.testing.assert_allclose(one.loss, other.loss, rtol=1e-6)


@pytest.fixture(scope="session")
def finished(data_dir, tmp_path_factory):
  """A finished run's folder and configuration."""
  folder = tmp_path_factory.mktemp("runs") / "finished"
  config = small(data_dir)
  return folder, config, training.train(config, folder)


def stop_before(patched, step):
  original = state.update

  def stopping(*arguments):
    if arguments[3].step == step:
      raise KeyboardInterrupt
    return original(*arguments)

  patched.setattr(state, "update", stopping)


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_with_its_step_and_rate(finished, tmp_path, monkeypatch):
  """TRN-05: stopped between two checkpoints, in the middle of the schedule."""
  whole, config, _ = finished
  with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
    stop_before(patched, 33)
    training.train(config, tmp_path / "stopped")
  assert training.load(tmp_path / "stopped").step == 28
  training.train(config, tmp_path / "stopped")
  assert_same_run(tmp_path / "stopped", whole)


def test_a_finished_run_returns_at_once_and_comes_back_from_its_folder(finished):
  folder, config, trained = finished
  before = (folder / "metrics.jsonl").read_bytes()
  again = training.train(config, folder)
  assert (folder / "metrics.jsonl").read_bytes() == before
  loaded = training.load(folder)
  for other in (again, loaded):
    assert other.step == 60
    assert (other.source, other.target) == (trained.source, trained.target)
    jax.tree.map(np.testing.assert_array_equal, trained.params, other.params)


def mean_of(folder, trained, steps):
  """The mean of the parameters that the checkpoints of these steps hold."""
  config = trained.config
  like = state.create(config.model, config.optimizer, config.steps, jax.random.key(0))
  with checkpoints.Checkpoints(folder / "checkpoints") as kept:
    held = [kept.restore(step, like)[0].params for step in steps]
  return jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *held)


def test_the_mean_of_the_last_checkpoints(finished):
  folder, _, trained = finished
  mean = training.load(folder, average=2)
  assert mean.step == 60 and mean.source == trained.source
  close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)
  jax.tree.map(close, mean.params, mean_of(folder, trained, (56, 60)))
  told = f"^{folder}/checkpoints has 2 checkpoints to average, not 3: keep_last or keep_best says"
  with pytest.raises(configs.ConfigError, match=told):
    training.load(folder, average=3)


def test_metrics_hold_a_line_every_few_steps_and_the_loss_falls(finished):
  rows = lines(finished[0])
  assert [row["step"] for row in rows if "loss" in row] == list(range(4, 61, 4))
  assert [row["step"] for row in rows if "dev_loss" in row] == [30, 60]
  losses = [row["loss"] for row in rows if "loss" in row]
  assert losses[-1] < losses[0] - 0.05


def test_metrics_say_how_training_goes(finished):
  rows = lines(finished[0])
  norms = ("gradient_norm", "update_norm", "parameter_norm")
  for row in rows:
    if "loss" in row:
      assert all(row[name] > 0 for name in norms)
      assert row["learning_rate"] == pytest.approx(
        0.01 * min((row["step"] - 1) / 3, (1 + np.cos(np.pi * (row["step"] - 4) / 57)) / 2),
        rel=1e-5,
      )
      assert 0 < row["padding_share"] < 1
    else:
      assert row["dev_perplexity"] == pytest.approx(np.exp(row["dev_loss"]))
      assert 0 < row["attention_entropy"] < np.log(22) and 1 / 22 < row["attention_max"] < 1


def by_dev(data_dir, **changes):
  """A run whose rate is so high that the dev loss goes up and down."""
  optimizer = OptimizerConfig(learning_rate=1.0, decay="none")
  changes = {"steps": 600, "validate_every": 2, "keep_best": 2, "patience": 4, **changes}
  return small(data_dir, optimizer=optimizer, **changes)


@pytest.mark.slow
def test_a_run_without_a_lower_dev_loss_ends_and_its_best_model_is_kept(data_dir, tmp_path):
  config = by_dev(data_dir)
  folder, stopped = tmp_path / "run", tmp_path / "stopped"
  trained = training.train(config, folder)
  losses = {row["step"]: row["dev_loss"] for row in lines(folder) if "dev_loss" in row}
  steps, last = sorted(losses, key=losses.get), max(losses)
  assert last < config.steps and steps[0] == last - 8  # four validations
  assert trained.step == training.load(folder).step == steps[0]
  loss = loop.validation(trained.config, trained.params, dev_store(trained))["dev_loss"]
  assert loss == losses[steps[0]]
  kept = {int(path.name) for path in (folder / "checkpoints").iterdir()}
  assert kept >= {*steps[:2], last} and len(kept) <= 4
  close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)
  mean = training.load(folder, average=2).params
  jax.tree.map(close, mean, mean_of(folder, trained, steps[:2]))
  before = sorted(folder.rglob("*"))
  assert training.train(config, folder).step == steps[0]
  assert sorted(folder.rglob("*")) == before

  with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
    stop_before(patched, last - 1)
    training.train(config, stopped)
  training.train(config, stopped)
  assert_same_run(stopped, folder)


def dev_store(trained):
  corpus = catalog.load("reverse", "dev", trained.config.data.data_dir)
  return pipeline.TokenStore.encode(corpus, trained.source, trained.target)


def scalars(folder):
  """What TensorBoard would read: (step, name, value), and the steps at which a run began again."""
  from tensorboardX.proto.event_pb2 import Event

  values, purged = [], []
  for path in sorted(folder.iterdir()):
    data = path.read_bytes()
    while data:  # records: length, its checksum, the event, its checksum
      size = int.from_bytes(data[:8], "little")
      event, data = Event.FromString(data[12 : 12 + size]), data[16 + size :]
      values += [(event.step, one.tag, one.simple_value) for one in event.summary.value]
      purged += [event.step] if event.HasField("session_log") else []
  return values, purged


@pytest.mark.slow
def test_lines_go_to_tensorboard_as_well(data_dir, tmp_path):
  pytest.importorskip("tensorboardX", reason="needs the extra tensorboard")
  config = small(data_dir, steps=12, validate_every=6)
  with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
    stop_before(patched, 10)
    training.train(config, tmp_path, tensorboard=True)
  training.train(config, tmp_path, tensorboard=True)
  values, purged = scalars(tmp_path / "tensorboard")
  assert 8 in purged  # the run began again from the checkpoint of step 7
  final = {(step, name): value for step, name, value in values}
  for row in metrics.read_metrics(tmp_path / "metrics.jsonl"):
    for name in row.keys() - {"step", "symbols_per_second"}:
      assert final[row["step"], name] == pytest.approx(row[name], rel=1e-6)


@pytest.mark.parametrize("package, extra", [("tensorboardX", "tensorboard"), ("wandb", "wandb")])
def test_without_its_writer_a_board_is_refused_in_one_line(
  data_dir, tmp_path, monkeypatch, package, extra
):
  monkeypatch.setitem(sys.modules, package, None)
  with pytest.raises(configs.ConfigError, match=f"pip install 'attn.{extra}.'"):
    training.train(small(data_dir), tmp_path, **{extra: True})


def test_a_folder_of_another_configuration_is_refused_naming_what_differs(finished):
  folder, config, _ = finished
  with pytest.raises(configs.ConfigError, match=r"optimizer\.learning_rate.*0\.01.*0\.02"):
    training.train(configs.override(config, {"optimizer.learning_rate": 0.02}), folder)


def test_a_vocabulary_too_small_for_the_data_is_refused(data_dir, tmp_path):
  config = configs.override(small(data_dir), {"model.source_vocabulary": 9})
  with pytest.raises(configs.ConfigError, match="model.source_vocabulary is 9.*24 symbols"):
    training.train(config, tmp_path)
  assert not (tmp_path / "config.json").exists()  # which would refuse the corrected command


def test_a_folder_in_which_another_process_trains_is_refused(data_dir, tmp_path):
  hold = (
    "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX);"
    " print(flush=True); sys.stdin.read()"
  )
  command = [sys.executable, "-c", hold, str(tmp_path / ".lock")]
  with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
    assert other.stdout.readline() == b"\n"
    with pytest.raises(configs.ConfigError, match="is in use by another process.*--workdir$"):
      training.train(small(data_dir), tmp_path)


def test_a_finished_run_needs_no_data(finished, tmp_path):
  folder, config, trained = finished
  moved = tmp_path / "data_dir"
  copy = shutil.copytree(folder, tmp_path / "run")
  config = configs.override(config, {"data.data_dir": str(moved)})
  (copy / "config.json").write_text(json.dumps(configs.to_dict(config)))
  assert training.train(config, copy).source == trained.source
  assert not moved.exists()


def unfinished(finished, folder):
  """A copy of the finished run, gone back to the checkpoint before its last."""
  shutil.copytree(finished[0], folder)
  shutil.rmtree(folder / "checkpoints" / "60")
  return folder


def test_a_run_goes_on_only_with_the_symbols_that_it_began_with(finished, tmp_path):
  folder = unfinished(finished, tmp_path / "run")
  path = folder / "target.vocabulary.json"
  path.write_text(path.read_text().replace('"a"', '"A"'))
  before = path.read_bytes()
  with pytest.raises(configs.ConfigError, match="trained on another target vocabulary"):
    training.train(finished[1], folder)
  assert path.read_bytes() == before


@pytest.mark.parametrize("change", [('"a"', '"A"'), ('"a",', "")])
def test_a_vocabulary_of_another_run_is_refused_whatever_its_size(finished, tmp_path, change):
  folder = shutil.copytree(finished[0], tmp_path / "run")
  path = folder / "source.vocabulary.json"
  path.write_text(path.read_text().replace(*change))
  with pytest.raises(configs.ConfigError, match=f"^{path} is of another run than the checkpoints"):
    training.load(folder)
  cut("checkpoints/60/record/metadata")(folder)  # that of 56 tells
  with pytest.raises(configs.ConfigError, match=f"^{path} is of another run than the checkpoints"):
    training.load(folder)


@pytest.mark.parametrize(
  ("name", "error", "message"),
  [
    ("source.vocabulary.json", configs.ConfigError, "not a vocabulary .*another --workdir"),
    ("config.json", configs.ConfigError, "is damaged.* or give another --workdir"),
  ],
)
def test_a_file_cut_short_is_one_line_that_says_what_to_do(
  finished, tmp_path, name, error, message
):
  folder = shutil.copytree(finished[0], tmp_path / "run")
  os.truncate(folder / name, (folder / name).stat().st_size // 2)
  for use in (training.load, lambda folder: training.train(finished[1], folder)):
    with pytest.raises(error, match=message) as caught:
      use(folder)
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def empty(folder):
  shutil.rmtree(folder / "checkpoints/60")
  (folder / "checkpoints/60").mkdir()


def cut(name):
  return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size // 2)


@pytest.mark.parametrize(
  "damage",
  [
    cut("checkpoints/60/state/manifest.ocdbt"),
    *(
      pytest.param(d, marks=pytest.mark.slow)
      for d in (cut("checkpoints/60/record/metadata"), empty)
    ),
  ],
)
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(
  finished, tmp_path, capsys, damage
):
  folder = shutil.copytree(finished[0], tmp_path / "run")
  damage(folder)
  assert training.load(folder).step == 56
  told = f"the checkpoint of step 60 in {folder}/checkpoints cannot be read ("
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith(told) and line.endswith("): taking that of step 56")
  training.train(finished[1], folder)
  (line,) = [line for line in capsys.readouterr().err.splitlines() if "step 60" in line]
  assert line.startswith(told)
  assert line.endswith(f"): moved to {folder}/damaged/60, going on from step 56")
  assert (folder / "damaged/60").is_dir()
  assert_same_run(folder, finished[0])


def test_without_any_checkpoint_that_can_be_read_a_run_stops(finished, tmp_path):
  folder = shutil.copytree(finished[0], tmp_path / "run")
  for step in (56, 60):
    cut(f"checkpoints/{step}/record/metadata")(folder)
  for use in (training.load, lambda folder: training.train(finished[1], folder)):
    with pytest.raises(training.TrainingError, match="step 60 .*, nor can another: give another"):
      use(folder)


def test_a_run_of_the_code_before_goes_on(finished, tmp_path):
  """With the fields, and the record of a checkpoint, that there were in its day."""
  folder = unfinished(finished, tmp_path / "run")
  config = json.loads((folder / "config.json").read_text())
  for name in ("objective", "keep_last", "keep_best", "patience"):
    del config[name]
  for name in ("halve_after", "halve_every", "epoch", "clip_embeddings", "average"):
    del config["optimizer"][name]
  (folder / "config.json").write_text(json.dumps(config))
  path = folder / "checkpoints/56/record/metadata"
  record = json.loads(path.read_text())
  window = {k: record["window"][k] for k in ("loss", "symbols", "steps", "gradient_norm")}
  path.write_text(json.dumps({"data": record["data"], "window": window}))
  training.train(finished[1], folder)
  assert_same_run(folder, finished[0])


def test_without_its_newest_checkpoint_a_run_goes_on_from_the_one_before(finished, tmp_path):
  folder = unfinished(finished, tmp_path / "run")
  training.train(finished[1], folder)
  assert_same_run(folder, finished[0])


@pytest.mark.slow
def test_pairs_too_long_for_training_are_counted_on_stderr(data_dir, tmp_path, capsys):
  config = small(data_dir, steps=1, validate_every=None)
  config = configs.override(config, {"data.bucket_edges": (13,)})
  training.train(config, tmp_path)
  (line,) = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
  corpus = catalog.load("reverse", "train", data_dir, 499)
  long = sum(len(text.split()) + 1 > 13 for text in corpus.sources)
  assert 0 < long < 499
  assert line == f"train: {long} of 499 pairs are longer than 13 symbols, EOS counted, and left out"


def test_a_folder_without_a_model_is_refused(tmp_path):
  with pytest.raises(FileNotFoundError, match="holds no trained model"):
    training.load(tmp_path)


def test_evaluation_scores_each_source_once_and_writes_what_it_returns(finished):
  folder, config, _ = finished
  scores = training.evaluate(folder, "dev")
  record = json.loads((folder / "evaluation" / "dev.json").read_text())
  assert {k: record[k] for k in scores} == scores
  rows = (folder / "evaluation" / "dev.tsv").read_text().split("\n")[:-1]
  corpus = catalog.load("reverse", "dev", config.data.data_dir)
  assert scores["sources"] == len(rows) == len(set(corpus.sources))
  wrong = [line.split("\t")[1] not in line.split("\t")[2:] for line in rows]
  assert scores["word_error_rate"] == np.mean(wrong)
  assert 0 < scores["alignment_error_rate"] <= 1
  assert not {"bleu", "chrf"} & record.keys()  # Symbols are no text.


def test_text_is_scored_by_bleu_and_chrf_with_their_signatures(finished, monkeypatch):
  folder, _, trained = finished
  trained = trained._replace(target=dataclasses.replace(trained.target, level="word"))
  monkeypatch.setattr(scoring, "read", lambda folder: (trained, True))
  scores = training.evaluate(folder, "dev")
  rows = [line.split("\t") for line in (folder / "evaluation/dev.tsv").read_text().splitlines()]
  outputs, references = [row[1] for row in rows], [row[2:] for row in rows]
  signatures = json.loads((folder / "evaluation" / "dev.json").read_text())["signatures"]
  for name in ("bleu", "chrf"):
    score = getattr(corpus_scores, name)(outputs, references)
    assert (scores[name], signatures[name]) == score and score.value > 0


def test_possible_links_may_be_found_and_gold_is_of_the_data_sets_symbols(finished, monkeypatch):
  folder, config, trained = finished
  corpus = catalog.load("reverse", "dev", config.data.data_dir)
  nothing = tuple(np.zeros((0, 2), np.int32) for _ in corpus.sources)
  pairs = tuple(
    np.indices((len(source.split()), len(target.split()))).reshape(2, -1).T
    for source, target in zip(corpus.sources, corpus.targets, strict=True)
  )
  for possible, rate in ((None, 1.0), (pairs, 0.0)):
    gold = dataclasses.replace(corpus, alignments=nothing, possible=possible)
    monkeypatch.setattr(scoring.corpora, "load", lambda data, split, gold=gold: gold)
    assert training.evaluate(folder, "dev")["alignment_error_rate"] == rate
  # Words between blanks are those symbols, whatever they are made of; characters are others.
  for level, scored in (("word", True), ("character", False)):
    other = trained._replace(source=dataclasses.replace(trained.source, level=level))
    monkeypatch.setattr(scoring, "read", lambda folder, other=other: (other, True))
    assert ("alignment_error_rate" in training.evaluate(folder, "dev")) == scored


def test_positions_that_a_location_score_cannot_reach_are_counted(finished, monkeypatch):
  folder, _, trained = finished
  model = dataclasses.replace(
    trained.config.model, score="location", location_length=7, source_eos=True
  )
  config = dataclasses.replace(trained.config, model=model)
  monkeypatch.setattr(scoring, "read", lambda folder: (trained._replace(config=config), True))
  monkeypatch.setattr(scoring, "decode", lambda *_, label: scoring.Outputs(
    sources=["a"] * 3, outputs=["a"] * 3, references=[["a"]] * 3, lengths=np.array([5, 7, 11]),
    wrong=np.zeros(3), edits=np.zeros(3, int), reference_lengths=np.ones(3, int), unfinished=0,
  ))  # fmt: skip
  corpus = catalog.Corpus(("a",), ("a",))
  monkeypatch.setattr(scoring.corpora, "load", lambda data, split: corpus)
  assert training.evaluate(folder, "dev")["overflow"] == 0 + 1 + 5


def test_links_go_to_real_symbols_only_whatever_eos_and_padding_draw(finished):
  """DMP-01: rows of different lengths in one batch, and a source without symbols."""
  _, _, trained = finished
  params = jax.tree.map(lambda leaf: 4 * leaf, trained.params)
  trained = trained._replace(params=params)
  letters = trained.source.symbols
  sources = ("", letters[0], " ".join(letters[:3]), " ".join(letters[:7]))
  corpus = catalog.Corpus(sources, (letters[1],) * 4)
  store = pipeline.TokenStore.encode(corpus, trained.source, trained.target)
  for at, weights in enumerate(scoring.forced_weights(trained, corpus)):
    count = len(trained.source.split(sources[at]))
    batch = store.batch(np.array([at], np.int32), 11)
    model = bind(trained.config.model, trained.params)
    rows = batch["source"], batch["source_length"], batch["target"]
    whole = np.asarray(model.teacher_forced(*rows).weights)[0]
    assert weights.shape == (1, count)
    np.testing.assert_allclose(weights, whole[:1, :count], atol=1e-6)  # Not renormalised.
    assert not whole[:, count + 1 :].any()
    links = scoring.forced_links(trained, corpus)[at]
    assert links == ({(int(weights[0].argmax()), 0)} if count else set())


def test_metrics_beyond_the_checkpoint_and_a_torn_last_line_are_dropped(tmp_path):
  path = tmp_path / "metrics.jsonl"
  path.write_text('{"step": 4, "loss": 1.5}\n{"step": 8, "loss": 1.25}\n{"step": 12, "lo')
  file = metrics.Metrics(tmp_path, 4)
  file.write(8, loss=1.0)
  file.close()
  assert metrics.read_metrics(path) == [{"step": 4, "loss": 1.5}, {"step": 8, "loss": 1.0}]


@pytest.mark.parametrize("line", ['{"step": 8, "lo', "[8]", '{"loss": 1.25}', "\x00"])
def test_a_damaged_line_of_metrics_is_named_and_nothing_is_lost(tmp_path, line):
  path = tmp_path / "metrics.jsonl"
  path.write_text(f'{{"step": 4}}\n{line}\n{{"step": 12}}\n')
  before = path.read_bytes()
  with pytest.raises(training.TrainingError, match=r"metrics.jsonl: line 2 is no JSON object"):
    metrics.Metrics(tmp_path, 12)
  assert path.read_bytes() == before


def test_metrics_survive_a_kill_while_they_are_written_anew(tmp_path, monkeypatch):
  path = tmp_path / "metrics.jsonl"
  path.write_text('{"step": 4}\n{"step": 8}\n')

  def fail(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr(os, "replace", fail)
  with pytest.raises(OSError):
    metrics.Metrics(tmp_path, 4)
  assert path.read_text() == '{"step": 4}\n{"step": 8}\n'


def test_the_same_signal_twice_stops_at_once_and_the_other_one_does_not():
  with pytest.raises(KeyboardInterrupt):
    with Interrupts() as stop:
      signal.raise_signal(signal.SIGINT)
      signal.raise_signal(signal.SIGTERM)
      assert stop.asked == signal.SIGINT
      signal.raise_signal(signal.SIGTERM)
      pytest.fail("the second SIGTERM must stop")


def test_a_signal_is_kept_that_comes_while_processes_ask_each_other(monkeypatch):
  run, stop = object.__new__(loop._Run), Interrupts()
  answers = iter((None, signal.SIGTERM))

  def agree(number):
    assert number in (None, signal.SIGTERM)
    stop._ask(signal.SIGTERM, None)  # while it waits for the others
    return next(answers)

  monkeypatch.setattr(devices, "agree", agree)
  assert not run._asked(stop)  # No process knew of it then: all go on.
  assert stop.asked == signal.SIGTERM
  stop._seen.clear()
  assert run._asked(stop)


def test_a_hang_up_stops_once_unless_it_is_ignored():
  former = signal.getsignal(signal.SIGHUP)
  try:
    signal.signal(signal.SIGHUP, lambda *_: None)
    with Interrupts() as stop:
      signal.raise_signal(signal.SIGHUP)
      signal.raise_signal(signal.SIGHUP)
      assert stop.asked == signal.SIGHUP
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interrupts() as stop:
      signal.raise_signal(signal.SIGHUP)
    assert stop.asked is None
  finally:
    signal.signal(signal.SIGHUP, former)
