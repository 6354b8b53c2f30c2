"""The topics of `teamctl help`: one Markdown file each, in this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent


def names() -> list[str]:
    """Return the names of the topics, sorted."""
    return sorted(file.stem for file in FOLDER.glob("*.md"))


def read(name: str) -> str:
    """Return the Markdown of a topic.

    Args:
        name: one of `names`.
    """
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def title(name: str) -> str:
    """Return what a topic is about: its first line is `# Name: what it is about`."""
    return read(name).partition("\n")[0].partition(": ")[2]
