"""The training loop, one line of events from data to the last checkpoint."""

import contextlib
import dataclasses
import math
import os
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from attn import configs, workdirs
from attn.data import corpora, pipeline
from attn.training import devices as spread
from attn.training import objective, optimizers, state, workdir
from attn.training.boards import Board, TensorBoard, WandB
from attn.training.checkpoints import Checkpoints
from attn.training.config import TrainConfig
from attn.training.devices import Devices
from attn.training.errors import TrainingError
from attn.training.interrupts import Interrupts
from attn.training.metrics import Metrics
from attn.training.progress import Progress
from attn.training.state import StepMetrics, TrainState
from attn.training.workdir import Trained


@dataclasses.dataclass
class _Window:
  """Sums since the last line of metrics; part of a checkpoint, so that lines survive a kill."""

  loss: float = 0.0
  symbols: int = 0
  steps: int = 0
  gradient_norm: float = 0.0
  update_norm: float = 0.0
  positions: int = 0
  padding: int = 0

  def add(self, metrics: StepMetrics) -> None:
    self.loss += float(metrics.loss) * int(metrics.symbols)
    self.symbols += int(metrics.symbols)
    self.steps += 1
    self.gradient_norm += float(metrics.gradient_norm)
    self.update_norm += float(metrics.update_norm)

  def count(self, batch: pipeline.Batch) -> None:
    """Counts positions of both sides, and those of them that are padding."""
    for side in ("source", "target"):
      self.positions += batch[side].size
      self.padding += batch[side].size - int(batch[f"{side}_length"].sum())


def train(
  config: TrainConfig,
  folder: str | os.PathLike[str],
  *,
  label: str = "train",
  tensorboard: bool = False,
  wandb: bool = False,
) -> Trained:
  """Trains what `config` describes in `folder`, or goes on where a killed run left off.

  The folder holds `config.json`, both vocabularies, `checkpoints/` and `metrics.jsonl`, whose
  lines have `step` and means over the updates since the line before: `loss` a symbol (nats),
  `gradient_norm`, `update_norm`, `padding_share`, `symbols_per_second`, with `parameter_norm` and
  `learning_rate` of the last one; or `step`, `dev_loss`, `dev_perplexity` and, with attention, the
  mean `attention_entropy` (nats) and `attention_max` of dev. A finished run returns at once; one
  that fails before its first update leaves the folder to whoever comes next. One process at a time
  may train in it, or several as one run, if jax.distributed has made them one. Ctrl-C and SIGTERM
  end it after the update in hand with a checkpoint, so that nothing is lost.

  Rows of each batch are shared by all devices, which changes results by rounding alone.

  Args:
    config: the run.
    folder: where it lives.
    label: what its progress is called.
    tensorboard: whether the lines also go to `tensorboard/`, for TensorBoard.
    wandb: whether they also go to `wandb/`, for Weights & Biases.

  Raises:
    ConfigError: the folder belongs to another configuration, other data or a process at work, or
      the devices cannot share a batch.
    DataError: the data cannot be had.
    TrainingError: the loss, a gradient or a parameter is not finite, or no checkpoint can be read.
  """
  folder = pathlib.Path(folder)
  begun = workdirs.refuse_another(folder, config) and (folder / "checkpoints").exists()
  spread.meet("looked")  # before one of them changes the folder
  if begun and workdir.may_have_ended(folder, config.steps):
    trained, ended = workdir.read(folder, quiet=True)
    if ended:
      return trained
  boards: list[type[Board]] = [*[TensorBoard] * tensorboard, *[WandB] * wandb]
  with workdirs.held(folder) if jax.process_index() == 0 else contextlib.nullcontext():
    return _train(config, folder, label, boards)


def _train(
  config: TrainConfig, folder: pathlib.Path, label: str, boards: Sequence[type[Board]]
) -> Trained:
  asked, data = config, config.data
  devices = Devices(data.batch_size, data.batch_tokens)
  train_corpus, dev_corpus = corpora.load(data, "train"), corpora.load(data, "dev")
  source, target = corpora.vocabularies(data, train_corpus)
  store = pipeline.TokenStore.encode(train_corpus, source, target)
  dev = pipeline.TokenStore.encode(dev_corpus, source, target)
  cut: dict[str, Any] = {
    "batch_size": data.batch_size,
    "edges": data.bucket_edges,
    "seed": config.seed,
    "tokens": data.batch_tokens,
  }
  share = {"shard": jax.process_index(), "shards": jax.process_count()}
  batches = pipeline.training_batches(store, **cut, **share, workers=data.workers)
  config = workdir.resolve(config, source, target)
  if config.optimizer.decay == "halving" and config.optimizer.epoch is None:
    config = configs.override(config, {"optimizer.epoch": batches.epoch})
  first = jax.process_index() == 0
  if first:
    _tell(label, store, cut)
  run = _Run(config, folder, devices, workdir.digests(source, target))
  if first:
    workdirs.claim(folder, asked)  # only now: what has failed by here leaves the folder free
  spread.meet("claimed")
  with Checkpoints(folder / "checkpoints", config.keep_last) as checkpoints:
    if checkpoints.latest is not None:
      workdir.refuse_other_symbols(folder, source, target)
    elif first:
      workdir.keep_vocabularies(folder, source, target)
    run.restore(checkpoints)
    run.go(batches, dev, label, boards)
  if config.keep_best:
    return workdir.load(folder)
  return Trained(state.usable(run.state), config, source, target, run.step)


