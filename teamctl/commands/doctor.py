"""`teamctl doctor`: what is wrong, and what to do about it; nothing is changed.

The machine: programs, locks, space, and what ends or stops processes behind one's back. The team:
does a supervisor serve it, can its files be read, and those of roles and skills. The model: is
there a key, does the server take it, does it know the model.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import re
import resource
import shutil
import sys
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from http.client import HTTPException
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import click

from teamctl import output
from teamd import credentials, damaged
from teamd.board.files import read_all
from teamd.cli import Choice, team_options
from teamd.errors import ExitCode, NoTeam, SettingsError, StoreError, TeamError
from teamd.files import directories, locks, pidfile
from teamd.files.watch import BLIND_SECONDS, watch
from teamd.sandbox.build import WITHOUT, describe
from teamd.sandbox.probe import probe
from teamd.secret_environment import KEY_VARIABLE, TOKEN_VARIABLE
from teamd.settings import Settings, roles, skills
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from teamd.files.paths import TeamPaths

_FEW_FILES: Final = 256
_LITTLE_SPACE_BYTES: Final = 100 * 1024 * 1024
_LINGER: Final = Path("/var/lib/systemd/linger")
_SYSTEMD: Final = Path("/run/systemd/system")  # sd_booted(3)
_SLEEP_STATES: Final = Path("/sys/power/state")
_BATTERIES: Final = Path("/sys/class/power_supply")
_DEFAULT_URL: Final = "https://api.anthropic.com"
_API_VERSION: Final = "2026-10-21"
_ANSWER_SECONDS: Final = 10.0
_LOGIN: Final = re.compile(r"//[^/@]*@")


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: how it is, and what to do about it."""

    level: Level
    what: str
    remedy: str = ""


_MARKS = {
    Level.OK: click.style("ok  ", fg="green"),
    Level.NOTE: click.style("note", fg="yellow"),
    Level.FAIL: click.style("FAIL", fg="red", bold=True),
}


@click.command()
@output.json_option
@team_options
def command(choice: Choice, *, as_json: bool) -> int:
    """Check the machine, the settings and the key, and say how to fix what is wrong.

    The exit status is 1 if something must be fixed.
    """
    found = []
    for one in _findings(choice):
        what, remedy = choice.addressed(one.what), choice.addressed(one.remedy)
        finding = replace(one, what=what, remedy=remedy)
        found.append(finding)
        if not as_json:
            click.echo(f"{_MARKS[finding.level]}  {output.plain(finding.what)}")
            if finding.remedy:
                click.echo(f"      {click.style(output.plain(finding.remedy), dim=True)}")
    if as_json:
        output.print_json({"findings": [asdict(finding) for finding in found]})
    failed = any(finding.level is Level.FAIL for finding in found)
    return ExitCode.REFUSED if failed else ExitCode.DONE


def _findings(choice: Choice) -> Iterator[Finding]:
    team = None
    try:
        team = choice.existing()
    except NoTeam:
        yield Finding(Level.NOTE, "there is no team here yet", "`teamd start` makes one")
    except TeamError as error:
        yield Finding(Level.FAIL, str(error))
    yield from _machine(team)
    if team is not None:
        yield from _files(team)
    yield from _settings(choice, team)


def _settings(choice: Choice, team: TeamPaths | None) -> Iterator[Finding]:
    try:
        paths = team or choice.existing_or_here()
        found = choice.read_settings(paths)
    except SettingsError as error:
        for mistake in error.mistakes:
            yield Finding(Level.FAIL, f"{error.path}: {mistake}", "mend it in the file")
        return
    except TeamError:
        return  # told above
    yield Finding(Level.OK, "the settings are right")
    if waiting := found.explain_waiting(choice.config):
        yield Finding(Level.NOTE, waiting, "`teamctl trust` shows them, and confirms the file")
    yield _sandbox(found.settings)
    yield from _texts(found.settings, paths)
    yield from _model(found.settings)


