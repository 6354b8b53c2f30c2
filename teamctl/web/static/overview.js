// All teammates at a glance, the message to all, and the spawn form.
import { form, once } from './acts.js';
import { field, h, table } from './dom.js';
import { ago, count, duration, percent, state, usd } from './format.js';

const HEADS = ['Name', 'Role', 'State', 'Since', 'Does now', 'Context', 'Cost', 'Mail', 'Turns', 'CPU', 'Memory'];

export function overview({ known }) {
  return { draw: () => [roster(known.team), known.may && all(), known.may && spawn(known.team)] };
}

export const link = (name, text = name, tab = '') => h('a', { href: `#/member/${encodeURIComponent(name)}${tab}` }, text);

// The reason why teamd cannot act on a teammate, which is in one of `states`; empty if it can.
export function refusal(team, { name, state: status } = {}, states = ['shutdown', 'failed']) {
  if (!team.teamd) return 'No teamd runs; start it with `teamd start`.';
  if (!states.includes(status)) return '';
  return `${name} ${status === 'failed' ? 'has failed' : 'is shut down'}; spawn it on the overview, and it goes on.`;
}

export function doing(one, { requests = [] }) {
  if (one.retry) return one.retry.text;
  const asked = one.state === 'waiting' && requests.find((other) => other.id === one.waiting_request);
  if (asked) return asked.what;
  if (!one.doing) return one.reason && one.state !== 'working' ? one.reason : '';
  return one.doing.kind === 'model' ? 'thinks' : one.doing.what;
}

function roster(team) {
  const members = team.members ?? [];
  if (!members.length) return h('p', {}, 'Nobody is in the team yet.');
  const rows = members.map((one) => {
    const cells = [link(one.name), one.role, state(one.state), ago(one.since), h('span.cut', {}, doing(one, team)), percent(one.context),
      usd(one.usd), one.queued ?? '?', count(one.turns), one.cpu_seconds === null ? '–' : duration(one.cpu_seconds), count(one.memory_bytes)];
    return h('tr', { 'data-key': one.name }, cells.map((cell, n) => h(n ? 'td' : 'th', { 'data-head': HEADS[n], scope: n ? null : 'row' }, cell)));
  });
  return h('section', { 'data-key': 'roster' }, h('h2', {}, 'The team'), team.trouble && h('p.bad', {}, team.trouble), table('The team', HEADS, h('tbody', {}, rows)));
}

function all() {
  const fields = [field('To everybody ', h('textarea', { name: 'text', rows: 2, required: true }))];
  return h('section', { 'data-key': 'all' }, h('h2', {}, 'Broadcast'), form('Broadcast', fields, 'Send to all', 'broadcast', ({ text }) => ({ text })));
}

function spawn(team) {
  const box = (name, label) => h('label', {}, h('input', { type: 'checkbox', name }), ` ${label}`);
  const fields = [
    field('Name ', h('input', { name: 'name', required: true, autocomplete: 'off', pattern: '[A-Za-z0-9][A-Za-z0-9_\\-]{0,63}' })),
    field('Role ', h('input', { name: 'role', required: true, autocomplete: 'off' })),
    field('Model (that of the team where empty) ', h('input', { name: 'model', autocomplete: 'off' })),
    field('Task ', h('textarea', { name: 'prompt', rows: 3, required: true })),
    box('plan', 'acts only on an approved plan'), box('worktree', 'works in a copy of its own'), box('fresh', 'begins a new conversation'),
  ];
  return h('section', { 'data-key': 'spawn' }, h('details', {}, h('summary', {}, 'Start or wake a teammate'), form('Start or wake a teammate', fields, 'Spawn', 'spawn', (facts) => facts, refusal(team))));
}

export function sendTo(name) {
  const fields = [field(`To ${name} `, h('textarea', { name: 'text', rows: 2, required: true }))];
  return form(`Send to ${name}`, fields, 'Send', 'send', ({ text }) => once({ to: name, text }));
}
