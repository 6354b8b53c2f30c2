// Numbers, times and states in words.
import { h } from './dom.js';

const SIGNS = { working: '▶', idle: '○', waiting: '?', paused: '‖', failed: '✗', shutdown: '■' };

export const clock = (seconds) => (seconds ? new Date(seconds * 1000).toLocaleTimeString([], { hour12: false }) : '–');

export const moment = (seconds) => {
  if (!seconds) return 'not known';
  const at = new Date(seconds * 1000);
  const two = (n, width = 2) => String(n).padStart(width, '0');
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`;
};

export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [minutes, hours, days] = [60, 3600, 86400].map((unit) => Math.floor(whole / unit));
  if (!minutes) return `${whole}s`;
  if (!hours) return `${minutes}m`;
  if (!days) return `${hours}h${String(minutes % 60).padStart(2, '0')}m`;
  return `${days}d${String(hours % 24).padStart(2, '0')}h`;
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

// The state as a sign and a word, never only as a color.
export const state = (status) => h(`span.state.is-${/^[a-z]+$/.test(status) ? status : 'other'}`, {}, h('span', { 'aria-hidden': 'true' }, SIGNS[status] ?? '•'), ` ${status}`);

// The time since a moment, which updates each second.
export function ago(seconds) {
  if (!seconds) return '–';
  return h('time', { datetime: new Date(seconds * 1000).toISOString(), 'data-at': seconds }, duration(Date.now() / 1000 - seconds));
}

setInterval(() => {
  for (const one of document.querySelectorAll('time[data-at]')) {
    const text = duration(Date.now() / 1000 - Number(one.dataset.at));
    if (one.textContent !== text) one.firstChild.data = text;
  }
}, 1000);
