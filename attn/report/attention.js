'use strict';
// The page of attn.report.attention_page; the records are those of attn.evaluation.traces.
(() => {
const at = id => document.getElementById(id);
const system = JSON.parse(at('system').textContent);
const records = [...document.querySelectorAll('script.sentence')];
const order = system.actions.map(([action]) => action);
const attends = order.includes('scores');
const chosen = {sentence: 0, hypothesis: 0, word: 0, action: order.length - 1};
let trace, hypothesis, limits;  // what is shown, and the largest number of each kind of vector

const NAMES = {between: 'First state', scores: 'Scores', weights: 'Weights', context: 'Context',
  state: 'State', readout: 'Next word'};
const MEANINGS = {
  between: 'The memory takes in the word before; it is not done yet.',
  scores: 'How well does each source word fit the state that reads?',
  weights: 'The scores as shares: how much of each word is read.',
  context: attends ? 'The source words, mixed by their shares.'
    : 'What the encoder made of the whole source.',
  state: 'The memory is renewed.',
  readout: 'How probable is each word now?',
};

// Making elements.

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'data' || name === 'style') {
      for (const [key, one] of Object.entries(value)) {
        if (name === 'data') element.dataset[key] = one; else element.style.setProperty(key, one);
      }
    } else element[name] = value;
  }
  element.append(...children);
  return element;
}

const plain = symbol => symbol.kind === 'end' ? 'end' : symbol.text.trim() ? symbol.text : '\u2423';
const quoted = symbol => symbol.kind === 'end' ? 'the end' : `\u2018\u2068${plain(symbol)}\u2069\u2019`;
const titles = {known: '', unknown: ' (not in the vocabulary)', end: ''};
const label = (symbol, tag = 'bdi') => make(tag,
  {className: symbol.kind, title: plain(symbol) + titles[symbol.kind]}, plain(symbol));

// Of a column: upright if it is one character, else running down, as Chinese and Japanese may.
function heading(symbol) {
  const head = label(symbol, 'span');
  if ([...plain(symbol)].length === 1) head.className += ' one';
  return head;
}

function direction(text) {
  const letters = (text.match(/\p{L}/gu) || []).length;
  const leftward = (text.match(/[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/g) || []).length;
  return leftward * 2 > letters ? 'rtl' : 'ltr';
}

function percent(weight) {
  if (weight > 0 && weight < .0005) return '<0.1%';
  return `${(100 * weight).toFixed(weight > 0 && weight < .0995 ? 1 : 0)}%`;
}

const short = value => value === null ? '\u2013' : value.toFixed(2).replace('-', '\u2212');

function equation(text) {
  const line = make('p', {className: 'equation'});
  for (const part of text.split(/(_\{[^}]*\}|_.)/)) {
    if (part.startsWith('_')) line.append(make('sub', {}, part.replace(/^_\{?|\}$/g, '').replace('-', '\u2212')));
    else line.append(part);
  }
  return line;
}

function svg(tag, attributes) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// A vector as bars up and down from zero.
function strip(vector, limit) {
  const drawing = svg('svg', {class: 'strip', preserveAspectRatio: 'none', role: 'img',
    viewBox: `0 -1 ${vector.values.length} 2`, 'aria-label': vector.values.map(short).join(' ')});
  vector.values.forEach((value, x) => {
    const height = Math.min(1, Math.abs(value || 0) / limit);
    drawing.append(svg('rect', {class: value < 0 ? 'minus' : 'plus', x: x + .1, width: .8,
      y: value < 0 ? 0 : -height, height}));
  });
  drawing.append(svg('line', {class: 'zero', x1: 0, x2: vector.values.length, y1: 0, y2: 0}));
  return drawing;
}

function vectorFigure(name, vector, kind) {
  const {width, norm, values} = vector;
  const part = width > values.length ? `first ${values.length} of ${width} numbers` : `${width} numbers`;
  return make('figure', {}, make('figcaption', {}, `${name}: norm ${short(norm)}, ${part}`),
    strip(vector, limits[kind]));
}

// A list of symbols, each with a bar; signed numbers have theirs from zero.
function rows(entries, format) {
  const values = entries.map(entry => entry.value).filter(value => value !== null);
  const low = Math.min(0, ...values), high = Math.max(format === percent ? 1 : 1e-9, ...values);
  const list = make('div', {className: 'rows'});
  for (const {symbol, value, mark} of entries) {
    const name = label(symbol);
    name.className += ` name ${mark}`;
    const rail = make('span', {className: `rail ${mark}`});
    if (value !== null) {
      rail.append(make('i', {className: value < 0 ? 'minus' : '', style: {
        left: `${100 * (Math.min(value, 0) - low) / (high - low)}%`,
        width: `${100 * Math.abs(value) / (high - low)}%`}}));
    }
    list.append(name, rail, make('span', {className: `number ${mark}`},
      value === null ? '\u2013' : format(value)));
  }
  return list;
}

