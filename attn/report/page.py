"""The report: one self-contained HTML page and `claims.json`, built from result files alone.

Which result of an experiment is shown, where a folder holds several: of the profile that was asked
for; without one, of `default`, else of `full`, else of `smoke`, else another ('custom': an
override, a sweep's cell). A cell that equals a profile is that profile. Among those of one profile
it is the one that finished last. The rest is listed at the end of the page.

Results may be stored elsewhere as well, of full runs, which take too long to be repeated each time.
Such a one has a section of its own, marked as not run again, wherever the result that is shown is
not of a full run itself. Its verdict counts where there is no other, or where it settles a claim
that the other does not; where it is another than the one that counts, it stands beside it.
"""

import base64
import collections
import dataclasses
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import jinja2

from attn import configs
from attn.report import results
from attn.report.results import Claim, Full, Metric, Result, Settled

# The experiments whose first figure opens the page, in this order, as far as they were run.
FINDINGS = ("score_scale", "order_of_the_step", "local_vs_global", "bottleneck")

# What stands before the reason of a verdict that was not measured for this page.
STORED = "From a stored full run, not run again:"

# A page of launch.attention, which is linked where it lies beside the report.
ATTENTION = "attention.html"

# The profiles every experiment has, the one that is shown first.
PROFILES = ("default", "full", "smoke")


@dataclasses.dataclass(frozen=True)
class Collection:
  """The result files below a folder.

  Attributes:
    shown: the result of each experiment that the page shows, with its folder.
    others: paths of the results that are not shown, relative to the folder, and their profiles.
    problems: one line for each file that cannot be used.
    profiles: of all results that were found.
  """

  shown: dict[str, tuple[Result, pathlib.Path]]
  others: tuple[str, ...]
  problems: tuple[str, ...]
  profiles: tuple[str, ...]


def collect(workdir: str | os.PathLike[str], profile: str | None = None) -> Collection:
  """Reads every `result.json` below a folder and chooses one an experiment.

  Args:
    workdir: the folder with all results.
    profile: show results of this profile only; None for the rule of this module's docstring.

  Returns:
    What was found. A file that is broken is a line in `problems`, never an exception.
  """
  root = pathlib.Path(workdir)
  found: dict[str, list[tuple[int, str, str, Result]]] = collections.defaultdict(list)
  problems = []
  for path in sorted(root.rglob(results.RESULT_FILE)):
    name = path.relative_to(root).as_posix()
    try:
      result = results.read(path)
    except results.ResultError as error:
      problems.append(str(error).replace(str(path), name))
      continue
    finished = str(result.environment.get("finished", ""))
    found[result.experiment].append((_rank(result.profile, profile), finished, name, result))
  if not found:
    problems.append("no result.json of any experiment was found; run one with launch.run")
  profiles = sorted({result.profile for many in found.values() for *_, result in many})
  shown, others = {}, []
  for experiment, candidates in sorted(found.items()):
    ranked = sorted(candidates, key=lambda candidate: candidate[:3], reverse=True)
    if profile and ranked[0][3].profile != profile:
      problems.append(f"{experiment}: no result of the profile {profile}")
    else:
      _, _, name, result = ranked.pop(0)
      shown[experiment] = (result, (root / name).parent)
    others += [f"{name} ({result.profile})" for _, _, name, result in ranked]
  return Collection(shown, tuple(others), tuple(problems), tuple(profiles))


def _rank(profile: str, wanted: str | None) -> int:
  """The larger, the sooner a result of this profile is shown."""
  order = [wanted] if wanted else [*reversed(PROFILES)]
  return order.index(profile) + 1 if profile in order else 0


def settle(
  register: Sequence[Claim],
  shown: Iterable[Result],
  experiments: Iterable[str] | None = None,
  stored: Sequence[Result] = (),
) -> tuple[Settled, ...]:
  """The register with the verdicts of the results; the rest stays as it is and says why.

  Args:
    register: every claim of the chapter.
    shown: the results.
    experiments: those that can be run; None for all that own a claim.
    stored: results of earlier runs, told of beside each verdict; theirs counts for claims that
      `shown` does not judge, or cannot resolve.
  """
  written = None if experiments is None else frozenset(experiments)
  with_result = {result.experiment for result in shown}
  now, before = _judged(shown), _judged(stored)
  full: dict[tuple[str | None, str], Full] = {
    (result.experiment, one.number): Full(
      one.verdict, one.measured, one.interval, len(result.seeds)
    )
    for result in stored
    for one in result.claims
  }
  settled = []
  for claim in register:
    owned = claim.experiment, claim.number
    found, earlier = now.get(owned), before.get(owned)
    if earlier and (found is None or _better(found, earlier)):
      why = f"{STORED} {earlier.why}"
      found = dataclasses.replace(earlier, why=why)
    if found:
      claim = _as_found(claim, found)
    elif claim.verdict == results.NOT_RUN:
      if claim.experiment in with_result:
        why = f"The result of {claim.experiment} does not judge it."
      elif written is None or claim.experiment in written:
        why = f"No result of {claim.experiment} was found."
      else:
        why = f"The experiment {claim.experiment} is not written yet."
      claim = dataclasses.replace(claim, why=why)
    settled.append(Settled(**vars(claim), full=full.get(owned)))
  return tuple(settled)


