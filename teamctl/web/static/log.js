// All events of the team in the last day, newest first.
import { get } from './api.js';
import { latest, seldom } from './acts.js';
import { avatar, card, empty, field, h, head, segments, steady } from './dom.js';
import { clock, duration, moment } from './format.js';
import { momentLink } from './charts.js';
import { memberLink } from './overview.js';

const KINDS = {
  main: ['Main', ['spawned', 'turn_ended', 'mail_sent', 'task', 'merge', 'approval_asked', 'approval_answered', 'crashed', 'failed', 'stuck', 'restarted', 'resumed', 'shutdown_asked', 'shutting_down', 'limit_raised', 'mail_rejected', 'teamd_started', 'teamd_stopped']],
  work: ['Work', ['turn_began', 'turn_ended', 'tool_began', 'tool_ended', 'conversation_opened', 'summarised']],
  mail: ['Mail', ['mail_sent', 'mail_taken', 'mail_delivered', 'mail_held', 'mail_rejected']], tasks: ['Tasks', ['task', 'merge', 'check_began', 'check_ended']],
  asks: ['Requests', ['approval_asked', 'approval_answered', 'permission']],
  trouble: ['Trouble', ['crashed', 'failed', 'stuck', 'restarted', 'retry', 'model_calls_slowed', 'mail_rejected']], all: ['All', []],
};

const PARTS = new Set(['snapshot', 'sizes', 'mail', 'board', 'queue', 'roster']); // they change with events

export function log({ known, redraw }) {
  let [words, name, kind, found] = ['', '', 'main', null];
  let version = 0;
  const shown = steady(() => h('ol.plain.log', {}, found.events.map((one, n) => entry(one, n, known.team.members))));
  const ask = latest(() => get('happened', [['words', words], ['name', name], ...KINDS[kind][1].map((one) => ['kind', one])]), (answer) => { found = answer; version += 1; redraw(); });
  const pace = seldom(ask, 1500);
  ask();
  const pick = (next) => {
    kind = next;
    redraw();
    ask();
  };
  return {
    told: (part) => PARTS.has(part) && pace.look(),
    close: pace.close,
    draw() {
      const { members } = known.team;
      return [
        head('Log', segments('Kinds of events', Object.fromEntries(Object.entries(KINDS).map(([key, [title]]) => [key, title])), kind, pick)),
        h('div.bar', { 'data-key': 'filter' },
          h('form', { role: 'search', onsubmit: (event) => event.preventDefault() }, field('Search', h('input', { type: 'search', oninput: (event) => { words = event.target.value; ask(); } }))),
          field('About', h('select', { onchange: (event) => { name = event.target.value; ask(); } }, h('option', { value: '' }, 'everybody'), members.map((one) => h('option', {}, one.name)), h('option', {}, 'teamd')))),
        h('p.note', { role: 'status' }, !found ? 'Looking …' : `${found.events.length === 300 ? 'The newest 300' : found.events.length} of the last day`),
        found && card('', found.events.length ? shown(version) : empty('No such event in the last day.', 'Choose other kinds, or everybody. On a terminal: ', h('code', {}, 'teamctl events --since 2d'))),
      ];
    },
  };
}

const BAD = new Set(['crashed', 'failed', 'stuck', 'mail_rejected']);

function entry(one, n, members) {
  const isMember = members.some((other) => other.name === one.name);
  return h('li', { 'data-key': `${one.time} ${one.kind} ${one.name} ${one.id ?? n}` },
    isMember ? h('a', { href: momentLink(one.name, one.time), title: moment(one.time), 'aria-label': `Open ${clock(one.time)} in the conversation of ${one.name}` }, clock(one.time)) : h('time', { title: moment(one.time) }, clock(one.time)),
    avatar(one.name, members), h(`span${BAD.has(one.kind) ? '.bad' : ''}`, {}, isMember ? memberLink(one.name) : one.name, ' ', sentence(one)));
}

// The event as the rest of a sentence that begins with its name.
function sentence(one) {
  switch (one.kind) {
    case 'mail_sent': return `wrote to ${one.to}${one.summary ? `: ${one.summary}` : ''}`;
    case 'mail_taken': return `took mail of ${one.from}`;
    case 'mail_delivered': return `read mail of ${one.from}`;
    case 'turn_began': return 'began a turn';
    case 'turn_ended': return one.outcome === 'end_turn' ? `ended its turn${one.text ? `: ${one.text.replace(/[`*#>]+/g, '').slice(0, 160)}` : ''}` : `ended its turn: ${one.outcome}`;
    case 'replied': return `replied (${one.input_tokens} tokens in, ${one.output_tokens} out)`;
    case 'tool_began': return `began ${one.tool ?? 'a tool'}`;
    case 'tool_ended': return `${one.failed ? 'failed at' : 'ended'} ${one.tool ?? 'a tool'}${one.seconds ? ` after ${one.seconds < 10 ? `${one.seconds} s` : duration(one.seconds)}` : ''}`;
    case 'task': return `task ${one.id} (${one.subject}) is ${String(one.status).replace('_', ' ')}`;
    case 'merge': return `queue ${one.id} is ${one.state}${one.why ? `: ${one.why}` : ''}`;
    case 'approval_asked': return `asked ${['', 'user', 'lead'].includes(one.to ?? '') ? 'you' : one.to}: ${String(one.type).replaceAll('_', ' ')} ${one.id}`;
    case 'approval_answered': return `${one.by ? `was answered by ${one.by}` : 'was answered'}: ${one.status}${one.reason ? ` (${one.reason})` : ''}`;
    case 'state': return `is ${one.status}${one.reason ? `: ${one.reason}` : ''}`;
    default: return `${String(one.kind).replaceAll('_', ' ')}${one.reason ? `: ${one.reason}` : ''}`;
  }
}
