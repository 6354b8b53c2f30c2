// The page: the known state, the current view, and the shell around all views.
import { chooseTeam, follow, get, hasToken, takeToken } from './api.js';
import { ask, attempt, announce, forgive } from './acts.js';
import { button, card, setTeam, coded, fill, h, head, icon, to } from './dom.js';
import { overview } from './overview.js';
import { bar, drawer, inform, offerNotifications, waitingFor } from './waiting.js';
import { chat } from './chat.js';
import { mail, way } from './mail.js';
import { member } from './member.js';
import { board } from './board.js';
import { changes, queue } from './changes.js';
import { usage } from './usage.js';
import { log } from './log.js';
import { help, KEYS, lesson, roster } from './help.js';

const VIEWS = {
  '': ['Overview', overview, 'overview'], chat: ['Chat', chat, 'chat'], mail: ['Mail', mail, 'mail'], board: ['Board', board, 'board'], queue: ['Queue', queue, 'queue'],
  changes: ['Changes', changes, 'changes'], usage: ['Usage', usage, 'usage'], log: ['Log', log, 'log'], help: ['Help', help, 'help'],
  member: [null, member], roster: [null, roster, 'help', 'Roster file'], way: [null, way, 'help', 'Way of a message'], lesson: [null, lesson, 'help', 'Subagent or teammate?'],
};
const NAMED = Object.entries(VIEWS).filter(([, [title]]) => title);

const $ = (id) => document.getElementById(id);
const known = { may: false, project: '', teams: [] }; // the parts of the state by name
let boot = '';
let team = ''; // the key of another team; empty for the team of the link
let shown = null; // the current view: its name, and its functions
let due = 0;

