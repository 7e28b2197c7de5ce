"""The training loop, one line of events from data to the last checkpoint."""

import dataclasses
import os
import pathlib
import sys
import time
from typing import Any

import jax
import numpy as np

from attn import workdirs
from attn.data import corpora, pipeline
from attn.training import objective, state, workdir
from attn.training.checkpoints import Checkpoints
from attn.training.config import TrainConfig
from attn.training.errors import TrainingError
from attn.training.interrupts import Interrupts
from attn.training.metrics import MetricsFile
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

  def add(self, metrics: StepMetrics) -> None:
    self.loss += float(metrics.loss) * int(metrics.symbols)
    self.symbols += int(metrics.symbols)
    self.steps += 1
    self.gradient_norm += float(metrics.gradient_norm)


def train(config: TrainConfig, folder: str | os.PathLike[str], *, label: str = "train") -> Trained:
  """Trains what `config` describes in `folder`, or goes on where a killed run left off.

  The folder holds `config.json`, both vocabularies, `checkpoints/` and `metrics.jsonl`, whose
  lines have `step`, mean `loss` a symbol (nats), mean `gradient_norm` and `symbols_per_second`,
  or `step` and `dev_loss`. A finished run returns at once; one that fails before its first update
  leaves the folder to whoever comes next. One process at a time may train in it. Ctrl-C and SIGTERM
  end it after the update in hand with a checkpoint, so that nothing is lost.

  Args:
    config: the run.
    folder: where it lives.
    label: what its progress is called.

  Raises:
    ConfigError: the folder belongs to another configuration, other data or a process at work.
    DataError: the data cannot be had.
    TrainingError: the loss, a gradient or a parameter is not finite, or a checkpoint is damaged.
  """
  folder = pathlib.Path(folder)
  if workdirs.refuse_another(folder, config) and _finished(folder, config):
    return workdir.load(folder)
  with workdirs.held(folder):
    return _train(config, folder, label)


def _finished(folder: pathlib.Path, config: TrainConfig) -> bool:
  if not (folder / "checkpoints").exists():
    return False
  with Checkpoints(folder / "checkpoints") as checkpoints:
    return checkpoints.latest == config.steps


def _train(config: TrainConfig, folder: pathlib.Path, label: str) -> Trained:
  asked, data = config, config.data
  train_corpus, dev_corpus = corpora.load(data, "train"), corpora.load(data, "dev")
  source, target = corpora.vocabularies(data, train_corpus)
  config = workdir.resolve(config, source, target)
  store = pipeline.TokenStore.encode(train_corpus, source, target)
  dev = pipeline.TokenStore.encode(dev_corpus, source, target)
  cut: dict[str, Any] = {
    "batch_size": data.batch_size,
    "edges": data.bucket_edges,
    "seed": config.seed,
    "tokens": data.batch_tokens,
  }
  batches = pipeline.training_batches(store, **cut, workers=data.workers)
  padding = pipeline.padding_share(store, **cut)
  print(f"{label}: {padding:.1%} of the positions in batches are padding", file=sys.stderr)
  if dropped := pipeline.dropped_pairs(store, data.bucket_edges):
    print(
      f"{label}: {dropped:,} of {len(store):,} pairs are longer than {data.bucket_edges[-1]}"
      " symbols, EOS counted, and left out",
      file=sys.stderr,
    )
  root = jax.random.key(config.seed)
  initial = state.create(config.model, config.optimizer, config.steps, root)

  workdirs.claim(folder, asked)  # only now: what has failed by here leaves the folder free
  with Checkpoints(folder / "checkpoints") as checkpoints:
    if checkpoints.latest is None:
      workdir.keep_vocabularies(folder, source, target)
    else:
      workdir.refuse_other_symbols(folder, source, target)
    run = _Run(config, folder, checkpoints, initial, root)
    run.go(batches, dev, label)
    return Trained(run.state.params, config, source, target, run.step)


class _Run:
  """The moving parts of one run between two checkpoints."""

  def __init__(
    self,
    config: TrainConfig,
    folder: pathlib.Path,
    checkpoints: Checkpoints,
    initial: TrainState,
    rng: jax.Array,
  ):
    self.config, self.folder, self.checkpoints, self.rng = config, folder, checkpoints, rng
    self.state, self.window = initial, _Window()
    self.step, self.position = 0, None
    self.pending: StepMetrics | None = None
    if (latest := checkpoints.latest) is not None:
      self.state, record = checkpoints.restore(latest, initial)
      self.step, self.position = latest, record["data"]
      self.window = _Window(**record["window"])

  def go(self, batches: Any, dev: pipeline.TokenStore, label: str) -> None:
    if self.position is not None:
      batches.set_state(self.position)
    metrics = MetricsFile(self.folder / "metrics.jsonl", self.step)
    try:
      with Interrupts() as stop, Progress(label, self.config.steps, self.step) as progress:
        self._loop(batches, dev, metrics, progress, stop)
    finally:
      metrics.close()

  def _loop(
    self,
    batches: Any,
    dev: pipeline.TokenStore,
    metrics: MetricsFile,
    progress: Progress,
    stop: Interrupts,
  ) -> None:
    config, clock = self.config, time.monotonic()
    while self.step < config.steps and stop.asked is None:
      self.state, reported = state.update(
        config.model, config.optimizer, config.steps, self.state, next(batches), self.rng
      )
      self._settle()
      self.step, self.pending = self.step + 1, reported
      last = self.step == config.steps
      if last or self.step % config.log_every == 0:
        self._settle()
        seen, now = self.window.symbols, time.monotonic()
        loss = self._write_window(metrics, seen / max(now - clock, 1e-9))
        progress.update(self.step, f"loss {loss:.4f}")
        clock = now
      if config.validate_every and (last or self.step % config.validate_every == 0):
        metrics.write(self.step, dev_loss=mean_loss(config, self.state.params, dev))
        clock = time.monotonic()
      if last or self.step % config.checkpoint_every == 0 or stop.asked is not None:
        self._settle()
        self._save(batches)

  def _settle(self) -> None:
    """Looks at the last update's report: one step late, so that the device need not wait."""
    if self.pending is not None:
      self._check(self.pending)
      self.window.add(self.pending)
      self.pending = None

  def _write_window(self, metrics: MetricsFile, rate: float) -> float:
    window, self.window = self.window, _Window()
    loss = window.loss / max(window.symbols, 1)
    norm = window.gradient_norm / window.steps
    metrics.write(self.step, loss=loss, gradient_norm=norm, symbols_per_second=round(rate, 1))
    return loss

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

  def _save(self, batches: Any) -> None:
    record = {"data": batches.get_state(), "window": dataclasses.asdict(self.window)}
    self.checkpoints.save(self.step, self.state, record)


def mean_loss(config: TrainConfig, params: Any, store: pipeline.TokenStore) -> float:
  """Mean loss a symbol over a whole split, nats."""
  data, total, symbols = config.data, 0.0, 0
  for batch in pipeline.evaluation_batches(
    store, batch_size=data.batch_size, edges=data.bucket_edges
  ):
    loss, count = state.loss_sum(config.model, params, batch)
    total, symbols = total + float(loss), symbols + int(count)
  return total / max(symbols, 1)
