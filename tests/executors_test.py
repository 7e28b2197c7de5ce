"""How a sweep's processes are run here, and what one sees of them meanwhile."""

import errno
import io
import json
import os
import pty
import sys

import pytest

from launch import executors, watch


def job(folder, name, program):
  command = (sys.executable, "-c", program)
  return executors.Job(name, command, folder / f"{name}.log", folder / name)


def test_no_more_processes_than_slots_and_their_ends_are_not_waited_for(tmp_path, monkeypatch):
  monkeypatch.setattr(executors, "_TICK", 600)
  program = (
    "import os, pathlib, time\n"
    f"folder = pathlib.Path({str(tmp_path)!r})\n"
    "mark = folder / f'{os.getpid()}.running'\n"
    "mark.touch(); print(len(list(folder.glob('*.running')))); time.sleep(0.2); mark.unlink()\n"
  )
  jobs = [job(tmp_path, f"job{i}", program) for i in range(5)]
  outcomes = executors.local(jobs, 2)
  assert [outcome.job for outcome in outcomes] == jobs
  assert max(int(one.log.read_text()) for one in jobs) == 2


def test_cores_are_shared_out(tmp_path, monkeypatch):
  program = "import os; print(os.environ['NPROC'], os.environ['OMP_NUM_THREADS'])"
  monkeypatch.delenv("NPROC", raising=False)
  monkeypatch.setenv("OMP_NUM_THREADS", "5")  # what the user set stays
  cores = len(os.sched_getaffinity(0))
  jobs = [job(tmp_path, f"job{i}", program) for i in range(2)]
  executors.local(jobs, 8)
  for one in jobs:
    assert one.log.read_text().split() == [str(max(1, cores // 2)), "5"]


# GPUs.


@pytest.mark.parametrize(
  "slots, gpus, shares",
  [
    (2, "0,1", ["0", "1"]),
    (2, "4, 5,6,7", ["4,5", "6,7"]),
    (1, "0,1,2", ["0,1,2"]),
    (2, "0,1,2", ["0", "1"]),
    (3, "GPU-a,GPU-b", ["GPU-a", "GPU-b", "GPU-a"]),
    (2, "", ["", ""]),
    (2, "-1", ["-1", "-1"]),
  ],
)
def test_gpus_are_shared_out(monkeypatch, slots, gpus, shares):
  monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
  found = executors.environments(slots, executors.visible_gpus())
  assert [one["CUDA_VISIBLE_DEVICES"] for one in found] == shares


def test_runs_that_share_a_gpu_share_its_memory(monkeypatch):
  for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
    monkeypatch.delenv(name, raising=False)
  assert "XLA_CLIENT_MEM_FRACTION" not in executors.environments(2, ["0", "1"])[0]
  assert {one["XLA_CLIENT_MEM_FRACTION"] for one in executors.environments(3, ["0", "1"])} == {
    "0.375"
  }
  monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.2")  # jax refuses both
  assert "XLA_CLIENT_MEM_FRACTION" not in executors.environments(3, ["0", "1"])[0]


def test_gpus_that_nvidia_smi_knows_each_run_with_its_own(tmp_path, monkeypatch):
  smi = tmp_path / "nvidia-smi"
  smi.write_text(
    '#!/bin/sh\n[ "$*" = "--query-gpu=index --format=csv,noheader" ] && printf "0\\n1\\n"'
  )
  smi.chmod(0o755)
  monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
  monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
  program = (
    "import os, pathlib, time\n"
    "mine = os.environ['CUDA_VISIBLE_DEVICES']; print(mine)\n"
    f"mark = pathlib.Path({str(tmp_path)!r}, mine)\n"
    "mark.touch(exist_ok=False); time.sleep(0.2); mark.unlink()"
  )
  jobs = [job(tmp_path, f"job{i}", program) for i in range(5)]
  assert all(outcome.code == 0 for outcome in executors.local(jobs, 2))
  assert {one.log.read_text() for one in jobs} == {"0\n", "1\n"}


def test_a_machine_without_a_driver_has_no_gpus(tmp_path, monkeypatch):
  monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
  monkeypatch.setenv("PATH", str(tmp_path))
  assert executors.visible_gpus() == []
  (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'failed: no driver in slot\n0\n'; exit 9")
  (tmp_path / "nvidia-smi").chmod(0o755)
  assert executors.visible_gpus() == []
  assert "CUDA_VISIBLE_DEVICES" not in executors.environments(2, [])[0]


# How a job ended.


@pytest.mark.parametrize(
  "program, told",
  [
    ("raise SystemExit('  last words\\n\\n')", "last words"),
    ("raise SystemExit(3)", "exit code 3, nothing in its log"),
    ("import os; print('so far', flush=True); os.kill(os.getpid(), 9)", "killed by SIGKILL after"),
    ("print('fine')", ""),
    ("raise ValueError('one\\ntwo')", "ValueError: one"),
    ("e = KeyError('x'); e.add_note('--\\nFrames were left out.'); raise e", "KeyError: 'x'"),
    ("try: 1 / 0\nexcept OSError: pass\nfinally: raise TypeError('late')", "TypeError: late"),
    ("import sys; print('before'); sys.stdout.flush(); 1 / 0", "ZeroDivisionError: division by"),
  ],
)
def test_the_last_line_of_a_failure(tmp_path, program, told):
  (outcome,) = executors.local([job(tmp_path, "job", program)], 1)
  assert outcome.error.startswith(told) and bool(outcome.error) == bool(told)


def test_a_failure_whose_log_somebody_has_deleted(tmp_path):
  log = tmp_path / "job.log"
  program = f"import os, sys; os.unlink({str(log)!r}); sys.exit(3)"
  (outcome,) = executors.local([job(tmp_path, "job", program)], 1)
  assert outcome.error == "exit code 3, nothing in its log"


class Gone(io.StringIO):
  def write(self, text):
    raise OSError(errno.EIO, "Input/output error")


class HungUp(executors.Watcher):
  def __init__(self, begun):
    self.begun = begun

  def tick(self):
    if self.begun.exists():
      raise KeyboardInterrupt


def test_processes_are_waited_for_also_where_nobody_can_be_told(tmp_path, monkeypatch):
  program = (
    "import pathlib, signal, time\n"
    f"folder = pathlib.Path({str(tmp_path)!r})\n"
    "def save(*_): time.sleep(0.2); (folder / 'saved').touch(); raise SystemExit\n"
    "signal.signal(signal.SIGTERM, save)\n"
    "(folder / 'begun').touch(); time.sleep(600)\n"
  )
  monkeypatch.setattr(sys, "stderr", Gone())
  with pytest.raises(KeyboardInterrupt):
    executors.local([job(tmp_path, "job", program)], 1, HungUp(tmp_path / "begun"))
  assert (tmp_path / "saved").exists()


# What one sees.


def training(folder, *rows, steps=200):
  """A job whose run has written these lines of metrics."""
  one = job(folder, "job", "")
  one.workdir.mkdir(exist_ok=True)
  (one.workdir / "config.json").write_text(json.dumps({"steps": steps}))
  text = "".join(json.dumps(row) + "\n" for row in rows)
  (one.workdir / "metrics.jsonl").write_text(text + '{"step": 1')  # the next one is being written
  return one


def test_progress_is_read_from_a_runs_metrics(tmp_path):
  now = [100.0]
  pace = watch.Pace(training(tmp_path, {"step": 50, "loss": 2.0}), lambda: now[0])
  assert pace.text() == "50/200 25%  loss 2.0000"  # its pace is not known yet
  now[0] = 130.0
  training(tmp_path, {"step": 50, "loss": 2.0}, {"step": 60, "dev_loss": 1.5})
  assert pace.text() == "60/200 30%  dev_loss 1.5000  7:00 left"
  training(tmp_path, {"step": 40, "loss": 3.0})  # gone back to a checkpoint
  assert pace.text() == "40/200 20%  loss 3.0000"


def test_progress_of_what_counts_no_steps_is_its_last_line(tmp_path):
  one = job(tmp_path, "job", "")
  pace = watch.Pace(one)
  assert pace.text() == ""
  one.log.write_text("part 3 of 7\n\nhalf a li")
  assert pace.text() == "part 3 of 7"
  training(tmp_path, {"event": "start"})
  assert pace.text() == "part 3 of 7"
  training(tmp_path, {"step": 200, "loss": 1.0})  # trained; it decodes now
  assert pace.text() == "part 3 of 7"


def test_a_log_has_a_line_for_each_job_and_now_and_then_for_those_that_run(
  tmp_path, monkeypatch, capsys
):
  one, other = job(tmp_path, "one", ""), job(tmp_path, "other", "")
  with watch.watching([one, other]) as lines:
    lines.started(one)
    lines.started(other)
    lines.ended(executors.Outcome(one, 0, 61.0))
    lines.tick()
    other.log.write_text("last words\n")
    monkeypatch.setattr(watch, "_LOG_EVERY", 0.0)
    lines.tick()
    lines.ended(executors.Outcome(other, 1, 5.0))
  assert capsys.readouterr().out.splitlines() == [
    "[1/2] one finished (1:01; about 0:00 left)",
    "  other  0:00  last words",
    "[2/2] other failed: last words (0:05; about 0:00 left)",
  ]


def shown(table, most):
  from rich.console import Console

  console = Console(file=io.StringIO(), width=80)
  console.print(table.render(most))
  return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_table_shows_running_and_failed_jobs_first_where_not_all_fit(tmp_path):
  jobs = [job(tmp_path, f"job{i}[x]", "") for i in range(5)]
  table = watch.Table(jobs)
  for one in jobs[:4]:
    table.started(one)
  jobs[1].log.write_text("no [bold] luck\n")
  jobs[2].log.write_text("part 1 of 3\n")
  table.ended(executors.Outcome(jobs[0], 0, 7.0))
  table.ended(executors.Outcome(jobs[1], 1, 3661.0))
  head, *rows, summary = shown(table, 5)
  assert head.split() == ["run", "state", "time", "progress"]
  assert [" ".join(row.split()) for row in rows] == [
    "job0[x] finished 0:07",
    "job1[x] failed 1:01:01 no [bold] luck",
    "job2[x] running 0:00 part 1 of 3",
    "job3[x] running 0:00",
    "job4[x] waiting",
  ]
  assert summary.startswith("2 running, 1 failed, 1 waiting, 1 finished; about 0:0")
  assert [row.split()[0] for row in shown(table, 3)[1:-1]] == ["job1[x]", "job2[x]", "job3[x]"]


def test_a_terminal_gets_the_table(tmp_path, monkeypatch):
  control, terminal = pty.openpty()
  with open(terminal, "w") as screen, open(control, "rb", buffering=0) as seen:
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm")
    one = job(tmp_path, "job", "raise SystemExit('last words')")
    with watch.watching([one]) as watcher:
      executors.local([one], 1, watcher)
    screen.flush()
    text = seen.read(65536).decode()
  assert "running" in text and "failed" in text and "last words" in text
