// Help: keys, and three lessons.
import { button, card, h, head, row, table, to } from './dom.js';
import { state } from './format.js';
import { memberLink } from './overview.js';

export const KEYS = [['1 – 9', 'the views, in their order'], ['w', 'what waits for you'], ['/', 'search'], ['← →', 'on the board: move a task'], ['?', 'these keys'], ['Esc', 'close a dialog or the drawer']];

const PICTURES = [
  ['roster', 'Roster file', 'Who is in the team is one file. See it beside the roster, with its changes marked.'],
  ['way', 'Way of a message', 'When a message was sent, taken, and put into the conversation.'],
  ['lesson', 'Subagent or teammate?', 'Six cases to decide.'],
];

const WORDS = [
  ['Overview', 'who works on what, what it costs, and what waits for you'], ['Chat', 'you and the agent that leads the team'], ['Mail', 'what members write to each other and to you'], ['Board', 'tasks; idle teammates take those of their role'],
  ['Queue', 'commits that are merged once their check passes'], ['Changes', 'what every working copy changes; comments become mail'], ['Usage', 'tokens, cost and limits'], ['Log', 'everything that happened in the last day'],
];

export function help() {
  const pairs = (list, mark) => h('dl', {}, list.map(([key, what]) => [h('dt', {}, mark(key)), h('dd', {}, what)]));
  return {
    draw: () => [
      head('Help'),
      h('div.beside', {}, card('The views', pairs(WORDS, (key) => h('strong', {}, key)), h('p.note', {}, 'On a terminal, ', h('code', {}, 'teamctl help'), ' explains all commands and topics.')), card('Keys', pairs(KEYS, (key) => h('kbd', {}, key)))),
      h('h2', {}, 'How it works, in three pictures'),
      h('div.beside.three', {}, PICTURES.map(([view, title, what]) => card('', h('h3', {}, h('a', { href: to(view) }, title)), h('p', {}, what)))),
    ],
  };
}

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
      if (!found) return [head('The roster and its file'), h('p', {}, 'There is no config.json yet.')];
      if (found.trouble) return [head('The roster and its file'), h('p.bad', {}, found.trouble)];
      const heads = ['Name', 'Role', 'Status', 'Process'];
      const rows = (found.members ?? []).map((one) => row(one.name, [memberLink(one.name), one.role, state(one.status ?? 'idle'), one.pid ?? '–'], heads));
      return [
        head('The roster and its file'),
        h('p', {}, 'Who is in the team is one file, config.json. One process writes it, whole, by a rename; all others only read it. The last changes are marked.'),
        h('div.beside', {}, card('The roster', table('The roster', heads, h('tbody', {}, rows))),
          card('config.json', h('pre', { id: 'file', tabindex: 0, role: 'region', 'aria-label': 'config.json' }, written(found, '', '', changed)))),
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
  const answer = (n, word) => () => {
    chosen[n] = word;
    redraw();
  };
  const one = ([text, right, why], n) => h('li.card', { 'data-key': n }, h('p', { id: `case${n}` }, text),
    h('p.bar', { role: 'group', 'aria-labelledby': `case${n}` }, ['subagent', 'teammate'].map((word) => button(word, answer(n, word), { 'aria-pressed': String(chosen[n] === word) }))),
    h('p', { role: 'status' }, chosen[n] ? [h('strong', {}, chosen[n] === right ? 'Yes, a ' : 'Rather a ', right, '. '), why] : ''));
  return {
    draw: () => [
      head('Subagent or teammate?'),
      h('p', {}, 'A subagent is a call: it gets a task, works alone, returns one answer and is gone. A teammate is somebody: a process with a name, an inbox, a memory and limits, that others can write to. Decide for each case.'),
      h('ol.plain', {}, CASES.map(one)),
      h('p', { role: 'status' }, `${chosen.filter((word, n) => word === CASES[n][1]).length} of ${CASES.length} right.`),
    ],
  };
}
