"""The HTML page and claims.json: what they show, which results they choose, what is broken."""

import base64
import dataclasses
import html.parser
import json
import re

import pytest

from attn.report import figures, page, results
from experiments import claims


def result_file(root, experiment, folder, *, profile="smoke", finished="2026-03-05", **changes):
  """A result with one figure and one claim, written where an experiment would."""
  drawing, (axes,) = figures.new("Entropy falls & <stays>")
  figures.line(axes, [1, 2], [3, 5], [2, 4], [4, 6], label="q", series=0)
  figures.save(drawing, root / folder / "figures" / "entropy")
  claim = results.Claim('62', 'property', 'An older wording.', measured='1.013 <of> 1',
                        interval=(0.9876, None), verdict=results.REPRODUCED,
                        experiment='score_scale', why='Within 10%.')  # fmt: skip
  fields = {
    "config": {"draws": 7, "inner": {"rate": 0.5}},
    "seeds": (3, 5),
    "environment": {"python": "3.11", "finished": finished},
    "command": f"python -m launch.run --experiment={experiment} --profile={profile}",
    "seconds": 83.0,
    "metrics": {"entropy": results.Metric(1.25, 1.0, None, 7, "nats")},
    "figures": {"figures/entropy.svg": results.Figure("Entropy falls", "n = 7, bands: 95%.")},
    "claims": (claim,),
  }
  result = results.Result(experiment, profile, **{**fields, **changes})
  results.write_text(root / folder / "result.json", results.to_json(result))
  return result


class Reader(html.parser.HTMLParser):
  """Collects what a page refers to, and checks that its tags are closed."""

  void = {"meta", "col", "img", "br"}

  def __init__(self, text):
    super().__init__()
    self.ids, self.links, self.sources, self.open = set(), set(), [], []
    self.feed(text)
    self.close()

  def handle_starttag(self, tag, attributes):
    attributes = dict(attributes)
    assert tag not in ("script", "link", "iframe")
    if tag not in self.void:
      self.open.append(tag)
    if "id" in attributes:
      assert attributes["id"] not in self.ids
      self.ids.add(attributes["id"])
    if tag == "a":
      self.links.add(attributes["href"])
    if tag == "img":
      assert attributes["alt"]
      self.sources.append(attributes["src"])

  def handle_endtag(self, tag):
    assert self.open.pop() == tag


def test_the_page_stands_alone_and_its_links_lead_somewhere(tmp_path):
  result_file(tmp_path, "score_scale", "score_scale/smoke")
  path = page.write(tmp_path, claims.REGISTER, questions={"score_scale": "When does it saturate?"})
  assert path == tmp_path / "report" / "index.html"
  text = path.read_text()
  reader = Reader(text)
  assert not reader.open
  assert {link.removeprefix("#") for link in reader.links} <= reader.ids
  assert {f"claim-{claim.number}" for claim in claims.REGISTER} <= reader.ids
  assert len(reader.sources) == 2  # the finding and the section
  for source in reader.sources:
    head, _, data = source.partition(",")
    assert head == "data:image/svg+xml;base64" and b"<svg" in base64.b64decode(data)
  assert not re.search(r'(?:src|href)="(?!#|data:)|url\(|@import', text)
  assert str(tmp_path) not in text


def test_the_page_shows_what_was_measured(tmp_path):
  result_file(tmp_path, "score_scale", "score_scale/smoke")
  text = page.write(
    tmp_path, claims.REGISTER, questions={"score_scale": "When does it saturate?"}
  ).read_text()
  for wanted in (
    'When does it saturate?', '1.013 &lt;of&gt; 1 [0.9876, \N{EN DASH}]', 'Within 10%.', '1.250',
    '[1, \N{EN DASH}]', 'nats', '1 min 23 s', '3, 5', 'inner.rate', 'n = 7, bands: 95%.',
    '--experiment=score_scale --profile=smoke', 'The result of score_scale does not judge it.',
    'The experiment anatomy is not written yet.', 'take no figure, number or verdict of theirs',
    'Printed without the numbers and conditions of each experiment: 1\n',
  ):  # fmt: skip
    assert wanted in text, wanted
  assert "An older wording" not in text


def test_only_a_smoke_run_is_called_one(tmp_path):
  result_file(tmp_path, "score_scale", "score_scale/default", profile="default")
  text = page.write(tmp_path, claims.REGISTER, questions={"anatomy": "What are the parts?"})
  assert "Of the profile smoke" not in text.read_text()
  assert "No result of anatomy was found." in text.read_text()


