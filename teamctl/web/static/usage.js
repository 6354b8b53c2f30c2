// Tokens and cost.
import { card, empty, h, head, hue, row, segments, table } from './dom.js';
import { count, hour, many, percent, usd } from './format.js';
import { columns, hues, meter } from './charts.js';
import { followed, memberLink, room } from './overview.js';

const HEADS = ['Name', 'Calls', 'In', 'From cache', 'To cache', 'Out', 'Cost', 'Of the nearest limit'];
const HOURS = { 1: '1 h', 6: '6 h', 24: '24 h' };
const GROUP = 2; // buckets in a column

export function usage({ known, redraw, root }) {
  let hours = '6';
  const past = followed(known, redraw, () => ({ hours }));
  const pick = (next) => {
    hours = next;
    past.ask();
  };
  const cells = (name, one) => [name, one.calls, count(one.input_tokens), count(one.cache_read_tokens), count(one.cache_write_tokens), count(one.output_tokens), usd(one.usd), percent(one.share)];
  return {
    told: (part) => past.told(part, 'usage'),
    close: past.close,
    draw() {
      const { members = [], total, days = [], trouble } = known.usage ?? {};
      if (trouble) return [head('Usage'), h('p.bad', {}, trouble)];
      if (!total?.calls && !days.length) return [head('Usage'), card('', empty('Nothing was used yet.', 'Each call to a model appears here with its tokens and its cost.'))];
      return [
        head('Usage'), tiles(total), overTime(past.found, members, known, room(root), hours, pick),
        days.length ? byDay(days.slice(-30), total, room(root)) : null,
        card('By teammate', table('Tokens and cost', HEADS, h('tbody', {}, members.map((one) => row(one.name, cells(memberLink(one.name), one), HEADS)), row(' total', cells('total', total), HEADS)))),
      ];
    },
  };
}

function tiles(total) {
  const most = total.usd_per_day_limit;
  const tile = (label, number, more) => h('li.tile', {}, h('span', {}, label), h('strong', {}, number), more);
  return h('ul.tiles', {},
    tile('Today', usd(total.usd_today), most ? [h('small', {}, `${percent(total.usd_today / most)} of ${usd(most)} a day`), meter(total.usd_today / most, `${percent(total.usd_today / most)} of today's limit`)] : h('small', {}, 'no limit a day')),
    tile('This month', usd(total.usd_this_month), h('small', {}, total.usd_per_month_limit ? `of ${usd(total.usd_per_month_limit)}` : 'no limit a month')),
    tile('In all time', usd(total.usd), h('small', {}, many(total.calls, 'call'))), tile('Tokens', count(total.tokens), h('small', {}, `${percent(total.input_tokens ? total.cache_read_tokens / total.input_tokens : 0)} of the input from the cache`)));
}

// The cost of each teammate, spread over its replies by their tokens; tokens where no price is known.
function overTime(found, members, known, width, hours, pick) {
  const top = h('div.top', {}, h('h2', {}, 'Cost over time'), segments('How far back', HOURS, hours, pick));
  if (!found) return h('section.card', { 'data-key': 'time' }, top, h('p.empty', {}, 'Loading …'));
  const names = Object.keys(found.use);
  const rate = new Map(members.map((one) => [one.name, one.tokens ? (one.usd ?? 0) / one.tokens : 0]));
  const priced = names.some((name) => rate.get(name));
  const length = found.use[names[0]]?.length ?? 0;
  const step = (found.until - found.since) / length;
  const value = priced ? (amount) => `$${amount.toFixed(amount && amount < 0.1 ? 3 : 2)}` : count;
  const bars = Array.from({ length: Math.ceil(length / GROUP) }, (_, n) => {
    const from = found.since + n * GROUP * step;
    return {
      label: hour(from), parts: names.map((name) => {
        const tokens = found.use[name].slice(n * GROUP, (n + 1) * GROUP).reduce((sum, one) => sum + one, 0);
        const amount = priced ? tokens * (rate.get(name) ?? 0) : tokens;
        return { value: amount, hue: hue(name, known.team?.members), title: `${name}, ${hour(from)} to ${hour(from + GROUP * step)}: ${value(amount)}` };
      }),
    };
  });
  return h('section.card', { 'data-key': 'time' }, top, names.length ? [columns(`${priced ? 'Cost' : 'Tokens'} of each teammate over time`, bars, width, value), hues(names, known.team?.members), h('p.note', {}, priced ? 'The cost of each teammate, spread over its replies by their tokens.' : 'In tokens, because no price is known.')] : h('p.empty', {}, 'No model was called in this time.'));
}

function byDay(days, total, width) {
  const priced = days.some((one) => one.usd);
  const value = priced ? (amount) => `$${amount % 1 ? amount.toFixed(2) : amount}` : count;
  const bars = days.map((one) => ({ label: one.day.slice(5), parts: [{ value: priced ? one.usd ?? 0 : one.tokens, title: `${one.day}: ${usd(one.usd)}, ${count(one.tokens)} tokens, ${one.calls} calls` }] }));
  const heads = ['Day', 'Calls', 'Tokens', 'Cost'];
  const rows = days.toReversed().map((one) => row(one.day, [one.day, one.calls, count(one.tokens), usd(one.usd)], heads));
  return h('section.card', { 'data-key': 'days' }, h('h2', {}, 'By day'), columns('Use of each day, as in the table below', bars, width, value, priced ? total.usd_per_day_limit ?? 0 : 0), h('details', {}, h('summary', {}, 'As a table'), table('Use of each day', heads, h('tbody', {}, rows))));
}
