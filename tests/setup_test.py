"""`make` on a machine that lacks something: one line that says what, and nothing left half made."""

import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
  """What set-up reads, under a path with a space in it."""
  folder = tmp_path / "a checkout"
  (folder / "tools").mkdir(parents=True)
  for name in ("Makefile", "setup.cfg", "pyproject.toml", "constraints.txt"):
    shutil.copy(ROOT / name, folder / name)
  shutil.copytree(ROOT / "tools", folder / "tools", dirs_exist_ok=True)
  return folder


def make(folder: pathlib.Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
  # The make that runs these tests must not hand on its own flags.
  inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
  return subprocess.run(
    ["make", *words], cwd=folder, env=inherited | environment, capture_output=True, text=True
  )


def complaint(ran: subprocess.CompletedProcess[str]) -> str:
  """The one line on stderr, apart from make's own last word."""
  assert ran.returncode != 0
  lines = [line for line in ran.stderr.splitlines() if not line.startswith("make")]
  assert len(lines) == 1, ran.stderr
  return lines[0]


def script(path: pathlib.Path, text: str) -> pathlib.Path:
  path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
  path.chmod(path.stat().st_mode | stat.S_IXUSR)
  return path


def test_help_is_the_default_and_lists_every_target(checkout: pathlib.Path) -> None:
  text = (checkout / "Makefile").read_text(encoding="utf-8")
  targets = re.search(r"^\.PHONY: (.*)$", text, re.M).group(1).split()
  listed = make(checkout)
  assert [line.split()[1] for line in listed.stdout.splitlines()] == targets
  assert listed.stdout == make(checkout, "help").stdout
  assert listed.returncode == 0


def test_unknown_profile(checkout: pathlib.Path) -> None:
  assert "smoke, default or full" in complaint(make(checkout, "reproduce", "PROFILE=fast"))
  assert not (checkout / ".venv").exists()


@pytest.mark.parametrize("target", ["setup", "test", "reproduce"])
def test_python_too_old(checkout: pathlib.Path, target: str) -> None:
  old = script(checkout / "old python", "case $2 in *exit*) exit 1;; *) echo 3.8.10;; esac")
  line = complaint(make(checkout, target, f"PYTHON={old}"))
  assert "Python 3.11 or newer is needed" in line
  assert "3.8.10" in line
  assert "make setup PYTHON=" in line  # without a target `make` shows its help
  assert not (checkout / ".venv").exists()


def test_no_such_python(checkout: pathlib.Path) -> None:
  assert "cannot run 'python9.9'" in complaint(make(checkout, "setup", "PYTHON=python9.9"))


def test_python_without_venv(checkout: pathlib.Path) -> None:
  bare = script(
    checkout / "bare", f'case $2 in *venv*) exit 1;; *) exec "{sys.executable}" "$@";; esac'
  )
  assert "python3-venv" in complaint(make(checkout, "setup", f"PYTHON={bare}"))
  assert not (checkout / ".venv").exists()


@pytest.fixture
def stand_in(checkout: pathlib.Path) -> pathlib.Path:
  """A Python whose venv is one folder and whose pip only notes that it was called."""
  return script(
    checkout / "stand-in",
    f"""
    case "$1 $2" in
      '-m venv') mkdir -p "$3/bin"; cp '{checkout}/stand-in' "$3/bin/python" ;;
      '-m pip') echo "$@" >>pip-calls; test ! -e fail ;;
      *) exec '{sys.executable}' "$@" ;;
    esac
    """,
  )


def installs(checkout: pathlib.Path) -> int:
  calls = checkout / "pip-calls"
  return calls.read_text().count("--editable") if calls.exists() else 0


def test_installs_again_only_when_a_requirement_changes(
  checkout: pathlib.Path, stand_in: pathlib.Path
) -> None:
  words = ("setup", f"PYTHON={stand_in}")
  assert make(checkout, *words).stdout.splitlines()[-1].startswith("setup: done in ")
  again = make(checkout, *words)
  assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
  os.utime(checkout / "setup.cfg")
  make(checkout, *words)
  assert installs(checkout) == 1
  for number, name in enumerate(("setup.cfg", "constraints.txt"), start=2):
    with (checkout / name).open("a") as stream:
      stream.write("# changed\n")
    make(checkout, *words)
    assert installs(checkout) == number


def test_a_failed_install_starts_anew(checkout: pathlib.Path, stand_in: pathlib.Path) -> None:
  words = ("setup", f"PYTHON={stand_in}")
  (checkout / "fail").touch()
  assert "pip failed" in complaint(make(checkout, *words))
  (checkout / ".venv" / "half").touch()
  (checkout / "fail").unlink()
  assert make(checkout, *words).returncode == 0
  assert not (checkout / ".venv" / "half").exists()
  assert installs(checkout) == 1


def test_an_environment_made_by_hand_is_kept(
  checkout: pathlib.Path, stand_in: pathlib.Path
) -> None:
  subprocess.run([stand_in, "-m", "venv", ".venv"], cwd=checkout, check=True)
  (checkout / ".venv" / "own").touch()
  assert make(checkout, "setup", "PYTHON=python9.9").returncode == 0
  assert (checkout / ".venv" / "own").exists()
  assert installs(checkout) == 1


def test_peers_are_made_apart_and_again_only_when_their_pins_change(
  checkout: pathlib.Path, stand_in: pathlib.Path
) -> None:
  words = ("peers", f"PYTHON={stand_in}")

  def made() -> list[str]:
    return re.findall(r"--requirement (\S+)", (checkout / "pip-calls").read_text())

  assert make(checkout, *words).stdout.splitlines()[-1].startswith("peers: opennmt done in ")
  assert made() == ["tools/peers/joeynmt.txt", "tools/peers/opennmt.txt"]
  again = make(checkout, *words)
  assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
  with (checkout / "tools/peers/joeynmt.txt").open("a") as stream:
    stream.write("# changed\n")
  (checkout / "fail").touch()
  assert complaint(make(checkout, *words)).startswith("peers: pip failed")
  (checkout / "fail").unlink()
  assert make(checkout, *words).returncode == 0
  assert made()[2:] == ["tools/peers/joeynmt.txt"] * 2  # the second in an environment made anew
  assert not (checkout / ".venv").exists()


def test_pins_of_peers_are_exact() -> None:
  for path in (ROOT / "tools/peers").iterdir():
    for line in path.read_text(encoding="utf-8").splitlines():
      assert re.fullmatch(r"[\w.-]+==[\w.]+", line), f"{path.name}: {line}"


@pytest.mark.slow
def test_index_out_of_reach_then_the_same_command_again(checkout: pathlib.Path) -> None:
  nowhere = dict(
    PIP_INDEX_URL='http://127.0.0.1:9/simple', PIP_FIND_LINKS='', PIP_EXTRA_INDEX_URL='',
    PIP_CONFIG_FILE=os.devnull, PIP_RETRIES='1', PIP_NO_CACHE_DIR='1',
  )  # fmt: skip
  for _ in range(2):
    ran = make(checkout, "setup", f"PYTHON={sys.executable}", **nowhere)
    assert "package index cannot be reached" in complaint(ran)
    assert ".venv/pip.log" in ran.stderr
  assert (checkout / ".venv" / "attn-setup").read_text().startswith("unfinished")
