"""The command lines as they are typed, in a checkout with small experiments and recipes.

The checkout's `attn` is the real one but for recipes and training, and it loads no jax, so that a
process takes a tenth of a second.
"""

import ast
import contextlib
import csv
import errno
import io
import json
import os
import pathlib
import platform
import re
import resource
import shlex
import signal
import subprocess
import sys
import time

import pytest

from launch import align, compare, flags, resolve, score, search, sweep, train, translate
from tests import commands

ROOT = pathlib.Path(__file__).parents[1]
COMMANDS = sorted(
  path.stem
  for path in ROOT.glob("launch/*.py")
  if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
)
PATIENCE = 300  # seconds until a process counts as stuck: other tests may keep the cores busy

ATTN = f"""
import pathlib
__path__ = [str(pathlib.Path(__file__).parent), {str(ROOT / "attn")!r}]
"""

PRESETS = """
import collections
from attn import configs
from attn.training import TrainConfig
Row = collections.namedtuple("Row", "name paper follows parameters")
def names():
  return ("rnnsearch", "small")
def get(name):
  if name not in names():
    raise configs.ConfigError(f"no preset {name!r}" + configs.nearest(name, names()))
  return TrainConfig()
def describe():
  return (Row("rnnsearch", "Bahdanau 2015", "A.2.3", 80401000), Row("small", "nobody", "-", None))
"""

TRAINING = """
import collections, dataclasses, json, pathlib
from attn import configs
@dataclasses.dataclass(frozen=True)
class Data:
  name: str = "g2p"
  def files(self):
    if self.name == "parallel_text":
      raise configs.ConfigError("give data.source=FILE")
@dataclasses.dataclass(frozen=True)
class TrainConfig:
  data: Data = Data()
  steps: int = 1000
  seed: int = 0
Trained = collections.namedtuple("Trained", "step")
def train(config, folder, tensorboard, wandb):
  (pathlib.Path(folder) / "config.json").write_text(json.dumps(configs.to_dict(config)))
  print("boards:", tensorboard, wandb)
  return Trained(config.steps)
def evaluate(workdir, split):
  folder = pathlib.Path(workdir)
  config = json.loads((folder / "config.json").read_text())
  scores = {"word_error_rate": 0.25 + config["seed"]}
  (folder / "evaluation").mkdir()
  record = {**scores, "step": config["steps"], "seconds": 1.0, "search": {"beam": 5}}
  (folder / "evaluation" / f"{split}.json").write_text(json.dumps(record))
  return scores
def load(workdir, average):
  raise FileNotFoundError(f"{workdir} has no checkpoint yet")
"""

CATALOG = """
from attn import configs
from attn.data.errors import DataError
def names():
  return ("g2p", "reverse", "parallel_text")
def levels(name):
  if name not in names():
    raise DataError(f"there is no data set {name!r}" + configs.nearest(name, names()))
def prepare(name, data_dir, files):
  return f"{data_dir}/{name}"
"""

TINY = '''"""Does it run?

More words. Time: 0.1 seconds on
  two cores. And more.
"""
import dataclasses, errno, json, pathlib, time
from attn import configs
from attn.report import results
CLAIMS = ("7",)
@dataclasses.dataclass(frozen=True)
class Inner:
  dims: tuple[int, ...] = (1, 2)
@dataclasses.dataclass(frozen=True)
class Config:
  lr: float = 0.1
  hidden: int = 64
  dropout: float | None = None
  name: str = "x"
  inner: Inner = Inner()
  seed: int = 0
  fault: str = ""
def profiles():
  return {"smoke": {"hidden": 2}, "default": {}, "full": {"hidden": 4096}}
def sweep_quick():
  same = {"dropout": 0.5}
  return [{**same, "hidden": 3, "inner.dims": (1, 3)}, {**same, "hidden": 5, "name": "two words"}]
def run(config, workdir):
  data = configs.to_dict(config)
  (workdir / "config.json").write_text(json.dumps(data))
  with (workdir / "started").open("a") as file:  # a signal during a finalizer would be lost
    file.write("once ")
  if config.fault == "bug":
    raise ZeroDivisionError("nothing was there")
  if config.fault == "full":
    raise OSError(errno.ENOSPC, "No space left on device", str(workdir / "checkpoint"))
  if config.fault == "full_in_words":
    raise ValueError("tensorstore: [OS error 28: ENOSPC No space left on device]")
  if config.fault == "wait":
    time.sleep(600)
  claim = results.Claim("7", "property", "It runs.", measured="1 run", verdict="reproduced")
  size, loss = results.Metric(config.hidden + config.seed / 10), results.Metric(None)
  metrics = {"size": size, "loss": loss}
  result = results.Result("tiny", "x", data, (), {}, "c", 1.25, metrics, {}, (claim,))
  (workdir / "result.json").write_text(results.to_json(result))
'''

BROKEN = '''"""Does it fail?"""
from experiments.tiny import Config, profiles
def run(config, workdir):
  raise RuntimeError("broken on purpose")
'''

SEEDLESS = '''"""Does it draw?"""
import dataclasses
@dataclasses.dataclass(frozen=True)
class Config:
  hidden: int = 2
def profiles():
  return {"smoke": {}}
def run(config, workdir):
  (workdir / "ran").touch()
'''


@pytest.fixture
def checkout(tmp_path):
  """A folder to run commands in."""
  files = {
    "attn/__init__.py": ATTN,
    "attn/presets.py": PRESETS,
    "attn/training/__init__.py": TRAINING,
    "attn/data/__init__.py": "",
    "attn/data/catalog.py": CATALOG,
    **{
      name: (ROOT / name).read_text(encoding="utf-8")
      for name in (
        "attn/data/config.py",
        "attn/data/errors.py",
        "attn/data/textfiles.py",
        "attn/data/vocabulary.py",
        "experiments/sweeps.py",
      )
    },
    "experiments/__init__.py": "",
    "experiments/claims.py": '"""No experiment."""\n',
    "experiments/tiny.py": TINY,
    "experiments/broken.py": BROKEN,
  }
  for name, text in files.items():
    path = tmp_path / "a checkout" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
  return tmp_path / "a checkout"


@contextlib.contextmanager
def start(folder, command, *words, **options):
  """Starts a command; when the block is left, no process is."""
  environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
  with subprocess.Popen(
    [sys.executable, "-m", f"launch.{command}", *words],
    cwd=folder,
    env=environment,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    **options,
  ) as process:
    try:
      yield process
    finally:
      process.kill()  # nothing, if it has ended


def launch(folder, command, *words, given=None):
  """Runs a command; returns its exit code and what it said on stdout and stderr."""
  with start(folder, command, *words, stdin=subprocess.PIPE) as process:
    out, err = process.communicate(given, timeout=PATIENCE)
  return process.returncode, out.decode(), err.decode()


def complaint(folder, command, *words):
  """Runs a command that must fail; returns the one line it says on stderr."""
  code, _, err = launch(folder, command, *words)
  assert code == 1, err
  assert err.startswith(f"launch.{command}: ") and err.count("\n") == 1 and err.endswith("\n"), err
  return err


def config_of(workdir):
  return json.loads((workdir / "result.json").read_text())["config"]


def wait_for(condition):
  deadline = time.monotonic() + PATIENCE
  while not condition():
    assert time.monotonic() < deadline, "it did not come"
    time.sleep(0.02)


