"""Aligns the words of given translations by a model's attention along them.

Examples:
  python -m launch.align --workdir=RUN --source=src.txt --target=ref.txt --output=links.txt
  python -m launch.align --workdir=RUN,REVERSE_RUN --source=src.txt --target=ref.txt \\
    --symmetrise=grow-diag-final-and --gold=gold.txt --gold_format=naacl

Line n of the output has the links of line n of source and target in Pharaoh's format: `0-0 2-1`,
source and target word, counted from 0. Words stand between blanks, whatever pieces of them the
model reads; only where its symbols are characters, characters are counted. A line with an empty
side has no links. Each target symbol is linked to the source symbol of the largest weight (Luong
2015, 5.4), or with --threshold to all of at least that weight.

REVERSE_RUN was trained from target to source; the links of both are joined by --symmetrise.

With --gold precision, recall and alignment error rate are shown with 95% intervals, by the length
of the source in words, and by its share of unknown symbols: on standard error where the links go to
standard output, else on it. Formats of gold links: pharaoh (`0-0 1?1`, or `1p1`, one line a
sentence; ? and p for links that are only possible), naacl (`sentence source target S`, or P,
counted from 1) and rwth (`SENT: n`, then lines `S i j` or `P i j`). --gold_base says what pharaoh
(default: 0) and rwth count from.
"""

import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags as absl_flags

from launch import evaluate, flags, resolve

if TYPE_CHECKING:
  from attn.evaluation.alignment import Symmetry
  from attn.evaluation.alignment_files import Gold
  from attn.training import Trained

FLAGS = flags.define("workdir", "source", "target", "output", "lengths", "average")
absl_flags.DEFINE_enum(
  "symmetrise",
  "grow-diag-final",
  ["intersection", "union", "grow-diag-final", "grow-diag-final-and"],
  "how links of two runs are joined",
  flag_values=FLAGS,
)
absl_flags.DEFINE_float(
  "threshold", None, "link all weights from here on", 0.0, 1.0, flag_values=FLAGS
)
absl_flags.DEFINE_string("gold", None, "FILE of gold links", flag_values=FLAGS)
absl_flags.DEFINE_enum(
  "gold_format", "pharaoh", ["pharaoh", "naacl", "rwth"], "its format", flag_values=FLAGS
)
absl_flags.DEFINE_enum("gold_base", None, ["0", "1"], "what it counts from", flag_values=FLAGS)


def main(values: absl_flags.FlagValues) -> int:
  """Writes links, and scores them if there are gold ones."""
  folders = check(values)
  from attn.data import textfiles
  from attn.evaluation.alignment_files import pharaoh

  sources, targets = textfiles.read_parallel(values.source, values.target)
  gold = None
  with flags.writing("output", values.output) as file:
    models = [resolve.trained(folder, values.average) for folder in folders]
    sizes = counted(models, folders, sources, targets)
    if values.gold:
      gold = read_gold(values, sizes)
    links = aligned(models, sources, targets, values.threshold, values.symmetrise)
    file.write("".join(f"{pharaoh(one)}\n" for one in links).encode("ascii"))
  if gold is not None:
    told = scores(links, gold, models[0], sources, sizes, flags.edges(values))
    print(told, file=flags.beside(values.output))
  return 0


def check(values: absl_flags.FlagValues) -> list[pathlib.Path]:
  """Returns the folders of the runs; tells what is missing or does not go together."""
  flags.require(values, workdir="RUN", source="FILE", target="FILE")
  files = {name: values[name].value for name in ("source", "target", "gold")}
  flags.refuse_the_same(files, {"output": values.output})
  folders = resolve.folders(values.workdir)
  if len(folders) > 2:
    raise flags.UserError(f"--workdir={values.workdir}: give one run, or one and its reverse")
  if values["symmetrise"].present and len(folders) == 1:
    raise flags.UserError("--symmetrise joins the links of two runs: --workdir=RUN,REVERSE_RUN")
  flags.refuse_without(values, "gold", "gold_format", "gold_base", "lengths")
  if values.threshold is not None and not values.threshold > 0:  # NaN is no weight either
    raise flags.UserError(f"--threshold={values.threshold:g}: give a weight above 0, up to 1")
  if values.gold_format == "naacl" and values.gold_base == "0":
    raise flags.UserError("--gold_base=0: naacl counts from 1")
  if values.gold_format == "rwth" and values.gold_base is None:
    raise flags.UserError("--gold_base is missing: files in rwth's format count from 0 or from 1")
  flags.edges(values)
  return folders


