"""The report's page in headless Chromium: it renders, fits, and has no console errors."""

import dataclasses
import pathlib
import re
import shutil

import pytest

from attn import configs
from attn.report import page, results
from experiments import claims, worked_example
from tests import browser

pytestmark = pytest.mark.slow

PROBE = """
  const images = [...document.images];
  return {
    images: images.length,
    broken: images.filter(image => !image.complete || image.naturalWidth === 0).length,
    width: document.documentElement.scrollWidth,
    window: window.innerWidth,
    loaded: performance.getEntriesByType('resource').map(e => e.name)
        .filter(name => !name.startsWith('data:')).length,
    deadLinks: [...document.querySelectorAll('a')]
        .filter(a => !document.getElementById(a.getAttribute('href').slice(1))).length,
    smallest: Math.min(...images.map(image => image.clientWidth)),
    cut: [...document.querySelectorAll('#claims tbody tr')].filter(row =>
        [0, 1, 4]  // number, statement, verdict
            .some(i => row.cells[i].getBoundingClientRect().right > window.innerWidth)).length,
    claims: document.querySelectorAll('#claims tbody tr').length,
  };
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
  root = tmp_path_factory.mktemp("results")
  smoke = configs.override(worked_example.Config(), worked_example.profiles()["smoke"])
  worked_example.run(smoke, root / "worked_example" / "smoke")
  return page.write(root, claims.REGISTER, questions=claims.questions())


@pytest.mark.parametrize("width", [1200, 700, 500])  # no narrower one opens
def test_the_page_renders_without_console_errors(report, tmp_path, width):
  root = report.parents[1]
  result = results.read(root / "worked_example" / "smoke" / "result.json")
  for name in claims.questions():  # As many sections as there may be, and links to them.
    if name != result.experiment:
      copy = dataclasses.replace(result, experiment=name, figures={}, claims=())
      results.write_text(tmp_path / name / "result.json", results.to_json(copy))
  shutil.copytree(root / "worked_example", tmp_path / "worked_example")
  report = page.write(tmp_path, claims.REGISTER, questions=claims.questions())
  dom, console = browser.run(report, PROBE, tmp_path, f"--window-size={width},2000", "--dump-dom")
  assert console == []
  seen = browser.seen(dom)
  assert seen["images"] >= 2 and seen["broken"] == 0 and seen["loaded"] == 0, seen
  assert seen["deadLinks"] == 0 and seen["claims"] == len(claims.REGISTER), seen
  assert seen["width"] <= seen["window"] <= width, seen
  assert seen["smallest"] >= 700 and seen["cut"] == 0, seen


def test_a_console_error_would_be_seen(report, tmp_path):
  broken = tmp_path / "broken.html"
  broken.write_text(
    report.read_text(encoding="utf-8").replace("<h1>", "<script>nope()</script><h1>")
  )
  _, console = browser.run(broken, PROBE, tmp_path, "--dump-dom")
  assert any("nope is not defined" in line for line in console)


def test_the_page_prints_without_the_tables_of_numbers(report, tmp_path):
  stored = pathlib.Path(claims.__file__).with_name("full")
  assert sum(len(result.metrics) for result, _ in page.collect(stored).shown.values()) > 900
  report = page.write(
    report.parents[1], claims.REGISTER, questions=claims.questions(), stored=stored
  )
  target = tmp_path / "page.pdf"
  browser.run(report, PROBE, tmp_path, f"--print-to-pdf={target}")
  data = target.read_bytes()
  assert data.startswith(b"%PDF")
  # The numbers would be 57 pages more, claims in narrow columns 5.
  assert 10 <= len(re.findall(rb"/Type\s*/Page\b", data)) <= 22
