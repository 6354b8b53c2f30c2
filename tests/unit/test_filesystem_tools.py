"""The file tools: the text that the model reads, and the files on disk afterwards."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.tools import Result, Toolbox
from teamd.tools.filesystem import EditFile, ReadFile, WriteFile
from teamd.tools.text_file import read_page
from teamd.tools.versions import Versions, WrittenFiles
from teamd.tools.workspace import Workspace
from tests.shells import opened

OUTPUT_BYTES = 1000


@pytest.fixture
def box(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Toolbox:
    workspace = Workspace(tmp_path, hidden=[tmp_path / ".team"])
    versions = Versions(WrittenFiles(tmp_path_factory.mktemp("state") / "written.jsonl"))
    return Toolbox(
        [
            ReadFile(workspace=workspace, versions=versions, output_bytes=OUTPUT_BYTES),
            WriteFile(workspace=workspace, versions=versions),
            EditFile(workspace=workspace, versions=versions),
        ]
    )


def run(box: Toolbox, name: str, **arguments: object) -> Result:
    return asyncio.run(box.run(name, arguments))


def read(box: Toolbox, path: str = "a", **arguments: object) -> str:
    result = run(box, "read_file", path=path, **arguments)
    assert not result.is_error, result.text
    return result.text


def refused(box: Toolbox, name: str, **arguments: object) -> str:
    result = run(box, name, **arguments)
    assert result.is_error, result.text
    return result.text


# reading


def test_lines_are_numbered_as_by_cat(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n\n\tthrée\n")
    assert read(box) == "     1\tone\n     2\t\n     3\t\tthrée"


def test_a_page_names_the_next_offset(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"{n}\n" for n in range(1, 11)))
    assert read(box, limit=2) == "     1\t1\n     2\t2\n[… 8 more lines; go on with offset=3]"
    assert read(box, offset=9, limit=1) == "     9\t9\n[… 1 more line; go on with offset=10]"
    assert read(box, offset=9) == "     9\t9\n    10\t10"


def test_the_last_line_counts_without_its_newline(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n3")
    assert read(box, limit=1).endswith("[… 2 more lines; go on with offset=2]")


def test_an_offset_past_the_end_is_reported(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n3")
    for offset in (4, 9):
        text = refused(box, "read_file", path="a", offset=offset)
        assert text == f"a has 3 lines; offset {offset} is past its end"
    (tmp_path / "a").write_text("")
    assert read(box) == "[a is empty]"


def test_a_long_file_is_bounded_in_bytes(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"{'ä' * 20}\n" for _ in range(100)))
    text, _, note = read(box).rpartition("\n")
    shown = text.count("\n") + 1
    assert OUTPUT_BYTES - 50 < len(text.encode()) <= OUTPUT_BYTES
    assert note == f"[… {100 - shown} more lines; go on with offset={shown + 1}]"


def test_a_very_long_line_is_cut_and_marked(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("first\n" + "ä" * 100_000 + "\nlast\n")
    assert read(box) == "     1\tfirst\n[… 2 more lines; go on with offset=2]"
    text, cut, more = read(box, offset=2).split("\n")
    assert len(text.encode()) in (OUTPUT_BYTES, OUTPUT_BYTES - 1)
    assert cut == (
        f"[line 2 is cut: {len(text.encode()) - 7} of its 200001 bytes; "
        "bash cut -b shows the others]"
    )
    assert more == "[… 1 more line; go on with offset=3]"


@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\n\0", codec="utf-8"), max_size=99)),
    room=st.integers(min_value=1, max_value=300),
    limit=st.integers(min_value=1, max_value=9),
    ends=st.booleans(),
)
def test_pages_hold_every_line_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], room: int, limit: int, ends: bool
) -> None:
    """Following the offsets misses no line, and no page exceeds its size limit."""
    path = tmp_path_factory.getbasetemp() / "pages"
    whole = "\n".join(lines) + "\n" * ends
    path.write_bytes(whole.encode())
    whole = whole.removeprefix("\ufeff")  # the byte order mark is not part of a line
    lines = whole.removesuffix("\n").split("\n") if whole else []
    seen: list[str] = []
    while True:
        with path.open("rb") as file:
            page = asyncio.run(read_page(file, offset=len(seen) + 1, limit=limit, room=room))
        if not page.text:
            break
        shown = page.text.split("\n")
        assert len(shown) <= limit
        assert len(page.text.encode()) <= max(room, 7 + 4)
        assert page.more == len(lines) - len(seen) - len(shown)
        for number, line in enumerate(shown, start=len(seen) + 1):
            assert line.startswith(f"{number:6}\t")
            meant = lines[number - 1]
            assert line[7:] in (meant, meant.removesuffix("\r")) or page.cut
            assert meant.startswith(line[7:])
        seen += shown
    assert len(seen) == len(lines)


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (b"1\n2\n", ""),
        (b"1\r\n2\r\n", "\n[CRLF line endings]"),
        (b"1\r\n2\n", "\n[mixed line endings: 1 CRLF of 2]"),
        (b"\xef\xbb\xbf1\n2\n", "\n[UTF-8 BOM]"),
        (b"1\n2", "\n[no newline at the end]"),
        (
            b"\xef\xbb\xbf1\r\n2",
            "\n[CRLF line endings; UTF-8 BOM; no newline at the end]",
        ),
    ],
)
def test_an_unusual_encoding_or_line_ending_is_named_below_the_lines(
    box: Toolbox, tmp_path: Path, data: bytes, note: str
) -> None:
    (tmp_path / "a").write_bytes(data)
    assert read(box) == f"     1\t1\n     2\t2{note}"


def test_an_unusual_encoding_or_line_ending_is_named_on_the_page_that_shows_it(
    box: Toolbox, tmp_path: Path
) -> None:
    """Line endings are named on every page, since they matter to an edit of it."""
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf1\n2\r\n3")
    ends = "mixed line endings: 1 CRLF of 2"
    assert f"\n[{ends}; UTF-8 BOM]\n" in read(box, limit=1)
    assert f"\n[{ends}]\n" in read(box, offset=2, limit=1)
    assert read(box, offset=3).endswith(f"\n[{ends}; no newline at the end]")


def test_utf_16_is_refused_by_name(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("hi", encoding="utf-16")
    for name, more in {"read_file": {}, "edit_file": {"old_text": "a", "new_text": "b"}}.items():
        text = refused(box, name, path="a", **more)
        assert text == "a is UTF-16 text, not UTF-8; convert it with bash: iconv -f UTF-16 -t UTF-8"


@pytest.mark.parametrize("data", [b"a\0b", b"\xff\xfe\0\0h\0\0\0", b"caf\xe9\n", b"\xed\xa0\x80"])
def test_binary_content_is_refused(box: Toolbox, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    for name, more in {"read_file": {}, "edit_file": {"old_text": "a", "new_text": "b"}}.items():
        text = refused(box, name, path="a", **more)
        assert text == "a is not UTF-8 text; look at it with bash: file, xxd, iconv"


def test_a_binary_file_that_begins_like_a_text_is_not_shown_as_text(
    box: Toolbox, tmp_path: Path
) -> None:
    """Its first lines are shown: only a part of the file is examined."""
    (tmp_path / "a").write_bytes(b"x\n" * 5000 + b"\0\n")
    assert read(box, limit=1).startswith("     1\tx\n")
    text = refused(box, "read_file", path="a", offset=5001)
    assert text == "a is not UTF-8 text; look at it with bash: file, xxd, iconv"


@pytest.mark.slow
def test_a_file_of_ten_gigabytes_is_read_by_pages(box: Toolbox, tmp_path: Path) -> None:
    """Also a single endless line: memory stays small, and the rest of the file is not counted."""
    with (tmp_path / "a").open("wb") as file:
        file.write(b"line\n" * 5000)
        file.truncate(10 << 30)
    tracemalloc.start()
    try:
        assert read(box, limit=1).endswith("[… many more lines; go on with offset=2]")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert "larger than 32 MiB" not in refused(
        box, "edit_file", path="a", old_text="line", new_text="x"
    )  # the refusal names its NUL bytes


def test_the_event_loop_runs_while_a_large_file_is_read(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * (20 << 20))

    async def both() -> int:
        reading = asyncio.create_task(box.run("read_file", {"path": "a"}))
        turns = 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(both()) > 10


# not regular files


@pytest.mark.parametrize("name", ["read_file", "write_file", "edit_file"])
@pytest.mark.parametrize("kind", ["folder", "root", "fifo", "socket", "null", "loop"])
def test_a_path_that_is_not_a_regular_file_is_refused_at_once(
    box: Toolbox, tmp_path: Path, name: str, kind: str
) -> None:
    """Opening a FIFO would block, and writing would replace it by a file."""
    arguments = {"write_file": {"content": "x"}, "edit_file": {"old_text": "x", "new_text": "y"}}
    path = tmp_path / "." if kind == "root" else tmp_path / "thing"
    with made(path, kind):
        before = path.lstat(), opened()
        text = refused(box, name, path=str(path), **arguments.get(name, {}))
        assert path.lstat().st_mode == before[0].st_mode
        assert opened() - before[1] == set()
    if kind in ("folder", "root"):
        assert text.endswith("is a directory; use bash ls")
    elif kind == "loop":
        assert text in ("thing: Too many levels of symbolic links", _not_a_file("thing"))
    else:
        assert text in (_not_a_file("thing"), "thing: No such device or address")


def _not_a_file(shown: str) -> str:
    return f"{shown} is not a regular file but a FIFO, a socket or a device; use bash"


@contextmanager
def made(path: Path, kind: str) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as unix:
        if kind == "folder":
            path.mkdir()
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "loop":
            path.symlink_to("thing")
        elif kind == "socket":
            here = Path.cwd()
            os.chdir(path.parent)  # a socket's path must be short, and a test's folder is not
            unix.bind(path.name)
            os.chdir(here)
        elif kind == "null":
            if os.geteuid():
                pytest.skip("only root makes devices")
            os.mknod(path, 0o020600, os.makedev(1, 3))
        yield


def test_a_missing_file_is_reported_with_similar_names(box: Toolbox, tmp_path: Path) -> None:
    for name in ("README.md", "settings.py", "other"):
        (tmp_path / name).touch()
    text = refused(box, "read_file", path="readme.txt")
    assert text == "readme.txt does not exist; near it: README.md"
    assert refused(box, "read_file", path="zzz") == "zzz does not exist"
    text = refused(box, "edit_file", path="src/a.py", old_text="a", new_text="b")
    assert text == "src/a.py does not exist, nor does its folder"


@pytest.mark.parametrize("path", ["../a", "/etc/passwd", ".team/config.json", "a\0b"])
@pytest.mark.parametrize("name", ["read_file", "write_file", "edit_file"])
def test_no_tool_reaches_a_forbidden_path(
    box: Toolbox, tmp_path: Path, name: str, path: str
) -> None:
    arguments = {"write_file": {"content": "x"}, "edit_file": {"old_text": "x", "new_text": "y"}}
    text = refused(box, name, path=path, **arguments.get(name, {}))
    assert str(tmp_path) in text or "no file can be called" in text
    assert list(tmp_path.iterdir()) == []


# writing


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "wrote 0 lines, 0 bytes to a"),
        ("x", "wrote 1 line, 1 byte to a"),
        ("é\n", "wrote 1 line, 3 bytes to a"),
        ("1\r\n2\n\n", "wrote 3 lines, 6 bytes to a"),
    ],
)
def test_written_content_is_on_disk(box: Toolbox, tmp_path: Path, content: str, told: str) -> None:
    assert run(box, "write_file", path="a", content=content) == Result(text=told)
    assert (tmp_path / "a").read_bytes() == content.encode()


def test_missing_folders_are_created(box: Toolbox, tmp_path: Path) -> None:
    run(box, "write_file", path="src/deep/a.py", content="x")
    assert (tmp_path / "src/deep/a.py").read_text() == "x"
    text = refused(box, "write_file", path="src/deep/a.py/b", content="x")
    assert text == "src/deep/a.py/b: Not a directory"


def test_modes_are_kept(box: Toolbox, tmp_path: Path) -> None:
    """A script stays executable, and a new file gets its mode from the umask."""
    script = tmp_path / "script"
    script.touch()
    script.chmod(0o750)
    before = os.umask(0o027)
    read(box, "script")
    try:
        run(box, "write_file", path="script", content="x")
        run(box, "write_file", path="new", content="x")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert script.stat().st_mode & 0o7777 == 0o750
    assert (tmp_path / "new").stat().st_mode & 0o7777 == 0o640


@pytest.mark.parametrize(
    ("before", "content", "after", "kept"),
    [
        (b"1\r\n2\n", "1\n3\n", b"1\r\n3\n", "; kept mixed line endings: 1 CRLF of 2"),
        (
            b"\xef\xbb\xbf1\r\n",
            "2\n",
            b"\xef\xbb\xbf2\r\n",
            "; kept CRLF line endings and UTF-8 BOM",
        ),
        (b"1\n", "1\r\n", b"1\r\n", ""),
        (b"caf\xe9\r\n", "1\n", b"1\n", ""),
    ],
)
def test_new_content_keeps_the_encoding_and_line_endings_of_the_old(  # noqa: PLR0917 -- pytest gives them by name
    box: Toolbox, tmp_path: Path, before: bytes, content: str, after: bytes, kept: str
) -> None:
    (tmp_path / "a").write_bytes(before)
    run(box, "read_file", path="a")
    text = run(box, "write_file", path="a", content=content).text
    assert (tmp_path / "a").read_bytes() == after
    assert text.removeprefix(text.partition(";")[0]) == kept


@pytest.mark.parametrize("name", ["write_file", "edit_file"])
def test_hard_links_of_a_file_change_with_it(box: Toolbox, tmp_path: Path, name: str) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    more = {"write_file": {"content": "new"}, "edit_file": {"old_text": "old", "new_text": "new"}}
    read(box)
    assert not run(box, name, path="a", **more[name]).is_error
    assert (tmp_path / "b").read_text() == "new"


def test_a_link_stays_a_link(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    read(box, "link")
    text = run(box, "write_file", path="link", content="new").text
    assert text == "wrote 1 line, 3 bytes to target"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


@pytest.mark.skipif(os.geteuid() == 0, reason="modes do not bind root")
def test_a_read_only_file_is_not_changed(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "a").chmod(0o444)
    read(box)
    assert "read-only" in refused(box, "write_file", path="a", content="new")
    assert (tmp_path / "a").read_text() == "old"


@contextmanager
def no_space() -> Iterator[None]:
    """Limit the size of files, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_full_disk_leaves_the_old_file(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    read(box)
    with no_space():
        written = refused(box, "write_file", path="a", content="x" * 10_000)
        edited = refused(box, "edit_file", path="a", old_text="old", new_text="x" * 10_000)
    assert written == edited == "no space left for a; free some and try again"
    assert (tmp_path / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("name", ["write_file", "edit_file"])
def test_lone_surrogates_are_refused(box: Toolbox, tmp_path: Path, name: str) -> None:
    (tmp_path / "a").write_text("old")
    read(box)
    arguments = {"content": "ab\udc80"} if name == "write_file" else {}
    if name == "edit_file":
        arguments = {"old_text": "old", "new_text": "ab\udc80"}
    assert "character 3 of the text is half" in refused(box, name, path="a", **arguments)
    assert (tmp_path / "a").read_text() == "old"


def test_a_name_that_is_too_long_is_reported(box: Toolbox) -> None:
    text = refused(box, "write_file", path="n" * 300, content="x")
    assert text.endswith("n: File name too long")


# editing


def edit(box: Toolbox, old: str, new: str, **more: object) -> Result:
    read(box)
    return run(box, "edit_file", path="a", old_text=old, new_text=new, **more)


def test_an_edit_changes_one_place(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\nthree")
    assert edit(box, "two", "2").text == "replaced 1 occurrence in a, in line 2"
    assert (tmp_path / "a").read_text() == "one\n2\nthree"


def test_several_matches_need_replace_all(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\nax\nx\n")
    assert edit(box, "x", "y") == Result(
        text="old_text occurs 3 times in a; give more of what is around it, or set replace_all",
        is_error=True,
    )
    assert (tmp_path / "a").read_text() == "x\nax\nx\n"
    told = edit(box, "x", "y", replace_all=True).text
    assert told == "replaced 3 occurrences in a, the first in line 1"
    assert (tmp_path / "a").read_text() == "y\nay\ny\n"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("", "x", "old_text is empty"),
        ("", "", "old_text is empty"),
        ("one", "one", "are the same"),
        ("zwei", "x", "was not found in a; look with read_file"),
    ],
)
def test_an_edit_without_effect_or_match_is_refused(
    box: Toolbox, tmp_path: Path, old: str, new: str, told: str
) -> None:
    (tmp_path / "a").write_text("one")
    result = edit(box, old, new)
    assert result.is_error
    assert told in result.text


@pytest.mark.parametrize(
    ("before", "old_new", "after"),
    [
        (b"\xef\xbb\xbf1\r\n2\r\n3", ("1\n2", "a\nb\nc"), b"\xef\xbb\xbfa\r\nb\r\nc\r\n3"),
        (b"1\r\n2\n", ("2\n", "a\nb\n"), b"1\r\na\nb\n"),
        (b"1\r2\x0c3\n", ("2", "b"), b"1\rb\x0c3\n"),
    ],
)
def test_line_endings_stay_as_they_are(
    box: Toolbox, tmp_path: Path, before: bytes, old_new: tuple[str, str], after: bytes
) -> None:
    """The model sees no CR, and lines outside the edit must not change."""
    (tmp_path / "a").write_bytes(before)
    assert not edit(box, *old_new).is_error
    assert (tmp_path / "a").read_bytes() == after


def test_an_edit_of_line_endings_alone_is_refused(box: Toolbox, tmp_path: Path) -> None:
    """It would change nothing and report success."""
    (tmp_path / "a").write_bytes(b"1\r\n2\r\n")
    told = edit(box, "1\r\n2", "1\n2")
    assert told.is_error
    assert told.text == (
        "edit_file keeps line endings and byte order mark of a; "
        "change those with bash, such as sed -i 's/\\r$//'"
    )


def test_an_edit_that_would_exhaust_the_memory_is_refused(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * (1 << 20))
    result = edit(box, "x", "y" * (1 << 20), replace_all=True)
    assert result == Result(text="a would become larger than 32 MiB", is_error=True)


def test_a_large_file_is_not_edited(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * (33 << 20))
    assert edit(box, "x", "y") == Result(
        text="a is larger than 32 MiB; use bash sed", is_error=True
    )
