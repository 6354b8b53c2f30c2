// The page: the known state, the current view, and the actions of all views.
import { follow, get, hasToken, takeToken } from './api.js';
import { ask, attempt, announce, forgive } from './acts.js';
import { button, fill, h } from './dom.js';
import { overview } from './overview.js';
import { waiting } from './waiting.js';
import { mail, way } from './mail.js';
import { member } from './member.js';
import { board, queue, usage } from './tables.js';
import { lesson, roster } from './pictures.js';

const VIEWS = {
  '': ['Overview', overview], mail: ['Mail', mail], board: ['Board', board], queue: ['Queue', queue],
  usage: ['Usage', usage], roster: ['Roster file', roster], way: ['Way of a message', way],
  lesson: ['Subagent or teammate?', lesson], member: [null, member],
};
const KEYS = [['1 – 8', 'the views, in their order'], ['w', 'what waits for you'], ['/', 'search'], ['?', 'these keys'], ['Esc', 'close a dialog']];

const $ = (id) => document.getElementById(id);
const known = { may: false }; // the parts of the state by name
let boot = '';
let shown = null; // the current view: its name, and its functions
let due = 0;

function route() {
  const [name = '', argument = ''] = location.hash.replace(/^#\/?/, '').split('/');
  return { name: VIEWS[name] ? name : '', argument: decode(argument) };
}

function decode(text) {
  try { return decodeURIComponent(text); } catch { return ''; }
}

// Show the view in the address, drawing all of it.
function open() {
  if (takeToken()) start();
  shown?.close?.();
  forgive();
  const { name, argument } = route();
  const [title, view] = VIEWS[name];
  const main = $('main');
  main.replaceChildren();
  main.setAttribute('aria-label', title ?? argument);
  shown = { name, ...view({ known, argument, redraw, root: main }) };
  document.title = `${title ?? argument} – ${known.team?.team_name ?? 'teamd'}`;
  draw();
}

function redraw() {
  due ||= requestAnimationFrame(draw);
}

function draw() {
  cancelAnimationFrame(due);
  due = 0;
  if (!known.team) return;
  fill($('name'), known.team.team_name ?? 'teamd');
  const here = route().name;
  const named = Object.entries(VIEWS).filter(([, [title]]) => title);
  fill($('views'), named.map(([name, [title]]) => h('a', { href: `#/${name}`, 'aria-current': name === here && 'page' }, title)));
  fill($('tools'), known.reading ? button('Read-only link', handOn) : known.may ? null : h('span.note', {}, 'read-only'), button('Keys', help));
  waiting($('waiting'), known);
  if (shown?.draw) fill($('main'), shown.draw());
}

function told(name, value, id) {
  if (name === 'snapshot') {
    Object.assign(known, value);
    if (boot && boot !== id) say('The server was started anew; this is how the team is now.');
    boot = id;
  } else {
    known[name] = value;
  }
  shown?.told?.(name);
  redraw();
}

const LINES = { open: '', lost: 'The server does not answer. Trying again …', refused: 'This link is of a server that has ended.' };

function link(state) {
  const bar = $('link');
  bar.className = state === 'open' ? '' : 'bad';
  fill(bar, LINES[state]);
  fill($('login'), state === 'refused' ? login() : null);
}

const say = (text) => announce(text);

// A new server has a new token, so an open page needs the new link.
function login() {
  const place = h('input', { type: 'url', id: 'new-link', autocomplete: 'off', placeholder: 'http://127.0.0.1:…/#token=…' });
  const take = (event) => {
    event.preventDefault();
    if (takeToken(place.value)) start();
    else say('That is no link of `teamctl web`.');
  };
  return h('form.bar', { onsubmit: take }, h('label', {}, h('span', {}, 'Run `teamctl web` and paste the link that it prints: '), place), h('button', {}, 'Connect'));
}

async function handOn() {
  const where = `${location.origin}/#token=${known.reading}`;
  await ask('A link for others, to look and not to act', [h('p', {}, h('code', {}, where))], ['Close']);
}

async function help() {
  const list = KEYS.map(([key, what]) => [h('dt', {}, h('kbd', {}, key)), h('dd', {}, what)]);
  await ask('Keys', [h('dl', {}, list)], ['Close']);
}

function pressed(event) {
  const typing = event.target.closest?.('input, textarea, select, dialog');
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const named = Object.keys(VIEWS).filter((name) => VIEWS[name][0]);
  if (/^[1-9]$/.test(event.key) && named[event.key - 1] !== undefined) location.hash = `#/${named[event.key - 1]}`;
  else if (event.key === '?') help();
  else if (event.key === 'w') $('waiting').querySelector('button, summary')?.focus();
  else if (event.key === '/') find();
  else return;
  event.preventDefault();
}

function find() {
  if (!document.querySelector('input[type=search]')) location.hash = '#/mail';
  requestAnimationFrame(() => document.querySelector('input[type=search]')?.focus());
}

async function start() {
  await attempt(async () => {
    const session = await get('session');
    Object.assign(known, { may: session.may_act, reading: session.reading });
    redraw();
  }, true);
}

takeToken();
addEventListener('hashchange', open);
addEventListener('keydown', pressed);
$('skip').addEventListener('click', () => $('main').focus());
open();
if (hasToken()) start();
follow(told, link);
