"""Mistakes in `[hosts]`, and the requests that other hosts may make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from teamd.errors import SettingsError
from teamd.settings import Settings, changes, parse
from teamd.settings.schema import ToolOverrides

SERVERS = 'a list of addresses, such as ["tls://10.0.0.1:4222"] or ["tls://[fd00::1]:4222"]'
ALLOW = 'a table of lists of hosts, such as { spawn = ["h1"] }'
RULE = '[[permission]]\ntool = "{tool}"\nthen = "deny"\n'


def mistake(text: str, folder: Path) -> str:
    with pytest.raises(SettingsError) as caught:
        parse(text.encode(), path=folder / "team.toml")
    (sentence,) = caught.value.mistakes
    return sentence


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('servers = "tls://h1:4222"', f'servers must be {SERVERS}, not "tls://h1:4222"'),
        ("servers = [5]", f"servers must be {SERVERS}; 5 cannot be in it"),
        ('allow = ["h1"]', f"allow must be {ALLOW}, not a list"),
        (
            'allow = { start = ["h1"] }',
            f"allow must be {ALLOW}; start is not one of: spawn, shutdown, interrupt",
        ),
        ('allow = { spawn = "h1" }', f"allow must be {ALLOW}; spawn is not a list of host names"),
        ('allow = { spawn = ["*"] }', f"allow must be {ALLOW}; spawn is not a list of host names"),
    ],
)
def test_a_mistake_in_hosts_is_reported(line: str, sentence: str, tmp_path: Path) -> None:
    assert mistake(f"[hosts]\n{line}\n", tmp_path) == f"hosts.{sentence}"


def test_a_host_may_make_only_the_requests_it_is_allowed(tmp_path: Path) -> None:
    text = b'[hosts.allow]\nspawn = ["H1", "h2"]\ninterrupt = []\n'
    hosts = parse(text, path=tmp_path / "team.toml").hosts
    asked = ("spawn", "shutdown", "interrupt")
    allowed = {(host, what) for host in ("h1", "H2", "h3") for what in asked
               if hosts.allows(host, what)}  # fmt: skip
    assert allowed == {("h1", "spawn"), ("H2", "spawn")}


@pytest.mark.parametrize(
    ("tool", "line", "sentence"),
    [
        (
            "bash",
            "command = 5",
            'command must be the first words of a command, such as "git push", not 5',
        ),
        ("write_file", "path = 5", 'path must be a pattern of paths, such as "docs/**", not 5'),
    ],
)
def test_a_rule_whose_command_or_path_is_not_a_string_is_reported(
    tool: str, line: str, sentence: str, tmp_path: Path
) -> None:
    found = mistake(RULE.format(tool=tool) + line, tmp_path)
    assert found == f"permission.{sentence} (in [[permission]] number 1)"


def test_an_added_removed_or_changed_role_is_reported() -> None:
    old = Settings(
        roles={"coder": ToolOverrides(), "tester": ToolOverrides(), "same": ToolOverrides()}
    )
    coder = replace(ToolOverrides(), hosts=("a.org",))
    new = Settings(roles={"coder": coder, "same": ToolOverrides(), "writer": ToolOverrides()})
    assert changes(old, new) == ["role.coder.hosts", "role.tester", "role.writer"]
