// Two lessons: the roster beside its file, and when to use a subagent.
import { button, h, table } from './dom.js';
import { state } from './format.js';
import { link } from './overview.js';

// The values of a document by path.
function leaves(value, path = '', found = new Map()) {
  if (value !== null && typeof value === 'object') {
    const entries = Object.entries(value);
    for (const [key, one] of entries) leaves(one, `${path}/${Array.isArray(value) && one?.name ? `${one.name}` : key}`, found);
    if (!entries.length) found.set(path, JSON.stringify(value));
  } else {
    found.set(path, JSON.stringify(value));
  }
  return found;
}

export function roster({ known, redraw }) {
  let before = known.roster;
  let last = known.roster;
  let changed = new Set();
  return {
    told(name) {
      if (name !== 'roster' && name !== 'snapshot') return;
      [before, last] = [last ?? known.roster, known.roster];
      const [old, now] = [leaves(before), leaves(last)];
      changed = new Set([...now].filter(([path, value]) => old.get(path) !== value).map(([path]) => path));
      redraw();
    },
    draw() {
      const found = known.roster;
      if (!found) return [h('h2', {}, 'The roster and its file'), h('p', {}, 'There is no config.json yet.')];
      if (found.trouble) return [h('h2', {}, 'The roster and its file'), h('p.bad', {}, found.trouble)];
      const heads = ['Name', 'Role', 'Status', 'Process'];
      const rows = (found.members ?? []).map((one) => h('tr', { 'data-key': one.name }, [link(one.name), one.role, state(one.status ?? 'idle'), one.pid ?? '–'].map((cell, n) => h(n ? 'td' : 'th', { 'data-head': heads[n], scope: n ? null : 'row' }, cell))));
      return [
        h('h2', {}, 'The roster and its file'),
        h('p', {}, 'Who is in the team stands in one file, config.json. One process writes it, whole, by a rename; everybody else only reads. What has changed last is marked.'),
        h('div.beside', {}, h('section', {}, h('h3', {}, 'The roster'), table('The roster', heads, h('tbody', {}, rows))),
          h('section', {}, h('h3', {}, 'config.json'), h('pre', { id: 'file', tabindex: 0, role: 'region', 'aria-label': 'config.json' }, written(found, '', '', changed)))),
      ];
    },
  };
}

// The document as text, with changed values marked.
function written(value, path, indent, changed) {
  if (value === null || typeof value !== 'object' || !Object.keys(value).length) {
    const text = JSON.stringify(value);
    return [changed.has(path) ? h('mark', { title: 'changed' }, text) : text];
  }
  const list = Array.isArray(value);
  const inner = `${indent} `;
  const entries = Object.entries(value);
  const parts = entries.map(([key, one], n) => [
    inner, list ? '' : `${JSON.stringify(key)}: `, written(one, `${path}/${list && one?.name ? `${one.name}` : key}`, inner, changed), n < entries.length - 1 ? ',\n' : '\n',
  ]);
  return [list ? '[\n' : '{\n', parts, indent, list ? ']' : '}'];
}

const CASES = [
  ['Find out which of 200 files mention an old function, and say which.', 'subagent', 'One question, one answer. What it read on the way would only fill your context.'],
  ['One writes the server, one the client, and they agree on the format as they go.', 'teammate', 'They have to talk to each other while they work. A subagent talks to nobody.'],
  ['Run the tests now and tell me in three lines what fails.', 'subagent', 'Short, by itself, and you wait for it anyway.'],
  ['Somebody who reviews every change of this week, and knows on Friday what was said on Monday.', 'teammate', 'It has to remember. A subagent is gone with its answer.'],
  ['Translate this one page while I go on with the next.', 'subagent', 'It runs in the background and needs nobody; nobody will ask it again.'],
  ['A job of two days that you may redirect, pause, or give a limit of money.', 'teammate', 'A process of its own, with an inbox and a budget, that survives a restart.'],
];

export function lesson({ redraw }) {
  const chosen = CASES.map(() => '');
  const choose = (n, word) => () => {
    chosen[n] = word;
    redraw();
  };
  const one = ([text, right, why], n) => h('li.card', { 'data-key': n }, h('p', { id: `case${n}` }, text),
    h('p.bar', { role: 'group', 'aria-labelledby': `case${n}` }, ['subagent', 'teammate'].map((word) => button(word, choose(n, word), { 'aria-pressed': String(chosen[n] === word) }))),
    h('p', { role: 'status' }, chosen[n] ? [h('strong', {}, chosen[n] === right ? 'Yes, a ' : 'Rather a ', right, '. '), why] : ''));
  return {
    draw: () => [
      h('h2', {}, 'Subagent or teammate?'),
      h('p', {}, 'A subagent is a call: it gets a task, works alone, returns one answer and is gone. A teammate is somebody: a process with a name, an inbox, a memory and limits, that others can write to. Decide for each case.'),
      h('ol.plain', {}, CASES.map(one)),
      h('p', { role: 'status' }, `${chosen.filter((word, n) => word === CASES[n][1]).length} of ${CASES.length} right.`),
    ],
  };
}
