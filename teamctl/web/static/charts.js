// Pictures in plain SVG.
import { h, hue, initial, own, svg, to } from './dom.js';
import { clock, count, hour, seconds } from './format.js';

const ROW = 28;
const LEGEND = ['working', 'idle', 'waiting', 'paused', 'crashed'];

// Round steps for an axis up to `most`.
export function steps(most, wanted = 4) {
  const rough = most / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough);
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, n) => n * step);
}

// The whole hours or parts of hours between two moments.
function ticks(since, until, width) {
  const step = [300, 600, 900, 1800, 3600, 7200, 10800, 21600].find((one) => ((until - since) / one) * 56 <= width) ?? 43200;
  const zone = new Date(since * 1000).getTimezoneOffset() * 60;
  const first = Math.ceil((since - zone) / step) * step + zone;
  return Array.from({ length: Math.max(0, Math.ceil((until - first) / step)) }, (_, n) => first + n * step);
}

const frame = (label, width, height, ...content) => svg('svg', { class: 'chart', viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label }, content);

// A lane for each member; the arrow keys move a cursor, Enter and a click open that moment.
export function lanes(history, members, width, cursor) {
  const { since, until } = history;
  const left = width < 500 ? 76 : 128;
  const x = (at) => left + ((Math.min(until, Math.max(since, at)) - since) / (until - since)) * (width - left);
  const height = members.length * ROW + 22;
  const rows = members.map((member, n) => {
    const y = n * ROW;
    const spans = spansOf(history, member);
    const bars = spans.map(([at, end, state]) => svg('rect', { class: `fill-${state}`, x: x(at).toFixed(1), y: y + 7, width: Math.max(0.5, x(end) - x(at)).toFixed(1), height: 14 },
      svg('title', {}, `${member.name}: ${state} from ${clock(at)} to ${clock(end)}`)));
    const marks = history.marks.filter((one) => one.name === member.name).map((one) => svg('circle', { class: `mark ${one.kind}`, cx: x(one.time).toFixed(1), cy: y + 14, r: 4 }, svg('title', {}, `${clock(one.time)} ${one.kind} ${one.text}`)));
    return svg('g', { class: 'lane', 'data-name': member.name },
      svg('rect', { x: 0, y, width, height: ROW, fill: 'transparent' }),
      svg('text', { class: 'name', x: 0, y: y + 18 }, cut(member.name, left / 8)), bars, marks);
  });
  const axis = ticks(since, until, width - left).map((at) => [svg('line', { x1: x(at), x2: x(at), y1: 0, y2: height - 18 }), svg('text', { x: x(at), y: height - 4, 'text-anchor': 'middle' }, hour(at))]);
  const here = cursor && svg('rect', { class: 'cursor', x: x(cursor.at) - 4, y: cursor.row * ROW + 4, width: 8, height: 20, rx: 3 });
  return frame(`States of ${members.length} members from ${hour(since)} to ${hour(until)}; the log has each change`, width, height,
    svg('defs', {}, svg('pattern', { id: 'paused', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' }, svg('rect', { width: 6, height: 6 }), svg('path', { d: 'M0 0V6' }))),
    axis, rows, here);
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// The states of a member as spans; the last is the present state.
export function spansOf({ lanes: found, until }, { name, state, since }) {
  const points = [...(own(found, name) ?? [])];
  const from = Math.min(until, seconds(since) || until);
  if (points.length && points.at(-1)[1] !== state) points.push([Math.max(points.at(-1)[0], from), state]);
  return points.map(([at, what], n) => [at, points[n + 1]?.[0] ?? until, what]).filter(([at, end]) => end > at);
}

// The moment and the member at a point of the picture of lanes.
export function momentAt(history, width, chart, event) {
  const left = width < 500 ? 76 : 128;
  const box = chart.getBoundingClientRect();
  const share = ((event.clientX - box.left) * (width / box.width) - left) / (width - left);
  return history.since + Math.min(1, Math.max(0, share)) * (history.until - history.since);
}

export const legend = (entries = LEGEND) => h('ul.legend', {}, entries.map((word) => h('li', {}, svg('svg', { viewBox: '0 0 10 10', 'aria-hidden': 'true' }, svg('rect', { class: `fill-${word}`, width: 10, height: 10, rx: 2 })), word)));

export const hues = (names, members) => h('ul.legend', {}, names.map((name) => h('li', {}, svg('svg', { viewBox: '0 0 10 10', 'aria-hidden': 'true', class: `hue-${hue(name, members)}` }, svg('rect', { class: 'hue', width: 10, height: 10, rx: 2 })), name)));

// Columns with an axis of values. Each column: a label, and parts of a value, a class and a text.
export function columns(label, bars, width, value, limit = 0) {
  const [left, base, tall] = [52, 22, 180];
  const sums = bars.map((one) => one.parts.reduce((sum, part) => sum + part.value, 0));
  const most = Math.max(...sums, limit) || 1;
  const axis = steps(most);
  const y = (amount) => 8 + tall - (amount / axis.at(-1)) * tall;
  const wide = (width - left) / bars.length;
  const every = Math.ceil(46 / wide);
  const drawn = bars.map((one, n) => {
    let top = 0;
    const parts = one.parts.filter((part) => part.value > 0).map((part) => {
      top += part.value;
      return svg('g', { class: part.hue ? `hue-${part.hue}` : null }, svg('rect', { class: part.hue ? 'hue' : 'bar', x: (left + n * wide + Math.min(3, wide * 0.1)).toFixed(1), y: y(top).toFixed(1), width: Math.max(1, Math.min(wide * 0.8, 48)).toFixed(1), height: Math.max(1, y(top - part.value) - y(top)).toFixed(1), rx: wide > 12 ? 1.5 : 0 }, svg('title', {}, part.title)));
    });
    return [parts, n % every ? null : svg('text', { x: left + n * wide + Math.min(wide * 0.4, 24), y: tall + base + 4, 'text-anchor': 'middle' }, one.label)];
  });
  const lines = axis.map((amount) => [svg('line', { x1: left, x2: width, y1: y(amount), y2: y(amount) }), svg('text', { x: left - 8, y: y(amount) + 4, 'text-anchor': 'end' }, value(amount))]);
  const bound = limit ? [svg('line', { class: 'limit', x1: left, x2: width, y1: y(limit), y2: y(limit) }), svg('text', { x: width, y: y(limit) - 4, 'text-anchor': 'end' }, `limit ${value(limit)}`)] : null;
  return frame(label, width, tall + base + 8, lines, drawn, bound);
}

// The board as it filled and emptied: all tasks, and the completed ones.
export function filled(tasks, width) {
  const [left, base, tall] = [36, 22, 110];
  const until = Date.now() / 1000;
  const made = tasks.map((one) => seconds(one.created)).filter(Boolean).sort((a, b) => a - b);
  const done = tasks.filter((one) => one.status === 'completed').map((one) => Math.min(until, seconds(one.updated))).sort((a, b) => a - b);
  if (!made.length) return null;
  const since = Math.min(made[0], until - 600);
  const axis = steps(made.length, Math.min(4, made.length)).filter((one) => Number.isInteger(one));
  const x = (at) => left + ((at - since) / (until - since)) * (width - left);
  const y = (number) => 8 + tall - (number / axis.at(-1)) * tall;
  const area = (moments) => `M${left} ${y(0)}${moments.map((at, n) => `H${x(at).toFixed(1)}V${y(n + 1).toFixed(1)}`).join('')}H${width}V${y(0)}Z`;
  return frame(`${made.length} tasks since ${clock(since)}, ${done.length} of them completed`, width, tall + base + 8,
    svg('path', { class: 'area', d: area(made) }), svg('path', { class: 'done', d: area(done) }),
    axis.map((number) => [svg('line', { x1: left, x2: width, y1: y(number), y2: y(number) }), svg('text', { x: left - 8, y: y(number) + 4, 'text-anchor': 'end' }, count(number))]),
    ticks(since, until, width - left).map((at) => svg('text', { x: x(at), y: tall + base + 4, 'text-anchor': 'middle' }, hour(at))));
}

// Who writes how much to whom: members on a circle, an arc for each direction.
export function traffic(pairs, members) {
  const names = [...new Set(pairs.flatMap(([from, other]) => [from, other]))].sort();
  const size = 300;
  const far = names.length > 12 ? 125 : 105;
  const at = (name) => {
    const angle = (names.indexOf(name) / names.length) * 2 * Math.PI - Math.PI / 2;
    return [150 + far * Math.cos(angle), 150 + far * Math.sin(angle)];
  };
  const most = Math.max(...pairs.map(([, , number]) => number));
  const edges = pairs.filter(([from, other]) => from !== other).toReversed().map(([from, other, number]) => {
    const [[a, b], [c, d]] = [at(from), at(other)];
    const [mx, my] = [(a + c) / 2 + (d - b) * 0.14, (b + d) / 2 + (a - c) * 0.14];
    return svg('g', { class: `hue-${hue(from, members)}` }, svg('path', { class: 'edge', d: `M${a.toFixed(1)} ${b.toFixed(1)}Q${mx.toFixed(1)} ${my.toFixed(1)} ${c.toFixed(1)} ${d.toFixed(1)}`, 'stroke-width': (0.8 + 5 * (number / most)).toFixed(1) }, svg('title', {}, `${from} → ${other}: ${number}`)));
  });
  const radius = names.length > 16 ? 8 : 13;
  const nodes = names.map((name) => {
    const [a, b] = at(name);
    const [lx, ly] = [150 + ((a - 150) * (far + radius + 9)) / far, 150 + ((b - 150) * (far + radius + 9)) / far];
    return svg('g', { class: `hue-${hue(name, members)}`, 'data-find': name }, svg('circle', { class: 'node', cx: a.toFixed(1), cy: b.toFixed(1), r: radius }, svg('title', {}, name)),
      svg('text', { class: 'initial', x: a.toFixed(1), y: (b + 4).toFixed(1) }, initial(name)),
      names.length > 12 ? null : svg('text', { x: lx.toFixed(1), y: (ly + 4).toFixed(1), 'text-anchor': Math.abs(lx - 150) < 20 ? 'middle' : lx < 150 ? 'end' : 'start' }, name));
  });
  return svg('svg', { class: 'chart', viewBox: names.length > 12 ? '0 0 300 300' : '-30 0 360 300', role: 'img', 'aria-label': `Mail between ${names.length} members, ${pairs.reduce((sum, one) => sum + one[2], 0)} messages` }, edges, nodes);
}

export function meter(share, label) {
  const level = share >= 1 ? '.bad' : share >= 0.8 ? '.warn' : '';
  return svg('svg', { class: `meter ${level.slice(1)}`, viewBox: '0 0 100 8', preserveAspectRatio: 'none', role: 'img', 'aria-label': label }, svg('rect', { width: 100, height: 8, rx: 2 }), svg('rect', { class: 'of', width: Math.min(100, Math.max(0, share * 100)), height: 8, rx: 2 }));
}

export const momentLink = (name, at) => to('member', `${name}|transcript|${Math.floor(at)}`);
