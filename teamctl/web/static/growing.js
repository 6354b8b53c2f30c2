// The lines of a growing file: its end or a moment, earlier lines on demand, and new lines.
import { get } from './api.js';
import { announce, latest } from './acts.js';
import { button, h, own, steady } from './dom.js';

const MOST = 5000; // records; then the first window is dropped, and `Earlier` loads it again

export function growing(what, sizes, { known, name, redraw, at = 0 }, show) {
  let windows = []; // answers of the server, each of which begins where the one before it ends
  let version = 0;
  const drawn = steady(show);
  let fixed = at; // shows a moment: nothing is read on until the person asks
  const size = () => own(known.sizes?.[sizes], name) ?? 0;
  const bottom = () => scrollY + (document.querySelector('main .columns > div') ?? document.body).getBoundingClientRect().bottom; // of what is read, not of the column that follows it on a phone
  const isNear = () => innerHeight + scrollY >= bottom() - 160;
  const later = (work) => requestAnimationFrame(() => requestAnimationFrame(work));
  const set = (next) => { windows = next; version += 1; redraw(); };
  const ask = async () => {
    const last = windows.at(-1);
    return [last, await get(what, last ? { name, behind: last.end } : fixed ? { name, at: fixed } : { name })];
  };
  const look = latest(ask, ([last, answer]) => {
    if (last !== windows.at(-1)) return look(); // other lines were asked for meanwhile
    if (last && answer.end === last.end) return null;
    const near = !fixed && (!last || isNear());
    const next = last && answer.start === last.end ? [...windows, answer] : [answer]; // or the file is a new one
    for (let all = next.reduce((sum, one) => sum + one.records.length, 0); next.length > 1 && all - next[0].records.length >= MOST;) all -= next.shift().records.length;
    set(next);
    if (near) later(() => scrollTo({ top: bottom() - innerHeight }));
    if (!last && fixed) later(() => document.querySelector('.aimed')?.scrollIntoView({ block: 'center' }));
    return !fixed && answer.end < size() && look();
  });
  const above = () => {
    const [first] = windows;
    return get(what, { name, before: first.start }).then((answer) => windows[0] === first && answer.end === first.start && set([answer, ...windows]), (error) => announce(error.message, true));
  };
  const newest = () => {
    [windows, fixed] = [[], 0];
    look();
  };
  const records = () => windows.flatMap((one) => one.records);
  look();
  return {
    told: (part) => part === 'sizes' && !fixed && size() !== windows.at(-1)?.end && look(),
    draw: () => [
      windows[0]?.start > 0 ? h('p', { 'data-key': 'earlier' }, button('Earlier', above)) : null,
      !windows.length ? h('p.empty', {}, 'Loading …') : windows.some((one) => one.records.length) ? drawn(version, records()) : h('p.empty', {}, 'Nothing yet.'),
      fixed && windows.length ? h('p', { 'data-key': 'newest' }, button('Show the newest', newest)) : null,
    ],
  };
}
