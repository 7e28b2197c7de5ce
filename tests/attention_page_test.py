"""The page and the heat maps of attention: what they hold, and the page in headless Chromium."""

import dataclasses
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from attn.evaluation.traces import (
  Candidate,
  Hypothesis,
  Step,
  Symbol,
  System,
  Trace,
  Vector,
  Window,
)
from attn.report import attention_page, figures
from launch import attention, resolve
from tests import browser, commands

NASTY = "</script><script>alert(1)</script>"
ACTIONS = (
  ("scores", "e_{ij} = a(s_{i-1}, h_j)"),
  ("weights", "α_i = softmax(e_i)"),
  ("context", "c_i = Σ_j α_{ij} h_j"),
  ("state", "s_i = f(s_{i-1}, y_{i-1}, c_i)"),
  ("readout", "p(y_i) = g(s_i, y_{i-1}, c_i)"),
)
SYSTEM = System("rnnsearch & friends", "bahdanau", ACTIONS, (("score", "additive"), ("<b>", "&")))
FIXED = dataclasses.replace(SYSTEM, name="rnnencdec", actions=ACTIONS[2:])


def vector(*values, width=64):
  return Vector(width, float(np.linalg.norm(values)), tuple(map(float, values)))


def hypothesis(source, target, *, score=-0.25, half_width=None, attends=True):
  """One whose step i has most of its weight on source symbol i, and is sure of its symbol."""
  steps = []
  for i, symbol in enumerate([*target, ""]):
    scores = -np.abs(np.arange(len(source) + 1.0) - i)
    window, near = None, np.ones(len(scores), bool)
    if half_width is not None:
      window = Window(i + 0.25, max(0, i - half_width + 1), min(len(source), i + half_width))
      near = (np.arange(len(scores)) >= window.first) & (np.arange(len(scores)) <= window.last)
    weights = np.where(near, np.exp(3 * scores), 0)
    weights = weights / weights.sum() if near.any() else weights
    likeliest = (
      Candidate(symbol, "known" if symbol else "end", 0.75),
      Candidate("other", "known", 0.25),
    )
    steps.append(
      Step(
        log_prob=float(np.log(0.75)),
        scores=tuple(scores.tolist()) if attends else None,
        weights=tuple(weights.tolist()) if attends else None,
        window=window,
        query=vector(0.5, -0.5),
        context=vector(0.1 * i, -1.0),
        state=vector(0.25, -0.01 * i),
        readout=vector(2.0, 0.0, 1.0, width=3),
        likeliest=likeliest,
      )
    )  # fmt: skip
  symbols = (*map(Symbol, target), Symbol("", "end"))
  return Hypothesis(" ".join(target), symbols, score, True, vector(0.0, 0.5), tuple(steps))


def trace(source, *targets, name="line 1", **options):
  symbols = (*map(Symbol, source), Symbol("", "end"))
  written = tuple(hypothesis(source, target, **options) for target in targets)
  return Trace(name, " ".join(source), symbols, written)


def page(tmp_path, *sentences, system=SYSTEM):
  path = tmp_path / "pages" / "attention.html"
  attention_page.write(path, system, sentences)
  return path


# Without a browser.


def test_the_command_writes_a_page_like_any_other_output(tmp_path, monkeypatch, capfd):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "config.json").write_text("{}")
  (tmp_path / "in").write_text("a\n")
  monkeypatch.setattr(resolve, "trained", lambda *_: None)
  monkeypatch.setattr(attention, "shown", lambda name, lines, trained: lines)
  monkeypatch.setattr(attention, "traced", lambda *_: (SYSTEM, [trace(["a"], ["x"])]))
  assert commands.run(attention, "--workdir=.", "--input=in", "--output=-") == 0
  shown = capfd.readouterr()
  assert shown.out.startswith("<!DOCTYPE html>") and shown.err.startswith("page: - (")
  assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "in"]


def records(text):
  found = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text)
  return [json.loads(one, parse_constant=pytest.fail) for one in found]


