"""The grammar of the public functions, their messages, and what `import attn` costs."""

import doctest
import inspect
import json
import pathlib
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

import attn

# Beside types, and the maker of a function.
FUNCTIONS = {
  name: value
  for name, value in vars(attn).items()
  if name in attn.__all__ and inspect.isfunction(value) and name != "flax_attention_fn"
}
every_function = pytest.mark.parametrize("name", sorted(FUNCTIONS))
README = pathlib.Path(__file__).parent.parent / "README.md"
SIGNATURE = re.compile(r"(\([a-z,+]*\),?)+->(\([a-z,]*\),?)+")
SOURCE = re.compile(r"Source: .{,60}?\b[A-Z][a-z]+( et al\.| and [A-Z][a-z]+)? (19|20)\d\d\b")
# A shape must be known when a program is traced, so it cannot be an array.
SHAPES = {"length_mask": ["size"]}


def parts(text):
  return re.findall(r"\((.*?)\)", text)


def test_everything_public_is_exported():
  public = {
    name
    for name, value in vars(attn).items()
    if not name.startswith("_") and not inspect.ismodule(value)
  }
  assert public == set(attn.__all__) and attn.__all__ == sorted(attn.__all__)
  assert re.fullmatch(r"\d+\.\d+\.\d+", attn.__version__)


def test_no_module_has_the_name_of_a_public_function():
  loaded = [name.split(".")[-1] for name in sys.modules if name.startswith("attn.")]
  assert loaded and not set(loaded) & set(FUNCTIONS)


@every_function
def test_arrays_come_first_and_the_rest_by_keyword(name):
  function = FUNCTIONS[name]
  inputs, outputs = inspect.getdoc(function).splitlines()[0].split("->")
  parameters = list(inspect.signature(function).parameters.values())
  positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
  assert not [p for p in parameters if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
  arrays = [p for p in positional if p not in SHAPES.get(name, [])]
  assert positional[: len(arrays)] == arrays
  assert len(arrays) == len(parts(inputs)) and parts(outputs)
  order = [p for p in ("query", "keys", "values", "mask") if p in arrays]
  assert [p for p in arrays if p in order] == order
  optional = [p.name for p in parameters if p.default is not p.empty]
  assert set(optional) <= {"values", "mask"} | {
    p.name for p in parameters if p.kind is p.KEYWORD_ONLY
  }
  for parameter in parameters:
    assert parameter.annotation is not parameter.empty, parameter.name
  assert inspect.signature(function).return_annotation is not inspect.Signature.empty


@every_function
def test_docstrings_have_signature_source_arguments_and_example(name):
  text = inspect.getdoc(FUNCTIONS[name])
  first, blank, *_ = text.splitlines()
  assert SIGNATURE.fullmatch(first) and not blank
  assert SOURCE.search(" ".join(text.split())), "no source"
  for section in ("Args:", "Returns:", "Raises:", "Example:"):
    assert f"\n{section}\n" in text, section
  for parameter in inspect.signature(FUNCTIONS[name]).parameters:
    assert re.search(rf"^  {parameter}: ", text, re.M), parameter


# Arguments of no axes cannot have too few.
SCALARS = {"gaussian", "length_mask", "window_mask"}


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - SCALARS))
def test_the_first_line_is_what_the_op_checks(name):
  """A wrong rank is answered with the dimensions of the docstring."""
  signature = inspect.getdoc(FUNCTIONS[name]).splitlines()[0]
  core = parts(signature)[0]
  options = {"half_width": 1} if name == "attend_local" else {}
  required = [
    p.name
    for p in inspect.signature(FUNCTIONS[name]).parameters.values()
    if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
  ]
  expected = re.escape(
    f"{name}: {required[0]} has shape (), expected (..., {', '.join(core.split(','))})"
  )
  with pytest.raises(ValueError, match=f"^{expected}$"):
    FUNCTIONS[name](*[np.int32(1)] * len(required), **options)


