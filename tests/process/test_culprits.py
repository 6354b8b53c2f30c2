"""A good message survives any number of kills of its reader; one that crashes readers does not."""

from __future__ import annotations

import json

import pytest

from teamd.mail.mailbox import Mailbox
from tests.e2e.harness import Project
from tests.waiting import wait_until

BRAVE = "[supervision]\ncrashes = 1000\nwithin_seconds = 0.1\n"  # unlimited immediate restarts
# Loaded by every Python process of the project. It simulates a mistake in our code or its
# dependencies, which one message triggers when it is put into the conversation.
MINE = """
import fcntl, json, os, sys
def look(event, arguments):
    if event != "fcntl.flock" or not arguments[1] & fcntl.LOCK_EX:
        return
    path = os.readlink(f"/proc/self/fd/{arguments[0]}")
    if not path.endswith("transcripts/jo.jsonl"):
        return
    try:
        with open(path.replace("transcripts/jo", "inbox/jo.taken"), "rb") as file:
            opening = file.readline()
            if not opening:
                return  # nothing is in hand
            header = json.loads(opening)
            at = int(header["at"])
            file.seek(at)
            lines = file.readlines()
        if "inbox" in header:  # they are in there still
            with open(path.replace("transcripts", "inbox"), "rb") as file:
                lines = file.read()[at : int(header["inbox"].partition(":")[0])].splitlines()
    except FileNotFoundError:
        return
    if at < int(header["singly"]):
        lines = lines[:1]
    if any(b"raise" in line for line in lines):
        raise RuntimeError("a mistake")
    if any(b"abort" in line for line in lines):
        os.abort()
sys.addaudithook(look)
"""


def put(project: Project, *contents: str) -> None:
    """Send mail to jo in one write, as any program may."""
    lines = (json.dumps({"id": content, "from": "ci", "content": content}) for content in contents)
    words = "\n".join(lines) + "\n"
    argv = ("flock", str(project.paths.inbox("jo")), "-c", f"cat >> {project.paths.inbox('jo')}")
    project.do(*argv, stdin=words)


def delivered(project: Project) -> list[str]:
    """Return the messages in jo's conversation after the prompt."""
    records = project.records("jo", "mail")
    found = [message["content"] for record in records for message in record["messages"]]
    return found[1:]


@pytest.mark.slow
def test_only_the_message_that_crashes_its_reader_is_rejected(project: Project) -> None:
    """It would stop its receiver for ever; it takes two crashes and two more to find it."""
    (project.root / "bin").mkdir()
    (project.root / "bin" / "sitecustomize.py").write_text(MINE, encoding="utf-8")
    project.environment["PYTHONPATH"] = str(project.root / "bin")
    project.ask_no_service(BRAVE)
    project.start()
    project.do("teamctl", "spawn", "jo", "clerk", "Go.", "--wait")
    for culprit, ending in (("raise", "exit code 1"), ("abort", "SIGABRT")):
        put(project, f"one {ending}", f"please {culprit}", f"three {ending}")
        wait_until(lambda: len(delivered(project)) % 2 == 0 and delivered(project), what="the good")
        wait_until(lambda: not Mailbox(project.paths, "jo").waiting(), what="all is seen to")
        assert delivered(project)[-2:] == [f"one {ending}", f"three {ending}"]
        rejected = project.paths.rejected("jo").read_text(encoding="utf-8").splitlines()
        assert json.loads(rejected[-1])["content"] == f"please {culprit}"
    assert len(rejected) == 2
    reasons = [entry["reason"] for entry in project.log("jo", "line rejected")]
    assert reasons == ["2 processes crashed with this message in hand"] * 2
    assert len(project.log("teamd", "crashed with mail in hand")) == 8
    assert "2 lines of mail to jo could not be read" in project.do("teamctl", "team")
