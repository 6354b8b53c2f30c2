"""Holds the tables of a settings file against the declarations, and collects what is wrong."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teamd.settings.keys import keys_of, required_of
from teamd.settings.kinds import Wrong
from teamd.settings.schema import (
    NOT_BUILT,
    PRICES,
    SECTIONS,
    TEAMMATE,
    Price,
    Settings,
    Teammate,
)
from teamd.settings.words import bare, nearest, quoted, shown

if TYPE_CHECKING:
    from collections.abc import Collection


class Checking:
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
        known = (*SECTIONS, PRICES, TEAMMATE)
        self.mistakes += [_unknown(key, known) for key in document if key not in known]
        sections = {
            name: shape(**self._section(name, shape, document.get(name, {})))
            for name, shape in SECTIONS.items()
        }
        return Settings(
            **sections,
            prices=self._prices(document.get(PRICES, {})),
            teammates=self._teammates(document.get(TEAMMATE, [])),
        )

    def _section(self, name: str, shape: type[Any], table: object) -> dict[str, Any]:
        if not isinstance(table, dict):
            self.mistakes.append(f"{name} must be a table, [{name}], not {shown(table)}")
            return {}
        # A path is checked and made absolute by default as well: the workspace must be there.
        paths = {field.name: field.default for field in fields(shape)}
        paths = {
            key: str(self._default_folder / default)
            for key, default in paths.items()
            if isinstance(default, Path)
        }
        return self._values(name, shape, paths | table)

    def _prices(self, tables: object) -> dict[str, Price]:
        if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
            self.mistakes.append(f'{PRICES} must be tables, each under a [{PRICES}."model-name"]')
            return {}
        prices: dict[str, Price] = {}
        for model, table in tables.items():
            if inner := next((key for key in table if isinstance(table[key], dict)), None):
                meant = quoted(f"{model}.{inner}")
                self.mistakes.append(
                    f"{PRICES}.{bare(model)} must hold figures; a name with a dot stands in "
                    f"quotes, as [{PRICES}.{meant}]"
                )
                continue
            values = self._values(PRICES, Price, table, f" (in [{PRICES}.{quoted(model)}])")
            if values.keys() >= set(required_of(Price)):
                prices[model] = Price(**values)
        return prices

    def _teammates(self, tables: object) -> tuple[Teammate, ...]:
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self.mistakes.append(f"{TEAMMATE} must be tables, each under a [[{TEAMMATE}]]")
            return ()
        team: list[Teammate] = []
        names: set[str] = set()
        for number, table in enumerate(tables, start=1):
            where = f" (in [[{TEAMMATE}]] number {number})"
            values = self._values(TEAMMATE, Teammate, table, where)
            self._refuse_twins(values.get("name"), names, where)
            if values.keys() >= set(required_of(Teammate)):
                team.append(Teammate(**values))
        return tuple(team)

    def _refuse_twins(self, name: str | None, names: set[str], where: str) -> None:
        if name is None:
            return
        if name.lower() in names:
            self.mistakes.append(
                f"{TEAMMATE}.name must be unlike every other, whatever the case; "
                f"{quoted(name)} is taken{where}"
            )
        names.add(name.lower())

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
            for key in required_of(shape)
            if key not in table
        ]
        return values


def _unknown(key: str, known: Collection[str], section: str = "") -> str:
    """The sentence about a key that cannot stand in this section, or at the top."""
    dotted = f"{section}.{bare(key)}" if section else bare(key)
    if dotted in NOT_BUILT:
        return f"{dotted} is not built yet; leave it out"
    others = [f"{name}.{key}" for name, shape in SECTIONS.items() if key in keys_of(shape)]
    meant = " or ".join(others) or nearest(key, known)
    hint = f"did you mean {meant}?" if meant else f"there are: {', '.join(known)}"
    return f"{dotted} is not a setting; {hint}"
