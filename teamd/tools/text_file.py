"""One text file of the workspace: opened, read by pages, replaced at once; errors are sentences."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from hashlib import sha256
from io import BytesIO
from itertools import islice
from typing import BinaryIO, Final

from teamd.errors import StoreError
from teamd.files import files
from teamd.files.rewrite import rewrite
from teamd.tools import ToolError
from teamd.tools.versions import LARGEST_BYTES, version_in, version_of, version_of_large
from teamd.tools.workspace import Workspace, not_a_file, path_in

_BOM: Final = "\ufeff"
_LF: Final = "\n"
_CRLF: Final = "\r\n"
_LINE_END: Final = re.compile("\r?\n")
_MOST_COMPARED: Final = 1 << 18  # pairs of lines: comparing takes time in proportion at best


def name_line_endings(data: bytes) -> str:
    """Return which line endings a text has; empty if all are LF."""
    crlf, ends = data.count(b"\r\n"), data.count(b"\n")
    if crlf == 0:
        return ""
    return "CRLF line endings" if crlf == ends else f"mixed line endings: {crlf} CRLF of {ends}"


class Replacement:
    """The replacement of every occurrence of a text in the text of a file.

    Attributes:
        count: how often the old text occurs.
        first: the place of its first occurrence, -1 without one.
    """

    def __init__(self, text: str, old: str, new: str) -> None:
        end = _only_line_end(text)
        if end == _CRLF:
            old, new = _LINE_END.sub(end, old), _LINE_END.sub(end, new)
        self._text, self._old, self._new = text, old, new
        self._mixed: re.Pattern[str] | None = None
        if end is None and _LF in old + new:
            parts = re.split("(?<!\r)\n", old)  # a CR LF in it matches nothing but a CR LF
            self._mixed = re.compile("\r?\n".join(map(re.escape, parts)))
            found = self._mixed.search(text)
            self.first = found.start() if found else -1
            self.count = sum(1 for _ in self._mixed.finditer(text))
        else:
            self.first, self.count = text.find(old), text.count(old)

    @property
    def size(self) -> int:
        """The length of the new text; an estimate in a file with mixed line endings."""
        return len(self._text) + self.count * (len(self._new) - len(self._old))

    def apply(self) -> str:
        """Return the text with its new parts; everything around them is as it was."""
        if self._mixed is None:
            replaced = self._text.replace(self._old, self._new)
        else:
            replaced = "".join(self._parts(self._mixed))
        return _keep_mark(self._text, replaced)

    def _parts(self, mixed: re.Pattern[str]) -> Iterator[str]:
        end = 0
        for match in mixed.finditer(self._text):
            yield self._text[end : match.start()]
            end = match.end()
            around = _line_end_near(self._text, match.start(), end)
            yield _take_line_ends(match.group(), self._new, around)
        yield self._text[end:]


def take_form(before: str, content: str) -> str:
    """Return content with the byte order mark and the line endings of the text it replaces.

    Content that has a CR LF itself keeps its line endings.
    """
    content = _keep_mark(before, content)
    if _CRLF in content:
        return content
    end = _only_line_end(before)
    if end is None:
        around = _line_end_near(before, len(before), len(before))
        return _take_line_ends(before, content, around)
    return content if end == _LF else content.replace(_LF, end)


def _keep_mark(before: str, text: str) -> str:
    if text and before.startswith(_BOM) and not text.startswith(_BOM):
        return _BOM + text
    return text


def _only_line_end(text: str) -> str | None:
    """Return the line ending of a text, LF if it has no line ending; `None` if it has both."""
    crlf = text.count(_CRLF)
    if crlf == 0:
        return _LF
    return _CRLF if crlf == text.count(_LF) else None


def _line_end_near(text: str, start: int, end: int) -> str:
    """Return the next line ending after a part of a text, else the last one before it."""
    at = text.find(_LF, end)
    if at < 0:
        at = text.rfind(_LF, 0, start)
    return _CRLF if at > 0 and text[at - 1] == "\r" else _LF


def _take_line_ends(old: str, new: str, around: str) -> str:
    """Return the new text with the old one's line endings.

    A kept line keeps its ending, a replacing line takes the replaced one's; an added line has the
    ending of the line before it.

    Args:
        old: the text that is replaced.
        new: the text in its place, with LF for each line ending to be found.
        around: the ending of the line that the old text ends in.
    """
    old_lines, old_ends = _split(old)
    lines, ends = _split(new)
    old_ends[-1] = around
    partners = _pair(old_lines, lines)
    previous, taken = old_ends[0], list[str]()
    for at, (line, end) in enumerate(zip(lines, ends, strict=True)):
        if end:
            partner = partners.get(at)
            own = previous if partner is None else old_ends[partner]
            previous = own if end == _LF else end
            taken.append(line + previous)
        else:
            taken.append(line)
    return "".join(taken)


def _split(text: str) -> tuple[list[str], list[str]]:
    """Return the lines of a text, and the ending of each; the last line has none."""
    *whole, last = text.split(_LF)
    ends = [_CRLF if line.endswith("\r") else _LF for line in whole]
    return [*(line.removesuffix("\r") for line in whole), last], [*ends, ""]


def _pair(old: list[str], new: list[str]) -> dict[int, int]:
    """Map the lines of a new text, by number, to the equal or replaced old lines."""
    most = min(len(old), len(new))
    head = next((at for at in range(most) if old[at] != new[at]), most)
    rest = range(1, most - head + 1)
    tail = next((at - 1 for at in rest if old[-at] != new[-at]), most - head)
    pairs = {at: at for at in range(head)}
    pairs |= {len(new) - at: len(old) - at for at in range(1, tail + 1)}
    old, new = old[head : len(old) - tail], new[head : len(new) - tail]
    blocks = [(0, len(old), 0, len(new))]
    if len(old) * len(new) <= _MOST_COMPARED:
        compared = SequenceMatcher(None, old, new, autojunk=False)
        blocks = [code[1:] for code in compared.get_opcodes()]
    for old_start, old_end, start, end in blocks:
        both = zip(range(start, end), range(old_start, old_end), strict=False)
        pairs |= {head + at: head + partner for at, partner in both}
    return pairs


_NAMES_COMPARED: Final = 2000
_CHUNK: Final = 1 << 20  # read between two looks at the rest of the loop
_LINE_COST: Final = 64  # the cost of a line in time, expressed in bytes
_LONGEST_CHARACTER: Final = 4
_PROBE: Final = 8192  # where a NUL tells a binary file
_COUNTED_BYTES: Final = 256 << 20  # further than this the lines that follow are not counted


_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class NotText(ValueError):
    """The file holds a NUL or invalid UTF-8; `str()` names the encoding if it is known."""


class TextFile:
    """The file that a model's path means; `shown` is its name in sentences.

    Every method raises `ToolError` if it fails.
    """

    def __init__(self, workspace: Workspace, path: str) -> None:
        self._workspace = workspace
        self.place: Final = workspace.resolve(path)
        self.shown: Final = workspace.shown(self.place)

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open it for reading; errors in the block, such as `NotText`, become a `ToolError`."""
        with self._translate_errors(), os.fdopen(self._workspace.open(self.place), "rb") as file:
            yield file

    def version(self) -> str | None:
        """Return its present version; `None` if the file does not exist."""
        with self._translate_errors():
            try:
                fd = self._workspace.open(self.place)
            except FileNotFoundError:
                return None
            with os.fdopen(fd, "rb") as file:
                return version_in(file)

    def text(self) -> tuple[str, str]:
        """Return all of it, line ends as they are, and its version."""
        with self.open() as file:
            data = file.read(LARGEST_BYTES + 1)
            _refuse_binary(data)
            if len(data) > LARGEST_BYTES:
                most = f"{LARGEST_BYTES >> 20} MiB"
                raise ToolError(f"{self.shown} is larger than {most}; use bash sed")
            return data.decode(), version_of(data)

    def replaced_text(self) -> str:
        """Return the text that new content replaces; empty if none can be read."""
        try:
            return self.text()[0]
        except ToolError:
            return ""

    def check_writable(self) -> None:
        """Check that it may be written to."""
        if self._workspace.is_base(self.place):
            raise ToolError(not_a_file(self.shown, stat.S_IFDIR))
        self._workspace.check_writable(self.place)

    def replace(self, data: bytes, confirm: Callable[[], None] = lambda: None) -> None:
        """Replace its content and keep its other properties, see `rewrite`; or create it.

        Missing folders are made. A failure leaves the old content, and so does an exception from
        `confirm`, which is called at the last moment.
        """
        self.check_writable()
        with self._translate_errors(), self._workspace.folder(self.place, create=True) as folder:
            path = path_in(folder, self.place)
            try:
                if self._exists(folder):
                    rewrite(path, data, confirm=confirm)
                else:
                    files.replace(path, data, mode=None, confirm=confirm)
            except StoreError as error:
                raise ToolError(str(error).replace(str(path), self.shown)) from error

    def _exists(self, folder: int) -> bool:
        """Return whether the file exists; raise `ToolError` if it is not a writable file."""
        name = self.place.name
        try:
            kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(kind):
            raise ToolError(not_a_file(self.shown, kind))
        if not os.access(name, os.W_OK, dir_fd=folder):
            # A rename would work, but the right to write was removed on purpose.
            raise ToolError(
                f"{self.shown} is read-only; if you need to change it, run chmod with bash first"
            )
        return True

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except NotText as error:
            if not str(error):
                raise self._not_utf8() from error
            mend = f"convert it with bash: iconv -f {error} -t UTF-8"
            raise ToolError(f"{self.shown} is {error} text, not UTF-8; {mend}") from error
        except UnicodeDecodeError as error:
            raise self._not_utf8() from error
        except FileNotFoundError as error:
            raise ToolError(f"{self.shown} does not exist{self._similar_names()}") from error
        except OSError as error:
            raise ToolError(f"{self.shown}: {error.strerror or error}") from error

    def _not_utf8(self) -> ToolError:
        return ToolError(f"{self.shown} is not UTF-8 text; look at it with bash: file, xxd, iconv")

    def _similar_names(self) -> str:
        """The end of the sentence about a missing file: names that may have been meant."""
        try:
            with self._workspace.folder(self.place) as folder, os.scandir(folder) as entries:
                names = {one.name.lower(): one.name for one in islice(entries, _NAMES_COMPARED)}
        except OSError:
            return ", nor does its folder"
        near = [names[name] for name in get_close_matches(self.place.name.lower(), names)]
        return f"; near it: {', '.join(near)}" if near else ""


