"""What does attention cost: numbers to keep, multiply-adds, time and memory?

Every count of the chapter is taken again from the real code. What a model keeps of a source is
counted on the arrays that it made: Sutskever's four LSTMs and Bahdanau's annotations at the papers'
widths, with small vocabularies, which change nothing kept. Multiply-adds are those of the products
in the traced program of a decoding step at the papers' sizes. Time and temporary memory are those
of the whole forward pass of RNNsearch along sources and targets of T symbols, against the same
model with a fixed vector, and against the same with U_a h_j computed again at every step, which XLA
has to be kept from doing once: it moves what no step changes out of a loop by itself. Entropy is
counted on words of real text: the hand-aligned New Testament, Greek and English.

Contenders take turns, A B C A B C ..., after everything is compiled. A ratio is that of two
neighbours in time; stated are the median over the turns and its distribution-free 95% interval.
Temporary bytes are the compiler's account, exact and without an interval.

Command: python -m launch.run --experiment=cost
Time: on two cores, default 46 seconds (20 passes x 1.5 s to compile, before two were compiled at
once, 12 x 11 timings of some 0.05 s, and text 5 s), smoke 13 (10 passes, most of it compiling),
full 9.5 minutes, at the papers' widths (25 passes, 15 x 21 timings). Nothing is trained. An
interrupted run starts over. Leave the machine alone meanwhile.
Expect: 100,000 numbers for 50 words against 8000 for any sentence; a decoding step of which 4% are
attention's multiply-adds, if U_a h_j is kept; 36 times the multiply-adds of attention if it is not;
at T = 80 a pass takes 1.6 times as long with attention, 2.9 times that with U_a h_j at every
step, and training takes 1.2 times the memory; at the papers' widths 1.8 and 4.2, and 2.1 and 7.2 at
T = 160.

Rules, stated before the run:
  8, 9, 11, 76 `counted`: the number counted on arrays is the one printed: reproduced, else
    contradicted. 11 also wants that a vocabulary of limited size drops no word that is commoner
    than one it keeps.
  10, 12, 14 `experiments.worked_example.printed`: rounds to the printed number: reproduced, else
    contradicted.
  13 `at_most`: above the printed bound: contradicted; it is the number rounded: reproduced; below
    it, but rounding to another number: qualified.
  15 `less_than_uniform`: of each language the bits a word that counted frequencies save over equal
    ones, an interval over test verses that holds for all languages together with 95%. All above 0:
    reproduced; all below: contradicted; some above: qualified; else not resolved.
  46 `same_outputs`: with U_a h_j computed once, outputs differ from those with it computed at every
    step by at most CLOSE of the largest: reproduced, else contradicted.
  47 `only`: in the traced step, products other than W_a s_{i-1}: none: reproduced; fewer
    multiply-adds than W_a s_{i-1} itself: qualified; else contradicted.
  59 `one_product`: products that make the scores of a whole target. One, with and without input
    feeding: reproduced; one without alone: qualified; else contradicted. Time decides nothing.
  75 `linear`: counted numbers are the printed ones, in proportion to the length at every length,
    and those of the fixed vector the same at every length: reproduced, else contradicted.
  77 `one_vector`: what a further score adds to a step's products. n' multiply-adds, with or without
    U_a h_j at hand: reproduced; with it alone: qualified; else contradicted.
  78 `a_cache`: what is kept is a key and a value a position, and decoding word by word from it
    gives the outputs of the whole pass within CLOSE, else contradicted. If it grows with each word
    written, as that of a decoder's self-attention does: reproduced; if not: qualified.
"""

import dataclasses
import os
from typing import Any

from attn import configs
from attn.data import catalog
from attn.report import recorder, results
from attn.report.results import Metric
from attn.training.progress import Progress
from experiments import cost_counts, cost_language, cost_timings
from experiments import cost_figures as drawn
from experiments.cost_claims import SOURCE, TARGET, Measured, backend, judge
from experiments.cost_timings import ATTENTION, FIXED, Sizes

