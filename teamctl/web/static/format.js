// Numbers, times and states in words.
import { h, icon } from './dom.js';

const SIGNS = { working: 'play', idle: 'circle', waiting: 'hand', paused: 'pause', failed: 'cross', crashed: 'cross', shutdown: 'square', stopped: 'square', pausing: 'pause' };

// Seconds since the epoch, from a number or from ISO text; 0 if not known.
export const seconds = (value) => (typeof value === 'string' ? Date.parse(value) / 1000 || 0 : value || 0);

export const clock = (value) => (seconds(value) ? new Date(seconds(value) * 1000).toLocaleTimeString([], { hour12: false }) : '–');

const two = (n, width = 2) => String(n).padStart(width, '0');

export const hour = (value) => {
  const at = new Date(seconds(value) * 1000);
  return `${two(at.getHours())}:${two(at.getMinutes())}`;
};

export const moment = (value) => {
  if (!seconds(value)) return 'not known';
  const at = new Date(seconds(value) * 1000);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`;
};

export function duration(length) {
  const whole = Math.max(0, Math.floor(length));
  const [minutes, hours, days] = [60, 3600, 86400].map((unit) => Math.floor(whole / unit));
  if (!minutes) return `${whole}s`;
  if (!hours) return `${minutes}m`;
  if (!days) return `${hours}h${two(minutes % 60)}m`;
  return `${days}d${two(hours % 24)}h`;
}

export function count(number) {
  if (number === null || number === undefined) return '–';
  let unit = '';
  for (const next of ['k', 'M', 'G']) {
    if (number < 1000) break;
    [number, unit] = [number / 1000, next];
  }
  return number.toFixed(unit && number < 100 ? 1 : 0) + unit;
}

export const usd = (amount) => (amount === null || amount === undefined ? '?' : `$${amount.toFixed(amount >= 1 || !amount ? 2 : 4)}`);

export const percent = (share) => (share === null || share === undefined ? '–' : `${Math.round(share * 100)} %`);

export const many = (number, one, more = `${one}s`) => `${number} ${number === 1 ? one : more}`;

// The state as an icon and a word, never only as a color.
export const state = (status) => h(`span.state.is-${/^[a-z]+$/.test(status) ? status : 'other'}`, {}, icon(SIGNS[status] ?? 'circle'), h('span', {}, String(status).replace('_', ' ')));

// The time since a moment, which updates each second.
export function ago(value) {
  const at = seconds(value);
  if (!at) return '–';
  return h('time', { datetime: new Date(at * 1000).toISOString(), 'data-at': at }, duration(Date.now() / 1000 - at));
}

setInterval(() => {
  for (const one of document.querySelectorAll('time[data-at]')) {
    const text = duration(Date.now() / 1000 - Number(one.dataset.at));
    if (one.textContent !== text) one.firstChild.data = text;
  }
}, 1000);