function route() {
  const parts = location.hash.replace(/^#\/?/, '').split('/');
  const other = parts[0].startsWith('team-') ? parts.shift().slice(5) : '';
  const [name = '', argument = ''] = parts;
  return { other: /^[0-9a-f]{16}$/.test(other) ? other : '', name: Object.hasOwn(VIEWS, name) ? name : '', argument: decode(argument) };
}

function decode(text) {
  try { return decodeURIComponent(text); } catch { return ''; }
}

// Show the view in the address, drawing all of it.
function showView() {
  if (takeToken()) start();
  const { other, name, argument } = route();
  if (other !== team) change(other);
  shown?.close?.();
  if ($('dialog').open) $('dialog').close('');
  forgive();
  const [title, view, , long] = VIEWS[name];
  const main = $('main');
  main.replaceChildren();
  main.setAttribute('aria-label', title ?? long ?? argument.split('|')[0]);
  shown = null;
  shown = { name, argument, ...view({ known, argument, redraw, root: main }) };
  entitle();
  scrollTo(0, 0);
  draw();
  // On a phone the views are one line that scrolls.
  if (innerWidth < 768) document.querySelector('#views [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });
}

// Leave the state of one team for another.
function change(other) {
  team = other;
  setTeam(team);
  chooseTeam(team);
  boot = '';
  for (const part of ['team', 'mail', 'roster', 'board', 'queue', 'usage', 'sizes', 'copies']) delete known[part];
  drawer.close();
  start();
}

function entitle() {
  const { name, argument } = route();
  const [title, , , long] = VIEWS[name];
  const where = [title ?? long ?? argument.split('|')[0], known.team?.team_name, known.project].filter(Boolean);
  const waits = waitingFor(known).length;
  document.title = `${waits ? `(${waits}) ` : ''}${[...new Set(where)].join(' – ')}`;
}

function redraw() {
  due ||= requestAnimationFrame(draw);
}

function draw() {
  cancelAnimationFrame(due);
  due = 0;
  shell();
  if (!known.team) return;
  bar($('bar'), known, shown.name);
  drawer.draw(known);
  entitle();
  if (!known.team.members && !TEAMLESS.has(shown?.name)) fill($('main'), damaged(known.team.trouble));
  else if (shown?.draw) fill($('main'), shown.draw());
}

const TEAMLESS = new Set(['help', 'lesson', 'roster', 'way']); // the views that need no roster

const damaged = (trouble) => [head('The team cannot be read'), card('', h('p.bad', {}, coded(trouble)), h('p.note', {}, coded('`teamctl doctor` checks the team. This view comes back once it can be read.')))];

// The sidebar: the views, the teams of this person, and settings of the page.
function shell() {
  const [, , here] = VIEWS[shown?.name ?? ''];
  const counts = badges();
  fill($('brand'), h('strong', {}, known.team?.team_name ?? 'teamd'), known.project === known.team?.team_name ? null : h('span', {}, known.project));
  fill($('views'), h('ul', {}, NAMED.map(([name, [title, , sign]]) => h('li', {}, h('a', { href: to(name), 'aria-current': sign === here && 'page' }, icon(sign), h('span', {}, title), counts[name] ? h(`span.badge${name ? '.quiet' : ''}`, {}, counts[name]) : null)))));
  fill($('teams'), known.teams.length > 1 ? [h('h2', {}, 'Your teams'), h('ul', {}, known.teams.map(project))] : null);
  const theme = document.documentElement.dataset.theme ?? 'system';
  fill($('tools'),
    h('label', { 'data-key': 'theme' }, h('span', {}, 'Colours'), h('select', { onchange: paint, 'aria-label': 'Colours' }, ['system', 'light', 'dark'].map((word) => h('option', { value: word, selected: word === theme }, word)))),
    offerNotifications(redraw),
    known.reading ? button([icon('link'), h('span.word', {}, 'Read-only link')], handOn, { class: 'plain', 'aria-label': 'Read-only link' }) : known.may ? null : h('span.note', {}, 'read-only'));
}

function badges() {
  const open = (known.board?.tasks ?? []).filter((one) => one.status !== 'completed').length;
  const queued = (known.queue?.queue ?? []).filter((one) => ['waiting', 'checking'].includes(one.state)).length;
  return { '': waitingFor(known).length, mail: known.team?.unread, board: open, queue: queued };
}

function project(one) {
  const key = one.key === known.key ? '' : one.key;
  const state = one.trouble ? 'damaged' : one.requests ? `${one.requests} wait for you` : one.stopped ? `${one.stopped} stopped` : one.running ? `${one.members} in it` : 'teamd is not running';
  return h('li', { 'data-key': one.key }, h('a', { href: key ? `#/team-${key}/` : '#/', 'aria-current': key === team && 'true', title: one.trouble || one.path },
    h('span', {}, one.name, h('small', {}, one.project === one.name ? state : `${one.project} · ${state}`)), one.requests ? h('span.badge', {}, one.requests) : null));
}

function paint(event) {
  const { value } = event.target;
  if (value === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
  try {
    if (value === 'system') localStorage.removeItem('teamd-theme');
    else localStorage.setItem('teamd-theme', value);
  } catch { /* blocked: the choice holds until a reload */ }
}

function told(name, value, id) {
  if (name === 'snapshot') {
    Object.assign(known, value);
    if (boot && boot !== id) announce('The server was started anew; this is how the team is now.');
    boot = id;
  } else {
    known[name] = value;
  }
  if (name === 'team' || name === 'snapshot') inform(known);
  shown?.told?.(name);
  redraw();
}

const LINES = { open: '', lost: 'The server does not answer. Trying again …', refused: 'This link is of a server that has ended.' };

function showConnection(state, why = '') {
  $('link').className = state === 'open' ? '' : 'bad';
  fill($('link'), why ? `The server refuses: ${why}. Trying again …` : LINES[state]);
  fill($('login'), state === 'refused' ? login() : null);
}

// A new server has a new token, so an open page needs the new link.
function login() {
  const place = h('input', { type: 'url', id: 'new-link', autocomplete: 'off', placeholder: 'http://127.0.0.1:…/#token=…' });
  const take = (event) => {
    event.preventDefault();
    if (takeToken(place.value)) start();
    else announce('That is no link of `teamctl web`.');
  };
  return h('form.card', { onsubmit: take }, h('label', {}, h('span', {}, 'Run `teamctl web` and paste the link that it prints: '), place), h('button.primary', {}, 'Connect'));
}

async function handOn() {
  await ask('A link for others, to look and not to act', [h('p', {}, h('code', {}, `${location.origin}/#token=${known.reading}`))], ['Close']);
}

async function keys() {
  await ask('Keys', [h('dl', {}, KEYS.map(([key, what]) => [h('dt', {}, h('kbd', {}, key)), h('dd', {}, what)]))], ['Close']);
}

function pressed(event) {
  if (event.key === 'Escape' && drawer.close()) return;
  const typing = event.target.closest?.('input, textarea, select, dialog');
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^[1-9]$/.test(event.key)) location.hash = to(NAMED[event.key - 1][0]);
  else if (event.key === '?') keys();
  else if (event.key === 'w') drawer.open(known);
  else if (event.key === '/') find();
  else return;
  event.preventDefault();
}

function find() {
  if (!document.querySelector('input[type=search]')) location.hash = to('mail');
  setTimeout(() => requestAnimationFrame(() => document.querySelector('input[type=search]')?.focus()));
}

async function start() {
  await attempt(async () => {
    const session = await get('session');
    Object.assign(known, { may: session.may_act, reading: session.reading, project: session.project });
    if (!team) known.key = session.key;
    redraw();
    await list();
  }, true);
}

async function list() {
  if (document.hidden || !hasToken()) return;
  await attempt(async () => { known.teams = (await get('teams')).teams; redraw(); }, true);
}

takeToken();
setTeam(route().other);
addEventListener('hashchange', showView);
addEventListener('keydown', pressed);
addEventListener('resize', redraw);
new ResizeObserver(() => document.documentElement.style.setProperty('--top', `${$('top').offsetHeight}px`)).observe($('top'));
document.addEventListener('visibilitychange', list);
setInterval(list, 10000);
$('dialog').addEventListener('close', () => $('dialog').replaceChildren());
$('skip').addEventListener('click', () => $('main').focus());
showView();
if (hasToken()) start();
follow(told, showConnection);
