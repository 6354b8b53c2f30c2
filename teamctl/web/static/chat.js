// The conversation with the agent that leads the team.
import { get } from './api.js';
import { able, latest, once, perform } from './acts.js';
import { avatar, card, empty, h, head, icon } from './dom.js';
import { ago, state, usd } from './format.js';
import { conversation } from './conversation.js';
import { growing } from './growing.js';
import { markdown } from './markdown.js';
import { activity, refusal, who } from './overview.js';
import { noteSeen, request, waitingFor } from './waiting.js';

export function chat({ known, redraw }) {
  const name = 'lead';
  let talk = null;
  let live = '';
  const lead = () => (known.team?.members ?? []).find((one) => one.name === name);
  const hear = latest(() => (known.sizes?.live?.[name] ? get('live', { name }) : { text: '' }), (answer) => { live = answer.text; redraw(); });
  const ready = () => { if (!talk && lead()) talk = growing('transcript', 'transcripts', { known, name, redraw }, (found) => conversation(found, name, known.team.members)); };
  return {
    told(part) {
      talk?.told(part);
      if (part === 'sizes' || part === 'snapshot') hear();
    },
    draw() {
      ready();
      const one = lead();
      const { team } = known;
      if (one) noteSeen(known);
      const others = team.members.filter((other) => other.name !== name);
      return [
        head('Chat', one ? h('span.note', {}, 'with ', one.role === 'lead' ? 'the lead' : one.role, ` · ${usd(one.usd)}`) : null),
        h('div.columns', {},
          h('div', {},
            one ? [talk.draw(), live && h('div.entry', { 'data-key': 'live', 'aria-live': 'off' }, avatar(name, team.members), h('p.by', {}, h('strong', {}, name), h('span.note', {}, 'writes …')), h('div.body', {}, markdown(live)))]
              : card('', empty('No agent leads this team yet.', 'Your first message starts one. It can spawn teammates, hand out tasks and review plans; you talk only to it.')),
            h('ol.plain.requests', { 'data-key': 'asked' }, waitingFor(known).filter((asked) => asked.from === name).map((asked) => request(asked, known))),
            known.may && h('div.composer', { 'data-key': 'composer' }, status(one, team), say(team))),
          h('aside', { 'aria-label': 'The team' }, card('The team', others.length ? h('ul.plain.people', {}, others.map((other) => h('li', { 'data-key': other.name }, h('p', {}, who(other.name, team.members, [state(other.state), ' ', ago(other.since)])), activity(other, team) ? h('p.note', {}, h('span.cut', {}, activity(other, team))) : null))) : h('p.note', {}, 'The lead has spawned nobody yet.')))),
      ];
    },
  };
}

function status(one, team) {
  if (!one) return null;
  const why = refusal(team, one);
  return h('div.status', {}, state(one.state), ' for ', ago(one.since), activity(one, team) ? h('code', {}, activity(one, team)) : null,
    one.state === 'working' ? able('Interrupt', () => perform('interrupt', { name: 'lead', text: '' }), why, { class: 'plain' }) : null);
}

function say(team) {
  const why = team.teamd ? '' : 'No teamd runs; start it with `teamd start`.';
  const send = async (event) => {
    event.preventDefault();
    const area = event.target.querySelector('textarea');
    const text = area.value;
    if (text.trim() && await perform('tell', once({ text })) && area.value === text) area.value = '';
  };
  const typed = (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    event.target.form.requestSubmit();
  };
  return h('form', { onsubmit: send, 'aria-label': 'Write to the lead' }, h('textarea', { name: 'text', rows: 1, 'aria-label': 'Message to the lead', placeholder: why || innerWidth < 768 ? 'Message to the lead' : 'Message to the lead; Enter sends, Shift+Enter begins a line', onkeydown: typed }), h('button.primary', { 'aria-label': 'Send to lead', title: why || null }, icon('send'), 'Send'));
}
