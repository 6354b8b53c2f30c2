"""The simple commands in a piece of bash, and the places at which they are uncertain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.permissions.shell_syntax import LONGEST, UNRESOLVED, SimpleCommand, parse

TEXT = st.text(st.characters(codec=None)) | st.text("abc $(){}[]<>|&;`'\"\\\n#=*?~!-:/@%")


def words(text: str) -> list[list[str | None]]:
    """Return the words of each simple command; all of it must be understood."""
    commands = parse(text)
    assert UNRESOLVED not in commands, text
    return [list(command.words) for command in commands if command.words]


def unresolved(text: str) -> bool:
    return any(None in command.words[:1] for command in parse(text))


PUSH = ["git", "push"]


@pytest.mark.parametrize(
    "text",
    [
        "git push", "  git\tpush  # now", "git \\\n push", 'g\\it pu"sh"', "'git' \"push\"",
        "$'git' push", "{ git push; }", "(git push)", "( ( git push ) )", "! git push",
        "time -p git push", "X=1 Y='a b' git push", "2>/dev/null git push >&2 <<<word",
        "git 2>&1 push", "git push &", "git push &>log",
        "if git push\nthen git push; else git push; fi", "while git push; do done",
        "x() { git push; }\ny() ( git push )", "function x { git push; }",
        "function x() { git push; }", "for x in a b; do git push; done", "for x\ndo git push\ndone",
        "case $x in a|b) git push ;; esac", "case x in (a) git push;; (*) git push;& esac",
        "\n\n git push\n#git pull\n",
    ],
)  # fmt: skip
def test_a_command_is_found_in_every_construct(text: str) -> None:
    assert set(map(tuple, words(text))) == {tuple(PUSH)}, text


@pytest.mark.parametrize("sign", ["&&", "||", ";", "|", "|&", "&", "\n", " ;\n"])
def test_joined_commands_are_separated(sign: str) -> None:
    assert words(f"cd a{sign} git push{sign} ls -l") == [["cd", "a"], PUSH, ["ls", "-l"]]


@pytest.mark.parametrize(
    "text",
    [
        "echo $(git push)", "echo `git push`", 'echo "a $(git push) b"', 'echo "a `git push` b"',
        "echo $(echo $(git push))", 'echo "$(echo "$(git push)")"', "cat <(git push)",
        "tee >(git push)", "x=$(git push)", "echo a >$(git push)", "cat <<END\n$(git push)\nEND",
        "cat <<END\n`git push`\nEND\n", "[[ -n $(git push) ]]", "for x in $(git push); do :; done",
        "case $(git push) in *) ;; esac", "echo $(case x in a) git push;; esac)",
        "echo ${x} $(git push)", "echo $(: # a )\ngit push)",
    ],
)  # fmt: skip
def test_a_command_is_found_in_a_substitution(text: str) -> None:
    assert PUSH in words(text), text


@pytest.mark.parametrize(
    "text",
    [
        "echo 'git push'", "echo ';' git push", "echo \\; git push", 'echo "; git push"',
        "echo 'a\n; git push'", "echo '$(git push)'", "cat <<'END'\ngit push\n$(git push)\nEND",
        "cat <<\\END\n`git push`\nEND", "cat <<-END\n\tgit push\n\tEND", "echo a # ; git push",
        "echo a#b", "for git in push; do :; done", "git log push",
    ],
)  # fmt: skip
def test_text_in_quotes_is_not_a_command(text: str) -> None:
    assert PUSH not in words(text), text


def test_a_command_after_a_here_document_is_found() -> None:
    assert words("cat <<A <<B\n;a\nA\n;b\nB\ngit push")[1:] == [PUSH]
    assert words("cat <<A | wc\n\nA\ngit push")[2:] == [PUSH]


@pytest.mark.parametrize(
    "text",
    [
        "$x", '"$x" push', "${x} push", "g${x}t push", "/usr/bin/gi? push", "{git,push}",
        "~/git push", "$(echo git) push", "`echo git` push", "$'\\x67it' push", "x=(git push)",
        "a[0]=x git push", "((x=1))", "echo $((a[x]))", "echo $[1+1]", "echo ${x@P}",
        "echo ${x:-$(git push)}", "echo ${a[x]}", "echo ${x:y}", "x='a[$(git push)]'; echo",
        "[[ 'a[$(git push)]' -eq 1 ]]", "read x <<< 'a[$(git push)]'",
        "for x in 'a[`git push`]'; do :; done", "coproc git push", "echo 'open", 'echo "open',
        "echo `open", "echo $(open", "echo )", "(git push", "case x in", "a ;; b",
        "cat <<END\nno end", "cat <<END\\\n\nEND", "cat <<A $(\ngit push\nA\n)\nA",
        "cat <<A\na\\\nA\ngit push\nA", "cat <<$x\n$x", "echo `a \\`git push\\``",
        "f (x) { git push; }", "[[ a =~ #x ]] && git push\n]]", "a\rb", "\x01git", "git\u00a0push",
        "a\\", "\ud800", "echo " + "$(" * 100 + ")" * 100, "a" * (LONGEST + 1),
    ],
)  # fmt: skip
def test_uncertain_text_is_unresolved(text: str) -> None:
    assert unresolved(text), text


def test_commands_before_an_unresolved_part_are_found() -> None:
    assert PUSH in [list(command.words) for command in parse("git push; echo 'open")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git $x push", ["git", None, "push"]),
        ('git commit -m "$x"', ["git", "commit", "-m", None]),
        ("git add *.py", ["git", "add", None]),
        ("git add [ab].py", ["git", "add", None]),
        ("git pus{h,}", ["git", None]),
        ("git ~", ["git", None]),
        ("find . -exec x {} +", ["find", ".", "-exec", "x", "{}", "+"]),
        ("[ -f x ]", ["[", "-f", "x", "]"]),
        ("echo $ $% a=~", ["echo", "$", "$%", "a=~"]),
    ],
)
def test_words_from_an_expansion_are_unknown(text: str, expected: list[str | None]) -> None:
    assert words(text) == [expected]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("git push", True),
        ("git push 2>&1", True),
        ("git push >/dev/null 2>&1", True),
        ("git push <file", True),
        ("git push >&-", True),
        ("X=1 git push", False),
        ("git push >file", False),
        ("git push >>file", False),
        ("git push &>file", False),
        ("git push >&file", False),
        ("git push >&$x", False),
        ("git push >|file", False),
        ("git push <>file", False),
    ],
)
def test_a_command_without_assignments_and_output_files_is_plain(text: str, plain: bool) -> None:
    (command,) = parse(text)
    assert command.plain is plain


def test_the_text_of_a_here_document_is_found() -> None:
    (command,) = parse("python3 - <<'A' <<<word\none\ntwo\nA\n")
    assert command == SimpleCommand(words=("python3", "-"), texts=("word", "one\ntwo"))


@given(text=TEXT)
def test_any_text_can_be_parsed(text: str) -> None:
    for command in parse(text):
        assert isinstance(command.words, tuple)
