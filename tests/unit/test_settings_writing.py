"""Writing `team.toml`: the commented example, another teammate, and keys of a section."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from teamd.errors import SettingsError, TeamError
from teamd.messages import check_name
from teamd.settings import Settings, Teammate, parse
from teamd.settings.kinds import keys_of
from teamd.settings.schema import SECTIONS, Permission, PriceSettings, TeamSettings
from teamd.settings.write import init_text, with_keys, with_teammate
from teamd.supervisor.live_settings import changes

SETTING = re.compile(r"^# ([a-z_]+ = .*)", re.MULTILINE)
KEYS = {"name": "h1", "servers": ["tls://h1:4222"]}
ALICE = Teammate(name="alice", role="coder", prompt="work")


def fits(name: str) -> bool:
    try:
        check_name(name)
    except TeamError:
        return False
    return True


WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
WORDS = WORDS.filter(str.strip)
MATES = st.builds(
    Teammate,
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,9}", fullmatch=True).filter(fits),
    role=WORDS,
    prompt=WORDS | st.lists(WORDS).map("\r\n".join).filter(str.strip),
    model=st.none() | WORDS,
)
TEAMS = st.lists(MATES, max_size=3, unique_by=lambda mate: mate.name.lower())
ENDS = st.sampled_from(["", "\n", "\n\n", "# a comment", "# a comment\n", "[mail]", "\t"])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A path in a folder with the only file that the example needs."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "turns.json").touch()
    return folder / "team.toml"


@pytest.fixture
def defaults(file: Path) -> Settings:
    return Settings(team=TeamSettings(workspace=file.parent))


def sections() -> str:
    """Return the sections of the example, without its tables."""
    return init_text().partition("# [prices")[0]


def setting_lines() -> list[str]:
    return SETTING.findall(sections())


def refusal(old: bytes, mate: Teammate, file: Path) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        with_teammate(old, mate, path=file)
    return caught.value.mistakes


def test_the_repositorys_team_toml_is_the_output_of_init() -> None:
    repository = Path(__file__).parents[2]
    text = (repository / "team.toml").read_text(encoding="utf-8")
    assert text == init_text(), "`rm team.toml; teamctl init` writes it anew"


def test_the_example_loads_and_changes_nothing(file: Path, defaults: Settings) -> None:
    assert parse(init_text().encode(), path=file) == defaults


def test_the_example_shows_every_setting_once() -> None:
    shown = [line.partition(" = ")[0] for line in setting_lines()]
    assert shown == [key for shape in SECTIONS.values() for key in keys_of(shape)]


@pytest.mark.parametrize("line", setting_lines())
def test_a_line_of_the_example_holds_the_default_when_it_is_uncommented(
    line: str, file: Path, defaults: Settings
) -> None:
    """Only a line that is marked `e.g.` has no default; it changes its own setting."""
    settings = parse(init_text().replace(f"# {line}", line).encode(), path=file)
    keys = [key.rpartition(".")[2] for key in changes(defaults, settings)]
    assert keys == ([line.partition(" = ")[0]] if "# e.g.; " in line else [])


def test_the_examples_price_loads_when_it_is_uncommented(file: Path) -> None:
    _, mark, prices = init_text().partition("# [prices")
    text = re.sub(r"(?m)^# ", "", (mark + prices).partition("# What a role may")[0])
    assert parse(text.encode(), path=file).prices == {
        "my-model": PriceSettings(
            input=3, output=15, cache_read=0.3, cache_write=3.75, cache_write_hour=6
        )
    }


def test_the_examples_rule_loads_when_it_is_uncommented(file: Path) -> None:
    _, mark, rules = init_text().partition("# [[permission]]")
    text = re.sub(r"(?m)^# ", "", (mark + rules).partition("# Who is spawned")[0])
    rule = Permission(tool="bash", command="git push", then="ask")
    assert parse(text.encode(), path=file).permissions == (rule,)


def test_the_examples_teammates_load_when_they_are_uncommented(file: Path) -> None:
    head, mark, mates = init_text().partition("# [[teammate]]")
    text = head + re.sub(r"(?m)^# ", "", mark + mates)
    alice, bob = parse(text.encode(), path=file).teammates
    assert (alice.name, bob.name) == ("alice", "bob")
    assert bob.prompt.startswith("Wait for mail.")


def test_the_example_fits_a_terminal() -> None:
    assert max(map(len, init_text().splitlines())) <= 100


def test_a_teammate_is_added_in_readable_toml(file: Path) -> None:
    mate = Teammate(name="bob", role="reviewer", prompt="Read.\nThen mail.", model="small")
    added = '[[teammate]]\nname = "bob"\nrole = "reviewer"\nprompt = """\nRead.\nThen mail."""\n'
    added += 'model = "small"\n'
    assert with_teammate(b"", mate, path=file).decode() == added
    assert with_teammate(b"# x\n", mate, path=file).decode() == f"# x\n\n{added}"
    assert with_teammate(b"# x", mate, path=file).decode() == f"# x\n\n{added}"


def test_a_file_with_windows_line_endings_keeps_them(file: Path) -> None:
    mate = replace(ALICE, prompt="Read.\nThen mail.")
    new = with_teammate(b'[team]\r\nname = "red"\r\n', mate, path=file)
    assert new.count(b"\n") == new.count(b"\r\n") == 9
    assert parse(new, path=file).teammates == (mate,)


def test_a_second_teammate_with_the_same_name_is_refused(file: Path) -> None:
    old = with_teammate(b"", ALICE, path=file)
    twin = replace(ALICE, name="ALICE")
    assert refusal(old, twin, file) == ('there is already a teammate "ALICE" in it',)


def test_a_teammate_that_would_fail_to_load_is_refused(file: Path) -> None:
    (sentence,) = refusal(b"", replace(ALICE, name="lead"), file)
    assert sentence.startswith("teammate.name is refused: 'lead' cannot")
    (sentence,) = refusal(b"", replace(ALICE, role=" "), file)
    assert sentence.startswith("teammate.role must be non-empty text")
    (sentence,) = refusal(b"", replace(ALICE, prompt="\udcff"), file)
    assert sentence == "a teammate's text must be UTF-8; correct it"
    (sentence,) = refusal(b"", replace(ALICE, prompt="x" * 2_000_000), file)
    assert sentence == "it is larger than 1048576 bytes; shorten it"


def test_nothing_is_added_to_a_file_that_does_not_load(file: Path) -> None:
    (sentence,) = refusal(b"[mail]\ndurability = 5\n", ALICE, file)
    assert sentence == 'mail.durability must be "disk" or "os", not 5'


@pytest.mark.parametrize(
    "old", [b"teammate = []\n", b'teammate = [{name="b",role="r",prompt="p"}]']
)
def test_a_teammate_cannot_be_added_to_an_inline_list(old: bytes, file: Path) -> None:
    """TOML forbids it, and the parser's own sentence does not explain why."""
    assert refusal(old, ALICE, file) == (
        "its teammates are in `teammate = […]`; write each under a [[teammate]]",
    )


