"""The rules of `experiments.bottleneck` can each come out every way, and a small run is whole."""

import contextlib
import dataclasses
import json
import os
import time

import jax
import numpy as np
import pytest

from attn import configs
from attn.data import catalog
from attn.evaluation.intervals import Interval
from attn.models import ModelConfig, bind, init
from attn.report import results
from attn.training.interrupts import Interrupts
from experiments import (
  bottleneck,
  bottleneck_capacity,
  bottleneck_claims,
  bottleneck_recall,
  bottleneck_runs,
  workers,
)  # fmt: skip
from experiments.bottleneck_capacity import BITS, REALS, Capacity
from experiments.bottleneck_claims import Evidence
from experiments.bottleneck_recall import AFTER, ATTENDED, BEFORE, Recall
from experiments.bottleneck_recall import ARMS as ASKED
from experiments.bottleneck_runs import (
  ARMS,
  ATTENTION,
  FIRST_STATE,
  FIXED,
  PAIR,
  Group,
  Measured,
)  # fmt: skip

ABOVE, BELOW, WIDE = (Interval(m, m - 1, m + 1, 3) for m in (2.0, -2.0, 0.5))


@pytest.mark.parametrize(
  "differences, learned, verdict",
  [
    ((ABOVE, ABOVE), True, results.REPRODUCED),
    ((ABOVE, WIDE), True, results.QUALIFIED),
    ((ABOVE, BELOW), True, results.QUALIFIED),
    ((BELOW, BELOW), True, results.CONTRADICTED),
    ((WIDE, BELOW), True, results.NOT_RESOLVED),
    ((ABOVE, ABOVE), False, results.NOT_RESOLVED),
  ],
)
def test_a_difference_must_lie_above_zero_on_every_data_set(differences, learned, verdict):
  assert bottleneck_claims.on_all(differences, learned=learned) == verdict


@pytest.mark.parametrize(
  "short, rises, unknown, learned, verdict",
  [
    (5.0, (ABOVE, ABOVE), ABOVE, True, results.REPRODUCED),
    (5.0, (ABOVE, ABOVE), WIDE, True, results.QUALIFIED),
    (5.0, (ABOVE, ABOVE), None, True, results.NOT_RESOLVED),
    (5.0, (ABOVE, WIDE), ABOVE, True, results.NOT_RESOLVED),
    (60.0, (ABOVE, ABOVE), ABOVE, True, results.NOT_RESOLVED),
    (5.0, (ABOVE, BELOW), ABOVE, True, results.CONTRADICTED),
    (5.0, (ABOVE, ABOVE), BELOW, True, results.CONTRADICTED),
    (5.0, (ABOVE, ABOVE), ABOVE, False, results.NOT_RESOLVED),
  ],
)
def test_few_errors_must_rise_with_length_and_unknown_letters(
  short, rises, unknown, learned, verdict
):
  assert bottleneck_claims.falls((short, 1.0), rises, unknown, learned=learned) == verdict


@pytest.mark.parametrize(
  "rises, learned, verdict",
  [
    ((BELOW, Interval(1, 0, 2, 3)), True, results.REPRODUCED),
    ((BELOW, ABOVE), True, results.QUALIFIED),
    ((ABOVE, ABOVE), True, results.NOT_RESOLVED),  # from 1 to 3: 2 lies between
    ((Interval(5, 3, 7, 3), Interval(4, 3, 5, 3)), True, results.CONTRADICTED),
    ((BELOW, BELOW), False, results.NOT_RESOLVED),
  ],
)
def test_attention_may_stay_as_good_on_long_sources_or_not(rises, learned, verdict):
  assert bottleneck_claims.stays(rises, learned=learned) == verdict


@pytest.mark.parametrize(
  "largest, smaller, verdict",
  [
    ((100, 100), {250: 4}, results.REPRODUCED),
    ((100, 100), {250: 99}, results.QUALIFIED),
    ((100, 100), {3: 4}, results.QUALIFIED),  # 3 reals have no bits to spare
    ((100, 40), {250: 4}, results.CONTRADICTED),
    ((100, 98.5), {250: 4}, results.NOT_RESOLVED),
  ],
)
def test_bits_may_suffice_or_not(largest, smaller, verdict):
  around = lambda value: Interval(value, value - 1, value + 1, 5)  # noqa: E731
  exact = [Interval(v, v, v, 5) if v == 100 else around(v) for v in largest]
  smaller = {width: around(value) for width, value in smaller.items()}
  assert bottleneck_claims.enough(exact, smaller, 714) == verdict


