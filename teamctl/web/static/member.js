// One teammate: its views, and the actions on it.
import { get } from './api.js';
import { able, ask, confirmed, form, latest, perform, seldom } from './acts.js';
import { avatar, card, coded, empty, h, own, segments, to } from './dom.js';
import { ago, count, percent, state, usd } from './format.js';
import { meter } from './charts.js';
import { conversation } from './conversation.js';
import { files } from './diff.js';
import { growing } from './growing.js';
import { messages } from './mail.js';
import { activity, refusal, sendTo } from './overview.js';

const TABS = { transcript: 'Conversation', mail: 'Mail', diff: 'Changes', limits: 'Limits', log: 'Log' };

export function member({ known, argument, redraw }) {
  const [name, wanted, at] = argument.split('|');
  let tab = own(TABS, wanted) ? wanted : 'transcript';
  let shown = TAB[tab]({ known, name, redraw, at: Number(at) || 0 });
  const pick = (next) => {
    shown.close?.();
    tab = next;
    history.replaceState(null, '', to('member', `${name}|${tab}`));
    shown = TAB[tab]({ known, name, redraw });
    redraw();
  };
  return {
    told: (part) => shown.told?.(part),
    close: () => shown.close?.(),
    draw() {
      const { members } = known.team;
      const one = members.find((other) => other.name === name);
      if (!one) return [h('div.head', {}, h('h1', {}, name)), card('', empty('Nobody of that name is in the team.', h('a', { href: to('') }, 'The overview'), ' lists everybody.'))];
      const why = refusal(known.team, one);
      return [
        h('div.stuck', {},
          h('div.head', {}, avatar(one.name, members, true), h('h1', {}, one.name, ' ', h('span.note', {}, one.role)), known.may && h('div.actions', { 'data-key': 'acts' }, acts(one, known))),
          h('p.status', {}, state(one.state), ' for ', ago(one.since), activity(one, known.team) ? h('code', {}, activity(one, known.team)) : null, h('span', {}, `· context ${percent(one.context)} · ${usd(one.usd)} · ${count(one.turns)} turns · ${one.queued ?? '?'} in the inbox`)),
          known.may && why && h('p.note', {}, coded(why)),
          h('div', { 'data-key': 'tabs' }, segments(`What to see of ${name}`, TABS, tab, pick))),
        h('div', { 'data-key': `tab ${tab}`, class: tab === 'transcript' ? 'narrow' : null }, shown.draw()),
        known.may && tab === 'transcript' && h('div.composer.narrow', { 'data-key': 'send' }, sendTo(name)),
      ];
    },
  };
}

function acts(one, known) {
  const { name, state: status } = one;
  const end = async () => {
    if (await confirmed(`Ask ${name} to end? It keeps its conversation.`, 'Shut down')) perform('shutdown', { name });
  };
  const stop = async () => {
    const input = h('input', { id: 'next', autocomplete: 'off' });
    const idle = known.team.members.find((other) => other.name === name)?.state === 'idle';
    const text = h('label', {}, h('span', {}, idle ? 'It is idle; what it reads now ' : 'What it reads next (may be empty) '), input);
    if (await ask(`Break off the turn of ${name}?`, [text], ['Interrupt', 'Cancel']) === 'Interrupt') perform('interrupt', { name, text: input.value });
  };
  const why = refusal(known.team, one);
  const hold = status === 'paused' ? ['Resume', 'resume'] : ['Pause', 'pause'];
  return [able('Interrupt', stop, why), able(hold[0], () => perform(hold[1], { name }), why), able('Shut down', end, refusal(known.team, one, ['shutdown']), { class: 'danger' })];
}

function transcript({ known, name, redraw, at = 0 }) {
  return growing('transcript', 'transcripts', { known, name, redraw, at }, (found) => conversation(found, name, known.team.members, at));
}

function log({ known, name, redraw }) {
  const grown = growing('log', 'logs', { known, name, redraw }, lines);
  return { told: grown.told, draw: () => card('', grown.draw()) };
}

const lines = (found) => h('ol.plain.lines', {}, found.map((one, n) => {
  const { time, level, event, who, traceback, ...facts } = one;
  const rest = Object.entries(facts).map(([key, value]) => `${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`).join(' ');
  return h(`li${level === 'error' ? '.bad' : ''}`, { 'data-key': `${time} ${n}` }, h('time.note', {}, time), ' ', h('strong', {}, event), ` ${rest}`, traceback ? h('pre', {}, traceback) : null);
}));

function ownMail({ known, name, redraw }) {
  let found = null;
  const look = latest(() => get('mail', { name }), (answer) => { found = answer.messages; redraw(); });
  look();
  return { told: (part) => part === 'mail' && look(), draw: () => card('', !found ? h('p.empty', {}, 'Loading …') : found.length ? messages(found, known.team.members) : empty(`No mail from or to ${name} yet.`)) };
}

function diff({ known, name, redraw }) {
  let found = null;
  let trouble = '';
  const entry = (known.roster?.members ?? []).find((other) => other.name === name);
  if (entry && !entry.worktree) return { draw: () => card('', empty(`${name} has no working copy of its own.`, 'It works in the folder of the team; `git diff` there shows all changes.')) };
  const look = latest(() => get('diff', { name }).then((answer) => { [found, trouble] = [answer, '']; }, (error) => { trouble = error.message; }), redraw);
  const pace = seldom(look, 2000);
  look();
  return {
    told: (part) => part === 'sizes' && pace.look(),
    close: pace.close,
    draw: () => [trouble && h('p.bad', {}, trouble), found ? [h('p.note', {}, `on ${found.branch} · `, h('a', { href: to('changes') }, 'comment on it in Changes')), files(found)] : trouble ? null : h('p.empty', {}, 'Loading …')],
  };
}

function limits({ known, name }) {
  return {
    draw() {
      const used = (known.usage?.members ?? []).find((one) => one.name === name);
      const one = (known.team?.members ?? []).find((other) => other.name === name);
      const why = refusal(known.team ?? {}, one) || (one?.state === 'paused' ? '' : `No limit stops ${name}: it is ${one?.state}.`);
      const fields = h('label', {}, h('span', {}, 'Raise the limits on money by $'), h('input', { name: 'usd', type: 'number', min: '0.01', step: '0.01', required: true }));
      const limit = (each) => h('li', {}, h('p', {}, `${each.name}: ${percent(each.share)} of ${each.name.includes('usd') ? usd(each.most) : count(each.most)}`), meter(each.share, `${percent(each.share)} used`));
      return h('div.beside', {},
        card('Used', used?.limits?.length ? h('ul.plain', {}, used.limits.map(limit)) : h('p', {}, 'No limit is set for it alone; [limits] in team.toml sets one.'), used && h('p.note', {}, `${count(used.tokens)} tokens, ${usd(used.usd)} in ${used.calls} calls`)),
        known.may && card('Raise', form(`Raise the limit of ${name}`, fields, 'Raise and resume', 'resume', ({ usd: more }) => ({ name, usd: Number(more) }), why), why && h('p.note', {}, why)));
    },
  };
}

const TAB = { transcript, mail: ownMail, log, diff, limits };
