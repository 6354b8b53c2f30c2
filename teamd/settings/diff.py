"""What differs between two settings, for `teamd reload`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamd.settings.keys import keys_of
from teamd.settings.schema import PRICES, SECTIONS, TEAMMATE, Teammate

if TYPE_CHECKING:
    from teamd.settings.schema import Settings


def changes(old: Settings, new: Settings) -> list[str]:
    """The dotted keys that differ, in the order of `team.toml`.

    A teammate that came or went is `teammate.alice`; one that changed, `teammate.alice.prompt`.
    The order of teammates is no difference.
    """
    different = [
        f"{section}.{key}"
        for section, shape in SECTIONS.items()
        for key in keys_of(shape)
        if getattr(getattr(old, section), key) != getattr(getattr(new, section), key)
    ]
    different += [
        f"{PRICES}.{model}"
        for model in {**old.prices, **new.prices}
        if old.prices.get(model) != new.prices.get(model)
    ]
    before = {teammate.name: teammate for teammate in old.teammates}
    after = {teammate.name: teammate for teammate in new.teammates}
    for name in before | after:
        different += _of_teammate(name, before.get(name), after.get(name))
    return different


def _of_teammate(name: str, old: Teammate | None, new: Teammate | None) -> list[str]:
    if old is None or new is None:
        return [f"{TEAMMATE}.{name}"]
    return [
        f"{TEAMMATE}.{name}.{key}"
        for key in keys_of(Teammate)
        if getattr(old, key) != getattr(new, key)
    ]