@given(team=TEAMS, mate=MATES, end=ENDS, windows=st.booleans())
def test_adding_keeps_every_byte_and_the_result_loads(
    team: list[Teammate], mate: Teammate, end: str, windows: bool, file: Path
) -> None:
    tables = [
        {key: getattr(one, key) for key in keys_of(Teammate) if getattr(one, key)} for one in team
    ]
    text = "".join("[[teammate]]\n" + tomli_w.dumps(table) for table in tables) + end
    old = (text.replace("\n", "\r\n") if windows else text).encode()
    if mate.name.lower() in {one.name.lower() for one in team}:
        refusal(old, mate, file)
        return
    new = with_teammate(old, mate, path=file)
    assert new.startswith(old)
    assert parse(new, path=file).teammates == (*team, mate)


@pytest.mark.parametrize(
    "old",
    [
        "",
        "# nothing",
        "[team]\nname = 'web'",
        "[hosts]\n",
        "[ hosts ] # here\n# name = 'x'\n",
        "[hosts]\noutbox_bytes = 5\n[team]\n",
        "[team]\r\nname = 'web'\r\n[hosts]\r\n",
        "[hosts.allow]\nspawn = ['h2']\n",
        "[hosts.allow]\nspawn = ['h2']\n[team]\nname = 'web'\n[hosts]\noutbox_bytes = 5\n",
        "hosts = { outbox_bytes = 5 }\n",
        "hosts.outbox_bytes = 5\n[team]\n",
        '[[teammate]]\nname = "a"\nrole = "b"\nprompt = """\n[hosts]\n"""\n',
        "\ufeff# a mark\r\n[team]\r\n",
        "\ufeff[hosts]\n",
        "[team]\r\nname = 'web'\n[hosts]\r\n",  # both line ends
    ],
)
def test_keys_are_put_into_their_section_and_the_rest_stays(file: Path, old: str) -> None:
    new = with_keys(old.encode(), "hosts", KEYS, path=file)
    before, after = (tomllib.loads(text.removeprefix("\ufeff")) for text in (old, new.decode()))
    assert after.pop("hosts") == {**before.pop("hosts", {}), **KEYS}
    assert after == before
    assert with_keys(new, "hosts", KEYS, path=file) == new
    left = iter(new.decode().splitlines(keepends=True))
    assert "{" in old or all(line in left for line in old.splitlines(keepends=True)[:-1])
    if "\r\n" in old and "\n" not in old.replace("\r\n", ""):
        assert b"\n" not in new.replace(b"\r\n", b"")


def test_a_key_with_another_value_is_not_overwritten(file: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        with_keys(b'[hosts]\nname = "h9"\n', "hosts", {"name": "h1"}, path=file)
    assert caught.value.mistakes == ("hosts.name already has another value; change it by hand",)


def test_a_result_that_does_not_hold_exactly_the_wanted_values_is_refused(file: Path) -> None:
    """A tuple comes back as a list: it is not the value that was asked for."""
    with pytest.raises(SettingsError) as caught:
        with_keys(b"", "hosts", {"name": "h1", "servers": ("tls://h1:4222",)}, path=file)
    why = "writing [hosts] would change other settings; add by hand: "
    assert caught.value.mistakes == (why + 'name = "h1"; servers = ["tls://h1:4222"]',)