# Help, and how little it loads.


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_loads_nothing(command):
  program = (
    "import runpy, sys\n"
    f"sys.argv = ['x', '--help']\n"
    "try:\n"
    f"  runpy.run_module('launch.{command}', run_name='__main__')\n"
    "except SystemExit as error:\n"
    "  assert error.code == 0\n"
    "print('MODULES', len(sys.modules), *sys.modules)\n"
  )
  before = resource.getrusage(resource.RUSAGE_CHILDREN)
  done = subprocess.run(
    [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
  )
  after = resource.getrusage(resource.RUSAGE_CHILDREN)
  # Of the processor's time, which other tests beside this one do not change.
  assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1
  text, _, modules = done.stdout.partition("MODULES ")
  assert f"python -m launch.{command} --" in text
  assert all(len(line) <= 100 for line in text.splitlines())
  count, *names = modules.split()
  heavy = {"jax", "numpy", "attn", "rich", "tensorflow_datasets", "grain", "matplotlib"}
  assert not heavy & set(names)
  assert int(count) < 250  # absl and its standard library; jax alone brings a thousand


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_in_the_help_parse(command):
  path = ROOT / "launch" / f"{command}.py"
  doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
  examples = re.findall(rf"python -m launch\.{command} (.*)", doc.replace("\\\n", ""))
  assert examples
  module = __import__(f"launch.{command}", fromlist=["FLAGS"])
  for example in examples:
    flags.parse(module.FLAGS, shlex.split(example))
    module.FLAGS.unparse_flags()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_is_in_the_help(command):
  module = __import__(f"launch.{command}", fromlist=["FLAGS"])
  text = flags.help_text(module.__doc__, module.FLAGS)
  for name in module.FLAGS:
    assert len(name) == 1 or f"  --{name}" in text


def test_help_that_is_switched_on(checkout):
  for word, shown in (("--help=true", True), ("--help=false", False)):
    assert ("Flags:\n" in launch(checkout, "run", "--list", word)[1]) == shown


def test_mistakes_are_told_before_jax_is_loaded(checkout):
  (checkout / "attn/__init__.py").write_text("raise RuntimeError('attn was imported')")
  assert "did you mean 'tiny'" in complaint(checkout, "run", "--experiment=tinny")
  assert launch(checkout, "run", "--list")[:2] == (
    0,
    "broken  Does it fail?\n        no time stated\n"
    "tiny    Does it run?\n        0.1 seconds on two cores\n",
  )


def test_examples_of_sweeps_are_sweeps(capsys):
  docs = [ast.get_docstring(ast.parse(path.read_bytes())) for path in ROOT.glob("launch/*.py")]
  text = "\n".join(doc for doc in docs if doc).replace("\\\n", "")
  examples = re.findall(r"python -m launch\.sweep (--.*)", text)
  assert len(examples) >= 3
  for example in examples:
    assert sweep.main(parsed(*example.split(), "--executor=dry_run")) == 0, example
    assert capsys.readouterr().out.count("\n") > 1, example
  sweep.FLAGS.unparse_flags()


# CFG-01 and other flags.


@pytest.mark.parametrize(
  "words, told",
  [
    (["--smoke", "False"], "unexpected argument 'False' after --smoke: write --smoke=False"),
    (["--nosmoke", "x"], "unexpected argument 'x' after --nosmoke: remove it, --nosmoke takes no"),
    (["--nosmoke", "False"], "'False' after --nosmoke: remove it, --nosmoke takes no value"),
    (["--workdir", "False", "--smoke", "False"], "'False' after --smoke: write --smoke=False"),
    (["--nosmoke", "1", "--smoke", "1"], "after --nosmoke: remove it, --nosmoke takes no value; "),
    (["--nosmoke", "1", "--smoke", "1"], "'1' after --smoke: write --smoke=1;"),
    (["--no-smoke"], "unknown flag --no-smoke (did you mean 'nosmoke' or 'smoke'?)"),
    (["--smoke", "extra"], "'extra' after --smoke: remove it, --smoke takes no value;"),
    (["--inner.dims", "False"], "unknown flag --inner.dims (a field is set by --set=inner.dims=F"),
    (["--inner.dims", "False"], "unexpected argument 'False'"),
    (["--inner.dims=3"], "(a field is set by --set=inner.dims=3)"),
    (["tiny"], "unexpected argument 'tiny'"),
    (["--", "tiny"], "unexpected argument 'tiny'"),
    (["--worckdir=x"], "unknown flag --worckdir (did you mean 'workdir'?)"),
    (["--seed=three"], "--seed=three"),
    (["--seed=-1"], "--seed=-1"),
    (["--smoke=maybe"], "--smoke=maybe"),
    (["--workdir"], "Missing value for flag --workdir"),
    (["--profile=fulll"], "no profile 'fulll' (did you mean 'full'"),
    (["--smoke", "--profile=full"], "--smoke is --profile=smoke"),
    (["--smoke", "--config=x.json"], "leave out the profile"),
    (["--experiment=all", "--config=x.json"], "--config is that of one experiment, which"),
    (["--config=x.json"], "--config=x.json: no such file"),
    (["--set=lrr=1"], "no field 'lrr' (did you mean 'lr'?)"),
    (["--set=hidden"], "'hidden' is no assignment"),
  ],
)
def test_wrong_flags(checkout, words, told):
  assert told in complaint(checkout, "run", "--experiment=tiny", *words)
  assert not (checkout / "results").exists()


@pytest.mark.parametrize("word", ["--nosmoke", "--smoke=False", "--smoke=false"])
def test_a_switch_can_be_off(checkout, word):
  assert launch(checkout, "run", "--experiment=tiny", word)[0] == 0
  assert config_of(checkout / "results/tiny/default")["hidden"] == 64


def test_a_switch_that_may_have_a_value_is_given_it(checkout):
  told = complaint(checkout, "translate", "--replace_unknown", "words.tsv")
  assert "after --replace_unknown: write --replace_unknown=words.tsv; --help lists" in told


def test_what_is_missing_is_named(checkout):
  assert "--experiment=NAME is missing: there is broken, tiny" in complaint(checkout, "run")
  assert "give one of --preset" in complaint(checkout, "train")
  assert "--data=NAME is missing: there is g2p, reverse, " in complaint(checkout, "prepare")
  assert "--workdir=RUN is missing" in complaint(checkout, "translate")
  assert "give one of --experiment=NAME, --preset=NAME" in complaint(checkout, "sweep")
  assert "nothing to sweep" in complaint(checkout, "sweep", "--experiment=tiny")


# CFG-02 through the command line.


@pytest.mark.parametrize(
  "typed, field, expected",
  [
    ("lr=1", "lr", 1.0),
    ("dropout=.5", "dropout", 0.5),
    ("dropout=None", "dropout", None),
    ("inner.dims=3", "inner", {"dims": [3]}),
    ("inner.dims=(3,4)", "inner", {"dims": [3, 4]}),
  ],
)
def test_overrides_are_typed(checkout, typed, field, expected):
  code, _, err = launch(checkout, "run", "--experiment=tiny", f"--set={typed}", "--workdir=w")
  assert code == 0, err
  value = config_of(checkout / "w")[field]
  assert (value, type(value)) == (expected, type(expected))


@pytest.mark.parametrize(
  "typed, told",
  [
    ("hidden=64.0", "hidden must be an int, not 64.0"),
    ("hidden=1e3", "hidden must be an int, not 1000.0"),
    ("inner.dims=(3.5,4)", "inner.dims must be a tuple"),
    ("lr=nan", "lr must be a float, not 'nan'"),
  ],
)
def test_overrides_of_another_type_are_refused(checkout, typed, told):
  assert told in complaint(checkout, "run", "--experiment=tiny", f"--set={typed}")


# launch.run.


def test_a_run_and_the_same_again(checkout):
  code, out, err = launch(checkout, "run", "--experiment=tiny", "--smoke")
  workdir = checkout / "results/tiny/smoke"
  assert (code, err) == (0, "")
  assert "tiny: finished in 1.2 s, in results/tiny/smoke" in out
  assert re.search(r"7 +reproduced +It runs. Measured: 1 run", out)
  assert config_of(workdir)["hidden"] == 2
  code, out, _ = launch(checkout, "run", "--experiment=tiny", "--profile=smoke")
  assert code == 0 and "was finished already" in out and "reproduced" in out
  assert (workdir / "started").read_text() == "once "


def test_profile_then_set_then_seed(checkout):
  words = ("--experiment=tiny", "--smoke", "--set=hidden=8", "--set=seed=1", "--seed=2")
  code, out, _ = launch(checkout, "run", *words)
  (workdir,) = (checkout / "results/tiny").iterdir()
  assert code == 0 and workdir.name.startswith("custom-")
  assert (config_of(workdir)["hidden"], config_of(workdir)["seed"]) == (8, 2)
  assert launch(checkout, "run", *words)[1].startswith("tiny: was finished already")


def test_a_set_that_gives_a_profile_is_that_profile(checkout):
  launch(checkout, "run", "--experiment=tiny", "--set=hidden=4096")
  assert (checkout / "results/tiny/full/result.json").exists()


def test_a_saved_configuration(checkout):
  launch(checkout, "run", "--experiment=tiny", "--set=hidden=9", "--workdir=first")
  words = ("--experiment=tiny", "--config=first/config.json", "--set=lr=2", "--workdir=second")
  assert launch(checkout, "run", *words)[0] == 0
  saved = config_of(checkout / "second")
  assert (saved["hidden"], saved["lr"]) == (9, 2.0)
  broken = checkout / "broken.json"
  for text, told in (("{", "is no JSON"), ('{"lrr": 1}', "no field 'lrr' (did you mean 'lr'?)")):
    broken.write_text(text)
    assert told in complaint(checkout, "run", "--experiment=tiny", "--config=broken.json")


def test_a_workdir_of_another_configuration(checkout):
  launch(checkout, "run", "--experiment=tiny", "--workdir=w")
  words = ("--experiment=tiny", "--workdir=w", "--set=hidden=65", "--set=inner.dims=3")
  told = complaint(checkout, "run", *words)
  assert "w holds a run of another configuration" in told
  assert "hidden: 64 -> 65; inner.dims: [1, 2] -> [3]" in told and "give another --workdir" in told
  assert config_of(checkout / "w")["hidden"] == 64


def commands_in(workdir):
  return [json.loads(line) for line in (workdir / "commands.jsonl").read_text().splitlines()]


def test_what_works_in_a_workdir_is_written_into_it(checkout):
  words = ("--experiment=tiny", "--workdir=w", "--set=name=two words")
  assert launch(checkout, "run", *words, "--set=fault=bug")[0] == 1
  (line,) = commands_in(checkout / "w")  # of a run that left no result
  assert line["command"] == (
    "python -m launch.run --experiment=tiny --workdir=w '--set=name=two words' --set=fault=bug"
  )
  assert {"time", "python", "jax", "numpy", "platform", "cpu_count"} <= set(line)
  assert ("commit" in line) == (ROOT / ".git").exists()
  words = ("--preset=small", "--data=reverse", "--set=steps=5", "--workdir=t")
  for _ in range(2):
    assert launch(checkout, "train", *words)[0] == 0
  lines = commands_in(checkout / "t")
  assert [line["command"] for line in lines] == [f"python -m launch.train {' '.join(words)}"] * 2
  assert all(line["device"] for line in lines)


def test_a_broken_record_in_a_workdir(checkout):
  launch(checkout, "run", "--experiment=tiny", "--workdir=w")
  for name, text, told in (
    ("result.json", '{"lr": ', "w/result.json: not JSON"),
    ("result.json", "[]", "w/result.json: expected an object, found list; delete it"),
    ("result.json", '{"config": {}}', "w/result.json lacks field"),
    ("config.json", '{"lr": ', "w/config.json is damaged, no JSON object: put it back as it was"),
    ("config.json", "[]", "w/config.json is damaged, no JSON object: put it back as it was"),
    ("config.json", None, "w/config.json: Is a directory"),
  ):
    path = checkout / "w" / name
    whole = path.read_text()
    path.unlink()
    path.mkdir() if text is None else path.write_text(text)
    assert told in complaint(checkout, "run", "--experiment=tiny", "--workdir=w")
    path.rmdir() if text is None else path.write_text(whole)


def test_a_seed_for_several_where_one_has_none(checkout):
  (checkout / "experiments/broken.py").write_text(SEEDLESS)
  code, out, err = launch(checkout, "run", "--experiment=all", "--smoke", "--seed=3")
  assert "launch.run: broken: has no seed, runs without --seed=3\n" in err
  assert config_of(next((checkout / "results/tiny").iterdir()))["seed"] == 3
  assert (checkout / "results/broken/smoke/ran").exists()
  told = complaint(checkout, "run", "--experiment=broken", "--smoke", "--seed=3")
  assert "no field 'seed'" in told


def test_a_workdir_that_cannot_be(checkout):
  (checkout / "file").write_text("")
  for workdir in ("file", "file/below", "/proc/attn"):
    for command, *words in (
      ("run", "--experiment=tiny"),
      ("train", "--preset=small"),
      ("sweep", "--experiment=tiny", "--seeds=2"),
    ):
      told = complaint(checkout, command, *words, f"--workdir={workdir}")
      assert f"cannot write into {workdir}: " in told and "give another --workdir" in told


@pytest.mark.parametrize("fault", ["full", "full_in_words"])
def test_a_full_disk(checkout, fault):
  words = ("--experiment=tiny", f"--set=fault={fault}", "--workdir=w")
  told = complaint(checkout, "run", *words)
  assert "no space left on the device" in told
  assert ("(w/checkpoint)" in told) == (fault == "full")


def test_a_full_disk_under_standard_output(checkout):
  with open("/dev/full", "wb") as full:
    done = subprocess.run(
      [sys.executable, "-m", "launch.run", "--list"],
      cwd=checkout,
      env={**os.environ, "PYTHONPATH": str(ROOT)},
      stdout=full,
      stderr=subprocess.PIPE,
      text=True,
    )
  assert done.returncode == 1
  assert done.stderr == (
    "launch.run: no space left on the device (standard output): free some, then give the same"
    " command again\n"
  )


@pytest.mark.parametrize("flag", ["output", "attention"])
def test_a_full_disk_under_a_file(flag):
  with pytest.raises(OSError) as caught, flags.writing(flag, "/dev/full") as file:
    file.write(b"a line\n")
  assert "no space left on the device (/dev/full): free some" in flags.explain(caught.value)


def test_what_was_written_before_an_interruption_is_not_written_again(tmp_path):
  def interrupt(frame, event, _):
    if event == "return" and frame.f_code.co_name in ("write", "flush"):
      raise KeyboardInterrupt
    return interrupt

  file, before = flags._Named(tmp_path / "a", "a"), sys.gettrace()
  file.write(b"a line\n")
  sys.settrace(interrupt)
  try:
    with pytest.raises(KeyboardInterrupt):
      file.flush()
  finally:
    sys.settrace(before)
  file.close()
  assert (tmp_path / "a").read_bytes() == b"a line\n"


@pytest.mark.parametrize(
  ("words", "closed", "told"),
  [
    ((), 0, "standard input is closed: give --input=FILE"),
    (("--input=in",), 1, "standard output is closed: give --output=FILE"),
  ],
)
def test_a_standard_stream_that_is_closed(checkout, words, closed, told):
  (checkout / "in").write_text("a\n")
  closing = {"preexec_fn": lambda: os.close(closed)}
  with start(checkout, "translate", "--workdir=w", *words, **closing) as process:
    out, err = process.communicate(timeout=PATIENCE)
  assert (process.returncode, out) == (1, b"")
  assert err.decode() == f"launch.translate: {told}\n"


def test_complaints_are_never_among_the_output(checkout):
  closing = {"preexec_fn": lambda: os.close(2)}
  with start(checkout, "translate", "--workdir=w", **closing) as process:
    out, _ = process.communicate(timeout=PATIENCE)
  assert (process.returncode, out) == (1, b"")


def test_what_no_encoding_has_is_escaped(checkout):
  source = checkout / "experiments/tiny.py"
  source.write_text(source.read_text().replace("Does it run?", "\u00c0 quoi bon?"))
  done = subprocess.run(
    [sys.executable, "-m", "launch.run", "--list"],
    cwd=checkout,
    env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
    capture_output=True,
  )
  assert done.returncode == 0, done.stderr
  assert b"tiny    \\xc0 quoi bon?\n" in done.stdout


def test_a_fault_of_the_program_shows_its_traceback(checkout):
  code, _, err = launch(checkout, "run", "--experiment=tiny", "--set=fault=bug", "--workdir=w")
  assert code == 1
  assert "Traceback" in err and "ZeroDivisionError: nothing was there" in err


@pytest.mark.parametrize("profile", ["smoke", "default"])
def test_the_smoke_profile_alone_is_compiled_quickly(checkout, monkeypatch, profile):
  told = "import os\ndef run(config, workdir):\n  raise RuntimeError(os.environ['XLA_FLAGS'])\n"
  (checkout / "experiments/broken.py").write_text(BROKEN + told)
  monkeypatch.setenv("XLA_FLAGS", "--own=1")  # Of flags given twice the last one counts.
  err = launch(checkout, "run", "--experiment=broken", f"--profile={profile}")[2]
  quickly = "--xla_cpu_use_fusion_emitters=false " if profile == "smoke" else ""
  assert err.splitlines()[-1] == f"RuntimeError: {quickly}--own=1"


def test_several_go_on_after_one_that_fails(checkout):
  code, out, err = launch(checkout, "run", "--experiment=all", "--smoke", "--workdir=all here")
  assert code == 1
  assert "tiny: finished" in out
  assert config_of(checkout / "all here/tiny/smoke")["hidden"] == 2
  assert "Traceback" in err  # a RuntimeError is the program's
  assert err.splitlines()[-1] == (
    "launch.run: 1 of 2 failed: broken (RuntimeError: broken on purpose)"
  )
  code, out, _ = launch(checkout, "run", "--experiment=tiny,tiny", "--smoke")
  assert code == 0 and out.count("finished") == 2
  assert "no experiment 'tinny'" in complaint(checkout, "run", "--experiment=tiny,tinny")


def test_all_leaves_out_benchmarks(checkout):
  (checkout / "experiments/broken.py").rename(checkout / "experiments/slow_benchmark.py")
  code, out, err = launch(checkout, "run", "--experiment=all", "--smoke")
  assert (code, err) == (0, "") and "tiny: finished" in out
  assert "slow_benchmark" in launch(checkout, "run", "--list")[1]
  assert "broken on purpose" in launch(checkout, "run", "--experiment=slow_benchmark", "--smoke")[2]


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interruption(checkout, number, code):
  with start(checkout, "run", "--experiment=tiny", "--set=fault=wait", "--workdir=w") as process:
    wait_for((checkout / "w/started").exists)
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE)
  assert process.returncode == code
  assert err.count(b"\n") == 1 and b"The same command resumes." in err


