"""Every setting, declared once: its type, its default, what it must be and what it is for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from teamd.messages import MAX_MESSAGE_BYTES
from teamd.settings.keys import key
from teamd.settings.kinds import (
    Address,
    Choice,
    Existing,
    Flag,
    Headers,
    Name,
    Rate,
    Seconds,
    Share,
    Text,
    Tokens,
    Usd,
    Variables,
    Whole,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """`[team]`: who works where. `workspace` is absolute once a file was read."""

    name: str = field(
        default="default", metadata=key(Name(of_teammate=False), "what the team is called")
    )
    workspace: Path = field(
        default=Path(),
        metadata=key(Existing(folder=True), "the folder where tools work, relative to this file"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """`[model]`: who answers. `script` is absolute once a file was read."""

    name: str = field(
        default="claude-sonnet-5-5",
        metadata=key(Text(), "any model of the server that is asked"),
    )
    base_url: str | None = field(
        default=None,
        metadata=key(
            Address(), "else $ANTHROPIC_BASE_URL, else Anthropic's", "http://localhost:8080"
        ),
    )
    key_command: str | None = field(
        default=None,
        metadata=key(Text(), "prints the key; else $ANTHROPIC_API_KEY", "pass show anthropic"),
    )
    max_tokens: int = field(default=16000, metadata=key(Whole(), "tokens of one reply"))
    context_tokens: int = field(
        default=200000, metadata=key(Whole(), "what the model takes; less if its server says so")
    )
    clear_at: float = field(
        default=0.6, metadata=key(Share(), "of the context: old tool results are cleared")
    )
    compact_at: float = field(
        default=0.8, metadata=key(Share(), "of the context: a summary replaces the conversation")
    )
    timeout_seconds: float = field(
        default=600.0, metadata=key(Seconds(), "how long the server may be silent")
    )
    attempts: int = field(
        default=10, metadata=key(Whole(), "how often a request is tried; then it is paused ...")
    )
    rest_seconds: float = field(
        default=300.0, metadata=key(Seconds(), "... this long, unless mail comes first")
    )
    retry_seconds: float = field(
        default=60.0,
        metadata=key(Seconds(), "the longest wait between two tries, whatever is asked"),
    )
    concurrent_calls: int = field(
        default=8, metadata=key(Whole(), "requests at a time, over the whole team")
    )
    headers: Mapping[str, str] = field(
        default_factory=lambda: NO_HEADERS,
        metadata=key(Headers(), 'sent with each request: { X-Project = "a" }'),
    )
    cache: bool = field(
        default=True, metadata=key(Flag(), "prompt caching: what was sent before costs less")
    )
    script: Path | None = field(
        default=None,
        metadata=key(
            Existing(folder=False),
            "plays turns from this file, asks no model: for demos",
            "turns.json",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`[limits]`: where a teammate pauses until a person says go on."""

    calls_per_wake: int = field(
        default=50,
        metadata=key(
            Whole(), "model calls of one wake, foreground subagents' too; then it is idle"
        ),
    )
    teammate_tokens: int = field(
        default=0, metadata=key(Tokens(), "of each, in and out, cached ones too; 0: no limit ...")
    )
    teammate_usd: float = field(
        default=0.0,
        metadata=key(Usd(), "... and its cost. All time counts: --fresh resets nothing"),
    )
    team_tokens: int = field(default=0, metadata=key(Tokens(), "the same of all of them together"))
    team_usd: float = field(
        default=0.0, metadata=key(Usd(), "raise it, then `teamctl resume NAME` for who is paused")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """`[supervision]`: how processes are watched."""

    crashes: int = field(
        default=5, metadata=key(Whole(), "a teammate that crashes more often than this ...")
    )
    within_seconds: float = field(
        default=60.0, metadata=key(Seconds(), "... in this time has failed, and stays down")
    )
    stop_seconds: float = field(
        default=10.0,
        metadata=key(Seconds(), "how long a teammate may take to end; then it is killed"),
    )
    stuck_seconds: float = field(
        default=300.0,
        metadata=key(
            Seconds(zero=True), "one at work that hangs for so long is reported to you; 0: never"
        ),
    )
    stuck_restart: bool = field(
        default=False, metadata=key(Flag(), "and it is killed, and started again as after a crash")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """`[mail]`: what becomes of messages."""

    durability: Literal["disk", "os"] = field(
        default="disk",
        metadata=key(
            Choice("disk", "os"), '"disk" outlives a power cut; "os", faster, only a crash'
        ),
    )
    max_message_bytes: int = field(
        default=MAX_MESSAGE_BYTES, metadata=key(Whole(), "the largest message, in bytes")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """`[tasks]`: how the board is used."""

    auto_claim: bool = field(
        default=False,
        metadata=key(Flag(), "who idles claims the next free task of its role, or of none"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """`[tools]`: what a teammate's tools may take."""

    bash_timeout_seconds: float = field(
        default=120.0, metadata=key(Seconds(), "how long one command may run")
    )
    output_bytes: int = field(
        default=50000, metadata=key(Whole(), "what the model sees of a tool's output, in bytes")
    )
    env: tuple[str, ...] = field(
        default=("PATH", "LANG", "TERM"),
        metadata=key(Variables(), "the only environment variables that commands see"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Teammate:
    """One `[[teammate]]`, spawned at start."""

    name: str = field(metadata=key(Name(of_teammate=True), "unlike every other, whatever the case"))
    role: str = field(metadata=key(Text(), "what it is, in a word or two"))
    prompt: str = field(metadata=key(Text(), "what it is to do first"))
    model: str | None = field(
        default=None, metadata=key(Text(), "else that of [model]", "claude-haiku-4-5")
    )
    plan: bool = field(
        default=False, metadata=key(Flag(), "it acts only on a plan that you approved")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One `[prices."model-name"]`, in USD per million tokens."""

    input: float = field(metadata=key(Rate(), "USD per million tokens that are sent"))
    output: float = field(metadata=key(Rate(), "and per million of the reply"))
    cache_read: float | None = field(
        default=None, metadata=key(Rate(), "where it is left out, a tenth of input")
    )
    cache_write: float | None = field(
        default=None, metadata=key(Rate(), "where it is left out, 1.25 times input")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of `team.toml`; every section has its defaults."""

    team: Team = field(default_factory=Team)
    model: Model = field(default_factory=Model)
    limits: Limits = field(default_factory=Limits)
    supervision: Supervision = field(default_factory=Supervision)
    mail: Mail = field(default_factory=Mail)
    tasks: Tasks = field(default_factory=Tasks)
    tools: Tools = field(default_factory=Tools)
    prices: Mapping[str, Price] = field(default_factory=dict)
    teammates: tuple[Teammate, ...] = ()


SECTIONS: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        "team": Team,
        "model": Model,
        "limits": Limits,
        "supervision": Supervision,
        "mail": Mail,
        "tasks": Tasks,
        "tools": Tools,
    }
)
TEAMMATE: Final = "teammate"  # the tables `[[teammate]]`
PRICES: Final = "prices"  # the tables `[prices."model-name"]`

# Promised, and refused until they are there: a limit that is ignored is worse than none.
NOT_BUILT: Final = frozenset(
    {
        "permission",
        "tools.sandbox",
        "tools.network",
        "tools.read",
        "teammate.worktree",
    }
)
