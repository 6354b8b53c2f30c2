"""The texts that teamd itself writes for a model, and the forms in which it shows mail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias
from xml.sax.saxutils import escape

from teamd.messages import LEAD, Message
from teamd.settings.skills import Skill
from teamd.transcript.records import Opened

_ATTRIBUTES = ("type", "summary", "request_id", "approve", "reason")

CUT_OFF_CALL = "this call did not run: your reply was cut off before it was complete"
INVALID_CALL = (
    "this call did not run: its input is not a JSON object ({wrong}); send it again as one"
)
CUT_OFF_REPLY = "<note>Your reply was cut off at its length limit. Go on where you stopped.</note>"
NEW_INSTRUCTIONS = (
    "<note>Your instructions have changed. These replace the ones at the beginning:\n"
    "{instructions}</note>"
)
INTERRUPTED_CALL = (
    "teamd was stopped while this call was under way. Whether it had any effect is not known: "
    "look before you repeat it."
)
BROKEN_OFF_CALL = (
    "interrupted by {by}: this call did not run, or not to its end. Do not go on with it unless "
    "you are told to."
)
SHUT_DOWN_CALL = (
    "you were shut down while a call waited for the person's permission: this call did not run, "
    "and its request was withdrawn."
)
SKILLS = (
    "Skills: instructions for certain kinds of work. When one fits what you are to do, read it "
    "with load_skill first:"
)

_PLAN_RULE: Final = """\
Plan: you work by plan. For each task read what you need, then submit a plan with submit_plan and \
end your turn; the answer comes as mail. Until your plan is approved, bash, write_file, edit_file \
and background_run are refused. Every new task from '{above}' needs a new plan."""

_LEADER: Final = (
    "The person, or the agent, that leads the team is 'lead': report to 'lead' when a task is done "
    "or when you cannot go on. On a task that comes from the lead of another team, such as "
    "'lead@other', report to that address."
)
_LEADER_ELSEWHERE: Final = (
    "You were put into this team by '{above}', who leads another one: report to '{above}' when a "
    "task is done or when you cannot go on. On a task that comes from 'lead', who leads your own "
    "team, report to 'lead'."
)

_OTHER_HOSTS: Final = """\
Other hosts: this team goes on over several, and this one is '{host}'. A teammate on another is \
addressed as name@{team}@host, and mail from there names its sender so. You share no files, no \
board and no approvals with it: push your work with git, and name branch and commit in your \
message; ask it by mail for what only it can do. Mail to a host that is away waits for it."""

_SHARED: Final = "which the whole team shares"
_OWN_COPY: Final = (
    "a clone of the project's repository that is yours alone, on the branch {branch}. Nobody sees "
    "what you do there before it is merged, and only what you commit to that branch can be: commit "
    "your work with git when it is done. `git push`, as a command of its own, asks the person to "
    "push it to their remote"
)

IDLE_SO_LEFT = "idle, and no mail waits"
PAUSED_SO_LEFT = "paused"
_HELD: Final = (
    "{name} was woken {wakes} times in a row by mail of other teammates and did nothing but write "
    "mail, so their mail waits in its inbox until the person, the lead or the board wakes it"
)
MAIL_HELD: Final = (
    "Your mail to me waits: mail of teammates woke me again and again, and I did nothing but write "
    "mail. I read yours when the person, the lead or a task of the board wakes me. Do not answer "
    "this."
)
LEFT = (
    "<note>You agreed to shutdown_request {ids} and were shut down here. If you read this, you "
    "were woken again: that request is done with, there is nothing to answer.</note>"
)
CLOSED = (
    "<note>shutdown_request {ids} is no longer open: you were shut down since, and woken again. "
    "There is nothing to answer.</note>"
)


def render_hold(name: str, wakes: int) -> str:
    """Return why mail from teammates waits, as a sentence for the lead."""
    return _HELD.format(name=name, wakes=wakes)


def system_prompt(
    opened: Opened,
    *,
    workspace: Path,
    shared: bool = True,
    above: str = LEAD,
    host: str | None = None,
    instructions: str = "",
    skills: Iterable[Skill] = (),
) -> str:
    """Return the system prompt of a teammate.

    Args:
        opened: holds its name, role and team, and whether it works by plan.
        workspace: the folder in which its tools work.
        shared: whether that is the folder of the whole team, not a copy of its own.
        above: the address to which it reports: `lead`, or that of a lead elsewhere.
        host: this host's name, if the team has other hosts.
        instructions: the text of the role's file.
        skills: the skills that it may load.
    """
    name, role, team = opened.name, opened.role, opened.team
    if name == LEAD:
        parts = [_lead(name, role, team, workspace)]
    else:
        place = _SHARED if shared else _OWN_COPY.format(branch=f"team/{name}")
        parts = [_place(name, role, team, f"{workspace}, {place}", above)]
    if host is not None:
        parts.append(_OTHER_HOSTS.format(host=host, team=team))
    if opened.plan:
        parts.append(_PLAN_RULE.format(above=above))
    if instructions:
        parts.append(f"Your role, {role}, is described so:\n\n{instructions}")
    if listed := [f"- {skill.name}: {skill.description}" for skill in skills]:
        parts.append("\n".join((SKILLS, *listed)))
    return "\n\n".join(parts)


def _place(name: str, role: str, team: str, workspace: str, above: str) -> str:
    leader = _LEADER if above == LEAD else _LEADER_ELSEWHERE.format(above=above)
    return f"""You are '{name}', role: {role}.

