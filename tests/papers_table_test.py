"""Small systems that stay what their papers say, orders that can turn, and a tiny run."""

import contextlib
import dataclasses
import itertools
import json
import math

import numpy as np
import pytest

from attn import configs, presets
from attn.data.catalog import Corpus
from attn.data.vocabulary import Vocabulary
from attn.evaluation.intervals import Interval
from attn.report import figures
from attn.training import Trained
from experiments import papers_table, papers_table_figures, papers_table_orders, papers_table_runs
from experiments.papers_table import Config
from experiments.papers_table_orders import OTHER, PUBLISHED, SAME, UNDECIDED, Pair, Table
from experiments.papers_table_runs import SHARED, SYSTEMS

TRAIN = configs.override(
  Config().sounds,
  {"model.units": 10, "model.embedding": 7, "model.layers": 2, "model.half_width": 3},
)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_small_system_is_its_paper_s_but_for_sizes(system):
  paper, made = presets.get(system).model, papers_table_runs.small(TRAIN, system)
  sizes = {"alignment", "maxout", "output_width"}
  changed = {path for path, *_ in configs.differences(paper, made.model)}
  assert changed <= {*SHARED, *sizes}
  assert (made.model.units, made.model.embedding, made.model.half_width) == (10, 7, 3)
  assert made.model.layers == min(paper.layers, 2)
  assert made.model.alignment == round(paper.alignment / 100)
  assert made.model.maxout == round(paper.maxout / 100)
  assert dataclasses.replace(made, model=TRAIN.model) == TRAIN  # one budget for all


def test_a_low_rank_output_shrinks_with_the_embedding():
  assert presets.get("cho2014").model.output_width == presets.get("cho2014").model.embedding
  assert papers_table_runs.small(TRAIN, "cho2014").model.output_width == 7


def test_what_was_scaled_down_is_told():
  text = papers_table_runs.scaled_down(TRAIN, ("sutskever2014", "rnnsearch"))
  assert "units 1000 to 10" in text and "embedding 1000/620 to 7" in text
  assert "layers 4 to 2" in text and "cell" not in text and "vocabulary" not in text


def test_published_values_are_of_systems_and_rank_them():
  for table in PUBLISHED:
    assert set(table.values) <= set(SYSTEMS) and len(table.values) > 1
    for better, worse in papers_table_orders.published_pairs(table):
      gap = table.values[better] - table.values[worse]
      assert gap > 0 if table.what == "BLEU" else gap < 0
  tied = Table(
    "a paper", "a task", "perplexity", {"rnnsearch": 5.0, "cho2014": 5.0, "rnnencdec": 7}
  )
  assert papers_table_orders.published_pairs(tied) == [
    ("rnnsearch", "rnnencdec"), ("cho2014", "rnnencdec")
  ]  # fmt: skip


def test_papers_that_disagree_are_found():
  assert papers_table_orders.disputed(tuple(SYSTEMS)) == [("sutskever2014", "rnnsearch")]
  assert papers_table_orders.disputed(("rnnencdec", "rnnsearch")) == []


@pytest.mark.parametrize(
  ("low", "high", "outcome"),
  [(0.1, 3.0, SAME), (-3.0, -0.1, OTHER), (-0.1, 3.0, UNDECIDED), (0.0, 0.0, UNDECIDED)],
)
def test_an_order_is_kept_turned_or_open(low, high, outcome):
  lead = Interval((low + high) / 2, low, high, 3)
  pair = Pair("g2p", PUBLISHED[1], papers_table_orders.BLEU, "rnnsearch", "rnnencdec", lead)
  assert pair.outcome == outcome
  assert papers_table_orders.count([pair]) == {
    **dict.fromkeys((SAME, OTHER, UNDECIDED), 0),
    outcome: 1,
  }


def rows(middle, spread=0.01, **more):
  """Three seeds about the same numbers."""
  return [
    {"nats": middle + d, "symbol_error_rate": middle / 10 + d, "speed": 900.0 + d,
     "parameters": 700, **{key: value + d for key, value in more.items()}}
    for d in (-spread, 0.0, spread)
  ]  # fmt: skip