def test_an_experiment_without_claims_is_shown_or_said_to_be_missing(tmp_path):
  questions = {"papers_table": "In which order?"}
  result_file(tmp_path, "score_scale", "score_scale/default", profile="default")
  text = page.write(tmp_path, claims.REGISTER, questions=questions).read_text()
  assert "<dt>papers_table</dt><dd>no claim</dd>" in text and "In which order?" not in text
  result_file(tmp_path, "papers_table", "papers_table/default", profile="default", claims=())
  text = page.write(tmp_path, claims.REGISTER, questions=questions).read_text()
  _, _, section = text.partition('<section id="papers_table">')
  section, _, _ = section.partition("</section>")
  for wanted in ("In which order?", "n = 7, bands: 95%.", "1.250", "--experiment=papers_table"):
    assert wanted in section, wanted
  assert "Verdicts" not in section and "<dt>papers_table</dt>" not in text


def test_claims_json_holds_every_claim_in_the_schema(tmp_path):
  result_file(tmp_path, "score_scale", "score_scale/smoke")
  page.write(tmp_path, claims.REGISTER)
  data = json.loads((tmp_path / "report" / "claims.json").read_text())
  assert len(data) == 87
  assert {entry.pop("full") for entry in data} == {None}  # no full run is stored
  by_number = {entry["number"]: results.claim_from_dict(entry) for entry in data}
  assert by_number["62"].verdict == results.REPRODUCED
  assert by_number["62"].statement == claims.BY_NUMBER["62"].statement
  assert by_number["62"].interval == (0.9876, None)
  assert by_number["63"].verdict == results.NOT_RUN and by_number["63"].why
  assert by_number["27"].verdict == results.NOT_MEASURABLE


def test_verdicts_are_counted_by_kind(tmp_path):
  result_file(tmp_path, "score_scale", "score_scale/smoke")
  text = page.write(tmp_path, claims.REGISTER).read_text()
  (row,) = re.findall(r"<tr><th>property</th>(.*?)</tr>", text)
  properties = sum(claim.kind == "property" for claim in claims.REGISTER)
  counts = [int(count) for count in re.findall(r">(\d+)<", row)]
  assert counts[0] == 1 and counts[-1] == properties == sum(counts[:-1])


def test_stored_results_fill_what_no_result_settles(tmp_path):
  stored, here = tmp_path / "stored", tmp_path / "here"
  result_file(stored, "score_scale", "score_scale", profile="full")
  here.mkdir()

  def read(**choices):
    path = page.write(here, claims.REGISTER, stored=stored, **choices)
    data = json.loads((here / "report" / "claims.json").read_text())
    (claim,) = (entry for entry in data if entry["number"] == "62")
    return claim, path.read_text()

  claim, text = read()
  assert claim["verdict"] == results.REPRODUCED and claim["why"].startswith(page.STORED)
  assert text.count("not run again for this page") == 1 and 'id="score_scale"' in text
  # What was run here comes first, unless it decides nothing.
  one = result_file(here, "score_scale", "score_scale/default", profile="default").claims[0]
  claim, text = read()
  assert not claim["why"].startswith(page.STORED)
  open_ = dataclasses.replace(one, verdict=results.NOT_RESOLVED)
  result_file(here, "score_scale", "score_scale/default", profile="default", claims=(open_,))
  claim, text = read()
  assert claim["verdict"] == results.REPRODUCED and claim["why"].startswith(page.STORED)
  assert 'id="score_scale"' in text and 'id="score_scale-full"' in text
  assert "has its verdicts on 62." in text
  # A page of toy runs has no other.
  result_file(here, "score_scale", "score_scale/smoke")
  assert not read(profile="smoke")[0]["why"].startswith(page.STORED)


def test_a_stored_full_result_has_a_section_beside_a_run_that_is_not_full(tmp_path):
  stored, here = tmp_path / "stored", tmp_path / "here"
  told = {
    "environment": {"commit": "abc123", "finished": "2026-02-03"},
    "seconds": 7325.0,
    "seeds": (2, 4, 6, 8, 10),
    "metrics": {"spread": results.Metric(3.125, 2.5, 4.5, 5, "nats")},
    "figures": {
      "figures/entropy.svg": results.Figure("Entropy falls", "n = 5."),
      "figures/other.svg": results.Figure("Another <one>", "n = 5."),
    },
  }
  full = result_file(stored, "score_scale", "score_scale", profile="full", **told)
  one = result_file(here, "score_scale", "score_scale/default", profile="default").claims[0]
  text = page.write(here, claims.REGISTER, stored=stored).read_text()
  reader = Reader(text)
  assert not reader.open and {link.removeprefix("#") for link in reader.links} <= reader.ids
  _, _, section = text.partition('<section id="score_scale-full">')
  section, _, _ = section.partition("</section>")
  for wanted in (
    'not run again for this page', 'has the verdicts of the run above', 'abc123', '2026-02-03',
    '2 h 2 min', '2, 4, 6, 8, 10', full.command, '3.125', '[2.500, 4.500]', 'n = 5.',
    'Figures stored: 1 of 2', '\N{LEFT DOUBLE QUOTATION MARK}Another &lt;one&gt;', '1.013',
  ):  # fmt: skip
    assert wanted in section, wanted
  assert '<p class="problem">' not in text  # what is not stored is not missing
  # A full run of one's own takes its place, unless it leaves a claim open.
  result_file(here, "score_scale", "score_scale/default", profile="full")
  assert "score_scale-full" not in page.write(here, claims.REGISTER, stored=stored).read_text()
  open_ = dataclasses.replace(one, verdict=results.NOT_RESOLVED)
  result_file(here, "score_scale", "score_scale/default", profile="full", claims=(open_,))
  assert "score_scale-full" in page.write(here, claims.REGISTER, stored=stored).read_text()


