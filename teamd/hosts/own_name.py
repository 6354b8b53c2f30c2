"""The name under which this folder last connected: with another name it is another host."""

from __future__ import annotations

from teamd.files import directories, files
from teamd.files.paths import TeamPaths
from teamd.hosts.outbox import Outbox
from teamd.hosts.places import HostPlaces


def take_name(paths: TeamPaths, name: str, *, durable: bool) -> dict[str, str]:
    """Record this host's name; if it has changed, reset the links to all other hosts.

    The confirmations and positions of the links belong to the former name. After a kill in between,
    the next call continues without loss.

    Returns:
        Reports for the person, by the host that they concern.

    Raises:
        StoreError: a file could not be read or written.
    """
    places = HostPlaces(paths)
    noted = (files.read(places.name) or b"").decode("utf-8", "replace").strip()
    if noted == name:
        return {}
    told = {}
    if noted:
        for path in directories.list_files(places.outboxes, "*.jsonl"):
            if count := Outbox(paths, path.stem, durable).begin_without_past():
                told[path.stem] = (
                    f"this host was called {noted}; what waited for it ({count}) is sent by {name} "
                    "now, once more where it had arrived and was not confirmed"
                )
        for folder in (places.received("").parent, places.confirmed("").parent):
            for path in directories.list_files(folder, "*.json"):
                files.remove(path)
    files.replace(places.name, f"{name}\n".encode(), durable=durable)
    return told
