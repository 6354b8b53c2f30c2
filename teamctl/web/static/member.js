// One teammate: its live conversation, mail, log, changes and limits, and the actions on it.
import { get } from './api.js';
import { able, announce, ask, confirmed, doing, form } from './acts.js';
import { button, h } from './dom.js';
import { ago, clock, count, percent, state, usd } from './format.js';
import { latest, messages } from './mail.js';
import { doing as does, refusal, sendTo } from './overview.js';

const TABS = { transcript: 'Transcript', mail: 'Mail', log: 'Log', diff: 'Changes', limits: 'Limits' };

export function member({ known, argument, redraw }) {
  const [name, wanted] = argument.split('|');
  let tab = TABS[wanted] ? wanted : 'transcript';
  let shown = TAB[tab]({ known, name, redraw });
  const pick = (next) => () => {
    shown.close?.();
    tab = next;
    history.replaceState(null, '', `#/member/${encodeURIComponent(`${name}|${tab}`)}`);
    shown = TAB[tab]({ known, name, redraw });
    redraw();
  };
  return {
    told: (part) => shown.told?.(part),
    close: () => shown.close?.(),
    draw() {
      const one = (known.team.members ?? []).find((other) => other.name === name);
      if (!one) return [h('h2', {}, name), h('p', {}, 'Nobody of that name is in the team.')];
      return [
        h('h2', {}, one.name, ' ', h('span.note', {}, one.role)),
        h('p', {}, state(one.state), ' for ', ago(one.since), does(one, known.team) ? [': ', h('code', {}, does(one, known.team))] : null),
        h('p.note', {}, `context ${percent(one.context)} · ${usd(one.usd)} · ${count(one.turns)} turns · ${one.queued ?? '?'} in the inbox`),
        known.may && h('div', { 'data-key': 'acts' }, acts(one, known)),
        known.may && h('div', { 'data-key': 'send' }, sendTo(name)),
        h('p.bar', { 'data-key': 'tabs', role: 'group', 'aria-label': `What to see of ${name}` }, Object.entries(TABS).map(([key, title]) => button(title, pick(key), { 'aria-pressed': String(key === tab) }))),
        h('div', { 'data-key': `tab ${tab}` }, shown.draw()),
      ];
    },
  };
}

function acts(one, known) {
  const { name, state: status } = one;
  const end = async () => {
    if (await confirmed(`Ask ${name} to end? It keeps its conversation.`, 'Shut down')) doing('shutdown', { name });
  };
  const stop = async () => {
    const input = h('input', { type: 'text', id: 'next', autocomplete: 'off' });
    const idle = known.team.members.find((other) => other.name === name)?.state === 'idle';
    const text = h('label', {}, h('span', {}, idle ? 'It is idle; what it reads now ' : 'What it reads next (may be empty) '), input);
    if (await ask(`Break off the turn of ${name}?`, [h('p', {}, text)], ['Interrupt', 'Cancel']) === 'Interrupt') doing('interrupt', { name, text: input.value });
  };
  const why = refusal(known.team, one);
  const hold = status === 'paused' ? ['Resume', 'resume'] : ['Pause', 'pause'];
  return [
    h('p.bar', {}, able('Interrupt', stop, why), able(hold[0], () => doing(hold[1], { name }), why),
      able('Shut down', end, refusal(known.team, one, ['shutdown']))),
    why ? h('p.note', {}, why) : null,
  ];
}

// The lines of a growing file: its end first, earlier lines on demand, new lines as they come.
function growing(what, sizes, draw) {
  return ({ known, name, redraw }) => {
    let [start, end, found] = [0, -1, []];
    let near = true;
    const add = (answer, above) => {
      near = above ? false : innerHeight + scrollY >= document.body.scrollHeight - 80;
      if (above) [start, found] = [answer.start, [...answer.records, ...found]];
      else if (end < 0 || answer.start !== end) [start, end, found] = [answer.start, answer.end, answer.records];
      else [end, found] = [answer.end, [...found, ...answer.records].slice(-5000)];
      redraw();
      if (near && end > 0) requestAnimationFrame(() => requestAnimationFrame(() => scrollTo({ top: document.body.scrollHeight })));
    };
    const look = latest(() => get(what, end < 0 ? { name } : { name, behind: end }), (answer) => {
      if (end < 0 || answer.end !== end) add(answer, false);
      if (answer.end < (known.sizes?.[sizes]?.[name] ?? 0) && answer.records.length) look();
    });
    const above = () => get(what, { name, before: start }).then((answer) => add(answer, true), (error) => announce(error.message, true));
    look();
    return {
      told: (part) => part === 'sizes' && (known.sizes?.[sizes]?.[name] ?? 0) !== end && look(),
      draw: () => [
        start > 0 ? button('Earlier', above) : null,
        end < 0 ? h('p', {}, 'Loading …') : found.length ? draw(found, name) : h('p', {}, 'Nothing yet.'),
      ],
    };
  };
}

