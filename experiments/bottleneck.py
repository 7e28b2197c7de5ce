"""What does a fixed vector cost, against attention, as sources grow longer?

Two models that differ in attention alone are trained side by side: RNNsearch reads annotations
through additive attention, the other decodes from one vector, the encoder's last states in both
directions, fed at every step (RNNencdec, with RNNsearch's encoder in place of a forward one, so
that nothing but attention differs). Both see the same batches in the same order for the same
number of updates. `g2p` is real: English spelling to sound, the whole of CMUdict or as much of it
as the profile's updates reach. `reverse` is generated: letters to be said backwards, with the
alignment known. Lengths lie inside the training range.

Errors by length are symbol errors (edits to the nearest reference over its symbols), because a
whole word's chance of being wrong grows with its length even if each symbol's does not.

Command: python -m launch.run --experiment=bottleneck
Time: on two cores, a model a process: default 6 to 9 minutes by estimate (12 runs x 55 to 85 s /
2), smoke 15 to 25 seconds (8 runs of 12 updates, most of it compiling), full 2.5 hours by estimate
(20 runs x 15 min / 2). The last has not been run yet. A killed run goes on where it was.
Expect: on `reverse` the fixed vector gets half of the symbols wrong beyond 15 letters, attention
none; on g2p both do alike up to 5 letters, and from 12 on it makes 2.5 times as many errors.

Rules, stated before the run. Intervals are over seeds, paired where two models are compared, and
hold on all data sets together with 95%. The trained claims are not resolved unless attention makes
fewer than LEARNED % symbol errors on each data set: models that have not learned tell nothing.
  23 `falls`: the fixed vector makes fewer than WELL % symbol errors on the shortest sources, and
    its error rises from them to the longest ones. A rise below 0 on some data set: contradicted;
    both on every one: qualified, as the claim's other half, unknown words, is not measured here;
    else not resolved.
  25 `falls_more`: that rise, and how much it exceeds the rise with attention. A rise below 0 on
    some data set: contradicted. Rise and excess above 0 on every one: reproduced. The rise alone:
    qualified, since longer words may be harder for any model. Else not resolved.
  42 `same_context`: the contexts of the fixed-vector model differ between steps by exactly nothing
    and those of attention do: qualified, as it holds where the vector is fed at each step; a vector
    that is only an initial state (Sutskever 2014) is no context. Else contradicted. This checks the
    code as built more than the world.
  73 `on_all`: with the vector cut, the decoder started from zeros, the share of symbols that are
    still predicted along the reference, with attention less without: what arrives by another
    channel. Above 0 on every data set: reproduced; below on every one: contradicted; above on some:
    qualified; else not resolved.
"""

import dataclasses
import operator
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from attn import configs
from attn.data import catalog
from attn.data.config import DataConfig
from attn.decoding.config import SearchConfig
from attn.evaluation.intervals import Interval, mean_interval, paired_interval
from attn.models import ModelConfig
from attn.report import recorder, results
from attn.report.results import Claim, Metric, Verdict
from attn.training import OptimizerConfig, TrainConfig
from experiments import bottleneck_figures as drawn
from experiments import claims, workers
from experiments.bottleneck_runs import ARMS, ATTENTION, FIXED, Measured, measure

CLAIMS = ("23", "25", "42", "73")

LEARNED = 50.0
WELL = 25.0

# One size of vocabulary and one set of buckets for both data sets, so that the programs compiled
# for one serve the other; rows beyond a data set's symbols stay unused.
_MODEL = ModelConfig(
  source_vocabulary=64,
  target_vocabulary=64,
  embedding=64,
  units=128,
  alignment=64,
  maxout=64,
  biases=True,
  initialisation="glorot",
)
_DATA = DataConfig(batch_size=128, bucket_edges=(10, 22, 36))
_TRAIN = TrainConfig(
  model=_MODEL,
  data=_DATA,
  optimizer=OptimizerConfig(learning_rate=3e-3, warmup=100),
  search=SearchConfig(beam=1),
  validate_every=None,
  checkpoint_every=500,
)


