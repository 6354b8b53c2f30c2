"""Reading `team.toml`, and the defaults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from teamd.errors import SettingsError
from teamd.settings import Settings, Teammate, changes, load, parse
from teamd.settings.kinds import keys_of
from teamd.settings.schema import (
    SECTIONS,
    HostSettings,
    Limits,
    Mail,
    ModelSettings,
    Permission,
    PriceSettings,
    TeamSettings,
    ToolOverrides,
    ToolSettings,
)

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
    """A path in a folder that exists for every example of a property."""
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


def test_values_are_converted_to_those_the_program_uses(file: Path) -> None:
    """Every other value is used as it is; the tests of the example read each key once."""
    (file.parent / "src").mkdir()
    (file.parent / "turns.json").touch()
    settings = parse(
        b"""
        [team]
        workspace = "src"
        [model]
        timeout_seconds = 5
        headers = { X-Project = "a b" }
        script = "turns.json"
        [tasks]
        protect = ["./tests/**", ".ci"]
        [hosts]
        name = "H1"
        servers = ["tls://10.0.0.1:4222", "nats://localhost:4222"]
        cert = "host.crt"
        allow = { spawn = ["H2", "h3"] }
        [tools]
        hosts = ["Docs.example.org"]
        [prices."m"]
        input = 1
        output = 2
        [role.tester]
        network = false
        [[teammate]]
        name = "alice"
        role = "coder"
        prompt = "work"
        hosts = []
        """,
        path=file,
    )
    assert settings.team.workspace == file.parent / "src"
    assert repr(settings.model.timeout_seconds) == "5.0"
    assert settings.model.headers == {"X-Project": "a b"}
    assert settings.model.script == file.parent / "turns.json"
    assert settings.tasks.protect == ("tests/**", ".ci")
    assert settings.hosts == HostSettings(
        name="h1",
        servers=("tls://10.0.0.1:4222", "nats://localhost:4222"),
        cert=file.parent / "host.crt",
        allow={"spawn": ("h2", "h3")},
    )
    assert settings.tools.hosts == ("docs.example.org",)
    assert settings.prices == {"m": PriceSettings(input=1, output=2)}
    assert settings.roles == {"tester": ToolOverrides(network=False)}
    alice = Teammate(name="alice", role="coder", prompt="work", hosts=())
    assert settings.teammates == (alice,)


def test_a_path_is_absolute_wherever_the_program_was_started(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("")
    monkeypatch.chdir(file.parent)
    assert load(Path("team.toml"), folder=Path()).team.workspace == file.parent
    assert load(Path("gone.toml"), folder=Path()).team.workspace == file.parent


def test_a_folder_beside_the_project_is_named_without_dots(file: Path) -> None:
    """With `..` it seemed to lie in the workspace, and commands could not read it."""
    settings = parse(b'[tools]\nread = ["../docs", "/srv/../data"]\n', path=file)
    assert settings.tools.read == (file.parent.parent / "docs", Path("/data"))


def test_a_byte_order_mark_is_ignored(file: Path) -> None:
    file.write_bytes(b'\xef\xbb\xbf[team]\r\nname = "red"\r\n')
    assert load(file, folder=file.parent).team.name == "red"


@pytest.mark.slow
@given(document=DOCUMENTS)
def test_any_document_loads_or_is_refused_with_sentences(document: Any, standing: Path) -> None:
    """Each sentence is one line that names the file and a key of the document."""
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
def test_any_bytes_load_or_are_refused_with_sentences(data: bytes, standing: Path) -> None:
    outcome = parsed(data, standing)
    assert isinstance(outcome, Settings) or str(outcome).startswith(f"{standing}: ")


def test_changes_are_dotted_keys() -> None:
    alice = Teammate(name="alice", role="coder", prompt="work")
    bob = Teammate(name="bob", role="coder", prompt="work")
    carol = Teammate(name="carol", role="coder", prompt="work")
    old = Settings(teammates=(alice, bob))
    new = Settings(
        limits=Limits(team_usd=5.0),
        prices={"small": PriceSettings(input=1.0, output=2.0)},
        model=ModelSettings(cache=False, max_tokens=5),
        tools=ToolSettings(env=()),
        teammates=(carol, replace(alice, prompt="rest", model="small")),
        permissions=(Permission(tool="bash", then="deny"),),
    )
    assert changes(old, old) == []
    assert changes(old, Settings(teammates=(bob, alice))) == []
    assert changes(old, new) == [
        "model.max_tokens",
        "model.cache",
        "limits.team_usd",
        "tools.env",
        "prices.small",
        "teammate.alice.prompt",
        "teammate.alice.model",
        "teammate.bob",
        "teammate.carol",
        "permission",
    ]
