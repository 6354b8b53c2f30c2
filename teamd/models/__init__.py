"""The models that answer: requests, replies, errors, the base of providers, the retry policy."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, Self

from teamd.masking import Mask
from teamd.model_server import Usage
from teamd.model_server.facts import UNKNOWN, ModelFacts

LONG_WAIT_SECONDS: Final = 60.0  # where a server asks for more, the teammate is paused
CONTEXT_FULL: Final = "model_context_window_exceeded"
CUT_OFF_REASONS: Final = frozenset({"max_tokens", CONTEXT_FULL})  # the last block may be half

Block = dict[str, Any]
ChatMessage = dict[str, Any]  # a message of the Messages API


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request.

    Attributes:
        model: any name that the server knows.
        system: the system prompt, the same through a conversation.
        tools: the `tools` of the Messages API, the same list through a conversation.
        messages: the conversation as the Messages API takes it.
        max_tokens: the most tokens that the reply may have.
        heard: called with the text of the reply, piece by piece; the pieces are not yet a
            reply.
        thought: called with the text of its thinking in the same way.
        begun: called once the reply begins: by then the server has cached the request.
        aside: whether the reply is not shown, such as a summary.
        effort: the level of effort; sent if the model has it.
        facts: the server's facts about the model: they decide which options a request has.
        asker: the teammate whose conversation it is; empty for a subagent's.
        system_notes: whether `messages` may have the role `system`.
        frame: identifies the request apart from its messages, see `frame_of`.
        most_input_tokens: the most tokens that it can have, if known from an earlier count.
    """

    model: str
    system: str
    tools: list[dict[str, Any]]
    messages: list[ChatMessage]
    max_tokens: int
    heard: Callable[[str], None] | None = None
    thought: Callable[[str], None] | None = None
    begun: Callable[[], None] = lambda: None
    aside: bool = False
    effort: str = ""
    facts: ModelFacts = UNKNOWN
    asker: str = ""
    system_notes: bool = False
    frame: str = ""
    most_input_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole reply; a stream that broke off is an error instead.

    Attributes:
        content: the blocks, in the form in which the API accepts them back.
        stop_reason: `end_turn`, `tool_use`, `max_tokens`, … or one that is not known yet.
        frame: of its request.
    """

    content: list[Block]
    stop_reason: str
    model: str
    usage: Usage = field(default_factory=Usage)
    frame: str = ""

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return "".join(block["text"] for block in self.content if block["type"] == "text")


class ModelError(Exception):
    """No reply; `str()` is a sentence for the person.

    Attributes:
        begun: whether the server may have begun to answer, and charges for it.
        usage: the usage that the server has reported; `None` if it has not.
        broke_off: whether `usage` covers only the input: the output is reported last.
    """

    begun = False
    usage: Usage | None = None
    broke_off = False


class TransientError(ModelError):
    """Worth trying again.

    Attributes:
        retry_after_seconds: how long the server asks to wait, if it does.
    """

    def __init__(self, sentence: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(sentence)
        self.retry_after_seconds = retry_after_seconds


class OddReplyError(TransientError):
    """The server's answer is not a reply.

    Attributes:
        what: the answer, for example "a web page: <html>…"; an excerpt follows the colon.
    """

    def __init__(self, what: str, server: str = "the model's server") -> None:
        super().__init__(f"{server} sent {what}")
        self.what = what

    @property
    def kind(self) -> str:
        """The kind of answer, without the excerpt."""
        return self.what.partition(":")[0]


class RefusedError(TransientError):
    """The server takes no more calls at the moment (429, 529); the supervisor makes all wait."""


class UnusableError(ModelError):
    """Trying again is useless until a person has fixed something, or much time has passed.

    Attributes:
        again_in_seconds: when to try again without help; `None` for never.
        until: the same in seconds since the epoch.
        about: names the problem if its sentence may differ at each try; otherwise empty.
        by_server: whether the server gave that time: mail is no reason to try earlier.
        command: the command that the sentence names as the remedy; empty for none.
    """

    def __init__(
        self,
        sentence: str,
        again_in_seconds: float | None = None,
        *,
        about: str = "",
        by_server: bool = False,
        command: str = "",
    ) -> None:
        super().__init__(sentence)
        self.again_in_seconds = again_in_seconds
        self.until = None if again_in_seconds is None else time.time() + again_in_seconds
        self.about = about
        self.by_server = by_server
        self.command = command


class LaterError(UnusableError):
    """The account, the key or the connection is refused, or the server asks for a long wait.

    It may work later without mail from a person: credit is added, a month begins. `ModelCalls`
    says when to try again; `again_in_seconds` is the time that the server gave, if it gave one.
    """


class KeyRefusedError(LaterError):
    """The server refuses the key: another one may be accepted at once."""


class LimitError(UnusableError):
    """A limit is too low: only a person can raise it, and mail is no reason to try again.

    Attributes:
        key: the setting, such as `limits.team_usd`.
        lifted: tells whether a person has lifted it, or the day of the limit is over.
        until: when that day is over, in seconds since the epoch; `None` for a limit of all time.
    """

    def __init__(
        self,
        sentence: str,
        key: str,
        lifted: Callable[[], bool],
        until: float | None = None,
        command: str = "",
    ) -> None:
        super().__init__(sentence, command=command)
        self.key = key
        self.lifted = lifted
        self.until = until


class TooLongError(UnusableError):
    """The request is too long for the model; a shorter one may pass.

    Attributes:
        limit_tokens: the model's limit, if the server named it.
    """

    def __init__(self, sentence: str, limit_tokens: int | None = None) -> None:
        super().__init__(sentence)
        self.limit_tokens = limit_tokens


class RefusedMessageError(UnusableError):
    """The server refuses one message of the request; without it, the rest may pass.

    Attributes:
        message: its index in the request.
        block: the index of the refused block in it; `None` if the server does not say.
        thinking: whether it is a thinking block.
        system: whether the server refuses the role `system`.
    """

    def __init__(
        self,
        sentence: str,
        *,
        message: int,
        block: int | None = None,
        thinking: bool = False,
        system: bool = False,
    ) -> None:
        super().__init__(sentence)
        self.system = system
        self.message = message
        self.block = block
        self.thinking = thinking


class Model(Protocol):
    """Anything that answers requests: a provider, or the calls of a conversation."""

    async def reply(self, ask: Ask) -> Reply:
        """Answer one request.

        Raises:
            TransientError: it may work in a moment.
            TooLongError: it may work with fewer or shorter messages.
            UnusableError: a person has to act first.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderOptions:
    """The settings in `[model]` that providers use, and the mask of secrets."""

    base_url: str | None
    key_command: str | None
    headers: Mapping[str, str]
    timeout_seconds: float
    cache: bool
    cache_ttl: str
    script: Path | None
    mask: Mask


