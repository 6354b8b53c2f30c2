"""Skills: listed, loaded on demand, and confined to their folder."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from teamd.agent.conversation.prompts import system_prompt
from teamd.settings import skills
from teamd.tools import Result, Toolbox
from teamd.tools.skills import LoadSkill
from teamd.transcript.records import Opened


def write(folder: Path, name: str, text: str) -> Path:
    made = folder / name
    made.mkdir(parents=True)
    (made / "SKILL.md").write_text(text, encoding="utf-8")
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "skills"
    pdf = write(made, "pdf", "---\nname: pdf\ndescription: Reads\n  PDFs.\n---\nUse pdftotext.")
    (pdf / "notes").mkdir()
    (pdf / "notes" / "tables.md").write_text("Tables are hard.", encoding="utf-8")
    return made


def load(folder: Path, name: str, limit: int = 1000) -> Result:
    box = Toolbox([LoadSkill(skills=lambda: skills.find([folder])[0], output_bytes=limit)])
    return asyncio.run(box.run("load_skill", {"name": name}))


def test_a_pipe_in_place_of_a_skill_is_skipped(folder: Path) -> None:
    """Opening it would block forever."""
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe" / "SKILL.md")
    assert [skill.name for skill in skills.find([folder])[0]] == ["pdf"]


def test_a_skill_is_listed_by_name_and_description_and_not_by_its_text(folder: Path) -> None:
    found, mistakes = skills.find([folder])
    prompt = system_prompt(
        Opened(name="alice", role="coder", team="project"), workspace=Path("/w"), skills=found
    )
    assert mistakes == []
    assert "- pdf: Reads PDFs." in prompt
    assert "pdftotext" not in prompt


def test_loading_gives_the_text_and_names_the_other_files(folder: Path) -> None:
    loaded = load(folder, "pdf")
    assert "Use pdftotext." in loaded.text
    assert "pdf/notes/tables.md" in loaded.text
    assert load(folder, "pdf/notes/tables.md").text == "Tables are hard."


def test_a_name_may_contain_a_slash_and_the_longest_match_counts(folder: Path) -> None:
    write(folder, "deep", "---\nname: pdf/forms\ndescription: Fills in\n---\nUse pdftk.")
    assert "Use pdftk." in load(folder, "pdf/forms").text
    assert "pdf/forms/SKILL.md" not in load(folder, "pdf/forms").text
    assert load(folder, "pdf/notes/tables.md").text == "Tables are hard."
    assert load(folder, "pd").is_error


def test_a_date_or_a_number_in_yaml_is_a_description(folder: Path) -> None:
    write(folder, "dated", "---\nname: 7\ndescription: 2026-11-21\n---\n")
    found, mistakes = skills.find([folder])
    assert (found[0].name, found[0].description) == ("7", "2026-11-21")
    assert mistakes == []


def test_an_unknown_skill_is_an_error_that_names_the_known_ones(folder: Path) -> None:
    assert load(folder, "docx") == Result(
        text="no skill named 'docx'; there are: pdf", is_error=True
    )


@pytest.mark.parametrize("way", ["../../secret.txt", "/etc/passwd", "link.txt", "notes/../../x"])
def test_a_name_cannot_leave_the_folder(folder: Path, way: str) -> None:
    for outside in (folder / "x", folder.parent / "secret.txt"):
        outside.write_text("secret", encoding="utf-8")
    (folder / "pdf" / "link.txt").symlink_to(folder.parent / "secret.txt")
    loaded = load(folder, f"pdf/{way}")
    assert loaded.is_error
    assert "outside" in loaded.text
    assert "secret\n" not in loaded.text


def test_a_long_text_is_cut_in_the_middle(folder: Path) -> None:
    write(folder, "long", "---\ndescription: d\n---\n" + "x" * 5000)
    assert "bytes cut" in load(folder, "long", limit=200).text


def test_a_skill_without_a_description_is_skipped(folder: Path) -> None:
    write(folder, "bad", "No front matter.")
    found, mistakes = skills.find([folder])
    assert [skill.name for skill in found] == ["pdf"]
    assert "it has no description" in str(mistakes[0])


def test_the_earlier_folder_takes_precedence(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "own", "pdf", "---\ndescription: Mine.\n---\nMine.")
    found, _ = skills.find([tmp_path / "own", folder])
    assert [skill.description for skill in found] == ["Mine."]