// What a step shows.

const inside = (step, j) => !step.window || (step.window.first <= j && j <= step.window.last);
const largest = weights => weights.map((weight, j) => [weight, j]).sort((a, b) => b[0] - a[0]);

function cards(step, before) {
  const source = trace.source, written = hypothesis.target[chosen.word];
  const marks = source.map((_, j) => inside(step, j) ? '' : 'out');
  const listed = (values, format) => rows(
    source.map((symbol, j) => ({symbol, value: values[j], mark: marks[j]})), format);
  const made = {
    between: () => [vectorFigure('before', before, 'state'), vectorFigure('after', step.query, 'state')],
    scores: () => [listed(step.scores, short), vectorFigure('the state that reads', step.query, 'state')],
    weights: () => [listed(step.weights, percent), ...windowLines(step)],
    context: () => {
      const mixed = step.weights ? largest(step.weights).slice(0, 3).filter(([weight]) => weight >= .005)
        .map(([weight, j]) => `${weight.toFixed(2)} ${quoted(source[j])}`) : [];
      const line = mixed.length ? [make('p', {className: 'why'}, `${mixed.join(' + ')}${mixed.length < source.length ? ' + \u2026' : ''}`)] : [];
      return [vectorFigure('context', step.context, 'context'), ...line];
    },
    state: () => [vectorFigure('before', order.includes('between') ? step.query : before, 'state'),
      vectorFigure('after', step.state, 'state')],
    readout: () => {
      const same = one => one.text === written.text && one.kind === written.kind;
      const entries = step.likeliest.map(one => ({symbol: one, value: one.probability, mark: same(one) ? 'chosen' : ''}));
      if (!step.likeliest.some(same)) entries.push({symbol: written, value: Math.exp(step.log_prob), mark: 'chosen'});
      return [rows(entries, percent), make('p', {className: 'why'}, `writes ${quoted(written)}`),
        vectorFigure('made from', step.readout, 'readout')];
    },
  };
  return order.map(action => made[action]());
}

function windowLines(step) {
  const lines = [], {window, weights} = step;
  if (window) {
    const {first, last, centre} = window;
    const span = last < first ? 'which holds no word'
      : `from ${quoted(trace.source[first])} to ${quoted(trace.source[last])}`;
    lines.push(`window ${span}, around position ${short(centre)} of ${trace.source.length} (the first is 0)`);
  }
  const sum = weights.reduce((total, weight) => total + weight, 0);
  if (Math.abs(sum - 1) > .005) lines.push(`the weights sum to ${short(sum)}`);
  return lines.map(line => make('p', {className: 'why'}, line));
}

function told(word) {
  const step = hypothesis.steps[word], start = `Step ${word + 1} writes ${quoted(hypothesis.target[word])}`;
  const sure = ` (${percent(Math.exp(step.log_prob))} sure)`;
  if (!step.weights) return `${start}${sure}.`;
  const read = largest(step.weights).slice(0, 3).filter(([weight]) => weight >= .005)
    .map(([weight, j]) => `${quoted(trace.source[j])} ${percent(weight)}`);
  return `${start}${sure}. It reads ${read.join(', ') || 'nothing: no source word has a weight'}.`;
}

// Lighting words.

function shade(element, weight) {
  element.style.setProperty('--w', weight);
  element.classList.toggle('dark', weight > .5);
  element.querySelector('small').textContent = weight >= .005 ? percent(weight) : '';
}

function lightSource(word, lit = true) {
  const step = hypothesis.steps[word];
  [...at('source').children].forEach((element, j) => {
    if (!attends) return;
    shade(element, lit ? step.weights[j] : 0);
    element.classList.toggle('out', !inside(step, j));
    element.classList.toggle('centre', Boolean(step.window) && Math.round(step.window.centre) === j);
  });
}

function lightTarget(column) {
  [...at('target').children].forEach((element, i) =>
    shade(element, column === null ? 0 : hypothesis.steps[i].weights[column]));
}

function mark(word) {
  at('map').querySelectorAll('tbody tr').forEach((row, i) => row.classList.toggle('now', i === word));
}

