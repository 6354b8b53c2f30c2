"""Access control of the web server: each refusal separately."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from teamctl.web.guard import HEADERS, Guard, Tokens

HOST = "127.0.0.1:4711"
LOCAL = frozenset({HOST, "localhost:4711"})
TOKENS = Tokens("full", "reading")
FULL = ("authorization", "Bearer full")
READING = ("authorization", "Bearer reading")
JSON = ("content-type", "application/json")


class Served:
    """An application that records the requests it gets."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        """Answer with status 200."""
        self.scopes.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


class Answer:
    """A response."""

    def __init__(self, sent: list[Message]) -> None:
        self.status = sent[0]["status"]
        self.headers = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
        self.text = b"".join(one.get("body", b"") for one in sent).decode()


def ask(
    *headers: tuple[str, str],
    method: str = "GET",
    path: str = "/api/mail",
    host: str | None = HOST,
    tokens: Tokens = TOKENS,
    served: Served | None = None,
    **more: Any,
) -> Answer:
    """Send one request to a guard."""
    sent: list[Message] = []
    given = [*((("host", host),) if host is not None else ()), *headers]

    async def receive() -> Message:
        raise AssertionError("nothing is read of what is refused")

    async def send(message: Message) -> None:
        sent.append(message)

    raw = [(key.encode(), value.encode()) for key, value in given]
    scope = {"type": "http", "method": method, "path": path, "headers": raw, **more}
    guard = Guard(served or Served(), hosts=LOCAL, tokens=tokens)
    asyncio.run(guard(scope, receive, send))
    return Answer(sent)


SAME = (("origin", f"http://{HOST}"), ("sec-fetch-site", "same-origin"))


@pytest.mark.parametrize(
    ("headers", "more"),
    [
        ((FULL,), {}),
        ((READING,), {}),
        ((FULL, JSON), {"method": "POST"}),
        ((FULL,), {"host": "localhost:4711"}),
        ((FULL, *SAME), {}),
        # The link's token is in the fragment, which no browser sends.
        ((("sec-fetch-site", "none"),), {"path": "/"}),
    ],
)
def test_a_request_with_the_token_or_for_the_page_is_allowed(
    headers: tuple[tuple[str, str], ...], more: dict[str, Any]
) -> None:
    assert ask(*headers, **more).status == 200


@pytest.mark.parametrize(
    "host", [None, "evil.example", "evil.example:4711", "127.0.0.1", "127.0.0.1:4712", "[::1]:4711"]
)
def test_a_foreign_host_is_refused(host: str | None) -> None:
    """DNS rebinding makes loopback the attacker's own origin."""
    answer = ask(FULL, host=host)
    assert answer.status == 421
    assert "use one of those addresses" in answer.text
    assert ask(FULL, ("host", "evil.example")).status == 421


@pytest.mark.parametrize("name", ["127.0.0.1", "LOCALHOST"])
def test_the_refusal_of_a_tunnel_from_another_port_names_the_option(name: str) -> None:
    answer = ask(FULL, host=f"{name}:9000")
    assert answer.status == 421
    way = "for a tunnel from port 9000 start `teamctl web --forwarded-port 9000`"
    assert json.loads(answer.text)["error"].endswith(way)
    for foreign in ("evil.example:9000", "127.0.0.1:9000 ", "127.0.0.1:٩", "127.0.0.1:0"):
        assert "tunnel" not in ask(FULL, host=foreign).text


