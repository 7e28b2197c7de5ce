"""Searches by Optuna: what they draw, how they end and go on, and what a user is told."""

import dataclasses
import json
import sys

import pytest

from attn import configs, workdirs
from experiments import sweeps
from launch import flags, plan, search
from tests import commands
from tests.launch_test import checkout, complaint, launch  # noqa: F401


@pytest.fixture
def optuna():
  return pytest.importorskip("optuna", reason="optuna, of the extra `optuna`, is not installed")


# A run of no cost: what it writes is what it was told.


@dataclasses.dataclass(frozen=True)
class Config:
  x: float = 0.0
  n: int = 1
  kind: str = "a"

  def __post_init__(self):
    if self.kind == "never":
      raise ValueError("never this one")


PROGRAM = """
import json, pathlib, sys
values = dict(word.removeprefix("--set=").split("=") for word in sys.argv[1:-1])
folder = pathlib.Path(sys.argv[-1].removeprefix("--workdir="))
folder.mkdir(parents=True, exist_ok=True)
with (folder / "started").open("a") as file:
  file.write("once ")
if values["kind"] == "bad":
  sys.exit("a bad kind")
x, n = float(values["x"]), int(values["n"])
loss = None if values["kind"] == "lost" else (x - 0.3) ** 2 + abs(n - 5)
(folder / "metrics.json").write_text(json.dumps({"loss": loss, "gain": x}))
"""
DRAWS = {
  "kind": sweeps.Choices(("a", "b")),
  "n": sweeps.Integers(1, 9),
  "x": sweeps.Uniform(0.0, 1.0),
}


def finished(run, _):
  path = run.workdir / "metrics.json"
  return json.loads(path.read_text()) if path.exists() else None


def target(folder):
  folder.mkdir(exist_ok=True)
  return plan.Target((sys.executable, "-c", PROGRAM), Config(), folder, finished)


def begun(optuna, folder, draws=None, metric="loss", maximise=False, seed=0):
  return search.Search(optuna, target(folder), draws or DRAWS, metric, maximise=maximise, seed=seed)


def trials(optuna, folder, metric="minimize loss"):
  """Returns what Optuna itself reads in the journal."""
  backend = optuna.storages.journal.JournalFileBackend(str(folder / search.JOURNAL))
  storage = optuna.storages.JournalStorage(backend)
  return optuna.load_study(study_name=metric, storage=storage).get_trials()


def drawn(optuna, folder):
  return [(one.params, one.value) for one in trials(optuna, folder)]


def starts(folder):
  return {path.parent.name: path.read_text() for path in folder.glob("*/started")}


def test_a_search_finds_what_a_sample_does_not(optuna, tmp_path):
  begun(optuna, tmp_path).go(30, 2)
  values = [value for _, value in drawn(optuna, tmp_path)]
  assert len(values) == 30
  # The first ten are drawn at random.
  assert min(values[10:]) < min(values[:10]) and sum(values[20:]) < sum(values[:10]) / 2


def test_more_trials_go_on_as_if_never_interrupted(optuna, tmp_path):
  begun(optuna, tmp_path / "whole").go(12, 2)
  begun(optuna, tmp_path / "parts").go(4, 2)
  begun(optuna, tmp_path / "parts").go(12, 2)
  assert drawn(optuna, tmp_path / "parts") == drawn(optuna, tmp_path / "whole")
  assert set(starts(tmp_path / "parts").values()) == {"once "}
  begun(optuna, tmp_path / "other", seed=1).go(1, 2)
  assert drawn(optuna, tmp_path / "other") != drawn(optuna, tmp_path / "whole")[:1]


