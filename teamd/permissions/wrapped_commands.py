"""Finds the commands in the arguments of `env`, `sudo`, `git -C dir` and the like.

The effect of a program on a file or text of its own is not visible here. Shells and programs that
evaluate shell code are opaque; any other program is judged by its words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from teamd.permissions.shell_syntax import SimpleCommand

Words = tuple[str | None, ...]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# They run a text or a file as commands, or change the meaning of later words.
_OPAQUE: Final = _names(
    "sh bash rbash dash ash zsh ksh mksh fish csh tcsh pwsh busybox "  # shells
    "eval . source trap alias let mapfile readarray compgen complete bind enable hash fc shopt "
    "su runuser script watch parallel at batch crontab screen tmux expect"
)
_SCRIPTS: Final = (".sh", ".bash", ".zsh", ".ksh", ".fish")
# Builtins that evaluate an index and run the substitutions in it.
_COMPUTING: Final = _names("test [ printf read unset declare typeset local export readonly wait")
# They work with text and names; they do not run a command that is named in their words.
_INERT: Final = _names(
    "echo printf cat tee grep egrep fgrep head tail wc sort uniq cut tr jq "
    "test [ true false : cd pushd pwd ls mkdir touch cp mv rm basename dirname diff"
)
_TOKEN: Final = re.compile(r"[\w.-]+")
_SETTING: Final = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """A program whose last arguments are a command.

    Attributes:
        flags: options without a value.
        options: options with a value in the next word.
        arguments: how many words come before the command.
        silent: flags that keep it from running the command.
        adds: whether it appends words to the command.
    """

    flags: str = ""
    options: str = ""
    arguments: int = 0
    silent: str = ""
    adds: bool = False


_WRAPPERS: Final = {
    "builtin": _Wrapper(),
    "chroot": _Wrapper(arguments=1),
    "command": _Wrapper("-p", silent="-v -V"),
    "doas": _Wrapper("-n", "-u -C"),
    "env": _Wrapper("-i - --ignore-environment", "-u -C --unset --chdir"),
    "exec": _Wrapper("-c -l -cl", "-a"),
    "fakeroot": _Wrapper(),
    "flock": _Wrapper("-s -x -e -n -u", "-w -E", arguments=1),
    "ionice": _Wrapper("-t", "-c -n"),
    "nice": _Wrapper("", "-n --adjustment"),
    "nohup": _Wrapper(),
    "setsid": _Wrapper("-c -f -w --ctty --fork --wait"),
    "stdbuf": _Wrapper("", "-i -o -e"),
    "strace": _Wrapper("-f -ff -q -c -y -t -tt", "-e -o -s"),
    "sudo": _Wrapper("-n -E -H -S -b -i -s --non-interactive --preserve-env", "-u -g -D -p"),
    "taskset": _Wrapper(arguments=1),
    "time": _Wrapper("-p -v", "-f -o"),
    "timeout": _Wrapper("-v --foreground --preserve-status --verbose", "-k -s", arguments=1),
    "unbuffer": _Wrapper("-p"),
    "unshare": _Wrapper("-m -u -i -n -p -U -r -f"),
    "xargs": _Wrapper("-0 -r -t -x --null --no-run-if-empty", "-n -P -L -I -s -d -a -E", adds=True),
}
_FIND_RUNS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_GIT_FLAGS: Final = _names(
    "--version --help -v -h --exec-path "
    "-p --paginate -P --no-pager --no-replace-objects --no-optional-locks --bare --no-advice "
    "--literal-pathspecs --glob-pathspecs --noglob-pathspecs --icase-pathspecs "
    "--no-lazy-fetch"
)
_GIT_OPTIONS: Final = _names(
    "-C -c --git-dir --work-tree --namespace --config-env --attr-source --exec-path --super-prefix"
)
# Git's own commands cannot be aliased; any other word may be an alias of any of them.
_GIT_COMMANDS: Final = _names(
    "add am annotate apply archive bisect blame branch bundle cat-file check-attr check-ignore "
    "checkout checkout-index cherry cherry-pick clean clone commit commit-graph commit-tree config "
    "count-objects describe diff diff-files diff-index diff-tree difftool fast-export fast-import "
    "fetch filter-branch for-each-ref format-patch fsck gc grep hash-object help init log "
    "ls-files ls-remote ls-tree maintenance merge merge-base merge-file merge-tree mergetool "
    "mktree mv name-rev notes pack-objects pull push range-diff read-tree rebase reflog remote "
    "repack replace request-pull rerere reset restore rev-list rev-parse revert rm send-email "
    "send-pack shortlog show show-branch show-ref sparse-checkout stash status submodule switch "
    "symbolic-ref tag update-index update-ref var verify-commit verify-tag version whatchanged "
    "worktree write-tree"
)
# No option of these commands names a program.
_GIT_INERT: Final = _names(
    "add annotate blame branch checkout cherry-pick commit describe log merge mv notes reset "
    "restore revert rm shortlog show stash status switch tag"
)
_GIT_SAME: Final = {"send-pack": "push", "http-push": "push", "fetch-pack": "fetch"}


def program(word: str) -> str:
    """Return the name of a program without its folder, in lower case."""
    return word.rpartition("/")[2].casefold()


def views(command: SimpleCommand) -> tuple[SimpleCommand, ...]:
    """Return the command as written, then each that its arguments run: `sudo rm` is two."""
    found = [_with_opacity(command)]
    for one in found:  # the loop body extends the list
        found += map(_with_opacity, _inner(one))
    return tuple(found)


def mentions(command: SimpleCommand, wanted: tuple[str, ...]) -> bool:
    """Return whether these words occur, in order, in arguments that the program may run.

    Other words, such as options, may come between them.
    """
    texts = list(command.settings)  # `PAGER=… git log` runs that program
    if command.words and not _is_inert(command.words):
        texts += [word for word in command.words[1:] if word is not None]
        texts += command.texts
    tokens = _TOKEN.findall("\n".join(texts))
    first = program(wanted[0])
    if first not in tokens:
        return False
    behind = iter(tokens[tokens.index(first) + 1 :])
    return all(word in behind for word in _TOKEN.findall("\n".join(wanted[1:])))


def _is_inert(words: Words) -> bool:
    name = program(words[0] or "")
    if name == "git":
        return "-c" not in words and (*_git(name, words), None)[1] in _GIT_INERT
    return name in _INERT


def _with_opacity(command: SimpleCommand) -> SimpleCommand:
    if command.opaque or not command.words or command.words[0] is None:
        return command
    name = program(command.words[0])
    return replace(command, opaque=name in _OPAQUE or name.endswith(_SCRIPTS) or _hides(command))


def _hides(command: SimpleCommand) -> bool:
    """Return whether a word holds a substitution that the program would run."""
    name, *words = command.words
    computing = name is not None and program(name) in _COMPUTING
    return computing and any(word and ("$(" in word or "`" in word) for word in words)


def _inner(command: SimpleCommand) -> Iterator[SimpleCommand]:
    """Yield the commands that a command runs directly."""
    if not command.words or command.words[0] is None:
        return
    name = program(command.words[0])
    if name == "git" or name.startswith("git-"):
        inner = [_git(name, command.words)]
    elif name == "find":
        inner = list(_found(command.words))
    elif name in _WRAPPERS:
        inner = [_wrapped(_WRAPPERS[name], command.words)]
    else:
        return
    for words in inner:
        if words and words != command.words:
            yield replace(command, words=words, plain=False, opaque=False)


def _git(name: str, words: Words) -> Words:
    """Return a call of git without its global options."""
    if name != "git":
        inner = name.removeprefix("git-")
        return ("git", _GIT_SAME.get(inner, inner), *words[1:])
    at, aliased = 1, False
    while at < len(words) and (word := words[at]) is not None and word.startswith("-"):
        option, joined, _ = word.partition("=")
        if option in _GIT_OPTIONS:
            aliased |= any("alias." in (one or "alias.") for one in words[at : at + 2])
            at += 1 if joined else 2
        elif option in _GIT_FLAGS:
            at += 1
        else:
            return ("git", None)
    if aliased or (at < len(words) and words[at] not in _GIT_COMMANDS):
        return ("git", None)
    names = (_GIT_SAME.get(one or "", one) for one in words[at : at + 1])
    return ("git", *names, *words[at + 1 :])


def _found(words: Words) -> Iterator[Words]:
    """Yield the commands that `find` runs."""
    if None in words:
        yield (None,)
    for at, word in enumerate(words):
        if word in _FIND_RUNS:
            rest = words[at + 1 :]
            end = next((n for n, one in enumerate(rest) if one in (";", "+")), len(rest))
            yield tuple(None if one is None or "{}" in one else one for one in rest[:end])


def _wrapped(wrapper: _Wrapper, words: Words) -> Words:
    """Return the command in the arguments of a wrapper; `(None,)` if they are not understood."""
    left, at = wrapper.arguments, 1
    while at < len(words):
        word = words[at]
        if word in wrapper.silent.split():
            return ()
        step = _option(wrapper, word)
        if step is None:
            return (None,)
        if not step and not left:
            break
        left -= not step
        at += step or 1
    return (*words[at:], None) if wrapper.adds else words[at:]


def _option(wrapper: _Wrapper, word: str | None) -> int | None:
    """Return how many words an option takes: 0 if it is not an option, `None` if unknown."""
    if word is None:
        return None
    if word in wrapper.options.split():
        return 2
    if word in wrapper.flags.split() or _is_joined(word, wrapper.options.split()) or word == "--":
        return 1
    if word.startswith("-") and len(word) > 1:
        return None
    return 1 if _SETTING.match(word) else 0  # `env` and `sudo` set variables


def _is_joined(word: str, options: list[str]) -> bool:
    """Return whether a word is an option with its value, as `-n1` or `--signal=KILL`."""
    long = word.startswith("--")
    return any(word.startswith(f"{one}=" if long else one) for one in options)
