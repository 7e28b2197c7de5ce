"""Headless Chromium for the tests of pages.

A page cannot be asked from outside without a driver, so a copy is given a script that writes what
it sees into the document, which `--dump-dom` prints.
"""

import html
import json
import re
import shutil
import subprocess

import pytest

CHROMIUM = next(
  filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = (
  '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync',
  '--enable-logging=stderr', '--log-level=0', '--virtual-time-budget=5000',
)  # fmt: skip
# What it returns is what is seen of the page after its loading.
PROBE = """<script>
window.addEventListener('load', () => {
  const out = document.createElement('pre');
  out.id = 'seen';
  out.textContent = JSON.stringify((() => {%s})());
  document.body.append(out);
});
</script></body>"""


def run(page, probe, tmp_path, *arguments):
  """Runs Chromium on a page with a script; returns what it printed and its console's lines."""
  if CHROMIUM is None:
    pytest.skip("no chromium, chromium-browser or google-chrome on the PATH")
  probed = tmp_path / "probed.html"
  text = page.read_text(encoding="utf-8").replace("</body>", PROBE % probe)
  probed.write_text(text, encoding="utf-8")
  command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path}/profile", *arguments, probed.as_uri()]
  done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
  return done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


def seen(dom):
  """What the probe returned."""
  return json.loads(html.unescape(re.search(r'<pre id="seen">(.*?)</pre>', dom, re.S).group(1)))
