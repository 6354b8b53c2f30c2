"""The sections and tables of `team.toml` by their names, and how the settings in two differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from teamd.settings.keys import keys_of
from teamd.settings.schema import Settings

_DEFAULTS: Final = Settings()
SECTIONS: Final[Mapping[str, type[Any]]] = {
    one.name: type(getattr(_DEFAULTS, one.name))
    for one in fields(Settings)
    if is_dataclass(getattr(_DEFAULTS, one.name))
}
HOSTS: Final = "hosts"  # a section, which is of one team alone
TEAMMATE: Final = "teammate"  # the tables `[[teammate]]`
ROLE: Final = "role"  # the tables `[role.NAME]`
PERMISSION: Final = "permission"  # the tables `[[permission]]`
PRICES: Final = "prices"  # the tables `[prices."model-name"]`
TABLES: Final = {
    "teammates": TEAMMATE,
    "roles": ROLE,
    "prices": PRICES,
    "permissions": PERMISSION,
}  # by the field that holds them


def changes(old: Settings, new: Settings) -> list[str]:
    """The dotted keys that differ, in the order of `team.toml`.

    A teammate that came or went is `teammate.alice`; one that changed, `teammate.alice.prompt`.
    The order of teammates is no difference; that of permissions is, and they are one key.
    """
    different = []
    for section in SECTIONS:
        different += _between(section, getattr(old, section), getattr(new, section))
    models = {**old.prices, **new.prices}
    changed = (model for model in models if old.prices.get(model) != new.prices.get(model))
    different += [f"{PRICES}.{model}" for model in changed]
    roles = {**old.roles, **new.roles}
    for name in roles:
        different += _between(f"{ROLE}.{name}", old.roles.get(name), new.roles.get(name))
    before = {teammate.name: teammate for teammate in old.teammates}
    after = {teammate.name: teammate for teammate in new.teammates}
    for name in before | after:
        different += _between(f"{TEAMMATE}.{name}", before.get(name), after.get(name))
    return different + [PERMISSION] * (old.permissions != new.permissions)


def _between(place: str, old: Any, new: Any) -> list[str]:
    if old is None or new is None:
        return [place]
    keys = keys_of(type(old))
    return [f"{place}.{key}" for key in keys if getattr(old, key) != getattr(new, key)]
