"""New content for a person's file: all metadata stays, whether by a rename or in place."""

from __future__ import annotations

import errno
import os
import resource
import signal
import struct
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from teamd.errors import StoreError
from teamd.files.rewrite import rewrite

ACL = "system.posix_acl_access"
DEFAULT_ACL = "system.posix_acl_default"
SOMEBODY = 65534
ORDINARY = os.geteuid() != 0

linux = pytest.mark.skipif(sys.platform != "linux", reason="Python reads attributes on Linux only")
root = pytest.mark.skipif(ORDINARY, reason="only root gives files away")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("old")
    return path


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can reach and write to."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


@contextmanager
def ordinary_user() -> Iterator[None]:
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(SOMEBODY)
    os.seteuid(SOMEBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def acl(user: int) -> bytes:
    """An ACL that lets one more user write."""
    nobody = 0xFFFFFFFF
    entries = [(1, 6, nobody), (2, 6, user), (4, 4, nobody), (16, 6, nobody), (32, 4, nobody)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def set_attribute(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            pytest.skip("the file system has no such attributes")
        raise


def test_a_reader_keeps_the_whole_old_content(file: Path) -> None:
    with file.open() as reading:
        rewrite(file, b"new")
        assert reading.read() == "old"
    assert file.read_text() == "new"
    assert list(file.parent.iterdir()) == [file]


def test_the_mode_stays_without_setuid(file: Path) -> None:
    file.chmod(0o4750)
    rewrite(file, b"new")
    assert file.stat().st_mode & 0o7777 == 0o750


@linux
def test_attributes_and_acl_stay(file: Path) -> None:
    set_attribute(file, "user.origin", b"a person")
    set_attribute(file, ACL, acl(1234))
    mode = file.stat().st_mode
    rewrite(file, b"new")
    assert os.getxattr(file, "user.origin") == b"a person"
    assert os.getxattr(file, ACL) == acl(1234)
    assert file.stat().st_mode == mode


@linux
def test_a_rewritten_file_does_not_inherit_an_acl_from_its_folder(file: Path) -> None:
    set_attribute(file.parent, DEFAULT_ACL, acl(1234))
    rewrite(file, b"new")
    assert ACL not in os.listxattr(file)


@linux
@root
def test_the_capabilities_of_a_program_are_not_kept_for_new_content(file: Path) -> None:
    raw = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
    with suppress(OSError):
        os.setxattr(file, "security.capability", raw)
    if "security.capability" not in os.listxattr(file):
        pytest.skip("the file system has no such attributes")
    rewrite(file, b"new")
    assert "security.capability" not in os.listxattr(file)


def test_all_hard_links_of_a_file_have_the_new_content(file: Path) -> None:
    other = file.with_name("other")
    other.hardlink_to(file)
    rewrite(file, b"longer than before")
    assert other.read_text() == "longer than before"
    rewrite(other, b"short")
    assert file.read_text() == "short"
    assert file.samefile(other)


@root
def test_root_keeps_the_owner_of_a_file(file: Path) -> None:
    os.chown(file, 1234, 4321)
    before = file.stat().st_ino
    rewrite(file, b"new")
    found = file.stat()
    assert (found.st_uid, found.st_gid, found.st_ino != before) == (1234, 4321, True)


@root
@pytest.mark.parametrize(("owner", "group"), [(0, 0), (SOMEBODY, 4321)])
def test_an_ordinary_user_keeps_the_owner_of_a_file(shared: Path, owner: int, group: int) -> None:
    """A user may write to the file but not change its owner."""
    file = shared / "file"
    file.write_text("old")
    file.chmod(0o666)
    os.chown(file, owner, group)
    with ordinary_user():
        rewrite(file, b"new")
    assert file.read_text() == "new"
    assert (file.stat().st_uid, file.stat().st_gid) == (owner, group)
    assert list(shared.iterdir()) == [file]


@root
@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_a_file_in_a_folder_of_another_user_is_written(shared: Path, mode: int) -> None:
    """The folder forbids new files, or forbids the replacement of another user's file."""
    file = shared / "file"
    file.write_text("old")
    file.chmod(0o666)
    shared.chmod(mode)
    with ordinary_user():
        rewrite(file, b"new")
    assert file.read_text() == "new"


@pytest.mark.parametrize("names", [1, 2])
def test_a_full_disk_leaves_the_old_content(file: Path, names: int) -> None:
    """Also in place, although its beginning was already overwritten."""
    if names == 2:
        file.with_name("other").hardlink_to(file)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(StoreError, match="no space left"):
            rewrite(file, b"x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert file.read_text() == "old"
    assert len(list(file.parent.iterdir())) == names


@pytest.mark.parametrize("names", [1, 2])
def test_a_failed_confirmation_leaves_the_old_content(file: Path, names: int) -> None:
    if names == 2:
        file.with_name("other").hardlink_to(file)

    def refuse() -> None:
        raise ValueError("changed meanwhile")

    with pytest.raises(ValueError, match="changed meanwhile"):
        rewrite(file, b"new", confirm=refuse)
    assert file.read_text() == "old"
    assert len(list(file.parent.iterdir())) == names
