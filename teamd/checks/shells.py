"""The shells of a check: who wrote its command, and what that runs, says what they may reach."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

from teamd.checks.places import empty
from teamd.copies.record import Copy
from teamd.files.paths import TeamPaths
from teamd.sandbox.build import build_policy, build_shell_by
from teamd.sandbox.policy import Origin
from teamd.sandbox.probe import WITHOUT, Probe, probe
from teamd.sandbox.shells import Shell, make_home
from teamd.settings import Settings
from teamd.settings.reach import Tools, common_reach
from teamd.team.member import Member
from teamd.team.roster import Roster


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckShells:
    """Makes the shells of the check of one task; each has a new home, in which nothing is.

    Attributes:
        name: that their home and group of processes go by.
        tools: what the check may reach.
        owner_tools: what the owner of the task may.
        origin: the repository of the person's that is checked in a clone.
    """

    paths: TeamPaths
    name: str
    tools: Tools
    owner_tools: Tools
    probe: Probe
    origin: Origin | None = None

    @classmethod
    def of(
        cls, name: str, members: Sequence[str], settings: Settings, paths: TeamPaths, probe: Probe
    ) -> CheckShells:
        """Return those of a check.

        Args:
            name: that their home and group of processes go by.
            members: who wrote what it runs, its owner first: it reaches what the commands of all
                do. Without any it reaches what `[tools]` says.
            settings: those in force.
            paths: the team.
            probe: whether this machine can make a sandbox.
        """
        team = Roster(paths).read()
        found = [member for one in members if one and (member := team.find(one)) is not None]
        reach = [settings.tools_of(one.name, one.role) for one in found]
        owner = team.find(members[0]) if members and members[0] else None
        nobody = settings.tools_of("", "")
        return cls(
            paths=paths,
            name=name,
            tools=reduce(common_reach, reach or [nobody]),
            owner_tools=_in_copy(settings, paths, owner) if owner else nobody,
            probe=probe,
        )

    def __call__(self, folder: Path, lent: Iterable[Path] = ()) -> Shell:
        """Return what starts a check in a folder."""
        return self._make(folder, self.tools, lent)

    def of_clone(self, origin: Origin) -> CheckShells:
        """Return those for clones of a repository, whose objects they may read."""
        return replace(self, origin=origin)

    def walled(self, folder: Path, lent: Iterable[Path] = ()) -> Shell:
        """Return what runs git in a folder, in a sandbox however commands are run."""
        return self._walled()._make(folder, _walled(self.tools), lent)

    def of_copy(self, copy: Copy) -> Shell:
        """Return what runs git in a working copy with the rights of its teammate, in a sandbox."""
        here = self._walled().of_clone(copy.origin)
        return here._make(copy.folder, _walled(self.owner_tools), owns_tree=True)

    def _walled(self) -> CheckShells:
        """Return the same where it is known whether there can be a sandbox, whatever is wanted."""
        tried = self.probe.program or self.probe.trouble
        return self if tried else replace(self, probe=probe([self.paths.home, self.paths.work]))

    def _make(
        self, folder: Path, tools: Tools, lent: Iterable[Path] = (), *, owns_tree: bool = False
    ) -> Shell:
        empty(self.paths.homes / self.name)
        policy = build_policy(
            self.paths,
            self.name,
            tools,
            workspace=folder,
            origin=self.origin,
            lent=lent,
            owns_tree=owns_tree,
        )
        make_home(policy, self.name)
        return build_shell_by(policy, self.paths, self.name, tools, self.probe)


def _in_copy(settings: Settings, paths: TeamPaths, owner: Member) -> Tools:
    return settings.in_copy(paths.copy(owner.name)).tools_of(owner.name, owner.role)


def _walled(tools: Tools) -> Tools:
    return replace(tools, sandbox="auto") if tools.sandbox in WITHOUT else tools