def test_the_verdict_of_a_stored_full_run_stands_beside_another(tmp_path):
  stored, here = tmp_path / "stored", tmp_path / "here"
  result_file(stored, "score_scale", "score_scale", profile="full")
  one = result_file(here, "score_scale", "score_scale/default", profile="default").claims[0]
  link = '<a class="full" href="#score_scale-full">'

  def read(verdict, **choices):
    changed = dataclasses.replace(one, verdict=verdict)
    result_file(here, "score_scale", "score_scale/default", profile="default", claims=(changed,))
    text = page.write(here, claims.REGISTER, **{"stored": stored, **choices}).read_text()
    data = json.loads((here / "report" / "claims.json").read_text())
    (claim,) = (entry for entry in data if entry["number"] == "62")
    (row,) = re.findall(r'<tr id="claim-62">.*?</tr>', text, re.S)
    (total,) = re.findall(r'<tr class="total">.*?</tr>', text)
    (finding,) = re.findall(r'<section id="findings">.*?</section>', text, re.S)
    for shown in (row, finding):  # a finding has what the table has
      assert f">{claim['verdict']}</span>" in shown and claim["why"] in shown
      assert re.findall('<a class="full".*?</a>', shown) == re.findall(
        '<a class="full".*?</a>', row
      )
    return claim, row, text, [int(count) for count in re.findall(r">(\d+)<", total)]

  full = {
    "verdict": "reproduced", "measured": "1.013 <of> 1", "interval": [0.9876, None], "seeds": 2,
  }  # fmt: skip
  claim, row, text, counts = read(results.QUALIFIED)
  assert claim["verdict"] == results.QUALIFIED and claim["full"] == full
  assert f"{link}full run, 2 seeds: reproduced</a>" in row
  assert counts[:2] == [0, 1]  # of the verdicts that are shown
  assert re.search(r"came to another verdict .*\n<a href=\"#claim-62\">", text)
  claim, row, text, _ = read(results.REPRODUCED)
  assert claim["full"] == full and link not in text and "came to another verdict" not in text
  claim, row, text, counts = read(results.NOT_RESOLVED)
  assert claim["verdict"] == results.REPRODUCED and claim["full"] == full and counts[0] == 1
  assert f"{link}from the stored full run, 2 seeds</a>" in row
  assert re.search(r"Counted with the verdict of a stored .*\n<a href=\"#claim-62\">", text)
  assert read(results.QUALIFIED, stored=None)[0]["full"] is None


def test_the_page_of_attention_is_linked_where_there_is_one(tmp_path):
  result_file(tmp_path, "score_scale", "score_scale/smoke")
  link = f'href="{page.ATTENTION}"'
  assert link not in page.write(tmp_path, claims.REGISTER).read_text()
  (tmp_path / "report" / page.ATTENTION).write_text("<html></html>")
  assert link in page.write(tmp_path, claims.REGISTER).read_text()


def test_a_claim_is_judged_by_its_owner_alone(tmp_path):
  result_file(tmp_path, "worked_example", "a")  # cites claim 62, which score_scale owns
  page.write(tmp_path, claims.REGISTER)
  data = json.loads((tmp_path / "report" / "claims.json").read_text())
  assert [c["verdict"] for c in data if c["number"] == "62"] == [results.NOT_RUN]


