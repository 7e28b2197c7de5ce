"""Bars that can come out each way, counts that programs confirm, peers where they are there."""

import dataclasses
import json

import numpy as np
import pytest

from attn import configs
from attn.data import vocabulary
from attn.data.config import DataConfig
from attn.data.errors import DataError
from attn.report import results
from experiments import benchmark_workers as workers
from experiments import decoding_benchmark as benchmark
from experiments import decoding_benchmark_attn as ours
from experiments import decoding_benchmark_figures as drawn
from experiments import decoding_benchmark_trials as trials
from experiments import decoding_benchmark_work as work
from experiments.decoding_benchmark import Config
from experiments.decoding_benchmark_trials import MATCHES, Measured, Trial
from experiments.decoding_benchmark_work import MODELS, Cell, Turn, Widths
from experiments.training_benchmark_work import ATTN, JOEYNMT

WIDTHS = Widths(vocabulary=29, embedding=11, units=10)
TINY = configs.override(Config(), benchmark.profiles()["smoke"])
CELL = benchmark.HIGH_CELL


def trial(match, contender, seconds, *, cell=CELL, programs=4):
  facts = {
    "compile_seconds": 5.0, "peak_bytes": 2**30, "parameters": 5, "programs": programs,
    "flops_a_symbol": 7.0, "versions": {},
  }  # fmt: skip
  turns = tuple(Turn(each, each, 20) for each in seconds)
  return Trial(match, cell, contender, (10,) * len(turns), turns, facts)


def pair(match, ratio, *, cell=CELL, usual=(1.0, 1.0, 1.0, 2.0, 2.0, 2.0), programs=4):
  both = [
    trial(match, ATTN, [each / ratio for each in usual], cell=cell, programs=programs),
    trial(match, match.peer, usual, cell=cell, programs=0),
  ]
  return Measured(match, both, {}, {})


def judged(config, measured):
  rows = []
  metrics = benchmark.judge(config, measured, lambda **row: rows.append(row))
  return metrics, {row["bar"]: row["verdict"] for row in rows}


@pytest.mark.parametrize(
  ("cell", "ratio", "verdict"),
  [
    (CELL, 3.01, "reached"),
    (CELL, 2.99, "missed"),
    (Cell(1, 10), 1.01, "reached"),
    (Cell(1, 1), 0.99, "missed"),
  ],
)
def test_a_bar_can_be_reached_and_missed(cell, ratio, verdict):
  metrics, verdicts = judged(Config(repeats=6), [pair(MATCHES[0], ratio, cell=cell)])
  # The machine became half as fast in the middle: neighbours in time tell the same ratio.
  (name,) = [bar for bar, found in verdicts.items() if found == verdict and "JoeyNMT" in bar]
  assert cell.words in name
  found = metrics[name]
  assert [found.mean, found.low, found.high, found.n] == pytest.approx([ratio] * 3 + [6])
  assert list(verdicts.values()).count("not measured") == len(verdicts) - 2


def test_a_bar_can_be_left_open_and_is_for_its_sizes():
  match = MATCHES[1]
  both = [trial(match, ATTN, [0.3, 0.4] * 3), trial(match, match.peer, [1.0] * 6)]
  measured = [Measured(match, both, {}, {})]
  assert "not resolved" in judged(Config(repeats=6), measured)[1].values()
  assert "other sizes" in judged(TINY, measured)[1].values()


@pytest.mark.parametrize(("programs", "verdict"), [(5, "reached"), (6, "missed")])
def test_a_handful_of_programs_is_five(programs, verdict):
  _, verdicts = judged(Config(), [pair(MATCHES[0], 3.0, programs=programs)])
  assert verdicts["programs that attn compiled for the file of mixed lengths, at most"] == verdict


def test_every_bar_asks_for_what_it_should():
  high, alone = (Cell(32, 5, own=True), 3.0), [(Cell(1, beam), 1.0) for beam in (1, 5, 10)]
  assert [benchmark.bars(match) for match in MATCHES] == [
    [high, *alone],
    [high, *alone],
    [high, alone[1]],
  ]
  assert [match.peer for match in MATCHES] == ["JoeyNMT", "OpenNMT-py", "OpenNMT-py"]


