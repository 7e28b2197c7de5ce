import dataclasses
import json
from typing import Literal

import hypothesis
import pytest
from hypothesis import strategies as st

from attn import configs


@dataclasses.dataclass(frozen=True)
class Inner:
  hidden: int = 64
  dims: tuple[int, ...] = (1, 2)
  names: tuple[str, ...] = ("a",)
  pair: tuple[int, str] = (3, "b")
  kind: Literal["none", "dot", 3] = "dot"

  def __post_init__(self):
    if self.hidden < len(self.dims):
      raise ValueError(f"hidden is {self.hidden}, less than the {len(self.dims)} dims")


@dataclasses.dataclass(frozen=True)
class Outer:
  lr: float = 0.1
  dropout: float | None = None
  name: str = "x"
  flag: bool = False
  rates: tuple[float, ...] | None = None
  inner: Inner = Inner()
  other: Inner | None = None


def leaf(config, path):
  for name in path.split("."):
    config = getattr(config, name)
  return config


# CFG-02: what is typed, and what the field then holds.
READ = [
  ("lr=1", 1.0),
  ("lr=1e-3", 0.001),
  ("dropout=.5", 0.5),
  ("dropout=1", 1.0),
  ("dropout=None", None),
  ("dropout=none", None),
  ("inner.hidden=1_000", 1000),
  ("inner.dims=3", (3,)),
  ("inner.dims=(3,4)", (3, 4)),
  ("inner.dims=3,4", (3, 4)),
  ("inner.dims=[3,4]", (3, 4)),
  ("inner.dims=()", ()),
  ("inner.names=a,b", ("a", "b")),
  ("inner.names=(a, b)", ("a", "b")),
  ("inner.names=1,2", ("1", "2")),
  ("inner.names=solo", ("solo",)),
  ("inner.pair=5,c", (5, "c")),
  ("inner.kind=none", "none"),
  ("inner.kind=3", 3),
  ("rates=1,2", (1.0, 2.0)),
  ("rates=none", None),
  ("name=5", "5"),
  ("name=007", "007"),
  ("name=true", "true"),
  ("name='none'", "none"),
  ("name=a=b, c", "a=b, c"),
  ("name=", ""),
  ("flag=true", True),
  ("flag=False", False),
]


@pytest.mark.parametrize("typed, expected", READ)
def test_assign_reads_by_annotation(typed, expected):
  value = leaf(configs.assign(Outer(), [typed]), typed.partition("=")[0])
  assert value == expected
  assert type(value) is type(expected)


REFUSED = [
  ("inner.hidden=64.0", "inner.hidden must be an int, not 64.0"),
  ("inner.hidden=1e3", "inner.hidden must be an int, not 1000.0"),
  ("inner.hidden=true", "inner.hidden must be an int, not True"),
  ("inner.dims=(3.5,4)", "inner.dims must be a tuple of (an int, ...), not (3.5, 4)"),
  ("inner.pair=5", "inner.pair must be a tuple of (an int, text), not 5"),
  ("inner.kind=cosine", "inner.kind must be one of 'none', 'dot', 3, not 'cosine'"),
  ("lr=nan", "lr must be a float, not 'nan'"),
  ("lr=1e999", "lr must be a finite number, not inf"),
  ("dropout=1e999", "dropout must be a finite number, not inf"),
  ("rates=1,1e999", "rates must be a finite number, not inf"),
  ("lr=1" + "0" * 400, "lr must be a finite number, not inf"),
  ("lr=true", "lr must be a float, not True"),
  ("lr=none", "lr must be a float, not None"),
  ("dropout=much", "dropout must be a float or None, not 'much'"),
  ("flag=0", "flag must be true or false, not 0"),
  ("lrr=1", "no field 'lrr' (did you mean 'lr'?)"),
  ("hidden=3", "no field 'hidden' (did you mean 'inner.hidden'?)"),
  ("inner.hiden=3", "no field 'inner.hiden' (did you mean 'inner.hidden'"),
  ("lr.x=3", "no field 'lr.x'"),
  ("other.hidden=3", "no field 'other.hidden'"),
  ("inner=3", "inner is a group of fields; set one of inner.hidden, inner.dims,"),
  ("inner.hidden=1", "inner: hidden is 1, less than the 2 dims"),
  ("lr", "'lr' is no assignment"),
  ("=3", "'=3' is no assignment"),
]


