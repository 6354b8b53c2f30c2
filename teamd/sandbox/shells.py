"""Starts bash commands: in a sandbox, without one, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from teamd import secret_environment
from teamd.errors import TeamError
from teamd.files import directories, files
from teamd.process_id import Identity
from teamd.programs import CONFINED, Sink, run_to_end
from teamd.programs.cgroup import Cgroup
from teamd.programs.reaped import Reaped
from teamd.programs.sandboxed import Sandboxed
from teamd.sandbox import GIT
from teamd.sandbox.bubblewrap import ExpectedMounts, build_arguments, read_mounts
from teamd.sandbox.placeholders import Placeholders, RunningCommand
from teamd.sandbox.policy import Policy
from teamd.sandbox.probe import find_program
from teamd.sandbox.protected_paths import (
    PathState,
    ProtectedPath,
    find_protected_paths,
    protected_names,
    watch_paths,
)
from teamd.sandbox.proxy import Network
from teamd.sandbox.repair import repair

Command = Reaped | Sandboxed

# The other command could insert a link while bubblewrap mounts the path.
_CHANGED: Final = (
    "{} has to be protected now, and another command runs that could replace it: try again when "
    "that has ended, or stop its job"
)
_ALONE: Final = (
    b"[this command has a network of its own: that of the background job could not be joined]\n"
)
_IDENTITY_SECONDS: Final = 5.0
_GIT_SETTINGS: Final = ".gitconfig"


class NoSandbox(TeamError):
    """No sandbox works, and commands do not run without one; `str()` says why and what to do."""


class Shell(Protocol):
    """Starts commands."""

    def start(self, command: str, output: Sink, *, background: bool = False) -> Command:
        """Start a bash command without waiting for it.

        Args:
            command: the text for bash.
            output: receives its output.
            background: whether it may run for long, beside the conversation.

        Raises:
            NoSandbox: commands are refused here.
            OSError: it could not be started.
            ValueError: the text cannot be passed to bash.
        """
        ...


@dataclass(frozen=True, slots=True)
class ClosedShell:
    """Refuses every command with the sentence `why`."""

    why: str

    def start(self, _command: str, _output: Sink, *, background: bool = False) -> Command:  # noqa: ARG002 -- see Shell
        raise NoSandbox(self.why)


@dataclass(frozen=True, slots=True)
class OpenShell:
    """Starts commands without a sandbox, with the rights of this process."""

    policy: Policy

    def start(self, command: str, output: Sink, *, background: bool = False) -> Reaped:  # noqa: ARG002 -- see Shell
        """Start a command under a reaper."""
        argv = ["bash", "-c", "--", command]  # "--": a command may start with a dash
        variables = self.policy.variables_outside
        return Reaped(argv, output=output, cwd=self.policy.workspace, env=variables)


@dataclass
class SandboxedShell:
    """Starts commands under bubblewrap.

    Attributes:
        program: the path of bubblewrap.
        team: the team directory.
        kept: the folder for files that commands created at protected paths.
        cgroup: the control group of the teammate's commands, if any.
    """

    program: str
    policy: Policy
    placeholders: Placeholders
    team: Path
    kept: Path
    cgroup: Cgroup | None = None
    _network: Network = field(init=False)

    def __post_init__(self) -> None:
        self._network = Network(self.policy.hosts)

    def start(self, command: str, output: Sink, *, background: bool = False) -> Sandboxed:
        """Start a command; files that it creates at protected paths are removed when it ends."""
        policy = self.policy = self.policy.refresh()
        joins = self._network.used and not policy.network
        shares = joins or (not policy.network and (background or bool(policy.hosts)))
        network = self._network if shares else None
        try:
            return self._start(command, output, network, may_init=not background)
        except OSError:
            if not joins:
                raise
        self._network = Network(policy.hosts)  # most likely its last command has just ended
        output(_ALONE)
        return self.start(command, output, background=background)

    def _start(
        self, command: str, output: Sink, network: Network | None, *, may_init: bool
    ) -> Sandboxed:
        places = list[ProtectedPath]()
        holder = self.placeholders.hold(partial(self._look, places, may_init=may_init))
        clear = partial(self._clear, holder, network)
        try:
            # By now every path in `places` exists.
            argv = build_arguments(self.program, self.policy, places)
            if self.policy.network:
                argv = [*CONFINED, *argv]
            if network:
                argv = network.joining(argv)
            return Sandboxed(
                argv,
                command,
                output=output,
                bounds=self.policy.bounds,
                changed=watch_paths(self.policy.workspace, places),
                clear=clear,
                check=partial(self._check, argv, places, holder, network),
                cgroup=self.cgroup,
            )
        except BaseException:
            clear()
            raise

    def _check(
        self,
        argv: Sequence[str],
        places: Sequence[ProtectedPath],
        holder: RunningCommand,
        network: Network | None,
        first: int,
    ) -> None:
        """Check the mounts of a new sandbox, and enter its network.

        Raises:
            OSError: a mount has another source, or the proxy cannot start.
        """
        folders = (self.policy.workspace, *self.policy.borrowed)
        ExpectedMounts(argv, folders, places, read_mounts("self")).check(read_mounts(first))
        if network:
            network.enter(holder.id, first)

    def _look(
        self,
        places: list[ProtectedPath],
        made: Container[str],
        others: Sequence[RunningCommand],
        *,
        may_init: bool,
    ) -> tuple[RunningCommand, list[ProtectedPath]]:
        """Find the protected paths; return the entry of this command, and the missing paths.

        Args:
            places: replaced by the protected paths in their present state.
            made: the placeholders.
            others: the other commands.
            may_init: whether the command may create a repository.
        """
        root, more, allowed = self.policy.workspace, self.policy.protected, self.policy.allowed
        # If another command is just creating a repository, the last command to end repairs it.
        new = not os.path.lexists(root / GIT) or any(other.may_init for other in others)
        names = protected_names(
            root,
            more,
            allowed=allowed,
            made=made,
            may_init=may_init,
            owns_tree=self.policy.owns_tree,
        )
        places[:] = find_protected_paths(root, names)
        held = sorted({str(folder) for place in places for folder in place.above})
        fixed = [str(one.path) for one in places if one.state is not PathState.LINK]
        for other in others:
            if other.process.alive and (open_ones := other.could_replace([*held, *fixed])):
                raise NoSandbox(_CHANGED.format(os.path.relpath(open_ones[0], root)))
        links = {str(one.path): one.target for one in places if one.state is PathState.LINK}
        for other in others:
            if other.process.alive and (swapped := other.links.items() - links.items()):
                raise NoSandbox(_CHANGED.format(os.path.relpath(min(swapped)[0], root)))
        holder = RunningCommand(
            id=os.urandom(8).hex(),
            team=str(self.team),
            process=Identity.own(),
            links=links,
            may_init=new and (may_init or os.path.lexists(root / GIT)),
            held=held,
            fixed=fixed,
        )
        return holder, [one for one in (*places, *self._hidden()) if one.state is PathState.MISSING]

    def _hidden(self) -> list[ProtectedPath]:
        """Return the team directories in the workspace, which commands may not create either."""
        root = self.policy.workspace
        inside = (one for one in self.policy.hidden if one != root and one.is_relative_to(root))
        return find_protected_paths(root, [str(one.relative_to(root)) for one in inside])

    def _clear(self, holder: RunningCommand, network: Network | None) -> Sequence[str]:
        if network:
            network.leave(holder.id)
        try:
            return repair(self.policy.workspace, holder, self.kept)
        finally:
            self.placeholders.release(holder)


def make_home(policy: Policy, name: str, *, goes_on: bool = False) -> None:
    """Make a teammate's home with the person's git identity, and its temporary folder.

    The temporary folder is emptied unless `goes_on`, as after hibernation.

    Raises:
        StoreError: they cannot be made.
    """
    if not goes_on:
        shutil.rmtree(policy.temporary, ignore_errors=True)
    for folder in (policy.home, policy.temporary):
        directories.make_private_directory(folder.parent)
        directories.make_private_directory(folder)
    settings = policy.home / _GIT_SETTINGS
    if not files.exists(settings):
        user, email = _identity(name, policy.workspace)
        text = f"[user]\n\tname = {_quoted(user)}\n\temail = {_quoted(email)}\n"
        files.replace(settings, text.encode(errors="replace"), durable=False)


def _identity(name: str, workspace: Path) -> tuple[str, str]:
    """Return the person's name and address in git, or else those of the teammate."""
    found = {"user.name": name, "user.email": f"{name}@teamd.invalid"}
    if (git := find_program("git", [workspace])) is not None:
        own = secret_environment.split(os.environ)[0]
        argv = [git, "config", "--global", "-z", "--get-regexp", r"^user\.(name|email)$"]
        with suppress(OSError):  # includes TimeoutError
            done = run_to_end(argv, timeout_seconds=_IDENTITY_SECONDS, env=own)
            said = done.stdout.decode(errors="replace") if done.status == 0 else ""
            pairs = (one.partition("\n") for one in said.split("\0"))
            found |= {key: value.strip() for key, _, value in pairs if value.strip()}
    return found["user.name"], found["user.email"]


def _quoted(value: str) -> str:
    """Return a value quoted for git's settings."""
    plain = "".join(character for character in value if character.isprintable())
    return '"' + plain.replace("\\", r"\\").replace('"', r"\"") + '"'