def test_few_programs_for_a_file_of_mixed_lengths(tmp_path):
  """Counted by traces, with the lengths that the benchmark pads to."""
  config = dataclasses.replace(
    Config(), widths=WIDTHS, data=DataConfig(name=""), sentences=100, batches=(8,), alone=8
  )
  sources = benchmark.sentences(config)
  assert min(map(len, sources)) < 4 and max(map(len, sources)) > 60
  contenders = trials.works(MATCHES[0], WIDTHS, 3, config.edges, tmp_path)
  server = ours.Attn(*contenders[ATTN].arguments)
  cell = Cell(batch=8, beam=2)
  made = trials.batches(sorted(sources, key=len), 8)
  first = server.prepare(trials.one_of_each(made, config.edges), cell)
  assert first["programs"] == len(config.edges) <= benchmark.HANDFUL
  assert first["compile_seconds"] > 0
  # All of the file needs no more, in whatever parts.
  assert server.prepare(sources, cell) == {"programs": 0, "compile_seconds": 0.0}


@pytest.mark.parametrize("model", MODELS)
def test_flops_by_the_sizes_are_those_of_the_program(model, tmp_path):
  match = next(match for match in MATCHES if match.model == model)
  contenders = trials.works(match, WIDTHS, 3, (7,), tmp_path)
  server = ours.Attn(*contenders[ATTN].arguments)
  made = server.flops([[4] * 6] * 3, Cell(batch=3, beam=2))
  assert made == work.flops(model, WIDTHS, [7] * 3, beam=2)


def test_rates_count_compiling_where_it_should():
  found = trial(MATCHES[0], ATTN, [2.0] * 6)
  assert found.rates == (5.0,) * 6 and found.rate == 5.0 and found.symbol_rate == 10.0
  assert found.with_compiling(100) == pytest.approx(100 / 25)


def test_the_table_tells_what_each_came_to():
  match, config = MATCHES[0], dataclasses.replace(Config(), widths=WIDTHS)
  sources = [[4] * 6] * 10  # 7 symbols, translated to 8
  measured = Measured(match, pair(match, 2.0).trials, {ATTN: 3.0}, {5: 0.9})
  metrics = benchmark.table(config, [measured], sources)
  name = f"additive, JoeyNMT: attn, {CELL.words}"
  whole = work.flops(match.model, WIDTHS, [7] * 10, 5)
  assert metrics[f"{name}, FLOPs a symbol by the sizes"].mean == pytest.approx(whole / 80e6)
  rate = metrics[f"{name}, symbols"].mean
  assert metrics[f"{name}, achieved"].mean == pytest.approx(rate * whole / 80 / 1e9)
  assert metrics["additive, JoeyNMT: the same translations, beam 5"].mean == 90
  assert metrics[name].mean == measured.trials[0].rate


def test_reserved_symbols_are_moved_to_a_systems_own_ids():
  names = (vocabulary.PAD, vocabulary.BOS, vocabulary.EOS, vocabulary.UNK)
  assert names == (0, 1, 2, 3)
  order = work.own_order(7, 1, 2, 3, 0)  # JoeyNMT's
  np.testing.assert_array_equal(order, [3, 0, 1, 2, 4, 5, 6])


def test_batches_are_neighbours_in_length_and_each_edge_has_one():
  sources = [[5] * n for n in (3, 9, 1, 8, 2, 7)]
  made = trials.batches(sorted(sources, key=len), 2)
  assert [list(map(len, batch)) for batch in made] == [[1, 2], [3, 7], [8, 9]]
  assert [list(map(len, part)) for part in trials.dealt(made, 2)] == [[1, 2, 8, 9], [3, 7]]
  assert list(map(len, trials.one_of_each(made, (4, 10, 16)))) == [1, 2, 3, 7]


def test_sentences_are_short_enough_and_those_of_the_data(tmp_path):
  text = tmp_path / "pairs.tsv"
  text.write_text("".join(f"{'a ' * (i % 7)}b\tx\n" for i in range(40)))
  data = DataConfig(
    name="parallel_text", data_dir=str(tmp_path / "data"), source=str(text), dev_source=str(text),
    test_source=str(text), source_level="word", target_level="word",
  )  # fmt: skip
  config = dataclasses.replace(TINY, data=data, edges=(6,), sentences=5, alone=5, parts=1)
  assert sorted(map(len, benchmark.sentences(config))) == [1, 2, 3, 4, 5]
  with pytest.raises(DataError, match="5 test sentences of at most 5 symbols"):
    benchmark.sentences(dataclasses.replace(config, sentences=6))


