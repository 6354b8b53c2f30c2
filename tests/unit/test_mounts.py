"""What is mounted in a sandbox is compared with what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamd.sandbox.mounts import MeantMounts, Mount, decode_mounts, read_mounts
from teamd.sandbox.places import Place, PlaceState

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
    Mount("8:2", "/old", "/home", read_only=False),
    Mount("8:2", "/@home", "/home", read_only=False),  # hides the one before it
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
    Place(WORKSPACE / "e/f", PlaceState.FILE, (WORKSPACE / "e",)),
    Place(WORKSPACE / ".vscode", PlaceState.FOLDER),
    Place(WORKSPACE / "CLAUDE.md", PlaceState.LINK, (), "AGENTS.md"),
)


def check(mounts: dict[str, Mount]) -> None:
    MeantMounts(ARGV, [WORKSPACE], PLACES, OWN).check(mounts.values())


def test_what_was_meant_passes() -> None:
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
        ("~", Mount("8:2", "/@home/me", "/home/teammate", read_only=False)),
        ("/usr/share", Mount("8:2", "/@home", "/usr/share", read_only=True)),
        ("/dev/null", Mount("0:6", "/sda", "/dev/null", read_only=False)),
    ],
)
def test_a_mount_of_something_else_is_seen(name: str, mount: Mount) -> None:
    with pytest.raises(OSError, match="has just been replaced"):
        check({**MEANT, name: mount})


@pytest.mark.parametrize("name", ["f", ".vscode"])
def test_a_mount_that_came_off_is_seen(name: str) -> None:
    with pytest.raises(OSError, match="has just been replaced"):
        check({key: mount for key, mount in MEANT.items() if key != name})


def test_a_place_without_a_placeholder_is_seen() -> None:
    places = [*PLACES, Place(WORKSPACE / "deploy", PlaceState.MISSING)]
    with pytest.raises(OSError, match="deploy has just been replaced"):
        MeantMounts(ARGV, [WORKSPACE], places, OWN).check(MEANT.values())


def test_a_line_of_the_kernel_is_read() -> None:
    line = r"36 35 98:0 /mnt\0401 /mnt\134\0122 ro,noatime master:1 - ext3 /dev/root rw,errors=x"
    assert Mount.decode(line) == Mount("98:0", "/mnt 1", "/mnt\\\n2", read_only=True)
    odd = "36 35 98:0 / /a\x0cb\x85c\u2028d rw - ext3 /dev/root rw\n"
    assert [mount.point for mount in decode_mounts(odd * 2)] == ["/a\x0cb\x85c\u2028d"] * 2
    assert any(mount.point == "/" for mount in read_mounts("self"))
