"""Lines of transcripts, as tests spell them out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from teamd.transcript.file import decode

if TYPE_CHECKING:
    from teamd.transcript.records import Record


def as_record(fields: dict[str, Any]) -> Record:
    """Return the record that a line with these fields holds."""
    record = decode(json.dumps(fields).encode())
    assert record is not None
    return record
