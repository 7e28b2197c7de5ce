"""Vocabularies: ids and back, and the file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary

LEVELS = ("character", "symbol")


def test_builds_sorted_whatever_the_order_of_the_texts():
  one = Vocabulary.build(["T IH R", "AA T"], "symbol")
  other = Vocabulary.build(["AA T", "T IH R", "T IH R"], "symbol")
  assert one == other
  assert one.symbols == ("AA", "IH", "R", "T")
  assert Vocabulary.build(["cab", "ad"], "character").symbols == ("a", "b", "c", "d")


def test_ids_are_pinned():
  vocabulary = Vocabulary.build(["cab"], "character")
  assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
  assert len(vocabulary) == 7
  assert vocabulary.encode("abcab") == [4, 5, 6, 4, 5]
  assert vocabulary.encode("") == []


def test_unknown_symbols_become_unk_and_no_text_spells_a_reserved_id():
  vocabulary = Vocabulary.build(["a b"], "symbol")
  assert vocabulary.encode("a <pad> b <unk> z") == [4, UNK, 5, UNK, UNK]
  assert vocabulary.decode([4, UNK, 5]) == "a <unk> b"


def test_decoding_stops_at_eos_and_leaves_out_pad_and_bos():
  vocabulary = Vocabulary.build(["a b c"], "symbol")
  assert vocabulary.decode([BOS, 4, PAD, 6, EOS, 5, 99]) == "a c"
  assert Vocabulary.build(["abc"], "character").decode([6, 4, EOS, EOS]) == "ca"
  assert vocabulary.decode([EOS]) == ""


@pytest.mark.parametrize("bad", [-1, 7, 2**40])
def test_decoding_refuses_an_id_outside_the_vocabulary(bad):
  vocabulary = Vocabulary.build(["a b c"], "symbol")
  with pytest.raises(ValueError, match=rf"^id {bad} is outside the vocabulary of 7$"):
    vocabulary.decode([4, bad])


def test_only_the_blank_separates_symbols():
  # Everything else that Python takes for a space or a line end may be inside a symbol.
  odd = "a\tb", "c\u2028d", "e\u00a0f", "g\r", "\u0085h", "\x0ci"
  vocabulary = Vocabulary((), "symbol")
  assert vocabulary.split("  ".join(odd) + " ") == odd


@given(st.lists(st.text()), st.sampled_from(LEVELS))
def test_a_text_of_the_vocabulary_comes_back(texts, level):
  vocabulary = Vocabulary.build(texts, level)
  for text in texts:
    ids = vocabulary.encode(text)
    assert all(UNK < i < len(vocabulary) for i in ids)
    assert vocabulary.decode([*ids, EOS, PAD, PAD]) == vocabulary.join(vocabulary.split(text))
    if level == "character":
      assert vocabulary.decode(ids) == text


@given(st.lists(st.text()), st.sampled_from(LEVELS))
def test_a_file_brings_back_the_same_vocabulary(tmp_path_factory, texts, level):
  folder = tmp_path_factory.mktemp("vocabulary")
  vocabulary = Vocabulary.build(texts, level)
  vocabulary.save(folder / "one.json")
  Vocabulary.build(reversed(texts), level).save(folder / "two.json")
  assert Vocabulary.load(folder / "one.json") == vocabulary
  assert (folder / "one.json").read_bytes() == (folder / "two.json").read_bytes()
  assert sorted(path.name for path in folder.iterdir()) == ["one.json", "two.json"]


@pytest.mark.parametrize(
  "content",
  [
    b"",
    b'{"level": "symbol", "symbols": ["a"',
    b"\xff\xfe",
    b"[]",
    b'{"level": "symbol"}',
    b'{"level": "symbol", "symbols": "abc"}',
    b'{"level": "symbol", "symbols": [1]}',
    b'{"level": "symbol", "symbols": ["a", "a"]}',
    b'{"level": "symbol", "symbols": ["a b"]}',
    b'{"level": "character", "symbols": ["ab"]}',
    b'{"level": "words", "symbols": ["ab"]}',
    b'{"level": "symbol", "symbols": [], "more": 1}',
  ],
)
def test_a_file_that_is_no_vocabulary_is_named_in_one_line(tmp_path, content):
  path = tmp_path / "broken.json"
  path.write_bytes(content)
  with pytest.raises(ValueError, match=r"broken\.json: not a vocabulary \(") as caught:
    Vocabulary.load(path)
  assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
  ("symbols", "level", "message"),
  [
    (("a", "b", "a"), "symbol", "'a' is in the vocabulary more than once"),
    (("",), "symbol", "'' is not one symbol"),
    (("a b",), "symbol", "'a b' is not one symbol"),
    (("ab",), "character", "'ab' is not one symbol"),
    (("a",), "word", "'character' or 'symbol', not 'word'"),
  ],
)
def test_refuses_what_could_not_be_told_apart(symbols, level, message):
  with pytest.raises(ValueError, match=message):
    Vocabulary(symbols, level)
