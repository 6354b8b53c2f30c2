"""Lines of transcripts, as tests spell them out."""

from __future__ import annotations

import json
from typing import Any

from teamd.transcript.file import decode
from teamd.transcript.records import Record


def as_record(fields: dict[str, Any]) -> Record:
    """Return the record that a line with these fields holds."""
    record = decode(json.dumps(fields).encode())
    assert record is not None
    return record
