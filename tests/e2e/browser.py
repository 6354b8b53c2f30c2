"""Drive Debian's chromium in tests."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any, ClassVar, Final

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.e2e.harness import Project
from tests.waiting import wait_until


@dataclass(frozen=True, slots=True)
class Server:
    """A running server of the page.

    Attributes:
        link: the printed link.
        pid: the server's process.
    """

    link: str
    pid: int

    @property
    def host(self) -> str:
        """The address and port in the link."""
        return self.link.removeprefix("http://").partition("/")[0]

    @property
    def address(self) -> tuple[str, int]:
        """The address and port as a pair, to connect to."""
        name, _, port = self.host.partition(":")
        return name, int(port)

    @property
    def token(self) -> str:
        """The token in the link."""
        return self.link.partition("#token=")[2]

    @property
    def headers(self) -> dict[str, str]:
        """Headers that authorize a request."""
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}

    def ask(self, path: str, **options: Any) -> tuple[int, dict[str, str], bytes]:
        """Send one request; return the status, the headers and the content."""
        with self.opened(path, **options) as response:
            headers = {key.lower(): value for key, value in response.getheaders()}
            return response.status, headers, response.read()

    def get(self, path: str) -> Any:
        status, _, content = self.ask(f"/api/{path}")
        assert status == 200, content
        return json.loads(content)

    def act(self, what: str, /, **values: Any) -> tuple[int, str]:
        """Send an action; return the status and the sentence."""
        return self.act_at("", what, **values)

    def act_at(self, team: str, what: str, /, **values: Any) -> tuple[int, str]:
        """Send an action on the team of an address such as `team/KEY`."""
        path = "/".join(filter(None, ("/api", team, "do", what)))
        status, _, content = self.ask(path, body=json.dumps(values))
        found = json.loads(content)
        return status, found.get("text") or found["error"]

    @contextmanager
    def opened(
        self, path: str, *, body: str | None = None, headers: dict[str, str] | None = None
    ) -> Iterator[HTTPResponse]:
        """Send a request and return its open response."""
        connection = HTTPConnection(*self.address, timeout=20)
        try:
            given = self.headers if headers is None else headers
            connection.request("GET" if body is None else "POST", path, body, given)
            with connection.getresponse() as response:
                yield response
        finally:
            connection.close()

    def send(self, content: bytes) -> bytes:
        """Send bytes; return all bytes that arrive until the server closes."""
        with socket.create_connection(self.address, timeout=20) as made:
            made.sendall(content)
            return b"".join(iter(lambda: made.recv(1 << 16), b""))


def events(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream."""
    found: dict[str, Any] = {}
    for line in response:
        key, colon, value = line.decode().rstrip("\n").partition(": ")
        if colon and key:
            found[key] = value
        elif not line.strip() and found:
            yield {**found, "data": json.loads(found["data"])}
            found = {}


def wait_for_mail(found: Iterator[dict[str, Any]]) -> None:
    """Read events until one says that a message waits."""
    next(one for one in found if one["event"] == "mail" and one["data"]["waiting"] == 1)


class _Tunnel(BaseRequestHandler):
    """Forwards bytes in both directions, as `ssh -L` does."""

    to: ClassVar[tuple[str, int]]

    def handle(self) -> None:
        with socket.create_connection(self.to, timeout=20) as there:
            back = Thread(target=_pass_on, args=(there, self.request), daemon=True)
            back.start()
            _pass_on(self.request, there)
            back.join()


def _pass_on(begin: socket.socket, end: socket.socket) -> None:
    with suppress(OSError):
        while content := begin.recv(1 << 16):
            end.sendall(content)
    with suppress(OSError):
        end.shutdown(socket.SHUT_WR)


@contextmanager
def tunnel(to: tuple[str, int], *, begin: tuple[str, int] = ("127.0.0.1", 0)) -> Iterator[int]:
    """Forward a local port to an address until the end of the block; yield the port."""
    kind = type("Tunnel", (_Tunnel,), {"to": to})
    with ThreadingTCPServer(begin, kind) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@contextmanager
def served(project: Project, *options: str) -> Iterator[Server]:
    """Run `teamctl web` until the end of the block, and check that it ends cleanly."""
    with project.serving("teamctl", "web", *options) as (pid, link):
        yield Server(link, pid)


_OPTIONS: Final = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
_DRAWN: Final = """new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(() =>
    go(document.body.innerText.includes("Loading …")))))"""
