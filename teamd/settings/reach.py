"""The reach that two teammates have in common: for what one has run on what the other made."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from teamd.settings.schema import Tools


def common_reach(one: Tools, other: Tools) -> Tools:
    """Return what the tools of both may reach."""
    walled = other if one.sandbox in ("external", "off") else one
    return replace(
        one,
        sandbox=walled.sandbox,
        network=one.network and other.network,
        hosts=_common_hosts(one, other),
        read=tuple(folder for folder in one.read if folder in other.read),
        protect=tuple(dict.fromkeys((*one.protect, *other.protect))),
        env=tuple(name for name in one.env if name in other.env),
    )


def _common_hosts(one: Tools, other: Tools) -> tuple[str, ...]:
    if one.network or other.network:
        return other.hosts if one.network else one.hosts
    return tuple(host for host in one.hosts if host in other.hosts)
