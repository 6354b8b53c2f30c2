"""The file tools: read, write and edit text in the workspace, and nowhere else."""

from __future__ import annotations

from codecs import BOM_UTF8
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any, BinaryIO, Final

from pydantic import Field

from teamd.tools import Input, Tool, ToolError
from teamd.tools.text_file import (
    NotText,
    Page,
    Replacement,
    TextFile,
    describe_form,
    encode,
    name_line_endings,
    read_page,
    take_form,
    take_snapshot,
)
from teamd.tools.versions import LARGEST_BYTES, Changing, Versions, version_of
from teamd.tools.workspace import Workspace

_DEFAULT_LINES: Final = 2000


class _FileInput(Input):
    """A file by its path."""

    path: str

    def identity(self) -> dict[str, Any]:
        """Return all values, with the path in its shortest spelling: `./x` is `x`."""
        return {**super().identity(), "path": str(PurePath(self.path))}


class ReadInput(_FileInput):
    """A file, and the lines to read."""

    offset: int = Field(default=1, gt=0, description="the first line")
    limit: int = Field(default=_DEFAULT_LINES, gt=0, description="how many lines")


class WriteInput(_FileInput):
    """A file, and all of its new content."""

    content: str


class EditInput(_FileInput):
    """A file, a text in it and its replacement."""

    old_text: str
    new_text: str
    replace_all: bool = False


@dataclass(kw_only=True)
class ReadFile(Tool[ReadInput]):
    """Shows text files; `output_bytes` bounds the text of one result."""

    workspace: Workspace
    versions: Versions
    output_bytes: int

    name = "read_file"
    description = (
        "Read a text file of the workspace, each line with its number and a tab before it. "
        "A long one comes by pages: what it ends with tells where to go on."
    )

    async def call(self, arguments: ReadInput, _key: str) -> str:
        found = TextFile(self.workspace, arguments.path)
        with found.open() as file:
            page, form = await self._read(found, file, arguments)
        if page.text:
            return "\n".join([page.text, *_notes(page, form)])
        if page.end == 0:
            return f"[{found.shown} is empty]"
        size = f"{found.shown} has {_count(page.end, 'line')}"
        raise ToolError(f"{size}; offset {arguments.offset} is past its end")

    async def _read(self, found: TextFile, file: BinaryIO, asked: ReadInput) -> tuple[Page, str]:
        """Read a page and name the file's form; record the lines that the teammate has seen."""
        content, version = await take_snapshot(file)
        start, limit = asked.offset, asked.limit
        note = partial(self.versions.note_read, found.place, version)
        try:
            page = await read_page(content, offset=start, limit=limit, room=self.output_bytes)
        except NotText:  # it knows that now, and cannot know more
            note(first=1, last=0, more=False)
            raise
        if page.text or page.end == 0:
            note(first=start if page.end else 1, last=page.end, more=page.more != 0)
        return page, describe_form(content, start=start == 1, end=page.more == 0)


@dataclass(kw_only=True)
class WriteFile(Tool[WriteInput]):
    """Creates a file, or replaces all of its content; its other properties stay."""

    workspace: Workspace
    versions: Versions

    name = "write_file"
    description = (
        "Write a text file of the workspace: a new one, with the folders it needs, or all of an "
        "existing one anew, which you must have read as it is now. To change a part of a file use "
        "edit_file."
    )

    async def call(self, arguments: WriteInput, _key: str) -> str:
        file, content = TextFile(self.workspace, arguments.path), arguments.content
        encode(content)  # before anything is read
        file.check_writable()
        with self.versions.changing() as change:
            change.check(file.place, file.shown, file.version(), whole=True)
            written = take_form(file.replaced_text(), content)
            data = encode(written)
            _replace(file, data, change, whole=True)
        lines = len(content.removesuffix("\n").split("\n")) if data else 0
        said = f"wrote {_count(lines, 'line')}, {_count(len(data), 'byte')} to {file.shown}"
        return said if written == content else f"{said}; kept {_name_form(data)}"


@dataclass(kw_only=True)
class EditFile(Tool[EditInput]):
    """Replaces a text in a file and leaves everything else as it is, including the line endings."""

    workspace: Workspace
    versions: Versions

    name = "edit_file"
    description = (
        "Replace old_text by new_text in a text file of the workspace. old_text must stand there "
        "exactly, white space included and without the line numbers of read_file, and only once "
        "unless replace_all is true. Read the file first; once somebody else has changed it, again."
    )

    async def call(self, arguments: EditInput, _key: str) -> str:
        file = TextFile(self.workspace, arguments.path)
        _check(arguments)
        with self.versions.changing() as change:
            text, version = file.text()
            file.check_writable()
            change.check(file.place, file.shown, version, whole=False)
            new, said = _edit(text, arguments, file.shown)
            _replace(file, encode(new), change, whole=False)
        return said


def _replace(file: TextFile, data: bytes, change: Changing, *, whole: bool) -> None:
    """Replace a file; record the writer before it, and the known version after it.

    Commands do not wait for the lock: one may have changed the file while the new content was
    synced.
    """
    version = version_of(data)
    change.begin(file.place, version)
    file.replace(data, lambda: change.check(file.place, file.shown, file.version(), whole=whole))
    change.end(file.place, version)


def _edit(text: str, arguments: EditInput, shown: str) -> tuple[str, str]:
    """Return the changed text, and the result for the model.

    Raises:
        ToolError: the old text does not occur, or too often.
    """
    change = Replacement(text, arguments.old_text, arguments.new_text)
    if (count := change.count) == 0:
        mend = "give it exactly, with its white space and without line numbers"
        raise ToolError(f"old_text was not found in {shown}; look with read_file and {mend}")
    if count > 1 and not arguments.replace_all:
        mend = "give more of what is around it, or set replace_all"
        raise ToolError(f"old_text occurs {count} times in {shown}; {mend}")
    if change.size > LARGEST_BYTES:
        raise ToolError(f"{shown} would become larger than {LARGEST_BYTES >> 20} MiB")
    if (new := change.apply()) == text:
        mend = "change those with bash, such as sed -i 's/\\r$//'"
        raise ToolError(f"edit_file keeps line endings and byte order mark of {shown}; {mend}")
    line = text.count("\n", 0, change.first) + 1
    where = f"in line {line}" if count == 1 else f"the first in line {line}"
    said = f"replaced {_count(count, 'occurrence')} in {shown}, {where}"
    return new, said


def _check(arguments: EditInput) -> None:
    if not arguments.old_text:
        raise ToolError("old_text is empty; give the text to replace, or use write_file")
    if arguments.old_text == arguments.new_text:
        raise ToolError("old_text and new_text are the same; nothing to do")


def _name_form(data: bytes) -> str:
    """Name the properties of a file's form that were kept."""
    bom = "UTF-8 BOM" if data.startswith(BOM_UTF8) else ""
    return " and ".join(filter(None, [name_line_endings(data), bom]))


def _notes(page: Page, form: str) -> list[str]:
    notes = [f"[{form}]"] if form else []
    if page.cut:
        there = f"{page.cut[0]} of its {page.cut[1]} bytes"
        notes.append(f"[line {page.end} is cut: {there}; bash cut -b shows the others]")
    if page.more != 0:
        more = "many more lines" if page.more is None else _count(page.more, "more line")
        notes.append(f"[… {more}; go on with offset={page.end + 1}]")
    return notes


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
