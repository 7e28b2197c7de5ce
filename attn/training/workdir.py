"""A run's folder: its configuration, vocabularies and checkpoints, and how they come back."""

import contextlib
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attn import configs, workdirs
from attn.data.vocabulary import Vocabulary
from attn.models.functional import Params
from attn.training import state
from attn.training.checkpoints import Checkpoints
from attn.training.config import TrainConfig
from attn.training.errors import TrainingError


class Trained(NamedTuple):
  """A model with all that is needed to use it.

  Attributes:
    params: its parameters.
    config: the run's configuration, vocabulary sizes filled in.
    source: vocabulary of its sources.
    target: vocabulary of its targets.
    step: updates done.
  """

  params: Params
  config: TrainConfig
  source: Vocabulary
  target: Vocabulary
  step: int


def keep_vocabularies(workdir: pathlib.Path, source: Vocabulary, target: Vocabulary) -> None:
  """Saves both vocabularies in the run's folder."""
  source.save(workdir / "source.vocabulary.json")
  target.save(workdir / "target.vocabulary.json")


def saved_vocabularies(workdir: pathlib.Path) -> tuple[Vocabulary, Vocabulary]:
  """Both vocabularies that the run's checkpoints belong to.

  Raises:
    ConfigError: one is missing or damaged.
  """
  advice = "put it back, or train again in another --workdir"
  vocabularies = []
  for side in ("source", "target"):
    path = workdir / f"{side}.vocabulary.json"
    try:
      vocabularies.append(Vocabulary.load(path))
    except FileNotFoundError:
      raise configs.ConfigError(f"{path} is missing: {advice}") from None
    except ValueError as error:
      raise configs.ConfigError(f"{error}: {advice}") from error
  return vocabularies[0], vocabularies[1]


def digests(source: Vocabulary, target: Vocabulary) -> dict[str, str]:
  """What a checkpoint's record says of the vocabularies that its parameters belong to."""
  return {"source": source.digest(), "target": target.digest()}


def _refuse_another_runs(
  folder: pathlib.Path, checkpoints: Checkpoints, now: dict[str, str]
) -> None:
  """Makes sure that the vocabularies of these digests are those of the checkpoints.

  Raises:
    ConfigError: one is of another run.
  """
  for step in reversed(checkpoints.steps):
    with contextlib.suppress(TrainingError):  # reading its parameters will tell
      for side, digest in checkpoints.record(step).get("vocabularies", {}).items():
        if digest != now[side]:
          raise configs.ConfigError(
            f"{folder}/{side}.vocabulary.json is of another run than the checkpoints: put back"
            " that of this run, or train again in another --workdir"
          )
      return


def refuse_other_symbols(workdir: pathlib.Path, source: Vocabulary, target: Vocabulary) -> None:
  """Makes sure that a run with checkpoints goes on with the symbols that it began with.

  Raises:
    ConfigError: the data's vocabularies are not those saved.
  """
  pairs = zip(("source", "target"), saved_vocabularies(workdir), (source, target), strict=True)
  for side, saved, now in pairs:
    if saved != now:
      raise configs.ConfigError(
        f"{workdir} was trained on another {side} vocabulary ({len(saved)} symbols) than the data"
        f" has now ({len(now)}): give the data.data_dir of that run, or another --workdir"
      )


def resolve(config: TrainConfig, source: Vocabulary, target: Vocabulary) -> TrainConfig:
  """The configuration with the data's vocabulary sizes where it says None.

  Raises:
    ConfigError: a size is given that is too small for the data.
  """
  sizes: dict[str, int] = {}
  for side, vocabulary in (("source", source), ("target", target)):
    name = f"{side}_vocabulary"
    asked = getattr(config.model, name)
    if asked is not None and asked < len(vocabulary):
      raise configs.ConfigError(
        f"model.{name} is {asked}, but the data has {len(vocabulary)} symbols: leave it out or"
        " give at least that many"
      )
    sizes[name] = len(vocabulary) if asked is None else asked
  return configs.override(config, {f"model.{name}": size for name, size in sizes.items()})


def load(workdir: str | os.PathLike[str], *, average: int = 1) -> Trained:
  """The model that training left in `workdir`.

  It comes from the newest checkpoint, or from the best where the run keeps the best. One that
  cannot be read is passed over with a line on stderr.

  Args:
    workdir: the run's folder.
    average: of how many checkpoints to take the mean of the parameters: the newest ones, or the
      best where the run keeps the best.

  Raises:
    FileNotFoundError: the folder holds no run, or no checkpoint yet.
    ConfigError: its configuration or a vocabulary is damaged, or it keeps fewer checkpoints.
    TrainingError: no checkpoint can be read, or one that belongs to an average.
  """
  return read(pathlib.Path(workdir), average=average)[0]


def may_have_ended(folder: pathlib.Path, steps: int) -> bool:
  """Whether the run of `steps` updates in `folder` has come to its end, or `read` has to find out.

  The newest checkpoint's record tells, and no parameters are read; one that is damaged tells
  nothing.
  """
  with Checkpoints(folder / "checkpoints") as checkpoints:
    newest = checkpoints.latest
    if newest is None or newest == steps:
      return newest is not None
    try:
      return bool(checkpoints.record(newest).get("ended"))
    except TrainingError:
      return True


def read(folder: pathlib.Path, *, quiet: bool = False, average: int = 1) -> tuple[Trained, bool]:
  """As `load`: the model, and whether its run has come to its end."""
  if not (folder / "config.json").exists():
    raise FileNotFoundError(f"{folder} holds no trained model: run launch.train there first")
  try:
    config = configs.from_dict(TrainConfig, workdirs.saved_config(folder))
  except configs.ConfigError as error:
    raise configs.ConfigError(f"{folder} cannot be loaded: {error}") from None
  with Checkpoints(folder / "checkpoints") as checkpoints:
    steps = checkpoints.steps
    if not steps:
      raise FileNotFoundError(f"{folder} has no checkpoint yet: its training has to go on first")
    source, target = saved_vocabularies(folder)
    _refuse_another_runs(folder, checkpoints, digests(source, target))
    config = resolve(config, source, target)
    like = jax.eval_shape(
      lambda rng: state.create(config.model, config.optimizer, config.steps, rng),
      jax.random.key(0),
    )
    found, faults = checkpoints.newest(like, reversed(steps))
    assert found is not None
    ended = found.step == config.steps or bool(found.record.get("ended"))
    best = [step for _, step in found.record.get("best", []) if step in steps]
    if best and best[0] != found.step:
      chosen, more = checkpoints.newest(like, [*best, found.step])
      found, faults = chosen or found, faults + more
    params = state.usable(found.state)
    if average != 1:
      params = _mean(checkpoints, like, best or steps[::-1], average)
  for fault in [] if quiet else faults:
    print(f"{fault}: taking that of step {found.step}", file=sys.stderr)
  return Trained(params, config, source, target, found.step), ended


def _mean(
  checkpoints: Checkpoints, like: state.TrainState, steps: Sequence[int], count: int
) -> Params:
  """The mean of the parameters to use of the first `count` of `steps`."""
  if not 1 <= count <= len(steps):
    raise configs.ConfigError(
      f"{checkpoints.folder} has {len(steps)} checkpoints to average, not {count}: keep_last or"
      " keep_best says how many training keeps"
    )
  total = None
  for step in steps[:count]:
    params = state.usable(checkpoints.restore(step, like)[0])
    total = params if total is None else jax.tree.map(jnp.add, total, params)
  mean: Params = jax.tree.map(lambda leaf: leaf / count, total)
  return mean
