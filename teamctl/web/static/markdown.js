// Markdown as DOM nodes. Text is never parsed as HTML; only http, https and mail addresses are links.
import { h } from './dom.js';

const MOST = 20000; // characters; the rest is shown as it is
const DEEP = 4; // levels of quotes and emphasis

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}>\s?(.*)$/;

export function markdown(text) {
  const whole = String(text ?? '');
  const rest = whole.slice(MOST);
  return h('div.md', {}, blocks(whole.slice(0, MOST).split('\n'), 0), rest ? h('pre', {}, rest) : null);
}

function blocks(lines, depth) {
  const made = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    if (!line.trim()) at += 1;
    else if (fence) {
      let end = at + 1;
      while (end < lines.length && !lines[end].trim().startsWith(fence[1])) end += 1;
      made.push(h('pre', {}, h('code', {}, lines.slice(at + 1, end).join('\n'))));
      at = end + 1;
    } else if (heading) {
      made.push(h(`h${Math.min(6, heading[1].length + 2)}`, {}, spans(heading[2], 0)));
      at += 1;
    } else if (RULE.test(line)) {
      made.push(h('hr'));
      at += 1;
    } else if (QUOTE.test(line) && depth < DEEP) {
      const from = at;
      while (at < lines.length && QUOTE.test(lines[at])) at += 1;
      made.push(h('blockquote', {}, blocks(lines.slice(from, at).map((one) => QUOTE.exec(one)[1]), depth + 1)));
    } else if (ITEM.test(line)) {
      const from = at;
      while (at < lines.length && (ITEM.test(lines[at]) || (lines[at].trim() && /^\s/.test(lines[at])))) at += 1;
      made.push(list(lines.slice(from, at), depth));
    } else {
      const from = at;
      at += 1;
      while (at < lines.length && lines[at].trim() && !(FENCE.test(lines[at]) || HEADING.test(lines[at]) || RULE.test(lines[at]) || QUOTE.test(lines[at]) || ITEM.test(lines[at]))) at += 1;
      made.push(h('p', {}, spans(lines.slice(from, at).join('\n'), 0)));
    }
  }
  return made;
}

// A list; lines with more indent than its first item belong to the item above them.
function list(lines, depth) {
  const [, indent, sign] = ITEM.exec(lines[0]);
  const items = [];
  for (const line of lines) {
    const found = ITEM.exec(line);
    if (found && (found[1].length <= indent.length || !items.length)) items.push([found[3]]);
    else items.at(-1).push(line.replace(new RegExp(`^ {0,${indent.length + 2}}`), ''));
  }
  const inner = ([first, ...more]) => h('li', {}, spans(first, 0), more.length ? (depth < DEEP ? blocks(more, depth + 1) : more.join('\n')) : null);
  return h(/\d/.test(sign) ? 'ol' : 'ul', /\d/.test(sign) ? { start: parseInt(sign, 10) } : {}, items.map(inner));
}

// The first of: code, link, bare address, strong, emphasis.
const SPAN = /(`{1,3})((?:(?!`{2})[\s\S]){1,1000}?)\1(?!`)|\[([^\][\n]{1,500})\]\(([^()\s]{1,2000})\)|(https?:\/\/[^\s<>"'`)\]]{1,2000})|\*\*(?=\S)([^*\n]{1,2000}?)(?<=\S)\*\*|(?<![\w*])[*_](?=[^\s*_])([^*_\n]{1,2000}?)(?<=\S)[*_](?![\w*])/;

function spans(text, depth) {
  const made = [];
  let rest = text;
  for (let found = SPAN.exec(rest); found && depth < DEEP; found = SPAN.exec(rest)) {
    const [all, , code, label, address, bare, strong, emphasis] = found;
    if (found.index) made.push(rest.slice(0, found.index));
    if (code !== undefined) made.push(h('code', {}, code));
    else if (label !== undefined) made.push(anchor(label, address, depth));
    else if (bare !== undefined) made.push(anchor(bare, bare, DEEP));
    else if (strong !== undefined) made.push(h('strong', {}, spans(strong, depth + 1)));
    else made.push(h('em', {}, spans(emphasis, depth + 1)));
    rest = rest.slice(found.index + all.length);
  }
  return rest ? [...made, rest] : made;
}

// A link to the web, or the text with its address beside it.
function anchor(label, address, depth) {
  const safe = /^(https?:\/\/|mailto:)/i.test(address) && URL.canParse(address);
  const words = spans(label, depth + 1);
  if (!safe) return [words, ' (', h('code', {}, address), ')'];
  return h('a', { href: address, rel: 'noopener noreferrer', target: '_blank', title: address }, words);
}