def _judged(found: Iterable[Result]) -> dict[tuple[str | None, str], Claim]:
  """Claims by the experiment that judged them and their number."""
  return {(result.experiment, one.number): one for result in found for one in result.claims}


def _as_found(claim: Claim, found: Claim) -> Claim:
  """A registered claim as a run judged it.

  Wording and owner are the register's: a result may be older than its last edit.
  """
  names = ("measured", "interval", "verdict", "why")
  return dataclasses.replace(claim, **{name: getattr(found, name) for name in names})


def _better(found: Claim, earlier: Claim) -> bool:
  """Whether an earlier run settled what this one leaves open."""
  return found.verdict == results.NOT_RESOLVED != earlier.verdict


def _taken(claim: Claim) -> bool:
  """Whether the verdict that counts is that of a stored run."""
  return claim.why.startswith(STORED)


def _apart(claim: Settled) -> bool:
  """Whether the stored full run came to another verdict than the one that counts."""
  return claim.full is not None and claim.full.verdict != claim.verdict


def write(
  workdir: str | os.PathLike[str],
  register: Sequence[Claim],
  *,
  questions: Mapping[str, str] | None = None,
  profile: str | None = None,
  stored: str | os.PathLike[str] | None = None,
) -> pathlib.Path:
  """Writes `report/index.html` and `report/claims.json` below `workdir`.

  Args:
    workdir: the folder with the results; they may lie at any depth below it.
    register: every claim of the chapter, as `experiments.claims.REGISTER`.
    questions: experiment to the question it asks, as `experiments.claims.questions()` reads them.
    profile: show results of this profile only.
    stored: a folder with results of earlier runs, which a page of `smoke` leaves out.

  Returns:
    The path of the page.

  Raises:
    ResultError: there is no result of `profile`; the page that is there is left as it is.
  """
  root = pathlib.Path(workdir)
  found = collect(root, profile)
  if profile and not found.shown:
    names = found.profiles if profile in PROFILES else {*PROFILES, *found.profiles}
    hint = configs.nearest(profile, sorted(names))
    raise results.ResultError(f"{root} holds no result of a profile {profile!r}{hint}")
  earlier = collect(stored).shown if stored and profile != "smoke" else {}
  now, before = ([result for result, _ in some.values()] for some in (found.shown, earlier))
  claims = settle(register, now, questions, before)
  sections = _sections(found.shown, earlier, claims, questions or {})
  missing = [f"{section['name']}: {line}" for section in sections for line in section["missing"]]
  page = template("page.html.jinja").render(
    findings=[section for section in sections if section["figures"] and section["finding"]],
    toys=[name for name, (result, _) in found.shown.items() if result.profile == "smoke"],
    attention=ATTENTION if (root / "report" / ATTENTION).is_file() else None,
    verdicts=results.VERDICTS,
    counts=_counts(claims),
    claims=claims,
    sections=sections,
    stored={one["result"].experiment: one["name"] for one in sections if one["stored"]},
    is_taken=_taken,
    is_apart=_apart,
    taken=[claim.number for claim in claims if _taken(claim)],
    apart=[claim.number for claim in claims if _apart(claim)],
    absent=_absent(register, {*found.shown, *earlier}, questions or {}),
    others=found.others,
    problems=[*found.problems, *missing],
  )
  results.write_text(root / "report" / "claims.json", results.to_json(list(claims)))
  results.write_text(root / "report" / "index.html", page)
  return root / "report" / "index.html"


def template(name: str) -> jinja2.Template:
  """A template of this folder, with the filters below; what it is given is escaped."""
  environment = jinja2.Environment(
    loader=jinja2.PackageLoader("attn.report", "."),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
  )
  environment.filters.update(
    number=number, interval=interval, metric=metric, duration=duration, slug=_slug
  )
  return environment.get_template(name)


