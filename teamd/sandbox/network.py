"""The network of a teammate's commands: their own, with a way to the hosts that are named.

A command that starts while a background job of the same teammate runs joins the job's network: so
it reaches a server that the job runs. With hosts, all that run at a time share one, and its proxy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from teamd.programs import JOIN
from teamd.sandbox.proxy import HostProxy


@dataclass(slots=True)
class Network:
    """A network that commands share, as long as one of them runs.

    Attributes:
        hosts: what they reach outside of it, see `HostProxy`.
    """

    hosts: Sequence[str]
    _inside: list[int] = field(default_factory=list)
    _number: int = 0  # the kernel's, of the network itself: a pid may be another's by now
    _proxy: HostProxy | None = None

    @property
    def used(self) -> bool:
        """Return whether anybody is in it, so that it can be joined."""
        return bool(self._inside)

    def joining(self, argv: Sequence[str]) -> list[str]:
        """Return bubblewrap with its options such that it joins; as it is where nobody is inside.

        The program that joins is root in the user namespace that has the network, so the user is
        said.
        """
        if not self.used:
            return list(argv)
        user = ("--uid", str(os.geteuid()), "--gid", str(os.getegid()))
        whose = (str(self._inside[0]), str(self._number))
        return [*JOIN, *whose, "run", *argv, "--share-net", *user]

    def add(self, first: int) -> None:
        """Take note of the first process of a command; with the first command the proxy begins.

        Raises:
            OSError: there can be no proxy.
        """
        if self.hosts and self._proxy is None:
            proxy = HostProxy(self.hosts)
            proxy.listen_in(first)
            self._proxy = proxy
        self._number = os.stat(f"/proc/{first}/ns/net").st_ino  # noqa: PTH116 -- it names no file
        self._inside.append(first)

    def remove(self, first: int) -> None:
        """Take note that all of a command has ended; with the last command the proxy ends."""
        self._inside.remove(first)
        if self._proxy and not self.used:
            self._proxy.close()
            self._proxy = None


@dataclass(slots=True)
class Visit:
    """The time of one command in a network."""

    network: Network
    _first: int | None = None

    def begin(self, first: int) -> None:
        """Enter it, with the first process of the command.

        Raises:
            OSError: there can be no proxy.
        """
        self.network.add(first)
        self._first = first

    def end(self) -> None:
        """Leave it, once all of the command has ended; nothing happens if it never began."""
        if self._first is not None:
            self.network.remove(self._first)
            self._first = None


class Networks:
    """Which network each command of a teammate is in.

    Args:
        hosts: what its commands reach.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = hosts
        self._shared = Network(hosts)

    def get(self, *, background: bool) -> Network | None:
        """Return the network for a command; `None` for one of its own, which nobody will join."""
        return self._shared if background or self._hosts or self._shared.used else None

    def renew(self) -> None:
        """Leave the network to those in it; whoever comes next begins another one."""
        self._shared = Network(self._hosts)
