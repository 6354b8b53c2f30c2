"""Front matter above Markdown, well-formed or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from teamd.errors import SettingsError
from teamd.settings import front_matter


def read(folder: Path, text: str | bytes) -> front_matter.Document:
    path = folder / "file.md"
    path.write_bytes(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
    return front_matter.read(path)


def test_fields_and_body_are_separated(tmp_path: Path) -> None:
    found = read(tmp_path, "---\nname: reviewer\ntools: Read, Bash\n---\n\nBe strict.\n---\nend\n")
    assert found.text("name") == "reviewer"
    assert found.words("tools") == ("Read", "Bash")
    assert found.body == "Be strict.\n---\nend"


def test_windows_line_endings_and_a_byte_order_mark_are_accepted(tmp_path: Path) -> None:
    found = read(tmp_path, b"\xef\xbb\xbf---\r\nname: a\r\n---\r\nBody\r\n")
    assert (found.text("name"), found.body) == ("a", "Body")


def test_a_list_of_words_may_be_empty(tmp_path: Path) -> None:
    assert read(tmp_path, "---\ntools: [Read, Bash]\n---\n").words("tools") == ("Read", "Bash")
    assert read(tmp_path, "---\ntools: []\n---\n").words("tools") == ()
    assert read(tmp_path, "---\nname: a\n---\n").words("tools") is None


def test_a_colon_in_a_description_does_not_spoil_the_file(tmp_path: Path) -> None:
    """It is not valid YAML, but common in such files."""
    found = read(tmp_path, "---\nname: a\ndescription: Use when: tests fail\n---\nBody")
    assert found.text("description") == "Use when: tests fail"
    assert found.text("name") == "a"


@pytest.mark.parametrize("value", ["!!bool x", "!!int ''", "!!timestamp x", "!!float ''"])
def test_a_wrong_yaml_tag_does_not_spoil_the_file(tmp_path: Path, value: str) -> None:
    """PyYAML raises KeyError and the like, which ended each teammate's process."""
    found = read(tmp_path, f"---\nname: a\ndescription: {value}\n---\nBody")
    assert (found.text("name"), found.text("description")) == ("a", value)


def test_nested_lists_are_ignored(tmp_path: Path) -> None:
    """A few aliases of aliases would be gigabytes of text."""
    assert read(tmp_path, "---\ntools: [Read, [x], {a: 1}, 3]\n---\n").words("tools") == (
        "Read",
        "3",
    )


def test_without_front_matter_the_whole_text_is_body(tmp_path: Path) -> None:
    for text in ("Just words.", "---\nnever closed", "a\n---\nname: b\n---\n"):
        found = read(tmp_path, text)
        assert (dict(found.fields), found.body) == ({}, text.strip())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xff\xfe", "it is not UTF-8; save it as such"),
        (b"a\0b", "it holds a NUL character, so it is not text"),
        (b"a" * (front_matter.MAX_BYTES + 1), "shorten it"),
    ],
)
def test_a_file_that_is_not_text_is_refused_with_its_path(
    tmp_path: Path, content: bytes, why: str
) -> None:
    with pytest.raises(SettingsError, match=why) as refused:
        read(tmp_path, content)
    assert str(tmp_path / "file.md") in str(refused.value)


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="it cannot be read: Is a directory"):
        front_matter.read(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_front_matter_is_read_or_refused(tmp_path: Path, front: str) -> None:
    try:
        found = read(tmp_path, f"---\n{front}\n---\nBody")
    except SettingsError:
        return
    assert isinstance(found.text("description"), str)
    assert found.words("tools") is None or all(found.words("tools") or ())