CLAIMS = (
  "8", "9", "10", "11", "12", "13", "14", "15", "46", "47", "59", "75", "76", "77", "78",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Config:
  """What is counted and timed beside the chapter's own sizes, which are fixed.

  Attributes:
    lengths: T, of source and target, that passes are timed at; ascending.
    kept: further source lengths whose arrays are counted, ascending.
    sizes: of the model that is timed.
    repeats: turns of each contender; at least 6, for the medians' intervals.
    corpus: whose words are counted; both sides have words between blanks.
    data_dir: where prepared data sets lie.
    seed: of parameters and inputs.
  """

  lengths: tuple[int, ...] = (10, 20, 40, 80)
  kept: tuple[int, ...] = (1, 4, 100)
  sizes: Sizes = Sizes()
  repeats: int = 11
  corpus: str = "greek_english/forms"
  data_dir: str = "data"
  seed: int = 0

  def __post_init__(self) -> None:
    """Refuses what shows no growth, or no interval."""
    for name, least in (("lengths", 2), ("kept", 1)):
      values = getattr(self, name)
      if len(values) < least or min(values) < 1 or list(values) != sorted(set(values)):
        raise configs.ConfigError(f"{name} is {values}: it must be {least} or more rising lengths")
    if self.repeats < 6:  # Of five turns even the extremes hold the median with 94% only.
      raise configs.ConfigError(f"repeats is {self.repeats}: an interval needs at least 6")


def profiles() -> dict[str, dict[str, Any]]:
  """Overrides by profile."""
  smoke = {
    "lengths": (4, 8), "kept": (4,), "repeats": 6, "sizes.batch": 4, "sizes.units": 32,
    "sizes.embedding": 16, "sizes.alignment": 32, "sizes.maxout": 16,
  }  # fmt: skip
  full = {
    "lengths": (10, 20, 40, 80, 160), "kept": (1, 2, 4, 8, 16, 25, 100, 200), "repeats": 21,
    "sizes.units": 1000, "sizes.embedding": 620, "sizes.alignment": 1000, "sizes.maxout": 500,
  }  # fmt: skip
  return {"smoke": smoke, "default": {}, "full": full}


def sweep_quick() -> list[dict[str, Any]]:
  """The width, on which it depends how much of a step attention is."""
  return [
    {**profiles()["smoke"], "sizes.units": width, "sizes.alignment": width}
    for width in (16, 32, 64)
  ]


def sweep_paper() -> list[dict[str, Any]]:
  """RNNsearch at the paper's widths, one sentence and a batch."""
  widths = {name: value for name, value in profiles()["full"].items() if name.startswith("sizes.")}
  return [{**widths, "sizes.batch": batch, "lengths": (10, 20, 40)} for batch in (1, 80)]


def measure(config: Config) -> Measured:
  """Counts, traces, and times."""
  lengths = sorted({SOURCE, *config.kept})
  total = 4 + len(config.lengths)
  with Progress("cost", total) as progress:
    languages = cost_language.measure(config.corpus, config.data_dir)
    progress.update(1, "words")
    fixed, rows = cost_counts.fixed_vector(lengths)
    annotations, keys = cost_counts.annotations(lengths)
    progress.update(2, "arrays")
    steps = {at: cost_counts.step_work(SOURCE, at_hand=at) for at in (True, False)}
    reading = {
      at: {
        length: cost_counts.read_work(length, at_hand=at)
        for length in sorted({SOURCE, SOURCE + 1, *config.lengths})
      }
      for at in (True, False)
    }
    progress.update(3, "programs")
    dot = cost_timings.measure_dot(config.sizes, config.lengths[-1], config.repeats, config.seed)
    cache = cost_counts.cache(config.seed)
    passes = []
    for length in config.lengths:
      progress.update(4 + len(passes), f"T = {length}")
      passes.append(cost_timings.measure_length(config.sizes, length, config.repeats, config.seed))
    progress.update(total, "done")
  return Measured(
    rows=rows, fixed=fixed, annotations=annotations, keys=keys,
    scores=cost_counts.scores(SOURCE, TARGET), steps=steps, reading=reading,
    projection=cost_counts.keys_work(SOURCE), products=cost_counts.dot_products(SOURCE, TARGET),
    cache=cache, languages=languages, passes=passes, dot=dot,
  )  # fmt: skip


def run(config: Config, workdir: str | os.PathLike[str]) -> results.Result:
  """Measures, judges the claims and draws the figures.

  Args:
    config: what is counted and timed.
    workdir: where `result.json` and the figures go.
  """
  record = recorder.Recorder("cost", config, profiles(), workdir, seeds=(config.seed,))
  catalog.prepare(config.corpus, config.data_dir)
  measured = measure(config)
  for at in measured.passes:
    for name, times in at.times.items():
      record.log(
        length=at.length, contender=name, **times.spread._asdict(), seconds_each=times.seconds,
        temporary=at.forward[name], training=at.training.get(name), difference=at.difference,
      )  # fmt: skip
  sizes = config.sizes
  model = (
    f"RNNsearch, {sizes.units} units, n' = {sizes.alignment}, batches of {sizes.batch}, source and"
    " target of T symbols"
  )
  record.figure("step", drawn.step(measured, SOURCE), caption=(
    f"Multiply-adds of the products in the traced step of RNNsearch at the paper's sizes: at"
    f" {SOURCE} source positions (left), of attention alone by length (right). Exact."
  ))  # fmt: skip
  record.figure("kept", drawn.kept(measured, SOURCE), caption=(
    "Numbers in the arrays that the models at the papers' sizes made of one sentence: Sutskever's"
    " four LSTMs, Bahdanau's annotations, and these with U_a h_j. Exact counts."
  ))  # fmt: skip
  record.figure("time", drawn.time(measured), caption=(
    f"Forward pass, {model}, on {backend()}. Medians of {config.repeats} turns; bands: their"
    " distribution-free 95% intervals. Right: median of the ratios of neighbours in time."
  ))  # fmt: skip
  record.figure("memory", drawn.memory(measured), caption=(
    f"Temporary memory of the compiled forward pass and of that with gradients, {model}: the"
    " compiler's account, exact."
  ))  # fmt: skip
  record.figure("bits", drawn.bits(measured, SOURCE), caption=(
    f"Bits of {SOURCE} words: what Sutskever's 8000 numbers take, {SOURCE} words out of 160,000 as"
    " likely each, and out of the words of a real text, as likely each and by their frequencies"
    f" ({', '.join(f'{one.name}: {one.saved.n} test verses' for one in measured.languages)})."
  ))  # fmt: skip
  return record.finish(metrics=_metrics(measured), claims=judge(measured))


def _metrics(measured: Measured) -> dict[str, Metric]:
  """Times and their ratios, memory, multiply-adds, bits."""
  metrics: dict[str, Metric] = {}
  for at in measured.passes:
    for name, times in at.times.items():
      found, n = times.spread, len(times.seconds)
      label = f"T = {at.length}: {name}"
      metrics[f"{label}, median time"] = Metric(found.median, found.low, found.high, n, "s")
      metrics[f"{label}, temporary memory"] = Metric(at.forward[name] / 2**20, unit="MiB")
      if name != FIXED:
        over = FIXED if name == ATTENTION else ATTENTION
        times_over = Metric(*times.over(at.times[over]), n, "times")
        metrics[f"{label} over {over}, median ratio of times"] = times_over
    for name, held in at.training.items():
      metrics[f"T = {at.length}: {name}, temporary memory with gradients"] = Metric(
        held / 2**20, unit="MiB"
      )
  for at_hand, told in ((True, "U_a h_j at hand"), (False, "U_a h_j at every step")):
    for part, found in measured.steps[at_hand].items():
      metrics[f"multiply-adds of a step, {told}: {part}"] = Metric(float(found.macs))
  for language in measured.languages:
    metrics[f"{language.name}, bits a word saved"] = Metric(*language.saved, "bits")
  return metrics
