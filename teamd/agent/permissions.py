"""A teammate's permissions: calls that the rules allow, and calls that need the person's consent.

Only the rules and the answers in the store count; mail never allows anything.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from teamd.approvals.approval import CALLS, Approval, Kind, Verdict, describe_call, id_of_call
from teamd.approvals.store import Approvals
from teamd.copies.push import Push
from teamd.files.paths import TeamPaths
from teamd.journal import Journal, LoggedEvent
from teamd.permissions.grant import Grant
from teamd.permissions.rules import BASH, Call, Decision, Judgement, judge
from teamd.settings.schema import Permission
from teamd.tools import Input, PermissionPending, ToolError
from teamd.tools.push import PushCommand, Pushes
from teamd.tools.shell import BashInput
from teamd.tools.workspace import Workspace

LONGEST: Final = 10_000  # characters of a command or path; a person must see all of it
_INDENT: Final = "    "
_SHOWN: Final = 2_000  # characters of any other argument
_ENDED: Final = "; do not try it in another way, go on without it or say that you cannot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """One teammate's permissions.

    Attributes:
        rules: those of the settings, in their order.
        ask_seconds: how long a request waits for its answer.
        approvers: agents that may answer besides the person.
        person: returns the address of the person.
        secret: returns the secret of the conversation, from which request ids are computed.
        settle: syncs the conversation to disk, since a request refers to a call in it.
        pushes: those of a teammate with a working copy.
    """

    name: str
    rules: Sequence[Permission]
    ask_seconds: float
    approvers: Sequence[str]
    workspace: Workspace
    approvals: Approvals
    paths: TeamPaths
    journal: Journal
    person: Callable[[], str]
    secret: Callable[[], str] = str
    settle: Callable[[], None] = lambda: None
    pushes: Pushes | None = None

    def check(self, tool: str, arguments: Input, key: str) -> str:
        """Check that a call may run; return the approver's words as a line of their own, if any.

        Args:
            tool: the name of the tool.
            arguments: the validated arguments of the call.
            key: identifies this call; the same call waits for the same request.

        Raises:
            ToolError: it may not.
            PermissionPending: the person is asked; try again when there is an answer.
        """
        if self.pushes and (command := self._read_push(self.pushes, arguments)):
            return self._check_push(self.pushes, command, arguments, key)
        judgement = self._judge(self._call(tool, arguments))
        if judgement.then is not Decision.ASK:
            return ""
        self.settle()
        return self._heed(self._ask(tool, arguments, key, judgement))

    def check_unasked(self, tool: str, arguments: Input, key: str) -> str:
        """Check that a call of a subagent may run, without asking the person.

        Raises:
            ToolError: it may not.
        """
        if self.pushes and (command := self._read_push(self.pushes, arguments)):
            push = self.pushes.prepare(command)
            judgement = self._judge_push(push, arguments)
            if judgement.then is not Decision.ASK:
                self.pushes.ready[key] = push
        else:
            judgement = self._judge(self._call(tool, arguments))
        if judgement.then is Decision.ASK:
            self._log(tool, "denied", judgement.rule, why="a subagent cannot ask")
            why = f"{tool} needs the person's permission here, and a subagent cannot ask for it"
            raise ToolError(f"{why}; leave it to {self.name}, and say so")
        return ""

    def answered(self, request: str) -> bool:
        """Return whether a request is no longer open."""
        found = self.approvals.find(request)
        return found is None or not found.is_open

    def withdraw(self) -> None:
        """Withdraw requests for calls that will not run."""
        self.approvals.withdraw(self.name, *CALLS)

    @staticmethod
    def _read_push(pushes: Pushes, arguments: Input) -> PushCommand | None:
        return pushes.read(arguments.command) if isinstance(arguments, BashInput) else None

    def _check_push(self, pushes: Pushes, command: PushCommand, arguments: Input, key: str) -> str:
        """Check a push as `check` does; it needs the person's consent unless a rule allows it."""
        request = id_of_call(key, self.secret())
        asked = self.approvals.find(request)
        if asked is None:
            push = pushes.prepare(command)
            judgement = self._judge_push(push, arguments)
            if judgement.then is not Decision.ASK:
                pushes.ready[key] = push
                return ""
            self.settle()
            self._log(BASH, "asked", judgement.rule, id=request)
            asked = self._request(
                request,
                type=Kind.PUSH,
                content=pushes.ask(push, request),
                grants=judgement.grants,
                extra=push.to_json(),
            )
        said = self._heed(self.approvals.ask(asked))
        pushes.ready[key] = Push.from_json(asked.extra)
        return said

    def _judge_push(self, push: Push, arguments: Input) -> Judgement:
        """Judge a push by the rules, both as it is written and with its remote and branch named.

        A push leaves the machine with the person's rights, so it needs consent, unless a rule for
        `git push` or a lasting permission for this branch allows it.

        Raises:
            ToolError: it is denied.
        """
        words = shlex.join(("git", "push", push.remote, push.branch))
        grant = Grant(tool=BASH, text=words)
        calls = (self._call(BASH, arguments), Call(tool=BASH, teammate=self.name, command=words))
        judged = [self._judge(call) for call in calls]
        if any(grant in given.grants for given in self.approvals.grants()):
            return Judgement()
        asking = next((one for one in judged if one.then is Decision.ASK), None)
        allowing = next((one for one in judged if one.rule and _names_push(one.rule)), None)
        if asking is None and allowing is not None:
            return allowing
        rule = asking.rule if asking else None
        return Judgement(then=Decision.ASK, rule=rule, grants=(grant,))

    def _judge(self, call: Call) -> Judgement:
        """Judge a call.

        Raises:
            ToolError: it is denied.
        """
        if not self.rules:
            return Judgement()
        tool = call.tool
        judgement = judge(self.rules, call)
        if judgement.then is Decision.ASK:  # only then the store is read
            granted = [grant for given in self.approvals.grants() for grant in given.grants]
            judgement = judge(self.rules, call, granted)
        if judgement.rule is not None and judgement.then is not Decision.ASK:
            self._log(tool, "denied" if judgement.then else "allowed", judgement.rule)
        if judgement.then is Decision.DENY:
            why = f"{tool} is denied here by a rule of team.toml ({_shown(judgement.rule)})"
            raise ToolError(why + _ENDED)
        return judgement

    def _call(self, tool: str, arguments: Input) -> Call:
        command = getattr(arguments, "command", None)
        path = getattr(arguments, "path", None)
        if path is not None:
            path = self.workspace.shown(self.workspace.resolve(path))
        return Call(tool=tool, teammate=self.name, command=command, path=path)

    def _ask(self, tool: str, arguments: Input, key: str, judgement: Judgement) -> Approval:
        """Ask the person once per call, and return the request in its current state."""
        request = id_of_call(key, self.secret())
        if self.approvals.find(request) is None:
            self._log(tool, "asked", judgement.rule, id=request)
        return self.approvals.ask(
            self._request(
                request,
                type=Kind.PERMISSION,
                content=self._question(tool, arguments, request, judgement),
                approvers=tuple(name for name in self.approvers if name != self.name),
                grants=judgement.grants,
                extra=describe_call(tool, _arguments(arguments)),
            )
        )

    def _request(self, request: str, **facts: Any) -> Approval:
        """Return a request to the person for a call that waits for the answer."""
        now = time.time()
        return Approval(
            id=request,
            asker=self.name,
            to=self.person(),
            asked=now,
            deadline=now + self.ask_seconds,
            told=True,  # the call that waits sees the answer, no mail is needed
            **facts,
        )

    def _heed(self, approval: Approval) -> str:
        """Return the approver's words if the request was approved.

        Raises:
            ToolError: it was rejected, or not answered in time.
            PermissionPending: it is open.
        """
        if approval.overdue:
            approval = self.approvals.expire(approval.id)
        if approval.is_open:
            raise PermissionPending(approval.id, _waits(approval), approval.deadline or 0.0)
        self.journal.note(
            "permission answered", id=approval.id, status=approval.status, by=approval.answered_by
        )
        if approval.status is Verdict.APPROVED:
            said = approval.reason.strip()
            return f"[approved by {approval.answered_by}: {said}]\n" if said else ""
        if approval.status is Verdict.REJECTED:
            why = f": {approval.reason}" if approval.reason else ""
            raise ToolError(f"rejected by {approval.answered_by}{why}{_ENDED}")
        raise ToolError(f"not allowed: nobody answered within {self.ask_seconds:g} s{_ENDED}")

    def _question(self, tool: str, arguments: Input, request: str, judgement: Judgement) -> str:
        lines = [f"{self.name} asks to run {tool}:"]
        for name, value in _arguments(arguments).items():
            # Indented, so that no argument passes for a line of this text.
            lines.append(f"{name}: {value}".replace("\n", f"\n{_INDENT}"))
        exact = any(grant.text for grant in judgement.grants)
        always = "this very command" if exact else "; ".join(map(str, judgement.grants))
        lines += [
            f"because of {_shown(judgement.rule)}",
            f"`teamctl approve {request}` allows it once, `teamctl reject {request}` refuses it.",
            f"`teamctl approve {request} --always` allows from now on: {always}",
        ]
        return self.paths.add_team_option("\n".join(lines)).replace("\0", "\ufffd")

    def _log(self, tool: str, verdict: str, rule: Permission | None, **more: Any) -> None:
        self.journal.note(
            LoggedEvent.PERMISSION, tool=tool, verdict=verdict, rule=_shown(rule), **more
        )