def test_a_hang_up_that_is_ignored_as_by_nohup(checkout):
  words = ("--experiment=tiny", "--set=fault=wait", "--workdir=w")
  ignoring = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
  with start(checkout, "run", *words, **ignoring) as process:
    wait_for((checkout / "w/started").exists)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE)
  assert process.returncode == 143 and b"ended by SIGTERM" in err


def test_a_reader_that_has_seen_enough(checkout):
  with start(checkout, "run", "--list") as process:
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=PATIENCE) == 128 + signal.SIGPIPE


def test_one_at_a_time_works_in_a_folder(checkout):
  words = ("--experiment=tiny", "--set=fault=wait", "--workdir=w")
  grid = ("--experiment=tiny", "--grid=fault=wait", "--workdir=s")
  with start(checkout, "run", *words) as one, start(checkout, "sweep", *grid) as other:
    wait_for((checkout / "w/started").exists)
    wait_for((checkout / "s/fault=wait/started").exists)
    for command, again, process in (("run", words, one), ("sweep", grid, other)):
      told = complaint(checkout, command, *again)
      assert f" is in use by process {process.pid} on {platform.node()} since 20" in told
      assert told.endswith(": wait for it or end it, or give another --workdir\n")
    assert "fault=wait is in use by process" in complaint(
      checkout, "run", "--experiment=tiny", "--set=fault=wait", "--workdir=s/fault=wait"
    )
    one.kill()
    other.kill()  # which leaves its run at work
    orphan = (checkout / "s/fault=wait/.holder").read_text().split()[1]
    os.kill(int(orphan), signal.SIGKILL)
    wait_for(lambda: not pathlib.Path(f"/proc/{orphan}").exists())
  source = checkout / "experiments/tiny.py"
  source.write_text(source.read_text().replace("time.sleep(600)", "pass"))
  for command, again in (("run", words), ("sweep", grid)):
    assert launch(checkout, command, *again)[0] == 0
  assert (checkout / "w/started").read_text() == "once once "


