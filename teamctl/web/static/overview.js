// All teammates at a glance.
import { get } from './api.js';
import { form, latest, once, openDialog, seldom } from './acts.js';
import { avatar, button, card, empty, field, h, head, icon, row, segments, steady, table, to } from './dom.js';
import { ago, count, duration, many, percent, state, usd } from './format.js';
import { lanes, legend, momentAt, momentLink } from './charts.js';
import { everything, waitingFor } from './waiting.js';

const HEADS = ['Name', 'State', 'Since', 'Does now', 'Context', 'Cost', 'Mail', 'Turns', 'CPU', 'Memory'];
const HOURS = { 1: '1 h', 6: '6 h', 24: '24 h' };
let hours = '6';

export function overview({ known, redraw, root }) {
  const past = followed(known, redraw, () => ({ hours }));
  let cursor = null;
  const drawn = steady((width) => lanes(past.found, known.team.members, width, cursor));
  const version = (width) => [past.found.until, width, cursor?.row, cursor?.at, known.team.members.map((one) => one.name + one.state)].join();
  const pick = (next) => {
    hours = next;
    past.ask();
  };
  const opened = (event) => {
    const name = event.target.closest?.('.lane')?.dataset.name;
    if (name) location.hash = momentLink(name, momentAt(past.found, room(root), event.currentTarget.querySelector('svg'), event));
  };
  const moved = (event) => {
    const members = known.team.members;
    const step = (past.found.until - past.found.since) / 60;
    cursor ??= { row: 0, at: past.found.until };
    if (event.key === 'ArrowLeft') cursor.at = Math.max(past.found.since, cursor.at - step);
    else if (event.key === 'ArrowRight') cursor.at = Math.min(past.found.until, cursor.at + step);
    else if (event.key === 'ArrowUp') cursor.row = Math.max(0, cursor.row - 1);
    else if (event.key === 'ArrowDown') cursor.row = Math.min(members.length - 1, cursor.row + 1);
    else if (event.key === 'Enter') location.hash = momentLink(members[cursor.row].name, cursor.at);
    else return;
    event.preventDefault();
    redraw();
  };
  return {
    told: (part) => past.told(part, 'sizes'),
    close: past.close,
    draw() {
      const { team } = known;
      const members = team.members ?? [];
      const waits = everything(known);
      return h('div.wide', {}, [
        head('Overview', known.may && members.length ? button('Broadcast', () => openDialog('Broadcast', all())) : null,
          known.may && button([icon('plus'), 'Spawn'], () => openDialog('Start or wake a teammate', spawn(team)), { class: 'primary', 'aria-label': 'Spawn a teammate' })),
        waits && h('section.card.waits', { 'data-key': 'waits' }, h('h2', {}, waitingFor(known).length ? `${many(waitingFor(known).length, 'waits', 'wait')} for you` : 'Needs you'), waits),
        team.trouble && h('p.bad', {}, team.trouble),
        members.length ? [figures(known), roster(team), past.found && h('section.card.past', { 'data-key': 'lanes' },
          h('div.top', {}, h('h2', {}, 'States over time'), segments('How far back', HOURS, hours, pick)),
          h('div', { onclick: opened, onkeydown: moved, tabindex: 0, role: 'group', 'aria-label': 'States over time: arrow keys move, Enter opens that moment' }, drawn(version(room(root)), room(root))), legend())]
          : card('', empty('Nobody is in the team yet.', 'Spawn a teammate, or ', h('a', { href: to('chat') }, 'chat'), ' with a lead that spawns them for you. On a terminal: ', h('code', {}, 'teamctl spawn alice coder "…"'))),
      ]);
    },
  };
}

// The width for a picture in a card of the view.
export function room(root) {
  const there = root.querySelector('svg.chart[role=img]')?.parentNode.clientWidth;
  return Math.max(260, there || root.clientWidth - 34 || 860);
}

// The history of the team, asked for again after changes, but seldom, and not before the first view.
export function followed(known, redraw, facts) {
  const kept = { found: null };
  const ask = latest(() => get('history', facts()), (answer) => { kept.found = answer; redraw(); });
  const pace = seldom(ask, 3000);
  if (known.team) ask();
  return Object.assign(kept, { ask, look: pace.look, close: pace.close, told: (part, name) => (part === 'snapshot' ? ask() : part === name && pace.look()) });
}