@dataclasses.dataclass(frozen=True)
class Config:
  """What is trained on each data set, and how often.

  Attributes:
    g2p: the run with attention on g2p; the fixed vector's differs in `model.score` alone.
    reverse: the same on `reverse`.
    seed: the first seed.
    seeds: how many, counting up from it; at least 2, for an interval.
    test: test sources decoded a run; None takes all.
    g2p_edges: longest sources, in letters, of the groups of g2p.
    reverse_edges: longest sources, in letters, of the groups of `reverse`.
  """

  g2p: TrainConfig = dataclasses.replace(
    _TRAIN, data=dataclasses.replace(_DATA, name="g2p"), steps=800
  )
  reverse: TrainConfig = dataclasses.replace(
    _TRAIN, data=dataclasses.replace(_DATA, name="reverse"), steps=500
  )
  seed: int = 0
  seeds: int = 3
  test: int | None = None
  g2p_edges: tuple[int, ...] = (5, 7, 9, 11)
  reverse_edges: tuple[int, ...] = (5, 10, 15)

  def __post_init__(self) -> None:
    """Refuses a single seed: a verdict never rests on one."""
    if self.seeds < 2:
      raise configs.ConfigError(f"seeds is {self.seeds}: an interval needs at least 2")
    if self.test is not None and self.test < 1:
      raise configs.ConfigError(f"test is {self.test}: at least one source has to be decoded")
    for name, (train, edges) in self.data.items():
      # What the experiment sets itself: another value would be overwritten, or mislabelled.
      for path, own in (("data.name", name), ("model.score", "additive"), ("seed", 0)):
        if (asked := operator.attrgetter(path)(train)) != own:
          raise configs.ConfigError(f"{name}.{path} is {asked!r}: it is {own!r} in this experiment")
      if list(edges) != sorted(set(edges)) or not edges:
        raise configs.ConfigError(f"{name}_edges is {edges}: it must be rising lengths")

  @property
  def all_seeds(self) -> range:
    """Every seed that is run."""
    return range(self.seed, self.seed + self.seeds)

  @property
  def data(self) -> dict[str, tuple[TrainConfig, tuple[int, ...]]]:
    """By name: the run with attention, and the edges of its groups by length."""
    return {"g2p": (self.g2p, self.g2p_edges), "reverse": (self.reverse, self.reverse_edges)}


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  both = lambda **values: {  # noqa: E731
    f"{data}.{path.replace('__', '.')}": value
    for data in ("g2p", "reverse")
    for path, value in values.items()
  }
  smoke = {
    **both(
      steps=12, data__limit=1000, data__batch_size=32, data__bucket_edges=(36,), model__units=16,
      model__embedding=8, model__alignment=8, model__maxout=8,
    ),
    "seeds": 2,
    "test": 64,
  }  # fmt: skip
  full = {
    **both(model__units=256, model__embedding=128, model__alignment=128, model__maxout=128,
           model__dropout=0.2, search__beam=5),
    "g2p.steps": 9000, "reverse.steps": 3000, "seeds": 5,
  }  # fmt: skip
  return {"smoke": smoke, "default": {}, "full": full}


def sweep_quick() -> list[dict[str, Any]]:
  """The width of the states, which bounds what a fixed vector can hold."""
  return [
    {**profiles()["smoke"], "g2p.model.units": units, "reverse.model.units": units}
    for units in (8, 16, 32)
  ]


def same_context(fixed: float, attention: float) -> Verdict:
  """Whether contexts are one vector for all steps exactly where there is no attention.

  Args:
    fixed: largest difference between contexts of one target, fixed vector.
    attention: the same with attention.
  """
  return results.QUALIFIED if fixed == 0.0 < attention else results.CONTRADICTED


def falls(short: Sequence[float], rises: Sequence[Interval], *, learned: bool) -> Verdict:
  """Whether few errors on short sources grow with length; an error and a rise a data set."""
  if not learned:
    return results.NOT_RESOLVED
  if any(rise.high < 0 for rise in rises):
    return results.CONTRADICTED
  shown = all(rise.low > 0 for rise in rises) and all(error < WELL for error in short)
  return results.QUALIFIED if shown else results.NOT_RESOLVED


