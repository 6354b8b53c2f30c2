"""What `team.toml` says, and what it says by default."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from teamd.errors import SettingsError
from teamd.settings import Settings, Teammate, load, parse
from teamd.settings.kinds import keys_of
from teamd.settings.schema import (
    SECTIONS,
    HostSettings,
    Limits,
    Mail,
    MergeSettings,
    ModelSettings,
    Permission,
    PriceSettings,
    Supervision,
    TaskSettings,
    TeamSettings,
    ToolOverrides,
    ToolSettings,
)
from teamd.settings.trust import TrustStore

SCALARS = (
    st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.dates()
)
KEYS = (
    st.sampled_from(sorted({key for shape in SECTIONS.values() for key in keys_of(shape)}))
    | st.sampled_from(["name", "role", "prompt", "tool", "command", "path", "then"])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=3
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=4)
DOCUMENTS = st.dictionaries(
    st.sampled_from([*SECTIONS, "teammate", "prices", "permission"]) | KEYS,
    TABLES | st.lists(TABLES, max_size=3) | VALUES,
    max_size=5,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "team.toml"


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A path in a folder that is there for every example of a property."""
    return tmp_path_factory.mktemp("standing") / "team.toml"


def parsed(data: bytes, file: Path) -> Settings | SettingsError:
    try:
        return parse(data, path=file)
    except SettingsError as error:
        return error


def test_without_a_file_every_setting_has_its_default(tmp_path: Path) -> None:
    defaults = replace(Settings(), team=TeamSettings(workspace=tmp_path))
    assert load(tmp_path / "team.toml", folder=tmp_path) == defaults
    assert load(tmp_path / "team.toml", folder=tmp_path) == defaults


def test_the_defaults_are_those_of_the_contract(tmp_path: Path) -> None:
    settings = load(tmp_path / "team.toml", folder=tmp_path)
    assert settings.team == TeamSettings(name="default", workspace=tmp_path)
    assert settings.model.name == "claude-sonnet-5-5"
    assert (settings.model.base_url, settings.model.key_command) == (None, None)
    assert settings.model.script is None
    assert (settings.model.max_tokens, settings.model.timeout_seconds) == (16000, 600)
    assert (settings.model.concurrent_calls, settings.model.cache) == (8, True)
    assert settings.model.headers == {}
    assert (settings.limits.calls_per_wake, settings.supervision.stop_seconds) == (50, 10)
    assert (settings.supervision.stuck_seconds, settings.supervision.stuck_restart) == (300, False)
    assert settings.supervision.hibernate_seconds == 60
    assert settings.mail == Mail(
        durability="disk", max_message_bytes=1048576, max_inbox_bytes=67108864
    )
    limits = settings.limits
    assert (limits.team_usd_per_day, limits.team_tokens_per_day, limits.talk_wakes) == (20, 0, 12)
    assert (settings.tools.bash_timeout_seconds, settings.tools.output_bytes) == (120, 50000)
    assert settings.tools.env == ("PATH", "LANG", "TERM")
    assert settings.teammates == ()


