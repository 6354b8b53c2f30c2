"""The tool that reads a skill when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import Field

from teamd.errors import SettingsError
from teamd.settings.skills import FILE_NAME, Skill
from teamd.tools import Input, Tool, ToolError
from teamd.tools.output import clip


class LoadSkillInput(Input):
    """Input of `load_skill`."""

    name: str = Field(description="the skill's name; NAME/FILE for a file that belongs to it")


@dataclass(kw_only=True)
class LoadSkill(Tool[LoadSkillInput]):
    """Returns the text of a skill, or of a file in its folder, as it is on disk now."""

    skills: Callable[[], Sequence[Skill]]
    output_bytes: int

    name = "load_skill"
    description = (
        "Read the instructions of one of the skills that your system prompt lists. Load a skill "
        "before you do what its description is about."
    )

    async def call(self, arguments: LoadSkillInput, _key: str) -> str:
        skills = self.skills()
        wanted = arguments.name
        meant = [skill for skill in skills if f"{wanted}/".startswith(f"{skill.name}/")]
        if not meant:
            names = ", ".join(skill.name for skill in skills)
            known = f"there are: {names}" if skills else "there are none"
            raise ToolError(f"no skill named {wanted!r}; {known}")
        skill = max(meant, key=lambda one: len(one.name))  # a name may hold a slash
        file = wanted[len(skill.name) + 1 :]
        try:
            text = clip(skill.read(file or FILE_NAME).encode(), self.output_bytes)
        except SettingsError as error:
            raise ToolError(str(error)) from error
        files = [] if file else [f"{skill.name}/{other}" for other in skill.files()]
        if files:
            files = ["", "Other files of this skill, to be read with load_skill:", *files]
        return "\n".join([text, *files])