def test_leads_are_measured_on_what_the_table_has():
  local, dot = "luong2015_local_p_general", "luong2015_dot_feed"
  found = {
    "sounds": {"rnnencdec": rows(3.0), "rnnsearch": rows(2.0)},
    "text": {
      "sutskever2014": rows(3.0, bleu=5.0),
      local: rows(2.5, bleu=4.0),
      dot: rows(2.0, bleu=3),
    },
  }
  pairs = papers_table_orders.compare(found)
  outcomes = {(pair.data, pair.table.what, pair.better, pair.worse): pair.outcome for pair in pairs}
  assert outcomes == {
    ("sounds", "BLEU", "rnnsearch", "rnnencdec"): SAME,  # fewer errors stand in for more BLEU
    ("text", "BLEU", local, "sutskever2014"): OTHER,
    ("text", "BLEU", dot, "sutskever2014"): OTHER,
    ("text", "BLEU", local, dot): SAME,
    ("text", "perplexity", local, "sutskever2014"): SAME,
    ("text", "perplexity", dot, "sutskever2014"): SAME,
    ("text", "perplexity", local, dot): OTHER,
  }
  assert all(pair.lead.n == 3 for pair in pairs)
  # Each is wider the more have to hold together.
  spread = zip(rows(2.5, bleu=4.0), (0.0, 0.3, 0.1), strict=True)
  spread = [{**row, "nats": row["nats"] + more} for row, more in spread]
  wide = {**found, "text": {**found["text"], local: spread}}
  (alone,) = papers_table_orders.compare(
    {"text": {name: wide["text"][name] for name in ("sutskever2014", local)}}
  )[1:]
  (among,) = (
    pair
    for pair in papers_table_orders.compare(wide)
    if (pair.table.what, pair.better, pair.worse) == ("perplexity", local, "sutskever2014")
  )
  assert among.lead.mean == alone.lead.mean
  assert among.lead.high - among.lead.low > 1.5 * (alone.lead.high - alone.lead.low)


def test_alignments_are_compared_where_both_have_them():
  location, local_m = "luong2015_location_feed", "luong2015_local_m_general"
  found = {
    "verses": {
      location: rows(3.0, alignment_error_rate=0.5),
      local_m: rows(3.0, alignment_error_rate=0.9),
      "sutskever2014": rows(3.0),
    }
  }
  kept = [pair for pair in papers_table_orders.compare(found) if pair.table.what == "AER"]
  assert [(pair.better, pair.worse, pair.outcome) for pair in kept] == [(local_m, location, OTHER)]
  np.testing.assert_allclose(kept[0].lead.mean, -40.0)


def test_the_table_has_a_row_a_system():
  found = {"rnnencdec": rows(3.0, bleu=5.0), "rnnsearch": rows(2.0, bleu=7.0)}
  head, rule, *lines = papers_table.as_table("text", found).split("\n")
  assert head.startswith("| text | BLEU, points | perplexity") and set(rule) <= set("|- ")
  assert len(lines) == 2 and "| 700 | 17.82 BLEU (Bahdanau 2015, Table 1) |" in lines[0]
  assert f"{math.e**2:.2f} [" in lines[1] and "| 7.0 [7.0, 7.0] |" in lines[1]


def test_every_pair_and_system_is_a_metric():
  found = {"g2p": {"rnnencdec": rows(3.0), "rnnsearch": rows(2.0)}}
  pairs = papers_table_orders.compare(found)
  metrics = papers_table._metrics(found, pairs)
  assert metrics["g2p: agreement"].mean == 1
  assert metrics["g2p: published pairs as published"].mean == 1
  assert "as published" in metrics["g2p, RNNsearch before RNNencdec (Cho 2014): symbols wrong"].unit
  assert metrics["published, RNNsearch: BLEU (Bahdanau 2015, Table 1)"].mean == 26.75


def test_figures_say_what_came_out():
  found = {"g2p": {"rnnencdec": rows(2.0), "rnnsearch": rows(3.0)}}
  pairs = papers_table_orders.compare(found)
  best = figures.title_of(papers_table_figures.systems(found))
  assert best == "g2p, symbols wrong: from 20.0% (RNNencdec (Cho 2014)) to 30.0% (RNNsearch)"
  leads = figures.title_of(papers_table_figures.leads(pairs))
  assert "0 of 1 published orders" in leads and "1 the other way round" in leads
  spans = figures.title_of(papers_table_figures.price(found))
  assert f"from {math.e**2:.2f} (RNNencdec" in spans and f"to {math.e**3:.2f} (RNNsearch)" in spans
  texts = {"verses": {"rnnencdec": rows(2.0, bleu=5.0), "rnnsearch": rows(3.0, bleu=7.0)}}
  best = figures.title_of(papers_table_figures.systems(texts))
  assert best == "verses, BLEU: from 7.0 (RNNsearch) to 5.0 (RNNencdec (Cho 2014))"
  assert "No two" in figures.title_of(papers_table_figures.leads([]))


