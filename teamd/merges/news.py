"""What a teammate is told of its work that was not merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from teamd.copies.work import name_files
from teamd.merges.entry import Entry
from teamd.messages import TEAMD, Message

_SHORT: Final = 12
_MOST_LISTED: Final = 10


def tracking(branch: str) -> str:
    """Return the name by which a copy knows the tip of a branch."""
    return f"origin/{branch}"


def conflict(entry: Entry, into: str, files: Sequence[str]) -> Message:
    """Return the mail about a conflict."""
    why = f"it conflicts with what is there in: {', '.join(map(repr, files))}"
    return _about(entry, into, why, "resolve the conflicts")


def failed(
    entry: Entry, into: str, ended: str, output: str, *, others: Sequence[str] = ()
) -> Message:
    """Return the mail about a check that failed.

    Args:
        entry: as it was checked.
        into: the branch.
        ended: how the check ended, in a sentence.
        output: the end of what it wrote.
        others: what was merged since the teammate's work began.
    """
    why = f"merged with what is there it does not pass the check: {ended}"
    said = f"The end of its output:\n\n{output}" if output else "It wrote nothing."
    if others:
        listed = "\n".join(f"- {one}" for one in others[:_MOST_LISTED])
        said = f"Merged there since your work began, newest first:\n{listed}\n\n{said}"
    return _about(entry, into, why, "mend it", said)


def refused(entry: Entry, into: str, why: str) -> Message:
    """Return the mail about work that git does not take."""
    return _about(entry, into, why, "mend it")


def in_short(files: Sequence[str]) -> str:
    """Name some files for a table."""
    return name_files(files)


def describe_left_out(entry: Entry, files: Sequence[str]) -> str:
    """Say what was not merged since it is protected; nothing for nothing."""
    if not files:
        return ""
    return f"left out, as protected: {name_files(files)}; `teamctl merge {entry.teammate}` takes it"


def _about(entry: Entry, into: str, why: str, deed: str, more: str = "") -> Message:
    tip = tracking(into)
    what = f"task {entry.task}" if entry.task else f"your work {entry.title!r}"
    then = f"set task {entry.task} to completed again; it is in progress until then"
    if not entry.task:
        then = f"tell lead, who queues it with `teamctl queue add {entry.teammate}`"
    text = (
        f"The commit {entry.commit[:_SHORT]} for {what} was not merged into {into}: {why}. "
        f"The tip of {into} is in your copy as {tip}: `git merge {tip}`, {deed}, commit, and "
        f"{then}."
    )
    summary = f"queue {entry.id}: not merged into {into}"
    extra = {"summary": summary, "task_id": entry.task, "queue_id": entry.id}
    content = "\n\n".join(filter(None, (text, more)))
    return Message(
        sender=TEAMD,
        to=entry.teammate,
        content=content.replace("\0", "\ufffd"),
        extra={key: value for key, value in extra.items() if value},
    )
