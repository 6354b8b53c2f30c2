// A conversation, from the records of a transcript.
import { avatar, h, icon } from './dom.js';
import { clock, many } from './format.js';
import { markdown } from './markdown.js';

// The note of the bash tool below the output of a failed command.
const ENDED = /^\[(exit status \d+|killed by [^\]]+|ended after [^,\]]+|all of it was ended)/m;

function outcome(result) {
  if (result.is_error) return '✗ failed';
  const ended = ENDED.exec(String(result.content ?? '').slice(-1000));
  return ended ? `✗ ${ended[1]}` : '✓';
}

// The entries of a conversation of `name`; `aim` is the moment that is looked for.
export function conversation(found, name, members, aim = 0) {
  const results = new Map(found.filter((one) => one.record === 'result').map((one) => [one.tool_use_id, one]));
  const starts = new Map(found.filter((one) => one.record === 'started').map((one) => [one.tool_use_id, one.time]));
  const calls = new Set();
  let aimed = '';
  const call = (block) => {
    calls.add(block.id);
    const result = results.get(block.id);
    const began = starts.get(block.id);
    const took = result && began ? ` ${(result.time - began).toFixed(1)} s` : '';
    return h('details.call', { 'data-key': block.id }, h('summary', {}, icon('log'), h('strong', {}, block.name), h('code.cut', {}, short(block.input)), h('span', {}, `${result ? outcome(result) : '… under way'}${took}`)),
      h('div.inside', {}, input(block), result ? h(`pre${result.is_error ? '.bad' : ''}`, {}, result.content) : null));
  };
  const block = (one) => {
    if (one.type === 'text') return markdown(one.text);
    if (one.type === 'thinking') return one.thinking ? h('details.note', {}, h('summary', {}, 'Thinking'), h('pre', {}, one.thinking)) : null;
    return one.type === 'tool_use' ? call(one) : null;
  };
  let speaker = '';
  const said = (kind, who, words, time, ...body) => {
    const same = kind === '' && speaker === who;
    speaker = kind === '' ? who : '';
    return h(`li.entry${kind}${same ? '.more' : ''}`, {}, same ? null : [avatar(who, members), h('p.by', {}, words, h('time', {}, clock(time)))], h('div.body', { title: same ? clock(time) : null }, body));
  };
  let woken = false; // since the last reply, the agent that leads took over the person's inbox
  const entry = (one) => {
    const { record, time, messages = [], closes = [], text = '' } = one;
    const late = woken && name === 'lead' && messages.filter(({ from }) => from !== 'user').length;
    woken = record === 'opened' || closes.length > 0 || (woken && record !== 'reply');
    const folded = (words, ...body) => h('li.aside', {}, h('details', {}, h('summary', {}, clock(time), ' ', words), body));
    const letter = ({ from, type, content, approve }) => {
      const you = from === 'user';
      if (type === 'shutdown_request') return aside(time, `${you ? 'you' : from} asked ${name} to shut down`);
      if (type === 'shutdown_response' && approve) return aside(time, `${from} is shut down`);
      return said(you ? '.you' : '.mail', you ? 'you' : from, [h('strong', {}, you ? 'you' : `${from} → ${name}`), type === 'message' ? null : h('span.tag', {}, type)], time, markdown(content));
    };
    switch (record) {
      case 'mail': return [late && aside(time, `${many(late, 'message')} that you had not read went to lead`), ...messages.map(letter)];
      case 'reply': return said('', name, h('strong', {}, name), time, (one.content ?? []).map(block));
      case 'result': return calls.has(one.tool_use_id) ? null : h('li.aside', {}, h('details.call', {}, h('summary', {}, one.is_error ? 'A result ✗ failed' : 'A result'), h('div.inside', {}, h('pre', {}, one.content))));
      case 'note': case 'news':
        if (closes.length) return aside(time, `${name} was shut down`);
        return text.startsWith('<') ? folded('a note for the model', h('pre', {}, text)) : aside(time, text);
      case 'summary': return folded('its context was full: it goes on from a summary', markdown(text), h('pre', {}, one.restated));
      case 'opened': return aside(time, 'a new conversation');
      case 'ended': return ['end_turn', 'shutdown'].includes(one.outcome) ? null : aside(time, h('strong', {}, one.outcome), one.outcome === 'paused' && `: ${text}`); // other texts repeat the last words
      default: return null;
    }
  };
  const keyed = found.flatMap((one, n) => {
    const made = [entry(one)].flat().filter(Boolean);
    const key = `${one.record} ${one.time} ${one.tool_use_id ?? n}`;
    if (made.length && aim && !aimed && one.time >= aim - 1) aimed = key;
    made.forEach((li, at) => {
      li.dataset.key = `${key} ${at}`;
      if (key === aimed && !at) li.classList.add('aimed');
    });
    return made;
  });
  return h('ol.plain.talk', {}, keyed);
}

const aside = (time, ...words) => h('li.aside', {}, clock(time), ' ', words);

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
