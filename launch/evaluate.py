"""Scores lines of text against references, and compares systems.

Examples:
  python -m launch.evaluate --hypotheses=out.txt --references=ref.txt
  python -m launch.evaluate --hypotheses=base.txt,new.txt --references=ref.txt,second.txt \\
    --source=src.txt --vocabulary=RUN --output=scores.json
  python -m launch.evaluate --hypotheses=out.txt --references=ref.txt --metric=token_error_rate

Line n of each file belongs to line n of the others; an empty line of a second or later references
file is no reference. Metrics: bleu and chrf (sacreBLEU, of 100); sequence_accuracy, the share of
lines that equal a reference; token_accuracy, that of tokens, between blanks, that stand where the
reference has them; token_error_rate, edits over tokens of the nearest reference. All but the last
are shown unless --metric says which.

Every score has a 95% interval, by 1,000 draws of lines with replacement. Several hypotheses files
are systems: each is compared with the first one on the same draws (Koehn 2004), and p is the share
of draws in which the difference is not of the sign that it has in all. BLEU and chrF have
sacreBLEU's interval and p. A single line has neither. With --source the scores are also shown by
the length of the source, in words; with --vocabulary by its length in symbols of that, and by the
share of unknown ones. It is a run's folder, which stands for its vocabulary of sources, or the file
of one.

--output has {"signatures": {metric: sacreBLEU's}, "scores": [{"metric", "by", "group", "system",
"n", "value", "low", "high", "difference", "p_value"}, ...]}, null where there is nothing to tell.
"""

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from absl import flags as absl_flags

from launch import flags, resolve

if TYPE_CHECKING:
  from attn.data.vocabulary import Vocabulary
  from attn.evaluation.comparison import Row
  from attn.evaluation.groups import Group

METRICS = ("bleu", "chrf", "sequence_accuracy", "token_accuracy", "token_error_rate")
_SHOWN = METRICS[:-1]

FLAGS = flags.define("source", "lengths")
absl_flags.DEFINE_list(
  "hypotheses", [], "FILE[,FILE...] of outputs, one file a system", flag_values=FLAGS
)
absl_flags.DEFINE_list(
  "references", [], "FILE[,FILE...] of what is right, one or more", flag_values=FLAGS
)
absl_flags.DEFINE_string(
  "vocabulary", None, "RUN, or its source.vocabulary.json: what is unknown", flag_values=FLAGS
)
absl_flags.DEFINE_multi_enum(
  "metric", [], METRICS, "a score to show (repeatable)", flag_values=FLAGS
)
absl_flags.DEFINE_string("output", None, "FILE.json for all that is shown", flag_values=FLAGS)


def main(values: absl_flags.FlagValues) -> int:
  """Scores what the flags name."""
  flags.require(values, hypotheses="FILE", references="FILE")
  for name in ("hypotheses", "references"):
    if not all(values[name].value):
      raise flags.UserError(f"--{name}={','.join(values[name].value)} has a comma without a file")
  if repeated := [one for one in values.hypotheses if values.hypotheses.count(one) > 1]:
    raise flags.UserError(f"--hypotheses has {repeated[0]} twice")
  flags.refuse_without(values, "source", "vocabulary", "lengths")
  edges = flags.edges(values)
  vocabulary = vocabulary_file(values.vocabulary)
  names = "hypotheses", "references", "source"
  files = {**{name: values[name].value for name in names}, "vocabulary": vocabulary}
  flags.refuse_the_same(files, {"output": values.output})
  with contextlib.ExitStack() as stack:
    sink = stack.enter_context(flags.writing("output", values.output)) if values.output else None
    rows, signatures = scored(values, edges, vocabulary)
    shown = [table(rows), *(f"{metric}: {one}" for metric, one in signatures.items())]
    print("\n".join(shown), file=flags.beside(values.output) if sink else sys.stdout)
    if sink:
      sink.write(plain(rows, signatures))
  return 0


