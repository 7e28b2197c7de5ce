"""The rules of `experiments.cost` can come out every way; its counts are those of `attn.cost`."""

import dataclasses
import math
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attn
from attn import configs, presets
from attn.evaluation.intervals import Interval
from attn.report import results
from experiments import cost, cost_claims, cost_counts, cost_language, cost_timings

ABOVE, BELOW, WIDE = (Interval(m, m - 1, m + 1, 5) for m in (2.0, -2.0, 0.5))
REPRODUCED, QUALIFIED, CONTRADICTED, NOT_RESOLVED = (
  results.REPRODUCED, results.QUALIFIED, results.CONTRADICTED, results.NOT_RESOLVED,
)  # fmt: skip


@pytest.mark.parametrize(
  ("rule", "arguments", "verdict"),
  [
    ("counted", (8000, 8000), REPRODUCED),
    ("counted", (8001, 8000), CONTRADICTED),
    ("at_most", (864.386, 865), QUALIFIED),
    ("at_most", (864.6, 865), REPRODUCED),
    ("at_most", (865.1, 865), CONTRADICTED),
    ("less_than_uniform", ([ABOVE, ABOVE],), REPRODUCED),
    ("less_than_uniform", ([ABOVE, WIDE],), QUALIFIED),
    ("less_than_uniform", ([WIDE, BELOW],), NOT_RESOLVED),
    ("less_than_uniform", ([BELOW, BELOW],), CONTRADICTED),
    ("same_outputs", (1e-6,), REPRODUCED),
    ("same_outputs", (1e-3,), CONTRADICTED),
    ("same_outputs", (math.nan,), CONTRADICTED),
    ("only", (1000, 0), REPRODUCED),
    ("only", (1000, 150), QUALIFIED),
    ("only", (1000, 1000), CONTRADICTED),
    ("one_product", (1, 1), REPRODUCED),
    ("one_product", (1, 60), QUALIFIED),
    ("one_product", (60, 60), CONTRADICTED),
    ("linear", ({4: 80, 50: 1000}, {4: 10, 50: 10}, (1000, 100)), REPRODUCED),
    ("linear", ({4: 81, 50: 1000}, {4: 10, 50: 10}, (1000, 100)), CONTRADICTED),
    ("linear", ({4: 80, 50: 1000}, {4: 10, 50: 11}, (1000, 100)), CONTRADICTED),
    ("linear", ({4: 80, 50: 1000}, {4: 10, 50: 10}, (1000, 99)), CONTRADICTED),
    ("linear", ({50: 1000}, {50: 10}, (1000, 100)), CONTRADICTED),
    ("one_vector", (1000, 1000, 1000), REPRODUCED),
    ("one_vector", (1000, 1000, 2001000), QUALIFIED),
    ("one_vector", (1000, 2000, 2000), CONTRADICTED),
    ("a_cache", (88, 88, 0, 1e-6), QUALIFIED),
    ("a_cache", (88, 88, 88, 1e-6), REPRODUCED),
    ("a_cache", (88, 64, 0, 1e-6), CONTRADICTED),
    ("a_cache", (88, 88, 0, 1e-2), CONTRADICTED),
    ("a_cache", (88, 88, 0, math.nan), CONTRADICTED),
  ],
)
def test_every_rule_can_come_out_every_way(rule, arguments, verdict):
  assert getattr(cost_claims, rule)(*arguments) == verdict


@pytest.mark.parametrize(
  ("rows", "counts", "verdict"),
  [
    (160_000, ((2, 2), (3, 1)), REPRODUCED),
    (160_000, ((2, 2), (1, 3)), CONTRADICTED),
    (160_001, ((2, 2), (3, 1)), CONTRADICTED),
  ],
)
def test_the_vocabulary_has_its_size_and_keeps_what_is_commonest(rows, counts, verdict):
  languages = [
    cost_language.Language(name, 5, 2.0, ABOVE, *kept_and_dropped)
    for name, kept_and_dropped in zip(("sources", "targets"), counts, strict=True)
  ]
  fixed = {cost_claims.SOURCE: cost_counts.Kept(((1000,),) * 8, 8000, 256_000)}
  measured = types.SimpleNamespace(fixed=fixed, rows=rows, languages=languages)
  judged = {claim.number: claim.verdict for claim in cost_claims._judge_bits(measured)}
  assert judged["11"] == verdict


def test_a_loops_products_count_every_turn():
  def looped(x, w):
    return jax.lax.scan(lambda h, _: (jnp.tanh(w @ h), None), x, None, length=7)[0] @ x

  assert cost_counts.work(looped, jnp.ones(5), jnp.ones((5, 5))) == (7 * 25 + 5, 35, 8)
  with pytest.raises(ValueError, match="while"):
    cost_counts.work(lambda x: jax.lax.while_loop(lambda x: x < 9, lambda x: x + 1, x), 3)


