"""The runs of `experiments.order_of_the_step`: one model trained, and held against its data."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Sequence
from typing import Any

from attn import configs
from attn.data import catalog, pipeline
from attn.report import results
from attn.training import TrainConfig, Trained, loop, scoring, train
from experiments.order_of_the_step_jacobians import ORDERS

WALK, G2P = "walk", "g2p"
LN2 = math.log(2)


@dataclasses.dataclass(frozen=True)
class Measured:
  """What one trained model does.

  Attributes:
    updates: when dev was scored.
    dev: its nats then, a letter of the targets, the end included in the sum.
    nats: the same of test, after the last update.
    symbol_errors: edits over reference symbols of decoded test sources, %; None on the walk, where
      no output is right.
  """

  updates: tuple[int, ...]
  dev: tuple[float, ...]
  nats: float
  symbol_errors: float | None


def measure(
  config: TrainConfig, order: str, seed: int, folder: pathlib.Path, *, test: int | None
) -> Measured:
  """Trains and scores one model, or goes on with it; what is finished is read back.

  Args:
    config: the run, whose model is given the order here.
    order: a key of `ORDERS`.
    seed: of everything random.
    folder: the training run's folder; `measured.json` appears in it when all is done.
    test: test pairs to use; None takes all.
  """
  done = folder / "measured.json"
  if done.exists():
    return _read(done)
  own = {f"model.{name}": value for name, value in ORDERS[order].items()}
  config = configs.override(config, {**own, "seed": seed})
  name, label = config.data.name, f"{config.data.name}, {order}, seed {seed}"
  trained = train(config, folder, label=label)
  measured = _sum_up(trained, folder, catalog.load(name, "test", config.data.data_dir, test), label)
  results.write_text(done, json.dumps(dataclasses.asdict(measured)))
  return measured


def _sum_up(trained: Trained, folder: pathlib.Path, test: catalog.Corpus, label: str) -> Measured:
  data = trained.config.data
  store = pipeline.TokenStore.encode(test, trained.source, trained.target)
  nats = loop.validation(trained.config, trained.params, store)["dev_loss"] * _ends(trained, test)
  dev = _ends(trained, catalog.load(data.name, "dev", data.data_dir))
  lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
  curve = [(line["step"], line["dev_loss"] * dev) for line in lines if "dev_loss" in line]
  updates, losses = zip(*curve, strict=True)
  errors = None
  if data.name != WALK:
    errors = 100 * scoring.decode(trained, test, label=f"{label}, decoding").symbol_error_rate
  return Measured(updates, losses, nats, errors)


def _ends(trained: Trained, corpus: catalog.Corpus) -> float:
  """Symbols with ends over symbols without: from a mean over the former to one over the latter."""
  letters = sum(len(trained.target.split(text)) for text in corpus.targets)
  return 1 + len(corpus) / letters


def _read(path: pathlib.Path) -> Measured:
  data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
  return Measured(**{**data, "updates": tuple(data["updates"]), "dev": tuple(data["dev"])})


Runs = dict[str, list[Measured]]  # order to a run a seed


def excess(runs: Sequence[Measured]) -> list[float]:
  """Nats a step above the optimum of the walk, ln 2, a number a run."""
  return [run.nats - LN2 for run in runs]
