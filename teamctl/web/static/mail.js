// The mail of the whole team, and the steps of one message.
import { get } from './api.js';
import { form, latest, once, openDialog } from './acts.js';
import { avatar, button, card, empty, field, h, head, icon, steady, to } from './dom.js';
import { clock, many, moment } from './format.js';
import { traffic } from './charts.js';
import { markdown } from './markdown.js';

const STAGES = { queued: ['waits', 'warn'], taken: ['under way', ''], delivered: ['read', ''], rejected: ['rejected', 'bad'] };
const LONG = 700;

export function mail({ known, argument, redraw }) {
  let words = argument;
  let found = null;
  let version = 0;
  const search = latest(() => get('mail', { words }), (answer) => { found = answer; version += 1; redraw(); });
  const shown = steady(() => messages(found.messages, members()));
  const graph = steady(() => [traffic(found.traffic, members()), busiest(found.traffic)]);
  const set = (next) => {
    words = next;
    search();
    history.replaceState(null, '', to('mail', words));
  };
  const typed = (event) => set(event.target.value);
  const pick = (event) => {
    const name = event.target.closest?.('[data-find]')?.dataset.find;
    if (!name) return;
    document.querySelector('input[type=search]').value = name;
    set(name);
  };
  search();
  const members = () => known.team.members ?? [];
  return {
    told: (name) => name === 'mail' && search(),
    draw: () => [
      head('Mail', known.may && members().length ? button([icon('plus'), 'Write'], () => openDialog('Write', compose(members())), { class: 'primary' }) : null),
      h('div.columns', {},
        h('div', {},
          h('form', { role: 'search', 'data-key': 'search', onsubmit: (event) => event.preventDefault() }, field('Search', h('input', { type: 'search', value: words, oninput: typed, placeholder: 'names, words, ids' }))),
          h('p.note', { role: 'status' }, found ? `${many(found.found, 'message')}${found.found > found.messages.length ? `, the newest ${found.messages.length} are shown` : ''}` : 'Looking …'),
          found && card('', found.messages.length ? shown(version) : empty(words ? 'No message is found.' : 'No mail yet.', words ? 'Search looks at names, ids, summaries and texts; `is:unread` finds mail that waits for you.' : 'What teammates and you write to each other appears here.'))),
        h('aside', { 'aria-label': 'Traffic' }, found?.traffic?.length ? card('Who writes to whom', h('div', { onclick: pick }, graph(version))) : null)),
    ],
  };
}

const busiest = (pairs) => h('ol.plain', {}, pairs.slice(0, 6).map(([from, other, number]) => h('li.note', {}, `${from} → ${other}: ${number}`)));

export function messages(found, members = []) {
  return h('ol.plain.mail', { 'data-key': 'mail' }, found.map((one) => {
    const [stage, kind] = STAGES[one.stage] ?? [one.stage, ''];
    const at = one.sent ?? one.delivered;
    return h('li', { 'data-key': `${one.to} ${one.from} ${one.id || one.position}` }, avatar(one.from, members),
      h('p.by', {}, h('strong', {}, one.from, ' → ', one.to), one.type === 'message' ? null : h('span.tag', {}, one.type), kind ? h(`span.tag.${kind}`, {}, stage, one.position ? `, place ${one.position}` : '') : null),
      h('span', {}, h('time', { title: moment(at) }, clock(at)), ' ', one.id && h('a.note', { href: to('way', one.id), 'aria-label': `Way of the message from ${one.from} to ${one.to}` }, 'way')),
      h('div.body', {}, one.summary ? h('p', {}, h('strong', {}, one.summary)) : null,
        one.content.length > LONG ? h('details', {}, h('summary', {}, `${one.content.slice(0, 240)} …`), markdown(one.content)) : markdown(one.content), one.more ? h('p.note', {}, `… ${one.more} more characters`) : null));
  }));
}

function compose(members) {
  const choice = h('select', { name: 'to' }, members.map((one) => h('option', {}, one.name)));
  const fields = [field('To', choice), field('Text', h('textarea', { name: 'text', rows: 5, required: true }))];
  return form('Write a message', fields, 'Send', 'send', once);
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
    location.hash = to('way', new FormData(event.target).get('id'));
  };
  return {
    told: (name) => name === 'mail' && look(),
    draw: () => [
      head('The way of a message'),
      card('', h('p', {}, 'A message is a line in a file. Its receiver takes the line out when it next looks. Then it is in the conversation that the model reads. Nothing is lost on the way, even if a process is killed.'),
        h('form.bar', { onsubmit: go, 'aria-label': 'Find a message' }, field('Id of a message', h('input', { name: 'id', value: argument, autocomplete: 'off' })), h('button', {}, 'Show'))),
      trouble && h('p.bad', {}, trouble),
      !argument && h('p.note', {}, 'The mail view has a link to the way of each message.'),
      (found?.receivers ?? []).map(picture),
    ],
  };
}

function picture(one) {
  const past = reached(one);
  return h('section.card', { 'data-key': one.to }, h('h2', {}, `${one.id} to ${one.to}`),
    one.stage === 'rejected' ? h('p.bad', {}, `Rejected, and kept in ${one.file}`) : null,
    h('ol.way', {}, STEPS.map(([key, title, words]) => h(`li.step${past[key] ? '.past' : ''}`, { 'data-stage': key, 'data-at': one[key] },
      h('span', { 'aria-hidden': 'true' }, past[key] ? '●' : '○'), h('strong', {}, ` ${title}`), h('span.note', {}, past[key] ? '' : ' (not yet)'),
      key === 'written' ? null : h('div', {}, past[key] ? h('time', {}, moment(one[key])) : ''), h('div.note', {}, words(one))))));
}
