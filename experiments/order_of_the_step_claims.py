"""The rules and verdicts of `experiments.order_of_the_step`, whose docstring states them."""

import itertools
from collections.abc import Collection, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np

from attn.evaluation.intervals import Interval, mean_interval, paired_interval
from attn.report import results
from attn.report.results import Claim, Verdict
from experiments import claims
from experiments.order_of_the_step_jacobians import (
  ACTIONS,
  ANNOTATIONS,
  BAHDANAU,
  BAHDANAU_READS,
  LUONG,
  LUONG_READS,
  NAMES,
  TITLES,
  WORD,
  Papers,
  Step,
)
from experiments.order_of_the_step_runs import WALK, Runs, excess

CLOSE = 1e-5
# Bahdanau's forms; the first is the one that the chapter tells.
FORMS = ("bahdanau", "bahdanau_appendix", "groundhog")
STATED = tuple(ACTIONS)


class Evidence(NamedTuple):
  """All that the claims and figures are made from.

  Attributes:
    steps: order to its dependencies.
    papers: what the papers attend with and to.
    trained: data set to the runs of every order.
  """

  steps: dict[str, Step]
  papers: Papers
  trained: dict[str, Runs]


def stated(holds: Sequence[bool]) -> Verdict:
  """Whether what is said of section 3.1, the first, is so there and in the other forms."""
  if not holds[0]:
    return results.CONTRADICTED
  return results.REPRODUCED if all(holds) else results.QUALIFIED


def both(*holds: bool) -> Verdict:
  """Whether all of what is said is so."""
  return results.REPRODUCED if all(holds) else results.CONTRADICTED


def close(differences: Sequence[float], padding: Sequence[float] = ()) -> Verdict:
  """Whether all numbers are those of the equation, and weights of padding exactly 0."""
  same = all(difference <= CLOSE for difference in differences)  # a NaN is not
  return both(same, all(weight == 0 for weight in padding))


def cannot_swap(needs_context: Sequence[bool], orders: Sequence[int]) -> Verdict:
  """Whether the state needs the context, and how many orders of the actions a form allows."""
  if not all(needs_context):
    return results.CONTRADICTED
  return stated([count == 1 for count in orders])


def goes_into(*, state: bool, luongs_state: bool, luongs_readout: float, readout: bool) -> Verdict:
  """Where the context goes: Bahdanau's state and not Luong's, whose readout is the tanh of both.

  Args:
    state: whether Bahdanau's enters s_i.
    luongs_state: whether Luong's enters h_t.
    luongs_readout: difference between h~_t and tanh(W_c [c; h]).
    readout: whether Bahdanau's also enters the output.
  """
  if not state or luongs_state or not luongs_readout <= CLOSE:
    return results.CONTRADICTED
  return results.QUALIFIED if readout else results.REPRODUCED


def scores_of(bahdanau: Set[str], luong: Set[str], content: Set[str]) -> Verdict:
  """Whether Bahdanau has the additive score alone, and Luong three, of which all look at h_j."""
  if bahdanau != {"additive"} or len(content) != 3:
    return results.CONTRADICTED
  return results.REPRODUCED if luong == content else results.QUALIFIED


def possible(needs: Mapping[str, Collection[str]]) -> list[tuple[str, ...]]:
  """The orders of the five actions in which each comes after those that it needs."""
  return [
    order
    for order in itertools.permutations(ACTIONS)
    if all(set(needs[action]) <= set(order[:at]) for at, action in enumerate(order))
  ]


def needed(order: str, step: Step) -> dict[str, set[str]]:
  """Action to the actions of the same step that it directly depends on."""
  products = {"scores": "e_i", "context": "c_i", "state": NAMES[order]["new"]}
  needs = {
    action: {made for made, name in products.items() if name in step.needs(action)}
    for action in ACTIONS
  }
  # A sum that the weights weigh, which claim 35 holds against its equation.
  return {**needs, "context": {"weights"}}


def seeing(steps: Mapping[str, Step]) -> list[str]:
  """The orders whose score has seen the word before, y_{i-1}."""
  return [order for order, step in steps.items() if WORD in step.sees("scores")]


def apart(evidence: Evidence) -> Interval:
  """Nats a step on the walk, orders whose score is blind to y_{i-1} less the others, by seed."""
  runs, see = evidence.trained[WALK], seeing(evidence.steps)
  groups = [
    [excess(several) for order, several in runs.items() if (order in see) == sees]
    for sees in (False, True)
  ]
  return paired_interval(*(np.mean(group, axis=0) for group in groups))


def judge(evidence: Evidence) -> list[Claim]:
  """The claims, by the rules of the experiment's docstring."""
  return [*_judge_order(evidence), *_judge_luong(evidence), *_judge_papers(evidence)]


