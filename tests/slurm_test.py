"""Sweeps on SLURM: what is told from afar here, and all of it on a SLURM of this machine alone."""

import csv
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from launch import executors, flags, slurm, sweep
from tests import commands

ROOT = pathlib.Path(__file__).parents[1]
SCRIPT = ROOT / "tools" / "slurm_single_node.sh"
PATIENCE = 300  # seconds until a process counts as stuck: other tests may keep the cores busy
WORDS = ("--experiment=score_scale", "--smoke", "--grid=positions=10,50", "--executor=slurm")


@pytest.fixture
def programs(tmp_path, monkeypatch):
  """A folder that is the whole PATH; `sbatch` and `srun` in it do nothing."""
  folder = tmp_path / "programs"
  folder.mkdir()
  monkeypatch.setenv("PATH", str(folder))
  program(folder, "sbatch", "exit 0")
  program(folder, "srun", "exit 0")
  return folder


def program(folder, name, text):
  path = folder / name
  path.write_text(f"#!/bin/sh\n{text}\n")
  path.chmod(0o755)


def resources(*words):
  flags.parse(sweep.FLAGS, ["--executor=slurm", *words])
  try:
    return slurm.resources(sweep.FLAGS)
  finally:
    sweep.FLAGS.unparse_flags()


# What is asked for.


@pytest.mark.parametrize(
  "text, minutes",
  [
    ("90", 90),
    ("1:30", 2),
    ("0:10", 1),
    ("2:00:00", 120),
    ("2:00:01", 121),
    ("1-0", 1440),
    ("1-2:3", 1563),
    ("1-02:03:04", 1564),
  ],
)
def test_times_as_slurm_writes_them(text, minutes):
  assert slurm.minutes(text) == minutes


@pytest.mark.parametrize(
  "words, told",
  [
    (["--time=soon"], "--time=soon is no time: write MINUTES, HOURS:MINUTES:SECONDS or DAYS-"),
    (["--time=1:2:3:4"], "--time=1:2:3:4 is no time"),
    (["--time=-5"], "--time=-5 is no time"),
    (["--time=0:59"], "--time=0:59 is too short"),
    ([], "--time=HOURS:MINUTES:SECONDS is missing"),
    (["--time=5", "--slurm=time=6"], "--slurm=time=6: say --time"),
    (["--time=5", "--slurm=cpus_per_task=6"], "--slurm=cpus_per_task=6: say --cpus"),
    (["--time=5", "--slurm=array=0-3"], "--slurm=array=0-3: say --jobs"),
    (["--time=5", "--slurm=output=x"], "--slurm=output=x: the sweep sets --output itself"),
    (["--time=5", "--slurm=Not an option"], "--slurm=Not an option is no option of sbatch"),
    (["--time=5", "--executor=local"], "--time belongs to --executor=slurm"),
    (["--slurm=account=x", "--executor=local"], "--slurm belongs to --executor=slurm"),
  ],
)
def test_wrong_flags(programs, tmp_path, monkeypatch, words, told):
  monkeypatch.chdir(tmp_path)
  assert told in commands.run(sweep, *WORDS, *words)
  assert list(tmp_path.iterdir()) == [programs]