_NOTE_FOCUS: Final = """
window.reached = new Set(); document.body.focus(); scrollTo(0, 0)
document.addEventListener("focusin", ({target}) => reached.add(target))
"""
_CONTROLS: Final = frozenset(
    {"button", "link", "textbox", "searchbox", "checkbox", "spinbutton", "combobox", "region"}
)


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves an empty folder, and logs nothing."""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Browser:
    """A browser with one page.

    Attributes:
        driver: for actions that this class does not offer.
        opened: the link that was opened last.
    """

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self.opened = ""
        self._elsewhere: list[ThreadingHTTPServer] = []

    def open(self, link: str) -> None:
        """Open a link in the current window."""
        self.opened = link
        self.driver.get("about:blank")
        self.driver.get(link)

    def go(self, view: str) -> None:
        """Show another view of the page."""
        self.run("location.hash = arguments[0]", f"#/{view}")

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page."""
        return self.driver.execute_script(script, *arguments)

    @property
    def text(self) -> str:
        """All visible text."""
        return str(self.run("return document.body.innerText"))

    def see(self, words: str) -> None:
        """Wait until these words are visible."""
        wait_until(lambda: words in self.text, what=f"the page shows {words!r}")

    def miss(self, words: str) -> None:
        """Wait until these words have disappeared."""
        wait_until(lambda: words not in self.text, what=f"the page shows {words!r} no more")

    def find(self, selector: str) -> WebElement:
        wait_until(lambda: self.all(selector), what=f"the page has {selector}")
        return self.all(selector)[0]

    def all(self, selector: str) -> list[WebElement]:
        """Return all elements that match a selector now."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def press(self, name: str) -> None:
        """Press the button with this name."""
        self.run(
            "[...document.querySelectorAll('button')]"
            ".find((one) => one.ariaLabel === arguments[0] || one.textContent === arguments[0])"
            ".click()",
            name,
        )

    def resize(self, width: int) -> None:
        """Resize the window to another width."""
        facts = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._command("Emulation.setDeviceMetricsOverride", **facts)

    def prefer(self, *, dark: bool) -> None:
        """Prefer dark or light colours, as the browser's global setting does."""
        wanted = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._command("Emulation.setEmulatedMedia", features=[wanted])

    def inject(self, script: str) -> None:
        """Run a script outside the page's policy, as the browser's developer tools do."""
        self._command("Runtime.evaluate", expression=script)

    def run_first(self, script: str) -> None:
        """Run a script in each further page before its own."""
        self._command("Page.addScriptToEvaluateOnNewDocument", source=script)

    def wait_for_script(self, promise: str) -> Any:
        """Run an asynchronous script and return its result."""
        found = self._command(
            "Runtime.evaluate", expression=promise, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def settle(self) -> None:
        """Wait until the page has drawn its state."""
        while self.wait_for_script(_DRAWN):  # each load is drawn in its own frame
            self.miss("Loading …")

    def nameless(self) -> list[str]:
        """Return the controls without an accessible name."""
        nodes = self._command("Accessibility.getFullAXTree")["nodes"]
        return [
            f"{one['role']['value']}: {one}"
            for one in nodes
            if not one["ignored"]
            and one["role"]["value"] in _CONTROLS
            and not one.get("name", {}).get("value", "").strip()
        ]

    def reached_by_tab(self, most: int) -> int:
        """Press Tab this many times; return the number of different controls that had the focus."""
        self.run(_NOTE_FOCUS)
        ActionChains(self.driver, duration=0).send_keys(Keys.TAB * most).perform()
        return int(self.run("return window.reached.size"))

    def open_elsewhere(self) -> None:
        """Open a page of another origin on this machine."""
        folder = tempfile.mkdtemp()
        handler = partial(QuietHandler, directory=folder)
        self.opened = ""
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        Thread(target=server.serve_forever, daemon=True).start()
        self._elsewhere.append(server)
        self.driver.get(f"http://127.0.0.1:{server.server_port}/")

    def close(self) -> None:
        """Close the other windows."""
        for server in self._elsewhere:
            server.shutdown()
            server.server_close()

    def _command(self, name: str, **facts: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.driver.execute_cdp_cmd(name, facts)
        return found

    def complaints(self) -> list[str]:
        """Return the console's errors since the last call."""
        entries: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [one["message"] for one in entries if one["level"] == "SEVERE"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser, and quit it at the end."""
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    if sys.platform != "linux":
        pytest.skip("Debian's chromium is for Linux")
    if None in programs.values():
        pytest.fail(
            "chromium is not installed: `apt-get install chromium chromium-driver`", pytrace=False
        )
    options = Options()
    options.binary_location = programs["chromium"] or ""
    for option in _OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = Service(programs["chromedriver"])
    driver = webdriver.Chrome(options=options, service=service)
    try:
        browser = Browser(driver)
        yield browser
        browser.close()
    finally:
        driver.quit()
