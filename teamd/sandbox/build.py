"""Builds the shell of a teammate from its settings and the abilities of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
import teamd_commands

from teamd.errors import StoreError, translate_os_errors
from teamd.files import directories, locks
from teamd.files.paths import TeamPaths, home_folder, user_name, workspaces_folder
from teamd.programs import Sink
from teamd.programs.cgroup import Cgroup
from teamd.programs.sandboxed import Bounds
from teamd.sandbox import GIT, WITHOUT
from teamd.sandbox.git_repository import linked_repository
from teamd.sandbox.placeholders import Placeholders
from teamd.sandbox.policy import Origin, Policy
from teamd.sandbox.probe import PROGRAM, Probe
from teamd.sandbox.protected_paths import leads_through
from teamd.sandbox.repair import repair
from teamd.sandbox.shells import ClosedShell, Command, OpenShell, SandboxedShell, Shell, make_home

if TYPE_CHECKING:
    from teamd.settings.schema import Settings, ToolSettings

_MEBI: Final = 20
_OWN_PROCESSES: Final = 32  # processes and threads of the teammate itself


@dataclass
class LazyShell:
    """A shell that is built with the first command, because many teammates run none."""

    build: Callable[[], Shell]

    def start(self, command: str, output: Sink, *, background: bool = False) -> Command:
        return self._shell.start(command, output, background=background)

    @cached_property
    def _shell(self) -> Shell:
        return self.build()


def build_shell(
    paths: TeamPaths,
    name: str,
    settings: Settings,
    role: str,
    probe: Probe,
    *,
    goes_on: bool = False,
    joins: bool = False,
    origin: Origin | None = None,
) -> Shell:
    """Build a teammate's shell, and make its home folder.

    If its commands have a control group, the process of the teammate joins it.

    Args:
        paths: the team.
        name: the name of the teammate.
        settings: the settings of the team.
        role: the role of the teammate.
        probe: whether a sandbox works on this machine.
        goes_on: whether to keep its temporary folder, as after hibernation.
        joins: whether this process is the teammate's.
        origin: the repository of which the workspace is a copy; commands cannot see the rest of it.

    Raises:
        StoreError: its home folder cannot be made.
    """
    tools, workspace = settings.tools_of(name, role), settings.team.workspace
    allowed = settings.places_allowed_to(name)
    policy = build_policy(
        paths,
        name,
        tools,
        workspace=workspace,
        allowed=allowed,
        origin=origin,
        owns_tree=origin is not None,
    )
    make_home(policy, name, goes_on=goes_on)
    return build_shell_by(policy, paths, name, tools, probe, joins=joins)


def build_shell_by(
    policy: Policy,
    paths: TeamPaths,
    name: str,
    tools: ToolSettings,
    probe: Probe,
    *,
    joins: bool = False,
) -> Shell:
    """Build the shell for a policy whose home folder exists."""
    workspace = policy.workspace
    if tools.sandbox in WITHOUT:
        return OpenShell(policy)
    probe = judge_workspace(probe, workspace)
    if not probe.works:
        return ClosedShell(
            f"commands are refused: {probe.trouble}; the person can fix it with {probe.remedy}"
        )
    held = placeholders_of(paths, workspace)
    most = tools.max_processes + (_OWN_PROCESSES if joins else 0)
    cgroup = Cgroup.make(group_name(paths, name), most)
    if cgroup and joins:
        cgroup = cgroup.join()
    return SandboxedShell(probe.program, policy, held, paths.root, paths.removed, cgroup)


def judge_workspace(probe: Probe, workspace: Path) -> Probe:
    """Return a probe that also says whether a sandbox can protect the person in a workspace."""
    root = Path(os.path.realpath(workspace))
    home = home_folder()
    if not probe.works:
        return probe
    if home is not None and Path(os.path.realpath(home)).is_relative_to(root):
        return replace(
            probe,
            trouble=f"the workspace {workspace} holds the person's home, which no sandbox could "
            "hide then",
            remedy="a folder of its own for the project, or HOME set to another folder",
        )
    if GIT in root.parts:
        return replace(
            probe,
            trouble=f"the workspace {workspace} lies in a repository's own folder, whose hooks run "
            "with the person's rights",
            remedy="another folder in [team] workspace",
        )
    return probe


def check_workspace(settings: Settings) -> None:
    """Check that root's commands can write to the workspace: in a sandbox they lack root's rights.

    Raises:
        StoreError: the workspace belongs to another user.
    """
    workspace = settings.team.workspace
    if os.geteuid() != 0 or settings.tools.sandbox in WITHOUT:
        return
    with translate_os_errors(workspace):
        owner = workspace.stat().st_uid
    if owner != 0:
        raise StoreError(
            f"{workspace} belongs to user {owner}, and commands that root starts in the sandbox "
            f"cannot write there; run teamd as that user (in a container: `--user {owner}`)"
        )


def build_policy(
    paths: TeamPaths,
    name: str,
    tools: ToolSettings,
    *,
    workspace: Path,
    allowed: Iterable[str] = (),
    origin: Origin | None = None,
    lent: Iterable[Path] = (),
    owns_tree: bool = False,
) -> Policy:
    """Return the rights of a teammate's commands.

    Args:
        paths: the team.
        name: the teammate whose home folder they use.
        tools: the tool settings.
        workspace: the folder in which they work.
        allowed: protected paths that they may change.
        origin: the repository of which the workspace is a copy, if it is one.
        lent: folders that they may only read, even within hidden folders.
        owns_tree: whether they may change every file of the working tree, see `Policy`.
    """
    root = Path(os.path.realpath(workspace))
    source = [] if origin is None else [origin.folder, *paths.off_limits(origin.folder)]
    closed = dict.fromkeys([*source, *paths.off_limits(workspace)])
    hidden = tuple(Path(os.path.realpath(place)) for place in closed)
    linked = linked_repository(root) if origin is None else None
    return Policy(
        workspace=root,
        home=paths.home_of(name),
        temporary=paths.temporary(name),
        # Real paths, because hidden folders are compared by real path.
        readable=(
            *(
                Path(os.path.realpath(folder))
                for folder in tools.read
                if not leads_through(folder, (root, *hidden))  # a command could redirect the link
            ),
            *(() if linked is None else (linked,)),
        ),
        hidden=hidden,
        protected=(*(() if owns_tree else tools.protect), *own_places(root)),
        allowed=tuple(allowed),
        network=tools.network,
        hosts=tools.hosts,
        environment=_environment(tools.env),
        bounds=Bounds(
            processes=tools.max_processes,
            memory_bytes=tools.max_memory_mb << _MEBI,
            file_bytes=tools.max_file_mb << _MEBI,
        ),
        origin=origin,
        lent=tuple(lent),
        owns_tree=owns_tree,
    )


def clear_dead(paths: TeamPaths, workspace: Path) -> list[str]:
    """Repair a workspace and remove the entries of a team's teammates that were killed.

    The commands of these teammates must have ended.

    Returns:
        The removed files and folders in protected paths.

    Raises:
        StoreError: it cannot be repaired now.
    """
    root, placeholders = Path(os.path.realpath(workspace)), placeholders_of(paths, workspace)
    dead = placeholders.left_by_dead(paths.root)
    taken = [name for holder in dead for name in repair(root, holder, paths.removed)]
    placeholders.release(*dead)
    return taken


def remove_cgroups(paths: TeamPaths, names: Iterable[str]) -> None:
    """Kill the processes in the control groups of teammates that are gone; remove the groups."""
    for name in names:
        if group := Cgroup.find(group_name(paths, name)):
            group.kill()
            group.remove()


def ended_checks(paths: TeamPaths) -> Iterator[str]:
    """Yield the names of checks whose processes have ended and left files."""
    for home in directories.list_files(paths.homes, f"{paths.checker_name('*')}"):
        fd = locks.try_lock(paths.check_lock(home.name.rpartition(".")[2]))
        if fd is not None:
            os.close(fd)
            yield home.name


def end_strays(paths: TeamPaths, names: Iterable[str]) -> None:
    """Kill the bubblewrap processes of teammates that are gone.

    If its parent is killed while bubblewrap forks, it waits forever: it does not yet die with the
    parent.
    """
    homes = {str(paths.home_of(name)) for name in names}
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or [""]  # empty for a zombie or another user's process
        if words[0].endswith(PROGRAM) and not homes.isdisjoint(words):
            with suppress(psutil.Error):
                process.kill()


def group_name(paths: TeamPaths, name: str) -> str:
    """Return the name of the control group of a teammate's commands."""
    team = sha256(os.fsencode(paths.root)).hexdigest()[:16]
    return f"teamd-{team}-{name}"


def own_places(workspace: Path) -> list[str]:
    """Return this program's paths in a workspace, because parts of it run outside the sandbox."""
    package = Path(__file__).resolve().parents[1]
    entry = Path(os.path.realpath(teamd_commands.__file__))
    own = (Path(os.path.realpath(sys.prefix)), package, entry)
    return [str(one.relative_to(workspace)) for one in own if one.is_relative_to(workspace)]


def placeholders_of(paths: TeamPaths, workspace: Path) -> Placeholders:
    """Return the placeholders of a workspace, which all teams in it share."""
    return Placeholders(Path(os.path.realpath(workspace)), workspaces_folder(paths))


def _environment(names: tuple[str, ...]) -> dict[str, str]:
    given = {name: os.environ[name] for name in names if name in os.environ}
    user = user_name()
    return {"USER": user, "LOGNAME": user, **given}