@pytest.mark.parametrize(
  "rises, excesses, learned, verdict",
  [
    ((ABOVE, ABOVE), (ABOVE, ABOVE), True, results.REPRODUCED),
    ((ABOVE, ABOVE), (ABOVE, WIDE), True, results.QUALIFIED),
    ((ABOVE, ABOVE), (BELOW, BELOW), True, results.QUALIFIED),
    ((ABOVE, WIDE), (ABOVE, ABOVE), True, results.NOT_RESOLVED),
    ((BELOW, ABOVE), (ABOVE, ABOVE), True, results.CONTRADICTED),
    ((ABOVE, ABOVE), (ABOVE, ABOVE), False, results.NOT_RESOLVED),
  ],
)
def test_a_fall_is_the_fixed_vectors_own_if_attention_falls_less(rises, excesses, learned, verdict):
  assert bottleneck_claims.falls_more(rises, excesses, learned=learned) == verdict


@pytest.mark.parametrize(
  "fixed, attention, fed, first_state, verdict",
  [
    (0.0, 0.3, 0.2, 0.0, results.QUALIFIED),
    (0.0, 0.3, 0.2, 1e-9, results.REPRODUCED),
    (1e-9, 0.3, 0.2, 0.0, results.CONTRADICTED),
    (0.0, 0.0, 0.2, 0.0, results.CONTRADICTED),
    (0.0, 0.3, 0.0, 0.0, results.CONTRADICTED),
  ],
)
def test_contexts_must_be_one_vector_exactly_without_attention_only(
  fixed, attention, fed, first_state, verdict
):
  assert bottleneck_claims.same_context(fixed, attention, fed, first_state) == verdict


def measured(short, long, change, effect, symbol_errors, kept):
  """One run, with a group of short and one of long sources."""
  groups = (Group("1-5", 10, short, short), Group("6+", 10, long, long))
  return Measured(
    20, symbol_errors, symbol_errors, groups, change, effect, kept, None, None, groups
  )


def evidence(arms, **changes):
  """What the claims are judged from, with the same runs everywhere."""
  given = {
    "measured": {"g2p": arms, "reverse": arms}, "unknown": arms, "beyond": arms, "widths": {},
    "capacity": Capacity(widths=(250, 8000), sentences=3),
    "held": {kind: [[4, 4, 5], [100, 100, 100]] for kind in (REALS, BITS)},
    "recall": Recall(widths=(2, 32)),
    "recalled": {
      BEFORE: [[50, 51, 52], [99, 99, 99]], AFTER: [[20, 21, 22], [90, 98, 99]],
      ATTENDED: [[99, 99, 99]] * 2,
    },
  }  # fmt: skip
  return Evidence(**{**given, **changes})


