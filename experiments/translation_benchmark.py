"""How well, and how soon, does a small model translate, next to JoeyNMT's of the same size?

Both train on the same pairs, cut into the same pieces of words, for the same number of updates of
64 sentences: `luong_laptop` and JoeyNMT's recurrent model with its additive attention and input
feeding, GRUs and embeddings as wide. Adam, gradients of the mean loss a symbol clipped at norm 1,
dropout 0.2 and the first learning rate are the same; each has a schedule of its own (attn a cosine,
JoeyNMT its `exponential`, which halves the rate each epoch: its other schedules have settings that
its version 2.3 does not read). Both decode the test pages with a beam of 5, scores by length to the
power 1, and every source is scored against all translations that the pages have for it.

Command: make peers, then python -m launch.run --experiment=translation_benchmark
Each system has one thread, on a core of its own, and both run at the same time. A benchmark judges
no claim of the chapter, and --experiment=all leaves it out. Time: default 19 minutes on two idle
cores, smoke 2 minutes. An interrupted run goes on from the systems' own checkpoints
where they have some, but what it says of time is then of the rest alone.

Rules, stated before the run. BLEU is sacreBLEU's of detokenised text. attn reaches the bar if its
BLEU is at least JoeyNMT's and its training took less time, misses it otherwise; the p-value of
sacreBLEU's paired bootstrap over the sentences says whether chance would do for the difference. One
seed each: this compares two models, not two systems.

Files: `result.json` has BLEU, chrF and seconds of each; `metrics.jsonl` one line a system:
`system`, `bleu`, `chrf`, `signatures`, `half` (of the bootstrap's 95%), `p`, `training_seconds`,
`decoding_seconds`; `attn/` and `joeynmt/` are the systems' own folders, with what they
printed in `log.txt`; `outputs.tsv` has source, attn's, JoeyNMT's and the references.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest

from attn import configs, presets
from attn.data import corpora
from attn.data.vocabulary import Vocabulary
from attn.evaluation import corpus_scores
from attn.report import figures, recorder, results
from attn.report.results import Metric
from attn.training import TrainConfig
from experiments.benchmark_workers import cores
from experiments.training_benchmark_trials import is_there, python_of, tell, write_lines
from experiments.training_benchmark_work import ATTN, JOEYNMT

CLAIMS = ()
SCORES = (corpus_scores.bleu, corpus_scores.chrf)


@dataclasses.dataclass(frozen=True)
class Config:
  """What is trained.

  Attributes:
    train: attn's run; JoeyNMT's takes its sizes, data, updates and seed.
    resamples: of the bootstrap.
  """

  train: TrainConfig = dataclasses.replace(
    presets.get("luong_laptop"),
    data=dataclasses.replace(presets.get("luong_laptop").data, name="libreoffice_help/en-de"),
  )
  resamples: int = 1000


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  smoke = {
    "train.data.limit": 400, "train.data.source_size": 300, "train.data.target_size": 300,
    "train.data.bucket_edges": (41,), "train.steps": 3, "train.validate_every": None,
    "train.model.units": 16, "train.model.embedding": 8, "train.search.beam": 1, "resamples": 20,
  }  # fmt: skip
  return {"smoke": smoke, "default": {}, "full": {"train.steps": 8_000}}


class Texts(NamedTuple):
  """What is translated: each source of the test pages once, and all its translations."""

  sources: list[str]
  references: list[list[str]]


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Trains, decodes and scores both systems, side by side.

  Raises:
    ConfigError: JoeyNMT is not there.
  """
  if not is_there(JOEYNMT):
    raise configs.ConfigError("JoeyNMT is not in .peers: run `make peers` first")
  record = recorder.Recorder(
    "translation_benchmark", config, profiles(), workdir, seeds=(config.train.seed,)
  )
  folder = record.workdir
  train = corpora.load(config.train.data, "train")
  source, target = corpora.vocabularies(config.train.data, train)
  test = corpora.load(config.train.data, "test")
  found: dict[str, list[str]] = {}
  for one, other in zip(test.sources, test.targets, strict=True):
    found.setdefault(one, []).append(other)
  texts = Texts(list(found), list(found.values()))
  folders = {ATTN: folder / "attn", JOEYNMT: folder / "joeynmt"}
  ours = _attn_commands(config.train, folder)
  theirs = _joeynmt_commands(config.train, folder, texts, source, target)
  training, decoding = (
    _side_by_side({ATTN: one, JOEYNMT: other}, folders)
    for one, other in zip(ours, theirs, strict=True)
  )
  outputs = {ATTN: _attn_outputs(folder, texts), JOEYNMT: _joeynmt_outputs(folder, target)}
  _write_outputs(folder / "outputs.tsv", texts, outputs)
  metrics = _judge(config, record, texts, outputs, training, decoding)
  for name, metric in metrics.items():
    print(f"  {name}: {metric.mean:.4g} {metric.unit}")
  record.figure(
    "translation",
    _figure(metrics, list(folders)),
    caption=(
      f"BLEU of {len(texts.sources):,} sources of {config.train.data.name}, bars: 95% of a"
      f" bootstrap over them; one model each after {config.train.steps:,} updates, one core each."
    ),
  )
  return record.finish(metrics=metrics, claims=())


