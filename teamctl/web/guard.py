"""Access control of the server, applied before a body or file is read.

Any page in the browser can send requests to loopback, and any local program can connect.
Host, Origin and fetch metadata stop the former, the token the latter.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

API: Final = "/api/"
JSON: Final = "application/json"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LOOPBACK: Final = re.compile(
    r"(?:127\.0\.0\.1|localhost):([1-9][0-9]{0,4})", re.ASCII | re.IGNORECASE
)
_SITES: Final = frozenset({"none", "same-origin"})
_FRAMES: Final = frozenset({"frame", "iframe", "embed", "object", "fencedframe"})
_LEFT: Final = "the link that `teamctl web` prints holds it; a new start makes a new one"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one server process.

    Attributes:
        full: allows actions; `None` for a read-only server.
        reading: allows reading.
    """

    full: str | None
    reading: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @classmethod
    def made(cls, *, readonly: bool) -> Tokens:
        return cls(None if readonly else secrets.token_urlsafe(32))

    def may_act(self, given: str) -> bool | None:
        """Return whether a token allows actions; `None` for an invalid token."""
        if self.full is not None and _same(given, self.full):
            return True
        return False if _same(given, self.reading) else None


class Json(JSONResponse):
    """A JSON response in ASCII, because lone surrogates cannot be encoded as UTF-8."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode()


Denial: TypeAlias = tuple[int, str]  # the status and the sentence for a refused request


class Guard:
    """Passes requests on to an application, or refuses them.

    Args:
        app: called with `scope["may_act"]` for allowed requests.
        hosts: the accepted values of Host, with the port.
    """

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str], tokens: Tokens) -> None:
        self._app = app
        self._hosts = hosts
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        found = self._look(scope)
        app = self._app
        if found is not None:
            status, why = found
            app = Json({"error": why}, status, headers={"Connection": "close"})
        await app(scope, receive, _with_headers(send))

    def _look(self, scope: Scope) -> Denial | None:
        if scope["type"] != "http":
            return (403, "only HTTP is spoken here")
        headers = Headers(scope=scope)
        return (
            self._look_at_way(headers)
            or _look_at_method(scope["method"], headers)
            or self._look_at_token(scope, headers)
        )

    def _look_at_way(self, headers: Headers) -> Denial | None:
        """Refuse requests from other origins or to other host names."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            known = ", ".join(sorted(self._hosts))
            way = _way_for(hosts)
            return (421, f"this server is known as {known}; use one of those addresses{way}")
        origins = headers.getlist("origin")
        if origins not in ([], [f"http://{hosts[0].lower()}"]):
            return (403, "a page of another origin may not ask here")
        if not _SITES.issuperset(headers.getlist("sec-fetch-site")):
            return (403, "a page of another site may not ask here; open the link itself")
        if not _FRAMES.isdisjoint(headers.getlist("sec-fetch-dest")):
            return (403, "this page is shown in no frame; open the link itself")
        return None

    def _look_at_token(self, scope: Scope, headers: Headers) -> Denial | None:
        if not scope["path"].startswith(API):
            return None
        kind, _, given = headers.get("authorization", "").partition(" ")
        may_act = self._tokens.may_act(given) if kind.lower() == "bearer" else None
        if may_act is None:
            return (401, f"the token is missing or not of this server; {_LEFT}")
        if scope["method"] == "POST" and not may_act:
            return (403, "this link is for reading only; `teamctl web` prints one to act")
        scope["may_act"] = may_act
        connection = scope.get("connection")
        if connection is not None and not connection.vouch():
            return (503, "too many pages look at this team; close one and try again")
        return None


def _way_for(hosts: list[str]) -> str:
    """Return the hint for a tunnel from another local port."""
    found = _LOOPBACK.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if found is None:
        return ""
    return f"; for a tunnel from port {found[1]} start `teamctl web --forwarded-port {found[1]}`"


def _look_at_method(method: str, headers: Headers) -> Denial | None:
    """Refuse other methods and bodies; forms and scripts without CORS cannot send JSON."""
    if method not in ("GET", "HEAD", "POST"):
        return (405, "only GET, HEAD and POST are served")
    if method == "POST" and headers.get("content-type", "").partition(";")[0] != JSON:
        return (415, "what is posted has to be application/json")
    return None


def _with_headers(send: Send) -> Send:
    async def send_on(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return send_on


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
