"""Lags and slopes of known pairs, gradients against jax.grad, and rules that can fail."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn import configs
from attn.data import catalog, corpora
from attn.evaluation.intervals import Interval
from attn.models import ModelConfig, bind, init
from attn.report import results
from attn.training import Trained, objective
from experiments import reversal, reversal_claims, reversal_runs
from experiments.reversal_claims import PUBLISHED
from experiments.reversal_runs import ARMS, ATTENTION, BOTH, DIRECTIONS, FIXED, FORWARD, REVERSED

R, Q, C, N = results.REPRODUCED, results.QUALIFIED, results.CONTRADICTED, results.NOT_RESOLVED
ABOVE, BELOW, WIDE = (Interval(m, m - 1, m + 1, 3) for m in (2.0, -2.0, 0.5))
ALWAYS, ONCE, NEVER = (True, True), (True, False), (False, False)


def test_reversing_a_monotone_pair_leaves_the_mean_lag_and_shortens_the_least():
  n = 7
  links = np.array([(i, i) for i in range(n)])
  assert reversal_runs.lags(links, n, FORWARD).tolist() == [n] * n
  assert reversal_runs.lags(links, n, REVERSED).tolist() == [2 * i - 1 for i in range(1, n + 1)]
  corpus = catalog.Corpus(("a b c", "a b c d e"), ("", ""), (links[:3], links[:5]))
  table = reversal_runs.lag_table(corpus)
  assert table[FORWARD] == {"least": [3, 5], "mean": [3, 5], "largest": [3, 5]}
  assert table[REVERSED] == {"least": [1, 1], "mean": [3, 5], "largest": [5, 9]}
  # Of a pair whose target is the source backwards it is the other way round.
  turned = np.array([(n - 1 - i, i) for i in range(n)])
  assert reversal_runs.lags(turned, n, REVERSED).tolist() == [n] * n


def test_a_slope_is_on_the_words_read_since():
  logs = [0.3 * at for at in range(5)]
  assert reversal_runs.slope(logs, FORWARD) == pytest.approx(-3)
  assert reversal_runs.slope(logs, REVERSED) == pytest.approx(3)


def test_places_are_fifths_of_each_target_without_its_end():
  real = np.arange(11) < np.array([[11], [6]])
  values = np.where(real, np.arange(11), 99.0)
  values[1, :6] = [10, 20, 30, 40, 50, 99]
  found = reversal_runs.by_place(values, real)
  np.testing.assert_allclose(found, [11 / 3, 25 / 3, 39 / 3, 53 / 3, 67 / 3])
  with pytest.raises(results.ResultError, match="no test target has a symbol in part 0"):
    reversal_runs.by_place(values[:, :2], real[:, :2] & [True, True])


def test_gradients_are_those_of_jax_grad():
  config = ModelConfig(
    source_vocabulary=13, target_vocabulary=11, embedding=3, units=2, maxout=7, biases=True,
    initialisation="luong", cell="lstm", encoder="forward", initial_state="all_layers",
    order="luong", source_eos=False, reverse_source=True, **ARMS[FIXED],
  )  # fmt: skip
  params = init(config, jax.random.key(3))
  source, target, length = np.array([[5, 7, 11, 2]]), np.array([[3, 10, 2, 0, 0]]), np.array([3])
  end, loss = reversal_runs.gradients(config, params, source, target, length)
  assert end.shape == loss.shape == (1, 4)
  assert end[0, -1] == loss[0, -1] == 0  # EOS is not read

  def of_table(table):
    model = bind(config, {**params, "source": table})
    (state,) = model.encode(source, jnp.array([4])).initial
    logits = model.teacher_forced(source, jnp.array([4]), target).logits
    return jnp.concatenate([state.h[0], state.c[0]]), objective.token_losses(logits, target, length)

  jacobian, by_loss = jax.jit(jax.jacrev(of_table))(params["source"])
  rows = jacobian[:, source[0]]
  np.testing.assert_allclose(end[0], np.sqrt((rows**2).sum((0, 2))), rtol=1e-4)
  np.testing.assert_allclose(
    loss[0], np.linalg.norm(by_loss.sum((0, 1))[source[0]], axis=-1), rtol=1e-4
  )


@pytest.mark.parametrize(
  ("recent", "gains", "excesses", "late", "verdict"),
  [
    (ALWAYS, [ABOVE], [ABOVE], [BELOW], R),
    (ALWAYS, [ABOVE], [ABOVE], [ABOVE], Q),
    (ALWAYS, [ABOVE], [ABOVE], [WIDE], Q),
    (ONCE, [ABOVE], [ABOVE], [BELOW], Q),
    (ALWAYS, [ABOVE, BELOW], [ABOVE, ABOVE], [BELOW, BELOW], Q),
    (ALWAYS, [ABOVE, WIDE], [WIDE, ABOVE], [BELOW, BELOW], N),
    (NEVER, [ABOVE], [ABOVE], [BELOW], N),
    (ALWAYS, [WIDE], [ABOVE], [BELOW], N),
    (ALWAYS, [ABOVE], [WIDE], [BELOW], N),
    (ALWAYS, [ABOVE], [], [BELOW], N),
    (ALWAYS, [], [], [], N),
    (ALWAYS, [BELOW], [ABOVE], [BELOW], C),
    (ALWAYS, [ABOVE], [BELOW], [BELOW], C),
  ],
)
def test_recency_may_be_why_a_part_of_it_or_not(recent, gains, excesses, late, verdict):
  assert reversal_claims.exactly_why(recent, gains, excesses, late) == verdict


@pytest.mark.parametrize(
  ("gains", "verdict"),
  [([ABOVE, ABOVE], Q), ([ABOVE, BELOW], Q), ([BELOW, BELOW], C), ([WIDE, BELOW], N), ([], N)],
)
def test_a_published_figure_is_judged_by_its_direction(gains, verdict):
  assert reversal_claims.direction(gains) == verdict


@pytest.mark.parametrize(
  ("differences", "symbols", "verdict"),
  [
    ([4.7, 4.75], Q, R),
    ([4.7, 4.42], Q, Q),
    ([4.7, 4.42], N, N),
    ([4.7, 4.42], C, C),
    ([4.42, 1.3], Q, C),
  ],
)
def test_a_worth_is_held_against_all_that_was_published(differences, symbols, verdict):
  assert reversal_claims.worth(differences, symbols) == verdict


def test_published_pairs_differ_as_the_papers_say():
  differences = [round(after - before, 2) for before, after in PUBLISHED.values()]
  assert differences == [4.7, 4.42, 0.24, 1.3]


def measured(loss, late, slope, jitter, right=60.0):
  norms = reversal_runs.Norms([slope * at for at in range(4)], [0.0] * 4)
  return reversal_runs.Measured(
    loss=loss + jitter, right=right, symbol_errors=10 * loss + jitter, word_errors=90.0,
    loss_by_place=[loss] * 4 + [late + jitter], right_by_place=[right] * 5,
    loss_by_length=[loss, None], right_by_length=[right, None], before=norms, after=norms,
  )  # fmt: skip


def runs(fixed, attention, late, right=60.0):
  """Three seeds of one data set; pairs are forward and reversed."""
  losses = {FIXED: fixed, ATTENTION: attention, BOTH: fixed}
  return {
    "copy": {
      arm: {
        way: [
          measured(losses[arm][at], late[at], -0.1 if way == REVERSED else 0.1, jitter, right)
          for jitter in (0.0, 0.001 * (at + 1), 0.003 * at)
        ]
        for at, way in enumerate(DIRECTIONS)
      }
      for arm in ARMS
    }
  }


@pytest.mark.parametrize(
  ("fixed", "attention", "late", "right", "verdicts"),
  [
    ((2, 1), (1, 1), (1, 2), 60.0, [R, Q, Q, Q]),
    ((2, 1), (1, 1), (2, 1), 60.0, [Q, Q, Q, Q]),
    ((1, 2), (1, 1), (1, 2), 60.0, [C, C, C, C]),
    ((2, 1), (1, 1), (1, 2), 20.0, [N, N, N, N]),
  ],
)
def test_every_claim_is_judged_from_the_runs(fixed, attention, late, right, verdicts):
  waits = {"copy": {way: {"least": [1.0], "mean": [3.0]} for way in DIRECTIONS}}
  judged = reversal_claims.judge(runs(fixed, attention, late, right), waits)
  assert tuple(claim.number for claim in judged) == reversal.CLAIMS
  assert [claim.verdict for claim in judged] == verdicts
  assert all(claim.interval is not None for claim in judged)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"seeds": 2}, "seeds is 2"),
    ({"words": 2}, "words is 2"),
    ({"sentences": 0}, "sentences is 0"),
    ({"test": 0}, "test is 0"),
    ({"arms": (ATTENTION,)}, "arms is"),
    ({"arms": (FIXED, "none")}, "arms is"),
    ({"data": ()}, "data is"),
    ({"data": ("copy", "copy")}, "data is"),
    ({"edges": (5, 3)}, "edges is"),
    ({"train.seed": 3}, "train.seed is 3"),
    ({"train.data.name": "g2p"}, "train.data.name is 'g2p'"),
    ({"train.model.reverse_source": True}, "train.model.reverse_source is True"),
    ({"train.model.score": "general"}, "train.model.score is 'general'"),
    ({"train.model.encoder": "bidirectional"}, "initial_state='all_layers'"),
  ],
)
def test_what_shows_nothing_or_is_set_here_is_refused(change, message):
  with pytest.raises(configs.ConfigError, match=message):
    configs.override(reversal.Config(), change)


def test_profiles_and_sweeps_are_configurations():
  for overrides in (
    *reversal.profiles().values(),
    *reversal.sweep_quick(),
    *reversal.sweep_paper(),
  ):
    configs.override(reversal.Config(), overrides)


@pytest.mark.slow
def test_a_tiny_run_leaves_every_file_and_decides_nothing(tmp_path, monkeypatch):
  """One cell is measured, untrained; the others are taken to have come out alike."""

  def grid(cells, seeds, folder, measure):
    name, config = next(iter(cells.items()))
    vocabularies = corpora.vocabularies(config.data, corpora.load(config.data, "train"))
    trained = Trained(init(config.model, jax.random.key(3)), config, *vocabularies, step=0)
    found = json.loads(results.to_json(measure(trained, name)))
    return {cell: [found] * len(seeds) for cell in cells}

  monkeypatch.setattr(reversal.workers, "grid", grid)
  tiny = {
    **reversal.profiles()["smoke"],
    "train.data.data_dir": str(tmp_path / "data"),
    "arms": (FIXED, ATTENTION),
  }
  config = configs.override(reversal.Config(), tiny)
  result = reversal.run(config, tmp_path / "run")
  assert {claim.verdict for claim in result.claims} == {N}  # nothing was learned
  assert len(result.figures) == 3
  for path in result.figures:
    assert (tmp_path / "run" / path).stat().st_size > 1000
  metrics = {name: one.mean for name, one in result.metrics.items()}
  assert metrics["copy, mean lag, forward"] == metrics["copy, mean lag, reversed"]
  assert metrics["copy, least lag, reversed"] == 1.0
  assert 2 < metrics["copy, loss, fixed vector, forward"] < 5  # 64 symbols, untrained: ln 64
  assert metrics["copy, symbol errors, fixed vector, forward"] > 50