def test_every_claim_is_judged_from_the_runs():
  arms = {
    ATTENTION: [measured(1, 2, 0.5, 0.4, 1.5, 80), measured(1, 2, 0.5, 0.4, 1.6, 81)],
    FIXED: [measured(2, 20, 0.0, 0.3, 11, 10), measured(2, 20.1, 0.0, 0.3, 11.1, 11)],
    FIRST_STATE: [measured(9, 90, 0.0, 0.0, 50, 1), measured(9, 99, 0.0, 0.0, 51, 2)],
  }
  judged = {claim.number: claim for claim in bottleneck_claims.judge(evidence(arms))}
  assert tuple(judged) == bottleneck.CLAIMS
  assert {number: claim.verdict for number, claim in judged.items()} == {
    "16": results.REPRODUCED, "17": results.QUALIFIED, "23": results.REPRODUCED,
    "25": results.REPRODUCED, "26": results.REPRODUCED, "42": results.QUALIFIED,
    "73": results.REPRODUCED,
  }  # fmt: skip
  assert "helps at widths 2," in judged["17"].why and "6+" in judged["26"].measured
  less = evidence(arms, unknown=None, recalled={arm: [[9, 8, 9]] * 2 for arm in ASKED})
  judged = {claim.number: claim for claim in bottleneck_claims.judge(less)}
  assert {judged[number].verdict for number in ("17", "23")} == {results.NOT_RESOLVED}
  assert "0.3 where the vector is fed at each step, 0 where" in judged["42"].measured
  fed = {**arms, FIRST_STATE: arms[FIXED]}
  judged = {c.number: c for c in bottleneck_claims.judge(evidence(fed))}
  assert judged["42"].verdict == results.REPRODUCED
  swapped = {**arms, ATTENTION: arms[FIXED], FIXED: arms[ATTENTION]}
  judged = {c.number: c for c in bottleneck_claims.judge(evidence(swapped))}
  assert [judged[n].verdict for n in ("25", "26", "42", "73")] == [
    results.QUALIFIED, results.CONTRADICTED, results.CONTRADICTED, results.CONTRADICTED,
  ]  # fmt: skip
  for claim in judged.values():
    assert claim.measured and claim.why


@pytest.mark.parametrize(
  "change, message",
  [
    ({"g2p.model.score": "none"}, "g2p.model.score is 'none'"),
    ({"reverse.data.name": "g2p"}, "reverse.data.name is 'g2p'"),
    ({"g2p.seed": 3}, "g2p.seed is 3"),
    ({"test": 0}, "test is 0"),
    ({"reverse_edges": (15, 5)}, "reverse_edges is"),
    ({"small.data.name": "g2p"}, "small.data.name is 'g2p'"),
    ({"known": 20}, "known is 20"),
    ({"beyond": 20}, "beyond is 20"),
    ({"capacity.sentences": 2}, "capacity.sentences is 2"),
    ({"recall.widths": (8,)}, "recall.widths is"),
  ],
)
def test_what_the_experiment_sets_itself_is_refused(change, message):
  with pytest.raises(configs.ConfigError, match=message):
    configs.override(bottleneck.Config(), change)


def test_two_seeds_are_refused():
  with pytest.raises(configs.ConfigError, match="seeds is 2"):
    bottleneck.Config(seeds=2)


def test_the_models_differ_in_what_the_decoder_sees_of_the_source_alone():
  """Same sizes, data, batches and updates; the sizes of vocabulary let them share programs."""
  config = bottleneck.Config()
  assert config.g2p.model == config.reverse.model
  one, other, last = (configs.override(config.g2p, changes) for changes in ARMS.values())
  assert [path for path, *_ in configs.differences(one, other)] == ["model.score"]
  assert {path for path, *_ in configs.differences(other, last)} == {
    "model.context", "model.project_summary"
  }  # fmt: skip


def test_a_vector_that_is_a_first_state_enters_no_step():
  base = ModelConfig(
    source_vocabulary=11, target_vocabulary=13, embedding=3, units=5, alignment=7, maxout=2,
    initialisation="glorot",
  )  # fmt: skip
  draw = np.random.default_rng(1)
  batch = {
    "source": draw.integers(4, 11, (2, 6)), "source_length": np.array([6, 4]),
    "target": draw.integers(4, 13, (2, 5)), "target_length": np.array([5, 3]),
  }  # fmt: skip
  found, memories = {}, {}
  for arm, changes in ARMS.items():
    options = {path.removeprefix("model."): value for path, value in changes.items()}
    config = dataclasses.replace(base, **options)
    params = init(config, jax.random.key(2))
    found[arm] = [float(one) for one in bottleneck_runs.probe(config, params, batch)[:2]]
    memories[arm] = bind(config, params).encode(batch["source"], batch["source_length"])
  change, effect = ({arm: one[at] for arm, one in found.items()} for at in (0, 1))
  assert change[FIXED] == change[FIRST_STATE] == 0 < change[ATTENTION]
  assert effect[FIRST_STATE] == 0 < min(effect[FIXED], effect[ATTENTION])
  # The first state is made from all of the vector, both directions of it.
  np.testing.assert_array_equal(memories[FIRST_STATE].initial, memories[FIRST_STATE].summary)
  assert memories[FIRST_STATE].initial.shape == (2, 10)


