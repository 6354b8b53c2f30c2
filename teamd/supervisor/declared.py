"""Those whom `team.toml` declares: each spawned once, however often a start is tried."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from teamd.store import files

if TYPE_CHECKING:
    from teamd.store.paths import TeamPaths
    from teamd.supervisor.commands import Newcomer


def prompt_id(paths: TeamPaths, declared: Newcomer) -> str:
    """The id of a declared teammate's prompt: the same for as long as it could be the same prompt.

    A supervisor may die after it has sent the prompt and before the roster says so. The next one
    sends it again, and under the same id that is one message. Somebody who has worked since, and
    was taken out of the roster by hand, has a longer conversation: it is spawned again, and what
    it is told then is new.

    Raises:
        StoreError: the conversation cannot be looked at.
    """
    spoken = files.size(paths.transcript(declared.name))
    facts = [paths.own_name, declared.name, declared.prompt, spoken]
    return f"declared-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]}"
