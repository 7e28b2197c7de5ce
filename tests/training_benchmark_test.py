"""Bars that can come out each way, counts that programs confirm, peers where they are there."""

import dataclasses
import json
import pathlib
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn import configs, models
from attn.data import corpora
from attn.data.config import DataConfig
from attn.report import results
from experiments import benchmark_bars, training_benchmark
from experiments import benchmark_workers as workers
from experiments import training_benchmark_attn as ours
from experiments import training_benchmark_figures as drawn
from experiments import training_benchmark_trials as trials
from experiments import training_benchmark_work as work
from experiments.training_benchmark import MATCHES, Config
from experiments.training_benchmark_trials import Measured, Trial
from experiments.training_benchmark_work import (
  ADDITIVE_FED,
  ATTN,
  GENERAL,
  GENERAL_FED,
  JOEYNMT,
  MODELS,
  Sizes,
)

SIZES = Sizes(batch=3, source=7, target=7, vocabulary=29, embedding=11, units=10)
TINY = configs.override(Config(), training_benchmark.profiles()["smoke"])


def trial(match, contender, rates, *, updates=2, **facts):
  n = len(rates)
  known = {
    "compile_seconds": 3.0, "peak_bytes": 2**30, "parameters": 5, "flops": 7, "loss": 1.0,
    "versions": {},
  }  # fmt: skip
  seconds = tuple(10 / rate for rate in rates)
  return Trial(match, contender, updates, seconds, seconds, (10,) * n, (20,) * n, known | facts)


def pair(match, ratio, *, usual=(1.0, 1.0, 1.0, 2.0, 2.0, 2.0)):
  peers = trial(match, match.peer, usual)
  return Measured([trial(match, ATTN, [ratio * rate for rate in usual]), peers], {}, {})


def judged(config, measured):
  rows = []
  metrics = training_benchmark.judge(config, measured, lambda **row: rows.append(row))
  return metrics, [row["verdict"] for row in rows]


@pytest.mark.parametrize(("ratio", "verdict"), [(1.31, "reached"), (1.29, "missed")])
def test_a_bar_can_be_reached_and_missed(ratio, verdict, capsys):
  metrics, verdicts = judged(Config(repeats=6), [pair(MATCHES[0], ratio)])
  # The machine became twice as fast in the middle: neighbours in time tell the same ratio.
  assert verdicts == [verdict, *["not measured"] * 3]
  found = metrics["additive_fed, fixed batches: symbols a second of attn / JoeyNMT"]
  assert [found.mean, found.low, found.high, found.n] == pytest.approx([ratio] * 3 + [6])
  benchmark_bars.tell(metrics)
  told = capsys.readouterr().out.splitlines()
  assert told[0].endswith(f"JoeyNMT: {ratio} times (at least 1.3: {verdict})")
  assert told[1].endswith("OpenNMT-py: - times (at least 1.5: not measured)")


def test_a_bar_can_be_left_open():
  match = MATCHES[1]
  both = [trial(match, ATTN, [1.4, 1.6] * 3), trial(match, match.peer, [1.0] * 6)]
  assert judged(Config(repeats=6), [Measured(both, {}, {})])[1][1] == "not resolved"
  assert judged(TINY, [Measured(both, {}, {})])[1][1] == "other sizes"


def test_every_bar_asks_for_what_it_should():
  assert [(m.model, m.peer, m.threshold, m.real) for m in MATCHES] == [
    (ADDITIVE_FED, "JoeyNMT", 1.3, False),
    (GENERAL_FED, "OpenNMT-py", 1.5, False),
    (GENERAL, "OpenNMT-py", 1.3, False),
    (ADDITIVE_FED, "JoeyNMT", 1.5, True),
  ]


def test_rates_count_real_symbols_and_compiling_where_it_should():
  found = trial(MATCHES[0], ATTN, [2.0] * 6)  # 5 seconds a turn
  assert found.rates == (2.0,) * 6 and found.padding == 0.5
  assert found.with_compiling == pytest.approx(60 / 33)


def test_the_table_tells_parts_and_shares():
  match = MATCHES[0]
  parts = dict(zip([*work.PARTS, work.PRODUCTS], [0.1, 0.3, 0.6, 0.7, 0.5], strict=True))
  flops = work.flops(match.model, SIZES)
  # 2 updates of 5 symbols a turn of a second each.
  measured = [Measured([trial(match, ATTN, [10.0] * 6)], parts, {ATTN: 3.0})]
  config = dataclasses.replace(Config(), sizes=SIZES, data=DataConfig(name="", batch_size=3))
  metrics = training_benchmark.table(config, measured, flops / 1e9 * 4)
  name = "additive_fed, fixed batches: attn"
  assert metrics[f"{name}, decoder"].mean == pytest.approx(200)
  assert metrics[f"{name}, optimizer"].mean == pytest.approx(100)
  assert metrics[f"{name}, products"].mean == pytest.approx(500)
  assert metrics[f"{name}, share of the machine's peak"].mean == pytest.approx(50)
  assert metrics[f"{name}, FLOPs a symbol by the sizes"].mean == pytest.approx(flops / 5e6)