// Without a word, what is chosen. Over the map, what is told stays in sight.
function preview(word = null, column = null) {
  if (!hypothesis.steps.length) return;
  const hovering = word !== null, weighed = order.indexOf('weights') <= chosen.action;
  at('told').classList.toggle('aside', column !== null);
  lightSource(hovering ? word : chosen.word, hovering || weighed);
  mark(hovering ? word : chosen.word);
  at('map').querySelectorAll('thead th').forEach((head, j) => head.classList.toggle('now', j - 1 === column));
  at('told').textContent = told(hovering ? word : chosen.word);
  if (column !== null && hypothesis.steps[word].weights) {
    const {weights, scores} = hypothesis.steps[word];
    at('told').append(` Of ${quoted(trace.source[column])}: weight ${percent(weights[column])}, score ${short(scores[column])}.`);
  }
}

// Showing what is chosen.

function showStep() {
  const steps = hypothesis.steps, heading = at('step').querySelector('h2');
  at('step').hidden = !steps.length;
  if (!steps.length) {
    at('told').textContent = 'Nothing was written.';
    return;
  }
  [...at('target').children].forEach((element, i) => {
    element.classList.toggle('now', i === chosen.word);
    element.classList.toggle('later', i > chosen.word);
    element.setAttribute('aria-pressed', i === chosen.word);
    element.tabIndex = i === chosen.word ? 0 : -1;
  });
  const previous = chosen.word ? `after ${quoted(hypothesis.target[chosen.word - 1])}` : 'no word before';
  heading.textContent = `Step ${chosen.word + 1} of ${steps.length}, ${previous}`;
  const before = chosen.word ? steps[chosen.word - 1].state : hypothesis.start;
  const contents = cards(steps[chosen.word], before);
  at('actions').replaceChildren(...system.actions.map(([action, formula], k) => {
    const choose = make('button', {type: 'button', onclick: () => go({action: k})}, `${k + 1} ${NAMES[action]}`);
    return make('li', {className: k === chosen.action ? 'now' : k > chosen.action ? 'later' : '', data: {action}},
      make('header', {}, make('h3', {}, choose)), equation(formula), make('p', {className: 'why'}, MEANINGS[action]), ...contents[k]);
  }));
  at('actions').querySelectorAll('.rows').forEach(list => {
    const rest = list.scrollHeight - list.clientHeight;  // of a long list, show what weighs most
    const weights = steps[chosen.word].weights;
    if (rest > 0 && weights) list.scrollTop = list.scrollHeight * (largest(weights)[0][1] + .5) / weights.length - list.clientHeight / 2;
  });
  at('word-back').disabled = chosen.word === 0;
  at('word-on').disabled = chosen.word === steps.length - 1;
  at('action-back').disabled = chosen.word === 0 && chosen.action === 0;
  at('action-on').disabled = chosen.word === steps.length - 1 && chosen.action === order.length - 1;
  preview();
}

function showMap() {
  const map = at('map'), {source} = trace, {target, steps} = hypothesis;
  const most = Math.max(attends ? source.length : 0, target.length);
  map.className = most <= 12 ? '' : most <= 30 ? 'middle' : 'small';
  at('main').classList.toggle('large', !attends || most > 30 || source.length > 24);
  map.querySelector('h2').textContent = attends ? 'All steps' : 'The state after each step';
  const note = map.querySelector('p'), leftward = at('source').dir === 'rtl';
  const head = make('thead'), body = make('tbody');
  if (attends) {
    head.append(make('tr', {}, make('th'), ...source.map(symbol => make('th', {scope: 'col'}, heading(symbol)))));
    note.replaceChildren('rows write, columns are read; weight 0 ', make('span', {className: 'scale'}), ' 1',
      steps.some(step => step.window) ? '; hatched: outside the window' : '', leftward ? '; the first word is at the left' : '');
  } else note.textContent = 'bars up are above zero, bars down below';
  target.forEach((symbol, i) => {
    const row = make('tr', {}, make('th', {scope: 'row'}, label(symbol, 'span')));
    if (attends) {
      row.append(...steps[i].weights.map((weight, j) => make('td', {
        className: inside(steps[i], j) ? '' : 'out', style: {'--w': weight}})));
    } else row.append(make('td', {}, strip(steps[i].state, limits.state)));
    body.append(row);
  });
  map.classList.toggle('states', !attends);
  map.querySelector('table').replaceChildren(head, body);
}

function showHypothesis() {
  hypothesis = trace.hypotheses[chosen.hypothesis];
  const size = vectors => Math.max(1e-9, ...vectors.flatMap(vector => vector.values.map(Math.abs)));
  const of = kind => hypothesis.steps.map(step => step[kind]);
  limits = {state: size([hypothesis.start, ...of('state'), ...of('query')]), context: size(of('context')), readout: size(of('readout'))};
  chosen.word = Math.max(0, Math.min(chosen.word, hypothesis.steps.length - 1));
  at('target').dir = direction(hypothesis.text);
  at('target').replaceChildren(...hypothesis.target.map((symbol, i) =>
    make('button', {type: 'button', className: 'word', data: {word: i}}, label(symbol), make('small'))));
  showMap();
  showStep();
}