def _arguments(given: Input) -> dict[str, str]:
    """Return the arguments as a person sees them.

    Raises:
        ToolError: an argument is too long to be shown.
    """
    values = given.model_dump(exclude_none=True).items()
    return {name: _cut(name, str(value)) for name, value in values}


def _cut(name: str, value: str) -> str:
    """Return an argument as a person sees it: a command or path whole, others cut if long.

    Raises:
        ToolError: it is too long to be shown.
    """
    if name in ("command", "path"):
        if len(value) > LONGEST:
            why = f"its {name} is too long to be shown to the person, who would have to allow it"
            raise ToolError(f"{why} ({len(value)} characters, at most {LONGEST}); make it shorter")
        return value
    if len(value) <= _SHOWN:
        return value
    return f"{value[:_SHOWN]}\n[cut here: {len(value) - _SHOWN} characters more]"


def _names_push(rule: Permission) -> bool:
    return (rule.command or "").split()[:2] == ["git", "push"]


def _waits(approval: Approval) -> str:
    answer = f"`teamctl approve {approval.id}` or `teamctl reject {approval.id}`"
    return f"it waits for your permission, request {approval.id}: {answer}"


def _shown(rule: Permission | None) -> str:
    """Return a rule as it is written in team.toml."""
    if rule is None:
        return "no rule"
    facts = {"tool": rule.tool, "command": rule.command, "path": rule.path}
    words = [f'{key} = "{value}"' for key, value in facts.items() if value is not None]
    return "[[permission]] " + ", ".join([*words, f'then = "{rule.then}"'])