def _tell(label: str, store: pipeline.TokenStore, cut: dict[str, Any]) -> None:
  """Says what becomes of the data: how much of a batch is padding, and what is left out."""
  padding = pipeline.padding_share(store, **cut)
  print(f"{label}: {padding:.1%} of the positions in batches are padding", file=sys.stderr)
  if dropped := pipeline.dropped_pairs(store, cut["edges"]):
    print(
      f"{label}: {dropped:,} of {len(store):,} pairs are longer than {cut['edges'][-1]} symbols,"
      " EOS counted, and left out",
      file=sys.stderr,
    )


class _Run:
  """The moving parts of one run between two checkpoints."""

  def __init__(
    self, config: TrainConfig, folder: pathlib.Path, devices: Devices, vocabularies: dict[str, str]
  ):
    self.config, self.folder, self.devices = config, folder, devices
    self.vocabularies = vocabularies
    self.rng = jax.random.key(config.seed)
    make = state.create
    if devices.everywhere is not None:
      self.rng = jax.jit(lambda: jax.random.key(config.seed), out_shardings=devices.everywhere)()
      make = jax.jit(make, static_argnums=(0, 1, 2), out_shardings=devices.everywhere)
    self.state: TrainState = make(config.model, config.optimizer, config.steps, self.rng)
    self.rate = optimizers.schedule(config.optimizer, config.steps)
    self.step, self.window = 0, _Window()
    self.position: Any = None
    self.pending: StepMetrics | None = None
    self.lowest, self.since = math.inf, 0  # dev loss, and validations since it was reached
    self.best: list[tuple[float, int]] = []  # dev losses and steps of the checkpoints to keep

  def restore(self, checkpoints: Checkpoints) -> None:
    """Goes back to the newest checkpoint that can be read; puts aside those that cannot."""
    self.checkpoints = checkpoints
    found, faults = checkpoints.newest(
      self.state, reversed(checkpoints.steps), self.devices.everywhere
    )
    if found is None:
      return
    for fault, step in zip(faults, reversed(checkpoints.steps), strict=False):
      aside = checkpoints.set_aside(step)
      if jax.process_index() == 0:
        print(f"{fault}: moved to {aside}, going on from step {found.step}", file=sys.stderr)
    self.step, self.state, record = found
    self.position = record["data"]
    self.window = _Window(**record["window"])
    self.lowest, self.since = record.get("lowest") or math.inf, record.get("since", 0)
    kept = checkpoints.steps
    self.best = [(loss, step) for loss, step in record.get("best", []) if step in kept]
    checkpoints.best = [step for _, step in self.best]

  def go(
    self, batches: Any, dev: pipeline.TokenStore, label: str, boards: Sequence[type[Board]]
  ) -> None:
    """Trains from here to the end, or to a signal."""
    if self.position is not None:
      batches.set_state(self.position)
    first = jax.process_index() == 0
    with (
      Metrics(self.folder, self.step, boards) if first else _Nothing() as metrics,
      Interrupts() as stop,
      Progress(label, self.config.steps, self.step) if first else _Nothing() as progress,
    ):
      self._loop(batches, dev, metrics, progress, stop)

  def _loop(
    self, batches: Any, dev: pipeline.TokenStore, metrics: Any, progress: Any, stop: Interrupts
  ) -> None:
    config, clock, stopping = self.config, time.monotonic(), False
    while self.step < config.steps and not stopping:
      batch = next(batches)
      self.state, reported = self._update(batch)
      self._settle()
      self.window.count(batch)
      self.step, self.pending = self.step + 1, reported
      last = self.step == config.steps
      if last or self.step % config.log_every == 0:
        self._settle()
        seen, now = self.window.symbols, time.monotonic()
        loss = self._write_window(metrics, reported, seen / max(now - clock, 1e-9))
        progress.update(self.step, f"loss {loss:.4f}")
        clock = now
      better = ended = False
      if config.validate_every and (last or self.step % config.validate_every == 0):
        better = self._validate(metrics, dev)
        ended = config.patience is not None and self.since >= config.patience
        clock = time.monotonic()
      stopping = self._asked(stop) or ended
      if last or stopping or better or self.step % config.checkpoint_every == 0:
        self._settle()
        self._save(batches, ended)

  def _update(self, batch: pipeline.Batch) -> tuple[TrainState, StepMetrics]:
    config = self.config
    updated: tuple[TrainState, StepMetrics] = state.update(
      config.model,
      config.optimizer,
      config.steps,
      self.state,
      self.devices.spread(batch),
      self.rng,
      config.objective,
      self.devices.everywhere,
    )
    return updated

  def _asked(self, stop: Interrupts) -> bool:
    """Whether to stop; of several processes all or none do, and they ask each other seldom."""
    if jax.process_count() == 1 or self.step % self.config.log_every == 0:
      agreed = spread.agree(stop.asked)
      stop.asked = stop.asked or agreed  # A signal that came meanwhile waits for the next time.
      return agreed is not None
    return False

  def _settle(self) -> None:
    """Looks at the last update's report: one step late, so that the device need not wait."""
    if self.pending is not None:
      self._check(self.pending)
      self.window.add(self.pending)
      self.pending = None

  def _write_window(self, metrics: Any, reported: StepMetrics, rate: float) -> float:
    window, self.window = self.window, _Window()
    loss = window.loss / max(window.symbols, 1)
    metrics.write(
      self.step,
      loss=loss,
      gradient_norm=window.gradient_norm / window.steps,
      update_norm=window.update_norm / window.steps,
      parameter_norm=float(reported.parameter_norm),
      learning_rate=float(self.rate(self.step - 1)),
      padding_share=round(window.padding / max(window.positions, 1), 4),
      symbols_per_second=round(rate, 1),
    )
    return loss

  def _validate(self, metrics: Any, dev: pipeline.TokenStore) -> bool:
    """Writes how the model does on dev; True if it is among the best so far."""
    values = validation(self.config, state.usable(self.state), dev, self.devices)
    loss = values["dev_loss"]
    metrics.write(self.step, **values)
    self.since = 0 if loss < self.lowest else self.since + 1
    self.lowest = min(loss, self.lowest)
    if not self.config.keep_best:
      return False
    self.best = sorted([*self.best, (loss, self.step)])[: self.config.keep_best]
    self.checkpoints.best = [step for _, step in self.best]
    return (loss, self.step) in self.best

  def _check(self, reported: StepMetrics) -> None:
    if all(map(np.isfinite, (reported.loss, reported.gradient_norm, reported.parameter_norm))):
      return
    latest = self.checkpoints.latest
    kept = "no checkpoint yet" if latest is None else f"last good checkpoint: step {latest}"
    raise TrainingError(
      f"step {self.step}: loss {float(reported.loss):.4g}, gradient norm"
      f" {float(reported.gradient_norm):.4g}, norm of the updated parameters"
      f" {float(reported.parameter_norm):.4g}; {kept}; largest parameter norms:"
      f" {objective.largest_norms(self.state.params)}; try a lower optimizer.learning_rate or"
      " optimizer.clip_norm in a new workdir"
    )

  def _save(self, batches: Any, ended: bool) -> None:
    record = {
      "data": batches.get_state(),
      "window": dataclasses.asdict(self.window),
      "lowest": self.lowest if math.isfinite(self.lowest) else None,
      "since": self.since,
      "best": self.best,
      "ended": ended,
      "vocabularies": self.vocabularies,
    }
    self.checkpoints.save(self.step, self.state, record)


