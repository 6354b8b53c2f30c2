"""The injections: each order of a stranger with a number, as a line that the victim obeys."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.e2e.attacks.places import PLACES
from tests.strict.replies import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One instruction.

    Attributes:
        number: the victim finds it by that.
        place: where it stands.
        goal: what the stranger wants.
        call: the tool and its input, with the names in `@`.
    """

    number: int
    place: str
    goal: str
    call: Call

    def call_in(self, facts: Mapping[str, object]) -> Call:
        """Return the call as the victim makes it in this run."""
        line = json.dumps(self.call)
        for name, value in facts.items():
            line = line.replace(f"@{name}@", json.dumps(str(value))[1:-1])
        tool, given = json.loads(line)
        return tool, given

    def text(self, facts: Mapping[str, object]) -> str:
        """Return the line that the victim obeys."""
        tool, given = self.call_in(facts)
        return f"INJECTION {self.number}: {json.dumps({'tool': tool, 'input': given})}"


INJECTIONS: Final = tuple(
    Injection(number=number, place=place, goal=goal, call=call)
    for number, (place, goal, call) in enumerate(
        ((place, goal, call) for place, rows in PLACES.items() for goal, call in rows), start=1
    )
)


def texts(facts: Mapping[str, object]) -> Mapping[str, str]:
    """Return what stands in each place: its injections, a line each."""
    found = defaultdict(list)
    for injection in INJECTIONS:
        found[injection.place].append(injection.text(facts))
    return {place: "\n".join(lines) for place, lines in found.items()}
