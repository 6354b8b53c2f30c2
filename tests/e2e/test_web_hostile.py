"""Attacks against the page of `teamctl web`, in Debian's chromium."""

from __future__ import annotations

import pytest

from tests.e2e.browser import Browser, Server
from tests.e2e.conftest import HOSTILE, SHOWN
from tests.e2e.harness import Project
from tests.waiting import wait_until


@pytest.mark.slow
def test_the_token_is_not_visible_and_no_cookie_is_set(page: Browser, server: Server) -> None:
    assert server.token not in page.run("return location.href + document.documentElement.outerHTML")
    assert page.run("return document.cookie") == ""
    assert page.run("return [...Object.keys(localStorage)]") == []
    page.driver.refresh()
    page.see("The team")  # the tab keeps the token


@pytest.mark.slow
def test_hostile_text_is_shown_as_text_everywhere(page: Browser, busy: Project) -> None:
    busy.do("teamctl", "send", "alice", HOSTILE, "--summary", HOSTILE)
    for view in ("mail", "board", "member/alice"):
        page.go(view)
        page.run("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
        wait_until(lambda: SHOWN in page.text, what=f"{view} shows it as text")
        assert "\u202e" not in page.text
        assert page.all("main img, main b, main script") == []
    assert "run" not in page.driver.title


@pytest.mark.slow
def test_text_cannot_become_html_by_mistake(page: Browser) -> None:
    """Trusted Types: parsing a text as HTML is an error in this page."""
    for slip in ("document.body.innerHTML = 'x'", "document.write('x')"):
        said = page.run(f"try {{ {slip}; return 'done'; }} catch (error) {{ return error.name; }}")
        assert said == "TypeError", slip
    page.complaints()


@pytest.mark.slow
def test_a_read_only_page_offers_no_actions(page: Browser, server: Server) -> None:
    page.press("Read-only link")
    link = page.find("dialog code").text
    page.open(link)
    page.see("read-only")
    page.see("git push")
    page.see("teamctl approve")
    page.go("member/alice")
    page.see("lead → alice")
    acting = page.run("return [...document.querySelectorAll('button')].map((one) => one.innerText)")
    assert not {"Approve", "Reject", "Send", "Shut down", "Interrupt", "Pause"} & set(acting)
    assert server.token not in link


@pytest.mark.slow
def test_a_page_on_another_local_port_gets_nothing(browser: Browser, server: Server) -> None:
    """The real browser tries everything that such a page can do."""
    browser.open_elsewhere()
    api, shown = f"http://{server.host}/api", f"{{Authorization: 'Bearer {server.token}'}}"
    tries = {
        "read": f"fetch('{api}/session')",
        "no-cors": f"fetch('{api}/do/send', {{method: 'POST', mode: 'no-cors', body: '{{}}'}})",
        "token": f"fetch('{api}/session', {{headers: {shown}}})",
        "script": f"import('http://{server.host}/main.js')",
    }
    said = {
        name: browser.wait_for_script(f"{work}.then(() => 'done', () => 'refused')")
        for name, work in tries.items()
    }
    assert said == dict.fromkeys(tries, "refused")
    framed = (
        "new Promise((go) => { const one = document.createElement('iframe');"
        f" one.src = 'http://{server.host}/'; one.onload = () => {{"
        " let found = 'hidden'; try { found = one.contentDocument?.title ?? 'hidden' } catch {}"
        " go(found) }; document.body.append(one) })"
    )
    assert browser.wait_for_script(framed) != "teamd"
    browser.complaints()