class _Nothing:
  """What processes other than the first have for metrics and progress."""

  def __enter__(self) -> "_Nothing":
    return self

  def __exit__(self, *_: object) -> None:
    pass

  def write(self, step: int, **values: float) -> None:
    pass

  def update(self, done: int, note: str = "") -> None:
    pass


def validation(
  config: TrainConfig, params: Any, store: pipeline.TokenStore, devices: Devices | None = None
) -> dict[str, float]:
  """Means a real target symbol over a whole split.

  Returns:
    `dev_loss` in nats, `dev_perplexity` and, with attention, `attention_entropy` in nats and
    `attention_max`, the largest weight.
  """
  data = config.data
  devices = devices or Devices(data.batch_size, data.batch_tokens)
  sums: dict[str, float] = {}
  for batch in pipeline.evaluation_batches(
    store, batch_size=data.batch_size, edges=data.bucket_edges
  ):
    found = state.validation_sums(config.model, params, devices.share(batch))
    for name, value in found.items():
      sums[name] = sums.get(name, 0.0) + float(value)
  symbols = max(sums.pop("symbols", 0.0), 1.0)
  means = {name: value / symbols for name, value in sums.items()}
  loss = means.pop("loss", 0.0)
  return {"dev_loss": loss, "dev_perplexity": math.exp(min(loss, 700.0)), **means}