function showSentence() {
  trace = JSON.parse(records[chosen.sentence].textContent);
  at('sentence').selectedIndex = chosen.sentence;
  at('sentence-back').disabled = chosen.sentence === 0;
  at('sentence-on').disabled = chosen.sentence === records.length - 1;
  at('source').dir = direction(trace.text);
  at('source').replaceChildren(...trace.source.map((symbol, j) =>
    make('span', {className: 'word', data: {column: j}}, label(symbol), make('small'))));
  const unknown = trace.source.some(symbol => symbol.kind === 'unknown');
  at('unknown').textContent = unknown ? 'underlined: not in the vocabulary' : '';
  at('hypotheses').replaceChildren(make('legend', {}, trace.hypotheses.length > 1 ? 'Hypotheses and their scores' : 'Translation and its score'),
    ...trace.hypotheses.map((one, k) => make('label', {},
      make('input', {type: 'radio', name: 'hypothesis', checked: k === chosen.hypothesis, hidden: trace.hypotheses.length === 1, onchange: () => go({hypothesis: k})}),
      make('span', {className: 'number'}, short(one.score)),
      make('bdi', {dir: 'auto'}, one.text || '(empty)'),
      make('span', {className: 'soft'}, one.finished ? '' : 'cut at its length limit'))));
  showHypothesis();
}

function go(changes) {
  Object.assign(chosen, changes);
  if ('sentence' in changes) Object.assign(chosen, {hypothesis: 0, word: 0});
  if ('sentence' in changes) showSentence();
  else if ('hypothesis' in changes) showHypothesis();
  else showStep();
}

function moveWord(by) {
  const word = Math.max(0, Math.min(chosen.word + by, hypothesis.steps.length - 1));
  const focused = at('target').contains(document.activeElement);
  go({word});
  if (focused) at('target').children[word].focus();
}

function moveAction(by) {
  const next = chosen.word * order.length + chosen.action + by;
  if (next < 0 || next >= hypothesis.steps.length * order.length) return;
  go({word: Math.floor(next / order.length), action: next % order.length});
}

// What people do.

function listen() {
  const cell = event => {
    const td = event.target.closest('td, th'), row = td && td.parentElement;
    if (!row || row.parentElement.tagName !== 'TBODY') return null;
    return {word: row.sectionRowIndex, column: td.tagName === 'TD' && attends ? td.cellIndex - 1 : null};
  };
  const target = at('target'), source = at('source'), map = at('map');
  const word = event => event.target.closest('[data-word]');
  target.addEventListener('mouseover', event => word(event) && preview(Number(word(event).dataset.word)));
  target.addEventListener('click', event => word(event) && go({word: Number(word(event).dataset.word)}));
  source.addEventListener('mouseover', event => {
    const over = event.target.closest('[data-column]');
    if (over && attends) lightTarget(Number(over.dataset.column));
  });
  source.addEventListener('mouseleave', () => lightTarget(null));
  map.addEventListener('mouseover', event => { const found = cell(event); if (found) preview(found.word, found.column); });
  map.addEventListener('click', event => { const found = cell(event); if (found) go({word: found.word}); });
  for (const place of [target, map]) place.addEventListener('mouseleave', () => preview());
  at('sentence').addEventListener('change', () => go({sentence: at('sentence').selectedIndex}));
  for (const [name, move] of [['sentence', by => go({sentence: chosen.sentence + by})], ['word', moveWord], ['action', moveAction]]) {
    at(`${name}-back`).addEventListener('click', () => move(-1));
    at(`${name}-on`).addEventListener('click', () => move(1));
  }
  document.addEventListener('keydown', event => {
    if (!['ArrowLeft', 'ArrowRight'].includes(event.key) || event.ctrlKey || event.altKey || event.metaKey) return;
    if (document.activeElement.matches('select, input')) return;
    const by = event.key === 'ArrowRight' ? 1 : -1;
    if (event.shiftKey) moveAction(by); else moveWord(target.dir === 'rtl' ? -by : by);
    event.preventDefault();
  });
}

document.documentElement.classList.add('js');
if (records.length) {
  at('sentence').append(...[...document.querySelectorAll('#texts li > p:first-child')].map(
    line => make('option', {}, line.textContent.replace(/\s+/g, ' ').trim().slice(0, 120))));
  at('choice').hidden = at('main').hidden = false;
  listen();
  showSentence();
}
})();