@pytest.mark.parametrize("model", MODELS)
def test_flops_by_the_sizes_are_those_of_the_program(model):
  made = ours.update_products(ours.configured(model, SIZES), next(ours.fixed(SIZES, 0)))
  assert sum(product.flops * times for product, times in made.items()) == work.flops(model, SIZES)


def test_products_of_loops_and_batches_are_counted():
  def program(x, y):
    def step(carry, _):
      return carry @ y, None

    carry, _ = jax.lax.scan(step, x, length=5)
    return jnp.einsum("bik,bkj->bij", carry[None], y[None])

  traced = jax.jit(program).trace(jnp.ones((2, 3)), jnp.ones((3, 3)))
  found = ours.products(traced.jaxpr.jaxpr)
  assert sorted(found.values()) == [1, 5]
  assert {product.flops for product in found} == {2 * 2 * 3 * 3}
  assert all(product.seconds(1) > 0 for product in found)


def test_batches_are_those_of_every_process():
  first, second = (work.Batches(SIZES, seed=5) for _ in range(2))
  for _ in range(10):
    for one, other in zip(next(first), next(second), strict=True):
      np.testing.assert_array_equal(one, other)
      assert one.shape == (3, 6) and one.min() >= work.RESERVED and one.max() < 29
  assert not np.array_equal(next(first)[0], next(first)[0])


def test_text_for_a_peer_is_what_attn_trains_on(tmp_path):
  files = {"source": ["a b c", "b", "c a a b c a"], "target": ["x y", "y y", "x"]}
  for side, lines in files.items():
    (tmp_path / side).write_text("\n".join(lines) + "\n")
  test = tmp_path / "other"
  test.write_text("a\tx\n")
  data = DataConfig(
    name="parallel_text", data_dir=str(tmp_path / "data"), source=str(tmp_path / "source"),
    target=str(tmp_path / "target"), dev_source=str(test), test_source=str(test),
    bucket_edges=(4, 5), batch_size=2, source_level="word", target_level="word",
  )  # fmt: skip
  told = trials.tell(data, tmp_path / "told")
  assert told.text().with_suffix(".source").read_text().splitlines() == ["a b c", "b"]
  assert told.text().with_suffix(".target").read_text().splitlines() == ["x y", "y y"]
  symbols = told.vocabulary("source").read_text().splitlines()
  source, _ = corpora.vocabularies(data, corpora.load(data, "train"))
  assert [source.encode(symbol) for symbol in symbols] == [[4], [5], [6]]


def test_only_real_batches_come_from_the_data(monkeypatch):
  given = []
  monkeypatch.setattr(trials, "tell", lambda *_: "files")
  monkeypatch.setattr(
    trials, "works", lambda match, *_, **__: given.append((match.real, *_[2:])) or {}
  )
  monkeypatch.setattr(trials, "measure", lambda *_, **__: Measured([], {}, {}))
  record = types.SimpleNamespace(workdir=pathlib.Path(), log=lambda **_: None)
  training_benchmark.measure(Config(), record)
  assert given == [(False, None, None)] * 3 + [(True, Config().data, "files")]


def test_figures_say_who_is_faster():
  parts = dict(zip([*work.PARTS, work.PRODUCTS], [0.1, 0.3, 0.6, 0.7, 0.35], strict=True))
  measured = [pair(MATCHES[0], 2.0)._replace(parts=parts), pair(MATCHES[3], 3.0)]
  found = drawn.figures_of(measured, 100.0)
  assert list(found) == ["rates", "parts"]
  assert "2 to 3 times as many" in found["rates"].get_suptitle()
  assert "50%" in found["parts"].get_suptitle()
  alone = [measured[0]._replace(trials=measured[0].trials[:1], parts={})]
  assert "without a peer" in drawn.figures_of(alone, None)["rates"].get_suptitle()


