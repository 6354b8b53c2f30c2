"""Fetches a teammate's commit into the person's repository and adds it to the merge queue."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import Final

from teamd.board.task import Task
from teamd.copies import copy_status, record
from teamd.copies.clone import DISCARDED, now_in_refs
from teamd.copies.forbidden import CommitGate
from teamd.copies.merge import check_work
from teamd.copies.move_branch import ref_of
from teamd.copies.record import Copy
from teamd.copies.sandboxed_git import open_sandboxed_git
from teamd.copies.source import Source, source_of
from teamd.errors import StoreError, TeamError
from teamd.files import locks
from teamd.files.paths import TeamPaths
from teamd.merges.queue import Entry, Queue
from teamd.settings.schema import Settings

_REFS: Final = "refs/teamd/queue"
_LONGEST_TITLE: Final = 100


def add(queue: Queue, name: str, settings: Settings) -> Entry:
    """Add the committed work of a teammate to the queue.

    Raises:
        TeamError: there is nothing to merge, or the settings name no check.
    """
    _check_has_check(settings, f", then `teamctl queue add {name}`")
    paths = queue.board.paths
    with locks.locked(record.lock_file(paths, name)):
        copy = record.get(paths, name)
        source = source_of(copy)
        into = source.find(ref_of(settings.merge.into))
        with open_sandboxed_git(paths, copy.folder, copy.origin) as git:
            state = copy_status.read_state(git, copy)
            check_work(copy, state)
            copy_status.fetch_commit(git, source, state.tip, [*filter(None, (copy.base, into))])
        if not copy_status.count_new(source, copy, state.tip, within=into or "HEAD"):
            raise TeamError(f"{name} has no commits that are not in {settings.merge.into}")
        gate = CommitGate(paths, settings, source)
        gate.check(copy.name, state.tip, into or copy.base, copy.base)
        gate.check_history(copy.name, state.tip, into or copy.base, copy.base)
        return _put(queue, source, Entry(id="", teammate=name, commit=state.tip))


def join(queue: Queue, settings: Settings, task: Task, commit: str) -> Entry | None:
    """Add checked work to the queue; `None` if it is merged already or not in a working copy.

    The entry is added before the task is completed, and waits for that. The same claim twice makes
    one entry.

    Args:
        queue: the queue of the team.
        settings: those in force.
        task: the task that the commit completes, as it was claimed for the check.
        commit: the checked commit; empty if the check ran in the shared folder.

    Raises:
        TeamError: the commit is refused, or the settings name no check.
    """
    _check_has_check(settings)
    paths = queue.board.paths
    with locks.locked(record.lock_file(paths, task.owner)):
        copy = record.find(paths, task.owner)
        if copy is None or not commit:
            return None
        source = source_of(copy)
        into = source.find(ref_of(settings.merge.into))
        known = [*filter(None, (copy.base, into))]
        with open_sandboxed_git(paths, copy.folder, copy.origin) as git:
            if any(source.holds(commit, within=one) for one in known):
                return None
            copy_status.fetch_commit(git, source, commit, known)
        gate = CommitGate(paths, settings, source)
        gate.check(copy.name, commit, into or copy.base, copy.base)
        gate.check_history(copy.name, commit, into or copy.base, copy.base)
        entry = Entry(
            id="",
            teammate=copy.name,
            task=task.id,
            commit=commit,
            title=task.subject,
            key=task.claim,
        )
        return _put(queue, source, entry)


def _check_has_check(settings: Settings, then: str = "") -> None:
    if not (settings.merge.check or settings.tasks.check):
        raise TeamError(
            "the queue has no check, and merges nothing without one; set [merge] check in "
            f"team.toml to a command such as 'pytest -q'{then}"
        )


def remove(queue: Queue, entry_id: str, source: Source) -> Entry:
    """Remove an entry from the queue, even while it is being checked.

    Raises:
        TeamError: it does not exist, or is finished.
    """
    entry = queue.remove(entry_id)
    forget(queue.board.paths, source, entry.id)
    return entry


def forget(paths: TeamPaths, source: Source, entry_id: str) -> None:
    """Remove the ref that keeps the commit of an entry."""
    source.remove_ref(_ref(paths, source, entry_id))


def sweep(queue: Queue, source: Source) -> bool:
    """Remove the refs of entries that are finished or were never added.

    Returns:
        Whether all were removed; the lock of a killed git may prevent it for a while.
    """
    paths = queue.board.paths
    listed = source.run("for-each-ref", "--format=%(refname)", _REFS)
    swept = [listed.status == 0]

    def remove(ref: str) -> None:
        swept.append(source.remove_ref(ref))

    for ref in os.fsdecode(listed.stdout).splitlines():
        entry_id = ref.removeprefix(f"{_REFS}/").partition("+")[0].partition("@")[0]
        if ref == _ref(paths, source, entry_id):
            queue.unless_open(entry_id, partial(remove, ref))
    return all(swept)


def _put(queue: Queue, source: Source, entry: Entry) -> Entry:
    """Add an entry whose commit is in the person's repository."""
    paths = queue.board.paths
    title = entry.title or source.ask("log", "-1", "--format=%s", entry.commit)
    words = "".join(one if one.isprintable() else " " for one in title)
    named = replace(entry, title=" ".join(words.split())[:_LONGEST_TITLE])
    return queue.add(named, lambda made: source.move_ref(_ref(paths, source, made), entry.commit))


def _ref(paths: TeamPaths, source: Source, entry_id: str) -> str:
    return source.own_ref(_REFS, record.address_of(paths, entry_id))


def withdraw(queue: Queue, copy: Copy, source: Source, kept: str) -> list[Entry]:
    """Remove all entries of a teammate that are not merged.

    Args:
        queue: of the team.
        copy: the teammate's, which was reset.
        source: the person's repository.
        kept: the ref that keeps the former work in the copy; other commits get a ref of their own.

    Returns:
        The removed entries.
    """
    taken = []
    for entry in queue.read().open:
        if entry.teammate != copy.name:
            continue
        if not (kept.startswith(DISCARDED) and source.holds(entry.commit, within=kept)):
            source.move_ref(f"{copy.discarded}/{now_in_refs()}-{entry.id}", entry.commit)
        try:
            taken.append(remove(queue, entry.id, source))
        except StoreError:
            raise
        except TeamError:  # merged or removed meanwhile
            continue
    return taken
