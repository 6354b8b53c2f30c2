"""Sends mail until killed: `python sender.py TEAM LABEL ACKNOWLEDGED PAUSE HOST NAME…`.

Each content is unique, and written to the file ACKNOWLEDGED after it was sent. PAUSE is in seconds,
on average. HOST is the name of this host, empty if there is no other.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

from teamd.files.paths import TeamPaths
from teamd.hosts.far import FarHosts
from teamd.mail.routing import MailRouter
from teamd.messages import MAX_MESSAGE_BYTES, Message

FRESH_EVERY = 25  # start a new conversation this often, before it grows too large


def send(  # noqa: PLR0917 -- they stand so on its command line
    paths: TeamPaths, label: str, acknowledged: Path, pause: float, host: str, names: list[str]
) -> None:
    chance = random.Random(label)
    others = frozenset(name.rpartition("@")[2] for name in names if "@" in name)
    far = FarHosts(paths, host, named=others) if host else None
    post = MailRouter(paths, durable=True, max_bytes=MAX_MESSAGE_BYTES, hosts=far)
    file = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    number = 0
    while True:
        number += 1
        to = chance.choice(names)
        content = f"{label}-{number}"
        extra = {"prompt": True, "fresh": True} if chance.randrange(FRESH_EVERY) == 0 else {}
        post.send(Message(sender="lead", to=to, content=content, extra=extra))
        os.write(file, f"{to} {content}\n".encode())
        time.sleep(chance.expovariate(1 / pause))


if __name__ == "__main__":
    _, team, label, acknowledged, pause, host, *names = sys.argv
    send(TeamPaths(Path(team)), label, Path(acknowledged), float(pause), host, names)
