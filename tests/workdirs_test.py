"""Whose a folder is, and who may work in it."""

import dataclasses
import errno
import fcntl
import os
import platform
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


HOLDER = """
import pathlib, sys, time
from attn import workdirs
with workdirs.held(pathlib.Path(sys.argv[1])):
  print("held", flush=True)
  time.sleep(99)
"""


def test_a_folder_names_who_holds_it_until_that_process_is_killed(tmp_path):
  command = [sys.executable, "-c", HOLDER, str(tmp_path)]
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
    try:
      assert process.stdout.readline() == "held\n"
      told = rf"^{tmp_path} is in use by process {process.pid} on {platform.node()} since 20"
      with pytest.raises(ConfigError, match=told):
        with workdirs.held(tmp_path):
          pass
      (tmp_path / ".holder").unlink()  # one that is just about to say who it is
      with pytest.raises(ConfigError, match="is in use by another process: wait for it"):
        with workdirs.held(tmp_path):
          pass
    finally:
      os.kill(process.pid, signal.SIGKILL)
  with workdirs.held(tmp_path):
    with workdirs.held(tmp_path):  # again, as a command around its training does
      pass
    assert f"process {os.getpid()} on" in (tmp_path / ".holder").read_text()
    done = subprocess.run(command, capture_output=True, text=True)
    assert f"is in use by process {os.getpid()} on" in done.stderr


def fail_to_lock(monkeypatch, number):
  def flock(*_):
    raise OSError(number, os.strerror(number))

  monkeypatch.setattr(fcntl, "flock", flock)


def test_a_folder_whose_server_keeps_no_locks_is_refused(tmp_path, monkeypatch):
  fail_to_lock(monkeypatch, errno.ENOLCK)
  with pytest.raises(ConfigError, match="cannot be locked.*No locks avail.*on another file system"):
    with workdirs.held(tmp_path):
      pass


def test_a_file_system_without_locks_has_a_file_for_one(tmp_path, monkeypatch):
  fail_to_lock(monkeypatch, errno.ENOSYS)
  for _ in range(2):  # the second time it is free again
    with pytest.warns(UserWarning, match="falling back"), workdirs.held(tmp_path):
      assert str(os.getpid()) in (tmp_path / ".lock").read_text()