def _machine(paths: TeamPaths | None) -> Iterator[Finding]:
    """Look at the machine, and at the place of the team where there is one."""
    yield _bash()
    yield _own_teamd()
    yield _open_files()
    yield _space(paths.root if paths is not None else Path.cwd())
    if paths is not None:
        yield _locks(paths)
        yield _watching(paths)
    yield from _lingering()
    yield from _suspend()


def _bash() -> Finding:
    if shutil.which("bash"):
        return Finding(Level.OK, "bash is there")
    return Finding(Level.FAIL, "there is no bash, which teammates work with", "install bash")


def _sandbox(settings: Settings) -> Finding:
    if settings.tools.sandbox in WITHOUT:
        what = f'[tools] sandbox is "{settings.tools.sandbox}": commands run with your rights'
        return Finding(Level.NOTE, what, "take it out of team.toml, unless you trust all they read")
    found = probe([settings.team.workspace])
    if found.works:
        return Finding(Level.OK, f"commands run in a sandbox: {describe(settings.tools, found)}")
    what = f"there is no sandbox, so commands are refused: {found.trouble}"
    return Finding(Level.FAIL, what, found.remedy)


def _own_teamd() -> Finding:
    """Debian's libteam-utils has another program of that name."""
    own = Path(sys.argv[0]).resolve().parent / "teamd"
    first = shutil.which("teamd")
    if first is None:
        return Finding(Level.NOTE, "teamd is not on the PATH", f"call it as {own}")
    if Path(first).resolve() == own:
        return Finding(Level.OK, "the first teamd on the PATH is this one")
    remedy = f"call this one as {own}, or put {own.parent} first in PATH"
    return Finding(Level.NOTE, f"the first teamd on the PATH is another one: {first}", remedy)


def _open_files() -> Finding:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= _FEW_FILES:
        return Finding(Level.OK, "enough files may be open at a time")
    return Finding(Level.FAIL, f"only {limit} files may be open at a time", "ulimit -n 1024")


def _space(place: Path) -> Finding:
    free = shutil.disk_usage(place).free
    if free >= _LITTLE_SPACE_BYTES:
        return Finding(Level.OK, "there is space on the disk")
    return Finding(Level.FAIL, f"only {free >> 20} MiB are free for {place}", "free some space")


def _locks(paths: TeamPaths) -> Finding:
    try:
        locks.check(paths.root)
    except StoreError as error:
        what, _, remedy = str(error).partition("; ")
        return Finding(Level.FAIL, what, remedy or "see that the team directory can be written")
    return Finding(Level.OK, "locks work in the team directory")


def _watching(paths: TeamPaths) -> Finding:
    if not paths.inboxes.is_dir():
        return Finding(Level.OK, "no team has run here yet")
    watching = watch(paths.inboxes)
    watching.close()
    if watching.recheck_seconds > BLIND_SECONDS:
        return Finding(Level.OK, "mail is seen at once")
    what = "the system's watches are used up: mail is seen after half a second"
    return Finding(Level.NOTE, what, "raise fs.inotify.max_user_instances with sysctl")


def _lingering() -> Iterator[Finding]:
    if not _SYSTEMD.is_dir():
        return
    user = getpass.getuser()
    if (_LINGER / user).exists():
        yield Finding(Level.OK, "lingering is on: services of yours run while you are logged out")
    else:
        what = "lingering is off: a teamd that is a service of yours ends when you log out"
        yield Finding(Level.NOTE, what, f"loginctl enable-linger {user}")


def _suspend() -> Iterator[Finding]:
    laptop = _BATTERIES.is_dir() and any(_BATTERIES.glob("BAT*"))
    if laptop and _SLEEP_STATES.is_file() and _SLEEP_STATES.read_text().strip():
        what = "this machine may suspend: teammates stand still meanwhile and go on afterwards"
        remedy = "systemd-inhibit --what=sleep:handle-lid-switch sleep infinity  keeps it awake"
        yield Finding(Level.NOTE, what, remedy)


