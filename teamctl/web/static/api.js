// The server: the token, requests, and the stream of events, which begins again after an interruption.

const KEY = 'teamd-token';
const PAUSES = [250, 500, 1000, 2000, 5000];
const SILENT = 40000; // milliseconds; the server sends something every 15 s
let token = '';
let base = '/api/';
let current = null; // ends the present stream
try { token = sessionStorage.getItem(KEY) ?? ''; } catch { /* blocked: the link works until a reload */ }

// Store the token of a link, and remove it from the address bar.
export function takeToken(hash = location.hash) {
  const found = /token=([\w-]+)/.exec(hash);
  if (!found) return false;
  token = found[1];
  try { sessionStorage.setItem(KEY, token); } catch { /* as above */ }
  history.replaceState(null, '', `${location.pathname}#/`);
  return true;
}

// Ask for another team of the person's from now on; an empty key means the team of the link.
export function chooseTeam(key) {
  base = key ? `/api/team/${key}/` : '/api/';
  current?.abort();
}

export const hasToken = () => token !== '';

const headers = (more = {}) => ({ Authorization: `Bearer ${token}`, ...more });

async function answer(response) {
  const found = await response.json().catch(() => ({}));
  if (!response.ok) throw Object.assign(new Error(found.error ?? `the server answered ${response.status}`), { status: response.status });
  return found;
}

export async function get(what, facts = {}, signal = undefined) {
  const query = new URLSearchParams(facts).toString();
  return answer(await fetch(`${base}${what}${query ? `?${query}` : ''}`, { headers: headers(), signal, credentials: 'omit' }));
}

export async function act(what, facts) {
  const posted = { method: 'POST', body: JSON.stringify(facts), headers: headers({ 'Content-Type': 'application/json' }), credentials: 'omit' };
  return (await answer(await fetch(`${base}do/${what}`, posted))).text;
}

// Follow the events forever: `told(name, value, id)` gets each, `report(state, why)` the state of the connection.
export async function follow(told, report) {
  let failures = 0;
  for (;;) {
    const used = token;
    const asked = base;
    try {
      await stream((event) => {
        if (!failures) report('open');
        failures = 0;
        told(event.name, event.data, event.id);
      }, () => { failures = 0; report('open'); });
      failures = Math.max(failures, 1); // the server closed the stream, or ended
    } catch (error) {
      failures += 1;
      if (error.status === 401) {
        report('refused');
        await change(used);
        failures = 0;
        continue;
      }
      if (asked !== base) {
        failures = 0;
        continue;
      }
      report('lost', error.status ? error.message : ''); // without a status, nobody answered
    }
    await new Promise((go) => { setTimeout(go, PAUSES[Math.min(failures, PAUSES.length) - 1]); });
  }
}

// Wait until the token is replaced.
async function change(used) {
  while (token === used) await new Promise((go) => { setTimeout(go, 200); });
}

async function stream(told, opened) {
  const ending = new AbortController();
  const from = base;
  current = ending;
  let silence = 0;
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => ending.abort(), SILENT);
  };
  heard();
  try {
    const response = await fetch(`${base}events`, { headers: headers(), signal: ending.signal, cache: 'no-store', credentials: 'omit' });
    if (!response.ok) await answer(response);
    opened();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      heard();
      const whole = (rest + value).split('\n\n');
      rest = whole.pop();
      if (from === base) whole.map(parse).filter(Boolean).forEach(told);
    }
  } finally {
    clearTimeout(silence);
    ending.abort();
  }
}

function parse(block) {
  const found = {};
  for (const line of block.split('\n')) {
    const at = line.indexOf(': ');
    if (at > 0) found[line.slice(0, at)] = line.slice(at + 2);
  }
  return found.data === undefined ? null : { name: found.event, id: found.id, data: JSON.parse(found.data) };
}
