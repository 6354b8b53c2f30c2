"""The saved benchmark run: its topic, and the picture drawn from its tables."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from tests.bench import page, ruler

MOST_BYTES = 20_000
SAMPLES = {"teamd": [5000.0, 6000.0], "SQLite FULL": [3000.0, 3000.0], "bare": [9e4, 9e4]}
TITLE = "one writer, durable"
PAGE = ruler.spread(TITLE, [(name, found, "") for name, found in SAMPLES.items()], "a second")


def words(drawn: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(drawn).iter() if element.text]


def bars(drawn: str) -> list[float]:
    widths = re.findall(r'class="(?:ours|peer)" x="\d+" y="\d+" width="(\d+)"', drawn)
    return [float(width) for width in widths]


def test_tables_are_parsed_as_written() -> None:
    (table,) = page.read_tables(f"## Mail\n\n{PAGE}\n").values()
    assert table == [
        ["what", "25 %", "median a second", "75 %", ""],
        ["teamd", "5,250", "5,500", "5,750", ""],
        ["SQLite FULL", "3,000", "3,000", "3,000", ""],
        ["bare", "90,000", "90,000", "90,000", ""],
    ]


def test_bars_are_proportional_to_their_figures_and_missing_figures_are_left_out() -> None:
    drawn = page.draw(PAGE)
    ours, peer = bars(drawn)
    assert round(ours / peer, 1) == round(5500 / 3000, 1)
    assert {"teamd", "5,500", "SQLite", "3,000"} <= set(words(drawn))
    assert not {"Redis Streams", "A command"} & set(words(drawn))


def test_each_bench_has_a_section_of_the_page() -> None:
    composed = page.compose(dict.fromkeys(page.SECTIONS, f"Figures.\n{PAGE}\n\n\n"))
    heads = re.findall(r"^## (.*)$", composed, re.MULTILINE)
    assert heads == [name.capitalize() for name in page.SECTIONS]
    assert composed.count(f"Figures.\n\n### {TITLE}\n\n| ") == len(heads)
    assert "\n\n\n" not in composed


def test_the_saved_picture_shows_the_figures_of_the_saved_page() -> None:
    text = page.TOPIC.read_text(encoding="utf-8")
    assert page.PICTURE.read_text(encoding="utf-8") == page.draw(text)
    assert list(page.PANELS) == [
        panel for panel in page.PANELS if panel.table in page.read_tables(text)
    ]


def test_the_saved_picture_is_plain_and_small() -> None:
    """It is shown as an image, so no script or external resource would be loaded."""
    drawn = page.PICTURE.read_text(encoding="utf-8")
    assert len(drawn.encode()) <= MOST_BYTES
    kinds = {element.tag.partition("}")[2] for element in ET.fromstring(drawn).iter()}
    assert kinds == {"svg", "title", "style", "rect", "text"}
    assert not re.search(r"url\(|@import|@font-face|href|javascript", drawn)
    assert "prefers-color-scheme: dark" in drawn
