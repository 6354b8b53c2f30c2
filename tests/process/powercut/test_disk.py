"""The simulated disk after a power cut has only contents that a real disk may have."""

from __future__ import annotations

from tests.process.powercut.disk import MODELS, Disk

INBOX = "inbox"
OLD, NEW = b"the old line\n", b"the new line.\n"


def test_truncated_data_is_not_mixed_with_data_written_afterwards() -> None:
    """An empty write in between, as it creates missing files, changes nothing."""
    disk = Disk({INBOX: OLD})
    records = [("ftruncate", 7, 0), ("pwrite", 7, 0, b""), ("pwrite", 7, 0, NEW)]
    for call, *facts in records:
        disk.apply((1, call, INBOX, *facts))
    left = {model: disk.after(model)[INBOX] for model in MODELS}
    assert left["nothing"] == OLD
    assert left["all"] == NEW
    assert left["half"] == NEW[: len(NEW) // 2]
    assert left["zeros"] == bytes(len(NEW))