def _judge_order(evidence: Evidence) -> list[Claim]:
  """Claims 32 to 38: Bahdanau's step."""
  steps, forms = evidence.steps, [evidence.steps[order] for order in FORMS]
  orders = [possible(needed(order, steps[order])) for order in FORMS]
  told = ["; or ".join(", ".join(one) for one in several) for several in orders]
  weights, contexts = (
    [getattr(step, name) for step in steps.values()] for name in ("weights_apart", "context_apart")
  )
  states, outputs = ([step.needs(action) for step in forms] for action in ("state", "output"))
  late = [_a_step_later(needs) if form == "groundhog" else needs
          for form, needs in zip(FORMS, states, strict=True)]  # fmt: skip
  waits = ["c_i" in needs for needs in late]
  reads = [step.needs("scores") - {ANNOTATIONS} for step in forms]
  return [
    claims.judge(
      "32", measured=_by_form(told),
      **claims.told(stated([one == [STATED] for one in orders]), qualified=(
        "So in section 3.1. By the paper's own appendix A.2.2 the output does not wait for the"
        " state, and in the released code the state of the word before is made first."
      )),
    ),
    claims.judge(
      "33", measured=f"besides h_j the score depends on {_by_form(reads)}; it has seen y_{{i-1}} in"
      f" {_listed(TITLES[order] for order in seeing(steps))}",
      **claims.told(stated([one == {"s_{i-1}"} for one in reads]), reproduced=(
        "In all three forms. But in the released code s_{i-1} is made from y_{i-1}, in the paper"
        " from y_{i-2}."
      )),
    ),
    claims.judge(
      "34", measured=f"differs from the softmax of the scores by at most {max(weights):.1g}; weight"
      f" of padding {max(step.padding for step in steps.values()):g}",
      verdict=close(weights, [step.padding for step in steps.values()]),
      why=f"In all five orders, against float64; wants at most {CLOSE:g}.",
    ),
    claims.judge(
      "35", measured=f"differs from the weighted sum by at most {max(contexts):.1g}",
      verdict=close(contexts),
      why=f"In all five orders, against float64; wants at most {CLOSE:g}.",
    ),
    claims.judge(
      "36", measured=f"s_i directly depends on {_by_form(late)}",
      **claims.told(stated([one == {"s_{i-1}", WORD, "c_i"} for one in late]), qualified=(
        "So in both forms of the paper. The released code makes s_i from y_i, the word that has"
        " just been written."
      )),
    ),
    claims.judge(
      "37", measured=f"the output directly depends on {_by_form(outputs)}{_readouts(evidence)}",
      **claims.told(stated([one == {WORD, "s_i", "c_i"} for one in outputs]), qualified=(
        "So by Equation 4. Appendix A.2.2 of the same paper and its code read out of s_{i-1}."
      )),
    ),
    claims.judge(
      "38", measured=f"s_i depends on c_i in all forms: {all(waits)}; orders"
      f" that the five actions may take: {_by_form([str(len(one)) for one in orders])}",
      **claims.told(cannot_swap(waits, [len(one) for one in orders]), qualified=(
        "True of section 3.1. In A.2.2 state and output may change places, as the output does not"
        " read s_i; and other models take other orders (39)."
      )),
    ),
  ]  # fmt: skip


def _judge_luong(evidence: Evidence) -> list[Claim]:
  """Claims 39, 69 and 70a to 70c: Luong's step against Bahdanau's."""
  steps = evidence.steps
  luong, forms = steps["luong"], [steps[order] for order in FORMS]
  section, appendix, _ = forms
  reads = luong.needs("scores") - {ANNOTATIONS}
  states = [step.needs("scores") - {ANNOTATIONS} for step in forms]
  scored = [one == {"s_{i-1}"} for one in states]
  onward = _reads(luong) and "c_i" in luong.needs("output") and "c_i" not in luong.needs("state")
  path = scored[0] and _reads(section) and "c_i" in section.needs("state")
  luongs = reads == {"s_i"}
  sees = [WORD in step.sees("scores") for step in forms]
  walk = _walk(evidence)
  return [
    claims.judge(
      "39", measured=f"besides h_j Luong's score depends on {_listed(reads)}",
      **claims.told(both(luongs), reproduced=(
        "His h_t, which is s_i here: the state that has read y_{i-1}."
      )),
    ),
    claims.judge(
      "69", measured=f"section 3.1: s_{{i-1}}, e_i, c_i, s_i is {path}; Luong: h_t, e_t, c_t, h~_t"
      f" is {onward and luongs}",
      **claims.told(both(path, onward, luongs), reproduced=(
        "Both paths are computed as he states them; that he states them is in his section 3.1."
      )),
    ),
    claims.judge(
      "70a", measured=f"besides h_j the score depends on {_by_form(states)}; Luong's on"
      f" {_listed(reads)}",
      **claims.told(both(luongs, *scored[:2]), reproduced=(
        "By the names of the papers. Whether the state has seen y_{i-1} is another matter (70b)."
      )),
    ),
    claims.judge(
      "70b", measured="the score has seen y_{i-1} in"
      f" {_listed(TITLES[order] for order in seeing(steps))}{walk[0]}", interval=walk[1],
      **claims.told(stated([
        scored[at] and _reads(step) and not sees[at] and onward and WORD in luong.sees("scores")
        for at, step in enumerate(forms)
      ]), qualified=(
        "True of the paper's equations. In its released code the state that scores has read"
        " y_{i-1}, as Luong's has: there the two differ in where the context goes."
      )),
    ),
    claims.judge(
      "70c", measured=f"c_i enters Bahdanau's state: {'c_i' in section.needs('state')}, his output:"
      f" {'c_i' in section.needs('output')}; Luong's state: {'c_i' in luong.needs('state')}; h~"
      f" differs from tanh(W_c [c; h]) by {luong.readout_apart:.1g}",
      **claims.told(goes_into(
        state="c_i" in section.needs("state") and "c_i" in appendix.needs("state"),
        luongs_state="c_i" in luong.needs("state"), luongs_readout=luong.readout_apart,
        readout="c_i" in section.needs("output"),
      ), qualified=(
        "True as far as it goes: Bahdanau's context enters the output as well, by C_o c_i."
      )),
    ),
  ]  # fmt: skip


