"""The sentence about each mistake in a `[[teammate]]`."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamd.errors import SettingsError
from teamd.settings import parse

ALICE = '[[teammate]]\nname = "alice"\nrole = "coder"\nprompt = "work"\n'
NAME = "up to 64 of A-Z a-z 0-9 _ - with a letter or digit first"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "team.toml"


def mistakes(text: str, file: Path) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        parse(text.encode(), path=file)
    return caught.value.mistakes


def test_a_teammate_needs_name_role_and_prompt(file: Path) -> None:
    text = "non-empty text (in [[teammate]] number 2)"
    assert mistakes(f"{ALICE}[[teammate]]", file) == (
        f"teammate.name is missing; it must be {NAME} (in [[teammate]] number 2)",
        f"teammate.role is missing; it must be {text}",
        f"teammate.prompt is missing; it must be {text}",
    )


def test_a_text_must_not_be_blank_or_hold_nuls(file: Path) -> None:
    (sentence,) = mistakes(ALICE.replace("work", r"\n "), file)
    where = "(in [[teammate]] number 1)"
    assert sentence == rf'teammate.prompt must be non-empty text, not "\u000a " {where}'
    (sentence,) = mistakes(ALICE.replace("coder", r"a\u0000"), file)
    assert sentence == f"teammate.role must not hold a NUL character; leave it out {where}"


@pytest.mark.parametrize("name", ["lead", "User", "TEAMD", "all"])
def test_a_reserved_name_is_refused(name: str, file: Path) -> None:
    (sentence,) = mistakes(ALICE.replace("alice", name), file)
    assert sentence.startswith(f"teammate.name is refused: '{name}' cannot be a teammate's name")


@pytest.mark.parametrize(("first", "second"), [("alice", "Alice"), ("Alice", "alice")])
def test_a_name_is_unique_whatever_its_case(first: str, second: str, file: Path) -> None:
    text = ALICE.replace("alice", first) + ALICE.replace("alice", second)
    (sentence,) = mistakes(text, file)
    assert sentence == (
        "teammate.name must be unlike every other, whatever the case; "
        f'"{second}" is taken (in [[teammate]] number 2)'
    )
