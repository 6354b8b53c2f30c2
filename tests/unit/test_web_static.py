"""The static files of the page: their size, what they may do, and that each is preloaded."""

from __future__ import annotations

import re
from typing import Final

import pytest

from teamctl.web.pages import static_files

MOST_BYTES: Final = 150_000
FILES: Final = {address: content.decode() for address, content, _ in static_files()}
SCRIPTS: Final = sorted(address for address in FILES if address.endswith(".js"))


def test_the_page_is_small() -> None:
    assert sum(len(content.encode()) for content in FILES.values()) <= MOST_BYTES


@pytest.mark.parametrize("address", SCRIPTS)
def test_no_script_can_turn_text_into_html_or_code(address: str) -> None:
    """The Content-Security-Policy refuses most of these as well, but only when they run."""
    dangerous = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc"
    )
    assert not re.search(dangerous, FILES[address])


@pytest.mark.parametrize("address", sorted(FILES))
def test_no_file_names_another_host(address: str) -> None:
    found = re.findall(r"(?:https?:)?//[a-z0-9-]+\.[a-z0-9.]+", FILES[address])
    # The name space of SVG, and the beginning of this server's own links.
    assert set(found) <= {"http://www.w3.org", "http://127.0.0.1"}


def test_every_script_is_loaded_at_once() -> None:
    """Otherwise the browser finds each import only after it has read the script before it."""
    named = set(re.findall(r'(?:src|href)="(/[a-z]+\.js)"', FILES["/"]))
    assert named == set(SCRIPTS)


def test_the_page_has_no_inline_code_or_style() -> None:
    page = FILES["/"]
    assert re.findall(r"<script(?![^>]* src=)", page) == []
    assert "<style" not in page
    assert not re.search(r'\s(on[a-z]+|style)="', page)


def test_every_icon_is_used() -> None:
    (drawn,) = re.findall(r"const ICONS = \{(.*?)\n\};", FILES["/dom.js"], re.DOTALL)
    names = set(re.findall(r"(\w+): 'M", drawn))
    used = set(re.findall(r"'(\w+)'", "".join(FILES[script] for script in SCRIPTS)))
    assert len(names) > 10
    assert names <= used
