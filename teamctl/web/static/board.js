// The board by columns; tasks move by mouse and by keys.
import { announce, ask, confirmed, perform, form, once, openDialog } from './acts.js';
import { avatar, button, card, empty, field, h, head, icon } from './dom.js';
import { ago, clock, many } from './format.js';
import { filled } from './charts.js';
import { markdown } from './markdown.js';
import { room } from './overview.js';
import { noteSeen } from './waiting.js';

const COLUMNS = { pending: 'To do', in_progress: 'In progress', checking: 'Checking', completed: 'Completed' };
const ORDER = ['pending', 'in_progress', 'completed']; // a person moves to these; checks run by themselves

export function board({ known, root }) {
  const names = () => (known.team?.members ?? []).map((one) => one.name);
  const focus = (id) => setTimeout(() => document.querySelector(`[data-key="task ${CSS.escape(id)}"] button`)?.focus(), 300);
  const claim = async (task) => {
    const choice = h('select', { name: 'owner' }, names().map((name) => h('option', {}, name)));
    if (!names().length) return announce('Nobody is in the team who could take it.', true);
    if (await ask(`Who takes task ${task.id}?`, [field('Owner', choice)], ['Claim', 'Cancel']) === 'Claim') await perform('claim-task', { id: task.id, owner: choice.value });
    return focus(task.id);
  };
  const move = async (task, status) => {
    if (!status || status === task.status) return;
    if (status === 'in_progress' && !task.owner) await claim(task);
    else await perform('change-task', { id: task.id, status });
    focus(task.id);
  };
  const pressed = (event) => {
    const task = find(event.currentTarget.dataset.id);
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!task || !by || !known.may) return;
    event.preventDefault();
    move(task, ORDER[(task.status === 'checking' ? (by > 0 ? 1 : 2) : ORDER.indexOf(task.status)) + by]);
  };
  const find = (id) => (known.board?.tasks ?? []).find((one) => one.id === id);
  const drag = (event) => event.dataTransfer.setData('text/plain', event.currentTarget.dataset.id);
  const over = (event) => {
    event.preventDefault();
    event.currentTarget.classList.add('over');
  };
  const leave = (event) => event.currentTarget.classList.remove('over');
  const drop = (event) => {
    event.preventDefault();
    leave(event);
    const task = find(event.dataTransfer.getData('text/plain'));
    if (task) move(task, event.currentTarget.dataset.status === 'checking' ? 'completed' : event.currentTarget.dataset.status);
  };
  const show = (event) => {
    const task = find(event.currentTarget.closest('li').dataset.id);
    if (task) openDialog(`${task.id} · ${task.subject}`, details(task, known, { claim, move }));
  };
  const item = (task) => h('li.task', { 'data-key': `task ${task.id}`, 'data-id': task.id, draggable: known.may ? 'true' : null, ondragstart: drag, onkeydown: pressed },
    button(task.subject, show), h('div.bar', {}, h('span', {}, task.id), task.owner ? [avatar(task.owner, known.team.members), task.owner] : task.role ? `for a ${task.role}` : null, tags(task)));
  const add = () => openDialog('Add a task', form('Add a task', [
    field('Subject', h('input', { name: 'subject', required: true, autocomplete: 'off' })), field('Description', h('textarea', { name: 'description', rows: 4 })),
    field('Only for the role', h('input', { name: 'role', autocomplete: 'off' })), field('Check: a command that must pass', h('input', { name: 'check', autocomplete: 'off' })),
  ], 'Add', 'add-task', once));
  return {
    draw() {
      const tasks = known.board?.tasks ?? [];
      noteSeen(known);
      const column = ([status, title]) => {
        const own = tasks.filter((one) => one.status === status);
        if (status === 'completed') own.sort((a, b) => (a.updated < b.updated ? 1 : -1));
        return h('section', { 'data-key': status, 'data-status': status, 'aria-label': title, ondragover: over, ondragleave: leave, ondrop: drop }, h('h2', {}, title, h('span', {}, own.length)), h('ul', {}, own.map(item)));
      };
      return [
        head('Board', known.may ? button([icon('plus'), 'Add a task'], add, { class: 'primary' }) : null),
        known.board?.trouble && h('p.bad', {}, known.board.trouble), (known.board?.damaged ?? []).map((one) => h('p.bad', {}, one)),
        tasks.length ? [known.may && h('p.note', {}, 'Drag a task to move it, or press ← and → on it; Enter opens it.'), h('div.lanes', { tabindex: 0, role: 'region', 'aria-label': 'The board', 'data-key': 'lanes' }, Object.entries(COLUMNS).map(column)),
          card('As it filled and emptied', filled(tasks, room(root)), h('p.note', {}, `${many(tasks.length, 'task')}, ${tasks.filter((one) => one.status === 'completed').length} completed (green)`))]
          : card('', empty('No tasks yet.', 'Add one; an idle teammate of its role takes it by itself. On a terminal: ', h('code', {}, 'teamctl task add "…"'))),
      ];
    },
  };
}

function tags(task) {
  const failed = (task.attempts ?? []).filter((one) => one.status !== 0).length;
  return [
    task.blocked ? h('span.tag.warn', {}, `after ${task.blocked_by.join(', ')}`) : null,
    task.proven ? h('span.tag.good', {}, icon('check'), 'proven') : failed ? h('span.tag.bad', {}, `failed ${many(failed, 'time')}`) : task.check ? h('span.tag', {}, 'has a check') : null,
  ];
}

function details(task, known, { claim, move }) {
  const leave = (work) => () => { // the event of the close comes later, and the next dialog after it
    const dialog = document.getElementById('dialog');
    dialog.addEventListener('close', work, { once: true });
    dialog.close('');
  };
  const remove = async () => { if (await confirmed(`Delete task ${task.id}?`, 'Delete')) perform('change-task', { id: task.id, status: 'deleted' }); };
  const next = { pending: ['completed'], in_progress: ['pending', 'completed'], checking: ['pending'], completed: ['pending'] }[task.status] ?? [];
  return h('div', {},
    h('p.note', {}, [COLUMNS[task.status] ?? task.status, task.owner && `owner ${task.owner}`, task.role && `role ${task.role}`, task.created_by && `from ${task.created_by}`].filter(Boolean).join(' · '), task.updated ? [' · changed ', ago(task.updated), ' ago'] : null),
    task.description ? markdown(task.description) : h('p.note', {}, 'No description.'),
    task.check ? h('p', {}, 'Check: ', h('code', {}, task.check)) : null,
    (task.attempts ?? []).length ? h('ul', {}, task.attempts.map((one) => h('li', {}, `${clock(one.time)} `, h('code', {}, one.command), one.status === 0 ? ' passed' : ` failed (${one.why || `status ${one.status}`})`))) : null,
    (task.notes ?? []).map((one) => h('p.note', {}, one)),
    known.may && h('div.bar', {}, task.owner || task.status === 'completed' ? null : button('Claim …', leave(() => claim(task)), { class: 'primary' }), next.map((status) => button(`Move to “${COLUMNS[status]}”`, leave(() => move(task, status)))), button('Delete', leave(remove), { class: 'danger' })));
}
