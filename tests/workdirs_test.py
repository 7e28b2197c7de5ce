"""Whose a folder is, and who may work in it."""

import dataclasses
import os
import signal
import subprocess
import sys

import pytest

from attn import workdirs
from attn.configs import ConfigError


@dataclasses.dataclass(frozen=True)
class Config:
  """A configuration."""

  seed: int = 0


@pytest.mark.parametrize("name", ["checkpoints", "result.json", "measured.json"])
def test_work_without_a_configuration_is_nobodys(tmp_path, name):
  (tmp_path / name).mkdir()
  with pytest.raises(
    ConfigError, match=f"holds {name} but no config.json.*put it back.*another --workdir"
  ):
    workdirs.claim(tmp_path, Config())
  assert not (tmp_path / "config.json").exists()


@pytest.mark.parametrize("text", ["{", "[1]", ""])
def test_a_damaged_configuration_is_refused_and_kept(tmp_path, text):
  (tmp_path / "config.json").write_text(text)
  with pytest.raises(ConfigError, match="config.json is damaged.*: put it back.*--workdir$"):
    workdirs.claim(tmp_path, Config())
  assert (tmp_path / "config.json").read_text() == text


def test_a_folder_is_claimed_once_and_kept(tmp_path):
  assert not workdirs.refuse_another(tmp_path, Config())
  workdirs.claim(tmp_path / "new", Config())
  assert workdirs.refuse_another(tmp_path / "new", Config())
  with pytest.raises(ConfigError, match="seed: 0 -> 1"):
    workdirs.claim(tmp_path / "new", Config(seed=1))


def test_a_folder_claimed_before_a_field_came_to_be_is_that_of_its_default(tmp_path):
  (tmp_path / "config.json").write_text("{}")
  assert workdirs.refuse_another(tmp_path, Config())
  with pytest.raises(ConfigError, match="seed: 0 -> 1"):
    workdirs.refuse_another(tmp_path, Config(seed=1))
  (tmp_path / "config.json").write_text('{"gone": 5}')
  with pytest.raises(ConfigError, match=r"gone: 5 -> \(absent\)"):
    workdirs.refuse_another(tmp_path, Config())


def test_a_killed_process_holds_no_folder(tmp_path):
  code = (
    "import pathlib, sys, time\nfrom attn import workdirs\n"
    "with workdirs.held(pathlib.Path(sys.argv[1])):\n  print('held', flush=True)\n  time.sleep(99)"
  )
  command = [sys.executable, "-c", code, str(tmp_path)]
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
    try:
      assert process.stdout.readline() == "held\n"
      with pytest.raises(ConfigError, match="another process is training in"):
        with workdirs.held(tmp_path):
          pass
    finally:
      os.kill(process.pid, signal.SIGKILL)
  with workdirs.held(tmp_path):
    assert (tmp_path / ".lock").exists()
