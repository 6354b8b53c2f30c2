"""Which columns of a table a terminal has room for, and how wide they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Cell: TypeAlias = tuple[str, str]  # a text that may come from elsewhere, and its style for rich

GAP: Final = 2
_GOOD: Final = 24  # characters say something


@dataclass(frozen=True, slots=True)
class Shape:
    """How a table gives way to a narrow terminal.

    Attributes:
        elastic: columns that are cut with an ellipsis, and down to how many characters; the first
            of them gives way first.
        spare: columns that are left out, the first of them first, for those to be of a good width.
        dispensable: columns that are left out after them, so that the rest has room at all.
    """

    elastic: Mapping[str, int] = field(default_factory=dict)
    spare: tuple[str, ...] = ()
    dispensable: tuple[str, ...] = ()

    def fit(self, widths: Mapping[str, int], room: int, empty: Collection[str]) -> dict[str, int]:
        """Return the columns that there is room for, and their widths.

        Args:
            widths: those that all columns would have.
            room: of the terminal.
            empty: columns that say nothing, which go before any other.
        """
        kept = dict(widths)
        first = [one for one in self.spare if one in empty]
        for heading in dict.fromkeys([*first, *self.spare, *self.dispensable]):
            good = _GOOD if heading in self.spare else 0
            if sum(self._least(one, wide, good) + GAP for one, wide in kept.items()) <= room:
                continue
            kept.pop(heading, None)
        excess = sum(wide + GAP for wide in kept.values()) - room
        for heading in self.elastic:
            if heading in kept and excess > 0:
                wide = kept[heading]
                kept[heading] = max(self._least(heading, wide), wide - excess)
                excess -= wide - kept[heading]
        return kept

    def _least(self, heading: str, wide: int, good: int = 0) -> int:
        return min(wide, max(good, self.elastic.get(heading, wide)))
