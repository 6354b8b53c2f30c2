"""The mounts in a sandbox are compared with the intended ones."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from teamd.sandbox.bubblewrap import ExpectedMounts, Mount, read_mounts
from teamd.sandbox.protected_paths import PathState, ProtectedPath

WORKSPACE = Path("/home/me/work")
ARGV = (
    "bwrap", "--ro-bind", "/usr", "/usr", "--dev", "/dev",
    "--bind", "/home/me/work/.team/homes/ann", "/home/teammate",
    "--bind", "/home/me/work", "/home/me/work",
    "--bind", "/home/me/work/e", "/home/me/work/e",
    "--ro-bind", "/home/me/work/e/f", "/home/me/work/e/f",
    "--tmpfs", "/home/me/work/.vscode", "--remount-ro", "/home/me/work/.vscode",
)  # fmt: skip
OWN = [
    Mount("8:1", "/", "/", read_only=False),
    Mount("8:9", "/old", "/home", read_only=False),
    Mount("8:2", "/@home", "/home", read_only=False),  # hides the mount before it
    Mount("8:3", "/", "/usr/share", read_only=False),
    Mount("0:6", "/", "/dev", read_only=False),
]
MEANT = {
    "/": Mount("0:40", "/newroot", "/", read_only=True),
    "/usr": Mount("8:1", "/usr", "/usr", read_only=True),
    "/usr/share": Mount("8:3", "/", "/usr/share", read_only=True),
    "/dev": Mount("0:41", "/", "/dev", read_only=True),
    "/dev/null": Mount("0:6", "/null", "/dev/null", read_only=False),
    "~": Mount("8:2", "/@home/me/work/.team/homes/ann", "/home/teammate", read_only=False),
    "work": Mount("8:2", "/@home/me/work", "/home/me/work", read_only=False),
    "e": Mount("8:2", "/@home/me/work/e", "/home/me/work/e", read_only=False),
    "f": Mount("8:2", "/@home/me/work/e/f", "/home/me/work/e/f", read_only=True),
    ".vscode": Mount("0:42", "/", "/home/me/work/.vscode", read_only=True),
}
PLACES = (
    ProtectedPath(WORKSPACE / "e/f", PathState.FILE, (WORKSPACE / "e",)),
    ProtectedPath(WORKSPACE / ".vscode", PathState.FOLDER),
    ProtectedPath(WORKSPACE / "CLAUDE.md", PathState.LINK, (), "AGENTS.md"),
)


def check(mounts: dict[str, Mount]) -> None:
    ExpectedMounts(ARGV, [WORKSPACE], PLACES, OWN).check(mounts.values())


def test_the_intended_mounts_are_accepted() -> None:
    check(MEANT)


@pytest.mark.parametrize(
    ("name", "mount"),
    [
        ("e", Mount("8:2", "/@home/me/.ssh", "/home/me/work/e", read_only=False)),
        ("elsewhere", Mount("8:2", "/@home/me/.ssh", "/home/me/work/x", read_only=False)),
        ("of the system", Mount("8:2", "/@home/me/.ssh", "/opt", read_only=False)),
        ("/usr", Mount("8:1", "/usr", "/usr", read_only=False)),
        ("another disk", Mount("8:3", "/@home/me/work/e", "/home/me/work/e", read_only=False)),
        ("f", Mount("8:2", "/@home/me/work/e/f", "/home/me/work/e/f", read_only=False)),
        ("f", Mount("8:2", "/@home/me/work/e/g", "/home/me/work/e/f", read_only=True)),
        ("removed", Mount("8:2", "/@home/me/work/e//deleted", "/home/me/work/e", read_only=False)),
        (".vscode", Mount("8:2", "/@home/me/work/v", "/home/me/work/.vscode", read_only=True)),
        (".vscode", Mount("0:42", "/", "/home/me/work/.vscode", read_only=False)),
        ("~", Mount("8:2", "/@home/me", "/home/teammate", read_only=False)),
        ("what is hidden here", Mount("8:9", "/old", "/opt", read_only=True)),
        ("/usr/share", Mount("8:2", "/@home", "/usr/share", read_only=True)),
        ("/dev/null", Mount("0:6", "/sda", "/dev/null", read_only=False)),
    ],
)
def test_a_wrong_mount_is_detected(name: str, mount: Mount) -> None:
    with pytest.raises(OSError, match="has just been replaced"):
        check({**MEANT, name: mount})


@pytest.mark.parametrize("name", ["f", ".vscode"])
def test_a_missing_mount_is_detected(name: str) -> None:
    with pytest.raises(OSError, match="has just been replaced"):
        check({key: mount for key, mount in MEANT.items() if key != name})


def test_a_protected_path_without_a_placeholder_is_detected() -> None:
    places = [*PLACES, ProtectedPath(WORKSPACE / "deploy", PathState.MISSING)]
    with pytest.raises(OSError, match="deploy has just been replaced"):
        ExpectedMounts(ARGV, [WORKSPACE], places, OWN).check(MEANT.values())


def test_a_source_that_is_a_link_is_compared_by_its_target(tmp_path: Path) -> None:
    """A folder on the PATH is often a link; in the workspace no link is followed."""
    (tmp_path / "real").mkdir()
    (tmp_path / "work").mkdir()
    for link in (tmp_path / "link", tmp_path / "work" / "link"):
        link.symlink_to(tmp_path / "real")
    own = [Mount("8:1", "/", "/", read_only=False)]
    real = str((tmp_path / "real").resolve())
    for source, meant in ((tmp_path / "link", True), (tmp_path / "work" / "link", False)):
        argv = ("bwrap", "--ro-bind", str(source), "/x")
        mounts = ExpectedMounts(argv, [tmp_path / "work"], (), own)
        with nullcontext() if meant else pytest.raises(OSError, match="/x has just been replaced"):
            mounts.check([Mount("8:1", real, "/x", read_only=True)])
        with pytest.raises(OSError, match="/x has just been replaced"):
            mounts.check([Mount("8:1", f"{real}er", "/x", read_only=True)])


@pytest.mark.parametrize(
    ("root", "point", "path", "found"),
    [
        ("/", "/", "/", "/"),
        ("/", "/", "/a", "/a"),
        ("/r", "/", "/", "/r"),
        ("/r", "/", "/a/b", "/r/a/b"),
        ("/", "/p", "/p", "/"),
        ("/", "/p", "/p/a", "/a"),
        ("/r", "/p", "/p", "/r"),
        ("/r", "/p", "/p/p/a", "/r/p/a"),
    ],
)
def test_the_root_of_a_mount_gives_the_path_within_its_file_system(
    root: str, point: str, path: str, found: str
) -> None:
    assert Mount("8:1", root, point, read_only=False).at(path) == ("8:1", found)


def test_a_folder_with_a_longer_name_is_a_different_one() -> None:
    """`/home/me/workshop` is not in a mount of `/home/me/work`."""
    own = [Mount("8:1", "/", "/", read_only=False), Mount("8:2", "/", "/w", read_only=False)]
    mounts = ExpectedMounts(("bwrap", "--ro-bind", "/wide", "/x"), [Path("/wide")], (), own)
    mounts.check([Mount("8:1", "/wide", "/x", read_only=True)])


def test_a_line_of_mountinfo_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    line = r"36 35 98:0 /mnt\0401 /mnt\134\0122 ro,noatime master:1 - ext3 /dev/root rw,errors=x"
    assert Mount.decode(line) == Mount("98:0", "/mnt 1", "/mnt\\\n2", read_only=True)
    assert any(mount.point == "/" for mount in read_mounts("self"))
    odd = "36 35 98:0 / /a\x0cb\x85c\u2028d rw - ext3 /dev/root rw\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: odd * 2)
    assert [mount.point for mount in read_mounts("self")] == ["/a\x0cb\x85c\u2028d"] * 2
