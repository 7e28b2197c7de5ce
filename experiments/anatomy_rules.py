"""The rules of `experiments.anatomy`, and what is said of each claim."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn.evaluation.intervals import mean_interval
from attn.report import results
from attn.report.results import Claim, Verdict
from experiments import anatomy_parts as parts
from experiments import anatomy_scores, claims

if TYPE_CHECKING:
  from experiments.anatomy import Measured

ROUNDING = 1e-5
LENGTHS = (7, 50)  # of a source, in words: what Sutskever's decoder starts from fits any
WIDTHS = (16, 256)  # of keys, between which the work outside products may grow


class Seen(NamedTuple):
  """A change over draws of the parameters: its mean with the 95% interval, and the smallest."""

  mean: float
  low: float
  high: float
  least: float


def apart(halves: Sequence[parts.Halves]) -> Verdict:
  """Whether each parameter belongs to one half and none to both."""
  split = all(
    one.encoder and one.decoder and not one.encoder & one.decoder
    and one.encoder | one.decoder == one.all
    for one in halves
  )  # fmt: skip
  return results.REPRODUCED if split else results.CONTRADICTED


def initial_only(start: float, initial: Seen, rest: float, word: Seen, elsewhere: Seen) -> Verdict:
  """Whether a source reaches the decoder as its first state alone, and outputs are fed back.

  Args:
    start: largest difference of the first state from the encoder's last one.
    initial: change of the outputs with the first state.
    rest: largest change with all else of the source.
    word: change with the word before.
    elsewhere: change with all else of the source in the other fixed-vector model.
  """
  if start or rest or initial.least <= 0 or word.least <= 0:
    return results.CONTRADICTED
  return results.QUALIFIED if elsewhere.least > 0 else results.REPRODUCED


def exact(measured: Sequence[Any], stated: Sequence[Any]) -> Verdict:
  """Whether all numbers are the stated ones."""
  return results.REPRODUCED if list(measured) == list(stated) else results.CONTRADICTED


def carries(embedding: float, annotation: Seen) -> Verdict:
  """Whether other words move an annotation and no embedding: largest, and smallest changes."""
  shown = embedding == 0 and annotation.least > 0
  return results.REPRODUCED if shown else results.CONTRADICTED


def joined(widths: tuple[int, int, int], later: float, earlier: float, own: Seen) -> Verdict:
  """Whether an annotation is a forward and a backward state.

  Args:
    widths: of an annotation, a forward and a backward state.
    later: largest change of the first half with a later word.
    earlier: largest change of the second half with an earlier word.
    own: smallest change of either half with the words that it does read.
  """
  width, forward, backward = widths
  shown = width == 2 * forward == 2 * backward and later == earlier == 0 and own.least > 0
  return results.REPRODUCED if shown else results.CONTRADICTED


def generates(decoder: float, bidirectional: Seen, rerun: float) -> Verdict:
  """Whether a bidirectional network cannot be the decoder.

  Args:
    decoder: largest change of an output with its own word or a later one.
    bidirectional: smallest change of a state over a prefix when the next words come.
    rerun: largest change of states over a prefix, read anew, with the words after it.
  """
  if decoder or bidirectional.least <= 0:
    return results.CONTRADICTED
  return results.REPRODUCED if rerun else results.QUALIFIED


def where_not_what(weights: float, words: Seen, moved: Seen, equal: float) -> Verdict:
  """Whether weights say where to read and not which word to write; see `anatomy_scores.Swapped`."""
  if weights or moved.least <= 0 or equal >= ROUNDING:
    return results.CONTRADICTED
  return results.REPRODUCED if words.low > 0 else results.NOT_RESOLVED


def equation(before: float, after: Seen) -> Verdict:
  """Whether scores are the equation's: relative errors with s_{i-1}, the largest, and with s_i."""
  if before > ROUNDING:
    return results.CONTRADICTED
  return results.REPRODUCED if after.least > ROUNDING else results.NOT_RESOLVED


def three(by_keys: Mapping[str, Seen], by_query: Mapping[str, Seen]) -> Verdict:
  """Whether dot, general and concat are all scores: changes with the keys, and with the query."""
  content = {name for name, changed in by_keys.items() if changed.least > 0}
  if content != {"dot", "general", "concat"}:
    return results.CONTRADICTED
  others = {name for name in by_query if name not in content and by_query[name].least > 0}
  return results.QUALIFIED if others else results.REPRODUCED


