// The board, the merge queue, and the usage.
import { h, svg, table } from './dom.js';
import { ago, count, percent, usd } from './format.js';
import { link } from './overview.js';

const row = (key, cells, heads) => h('tr', { 'data-key': key }, cells.map((cell, n) => h(n ? 'td' : 'th', { 'data-head': heads[n], scope: n ? null : 'row' }, cell)));

const proof = (task) => (task.proven === null || task.proven === undefined ? '–' : task.proven ? 'proven' : 'to be proven');

export function board({ known }) {
  const heads = ['Id', 'Status', 'Owner', 'Role', 'Blocked by', 'Proof', 'Subject'];
  return {
    draw() {
      const tasks = known.board?.tasks ?? [];
      const shown = tasks.map((task) => row(task.id, [task.id, task.status, task.owner ? link(task.owner) : '–', task.role || '–', task.blocked ? task.blocked_by.join(', ') : '–', proof(task),
        h('details', {}, h('summary', {}, task.subject), h('pre', {}, task.description || 'no description'), task.check ? h('p', {}, 'check: ', h('code', {}, task.check)) : null)], heads));
      return [h('h2', {}, 'The board'), trouble(known.board), (known.board?.damaged ?? []).map((one) => h('p.bad', {}, one)),
        tasks.length ? table('The board', heads, h('tbody', {}, shown)) : h('p', {}, 'No tasks.')];
    },
  };
}

const trouble = (part) => part?.trouble && h('p.bad', {}, part.trouble);

export function queue({ known }) {
  const heads = ['Id', 'State', 'Teammate', 'Task', 'Commit', 'Since', 'Why'];
  return {
    draw() {
      const there = known.queue?.queue ?? [];
      const shown = there.map((one) => row(one.id, [one.id, one.state, link(one.teammate), one.task ?? '–', h('code', {}, one.commit.slice(0, 12)), ago(one.when), one.why || '–'], heads));
      return [h('h2', {}, 'The merge queue'), trouble(known.queue), there.length ? table('The merge queue', heads, h('tbody', {}, shown)) : h('p', {}, 'The queue is empty.')];
    },
  };
}

export function usage({ known }) {
  const heads = ['Name', 'Calls', 'In', 'Read from cache', 'Written to cache', 'Out', 'Cost', 'Of the nearest limit'];
  const cells = (name, one) => [name, one.calls, count(one.input_tokens), count(one.cache_read_tokens), count(one.cache_write_tokens), count(one.output_tokens), usd(one.usd), percent(one.share)];
  return {
    draw() {
      const { members = [], total, days = [] } = known.usage ?? {};
      return [h('h2', {}, 'Tokens and cost'), trouble(known.usage),
        total ? table('Tokens and cost', heads, h('tbody', {}, members.map((one) => row(one.name, cells(link(one.name), one), heads)), row(' total', cells('total', total), heads))) : null,
        h('h2', {}, 'By day'), days.length ? chart(days.slice(-30)) : h('p', {}, 'Nothing was used yet.')];
    },
  };
}

// A bar chart, and its figures as a table for people who cannot see the bars.
function chart(days) {
  const worth = days.some((one) => one.usd) ? (one) => one.usd ?? 0 : (one) => one.tokens;
  const most = Math.max(...days.map(worth)) || 1;
  const wide = 600 / days.length;
  const bars = days.map((one, n) => {
    const tall = (worth(one) / most) * 140;
    return svg('g', {}, svg('rect', { class: 'bar', x: n * wide + 1, y: 150 - tall, width: Math.max(1, Math.min(wide - 2, 60)), height: Math.max(1, tall) }));
  });
  const heads = ['Day', 'Calls', 'Tokens', 'Cost'];
  const rows = days.toReversed().map((one) => row(one.day, [one.day, one.calls, count(one.tokens), usd(one.usd)], heads));
  return [svg('svg', { viewBox: '0 0 600 152', role: 'img', 'aria-label': 'Use of each day, as in the table below' }, bars), table('Use of each day', heads, h('tbody', {}, rows))];
}
