// Diffs by file and line. With `remarks`, each changed line takes a comment.
import { button, coded, h } from './dom.js';
import { many } from './format.js';

const MOST = 4000; // lines of one file

const START = /(?:^|(?<=\n))(?=diff --git )/; // only "\n" ends a line: an agent chooses all other characters
const NAMES = /^(?:index |--- |\+\+\+ )/; // lines of a head that its summary repeats

// The files of a diff, and the sentences before the first of them.
export function parse(text) {
  const parts = text.split(START);
  const before = parts[0]?.startsWith('diff --git ') ? '' : parts.shift() ?? '';
  const files = parts.map((one) => {
    const lines = one.split('\n');
    if (lines.at(-1) === '') lines.pop();
    const named = (/^diff --git (?:"?a\/.*?"? )"?b\/(.*?)"?$/.exec(lines[0]) ?? [])[1] ?? lines[0];
    const first = lines.findIndex((line) => line.startsWith('@@ '));
    const [add, del] = ['+', '-'].map((sign) => (first < 0 ? 0 : lines.slice(first).filter((line) => line.startsWith(sign)).length));
    return { named, lines, add, del };
  });
  return { before: before.trimEnd(), files };
}

export function files(found, remarks = null) {
  const { before, files: parsed } = found.parsed ?? parse(found.diff);
  return [
    before && h('pre.note', {}, before),
    parsed.length || !before ? h('p.note', {}, parsed.length ? `${many(parsed.length, 'file')} changed` : 'Nothing has changed.') : null,
    parsed.map((one) => h('details.file', { 'data-key': `${found.name} ${one.named}`, open: parsed.length <= 10 },
      h('summary', {}, h('code', {}, one.named), h('span.plus', {}, `+${one.add}`), h('span.minus', {}, `−${one.del}`)), h('div.diff', {}, lines(found.name, one, remarks)))),
    found.cut && h('p.note', {}, coded(found.cut)),
  ];
}

const KINDS = { '+': 'add', '-': 'del', '@': 'at' };

function lines(name, { named, lines: all }, remarks) {
  let [number, inside] = [0, false];
  const made = [];
  for (const text of all.slice(1, MOST)) {
    const hunk = /^@@ -\d+(?:,\d+)? \+(\d+)/.exec(text);
    if (hunk) [number, inside] = [Number(hunk[1]) - 1, true];
    if (!inside && NAMES.test(text)) continue;
    if (inside && !hunk && !text.startsWith('-') && !text.startsWith('\\')) number += 1;
    const key = `${name}\n${named}\n${number}\n${text}`;
    const side = inside && !hunk && !text.startsWith('-') ? number : '';
    made.push(h(`div.line.${KINDS[text[0]] && inside ? KINDS[text[0]] : 'same'}`, {},
      remarks && side ? button(String(side), () => remarks.open(key), { 'data-key': text, 'aria-label': `Comment on line ${side} of ${named}` }) : h('span', {}, String(side)), h('span.text', {}, text)));
    if (remarks) made.push(remarks.draw(key, { name, named, number: side, line: text }));
  }
  if (all.length > MOST) made.push(h('p.note', {}, `… ${all.length - MOST} more lines`));
  return made;
}
