"""The saved run: a help topic with all tables, and the picture of it that README shows."""

from __future__ import annotations

import platform
import re
import textwrap
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tests.bench import picture

_REPOSITORY: Final = Path(__file__).parents[2]
TOPIC: Final = _REPOSITORY / "teamctl" / "topics" / "benchmarks.md"
PICTURE: Final = Path(__file__).with_name("benchmarks.svg")

_OPENING: Final = """\
# Benchmarks: what teamd adds to the model's own time, memory and price

Measured on {date} with teamd {teamd}, anthropic {anthropic} and Python {python}, on {system}. A
machine is busier in one minute than in the next, so the cases of a table took turns: compare
figures of one table only. A limit, or what a row says is wanted, is what every version is to keep.
Peers that were not installed are left out.

How long a command takes on your machine:

```sh
time teamctl team
```

In a clone of the repository, `python -m tests.bench` measures all of this anew, and
`python -m tests.bench --short` only tries in a minute that nothing is lost.
"""
SECTIONS: Final[Mapping[str, str]] = {
    "mail": "How many messages a second are sent, each with an id and a time of its own. What is "
    "durable is on the disk when the call returns. Redis Streams and SQLite do the same work; a "
    "bare file loses what its reader has in hand, and has no lock where one durable writer is "
    "alone. Where nothing is to be taken, a reader waits for a change, as ours does; one that "
    "polls asks again at once. An SQLite writer that finds the database locked sleeps for up to a "
    "tenth of a second, which is much of a burst and little of a flood.",
    "wake": "From mail in the inbox of an idle teammate until its model is asked. The bare case "
    "waits with inotify, syncs a record of the mail and one of the cost, and asks with the same "
    "bytes; mail without an id has a marker put behind it first, with one sync more. What the SDK "
    "takes grows with the conversation, what teamd adds does not: a short one and a long one.",
    "turn": "From one model call of a teammate to its next, with a trivial tool in between. The "
    "other rows are what it is held against: the call alone, a sandbox with the same mounts that a "
    "teammate's has, and one sync.",
    "steps": "Where the time of these goes, one step behind the other, and why each is needed. To "
    "note each step's end takes a few microseconds more.",
    "spawn": "From the request for a teammate until its first model call is on the wire. The "
    "supervisor was idle before.",
    "memory": "What a teammate takes of the memory. Pages that processes share count in parts.",
    "resume": "How long it takes to read a conversation again, by the length of its transcript.",
    "growth": "What a team costs at several sizes. A broadcast wakes everybody.",
    "fairness": "Many teammates at a service that refuses with 429 what is too much at once.",
    "commands": "Commands as a shell starts them, beside `python -c pass` and other programs.",
    "roster": "From a teammate's report until readers of `config.json` see it. The peers lock "
    "the file and change it themselves.",
    "tokens": "Which share of the input tokens of a task is paid in full, and not read from the "
    "prompt cache.",
    "merges": "From a ready supervisor with a full merge queue until the last entry is merged, and "
    "the same commits merged, checked and pushed by hand, without a sandbox.",
}


def write(outputs: Mapping[str, str]) -> None:
    """Save what the benches have printed, by their names."""
    page = compose(outputs)
    TOPIC.write_text(page, encoding="utf-8")
    PICTURE.write_text(picture.draw(page), encoding="utf-8")


def compose(outputs: Mapping[str, str]) -> str:
    """Return the page."""
    opening = _OPENING.format(
        date=time.strftime("%Y-%m-%d"),
        teamd=version("teamd"),
        anthropic=version("anthropic"),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release().partition('-')[0]}",
    )
    parts = [
        f"## {name.capitalize()}\n\n{_filled(SECTIONS[name])}\n\n{output.strip()}\n"
        for name, output in outputs.items()
    ]
    page = "\n".join([opening, *parts]).replace("\n### ", "\n\n### ")
    return re.sub(r"\n{3,}", "\n\n", page)


def _filled(sentence: str) -> str:
    return textwrap.fill(sentence, 100)
