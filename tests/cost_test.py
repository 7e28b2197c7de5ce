"""The accounts against what was published, and against counting on arrays."""

import doctest
import inspect
import re

import jax
import numpy as np
import pytest

import attn
from attn import cost

PAPER = {"source": 50, "width": 2000, "alignment": 1000, "query": 1000}
FUNCTIONS = {
  name: value
  for name, value in vars(cost).items()
  if inspect.isfunction(value) and not name.startswith("_")
}
every_function = pytest.mark.parametrize("name", sorted(FUNCTIONS))


def test_the_fixed_vector():
  """Claims 8 to 14."""
  reals = attn.cost.context_reals(layers=4, units=1000)
  assert reals == 8000
  assert attn.cost.context_reals(layers=1, units=1000, states=1) == 1000  # RNNencdec's h_T
  assert attn.cost.bits(reals) == 256_000
  assert attn.cost.bits(reals) / 8 / 1024 == 31.25
  assert attn.cost.bits(reals, width=16) == 128_000
  sentence = attn.cost.sentence_bits(words=50, vocabulary=160_000)
  assert sentence == pytest.approx(864.386, abs=5e-4)
  assert attn.cost.sentence_bits(words=1, vocabulary=160_000) == pytest.approx(17.28771, abs=5e-6)
  assert attn.cost.sentence_bits(words=51, vocabulary=160_000) == pytest.approx(881.67, abs=5e-3)
  assert sentence / attn.cost.bits(reals) == pytest.approx(0.0033765, abs=5e-8)


def test_what_attention_keeps():
  """Claims 75 and 76."""
  assert attn.cost.annotation_reals(length=50, width=2000) == 100_000 == 12.5 * 8000
  assert attn.cost.annotation_reals(length=4, width=2000) == 8000
  assert attn.cost.cached_reals(length=50, width=2000, alignment=1000) == 150_000 == 18.75 * 8000
  assert attn.cost.scores(source=50, target=60) == 3000


def test_what_attention_computes():
  """Claims 46, 47 and 77."""
  assert attn.cost.attention_macs(**PAPER) == 1_150_000
  once = attn.cost.attention_macs(**PAPER, target=60)
  each = attn.cost.attention_macs(**PAPER, target=60, precomputed=False)
  assert (once, each) == (169_000_000, 6_069_000_000)
  assert each / once == pytest.approx(35.9, abs=0.05)
  step = attn.cost.decoder_macs(
    embedding=620, state=1000, width=2000, alignment=1000, source=50, maxout=500, vocabulary=30_000
  )
  assert step == {"attention": 1_150_000, "gru": 10_860_000, "readout": 18_620_000}
  assert step["attention"] / sum(step.values()) == pytest.approx(0.038, abs=5e-4)


def test_a_single_step_finds_the_keys_projected_unless_told_otherwise():
  step, projection = attn.cost.attention_macs(**PAPER), 50 * 1000 * 2000
  assert attn.cost.attention_macs(**PAPER, target=2) == 2 * step + projection
  assert attn.cost.attention_macs(**PAPER, precomputed=False) == step + projection
  assert attn.cost.attention_macs(**PAPER, target=0) == 0
  assert attn.cost.attention_macs(**PAPER, target=0, precomputed=False) == 0


def products(function, *shapes):
  """Multiply-adds of the products in the program of `function`, from their shapes."""
  arrays = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
  text = jax.jit(function).lower(*arrays).as_text()
  found = re.findall(
    r"dot_general.*contracting_dims = \[(\d+)\].*: \(tensor<([\dx]+)xf32>.*-> tensor<([\dx]+)xf32>",
    text,
  )
  return sum(
    int(left.split("x")[int(axis)]) * np.prod([int(size) for size in out.split("x")])
    for axis, left, out in found
  )


def test_the_ops_compute_what_is_counted():
  s, n, k, q = 7, 11, 5, 3

  def step(query, projected, w_a, v_a, keys):
    weights = attn.softmax(attn.additive_projected(query, projected, w_a, v_a))
    return attn.context(weights, keys)

  counted = products(step, (q,), (s, n), (n, q), (n,), (s, k))
  assert counted == attn.cost.attention_macs(source=s, width=k, alignment=n, query=q)
  once = products(attn.project_keys, (s, k), (n, k))
  assert once + 2 * counted == attn.cost.attention_macs(s, k, n, q, target=2)


@every_function
def test_sizes_are_integers_and_not_negative(name):
  function = FUNCTIONS[name]
  sizes = {p: 3 for p in inspect.signature(function).parameters if p != "precomputed"}
  assert function(**sizes) == function(**{p: np.int8(3) for p in sizes})
  for size in sizes:
    for bad in (3.0, True, "3", None):
      with pytest.raises(TypeError) as wrong:
        function(**{**sizes, size: bad})
      kind = type(bad).__name__
      assert str(wrong.value) == f"{name}: {size} is a {kind}, expected an int"
    with pytest.raises(ValueError) as negative:
      function(**{**sizes, size: -1})
    assert str(negative.value) == f"{name}: {size} is -1, expected at least 0"


def test_small_integers_do_not_overflow_and_results_are_plain():
  assert attn.cost.scores(np.int8(100), np.int8(100)) == 10_000
  assert type(attn.cost.scores(np.int64(2), np.int64(3))) is int
  assert type(attn.cost.sentence_bits(np.int64(2), np.int64(3))) is float


def test_no_word_can_be_chosen_from_an_empty_vocabulary():
  with pytest.raises(ValueError) as error:
    attn.cost.sentence_bits(words=1, vocabulary=0)
  assert str(error.value) == "sentence_bits: vocabulary is 0, expected at least 1"
  assert attn.cost.sentence_bits(words=5, vocabulary=1) == 0


@every_function
def test_docstrings_have_source_arguments_and_an_example_that_runs(name):
  text = inspect.getdoc(FUNCTIONS[name])
  for section in ("Source: ", "Args:", "Returns:", "Raises:", "Example:"):
    assert f"\n{section}" in text, section
  for parameter in inspect.signature(FUNCTIONS[name]).parameters:
    assert re.search(rf"^  {parameter}: ", text, re.M), parameter
  test = doctest.DocTestFinder(recurse=False).find(FUNCTIONS[name], name, globs={})[0]
  report = []
  assert test.examples
  assert doctest.DocTestRunner().run(test, out=report.append).failed == 0, "".join(report)
