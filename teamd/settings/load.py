"""Parses the bytes of `team.toml` into `Settings`; every value is checked."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import MISSING, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from teamd.errors import SettingsError
from teamd.settings.kinds import (
    SHOWN_CHARACTERS,
    Wrong,
    bare,
    keys_of,
    quoted,
    sends_plaintext,
    shown,
)
from teamd.settings.known_tools import TOOLS, list_guarded
from teamd.settings.schema import (
    HOSTS,
    PERMISSION,
    PRICES,
    ROLE,
    SECTIONS,
    TEAMMATE,
    HostSettings,
    Permission,
    PriceSettings,
    Settings,
    Teammate,
    ToolOverrides,
)

MAX_FILE_BYTES: Final = 1_048_576


def parse(data: bytes, *, path: Path, default_folder: Path | None = None) -> Settings:
    """Return the settings in these bytes; paths in them are relative to the folder of `path`.

    Args:
        data: the content of the file.
        path: the path of the file, for error messages.
        default_folder: the base of paths that are not set, if it is not the folder of `path`.

    Raises:
        SettingsError: it lists every mistake.
    """
    validation = Validation(path.parent, default_folder or path.parent)
    settings = validation.settings(document_of(data, path))
    if validation.mistakes:
        raise SettingsError(path, validation.mistakes)
    return settings


def parse_leniently(data: bytes, *, path: Path, default_folder: Path | None = None) -> Settings:
    """Return the settings in these bytes, with the default in place of each mistake.

    Raises:
        SettingsError: the bytes are not TOML.
    """
    validation = Validation(path.parent, default_folder or path.parent)
    return validation.settings(document_of(data, path))


def sections_in(data: bytes, path: Path) -> set[str]:
    """Return the names of the sections and tables in these bytes."""
    return set(document_of(data, path))


def read_file(path: Path) -> bytes | None:
    """Return the file's bytes, at most one more than `parse` accepts; `None` without a file.

    Raises:
        SettingsError: the file cannot be read, is not regular or belongs to another user.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            _refuse_strange(os.fstat(file.fileno()), path)
            return file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        if not path.is_symlink():
            return None
        why = f"it is a link to {path.readlink()}, which does not exist; repair or remove the link"
        raise SettingsError(path, [why]) from error
    except IsADirectoryError as error:
        if not any(path.iterdir()):  # the placeholder of a sandbox, in place of a missing file
            return None
        raise SettingsError(path, ["it is a folder; name a file of settings"]) from error
    except OSError as error:
        raise SettingsError(path, [f"it cannot be read: {error.strerror}"]) from error


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # opening a pipe of that name could wait forever


