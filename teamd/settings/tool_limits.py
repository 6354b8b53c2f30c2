"""What a teammate's tools may reach: as `[tools]` says, and otherwise for a role or a teammate."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

from teamd.settings import kinds
from teamd.settings.kinds import (
    FLAG,
    SECONDS,
    WHOLE,
    added,
    disables_sandbox,
    higher,
    if_set,
    removed,
    setting,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """`[tools]`: what a teammate's tools may reach and take."""

    sandbox: Literal["auto", "bubblewrap", "external", "off"] = setting(
        "auto", kinds.SANDBOX, 'around commands; "external": a container is it, "off": none',
        loosens=disables_sandbox,
    )  # fmt: skip
    network: bool = setting(False, FLAG, "whether commands reach every host", loosens=if_set)
    hosts: tuple[str, ...] = setting(
        (), kinds.HOST_NAMES, "the hosts that they reach without that", loosens=added
    )
    read: tuple[Path, ...] = setting(
        (), kinds.FOLDERS, "folders outside the workspace that commands may read", loosens=added
    )
    protect: tuple[str, ...] = setting(
        (), kinds.PLACES, "places in it that stay as they are, besides the built-in ones",
        loosens=removed,
    )  # fmt: skip
    max_processes: int = setting(
        1000, WHOLE, "of one command; it is ended if it has more", loosens=higher
    )
    max_memory_mb: int = setting(
        8192, WHOLE, "of one command; it is ended if it takes more", loosens=higher
    )
    max_file_mb: int = setting(8192, WHOLE, "of a file that it writes", loosens=higher)
    bash_timeout_seconds: float = setting(
        120.0, SECONDS, "how long one command may run", loosens=higher
    )
    output_bytes: int = setting(
        50000, WHOLE, "what the model sees of a tool's output, in bytes", loosens=higher
    )
    env: tuple[str, ...] = setting(
        ("PATH", "LANG", "TERM"), kinds.VARIABLES,
        "the only environment variables that commands see", loosens=added,
    )  # fmt: skip
    ask_seconds: float = setting(86400.0, SECONDS, "how long a call waits for your permission")
    approvers: tuple[str, ...] = setting(
        (), kinds.APPROVERS, 'who answers besides you: ["lead"], the agent that leads',
        loosens=added,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The reach of one role or one teammate; what is left out is as `[tools]` says."""

    sandbox: Literal["auto", "bubblewrap", "external", "off"] | None = setting(
        None, kinds.SANDBOX, "around its commands", loosens=disables_sandbox
    )
    network: bool | None = setting(None, FLAG, "whether they reach every host ...", loosens=if_set)
    hosts: tuple[str, ...] | None = setting(
        None, kinds.HOST_NAMES, "... or these alone", loosens=if_set
    )
    read: tuple[Path, ...] | None = setting(
        None, kinds.FOLDERS, "folders that they may read", loosens=if_set
    )
    protect: tuple[str, ...] | None = setting(
        None, kinds.PLACES, "places that stay as they are, besides those of [tools]",
        loosens=removed,
    )  # fmt: skip
    env: tuple[str, ...] | None = setting(
        None, kinds.VARIABLES, "the variables that they see", loosens=if_set
    )

    def applied_to(self, tools: Tools) -> Tools:
        """Return the settings of tools with what is said here."""
        said = {one.name: getattr(self, one.name) for one in fields(Reach)}
        kept = {key: value for key, value in said.items() if value is not None}
        return replace(tools, **{**kept, "protect": (*tools.protect, *kept.get("protect", ()))})


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