def test_the_page_holds_its_records_and_loads_nothing(tmp_path):
  sentence = trace(["a", "b"], ["x", "y"], ["z"], half_width=2)
  text = page(tmp_path, sentence, trace(["c"], [])).read_text(encoding="utf-8")
  system, first, second = records(text)
  assert (
    system["actions"] == [list(one) for one in ACTIONS] and second["hypotheses"][0]["text"] == ""
  )
  assert first == attention_page.record(sentence)
  step = first["hypotheses"][0]["steps"][1]
  assert step["window"] == {"centre": 1.25, "first": 0, "last": 2}
  assert step["context"] == {
    "width": 64,
    "norm": round(float(np.hypot(0.1, 1)), 5),
    "values": [0.1, -1.0],
  }
  assert step["likeliest"][1] == {"text": "other", "kind": "known", "probability": 0.25}
  assert "Content-Security-Policy" in text and "default-src 'none'" in text
  assert not re.search(r"(src|href)\s*=|@import|url\(|https?://(?!www\.w3\.org/2000/svg)", text)


def test_a_symbol_cannot_leave_its_place(tmp_path):
  sentence = trace([NASTY, "<!--", "&amp;", "\u2028"], ["{{ 7 * 7 }}", NASTY], name="<i>line</i>")
  text = page(tmp_path, sentence).read_text(encoding="utf-8")
  assert text.count("<script") == text.count("</script>") == 3 and "alert(1)</" not in text
  assert "<i>line" not in text and "rnnsearch &amp; friends" in text and "<b><b>" not in text
  assert records(text)[1] == attention_page.record(sentence)
  assert "{{ 7 * 7 }}" in text


def test_numbers_that_are_not_finite_are_null():
  bad = dataclasses.replace(hypothesis(["a"], []).steps[0], log_prob=-np.inf, scores=(np.nan, None))
  assert attention_page.record(bad)["log_prob"] is None
  assert attention_page.record(bad)["scores"] == [None, None]


def test_a_page_without_script_shows_the_sentences(tmp_path):
  text = page(tmp_path, trace(["left", "right"], ["one"], ["two"]), system=FIXED).read_text()
  shown = re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]+>", " ", text, flags=re.S)
  assert all(word in shown for word in ("line 1", "left right", "one", "two", "-0.25"))
  assert "has no attention" in shown
  with pytest.raises(ValueError, match="at least one sentence"):
    page(tmp_path)


def test_a_map_says_how_sharp_it_is_and_shortens_long_words(tmp_path):
  sentence = trace(["Donaudampfschifffahrtsgesellschaft", " "], ["a"], half_width=1)
  drawing = attention_page.heat_map(sentence)
  told = figures.title_of(drawing)
  assert told == "line 1: a step puts 95% of its weight on one symbol, on average"
  labels = [tick.get_text() for tick in drawing.axes[0].get_xticklabels()]
  assert labels == ["Donaudampfsc…esellschaft", "␣", "(end)"]
  none = dataclasses.replace(sentence, hypotheses=(hypothesis(["a"], ["x"], attends=False),))
  with pytest.raises(ValueError, match="line 1: there are no weights to draw"):
    attention_page.heat_map(none)


def test_a_map_shows_symbols_as_they_are_and_none_that_xml_forbids(tmp_path):
  drawing = attention_page.heat_map(trace(["$A$1", "$_$", "a\0b\uffff"], ["\x1bx"]))
  figures.save(drawing, tmp_path / "map")
  text = (tmp_path / "map.svg").read_text(encoding="utf-8")
  ElementTree.fromstring(text)
  assert all(f"<!-- {shown} -->" in text for shown in ("$A$1", "$_$", "a\ufffdb\ufffd", "\ufffdx"))


@pytest.mark.parametrize("size", [1, 80])
def test_labels_of_a_map_stay_apart_and_inside(size):
  words = [f"Wörterbuch{i}" for i in range(size)]
  drawing = attention_page.heat_map(trace(words, words))
  drawing.canvas.draw()
  axes, whole = drawing.axes[0], drawing.bbox
  for labels, side in ((axes.get_xticklabels(), "x"), (axes.get_yticklabels(), "y")):
    boxes = [label.get_window_extent() for label in labels]
    assert all(label.get_fontsize() >= 7 for label in labels)
    ends = sorted((getattr(box, f"{side}0"), getattr(box, f"{side}1")) for box in boxes)
    assert all(end <= start for (_, end), (start, _) in zip(ends, ends[1:], strict=False))
    assert all(whole.x0 <= box.x0 and box.x1 <= whole.x1 and box.y1 <= whole.y1 for box in boxes)