def encode(text: str) -> bytes:
    """Return the bytes of a text.

    Raises:
        ToolError: the text cannot be encoded as UTF-8.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        why = f"character {error.start + 1} of the text is half of a surrogate pair"
        mend = "leave it out or give the whole character"
        raise ToolError(f"{why}, which no UTF-8 file can hold; {mend}") from error


async def take_snapshot(file: BinaryIO) -> tuple[BinaryIO, str]:
    """Read a file once, so that the shown text and the version belong together.

    A file that is too large is read in place.
    """
    if (version := version_of_large(file)) is not None:
        return file, version
    digest, content = sha256(), BytesIO()
    while (chunk := file.read(_CHUNK)) and content.tell() <= LARGEST_BYTES:
        digest.update(chunk)
        content.write(chunk)
        await asyncio.sleep(0)
    content.seek(0)
    return content, digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some lines of a file.

    Attributes:
        text: the lines, numbered as by `cat -n`; empty if the file ends before `offset`.
        end: the number of the last line shown, or of the file's last line if none is shown.
        more: how many lines follow; `None` if too many follow to be counted.
        cut: if the only line shown was too long: how many bytes are shown, and how many it has.
    """

    text: str
    end: int
    more: int | None
    cut: tuple[int, int] | None = None


async def read_page(file: BinaryIO, *, offset: int, limit: int, room: int) -> Page:
    """Read `limit` lines from line `offset` on, or as many as fit into `room` bytes.

    At least one line is shown, cut if needed.

    Raises:
        NotText: a shown line is not text.
    """
    probe = file.read(_PROBE)
    _refuse_binary(probe)
    file.seek(len(codecs.BOM_UTF8) if probe.startswith(codecs.BOM_UTF8) else 0)
    lines = _Lines(file)
    for number in range(1, offset):
        if not (await lines.next(_CHUNK))[1]:
            return Page(text="", end=number - 1, more=0)
    shown: list[str] = []
    end = offset - 1
    while end < offset - 1 + limit:
        prefix = f"{end + 1:6}\t"
        budget = room - len(prefix) if shown else max(room - len(prefix), _LONGEST_CHARACTER)
        start = file.tell()
        data, size = await lines.next(max(budget, 0) + 1)
        fits = len(data) == size and len(data.removesuffix(b"\n")) <= budget
        if not size or (shown and not fits):
            file.seek(start)
            break
        text = _decode(data if fits else data[:budget], whole=fits)
        shown.append(prefix + text)
        end += 1
        if not fits:
            cut = (len(text.encode()), size)
            return Page(text=shown[0], end=end, more=await lines.count(), cut=cut)
        room -= len(prefix) + size
    return Page(text="\n".join(shown), end=end, more=await lines.count())