def bridges(parameters: Mapping[str, int], units: int, unequal: Mapping[str, bool]) -> Verdict:
  """Whether dot is free and wants equal widths, and general has n times n and does not."""
  shown = (
    parameters["dot"] == 0
    and parameters["general"] == units**2
    and unequal["general"]
    and not unequal["dot"]
  )
  return results.REPRODUCED if shown else results.CONTRADICTED


def all_products(narrow: anatomy_scores.ScoreWork, wide: anatomy_scores.ScoreWork) -> Verdict:
  """Whether attention since is matrix products alone: work outside them, at two widths."""
  if wide.dot > narrow.dot or wide.flax > narrow.flax or wide.additive <= narrow.additive:
    return results.CONTRADICTED
  return results.QUALIFIED if wide.dot or wide.flax else results.REPRODUCED


def judge(measured: "Measured") -> list[Claim]:
  """Every claim, by the rules of the docstring of `experiments.anatomy`."""
  return [
    *_judge_encoder_decoder(measured),
    *_judge_annotations(measured),
    *_judge_reading(measured),
    *_judge_sizes(),
    *_judge_scores(measured),
  ]


def _judge_encoder_decoder(measured: "Measured") -> list[Claim]:
  """Claims 2, 5 and 7."""
  halves, channels = measured.halves, measured.sutskever
  first = halves[0]
  initial, word = (over(channels, name) for name in ("initial", "word"))
  start, rest = (most(channels, lambda one, n=name: getattr(one, n)) for name in ("start", "rest"))
  elsewhere = over(measured.encdec, "rest")
  fed = initial_only(start, initial, rest, word, elsewhere)
  model = parts.paper(parts.SUTSKEVER)
  tree = parts.shapes(model)
  layers = [sum(name.startswith("forward") for name in tree["encoder"]), _decoder_layers(tree)]
  cells, width = tree["encoder"]["forward"]["u"].shape[1], tree["source"].shape[1]
  reals = [parts.sentence_reals(model, words) for words in LENGTHS]
  sizes = [*layers, cells, width, *reals]
  return [
    claims.judge(
      "2",
      measured=f"of {len(first.all)} parameters of Sutskever's model {len(first.encoder)} move what"
      f" the encoder hands over, {len(first.decoder)} what the decoder makes of it,"
      f" {len(first.encoder & first.decoder)} both; the same in {len(halves)} draws. At the"
      f" paper's sizes {parts.count(tree):,} numbers",
      verdict=apart(halves),
      why="Each parameter was changed alone.",
    ),
    claims.judge(
      "5",
      measured=f"Sutskever's model: the first state differs from the encoder's last by {start:g};"
      f" logits move by {initial.mean:.2g} with that state and by {rest:g} with all else of the"
      f" source, and by {word.mean:.2g} or more with the word before. RNNencdec: by"
      f" {elsewhere.mean:.2g} with all else of the source",
      interval=(elsewhere.low, elsewhere.high),
      **claims.told(
        fed,
        qualified="True of Sutskever 2014. In RNNencdec (Cho 2014, Bahdanau 2015) the"
        " vector is an input of every step as well, not only where the decoder starts.",
        reproduced="The first state is the only way in, in both fixed-vector models.",
        contradicted="Sutskever's model reads its source by another way, or feeds no output back.",
      ),
    ),
    claims.judge(
      "7",
      measured=f"{layers[0]} encoder and {layers[1]} decoder layers of {cells} cells, embeddings"
      f" of {width}; the first state has {reals[0]} numbers for {LENGTHS[0]} words, {reals[1]} for"
      f" {LENGTHS[1]}",
      verdict=exact(sizes, [4, 4, 1000, 1000, 8000, 8000]),
      why="Read off the shapes of the preset sutskever2014, whatever the length of the source.",
    ),
  ]


def _decoder_layers(tree: Mapping[str, Any]) -> int:
  return 1 + sum(name.startswith("layer_") for name in tree["decoder"])


