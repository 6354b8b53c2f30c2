"""Writes `team.toml`: the commented example, another teammate, or keys of a section."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Final

import tomli_w

from teamd.errors import SettingsError
from teamd.settings.kinds import keys_of, quoted, shown
from teamd.settings.load import document_of, parse
from teamd.settings.schema import SECTIONS, PriceSettings, Settings, Teammate, ToolOverrides


def with_keys(old: bytes, section: str, keys: Mapping[str, Any], *, path: Path) -> bytes:
    """Return the file's bytes with these keys in a section; comments stay.

    Args:
        old: the content of the file; empty for a new one.
        section: the name of a table.
        keys: TOML values; keys that the file already has with this value stay as they are.
        path: the path of the file, for messages; it is not opened.

    Raises:
        SettingsError: the file is invalid, has another value for a key, or would become invalid.
    """
    import tomlkit  # noqa: PLC0415 -- only for this

    parse(old, path=path)
    document = tomlkit.parse(old.decode("utf-8-sig"))
    table = document.setdefault(section, tomlkit.table())
    if differing := [key for key in keys if table.get(key, keys[key]) != keys[key]]:
        what = ", ".join(f"{section}.{key}" for key in differing)
        raise SettingsError(path, [f"{what} already has another value; change it by hand"])
    missing = {key: value for key, value in keys.items() if key not in table}
    if not missing:
        return old
    table.update(missing)
    new = _in_form_of(old, tomlkit.dumps(document))
    wanted = document_of(old, path)
    wanted[section] = {**wanted.get(section, {}), **missing}
    if document_of(new, path) != wanted:  # whatever tomlkit does with strange tables
        lines = tomlkit.dumps(missing).strip().replace("\n", "; ")
        why = f"writing [{section}] would change other settings; add by hand: {lines}"
        raise SettingsError(path, [why])
    parse(new, path=path)
    return new


def _in_form_of(old: bytes, text: str) -> bytes:
    """Return a text with the byte order mark of the old bytes, and CR LF if all lines had it."""
    windows = 0 < old.count(b"\n") == old.count(b"\r\n")
    new = re.sub(r"(?<!\r)\n", "\r\n", text) if windows else text
    return (BOM_UTF8 if old.startswith(BOM_UTF8) else b"") + new.encode()


HEAD: Final = """\
# The settings of a team of teammates. Nothing here must be set. A line `# key = value` shows the
# default, or after `e.g.` an example: take its `# ` away and change the value. `teamd reload` reads
# this file again, and says what waits for a restart or for `teamctl trust`.
"""

PRICES: Final = """\
# What models cost, where that is not known or not so; only limits on money need it.

# [prices."my-model"]
"""

EXAMPLE: Final = PriceSettings(
    input=3.0, output=15.0, cache_read=0.3, cache_write=3.75, cache_write_hour=6.0
)

RULES: Final = """\
# Rules about tool calls: the first that matches wins, and what no rule matches is allowed.
# `teamctl help permissions` explains them.

# [[permission]]
# tool = "bash"         # or a pattern, such as "*_file"
# command = "git push"  # what a command begins with; or of a file tool path = "docs/**"
# teammate = "*"        # a name, or a pattern
# then = "ask"          # you; or "deny", or "allow"
"""

TEAMMATES: Final = """\
# Who is spawned at start. They write to each other by name, and to you as lead;
# `teamctl spawn --save` adds one at the end of this file.

# [[teammate]]
"""

ROLES: Final = """\
# What a role may reach, where it is not what [tools] says. A [[teammate]] takes these keys, too.

# [role.tester]
"""

TESTER: Final = ToolOverrides(
    sandbox="auto",
    network=False,
    hosts=("docs.example.org",),
    read=(Path("~/datasets"),),
    protect=("deploy",),
    env=("PATH", "LANG"),
)

ALICE: Final = Teammate(
    name="alice", role="coder", prompt="Write a test for parse.py, then mail bob."
)

BOB: Final = '''\

# [[teammate]]
# name = "bob"
# role = "reviewer"
# prompt = """
# Wait for mail. When alice has written something, read it with care, run its tests,
# and mail her what should be better."""
'''


def init_text() -> str:
    """Return the commented example that `teamctl init` writes."""
    defaults = Settings()
    sections = [
        f"[{name}]\n{_commented(shape, getattr(defaults, name))}"
        for name, shape in SECTIONS.items()
    ]
    sections.append(PRICES + _commented(PriceSettings, EXAMPLE))
    sections += [ROLES + _commented(ToolOverrides, TESTER), RULES]
    return "\n".join(
        [
            HEAD,
            *sections,
            TEAMMATES
            + _commented(Teammate, replace(ALICE, worktree=False), but=ToolOverrides)
            + BOB,
        ]
    )


def with_teammate(old: bytes, teammate: Teammate, *, path: Path) -> bytes:
    """Return the file's bytes with another `[[teammate]]` at the end.

    Args:
        old: the content of the file; empty for a new one.
        teammate: the teammate to add.
        path: the path of the file, for messages and its folder; it is not opened.

    Raises:
        SettingsError: the file is invalid, or would be with this teammate.
    """
    known = parse(old, path=path).teammates
    if teammate.name.lower() in {other.name.lower() for other in known}:
        raise SettingsError(path, [f"there is already a teammate {quoted(teammate.name)} in it"])
    new = old + _appendix(old, teammate, path)
    try:
        parse(new, path=path)
    except SettingsError as error:
        if isinstance(error.__cause__, ValueError):  # each part is TOML, but not both together
            why = "its teammates are in `teammate = […]`; write each under a [[teammate]]"
            raise SettingsError(path, [why]) from error
        raise
    return new


def _appendix(old: bytes, teammate: Teammate, path: Path) -> bytes:
    """Return the new table, with the line endings of the old bytes."""
    default = {one.name: one.default for one in fields(teammate)}
    given = {key: value for key, value in asdict(teammate).items() if value != default[key]}
    # In a multi-line string TOML may read \r\n as \n, so a text with \r\n is put on one line.
    over_lines = not any("\r\n" in str(value) for value in given.values())
    text = "[[teammate]]\n" + tomli_w.dumps(given, multiline_strings=over_lines)
    if old:
        text = ("\n" if old.endswith(b"\n") else "\n\n") + text
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:  # half a surrogate pair, from an argument that is not UTF-8
        raise SettingsError(path, ["a teammate's text must be UTF-8; correct it"]) from error
    return encoded.replace(b"\n", b"\r\n") if b"\r\n" in old else encoded


def _commented(shape: type[Any], values: object, *, but: type[Any] | None = None) -> str:
    """Return a commented line for each setting, with aligned explanations."""
    lines = {}
    shown_already = keys_of(but) if but else {}
    for name, key in keys_of(shape).items():
        if name in shown_already:
            continue
        value = getattr(values, name)
        line = f"# {name} = {_literal(key.example if value is None else value)}"
        lines[line] = f"e.g.; {key.about}" if value is None else key.about
    width = max(map(len, lines))
    return "".join(f"{line:<{width}}  # {about}\n" for line, about in lines.items())


def _literal(value: object) -> str:
    """Return a default as TOML spells it."""
    match value:
        case bool() | int():
            return shown(value)
        case float():
            return f"{value:g}"
        case tuple():
            return f"[{', '.join(map(_literal, value))}]"
        case Mapping():
            return f"{{{', '.join(f'{name} = {_literal(line)}' for name, line in value.items())}}}"
    return quoted(str(value))
