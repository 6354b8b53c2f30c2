"""Finds the paths in the workspace that git's settings name, and keeps harmless settings.

See git-config(1).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# Other settings can make git run programs or read settings from other files.
_HARMLESS: Final = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode"
    r"|symlinks)|extensions\.(objectformat|refstorage)|user\.(name|email)|init\.defaultbranch"
)
_SECTION: Final = re.compile(r"\s*\[\s*([A-Za-z0-9.-]+)\s*\]\s*(?:[#;].*)?")
_VARIABLE: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*([^\"\\#;\n]*)")
_ANY_SECTION: Final = re.compile(r'\s*\[\s*([A-Za-z0-9.-]+)\s*(?:"(?:[^"\\]|\\.)*")?\s*\]')
_ANY_VALUE: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*(.*)")
_CONTINUED: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\\n")  # not after an escaped backslash
_ESCAPES: Final = {"n": "\n", "t": "\t", "b": "\b"}
_MOST_FILES: Final = 20  # because files can include each other
_LARGEST_BYTES: Final = 1 << 20


def named_by_settings(workspace: Path, git: Path | None) -> Iterator[tuple[str, bool]]:
    """Yield the hook folders and settings files in a workspace that git's settings name.

    Args:
        workspace: the folder; the yielded paths are relative to it.
        git: its repository; without one, only the person's own settings are read.

    Yields:
        A path, and whether git reads a file there.
    """
    own = () if git is None else (git / "config", git / "config.worktree")
    sources = [*own, *_of_person()]
    for file in sources:  # the loop adds included files
        for kind, value in _paths_in(_read(file)):
            # Hook paths are relative to the working tree, included files to the including one.
            base = workspace if kind == "hooks" else file.parent
            found = Path(os.path.normpath(base / os.path.expanduser(value)))  # noqa: PTH111
            if kind == "file" and found not in sources and len(sources) < _MOST_FILES:
                sources.append(found)
            if found != workspace and found.is_relative_to(workspace):
                yield str(found.relative_to(workspace)), kind == "file"


def _of_person() -> Iterator[Path]:
    """Yield the files with settings for all repositories, see FILES in git-config(1)."""
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    named = os.environ.get("GIT_CONFIG_GLOBAL")
    for name in ("/etc/gitconfig", "~/.gitconfig", f"{folder}/git/config", named):
        if name:
            yield Path(os.path.expanduser(name))  # noqa: PTH111 -- without a home


def keep_harmless(content: str) -> str:
    """Return only the settings that neither run a program nor include a file."""
    kept, section = [], ""
    for line in content.splitlines():
        if found := _SECTION.fullmatch(line):
            section = found.group(1).lower()
            kept.append(f"[{section}]")
        elif (found := _VARIABLE.fullmatch(line)) and _HARMLESS.fullmatch(
            f"{section}.{found.group(1).lower()}"
        ):
            kept.append(f"\t{found.group(1)} = {found.group(2).strip()}")
        elif line.strip():
            section = section if line.strip().startswith(("#", ";")) or found else ""
    return "".join(f"{line}\n" for line in kept)


def _paths_in(content: str) -> Iterator[tuple[str, str]]:
    """Yield the paths in settings, each with its kind: `hooks` or `file`."""
    section = ""
    for line in _CONTINUED.sub(r"\1", content.replace("\r\n", "\n")).split("\n"):
        rest = line
        if found := _ANY_SECTION.match(line):
            section, rest = found.group(1).lower(), line[found.end() :]
        if not (found := _ANY_VALUE.match(rest)):
            continue
        name, value = found.group(1).lower(), _plain(found.group(2))
        if value and (section, name) == ("core", "hookspath"):
            yield "hooks", value
        elif value and section in ("include", "includeif") and name == "path":
            yield "file", value


def _plain(value: str) -> str:
    """Return a value without its comment, quotes and escapes."""
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"?|((?:[^"\\#;]|\\.)+)|[#;].*', value.strip())
    joined = "".join(map("".join, parts)).strip()
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), joined)


def _read(path: Path) -> str:
    """Return the start of a regular file, or an empty text for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        found = os.read(fd, _LARGEST_BYTES) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        return found.decode(errors="surrogateescape")
    finally:
        os.close(fd)