# make reproduce.


@pytest.mark.parametrize("code, reported", [(0, True), (1, True), (130, False)])
def test_reproduce_reports_what_there_is_and_fails_if_something_did(tmp_path, code, reported):
  python = tmp_path / "python"
  python.write_text(f'#!/bin/sh\necho "did $2"\n[ "$2" != launch.run ] || exit {code}\n')
  python.chmod(0o755)
  # MAKE=true: without the set-up.
  command = ["make", "reproduce", f"VENV_PYTHON={python}", "MAKE=true", "PROFILE=smoke"]
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
  assert (done.returncode == 0) == (code == 0)
  assert "did launch.run" in done.stdout and ("did launch.report" in done.stdout) == reported
  assert ("an experiment failed" in done.stderr) == (code == 1)


# launch.train and launch.prepare.


def test_the_table_of_presets(checkout):
  code, out, _ = launch(checkout, "train", "--list")
  assert code == 0
  assert re.search(r"^rnnsearch +Bahdanau 2015 +80,401,000 ", out, re.M)
  assert re.search(r"^small +nobody +by the data ", out, re.M)


def test_training(checkout):
  words = ("--preset=rnnsearch", "--data=reverse", "--set=steps=5", "--seed=3", "--evaluate=test")
  code, out, err = launch(checkout, "train", *words)
  workdir = checkout / "runs/rnnsearch-reverse"
  assert code == 0, err
  assert "runs/rnnsearch-reverse: 5 steps" in out and "test  word_error_rate: 3.25" in out
  saved = {"data": {"name": "reverse"}, "steps": 5, "seed": 3}
  assert json.loads((workdir / "config.json").read_text()) == saved
  # The stub cannot make its folder twice: the test split is not read again.
  assert "test  word_error_rate: 3.25" in launch(checkout, "train", *words)[1]
  told = complaint(checkout, "train", "--preset=rnnsearch", "--data=reverse")
  assert "steps: 5 -> 1000; seed: 3 -> 0" in told
  for text in ("{}", "[]", '{"step": 5, "word_error_rate": "low"}'):
    (workdir / "evaluation/test.json").write_text(text)
    code, _, err = launch(checkout, "train", *words)
    assert code == 1 and err.count("\n") == 2 and err.startswith("training in")
    assert "/test.json holds no scores of a run: delete it" in err