@pytest.mark.parametrize("name", sorted({*FUNCTIONS, "flax_attention_fn"}))
def test_the_example_runs(name):
  test = doctest.DocTestFinder(recurse=False).find(getattr(attn, name), name, globs={})[0]
  assert test.examples
  report = []
  result = doctest.DocTestRunner().run(test, out=report.append)
  assert result.failed == 0, "".join(report)


@pytest.mark.parametrize(
  "name",
  ["additive", "additive_projected", "concat", "cosine", "dot", "general", "scaled_dot"],
)
def test_every_score_shows_the_call_for_many_queries(name):
  text = " ".join(inspect.getdoc(FUNCTIONS[name]).split())
  assert "keys[..., None, :, :]" in text


def test_the_readme_lists_every_name_with_its_signature():
  """Its table of ops: `attn.name(arrays, *, options)`, the signature and what it is."""
  rows = re.findall(r"^\| `attn\.(\w+)\((.*?)\)` \| (.+?) \|", README.read_text(), re.M)
  assert [name for name, *_ in rows] == list(dict.fromkeys(name for name, *_ in rows))
  assert {name for name, *_ in rows} == {*FUNCTIONS, "flax_attention_fn"}
  for name, call, signature in rows:
    parameters = inspect.signature(getattr(attn, name)).parameters.values()
    bare = [re.sub("=.*", "", part) for part in call.split(", ") if part != "*"]
    assert bare == [parameter.name for parameter in parameters], name
    if name in FUNCTIONS and signature.startswith("`("):
      assert signature.strip("`") == inspect.getdoc(FUNCTIONS[name]).splitlines()[0], name


def zeros(*shape):
  return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
  "call,message",
  [
    (
      lambda: attn.dot(zeros(5, 3), zeros(7, 4)),
      "dot: keys has shape (7, 4), expected (..., s, k) with k = 3 from query of shape (5, 3)",
    ),
    (
      lambda: attn.dot(zeros(2, 3, 5), zeros(2, 7, 5)),
      "dot: keys has shape (2, 7, 5), expected leading axes that broadcast with (2, 3); one for "
      "many queries is keys[..., None, :, :]",
    ),
    (
      lambda: attn.scaled_dot(zeros(0), zeros(7, 0)),
      "scaled_dot: query has shape (..., 0), expected a width k of at least 1",
    ),
    (
      lambda: attn.concat(zeros(5), zeros(7, 3), zeros(11, 7), zeros(11)),
      "concat: w_a has shape (11, 7), expected (..., n, q+k) with q+k = 8 from query of shape (5,) "
      "and keys of shape (7, 3)",
    ),
    (
      lambda: attn.general(zeros(5), zeros(7, 3), zeros(3, 5)),
      "general: w_a has shape (3, 5), expected (..., q, k) with q = 5 from query of shape (5,), "
      "k = 3 from keys of shape (7, 3)",
    ),
    (
      lambda: attn.additive(zeros(5), zeros(7, 3), zeros(11, 3), zeros(11, 3), zeros(11)),
      "additive: w_a has shape (11, 3), expected (..., n, q) with q = 5 from query of shape (5,)",
    ),
    (
      lambda: attn.additive_projected(zeros(5), zeros(7, 11), zeros(5, 11), zeros(11)),
      "additive_projected: w_a has shape (5, 11), expected (..., n, q) with n = 11 from projected "
      "of shape (7, 11), q = 5 from query of shape (5,)",
    ),
    (
      lambda: attn.softmax(zeros(7), np.ones(5, bool)),
      "softmax: mask has shape (5,), expected (..., s) with s = 7 from scores of shape (7,)",
    ),
    (
      lambda: attn.softmax(zeros(7), scale=zeros(7)),
      "softmax: scale has shape (7,), expected one number",
    ),
    (
      lambda: attn.context(zeros(7), zeros(5, 3)),
      "context: values has shape (5, 3), expected (..., s, v) with s = 7 from weights of shape "
      "(7,)",
    ),
    (
      lambda: attn.attend(zeros(2, 3, 5), zeros(2, 7, 5), zeros(2, 11, 13)),
      "attend: values has shape (2, 11, 13), expected (..., s, v) with s = 7 from keys of shape "
      "(2, 7, 5)",
    ),
    (
      lambda: attn.attend(zeros(2, 3, 5), zeros(11, 7, 5)),
      "attend: keys has shape (11, 7, 5), expected leading axes that broadcast with (2,)",
    ),
    (
      lambda: attn.attend(zeros(3, 5), zeros(7, 5), mask=np.ones((2, 3, 7), bool)),
      "attend: mask has shape (2, 3, 7), expected [..., t, s] of 2 axes or [..., s] of fewer; the "
      "weights have shape (3, 7)",
    ),
    (
      lambda: attn.attend(zeros(3, 5), zeros(7, 5), scale=zeros(3)),
      "attend: scale has shape (3,), expected one number",
    ),
    (lambda: attn.length_mask(np.ones(2, int), -1), "length_mask: size is -1, expected at least 0"),
  ],
)
def test_shapes_that_do_not_fit_are_one_line_at_trace_time(call, message):
  with pytest.raises(ValueError) as error:
    jax.eval_shape(call)
  assert str(error.value) == message


