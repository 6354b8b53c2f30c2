// Actions from the page: confirmed first if they cannot be undone, and reported when done.
import { act } from './api.js';
import { button, fill, h } from './dom.js';

let quiet = 0;

// Show a message; screen readers announce it.
export function announce(text, bad = false) {
  const said = document.getElementById('said');
  clearTimeout(quiet);
  said.className = bad ? 'bad' : '';
  fill(said, text);
  if (!bad) quiet = setTimeout(() => fill(said), 15000);
}

// Remove the error of the view that is left.
export function forgive() {
  const said = document.getElementById('said');
  if (said.className === 'bad') fill(said);
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

export const doing = (what, facts) => attempt(() => act(what, facts));

// Show a dialog; return the text of the button that closed it, or an empty string.
export function ask(title, content, words) {
  const dialog = document.getElementById('dialog');
  return new Promise((done) => {
    const close = (word) => () => { dialog.close(word); };
    dialog.replaceChildren(h('h2', { id: 'asked' }, title), ...content, h('p.bar', {}, words.map((word) => button(word, close(word)))));
    dialog.addEventListener('close', () => { done(dialog.returnValue); }, { once: true });
    dialog.returnValue = '';
    dialog.showModal();
  });
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
  return (await ask(question, [], [word, 'Cancel'])) === word;
}

// A form whose fields are sent as an action, unless `why` gives a reason against it.
export function form(label, fields, word, what, values, why = '') {
  const send = async (event) => {
    event.preventDefault();
    const sent = event.target;
    const { title } = sent.querySelector('button');
    if (title) {
      announce(title, true);
      return;
    }
    const found = Object.fromEntries([...new FormData(sent)].map(([key, value]) => [key, value === 'on' ? true : value]));
    if (!await doing(what, values(found))) return;
    sent.reset();
    before = '';
  };
  return h('form', { onsubmit: send, 'aria-label': label }, fields, h('button', off(why), word));
}

// A repeated message keeps its key, so that it arrives once.
let key = '';
let before = '';

export function once(facts) {
  const text = JSON.stringify(facts);
  if (text !== before) [key, before] = [crypto.randomUUID(), text];
  return { ...facts, key };
}
