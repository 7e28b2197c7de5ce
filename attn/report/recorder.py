"""The recorder: writes the files of one run of an experiment, each in one piece."""

import datetime
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attn import workdirs
from attn.report import clock, provenance, results

if TYPE_CHECKING:
  import matplotlib.figure

_CLOCK_FILE = "seconds.txt"


class Recorder:
  """Writes the files of one run of an experiment.

  Use:
    run = recorder.Recorder('score_scale', config, profiles(), workdir, seeds=(config.seed,))
    run.log(width=64, entropy=3.1)
    run.figure('entropy', figure, caption='...')
    return run.finish(metrics={...}, claims=[...])

  A run that was interrupted starts its log afresh, and its clock where it was, to a few seconds.
  """

  def __init__(
    self,
    experiment: str,
    config: Any,
    profiles: Mapping[str, Mapping[str, Any]],
    workdir: str | os.PathLike[str],
    *,
    seeds: Iterable[int],
  ):
    """Writes `config.json` and starts the clock.

    Args:
      experiment: name of the experiment's module.
      config: its frozen configuration; its class must be constructible without arguments.
      profiles: profile name to overrides, as the module's `profiles()` returns them.
      workdir: where the run's files go.
      seeds: every seed the run uses.

    Raises:
      ConfigError: when `workdir` holds a run of another configuration.
    """
    self.workdir = pathlib.Path(workdir)
    self._experiment, self._seeds = experiment, tuple(int(seed) for seed in seeds)
    self._profile, self._command = provenance.profile_and_command(experiment, config, profiles)
    self._config = results.to_plain(config)
    self._figures: dict[str, results.Figure] = {}
    workdirs.claim(self.workdir, config)
    self._log_path = self.workdir / "metrics.jsonl"
    if (self.workdir / results.RESULT_FILE).exists():
      (self.workdir / _CLOCK_FILE).unlink(missing_ok=True)  # a kill may have come before `stop`
    self._clock = clock.Clock(self.workdir / _CLOCK_FILE)
    results.write_text(self._log_path, "")
    self.log(event="start")

  def log(self, **values: Any) -> None:
    """Appends one line to `metrics.jsonl`, with the seconds since the start."""
    row = results.to_plain({"seconds": self._clock.seconds, **values})
    with self._log_path.open("a", encoding="utf-8") as file:
      file.write(json.dumps(row, allow_nan=False) + "\n")

  def figure(self, name: str, figure: "matplotlib.figure.Figure", *, caption: str) -> None:
    """Saves a figure as `figures/NAME.svg` and `.png`; the first one opens the report's page.

    Args:
      name: file name without an ending.
      figure: as made by `attn.report.figures.new`; its title is the one message.
      caption: what is drawn, of what, how many and with which intervals.
    """
    from attn.report import figures  # matplotlib takes most of a second to load

    figures.save(figure, self.workdir / "figures" / name)
    self._figures[f"figures/{name}.svg"] = results.Figure(figures.title_of(figure), caption)

  def finish(
    self, *, metrics: Mapping[str, results.Metric], claims: Sequence[results.Claim]
  ) -> results.Result:
    """Checks and writes `result.json`, and returns it.

    Raises:
      ResultError: see `check`.
    """
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    result = results.Result(
      experiment=self._experiment,
      profile=self._profile,
      config=self._config,
      seeds=self._seeds,
      environment={**provenance.environment(), "finished": now},
      command=self._command,
      seconds=self._clock.seconds,
      metrics=dict(metrics),
      figures=self._figures,
      claims=tuple(claims),
    )
    results.check(result)
    results.write_text(self.workdir / results.RESULT_FILE, results.to_json(result))
    self._clock.stop()
    return results.read(self.workdir / results.RESULT_FILE)
