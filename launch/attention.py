"""Shows what a trained model reads while it translates lines of text: one HTML page, and heat maps.

Examples:
  python -m launch.attention --workdir=RUN --input=sentences.txt --output=attention.html
  echo attention | python -m launch.attention --workdir=runs/rnnsearch_laptop-g2p --figures=maps
  python -m launch.attention --workdir=RUN --input=sentences.txt --nbest=5

The page stands for itself: open it in a browser, without a network. Choose a sentence, hover over a
word of the translation to see what it was read from, and step through the actions that wrote it,
each with its numbers. Each line has the best three hypotheses of the search, or as many as --nbest
says. --figures=FOLDER adds a PNG and an SVG of the weights of the best. Lines that are empty, or of
more than 500 symbols, are left out. A page of a few dozen sentences opens at once; one of thousands
does not.
"""

import pathlib
import sys
from typing import TYPE_CHECKING

from absl import flags as absl_flags

from launch import flags, resolve

if TYPE_CHECKING:
  from attn.evaluation.traces import System, Trace
  from attn.training import Trained

FLAGS = flags.define("workdir", "input", "nbest", "average")
absl_flags.DEFINE_string(
  "output",
  None,
  "FILE of the page; - is standard output (default: attention.html in the workdir)",
  flag_values=FLAGS,
)
absl_flags.DEFINE_string("figures", None, "FOLDER for a heat map of each line", flag_values=FLAGS)


_SHOWN = 3  # hypotheses of a line, unless another number is asked for
_LONGEST = 500  # symbols of a line: a page holds numbers for each of them at each step


def main(values: absl_flags.FlagValues) -> int:
  """Writes the page, and the figures if asked to."""
  flags.require(values, workdir="RUN")
  workdir = pathlib.Path(values.workdir)
  output = pathlib.Path(values.output or workdir / "attention.html")
  given = values.input or "-"
  if not (workdir / "config.json").exists():  # before lines are waited for
    raise flags.UserError(f"{workdir} holds no trained model; launch.train makes one")
  if output.is_dir():
    raise flags.UserError(f"--output={output} is a folder; give the name of a file in it")
  flags.refuse_the_same({"input": given}, {"output": str(output)})
  lines = read(given)
  resolve.make_folder(output.parent, "output")  # before the work that would be lost
  if values.figures:
    resolve.make_folder(pathlib.Path(values.figures), "figures")
  told = flags.beside(str(output))
  with flags.writing("output", str(output)) as file:
    trained = resolve.trained(workdir, values.average)
    lines = shown(given, lines, trained)
    system, sentences = traced(workdir.resolve().name, trained, lines, values.nbest)
    from attn.report import attention_page

    page = attention_page.html(system, sentences).encode()
    file.write(page)
  print(f"page: {output} ({len(page) / 1e6:.1f} MB, sentences: {len(sentences)})", file=told)
  if values.figures:
    count = draw(pathlib.Path(values.figures), system, sentences)
    print(f"figures: {values.figures} ({count} PNG and SVG)", file=told)
  return 0


def read(name: str) -> dict[str, str]:
  """Returns the lines that hold text, by what they are called.

  Raises:
    UserError: there are none.
  """
  from attn.data import textfiles

  lines = textfiles.read_lines("/dev/stdin" if name == "-" else name)
  kept = {f"line {number}": line for number, line in enumerate(lines, 1) if line.strip()}
  if not kept:
    raise flags.UserError(f"--input={name} holds no text: give at least one line")
  if left := len(lines) - len(kept):
    _warn(f"empty lines are left out: {left} of {len(lines)}")
  return kept


def shown(name: str, lines: dict[str, str], trained: "Trained") -> dict[str, str]:
  """Returns the lines that are not too long to be shown.

  Raises:
    UserError: all are.
  """
  sizes = {number: len(trained.source.encode(line)) for number, line in lines.items()}
  for number, size in sizes.items():
    if size > _LONGEST:
      _warn(f"{number} has {size:,} symbols and is left out: a page shows {_LONGEST} at most")
  kept = {number: line for number, line in lines.items() if sizes[number] <= _LONGEST}
  if not kept:
    raise flags.UserError(f"--input={name} holds no line of at most {_LONGEST} symbols")
  return kept


def traced(
  name: str, trained: "Trained", lines: dict[str, str], nbest: int | None
) -> "tuple[System, list[Trace]]":
  """Translates lines with a model; returns it, under this name, and what its steps computed."""
  from attn.data.vocabulary import UNK
  from attn.decoding import inspection, translation

  config, texts = trained.config, list(lines.values())
  sources = [trained.source.encode(text) for text in texts]
  if unknown := sum(ids.count(UNK) for ids in sources):
    _warn(f"symbols of the input that the model was not trained on: {unknown}")
  edges = config.data.bucket_edges
  found = translation.translate(
    config.model,
    trained.params,
    sources,
    config.search,
    symbols=len(trained.target),
    edges=edges,
    n_best=nbest or min(_SHOWN, config.search.beam),
  )
  sentences = inspection.trace(
    config.model,
    trained.params,
    texts,
    [[best, *best.others] for best in found],
    trained.source,
    trained.target,
    edges=edges,
    names=list(lines),
  )
  search = f"beam {config.search.beam}, alpha {config.search.alpha:g}"
  facts = [("search", search), ("updates", f"{trained.step:,}"), ("data", config.data.name)]
  return inspection.system(config.model, name, facts), sentences


def draw(folder: pathlib.Path, system: "System", sentences: "list[Trace]") -> int:
  """Writes a heat map of each sentence, PNG and SVG; returns how many."""
  if not system.attends:
    raise flags.UserError("--figures: a model without attention has no weights to draw")
  from attn.report import attention_page, figures

  drawn = [one for one in sentences if one.hypotheses[0].steps]
  for sentence in drawn:
    stem = folder / sentence.name.replace(" ", "-")
    figures.save(attention_page.heat_map(sentence), stem)
  return len(drawn)


def _warn(text: str) -> None:
  print(f"launch.attention: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
  flags.run("launch.attention", main, FLAGS, __doc__, resumes=False)