You are a member of the team '{team}'. Your agent id is {name}@{team}. You and your teammates each \
run as a process of your own, and you reach each other only by mail.

Mail: what others send you comes in <inbox> with one <teammate-message> each, before you are asked \
to go on; teammate_id names the sender. Answer with send_message. Nobody reads the text of your \
turns, so whatever somebody has to know must be sent. {leader} Do not send mail only to thank or \
to confirm.

Work: your tools work in {workspace}. Read a file before you change \
it, run what you wrote, and say what you have seen rather than what you expect. When there is \
nothing left to do, end your turn: you wake again when mail comes, and remember everything."""


def _lead(name: str, role: str, team: str, workspace: Path) -> str:
    return f"""You are '{name}', role: {role}.

You lead the team '{team}' for the person who talks to you; your agent id is {name}@{team}. You \
and your teammates each run as a process of your own, and you reach them only by mail.

Mail: what others send you comes in <inbox> with one <teammate-message> each, before you are asked \
to go on; teammate_id names the sender, and 'user' is the person. The person reads the text of \
your turns as you say it, so answer 'user' by simply saying it. Teammates read only what you \
send them with send_message or broadcast. You wake by yourself when mail comes: say to the person \
what matters of it, in few words.

Work: spawn_teammate starts or wakes a teammate for work that takes a while and needs a memory of \
its own; `task` without a name runs a subagent for a question that one summary answers. Look at \
list_teammates before you spawn: one that is idle is not dead, it waits for mail. Your tools work \
in {workspace}, which the whole team shares. Do not wait in your turn for an answer: end the turn, \
and it will reach you."""


def subagent_prompt(*, of: str, role: str, workspace: Path) -> str:
    """Return the system prompt of a subagent: it has a single task and cannot send mail."""
    return f"""You are 'subagent', role: {role}.

