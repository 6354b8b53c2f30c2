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
  const other = old.nodeName !== made.nodeName || (old.nodeName === 'BUTTON' && old.textContent !== made.textContent);
  if (other) {
    old.replaceWith(made);
    return;
  }
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

export const table = (label, heads, body) => h('div.scroll', { tabindex: 0, role: 'region', 'aria-label': label },
  h('table', {}, h('thead', {}, h('tr', {}, heads.map((one) => h('th', { scope: 'col' }, one)))), body));

export const field = (label, input) => h('label', {}, h('span', {}, label), input);

export const button = (text, act, facts = {}) => h('button', { type: 'button', onclick: act, ...facts }, text);
