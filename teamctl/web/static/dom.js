// Elements and texts. Untrusted text is never parsed as HTML: only text nodes and attributes are set.

const CONTROLS = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const HARMLESS = new Set(['\n', '\t', '\u200c', '\u200d']); // emoji and Persian need the joiners

// Escape characters that would hide or reorder text, as on the terminal.
export function plain(text) {
  return String(text ?? '').replace(CONTROLS, (one) => {
    if (HARMLESS.has(one)) return one;
    const code = one.codePointAt(0).toString(16);
    return code.length > 2 ? `\\u${code.padStart(4, '0')}` : `\\x${code.padStart(2, '0')}`;
  });
}

// Make an element: facts named `on…` are listeners, others attributes; children are elements or texts.
export function h(tag, facts = {}, ...children) {
  const [kind, ...classes] = tag.split('.');
  const made = document.createElement(kind);
  if (classes.length) made.className = classes.join(' ');
  dress(made, facts);
  made.append(...nodes(children));
  return made;
}

export function svg(tag, facts = {}, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  dress(made, facts);
  made.append(...nodes(children));
  return made;
}

function dress(made, facts) {
  for (const [name, value] of Object.entries(facts)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? '' : plain(value));
  }
}

function nodes(children) {
  return children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false)
    .map((one) => (one instanceof Node ? one : document.createTextNode(plain(one))));
}

export function fill(element, ...children) {
  const made = element.cloneNode(false);
  made.append(...nodes(children));
  morph(element, made);
}

const KEPT = new Set(['open', 'value', 'selected', 'checked', 'hidden']); // the person may have changed them

// Change `old` into `made`, node by node, so that unchanged nodes keep focus and selection. Items
// of a list have a `data-key`. The listeners of `old` stay, so they must depend only on names.
export function morph(old, made) {
  const other = old.nodeName !== made.nodeName || (old.nodeName === 'BUTTON' && (old.textContent !== made.textContent || old.dataset.key !== made.dataset.key));
  if (other) {
    old.replaceWith(made);
    return;
  }
  if (old.dataset?.stamp && old.dataset.stamp === made.dataset.stamp) return;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== made.data) old.data = made.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!KEPT.has(name) && !made.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of [...made.attributes]) {
    if (!KEPT.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.nodeName !== 'TEXTAREA') children(old, made);
}

