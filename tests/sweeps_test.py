"""Lists of overrides, from Python and from flags, and the names of their runs."""

import json
import math
import pathlib
import re
import subprocess
import sys

import hypothesis
import pytest
from hypothesis import strategies as st

from experiments import sweeps
from experiments.sweeps import Choices, Integers, LogUniform, Uniform
from launch import flags, plan

ROOT = pathlib.Path(__file__).parents[1]

# In Python.


def test_a_grid_is_every_combination_in_order():
  assert sweeps.grid({"a.b": (1, 2), "c": ["x", "y", "z"]}) == [
    {"a.b": 1, "c": "x"},
    {"a.b": 1, "c": "y"},
    {"a.b": 1, "c": "z"},
    {"a.b": 2, "c": "x"},
    {"a.b": 2, "c": "y"},
    {"a.b": 2, "c": "z"},
  ]
  assert sweeps.grid({}) == [{}]


def test_zipped_axes_go_together():
  assert sweeps.zipped({"a": (1, 2), "b": (3, 5)}) == [{"a": 1, "b": 3}, {"a": 2, "b": 5}]
  with pytest.raises(ValueError, match="^zipped axes need as many values each: a has 2, b has 3$"):
    sweeps.zipped({"a": (1, 2), "b": (3, 5, 7)})


@pytest.mark.parametrize("combine", [sweeps.grid, sweeps.zipped])
@pytest.mark.parametrize("values", ["dot", (), []])
def test_an_axis_has_values(combine, values):
  with pytest.raises(ValueError, match="^axis a is .*: expected a sequence of values$"):
    combine({"a": values})


def test_a_chain_repeats_nothing():
  first, second = sweeps.grid({"a": (1, 2)}), sweeps.grid({"a": (2, 3)})
  assert sweeps.chain(first, [{}], second) == [{"a": 1}, {"a": 2}, {}, {"a": 3}]
  assert sweeps.chain() == []


def test_a_product_has_the_last_sweep_fastest_and_its_values():
  smoke, cells = [{"size": 1, "steps": 5}], sweeps.grid({"size": (2, 3)})
  assert sweeps.product(smoke, cells, sweeps.seeds(2, first=7)) == [
    {"size": 2, "steps": 5, "seed": 7},
    {"size": 2, "steps": 5, "seed": 8},
    {"size": 3, "steps": 5, "seed": 7},
    {"size": 3, "steps": 5, "seed": 8},
  ]
  assert smoke == [{"size": 1, "steps": 5}]
  assert sweeps.product() == [{}] and sweeps.product(cells, []) == []
  with pytest.raises(ValueError, match="expected 1 or more"):
    sweeps.seeds(0)


DRAWS = {
  "rate": LogUniform(1e-4, 1e-2),
  "dropout": Uniform(0, 0.5),
  "layers": Integers(1, 3),
  "score": Choices(("dot", "additive")),
}
DRAWN = [
  {"rate": 0.007326, "dropout": 0.4914, "layers": 2, "score": "dot"},
  {"rate": 0.006536, "dropout": 0.29, "layers": 3, "score": "additive"},
]


def test_a_sample_is_the_same_everywhere():
  program = (
    "import json; from experiments import sweeps\n"
    "draws = {'rate': sweeps.LogUniform(1e-4, 1e-2), 'dropout': sweeps.Uniform(0, 0.5),\n"
    "  'layers': sweeps.Integers(1, 3), 'score': sweeps.Choices(('dot', 'additive'))}\n"
    "print(json.dumps(sweeps.sample(2, draws, 0)))"
  )
  for seed in ("0", "1"):  # of the hashes of texts
    done = subprocess.run(
      [sys.executable, "-c", program],
      cwd=ROOT,
      env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
      capture_output=True,
      check=True,
    )
    # The numbers themselves: a change of the order of draws is one that users would notice.
    assert json.loads(done.stdout) == DRAWN


def test_a_sample_goes_on_and_stays_beside_another_axis():
  ten = sweeps.sample(10, DRAWS, seed=3)
  assert sweeps.sample(4, DRAWS, seed=3) == ten[:4]
  rates = {"rate": DRAWS["rate"]}
  assert sweeps.sample(10, rates, seed=3) == [{"rate": one["rate"]} for one in ten]
  assert sweeps.sample(10, DRAWS, seed=4) != ten
  assert sweeps.sample(0, DRAWS, seed=3) == []


def test_a_sample_has_no_setting_twice():
  few = {"layers": Integers(1, 3), "score": Choices(("dot", "additive"))}
  drawn = sweeps.sample(6, few, seed=0)
  assert sorted(drawn, key=str) == sorted(
    sweeps.grid({"layers": (1, 2, 3), "score": ("dot", "additive")}), key=str
  )
  with pytest.raises(ValueError, match="^a sample of 7, but 6 different settings are all"):
    sweeps.sample(7, few, seed=0)


def test_draws_are_spread_as_they_say():
  drawn = sweeps.sample(2000, {**DRAWS, "x": Uniform(-1.0, 1.0)}, seed=0)
  # Within five standard deviations of a share of 2,000 draws.
  for path, below in (("rate", 1e-3), ("dropout", 0.25), ("x", 0.0)):
    assert abs(sum(one[path] < below for one in drawn) / 2000 - 1 / 2) < 0.056, path
  for path, value, share in (("layers", 3, 1 / 3), ("score", "dot", 1 / 2)):
    assert abs(sum(one[path] == value for one in drawn) / 2000 - share) < 0.056, path


