"""The context of a model: the exchanges of a conversation that it sees, and their size.

The token count that a server reports bounds the next request. A reply's record holds its usage
and the frame of its request: a digest of server, model, system prompt and tools, which are not in
the record. So a process that reads the transcript knows as much about the last request as the
process that made it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from teamd.agent.conversation.prompts import GAP, INTERRUPTED_CALL, render_cleared
from teamd.models import Ask, Block, ChatMessage
from teamd.models.encoding import digest_of, size_of

THINKING: Final = frozenset({"thinking", "redacted_thinking"})
BYTES_PER_TOKEN: Final = 4  # of English text; the server's counts correct it
REFUSED: Final = "<note>The model's server refused what was here, and it was removed.</note>"
_WORTH_BYTES: Final = 100  # clearing less than that would hide more than it saves


@dataclass(slots=True)
class _Exchange:
    """One exchange: the input of the model, tool results first, and its answer.

    Attributes:
        number: the number of the reply.
        told: the input; empty if the turn continued without any.
        frame: identifies the request apart from its messages, see `frame_of`; empty if unknown.
        notes: the indexes in `told` of teamd's own notes.
    """

    number: int
    told: list[Block]
    said: list[Block]
    frame: str = ""
    notes: list[int] = field(default_factory=list)

    def messages(self, *, thinking: bool = True, system: bool = False) -> list[ChatMessage]:
        """Return the messages as the Messages API takes them.

        Args:
            thinking: whether to include the thinking blocks.
            system: whether notes have the role `system`.
        """
        said = [one for one in self.said if thinking or one["type"] not in THINKING]
        told = _tell(self.told, self.notes, system=system)
        return [*told, {"role": "assistant", "content": said}]

    def drop_thinking(self) -> list[Block]:
        """Remove the thinking blocks permanently, and return them."""
        dropped = [block for block in self.said if block["type"] in THINKING]
        self.said = [block for block in self.said if block["type"] not in THINKING]
        return dropped


@dataclass(slots=True)
class Context:
    """The messages of one conversation, as derived from its records.

    Attributes:
        calls: the tool calls of the last reply.
        bytes: the approximate size of the messages in a request.
        measured: the tokens of the last request and its reply, as the server has counted them; 0
            if it does not count.
    """

    calls: list[Block] = field(default_factory=list)
    bytes: int = 0
    measured: int = 0
    _measured_bytes: int = 0
    _measured_frame: str = ""
    _replaced_bytes: int = 0  # of texts that were put in place of measured ones
    _head: list[Block] = field(default_factory=list)
    _exchanges: list[_Exchange] = field(default_factory=list)
    _results: dict[str, Block] = field(default_factory=dict)
    _texts: list[Block] = field(default_factory=list)
    _notes: list[int] = field(default_factory=list)  # places in `_texts`

    @property
    def length(self) -> int:
        """The number of exchanges."""
        return len(self._exchanges)

    @property
    def pending(self) -> list[Block]:
        """The blocks after the last reply: results first, as the API requires."""
        return [*self._results.values(), *self._texts]

    @property
    def _pending_notes(self) -> list[int]:
        """The indexes in `pending` of teamd's own notes."""
        return [len(self._results) + place for place in self._notes]

    def measure(self, tokens: int, frame: str) -> None:
        """Record how many tokens a server counted for the present messages, in this frame."""
        self.measured = tokens
        self._measured_bytes = self.bytes
        self._measured_frame = frame if tokens else ""
        self._replaced_bytes = 0

    def estimate(self, fixed: int) -> int:
        """Estimate the tokens of the next request: the last count plus all later text.

        Args:
            fixed: bytes of its system prompt and tools, which a measured count already includes.
        """
        if not self.measured:
            return (self.bytes + fixed) // BYTES_PER_TOKEN
        return max(self.measured + (self.bytes - self._measured_bytes) // BYTES_PER_TOKEN, 0)

    def most_tokens(self, messages: list[ChatMessage], frame: str, *, system: bool) -> int | None:
        """Return the maximum number of tokens that a request with these messages can have.

        The server's last count includes everything up to the last reply. Text that came later, or
        replaced counted text, counts by its bytes, since no token is shorter than a byte. `None` if
        this frame was not counted.
        """
        if not frame or frame != self._measured_frame:
            return None
        counted = len(self._answered(frame, system=system))
        return self.measured + self._replaced_bytes + size_of(messages[counted:])

    def add_text(self, text: str, *, note: bool = False) -> None:
        """Add a text from the user, or one of teamd's own notes."""
        if note:
            self._notes.append(len(self._texts))
        self._texts.append(self._weighed({"type": "text", "text": text}))

    def add_result(self, call: str, text: str, *, is_error: bool) -> None:
        """Add the result of a call of the last reply; ignore other calls, and a second result."""
        if call in self._results or all(block["id"] != call for block in self.calls):
            return
        content = [{"type": "text", "text": text}]
        self._results[call] = self._weighed(
            {"type": "tool_result", "tool_use_id": call, "content": content, "is_error": is_error}
        )

    def add_reply(self, number: int, content: list[Block], frame: str = "") -> None:
        """Add a reply of the model.

        Args:
            number: the number of the reply; numbers increase.
            content: the blocks of the reply.
            frame: of its request, see `frame_of`.
        """
        for call in self.calls:
            # If there is no result yet: the API refuses a call without a result.
            self.add_result(call["id"], INTERRUPTED_CALL, is_error=True)
        if not self._exchanges and not self.pending:
            self.add_text(GAP)  # the API takes no conversation that the model begins
        said = [self._weighed(block) for block in content]
        self._exchanges.append(_Exchange(number, self.pending, said, frame, self._pending_notes))
        self._results, self._texts, self._notes = {}, [], []
        self.calls = [block for block in content if block["type"] == "tool_use"]

    def call_ids(self) -> set[str]:
        """Return the ids of all tool calls."""
        said = (block for exchange in self._exchanges for block in exchange.said)
        return {block["id"] for block in said if block["type"] == "tool_use"}

    def restart(self, text: str) -> None:
        """Replace everything by this text, as a message from the user."""
        self.calls, self._exchanges, self._results = [], [], {}
        self._texts, self._notes = [], []
        self.bytes = 0
        self.add_text(text)
        self._head = list(self._texts)

    def messages(self, frame: str | None = None, *, system: bool = False) -> list[ChatMessage]:
        """Return the whole conversation, as the Messages API takes it.

        Args:
            frame: of the request that the messages are for; `None` keeps all thinking.
            system: whether the model takes notes under the role `system`.
        """
        pending = _tell(self.pending, self._pending_notes, system=system)
        return [*self._answered(frame, system=system), *pending]

    def _answered(self, frame: str | None, *, system: bool) -> list[ChatMessage]:
        """Return the messages of the exchanges.

        A model signs its thinking over everything before it: system prompt, tools, and messages
        with their thinking. So only the thinking of the last replies in a row whose request had
        this very frame is sent back. Source: the API's documentation, "Preserved thinking".
        """
        bound = self._count_unbound(frame)
        return [
            message
            for at, exchange in enumerate(self._exchanges)
            for message in exchange.messages(thinking=at >= bound, system=system)
        ]

    def _count_unbound(self, frame: str | None) -> int:
        """Count the exchanges up to the last one whose thinking is not valid in this frame."""
        if frame is None:
            return 0
        others = (at for at in range(self.length, 0, -1) if self._exchanges[at - 1].frame != frame)
        return next(others, 0)

    def messages_with(
        self,
        text: str,
        *,
        skipped: int,
        texts: bool,
        frame: str | None = None,
        system: bool = False,
    ) -> list[ChatMessage]:
        """Return the conversation, or only its newer part, with a demand at its end.

        Args:
            text: the demand.
            skipped: how many of the oldest exchanges to leave out; the head above them stays. The
                rest comes without thinking, which is bound to the omitted part.
            texts: whether to show the texts since the last reply, besides results.
            frame: see `messages`.
            system: see `messages`.
        """
        demand = {"type": "text", "text": text}
        kept = self._exchanges[skipped:]
        told = [*self._results.values(), *(self._texts if texts else ()), demand]
        if not skipped:
            return [*self._answered(frame, system=system), {"role": "user", "content": told}]
        above = [*self._head, {"type": "text", "text": GAP}]
        if not kept:
            return _messages([], [*above, *_texts_of(told)])
        first = _Exchange(kept[0].number, [*above, *_texts_of(kept[0].told)], kept[0].said)
        return _messages([first, *kept[1:]], told, thinking=False)

    def find_clearable(self, *, kept: int) -> tuple[int, int]:
        """Return the last reply whose results would be cleared, and the bytes that this would save.

        Args:
            kept: how many of the last exchanges keep their results.
        """
        through = self._exchanges[-1 - kept].number if len(self._exchanges) > kept else 0
        return through, sum(saved for *_, saved in self._clearings(through))

    def clear(self, through: int) -> None:
        """Replace every long result of the replies up to this number by a short text.

        Thinking after the first replaced result is bound to its old text, and is removed as well.
        """
        first = None
        for at, block, text, saved in list(self._clearings(through)):
            first = at if first is None else first
            block["content"] = [{"type": "text", "text": text}]
            self.bytes -= saved
            self._replaced_bytes += _size(text)
        for exchange in self._exchanges[self.length if first is None else first :]:
            self.bytes -= sum(map(size_of, exchange.drop_thinking()))

    def locate(self, index: int, *, system: bool) -> tuple[int, str]:
        """Return the reply that a message of `messages` belongs to, and the message's role.

        The reply's number is 0 for input since the last reply.
        """
        for exchange in self._exchanges:
            messages = exchange.messages(system=system)
            if index < len(messages):
                return exchange.number, messages[index]["role"]
            index -= len(messages)
        return 0, "user"

    def repair(self, number: int, role: str, block: int | None, *, thinking: bool) -> None:
        """Replace the part that a server has refused by a short text.

        Later thinking is bound to that part, and is removed. A reply is replaced whole, and the
        results of its calls become texts.

        Args:
            number: of the reply, see `locate`.
            role: of the message.
            block: its index in the message; `None` for all of them.
            thinking: whether only thinking was refused.
        """
        numbers = [exchange.number for exchange in self._exchanges]
        at = numbers.index(number) if number in numbers else self.length
        for exchange in self._exchanges[at:]:
            exchange.drop_thinking()
        if not thinking and role == "assistant" and at < self.length:
            self._replace_reply(at)
        elif not thinking:
            told = self._exchanges[at].told if at < self.length else self.pending
            for place, one in enumerate(told):
                if block in (None, place):
                    _replace_block(one)
        self._measured_frame = ""  # the short text may be longer than the replaced one
        self.bytes = sum(map(size_of, self.pending))
        for exchange in self._exchanges:
            self.bytes += sum(map(size_of, [*exchange.told, *exchange.said]))

    def _replace_reply(self, at: int) -> None:
        self._exchanges[at].said = [{"type": "text", "text": REFUSED}]
        if at + 1 < self.length:
            following = self._exchanges[at + 1]
            following.told = [_as_text(block) for block in following.told]
        else:
            self._notes = self._pending_notes
            self._texts = [_as_text(block) for block in self.pending]
            self._results, self.calls = {}, []

    def _clearings(self, through: int) -> Iterator[tuple[int, Block, str, int]]:
        """Yield each result that is worth clearing, its replacement, and the saved bytes.

        The first value is the index of the exchange that holds the result.
        """
        groups = [*(one.told for one in self._exchanges[1:]), list(self._results.values())]
        for at, (exchange, told) in enumerate(zip(self._exchanges, groups, strict=False), start=1):
            if exchange.number > through:
                return
            names = {call["id"]: call["name"] for call in exchange.said if "name" in call}
            for block in told:
                if block["type"] == "tool_result":
                    old = block["content"][0]["text"]
                    text = render_cleared(names[block["tool_use_id"]], _size(old))
                    saved = _size(old) - _size(text)
                    if saved >= _WORTH_BYTES:
                        yield at, block, text, saved

    def _weighed(self, block: Block) -> Block:
        self.bytes += size_of(block)
        return block


def frame_of(ask: Ask, server: str) -> str:
    """Return a digest of a request without its messages, and of the server that counts it."""
    role = ("system",) if ask.system_notes else ()
    return digest_of(server, ask.model, ask.system, *role, tools=ask.tools)[:32]


def _tell(told: list[Block], notes: list[int], *, system: bool) -> list[ChatMessage]:
    """Return the messages before a reply.

    The API accepts a system message only after a user message. Source: its documentation,
    "Mid-conversation system messages".
    """
    users = [block for place, block in enumerate(told) if place not in notes]
    if system and notes and users:
        own = [told[place] for place in notes]
        return [{"role": "user", "content": users}, {"role": "system", "content": own}]
    return [{"role": "user", "content": told}] if told else []


def _messages(
    exchanges: list[_Exchange], told: list[Block], *, thinking: bool = True
) -> list[ChatMessage]:
    messages = [one for exchange in exchanges for one in exchange.messages(thinking=thinking)]
    return [*messages, {"role": "user", "content": told}] if told else messages


def _replace_block(block: Block) -> None:
    key = "content" if block["type"] == "tool_result" else "text"
    block[key] = REFUSED if key == "text" else [{"type": "text", "text": REFUSED}]


def _as_text(block: Block) -> Block:
    """Return, as a text, the result of a call that is no longer in the context."""
    return block["content"][0] if block["type"] == "tool_result" else block


def _texts_of(told: list[Block]) -> list[Block]:
    return [block for block in told if block["type"] == "text"]


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))
