"""Skills: folders with a `SKILL.md`, listed by name and description, read on demand.

The format is that of the open Agent Skills specification.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from teamd.errors import SettingsError
from teamd.settings import front_matter

FILE_NAME: Final = "SKILL.md"
_LONGEST_DESCRIPTION: Final = 1024  # characters, a limit of the specification
_MOST_FILES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One skill.

    Attributes:
        folder: contains `SKILL.md` and the other files of the skill.
    """

    name: str
    description: str
    folder: Path

    def read(self, file: str = FILE_NAME) -> str:
        """Return the text of `SKILL.md` without its front matter, or of another file of the skill.

        Raises:
            SettingsError: the file is not in the folder, or is not text.
        """
        path = (self.folder / file).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise SettingsError(self.folder / file, ["it is outside the skill's folder"])
        return front_matter.read(path).body

    def files(self) -> list[str]:
        """Return the other files of the skill, as paths relative to its folder."""
        paths = (path for path in self.folder.rglob("*") if path.is_file())
        found = sorted(str(path.relative_to(self.folder)) for path in paths)
        return [name for name in found if name != FILE_NAME][:_MOST_FILES]


def folders(team: Path, workspace: Path) -> list[Path]:
    """Return the folders of skills: the team's folder comes before the workspace's."""
    return [team, workspace / ".claude" / "skills"]


def find(folders: Iterable[Path]) -> tuple[list[Skill], list[SettingsError]]:
    """Return the skills of these folders, sorted by name, and the mistakes in others.

    Of two skills with the same name the one in the earlier folder counts.
    """
    found: dict[str, Skill] = {}
    mistakes: list[SettingsError] = []
    for folder in folders:
        paths = folder.glob(f"*/{FILE_NAME}")
        for path in sorted(path for path in paths if path.is_file()):  # opening a FIFO would hang
            try:
                skill = _skill(front_matter.read(path))
            except SettingsError as error:
                mistakes.append(error)
                continue
            found.setdefault(skill.name, skill)
    return sorted(found.values(), key=lambda skill: skill.name), mistakes


def _skill(document: front_matter.Document) -> Skill:
    folder = document.path.parent
    description = document.text("description")
    if not description:
        raise SettingsError(document.path, ["it has no description; say when it is of use"])
    name = document.text("name") or folder.name
    return Skill(name=name, description=description[:_LONGEST_DESCRIPTION], folder=folder)