@pytest.mark.parametrize(
    "foreign",
    [
        ("origin", "http://evil.example"),
        ("origin", "http://127.0.0.1:4712"),  # a page on another local port
        ("origin", "http://127.0.0.1:47111"),
        ("origin", "http://127.0.0.1:4711.evil.example"),
        ("origin", "https://127.0.0.1:4711"),
        ("origin", "http://localhost:4711"),  # a valid host, but not the requested one
        ("origin", "null"),
        ("origin", ""),
        # Pages on another local port are of the same site; their images are sent without an Origin.
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-site", "nonsense"),
        ("sec-fetch-dest", "iframe"),
        ("sec-fetch-dest", "frame"),
        ("sec-fetch-dest", "embed"),
        ("sec-fetch-dest", "object"),
    ],
)
def test_pages_of_another_origin_or_site_and_frames_are_refused(foreign: tuple[str, str]) -> None:
    assert ask(FULL, foreign).status == 403
    assert ask(FULL, JSON, foreign, method="POST").status == 403
    assert ask(foreign, path="/").status == 403


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", None]
)
def test_posts_of_forms_and_no_cors_scripts_are_refused(kind: str | None) -> None:
    given = [] if kind is None else [("content-type", kind)]
    assert ask(FULL, *given, method="POST").status == 415


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"])
def test_other_methods_are_refused(method: str) -> None:
    """So preflight requests of other origins always fail."""
    answer = ask(FULL, method=method)
    assert answer.status == 405
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    ("headers", "more"),
    [
        *(
            ((("authorization", given),), {})
            for given in (
                "", "Bearer", "Bearer ", "Bearer Full", "Bearer full ", "Basic full", "full",
                "Bearer fül",
            )
        ),
        ((), {}),
        ((), {"query_string": b"token=full"}),
        ((("cookie", "token=full"),), {}),
    ],
)  # fmt: skip
def test_without_a_valid_token_in_its_header_a_request_is_refused(
    headers: tuple[tuple[str, str], ...], more: dict[str, Any]
) -> None:
    answer = ask(*headers, **more)
    assert answer.status == 401
    assert json.loads(answer.text)["error"] == (
        "the token is missing or not of this server; the link that `teamctl web` prints holds it; "
        "a new start makes a new one"
    )


def test_tokens_of_an_earlier_server_are_refused() -> None:
    old, new = Tokens.made(readonly=False), Tokens.made(readonly=False)
    assert len({old.full, old.reading, new.full, new.reading}) == 4
    for token in (old.full, old.reading):
        assert ask(("authorization", f"Bearer {token}"), tokens=new).status == 401


def test_a_token_or_server_for_reading_does_not_act() -> None:
    answer = ask(READING, JSON, method="POST")
    assert answer.status == 403
    assert "for reading only; `teamctl web` prints one to act" in answer.text
    tokens = Tokens.made(readonly=True)
    assert tokens.full is None
    assert [tokens.may_act(one) for one in ("None", "", tokens.reading)] == [None, None, False]


def test_websockets_are_refused() -> None:
    assert ask(FULL, type="websocket").status == 403


def test_refused_requests_do_not_reach_the_application() -> None:
    served = Served()
    ask(served=served)
    ask(FULL, host="evil.example", served=served)
    ask(READING, JSON, method="POST", served=served)
    assert served.scopes == []


@pytest.mark.parametrize("path", ["/", "/api/mail", "/nothing"])
def test_every_answer_has_the_security_headers(path: str) -> None:
    for answer in (ask(FULL, path=path), ask(FULL, path=path, host="evil.example")):
        assert {key: answer.headers[key.lower()] for key in HEADERS} == HEADERS
        assert "set-cookie" not in answer.headers


def test_the_content_security_policy_is_minimal() -> None:
    assert HEADERS["X-Frame-Options"] == "DENY"
    assert HEADERS["Content-Security-Policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


class Vouching:
    """A connection with or without room for another reader."""

    def __init__(self, *, room: bool) -> None:
        self._room = room

    def vouch(self) -> bool:
        """Return whether there is room."""
        return self._room


def test_one_page_too_many_gets_a_remedy() -> None:
    assert ask(FULL, connection=Vouching(room=True)).status == 200
    answer = ask(FULL, connection=Vouching(room=False))
    assert answer.status == 503
    assert json.loads(answer.text)["error"].endswith("close one and try again")


def test_the_start_of_the_server_is_not_refused() -> None:
    """Uvicorn reports its start and end with a lifespan scope."""
    served = Served()
    guard = Guard(served, hosts=LOCAL, tokens=TOKENS)

    async def nothing(*_: object) -> Any:
        return {}

    asyncio.run(guard({"type": "lifespan"}, nothing, nothing))
    assert [scope["type"] for scope in served.scopes] == ["lifespan"]
