"""Judging calls by rules: the first match wins, and the strictest command counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.permissions.grant import Grant
from teamd.permissions.rules import Call, Decision, judge
from teamd.settings.schema import Permission

ASK_PUSH = Permission(tool="bash", command="git push", then="ask")
DENY_PUSH = Permission(tool="bash", command="git push", then="deny")


def then(rules: Sequence[Permission], command: str, *granted: Grant) -> str:
    call = Call(tool="bash", teammate="alice", command=command)
    return judge(rules, call, granted).then.name.lower()


def rule(command: str | None, answer: Any, tool: str = "bash", **more: Any) -> Permission:
    return Permission(tool=tool, command=command, then=answer, **more)


def test_without_a_rule_a_call_is_allowed() -> None:
    assert then([], "eval $x; bash -c y; git push") == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git push", "git push origin main", "a && git push", "git status; git push | tee x",
        "(cd a; git push)", "echo $(git push)", "X=1 git push", "env X=1 git push",
        "env -i -u A -C dir X=1 git push", "command git push", "command -p -- git push",
        "exec -a x git push", "builtin command git push", "nohup git push &", "nice -n 5 git push",
        "setsid -w git push", "sudo -n -u bob git push", "timeout -k 5 10 git push",
        "timeout -s KILL 10 git push", "stdbuf -oL git push", "time git push",
        "/usr/bin/time -f %e git push", "flock lock git push", "find . -name x -exec git push ;",
        "find . -exec true \\; -execdir git push {} +", "/usr/bin/git push", "./git push",
        "GIT push", "git -C dir push", "git -c x=y --no-pager --git-dir=.git --work-tree w push",
        "git-push origin", "/usr/lib/git-core/git-push", "f() { git push; }; f",
        "if true; then git push; fi", "g\\it 'push'", "echo a\ngit push",
    ],
)  # fmt: skip
def test_a_denied_command_is_found_wherever_it_hides(command: str) -> None:
    assert then([DENY_PUSH], command) == "deny", command


@pytest.mark.parametrize(
    "command",
    [
        "eval 'git push'", "eval x", "bash -c 'git push'", "bash script.sh", "sh", "./script.sh",
        ". ./env", "source env", "trap 'x' EXIT", "alias g=git", "$git push", "git $x",
        "git $(echo push)", "xargs git", "echo push | xargs -n1 git", "xargs", "find . $x",
        "find . -exec sh -c x \\;", "sudo --unknown git pull", "env -S 'git push'", "busybox sh",
        "su -c x", "watch x", "git -c alias.p=push p", "git p", "git --unknown push",
        "git config alias.x push; git x", "ssh host git push", "ssh host 'git push'",
        "ssh host 'git -C r push'", "setpriv --reuid 1 git -C . push", "uv run git --no-pager push",
        "git bisect run git -C . push", "make X='git push'", "git rebase -x 'git push' main",
        "python3 -c 'import os; os.system(\"git push\")'",
        "python3 - <<END\nrun(['git', 'push'])\nEND", "test -v 'a[$(git push)]'",
        "printf -v 'a[$(git push)]' x", "let x", 'f() { git "$@"; }; f push', "echo 'open",
        "mapfile -C 'git push' x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("rules", [[ASK_PUSH], [DENY_PUSH]], ids=["ask", "deny"])
def test_an_uncertain_command_is_asked_about(rules: list[Permission], command: str) -> None:
    assert then(rules, command) == "ask", command


@pytest.mark.parametrize(
    "command",
    [
        "git pull", "git status && ls -l", "git -C dir log --oneline | head -3", "echo git push",
        "echo 'git push'; echo \"a; git push\"", "git commit -m 'say git push'",
        "grep -r 'git push' .", "cat > notes <<END\ngit push\nEND", "# git push", "git log push",
        "gitx push", "x=git; y=push", "env", "env X=1 ls", "command -v git", "timeout 10 git pull",
        "find . -name '*.py' -exec grep -l x {} +", "xargs rm -f", "sudo ls", 'ls "$x"',
        "for f in *.py; do python3 $f; done", "python3 script.py", "git --version", "",
        "[ -f x ] && [[ -n $y ]]", "set -e; cd a; export X=1",
    ],
)  # fmt: skip
def test_a_command_that_surely_does_not_match_is_allowed(command: str) -> None:
    assert then([ASK_PUSH, rule("rm -rf", "deny")], command) == "allow", command


@pytest.mark.parametrize(
    "command",
    [
        "GIT_EXTERNAL_DIFF='git push;#' git diff", "PAGER='git push' man ls", "X='git push' true",
        "git fetch --upload-pack 'git push;#' .", "git clone -u 'git push;#' . x",
        "git grep --open-files-in-pager='git push' x", "git archive --exec='git push' HEAD",
        "sed 's/x/git push/e' f", "man -P 'git push' ls", "rg --pre 'git push' x",
        "less '+!git push' f",
    ],
)  # fmt: skip
def test_a_program_named_in_an_option_or_variable_is_asked_about(command: str) -> None:
    assert then([ASK_PUSH], command) == "ask", command


def test_another_name_of_a_program_matches_the_rule() -> None:
    assert then([DENY_PUSH], "git send-pack origin main") == "deny"
    assert then([DENY_PUSH], "git-send-pack origin main") == "deny"


def test_the_first_rule_wins() -> None:
    assert then([rule("git", "allow"), DENY_PUSH], "git push") == "allow"
    assert then([DENY_PUSH, rule("git", "allow")], "git push") == "deny"
    assert then([rule("git push origin", "allow"), ASK_PUSH], "git push origin dev") == "allow"
    assert then([rule("git push origin", "allow"), ASK_PUSH], "git push other") == "ask"


def test_the_strictest_answer_for_several_commands_applies() -> None:
    rules = [rule("a", "allow"), rule("b", "ask"), rule("c", "deny")]
    assert then(rules, "a; d") == "allow"
    assert then(rules, "a; b") == "ask"
    assert then(rules, "c && b && a") == "deny"
    assert then(rules, "$x; c") == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "./git status", "X=1 git status", "env git status", "sudo git status",
        "git -c core.pager=x status", "git status > ~/.bashrc", "git status; rm x", "git $x",
        "git status $(rm x)", "PATH=.; git status", "xargs git status",
        "git() { rm x; }; git status", "git status &\nrm x",
    ],
)  # fmt: skip
def test_an_allowed_command_allows_nothing_else(command: str) -> None:
    """The person has allowed only the command exactly as it is written."""
    assert then([rule("git status", "allow"), rule(None, "deny")], command) == "deny", command


def test_an_opaque_command_can_be_allowed() -> None:
    rules = [rule("bash run-tests.sh", "allow"), rule("./x.sh", "allow"), ASK_PUSH]
    assert then(rules, "bash run-tests.sh --fast && ./x.sh 2>&1") == "allow"
    assert then(rules, "bash other.sh") == "ask"


def test_a_rule_without_a_command_matches_every_call_of_its_tool() -> None:
    for command in ("ls", "eval x", "", "'"):
        assert then([rule(None, "deny")], command) == "deny"
    assert then([rule(None, "allow"), DENY_PUSH], "eval x; git push") == "allow"


def test_a_background_command_is_judged_like_bash() -> None:
    call = Call(tool="background_run", teammate="alice", command="git push")
    assert judge([DENY_PUSH], call).then is Decision.DENY
    only = rule("git push", "deny", tool="background_run")
    assert judge([only], call).then is Decision.DENY
    assert then([only], "git push") == "allow"


@pytest.mark.parametrize(
    ("pattern", "tool", "hit"),
    [
        ("bash", "bash", True),
        ("*", "send_message", True),
        ("*_file", "edit_file", True),
        ("*_file", "bash", False),
        ("send_message", "broadcast", False),
    ],
)
def test_a_rule_matches_tools_by_pattern(pattern: str, tool: str, hit: bool) -> None:
    found = judge([rule(None, "deny", tool=pattern)], Call(tool=tool, teammate="alice"))
    assert found.then is (Decision.DENY if hit else Decision.ALLOW)


@pytest.mark.parametrize(
    ("pattern", "hit"),
    [("*", True), ("alice", True), ("ALICE", True), ("b*", False), ("al", False)],
)
def test_a_rule_matches_teammates_by_pattern(pattern: str, hit: bool) -> None:
    assert then([rule(None, "deny", teammate=pattern)], "ls") == ("deny" if hit else "allow")


@pytest.mark.parametrize(
    ("pattern", "path", "hit"),
    [
        ("docs/**", "docs/a.md", True),
        ("docs/**", "docs/a/b.md", True),
        ("docs/", "docs/a/b.md", True),
        ("docs/**", "docsx/a", False),
        ("docs/**", "src/docs/a", False),
        ("docs/*", "docs/a/b", False),
        ("*.md", "a.md", True),
        ("*.md", "docs/a.md", False),
        ("**/*.md", "a.md", True),
        ("**/*.md", "docs/b/a.md", True),
        ("./a?c", "abc", True),
        ("a?c", "a/c", False),
        ("a.c", "abc", False),
        ("Makefile", "makefile", True),
        ("a\nb", "a\nb", True),
    ],
)
def test_a_path_is_a_glob_in_the_workspace(pattern: str, path: str, hit: bool) -> None:
    call = Call(tool="write_file", teammate="alice", path=path)
    denied = judge([rule(None, "deny", tool="*", path=pattern)], call).then is Decision.DENY
    assert denied is hit


def test_an_allowing_rule_is_case_sensitive() -> None:
    rules = [rule(None, "allow", tool="*", path="docs/**"), rule(None, "deny", tool="*")]
    for path, expected in (("docs/a", Decision.ALLOW), ("DOCS/a", Decision.DENY)):
        assert judge(rules, Call(tool="write_file", teammate="a", path=path)).then is expected


def grants(command: str) -> tuple[Grant, ...]:
    return judge([ASK_PUSH], Call(tool="bash", teammate="alice", command=command)).grants


def test_a_grant_covers_the_command_that_was_asked_about() -> None:
    assert grants("ls; git push a && git push b") == (
        Grant(tool="bash", command=("git", "push", "a")),
        Grant(tool="bash", command=("git", "push", "b")),
    )
    for whole in ("eval x", "X=1 git push", "git push >f", "git push $x", "git push; eval y"):
        assert Grant(tool="bash", text=whole) in grants(whole)


def test_a_grant_allows_nothing_more() -> None:
    given = Grant(tool="bash", command=("git", "push", "origin"))
    assert then([ASK_PUSH], "git push origin", given) == "allow"
    assert then([ASK_PUSH], "cd a && git push origin main", given) == "allow"
    for command in ("git push", "git push other", "git push originx", "X=1 git push origin",
                    "./git push origin", "git push origin; git push", "eval x"):  # fmt: skip
        assert then([ASK_PUSH], command, given) == "ask", command
    assert then([DENY_PUSH], "git push origin", given) == "deny"
    whole = Grant(tool="bash", text="eval x")
    assert then([ASK_PUSH], "eval x", whole) == "allow"
    assert then([ASK_PUSH], "eval x ", whole) == "ask"


def test_a_command_that_may_break_another_rule_is_granted_only_as_it_is() -> None:
    """The next one that begins alike may push."""
    call = Call(tool="bash", teammate="alice", command="make git push")
    asked = judge([DENY_PUSH, rule("make", "ask")], call)
    assert asked.then is Decision.ASK
    assert asked.grants == (Grant(tool="bash", text="make git push"),)


def test_a_file_or_a_whole_tool_can_be_granted() -> None:
    rules = [rule(None, "ask", tool="*")]
    write = Call(tool="write_file", teammate="alice", path="docs/a")
    (grant,) = judge(rules, write).grants
    assert judge(rules, write, [grant]).then is Decision.ALLOW
    other = Call(tool="write_file", teammate="alice", path="docs/b")
    assert judge(rules, other, [grant]).then is Decision.ASK
    send = Call(tool="send_message", teammate="alice")
    (grant,) = judge(rules, send).grants
    assert judge(rules, send, [grant]).then is Decision.ALLOW
    assert judge(rules, other, [grant]).then is Decision.ASK


@pytest.mark.parametrize(
    "grant",
    [
        Grant(tool="bash", command=("git", "push")),
        Grant(tool="bash", text="eval x"),
        Grant(tool="write_file", path="docs/ä"),
        Grant(tool="send_message"),
    ],
)
def test_a_grant_survives_encoding(grant: Grant) -> None:
    assert Grant.decode(grant.to_json()) == grant
    assert str(grant).startswith(grant.tool)


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        {},
        {"tool": 1},
        {"tool": "a", "command": "x"},
        {"tool": "a", "command": [1]},
        {"tool": "a", "path": 1},
    ],
)
def test_a_damaged_grant_is_refused(found: object) -> None:
    with pytest.raises(ValueError, match="not a grant"):
        Grant.decode(found)


@pytest.mark.parametrize(
    "command",
    [
        "git pu\\\nsh", 'git "pu\\\nsh"', 'g"i"t push', "[[ ( -n a ) || -n b ]] && git push",
        "[[ a < b ]]; git push", "case x in (a|b) git push;; esac",
    ],
)  # fmt: skip
def test_a_command_split_over_two_lines_or_after_a_test_is_denied(command: str) -> None:
    assert then([DENY_PUSH], command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "[[ ( -n a ) || -n b ]] && git pull",
        'git "st\\\natus"',
        'echo "a \\"git push\\" \\n"',
    ],
)
def test_a_fully_understood_command_that_does_not_match_is_allowed(command: str) -> None:
    assert then([DENY_PUSH], command) == "allow"


@pytest.mark.parametrize(
    ("quoted", "text"), [(r'"a\$b"', "a$b"), (r'"a\"b"', 'a"b'), (r'"a\\b"', r"a\b")]
)
def test_a_backslash_in_quotes_escapes_special_characters(quoted: str, text: str) -> None:
    denied = rule(f"say '{text}'", "deny")
    assert then([denied], f"say {quoted}") == "deny"


def test_a_backslash_in_quotes_is_kept_before_other_characters() -> None:
    denied = rule(r"say 'a\nb'", "deny")
    assert (then([denied], r'say "a\nb"'), then([denied], 'say "anb"')) == ("deny", "allow")


@pytest.mark.parametrize(
    "command",
    [
        'git $"push"', "echo $'open", "echo > # git push", "cat << $x\ngit push\n$x",
        "case x of y) ls;; esac", "case x in y z; ls;; esac", "env $x ls", "timeout $x ls",
    ],
)  # fmt: skip
def test_text_that_bash_may_read_differently_is_asked_about(command: str) -> None:
    assert then([DENY_PUSH], command) == "ask"


def test_a_possible_denial_is_asked_about_even_if_a_later_rule_allows_it() -> None:
    """`git $x` may be `git push`."""
    everything = rule("git", "allow")
    call = Call(tool="bash", teammate="alice", command="git $x")
    found = judge([DENY_PUSH, everything], call)
    assert (found.then, found.rule) == (Decision.ASK, DENY_PUSH)
    assert then([DENY_PUSH, everything], "git pull") == "allow"


def test_a_rule_with_a_path_does_not_match_a_tool_without_one() -> None:
    denied = rule(None, "deny", tool="*", path="**")
    assert judge([denied], Call(tool="send_message", teammate="alice")).then is Decision.ALLOW
    assert judge([denied], Call(tool="read_file", teammate="alice", path="a")).then is Decision.DENY


LEAVES = {"true": 0, "echo 'c x'": 0, "a x": 0, "b y": 1, "c z": 2, "'b'": 1, "/bin/c": 2}

SHAPES = [
    "{0} && {1}", "{0} || {1}", "{0}; {1}", "{0} | {1}", "{0} & {1}", "{0}\n{1}", "( {0} ; {1} )",
    "{{ {0}; {1}\n}}", "if {0}; then {1}; fi", "while {0}; do {1}; done", "! {0}; time {1}",
    "for x in 1 2; do {0}; {1}; done", "case x in y) {0} ;; *) {1}; esac", "f() {{ {0}; }}; {1}",
    "x=$( {0} ) ; {1}", 'echo "$( {0} )" ; {1}', "cat <( {0} ) ; {1}", "X=1 env Y=2 {0}; {1}",
    "{0} 2>&1 | {1}", "cat <<{2}\n$( {0} )\n{2}\n{1}", "{0} # x\n{1}", "[[ -n $( {0} ) ]] && {1}",
]  # fmt: skip

COMPOUND = re.compile(r"[({!]|(?:if|while|for|case)\b|f\(\)")


def _put_together(shape: str, first: tuple[str, int], second: tuple[str, int]) -> tuple[str, int]:
    """Fill a shape; its here-document has a delimiter of its own.

    `env` cannot run a compound command: bash would refuse the whole script. After `env` a `!` is
    the name of a program, and the next words are its arguments.
    """
    if "env" in shape and COMPOUND.match(first[0]):
        shape = "{0}; {1}"
    end = f"END{len(first[0])}"
    return shape.format(first[0], second[0], end), max(first[1], second[1])


SCRIPTS = st.recursive(
    st.sampled_from(sorted(LEAVES)).map(lambda leaf: (leaf, LEAVES[leaf])),
    lambda inner: st.tuples(st.sampled_from(SHAPES), inner, inner).map(
        lambda made: _put_together(made[0], *made[1:])
    ),
    max_leaves=8,
)


@given(script=SCRIPTS)
def test_the_strictest_command_is_found_in_any_structure(script: tuple[str, int]) -> None:
    """`!` may come before a compound command, which is a syntax error: bash runs nothing."""
    text, expected = script
    rules = [rule("a", "allow"), rule("b", "ask"), rule("c", "deny")]
    found = judge(rules, Call(tool="bash", teammate="alice", command=text)).then
    assert found >= expected, text


@given(text=st.text(st.characters(codec=None)) | st.binary().map(lambda b: b.decode("latin-1")))
def test_any_text_gets_an_answer(text: str) -> None:
    rules = [rule("a", "allow"), rule("git push", "ask"), rule(None, "deny", teammate="bob")]
    assert isinstance(
        judge(rules, Call(tool="bash", teammate="alice", command=text)).then, Decision
    )


@pytest.mark.parametrize("command", ["setpriv curl x", "ssh h curl x", "git rebase -x 'curl x'"])
def test_a_single_word_is_found_after_programs_that_may_run_it(command: str) -> None:
    assert then([rule("curl", "deny")], command) == "ask"
    assert then([rule("curl", "deny")], "grep curl notes; echo curl") == "allow"