def scored(
  values: absl_flags.FlagValues, edges: Sequence[int], vocabulary: str | None
) -> "tuple[list[Row], dict[str, str]]":
  """Returns all scores of the files, and sacreBLEU's signatures by metric."""
  from attn.data import textfiles
  from attn.evaluation import comparison, groups

  source = [values.source] if values.source else []
  texts = textfiles.read_parallel(*values.hypotheses, *values.references, *source)
  if not texts[0]:
    raise flags.UserError(f"{values.hypotheses[0]} has no lines: there is nothing to score")
  systems = dict(zip(values.hypotheses, texts, strict=False))
  first, *others = texts[len(systems) : len(systems) + len(values.references)]
  lines = zip(first, *others, strict=True)
  references = [[one, *(text for text in more if text.strip())] for one, *more in lines]
  chosen = [groups.everything(len(first))]
  if source:
    chosen += source_groups(texts[-1], edges, vocabulary)
  rows, signatures = [], {}
  for metric in dict.fromkeys(values.metric) or _SHOWN:
    found, signature = comparison.compare(metric, systems, references, chosen)
    rows += found
    if signature:
      signatures[metric] = signature
  return rows, signatures


def vocabulary_file(given: str | None) -> str | None:
  """Returns the file of a vocabulary: what was given, or in a run's folder that of its sources."""
  if given is None or not os.path.isdir(given):
    return given
  return os.path.join(given, "source.vocabulary.json")


def source_groups(
  sources: Sequence[str], edges: Sequence[int], vocabulary: str | None
) -> "list[Group]":
  """Returns the lines grouped by the length of their sources, and by what is unknown of them."""
  from attn.data.vocabulary import Vocabulary
  from attn.evaluation import groups

  if vocabulary is None:
    return groups.length_groups([len(text.split()) for text in sources], edges)
  try:
    known = Vocabulary.load(vocabulary)
  except OSError as error:
    raise flags.UserError(f"cannot read --vocabulary={vocabulary}: {error.strerror}") from error
  except ValueError as error:
    raise flags.UserError(f"--vocabulary={error}") from None
  shares = unknown_shares(sources, known)
  by_length = groups.length_groups([len(known.split(text)) for text in sources], edges)
  return [*by_length, *groups.share_groups(shares)]


def unknown_shares(sources: Sequence[str], vocabulary: "Vocabulary") -> list[float]:
  """Returns which share of the symbols of each source is unknown; NaN for an empty one."""
  from attn.data.vocabulary import UNK

  encoded = map(vocabulary.encode, sources)
  return [ids.count(UNK) / len(ids) if ids else math.nan for ids in encoded]


def table(rows: "Iterable[Row]") -> str:
  """Lays out scores in columns."""
  cells = [("metric", "of", "system", "lines", "score", "95% interval", "difference", "p")]
  for row in rows:
    cells.append(
      (
        row.metric,
        f"{row.by} {row.group}".strip(),
        row.system,
        f"{row.n:,}",
        _number(row.value),
        f"[{_number(row.low)}, {_number(row.high)}]",
        "" if row.difference is None else f"{row.difference:+.4g}",
        "" if row.p_value is None else f"{row.p_value:.3f}",
      )
    )
  return resolve.rows(cells)


def plain(rows: "Iterable[Row]", signatures: dict[str, str]) -> bytes:
  """Returns all scores as JSON."""
  from attn.report import results

  scores = results.to_plain([row._asdict() for row in rows])
  text = json.dumps({"signatures": signatures, "scores": scores}, indent=1, allow_nan=False)
  return f"{text}\n".encode()


def _number(value: float) -> str:
  return f"{value:.2f}" if abs(value) >= 10 else f"{value:.4f}"


if __name__ == "__main__":
  flags.run("launch.evaluate", main, FLAGS, __doc__, resumes=False)
