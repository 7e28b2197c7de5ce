"""Optimizers from their configuration."""

import optax

from attn.training.config import OptimizerConfig


def schedule(config: OptimizerConfig, steps: int) -> optax.Schedule:
  """The learning rate at every step of a run of `steps` updates."""
  peak, warmup = config.learning_rate, config.warmup
  after = (
    optax.cosine_decay_schedule(peak, max(steps - warmup, 1))
    if config.decay == "cosine"
    else optax.constant_schedule(peak)
  )
  if not warmup:
    return after
  return optax.join_schedules([optax.linear_schedule(0.0, peak, warmup), after], [warmup])


def build(config: OptimizerConfig, steps: int) -> optax.GradientTransformation:
  """Clipping by global norm, then the optimizer."""
  rate = schedule(config, steps)
  if config.name == "adadelta":
    update = optax.adadelta(rate, rho=config.rho, eps=config.epsilon)
  else:
    update = optax.adam(rate, eps=config.epsilon)
  return optax.chain(optax.clip_by_global_norm(config.clip_norm), update)
