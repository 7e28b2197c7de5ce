"""The runs of `experiments.path_length`: gradients of a model before and after training."""

import dataclasses
import functools
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from attn import configs
from attn.data import catalog
from attn.data.vocabulary import EOS
from attn.models import ModelConfig, bind
from attn.models.functional import Params
from attn.report import results
from attn.training import TrainConfig, Trained, state, train

INITIAL, FED = "vector as first state", "vector at each step"
LUONG, SEARCH = "Luong", "RNNsearch"

_LSTM = {"cell": "lstm", "encoder": "forward", "initial_state": "all_layers", "order": "luong"}
# What each model is, beside its widths: Sutskever 2014, RNNencdec and RNNsearch of Bahdanau 2015
# and, without input feeding, Luong 2015.
ARMS: dict[str, dict[str, Any]] = {
  INITIAL: {**_LSTM, "score": "none", "context": "none", "readout": "state"},
  FED: {"score": "none", "encoder": "forward"},
  LUONG: {**_LSTM, "score": "general", "readout": "tanh"},
  SEARCH: {"score": "additive"},
}
FIXED, ATTENDING = (INITIAL, FED), (LUONG, SEARCH)
PAIRS = ((INITIAL, LUONG), (FED, SEARCH))  # of one cell


@dataclasses.dataclass(frozen=True)
class Curve:
  """Gradients of one model by distance, geometric means over sentences and pairs of words.

  Attributes:
    norms: log10 of the norm at each number of words between, from 1 on.
    slope: of log10 of the norms of all pairs, a word.
    named: log10 of the norm of each output to the word that it has to say, from the first on.
    right: share of the outputs that are right.
  """

  norms: tuple[float, ...]
  slope: float
  named: tuple[float, ...]
  right: float


@dataclasses.dataclass(frozen=True)
class Measured:
  """One model and seed."""

  before: Curve
  after: Curve


def resolved(config: TrainConfig, arm: str, seed: int) -> TrainConfig:
  """The training run of one model and seed."""
  choices = {f"model.{name}": value for name, value in ARMS[arm].items()}
  return configs.override(config, {**choices, "seed": seed})


def measure(
  config: TrainConfig, arm: str, seed: int, folder: pathlib.Path, *, words: int, sentences: int
) -> Measured:
  """Trains one model, or goes on with it, and measures it; what is finished is read back.

  Args:
    config: the training run without the choices of `arm`.
    arm: which model.
    seed: of everything random.
    folder: the training run's folder; `measured.json` appears in it when all is done.
    words: of each sentence whose gradients are taken.
    sentences: how many at most, from the test split.
  """
  config, done = resolved(config, arm, seed), folder / "measured.json"
  if done.exists():
    return _read(done)
  trained = train(config, folder, label=f"{arm}, seed {seed}")
  source, target = _sentences(trained, words, sentences)
  # The call that training made: the program is at hand.
  start = state.create(
    trained.config.model, config.optimizer, config.steps, jax.random.key(seed)
  ).params
  measured = Measured(
    *(_curve(trained.config.model, params, source, target) for params in (start, trained.params))
  )
  results.write_text(done, json.dumps(dataclasses.asdict(measured)))
  return measured


def _sentences(trained: Trained, words: int, sentences: int) -> tuple[np.ndarray, np.ndarray]:
  """Ids of test pairs of some length, EOS last, `[b, words + 1]` each."""
  data = trained.config.data
  corpus = catalog.load(data.name, "test", data.data_dir)
  pairs = zip(corpus.sources, corpus.targets, strict=True)
  kept = [pair for pair in pairs if len(trained.source.split(pair[0])) == words][:sentences]
  if not kept:
    raise results.ResultError(f"no test source has {words} symbols: choose another number of words")
  sides = zip((trained.source, trained.target), zip(*kept, strict=True), strict=True)
  source, target = (
    np.array([[*vocabulary.encode(text), EOS] for text in texts]) for vocabulary, texts in sides
  )
  return source, target


@functools.partial(jax.jit, static_argnums=0)
def gradients(
  config: ModelConfig, params: Params, source: Int[Array, "b s"], target: Int[Array, "b t"]
) -> tuple[Float[Array, "b t s"], Float[Array, "b t"]]:
  """Norms of the gradient of each output to each embedded source word, and which are right.

  An output is the logit of the target's word over the mean of all: what all words share says
  nothing, and a logarithm's gradient would vanish with the loss.
  """

  def one(source: Array, target: Array) -> tuple[Array, Array]:
    # A table of this sentence's words alone: its gradient is that of each word at its place.
    table = params["source"][source]

    def outputs(table: Array) -> tuple[Array, Array]:
      model = bind(config, {**params, "source": table})
      places = jnp.arange(len(source))[None]
      logits = model.teacher_forced(places, jnp.array([len(source)]), target[None]).logits[0]
      named = jnp.take_along_axis(logits, target[:, None], axis=-1)[:, 0]
      return named - logits.mean(-1), logits.argmax(-1) == target

    jacobian, right = jax.jacrev(outputs, has_aux=True)(table)
    return jnp.linalg.norm(jacobian, axis=-1), right

  return jax.vmap(one)(source, target)


def _curve(config: ModelConfig, params: Params, source: np.ndarray, target: np.ndarray) -> Curve:
  norms, right = (np.asarray(x, np.float64) for x in gradients(config, params, source, target))
  return curve(norms[:, :-1, :-1], float(right[:, :-1].mean()))


def curve(norms: Float[np.ndarray, "b t s"], right: float) -> Curve:
  """Sums gradients up by distance.

  Args:
    norms: of each output to each source word, EOS left out; sources are said backwards.
    right: share of the outputs that are right.
  """
  logs = np.log10(norms).mean(0)
  n = len(logs)
  between = between_words(n)
  by_distance = [float(logs[between == d].mean()) for d in range(1, 2 * n)]
  slope = float(np.polyfit(between.ravel(), logs.ravel(), 1)[0])
  named = np.diag(logs[:, ::-1])
  return Curve(tuple(by_distance), slope, tuple(named.tolist()), right)


def between_words(n: int) -> np.ndarray:
  """Steps of a recurrence from source word j to output i, `[n, n]`, output first: n - j + i."""
  return n - np.arange(n)[None] + np.arange(n)[:, None]


def _read(path: pathlib.Path) -> Measured:
  data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
  curves = (
    Curve(**{**one, "norms": tuple(one["norms"]), "named": tuple(one["named"])})
    for one in (data["before"], data["after"])
  )
  return Measured(*curves)
