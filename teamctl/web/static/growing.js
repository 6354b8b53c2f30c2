// The lines of a growing file: its end or a moment first, earlier lines on demand, new lines as they come.
import { get } from './api.js';
import { announce, latest } from './acts.js';
import { button, h, steady } from './dom.js';

export function growing(what, sizes, { known, name, redraw, at = 0 }, show) {
  let [start, end, found] = [0, -1, []];
  let version = 0;
  const drawn = steady(show);
  let fixed = at; // shows a moment: nothing is read on until the person asks
  const size = () => known.sizes?.[sizes]?.[name] ?? 0;
  const isNear = () => innerHeight + scrollY >= document.body.scrollHeight - 160;
  const add = (answer, above) => {
    const first = end < 0;
    const near = !above && !fixed && isNear();
    if (above) [start, found] = [answer.start, [...answer.records, ...found]];
    else if (first || answer.start !== end) [start, end, found] = [answer.start, answer.end, answer.records];
    else [end, found] = [answer.end, [...found, ...answer.records].slice(-5000)];
    version += 1;
    redraw();
    if (near) requestAnimationFrame(() => requestAnimationFrame(() => scrollTo({ top: document.body.scrollHeight })));
    if (first && fixed) requestAnimationFrame(() => requestAnimationFrame(() => document.querySelector('.aimed')?.scrollIntoView({ block: 'center' })));
  };
  const facts = () => (end >= 0 ? { name, behind: end } : fixed ? { name, at: fixed } : { name });
  const look = latest(() => get(what, facts()), (answer) => {
    if (end < 0 || answer.end !== end) add(answer, false);
    if (!fixed && answer.end < size() && answer.records.length) look();
  });
  const above = () => get(what, { name, before: start }).then((answer) => add(answer, true), (error) => announce(error.message, true));
  const newest = () => {
    [start, end, found, fixed] = [0, -1, [], 0];
    look();
  };
  look();
  return {
    told: (part) => part === 'sizes' && !fixed && size() !== end && look(),
    draw: () => [
      start > 0 ? h('p', { 'data-key': 'earlier' }, button('Earlier', above)) : null,
      end < 0 ? h('p.empty', {}, 'Loading …') : found.length ? drawn(version, found) : h('p.empty', {}, 'Nothing yet.'),
      fixed && end >= 0 ? h('p', { 'data-key': 'newest' }, button('Show the newest', newest)) : null,
    ],
  };
}