@hypothesis.given(
  st.floats(1e-6, 1e3), st.floats(1.001, 1e4), st.floats(0, 1, exclude_max=True), st.booleans()
)
def test_draws_stay_in_their_range(low, factor, share, logarithmic):
  draw = (LogUniform if logarithmic else Uniform)(low, low * factor)
  value = draw.at(share)
  assert low <= value <= low * factor
  assert draw.short(value) == value
  exact = low * factor**share if logarithmic else low + share * (low * factor - low)
  step = 5e-4 * exact if logarithmic else 5.01e-4 * (low * factor - low)
  assert math.isclose(value, exact, rel_tol=1e-9, abs_tol=step)


@pytest.mark.parametrize(
  "draw, arguments, told",
  [
    (Uniform, (1, 1), "expected a finite range LOW,HIGH, not 1,1"),
    (Uniform, (0, math.inf), "expected a finite range LOW,HIGH, not 0,inf"),
    (Uniform, (-1e308, 1e308), "expected a finite range LOW,HIGH, not -1e+308,1e+308"),
    (Integers, (0, 10**309), f"expected a finite range LOW,HIGH, not 0,{10**309}"),
    (LogUniform, (0, 1), "expected numbers above 0, not 0"),
    (Integers, (3, 2), "expected a finite range LOW,HIGH, not 3,2"),
    (Choices, (("a",),), "expected two values or more to choose from, not 1"),
  ],
)
def test_what_nothing_can_be_drawn_from(draw, arguments, told):
  with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
    draw(*arguments)


def test_sweeps_load_nothing():
  program = "import sys; from experiments import sweeps; print(*sys.modules)"
  done = subprocess.run(
    [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
  )
  assert not {"jax", "numpy", "attn", "absl"} & set(done.stdout.split())


# From flags.


@pytest.mark.parametrize(
  "text, values",
  [
    ("a,b", ["a", "b"]),
    ("1e-3, 3e-3", ["1e-3", "3e-3"]),
    ("(1,2),(3,4)", ["(1,2)", "(3,4)"]),
    ("'a,b',c", ["'a,b'", "c"]),
    ("none", ["none"]),
  ],
)
def test_values_of_an_axis(text, values):
  assert [one["x"] for one in plan.grid([f"x={text}"])] == values


def test_axes_of_flags():
  assert plan.grid(["a=1,2", "b=x,y"]) == sweeps.grid({"a": ("1", "2"), "b": ("x", "y")})
  assert plan.grid([]) == [{}]
  for axes, told in (
    (["a"], "--grid=a names no values; write --grid=path=value,value"),
    (["a="], "--grid=a= names no values"),
    (["=1"], "--grid==1 names no values"),
    (["a=,"], "--grid=a=, names no values; write --grid=path=value,value"),
    (["a=1", "a=2"], "--grid names a twice"),
  ):
    with pytest.raises(flags.UserError, match=f"^{told}"):
      plan.grid(axes)


def test_draws_of_flags():
  assert plan.draws(
    [
      "rate=log_uniform:1e-4,1e-2",
      "dropout=uniform:0,.5",
      "layers=integers:1,3",
      "score=choices:dot,additive",
    ]
  ) == {**DRAWS, "dropout": Uniform(0.0, 0.5)}
  assert plan.draws(["dims=choices:(1,2),(3,4)"]) == {"dims": Choices(("(1,2)", "(3,4)"))}


@pytest.mark.parametrize(
  "text, told",
  [
    ("rate", "--draw=rate names no values; write --draw=path=log_uniform:1e-4,1e-2"),
    ("rate=loguniform:1,2", "no kind 'loguniform' (did you mean 'log_uniform'"),
    ("rate=1,2", "no kind '1,2' (there is uniform, log_uniform, integers, choices)"),
    ("rate=uniform:1", "--draw=rate=uniform:1: expected LOW,HIGH"),
    ("rate=uniform:0,x", "--draw=rate=uniform:0,x: could not convert string to float: 'x'"),
    ("rate=integers:1,2.5", "--draw=rate=integers:1,2.5: invalid literal for int()"),
    ("rate=log_uniform:0,1", "--draw=rate=log_uniform:0,1: expected numbers above 0, not 0.0"),
    ("rate=uniform:1,0", "expected a finite range LOW,HIGH, not 1.0,0.0"),
    ("rate=choices:1", "expected two values or more to choose from, not 1"),
  ],
)
def test_draws_that_are_none(text, told):
  with pytest.raises(flags.UserError) as raised:
    plan.draws([text])
  assert told in str(raised.value) and "\n" not in str(raised.value)


def test_what_all_settings_share_is_taken_out():
  settings = [{"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}]
  assert plan.split_common(settings) == ({"a": "1"}, [{"b": "2"}, {"b": "3", "c": "4"}])
  assert plan.split_common(settings[:1]) == ({}, settings[:1])
  assert plan.split_common([]) == ({}, [])


def test_names_of_runs_are_fit_for_folders_and_differ():
  settings = [{}, {"a.b": "1"}, {"a": "x y"}, {"a": "x/y"}, {"a": "x" * 300}, {"a": "x" * 301}]
  settings += [{"a": "\u8a9e" * 90}, {"a": "\u8a9e" * 91}, {"a": "\udcff"}]  # what is no UTF-8 too
  names = [plan.run_name(setting) for setting in settings]
  assert names[:2] == ["base", "a.b=1"]
  assert len(set(names)) == len(names)
  assert all(re.fullmatch(r"[\w.,=+-]+", name) and len(name.encode()) <= 120 for name in names)
