"""Debian's chromium, as tests drive it."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver.remote.webelement import WebElement


_OPTIONS: Final = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


class Browser:
    """A browser with one page."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, link: str) -> None:
        """Open a link in place of what is shown."""
        self.driver.get("about:blank")
        self.driver.get(link)

    def go(self, view: str) -> None:
        """Show another view of the page."""
        self.run("location.hash = arguments[0]", f"#/{view}")

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page."""
        return self.driver.execute_script(script, *arguments)  # type: ignore[no-untyped-call]

    @property
    def text(self) -> str:
        """All that can be read."""
        return str(self.run("return document.body.innerText"))

    def see(self, words: str) -> None:
        """Wait until something can be read."""
        wait_until(lambda: words in self.text, what=f"the page shows {words!r}")

    def miss(self, words: str) -> None:
        """Wait until something can be read no more."""
        wait_until(lambda: words not in self.text, what=f"the page shows {words!r} no more")

    def find(self, selector: str) -> WebElement:
        """Wait for an element."""
        wait_until(lambda: self.all(selector), what=f"the page has {selector}")
        return self.all(selector)[0]

    def all(self, selector: str) -> list[WebElement]:
        """Return the elements that a selector finds now."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def press(self, name: str) -> None:
        """Press the button of that name."""
        self.run(
            "[...document.querySelectorAll('button')]"
            ".find((one) => one.ariaLabel === arguments[0] || one.textContent === arguments[0])"
            ".click()",
            name,
        )

    def complaints(self) -> list[str]:
        """Return what the console says of errors since the last call."""
        entries: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [one["message"] for one in entries if one["level"] == "SEVERE"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser, and end it."""
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    if None in programs.values():
        pytest.fail(
            "chromium is not installed: `apt-get install chromium chromium-driver`", pytrace=False
        )
    options = Options()
    options.binary_location = programs["chromium"] or ""
    for option in _OPTIONS:
        options.add_argument(option)  # type: ignore[no-untyped-call]
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = Service(programs["chromedriver"])  # type: ignore[no-untyped-call]
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
