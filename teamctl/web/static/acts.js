// Actions from the page: confirmed first if they cannot be undone, and reported when done.
import { act } from './api.js';
import { button, fill, h } from './dom.js';

let quiet = 0;
const $ = (id) => document.getElementById(id);

// Show a message; screen readers announce it.
export function announce(text, bad = false) {
  const said = $('said');
  clearTimeout(quiet);
  said.className = bad ? 'bad' : '';
  fill(said, text);
  if (!bad) quiet = setTimeout(() => fill(said), 6000);
}

// Remove the message of the view that is left.
export function forgive() {
  fill($('said'));
}

export async function attempt(work, silent = false) {
  try {
    const text = await work();
    if (text && !silent) announce(text);
    return true;
  } catch (error) {
    if (!silent) announce(error.message, true);
    return false;
  }
}

export const perform = (what, facts) => attempt(() => deliver(what, facts));

// Show a dialog; return the text of the button that closed it, or an empty string.
export function ask(title, content, words, kind = 'primary') {
  const dialog = $('dialog');
  return new Promise((done) => {
    const close = (word) => () => { dialog.close(word); };
    const choices = words.map((word, n) => button(word, close(word), { class: n || words.length === 1 ? null : kind }));
    dialog.replaceChildren(h('h2', { id: 'asked' }, title), ...content, h('p.bar', {}, choices.reverse()));
    dialog.addEventListener('close', () => { done(dialog.returnValue); }, { once: true });
    dialog.returnValue = '';
    if (!dialog.open) dialog.showModal();
  });
}

// Show a form in a dialog until it is accepted, or other content until it is closed.
export function openDialog(title, content) {
  const dialog = $('dialog');
  const close = (word) => button(word, () => dialog.close(''), { class: 'plain' });
  dialog.replaceChildren(h('h2', { id: 'asked' }, title), content);
  if (content.matches('form')) content.append(h('div.bar', {}, close('Cancel'), content.lastElementChild));
  else dialog.append(h('p.bar', {}, close('Close')));
  if (!dialog.open) dialog.showModal();
}

// A button that is disabled, with the reason as its title, if `why` is not empty.
export function able(text, act, why, facts = {}) {
  const press = (event) => {
    const { title } = event.currentTarget; // the present title, because a redrawn button keeps its listener
    if (title) announce(title, true);
    else act(event);
  };
  return button(text, press, { ...facts, ...off(why) });
}

const off = (why) => (why ? { 'aria-disabled': 'true', title: why } : {});

export async function confirmed(question, word) {
  return (await ask(question, [], [word, 'Cancel'], 'danger')) === word;
}

// A form whose fields are sent as an action, unless `why` gives a reason against it.
export function form(label, fields, word, what, values, why = '') {
  const send = async (event) => {
    event.preventDefault();
    const sent = event.target;
    const { title } = sent.querySelector('button.primary');
    if (title) {
      announce(title, true);
      return;
    }
    const found = Object.fromEntries([...new FormData(sent)].map(([key, value]) => [key, value === 'on' ? true : value]));
    if (!await perform(what, values(found))) return;
    sent.reset();
    sent.closest('dialog')?.close('');
  };
  return h('form', { onsubmit: send, 'aria-label': label }, fields, h('button.primary', off(why), word));
}

const keys = new Map(); // of the messages that are not known to have arrived, by their facts

// A message keeps its key until the server answers, so that a repeat arrives once.
export function once(facts) {
  const text = JSON.stringify(facts);
  if (!keys.has(text)) keys.set(text, crypto.randomUUID());
  return { ...facts, key: keys.get(text) };
}

// Send an action; raises the server's refusal.
export async function deliver(what, { key, ...facts }) {
  const text = await act(what, { ...facts, key });
  keys.delete(JSON.stringify(facts));
  return text;
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

// The same, at most once in some milliseconds, for answers that take the server a while.
export function seldom(look, pause) {
  let due = 0;
  return {
    look: () => { due ||= setTimeout(() => { due = 0; look(); }, pause); },
    close: () => clearTimeout(due),
  };
}