def test_what_is_not_there_is_told_of(tmp_path, monkeypatch):
  monkeypatch.setattr(trials, "PEERS", tmp_path)
  assert [line.partition(" ")[0] for line in training_benchmark.missing()] == [
    "JoeyNMT",
    "OpenNMT-py",
  ]
  assert list(trials.works(MATCHES[0], SIZES, 0, None, None)) == [ATTN]
  for name in ("joeynmt", "opennmt"):
    (tmp_path / name / "bin").mkdir(parents=True)
    (tmp_path / name / "bin" / "python").touch()
  assert training_benchmark.missing() == []
  assert list(trials.works(MATCHES[0], SIZES, 0, None, None)) == [ATTN, JOEYNMT]
  for asked, chosen in ((False, ""), (True, None)):
    found = trials.works(MATCHES[0], SIZES, 0, None, None, huge_pages_for_peers=asked)
    assert found[JOEYNMT].environment.get("GLIBC_TUNABLES") == chosen
    assert "GLIBC_TUNABLES" not in found[ATTN].environment


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"models": ("generall",)}, "no model 'generall'"),
    ({"repeats": 5}, "at least 6"),
    ({"updates": 0}, "at least 1"),
    ({"sizes.batch": 32}, "data.batch_size is 64 and sizes.batch 32"),
  ],
)
def test_what_cannot_be_timed_is_refused(changes, message):
  with pytest.raises(configs.ConfigError, match=message):
    configs.override(Config(), changes)


def test_profiles_and_sweeps_are_configurations():
  overrides = [*training_benchmark.profiles().values(), *training_benchmark.sweep_batch()]
  for each in overrides:
    assert configs.override(Config(), each).matches
  assert Config().matches == list(MATCHES)


# A peer's GRU has 2n biases more, for two that do what one does; attn's JoeyNMT has a bias of the
# output layer besides, attn's OpenNMT-py one of the readout.
def surplus(model):
  n = SIZES.units
  return SIZES.vocabulary - 3 * 2 * n if model == ADDITIVE_FED else n - 2 * 2 * n


@pytest.mark.slow
@pytest.mark.parametrize("match", MATCHES[:3])
def test_a_peer_trains_the_same_model(match):
  if not trials.is_there(match.peer):
    pytest.skip(f"{match.peer} is not there: make peers")
  contenders = trials.works(match, SIZES, 3, None, None)
  found = trials.measure(match, contenders, repeats=6, updates=1, calls=0, squares=(8,))
  attn, peer = found.trials
  theirs = peer.facts["parameters"]
  assert attn.facts["parameters"] == theirs + surplus(match.model)
  assert attn.facts["parameters"] == models.parameter_count(ours.configured(match.model, SIZES))
  # What is missing is the gradient to states that begin at 0, which PyTorch does not take.
  assert 0.9 < peer.facts["flops"] / attn.facts["flops"] <= 1
  assert attn.symbols == peer.symbols == attn.positions == peer.positions == (21,) * 6
  # Both have learned a little of the same few batches.
  assert abs(attn.facts["loss"] - peer.facts["loss"]) < 0.2 < np.log(SIZES.vocabulary)


@pytest.mark.slow
def test_joeynmt_reads_the_same_text(tmp_path):
  if not trials.is_there(JOEYNMT):
    pytest.skip("JoeyNMT is not there: make peers")
  lines = [f"{'a ' * (i % 5)}b\t{'x ' * (i % 3)}y" for i in range(12)]
  text = tmp_path / "pairs.tsv"
  text.write_text("\n".join(lines) + "\n")
  data = DataConfig(
    name="parallel_text", data_dir=str(tmp_path / "data"), source=str(text), dev_source=str(text),
    test_source=str(text), bucket_edges=(4, 8), batch_size=3, source_level="word",
    target_level="word",
  )  # fmt: skip
  told = trials.tell(data, tmp_path / "told")
  contenders = trials.works(MATCHES[3], SIZES, 3, data, told)
  with workers.started(list(contenders.values()), threads=1) as processes:
    for process in processes:
      process.ask("prepare")
    # An epoch of JoeyNMT's has 4 batches, and 3 were made to warm up and to count.
    ran = [process.ask("run", 40) for process in processes]
  # 4 of each length of targets, EOS counted: 36 symbols an epoch.
  assert [run["symbols"] / 10 for run in ran] == pytest.approx([36, 36], abs=1)
  assert all(run["positions"] > run["symbols"] for run in ran)


@pytest.mark.slow
def test_a_tiny_run_writes_its_files(tmp_path):
  config = dataclasses.replace(TINY, calls=1)
  result = training_benchmark.run(config, tmp_path)
  assert results.read(tmp_path / "result.json") == result
  assert result.claims == () and list(result.figures)[0] == "figures/rates.svg"
  rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
  timed = [row for row in rows if "contender" in row]
  assert {row["contender"] for row in timed} <= {ATTN, JOEYNMT}
  assert all(len(row["wall"]) == config.repeats and min(row["wall"]) > 0 for row in timed)
  assert len([row for row in rows if "bar" in row]) == len(MATCHES)
  assert [row["parts"].keys() for row in rows if "parts" in row] == [{*work.PARTS, work.PRODUCTS}]
