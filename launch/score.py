"""Tells how probable a model holds given translations.

Examples:
  python -m launch.score --workdir=RUN --source=src.txt --target=ref.txt --output=scores.tsv
  python -m launch.score --workdir=RUN --source=src.txt --target=out.txt

Line n of the output belongs to line n of source and target, and has, with tabs between them: the
log-probability of the target given the source, in nats, its end included; how many symbols that
are, the end counted; and its perplexity, exp(-log-probability / symbols). Where both sides are
empty the line is empty. The perplexity of all lines together is told on standard error where the
scores go to standard output, else on it.
"""

import math
import pathlib
import sys

from absl import flags as absl_flags

from launch import flags, resolve

FLAGS = flags.define("workdir", "source", "target", "output")


def main(values: absl_flags.FlagValues) -> int:
  """Scores the pairs that the flags name."""
  flags.require(values, workdir="RUN", source="FILE", target="FILE")
  for name in ("source", "target"):
    flags.refuse_the_same({name: values[name].value or "-", "output": values.output or "-"})
  from attn.data import textfiles

  pairs = list(zip(*textfiles.read_parallel(values.source, values.target), strict=True))
  trained = resolve.trained(pathlib.Path(values.workdir))
  from attn.data.catalog import Corpus
  from attn.training import scoring

  given = [pair for pair in pairs if any(pair)]
  sides = tuple(source for source, _ in given), tuple(target for _, target in given)
  found = scoring.forced(trained, Corpus(*sides))
  rest = iter(found)
  lines = [line(next(rest).log_probs.tolist()) if any(pair) else "" for pair in pairs]
  with flags.writing("output", values.output or "-") as file:
    file.write("".join(f"{one}\n" for one in lines).encode("ascii"))
  symbols = sum(len(one.log_probs) for one in found)
  if symbols:
    total = sum(one.log_prob for one in found)
    told = (
      f"perplexity {perplexity(total, symbols):.6g} of {symbols:,} symbols, {len(found):,} lines"
    )
    print(told, file=sys.stderr if (values.output or "-") == "-" else sys.stdout)
  return 0


def line(log_probs: list[float]) -> str:
  """Returns what is written of one target."""
  total = math.fsum(log_probs)
  return f"{total:.6f}\t{len(log_probs)}\t{perplexity(total, len(log_probs)):.6g}"


def perplexity(log_prob: float, symbols: int) -> float:
  """Returns exp(-log_prob / symbols), infinite where that is no number."""
  nats = -log_prob / symbols
  return math.exp(nats) if nats < 709 else math.inf


if __name__ == "__main__":
  flags.run("launch.score", main, FLAGS, __doc__, resumes=False)
