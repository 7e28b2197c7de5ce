"""Tells how probable a model holds given translations.

Examples:
  python -m launch.score --workdir=RUN --source=src.txt --target=ref.txt --output=scores.tsv
  python -m launch.score --workdir=RUN,ANOTHER --source=src.txt --target=out.txt

Line n of the output belongs to line n of source and target, and has, with tabs between them: the
log-probability of the target given the source, in nats, its end included; how many symbols that
are, the end counted; and its perplexity, exp(-log-probability / symbols). Where both sides are
empty, or hold nothing but space, the line is empty. The perplexity of all lines together is told on
standard error where the scores go to standard output, else on it.

Several folders are models with the same vocabularies that score together, as they translate: by the
mean of their probabilities, or with --set=search.ensemble=logits by that of their logits.
"""

import itertools
import math

from absl import flags as absl_flags

from launch import flags, resolve

_SETTING = "search.ensemble"

FLAGS = flags.define("workdir", "source", "target", "output", "set", "average")


def main(values: absl_flags.FlagValues) -> int:
  """Scores the pairs that the flags name."""
  flags.require(values, workdir="RUN", source="FILE", target="FILE")
  files = {"source": values.source, "target": values.target}
  flags.refuse_the_same(files, {"output": values.output})
  if other := [text for text in values.set if text.partition("=")[0].strip() != _SETTING]:
    raise flags.UserError(f"--set={other[0]}: of all settings, scores depend on {_SETTING} alone")
  from attn.data import textfiles

  pairs = list(zip(*textfiles.read_parallel(values.source, values.target), strict=True))
  with flags.writing("output", values.output) as file:
    models = resolve.together(values.workdir, values.average)
    average = resolve.searched(models[0], values.set).ensemble
    from attn.data.catalog import Corpus
    from attn.training import scoring

    filled = [bool(source.strip() or target.strip()) for source, target in pairs]
    given = list(itertools.compress(pairs, filled))
    sides = tuple(source for source, _ in given), tuple(target for _, target in given)
    found = scoring.forced(models, Corpus(*sides), average=average)
    rest = iter(found)
    lines = [line(next(rest).log_probs.tolist()) if one else "" for one in filled]
    file.write("".join(f"{one}\n" for one in lines).encode("ascii"))
  symbols = sum(len(one.log_probs) for one in found)
  if symbols:
    whole = perplexity(sum(one.log_prob for one in found), symbols)
    told = f"perplexity {whole:.6g} of {symbols:,} symbols, {len(found):,} lines"
    print(told, file=flags.beside(values.output))
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
