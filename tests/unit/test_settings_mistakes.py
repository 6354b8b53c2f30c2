"""The sentence about each mistake in `team.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from teamd.errors import SettingsError
from teamd.settings import kinds, load, parse
from teamd.settings.known_tools import list_guarded
from teamd.settings.load import parse_leniently
from teamd.settings.schema import Limits

ALICE = '[[teammate]]\nname = "alice"\nrole = "coder"\nprompt = "work"\n'
LIMITS = ", ".join(kinds.keys_of(Limits))
TOKENS = "a whole number from 0, for no limit, to 1000000000000000"
USD = "a number of USD from 0, for no limit, to 1000000000"
RATE = "a number of USD from 0 to 1000000000"
SECONDS = "a number of seconds above 0 and up to 1000000"
SHARE = "a number above 0 and up to 1"
EFFORT = '"low", "medium", "high", "xhigh" or "max"'
WHOLE = "a whole number from 1 to 2147483647"
NAME = "up to 64 of A-Z a-z 0-9 _ - with a letter or digit first"
ADDRESS = "an address that begins with http:// or https://"
HEADERS = "a table of headers, each one line of ASCII text"
BRANCH = 'the name of a branch, such as "team/main"'
CHECK = 'a command such as "pytest -q", or "" for none'
PATTERNS = 'a list of relative patterns of paths in the workspace, such as ["tests/**", ".ci/**"]'
NOT_SUCH = "one of them is not such a name"
SERVERS = 'a list of addresses, such as ["tls://10.0.0.1:4222"] or ["tls://[fd00::1]:4222"]'
ALLOW = 'a table of lists of hosts, such as { spawn = ["h1"] }'
VARIABLES = 'a list of names of environment variables, such as ["PATH"]'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "team.toml"


def mistakes(text: str, file: Path) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        parse(text.encode(), path=file)
    return caught.value.mistakes


@pytest.mark.parametrize(
    ("key", "must_be", "values"),
    [
        ("team.name", NAME, ('"a b"', "5")),
        ("team.workspace", "the path of a folder", ("5", '" "')),
        ("merge.into", BRANCH, ('"-x"', '"HEAD"', '"refs/heads/a"', '"a..b"')),
        ("tasks.check", CHECK, ("5", '" "')),
        ("tasks.protect", PATTERNS, ('"tests"',)),
        ("model.name", "non-empty text", ('""',)),
        ("model.base_url", ADDRESS, ('"ftp://a"', '"http://a b"', '"http://"')),
        ("model.key_command", "non-empty text", ("true",)),
        ("model.effort", EFFORT, ('"most"',)),
        ("model.max_tokens", WHOLE, ('"many"', "0", "-1", "true", "1.5", "2147483648")),
        ("model.clear_at", SHARE, ("0", "true", "1.5", "nan")),
        ("model.timeout_seconds", SECONDS, ('"1"', "0", "-1", "nan", "inf", "true")),
        ("supervision.stuck_seconds", SECONDS.replace("above", "of at least"), ("-1",)),
        ("model.headers", HEADERS, ('"X"',)),
        ("model.cache", "true or false", ("1",)),
        ("model.script", "the path of a file", ("1",)),
        ("mail.durability", '"disk" or "os"', ('"no"',)),
        ("tools.env", VARIABLES, ('"PATH"',)),
        ("hosts.servers", SERVERS, ('"tls://h1:4222"',)),
        ("hosts.creds", "the path of a file", ("5", '" "')),
        ("hosts.replicas", "a whole number from 1 to 5", ("0", "6", "true", "1.5")),
        ("hosts.plaintext", "true or false", ("1",)),
        # Otherwise a limit, for example of nan, would never be reached.
        ("limits.teammate_tokens", TOKENS, ("-1", "1.5", "true")),
        ("limits.team_usd", USD, ("-0.1", "inf", "nan", '"5 $"')),
    ],
)
def test_a_wrong_value_is_reported_with_its_key(
    key: str, must_be: str, values: tuple[str, ...], file: Path
) -> None:
    section, _, name = key.partition(".")
    for value in values:
        said = mistakes(f"[{section}]\n{name} = {value}\n", file)
        assert said == (f"{key} must be {must_be}, not {value}",)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("tasks.protect = ['../x']", f'must be {PATTERNS}; "../x" cannot be in it'),
        ("model.effort = [1]", f"must be {EFFORT}, not a list"),
        ("model.max_tokens = [1]", f"must be {WHOLE}, not a list"),
        ("model.max_tokens = {}", f"must be {WHOLE}, not a table"),
        ("model.max_tokens = 07:00:00", f"must be {WHOLE}, not a date or a time"),
        (f"model.max_tokens = 0x{'f' * 9000}", f"must be {WHOLE}, not a number of that size"),
        ("model.headers = { 'a b' = 'c' }", f'must be {HEADERS}; "a b" cannot be a header\'s name'),
        (
            r'model.headers = { X-A = "secret\nX-B: c" }',
            f"must be {HEADERS}; that of X-A is not",
        ),
        ("model.headers = { X-A = 5 }", f"must be {HEADERS}; that of X-A is not"),
        ("mail.durability = 'a\\b\"'", r'must be "disk" or "os", not "a\\b\""'),
        ("tools.env = ['A=B']", f"must be {VARIABLES}; {NOT_SUCH}"),
        ("tools.env = [1]", f"must be {VARIABLES}; {NOT_SUCH}"),
        ("hosts.servers = [5]", f"must be {SERVERS}; 5 cannot be in it"),
        ("hosts.allow = ['h1']", f"must be {ALLOW}, not a list"),
        (
            "hosts.allow = { start = ['h1'] }",
            f"must be {ALLOW}; start is not one of: spawn, shutdown, interrupt, pause, resume",
        ),
        ("hosts.allow = { spawn = 'h1' }", f"must be {ALLOW}; spawn is not a list of host names"),
        ("hosts.allow = { spawn = ['*'] }", f"must be {ALLOW}; spawn is not a list of host names"),
        ("tools.approvers = ['a']", f'must be {kinds.APPROVERS.must_be}; "a" cannot be in it'),
        (
            "tools.read = ['~nosuchuser/data']",
            "has a path with `~`, and that home is not known; write it out",
        ),
    ],
)
def test_a_wrong_list_or_table_is_reported_with_its_key(
    line: str, sentence: str, file: Path
) -> None:
    assert mistakes(line, file) == (f"{line.partition(' ')[0]} {sentence}",)


@pytest.mark.parametrize("address", ["http://a/v1", "https://a.b:8/api/v1/", "HTTP://a/v1"])
def test_a_base_url_that_ends_in_v1_is_refused(address: str, file: Path) -> None:
    """The SDK adds `/v1/messages`; the server would answer a puzzling 404."""
    (sentence,) = mistakes(f'[model]\nbase_url = "{address}"', file)
    assert sentence == "model.base_url must not end in /v1, which is added to it; leave /v1 out"


def test_a_missing_workspace_or_script_is_a_mistake(file: Path) -> None:
    folder = file.parent
    assert mistakes('[team]\nworkspace = "src"\n[model]\nscript = "."', file) == (
        f"team.workspace names no folder: {folder / 'src'} does not exist; make it or name another",
        f"model.script names no file: {folder} does not exist; make it or name another",
    )
    (sentence,) = mistakes('[team]\nworkspace = "a\\n"', file)
    assert rf"{folder}/a\u000a does not exist" in sentence
    with pytest.raises(SettingsError, match=r"team\.workspace names no folder"):
        load(folder / "gone" / "team.toml", folder=folder / "gone")


@pytest.mark.parametrize("path", ["x" * 5000, r"a\u0000b", "circle"])
def test_an_impossible_path_is_a_mistake(path: str, file: Path) -> None:
    (file.parent / "circle").symlink_to("circle")
    (sentence,) = mistakes(f'[team]\nworkspace = "{path}"', file)
    assert sentence.startswith("team.workspace must be the path of a folder, not ")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[limits]\ncalls_per_wak = 5", "limits.calls_per_wak {no}; did you mean calls_per_wake?"),
        ("[lmits]", "lmits {no}; did you mean limits?"),
        ("[limits]\nmax_tokens = 5", "limits.max_tokens {no}; did you mean model.max_tokens?"),
        ('name = "red"', "name {no}; did you mean team.name or model.name or hosts.name?"),
        ("[limits]\nqqq = 5", "limits.qqq {no}; there are: {limits}"),
        ('[limits]\n"a\\u001b" = 5', 'limits."a\\u001b" {no}; there are: {limits}'),
        ("limits = 5", "limits must be a table, [limits], not 5"),
        ("[[limits]]", "limits must be a table, [limits], not a list"),
        ("teammate = 5", "teammate must be tables, each under a [[teammate]]"),
        ("[teammate]", "teammate must be tables, each under a [[teammate]]"),
        ("teammate = [5]", "teammate must be tables, each under a [[teammate]]"),
        ("permission = 1", "permission must be tables, each under a [[permission]]"),
    ],
)
def test_an_unknown_key_is_reported_with_the_nearest_one(
    text: str, sentence: str, file: Path
) -> None:
    whole = sentence.replace("{no}", "is not a setting").replace("{limits}", LIMITS)
    assert mistakes(text, file) == (whole,)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("prices = 5", 'prices must be tables, each under a [prices."model-name"]'),
        ("[prices]\ninput = 3", 'prices must be tables, each under a [prices."model-name"]'),
        (
            '[prices."m"]\ninput = 3',
            f'prices.output is missing; it must be {RATE} (in [prices."m"])',
        ),
        (
            '[prices."m"]\ninput = 3\noutput = nan',
            'prices.output must be a number of USD from 0 to 1000000000, not nan (in [prices."m"])',
        ),
        (
            '[prices."m"]\ninput = 3\noutput = 4\ncache_reads = 1',
            'prices.cache_reads is not a setting; did you mean cache_read? (in [prices."m"])',
        ),
        (
            "[prices.m2.5]\ninput = 3\noutput = 4",
            'prices.m2 must hold figures; put a name with a dot in quotes, as [prices."m2.5"]',
        ),
    ],
)
def test_a_mistake_in_a_price_is_reported(text: str, sentence: str, file: Path) -> None:
    assert mistakes(text, file) == (sentence,)


ONE_COMMAND = 'must be the first words of one command, such as "git push", without shell operators'
OTHER_TOOL = "leave it out, or change tool"


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"then": None}, 'then is missing; it must be "allow", "ask" or "deny"'),
        ({"then": "never"}, 'then must be "allow", "ask" or "deny", not "never"'),
        ({"tool": "bsh"}, 'tool "bsh" is not a tool; did you mean bash?'),
        ({"command": "git push; ls"}, f"command {ONE_COMMAND}"),
        ({"command": "git 'push"}, "command has a quote that is not closed; close it"),
        ({"path": "docs/**"}, f"path is for {', '.join(list_guarded('path'))}; {OTHER_TOOL}"),
        (
            {"tool": "*_file", "command": "x"},
            f"command is for bash and background_run; {OTHER_TOOL}",
        ),
        (
            {"tool": "*", "command": "x", "path": "y"},
            "path and command never go together; make two rules of it",
        ),
        ({"tool": "*", "path": "../x"}, "path must be relative to the workspace, and in it"),
        ({"teammate": ""}, f'teammate must be {kinds.TEAMMATE_PATTERN.must_be}, not ""'),
        ({"commnd": 1}, "commnd is not a setting; did you mean command?"),
        (
            {"command": 5},
            'command must be the first words of a command, such as "git push", not 5',
        ),
        (
            {"tool": "write_file", "path": 5},
            'path must be a pattern of paths, such as "docs/**", not 5',
        ),
    ],
)
def test_a_mistake_in_a_rule_is_reported(facts: dict[str, Any], sentence: str, file: Path) -> None:
    """A rule that no call can match would guard nothing, unnoticed."""
    rule = {"tool": "bash", "then": "ask", **facts}
    text = tomli_w.dumps(
        {"permission": [{key: one for key, one in rule.items() if one is not None}]}
    )
    assert mistakes(text, file) == (f"permission.{sentence} (in [[permission]] number 1)",)


def test_all_mistakes_are_reported_at_once(file: Path) -> None:
    text = f'x = 1\n[model]\nmax_tokens = 0\ncache = 1\n[mail]\nfoo = 1\n{ALICE}model = ""'
    told = mistakes(text, file)
    keys = [sentence.split()[0] for sentence in told]
    assert keys == ["x", "model.max_tokens", "model.cache", "mail.foo", "teammate.model"]
    assert str(SettingsError(file, told)).splitlines() == [f"{file}: {line}" for line in told]


def test_a_long_value_is_cut_in_its_sentence(file: Path) -> None:
    (sentence,) = mistakes(f'[mail]\ndurability = "{"x" * 10_000}"', file)
    assert sentence == f'mail.durability must be "disk" or "os", not "{"x" * 60}…"'


@pytest.mark.parametrize(
    "server",
    ["tls://[::1:4222", "tls://fd00::1:4222", "tls://h1:99999", "tls://h1:port", "tls://:4222"],
)
def test_an_impossible_server_address_is_a_mistake(server: str, file: Path) -> None:
    """The postman would crash on it, and mail to all hosts would wait."""
    (said,) = mistakes(f'[hosts]\nservers = ["tls://h1:4222", "{server}"]\n', file)
    assert said.endswith(f'or ["tls://[fd00::1]:4222"]; "{server}" cannot be in it')


def test_a_teammate_needs_name_role_and_prompt(file: Path) -> None:
    text = "non-empty text (in [[teammate]] number 2)"
    assert mistakes(f"{ALICE}[[teammate]]", file) == (
        f"teammate.name is missing; it must be {NAME} (in [[teammate]] number 2)",
        f"teammate.role is missing; it must be {text}",
        f"teammate.prompt is missing; it must be {text}",
    )


def test_a_text_must_not_be_blank_or_hold_nuls(file: Path) -> None:
    (sentence,) = mistakes(ALICE.replace("work", r"\n "), file)
    where = "(in [[teammate]] number 1)"
    assert sentence == rf'teammate.prompt must be non-empty text, not "\u000a " {where}'
    (sentence,) = mistakes(ALICE.replace("coder", r"a\u0000"), file)
    assert sentence == f"teammate.role must not hold a NUL character; leave it out {where}"


@pytest.mark.parametrize("name", ["lead", "User", "TEAMD", "all"])
def test_a_reserved_name_is_refused(name: str, file: Path) -> None:
    (sentence,) = mistakes(ALICE.replace("alice", name), file)
    assert sentence.startswith(f"teammate.name is refused: '{name}' cannot be a teammate's name")


@pytest.mark.parametrize(("first", "second"), [("alice", "Alice"), ("Alice", "alice")])
def test_a_name_is_unique_whatever_its_case(first: str, second: str, file: Path) -> None:
    text = ALICE.replace("alice", first) + ALICE.replace("alice", second)
    (sentence,) = mistakes(text, file)
    assert sentence == (
        "teammate.name must be unlike every other, whatever the case; "
        f'"{second}" is taken (in [[teammate]] number 2)'
    )


@pytest.mark.parametrize("server", ["nats://10.0.0.1:4222", "nats://h1", "nats://[fd00::1]:4222"])
def test_a_server_without_tls_on_another_machine_must_be_wanted(server: str, file: Path) -> None:
    servers = f'servers = ["tls://h1:4222", "{server}"]'
    (told,) = mistakes(f"[hosts]\n{servers}\n", file)
    assert told == (
        f'hosts.servers has "{server}", to which mail would go unencrypted; write tls://, or set '
        "hosts.plaintext = true"
    )
    lenient = parse_leniently(f"[hosts]\nname = 'h2'\n{servers}\n".encode(), path=file).hosts
    assert (lenient.name, lenient.servers) == ("h2", ())
    text = f"[hosts]\nplaintext = true\n{servers}\n".encode()
    assert parse(text, path=file).hosts.servers == ("tls://h1:4222", server)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_a_server_without_tls_on_this_machine_is_accepted(host: str, file: Path) -> None:
    text = f'[hosts]\nservers = ["nats://{host}:4222"]\n'.encode()
    assert parse(text, path=file).hosts.servers == (f"nats://{host}:4222",)
