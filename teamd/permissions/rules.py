"""Judges a tool call by the rules of team.toml.

The first rule that matches a command wins, and of several commands the strictest answer counts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Final

from teamd.permissions.grant import Grant
from teamd.permissions.shell_syntax import SimpleCommand, parse
from teamd.permissions.wrapped_commands import mentions, program, views
from teamd.settings.known_tools import list_guarded
from teamd.settings.schema import Permission

BASH: Final = "bash"


class Decision(IntEnum):
    """An answer to a call, from the mildest to the strictest."""

    ALLOW = 0
    ASK = 1
    DENY = 2


class _Match(IntEnum):
    """Whether a rule matches a command."""

    NO = 0
    MAYBE = 1
    YES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The parts of a tool call that rules match.

    Attributes:
        command: the command, for a tool that runs commands.
        path: the file, relative to the workspace, with links resolved.
    """

    tool: str
    teammate: str
    command: str | None = None
    path: str | None = None

    @property
    def tools(self) -> frozenset[str]:
        """The names by which rules match it: `background_run` also counts as `bash`."""
        return frozenset({self.tool, BASH} if self.tool in list_guarded("command") else {self.tool})


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The judgement of the rules on a call.

    Attributes:
        rule: the rule that decided; `None` if no rule matches the call.
        grants: the grants that would let the same call pass without a question.
    """

    then: Decision = Decision.ALLOW
    rule: Permission | None = None
    grants: tuple[Grant, ...] = field(default=())


def judge(rules: Iterable[Permission], call: Call, granted: Collection[Grant] = ()) -> Judgement:
    """Judge a call by the rules, in their order.

    Args:
        rules: those of all teammates and tools.
        call: the call to judge.
        granted: the person's lasting grants; they only replace a question, never a denial.
    """
    ours = [rule for rule in rules if _concerns(rule, call)]
    if call.command is None or not ours:
        return _judge_whole(ours, call, granted)
    commands = parse(call.command) or (SimpleCommand(words=()),)
    verdicts = [_judge_command(ours, views(command)) for command in commands]
    worst = max(verdicts, key=lambda verdict: verdict.then)
    if worst.then is not Decision.ASK:
        return Judgement(then=worst.then, rule=worst.rule)
    needed = [_needed(call, one) for one in verdicts if one.then is Decision.ASK]
    return _unless_granted(worst, needed, granted)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The verdict of the rules on one command; `certain` if a rule matches it for sure."""

    then: Decision
    rule: Permission | None
    command: SimpleCommand
    certain: bool


def _concerns(rule: Permission, call: Call) -> bool:
    teammate = fnmatchcase(call.teammate.lower(), rule.teammate.lower())
    tool = any(fnmatchcase(name, rule.tool) for name in call.tools)
    if rule.command is not None and call.command is None:
        return False
    return teammate and tool and (rule.path is None or _matches_path(rule, call.path))


def _matches_path(rule: Permission, path: str | None) -> bool:
    if path is None or rule.path is None:
        return False
    pattern = _translate(rule.path)
    if re.fullmatch(pattern, path) is not None:
        return True
    # On a file system that ignores case, another spelling names the same file.
    return rule.then != "allow" and re.fullmatch(pattern, path, re.IGNORECASE) is not None


def _translate(glob: str) -> str:
    """Return the expression of a path's glob: `**` for any folders, `*` within one name."""
    pattern = ""
    glob = f"{glob.removeprefix('./')}**" if glob.endswith("/") else glob.removeprefix("./")
    for part in re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", glob):
        known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
        pattern += known.get(part, re.escape(part))
    return f"(?s:{pattern})"


def _judge_whole(rules: Sequence[Permission], call: Call, granted: Collection[Grant]) -> Judgement:
    rule = rules[0] if rules else None
    then = Decision.ALLOW if rule is None else _then(rule)
    if then is not Decision.ASK:
        return Judgement(then=then, rule=rule)
    needed = Grant(tool=call.tool, path=call.path or "")
    return _unless_granted(_Verdict(then, rule, SimpleCommand(words=()), True), [needed], granted)


def _judge_command(rules: Sequence[Permission], seen: Sequence[SimpleCommand]) -> _Verdict:
    """Judge one command: first as it is written, then the commands that it runs."""
    maybe: Permission | None = None
    for rule in rules:
        match = _match(rule, seen)
        if match is _Match.YES and (maybe is None or rule.then == "deny"):
            return _Verdict(_then(rule), rule, seen[0], certain=True)
        if match is _Match.YES:
            break
        if match is _Match.MAYBE and maybe is None:
            maybe = rule
    then = Decision.ALLOW if maybe is None else Decision.ASK
    return _Verdict(then, maybe, seen[0], certain=False)


def _then(rule: Permission) -> Decision:
    return Decision[rule.then.upper()]


def _match(rule: Permission, seen: Sequence[SimpleCommand]) -> _Match:
    """Return whether a rule matches a command.

    A rule that allows covers only the command exactly as written, so neither another program of
    that name nor a variable that is set for it.
    """
    if rule.command is None:
        return _Match.YES
    wanted = tuple(shlex.split(rule.command))
    written = seen[0]
    if rule.then == "allow":
        covered = written.plain and written.words[: len(wanted)] == wanted
        return _Match.YES if covered else _Match.NO
    found = max(_match_words(wanted, command) for command in seen)
    return max(found, _Match.MAYBE if mentions(written, wanted) else _Match.NO)


def _match_words(wanted: tuple[str, ...], command: SimpleCommand) -> _Match:
    otherwise = _Match.MAYBE if command.opaque else _Match.NO
    for at, (rule, word) in enumerate(zip(wanted, command.words, strict=False)):
        if word is None:
            return _Match.MAYBE
        same = program(rule) == program(word) if at == 0 else rule == word
        if not same:
            return otherwise
    return _Match.YES if len(command.words) >= len(wanted) else otherwise


def _needed(call: Call, asked: _Verdict) -> Grant:
    words = tuple(word for word in asked.command.words if word is not None)
    alone = asked.command.plain and len(words) == len(asked.command.words)
    if asked.certain and alone and words:
        return Grant(tool=_named(call), command=words)
    return Grant(tool=_named(call), text=call.command or "")


def _named(call: Call) -> str:
    return BASH if BASH in call.tools else call.tool


def _unless_granted(
    asked: _Verdict, needed: Sequence[Grant], granted: Collection[Grant]
) -> Judgement:
    left = dict.fromkeys(one for one in needed if not _covers(granted, one))
    if not left:
        return Judgement(then=Decision.ALLOW, rule=asked.rule)
    return Judgement(then=Decision.ASK, rule=asked.rule, grants=tuple(left))


def _covers(granted: Iterable[Grant], needed: Grant) -> bool:
    return any(
        one == needed
        or (
            one.command != ()
            and one.tool == needed.tool
            and needed.command[: len(one.command)] == one.command
        )
        for one in granted
    )