def test_pairs_that_fit_are_taken_and_sources_keep_their_targets():
  corpus = Corpus(
    ("ab", "abcd", "ab", "c", "d"), ("x", "x", "y z", "x y z", "y"),
    tuple(np.array([[at, 0]]) for at in range(5)),
  )  # fmt: skip
  source, target = Vocabulary(("a", "b"), "character"), Vocabulary(("x", "y"), "symbol")
  trained = Trained({}, TRAIN, source, target, 0)
  kept = papers_table_runs.fitting(corpus, trained, 4, 2)
  assert kept.sources == ("ab", "ab", "c") and kept.targets == ("x", "y z", "x y z")
  assert [links[0, 0] for links in kept.alignments] == [0, 2, 3] and kept.possible is None
  assert len(papers_table_runs.fitting(corpus, trained, 4, None)) == 4


def test_speed_is_without_the_window_that_compiles(tmp_path):
  rates = (3.0, 500.0, 700.0, 400.0)
  lines = [{"step": at, "symbols_per_second": rate} for at, rate in enumerate(rates)]
  text = "".join(json.dumps(line) + "\n" for line in [*lines, {"step": 4, "dev_loss": 1.0}])
  (tmp_path / "metrics.jsonl").write_text(text)
  assert papers_table_runs.speed(tmp_path) == 500.0


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"seeds": 2}, "seeds is 2"),
    ({"test": 0}, "test is 0"),
    ({"data": ()}, "data is"),
    ({"systems": ("rnnsearch", "rnnsearch")}, "systems is"),
    ({"systems": ("rnnserach",)}, "no system 'rnnserach' .did you mean 'rnnsearch'"),
    ({"data": ("sounds", "verses"), "verses.data.name": "g2p"}, "of one data set"),
    ({"sounds.seed": 3}, "sounds.seed is 3"),
    ({"sounds.model.score": "general"}, "sounds.model.score is 'general'"),
    ({"sounds.model.maxout": 7}, "sounds.model.maxout is 7"),
  ],
)
def test_what_is_not_compared_or_chosen_by_systems_is_refused(change, message):
  with pytest.raises(configs.ConfigError, match=message):
    configs.override(Config(), change)


def test_profiles_and_sweeps_are_configurations():
  cells = itertools.chain(
    papers_table.profiles().values(), papers_table.sweep_quick(), papers_table.sweep_paper(),
    papers_table.sweep_gold(),
  )  # fmt: skip
  for overrides in cells:
    configs.override(Config(), overrides)


@pytest.mark.slow
def test_a_tiny_run_leaves_every_file_and_a_second_one_trains_nothing(tmp_path, monkeypatch):
  monkeypatch.setattr(papers_table.workers, "beside", lambda *_: contextlib.nullcontext())
  tiny = {
    **papers_table.profiles()["smoke"], "systems": ("rnnsearch",),
    "sounds.data.name": "reverse", "sounds.data.data_dir": str(tmp_path / "data"),
  }  # fmt: skip
  config = configs.override(Config(), tiny)
  result = papers_table.run(config, tmp_path / "run")
  assert result.seeds == (0, 1, 2) and result.claims == ()
  assert {"reverse, RNNsearch: symbols wrong", "reverse, RNNsearch: alignment error rate"} <= set(
    result.metrics
  )
  for path in result.figures:
    assert (tmp_path / "run" / path).stat().st_size > 1000
  assert "RNNsearch" in (tmp_path / "run" / "systems.md").read_text()
  trained = tmp_path / "run" / "checkpoints" / "sounds-rnnsearch" / "seed-2"
  before = (trained / "metrics.jsonl").stat().st_mtime_ns
  again = papers_table.run(config, tmp_path / "run")
  assert (trained / "metrics.jsonl").stat().st_mtime_ns == before
  assert again.metrics == result.metrics
