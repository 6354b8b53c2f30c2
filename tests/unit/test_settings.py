"""Reading `team.toml`: its values, and files that cannot be read or are not TOML."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from teamd.errors import SettingsError
from teamd.settings import Settings, Teammate, load, parse
from teamd.settings.kinds import keys_of
from teamd.settings.load import MAX_FILE_BYTES
from teamd.settings.schema import (
    SECTIONS,
    HostSettings,
    Limits,
    ModelSettings,
    Permission,
    PriceSettings,
    TeamSettings,
    ToolOverrides,
    ToolSettings,
    common_tool_settings,
)
from teamd.supervisor.live_settings import changes

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


WIM = '[[teammate]]\nname = "wim"\nrole = "coder"\nprompt = "Go."\n'


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


def test_changes_are_reported_as_dotted_keys() -> None:
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


def test_a_host_may_make_only_the_requests_it_is_allowed(tmp_path: Path) -> None:
    text = b'[hosts.allow]\nspawn = ["H1", "h2"]\ninterrupt = []\npause = ["h3"]\n'
    hosts = parse(text, path=tmp_path / "team.toml").hosts
    asked = ("spawn", "shutdown", "interrupt", "pause", "resume")
    allowed = {(host, what) for host in ("h1", "H2", "h3") for what in asked
               if hosts.allows(host, what)}  # fmt: skip
    assert allowed == {("h1", "spawn"), ("H2", "spawn"), ("h3", "pause")}


def test_an_added_removed_or_changed_role_is_reported() -> None:
    old = Settings(
        roles={"coder": ToolOverrides(), "tester": ToolOverrides(), "same": ToolOverrides()}
    )
    coder = replace(ToolOverrides(), hosts=("a.org",))
    new = Settings(roles={"coder": coder, "same": ToolOverrides(), "writer": ToolOverrides()})
    assert changes(old, new) == ["role.coder.hosts", "role.tester", "role.writer"]


DATA, DOCS = Path("/data"), Path("/docs")


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({}, {}, {}),
        ({"network": True}, {}, {}),
        ({"network": True}, {"hosts": ("a",)}, {"hosts": ("a",)}),
        ({"network": True}, {"network": True}, {"network": True}),
        ({"hosts": ("a", "b")}, {"hosts": ("b", "c")}, {"hosts": ("b",)}),
        ({"read": (DATA, DOCS)}, {"read": (DOCS,)}, {"read": (DOCS,)}),
        ({"env": ("PATH", "KEY")}, {"env": ("PATH",)}, {"env": ("PATH",)}),
        ({"protect": ("a",)}, {"protect": ("b",)}, {"protect": ("a", "b")}),
        ({"sandbox": "off"}, {}, {}),
        ({"sandbox": "off"}, {"sandbox": "bubblewrap"}, {"sandbox": "bubblewrap"}),
        ({"sandbox": "off"}, {"sandbox": "external"}, {"sandbox": "external"}),
    ],
)
def test_the_common_tool_settings_allow_no_more_than_each(
    one: dict[str, Any], other: dict[str, Any], both: dict[str, Any]
) -> None:
    first, second, common = ToolSettings(**one), ToolSettings(**other), ToolSettings(**both)
    assert common_tool_settings(first, second) == common
    turned = common_tool_settings(second, first)
    if {first.sandbox, second.sandbox} != {"off", "external"}:
        assert turned.sandbox == common.sandbox
    assert turned.network == common.network
    assert set(turned.hosts) == set(common.hosts)
    assert set(turned.protect) == set(common.protect)


# the file itself


def file_mistakes(text: bytes, file: Path) -> tuple[str, ...]:
    file.write_bytes(text)
    with pytest.raises(SettingsError) as caught:
        load(file, folder=file.parent)
    return caught.value.mistakes


@pytest.mark.parametrize(
    ("own", "calls"), [(WIM, 7), ("[limits]\n" + WIM, 50), ("", 50), ("# " + WIM[:12], 50)]
)
def test_a_file_with_only_teammates_leaves_the_rest_to_the_projects_file(
    file: Path, own: str, calls: int
) -> None:
    """`spawn --save` writes such a file, and the team must keep its server and its limits."""
    ann = WIM.replace("wim", "ann")
    file.write_text(f'[limits]\ncalls_per_wake = 7\n[team]\nworkspace = "src"\n{ann}')
    (file.parent / "src").mkdir()
    of_team = file.parent / ".teams" / "web" / "team.toml"
    of_team.parent.mkdir(parents=True)
    of_team.write_text(own)
    found = load(of_team, folder=file.parent)
    assert found.limits.calls_per_wake == calls
    assert found.team.workspace == (file.parent / "src" if calls == 7 else file.parent)
    assert [one.name for one in found.teammates] == (["wim"] if WIM in own else [])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"[team]\nname = ", "it is not TOML: Invalid value (at end of document)"),
        (b"[team]\nname == 5", "it is not TOML: Invalid value (at line 2, column 7)"),
        (b"# fine\n# \xff\n", "it is not UTF-8 (at line 2); save it as such"),
        (b"a = " + b"9" * 9000, "a number in it has too many digits; shorten it"),
        (b"a = " + b"[" * 9000, "its lists or tables are nested too deeply"),
        (b"#" * (MAX_FILE_BYTES + 1), "it is larger than 1048576 bytes; shorten it"),
    ],
)
def test_a_syntax_error_is_reported_with_its_line(text: bytes, sentence: str, file: Path) -> None:
    assert file_mistakes(text, file) == (sentence,)


def test_the_largest_file_is_read(file: Path) -> None:
    file.write_bytes(b"#" * MAX_FILE_BYTES)
    assert load(file, folder=file.parent).teammates == ()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: (path / "inner").mkdir(parents=True), "it is a folder; name a file of"),
        (os.mkfifo, "it is not a regular file; name a file of settings"),
        (lambda path: path.symlink_to(path.name), "it cannot be read: Too many levels of symbolic"),
        (lambda path: path.symlink_to("gone.toml"), "it is a link to gone.toml, which does not"),
    ],
)
def test_a_folder_pipe_or_dangling_link_is_refused_without_blocking(
    make: Any, sentence: str, file: Path
) -> None:
    make(file)
    with pytest.raises(SettingsError) as caught:
        load(file, folder=file.parent)
    assert str(caught.value).startswith(f"{file}: {sentence}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_an_unreadable_file_is_reported(file: Path) -> None:
    file.touch(mode=0)
    with pytest.raises(SettingsError, match="it cannot be read: Permission denied"):
        load(file, folder=file.parent)


def test_a_file_of_another_user_is_refused(file: Path) -> None:
    """Otherwise another user could loosen the rights of agents."""
    stranger = Path("/etc/hosts")
    if os.geteuid() == 0:
        stranger = file
        stranger.touch()
        os.chown(stranger, 12345, -1)
    with pytest.raises(SettingsError) as caught:
        load(stranger, folder=file.parent)
    owner = stranger.stat().st_uid
    assert caught.value.mistakes == (
        f"it belongs to another user (uid {owner}); copy it to a file of your own",
    )