@pytest.mark.parametrize(
  "words, told",
  [
    (["--preset=rnsearch"], "no preset 'rnsearch' (did you mean 'rnnsearch'"),
    (["--preset=small", "--data=revers"], "no data set 'revers' (did you mean 'reverse'"),
    (["--preset=small", "--set=data.nam=x"], "no field 'data.nam' (did you mean 'data.name'"),
    (["--preset=small", "--set=steps=1.5"], "steps must be an int, not 1.5"),
    (["--preset=small", "--evaluate=train"], "--evaluate=train"),
  ],
)
def test_training_of_what_there_is_not(checkout, words, told):
  assert told in complaint(checkout, "train", *words)
  assert not (checkout / "runs").exists()


def test_preparing(checkout):
  code, out, _ = launch(checkout, "prepare", "--data=g2p,reverse", "--data_dir=d")
  assert code == 0
  assert [line.partition(" after ")[0] for line in out.splitlines()] == [
    "g2p: ready in d/g2p",
    "reverse: ready in d/reverse",
  ]
  code, out, err = launch(checkout, "prepare", "--data=g2p,revers")
  assert code == 1 and out == "" and "did you mean 'reverse'" in err
  told = complaint(checkout, "prepare", "--data=g2p", "--set=data.limit=7")
  assert "--set=data.limit=7: of all settings, what is prepared depends on data.source, " in told


# launch.translate.


def upper(lines):
  assert all(lines)
  return [line.upper() for line in lines]


def translated(data, answers=upper):
  sink = io.BytesIO()
  reader = io.BufferedReader(io.BytesIO(data))
  translate.translate(reader, sink, lambda lines, numbers: [[one] for one in answers(lines)])
  return sink.getvalue()


@pytest.mark.parametrize(
  "data, expected",
  [
    (b"", b""),
    (b"a\n", b"A\n"),
    (b"a", b"A\n"),
    (b"\n\na\n\n", b"\n\nA\n\n"),
    (b" \n\t \xc2\x85\r\na \n", b"\n\nA \n"),
    (b"\xef\xbb\xbfa\nb\xef\xbb\xbf\n", "A\nB\ufeff\n".encode()),
    (b"\xef\xbb\xbf\n", b"\n"),
    (b"a\r\n\r\nb\r", b"A\n\nB\n"),
    ("a\rb\r\nc\x0bd\x0ce\x1cf\x85g\u2028h\n".encode(), "A\rB\nC\x0bD\x0cE\x1cF\x85G\u2028H\n"),
    ("\u00e9t\u00e9\n".encode(), "\u00c9T\u00c9\n"),
  ],
)
def test_one_line_in_one_line_out(data, expected):
  expected = expected if isinstance(expected, bytes) else expected.encode()
  assert translated(data) == expected


def test_lines_keep_their_numbers_across_empty_ones():
  numbered = []

  def answers(lines, numbers):
    numbered.extend(zip(lines, numbers, strict=True))
    return [[line, line] for line in lines]

  source, sink = io.BufferedReader(io.BytesIO(b"\na\n\nb\n")), io.BytesIO()
  translate.translate(source, sink, answers, empty=str)
  assert numbered == [("a", 2), ("b", 4)]
  assert sink.getvalue() == b"1\na\na\n3\nb\nb\n"


def test_long_input_in_chunks():
  sizes = []

  def answers(lines):
    sizes.append(len(lines))
    return upper(lines)

  lines = [b"word%d" % i + b"x" * (i % 211) for i in range(3001)] + [b"y" * 200_003]
  assert translated(b"\n".join(lines), answers) == b"\n".join(lines).upper() + b"\n"
  assert max(sizes) <= 1024 and sum(sizes) == 3002


def test_text_that_is_not_utf8(capsys):
  assert translated(b"a\nb\xff\nc\n") == "A\nB\ufffd\nC\n".encode()
  assert capsys.readouterr().err == (
    "launch.translate: line 2 is not UTF-8; what cannot be read is replaced\n"
  )


@pytest.mark.parametrize("answer", [[], ["a", "b"], ["a\nb"]])
def test_a_model_that_answers_other_than_asked(answer):
  with pytest.raises(RuntimeError, match="1 lines"):
    translated(b"a\n", lambda lines: answer)


def test_lines_are_answered_as_they_come():
  read, write = os.pipe()
  with open(read, "rb") as source, open(write, "wb", buffering=0) as asker:
    asker.write(b"a\nb\nhalf")
    chunks = translate.chunks(source)
    assert next(chunks) == [b"a", b"b"]  # and does not wait for more
    asker.write(b"way\n")
    assert next(chunks) == [b"halfway"]


def test_files_to_translate(checkout):
  (checkout / "w").mkdir()
  (checkout / "in").write_bytes(b"a\n")
  for words, told in (
    (["--input=none"], "cannot read --input=none"),
    (["--input=in", "--output=./in"], "are the same file"),
    (["--output=none/out"], "cannot write --output=none/out"),
    (["--output=a.npz", "--attention=./a.npz"], "--output and --attention are the same file"),
    (
      ["--replace_unknown=words.tsv", "--output=./words.tsv"],
      "--replace_unknown and --output are the same file, words.tsv",
    ),
    (["--attention=none/a.npz"], "cannot write --attention=none/a.npz"),
    (["--attention=a.txt"], "--attention=a.txt must end in .npz or .jsonl"),
    (["--nbest=0"], "nbest"),
    (["--input=in", "--output=out"], "w holds no trained model"),
  ):
    assert told in complaint(checkout, "translate", "--workdir=w", *words)
  for text, told in (
    ("[]", "w/config.json is damaged"),
    ('{"scales": [1, 2], "seed": 0}', "w holds no trained model"),  # as an experiment's folder has
  ):
    (checkout / "w/config.json").write_text(text)
    assert told in complaint(checkout, "translate", "--workdir=w")
  (checkout / "w/config.json").write_text('{"model": {}, "data": {}, "steps": 5}')
  (checkout / "attn/decoding").mkdir()
  (checkout / "attn/decoding/__init__.py").write_text("translation = None")
  told = complaint(checkout, "translate", "--workdir=w", "--input=in", "--output=out")
  assert "w has no checkpoint yet" in told
  assert sorted(path.name for path in checkout.iterdir()) == ["attn", "experiments", "in", "w"]


