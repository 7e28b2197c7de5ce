"""The report's page in headless Chromium: it renders, fits the window, and has no console errors.

A page cannot be asked from outside without a driver, so a copy is given a script that writes what
it sees into the document, which `--dump-dom` prints.
"""

import json
import re
import shutil
import subprocess

import pytest

from attn import configs
from attn.report import page
from experiments import claims, worked_example

pytestmark = pytest.mark.slow

CHROMIUM = next(
  filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = (
  '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync',
  '--enable-logging=stderr', '--log-level=0', '--virtual-time-budget=5000',
)  # fmt: skip
PROBE = """<script>
window.addEventListener('load', () => {
  const images = [...document.images];
  const seen = {
    images: images.length,
    broken: images.filter(image => !image.complete || image.naturalWidth === 0).length,
    width: document.documentElement.scrollWidth,
    window: window.innerWidth,
    loaded: performance.getEntriesByType('resource').map(e => e.name)
        .filter(name => !name.startsWith('data:')).length,
    deadLinks: [...document.querySelectorAll('a')]
        .filter(a => !document.getElementById(a.getAttribute('href').slice(1))).length,
    claims: document.querySelectorAll('#claims tbody tr').length,
  };
  const out = document.createElement('pre');
  out.id = 'seen';
  out.textContent = JSON.stringify(seen);
  document.body.append(out);
});
</script></body>"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
  root = tmp_path_factory.mktemp("results")
  smoke = configs.override(worked_example.Config(), worked_example.profiles()["smoke"])
  worked_example.run(smoke, root / "worked_example" / "smoke")
  return page.write(root, claims.REGISTER, questions=claims.questions())


def chromium(report, tmp_path, *arguments):
  """Runs Chromium on the page; returns what it printed and its console's lines."""
  if CHROMIUM is None:
    pytest.skip("no chromium, chromium-browser or google-chrome on the PATH")
  probed = tmp_path / "page.html"
  probed.write_text(report.read_text(encoding="utf-8").replace("</body>", PROBE), encoding="utf-8")
  command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path}/profile", *arguments, probed.as_uri()]
  done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
  return done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


@pytest.mark.parametrize("width", [1200, 700])
def test_the_page_renders_without_console_errors(report, tmp_path, width):
  dom, console = chromium(report, tmp_path, f"--window-size={width},2000", "--dump-dom")
  assert console == []
  seen = json.loads(re.search(r'<pre id="seen">(.*?)</pre>', dom).group(1))
  assert seen["images"] >= 2 and seen["broken"] == 0 and seen["loaded"] == 0, seen
  assert seen["deadLinks"] == 0 and seen["claims"] == len(claims.REGISTER), seen
  assert seen["width"] <= seen["window"], seen


def test_a_console_error_would_be_seen(report, tmp_path):
  broken = tmp_path / "broken.html"
  broken.write_text(
    report.read_text(encoding="utf-8").replace("<h1>", "<script>nope()</script><h1>")
  )
  _, console = chromium(broken, tmp_path, "--dump-dom")
  assert any("nope is not defined" in line for line in console)


def test_the_page_prints(report, tmp_path):
  target = tmp_path / "page.pdf"
  chromium(report, tmp_path, f"--print-to-pdf={target}")
  data = target.read_bytes()
  assert data.startswith(b"%PDF")
  # A column too narrow for its words makes the table of claims run over dozens of pages.
  assert 5 <= len(re.findall(rb"/Type\s*/Page\b", data)) <= 14
