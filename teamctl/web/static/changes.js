// The changes of the whole team as one diff with comments; and the merge queue.
import { get } from './api.js';
import { attempt, confirmed, deliver, form, latest, once, openDialog, perform, seldom } from './acts.js';
import { button, card, empty, field, h, head, icon, own, segments, steady } from './dom.js';
import { ago, many } from './format.js';
import { files, parse } from './diff.js';
import { who } from './overview.js';

// The members with a working copy, each with the state of it.
const withCopies = (known) => (known.team?.members ?? []).map((one) => ({ ...one, worktree: own(known.copies, one.name) })).filter((one) => one.worktree);
const changed = (one) => Boolean(one.worktree?.ahead || one.worktree?.uncommitted);

export function changes({ known, redraw }) {
  const found = new Map(); // the answers by member, each with its parsed diff
  const notes = new Map(); // the comments that are not sent yet
  const sections = new Map(); // a member's section is drawn again only for another version
  let opened = '';
  let edits = 0;
  let only = '';
  // The diff of a member may be another one once its copy or its conversation has changed.
  const state = (one) => JSON.stringify([one.worktree, own(known.sizes?.transcripts, one.name)]);
  const look = latest(async () => {
    for (const one of withCopies(known)) {
      const now = state(one);
      if (found.get(one.name)?.state === now) continue;
      const answer = await get('diff', { name: one.name }).catch((error) => ({ name: one.name, trouble: error.message }));
      const last = found.get(one.name);
      if (last && last.diff === answer.diff && last.trouble === answer.trouble) last.state = now;
      else found.set(one.name, { ...answer, state: now, parsed: parse(answer.diff ?? '') });
      redraw();
    }
  }, redraw);
  const pace = seldom(look, 2000);
  const edit = () => { edits += 1; redraw(); };
  look();
  const remarks = {
    open(key) {
      opened = key;
      edit();
      requestAnimationFrame(() => document.querySelector('.diff textarea')?.focus());
    },
    draw(key, place) {
      if (opened === key) return comment(key, place);
      const note = notes.get(key);
      return note ? h('div.remark', { 'data-key': `note ${key}` }, h('span', {}, note.text), button('Edit', () => remarks.open(key)), button('Remove', () => { notes.delete(key); edit(); })) : null;
    },
  };
  const close = () => { opened = ''; edit(); };
  const comment = (key, place) => {
    const keep = (event) => {
      event.preventDefault();
      const text = event.target.querySelector('textarea').value.trim();
      if (text) notes.set(key, { ...place, text });
      close();
    };
    return h('form', { 'data-key': `form ${key}`, onsubmit: keep, onkeydown: (event) => event.key === 'Escape' && close() }, field(`To ${place.name}, about line ${place.number} of ${place.named}`, h('textarea', { rows: 2 }, notes.get(key)?.text ?? '')), h('div.bar', {}, h('button.primary', {}, 'Keep the comment'), button('Cancel', close)));
  };
  const send = () => attempt(async () => {
    for (const [name, all] of group(notes)) {
      await deliver('send', once({ to: name, text: all.map(([, note]) => `${note.named}, line ${note.number}: \`${note.line}\`\n\n${note.text}`).join('\n\n') }));
      all.forEach(([key, note]) => notes.get(key) === note && notes.delete(key)); // it may have been edited meanwhile
      edit();
    }
    return 'sent as mail';
  });
  const drawn = (one) => {
    const facts = [found.get(one.name), JSON.stringify(one.worktree), edits, known.may];
    const kept = sections.get(one.name) ?? { draw: steady((now) => section(now, found.get(now.name), known, remarks)), version: 0, facts: [] };
    if (facts.some((fact, n) => fact !== kept.facts[n])) sections.set(one.name, Object.assign(kept, { facts, version: kept.version + 1 }));
    return kept.draw(kept.version, one);
  };
  return {
    told: (part) => (part === 'copies' ? look() : pace.look()),
    close: pace.close,
    draw() {
      const copies = withCopies(known);
      const names = copies.filter((one) => changed(one) || found.get(one.name)?.parsed.files.length).map((one) => one.name);
      if (only && !names.includes(only)) only = '';
      const shown = names.filter((name) => !only || name === only);
      return [
        head('Changes', names.length > 1 ? segments('Whose changes', { '': 'All', ...Object.fromEntries(names.map((name) => [name, name])) }, only, (next) => { only = next; redraw(); }) : null,
          notes.size ? button([icon('send'), `Send ${many(notes.size, 'comment')}`], send, { class: 'primary' }) : null),
        !known.copies ? h('p.empty', {}, 'Loading …') : !copies.length ? card('', empty('Nobody has a working copy of their own.', 'A teammate that is spawned with `--worktree` has one, and its changes appear here. The others work in the project\'s folder: `git diff` there shows their work.'))
          : !names.length ? card('', empty('No working copy has changes.', `${copies.map((one) => one.name).join(', ')}: all as in the base.`))
            : [known.may && h('p.note', {}, 'Click the number of a line to comment on it; the comments go as mail to the teammate.'), copies.filter((one) => shown.includes(one.name)).map(drawn)],
      ];
    },
  };
}