@pytest.mark.parametrize("typed, message", REFUSED)
def test_assign_refuses_in_one_line(typed, message):
  with pytest.raises(configs.ConfigError) as raised:
    configs.assign(Outer(), [typed])
  assert str(raised.value).startswith(message)
  assert "\n" not in str(raised.value)


def test_read_sets_nothing():
  # Inner would refuse it beside its two dims.
  assert configs.read(Outer(), "inner.hidden=1") == ("inner.hidden", 1)
  with pytest.raises(configs.ConfigError, match="^inner.hidden must be an int, not 'one'$"):
    configs.read(Outer(), "inner.hidden=one")


def test_override_takes_python_values():
  values = {"lr": 1, "inner.dims": [3, 4], "inner.names": "a,b", "other": Inner(hidden=7)}
  config = configs.override(Outer(), values)
  assert config == Outer(lr=1.0, inner=Inner(dims=(3, 4), names=("a,b",)), other=Inner(hidden=7))
  assert type(config.lr) is float


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_override_refuses_what_is_not_finite(value):
  with pytest.raises(configs.ConfigError, match="^dropout must be a finite number"):
    configs.override(Outer(), {"dropout": value})


@pytest.mark.parametrize("value", [64.0, True, "64", None, (64,)])
def test_override_refuses_another_type(value):
  with pytest.raises(configs.ConfigError, match="^inner.hidden must be an int"):
    configs.override(Outer(), {"inner.hidden": value})


def test_values_go_in_together():
  # Either alone breaks the rule of Inner.__post_init__.
  config = configs.override(Outer(), {"inner.hidden": 1, "inner.dims": (5,)})
  assert config.inner == Inner(hidden=1, dims=(5,))


def test_the_last_assignment_wins():
  assert configs.assign(Outer(), ["lr=1", "lr=2"]).lr == 2.0


def test_the_original_stays():
  config = Outer()
  assert configs.override(config, {}) is config
  configs.override(config, {"inner.hidden": 5})
  assert config == Outer()


def test_unknown_annotations_are_the_programmers_fault():
  @dataclasses.dataclass(frozen=True)
  class Odd:
    table: dict[str, int] = dataclasses.field(default_factory=dict)

  with pytest.raises(TypeError, match="table"):
    configs.override(Odd(), {"table": 3})


@pytest.mark.parametrize(
  "typed, expected",
  [
    ("a.b=3", ("a.b", 3)),
    ("a=(3,4)", ("a", (3, 4))),
    ("a=3,4", ("a", (3, 4))),
    ("a=TRUE", ("a", True)),
    ("a=None", ("a", None)),
    ("a='None'", ("a", "None")),
    ("a=dot", ("a", "dot")),
    ("a=nan", ("a", "nan")),
    ("a={1: 2}", ("a", "{1: 2}")),
    ("a=x=y", ("a", "x=y")),
  ],
)
def test_parse_assignment(typed, expected):
  assert configs.parse_assignment(typed) == expected


def test_from_dict_names_all_faults():
  data = configs.to_dict(Outer())
  data["inner"]["hiden"] = data["inner"].pop("hidden")
  with pytest.raises(configs.ConfigError) as raised:
    configs.from_dict(Outer, data)
  assert str(raised.value) == "no field 'inner.hiden' (did you mean 'hidden'?)"


@dataclasses.dataclass(frozen=True)
class Needy:
  size: int
  inner: Inner = Inner(hidden=5)


