"""How a teammate stands by its conversation: at which task, at rest or not, asked to leave or not.

All of it follows from the records, so it is the same after a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from teamd.protocol import PLAN_ANSWER_TYPE, SHUTDOWN_TYPE

if TYPE_CHECKING:
    from teamd.store.transcript import Record

PAUSED: Final = "paused"
LIMIT: Final = "limit"


class Standing:
    """What the records so far come to.

    Attributes:
        task: names the task at hand; another one has another name.
        resting: whether no reply has come since the last turn ended, or ever.
        paused: whether that turn did not end but waits for a person.
        news: the mail since then, as the transcript holds it.
        requests: the ids of all shutdown requests it has read; whether they are real, the store
            tells.
        closed: those of them of which the model was told that they are done with.
        finished: the ids of answered plans after whose answer a turn has ended.
    """

    def __init__(self) -> None:
        self._length = 0
        self._begin("")

    def apply(self, record: Record) -> None:
        """Take one more record into account."""
        self._length += 1
        apply = getattr(self, f"_apply_{record.get('record')}", None)
        if apply is not None:
            apply(record)

    def _begin(self, nonce: str) -> None:
        self._nonce = nonce
        self.resting = True
        self.paused = False
        self.news: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.closed: set[str] = set()
        self.finished: set[str] = set()
        self._answered: set[str] = set()
        self._begin_task()

    def _begin_task(self) -> None:
        self.task = f"{self._nonce}-{self._length}"

    def _apply_opened(self, record: Record) -> None:
        self._begin(record.get("nonce", ""))

    def _apply_task(self, record: Record) -> None:  # noqa: ARG002 -- that there is one says all
        self._begin_task()

    def _apply_mail(self, record: Record) -> None:
        self.news += record["messages"]
        for message in record["messages"]:
            asked = message.get("request_id")
            if not isinstance(asked, str):
                continue
            if message.get("type") == SHUTDOWN_TYPE and asked not in self.requests:
                self.requests.append(asked)
            if message.get("type") == PLAN_ANSWER_TYPE:
                self._answered.add(asked)
        if record.get("new_task"):
            self._begin_task()

    def _apply_note(self, record: Record) -> None:
        self.closed.update(record.get("closes", ()))

    def _apply_reply(self, record: Record) -> None:  # noqa: ARG002 -- that there is one says all
        self.resting = self.paused = False
        self.news = []

    def _apply_ended(self, record: Record) -> None:
        self.resting = True
        self.paused = record["outcome"] == PAUSED
        self.news = []
        if record["outcome"] not in (PAUSED, LIMIT):  # neither of these is an end of the work
            self.finished |= self._answered