function group(notes) {
  const found = new Map();
  for (const entry of notes) found.set(entry[1].name, [...(found.get(entry[1].name) ?? []), entry]);
  return found;
}

function section(one, found, known, remarks) {
  const { branch, ahead, uncommitted, trouble } = one.worktree;
  const facts = [branch, ahead ? many(ahead, 'commit') : '', uncommitted ? `${many(uncommitted, 'file')} not committed` : ''].filter(Boolean).join(' · ');
  return h('section.card', { 'data-key': one.name }, h('div.top', {}, who(one.name, known.team.members, facts), known.may && ahead ? button('Add to the queue', () => perform('enqueue', { name: one.name })) : null),
    trouble || found?.trouble ? h('p.bad', {}, trouble || found.trouble) : found ? files(found, known.may ? remarks : null) : h('p.note', {}, 'Loading …'));
}

const TAGS = { merged: 'good', conflict: 'bad', failed: 'bad', checking: '', waiting: 'warn' };

export function queue({ known, redraw }) {
  const diffs = new Map();
  const load = (id) => (event) => {
    if (!event.target.open || diffs.has(id)) return;
    diffs.set(id, null);
    get('entry', { id }).then((answer) => diffs.set(id, answer), (error) => diffs.set(id, { trouble: error.message })).then(redraw);
  };
  const entry = (one) => {
    const found = diffs.get(one.id);
    return h('li.card', { 'data-key': one.id }, h('div.top', {}, who(one.teammate, known.team.members, one.task ? `task ${one.task}` : `entry ${one.id}`), h('div.bar', {}, h(`span.tag${TAGS[one.state] ? `.${TAGS[one.state]}` : ''}`, {}, one.state), h('code', {}, one.commit.slice(0, 12)), h('span.note', {}, ago(one.when)),
      known.may && ['waiting', 'checking'].includes(one.state) ? button('Remove', async () => { if (await confirmed(`Remove ${one.teammate}'s work from the queue? It stays in the working copy.`, 'Remove')) perform('dequeue', { id: one.id }); }, { class: 'danger', 'aria-label': `Remove entry ${one.id}` }) : null)),
    one.why ? h('p', {}, one.why) : null,
    h('details', { ontoggle: load(one.id) }, h('summary', {}, 'Changes'), found === undefined || found === null ? h('p.note', {}, 'Loading …') : found.trouble ? h('p.bad', {}, found.trouble) : files(found)));
  };
  return {
    draw() {
      const there = known.queue?.queue ?? [];
      const waits = there.filter((one) => ['waiting', 'checking'].includes(one.state));
      const past = there.filter((one) => !waits.includes(one)).toReversed();
      const names = withCopies(known).map((one) => one.name);
      const add = () => openDialog('Add to the queue', form('Add to the queue', field('Whose commits', h('select', { name: 'name' }, names.map((name) => h('option', {}, name)))), 'Add', 'enqueue', (facts) => facts));
      return [
        head('Queue', known.may && names.length ? button([icon('plus'), 'Add to the queue'], add, { class: 'primary' }) : null),
        known.queue?.trouble && h('p.bad', {}, known.queue.trouble),
        known.team.merge && h('p', {}, known.team.merge.text, '; ', h('code', {}, known.team.merge.command), ' takes them'),
        there.length ? [waits.length ? h('ol.plain', { 'data-key': 'waits' }, waits.map(entry)) : h('p.note', {}, 'Nothing waits.'), past.length ? [h('h2', {}, 'Finished in the last day'), h('ol.plain', { 'data-key': 'past' }, past.map(entry))] : null]
          : card('', empty('The queue is empty.', names.length ? 'Add the commits of a teammate, or let the check of a task do it: `[merge] auto` in team.toml.' : 'It merges the commits of teammates that have a working copy, once their check passes. Spawn one with `--worktree`.')),
      ];
    },
  };
}