def test_which_of_several_results_is_shown(tmp_path):
  for folder, profile, finished in (
    ("x/smoke", "smoke", "2026-03-07"),
    ("x/default", "default", "2026-03-05"),
    ("sweep/1", "custom", "2026-03-11"),
  ):
    result_file(tmp_path, "score_scale", folder, profile=profile, finished=finished)
  chosen = page.collect(tmp_path)
  assert chosen.shown["score_scale"][0].profile == "default"  # newer ones are of other profiles
  assert sorted(chosen.others) == [
    "sweep/1/result.json (custom)",
    "x/smoke/result.json (smoke)",
  ]
  assert page.collect(tmp_path, "smoke").shown["score_scale"][0].profile == "smoke"
  full = page.collect(tmp_path, "full")
  assert not full.shown and len(full.others) == 3
  assert full.problems == ("score_scale: no result of the profile full",)
  assert "sweep/1/result.json (custom)" in page.write(tmp_path, claims.REGISTER).read_text()
  only = tmp_path / "sweep"
  assert page.collect(only).shown["score_scale"][0].profile == "custom"


def test_the_order_of_profiles_and_the_newest_within_one(tmp_path):
  for day, profile in enumerate(("default", "default", "full", "smoke", "smoke", "custom"), 1):
    folder = f"{day}"
    result_file(tmp_path, "score_scale", folder, profile=profile, finished=f"2026-03-0{day}")
  for expected in ("2", "1", "3", "5", "4", "6"):
    assert page.collect(tmp_path).shown["score_scale"][1].name == expected
    (tmp_path / expected / "result.json").unlink()


@pytest.mark.parametrize(
  ("profile", "told"),
  [
    ("smke", r"no result of a profile 'smke' \(did you mean 'smoke'\?\)"),
    ("fulll", r"no result of a profile 'fulll' \(did you mean 'full'\?\)"),
    ("full", "no result of a profile 'full' .*smoke"),
  ],
)
def test_a_profile_that_nothing_has_leaves_the_page_alone(tmp_path, profile, told):
  result_file(tmp_path, "score_scale", "score_scale/smoke")
  path = page.write(tmp_path, claims.REGISTER)
  before = path.read_bytes()
  with pytest.raises(results.ResultError, match=told):
    page.write(tmp_path, claims.REGISTER, profile=profile)
  assert path.read_bytes() == before


def test_half_a_character_is_a_problem_and_no_error(tmp_path):
  result_file(tmp_path, "score_scale", "score_scale/smoke")
  broken = tmp_path / "score_scale/smoke/result.json"
  broken.write_text(broken.read_text().replace("An older wording.", r"\ud800"))
  found = page.collect(tmp_path)
  assert not found.shown
  assert found.problems[0].startswith("score_scale/smoke/result.json: holds half a character")
  page.write(tmp_path, claims.REGISTER)


def test_broken_files_are_named_on_the_page_and_the_rest_is_shown(tmp_path):
  result_file(tmp_path, "score_scale", "score_scale/smoke")
  result_file(tmp_path, "worked_example", "worked_example/smoke", claims=())
  (tmp_path / "worked_example/smoke/figures/entropy.svg").unlink()
  results.write_text(tmp_path / "bottleneck/smoke/result.json", '{"experiment": "bott')
  text = page.write(tmp_path, claims.REGISTER).read_text()
  problems = re.findall(r'<p class="problem">(.*?)</p>', text)
  assert any(p.startswith("bottleneck/smoke/result.json: not JSON") for p in problems)
  assert any("figure figures/entropy.svg is missing" in p for p in problems)
  assert str(tmp_path) not in text and "1.013 &lt;of&gt; 1" in text


def test_an_empty_folder_gives_a_page_that_says_so(tmp_path):
  text = page.write(tmp_path, claims.REGISTER).read_text()
  assert "no result.json of any experiment was found" in text
  assert not Reader(text).open


def test_the_page_is_the_same_for_the_same_results(tmp_path):
  result_file(tmp_path, "score_scale", "score_scale/smoke")
  first = page.write(tmp_path, claims.REGISTER).read_bytes()
  assert first == page.write(tmp_path, claims.REGISTER).read_bytes()


@pytest.mark.parametrize(
  ('value', 'text'),
  [
    (None, '\N{EN DASH}'), (0, '0'), (3.0, '3'), (1.0002, '1.000'), (0.12345, '0.1235'),
    (20000, '20,000'), (84350.7, '84,350.7'), (1.5e-7, '1.50e-07'), (-2.5, '-2.500'),
    (2.5e17, '2.50e+17'),
  ],
)  # fmt: skip
def test_numbers_have_four_digits(value, text):
  assert page.number(value) == text


def test_durations_are_said_as_people_do():
  assert [page.duration(s) for s in (3.14, 59.94, 83, 3599.9, 7325)] == [
    '3.1 s', '59.9 s', '1 min 23 s', '1 h 0 min', '2 h 2 min',
  ]  # fmt: skip
