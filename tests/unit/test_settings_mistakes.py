"""The sentence about each mistake in `team.toml`."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamd.errors import SettingsError
from teamd.settings import kinds, load, parse

ALICE = '[[teammate]]\nname = "alice"\nrole = "coder"\nprompt = "work"\n'
LIMITS = (
    "calls_per_wake, teammate_tokens, teammate_usd, team_tokens, team_usd, team_usd_per_day, "
    "team_tokens_per_day, team_usd_per_month, talk_wakes"
)
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
VARIABLES = 'a list of names of environment variables, such as ["PATH"]'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "team.toml"


def mistakes(text: str, file: Path) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        parse(text.encode(), path=file)
    return caught.value.mistakes


@pytest.mark.parametrize(
    ("section", "line", "sentence"),
    [
        ("team", 'name = "a b"', f'team.name must be {NAME}, not "a b"'),
        ("merge", 'into = "-x"', f'merge.into must be {BRANCH}, not "-x"'),
        ("merge", 'into = "HEAD"', f'merge.into must be {BRANCH}, not "HEAD"'),
        ("merge", 'into = "refs/heads/a"', f'merge.into must be {BRANCH}, not "refs/heads/a"'),
        ("merge", 'into = "a..b"', f'merge.into must be {BRANCH}, not "a..b"'),
        ("tasks", "check = 5", f"tasks.check must be {CHECK}, not 5"),
        ("tasks", 'check = " "', f'tasks.check must be {CHECK}, not " "'),
        ("tasks", 'protect = "tests"', f'tasks.protect must be {PATTERNS}, not "tests"'),
        (
            "tasks",
            'protect = ["../x"]',
            f'tasks.protect must be {PATTERNS}; "../x" cannot be in it',
        ),
        ("tasks", "check_attempts = 0", f"tasks.check_attempts must be {WHOLE}, not 0"),
        ("team", "name = 5", f"team.name must be {NAME}, not 5"),
        ("team", "workspace = 5", "team.workspace must be the path of a folder, not 5"),
        ("team", 'workspace = " "', 'team.workspace must be the path of a folder, not " "'),
        ("model", 'name = ""', 'model.name must be non-empty text, not ""'),
        ("model", 'base_url = "ftp://a"', f'model.base_url must be {ADDRESS}, not "ftp://a"'),
        ("model", 'base_url = "http://a b"', f'model.base_url must be {ADDRESS}, not "http://a b"'),
        ("model", 'base_url = "http://"', f'model.base_url must be {ADDRESS}, not "http://"'),
        ("model", "key_command = true", "model.key_command must be non-empty text, not true"),
        ("model", 'effort = "most"', f'model.effort must be {EFFORT}, not "most"'),
        ("model", "effort = [1]", f"model.effort must be {EFFORT}, not a list"),
        ("model", 'max_tokens = "many"', f'model.max_tokens must be {WHOLE}, not "many"'),
        ("model", "context_tokens = 0", f"model.context_tokens must be {WHOLE}, not 0"),
        ("model", "clear_at = 0", f"model.clear_at must be {SHARE}, not 0"),
        ("model", "clear_at = true", f"model.clear_at must be {SHARE}, not true"),
        ("model", "compact_at = 1.5", f"model.compact_at must be {SHARE}, not 1.5"),
        ("model", "compact_at = nan", f"model.compact_at must be {SHARE}, not nan"),
        ("model", "max_tokens = 0", f"model.max_tokens must be {WHOLE}, not 0"),
        ("model", "max_tokens = true", f"model.max_tokens must be {WHOLE}, not true"),
        ("model", "max_tokens = 1.5", f"model.max_tokens must be {WHOLE}, not 1.5"),
        ("model", "max_tokens = [1]", f"model.max_tokens must be {WHOLE}, not a list"),
        ("model", "max_tokens = {}", f"model.max_tokens must be {WHOLE}, not a table"),
        (
            "model",
            "max_tokens = 07:00:00",
            f"model.max_tokens must be {WHOLE}, not a date or a time",
        ),
        (
            "model",
            "max_tokens = 2147483648",
            f"model.max_tokens must be {WHOLE}, not 2147483648",
        ),
        (
            "model",
            f"max_tokens = -0x{'f' * 9000}".replace("-", ""),
            f"model.max_tokens must be {WHOLE}, not a number of that size",
        ),
        ("model", "timeout_seconds = 0", f"model.timeout_seconds must be {SECONDS}, not 0"),
        ("model", "timeout_seconds = nan", f"model.timeout_seconds must be {SECONDS}, not nan"),
        ("model", "timeout_seconds = inf", f"model.timeout_seconds must be {SECONDS}, not inf"),
        ("model", "timeout_seconds = true", f"model.timeout_seconds must be {SECONDS}, not true"),
        (
            "model",
            f"timeout_seconds = 0x{'f' * 9000}",
            f"model.timeout_seconds must be {SECONDS}, not a number of that size",
        ),
        ("model", "concurrent_calls = -1", f"model.concurrent_calls must be {WHOLE}, not -1"),
        ("model", 'headers = "X"', f'model.headers must be {HEADERS}, not "X"'),
        (
            "model",
            'headers = { "a b" = "c" }',
            f'model.headers must be {HEADERS}; "a b" cannot be a header\'s name',
        ),
        (
            "model",
            r'headers = { X-A = "secret\nX-B: c" }',
            f"model.headers must be {HEADERS}; that of X-A is not",
        ),
        ("model", "headers = { X-A = 5 }", f"model.headers must be {HEADERS}; that of X-A is not"),
        ("model", "cache = 1", "model.cache must be true or false, not 1"),
        ("model", "script = 1", "model.script must be the path of a file, not 1"),
        ("limits", "calls_per_wake = 0", f"limits.calls_per_wake must be {WHOLE}, not 0"),
        ("supervision", "stop_seconds = -1", f"supervision.stop_seconds must be {SECONDS}, not -1"),
        (
            "supervision",
            "stuck_seconds = -1",
            f"supervision.stuck_seconds must be {SECONDS.replace('above', 'of at least')}, not -1",
        ),
        (
            "supervision",
            "stuck_restart = 1",
            "supervision.stuck_restart must be true or false, not 1",
        ),
        ("mail", 'durability = "no"', 'mail.durability must be "disk" or "os", not "no"'),
        ("mail", "durability = 'a\\b\"'", r'mail.durability must be "disk" or "os", not "a\\b\""'),
        ("mail", "durability = []", 'mail.durability must be "disk" or "os", not a list'),
        ("mail", "max_message_bytes = 0", f"mail.max_message_bytes must be {WHOLE}, not 0"),
        (
            "tools",
            'bash_timeout_seconds = "1"',
            f'tools.bash_timeout_seconds must be {SECONDS}, not "1"',
        ),
        ("tools", "output_bytes = 0", f"tools.output_bytes must be {WHOLE}, not 0"),
        ("tools", 'env = "PATH"', f'tools.env must be {VARIABLES}, not "PATH"'),
        (
            "tools",
            'env = ["A=B"]',
            f"tools.env must be {VARIABLES}; {NOT_SUCH}",
        ),
        ("tools", "env = [1]", f"tools.env must be {VARIABLES}; {NOT_SUCH}"),
    ],
)
def test_a_wrong_value_is_reported_with_its_key(
    section: str, line: str, sentence: str, file: Path
) -> None:
    assert mistakes(f"[{section}]\n{line}\n", file) == (sentence,)


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


def test_a_folder_in_an_unknown_home_is_a_mistake(file: Path) -> None:
    assert mistakes('[tools]\nread = ["~nosuchuser/data"]', file) == (
        "tools.read has a path with `~`, and that home is not known; write it out",
    )


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
        (
            "[mail]\nqqq = 5",
            "mail.qqq {no}; there are: durability, max_message_bytes, max_inbox_bytes",
        ),
        ('[limits]\n"a\\u001b" = 5', 'limits."a\\u001b" {no}; there are: {limits}'),
        ("limits = 5", "limits must be a table, [limits], not 5"),
        ("[[limits]]", "limits must be a table, [limits], not a list"),
        ("teammate = 5", "teammate must be tables, each under a [[teammate]]"),
        ("[teammate]", "teammate must be tables, each under a [[teammate]]"),
        ("teammate = [5]", "teammate must be tables, each under a [[teammate]]"),
    ],
)
def test_an_unknown_key_is_reported_with_the_nearest_one(
    text: str, sentence: str, file: Path
) -> None:
    whole = sentence.replace("{no}", "is not a setting").replace("{limits}", LIMITS)
    assert mistakes(text, file) == (whole,)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("teammate_tokens = -1", f"limits.teammate_tokens must be {TOKENS}, not -1"),
        ("teammate_tokens = 1.5", f"limits.teammate_tokens must be {TOKENS}, not 1.5"),
        ("team_tokens = true", f"limits.team_tokens must be {TOKENS}, not true"),
        ("teammate_usd = -0.1", f"limits.teammate_usd must be {USD}, not -0.1"),
        ("team_usd = inf", f"limits.team_usd must be {USD}, not inf"),
        ("team_usd = nan", f"limits.team_usd must be {USD}, not nan"),
        ('team_usd = "5 $"', f'limits.team_usd must be {USD}, not "5 $"'),
    ],
)
def test_an_ineffective_limit_is_refused(line: str, sentence: str, file: Path) -> None:
    """A limit of nan, for example, would never be reached."""
    assert mistakes(f"[limits]\n{line}", file) == (sentence,)


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


RULE = '[[permission]]\ntool = "bash"\nthen = "ask"\n'
ONE_COMMAND = 'must be the first words of one command, such as "git push", without signs'
OTHER_TOOL = "leave it out, or change tool"
IN_RULE = " (in [[permission]] number 1)"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("permission = 1", "permission must be tables, each under a [[permission]]"),
        (
            '[[permission]]\ntool = "bash"',
            f'permission.then is missing; it must be "allow", "ask" or "deny"{IN_RULE}',
        ),
        (
            '[[permission]]\ntool = "bash"\nthen = "never"',
            f'permission.then must be "allow", "ask" or "deny", not "never"{IN_RULE}',
        ),
        (
            '[[permission]]\ntool = "bsh"\nthen = "ask"',
            f'permission.tool "bsh" is not a tool; did you mean bash?{IN_RULE}',
        ),
        (
            f'{RULE}command = "git push; ls"',
            f"permission.command {ONE_COMMAND}{IN_RULE}",
        ),
        (
            f'{RULE}command = "git \'push"',
            f"permission.command has a quote that is not closed; close it{IN_RULE}",
        ),
        (
            f'{RULE}path = "docs/**"',
            f"permission.path is for read_file, write_file, edit_file; {OTHER_TOOL}{IN_RULE}",
        ),
        (
            '[[permission]]\ntool = "*_file"\nthen = "ask"\ncommand = "x"',
            f"permission.command is for bash and background_run; {OTHER_TOOL}{IN_RULE}",
        ),
        (
            '[[permission]]\ntool = "*"\nthen = "ask"\ncommand = "x"\npath = "y"',
            f"permission.path and command never go together; make two rules of it{IN_RULE}",
        ),
        (
            '[[permission]]\ntool = "*"\nthen = "ask"\npath = "../x"',
            f"permission.path must be relative to the workspace, and in it{IN_RULE}",
        ),
        (
            f'{RULE}teammate = ""',
            f'permission.teammate must be {kinds.TEAMMATE_PATTERN.must_be}, not ""{IN_RULE}',
        ),
        (
            f"{RULE}commnd = 1",
            f"permission.commnd is not a setting; did you mean command?{IN_RULE}",
        ),
        (
            '[tools]\napprovers = ["alice"]',
            f'tools.approvers must be {kinds.APPROVERS.must_be}; "alice" cannot be in it',
        ),
    ],
)
def test_a_mistake_in_a_rule_is_reported(text: str, sentence: str, file: Path) -> None:
    """A rule that no call can match would guard nothing, unnoticed."""
    assert mistakes(text, file) == (sentence,)


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