def falls_more(
  rises: Sequence[Interval], excesses: Sequence[Interval], *, learned: bool
) -> Verdict:
  """Whether errors rise with length, and by more than with attention; intervals a data set."""
  if not learned:
    return results.NOT_RESOLVED
  if any(rise.high < 0 for rise in rises):
    return results.CONTRADICTED
  if not all(rise.low > 0 for rise in rises):
    return results.NOT_RESOLVED
  return results.REPRODUCED if all(e.low > 0 for e in excesses) else results.QUALIFIED


def on_all(differences: Sequence[Interval], *, learned: bool) -> Verdict:
  """Whether a difference is above 0; an interval a data set."""
  return claims.above(differences) if learned else results.NOT_RESOLVED


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Trains and decodes what is missing in `workdir`, judges the claims and draws the figures.

  Args:
    config: what is trained.
    workdir: where `result.json`, the figures and, in `checkpoints/`, every training run go.
  """
  record = recorder.Recorder("bottleneck", config, profiles(), workdir, seeds=config.all_seeds)
  for name, (train, _) in config.data.items():
    catalog.prepare(name, train.data.data_dir)
  folder = pathlib.Path(workdir) / "checkpoints"
  # A process a model: each compiles its programs once for all seeds and both data sets.
  workers.side_by_side(measure_all, [(config, arm, folder) for arm in ARMS])
  by_arm = {arm: measure_all(config, arm, folder) for arm in ARMS}
  measured = {name: {arm: by_arm[arm][name] for arm in ARMS} for name in config.data}
  for name, arms in measured.items():
    for arm, runs in arms.items():
      for seed, one in zip(config.all_seeds, runs, strict=True):
        record.log(data=name, arm=arm, seed=seed, symbol_errors=one.symbol_errors)
  judged = judge(measured)
  record.figure("length", drawn.by_length(measured), caption=_caption(measured, config))
  record.figure("attention", drawn.attention(measured), caption=(
    "Attention of the first seed along the reference of a test source: a row a target symbol, a"
    " column a source symbol. Each row sums to 1 less what falls on the end of the source."
  ))  # fmt: skip
  return record.finish(metrics=_metrics(measured), claims=judged)


def measure_all(config: Config, arm: str, folder: pathlib.Path) -> dict[str, list[Measured]]:
  """All runs of one model by data set, a run a seed; those that are finished are read back."""
  measured: dict[str, list[Measured]] = {}
  for name, (train, edges) in config.data.items():
    measured[name] = []
    for seed in config.all_seeds:
      run = folder / f"{name}-{arm.replace(' ', '-')}-{seed}"
      measured[name].append(measure(train, arm, seed, run, edges=edges, test=config.test))
  return measured


def overall(runs: Sequence[Measured]) -> list[float]:
  """Symbol errors of each run, %."""
  return [one.symbol_errors for one in runs]


def rises(runs: Sequence[Measured]) -> list[float]:
  """How much the symbol error of the longest group exceeds that of the shortest, points."""
  return [one.groups[-1].symbol_errors - one.groups[0].symbol_errors for one in runs]


def judge(measured: Mapping[str, Mapping[str, Sequence[Measured]]]) -> list[Claim]:
  """The claims, by the rules of this module's docstring."""
  level = 1 - 0.05 / len(measured)  # Bonferroni's: 95% for all data sets together.
  rise = {name: mean_interval(rises(arms[FIXED]), level) for name, arms in measured.items()}
  excess, cost, kept = (
    {name: paired_interval(of(arms[a]), of(arms[b]), level) for name, arms in measured.items()}
    for of, a, b in (
      (rises, FIXED, ATTENTION),
      (overall, FIXED, ATTENTION),
      (lambda runs: [one.kept for one in runs], ATTENTION, FIXED),
    )
  )
  short = [
    mean_interval([one.groups[0].symbol_errors for one in arms[FIXED]]).mean
    for arms in measured.values()
  ]
  worst = max(mean_interval(overall(arms[ATTENTION])).mean for arms in measured.values())
  learned = worst < LEARNED
  change = {
    arm: max(one.context_change for arms in measured.values() for one in arms[arm]) for arm in ARMS
  }
  return [
    claims.judge(
      "23",
      measured=f"symbol errors of the fixed vector: {max(short):.1f}% or less on the shortest"
      f" sources; on the longest more by {_points(rise)}",
      interval=_least(rise),
      verdict=falls(short, list(rise.values()), learned=learned),
      why=f"Length only (wants under {WELL:.0f}% on short sources, and a rise): how unknown words"
      f" hurt is not measured here. The interval is that of the smaller rise.{_untrained(learned)}",
    ),
    claims.judge(
      "25",
      measured=f"symbol errors rise from the shortest to the longest sources by {_points(rise)};"
      f" that exceeds the rise with attention by {_points(excess)}",
      interval=_least(excess),
      verdict=falls_more(list(rise.values()), list(excess.values()), learned=learned),
      why=_where("The rise exceeds that with attention", excess) + _untrained(learned),
    ),
    claims.judge(
      "42",
      measured=f"largest difference between two contexts of one target: {change[FIXED]:.2g} with"
      f" the fixed vector, {change[ATTENTION]:.2g} with attention",
      verdict=same_context(change[FIXED], change[ATTENTION]),
      why="Literally so where the vector is fed at each step; as a mere initial state it is no"
      " context at all.",
    ),
    claims.judge(
      "73",
      measured="with the vector cut, symbols still predicted along the reference, attention less"
      f" fixed vector: {_points(kept)}; symbol errors uncut, fixed vector less attention:"
      f" {_points(cost)}",
      interval=_least(kept),
      verdict=on_all(list(kept.values()), learned=learned),
      why=_where("More arrives with attention", kept) + _untrained(learned),
    ),
  ]