class Provider:
    """The API of a provider of models: one subclass in one file, and its prices in `prices.toml`.

    Attributes:
        is_server: whether a server answers, which charges for calls and describes its models.
    """

    is_server: ClassVar[bool] = True

    @classmethod
    def make(cls, options: ProviderOptions) -> Self:
        """Return the provider with these settings."""
        raise NotImplementedError

    @classmethod
    def warm_up(cls) -> None:
        """Load, before forking, the modules that each teammate's first call would load."""

    @classmethod
    def finds_key(cls) -> bool:
        """Return whether the provider itself finds a key; ask no server."""
        return False

    async def reply(self, ask: Ask) -> Reply:
        """Answer one request, see `Model`."""
        raise NotImplementedError

    async def ask_page(self, model: str) -> dict[str, Any] | None:  # noqa: ARG002 -- the default
        """Return the server's page of a model: empty if it has none, `None` if it does not answer.

        `ModelFacts.read` reads the page.
        """
        return {}

    async def learn_key(self) -> None:
        """Find the key before the first request; a missing key is reported by that request."""

    async def renew_key(self) -> bool:
        """Find the key again after it was refused; return whether it has changed.

        Raises:
            UnusableError: no key was found.
        """
        return False

    async def try_client(self) -> None:
        """Build the client without a key, and send nothing.

        Raises:
            Exception: it cannot be built on this machine.
        """


# The file and the class of each kind of provider.
PROVIDERS: Final = {"anthropic": ("claude", "Claude"), "script": ("scripted", "Scripted")}


def load_provider(kind: str) -> type[Provider]:
    """Import the provider of a kind; an SDK takes seconds to load."""
    module, name = PROVIDERS[kind]
    found: type[Provider] = getattr(import_module(f"{__name__}.{module}"), name)
    return found


# The key under which text that is not a JSON object is kept and sent back to the model. Source:
# the API's documentation, "Fine-grained tool streaming", "Handling invalid JSON".
INVALID: Final = "INVALID_JSON"


def parse_tool_input(text: str) -> dict[str, Any]:
    """Return the object that the text holds, or the text itself under `INVALID`."""
    try:
        return _parse(text)
    except ValueError:
        return {INVALID: text}


def explain_invalid(given: dict[str, Any]) -> str | None:
    """Return why the text of a call was not accepted; `None` for a call with an object as input."""
    if list(given) != [INVALID] or not isinstance(given[INVALID], str):
        return None
    try:
        _parse(given[INVALID])
    except ValueError as error:
        return str(error)
    return f"{INVALID} is not a parameter"


def _parse(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
        # JSON has no NaN, and UTF-8 no half of a surrogate pair: no later request could carry them.
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, dict):
        kind = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
        raise ValueError(f"it is {kind.get(type(found), 'a number')}, not an object")  # noqa: TRY004
    return found


_LONGEST_REST_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The bounds within which a request is tried again, with exponential backoff and full jitter.

    The scheme is that of "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015): a random
    time up to a bound that doubles, so that teammates that failed together do not retry together.

    Attributes:
        attempts: the total number of calls, including the first.
        broken: the total number of replies that may break off; the server may charge for each.
        first_seconds: bound of the first pause; it doubles with each.
        longest_seconds: the bound stops growing here; a server's `retry-after` is cut to it too.
        rest_seconds: how long to rest after the last attempt. The rests after refusals of the
            account begin with this and grow.
    """

    attempts: int = 10
    broken: int = 5
    first_seconds: float = 0.5
    longest_seconds: float = 60.0
    rest_seconds: float = 300.0

    def seconds(self, attempt: int, asked_seconds: float | None) -> float:
        """Return the seconds to wait after a failure: as the server asks, plus a random time.

        Args:
            attempt: its number, counted from 0.
            asked_seconds: the wait that the server asks for.
        """
        asked = min(asked_seconds or 0.0, self.longest_seconds)
        bound = min(self.first_seconds * 2 ** min(attempt, 64), self.longest_seconds)
        return asked + random.uniform(0, bound)  # noqa: S311 -- spreads load, guards nothing

    def rest(self, before: int, asked_seconds: float | None = None) -> float:
        """Seconds until an account that was refused is tried again.

        Args:
            before: how many such rests came before it, without a reply in between.
            asked_seconds: the wait that the server asks for. Later only a long one counts, or a
                server with a wrong clock would be asked again and again.
        """
        if asked_seconds and (before == 0 or asked_seconds > LONG_WAIT_SECONDS):
            return asked_seconds
        grown = min(self.rest_seconds * 2.0 ** min(before, 64), _LONGEST_REST_SECONDS)
        return max(self.rest_seconds, grown)