def _attn_commands(train: TrainConfig, folder: pathlib.Path) -> list[list[str]]:
  """Training, and decoding after it."""
  path = folder / "attn.json"
  path.write_text(json.dumps(configs.to_dict(train)), encoding="utf-8")
  command = [
    sys.executable, "-m", "launch.train", f"--config={path}", f"--workdir={folder / 'attn/run'}"
  ]  # fmt: skip
  return [command, [*command, "--evaluate=test"]]


def _attn_outputs(folder: pathlib.Path, texts: Texts) -> list[str]:
  lines = (folder / "attn/run/evaluation/test.tsv").read_text(encoding="utf-8").split("\n")[:-1]
  rows = [line.split("\t") for line in lines]
  assert [row[0] for row in rows] == texts.sources
  return [row[1] for row in rows]


def _joeynmt_commands(
  train: TrainConfig,
  folder: pathlib.Path,
  texts: Texts,
  source: Vocabulary,
  target: Vocabulary,
) -> list[list[str]]:
  """Training, and decoding after it, of text that attn cut into pieces."""
  told = tell(train.data, folder / "text")
  dev = corpora.load(train.data, "dev")
  for name, sources, targets in (
    ("dev", dev.sources, dev.targets),
    ("test", texts.sources, [references[0] for references in texts.references]),
  ):
    for side, vocabulary, lines in (
      (told.source, source, sources), (told.target, target, targets),
    ):  # fmt: skip
      pieces = (" ".join(vocabulary.split(line)) for line in lines)
      write_lines(told.text().with_name(f"{name}.{side}"), pieces)
  data: dict[str, Any] = {
    name: str(told.text().with_name(name)) for name in ("train", "dev", "test")
  }
  for key, side in (("src", told.source), ("trg", told.target)):
    data[key] = {"lang": side, "level": "word", "voc_file": str(told.vocabulary(side))}
  model, drop = train.model, train.model.dropout
  layer = {
    "type": "recurrent", "rnn_type": "gru", "hidden_size": model.units, "num_layers": 1,
    "embeddings": {"embedding_dim": model.embedding, "dropout": drop}, "dropout": drop,
  }  # fmt: skip
  attention = {
    "attention": "bahdanau", "input_feeding": True, "init_hidden": "bridge", "hidden_dropout": drop
  }  # fmt: skip
  optimizer = train.optimizer
  settings = {
    "name": "joeynmt", "model_dir": str(folder / "joeynmt/run"), "use_cuda": False,
    "random_seed": train.seed, "normalization": "tokens",
    "data": {**data, "dataset_type": "plain"},
    "testing": {
      "beam_size": train.search.beam, "beam_alpha": train.search.alpha, "eval_metrics": [],
      "batch_size": train.data.batch_size, "batch_type": "sentence",
    },
    "training": {
      "optimizer": "adam", "learning_rate": optimizer.learning_rate, "scheduling": "exponential",
      "decrease_factor": 0.5, "clip_grad_norm": optimizer.clip_norm, "normalization": "tokens",
      "batch_size": train.data.batch_size, "batch_type": "sentence", "epochs": 1000,
      "updates": train.steps, "validation_freq": train.steps,
      "logging_freq": max(1, train.steps // 20), "early_stopping_metric": "loss",
      "overwrite": True, "keep_best_ckpts": 1,
    },
    "model": {"encoder": {**layer, "bidirectional": True}, "decoder": {**layer, **attention}},
  }  # fmt: skip
  # Its `test` decodes the dev split as well where there is one, its `train` where it has a metric.
  data.pop("dev")
  tested = {**settings, "data": {**data, "dataset_type": "plain"}}
  training, testing = folder / "joeynmt.train.yaml", folder / "joeynmt.test.yaml"
  for path, content in ((training, settings), (testing, tested)):
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")  # JSON is YAML
  command = [str(python_of(JOEYNMT)), "-W", "ignore", "-m", "joeynmt"]
  return [
    [*command, "train", str(training), "--skip-test"],
    [*command, "test", str(testing), "--output-path", str(folder / "joeynmt/output")],
  ]


def _joeynmt_outputs(folder: pathlib.Path, target: Vocabulary) -> list[str]:
  """Its lines of pieces, put together as attn's are."""
  lines = (folder / "joeynmt/output.test").read_text(encoding="utf-8").split("\n")[:-1]
  return [target.join(line.split(" ")) for line in lines]


def _side_by_side(
  commands: Mapping[str, Sequence[str]], folders: Mapping[str, pathlib.Path]
) -> dict[str, float]:
  """Runs a command of each system at once, each on a core of its own; returns wall seconds.

  Raises:
    RuntimeError: one of them failed.
  """
  pinned = cores()
  one = {"OMP_NUM_THREADS": "1", "NPROC": "1", "OPENBLAS_NUM_THREADS": "1"}
  seconds: dict[str, float] = {}
  with contextlib.ExitStack() as stack:
    running = {}
    for at, (system, command) in enumerate(commands.items()):
      folders[system].mkdir(exist_ok=True)
      log = stack.enter_context((folders[system] / "log.txt").open("ab"))
      print(f"  {system}: running, its progress is in {log.name}", flush=True)
      process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **one}
      )
      if hasattr(os, "sched_setaffinity"):  # before it has threads
        os.sched_setaffinity(process.pid, {pinned[at % len(pinned)]})
      stack.callback(process.wait)
      stack.callback(process.terminate)  # nothing, if it has ended
      running[system] = (process, time.perf_counter())
    while running:
      for system, (process, start) in list(running.items()):
        if process.poll() is not None:
          seconds[system] = time.perf_counter() - start
          del running[system]
          if process.returncode:
            raise RuntimeError(
              f"{system} ended with code {process.returncode}: see {folders[system] / 'log.txt'}"
            )
          print(f"  {system}: {seconds[system]:,.0f} s", flush=True)
      time.sleep(0.1)
  return seconds


