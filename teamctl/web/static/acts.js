// What is done from the page: asked first where it cannot be undone, and said when it is done.
import { act } from './api.js';
import { button, fill, h } from './dom.js';

let quiet = 0;

// Say something to everybody, also to those who do not see the page.
export function announce(text, bad = false) {
  const said = document.getElementById('said');
  clearTimeout(quiet);
  said.className = bad ? 'bad' : '';
  fill(said, text);
  if (!bad) quiet = setTimeout(() => fill(said), 15000);
}

// An error is of the view that it came in.
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

// Show a dialog; return the word of the button that closed it, or nothing.
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

// A button that stays where it is while it can do nothing, and says why.
export function able(text, act, why, facts = {}) {
  const press = (event) => {
    const { title } = event.currentTarget; // as it is now: a listener stays when a button is drawn anew
    if (title) announce(title, true);
    else act(event);
  };
  return button(text, press, { ...facts, ...off(why) });
}

const off = (why) => (why ? { 'aria-disabled': 'true', title: why } : {});

export async function confirmed(question, word) {
  return (await ask(question, [], [word, 'Cancel'])) === word;
}

// A form whose fields are sent as they are, unless there is a reason why that cannot be.
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

// A message keeps its id while it is sent again, so that it arrives once.
let key = '';
let before = '';

export function once(facts) {
  const text = JSON.stringify(facts);
  if (text !== before) [key, before] = [crypto.randomUUID(), text];
  return { ...facts, key };
}
