"""Every setting, declared once: its type, default, kind and help text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from teamd.messages import MAX_INBOX_BYTES, MAX_MESSAGE_BYTES
from teamd.settings import kinds
from teamd.settings.kinds import (
    FLAG,
    REQUIRED,
    SECONDS,
    SECONDS_OR_ZERO,
    SHARE,
    TEXT,
    USD,
    WHOLE,
    added,
    allows,
    always,
    disables_sandbox,
    higher,
    higher_limit,
    if_set,
    outside,
    removed,
    replaced,
    setting,
    switched_off,
    switched_off_here,
)

Effort: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]

_WILDCARDS: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamSettings:
    """`[team]`. `workspace` is absolute once a file was read."""

    name: str | None = setting(
        None, kinds.TEAM_NAME, "what the team is called; otherwise as its folder", "website"
    )
    workspace: Path = setting(
        Path(), kinds.FOLDER, "the folder where tools work, relative to this file", loosens=outside
    )
    worktree: bool = setting(
        False, FLAG, "each teammate has a working copy of its own", loosens=switched_off
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """`[model]`. `script` is absolute once a file was read."""

    name: str = setting("claude-sonnet-5-5", TEXT, "any model of the server that is asked")
    base_url: str | None = setting(
        None, kinds.ADDRESS, "else $ANTHROPIC_BASE_URL, else Anthropic's", "http://localhost:8080",
        loosens=if_set,
    )  # fmt: skip
    key_command: str | None = setting(
        None, kinds.COMMAND, "prints the key; else $ANTHROPIC_API_KEY", "pass show anthropic",
        loosens=if_set,
    )  # fmt: skip
    effort: Effort = setting(
        "medium", kinds.EFFORT, "what a reply may take: low, medium, high, xhigh or max"
    )
    max_tokens: int = setting(16000, WHOLE, "tokens of one reply")
    context_tokens: int | None = setting(
        None, WHOLE, "limits the context; else all of it, 200000 if unknown", 200000
    )
    clear_at: float = setting(0.6, SHARE, "of the context: old tool results are cleared")
    compact_at: float = setting(0.8, SHARE, "of the context: a summary replaces the conversation")
    timeout_seconds: float = setting(600.0, SECONDS, "how long the server may be silent")
    attempts: int = setting(10, WHOLE, "how often a request is tried; then it is paused ...")
    rest_seconds: float = setting(300.0, SECONDS, "... this long, unless mail comes first")
    retry_seconds: float = setting(
        60.0, SECONDS, "the longest wait between two tries; over 60 is a pause"
    )
    concurrent_calls: int = setting(8, WHOLE, "requests at a time, over the whole team")
    headers: Mapping[str, str] = setting(
        MappingProxyType({}), kinds.HEADERS, 'sent with each request: { X-Project = "a" }',
        loosens=if_set,
    )  # fmt: skip
    tools: Literal["all", "basic"] = setting(
        "all", kinds.TOOL_SET, '"basic": bash, files and send_message, for a small model'
    )
    cache: bool = setting(True, FLAG, "prompt caching: what was sent before costs less")
    cache_ttl: Literal["auto", "5m", "1h"] = setting(
        "auto", kinds.CACHE_TTL, 'how long; "auto": "1h" for Anthropic\'s own API, else "5m"'
    )
    script: Path | None = setting(
        None, kinds.FILE, "plays turns from this file, asks no model: for demos", "turns.json",
        loosens=if_set,
    )  # fmt: skip

    @property
    def provider(self) -> str:
        """The kind of provider, see `teamd.models.PROVIDERS`."""
        return "anthropic" if self.script is None else "script"

    @property
    def asks_server(self) -> bool:
        """Whether a server answers, which needs an address and a key, and charges for calls."""
        return self.script is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`[limits]`: at a limit a teammate pauses until a person resumes it."""

    calls_per_wake: int = setting(
        50, WHOLE, "model calls of one wake, foreground subagents' too; then it is idle",
        loosens=higher,
    )  # fmt: skip
    teammate_tokens: int = setting(
        0, kinds.TOKENS, "of each, in and out, cached ones too; 0: no limit ...",
        loosens=higher_limit,
    )  # fmt: skip
    teammate_usd: float = setting(
        0.0, USD, "... and its cost. All time counts: --fresh resets nothing", loosens=higher_limit
    )
    team_tokens: int = setting(
        0, kinds.TOKENS, "the same of all of them together", loosens=higher_limit
    )
    team_usd: float = setting(
        0.0, USD, "raise it, then `teamctl resume NAME` for who is paused", loosens=higher_limit
    )
    team_usd_per_day: float = setting(
        20.0, USD, "on one local day; `teamctl resume NAME --usd 1` raises it for today",
        loosens=higher_limit,
    )  # fmt: skip
    team_tokens_per_day: int = setting(
        0, kinds.TOKENS, "the same, also of models whose price is not known", loosens=higher_limit
    )
    team_usd_per_month: float = setting(
        0.0, USD, "in one calendar month, local time; 0: no limit", loosens=higher_limit
    )
    talk_wakes: int = setting(
        12, kinds.COUNT, "in a row by teammates' mail, with mail the only answer: then it waits",
        loosens=higher_limit,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """`[supervision]`: how teamd watches the teammates' processes."""

    crashes: int = setting(5, WHOLE, "a teammate that crashes more often than this ...")
    within_seconds: float = setting(60.0, SECONDS, "... in this time has failed, and stays down")
    stop_seconds: float = setting(
        10.0, SECONDS, "how long a teammate may take to end; then it is killed"
    )
    stuck_seconds: float = setting(
        300.0, SECONDS_OR_ZERO, "one at work that hangs for so long is reported to you; 0: never"
    )
    stuck_restart: bool = setting(False, FLAG, "and it is killed, and started again")
    hibernate_seconds: float = setting(
        60.0, SECONDS_OR_ZERO, "so long idle, a teammate rests in little memory; 0: never"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """`[mail]`: how messages are stored."""

    durability: Literal["disk", "os"] = setting(
        "disk", kinds.DURABILITY, '"disk" outlives a power cut; "os", faster, only a crash'
    )
    max_message_bytes: int = setting(
        MAX_MESSAGE_BYTES, WHOLE, "the largest message, in bytes", loosens=higher
    )
    max_inbox_bytes: int = setting(
        MAX_INBOX_BYTES, WHOLE, "the most unread mail of one receiver", loosens=higher
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """`[tasks]`: how the board is used."""

    auto_claim: bool = setting(
        False, FLAG, "who idles claims the next free task of its role, or of none"
    )
    check: str = setting(
        "", kinds.CHECK, 'must exit with 0 for a task to be completed: "pytest -q"',
        loosens=replaced,
    )  # fmt: skip
    protect: tuple[str, ...] = setting(
        (), kinds.PATTERNS, 'what no teammate may change of it: ["tests/**"]', loosens=removed
    )
    check_attempts: int = setting(5, WHOLE, "after so many failures you get mail, too")
    check_seconds: float = setting(
        600.0, SECONDS, "how long a check may run; then it has failed", loosens=higher
    )

    @property
    def protected_places(self) -> tuple[str, ...]:
        """The paths that teammates cannot change while they share one folder.

        In a shared folder a check cannot take them from a protected base. For a pattern it is the
        folder above its first wildcard; a pattern that begins with a wildcard protects nothing.
        """
        found = (_folder_of(pattern) for pattern in self.protect)
        return tuple(dict.fromkeys(place for place in found if place))


def _folder_of(pattern: str) -> str:
    """Return the folders of a pattern before its first wildcard."""
    plain = takewhile(lambda part: not _WILDCARDS & set(part), PurePosixPath(pattern).parts)
    return "/".join(plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings:
    """`[merge]`: the queue that merges the teammates' work in their copies."""

    into: str = setting(
        "team/main", kinds.BRANCH, "the branch that work in the queue is merged into",
        loosens=replaced,
    )  # fmt: skip
    check: str = setting(
        "", kinds.CHECK, "must exit with 0 for it to be; otherwise that of [tasks]",
        loosens=replaced,
    )  # fmt: skip
    auto: bool = setting(False, FLAG, "what was proven joins the queue by itself", loosens=if_set)
    push: str = setting(
        "", kinds.REMOTE, 'a remote to push it to after each merge: "origin"', loosens=if_set
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """`[hosts]`: unused until this host has a name. Names are in lower case."""

    name: str | None = setting(
        None, kinds.HOST, "this host's in the team; no two have the same", "h1", loosens=if_set
    )
    servers: tuple[str, ...] = setting(
        (), kinds.SERVERS, 'the broker: ["tls://10.0.0.1:4222"], or several', loosens=if_set
    )
    cert: Path | None = setting(
        None, kinds.PEM, "this host's certificate", ".team/hosts/keys/host.crt", loosens=if_set
    )
    key: Path | None = setting(
        None, kinds.PEM, "its key, which nobody else may read", ".team/hosts/keys/host.key",
        loosens=if_set,
    )  # fmt: skip
    ca: Path | None = setting(
        None, kinds.PEM, "what the broker's certificate is signed by", ".team/hosts/keys/ca.crt",
        loosens=if_set,
    )  # fmt: skip
    creds: Path | None = setting(
        None, kinds.PEM, "instead of these, for a NATS server that others run", "h1.creds",
        loosens=if_set,
    )  # fmt: skip
    plaintext: bool = setting(
        False, FLAG, "whether nats:// may reach other machines without TLS", loosens=if_set
    )
    replicas: int = setting(1, kinds.COPIES, "how many servers of a cluster store each message")
    outbox_bytes: int = setting(
        67_108_864, WHOLE, "the most mail that waits for one host", loosens=higher
    )
    allow: Mapping[str, tuple[str, ...]] = setting(
        MappingProxyType({}), kinds.ALLOWANCE, 'what others may ask for: { spawn = ["h1"] }',
        loosens=if_set,
    )  # fmt: skip

    def allows(self, host: str, what: str) -> bool:
        """Return whether a host may make a request here: one of `HOST_REQUESTS`."""
        return host.lower() in self.allow.get(what, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """`[tools]`: the files, hosts and resources that a teammate's tools may use."""

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
class ToolOverrides:
    """The tool settings for one role or one teammate; `[tools]` applies where they are not set."""

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

    def applied_to(self, tools: ToolSettings) -> ToolSettings:
        """Return the settings of tools with these overrides."""
        said = {one.name: getattr(self, one.name) for one in fields(ToolOverrides)}
        kept = {key: value for key, value in said.items() if value is not None}
        return replace(tools, **{**kept, "protect": (*tools.protect, *kept.get("protect", ()))})


def common_tool_settings(one: ToolSettings, other: ToolSettings) -> ToolSettings:
    """Return tool settings that allow only calls that both allow."""
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


def _common_hosts(one: ToolSettings, other: ToolSettings) -> tuple[str, ...]:
    if one.network or other.network:
        return other.hosts if one.network else one.hosts
    return tuple(host for host in one.hosts if host in other.hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Teammate(ToolOverrides):
    """One `[[teammate]]`, spawned at start."""

    name: str = setting(REQUIRED, kinds.TEAMMATE_NAME, "unlike every other, whatever the case")
    role: str = setting(REQUIRED, TEXT, "what it is, in a word or two")
    prompt: str = setting(REQUIRED, TEXT, "what it is to do first")
    model: str | None = setting(None, TEXT, "else that of [model]", "claude-haiku-4-5")
    effort: Effort | None = setting(None, kinds.EFFORT, "else that of role or [model]", "high")
    plan: bool = setting(
        False, FLAG, "it acts only on a plan that you approved", loosens=switched_off
    )
    worktree: bool | None = setting(
        None, FLAG, "a working copy of its own", loosens=switched_off_here
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """One `[[permission]]`: a rule about tool calls; the first that matches one wins."""

    tool: str = setting(REQUIRED, kinds.TOOL, "or a pattern; bash is background_run as well")
    command: str | None = setting(None, kinds.COMMAND_PREFIX, "its first words", "git push")
    path: str | None = setting(None, kinds.PATH, "of a file tool, in the workspace", "docs/**")
    teammate: str = setting("*", kinds.TEAMMATE_PATTERN, "a name, or a pattern")
    then: Literal["allow", "ask", "deny"] = setting(
        REQUIRED, kinds.THEN, '"ask" you, "deny" it, or "allow" it', loosens=allows
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSettings:
    """One `[prices."model-name"]`, in USD per million tokens."""

    # A lower price is a higher limit, so the whole table waits.
    input: float = setting(
        REQUIRED, kinds.RATE, "USD per million tokens that are sent", loosens=always
    )
    output: float = setting(REQUIRED, kinds.RATE, "and per million of the reply")
    cache_read: float | None = setting(None, kinds.RATE, "where it is left out, a tenth of input")
    cache_write: float | None = setting(None, kinds.RATE, "where it is left out, 1.25 times input")
    cache_write_hour: float | None = setting(
        None, kinds.RATE, "for an hour; where it is left out, 2 times input"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of `team.toml`; every section has its defaults.

    Attributes:
        given: the dotted keys of the sections that are set in the file.
    """

    team: TeamSettings = field(default_factory=TeamSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    limits: Limits = field(default_factory=Limits)
    supervision: Supervision = field(default_factory=Supervision)
    mail: Mail = field(default_factory=Mail)
    tasks: TaskSettings = field(default_factory=TaskSettings)
    merge: MergeSettings = field(default_factory=MergeSettings)
    hosts: HostSettings = field(default_factory=HostSettings)
    tools: ToolSettings = field(default_factory=ToolSettings)
    prices: Mapping[str, PriceSettings] = field(default_factory=dict)
    roles: Mapping[str, ToolOverrides] = field(default_factory=dict)
    teammates: tuple[Teammate, ...] = ()
    permissions: tuple[Permission, ...] = ()
    given: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def models_named(self) -> frozenset[str]:
        """The models of the team and of its teammates."""
        return frozenset({self.model.name, *(one.model for one in self.teammates if one.model)})

    def places_allowed_to(self, name: str) -> list[str]:
        """Return the protected paths that a rule allows a teammate to write."""
        return [
            rule.path
            for rule in self.permissions
            if rule.then == "allow"
            and rule.path is not None
            and fnmatchcase(name.lower(), rule.teammate.lower())
            and fnmatchcase("write_file", rule.tool)
        ]

    def gives_copy(self, name: str) -> bool:
        """Return whether a teammate works in a copy of its own."""
        said = (one.worktree for one in self.teammates if one.name.lower() == name.lower())
        own = next(said, None)
        return self.team.worktree if own is None else own

    def in_copy(self, folder: Path) -> Settings:
        """Return the settings of a teammate that works in a copy of the workspace.

        It may change `[tasks] protect` there: its checks take those files from the base.
        """
        team, tasks = replace(self.team, workspace=folder), replace(self.tasks, protect=())
        return replace(self, team=team, tasks=tasks)

    def tools_of(self, name: str, role: str) -> ToolSettings:
        """Return the tool settings of a teammate: the team's, then the role's, then its own."""
        tools = self.roles.get(role, ToolOverrides()).applied_to(self.tools)
        tools = replace(tools, protect=(*tools.protect, *self.tasks.protected_places))
        own = (one for one in self.teammates if one.name.lower() == name.lower())
        return next(own, ToolOverrides()).applied_to(tools)


_DEFAULTS: Final = Settings()
SECTIONS: Final[Mapping[str, type[Any]]] = {
    one.name: type(getattr(_DEFAULTS, one.name))
    for one in fields(Settings)
    if is_dataclass(getattr(_DEFAULTS, one.name))
}
HOSTS: Final = "hosts"  # a section that belongs to one team
TEAMMATE: Final = "teammate"  # the tables `[[teammate]]`
ROLE: Final = "role"  # the tables `[role.NAME]`
PERMISSION: Final = "permission"  # the tables `[[permission]]`
PRICES: Final = "prices"  # the tables `[prices."model-name"]`
TABLES: Final = {
    "prices": PRICES,
    "roles": ROLE,
    "teammates": TEAMMATE,
    "permissions": PERMISSION,
}  # by the field that holds them
