// The mail of the whole team, with search, and the steps of one message.
import { get } from './api.js';
import { announce } from './acts.js';
import { field, h } from './dom.js';
import { clock, moment } from './format.js';
import { sendTo } from './overview.js';

const STAGES = { queued: 'waits', taken: 'under way', delivered: 'read', rejected: 'rejected' };

export function mail({ known, argument, redraw }) {
  let words = argument;
  let found = null;
  const search = latest(() => get('mail', { words }), (answer) => { found = answer; redraw(); });
  const typed = (event) => {
    words = event.target.value;
    search();
    history.replaceState(null, '', `#/mail/${encodeURIComponent(words)}`);
  };
  search();
  return {
    told: (name) => name === 'mail' && search(),
    draw: () => [
      h('h2', {}, 'Mail of the team'),
      h('form', { role: 'search', onsubmit: (event) => event.preventDefault() }, field('Search ', h('input', { type: 'search', value: words, oninput: typed }))),
      h('p.note', { role: 'status' }, found ? `${found.found} message${found.found === 1 ? '' : 's'}${found.found > found.messages.length ? `, the newest ${found.messages.length} are shown` : ''}` : 'Looking …'),
      messages(found?.messages ?? []),
      known.may && compose(known.team.members ?? []),
    ],
  };
}

export function messages(found) {
  return h('ol.plain.mail', { 'data-key': 'mail' }, found.map((one) => h('li.card', { 'data-key': `${one.to} ${one.from} ${one.id || one.position}` },
    h('p', {}, h('time', {}, clock(one.sent ?? one.delivered)), ' ', h('strong', {}, one.from), ' → ', h('strong', {}, one.to), ' ',
      one.type === 'message' ? null : h('span.tag', {}, one.type), ' ', h('span.tag', {}, STAGES[one.stage] ?? one.stage, one.position ? `, place ${one.position}` : ''), ' ',
      one.id && h('a', { href: `#/way/${encodeURIComponent(one.id)}`, 'aria-label': `Way of the message from ${one.from} to ${one.to}` }, 'way')),
    one.summary ? h('p', {}, h('strong', {}, one.summary)) : null,
    h('pre', {}, one.content, one.more ? ` … ${one.more} more characters` : ''))));
}

function compose(members) {
  return h('section', { 'data-key': 'compose' }, h('h2', {}, 'Write'), members.map((one) => h('details', { 'data-key': one.name }, h('summary', {}, `To ${one.name}`), sendTo(one.name))));
}

// Repeat a request after each change, one request at a time, and show the last answer.
export function latest(question, shown) {
  let asking = false;
  let again = false;
  return async function look() {
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    try {
      shown(await question());
    } catch (error) {
      if (error.status !== 401) announce(error.message, true);
    }
    asking = false;
    if (again) {
      again = false;
      look();
    }
  };
}

const STEPS = [
  ['sent', 'Sent', (way) => `by ${way.from}`],
  ['written', 'A line on disk', (way) => (way.stage === 'queued' ? `place ${way.position} in ${way.file}` : `in the inbox of ${way.to}`)],
  ['taken', 'Taken', (way) => (['taken', 'delivered'].includes(way.stage) ? `${way.to} took it out of the inbox` : `${way.to} has not looked yet`)],
  ['delivered', 'In the conversation', (way) => (way.stage === 'delivered' ? way.file : 'the model has not read it yet')],
];

// The stages that a message has reached.
const reached = (way) => ({
  sent: true, written: true, taken: ['taken', 'delivered'].includes(way.stage), delivered: way.stage === 'delivered',
});

export function way({ argument, redraw }) {
  let found = null;
  let trouble = '';
  const look = latest(() => (argument ? get('trace', { id: argument }).catch((error) => ({ trouble: error.message })) : null), (answer) => {
    found = answer?.trouble ? null : answer;
    trouble = answer?.trouble ?? '';
    redraw();
  });
  look();
  const go = (event) => {
    event.preventDefault();
    location.hash = `#/way/${encodeURIComponent(new FormData(event.target).get('id'))}`;
  };
  return {
    told: (name) => name === 'mail' && look(),
    draw: () => [
      h('h2', {}, 'The way of a message'),
      h('p', {}, 'A message is a line in a file. Its receiver takes the line out when it next looks, and then it stands in the conversation that the model reads. Nothing is lost on the way, whoever is killed when.'),
      h('form.bar', { onsubmit: go, 'aria-label': 'Find a message' }, field('Id of a message ', h('input', { name: 'id', value: argument, autocomplete: 'off' })), h('button', {}, 'Show')),
      trouble && h('p.bad', {}, trouble),
      !argument && h('p', {}, 'The mail view has a link to the way of each message.'),
      (found?.receivers ?? []).map(picture),
    ],
  };
}

function picture(one) {
  const past = reached(one);
  return h('section', { 'data-key': one.to }, h('h3', {}, `${one.id} to ${one.to}`),
    one.stage === 'rejected' ? h('p.bad', {}, `Rejected, and kept in ${one.file}`) : null,
    h('ol.way', {}, STEPS.map(([key, title, words]) => h(`li.step${past[key] ? '.past' : ''}`, { 'data-stage': key, 'data-at': one[key] },
      h('span', { 'aria-hidden': 'true' }, past[key] ? '●' : '○'), h('strong', {}, ` ${title}`), h('span.note', {}, past[key] ? '' : ' (not yet)'),
      key === 'written' ? null : h('div', {}, past[key] ? h('time', {}, moment(one[key])) : ''), h('div.note', {}, words(one))))));
}