def read_gold(values: absl_flags.FlagValues, sizes: Sequence[tuple[int, int]]) -> "Gold":
  """Returns the links of `--gold`; tells of sentences that have words and none of them."""
  from attn.evaluation import alignment_files

  base = None if values.gold_base is None else int(values.gold_base)
  base = 0 if base is None and values.gold_format == "pharaoh" else base
  gold = alignment_files.read_gold(values.gold, values.gold_format, base=base, lengths=sizes)
  linked = [bool(sure or possible) for sure, possible in zip(*gold, strict=True)]
  if not any(linked):
    raise flags.UserError(f"--gold={values.gold} has no links: there is nothing to score against")
  if bare := sum(all(size) and not one for size, one in zip(sizes, linked, strict=True)):
    print(
      f"launch.align: {values.gold}: lines with words but without a link: {bare:,} of"
      f" {len(sizes):,}; what is found there counts as wrong",
      file=sys.stderr,
    )
  return gold


def counted(
  models: "Sequence[Trained]",
  folders: Sequence[pathlib.Path],
  sources: Sequence[str],
  targets: Sequence[str],
) -> list[tuple[int, int]]:
  """Returns the words of both sides of each line; two runs must count the same ones."""
  found = []
  for model, folder, order in zip(models, folders, (1, -1), strict=False):
    if model.config.model.score == "none":
      raise flags.UserError(f"{folder} is a model without attention: it links nothing")
    sides = (model.source, model.target)[::order]
    found.append(
      [
        tuple(max(side.words(text), default=-1) + 1 for side, text in zip(sides, pair, strict=True))
        for pair in zip(sources, targets, strict=True)
      ]
    )
  for number, sizes in enumerate(zip(*found, strict=True), 1):
    if len(set(sizes)) > 1:
      raise flags.UserError(
        f"line {number}: {folders[0]} counts {sizes[0][0]} and {sizes[0][1]} words, {folders[1]}"
        f" {sizes[1][0]} and {sizes[1][1]}: is the second run one from target to source?"
      )
  return found[0]


def aligned(
  models: "Sequence[Trained]",
  sources: Sequence[str],
  targets: Sequence[str],
  threshold: float | None,
  method: "Symmetry",
) -> list[set[tuple[int, int]]]:
  """Returns the links of each line, those of two runs joined."""
  from attn.data.catalog import Corpus
  from attn.evaluation import alignment
  from attn.training import scoring

  sides = tuple(sources), tuple(targets)
  forward, *reverse = (
    scoring.word_links(model, Corpus(*sides[::order]), threshold)
    for model, order in zip(models, (1, -1), strict=False)
  )
  if not reverse:
    return forward
  return [
    alignment.symmetrised(one, {(s, t) for t, s in other}, method)
    for one, other in zip(forward, reverse[0], strict=True)
  ]


def scores(
  links: Sequence[set[tuple[int, int]]],
  gold: "Gold",
  model: "Trained",
  sources: Sequence[str],
  sizes: Sequence[tuple[int, int]],
  edges: Sequence[int],
) -> str:
  """Returns the table of precision, recall and error rate."""
  from attn.evaluation import alignment, groups
  from attn.evaluation.comparison import compare_counts

  chosen = [
    groups.everything(len(links)),
    *groups.length_groups([source for source, _ in sizes], edges),
    *groups.share_groups(evaluate.unknown_shares(sources, model.source)),
  ]
  counts = {"attention": alignment.link_counts(links, gold.sure, gold.possible)}
  rows = []
  for name in ("precision", "recall", "error_rate"):
    rows += compare_counts(
      name, counts, lambda sums, name=name: getattr(alignment.counted_scores(sums), name), chosen
    )
  return evaluate.table(rows)


if __name__ == "__main__":
  flags.run("launch.align", main, FLAGS, __doc__, resumes=False)