def _refuse_strange(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise SettingsError(path, ["it is not a regular file; name a file of settings"])
    if status.st_uid != os.geteuid():
        why = f"it belongs to another user (uid {status.st_uid}); copy it to a file of your own"
        raise SettingsError(path, [why])


def document_of(data: bytes, path: Path) -> dict[str, Any]:
    """Return the TOML in these bytes, unchecked.

    Raises:
        SettingsError: the bytes are not TOML.
    """
    if not data:
        return {}
    import tomllib  # noqa: PLC0415 -- not needed by short commands in a team without a file

    if len(data) > MAX_FILE_BYTES:
        raise SettingsError(path, [f"it is larger than {MAX_FILE_BYTES} bytes; shorten it"])
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(path, [f"it is not UTF-8 (at line {line}); save it as such"]) from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(path, [f"it is not TOML: {error}"]) from error
    except ValueError as error:  # Python refuses to convert a number of thousands of digits
        raise SettingsError(path, ["a number in it has too many digits; shorten it"]) from error
    except RecursionError as error:
        raise SettingsError(path, ["its lists or tables are nested too deeply"]) from error


class Validation:
    """Checks one document.

    Attributes:
        mistakes: one sentence for each, starting with the key.
    """

    def __init__(self, folder: Path, default_folder: Path) -> None:
        self.mistakes: list[str] = []
        self._folder = folder
        self._default_folder = default_folder

    def settings(self, document: dict[str, Any]) -> Settings:
        """Return the settings of the document, with the default in place of each mistake."""
        known = (*SECTIONS, PRICES, ROLE, TEAMMATE, PERMISSION)
        self.mistakes += [_unknown(key, known) for key in document if key not in known]
        sections = {name: self._section(name, document.get(name, {})) for name in SECTIONS}
        sections[HOSTS] = self._without_plaintext(sections[HOSTS])
        return Settings(
            **sections,
            prices=self._prices(document.get(PRICES, {})),
            roles=self._roles(document.get(ROLE, {})),
            teammates=tuple(self._teammates(document.get(TEAMMATE, []))),
            permissions=tuple(self._permissions(document.get(PERMISSION, []))),
            given=_given(document),
        )

    def _section(self, name: str, table: object) -> Any:
        shape = SECTIONS[name]
        if not isinstance(table, dict):
            self.mistakes.append(f"{name} must be a table, [{name}], not {shown(table)}")
            return shape()
        # A default path is checked and made absolute, too: the workspace must exist.
        defaults = {one.name: one.default for one in fields(shape)}
        given = {key: path for key, path in defaults.items() if isinstance(path, Path)}
        paths = {key: str(self._default_folder / path) for key, path in given.items()}
        return shape(**self._values(name, shape, paths | table))

    def _without_plaintext(self, hosts: HostSettings) -> HostSettings:
        """Return `[hosts]` without servers if one would get mail in plain text unasked."""
        unsafe = [] if hosts.plaintext else list(filter(sends_plaintext, hosts.servers))
        if not unsafe:
            return hosts
        self.mistakes.append(
            f"{HOSTS}.servers has {quoted(unsafe[0])}, to which mail would go unencrypted; write "
            f"tls://, or set {HOSTS}.plaintext = true"
        )
        return replace(hosts, servers=())

    def _prices(self, tables: object) -> dict[str, PriceSettings]:
        prices = {}
        for model, table in self._named(PRICES, tables, f'[{PRICES}."model-name"]'):
            if inner := next((key for key in table if isinstance(table[key], dict)), None):
                meant = f"[{PRICES}.{quoted(f'{model}.{inner}')}]"
                hint = f"put a name with a dot in quotes, as {meant}"
                self.mistakes.append(f"{PRICES}.{bare(model)} must hold figures; {hint}")
                continue
            where = f" (in [{PRICES}.{quoted(model)}])"
            if (row := self._row(PRICES, PriceSettings, table, where)) is not None:
                prices[model] = row
        return prices

    def _roles(self, tables: object) -> dict[str, ToolOverrides]:
        return {
            name: ToolOverrides(
                **self._values(ROLE, ToolOverrides, table, f" (in [{ROLE}.{bare(name)}])")
            )
            for name, table in self._named(ROLE, tables, f"[{ROLE}.NAME]")
        }

    def _teammates(self, tables: object) -> Iterator[Teammate]:
        names: set[str] = set()
        for table, where in self._listed(TEAMMATE, tables):
            row = self._row(TEAMMATE, Teammate, table, where)
            if row is None:
                continue
            if row.name.lower() in names:
                why = f"{TEAMMATE}.name must be unlike every other, whatever the case"
                self.mistakes.append(f"{why}; {quoted(row.name)} is taken{where}")
            names.add(row.name.lower())
            yield row

    def _permissions(self, tables: object) -> Iterator[Permission]:
        for table, where in self._listed(PERMISSION, tables):
            rule = self._row(PERMISSION, Permission, table, where)
            if rule is None:
                continue
            if (why := _never_matches(rule)) is not None:
                self.mistakes.append(f"{PERMISSION}.{why}{where}")
            yield rule

    def _named(self, name: str, tables: object, heading: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the tables under headings such as `[role.NAME]`, with their names."""
        if isinstance(tables, dict) and all(isinstance(one, dict) for one in tables.values()):
            return list(tables.items())
        self.mistakes.append(f"{name} must be tables, each under a {heading}")
        return []

    def _listed(self, name: str, tables: object) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield the tables under `[[name]]`, each with its number for the sentences about it."""
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self.mistakes.append(f"{name} must be tables, each under a [[{name}]]")
            return
        for number, table in enumerate(tables, start=1):
            yield table, f" (in [[{name}]] number {number})"

    def _row(self, section: str, shape: type[Any], table: dict[str, Any], where: str) -> Any:
        """Return a table as `shape`; `None` if a required value is missing or wrong."""
        values = self._values(section, shape, table, where)
        return shape(**values) if values.keys() >= set(_required_of(shape)) else None

    def _values(
        self, section: str, shape: type[Any], table: dict[str, Any], where: str = ""
    ) -> dict[str, Any]:
        """Return the valid values; `where` ends the sentences about the others."""
        declared = keys_of(shape)
        values: dict[str, Any] = {}
        for key, value in table.items():
            if key not in declared:
                self.mistakes.append(_unknown(key, declared, section) + where)
                continue
            try:
                values[key] = declared[key].kind.read(value, self._folder)
            except Wrong as wrong:
                self.mistakes.append(f"{section}.{key} {wrong}{where}")
        self.mistakes += [
            f"{section}.{key} is missing; it must be {declared[key].kind.must_be}{where}"
            for key in _required_of(shape)
            if key not in table
        ]
        return values


def _given(document: dict[str, Any]) -> frozenset[str]:
    """Return the dotted keys of all sections in a document."""
    tables = ((name, document.get(name)) for name in SECTIONS)
    return frozenset(
        f"{name}.{key}" for name, table in tables if isinstance(table, dict) for key in table
    )


def _never_matches(rule: Permission) -> str | None:
    """Return a sentence, starting with the key, if no call can match a rule; else `None`."""
    if not _any_of(TOOLS, rule.tool):
        near = _nearest(rule.tool, TOOLS)
        hint = f"did you mean {near}?" if near else f"there are: {', '.join(TOOLS)}"
        return f"tool {quoted(rule.tool)} is not a tool; {hint}"
    commands, paths = list_guarded("command"), list_guarded("path")
    if rule.command is not None and not _any_of(commands, rule.tool):
        return f"command is for {' and '.join(commands)}; leave it out, or change tool"
    if rule.path is not None and not _any_of(paths, rule.tool):
        return f"path is for {', '.join(paths)}; leave it out, or change tool"
    if rule.path is not None and rule.command is not None:
        return "path and command never go together; make two rules of it"
    return None


def _any_of(tools: Collection[str], pattern: str) -> bool:
    return any(fnmatchcase(tool, pattern) for tool in tools)


def _unknown(key: str, known: Collection[str], section: str = "") -> str:
    """Return the sentence about an unknown key of this section, or of the document."""
    dotted = f"{section}.{bare(key)}" if section else bare(key)
    others = [f"{name}.{key}" for name, shape in SECTIONS.items() if key in keys_of(shape)]
    meant = " or ".join(others) or _nearest(key, known)
    hint = f"did you mean {meant}?" if meant else f"there are: {', '.join(known)}"
    return f"{dotted} is not a setting; {hint}"


def _required_of(section: type[Any]) -> tuple[str, ...]:
    """Return the settings of one section that have no default."""
    return tuple(f.name for f in fields(section) if f.default is f.default_factory is MISSING)


def _nearest(key: str, known: Collection[str]) -> str | None:
    """Return the known key that was probably meant."""
    import difflib  # noqa: PLC0415 -- only for a mistake

    return next(iter(difflib.get_close_matches(key[:SHOWN_CHARACTERS], known, n=1)), None)