def _judge_annotations(measured: "Measured") -> list[Claim]:
  """Claims 29, 30 and 31."""
  reach, prefixes = measured.reach, measured.prefixes
  n = len(parts.IDS)
  off = ~np.eye(n, dtype=bool)  # a row a changed word, a column a place
  later, earlier = np.tri(n, k=-1, dtype=bool), ~np.tri(n, dtype=bool)
  embedding = most(reach, lambda one: one.embedding[off])
  annotation = least(reach, lambda one: one.annotation[off])
  bank = seen([one["annotation"][parts.SHOWN] for one in measured.contexts])
  forward_bank = most(measured.contexts, lambda one: one["forward state"][parts.SHOWN])
  search = parts.paper(parts.SEARCH)
  widths = parts.annotation_widths(search)
  leak = most(reach, lambda one: one.forward[later]), most(reach, lambda o: o.backward[earlier])
  own = least(reach, lambda one: np.concatenate([one.forward[~later], one.backward[~earlier]]))
  output = most(reach, lambda one: one.output[np.tri(n, dtype=bool)])
  both, rerun = over(prefixes, "bidirectional"), most(prefixes, lambda one: one.rerun)
  generating = generates(output, both, rerun)
  return [
    claims.judge(
      "29",
      measured=f"a changed word moves embeddings elsewhere by {embedding:g}, annotations by at"
      f" least {annotation.mean:.2g} of their norm; with city in place of river that of bank moves"
      f" by {bank.mean:.2g} and its embedding by 0",
      interval=(annotation.low, annotation.high),
      verdict=carries(embedding, annotation),
      why="RNNsearch reads both ways. A forward state carries the words before it alone: what"
      f" follows bank moves it by {forward_bank:g}.",
    ),
    claims.judge(
      "30",
      measured=f"at the paper's sizes {widths[0]} = {widths[1]} + {widths[2]}; the first half moves"
      f" by {leak[0]:g} with later words, the second by {leak[1]:g} with earlier ones, either by at"
      f" least {own.mean:.2g} with the others",
      interval=(own.low, own.high),
      verdict=joined(widths, *leak, own),
      why="Shapes of the preset rnnsearch, and each word of a source replaced in turn.",
    ),
    claims.judge(
      "31",
      measured=f"the decoder's outputs move by {output:g} with their own or later words; the"
      f" bidirectional network's states over a prefix move by at least {both.mean:.2g} when the"
      f" next words come, those of its last word by {rerun:g} if it reads the prefix anew. For"
      f" {n} words that takes {n * (n + 1) // 2} states a direction in place of {n}",
      interval=(both.low, both.high),
      **claims.told(
        generating,
        qualified="In one pass it cannot: its states depend on words that are still to be"
        " written. Read anew after every word it could, for work that grows with the square.",
        reproduced="Its states depend on words that are still to be written, however it is run.",
        contradicted="Its states do not depend on words that are still to be written, or"
        " the decoder's do.",
      ),
    ),
  ]


def _judge_reading(measured: "Measured") -> list[Claim]:
  """Claims 41 and 43."""
  swapped = measured.swapped
  words, moved = over(swapped, "words"), over(swapped, "moved")
  weights, equal = most(swapped, lambda one: one.weights), most(swapped, lambda one: one.equal)
  before = max(error for error, _ in measured.formula)
  after = seen([error for _, error in measured.formula])
  return [
    claims.judge(
      "41",
      measured=f"with the values of other sentences weights move by {weights:g} and {share(words)}"
      f" of the first words are others; with the keys of other sentences and all values alike"
      f" weights move by at least {moved.mean:.2g}, log-probabilities by at most {equal:.1g}",
      interval=(words.low, words.high),
      verdict=where_not_what(weights, words, moved, equal),
      why="Within one step. In the model h_j is key and value at once, and what was read enters the"
      " next state, so that it moves the weights of later steps.",
    ),
    claims.judge(
      "43",
      measured=f"largest error over the largest score: {before:.1g} with s_{{i-1}},"
      f" {after.mean:.2g} with s_i",
      interval=(after.low, after.high),
      verdict=equation(before, after),
      why="The scores of RNNsearch's second step against the equation in float64.",
    ),
  ]


