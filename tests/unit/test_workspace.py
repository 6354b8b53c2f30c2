"""The workspace: no path leads out of it or into the team directory."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from teamd.tools import ToolError
from teamd.tools.workspace import Workspace, path_in

SECRET = "a secret"

PARTS = st.one_of(
    st.sampled_from(
        [
            *("..", ".", "", "~", "root", "root-beside", "outside", ".team", ".TEAM"),
            *("inbox", "folder", "file"),
            *("up", "out", "team", "loop", "etc", "passwd", "proc", "self", "cwd", "fd"),
            *("n" * 255, "n" * 256, "\0", "\udc80", "\ud800", "ä"),
        ]
    ),
    st.text(st.characters(codec=None), max_size=4),
)


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """A root with links that lead out, up, in a circle and into the team directory."""
    with tempfile.TemporaryDirectory() as name:
        base = Path(name).resolve()
        (base / "root/folder").mkdir(parents=True)
        (base / "root/.team/inbox").mkdir(parents=True)
        (base / "outside").mkdir()
        (base / "root-beside").mkdir()
        for file in (
            "root-beside/file",
            "root/.team/file",
            "root/.team/inbox/file",
            "outside/file",
        ):
            (base / file).write_text(SECRET)
        (base / "root/file").write_text("open")
        links: dict[str, str | Path] = {
            "up": "..",
            "out": base / "outside",
            "team": ".team",
            "loop": "loop",
            "folder/out": "../../outside/file",
            "folder/team": "../.team/inbox",
            "folder/up": "../folder/..",
            "folder/root": "/",
        }
        for link, target in links.items():
            (base / "root" / link).symlink_to(target)
        yield base


@pytest.fixture(scope="module")
def workspace(base: Path) -> Workspace:
    return Workspace(base / "root", hidden=[base / "root/.team"])


def read(workspace: Workspace, path: str) -> str:
    fd = workspace.open(workspace.resolve(path))
    with os.fdopen(fd) as file:
        return file.read()


@given(parts=st.lists(PARTS, max_size=8), start=st.sampled_from(["", "/", "//", "{}/", "{}/root/"]))
@example(parts=["loop", "\0"], start="")  # paths behind a loop are not checked on the way
def test_no_path_leads_out_of_the_workspace(
    base: Path, workspace: Workspace, parts: list[str], start: str
) -> None:
    """An accepted path is in the root, outside the team directory, and holds no secret."""
    path = start.format(base) + "/".join(parts)
    try:
        place = workspace.resolve(path)
    except ToolError:
        return
    assert place.is_relative_to(base / "root")
    assert not place.is_relative_to(base / "root/.team")
    try:
        text = read(workspace, path)
    except (ToolError, OSError):
        return
    assert text == "open"


@pytest.mark.parametrize(
    "path",
    [
        "..", "../root-beside/file", "../outside/file", "/", "/etc/passwd", "up/outside/file",
        "out/file", "folder/out", "folder/up/up/outside/file", "folder/root/etc/passwd",
        "not-there/../../outside/file", "n" * 300 + "/../../outside/file",
        "loop/../../outside/file", "/proc/self/root/etc/passwd",
    ],
)  # fmt: skip
def test_a_path_outside_is_refused_with_a_sentence(workspace: Workspace, path: str) -> None:
    with pytest.raises(ToolError, match=r"is outside the workspace /.*/root; only") as refused:
        workspace.resolve(path)
    assert repr(path) in str(refused.value)


@pytest.mark.parametrize(
    "path",
    [".team", ".team/", ".team/file", "team/inbox/new", "folder/team/file", "./.team/../team"],
)
def test_the_team_directory_is_refused(workspace: Workspace, path: str) -> None:
    with pytest.raises(ToolError, match="is in a team directory"):
        workspace.resolve(path)


def test_another_name_of_the_team_directory_is_refused(tmp_path: Path) -> None:
    """On a case-insensitive file system `.TEAM` is `.team`; a bind mount simulates that here."""
    (tmp_path / ".team").mkdir()
    workspace = Workspace(tmp_path, hidden=[tmp_path / "elsewhere"])
    (tmp_path / "elsewhere").symlink_to(".team")
    with pytest.raises(ToolError, match="is in a team directory"):
        workspace.resolve(".team/file")


def test_a_root_inside_the_team_directory_is_allowed(tmp_path: Path) -> None:
    """A teammate's own working copy is there; its neighbours stay out of reach."""
    root = tmp_path / ".team/copies/alice"
    root.mkdir(parents=True)
    workspace = Workspace(root, hidden=[tmp_path / ".team"])
    assert workspace.resolve("file") == root / "file"
    with pytest.raises(ToolError, match="outside"):
        workspace.resolve("../bob/file")


@pytest.mark.parametrize("path", ["a\0b", "\0", "\ud800"])
def test_an_impossible_file_name_is_refused(workspace: Workspace, path: str) -> None:
    with pytest.raises(ToolError, match="no file can be called"):
        workspace.resolve(path)


