"""The figure of `experiments.two_roles`."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from attn.evaluation.intervals import Interval, mean_interval
from attn.report import figures
from experiments.two_roles_recall import Found


def recall(
  found: Mapping[str, Sequence[Found]], costs: Mapping[str, Interval], equal: float
) -> Figure:
  """Losses of the arms against their parameters, and what sharing costs at each width.

  Args:
    found: the runs of each arm, by width.
    costs: the loss of the shared vector less that of the split one.
    equal: a loss too small to matter.
  """
  figure, (left, right) = figures.new(_message(costs, equal), columns=2, size=(11.0, 4.6))
  ends: list[float] = []  # those that a logarithmic axis can show
  for series, (arm, by_width) in enumerate(found.items()):
    mean, low, high, _ = zip(*(mean_interval(one.nats) for one in by_width), strict=True)
    counts = [one.parameters for one in by_width]
    figures.points(left, counts, mean, low, high, label=arm, series=series, shift=4 * (series - 1))
    ends += [end for end in (*mean, *low) if 0 < end < np.inf]
  left.set_xscale("log")
  left.set_yscale("log")
  left.set_ylim(bottom=min(ends) / 2)
  counts = [one.parameters for one in found["shared"]]
  left.set_xticks(counts, [f"{count:,}" for count in counts])
  left.minorticks_off()
  figures.axes_text(left, x="parameters", y="loss [nats a query]", title="associative recall")
  figures.legend(left)
  mean, low, high, _ = zip(*costs.values(), strict=True)
  figures.points(
    right, range(len(costs)), mean, low, high, label="shared less split", series=0, joined=False
  )
  right.axhline(equal, color="#888888", linestyle="--", linewidth=1.2)
  right.set_xticks(range(len(costs)), [name.replace(", ", "\n") for name in costs])
  right.set_xlim(-0.5, len(costs) - 0.5)
  right.annotate(
    f"{equal:g} nats", (len(costs) - 0.5, equal), xytext=(-2, 3), textcoords="offset points",
    ha="right", fontsize=8,
  )  # fmt: skip
  figures.axes_text(right, x="", y="loss [nats]", title="shared less split, equal parameters")
  return figure


def _message(costs: Mapping[str, Interval], equal: float) -> str:
  """Where sharing costs, and how much at the two ends."""
  ends = list(costs.items())
  (first, most), (last, least) = ends[0], ends[-1]
  where = sum(cost.low > equal for cost in costs.values())
  return (
    f"At equal parameters one vector in both roles costs at {where} of {len(costs)} widths:"
    f" {most.mean:.2f} nats ({first}), {least.mean:.2f} ({last})"
  )
