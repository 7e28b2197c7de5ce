"""Vocabularies: ids and back, and the file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn.configs import ConfigError
from attn.data import corpora
from attn.data.catalog import Corpus
from attn.data.config import DataConfig
from attn.data.errors import DataError
from attn.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary

LEVELS = ("character", "symbol", "word")


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
    b'{"level": "bpe", "model": "AAAA"}',
    b'{"level": "bpe", "model": "A"}',
    b'{"level": "bpe", "model": 7}',
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
    (("a-b",), "word", "'a-b' is not one symbol"),
    (("a", "\uffed"), "word", "is not one symbol"),
    (("a",), "words", "one of 'character', 'symbol', 'word', not 'words'"),
    (("a",), "bpe", "one of 'character', 'symbol', 'word', not 'bpe'"),
  ],
)
def test_refuses_what_could_not_be_told_apart(symbols, level, message):
  with pytest.raises(ValueError, match=message):
    Vocabulary(symbols, level)


# Words, and a cap.


def test_words_are_runs_of_letters_and_digits_and_each_other_character():
  vocabulary = Vocabulary((), "word")
  assert vocabulary.split('Don\'t say "3.5", Zoë!') == (
    *(
      "Don",
      "\uffed'",
      "\uffedt",
      "say",
      '"',
      "\uffed3",
      "\uffed.",
      "\uffed5",
      '\uffed"',
      "\uffed,",
    ),
    *("Zoë", "\uffed!"),
  )


@given(st.text(st.characters(exclude_characters="\uffed", codec="utf-8")))
def test_words_give_back_a_text_but_for_the_kind_of_its_space(text):
  vocabulary = Vocabulary.build([text], "word")
  assert vocabulary.decode(vocabulary.encode(text)) == " ".join(text.split())


def test_a_cap_keeps_the_commonest_symbols_and_the_rest_is_unknown():
  texts = ["b b b d", "a c c d"]
  assert Vocabulary.build(texts, "symbol", 7).symbols == ("b", "c", "d")
  assert Vocabulary.build(texts, "symbol", 6).symbols == ("b", "c")  # c and d are equally common
  assert Vocabulary.build(texts, "symbol", 100) == Vocabulary.build(texts, "symbol")
  capped = Vocabulary.build(texts, "symbol", 6)
  assert len(capped) == 6
  assert capped.encode("a b c d") == [UNK, 4, 5, UNK]


# Pieces.

TEXTS = [
  f"{who} {does} the {what}{end}"
  for who in ("Alice", "nobody", "the old man", "größere  Häuser")
  for does in ("reads", "was reading", "doesn't read")
  for what in ("book", "bookshelf", "newspaper", "news")
  for end in (".", "!", " of today\u2028", "\ttomorrow")
]


@pytest.mark.parametrize("level", ["unigram", "bpe"])
def test_pieces_give_back_every_text_and_are_always_the_same(tmp_path, level):
  vocabulary = Vocabulary.build(TEXTS, level, 45)
  assert len(vocabulary) == 45 == 4 + len(set(vocabulary.symbols))
  for text in [*TEXTS, "", " ", "  dread of  news ", "book"]:
    ids = vocabulary.encode(text)
    assert all(UNK < i < 45 for i in ids)
    assert vocabulary.decode([BOS, *ids, EOS, PAD]) == text
    assert vocabulary.join(vocabulary.split(text)) == text
    assert [vocabulary.symbols[i - 4] for i in ids] == list(vocabulary.split(text))
  assert len(vocabulary.encode("was reading the news")) < len("was reading the news") * 0.7
  vocabulary.save(tmp_path / "one.json")
  Vocabulary.build(iter(TEXTS), level, 45).save(tmp_path / "two.json")
  assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
  assert Vocabulary.load(tmp_path / "one.json") == vocabulary
  assert Vocabulary.build(TEXTS, level, 46) != vocabulary


@pytest.mark.parametrize("level", ["unigram", "bpe"])
def test_no_text_spells_a_reserved_piece_and_new_characters_are_unknown(level):
  vocabulary = Vocabulary.build([*TEXTS, "a < b > c / d", "<unk> </s> <pad>"], level)
  assert not {PAD, BOS, EOS, UNK} & set(vocabulary.encode("<unk> </s> <s> <pad>"))
  ids = vocabulary.encode("the ✓ book")
  assert ids.count(UNK) == 1
  assert vocabulary.decode(ids) == "the <unk> book"
  assert vocabulary.decode([4, EOS, 99]) == vocabulary.join([vocabulary.symbols[0]])
  with pytest.raises(ValueError, match="is outside the vocabulary"):
    vocabulary.decode([len(vocabulary)])


@pytest.mark.parametrize("level", ["unigram", "bpe"])
def test_few_texts_have_fewer_pieces_than_asked_for(level):
  vocabulary = Vocabulary.build(["ab ab abc"], level)
  assert 4 + 4 <= len(vocabulary) < 20
  assert vocabulary.decode(vocabulary.encode("cab ab")) == "cab ab"


@pytest.mark.parametrize("level", ["unigram", "bpe"])
@pytest.mark.parametrize(("texts", "size"), [([], 8000), ([""], 8000), (["abcdefgh"], 9)])
def test_what_has_no_pieces_is_refused_in_one_line(level, texts, size):
  with pytest.raises(DataError, match=f"^{level} cannot learn {size:,} pieces from") as caught:
    Vocabulary.build(texts, level, size)
  assert "\n" not in str(caught.value)


# As a training has them.


def test_the_configuration_decides_level_and_size(tmp_path, monkeypatch):
  corpus = Corpus(tuple(TEXTS), tuple(text.upper() for text in TEXTS))
  data = DataConfig(name="g2p", data_dir=str(tmp_path), target_level="word", target_size=11)
  source, target = corpora.vocabularies(data, corpus)
  assert source == Vocabulary.build(corpus.sources, "character")
  assert target == Vocabulary.build(corpus.targets, "word", 11)
  data = DataConfig(name="parallel_text", data_dir=str(tmp_path), source_size=60, target_size=59)
  both = corpora.vocabularies(data, corpus)
  assert [(v.level, len(v)) for v in both] == [("bpe", 60), ("bpe", 59)]
  data = DataConfig(name="g2p", data_dir=str(tmp_path), swap=True)
  assert [v.level for v in corpora.vocabularies(data, corpus)] == ["symbol", "character"]
  data = DataConfig(name="parallel_text", data_dir=str(tmp_path), source_size=60, target_size=59)
  # They are learned once; a kept file that is damaged is learned anew.
  kept = sorted((tmp_path / "vocabularies").iterdir())
  assert len(kept) == 2
  with monkeypatch.context() as patched:
    patched.setattr(Vocabulary, "build", None)
    assert corpora.vocabularies(data, corpus) == both
  kept[0].write_bytes(b"{")
  assert corpora.vocabularies(data, corpus) == both


def test_a_data_directory_that_cannot_be_written_to_still_serves(tmp_path):
  (tmp_path / "file").write_text("in the way")
  corpus = Corpus(tuple(TEXTS), tuple(TEXTS))
  data = DataConfig(name="parallel_text", data_dir=str(tmp_path / "file"), source_size=60)
  assert len(corpora.vocabularies(data, corpus)[0]) == 60


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_size_without_room_for_a_symbol_is_refused(side):
  with pytest.raises(ConfigError, match=f"^{side}_size must be at least 5"):
    DataConfig(**{f"{side}_size": 4})