def _judge_papers(evidence: Evidence) -> list[Claim]:
  """Claims 70d to 70f: what the papers attend with, and to."""
  found = evidence.papers
  bahdanau, luong = (found.scores[paper] for paper in (BAHDANAU, LUONG))
  (wide, _), (narrow, layers) = (found.widths[paper] for paper in (BAHDANAU, LUONG))
  reads, whole = found.reads, (BAHDANAU_READS, LUONG_READS)
  return [
    claims.judge(
      "70d", measured=f"Bahdanau: {_listed(bahdanau)}; Luong: {_listed(luong)}, of which"
      f" {_listed(found.content)} depend on h_j",
      **claims.told(scores_of(bahdanau, luong, found.content), qualified=(
        "Luong has three that look at what they score, and a fourth, location, that does not."
      )),
    ),
    claims.judge(
      "70e", measured=f"annotation over state: Bahdanau {wide:g} times as wide, words on both sides"
      f" {found.both_ways[BAHDANAU]}; Luong {narrow:g}, {layers} layers, both sides"
      f" {found.both_ways[LUONG]}",
      verdict=both(
        wide == 2, found.both_ways[BAHDANAU], narrow == 1, layers > 1, not found.both_ways[LUONG]
      ),
      why="The presets' widths, and which words change an annotation of their encoders.",
    ),
    claims.judge(
      "70f", measured=f"of {found.positions} positions: "
      + ", ".join(f"{name} {count}" for name, count in reads.items()),
      verdict=both(
        all(reads[name] == found.positions for name in whole),
        all(0 < count <= found.window for name, count in reads.items() if name not in whole),
      ),
      why=f"Positions with a weight above 0; the window is of at most {found.window}.",
    ),
  ]  # fmt: skip


def _reads(step: Step) -> bool:
  """Whether the context comes from the scores."""
  return "e_i" in step.needs("context")


def _a_step_later(needs: Set[str]) -> frozenset[str]:
  """The same of the next step: what s_{i-1} needs, told of s_i."""
  later = {"s_{i-2}": "s_{i-1}", "c_{i-1}": "c_i", WORD: "y_i"}
  return frozenset(later.get(name, name) for name in needs)


def _listed(names: Collection[str] | Sequence[str]) -> str:
  return ", ".join(sorted(names)) or "nothing"


def _by_form(told: Sequence[object]) -> str:
  texts = [one if isinstance(one, str) else _listed(one) for one in told]
  return "; ".join(f"{TITLES[form]}: {text}" for form, text in zip(FORMS, texts, strict=True))


def _walk(evidence: Evidence) -> tuple[str, tuple[float, float] | None]:
  """What the walk says of blind orders and seeing ones, and its interval."""
  if WALK not in evidence.trained:
    return "", None
  gap = apart(evidence)
  told = (
    f"; on the walk the others lose {gap:+.3f} nats a step against these, paired over {gap.n} seeds"
  )
  return told, (gap.low, gap.high)


def _readouts(evidence: Evidence) -> str:
  """What reading out of s_{i-1} instead of s_i costs on the walk."""
  runs = evidence.trained.get(WALK, {})
  if "bahdanau_appendix" not in runs:
    return ""
  dearer = paired_interval(*(excess(runs[order]) for order in ("bahdanau_appendix", "bahdanau")))
  best = mean_interval(excess(runs["bahdanau"]))
  return (
    f"; on the walk section 3.1 ends {best.mean:.3f} above ln 2, A.2.2 another {dearer:+.3f},"
    f" paired over {dearer.n} seeds"
  )