def _judge_sizes() -> list[Claim]:
  """Claims 44 and 45."""
  model = parts.paper(parts.SEARCH)
  tree = parts.shapes(model)
  decoder, score = tree["decoder"], tree["decoder"]["score"]
  # W_s, E, W_o and v_a have one of the widths each.
  sizes = [
    decoder["w_s"].shape[0], tree["target"].shape[1], decoder["w_o"].shape[1],
    score["v_a"].shape[0],
  ]  # fmt: skip
  matrices = [tuple(score[name].shape) for name in ("w_a", "u_a", "v_a")]
  own, total = parts.count(score), parts.count(tree)
  return [
    claims.judge(
      "44",
      measured="n = {}, m = {}, l = {}, n' = {}".format(*sizes) + f"; {total:,} parameters",
      verdict=exact(sizes, [1000, 620, 500, 1000]),
      why="Shapes of W_s, E, W_o and v_a in the preset rnnsearch.",
    ),
    claims.judge(
      "45",
      measured="W_a {}, U_a {}, v_a {}".format(*matrices)
      + f": {own:,} of {total:,} parameters, {own / total:.1%}",
      verdict=exact(matrices, [(1000, 1000), (1000, 2000), (1000,)]),
      why="Shapes in the preset rnnsearch.",
    ),
  ]


def _judge_scores(measured: "Measured") -> list[Claim]:
  """Claims 56, 58 and 72."""
  names = measured.scores[0]
  by_keys, by_query = (
    {name: seen([getattr(one[name], field) for one in measured.scores]) for name in names}
    for field in ("by_keys", "by_query")
  )
  kinds = three(by_keys, by_query)
  parameters = {name: facts.parameters for name, facts in measured.scores[0].items()}
  unequal = {name: facts.unequal for name, facts in measured.scores[0].items()}
  narrow, wide = measured.work
  products = all_products(narrow, wide)
  lowest = min((by_keys[name] for name in ("dot", "general", "concat")), key=lambda one: one.low)
  return [
    claims.judge(
      "56",
      measured="other keys move the scores of one query by "
      + ", ".join(f"{by_keys[name].mean:.2g} ({name})" for name in names)
      + f"; another query moves those of location by {by_query['location'].mean:.2g}",
      interval=(lowest.low, lowest.high),
      **claims.told(
        kinds,
        qualified="Three compare a state with what stands at a position. Luong 2015 has a"
        " fourth (location, Equation 8), which scores a position whatever stands there, and which"
        " its first rows with attention use.",
        reproduced="No other score follows its query.",
        contradicted="The scores that follow the keys are not these three.",
      ),
    ),
    claims.judge(
      "58",
      measured="parameters at the paper's sizes: "
      + ", ".join(f"{name} {n:,}" for name, n in parameters.items())
      + "; with annotations twice as wide as the state: "
      + ", ".join(f"{name} {'fits' if fits else 'refused'}" for name, fits in unequal.items()),
      verdict=bridges(parameters, 1000, unequal),
      why="General is n times n here, because Luong's annotations are as wide as the state.",
    ),
    claims.judge(
      "72",
      measured=f"numbers computed outside matrix products for a query and a key, at widths"
      f" {WIDTHS[0]} and {WIDTHS[1]}: scaled dot product {narrow.dot:.1f} and {wide.dot:.1f},"
      f" Flax's own {narrow.flax:.1f} and {wide.flax:.1f}, additive {narrow.additive:.1f} and"
      f" {wide.additive:.1f}",
      **claims.told(
        products,
        qualified="True of scores and contexts, whatever the width. The softmax between"
        " them is no matrix product; and that all attention since is of this kind is history, which"
        " is not measured.",
        reproduced="Nothing is computed outside matrix products.",
        contradicted="Work outside matrix products grows with the width of the dot"
        " product's keys, or does not with the additive score's.",
      ),
    ),
  ]


def seen(changes: Sequence[float]) -> Seen:
  """Sums one change a draw up."""
  return Seen(*mean_interval(changes)[:3], least=min(changes))


def over(found: Sequence[Any], name: str) -> Seen:
  """One field over draws."""
  return seen([getattr(one, name) for one in found])


def least(found: Sequence[parts.Reach], of: Callable[[parts.Reach], np.ndarray]) -> Seen:
  """The smallest of some changes in each draw, over draws."""
  return seen([float(of(one).min()) for one in found])


def most(found: Sequence[Any], of: Callable[[Any], Any]) -> float:
  """The largest of some changes in any draw."""
  return max(float(np.max(of(one))) for one in found)


def share(changes: Seen) -> str:
  """A share and its interval, in per cent."""
  return f"{changes.mean:.0%} [{changes.low:.0%}, {changes.high:.0%}]"
