"""One or several models of the family as one step of a search."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from attn.decoding.hypotheses import Step
from attn.models import ModelConfig, State, bind
from attn.models.functional import Params


class Joint(NamedTuple):
  """Models with their sources encoded, ready to be searched together.

  Attributes:
    step: the state is one of each model. The weights are the mean over the models with attention
      (None without any) and, if any has a window, one column more: the mean centre of the windows.
    state: before the first token.
    real: source positions that all models with attention may attend to; None without any.
    vocabulary: V, the target ids that all models have.
  """

  step: Step
  state: tuple[State, ...]
  real: Bool[Array, "b s"] | None
  vocabulary: int


def joined(
  configs: Sequence[ModelConfig],
  params: Sequence[Params],
  source: Int[Array, "b s"],
  length: Int[Array, " b"],
  *,
  average: Literal["probabilities", "logits"] = "probabilities",
) -> Joint:
  """Encodes padded sources with each model.

  All hypotheses of a sentence read one copy of its annotations and projected keys.

  Args:
    configs: of each model.
    params: of each model.
    source: their common sources.
    length: symbols of each, EOS included.
    average: `probabilities`, or `logits`: the probabilities are then those of the mean logits,
      normalised.
  """
  models = [bind(config, one) for config, one in zip(configs, params, strict=True)]
  memories = [model.encode(source, length).for_hypotheses() for model in models]
  masks = [memory.mask[:, 0] for memory in memories if memory.keys is not None]
  vocabulary = min(one["target"].shape[0] for one in params)

  def step(
    state: tuple[State, ...], tokens: Array
  ) -> tuple[Array, tuple[State, ...], Array | None]:
    log_probs, made = zip(
      *(
        model.step(memory, one, tokens)
        for model, memory, one in zip(models, memories, state, strict=True)
      ),
      strict=True,
    )
    weights = mean([one.weights for one in made])
    centre = mean([one.position for one in made])
    if weights is not None and centre is not None:
      weights = jnp.concatenate([weights.astype(centre.dtype), centre[..., None]], axis=-1)
    return (
      averaged([one[..., :vocabulary] for one in log_probs], average),
      tuple(one.state for one in made),
      weights,
    )

  return Joint(
    step,
    tuple(model.start(memory) for model, memory in zip(models, memories, strict=True)),
    jnp.stack(masks).all(0) if masks else None,
    vocabulary,
  )


def averaged(
  log_probs: Sequence[Float[Array, "... V"]], average: Literal["probabilities", "logits"]
) -> Float[Array, "... V"]:
  """Log-probabilities of several models as one's; `average` is that of `joined`."""
  if len(log_probs) == 1:
    return log_probs[0]
  stacked = jnp.stack(list(log_probs))
  if average == "logits":  # They differ from log-probabilities by what normalising takes away.
    return jax.nn.log_softmax(stacked.mean(0))
  return jax.nn.logsumexp(stacked, axis=0) - jnp.log(len(log_probs))


def mean(arrays: Sequence[Array | None]) -> Array | None:
  """The mean of those that are there, None of none."""
  there = [array for array in arrays if array is not None]
  if len(there) < 2:
    return there[0] if there else None
  return jnp.stack(there).mean(0)