def test_what_was_interrupted_is_done_first(optuna, tmp_path, monkeypatch):
  begun(optuna, tmp_path / "whole").go(5, 1)
  first = begun(optuna, tmp_path / "parts")
  first.go(3, 1)
  with monkeypatch.context() as patched:
    patched.setattr(search.sweep, "execute", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
      first.go(5, 1)
  assert trials(optuna, tmp_path / "parts")[-1].state.name == "RUNNING"
  begun(optuna, tmp_path / "parts").go(5, 1)
  assert drawn(optuna, tmp_path / "parts") == drawn(optuna, tmp_path / "whole")


def test_a_run_that_ended_before_it_was_told_is_not_done_again(optuna, tmp_path, monkeypatch):
  first = begun(optuna, tmp_path)
  with monkeypatch.context() as patched:
    patched.setattr(first, "_tell", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
      first.go(2, 1)
  begun(optuna, tmp_path).go(2, 1)
  assert sorted(starts(tmp_path).values()) == ["once ", "once "]
  assert all(value is not None for _, value in drawn(optuna, tmp_path))


def test_a_trial_that_was_not_drawn_to_its_end_counts_as_failed(optuna, tmp_path, capsys):
  begun(optuna, tmp_path)._study.ask()
  search_again = begun(optuna, tmp_path)
  search_again.go(2, 1)
  assert [one.state.name for one in trials(optuna, tmp_path)] == ["FAIL", "COMPLETE"]
  assert "not drawn to its end" in capsys.readouterr().err
  assert search_again.report() == 1


def test_failures_are_told_and_not_tried_again(optuna, tmp_path, capsys):
  draws = {**DRAWS, "kind": sweeps.Choices(("a", "bad", "lost", "never"))}
  first = begun(optuna, tmp_path, draws)
  first.go(16, 2)
  assert first.report() == 1
  states = {one.params["kind"]: one.state.name for one in trials(optuna, tmp_path)}
  assert states == {"a": "COMPLETE", "bad": "FAIL", "lost": "FAIL", "never": "FAIL"}
  told = capsys.readouterr().err
  for reason in ("it left no result", "its loss is no finite number", "never this one"):
    assert reason in told
  assert "a bad kind" in told and "log: " in told
  again = begun(optuna, tmp_path, draws)
  again.go(16, 2)
  assert again.report() == 0
  assert set(starts(tmp_path).values()) == {"once "}


def test_one_setting_is_one_run(optuna, tmp_path):
  draws = {"n": sweeps.Integers(1, 2), "kind": DRAWS["kind"], "x": sweeps.Choices(("0", "1"))}
  begun(optuna, tmp_path, draws).go(20, 2)
  assert len(drawn(optuna, tmp_path)) == 20 and len(starts(tmp_path)) <= 8
  assert set(starts(tmp_path).values()) == {"once "}


def test_another_metric_is_another_study_of_the_same_runs(optuna, tmp_path):
  with pytest.raises(flags.UserError, match=r"has no metric 'los' \(did you mean 'loss'\?\)"):
    begun(optuna, tmp_path, metric="los").go(3, 1)
  begun(optuna, tmp_path).go(3, 1)
  begun(optuna, tmp_path, metric="gain", maximise=True).go(3, 1)
  up = trials(optuna, tmp_path, "maximize gain")
  assert [one.params for one in up] == [one.params for one in trials(optuna, tmp_path)]
  assert set(starts(tmp_path).values()) == {"once "}


def test_a_folder_is_of_one_search(tmp_path):
  workdirs.claim(tmp_path, search.searched(Config(), DRAWS, 0))
  workdirs.claim(tmp_path, search.searched(Config(), dict(DRAWS), 0))
  for other, told in (
    (search.searched(Config(n=2), DRAWS, 0), "base.n: 1 -> 2"),
    (search.searched(Config(), DRAWS, 1), "draw_seed: 0 -> 1"),
    (search.searched(Config(), {"x": DRAWS["x"]}, 0), "draws: .* -> .*'x=Uniform"),
  ):
    with pytest.raises(configs.ConfigError, match=f"holds a run of another .*{told}"):
      workdirs.claim(tmp_path, other)


def test_a_journal_that_broke_off_goes_on_and_a_damaged_one_is_refused(optuna, tmp_path):
  begun(optuna, tmp_path).go(2, 1)
  journal = tmp_path / search.JOURNAL
  whole = journal.read_bytes()
  journal.write_bytes(whole + b'{"op_code":')
  begun(optuna, tmp_path).go(3, 1)
  assert len(trials(optuna, tmp_path)) == 3 and journal.read_bytes().startswith(whole)
  journal.write_bytes(b"{\n" + whole)
  with pytest.raises(flags.UserError, match=r"optuna.journal is damaged \(.*\): put it back"):
    begun(optuna, tmp_path)


def test_without_the_extra_it_says_what_to_install(monkeypatch, tmp_path):
  monkeypatch.setitem(sys.modules, "optuna", None)
  words = ("--experiment=worked_example", "--trials=3", "--minimise=x", f"--workdir={tmp_path}/s")
  assert commands.run(search, *words, "--draw=scales=choices:1,2") == (
    "optuna is not installed (the extra `optuna`): run `python -m pip install optuna` and then the"
    " command again"
  )
  assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
  "words, told",
  [
    ([], "--trials=N is missing"),
    (["--trials=2"], "--draw=path=KIND:LOW,HIGH is missing"),
    (["--trials=0"], "--trials=0"),
    (["--trials=2", "--draw=lr=uniform:0,1"], "give one of --minimise=METRIC and --maximise"),
    (["--minimize=x"], "unknown flag --minimize (did you mean 'minimise'"),
    (["--trials=2", "--draw=lrr=uniform:0,1", "--minimise=x"], "no field 'lrr' (did you mean 'lr'"),
    (
      ["--trials=2", "--draw=hidden=uniform:0,1", "--minimise=x"],
      "hidden must be an int, not 0.0",
    ),
    (
      ["--trials=2", "--draw=hidden=choices:1,two", "--minimise=x"],
      "hidden must be an int, not 'two'",
    ),
  ],
)
def test_a_search_is_checked_before_it_starts(checkout, words, told):  # noqa: F811
  assert told in complaint(checkout, "search", "--experiment=tiny", *words)
  assert not (checkout / "results").exists()


def test_the_command(optuna, checkout):  # noqa: F811
  words = ("--experiment=tiny", "--draw=hidden=integers:1,50", "--minimise=size", "--jobs=2")
  code, out, err = launch(checkout, "search", *words, "--trials=3")
  assert (code, err) == (0, "")
  assert out.startswith("3 trials in results/tiny/search, 0 done already\n")
  assert "2 of 3 trials; best size " in out and "3 of 3 trials; best size " in out
  code, out, err = launch(checkout, "search", *words, "--trials=4")
  assert (code, err) == (0, "") and "4 trials in results/tiny/search, 3 done already\n" in out
  folder = checkout / "results/tiny/search"
  rows = [json.loads(line) for line in (folder / "sweep.jsonl").read_text().splitlines()]
  sizes = [row["metrics"]["size"] for row in rows]
  assert sizes == [float(row["setting"]["hidden"]) for row in rows] and len(sizes) == 4
  assert f"best size {min(sizes):.6g}: hidden={min(sizes):.0f}\n" in out
  assert "best: size minimised: " in out  # its name does not tell which way is better
  assert f"launch.compare --workdir={folder.relative_to(checkout)} --metric=size --best=min" in out
  told = complaint(checkout, "search", *words, "--trials=4", "--set=lr=2")
  assert "results/tiny/search holds a run of another configuration (base.lr: 0.1 -> 2.0)" in told