def test_the_figure_says_who_is_faster():
  measured = [pair(MATCHES[0], 2.0), pair(MATCHES[2], 3.0)]
  assert "2 to 3 times as many" in drawn.rates(measured).get_suptitle()
  alone = [measured[0]._replace(trials=measured[0].trials[:1])]
  assert "without a peer" in drawn.rates(alone).get_suptitle()


def test_what_is_not_there_is_told_of(tmp_path, monkeypatch):
  monkeypatch.setattr("experiments.training_benchmark_trials.PEERS", tmp_path)
  lines = benchmark.missing()
  assert [line.partition(" ")[0] for line in lines] == ["JoeyNMT", "OpenNMT-py"]
  assert all("make peers" in line for line in lines)
  assert list(trials.works(MATCHES[0], WIDTHS, 0, (8,), tmp_path)) == [ATTN]
  (tmp_path / "joeynmt" / "bin").mkdir(parents=True)
  (tmp_path / "joeynmt" / "bin" / "python").touch()
  assert len(benchmark.missing()) == 1
  assert list(trials.works(MATCHES[0], WIDTHS, 0, (8,), tmp_path)) == [ATTN, JOEYNMT]


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"models": ("generall",)}, "no model 'generall'"),
    ({"repeats": 5}, "at least 6"),
    ({"beams": (0, 1)}, "at least 1"),
    ({"sentences": 500}, "500 sentences in batches of 128 are too few for 8 parts"),
    ({"alone": 7}, "from 8, the parts, to 1000"),
  ],
)
def test_what_cannot_be_timed_is_refused(changes, message):
  with pytest.raises(configs.ConfigError, match=message):
    configs.override(Config(), changes)


def test_profiles_and_sweeps_are_configurations():
  for each in [*benchmark.profiles().values(), *benchmark.sweep_vocabulary()]:
    assert configs.override(Config(), each).matches
  assert Config().matches == list(MATCHES)


@pytest.mark.slow
@pytest.mark.parametrize("match", MATCHES)
def test_a_peer_searches_the_same(match, tmp_path):
  if not trials.is_there(match.peer):
    pytest.skip(f"{match.peer} is not there: make peers")
  contenders = trials.works(match, WIDTHS, 3, (8, 16), tmp_path)
  config = dataclasses.replace(TINY, widths=WIDTHS, parts=1, sentences=40)
  sources = sorted(benchmark.sentences(config), key=len)
  with workers.started(list(contenders.values()), threads=1) as processes:
    for beam in (1, 3):
      alone, together = (
        [
          process.ask("search", order, Cell(batch, beam), spare)
          for spare, process in enumerate(processes)
        ]
        for batch, order in ((1, sources), (8, sources[::-1]))
      )
      # A peer's ends in an EOS more.
      assert alone[0] == [ids[:-1] for ids in alone[1]]
      # Whom a sentence is searched with does not matter.
      assert [found[::-1] for found in together] == alone
      assert [len(ids) for ids in alone[0]] == [work.limit(len(ids) + 1) for ids in sources]


@pytest.mark.slow
def test_a_tiny_run_writes_its_files(tmp_path):
  result = benchmark.run(TINY, tmp_path)
  assert results.read(tmp_path / "result.json") == result
  assert result.claims == () and list(result.figures) == ["figures/rates.svg"]
  rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
  timed = [row for row in rows if "contender" in row]
  assert {row["contender"] for row in timed} <= {ATTN, JOEYNMT}
  assert {(row["batch"], row["beam"], row["own"]) for row in timed} == set(TINY.cells)
  assert all(len(row["wall"]) == TINY.repeats and min(row["wall"]) > 0 for row in timed)
  assert (
    len([row for row in rows if "bar" in row])
    == sum(len(benchmark.bars(match)) for match in MATCHES) + 1
  )