@pytest.mark.parametrize("path", ["file", "./file", "folder/../file", "up/root/file"])
def test_a_path_inside_is_found(base: Path, workspace: Workspace, path: str) -> None:
    assert workspace.resolve(path) == base / "root/file"
    assert workspace.shown(workspace.resolve(str(base / "root/file"))) == "file"


def test_a_root_that_is_a_link_is_resolved_to_its_target(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    workspace = Workspace(tmp_path / "link")
    assert workspace.resolve(str(tmp_path / "link/a")) == tmp_path / "real/a"
    assert workspace.resolve(str(tmp_path / "real/a")) == tmp_path / "real/a"


@pytest.fixture
def swapped(tmp_path: Path) -> tuple[Workspace, Path]:
    """A path resolved before a command replaced its folder by a link."""
    for folder in ("root/folder", "outside"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file").write_text(SECRET)
    workspace = Workspace(tmp_path / "root")
    place = workspace.resolve("folder/file")
    (tmp_path / "root/folder").rename(tmp_path / "root/was")
    (tmp_path / "root/folder").symlink_to("../outside")
    return workspace, place


def test_a_link_created_after_the_check_is_not_followed(swapped: tuple[Workspace, Path]) -> None:
    """Otherwise a sandboxed command that runs at the same time could lead this process out."""
    workspace, place = swapped
    with pytest.raises(OSError, match=r"Not a directory|symbolic link"):
        workspace.open(place)
    for create in (False, True):
        with (
            pytest.raises(OSError, match=r"Not a directory|symbolic link"),
            workspace.folder(place, create=create),
        ):
            pass


def test_a_file_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "secret").write_text(SECRET)
    workspace = Workspace(tmp_path / "root")
    place = workspace.resolve("file")
    place.symlink_to("../secret")
    with pytest.raises(OSError, match="symbolic link"):
        workspace.open(place)


@pytest.mark.skipif(sys.platform != "linux", reason="no path goes through a descriptor there")
def test_a_write_goes_into_the_folder_that_was_opened(tmp_path: Path) -> None:
    (tmp_path / "root/folder").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    workspace = Workspace(tmp_path / "root")
    place = workspace.resolve("folder/file")
    with workspace.folder(place) as folder:
        (tmp_path / "root/folder").rename(tmp_path / "root/was")
        (tmp_path / "root/folder").symlink_to("../outside")
        path_in(folder, place).write_text("mine")
    assert (tmp_path / "root/was/file").read_text() == "mine"
    assert not (tmp_path / "outside/file").exists()


# the home


@pytest.fixture
def with_home(tmp_path: Path) -> Workspace:
    """A workspace whose team directory contains the home, as in most teams."""
    (tmp_path / "root/.team").mkdir(parents=True)
    home = tmp_path / "root/.team/homes/ann/home"
    return Workspace(tmp_path / "root", hidden=[tmp_path / "root/.team"], home=home)


@pytest.mark.parametrize("start", ["~", "$HOME", "${HOME}", "/home/teammate"])
def test_the_home_has_the_names_that_commands_use_for_it(with_home: Workspace, start: str) -> None:
    place = with_home.resolve(f"{start}/deep/file")
    assert place == with_home.root / ".team/homes/ann/home/deep/file"
    assert with_home.shown(place) == "~/deep/file"
    assert with_home.is_base(with_home.resolve(start))
    with_home.check_writable(place)
    with pytest.raises(FileNotFoundError):
        with_home.open(place)
    with with_home.folder(place, create=True) as folder:
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(with_home.open(place))
    assert with_home.resolve(f"{start}/.bashrc").parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("path", ["~/..", "~/../../config.json", "$HOME/link/config.json"])
def test_no_path_leads_from_the_home_into_the_team_directory(
    with_home: Workspace, path: str
) -> None:
    home = with_home.resolve("~")
    home.mkdir(parents=True)
    (home / "link").symlink_to("../../..")
    with pytest.raises(ToolError, match="is in a team directory"):
        with_home.resolve(path)


@pytest.mark.parametrize("path", ["~x/a", "$HOMEx/a", "a/~/b", "$USER/a"])
def test_other_names_belong_to_the_workspace(with_home: Workspace, path: str) -> None:
    assert with_home.resolve(path) == with_home.root / path


def test_a_folder_named_like_the_home_is_distinguished_from_it(with_home: Workspace) -> None:
    place = with_home.resolve("./~/a")
    assert place == with_home.root / "~/a"
    assert with_home.resolve(with_home.shown(place)) == place


def test_a_path_outside_both_is_refused(with_home: Workspace) -> None:
    why = r"is outside the workspace .*; only what is in it and in your home ~ can be used"
    with pytest.raises(ToolError, match=why):
        with_home.resolve("/etc/passwd")