def describe_form(file: BinaryIO, *, start: bool, end: bool) -> str:
    """Name unusual properties of a text that its lines do not show; empty if it has none.

    Args:
        file: its line endings are counted, unless it is too large for memory.
        start: whether its first line is shown.
        end: whether its last line is shown.
    """
    file.seek(0)
    data = file.getvalue() if isinstance(file, BytesIO) else file.read(_CHUNK)
    found = [name_line_endings(data)]
    if start and data.startswith(codecs.BOM_UTF8):
        found.append("UTF-8 BOM")
    if end and file.seek(0, os.SEEK_END):
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            found.append("no newline at the end")
    return "; ".join(filter(None, found))


class _Lines:
    """A file's lines one by one; lets the loop run after every MiB."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._since_pause = 0

    async def next(self, keep: int) -> tuple[bytes, int]:
        """The next line's first `keep` bytes and its size, newline counted; 0 at the end."""
        data = part = self._file.readline(keep)
        size = len(data)
        while part and not part.endswith(b"\n"):
            await self._pause(len(part))
            part = self._file.readline(_CHUNK)
            size += len(part)
        await self._pause(len(part))
        return data, size

    async def count(self) -> int | None:
        """Count the lines that follow; `None` if that takes longer than a moment."""
        count, size, end = 0, 0, b"\n"
        while chunk := self._file.read(_CHUNK):
            count += chunk.count(b"\n")
            size += len(chunk)
            if size > _COUNTED_BYTES:
                return None
            end = chunk[-1:]
            await self._pause(len(chunk))
        return count + (end != b"\n")

    async def _pause(self, size: int) -> None:
        self._since_pause += size + _LINE_COST
        if self._since_pause > _CHUNK:
            self._since_pause = 0
            await asyncio.sleep(0)


def _refuse_binary(data: bytes) -> None:
    if data.startswith(_UTF16) and not data.startswith(codecs.BOM_UTF32_LE):
        raise NotText("UTF-16")
    if b"\0" in data:
        raise NotText


def _decode(data: bytes, *, whole: bool) -> str:
    """The line as text without its end; a partial line may end in half a character."""
    if b"\0" in data:
        raise NotText
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=whole)
    except UnicodeDecodeError as error:
        raise NotText from error
    return text.removesuffix("\n").removesuffix("\r") if whole else text