def _files(paths: TeamPaths) -> Iterator[Finding]:
    """Look at what everybody needs, and at what each member needs."""
    strange = list(directories.find_strange(paths))
    for error in strange:
        what, _, remedy = str(error).partition("; ")
        yield Finding(Level.FAIL, what, remedy)
    if strange:
        return  # what is not opened cannot be looked into
    there = pidfile.supervisor(paths)
    if there is None:
        yield Finding(Level.NOTE, "no teamd runs", "`teamd start` starts it")
    else:
        yield Finding(Level.OK, f"teamd runs (pid {there.pid})")
    for damage in damaged.find_damage(paths):
        yield Finding(Level.FAIL, str(damage), f"`teamd restart` sets it aside: {damage.repaired}")
    for sentence in read_all(paths).damaged.values():
        yield Finding(Level.FAIL, sentence)
    for kept in damaged.find_kept(paths):
        what = f"{kept} is a damaged file that was set aside"
        yield Finding(Level.NOTE, what, "look at it, then remove it")
    try:
        Roster(paths).read()
    except TeamError as error:
        yield Finding(Level.FAIL, str(error))


def _texts(settings: Settings, team: TeamPaths) -> Iterator[Finding]:
    """Name each file that cannot be understood: whoever needs it would be refused, or lack it."""
    workspace = settings.team.workspace
    _, unread = skills.find(skills.folders(team.skills, workspace))
    for error in (*roles.mistakes(roles.folders(team.agents, workspace)), *unread):
        for mistake in error.mistakes:
            yield Finding(Level.FAIL, f"{error.path}: {mistake}", "mend it in the file")


def _model(settings: Settings) -> Iterator[Finding]:
    """Look for a key and ask the server once about the model; costs no tokens."""
    if settings.model.script is not None:
        yield Finding(Level.OK, f"the model's words come from {settings.model.script}")
        return
    try:
        key = asyncio.run(credentials.find_key(settings.model.key_command))
    except TeamError as error:
        yield Finding(Level.FAIL, str(error), "mend [model] key_command in team.toml")
        return
    key = key or environ.get(KEY_VARIABLE) or environ.get(TOKEN_VARIABLE)
    if not key:
        remedy = "export ANTHROPIC_API_KEY=…, or set [model] key_command in team.toml"
        yield Finding(Level.FAIL, "there is no key for the model in the environment", remedy)
        return
    yield Finding(Level.OK, "there is a key")
    yield _asked(settings, key)


def _asked(settings: Settings, key: str) -> Finding:
    base = settings.model.base_url or environ.get("ANTHROPIC_BASE_URL") or _DEFAULT_URL
    base = _LOGIN.sub("//", base)  # it may hold a proxy's password, which is not to be shown
    url = f"{base.rstrip('/')}/v1/models/{quote(settings.model.name, safe='')}"
    headers = {"Authorization": f"Bearer {key}", "anthropic-version": _API_VERSION}
    request = Request(url, headers={**headers, **settings.model.headers})  # noqa: S310 -- http(s) only, by the settings
    try:
        with urlopen(request, timeout=_ANSWER_SECONDS) as answer:  # noqa: S310 -- the same
            found: Any = json.load(answer)
    except HTTPError as error:
        error.close()
        return _status(error.code, base, settings.model.name)
    except (URLError, HTTPException, TimeoutError, OSError) as error:
        what = f"{base} does not answer: {getattr(error, 'reason', error)}"
        remedy = "check the network, and [model] base_url or ANTHROPIC_BASE_URL"
        return Finding(Level.FAIL, what, remedy)
    except ValueError:
        found = None
    if isinstance(found, dict) and "id" in found:
        return Finding(Level.OK, f"{base} takes the key and knows {settings.model.name}")
    return Finding(Level.NOTE, f"{base} answers, and does not tell which models it knows")


def _status(status: int, base: str, name: str) -> Finding:
    match status:
        case 401 | 403:
            remedy = "check ANTHROPIC_API_KEY or [model] key_command"
            return Finding(Level.FAIL, f"{base} refuses the key ({status})", remedy)
        case 404:
            what = f"{base} knows no model {name!r}, or does not tell"
            return Finding(Level.NOTE, what, "check [model] name in team.toml")
    return Finding(Level.NOTE, f"{base} answered {status}", "try again later")