def test_cells_are_what_the_profile_asks_for():
  config = configs.override(bottleneck.Config(), bottleneck.profiles()["full"])
  assert list(config.cells) == [
    "g2p", "reverse", "unknown", "units-16", "units-32", "units-128", "beyond"
  ]  # fmt: skip
  assert config.cells["unknown"][0].data.source_size == 21
  assert config.cells["units-32"][0].model.units == 32
  # 12 letters and EOS are trained on; the other groups are longer.
  assert config.cells["beyond"][0].data.bucket_edges == (13,)
  assert config.cells["beyond"][1] == (12, 16)
  # What is of one size is trained in one process a model, the others in their own.
  assert bottleneck._shares(config) == [
    (["g2p", "reverse", "unknown"], ATTENTION), (["g2p", "reverse", "unknown"], FIXED),
    (["g2p", "reverse"], FIRST_STATE),
    *(
      ([name], arm) for name in ("units-16", "units-32", "units-128", "beyond") for arm in PAIR
    ),
  ]  # fmt: skip
  for overrides in (*bottleneck.sweep_quick(), *bottleneck.sweep_paper()):
    configs.override(bottleneck.Config(), overrides)


def test_what_is_written_into_a_vector_can_be_read():
  draw = np.random.default_rng(3)
  packed = draw.integers(0, 256, (2, 2), np.uint8)
  words = bottleneck_capacity.codes(packed, 11)
  assert words.shape == (2, 11) and set(np.unique(words)) == {-1.0, 1.0}
  places = np.stack([draw.permutation(11) for _ in words])
  vector = bottleneck_capacity.written(words, places)
  # Read from its places, a word is there, and the other one is noise.
  np.testing.assert_array_equal(
    vector[places[0]] - words[0], words[1][np.argsort(places[1])][places[0]]
  )
  config = Capacity(widths=(31, 4001), words=7, vocabulary=211, sentences=3)
  held = bottleneck_capacity.measure(config, 5, lambda **row: None)
  assert held[REALS][1] == [100.0] * 3 == held[BITS][1]
  assert max(held[REALS][0] + held[BITS][0]) < 90


def test_only_what_is_asked_before_reaches_the_state_before():
  config = Recall(widths=(3, 5), pairs=4, values=7, lists=2, steps=20)
  params = bottleneck_recall.initial(np.random.default_rng(1), 5, config)
  keys, values, asked = (one[0] for one in bottleneck_recall.draw(np.random.default_rng(2), config))
  assert sorted(keys[0].tolist()) == [0, 1, 2, 3] and values.shape == (2, 4)
  # Without the readout's own sight of the question, only these two depend on it.
  blind = {**params, "u_h": 0 * params["u_h"]}
  for arm in ASKED:
    logits = [
      bottleneck_recall.answer(blind, keys, values, other, arm=arm, config=config)
      for other in (asked, (asked + 1) % 4)
    ]
    assert np.allclose(*logits, atol=1e-6) == (arm == AFTER)
    assert logits[0].shape == (2, 7)