function children(old, made) {
  const keyed = new Map([...old.children].filter((one) => one.dataset.key).map((one) => [one.dataset.key, one]));
  let at = old.firstChild;
  for (const one of [...made.childNodes]) {
    const key = one.dataset?.key;
    const same = key ? keyed.get(key) : at && !at.dataset?.key && at.nodeName === one.nodeName && at;
    if (!same) {
      old.insertBefore(one, at);
      continue;
    }
    if (same === at) at = at.nextSibling;
    else old.insertBefore(same, at);
    keyed.delete(key);
    morph(same, one);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

let built = 0;

// A part of a view that is expensive to draw: built again only for another version.
export function steady(build) {
  built += 1;
  const key = built;
  return (version, ...facts) => {
    const stamp = `${key} ${version}`;
    const there = document.querySelector(`[data-stamp=${JSON.stringify(stamp)}]`);
    return h('div', { 'data-key': `steady ${key}`, 'data-stamp': stamp }, there ? null : build(...facts));
  };
}

// A value by a name that an agent or a person chose: "constructor" is the name of a teammate, too.
export const own = (object, name) => (object && Object.hasOwn(object, name) ? object[name] : undefined);

// A text with commands in backquotes.
export const coded = (text) => String(text).split('`').map((part, n) => (n % 2 ? h('code', {}, part) : part));

export const table = (label, heads, body) => h('div.scroll', { tabindex: 0, role: 'region', 'aria-label': label },
  h('table', {}, h('thead', {}, h('tr', {}, heads.map((one) => h(NUMBERS.has(one) ? 'th.number' : 'th', { scope: 'col' }, one)))), body));

const NUMBERS = new Set(['Context', 'Cost', 'Mail', 'Turns', 'CPU', 'Memory', 'Calls', 'In', 'From cache', 'To cache', 'Out', 'Tokens', 'Of the nearest limit']);

export const row = (key, cells, heads, facts = {}) => h('tr', { 'data-key': key, ...facts },
  cells.map((cell, n) => h(n ? (NUMBERS.has(heads[n]) ? 'td.number' : 'td') : 'th', { 'data-head': heads[n], scope: n ? null : 'row' }, cell)));

export const field = (label, input, facts = {}) => h('label', facts, h('span', {}, label), input);

export const button = (text, act, facts = {}) => h('button', { type: 'button', onclick: act, ...facts }, text);

// Icons of 16 units, drawn with one line.
const ICONS = {
  overview: 'M2 2h5v6H2zM9 2h5v3H9zM9 8h5v6H9zM2 11h5v3H2z', chat: 'M2 3h12v8H7l-3 3v-3H2z', mail: 'M2 3h12v10H2zM2 4l6 5 6-5', board: 'M2 2h3v12H2zM6.5 2h3v8h-3zM11 2h3v5h-3z',
  queue: 'M4 2v12M4 6c0 4 8 1 8 6M12 2v4M2 4l2-2 2 2M10 10l2 2 2-2', changes: 'M4 2h6l3 3v9H4zM6.5 8h4M8.5 6v4M6.5 12h4', usage: 'M2 14h12M3.5 11V8M8 11V3M12.5 11V6', log: 'M2 4h12M2 8h12M2 12h8', help: 'M5.5 6a2.5 2.5 0 1 1 3.5 2.300c-.8.4-1 .9-1 1.700M8 12.5v.5',
  play: 'M5 3l7 5-7 5z', circle: 'M8 3.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9', hand: 'M8 2.5v7M8 12v1', pause: 'M5.5 3v10M10.5 3v10', cross: 'M4 4l8 8M12 4l-8 8', square: 'M4 4h8v8H4z', check: 'M3 8.5l3.5 3.5L13 4.5',
  bell: 'M4 11V7a4 4 0 0 1 8 0v4l1 1.5H3zM7 14h2', plus: 'M8 3v10M3 8h10', search: 'M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9M10.5 10.5L14 14', send: 'M2 8l12-5-4 11-3-5z', link: 'M6 10l4-4M7 4l2-2 5 5-2 2M9 12l-2 2-5-5 2-2',
};

export const icon = (name) => svg('svg', { class: 'icon', viewBox: '0 0 16 16', 'aria-hidden': 'true', 'data-icon': name }, svg('path', { d: ICONS[name] ?? ICONS.circle }));

const HUES = ['cyan', 'magenta', 'green', 'yellow', 'blue', 'red'];

// The colour of a teammate: that of the roster, otherwise one of its name.
export function hue(name, members = []) {
  if (name === 'user' || name === 'you') return 'you';
  const own = members.find((one) => one.name === name)?.color;
  if (HUES.includes(own)) return `${own}${members.filter((one) => one.color === own).findIndex((one) => one.name === name) % 2 ? '2' : ''}`;
  return HUES[[...String(name)].reduce((sum, one) => (sum * 31 + one.codePointAt(0)) % 997, 7) % HUES.length];
}

export const avatar = (name, members, big = false) => h(`span.avatar.hue-${hue(name, members)}${big ? '.big' : ''}`, { 'aria-hidden': 'true' }, initial(name));

// The first letter of a name, and its number if it ends with one.
export const initial = (name) => `${[...String(name || '?')][0].toUpperCase()}${/\d{1,2}$/.exec(name ?? '')?.[0] ?? ''}`;

// An empty state: the fact, and the next step.
export const empty = (text, ...next) => h('div.empty', {}, h('p', {}, text), next.length ? h('p.note', {}, next.map((one) => (typeof one === 'string' ? coded(one) : one))) : null);

export const head = (title, ...more) => h('div.head', {}, h('h1', {}, title), more.length ? h('div.actions', {}, more) : null);

export const card = (title, ...content) => h('section.card', {}, title ? h('h2', {}, title) : null, content);

// A group of buttons of which one is chosen.
export const segments = (label, words, chosen, pick) => h('div.segments', { role: 'group', 'aria-label': label },
  Object.entries(words).map(([key, text]) => button(text, () => pick(key), { 'data-key': key, 'aria-pressed': String(key === chosen) })));

// Addresses of the page; those of another team begin with its key.
let prefix = '';
export const setTeam = (key) => { prefix = key ? `team-${key}/` : ''; };
export const to = (view, argument = '') => `#/${prefix}${view}${argument === '' ? '' : `/${encodeURIComponent(argument)}`}`;