def test_traced_steps_are_those_of_the_accounts():
  """At the paper's sizes; the parts make up the whole step."""
  here, again = (cost_counts.step_work(50, at_hand=at_hand) for at_hand in (True, False))
  paper = {"source": 50, "width": 2000, "alignment": 1000, "query": 1000}
  assert here["attention"].macs == attn.cost.attention_macs(**paper)
  assert again["attention"].macs == attn.cost.attention_macs(**paper, precomputed=False)
  assert sum(here[part].macs for part in cost_counts.PARTS) == here["step"].macs
  account = attn.cost.decoder_macs(
    embedding=620, state=1000, width=2000, alignment=1000, source=50, maxout=500, vocabulary=30_000
  )
  assert here["step"].macs == sum(account.values())
  assert cost_counts.read_work(50, at_hand=True)["score"].tanh == 50 * 1000
  whole = cost_counts.keys_work(50).macs + 60 * here["attention"].macs
  assert whole == attn.cost.attention_macs(**paper, target=60)


def test_only_without_input_feeding_are_all_dot_scores_one_product():
  assert cost_counts.dot_products(11, 7) == (1, 7)


def small(preset, monkeypatch):
  """Lets a preset's model be small."""
  model = dataclasses.replace(
    presets.get(preset).model, units=7, alignment=5, embedding=3, maxout=2, initialisation="luong"
  )
  monkeypatch.setattr(presets, "get", lambda name: types.SimpleNamespace(model=model))


def test_the_fixed_vector_is_counted_on_live_arrays(monkeypatch):
  small(cost_counts.SUTSKEVER, monkeypatch)
  found, rows = cost_counts.fixed_vector([2, 11])
  assert rows == 160_000
  assert {length: kept.reals for length, kept in found.items()} == {2: 56, 11: 56}
  assert found[2].arrays == ((7,),) * 8 and found[2].bits == 32 * 56


def test_annotations_are_counted_on_live_arrays(monkeypatch):
  small(cost_counts.BAHDANAU, monkeypatch)
  annotations, keys = cost_counts.annotations([2, 11])
  assert {length: kept.reals for length, kept in annotations.items()} == {2: 28, 11: 154}
  assert {length: kept.reals for length, kept in keys.items()} == {2: 10, 11: 55}


def test_decoding_word_by_word_is_the_whole_pass_from_what_is_kept():
  found = cost_counts.cache(0, source=5, target=3)
  assert found.position == found.key_and_value == 24 + 64 and found.growth == 0
  assert found.difference < 1e-5


def test_words_cost_what_their_frequencies_say():
  """Each of 4 words and the unknown one has a count more than it occurs: 5 of 13 for a."""
  train = ["a b", "a c", "a d", "a b"]
  found = cost_language.of_texts("toy", train, ["a a", "a z"])
  assert (found.words, found.uniform) == (4, 2.0)
  a, unknown = math.log2(13 / 5), math.log2(13)
  np.testing.assert_allclose(found.saved.mean, 2 - (3 * a + unknown) / 4)
  assert found.saved.n == 2
  assert (found.rarest_kept, found.commonest_dropped) == (2, 1)


def test_projecting_at_every_step_gives_the_same():
  sizes = cost_timings.Sizes(batch=2, units=7, embedding=3, alignment=5, maxout=2, vocabulary=11)
  found = cost_timings.measure_length(sizes, 3, repeats=6, seed=0)
  assert found.difference < 1e-5
  assert set(found.times) == {cost_timings.FIXED, cost_timings.ATTENTION, cost_timings.EACH_STEP}
  assert all(len(times.seconds) == 6 for times in found.times.values())
  assert min(*found.forward.values(), *found.training.values()) > 0


def test_contenders_take_turns():
  calls = []
  slow = cost_timings.SAMPLE * 1.2  # once is enough for a sample

  def call(name):
    calls.append(name)
    time.sleep(slow)

  times = cost_timings.take_turns({name: lambda n=name: call(n) for name in "ab"}, 6)
  assert calls[-12:] == list("ab" * 6)
  assert min(times["a"].seconds) >= slow
  assert times["a"].over(times["b"]).low > 0


@pytest.mark.parametrize(
  "change, message",
  [
    ({"lengths": (10,)}, "lengths is"),
    ({"lengths": (20, 10)}, "lengths is"),
    ({"kept": ()}, "kept is"),
    ({"repeats": 5}, "repeats is 5"),
  ],
)
def test_settings_that_show_nothing_are_refused(change, message):
  with pytest.raises(configs.ConfigError, match=message):
    configs.override(cost.Config(), change)


@pytest.mark.parametrize("cells", [cost.sweep_quick(), cost.sweep_paper()])
def test_sweeps_are_of_different_settings(cells):
  made = [configs.override(cost.Config(), cell) for cell in cells]
  assert len(set(made)) == len(cells) > 1


@pytest.mark.slow
def test_a_smoke_run_judges_every_claim(tmp_path):
  # The text needs the network; letters, all as likely, stand in for it.
  smoke = {**cost.profiles()["smoke"], "corpus": "copy", "data_dir": str(tmp_path / "data")}
  config = configs.override(cost.Config(), smoke)
  result = cost.run(config, tmp_path / "run")
  verdicts = {claim.number: claim.verdict for claim in result.claims}
  assert sorted(verdicts) == sorted(cost.CLAIMS)
  assert verdicts.pop("15") in (CONTRADICTED, NOT_RESOLVED)
  qualified = {number for number, verdict in verdicts.items() if verdict == QUALIFIED}
  assert qualified == {"13", "47", "59", "77", "78"}
  assert set(verdicts.values()) == {REPRODUCED, QUALIFIED}
  for path in result.figures:
    assert (tmp_path / "run" / path).stat().st_size > 1000