def test_units_that_fill_up_a_narrow_state_take_no_part():
  config = Recall(widths=(3, 5), pairs=4, values=7, lists=2, steps=20)
  alone = dataclasses.replace(config, widths=(2, 3))
  filled, exact = (
    bottleneck_recall.initial(np.random.default_rng(1), 3, c) for c in (config, alone)
  )
  assert filled["w_h"].shape == (20, 5) and exact["w_h"].shape == (12, 3)
  lists = [one[0] for one in bottleneck_recall.draw(np.random.default_rng(2), config)]
  for arm in ASKED:
    answers = [
      bottleneck_recall.answer(params, *lists, arm=arm, config=config) for params in (filled, exact)
    ]
    np.testing.assert_allclose(*answers, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_smoke_run_leaves_every_file_and_a_second_one_trains_nothing(tmp_path, monkeypatch):
  # g2p needs the network or its wheel; the generated data set stands in for it here.
  load, prepare = catalog.load, catalog.prepare
  monkeypatch.setattr(catalog, "prepare", lambda name, folder: prepare("reverse", folder))
  monkeypatch.setattr(catalog, "load", lambda name, *args: load("reverse", *args))
  monkeypatch.setattr(catalog, "levels", lambda name: ("symbol", "symbol"))
  monkeypatch.setattr(bottleneck.workers, "beside", lambda *_: contextlib.nullcontext())
  data = {f"{name}.data.data_dir": str(tmp_path / "data") for name in ("g2p", "reverse")}
  smoke = {**bottleneck.profiles()["smoke"], **data, "g2p_edges": (5, 10)}
  config = configs.override(bottleneck.Config(), smoke)
  result = bottleneck.run(config, tmp_path / "run")
  assert result.profile == "custom" and result.seeds == (0, 1, 2)
  assert {claim.number for claim in result.claims} == set(bottleneck.CLAIMS)
  for path in result.figures:
    assert (tmp_path / "run" / path).stat().st_size > 1000
  runs = sorted((tmp_path / "run" / "checkpoints").iterdir())
  assert len(runs) == 18
  for arm in ARMS:
    assert f"g2p, symbol errors of 11+ letters, {arm}" in result.metrics
  before = {run: (run / "metrics.jsonl").stat().st_mtime_ns for run in runs}
  again = bottleneck.run(config, tmp_path / "run")
  assert {run: (run / "metrics.jsonl").stat().st_mtime_ns for run in runs} == before
  assert again.metrics == result.metrics
  one = json.loads((runs[0] / "measured.json").read_text())
  assert set(one) == {field.name for field in dataclasses.fields(Measured)}


def leave(folder, name):
  """Something for another process to do: a file that says which it was, and how many there were."""
  (folder / f"{name} is busy").touch()
  time.sleep(1)
  (folder / name).write_text(f"{os.getpid()} {len(list(folder.glob('* is busy')))}")
  (folder / f"{name} is busy").unlink()
  if name == "fails":
    raise RuntimeError("seen by the caller's own call")


def test_calls_beside_a_block_are_each_made_in_a_process_of_their_own(tmp_path, monkeypatch):
  monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
  names = ("fails", "second", "third")
  with workers.beside(leave, [(tmp_path, name) for name in names]):
    assert not any((tmp_path / name).exists() for name in names)  # The block waits for none.
  pids, beside = zip(*[(tmp_path / name).read_text().split() for name in names], strict=True)
  assert len({*pids, str(os.getpid())}) == 4
  assert max(map(int, beside)) <= 2  # no more at once than cores


@pytest.mark.parametrize(
  ("alone", "shares"), [(False, [["a", "c"], ["b"]]), (True, [["a"], ["b"], ["c"]])]
)
def test_a_grid_gives_processes_every_other_cell_or_one(alone, shares, tmp_path, monkeypatch):
  given = []
  monkeypatch.setattr(
    workers, "beside", lambda _, calls: given.extend(calls) or contextlib.nullcontext()
  )
  cells = dict.fromkeys("abc")
  with workers.grid_beside(cells, (5, 7), tmp_path, len, alone=alone):
    assert [(list(share), *others) for share, *others in given] == [
      (names, (5, 7), tmp_path, len) for names in shares
    ]


def last(folder, name):
  """As training does: it heeds a signal when a step is whole, and saves it in the end."""
  try:
    with Interrupts() as stop:
      (folder / f"{name} began").touch()
      while stop.asked is None:
        time.sleep(0.01)
  finally:
    (folder / f"{name} saved").touch()


def test_an_error_in_the_block_has_what_runs_beside_it_saved_and_starts_nothing_more(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
  with pytest.raises(ZeroDivisionError):
    with workers.beside(last, [(tmp_path, name) for name in ("first", "second", "third")]):
      while len(list(tmp_path.iterdir())) < 2:
        time.sleep(0.01)
      raise ZeroDivisionError
  names = {path.name for path in tmp_path.iterdir()}
  assert names == {"first began", "first saved", "second began", "second saved"}