def _where(what: str, differences: Mapping[str, Interval]) -> str:
  above = [name for name, difference in differences.items() if difference.low > 0]
  seeds = next(iter(differences.values())).n
  return f"{what} on {' and '.join(above) or 'neither data set'}, paired over {seeds} seeds."


def _untrained(learned: bool) -> str:
  return "" if learned else f" Attention makes {LEARNED:.0f}% errors or more: not trained enough."


def _points(differences: Mapping[str, Interval]) -> str:
  return ", ".join(
    f"{name} {d.mean:+.1f} points [{d.low:+.1f}, {d.high:+.1f}]" for name, d in differences.items()
  )


def _least(differences: Mapping[str, Interval]) -> tuple[float, float]:
  """The interval that reaches lowest, which decides whether all are above 0."""
  least = min(differences.values(), key=lambda difference: difference.low)
  return least.low, least.high


def _caption(measured: Mapping[str, Mapping[str, Sequence[Measured]]], config: Config) -> str:
  sources = ", ".join(f"{arms[ATTENTION][0].sources} of {name}" for name, arms in measured.items())
  return (
    f"Symbol errors on test sources ({sources}) by length, {config.seeds} seeds. Lines: means; "
    "bands: 95% intervals over seeds. Below: fixed vector less attention, paired by seed."
  )


def _metrics(measured: Mapping[str, Mapping[str, Sequence[Measured]]]) -> dict[str, Metric]:
  """Error rates, their differences overall and by length, alignment error, times."""
  metrics: dict[str, Metric] = {}
  for name, arms in measured.items():
    table: dict[str, dict[str, list[float]]] = {"word errors": {}, "symbol errors": {}}
    for arm, runs in arms.items():
      table["word errors"][arm] = [one.word_errors for one in runs]
      table["symbol errors"][arm] = overall(runs)
      for at, group in enumerate(runs[0].groups):
        row = table.setdefault(f"symbol errors of {group.label} letters", {})
        row[arm] = [one.groups[at].symbol_errors for one in runs]
    for quantity, by_arm in table.items():
      for arm, values in by_arm.items():
        metrics[f"{name}, {quantity}, {arm}"] = Metric(*mean_interval(values), "%")
      difference = paired_interval(by_arm[FIXED], by_arm[ATTENTION])
      metrics[f"{name}, {quantity}, fixed vector less attention"] = Metric(*difference, "points")
    aligned = [one.alignment_error for one in arms[ATTENTION] if one.alignment_error is not None]
    if aligned:
      metrics[f"{name}, alignment error of attention"] = Metric(*mean_interval(aligned), "%")
    for arm, runs in arms.items():
      kept = mean_interval([one.kept for one in runs])
      metrics[f"{name}, symbols predicted with the vector cut, {arm}"] = Metric(*kept, "%")
  return metrics
