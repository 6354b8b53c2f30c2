"""Pushes work of the team to a remote of the person's: `teamctl push` and `pr`."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from teamctl import arguments
from teamctl.render import output
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.copies import record
from teamd.errors import TeamError, UnknownTeammate
from teamd.files.paths import TeamPaths
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from teamd.copies.push import Push
    from teamd.copies.source import Source

_SECONDS: Final = 120.0
_ADDRESS: Final = re.compile(r"https?://\S+")
_MOST_SUBJECTS: Final = 50
_remote_option = click.option("--remote", default="", help="To this remote, not the usual one.")


@click.command()
@click.argument("name", shell_complete=arguments.teammates)
@_remote_option
@output.json_option
@team_options
def command(choice: TeamOptions, name: str, *, remote: str, as_json: bool) -> None:
    """Push the branch of NAME to a remote of your repository, with your rights and credentials.

    NAME is a teammate with a working copy, or the branch in [merge] into. Your pre-push hook runs.
    The push is never forced.
    """
    paths = choice.existing()
    source, ready = _prepare(choice, paths, name, remote)
    said = _push(choice, paths, source, ready)
    facts = {"name": name, **ready.to_json(), "text": said}
    output.print_either(output.plain(said), facts, as_json=as_json)


@click.command()
@click.argument("name", shell_complete=arguments.teammates)
@_remote_option
@click.option("--base", default="", help="Into this branch, not the usual one.")
@click.option("--title", default="", help="Its title, not the subject of the last commit.")
@click.option("--draft", is_flag=True, help="Open it as a draft.")
@output.json_option
@team_options
def pr(
    choice: TeamOptions,
    name: str,
    *,
    remote: str,
    base: str,
    title: str,
    draft: bool,
    as_json: bool,
) -> None:
    """Push the branch of NAME as `push` does, and open a pull request for it with gh.

    If a pull request is already open, it gets the new commits.
    """
    paths = choice.existing()
    gh = _find_gh(choice, paths, name)
    source, ready = _prepare(choice, paths, name, remote)
    _push(choice, paths, source, ready)
    subjects = _subjects(source, ready, base)
    words = ["--head", ready.branch, "--title", title or subjects[0]]
    words += ["--body", "\n".join(f"- {one}" for one in reversed(subjects))]
    words += [*(("--base", base) if base else ()), *(("--draft",) if draft else ())]
    address = _open(source, [gh, "pr", "create", *words], ready)
    text = f"{ready.branch} of {ready.remote} has a pull request: {address}"
    choice.done = text
    output.print_either(
        text, {"name": name, "branch": ready.branch, "url": address}, as_json=as_json
    )


def _prepare(choice: TeamOptions, paths: TeamPaths, name: str, remote: str) -> tuple[Source, Push]:
    """Return the person's repository, and the push of a teammate's branch or the queue's branch."""
    from teamd.copies import copy_status, push  # noqa: PLC0415 -- 20 ms
    from teamd.copies.source import Source, source_of  # noqa: PLC0415 -- the same

    settings = choice.settings(paths)
    if name == settings.merge.into:
        source = Source.of(settings.team.workspace, [paths.work])
        return source, push.prepare_branch(paths, source, name, remote)
    member = Roster(paths).read().find(name.removeprefix("team/"))
    if member is None:
        names = [one.name for one in Roster(paths).read().members]
        raise UnknownTeammate(name, [*names, f"{settings.merge.into} (the queue's branch)"])
    copy = record.get(paths, member.name)
    ready = push.prepare_copy(paths, copy.name, settings, remote=remote, own=copy.branch)
    if left := copy_status.look(paths, copy).uncommitted:
        output.warn(f"not committed, so not pushed: {copy_status.name_files(left)}")
    return source_of(copy), ready


def _push(choice: TeamOptions, paths: TeamPaths, source: Source, ready: Push) -> str:
    from teamd.copies import push  # noqa: PLC0415 -- 20 ms

    said = push.run(paths, source, ready)
    choice.done = said.partition("\n")[0]
    return said


def _find_gh(choice: TeamOptions, paths: TeamPaths, name: str) -> str:
    from teamd.sandbox.probe import find_program  # noqa: PLC0415 -- 20 ms

    gh = find_program("gh", [choice.settings(paths).team.workspace, paths.work])
    if gh is None:
        raise TeamError(
            "gh is not installed (https://cli.github.com); without it "
            f"`teamctl push {name}` pushes the branch, and the page of your server opens the pull "
            "request"
        )
    return gh


def _subjects(source: Source, ready: Push, base: str) -> list[str]:
    """Return the subjects of the commits that a pull request brings, newest first."""
    source = replace(source, true_objects=True)
    onto = source.find(f"refs/remotes/{ready.remote}/{base or 'HEAD'}")
    words = ("--format=%s", f"--max-count={_MOST_SUBJECTS if onto else 1}", ready.commit)
    said = source.do("log", "--no-show-signature", *words, *((f"^{onto}",) if onto else ()))
    return [output.plain(one) for one in said.split("\n") if one] or [ready.branch]


def _open(source: Source, argv: list[str], ready: Push) -> str:
    """Open a pull request with gh unless one is open; return its address."""
    from teamd.copies.source import last_words, person_environment  # noqa: PLC0415 -- 20 ms
    from teamd.programs import run_to_end  # noqa: PLC0415 -- the same

    env = {**person_environment(), "GH_PROMPT_DISABLED": "1"}
    try:
        done = run_to_end(argv, timeout_seconds=_SECONDS, env=env, cwd=source.folder)
    except OSError as error:  # includes TimeoutError
        raise TeamError(f"{ready.branch} is pushed, but gh failed: {error}") from error
    there = done.status != 0 and b"already exists" in done.stderr
    if done.status != 0 and not there:
        raise TeamError(f"{ready.branch} is pushed, but gh failed: {last_words(done)}")
    found = _ADDRESS.findall(os.fsdecode(done.stderr if there else done.stdout))
    return output.plain(found[-1]) if found else "gh printed no address"
