"""What a model computed while it wrote a sentence: the records that `attn.report` shows.

`attn.decoding.inspection` makes them. As JSON, an object has the names of the attributes below:

    {"name": "line 3", "text": "ab", "source": [{"text": "a", "kind": "known"}, ...],
     "hypotheses": [{"text": "ba", "target": [...], "score": -0.1, "finished": true,
      "start": {"width": 256, "norm": 3.2, "values": [...]},
      "steps": [{"log_prob": -0.02, "scores": [...], "weights": [...],
       "window": {"centre": 3.2, "first": 1, "last": 5}, "query": {...}, "context": {...},
       "state": {...}, "readout": {...},
       "likeliest": [{"text": "b", "kind": "known", "probability": 0.98}, ...]}, ...]}, ...]}

A number that is not finite is null. Positions are counted from 0.
"""

import dataclasses
from typing import Literal

Action = Literal["between", "scores", "weights", "context", "state", "readout"]
"""What an action of a step makes; `between` is the first of a conditional GRU's two states."""


@dataclasses.dataclass(frozen=True)
class Symbol:
  """A symbol of a sentence.

  Attributes:
    text: as the sentence has it; empty for an end.
    kind: `unknown` where the vocabulary lacks it, `end` for EOS.
  """

  text: str
  kind: Literal["known", "unknown", "end"] = "known"


@dataclasses.dataclass(frozen=True)
class Vector:
  """A vector, of which only the first numbers are kept.

  Attributes:
    width: how many it has.
    norm: its Euclidean norm, over all of them.
    values: the first ones.
  """

  width: int
  norm: float
  values: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Window:
  """The window of a local model at one step.

  Attributes:
    centre: a position, whole or not.
    first: the first position inside.
    last: the last one; below `first` where the window holds none.
  """

  centre: float
  first: int
  last: int


@dataclasses.dataclass(frozen=True)
class Candidate(Symbol):
  """A symbol that may come next.

  Attributes:
    probability: that it does.
  """

  probability: float = 0.0


@dataclasses.dataclass(frozen=True)
class Step:
  """One decoding step. It writes the symbol of the hypothesis at its place.

  Attributes:
    log_prob: of that symbol.
    scores: for each source position, in a local model outside the window too; None where the model
      may never attend to it, and for all of a model without attention.
    weights: for each source position; None without attention.
    window: None in a global model.
    query: the state that was scored.
    context: what was read; without attention the one fixed vector.
    state: of the top layer, when this step has updated it.
    readout: what the probabilities are made from.
    likeliest: the most probable symbols among those that a search may write.
  """

  log_prob: float
  scores: tuple[float | None, ...] | None
  weights: tuple[float, ...] | None
  window: Window | None
  query: Vector
  context: Vector
  state: Vector
  readout: Vector
  likeliest: tuple[Candidate, ...]


@dataclasses.dataclass(frozen=True)
class Hypothesis:
  """One target sentence, whose symbols were given.

  Attributes:
    text: as it is read.
    target: its symbols, with an end if it is finished.
    score: what a search ranked it by.
    finished: False when it was cut at its length limit.
    start: the state of the top layer before the first step.
    steps: one for each symbol.
  """

  text: str
  target: tuple[Symbol, ...]
  score: float
  finished: bool
  start: Vector
  steps: tuple[Step, ...]


@dataclasses.dataclass(frozen=True)
class Trace:
  """A source sentence and its hypotheses.

  Attributes:
    name: what to call it, such as the number of its line.
    text: as it is read.
    source: its symbols, with an end if the model reads one.
    hypotheses: best first.
  """

  name: str
  text: str
  source: tuple[Symbol, ...]
  hypotheses: tuple[Hypothesis, ...]


@dataclasses.dataclass(frozen=True)
class System:
  """The model that wrote.

  Attributes:
    name: such as that of its folder.
    order: of its decoding step, a name of `attn.models.ModelConfig.order`.
    actions: what a step does in this order: the action, and its equation, with `_{...}` before and
      after what stands lower.
    facts: what else there is to know, as name and value.
  """

  name: str
  order: str
  actions: tuple[tuple[Action, str], ...]
  facts: tuple[tuple[str, str], ...] = ()

  @property
  def attends(self) -> bool:
    """Whether it has attention."""
    return any(action == "scores" for action, _ in self.actions)
