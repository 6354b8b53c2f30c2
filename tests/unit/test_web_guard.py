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


def test_a_request_with_the_token_is_allowed() -> None:
    assert ask(FULL).status == 200
    assert ask(READING).status == 200
    assert ask(FULL, JSON, method="POST").status == 200
    assert ask(FULL, host="localhost:4711").status == 200
    same = (("origin", f"http://{HOST}"), ("sec-fetch-site", "same-origin"))
    assert ask(FULL, *same).status == 200


def test_the_page_itself_needs_no_token() -> None:
    """The link's token is in the fragment, which no browser sends."""
    assert ask(("sec-fetch-site", "none"), path="/").status == 200


@pytest.mark.parametrize(
    "host", [None, "evil.example", "evil.example:4711", "127.0.0.1", "127.0.0.1:4712", "[::1]:4711"]
)
def test_a_foreign_host_is_refused(host: str | None) -> None:
    """DNS rebinding makes loopback the attacker's own origin."""
    answer = ask(FULL, host=host)
    assert answer.status == 421
    assert "use one of those addresses" in answer.text


@pytest.mark.parametrize("name", ["127.0.0.1", "LOCALHOST"])
def test_the_refusal_of_a_tunnel_from_another_port_names_the_option(name: str) -> None:
    answer = ask(FULL, host=f"{name}:9000")
    assert answer.status == 421
    way = "for a tunnel from port 9000 start `teamctl web --forwarded-port 9000`"
    assert json.loads(answer.text)["error"].endswith(way)
    for foreign in ("evil.example:9000", "127.0.0.1:9000 ", "127.0.0.1:٩", "127.0.0.1:0"):
        assert "tunnel" not in ask(FULL, host=foreign).text


def test_two_hosts_are_refused() -> None:
    assert ask(FULL, ("host", "evil.example")).status == 421


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://127.0.0.1:4712",  # a page on another local port
        "http://127.0.0.1:47111",
        "http://127.0.0.1:4711.evil.example",
        "https://127.0.0.1:4711",
        "http://localhost:4711",  # a valid host, but not the requested one
        "null",
        "",
    ],
)
def test_a_foreign_origin_is_refused(origin: str) -> None:
    assert ask(FULL, ("origin", origin)).status == 403
    assert ask(FULL, JSON, ("origin", origin), method="POST").status == 403
    assert ask(("origin", origin), path="/").status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
def test_another_site_is_refused(site: str) -> None:
    """Pages on another local port are of the same site; their images are sent without an Origin."""
    assert ask(FULL, ("sec-fetch-site", site)).status == 403
    assert ask(("sec-fetch-site", site), path="/").status == 403


@pytest.mark.parametrize("where", ["iframe", "frame", "embed", "object"])
def test_a_frame_is_refused(where: str) -> None:
    assert ask(("sec-fetch-site", "none"), ("sec-fetch-dest", where), path="/").status == 403
    assert HEADERS["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in HEADERS["Content-Security-Policy"]


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_posts_of_forms_and_no_cors_scripts_are_refused(kind: str) -> None:
    assert ask(FULL, ("content-type", kind), method="POST").status == 415
    assert ask(FULL, method="POST").status == 415


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"])
def test_other_methods_are_refused(method: str) -> None:
    """So preflight requests of other origins always fail."""
    answer = ask(FULL, method=method)
    assert answer.status == 405
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer ", "Bearer Full", "Bearer full ", "Basic full", "full", "Bearer fül"],
)
def test_a_wrong_token_is_refused(given: str) -> None:
    answer = ask(("authorization", given))
    assert answer.status == 401
    assert json.loads(answer.text)["error"] == (
        "the token is missing or not of this server; the link that `teamctl web` prints holds it; "
        "a new start makes a new one"
    )
    assert ask().status == 401


def test_the_token_is_accepted_only_in_its_header() -> None:
    assert ask(query_string=b"token=full").status == 401
    assert ask(("cookie", "token=full")).status == 401


def test_tokens_of_an_earlier_server_are_refused() -> None:
    old, new = Tokens.made(readonly=False), Tokens.made(readonly=False)
    assert len({old.full, old.reading, new.full, new.reading}) == 4
    assert ask(("authorization", f"Bearer {old.full}"), tokens=new).status == 401
    assert ask(("authorization", f"Bearer {old.reading}"), tokens=new).status == 401


def test_a_token_for_reading_does_not_act() -> None:
    answer = ask(READING, JSON, method="POST")
    assert answer.status == 403
    assert "for reading only; `teamctl web` prints one to act" in answer.text


def test_a_server_for_reading_has_no_other_token() -> None:
    tokens = Tokens.made(readonly=True)
    assert tokens.full is None
    assert tokens.may_act("None") is None
    assert tokens.may_act("") is None
    assert tokens.may_act(tokens.reading) is False


def test_websockets_are_refused() -> None:
    assert ask(FULL, type="websocket").status == 403


def test_refused_requests_do_not_reach_the_application() -> None:
    served = Served()
    ask(served=served)
    ask(FULL, host="evil.example", served=served)
    ask(READING, JSON, method="POST", served=served)
    assert served.scopes == []


@pytest.mark.parametrize("path", ["/", "/api/mail", "/nothing"])
def test_every_answer_has_the_headers(path: str) -> None:
    for answer in (ask(FULL, path=path), ask(FULL, path=path, host="evil.example")):
        assert {key: answer.headers[key.lower()] for key in HEADERS} == HEADERS
        assert "set-cookie" not in answer.headers


def test_the_content_security_policy_is_minimal() -> None:
    policy = HEADERS["Content-Security-Policy"].split("; ")
    assert policy == [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]


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
