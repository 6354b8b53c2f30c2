"""The name under which this folder spoke to the other hosts: under another, it is another host."""

from __future__ import annotations

from teamd.files import directories, files
from teamd.files.paths import TeamPaths
from teamd.hosts.outbox import Outbox
from teamd.hosts.places import HostPlaces


def take_name(paths: TeamPaths, name: str, *, durable: bool) -> dict[str, str]:
    """Note what this host is called; where that is another name than before, begin all links anew.

    What the others have confirmed and sent, they did to the host of the former name. A kill in the
    middle loses nothing: the next call goes on.

    Returns:
        What is to be told, by the host that it is about.

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