// The note of the bash tool below the output of a failed command.
const ENDED = /^\[(exit status \d+|killed by [^\]]+|ended after [^,\]]+|all of it was ended)/m;

function outcome(result) {
  if (result.is_error) return '✗ failed';
  const ended = ENDED.exec(String(result.content ?? '').slice(-1000));
  return ended ? `✗ ${ended[1]}` : '✓';
}

function transcript(found, name) {
  const results = new Map(found.filter((one) => one.record === 'result').map((one) => [one.tool_use_id, one]));
  const starts = new Map(found.filter((one) => one.record === 'started').map((one) => [one.tool_use_id, one.time]));
  const calls = new Set();
  const call = (block) => {
    calls.add(block.id);
    const result = results.get(block.id);
    const began = starts.get(block.id);
    const took = result && began ? ` ${(result.time - began).toFixed(1)} s` : '';
    const sign = result ? outcome(result) : '… under way';
    return h('details.call', { 'data-key': block.id }, h('summary', {}, h('strong', {}, block.name), ' ', h('code.cut', {}, short(block.input)), h('span.note', {}, ` ${sign}${took}`)),
      input(block), result ? h(`pre${result.is_error ? '.bad' : ''}`, {}, result.content) : null);
  };
  const entry = (one, n) => {
    const key = `${one.record} ${one.time} ${one.tool_use_id ?? n}`;
    const at = h('time.note', {}, clock(one.time));
    switch (one.record) {
      case 'mail': return h('li.card.in', { 'data-key': key }, (one.messages ?? []).map((mail) => [h('p', {}, at.cloneNode(true), ' ', h('strong', {}, `${mail.from} → ${name}`), mail.type === 'message' ? null : h('span.tag', {}, mail.type)), h('pre', {}, mail.content)]));
      case 'reply': return h('li', { 'data-key': key }, h('p', {}, at, ' ', h('strong', {}, name)), (one.content ?? []).map((block) => (block.type === 'text' ? h('pre', {}, block.text) : block.type === 'thinking' ? (block.thinking ? h('pre.note', {}, block.thinking) : null) : block.type === 'tool_use' ? call(block) : null)));
      case 'result': return calls.has(one.tool_use_id) ? null : h('li', { 'data-key': key }, h('details.call', {}, h('summary', {}, one.is_error ? 'A result ✗ failed' : 'A result'), h('pre', {}, one.content)));
      case 'note': case 'news': return h('li.note', { 'data-key': key }, at, h('pre', {}, one.text));
      case 'summary': return h('li', { 'data-key': key }, h('details', {}, h('summary', {}, at, ' its context was full: it goes on from a summary'), h('pre', {}, one.text), h('pre', {}, one.restated)));
      case 'opened': return h('li.note', { 'data-key': key }, at, ' a new conversation');
      case 'ended': return one.outcome === 'end_turn' ? null : h('li', { 'data-key': key }, at, h('strong', {}, ` ${one.outcome}${one.text ? ': ' : ''}`), one.text);
      default: return null;
    }
  };
  return h('ol.plain.talk', {}, found.map(entry));
}

const short = (given) => {
  const values = Object.values(given ?? {});
  return String(values.length && typeof values[0] === 'string' ? values[0] : JSON.stringify(given)).split('\n')[0].slice(0, 160);
};

