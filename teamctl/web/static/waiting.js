// The requests and notices for the person, oldest first, with the fields to answer them.
import { able, announce, doing } from './acts.js';
import { button, fill, h } from './dom.js';
import { ago } from './format.js';
import { refusal } from './overview.js';

const SHORT = 300;
const KINDS = { permission_request: 'asks to run', plan_approval_request: 'asks you to approve its plan', shutdown_request: 'asks about its end' };
let before = new Set();

export function waiting(bar, known) {
  const asked = (known.team.requests ?? []).filter((one) => one.yours);
  const needs = (known.team.notices ?? []).filter((one) => one.kind !== 'waiting');
  const fresh = asked.filter((one) => !before.has(one.id));
  before = new Set(asked.map((one) => one.id));
  const held = bar.contains(document.activeElement) && document.activeElement.closest('[data-key]')?.dataset.key;
  fill(bar, [
    asked.length ? h('h2', {}, asked.length === 1 ? '1 waits for you' : `${asked.length} wait for you`) : null,
    h('ol.plain', {}, asked.map((one) => request(one, known.may))),
    h('ul.plain', {}, needs.map((one) => need(one, known))),
  ]);
  bar.classList.toggle('hidden', !asked.length && !needs.length);
  if (held && !before.has(held)) (bar.querySelector('button') ?? document.getElementById('main')).focus();
  if (fresh.length || !asked.length) fill(document.getElementById('news'), fresh.map((one) => `${one.from} waits for you. `));
  document.title = document.title.replace(/^(\(\d+\) )?/, asked.length ? `(${asked.length}) ` : '');
}

function request(one, may) {
  const cut = one.content.length > one.what.length || one.what.length > SHORT;
  return h('li.card', { 'data-key': one.id },
    h('p', {}, h('a', { href: `#/member/${encodeURIComponent(one.from)}` }, one.from), ` ${KINDS[one.type] ?? one.type} `, ago(one.asked), ' ago ', h('code', {}, one.id)),
    h('pre.asked', {}, one.type === 'permission_request' || one.what.length <= SHORT ? one.what : `${one.what.slice(0, SHORT)}…`),
    cut && h('details', {}, h('summary', {}, 'All of it'), h('pre', {}, one.content)),
    may ? answers(one) : h('p.note', {}, h('code', {}, one.approve_command)));
}

function answers(one) {
  const { id, from } = one;
  const answer = (what) => (event) => {
    const card = event.target.closest('.card');
    const reason = card.querySelector('input[type=text]').value;
    if (what === 'reject' && !reason.trim()) {
      card.querySelector('input[type=text]').focus();
      announce(`Say why, so that ${from} can do better.`, true);
      return;
    }
    doing(what, { id, reason, always: card.querySelector('input[type=checkbox]')?.checked ?? false });
  };
  return h('p.bar', {},
    button('Approve', answer('approve'), { 'aria-label': `Approve what ${from} asks` }),
    button('Reject', answer('reject'), { 'aria-label': `Reject what ${from} asks` }),
    h('label', {}, h('span', {}, 'Reason or feedback '), h('input', { type: 'text', autocomplete: 'off' })),
    one.grants?.length ? h('label', {}, h('input', { type: 'checkbox' }), ' always, for this team') : null);
}

function need(one, { may, team }) {
  const { name } = one;
  return h('li', { 'data-key': `${one.kind} ${name}` }, h('strong', {}, one.text), ' ', h('code', {}, one.command),
    may && one.kind === 'paused' ? [' ', able('Resume', () => doing('resume', { name }), refusal(team), { 'aria-label': `Resume ${name}` })] : null);
}
