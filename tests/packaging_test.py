"""The distribution: its metadata, its pins, and what the wheel holds."""

import configparser
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

import attn

ROOT = pathlib.Path(__file__).parents[1]
PINNED_EXTRAS = ("test", "dev", "data", "optuna", "slurm", "tensorboard", "wandb", "peers")
# Beside attn in the sources, and not to be in the wheel.
DECOYS = ("experiments", "launch", "tests", "tools")


def canonical(name: str) -> str:
  return re.sub(r"[-_.]+", "-", name).lower()


def requirement_names(text: str) -> set[str]:
  lines = (line.split("#")[0].strip() for line in text.splitlines())
  return {canonical(re.match(r"[\w.-]+", line).group()) for line in lines if line}


@pytest.fixture(scope="module")
def metadata() -> configparser.ConfigParser:
  config = configparser.ConfigParser(interpolation=None)
  config.read(ROOT / "setup.cfg", encoding="utf-8")
  return config


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
  text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
  lines = [line for line in text.splitlines() if line and not line.startswith("#")]
  return dict(line.split("==") for line in lines)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> tuple[zipfile.ZipFile, str]:
  """The wheel built from a copy of the sources, and what the build said."""
  source = tmp_path_factory.mktemp("source tree")
  for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
    shutil.copy(ROOT / name, source)
  ignore = shutil.ignore_patterns("__pycache__")
  for name in ("attn", *DECOYS):
    shutil.copytree(ROOT / name, source / name, ignore=ignore)
  # Set, it has setuptools warn that nothing is compiled.
  environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
  built = subprocess.run(
    [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist"],
    cwd=source,
    env=environment,
    text=True,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
  )
  assert built.returncode == 0, built.stdout
  (path,) = (source / "dist").iterdir()
  return zipfile.ZipFile(path), built.stdout


def test_wheel_holds_attn_alone(wheel: tuple[zipfile.ZipFile, str]) -> None:
  names = wheel[0].namelist()
  tops = {name.split("/")[0] for name in names}
  assert tops == {"attn", f"attn-{attn.__version__}.dist-info"}
  shipped = {name for name in names if name.startswith("attn/")}
  sources = {
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "attn").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
  }
  assert shipped == sources
  assert "attn/py.typed" in shipped
  assert all(any(name.endswith(ending) for name in shipped) for ending in (".jinja", ".js"))


def test_wheel_builds_without_warnings(wheel: tuple[zipfile.ZipFile, str]) -> None:
  lines = [line for line in wheel[1].splitlines() if re.search("warn|deprecat", line, re.I)]
  assert lines == []


def test_wheel_metadata(wheel: tuple[zipfile.ZipFile, str]) -> None:
  text = wheel[0].read(f"attn-{attn.__version__}.dist-info/METADATA").decode()
  assert "License-Expression: Apache-2.0\n" in text
  assert "Requires-Python: >=3.11\n" in text


def test_version_is_read_without_importing(metadata: configparser.ConfigParser) -> None:
  assert metadata["metadata"]["version"] == "attr: attn.__version__"
  # A literal, so that building needs no jax.
  text = (ROOT / "attn" / "__init__.py").read_text(encoding="utf-8")
  assert f'\n__version__ = "{attn.__version__}"\n' in text


def test_constraints_are_exact_and_name_no_address(pins: dict[str, str]) -> None:
  text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
  assert not re.search(r"https?:|file:|@|^\s*-", text, re.M)
  assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in pins)
  assert all(re.fullmatch(r"[0-9][0-9a-z.]*", version) for version in pins.values())


def test_every_requirement_is_pinned(
  metadata: configparser.ConfigParser, pins: dict[str, str]
) -> None:
  wanted = requirement_names(metadata["options"]["install_requires"])
  for extra in PINNED_EXTRAS:
    wanted |= requirement_names(metadata["options.extras_require"][extra])
  assert wanted - set(pins) == set()


def test_what_is_installed_is_what_is_pinned(pins: dict[str, str]) -> None:
  # Less a build's own label, as in torch 2.13.0+cpu.
  installed = {
    canonical(d.name): d.version.partition("+")[0] for d in importlib.metadata.distributions()
  }
  different = {
    name: (installed[name], version)
    for name, version in pins.items()
    if name in installed and installed[name] != version
  }
  assert different == {}


def test_extras(metadata: configparser.ConfigParser) -> None:
  extras = set(metadata["options.extras_require"])
  assert extras == {
    "test", "dev", "data", "optuna", "slurm", "tensorboard", "wandb", "peers", "gpu", "tpu",
  }  # fmt: skip