def test_fields_that_came_after_a_configuration_was_saved_take_their_defaults():
  old = {"size": 3, "inner": {"hidden": 7}}
  assert configs.from_dict(Needy, old) == Needy(3, Inner(hidden=7))
  assert configs.up_to_date(Needy, old) == configs.to_dict(Needy(3, Inner(hidden=7)))
  for other in ({"inner": {}}, {"size": 3, "gone": 1}):
    assert configs.up_to_date(Needy, other) is other
  with pytest.raises(configs.ConfigError, match="^missing 'size'$"):
    configs.from_dict(Needy, {"inner": {}})


@pytest.mark.parametrize("data", [[], {"lr": "x"}, {"inner": 3}])
def test_from_dict_refuses(data):
  with pytest.raises(configs.ConfigError):
    configs.from_dict(Outer, data)


def test_differences():
  before = Outer(other=Inner())
  after = Outer(lr=0.2, inner=Inner(dims=(9,)))
  assert configs.differences(before, after) == [
    ("lr", 0.1, 0.2),
    ("inner.dims", [1, 2], [9]),
    *((f"other.{name}", value, configs.ABSENT) for name, value in configs.to_dict(Inner()).items()),
    ("other", configs.ABSENT, None),
  ]
  assert configs.differences(configs.to_dict(before), before) == []


def test_nearest():
  known = ["rnnsearch", "rnnencdec", "rnnsearch_laptop"]
  assert configs.nearest("rnsearch", known).startswith(" (did you mean 'rnnsearch'")
  assert configs.nearest("RNNencdec", known).startswith(" (did you mean 'rnnencdec'")
  assert configs.nearest("zzz", known) == " (known: rnnsearch, rnnencdec, rnnsearch_laptop)"
  assert configs.nearest("zzz", []) == " (there is none)"


# Properties: over all configurations and all texts.

texts = st.text(max_size=12)
counts = st.integers(min_value=0, max_value=10**6)
finite = st.floats(allow_nan=False, allow_infinity=False)
inners = st.builds(
  Inner,
  hidden=st.integers(min_value=5, max_value=10**6),
  dims=st.lists(counts, max_size=5).map(tuple),
  names=st.lists(texts, max_size=3).map(tuple),
  pair=st.tuples(counts, texts),
  kind=st.sampled_from(["none", "dot", 3]),
)
outers = st.builds(
  Outer,
  lr=finite,
  dropout=st.none() | finite,
  name=texts,
  flag=st.booleans(),
  rates=st.none() | st.lists(finite, max_size=3).map(tuple),
  inner=inners,
  other=st.none() | inners,
)


@hypothesis.given(outers)
def test_a_configuration_comes_back_from_json(config):
  data = json.loads(json.dumps(configs.to_dict(config)))
  assert data == configs.to_dict(config)
  assert configs.from_dict(Outer, data) == config
  assert configs.differences(data, config) == []


@hypothesis.given(outers, outers)
def test_differences_typed_on_a_command_line_lead_from_one_to_the_other(before, after):
  after = dataclasses.replace(after, other=before.other)
  typed = [
    configs.format_assignment(path, value) for path, _, value in configs.differences(before, after)
  ]
  assert configs.assign(before, typed) == after


@hypothesis.given(outers)
def test_python_values_come_back_from_their_text(config):
  for path in ("lr", "dropout", "name", "flag", "rates", "inner.pair", "inner.names"):
    value = leaf(config, path)
    assert configs.parse_assignment(configs.format_assignment(path, value)) == (path, value)


@hypothesis.given(
  st.sampled_from(["lr", "dropout", "name", "flag", "rates", "inner.dims", "inner.kind"]), texts
)
def test_any_text_is_read_or_refused_and_never_of_another_type(path, text):
  try:
    config = configs.assign(Outer(), [f"{path}={text}"])
  except configs.ConfigError as error:
    assert path in str(error)
  else:
    assert configs.from_dict(Outer, configs.to_dict(config)) == config