def _order(experiment: str) -> tuple[int, str]:
  place = FINDINGS.index(experiment) if experiment in FINDINGS else len(FINDINGS)
  return place, experiment


def _slug(text: str) -> str:
  return text.replace(" ", "-")


def _sections(
  shown: Mapping[str, tuple[Result, pathlib.Path]],
  stored: Mapping[str, tuple[Result, pathlib.Path]],
  claims: Sequence[Settled],
  questions: Mapping[str, str],
) -> list[dict[str, Any]]:
  """The sections of the page in their order, a stored result's behind that of its experiment."""
  named = {claim.experiment for claim in claims if _taken(claim) or _apart(claim)}
  entries = [(name, *entry, False) for name, entry in shown.items()] + [
    (name, *entry, True)
    for name, entry in stored.items()
    if name not in shown or shown[name][0].profile != "full" or name in named
  ]
  return [
    _section(result, folder, claims, questions.get(name, ""), old, name in shown)
    for name, result, folder, old in sorted(entries, key=lambda entry: (_order(entry[0]), entry[3]))
  ]


def _section(
  result: Result,
  folder: pathlib.Path,
  claims: Sequence[Claim],
  question: str,
  stored: bool,
  again: bool,
) -> dict[str, Any]:
  """What the template needs to know of one result; `again` if its experiment has another, newer."""
  figures, missing, left_out = [], [], []
  for path, figure in result.figures.items():
    try:
      data = (folder / path).read_bytes()
    except OSError:
      if stored:  # which keeps no more than the first
        left_out.append(figure.title)
      else:
        missing.append(f"figure {path} is missing; run the experiment again")
      continue
    inlined = "data:image/svg+xml;base64," + base64.b64encode(data).decode()
    figures.append({"title": figure.title, "caption": figure.caption, "data": inlined})
  judged = _judged([result])
  owned = [claim for claim in claims if (claim.experiment, claim.number) in judged]
  second = stored and again
  return {
    "name": f"{result.experiment}-full" if second else result.experiment,
    "stored": stored,
    "finding": result.experiment in FINDINGS and not second,
    "result": result,
    "question": question,
    "figures": figures,
    "missing": missing,
    "left_out": left_out,
    "claims": [_as_found(claim, judged[claim.experiment, claim.number]) for claim in owned],
    "counted": [claim.number for claim in owned if _taken(claim) == stored],
    "conditions": list(configs.leaves(result.config)),
  }


def _counts(claims: Sequence[Claim]) -> list[tuple[str, list[int]]]:
  """A row a kind and one for all: how many claims have each verdict, and how many there are."""
  rows = []
  for kind in (*results.KINDS, "all"):
    of_kind = [claim.verdict for claim in claims if kind in (claim.kind, "all")]
    rows.append((kind, [of_kind.count(verdict) for verdict in results.VERDICTS] + [len(of_kind)]))
  return rows


def _absent(
  register: Sequence[Claim], shown: Set[str], experiments: Iterable[str]
) -> list[tuple[str, str]]:
  """Experiments without a result, and the numbers of the claims that wait for them."""
  waiting: dict[str, list[str]] = {name: [] for name in experiments if name not in shown}
  for claim in register:
    if claim.experiment and claim.experiment not in shown and claim.verdict == results.NOT_RUN:
      waiting.setdefault(claim.experiment, []).append(claim.number)
  return [(name, ", ".join(numbers) or "no claim") for name, numbers in sorted(waiting.items())]


def number(value: float | None) -> str:
  """Four significant digits, or one decimal above a thousand; a dash for what is not known."""
  if value is None:
    return "\N{EN DASH}"
  size = abs(value)
  if size < 1e15 and value == int(value):
    return f"{int(value):,}"
  if size >= 1e6 or size < 1e-3:
    return f"{value:.2e}"
  return f"{value:,.1f}" if size >= 1000 else f"{value:#.4g}"


def interval(ends: tuple[float | None, float | None] | None) -> str:
  """An interval as [low, high], or nothing."""
  return "" if ends is None else f"[{number(ends[0])}, {number(ends[1])}]"


def metric(value: Metric) -> str:
  """The interval of a metric, or nothing where it has none."""
  return "" if value.low is None and value.high is None else interval((value.low, value.high))


def duration(seconds: float) -> str:
  """Wall time as people say it."""
  if seconds < 60:
    return f"{seconds:.1f} s"
  minutes, rest = divmod(round(seconds), 60)
  return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