function figures({ team, usage, board, queue }) {
  const are = (word) => team.members.filter((one) => one.state === word).length;
  const tasks = board?.tasks ?? [];
  const queued = (queue?.queue ?? []).filter((one) => ['waiting', 'checking'].includes(one.state)).length;
  const total = usage?.total;
  const most = total?.usd_per_day_limit;
  const tile = (number, label, more, view) => h('li.tile', {}, h('a', { href: to(view) }, h('span', {}, label), h('strong', {}, number), h('small', {}, more)));
  return h('ul.tiles', { 'data-key': 'tiles' },
    tile(are('working'), 'Working', `of ${many(team.members.length, 'member')}`, 'log'),
    tile(total ? usd(total.usd_today) : '–', 'Cost today', most ? `of ${usd(most)} a day` : 'no limit a day', 'usage'),
    tile(tasks.filter((one) => one.status !== 'completed').length, 'Open tasks', `${tasks.filter((one) => one.status === 'completed').length} completed`, 'board'),
    tile(queued, 'In the queue', team.merge?.text ?? (queued ? 'to be merged' : 'nothing to merge'), 'queue'),
    tile(team.unread ?? '?', 'Mail for you', ...(team.unread ? ['unread', 'mail/is:unread'] : ['all read', 'mail'])));
}

export const memberLink = (name, text = name, tab = '') => h('a', { href: to('member', `${name}${tab}`) }, text);

export const who = (name, members, more = null) => h('span.who', {}, avatar(name, members), h('span', {}, memberLink(name), more ? h('small', {}, more) : null));

// The reason why teamd cannot act on a teammate, which is in one of `states`; empty if it can.
export function refusal(team, { name, state: status } = {}, states = ['shutdown', 'failed']) {
  if (!team.teamd) return 'No teamd runs; start it with `teamd start`.';
  if (!states.includes(status)) return '';
  return `${name} ${status === 'failed' ? 'has failed' : 'is shut down'}; spawn it on the overview, and it goes on.`;
}

export function activity(one, { requests = [] }) {
  if (one.retry) return one.retry.text;
  const asked = one.state === 'waiting' && requests.find((other) => other.id === one.waiting_request);
  if (asked) return asked.what;
  if (!one.doing) return one.reason && one.state !== 'working' ? one.reason : '';
  return one.doing.kind === 'model' ? 'thinks' : one.doing.what;
}

function roster(team) {
  const rows = team.members.map((one) => row(one.name, [who(one.name, team.members, one.role), state(one.state), ago(one.since), h('span.cut', { title: activity(one, team) || null }, activity(one, team)), percent(one.context),
    usd(one.usd), one.queued ?? '?', count(one.turns), one.cpu_seconds === null ? '–' : duration(one.cpu_seconds), count(one.memory_bytes)], HEADS, { class: ['idle', 'shutdown'].includes(one.state) ? 'idle' : null }));
  return h('section.card.team', { 'data-key': 'roster' }, h('h2', {}, 'The team'), table('The team', HEADS, h('tbody', {}, rows)));
}

function all() {
  return form('Broadcast', field('To everybody', h('textarea', { name: 'text', rows: 4, required: true })), 'Send to all', 'broadcast', ({ text }) => ({ text }));
}

function spawn(team) {
  const box = (name, label) => h('label.check', {}, h('input', { type: 'checkbox', name }), h('span', {}, label));
  const fields = [
    field('Name', h('input', { name: 'name', required: true, autocomplete: 'off', pattern: '[A-Za-z0-9][A-Za-z0-9_\\-]{0,63}' })),
    field('Role', h('input', { name: 'role', required: true, autocomplete: 'off' })),
    field('Task', h('textarea', { name: 'prompt', rows: 4, required: true })),
    field('Model (that of the team if empty)', h('input', { name: 'model', autocomplete: 'off' })),
    box('plan', 'acts only on an approved plan'), box('worktree', 'works in a copy of its own'), box('fresh', 'begins a new conversation'),
  ];
  return form('Start or wake a teammate', fields, 'Spawn', 'spawn', (facts) => facts, refusal(team));
}

export function sendTo(name) {
  const fields = h('textarea', { name: 'text', rows: 1, required: true, 'aria-label': `To ${name}`, placeholder: `Message to ${name}` });
  return form(`Send to ${name}`, fields, 'Send', 'send', ({ text }) => once({ to: name, text }));
}