@pytest.mark.parametrize(
  "call,message",
  [
    (lambda: attn.dot(None, zeros(7, 5)), "dot: query is None, expected real numbers"),
    (
      lambda: attn.dot(zeros(5), np.ones((7, 5), bool)),
      "dot: keys has dtype bool, expected real numbers",
    ),
    (
      lambda: attn.softmax(np.ones(7, np.complex64)),
      "softmax: scores has dtype complex64, expected real numbers",
    ),
    (
      lambda: attn.length_mask(zeros(2), 5),
      "length_mask: lengths has dtype float32, expected integers",
    ),
    (
      lambda: attn.dot([[1.0], [1.0, 2.0]], zeros(5)),
      "dot: query is a list that makes no array",
    ),
    (
      lambda: attn.dot(zeros(5), np.ma.masked_array(zeros(7, 5), mask=True)),
      "dot: keys is a MaskedArray, whose mask is not read; expected its data",
    ),
    (lambda: attn.length_mask("2", 5), "length_mask: lengths is a str that makes no array"),
    (lambda: attn.softmax(zeros(7), scale=None), "softmax: scale is None, expected real numbers"),
    (
      lambda: attn.softmax(zeros(7), scale=1j),
      "softmax: scale has dtype complex64, expected real numbers",
    ),
    (
      lambda: attn.attend(zeros(3, 5), zeros(7, 5), scale="2"),
      "attend: scale is a str that makes no array",
    ),
    (
      lambda: attn.attend(zeros(3, 5), zeros(7, 5), score="dot"),
      "attend: score is a str, expected a function",
    ),
    (
      lambda: attn.attend(zeros(3, 5), zeros(7, 5), score=lambda query, keys: None),
      "attend: what score returned is None, expected real numbers",
    ),
    (lambda: attn.length_mask(2, 5.0), "length_mask: size is a float, expected a Python int"),
    (lambda: attn.softmax(zeros(7), None, 2.0), "softmax: too many positional arguments"),
    (lambda: attn.dot(zeros(5)), "dot: missing a required argument: 'keys'"),
  ],
)
def test_arguments_of_the_wrong_kind_are_one_line(call, message):
  with pytest.raises(TypeError) as error:
    call()
  assert str(error.value) == message


def test_importing_attn_loads_jax_numpy_and_jaxtyping_only():
  program = """
import json, sys
import jax
before = {name.split('.')[0] for name in sys.modules}
import attn
from jax._src import xla_bridge
after = {name.split('.')[0] for name in sys.modules}
print(json.dumps([sorted(after - before), sorted(after), xla_bridge.backends_are_initialized()]))
"""
  command = [sys.executable, "-c", program]
  result = subprocess.run(command, capture_output=True, text=True, check=True)
  new, loaded, started = json.loads(result.stdout)
  assert {m for m in new if m not in sys.stdlib_module_names} <= {"attn", "jaxtyping"}
  heavy = {"flax", "optax", "orbax", "absl", "matplotlib", "tensorflow_datasets", "grain", "scipy"}
  assert "attn" in loaded and not heavy & set(loaded)
  # No array was created, so that `jax.distributed` can start later.
  assert not started
