// Requests and notices for the person: the slim bar, the drawer, the list, and notifications.
import { act } from './api.js';
import { able, announce, perform } from './acts.js';
import { avatar, button, coded, fill, h, icon, own, to } from './dom.js';
import { ago } from './format.js';
import { markdown } from './markdown.js';
import { refusal } from './overview.js';

const SHORT = 300;
const KINDS = { permission_request: 'asks to run', push: 'asks to push', plan_approval_request: 'asks you to approve its plan', shutdown_request: 'asks about its end' };
let before = null;

export const waitingFor = (known) => (known.team?.requests ?? []).filter((one) => one.yours);
const needsOf = (known) => (known.team?.notices ?? []).filter((one) => one.kind !== 'waiting');

let seen = 0;

// Clear the notice that the work is done: the person looks at it.
export function noteSeen(known) {
  const { time } = needsOf(known).find((one) => one.kind === 'finished') ?? {};
  if (!time || time === seen || document.hidden || !known.may) return;
  seen = time;
  act('seen', {}).catch(() => { seen = 0; });
}

// One line about what waits, on every view but the overview.
export function bar(place, known, view) {
  const asked = waitingFor(known);
  const words = asked.length === 1 ? `1 waits for you: ${asked[0].from} ${own(KINDS, asked[0].type) ?? asked[0].type}` : `${asked.length} wait for you: ${[...new Set(asked.map((one) => one.from))].join(', ')}`;
  fill(place, asked.length && view ? [h('p', {}, icon('hand'), ' ', words), button('Show', () => drawer.open(known), { 'aria-label': 'Show what waits for you' })] : null);
}

export const drawer = {
  known: null,
  last: null,
  place: () => document.getElementById('drawer'),
  open(known) {
    this.last = document.activeElement;
    this.place().hidden = false;
    this.draw(known);
    this.place().querySelector('button').focus();
  },
  close() {
    if (this.place().hidden) return false;
    this.place().hidden = true;
    this.place().replaceChildren();
    if (this.last?.isConnected) this.last.focus();
    return true;
  },
  draw(known) {
    if (this.place().hidden) return;
    fill(this.place(), h('div.top', {}, h('h2', {}, 'What waits for you'), button('Close', () => this.close())), everything(known, true));
  },
};

// The requests, oldest first, with the fields to answer them; then the notices.
export function everything(known, brief = false) {
  const asked = waitingFor(known);
  const needs = needsOf(known);
  if (!asked.length && !needs.length) return brief ? h('p.note', {}, 'Nothing waits for you.') : null;
  return [asked.length ? h('ol.plain.requests', {}, asked.map((one) => request(one, known))) : null, needs.length ? h('ul.plain.needs', {}, needs.map((one) => need(one, known))) : null];
}

export function request(one, known) {
  const plan = one.type === 'plan_approval_request';
  const cut = (one.type !== 'push' && one.content.length > one.what.length) || one.what.length > SHORT;
  const what = ['permission_request', 'push'].includes(one.type) || one.what.length <= SHORT ? one.what : `${one.what.slice(0, SHORT)}…`;
  return h('li', { 'data-key': one.id },
    h('p.who', {}, avatar(one.from, known.team.members), h('span', {}, h('a', { href: to('member', one.from) }, one.from), ` ${own(KINDS, one.type) ?? one.type} · `, h('span.note', {}, ago(one.asked), ' ago · ', h('code', {}, one.id)))),
    plan ? h('div.asked', {}, markdown(one.what)) : h('pre.asked', {}, what),
    cut && !plan && h('details.note', {}, h('summary', {}, 'All of it'), h('pre', {}, one.content)),
    known.may ? answers(one) : h('p.note', {}, h('code', {}, one.approve_command)));
}

function answers(one) {
  const { id, from } = one;
  const answer = (what) => (event) => {
    const near = event.target.closest('li');
    const input = near.querySelector('input:not([type=checkbox])');
    const reason = input.value;
    if (what === 'reject' && !reason.trim()) {
      input.focus();
      announce(`Say why, so that ${from} can do better.`, true);
      return;
    }
    perform(what, { id, reason, always: near.querySelector('input[type=checkbox]')?.checked ?? false });
  };
  return h('div.bar', {},
    h('label', {}, h('input', { autocomplete: 'off', placeholder: 'Reason or feedback', 'aria-label': `Reason or feedback for ${from}` })),
    one.grants?.length ? h('label.check', {}, h('input', { type: 'checkbox' }), h('span', {}, 'always, for this team')) : null,
    button('Approve', answer('approve'), { class: 'primary', 'aria-label': `Approve what ${from} asks` }),
    button('Reject', answer('reject'), { class: 'danger', 'aria-label': `Reject what ${from} asks` }));
}

function need(one, { may, team }) {
  const { name } = one;
  return h('li', { 'data-key': `${one.kind} ${name}` }, h('p', {}, coded(one.text), ' ', h('code', {}, one.command)),
    one.kind === 'mail' ? h('a', { href: to('mail/is:unread') }, 'Read') : null,
    may && one.kind === 'paused' ? able('Resume', () => perform('resume', { name }), refusal(team), { 'aria-label': `Resume ${name}` }) : null);
}

const TOLD = new Set(['failed', 'paused', 'outage', 'finished']); // the notices that are worth a notification

// Announce news to screen readers and, with consent, as notifications of the browser.
export function inform(known) {
  const asked = waitingFor(known).map((one) => ({ key: one.id, title: `${one.from} waits for you`, body: one.what.slice(0, SHORT) }));
  const needs = needsOf(known).filter((one) => TOLD.has(one.kind)).map((one) => ({ key: `${one.kind} ${one.name}`, title: one.text, body: one.command }));
  const all = [...asked, ...needs];
  const fresh = before ? all.filter((one) => !before.has(one.key)) : [];
  if (before && (fresh.length || !all.length)) fill(document.getElementById('news'), fresh.map((one) => `${one.title}. `));
  before = new Set(all.map((one) => one.key));
  if (!document.hidden || !globalThis.Notification || Notification.permission !== 'granted') return;
  for (const one of fresh) new Notification(one.title, { body: one.body, tag: one.key });
}

export function offerNotifications(redraw) {
  if (!globalThis.Notification || Notification.permission !== 'default') return null;
  return button([icon('bell'), h('span.word', {}, 'Notify me')], () => Notification.requestPermission().then(redraw), { class: 'plain', 'aria-label': 'Notify me', title: 'The browser tells you when somebody waits and this page is not in front' });
}