# launch.attention.


def test_lines_to_show_attention_of(checkout):
  (checkout / "w").mkdir()
  (checkout / "in").write_bytes(b"a\n")
  (checkout / "empty").write_bytes(b"\n \r\n")
  assert "--workdir=RUN is missing" in complaint(checkout, "attention")
  assert "w holds no trained model" in complaint(checkout, "attention", "--workdir=w")
  (checkout / "w/config.json").write_text("{}")
  for words, told in (
    (["--input=in", "--output=w"], "--output=w is a folder"),
    (["--input=in", "--output=./in"], "are the same file, in"),
    (["--input=none"], "none: "),
    (["--input=empty"], "--input=empty holds no text: give at least one line"),
    (["--input=in", "--output=in/x.html"], "cannot write into in: "),
    (["--input=in", "--output=/proc/x.html"], "cannot write into /proc: "),
    (["--input=in", "--figures=in"], "cannot write into in: File exists; give another --figures"),
  ):
    assert told in complaint(checkout, "attention", "--workdir=w", *words)
  assert not (checkout / "w/attention.html").exists()


# launch.sweep.


def parsed(*words):
  sweep.FLAGS.unparse_flags()
  flags.parse(sweep.FLAGS, list(words))
  return sweep.FLAGS


def test_a_dry_run_prints_commands_that_can_be_typed(checkout):
  words = ("--experiment=tiny", "--sweep=quick", "--seeds=2", "--seed=7", "--set=lr=2", "--smoke")
  code, out, err = launch(checkout, "sweep", *words, "--executor=dry_run")
  assert (code, err) == (0, "")
  lines = out.splitlines()
  assert len(lines) == 4
  assert [path.name for path in checkout.iterdir() if path.name == "results"] == []
  for line in lines[1], lines[2]:
    subprocess.run(
      line, shell=True, check=True, cwd=checkout, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
  folders = list((checkout / "results/tiny/sweep-quick").iterdir())
  assert not any("dropout" in folder.name for folder in folders)
  found = [config_of(folder) for folder in folders]
  assert [config["dropout"] for config in found] == [0.5, 0.5]
  key = [(c["hidden"], c["inner"]["dims"], c["name"], c["seed"], c["lr"]) for c in found]
  assert sorted(key) == [(3, [1, 3], "x", 8, 2.0), (5, [1, 2], "two words", 7, 2.0)]


def test_a_sweep_with_one_failure_and_the_same_again(checkout):
  words = ("--experiment=tiny", "--grid=fault='',bug", "--seeds=2", "--jobs=3", "--workdir=s")
  code, out, err = launch(checkout, "sweep", *words)
  assert code == 1
  assert out.startswith("4 runs in s, 0 finished already\n")
  assert [f"[{i}/4]" in out for i in range(1, 6)] == [True] * 4 + [False]
  assert err.count("ZeroDivisionError: nothing was there") == 2
  assert "launch.sweep: 2 of 4 runs failed; the same command runs only them" in err
  with (checkout / "s/sweep.csv").open() as file:
    table = list(csv.DictReader(file))
  assert [(row["fault"], row["seed"], row["status"], row["size"]) for row in table] == [
    ("''", "0", "finished", "64.0"),
    ("''", "1", "finished", "64.1"),
    ("bug", "0", "unfinished", ""),
    ("bug", "1", "unfinished", ""),
  ]
  lines = [json.loads(line) for line in (checkout / "s/sweep.jsonl").read_text().splitlines()]
  assert lines[1]["metrics"] == {"size": 64.1, "loss": None}
  assert lines[1]["setting"] == {"fault": "''", "seed": "1"}
  assert "64.05" in out and "2 unfinished" in out  # the mean over seeds
  # The command told for one failure is that run.
  alone = re.search(r"alone: (.*)", err).group(1)
  again = subprocess.run(
    alone,
    shell=True,
    cwd=checkout,
    env={**os.environ, "PYTHONPATH": str(ROOT)},
    capture_output=True,
  )
  assert b"ZeroDivisionError" in again.stderr
  # Mended, only what is missing runs.
  source = checkout / "experiments/tiny.py"
  source.write_text(source.read_text().replace('"bug"', '"no longer"'))
  code, out, err = launch(checkout, "sweep", *words)
  assert (code, err) == (0, "")
  assert out.startswith("4 runs in s, 2 finished already\n") and "[2/2]" in out
  starts = {path.parent.name: path.read_text() for path in (checkout / "s").glob("*/started")}
  assert sorted(starts.values()) == ["once ", "once ", "once once ", "once once once "]


def test_a_sweep_of_a_recipe(checkout):
  words = ("--preset=small", "--data=reverse", "--grid=steps=3,5", "--seeds=2", "--tensorboard")
  code, out, err = launch(checkout, "sweep", *words)
  assert (code, err) == (0, "")
  with (checkout / "runs/small-reverse-sweep/sweep.csv").open() as file:
    table = [(r["steps"], r["seed"], r["dev.word_error_rate"]) for r in csv.DictReader(file)]
  assert table == [("3", "0", "0.25"), ("3", "1", "1.25"), ("5", "0", "0.25"), ("5", "1", "1.25")]
  for log in checkout.glob("runs/small-reverse-sweep/logs/*.log"):
    assert "boards: True False\n" in log.read_text()
  code, told, err = launch(checkout, "sweep", *words)
  assert "4 finished already" in told
  # The table of a sweep is that of launch.compare.
  shown = told.partition("\n")[2].partition("a row a run")[0]
  code, out, err = launch(checkout, "compare", "--workdir=runs/small-reverse-sweep")
  assert (code, err) == (0, "")
  assert out.startswith(shown) and "best: dev.word_error_rate minimised: 0.75 [" in shown
  assert (checkout / "runs/small-reverse-sweep/compare/index.html").exists()


@pytest.mark.parametrize(
  "words, told",
  [
    (["--experiment=tinny", "--seeds=2"], "no experiment 'tinny' (did you mean 'tiny'?)"),
    (["--sample=2"], "--draw=path=KIND:LOW,HIGH is missing"),
    (["--draw=lr=uniform:0,1", "--seeds=2"], "--draw belongs to --sample, which is missing"),
    (["--sample=4", "--draw=hidden=integers:2,4"], "a sample of 4, but 3 different settings are"),
    (["--sample=2", "--draw=hidden=uniform:2,4"], "hidden must be an int, not "),
    (["--sweep=quik"], "tiny has no sweep 'quik' (did you mean 'quick'?)"),
    (["--grid=hiden=1,2"], "no field 'hiden' (did you mean 'hidden'?)"),
    (["--grid=hidden=1,2.5"], "hidden must be an int, not 2.5"),
    (["--grid=hidden=1,1"], "two runs of the sweep have the same setting: hidden=1"),
    (["--grid=lr=1e-1,0.1"], "two runs of the sweep have the same setting: lr=1e-1 and lr=0.1"),
    (["--grid=hidden"], "--grid=hidden names no values; write --grid=path=value,value"),
    (["--sample=2", "--draw=lr=uniform:-1e308,1e308"], "expected a finite range LOW,HIGH"),
    (["--grid=seed=1,2", "--seeds=2"], "--grid and --seeds both set seed: leave out one"),
    (["--grid=lr=1,2", "--sample=2", "--draw=lr=uniform:0,1"], "--grid and --draw both set lr"),
    (["--seeds=0"], "--seeds=0"),
    (["--executor=slurmm"], "--executor=slurmm"),
    (["--data=g2p", "--seeds=2"], "--data belongs to --preset"),
    (["--preset=small", "--seeds=2"], "give one of --experiment"),
    (["--wandb", "--seeds=2"], "--wandb belongs to --preset, not to --experiment"),
  ],
)
def test_a_sweep_is_checked_before_it_starts(checkout, words, told):
  assert told in complaint(checkout, "sweep", "--experiment=tiny", *words)
  assert not (checkout / "results").exists()


@pytest.mark.parametrize(
  "words, told",
  [
    (["--data=revers", "--seeds=2"], "no data set 'revers' (did you mean 'reverse'"),
    (["--grid=data.name=g2p,revers"], "no data set 'revers' (did you mean 'reverse'"),
    (["--grid=data.name=g2p,parallel_text"], "give data.source=FILE"),
    (["--smoke", "--seeds=2"], "--smoke belongs to --experiment, which is missing"),
  ],
)
def test_a_sweep_of_a_recipe_is_checked_before_it_starts(checkout, words, told):
  assert told in complaint(checkout, "sweep", "--preset=small", *words)
  assert not (checkout / "runs").exists()


def test_what_is_not_installed_is_told_before_anything_starts(tmp_path, monkeypatch):
  (tmp_path / "named_so").mkdir()
  monkeypatch.syspath_prepend(tmp_path)
  assert resolve.installed("absl")
  assert not resolve.installed("named_so") and not resolve.installed("none_is_named_so")
  monkeypatch.setattr(resolve, "installed", lambda package: False)
  words = ("--preset=rnnsearch_laptop", f"--workdir={tmp_path}/w")
  trials = ("--trials=2", "--minimise=x", "--draw=seed=integers:1,9")
  for command, *more in ((train,), (sweep, "--seeds=2"), (search, *trials)):
    for name, package in (("wandb", "wandb"), ("tensorboard", "tensorboardX")):
      assert commands.run(command, *words, *more, f"--{name}") == (
        f"--{name} needs {package}: python -m pip install -c constraints.txt -e '.[{name}]'"
      )
  assert not (tmp_path / "w").exists()


def test_a_saved_training_is_trained_again_and_swept(checkout):
  words = ("--preset=small", "--data=reverse", "--set=steps=7", "--seed=3", "--workdir=t")
  assert launch(checkout, "train", *words)[0] == 0
  saved = "--config=t/config.json"
  assert launch(checkout, "train", saved, "--workdir=again")[0] == 0
  assert (checkout / "again/config.json").read_text() == (checkout / "t/config.json").read_text()
  assert "--workdir is missing" in complaint(checkout, "sweep", saved, "--seeds=2")
  assert launch(checkout, "sweep", saved, "--grid=seed=2,5", "--workdir=s")[0] == 0
  found = [json.loads(path.read_text()) for path in sorted(checkout.glob("s/seed=*/config.json"))]
  assert [(one["data"]["name"], one["steps"], one["seed"]) for one in found] == [
    ("reverse", 7, 2), ("reverse", 7, 5),
  ]  # fmt: skip


def test_a_sweep_of_draws_goes_on_from_a_smaller_one(checkout):
  words = ("--experiment=tiny", "--draw=lr=log_uniform:1e-4,1e-2", "--draw=name=choices:a,b c")
  words += ("--workdir=s", "--jobs=2")
  assert launch(checkout, "sweep", *words, "--sample=2")[0] == 0
  code, out, err = launch(checkout, "sweep", *words, "--sample=3")
  assert (code, err) == (0, "") and out.startswith("3 runs in s, 2 finished already\n")
  with (checkout / "s/sweep.csv").open() as file:
    table = [(float(row["lr"]), row["name"]) for row in csv.DictReader(file)]
  assert len(table) == len(set(table)) == 3
  assert all(1e-4 <= rate <= 1e-2 and name in ("a", "b c") for rate, name in table)
  other = launch(checkout, "sweep", *words, "--sample=3", "--draw_seed=1")
  assert other[1].startswith("3 runs in s, 0 finished already\n")


def test_a_sweep_in_the_folder_of_another(checkout):
  words = ("--experiment=tiny", "--grid=lr=.1,.2", "--workdir=s")
  assert launch(checkout, "sweep", *words)[0] == 0
  told = complaint(checkout, "sweep", *words, "--set=hidden=65")
  assert "s/lr=.1 holds a run of another configuration (hidden: 64 -> 65)" in told


def test_a_sweep_in_a_folder_where_something_is_in_the_way(checkout):
  (checkout / "s").mkdir()
  (checkout / "s/logs").write_text("")
  told = complaint(checkout, "sweep", "--experiment=tiny", "--grid=lr=.1,.2", "--workdir=s")
  assert told == "launch.sweep: s/logs: File exists\n"


def test_folders_with_commas_in_their_names(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for name in ("s/lr=1,seed=0", "s/lr=1,seed=1", "t"):
    (tmp_path / name).mkdir(parents=True)
  one, other, third = map(pathlib.Path, ("s/lr=1,seed=0", "s/lr=1,seed=1", "t"))
  assert resolve.folders("s/lr=1,seed=0") == [one]
  assert resolve.folders("t, s/lr=1,seed=0,s/lr=1,seed=1,none") == [
    third, one, other, pathlib.Path("none"),
  ]  # fmt: skip
  for command, *words in ((score,), (align,), (compare,), (translate, "--input=/dev/null")):
    given = [f"--workdir={one}", *words]
    given += [] if command in (compare, translate) else ["--source=/dev/null", "--target=/dev/null"]
    assert commands.run(command, *given).startswith(f"{one} holds no "), command
  assert commands.run(compare, "--workdir=t,") == "--workdir=t, has a comma without a folder"


@contextlib.contextmanager
def waiting_sweep(checkout):
  """A sweep two of whose three runs sleep; on leaving, its words and how to have them go on."""
  source = checkout / "experiments/tiny.py"
  waits = source.read_text()
  source.write_text(waits.replace('config.fault == "wait"', 'config.fault.startswith("wait")'))
  words = ("--experiment=tiny", "--grid=fault='',wait,wait2", "--jobs=2", "--workdir=s")
  with start(checkout, "sweep", *words) as process:
    wait_for(lambda: len(list((checkout / "s").glob("fault=wait*/started"))) == 2)
    yield process
  source.write_text(waits.replace('config.fault == "wait"', "False"))
  code, out, _ = launch(checkout, "sweep", *words)
  assert code == 0 and out.startswith("3 runs in s, 1 finished already\n")


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_sweep_leaves_no_process_and_resumes(checkout, number, code):
  with waiting_sweep(checkout) as process:
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    first, last = err.decode().splitlines()
    assert first == "ending 2 runs, which save what they have (Ctrl-C: at once)"
    assert last.endswith("The same command resumes.")
    assert not any(pathlib.Path(f"/proc/{child}").exists() for child in children)
    assert "ended by SIGTERM" in (checkout / "s/logs/fault=wait.log").read_text()


def test_the_runs_of_a_sweep_that_is_killed_save_themselves_and_end(checkout):
  with waiting_sweep(checkout) as process:
    process.kill()
    for log in checkout.glob("s/logs/fault=wait*.log"):
      wait_for(lambda log=log: "ended by SIGTERM" in log.read_text())


# What a command asks of the system.


_ASKED = """
import os, sys
from launch import flags

def main(values):
  print(os.environ["GLIBC_TUNABLES"], values.seed, sys.stdin.read())
  return 3

flags.run("launch.asked", main, flags.define("seed"), "")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's setting is Linux's")
@pytest.mark.parametrize("chosen", [None, "glibc.malloc.perturb=1"])
def test_a_command_asks_for_huge_pages_unless_the_user_chose(chosen):
  environment = {**os.environ, "PYTHONPATH": str(ROOT)}
  environment.pop("GLIBC_TUNABLES", None)
  if chosen:
    environment["GLIBC_TUNABLES"] = chosen
  command = [sys.executable, "-c", _ASKED, "--seed=7"]
  done = subprocess.run(command, env=environment, input="words", capture_output=True, text=True)
  assert done.returncode == 3, done.stderr
  assert done.stdout.split() == [chosen or "glibc.malloc.hugetlb=1", "7", "words"]


_HUNG_UP = """
import os, signal
from launch import flags

def main(values):
  try:
    os.kill(os.getpid(), signal.SIGHUP)
  except KeyboardInterrupt:
    os.kill(os.getpid(), signal.SIGHUP)
    print("saved")
    raise

flags.run("launch.hung_up", main, flags.define(), "")
"""


def test_a_terminal_that_says_twice_that_it_goes_interrupts_once():
  environment = {**os.environ, "PYTHONPATH": str(ROOT)}
  command = [sys.executable, "-c", _HUNG_UP]
  done = subprocess.run(command, env=environment, capture_output=True, text=True)
  assert (done.returncode, done.stdout) == (129, "saved\n")
  assert done.stderr == "launch.hung_up: ended by SIGHUP. The same command resumes.\n"


# The real thing.


@pytest.mark.slow
def test_train_evaluate_translate_attention_and_sweep_of_the_real_attn(tmp_path):
  small = ("units", "embedding", "alignment", "maxout")
  words = [f"--set=model.{name}=7" for name in small]
  words += ["--preset=rnnsearch_laptop", "--data=reverse", "--set=data.limit=211"]
  words += [f"--set=data.data_dir={tmp_path}/data", "--set=search.beam=1"]
  words += ["--set=data.bucket_edges=36"]  # one shape to compile for
  sweep_folder = tmp_path / "sweep"
  run = sweep_folder / "steps=3"
  trained = [sys.executable, "-m", "launch.train", *words, "--set=steps=3", f"--workdir={run}"]
  subprocess.run(
    [sys.executable, "-m", "launch.prepare", "--data=reverse", f"--data_dir={tmp_path}/data"],
    cwd=ROOT,
    check=True,
  )
  done = subprocess.run(
    trained,
    cwd=ROOT,
    capture_output=True,
    text=True,
    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000)),
  )
  assert done.returncode == 1
  *_, last = done.stderr.splitlines()
  assert last.startswith(f"launch.train: the checkpoint of step 3 cannot be written into {run}")
  assert "File too large" in last and "Traceback" not in done.stderr
  done = subprocess.run(
    [sys.executable, "-m", "launch.sweep", *words, "--grid=steps=3,1", f"--workdir={sweep_folder}"],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  with (sweep_folder / "sweep.csv").open() as file:
    assert [float(row["dev.word_error_rate"]) for row in csv.DictReader(file)] == [1.0, 1.0]
  done = subprocess.run([*trained, "--evaluate=dev"], cwd=ROOT, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  assert f"{run}: 3 steps" in done.stdout and "dev  word_error_rate: 1" in done.stdout
  done = subprocess.run(
    [sys.executable, "-m", "launch.translate", f"--workdir={run}"],
    cwd=ROOT,
    input="a b c\n\nwith\tunknown \r symbols\n\u2028 \x0c \x85 a\r\nc".encode(),
    env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"},  # DAT-01: whatever the locale.
    capture_output=True,
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout.count(b"\n") == 5 and done.stdout.split(b"\n")[1] == b""
  assert b"symbols of the input that the model was not trained on: 6" in done.stderr
  done = subprocess.run(
    [sys.executable, "-m", "launch.attention", f"--workdir={run}", f"--figures={tmp_path}/maps"],
    cwd=ROOT,
    input="a b c\n\nc \N{HIRAGANA LETTER A}\n".encode(),
    capture_output=True,
  )
  assert done.returncode == 0, done.stderr
  assert b"empty lines are left out: 1 of 3" in done.stderr and b"trained on: 1\n" in done.stderr
  page = (run / "attention.html").read_text(encoding="utf-8")
  assert "line 1" in page and "line 3" in page and "line 2" not in page
  maps = sorted(path.name for path in (tmp_path / "maps").iterdir())
  assert maps == ["line-1.png", "line-1.svg", "line-3.png", "line-3.svg"]
  files = {name: tmp_path / name for name in ("source", "target", "output")}
  commands.write(tmp_path, source=["a b c", "", "c"], target=["c b a", "", "c"])
  named = [f"--{name}={path}" for name, path in files.items()]
  for command, pattern in (
    (align, r"\d-\d \d-\d \d-\d\n\n0-0\n"),
    (score, r"-\S+\t4\t\S+\n\n-.*\n"),
  ):
    assert commands.run(command, f"--workdir={run}", *named) == 0
    assert re.fullmatch(pattern, files["output"].read_text())
  several = [f"--workdir={run},{sweep_folder}/steps=1", "--set=search.beam=3", "--nbest=2"]
  several += [f"--input={files['source']}", f"--output={files['output']}"]
  assert commands.run(translate, *several, f"--attention={tmp_path}/weights.npz") == 0
  lines = files["output"].read_text().splitlines()
  assert [line.split(" ||| ")[0] for line in lines] == ["0", "0", "1", "2", "2"]
  assert (tmp_path / "weights.npz").exists()


# How errors are told.


def test_explain():
  full = OSError(errno.ENOSPC, "No space left on device", "/data/x")
  try:
    try:
      raise full
    except OSError as error:
      raise RuntimeError("could not save") from error
  except RuntimeError as error:
    assert "no space left on the device (/data/x)" in flags.explain(error)
  denied = PermissionError(errno.EACCES, "Permission denied", "/root/x")
  assert flags.explain(denied) == "/root/x: Permission denied"
  assert flags.explain(flags.UserError("a line")) == "a line"
  exhausted = RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 99 bytes.")
  for error in (exhausted, MemoryError()):
    assert flags.explain(error).startswith("not enough memory: make batches, beams or")
  long = OSError(errno.ENAMETOOLONG, "File name too long", "x" * 300)
  assert flags.explain(long) == f"{'x' * 300}: File name too long"
  assert flags.explain(ValueError("a bug")) is None
  assert flags.explain(FileNotFoundError(errno.ENOENT, "No such file", "x")) is None


def test_the_errors_of_the_library_exist():
  for module, name in flags._USER_ERRORS:
    assert issubclass(getattr(__import__(module, fromlist=[name]), name), Exception)


def test_experiments_of_the_checkout_have_a_question_and_a_time():
  for name, described in resolve.experiments().items():
    assert described.question.endswith("?") and described.time != "no time stated", name
