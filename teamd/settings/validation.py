"""From a document of TOML to `Settings`: every value is checked, every mistake is a sentence."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import MISSING, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from teamd.settings.kinds import SHOWN_CHARACTERS, Wrong, bare, keys_of, quoted, shown
from teamd.settings.schema import (
    PERMISSION,
    PRICES,
    ROLE,
    SECTIONS,
    TEAMMATE,
    Permission,
    PriceSettings,
    Settings,
    Teammate,
)
from teamd.settings.tool_limits import Reach

# The tools that rules may be about; those that run commands, and those that take a path.
TOOLS: Final = (
    "bash", "background_run", "check_background", "stop_background", "read_file", "write_file",
    "edit_file", "send_message", "read_inbox", "broadcast", "task_create", "task_get",
    "task_update", "task_list", "claim_task", "submit_plan", "shutdown_response", "load_skill",
    "task", "spawn_teammate", "list_teammates", "shutdown_request", "review_plan",
    "review_permission", "interrupt_teammate", "pause_teammate", "resume_teammate", "create_team",
    "delete_team",
)  # fmt: skip
COMMAND_TOOLS: Final = ("bash", "background_run")
PATH_TOOLS: Final = ("read_file", "write_file", "edit_file")


class Validation:
    """One pass over one document.

    Attributes:
        mistakes: a sentence each, with the key in front.
    """

    def __init__(self, folder: Path, default_folder: Path) -> None:
        self.mistakes: list[str] = []
        self._folder = folder
        self._default_folder = default_folder

    def settings(self, document: dict[str, Any]) -> Settings:
        """Return what the document says; of use only if there are no mistakes."""
        known = (*SECTIONS, PRICES, ROLE, TEAMMATE, PERMISSION)
        self.mistakes += [_unknown(key, known) for key in document if key not in known]
        sections = {
            name: shape(**self._section(name, shape, document.get(name, {})))
            for name, shape in SECTIONS.items()
        }
        prices = self._prices(document.get(PRICES, {}))
        roles = self._roles(document.get(ROLE, {}))
        teammates = self._teammates(document.get(TEAMMATE, []))
        permissions = self._permissions(document.get(PERMISSION, []))
        return Settings(
            **sections,
            prices=prices,
            roles=roles,
            teammates=teammates,
            permissions=permissions,
            given=_given(document),
        )

    def _section(self, name: str, shape: type[Any], table: object) -> dict[str, Any]:
        if not isinstance(table, dict):
            self.mistakes.append(f"{name} must be a table, [{name}], not {shown(table)}")
            return {}
        # A path is checked and made absolute by default as well: the workspace must be there.
        defaults = {one.name: one.default for one in fields(shape)}
        given = {key: path for key, path in defaults.items() if isinstance(path, Path)}
        paths = {key: str(self._default_folder / path) for key, path in given.items()}
        return self._values(name, shape, paths | table)

    def _prices(self, tables: object) -> dict[str, PriceSettings]:
        if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
            self.mistakes.append(f'{PRICES} must be tables, each under a [{PRICES}."model-name"]')
            return {}
        prices: dict[str, PriceSettings] = {}
        for model, table in tables.items():
            if inner := next((key for key in table if isinstance(table[key], dict)), None):
                meant = f"[{PRICES}.{quoted(f'{model}.{inner}')}]"
                hint = f"a name with a dot stands in quotes, as {meant}"
                self.mistakes.append(f"{PRICES}.{bare(model)} must hold figures; {hint}")
                continue
            values = self._values(PRICES, PriceSettings, table, f" (in [{PRICES}.{quoted(model)}])")
            if values.keys() >= set(_required_of(PriceSettings)):
                prices[model] = PriceSettings(**values)
        return prices

    def _roles(self, tables: object) -> dict[str, Reach]:
        if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
            self.mistakes.append(f"{ROLE} must be tables, each under a [{ROLE}.NAME]")
            return {}
        where = " (in [{}.{}])".format
        return {
            name: Reach(**self._values(ROLE, Reach, table, where(ROLE, bare(name))))
            for name, table in tables.items()
        }

    def _permissions(self, tables: object) -> tuple[Permission, ...]:
        rules: list[Permission] = []
        for number, table in enumerate(self._tables(PERMISSION, tables), start=1):
            where = f" (in [[{PERMISSION}]] number {number})"
            values = self._values(PERMISSION, Permission, table, where)
            if not values.keys() >= set(_required_of(Permission)):
                continue
            rule = Permission(**values)
            if (why := _never_matches(rule)) is not None:
                self.mistakes.append(f"{PERMISSION}.{why}{where}")
            rules.append(rule)
        return tuple(rules)

    def _tables(self, name: str, tables: object) -> list[dict[str, Any]]:
        """The tables `[[name]]`, of which there may be any number."""
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self.mistakes.append(f"{name} must be tables, each under a [[{name}]]")
            return []
        return tables

    def _teammates(self, tables: object) -> tuple[Teammate, ...]:
        team: list[Teammate] = []
        names: set[str] = set()
        for number, table in enumerate(self._tables(TEAMMATE, tables), start=1):
            where = f" (in [[{TEAMMATE}]] number {number})"
            values = self._values(TEAMMATE, Teammate, table, where)
            name = values.get("name", "").lower()
            if name in names:
                why = f"{TEAMMATE}.name must be unlike every other, whatever the case"
                self.mistakes.append(f"{why}; {quoted(values['name'])} is taken{where}")
            elif name:
                names.add(name)
            if values.keys() >= set(_required_of(Teammate)):
                team.append(Teammate(**values))
        return tuple(team)

    def _values(
        self, section: str, shape: type[Any], table: dict[str, Any], where: str = ""
    ) -> dict[str, Any]:
        """The values that can stand; `where` follows the sentences about those that cannot."""
        declared = keys_of(shape)
        values: dict[str, Any] = {}
        for key, value in table.items():
            if key not in declared:
                self.mistakes.append(_unknown(key, declared, section) + where)
                continue
            kind = declared[key].kind
            try:
                values[key] = kind.read(value, self._folder)
            except Wrong as wrong:
                why = str(wrong) or f"must be {kind.words}, not {shown(value)}"
                self.mistakes.append(f"{section}.{key} {why}{where}")
        self.mistakes += [
            f"{section}.{key} is missing; it must be {declared[key].kind.words}{where}"
            for key in _required_of(shape)
            if key not in table
        ]
        return values


def _given(document: dict[str, Any]) -> frozenset[str]:
    """The dotted keys of all sections that stand in a document."""
    tables = ((name, document.get(name)) for name in SECTIONS)
    return frozenset(
        f"{name}.{key}" for name, table in tables if isinstance(table, dict) for key in table
    )


def _never_matches(rule: Permission) -> str | None:
    """The sentence about a rule that no call can match; a guard that is ignored is worse than none.

    The key it is about stands in front.
    """
    if not _any_of(TOOLS, rule.tool):
        near = _nearest(rule.tool, TOOLS)
        hint = f"did you mean {near}?" if near else f"there are: {', '.join(TOOLS)}"
        return f"tool {quoted(rule.tool)} is no tool; {hint}"
    if rule.command is not None and not _any_of(COMMAND_TOOLS, rule.tool):
        return f"command is for {' and '.join(COMMAND_TOOLS)}; leave it out, or change tool"
    if rule.path is not None and not _any_of(PATH_TOOLS, rule.tool):
        return f"path is for {', '.join(PATH_TOOLS)}; leave it out, or change tool"
    if rule.path is not None and rule.command is not None:
        return "path and command never go together; make two rules of it"
    return None


def _any_of(tools: Collection[str], pattern: str) -> bool:
    return any(fnmatchcase(tool, pattern) for tool in tools)


def _unknown(key: str, known: Collection[str], section: str = "") -> str:
    """The sentence about a key that cannot stand in this section, or at the top."""
    dotted = f"{section}.{bare(key)}" if section else bare(key)
    others = [f"{name}.{key}" for name, shape in SECTIONS.items() if key in keys_of(shape)]
    meant = " or ".join(others) or _nearest(key, known)
    hint = f"did you mean {meant}?" if meant else f"there are: {', '.join(known)}"
    return f"{dotted} is not a setting; {hint}"


def _required_of(section: type[Any]) -> tuple[str, ...]:
    """The settings of one section that have no default."""
    return tuple(f.name for f in fields(section) if f.default is f.default_factory is MISSING)


def _nearest(key: str, known: Iterable[str]) -> str | None:
    """The known key that was probably meant."""
    import difflib  # noqa: PLC0415 -- 3 ms that only a mistake pays

    return next(iter(difflib.get_close_matches(key[:SHOWN_CHARACTERS], known, n=1)), None)