// The input of a call: an edit as removed and added lines, other inputs as they are.
function input({ name, input: given = {} }) {
  const lines = (text, sign, kind) => String(text ?? '').split('\n').map((line) => h(`span.${kind}`, {}, `${sign} ${line}\n`));
  if (name === 'edit_file') return [h('p', {}, h('code', {}, given.path)), h('pre', {}, lines(given.old_text, '-', 'del'), lines(given.new_text, '+', 'add'))];
  return Object.entries(given).map(([key, value]) => [h('p.note', {}, key), h('pre', {}, typeof value === 'string' ? value : JSON.stringify(value, null, 1))]);
}

const log = (found) => h('ol.plain.log', {}, found.map((one, n) => {
  const { time, level, event, who, traceback, ...facts } = one;
  const rest = Object.entries(facts).map(([key, value]) => `${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`).join(' ');
  return h(`li${level === 'error' ? '.bad' : ''}`, { 'data-key': `${time} ${n}` }, h('time.note', {}, time), ' ', h('strong', {}, event), ` ${rest}`, traceback ? h('pre', {}, traceback) : null);
}));

function own({ name, redraw }) {
  let found = null;
  const look = latest(() => get('mail', { words: name }), (answer) => {
    found = answer.messages.filter((one) => one.to === name || one.from === name);
    redraw();
  });
  look();
  return { told: (part) => part === 'mail' && look(), draw: () => (found ? messages(found) : h('p', {}, 'Loading …')) };
}

function diff({ known, name, redraw }) {
  let found = null;
  let trouble = '';
  const member = (known.team?.members ?? []).find((one) => one.name === name);
  if (member && !member.worktree) return { draw: () => h('p', {}, `${name} has no working copy of its own; it works in the folder of the team.`) };
  const look = () => get('diff', { name }).then((answer) => { [found, trouble] = [answer, '']; }, (error) => { trouble = error.message; }).then(redraw);
  look();
  return {
    draw: () => [
      button('Look again', look), trouble && h('p.bad', {}, trouble),
      found ? [h('p.note', {}, `${files(found.diff).length} files changed on ${found.branch}`), files(found.diff).map(file), found.cut ? h('p', {}, 'The rest is cut; `teamctl diff` shows it.') : null] : trouble ? null : h('p', {}, 'Loading …'),
    ],
  };
}

const files = (text) => text.split(/^(?=diff --git )/m).filter((one) => one.startsWith('diff --git '));

function file(text) {
  const lines = text.split('\n');
  const named = (/^diff --git (?:"?a\/.*?"? )"?b\/(.*?)"?$/.exec(lines[0]) ?? [])[1] ?? lines[0];
  const [add, del] = ['+', '-'].map((sign) => lines.filter((line) => line.startsWith(sign) && !line.startsWith(sign.repeat(3))).length);
  const kind = (line) => (line.startsWith('+') ? 'add' : line.startsWith('-') ? 'del' : line.startsWith('@@') ? 'note' : 'same');
  return h('details', { 'data-key': named }, h('summary', {}, h('code', {}, named), ` +${add} −${del}`), h('pre', {}, lines.slice(1).map((line) => h(`span.${kind(line)}`, {}, `${line}\n`))));
}

function limits({ known, name }) {
  return {
    draw() {
      const used = (known.usage?.members ?? []).find((one) => one.name === name);
      const one = (known.team?.members ?? []).find((other) => other.name === name);
      const why = refusal(known.team ?? {}, one) || (one?.state === 'paused' ? '' : `No limit stops ${name}: it is ${one?.state}.`);
      const fields = h('label', {}, h('span', {}, 'Raise the limits on money by $ '), h('input', { name: 'usd', type: 'number', min: '0.01', step: '0.01', required: true }));
      return [
        used?.limits?.length ? h('ul', {}, used.limits.map((one) => h('li', {}, `${one.name}: ${percent(one.share)} of ${one.name.includes('usd') ? usd(one.most) : count(one.most)}`))) : h('p', {}, 'No limit is set for it alone; [limits] in team.toml sets one.'),
        used && h('p', {}, `${count(used.tokens)} tokens, ${usd(used.usd)} in ${used.calls} calls`),
        known.may && form(`Raise the limit of ${name}`, fields, 'Raise and resume', 'resume', ({ usd: more }) => ({ name, usd: Number(more) }), why),
        known.may && why && h('p.note', {}, why),
      ];
    },
  };
}

const TAB = { transcript: growing('transcript', 'transcripts', transcript), mail: own, log: growing('log', 'logs', log), diff, limits };