def _write_outputs(path: pathlib.Path, texts: Texts, outputs: Mapping[str, list[str]]) -> None:
  rows = zip(texts.sources, *outputs.values(), texts.references, strict=True)
  write_lines(path, ("\t".join([*row[:-1], *row[-1]]) for row in rows))


def _judge(
  config: Config,
  record: recorder.Recorder,
  texts: Texts,
  outputs: Mapping[str, list[str]],
  training: Mapping[str, float],
  decoding: Mapping[str, float],
) -> dict[str, Metric]:
  """Scores, with sacreBLEU's paired bootstrap, whose null hypothesis is JoeyNMT."""
  streams = corpus_scores.streams(texts.references)
  named = [(system, outputs[system]) for system in (JOEYNMT, ATTN)]
  _, found = PairedTest(named, {"BLEU": BLEU()}, streams, "bs", config.resamples)()
  tested = dict(zip(found["System"], found["BLEU"], strict=True))
  metrics = {}
  for system, made in outputs.items():
    bleu, chrf = (score(made, texts.references) for score in SCORES)
    about = next(tested[name] for name in tested if name.split(": ")[-1] == system)
    metrics[f"{system}: BLEU"] = Metric(
      bleu.value, bleu.value - about.ci, bleu.value + about.ci, len(made), bleu.signature
    )
    metrics[f"{system}: chrF"] = Metric(chrf.value, unit=chrf.signature)
    metrics[f"{system}: training"] = Metric(training[system], unit="s")
    metrics[f"{system}: decoding"] = Metric(decoding[system], unit="s")
    record.log(
      system=system, bleu=bleu.value, chrf=chrf.value, half=about.ci,
      signatures={"bleu": bleu.signature, "chrf": chrf.signature}, p=about.p_value,
      training_seconds=training[system], decoding_seconds=decoding[system],
    )  # fmt: skip
    if about.p_value is not None:
      metrics["p of the difference"] = Metric(about.p_value, n=config.resamples, unit="(bootstrap)")
  better = metrics[f"{ATTN}: BLEU"].mean >= metrics[f"{JOEYNMT}: BLEU"].mean
  sooner = training[ATTN] < training[JOEYNMT]
  verdict = "reached" if better and sooner else "missed"
  metrics["times as fast to train"] = Metric(
    training[JOEYNMT] / training[ATTN], unit=f"times (no fewer BLEU and less time: {verdict})"
  )
  return metrics


def _figure(metrics: Mapping[str, Metric], systems: Sequence[str]) -> Figure:
  """BLEU over the minutes of training."""
  title = "BLEU of the test pages after training for so long"
  figure, (axes,) = figures.new(title, size=(7.0, 3.6))
  for series, system in enumerate(systems):
    bleu, minutes = metrics[f"{system}: BLEU"], metrics[f"{system}: training"].mean / 60
    ends = [[bleu.mean - bleu.low], [bleu.high - bleu.mean]]
    axes.errorbar(
      minutes, bleu.mean, yerr=ends, fmt=figures.MARKERS[series], color=figures.COLOURS[series],
      capsize=4, label=f"{system}: {bleu.mean:.1f} in {minutes:.0f} min",
    )  # fmt: skip
  axes.set_xlim(left=0)
  axes.set_ylim(bottom=0)
  figures.axes_text(axes, x="minutes of training on one core", y="BLEU")
  figures.legend(axes, loc="lower right")
  return figure