def test_without_slurm_or_submitit(programs, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setitem(sys.modules, "submitit", None)
  assert "needs submitit: pip install" in commands.run(sweep, *WORDS, "--time=5")
  (programs / "sbatch").unlink()
  told = commands.run(sweep, *WORDS, "--time=5")
  assert "there is no sbatch here" in told and "--executor=local" in told
  assert list(tmp_path.iterdir()) == [programs]


def test_what_sbatch_is_told(programs, tmp_path, monkeypatch, capsys):
  pytest.importorskip("submitit", reason="needs the extra slurm")
  program(
    programs, "sbatch", f'while read -r l; do echo "$l"; done <"$1" >"{tmp_path}/sent"; exit 1'
  )
  asked = resources(
    "--time=1-2", "--partition=p", "--cpus=3", "--memory=4G", "--gpus=1", "--slurm=account=a b",
    "--slurm=exclusive",
  )  # fmt: skip
  jobs = [job(tmp_path, f"job{i}") for i in range(3)]
  with pytest.raises(flags.UserError, match="sbatch refuses the sweep"):
    slurm.slurm(jobs, tmp_path, asked, 2, executors.Watcher())
  assert list((tmp_path / "slurm").iterdir()) == []
  assert capsys.readouterr().err == ""
  lines = (tmp_path / "sent").read_text().splitlines()
  for line in (
    "--array=0-2%2", "--time=1-2", "--partition=p", "--cpus-per-task=3", "--mem=4G", "--requeue",
    "--gpus-per-node=1", "--account='a b'", "--exclusive", "--signal=USR2@90",
  ):  # fmt: skip
    assert lines.count(f"#SBATCH {line}") == 1, line
  assert any(line.startswith("srun ") and "--cpus-per-task=3" in line for line in lines)


# Waiting, attaching.


class Recorder(executors.Watcher):
  """Keeps what it is told."""

  def __init__(self):
    self.told = []

  def started(self, job):
    self.told.append(("started", job.name))

  def waits(self, job):
    self.told.append(("waits", job.name))

  def ended(self, outcome):
    self.told.append(("ended", outcome.job.name))


def job(folder, name):
  return executors.Job(name, (sys.executable, "-c", name), folder / f"{name}.log", folder / name)


@pytest.fixture
def queue(tmp_path, monkeypatch):
  """An array `attn-1` of three jobs, as an earlier launcher left it; asked, it says `answers`."""
  monkeypatch.setattr(slurm, "_TICK", 0.001)
  monkeypatch.setattr(slurm, "_SLOWEST", 0.001)
  home = tmp_path / "slurm" / "attn-1"
  home.mkdir(parents=True)
  jobs = [job(tmp_path, f"job{i}") for i in range(3)]
  (home / "jobs.json").write_text(json.dumps([(one.name, one.argv[1:]) for one in jobs]))
  answers = []

  def ask(arrays):
    assert set(arrays) == {"attn-1"}
    answer = answers.pop(0)
    if callable(answer):
      answer = answer()
    if isinstance(answer, str):
      return answer
    states = slurm._States()
    for index, name in enumerate(answer):
      states["attn-1", index] = slurm.State(name, "Priority")
    return states

  monkeypatch.setattr(slurm, "_ask", ask)
  return jobs, home, answers


def end(home, index, code):
  (home / f"{index}.json").write_text(json.dumps({"code": code, "seconds": 3.5}))


def test_a_queue_is_attached_to_and_watched(queue, tmp_path, capsys):
  jobs, home, answers = queue
  jobs[1].log.write_text("so far\n")

  def last():
    end(home, 0, 0)
    end(home, 2, -9)
    jobs[2].log.write_text("and then\n")
    return ("COMPLETED", "TIMEOUT", "FAILED")

  answers += [
    ("PENDING", "PENDING", "RUNNING"),
    ("RUNNING", "PENDING", "RUNNING"),
    "no controller",
    ("PENDING", "RUNNING", "COMPLETING"),
    last,
  ]
  watcher = Recorder()
  outcomes = slurm.slurm(jobs, tmp_path, None, None, watcher)
  assert [outcome.code for outcome in outcomes] == [0, 1, -9]
  assert outcomes[0].error == "" and outcomes[0].seconds == 3.5
  assert outcomes[1].error == "no exit code, SLURM says TIMEOUT after: so far"
  assert outcomes[2].error == "killed by SIGKILL after: and then"
  assert watcher.told == [
    ("started", "job0"), ("started", "job2"), ("waits", "job0"), ("started", "job1"),
    ("ended", "job0"), ("ended", "job1"), ("ended", "job2"),
  ]  # fmt: skip
  assert capsys.readouterr().out.splitlines() == [
    "slurm: 3 of 3 runs are in the queue already: attached to them",
    "slurm: 2 running, 1 pending (Priority)",
    "slurm: squeue does not answer: no controller",
    "slurm: 1 pending (Priority), 1 running, 1 completing",
    "slurm: 3 ended",
  ]


def test_only_what_is_missing_is_sent(queue, tmp_path, monkeypatch):
  jobs, home, answers = queue
  answers += [("COMPLETED", "RUNNING", "FAILED"), ("COMPLETED", "COMPLETED", "COMPLETED")]
  sent = []

  def send(new, folder, asked, most):
    sent.append(([one.name for one in new], most))
    return {one: slurm._place(home, jobs.index(one)) for one in new}

  monkeypatch.setattr(slurm, "_send", send)
  for index in range(3):
    end(home, index, 0)
  assert [one.code for one in slurm.slurm(jobs, tmp_path, None, 4, Recorder())] == [0, 0, 0]
  assert sent == [(["job0", "job2"], 3)]


def test_another_command_of_the_same_name_is_refused(queue, tmp_path):
  jobs, _, answers = queue
  answers += [("COMPLETED", "PENDING", "COMPLETED")]
  other = executors.Job("job1", (sys.executable, "-c", "other"), jobs[1].log)
  with pytest.raises(flags.UserError, match=r"job1 is queued with other .* scancel --name=attn-1"):
    slurm.slurm([other], tmp_path, None, None, Recorder())


def test_a_controller_that_does_not_answer(queue, tmp_path):
  jobs, _, answers = queue
  answers += ["Unable to contact slurm controller"]
  with pytest.raises(flags.UserError, match="squeue does not answer: Unable to contact"):
    slurm.slurm(jobs, tmp_path, None, None, Recorder())


def test_ctrl_c_says_what_goes_on(queue, tmp_path, capsys):
  jobs, _, answers = queue

  def interrupt():
    raise KeyboardInterrupt

  answers += [("RUNNING", "RUNNING", "RUNNING"), interrupt]
  with pytest.raises(KeyboardInterrupt):
    slurm.slurm(jobs, tmp_path, None, None, Recorder())
  assert capsys.readouterr().err == (
    "slurm: what was sent goes on, and the same command attaches to it; scancel --name=attn-1"
    " ends it\n"
  )


def test_a_record_that_comes_late(queue, tmp_path):
  jobs, home, answers = queue

  def late():
    end(home, 0, 0)
    return ("COMPLETED",) * 3

  answers += [("RUNNING",) * 3, ("COMPLETED",) * 3, late]
  (outcome,) = slurm.slurm(jobs[:1], tmp_path, None, None, Recorder())
  assert outcome.code == 0


def test_what_squeue_says(programs):
  program(programs, "squeue", 'echo "$@" >&2; echo "a|0|RUNNING|None"; echo "a|N/A|PENDING|x|y"')
  states = slurm._ask(["a"])
  assert states["a", 0] == slurm.State("PENDING", "x|y") and not states["a", 0].ended
  assert states["a", 7].ended
  program(programs, "squeue", "echo 'no such controller' >&2; exit 1")
  assert slurm._ask(["a"]) == "no such controller"


# A SLURM of this machine alone.


@pytest.fixture(scope="module")
def cluster():
  """Starts it; what is started by then sends to it."""
  if not hasattr(os, "geteuid") or os.geteuid() != 0:
    pytest.skip("only root can start a SLURM")
  missing = [name for name in ("munged", "slurmctld", "slurmd") if shutil.which(name) is None]
  if missing:
    pytest.skip(f"no {', '.join(missing)} here: sh tools/slurm_single_node.sh install")
  pytest.importorskip("submitit", reason="needs the extra slurm")
  folder = pathlib.Path(tempfile.mkdtemp(prefix="slurm"))
  with pytest.MonkeyPatch.context() as patch:
    try:
      subprocess.run(["sh", SCRIPT, "start", folder], check=True, stdout=subprocess.DEVNULL)
      patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
      yield folder
    finally:
      subprocess.run(["sh", SCRIPT, "stop", folder], check=True)
  shutil.rmtree(folder)


@pytest.mark.slow
def test_what_an_interrupted_launcher_sent_is_attached_to(cluster, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(ROOT)

  class CtrlC(executors.Watcher):
    def started(self, job):
      raise KeyboardInterrupt

  argv = (sys.executable, "-c", "import time; time.sleep(3)")
  jobs = [executors.Job(f"job{i}", argv, tmp_path / f"{i}.log") for i in range(2)]
  with pytest.raises(KeyboardInterrupt):
    slurm.slurm(jobs, tmp_path, resources("--time=5"), 1, CtrlC())
  assert "the same command attaches to it" in capsys.readouterr().err
  outcomes = slurm.slurm(jobs, tmp_path, resources("--time=5"), 1, executors.Watcher())
  assert [outcome.code for outcome in outcomes] == [0, 0]
  assert "2 of 2 runs are in the queue already" in capsys.readouterr().out
  assert len(list((tmp_path / "slurm").iterdir())) == 1


# A run that ends only once it has been told to save itself.
PATIENT = """
import pathlib, signal, sys, time
mark = pathlib.Path(sys.argv[1])
def save(number, frame):
  print('saved', flush=True)
  mark.touch()
  raise SystemExit(143)
signal.signal(signal.SIGTERM, save)
print('started', flush=True)
if not mark.exists():
  time.sleep(600)
"""


def interrupted(folder, command):
  """Runs PATIENT as a job of SLURM, calls a command once it runs; returns what becomes of it."""
  log = folder / "job.log"

  class Interrupting(Recorder):
    def started(self, job):
      if ("started", job.name) not in self.told:
        wait_for(lambda: log.exists() and "started" in log.read_text())
        number = subprocess.check_output(["squeue", "--noheader", "--format=%i"], text=True).strip()
        words = [number if word == "ID" else word for word in command.split()]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
      super().started(job)

  argv = (sys.executable, "-c", PATIENT, str(folder / "mark"))
  watcher = Interrupting()
  jobs = [executors.Job("job", argv, log)]
  (outcome,) = slurm.slurm(jobs, folder, resources("--time=5"), None, watcher)
  return outcome, watcher.told, log.read_text().split()


@pytest.mark.slow
@pytest.mark.parametrize(
  "command",
  [
    "scancel --signal=USR2 ID",  # as SLURM does when the time is nearly up
    "scontrol requeue ID",
    # A job of more weight takes the whole node.
    "sbatch --partition=urgent --exclusive --output=/dev/null --wrap=true",
  ],
)
def test_a_job_saves_itself_and_goes_on(cluster, tmp_path, monkeypatch, command):
  monkeypatch.chdir(ROOT)
  outcome, told, log = interrupted(tmp_path, command)
  assert outcome.code == 0
  # The second start is too short to be seen for certain.
  assert [what for what, _ in told if what != "started"] == ["waits", "ended"]
  assert log == ["started", "saved", "started"]


@pytest.mark.slow
def test_a_job_that_is_cancelled_saves_itself_and_does_not_go_on(cluster, tmp_path, monkeypatch):
  monkeypatch.chdir(ROOT)
  outcome, told, _ = interrupted(tmp_path, "scancel ID")
  assert outcome.error == "no exit code, SLURM says CANCELLED after: saved"
  assert [what for what, _ in told] == ["started", "ended"]


# Trainings on it.

STEPS = 1000  # seconds, so that a run can be disturbed before it has done them


@pytest.fixture(scope="module")
def local(tmp_path_factory):
  """Words of a sweep over two small trainings, and the folder where this machine has done it."""
  folder = tmp_path_factory.mktemp("local")
  rng, lines = random.Random(0), []
  for _ in range(101):
    letters = rng.choices("abc", k=rng.randint(2, 5))
    lines.append(f"{' '.join(letters)}\t{' '.join(letters[::-1])}\n")
  for name, part in (("train", lines[:83]), ("dev", lines[83:90]), ("test", lines[90:])):
    (folder / f"{name}.tsv").write_text("".join(part))
  settings = (
    "model.units=7", "model.embedding=5", "model.alignment=3", "model.maxout=2", "search.beam=1",
    f"steps={STEPS}", "log_every=10", "checkpoint_every=200", "data.batch_size=16",
    "data.bucket_edges=6", f"data.data_dir={folder}/data", f"data.source={folder}/train.tsv",
    f"data.dev_source={folder}/dev.tsv", f"data.test_source={folder}/test.tsv",
  )  # fmt: skip
  recipe = ["--preset=rnnsearch_laptop", "--data=parallel_text", *(f"--set={x}" for x in settings)]
  assert commands.run(sweep, *recipe, "--seeds=2", "--jobs=2", f"--workdir={folder}/sweep") == 0
  return recipe, folder / "sweep"


def losses(run):
  """The losses of a run so far, by step."""
  path = run / "metrics.jsonl"
  rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
  return {row["step"]: row["loss"] for row in rows if "loss" in row}


def table(folder):
  """What a sweep measured."""
  with (folder / "sweep.csv").open() as file:
    return [{k: v for k, v in row.items() if k != "workdir"} for row in csv.DictReader(file)]


@pytest.mark.slow
def test_trainings_killed_and_queued_again_end_as_undisturbed(
  cluster, local, tmp_path, monkeypatch, capsys
):
  recipe, here = local
  words = [*recipe, "--seeds=2", "--executor=slurm", "--time=10", f"--workdir={tmp_path}"]

  def kill():
    pid = (tmp_path / "seed=0" / ".holder").read_text().split()[1]  # process PID on HOST
    os.kill(int(pid), signal.SIGKILL)

  def requeue():
    told = ["squeue", "--noheader", "--array", "--format=%F"]
    (array,) = set(subprocess.check_output(told, text=True).split())
    subprocess.run(["scontrol", "requeue", f"{array}_1"], check=True)

  coming = {"seed=0": kill, "seed=1": requeue}

  def disturbed():
    for name in [name for name in coming if losses(tmp_path / name)]:
      coming.pop(name)()
    return not coming

  command = [sys.executable, "-m", "launch.sweep", *words]
  options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
  with subprocess.Popen(command, cwd=ROOT, **options) as launcher:
    wait_for(disturbed)
    out, err = launcher.communicate(timeout=PATIENCE)
  assert launcher.returncode == 1, err
  assert "seed=1 waits to go on" in out
  assert "failed: seed=0: killed by SIGKILL" in err
  assert "1 of 2 runs failed; the same command runs only them" in err
  log = (tmp_path / "logs" / "seed=1.log").read_text()
  assert log.count("training in") == 2 and log.count("ended by SIGTERM") == 1
  monkeypatch.chdir(ROOT)
  assert commands.run(sweep, *words) == 0
  out = capsys.readouterr().out
  assert "2 runs in" in out and "1 finished already" in out and "slurm: 1 sent as" in out
  assert table(tmp_path) == table(here)
  assert all(losses(tmp_path / name) == losses(here / name) for name in ("seed=0", "seed=1"))


@pytest.mark.slow
def test_processes_that_srun_starts_train_as_one(cluster, local, tmp_path):
  recipe, here = local
  words = [*recipe, "--set=steps=30", "--seed=1", f"--workdir={tmp_path}", "--distributed"]
  command = ["srun", "--ntasks=2", sys.executable, "-m", "launch.train", *words]
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
  assert done.returncode == 0, done.stderr
  assert done.stdout.count(f"{tmp_path}: 30 steps") == 1  # the first process alone says so
  found, expected = losses(tmp_path), losses(here / "seed=1")
  assert list(found) == [10, 20, 30]
  assert found == pytest.approx({step: expected[step] for step in found}, rel=1e-5)


def listening(pid):
  """Addresses that a process listens on, as /proc has them."""
  inodes = set()
  for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
    target = os.readlink(link)
    if target.startswith("socket:["):
      inodes.add(target[8:-1])
  found = set()
  for name in ("tcp", "tcp6"):
    for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
      fields = line.split()
      if fields[3] == "0A" and fields[9] in inodes:
        found.add(fields[1].partition(":")[0])
  return found


@pytest.mark.slow
def test_it_listens_on_the_loopback_alone(cluster):
  for daemon in ("slurmctld", "slurmd"):
    pid = int((cluster / f"{daemon}.pid").read_text())
    assert listening(pid) == {"0100007F"}  # 127.0.0.1


@pytest.mark.slow
@pytest.mark.parametrize(
  "words, told",
  [
    (["--time=5", "--partition=nowhere"], "invalid partition specified: nowhere"),
    (["--time=5", "--cpus=1000"], "More processors requested than permitted"),
    (["--time=5", "--slurm=colour=red"], "unrecognized option '--colour=red'"),
  ],
)
def test_what_the_cluster_refuses(cluster, tmp_path, words, told):
  answer = commands.run(sweep, *WORDS, f"--workdir={tmp_path}/s", *words)
  assert answer.startswith("sbatch refuses the sweep: ") and told in answer


def wait_for(condition):
  deadline = time.monotonic() + PATIENCE
  while not condition():
    assert time.monotonic() < deadline, "it did not come"
    time.sleep(0.1)