def test_what_no_font_has_is_said_and_stays_text(tmp_path, monkeypatch):
  fonts = figures.font_manager.fontManager
  usual = [entry for entry in fonts.ttflist if entry.name.startswith("DejaVu")]
  monkeypatch.setattr(fonts, "ttflist", usual)
  assert figures.fonts_for(["aé", "食べ \n"]) == (["DejaVu Sans"], "べ食")
  drawing = attention_page.heat_map(trace(["食べ", "あ"], ["x"]))
  note = drawing.axes[0].get_xlabel()
  assert note.endswith("a box is a character that no font here has: U+3042, U+3079, U+98DF")
  figures.save(drawing, tmp_path / "map")
  assert "あ" in (tmp_path / "map.svg").read_text(encoding="utf-8")
  assert (tmp_path / "map.png").stat().st_size > 0


def test_what_another_font_has_is_drawn_with_it(monkeypatch):
  fonts, usual = figures.font_manager.fontManager, figures._characters
  entry = next(one for one in fonts.ttflist if one.name == "DejaVu Sans Mono")
  plain = {"style": "normal", "weight": 400}
  other = dataclasses.replace(entry, name="Other", fname="other.ttf", **plain)
  last = dataclasses.replace(entry, name="A Last Sans", fname="LastResort.otf", **plain)
  known = [one for one in fonts.ttflist if one.name == "DejaVu Sans"]
  monkeypatch.setattr(fonts, "ttflist", [last, other, *known])
  monkeypatch.setattr(
    figures, "_characters", lambda path: usual(path) if "DejaVu" in path else frozenset("食")
  )
  assert figures.fonts_for(["食"]) == (["DejaVu Sans", "Other"], "")


# In Chromium.

WORDS = """
  const at = id => document.getElementById(id), text = id => at(id).textContent;
  const fits = () => ({width: document.documentElement.scrollWidth, window: window.innerWidth});
"""


def visit(path, probe, tmp_path, width=1200):
  dom, console = browser.run(
    path, WORDS + probe, tmp_path, f"--window-size={width},1600", "--dump-dom"
  )
  assert console == []
  found = browser.seen(dom)
  assert found["width"] <= found["window"], found
  return found


