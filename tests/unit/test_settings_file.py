"""The settings file itself: files that cannot be read, and text that is not TOML."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from teamd.errors import SettingsError
from teamd.settings import load
from teamd.settings.load import MAX_FILE_BYTES


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "team.toml"


def mistakes(text: bytes, file: Path) -> tuple[str, ...]:
    file.write_bytes(text)
    with pytest.raises(SettingsError) as caught:
        load(file, folder=file.parent)
    return caught.value.mistakes


WIM = '[[teammate]]\nname = "wim"\nrole = "coder"\nprompt = "Go."\n'


@pytest.mark.parametrize(
    ("own", "calls"), [(WIM, 7), ("[limits]\n" + WIM, 50), ("", 50), ("# " + WIM[:12], 50)]
)
def test_a_file_with_only_teammates_leaves_the_rest_to_the_projects_file(
    file: Path, own: str, calls: int
) -> None:
    """`spawn --save` writes such a file, and the team must keep its server and its limits."""
    ann = WIM.replace("wim", "ann")
    file.write_text(f'[limits]\ncalls_per_wake = 7\n[team]\nworkspace = "src"\n{ann}')
    (file.parent / "src").mkdir()
    of_team = file.parent / ".teams" / "web" / "team.toml"
    of_team.parent.mkdir(parents=True)
    of_team.write_text(own)
    found = load(of_team, folder=file.parent)
    assert found.limits.calls_per_wake == calls
    assert found.team.workspace == (file.parent / "src" if calls == 7 else file.parent)
    assert [one.name for one in found.teammates] == (["wim"] if WIM in own else [])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"[team]\nname = ", "it is not TOML: Invalid value (at end of document)"),
        (b"[team]\nname == 5", "it is not TOML: Invalid value (at line 2, column 7)"),
        (b"# fine\n# \xff\n", "it is not UTF-8 (at line 2); save it as such"),
        (b"a = " + b"9" * 9000, "a number in it has too many digits; shorten it"),
        (b"a = " + b"[" * 9000, "its lists or tables are nested too deeply"),
        (b"#" * (MAX_FILE_BYTES + 1), "it is larger than 1048576 bytes; shorten it"),
    ],
)
def test_a_syntax_error_is_reported_with_its_line(text: bytes, sentence: str, file: Path) -> None:
    assert mistakes(text, file) == (sentence,)


def test_the_largest_file_is_read(file: Path) -> None:
    file.write_bytes(b"#" * MAX_FILE_BYTES)
    assert load(file, folder=file.parent).teammates == ()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: (path / "inner").mkdir(parents=True), "it is a folder; name a file of"),
        (os.mkfifo, "it is not a regular file; name a file of settings"),
        (lambda path: path.symlink_to(path.name), "it cannot be read: Too many levels of symbolic"),
        (lambda path: path.symlink_to("gone.toml"), "it is a link to gone.toml, which does not"),
    ],
)
def test_a_folder_pipe_or_dangling_link_is_refused_without_blocking(
    make: Any, sentence: str, file: Path
) -> None:
    make(file)
    with pytest.raises(SettingsError) as caught:
        load(file, folder=file.parent)
    assert str(caught.value).startswith(f"{file}: {sentence}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_an_unreadable_file_is_reported(file: Path) -> None:
    file.touch(mode=0)
    with pytest.raises(SettingsError, match="it cannot be read: Permission denied"):
        load(file, folder=file.parent)


def test_a_file_of_another_user_is_refused(file: Path) -> None:
    """Otherwise another user could loosen the rights of agents."""
    stranger = Path("/etc/hosts")
    if os.geteuid() == 0:
        stranger = file
        stranger.touch()
        os.chown(stranger, 12345, -1)
    with pytest.raises(SettingsError) as caught:
        load(stranger, folder=file.parent)
    owner = stranger.stat().st_uid
    assert caught.value.mistakes == (
        f"it belongs to another user (uid {owner}); copy it to a file of your own",
    )
