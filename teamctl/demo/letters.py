"""What two teammates have written to each other, by their conversations."""

from __future__ import annotations

from collections.abc import Iterable

from teamd.transcript.records import CallAnswered, Record, Replied, mail_in


def letters_to(address: str, records: Iterable[Record]) -> list[str]:
    """Return what somebody has sent to an address, as far as the tool took it, in order."""
    records = list(records)
    answers = [one for one in records if isinstance(one, CallAnswered)]
    taken = {one.tool_use_id for one in answers if not one.is_error}
    calls = [call for one in records if isinstance(one, Replied) for call in one.calls]
    return [
        call["input"]["content"]
        for call in calls
        if call["id"] in taken and call["input"].get("to") == address
    ]


def letters_from(address: str, records: Iterable[Record]) -> list[str]:
    """Return what of an address's mail stands in a conversation, in order."""
    found = (mail for one in records for mail in mail_in(one))
    return [mail.content for mail in found if mail.sender == address]