You do one task for '{of}', who sees nothing of what you do but the text of your last turn: put \
all that is needed into it, briefly, with file names and figures. Your tools work in {workspace}. \
There is nobody to ask."""


def introduce(opened: Opened) -> str:
    """Return a line that says whose conversation a record opened."""
    name, role, team = opened.name, opened.role, opened.team
    if not (name and role and team):
        return opened.system.split("\n", 1)[0]  # a subagent's, or of an early version
    return f"You are '{name}', role: {role}, a member of the team '{team}' ({name}@{team})."


def render_inbox(messages: Iterable[Message]) -> str:
    """Render one delivery of mail, escaped so that no content can end its own tag."""
    return "\n".join(("<inbox>", *map(_render, messages), "</inbox>"))


def _render(message: Message) -> str:
    shown = [f'teammate_id="{_attribute(message.sender)}"']
    facts = {**message.extra, "type": message.type}
    for key in _ATTRIBUTES:
        value = facts.get(key)
        if value is not None and value != "":
            shown.append(f'{key}="{_attribute(value)}"')
    opening = f"<teammate-message {' '.join(shown)}>"
    return f"{opening}\n{escape(message.content)}\n</teammate-message>"


def _attribute(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return escape(text, {'"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def render_job(job_id: str, state: str, what: str) -> str:
    """Render the news that a background job has ended."""
    opening = f'<background-job job_id="{_attribute(job_id)}" state="{_attribute(state)}">'
    return f"{opening}\n{escape(what)}\n</background-job>"


# The open work of a teammate, as the team's records have it: titles, and the lines below each.
OpenWork: TypeAlias = Callable[[], Sequence[tuple[str, Sequence[str]]]]

DEMAND: Final = """\
<note>This conversation has become too long for your context. Write a summary of it now: it will \
stand in the place of everything above, and is all that you will remember. Say what you were \
asked to do and by whom; what is done, with the paths, names, commands and figures that matter; \
what was decided and why; what you learned from others; what failed; what you were in the middle \
of, and what is left to do. Who you are, your open tasks and unanswered mail will be added to it, \
word for word. Answer with the text of the summary and nothing else: no tool that you call now \
will run.</note>"""
GAP: Final = "<note>Here a part of this conversation is left out: it was too long.</note>"
_NO_SUMMARY: Final = (
    "(There is none: the conversation was too long even to be summarised. Look at the files, the "
    "board and your mail for what was done, and ask whoever gave you the work.)"
)
_THOUSAND: Final = 1000


@dataclass(frozen=True, slots=True)
class OpenItem:
    """Mail or a note that a teammate has read and not finished.

    Attributes:
        messages: the mail.
        note: a text that is not mail.
        passing: whether a reply settles it; otherwise the end of the turn does.
    """

    messages: tuple[Message, ...] = ()
    note: str = ""
    passing: bool = False

    @property
    def texts(self) -> list[str]:
        """The texts in the item, each of which may be cut."""
        return [self.note] if self.note else [mail.content for mail in self.messages]


def restate(who: str, work: OpenWork, items: Sequence[OpenItem], *, limit_bytes: int) -> str:
    """Describe the teammate and its open work, from the program's records.

    Args:
        who: the line that `introduce` returns.
        work: the open work in the records of the team.
        items: mail and notes that are not finished; kept word for word.
        limit_bytes: of mail and notes; beyond it the longest are cut, with a note.
    """
    parts = [escape(who), *(_list_lines(title, lines) for title, lines in work())]
    if items:
        parts.append("What came and you have not finished with, word for word:")
        share = _share([len(text.encode()) for item in items for text in item.texts], limit_bytes)
        parts += [_render_item(item, share) for item in items]
    return "\n\n".join(filter(None, parts))


def render_summary(text: str, restated: str) -> str:
    """Render a summary and the program's additions in the form that the model reads.

    Args:
        text: the model's own summary; empty if it wrote none.
        restated: the text that `restate` returns.
    """
    return (
        "<note>Your conversation had become too long. What it held until here is replaced by "
        "this summary of yours, and by what still holds. Go on from there.</note>\n"
        f"<summary>\n{escape(text) or _NO_SUMMARY}\n</summary>\n"
        f"<still-holds>\n{restated}\n</still-holds>"
    )


def render_cleared(tool: str, size: int) -> str:
    """Return the text that replaces a tool's old output of this many bytes."""
    amount = f"{size} bytes" if size < _THOUSAND else f"{round(size / _THOUSAND)} kB"
    return f"[cleared: {amount} of output of {tool}; run it again if you need it]"


def clip_text(text: str, limit_bytes: int) -> str:
    """Return a text; a long text is cut, with a line that says how much is missing."""
    data = text.encode()
    if len(data) <= limit_bytes:
        return text
    kept = data[:limit_bytes].decode(errors="ignore")
    missing = len(data) - len(kept.encode())
    return f"{kept}\n[cut here: {missing} bytes more were too long for your context]"


def _share(sizes: Sequence[int], limit: int) -> int:
    """Return the size to which to cut the longest texts, so that all together fit the limit."""
    rest, left = limit, len(sizes)
    for size in sorted(sizes):
        if size * left > rest:
            return rest // left
        rest, left = rest - size, left - 1
    return limit


def _render_item(item: OpenItem, share: int) -> str:
    if item.note:
        return clip_text(item.note, share)
    cut = [replace(mail, content=clip_text(mail.content, share)) for mail in item.messages]
    return render_inbox(cut)


def _list_lines(title: str, lines: Sequence[str]) -> str:
    return "\n".join((title, *(f"- {escape(line)}" for line in lines))) if lines else ""
