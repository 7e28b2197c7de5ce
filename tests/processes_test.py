"""One training by several processes, from the command line: found, lost, refused, resumed."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from attn import training, workdirs
from attn.data import catalog
from launch import flags, processes, resolve
from tests.training_test import assert_nearly_same_run, lines

ROOT = pathlib.Path(__file__).parents[1]
TIMEOUT = 20  # seconds that processes wait for each other
PATIENCE = 300  # seconds until a process counts as stuck: other tests may keep the cores busy

SETTINGS = (
  "steps=60", "log_every=5", "validate_every=30", "checkpoint_every=10", "model.units=7",
  "model.embedding=5", "model.alignment=3", "model.maxout=2", "data.limit=199",
  "data.batch_size=16", "data.bucket_edges=36", "search.beam=1",
)  # fmt: skip


@pytest.mark.parametrize(
  ("distributed", "coordinator", "process", "told"),
  [
    (False, "host:1", None, "--coordinator=HOST:PORT and --process=I/N belong together"),
    (False, None, "0/2", "belong together"),
    (True, None, "0/2", "--distributed finds out by itself"),
    (False, "host:1", "2/2", "--process=2/2 is not I/N with I from 0 to N-1"),
    (False, "host:1", "first", "--process=first is not I/N"),
    (False, "host", "0/2", "--coordinator=host is not HOST:PORT"),
  ],
)
def test_processes_that_do_not_know_their_place_are_refused(
  distributed, coordinator, process, told
):
  with pytest.raises(flags.UserError, match=told):
    with processes.joined("launch.train", distributed, coordinator, process, TIMEOUT):
      pass


def free_port():
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    return free.getsockname()[1]


def command(folder, *words):
  """The command of a small training, half of each batch for each process."""
  settings = [f"--set={one}" for one in (*SETTINGS, f"data.data_dir={folder.parent / 'data'}")]
  return (
    sys.executable, "-m", "launch.train", "--preset=rnnsearch_laptop", "--data=reverse",
    f"--workdir={folder}", *settings, *words,
  )  # fmt: skip


@contextlib.contextmanager
def started(*commands, environments=({}, {})):
  """Starts processes that share this machine; when the block is left, none is there."""
  running = []
  try:
    for one, environment in zip(commands, environments, strict=False):
      running.append(
        subprocess.Popen(
          one,
          cwd=ROOT,
          env={**os.environ, **environment},
          text=True,
          stdout=subprocess.PIPE,
          stderr=subprocess.PIPE,
        )  # fmt: skip
      )
    yield running
  finally:
    for process in running:
      process.kill()
      process.communicate()


def two(folder, *words):
  place = f"--coordinator=127.0.0.1:{free_port()}"
  common = (place, f"--timeout={TIMEOUT}", *words)
  return started(*(command(folder, f"--process={i}/2", *common) for i in range(2)))


def two_by_slurm(folder, *words):
  """As srun starts them: alike but for what is in their environment."""
  job = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "localhost"}
  job["JAX_COORDINATOR_PORT"] = str(free_port())  # made of the job's number otherwise
  tasks = [{**job, "SLURM_PROCID": str(i), "SLURM_LOCALID": str(i)} for i in range(2)]
  common = command(folder, "--distributed", f"--timeout={TIMEOUT}", *words)
  return started(common, common, environments=tasks)


def wait_for_step(folder, running, step):
  deadline = time.monotonic() + PATIENCE
  while not any(row["step"] >= step for row in lines(folder)):
    assert time.monotonic() < deadline, f"no step {step} in time"
    ended = [one.communicate()[1] for one in running if one.poll() is not None]
    assert not ended, ended
    time.sleep(0.05)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """The folder of a run by one process that nothing disturbed."""
  folder = tmp_path_factory.mktemp("whole") / "run"
  catalog.prepare("reverse", folder.parent / "data")
  preset, settings = "rnnsearch_laptop", [*SETTINGS, f"data.data_dir={folder.parent / 'data'}"]
  training.train(resolve.train_config(preset, "reverse", None, settings, None), folder)
  return folder


@pytest.mark.slow
@pytest.mark.parametrize(
  ("victim", "number", "again"),
  [(0, signal.SIGKILL, two_by_slurm), (1, signal.SIGKILL, None), (1, signal.SIGSTOP, None)],
)
def test_who_is_left_by_a_lost_process_says_so_and_both_resume(whole, victim, number, again):
  folder, other = whole.parent / f"without-{victim}-{number}", 1 - victim
  with two(folder) as running:
    wait_for_step(folder, running, 20)
    running[victim].send_signal(number)
    began = time.monotonic()
    _, told = running[other].communicate(timeout=PATIENCE)
    assert time.monotonic() - began < 2 * TIMEOUT
  assert running[other].returncode == 1
  assert told.splitlines()[-1] == (
    f"launch.train: process {other} of 2 ends because another one is lost: see what that one said"
    " last. The same commands resume."
  ), told
  assert "Traceback" not in told
  assert 0 < training.load(folder).step < 60
  if again is None:
    return
  with again(folder, "--evaluate=dev") as running:
    outputs = [one.communicate(timeout=PATIENCE) for one in running]
  assert [one.returncode for one in running] == [0, 0], outputs
  told_by = ["dev  word_error_rate: " in out for out, _ in outputs]
  assert told_by == [True, False]
  assert_nearly_same_run(folder, whole)


@pytest.mark.slow
def test_a_signal_to_one_process_ends_both_and_saves(whole):
  folder = whole.parent / "ended"
  with two(folder) as running:
    wait_for_step(folder, running, 15)
    running[1].send_signal(signal.SIGTERM)
    told = [one.communicate(timeout=PATIENCE)[1] for one in running]
  assert [one.returncode for one in running] == [143, 143], told
  assert all("launch.train: ended by SIGTERM. The same command resumes.\n" in one for one in told)
  assert training.load(folder).step >= 15


@pytest.mark.slow
def test_a_process_that_fails_ends_the_other(whole):
  folder = whole.parent / "failing"
  folder.mkdir()
  with workdirs.held(folder), two(folder) as running:  # which process 0 alone finds out
    told = [one.communicate(timeout=PATIENCE)[1].splitlines()[-1] for one in running]
  assert [one.returncode for one in running] == [1, 1]
  assert f"is in use by process {os.getpid()}" in told[0]
  assert "process 1 of 2 ends because another one is lost" in told[1]


@pytest.mark.slow
def test_a_coordinator_that_cannot_be_reached(tmp_path):
  lone = (f"--coordinator=127.0.0.1:{free_port()}", "--timeout=2")
  commands = [command(tmp_path, *lone, f"--process={i}/2") for i in (1, 0)]
  commands.append(command(tmp_path, "--coordinator=no.such.host:1", "--timeout=2", "--process=1/2"))
  for one in commands:  # no coordinator; one that nobody comes to; an address that is none
    began = time.monotonic()
    with started(one) as (process,):
      _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and time.monotonic() - began < 60
    assert told.startswith("launch.train: the processes do not find each other"), told
    assert told.count("\n") == 1, told


@pytest.mark.slow
def test_no_cluster_that_says_who_the_processes_are(tmp_path):
  with started(command(tmp_path, "--distributed")) as (process,):
    _, told = process.communicate(timeout=PATIENCE)
  assert process.returncode == 1
  assert told.startswith("launch.train: --distributed: no SLURM, Open") and told.count("\n") == 1, (
    told
  )