@pytest.mark.slow
def test_hovering_stepping_and_choosing(tmp_path):
  path = page(
    tmp_path,
    trace(["der", "Hund", "bellt"], ["the", "dog", "barks"], ["a", NASTY]),
    trace([NASTY], ["x"], name="line 2"),
  )
  probe = """
    const lit = place => [...at(place).children].map(
      one => Number(one.style.getPropertyValue('--w')));
    const weights = () => lit('source');
    const over = (element, type) => element.dispatchEvent(new MouseEvent(type, {bubbles: true}));
    const now = () => document.querySelector('#actions li.now').dataset.action;
    const press = shiftKey => document.dispatchEvent(
      new KeyboardEvent('keydown', {key: 'ArrowRight', shiftKey, bubbles: true}));
    const cards = [...document.querySelectorAll('#actions li')];
    const seen = {actions: cards.map(one => one.dataset.action), first: weights(), now: [now()],
      cells: document.querySelectorAll('#map td').length};
    over(at('target').children[1], 'mouseover');
    Object.assign(seen, {hovered: weights(), hoverTold: text('told')});
    over(at('target'), 'mouseleave');
    seen.left = weights();
    over(at('source').children[2], 'mouseover');
    seen.readers = lit('target');
    over(document.querySelectorAll('#map tbody tr')[2].children[2], 'mouseover');
    seen.cellTold = text('told');
    at('action-on').click();
    Object.assign(seen, {second: text('step'), unlit: weights()});
    seen.now.push(now());
    seen.later = document.querySelectorAll('#actions li.later').length;
    press(true);
    seen.now.push(now());
    seen.lit = weights();
    press(false);
    seen.word = at('target').querySelector('.now').dataset.word;
    document.querySelectorAll('#hypotheses input')[1].click();
    seen.other = [...at('target').querySelectorAll('bdi')].map(one => one.textContent);
    at('sentence-on').click();
    seen.source = at('source').querySelector('bdi').textContent;
    seen.images = document.querySelectorAll('main script, main img').length;
    return {...fits(), ...seen};
  """
  seen = visit(path, probe, tmp_path)
  assert seen["actions"] == [action for action, _ in ACTIONS]
  rows = [
    step.weights for step in hypothesis(["der", "Hund", "bellt"], ["the", "dog", "barks"]).steps
  ]
  for key, row in (("first", rows[0]), ("hovered", rows[1]), ("left", rows[0]), ("lit", rows[1])):
    np.testing.assert_allclose(seen[key], row, atol=1e-5, err_msg=key)
  assert seen["unlit"] == [0, 0, 0, 0] and seen["cells"] == 16
  np.testing.assert_allclose(seen["readers"], np.array(rows)[:, 2], atol=1e-5)
  plain = re.sub("[\u2068\u2069]", "", seen["hoverTold"])
  assert "Step 2 writes ‘dog’ (75% sure). It reads ‘Hund’ 91%" in plain
  assert "Of ‘\u2068Hund\u2069’: weight 4.5%, score −1.00" in seen["cellTold"]
  assert seen["now"] == ["readout", "scores", "weights"] and seen["later"] == 4
  assert "Step 2 of 4, after ‘\u2068the\u2069’" in seen["second"] and seen["word"] == "2"
  assert seen["other"] == ["a", NASTY, "end"] and seen["source"] == NASTY and seen["images"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("width", [1200, 700])
def test_long_and_foreign_sentences_fit(tmp_path, width):
  many = [f"word{i}" for i in range(80)]
  path = page(
    tmp_path,
    trace("שלום לכל הילדים".split(), "こんにちは 子ども たち 。".split(), half_width=1),
    trace(many, many, name="line 2", half_width=4),
    trace(["a" * 300], ["b" * 300], name="line 3"),
  )
  probe = """
    const widths = [], size = element => element.getBoundingClientRect();
    const seen = {direction: [at('source').dir, at('target').dir],
      outside: document.querySelectorAll('#map td.out').length};
    const [one, two] = at('source').children;
    seen.leftward = size(two).left < size(one).left;
    for (let k = 0; k < 3; k++) {
      widths.push(document.documentElement.scrollWidth);
      if (k === 1) {
        const heads = [...document.querySelectorAll('#map thead th span')].slice(0, 80);
        seen.head = Math.min(...heads.map(head => parseFloat(getComputedStyle(head).fontSize)));
        seen.apart = heads.every(
          (head, j) => j === 0 || size(head).left >= size(heads[j - 1]).right - 1);
        seen.cells = document.querySelectorAll('#map td').length;
        seen.cell = size(document.querySelector('#map td')).width;
      }
      if (k < 2) at('sentence-on').click();
    }
    return {...fits(), ...seen, width: Math.max(...widths)};
  """
  seen = visit(path, probe, tmp_path, width)
  assert seen["direction"] == ["rtl", "ltr"] and seen["leftward"]
  assert seen["outside"] > 0 and seen["cells"] == 81 * 81
  assert seen["head"] >= 10 and seen["cell"] >= 12 and seen["apart"]


@pytest.mark.slow
def test_a_model_without_attention_shows_its_states(tmp_path):
  probe = """
    const seen = {notice: document.querySelector('.notice').textContent, told: text('told'),
      strips: document.querySelectorAll('#map svg').length,
      actions: document.querySelectorAll('#actions li').length};
    at('source').children[0].dispatchEvent(new MouseEvent('mouseover', {bubbles: true}));
    at('sentence-on').click();
    return {...fits(), ...seen, nothing: text('told'), hidden: at('step').hidden,
      unknown: text('unknown')};
  """
  empty = dataclasses.replace(
    hypothesis(["a"], [], attends=False), target=(), steps=(), finished=False
  )
  path = page(
    tmp_path,
    trace(["a", "b"], ["x", "y"], attends=False),
    Trace("line 2", "a", (Symbol("a", "unknown"),), (empty,)),
    system=FIXED,
  )
  seen = visit(path, probe, tmp_path)
  assert "has no attention" in seen["notice"] and seen["strips"] == seen["actions"] == 3
  assert seen["told"] == "Step 1 writes ‘\u2068x\u2069’ (75% sure)."
  assert seen["nothing"] == "Nothing was written." and seen["hidden"]
  assert seen["unknown"] == "underlined: not in the vocabulary"