def test_every_setting_is_read(file: Path) -> None:
    """None has its default here, so that one which is added must be added here too."""
    (file.parent / "src").mkdir()
    for name in ("turns.json", "host.crt", "host.key", "ca.crt"):
        (file.parent / name).touch()
    file.write_text("""
        [team]
        name = "red"
        workspace = "src"
        worktree = true
        [model]
        name = "m"
        base_url = "https://example.org/api"
        key_command = "pass show key"
        effort = "max"
        max_tokens = 1
        context_tokens = 5000
        clear_at = 0.1
        compact_at = 0.2
        timeout_seconds = 0.5
        attempts = 2
        rest_seconds = 3
        retry_seconds = 4
        concurrent_calls = 2
        headers = { X-Project = "a b" }
        tools = "basic"
        cache = false
        cache_ttl = "1h"
        script = "turns.json"
        [limits]
        calls_per_wake = 3
        teammate_tokens = 4
        teammate_usd = 0.5
        team_tokens = 6
        team_usd = 0.7
        team_usd_per_day = 0.8
        team_tokens_per_day = 9
        team_usd_per_month = 0.9
        talk_wakes = 10
        [supervision]
        crashes = 1
        within_seconds = 2
        stop_seconds = 4
        stuck_seconds = 60
        stuck_restart = true
        hibernate_seconds = 0.5
        [mail]
        durability = "os"
        max_message_bytes = 5
        max_inbox_bytes = 6
        [tasks]
        auto_claim = true
        check = "pytest -q"
        protect = ["tests/**", ".ci"]
        check_attempts = 2
        check_seconds = 30
        [merge]
        into = "trunk"
        check = "make"
        auto = true
        [hosts]
        name = "H1"
        servers = ["tls://10.0.0.1:4222", "nats://localhost:4222"]
        cert = "host.crt"
        key = "host.key"
        ca = "ca.crt"
        outbox_bytes = 7
        [hosts.allow]
        spawn = ["H2", "h3"]
        [tools]
        sandbox = "off"
        network = true
        hosts = ["Docs.example.org"]
        read = ["/srv"]
        protect = ["deploy"]
        max_processes = 8
        max_memory_mb = 9
        max_file_mb = 10
        bash_timeout_seconds = 6.5
        output_bytes = 7
        env = ["HOME"]
        ask_seconds = 8
        approvers = ["lead"]
        [prices."m"]
        input = 1
        output = 2
        cache_read = 3
        cache_write = 4
        cache_write_hour = 5
        [role.tester]
        network = false
        [[teammate]]
        name = "alice"
        role = "coder"
        prompt = "work"
        sandbox = "external"
        hosts = []
        [[teammate]]
        name = "bob"
        role = "reviewer"
        prompt = "wait"
        model = "small"
        plan = true
        worktree = false
        [[permission]]
        tool = "bash"
        command = "git push"
        teammate = "bob"
        then = "ask"
        [[permission]]
        tool = "*_file"
        path = "docs/**"
        then = "allow"
    """)
    TrustStore().confirm(file, file.read_bytes())
    read = load(file, folder=Path("/nowhere"))
    assert read == Settings(
        team=TeamSettings(name="red", workspace=file.parent / "src", worktree=True),
        model=ModelSettings(
            name="m",
            base_url="https://example.org/api",
            key_command="pass show key",
            effort="max",
            max_tokens=1,
            context_tokens=5000,
            clear_at=0.1,
            compact_at=0.2,
            timeout_seconds=0.5,
            attempts=2,
            rest_seconds=3,
            retry_seconds=4,
            concurrent_calls=2,
            headers={"X-Project": "a b"},
            tools="basic",
            cache=False,
            cache_ttl="1h",
            script=file.parent / "turns.json",
        ),
        limits=Limits(
            calls_per_wake=3,
            teammate_tokens=4,
            teammate_usd=0.5,
            team_tokens=6,
            team_usd=0.7,
            team_usd_per_day=0.8,
            team_tokens_per_day=9,
            team_usd_per_month=0.9,
            talk_wakes=10,
        ),
        supervision=Supervision(
            crashes=1,
            within_seconds=2,
            stop_seconds=4,
            stuck_seconds=60,
            stuck_restart=True,
            hibernate_seconds=0.5,
        ),
        mail=Mail(durability="os", max_message_bytes=5, max_inbox_bytes=6),
        tasks=TaskSettings(
            auto_claim=True,
            check="pytest -q",
            protect=("tests/**", ".ci"),
            check_attempts=2,
            check_seconds=30.0,
        ),
        merge=MergeSettings(into="trunk", check="make", auto=True),
        hosts=HostSettings(
            name="h1",
            servers=("tls://10.0.0.1:4222", "nats://localhost:4222"),
            cert=file.parent / "host.crt",
            key=file.parent / "host.key",
            ca=file.parent / "ca.crt",
            outbox_bytes=7,
            allow={"spawn": ("h2", "h3")},
        ),
        tools=ToolSettings(
            sandbox="off",
            network=True,
            hosts=("docs.example.org",),
            read=(Path("/srv"),),
            protect=("deploy",),
            max_processes=8,
            max_memory_mb=9,
            max_file_mb=10,
            bash_timeout_seconds=6.5,
            output_bytes=7,
            env=("HOME",),
            ask_seconds=8,
            approvers=("lead",),
        ),
        roles={"tester": ToolOverrides(network=False)},
        prices={
            "m": PriceSettings(input=1, output=2, cache_read=3, cache_write=4, cache_write_hour=5)
        },
        teammates=(
            Teammate(name="alice", role="coder", prompt="work", sandbox="external", hosts=()),
            Teammate(
                name="bob",
                role="reviewer",
                prompt="wait",
                model="small",
                plan=True,
                worktree=False,
            ),
        ),
        permissions=(
            Permission(tool="bash", command="git push", teammate="bob", then="ask"),
            Permission(tool="*_file", path="docs/**", then="allow"),
        ),
    )
    assert not list(_kept_defaults(read, Settings()))


def _kept_defaults(read: Any, default: Any) -> Iterator[str]:
    """Return the settings that are as if nothing had been read."""
    for declared in fields(read):
        value, before = getattr(read, declared.name), getattr(default, declared.name)
        if is_dataclass(value):
            yield from (f"{declared.name}.{name}" for name in _kept_defaults(value, before))
        elif value == before:
            yield declared.name


def test_a_path_is_absolute_wherever_the_program_was_started(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("")
    monkeypatch.chdir(file.parent)
    assert load(Path("team.toml"), folder=Path()).team.workspace == file.parent
    assert load(Path("gone.toml"), folder=Path()).team.workspace == file.parent


def test_a_folder_beside_the_project_is_named_without_dots(file: Path) -> None:
    """With them it counted as one in the workspace, and commands could not read it."""
    settings = parse(b'[tools]\nread = ["../docs", "/srv/../data"]\n', path=file)
    assert settings.tools.read == (file.parent.parent / "docs", Path("/data"))


def test_a_byte_order_mark_does_no_harm(file: Path) -> None:
    file.write_bytes(b'\xef\xbb\xbf[team]\r\nname = "red"\r\n')
    assert load(file, folder=file.parent).team.name == "red"


@pytest.mark.slow
@given(document=DOCUMENTS)
def test_whatever_a_file_holds_it_loads_or_is_told(document: Any, standing: Path) -> None:
    """Each sentence is one line and names the file, and a key that stands there or must."""
    outcome = parsed(tomli_w.dumps(document).encode(), standing)
    if isinstance(outcome, Settings):
        assert outcome.team.workspace.is_absolute()
        return
    lines = str(outcome).split("\n")
    assert len(lines) == len(outcome.mistakes) > 0
    for line in lines:
        assert line.isprintable()
        file, _, sentence = line.partition(": ")
        assert file == str(standing)
        assert sentence.startswith(('"', *document))


@given(data=st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_whatever_bytes_a_file_holds_they_load_or_are_told(data: bytes, standing: Path) -> None:
    outcome = parsed(data, standing)
    assert isinstance(outcome, Settings) or str(outcome).startswith(f"{standing}: ")
