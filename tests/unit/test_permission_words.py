"""Quotes, joined lines and odd shapes of the shell: a rule sees what bash would run."""

from __future__ import annotations

import pytest

from teamd.permissions.rules import Call, Decision, judge
from teamd.settings.schema import Permission

DENY_PUSH = Permission(tool="bash", command="git push", then="deny")


def then(command: str, *rules: Permission) -> str:
    call = Call(tool="bash", teammate="alice", command=command)
    return judge(rules or (DENY_PUSH,), call).then.name.lower()


@pytest.mark.parametrize(
    "command",
    [
        "git pu\\\nsh", 'git "pu\\\nsh"', 'g"i"t push', "[[ ( -n a ) || -n b ]] && git push",
        "[[ a < b ]]; git push", "case x in (a|b) git push;; esac",
    ],
)  # fmt: skip
def test_a_word_over_two_lines_and_a_command_after_a_test_are_denied(command: str) -> None:
    assert then(command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "[[ ( -n a ) || -n b ]] && git pull",
        'git "st\\\natus"',
        'echo "a \\"git push\\" \\n"',
    ],
)
def test_a_fully_understood_command_that_does_not_match_is_allowed(command: str) -> None:
    assert then(command) == "allow"


@pytest.mark.parametrize(
    ("quoted", "text"), [(r'"a\$b"', "a$b"), (r'"a\"b"', 'a"b'), (r'"a\\b"', r"a\b")]
)
def test_a_backslash_in_quotes_escapes_special_characters(quoted: str, text: str) -> None:
    rule = Permission(tool="bash", command=f"say '{text}'", then="deny")
    assert then(f"say {quoted}", rule) == "deny"


def test_a_backslash_in_quotes_stays_before_anything_else() -> None:
    rule = Permission(tool="bash", command=r"say 'a\nb'", then="deny")
    assert (then(r'say "a\nb"', rule), then('say "anb"', rule)) == ("deny", "allow")


@pytest.mark.parametrize(
    "command",
    [
        'git $"push"', "echo $'open", "echo > # git push", "cat << $x\ngit push\n$x",
        "case x of y) ls;; esac", "case x in y z; ls;; esac", "env $x ls", "timeout $x ls",
    ],
)  # fmt: skip
def test_text_that_bash_may_read_differently_is_asked_about(command: str) -> None:
    assert then(command) == "ask"


def test_a_possible_denial_is_asked_about_though_a_later_rule_allows_it() -> None:
    """`git $x` may be `git push`."""
    everything = Permission(tool="bash", command="git", then="allow")
    call = Call(tool="bash", teammate="alice", command="git $x")
    found = judge([DENY_PUSH, everything], call)
    assert (found.then, found.rule) == (Decision.ASK, DENY_PUSH)
    assert then("git pull", DENY_PUSH, everything) == "allow"


def test_a_rule_with_a_path_does_not_match_a_tool_without_one() -> None:
    rule = Permission(tool="*", path="**", then="deny")
    assert judge([rule], Call(tool="send_message", teammate="alice")).then is Decision.ALLOW
    assert judge([rule], Call(tool="read_file", teammate="alice", path="a")).then is Decision.DENY
