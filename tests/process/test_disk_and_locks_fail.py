"""Failing syncs, unsynced file names, and file systems without working locks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from teamd.mail.mailbox import Mailbox
from tests.e2e.harness import Project
from tests.process.injected.injections import STRACE, script

pytestmark = pytest.mark.strace

# With seccomp, system calls that are not traced run at full speed.
FAST_STRACE = (str(STRACE), "-f", "--seccomp-bpf")
APPENDS = """
import sys
from pathlib import Path
from teamd.errors import StoreError
from teamd.files import files
try:
    getattr(files, sys.argv[1])(Path(sys.argv[2]), b"mine\\n")
except StoreError as error:
    print(error)
"""


SETTLES = """
import sys
from pathlib import Path
from teamd.errors import StoreError
from teamd.transcript.file import Transcript
transcript = Transcript(Path(sys.argv[1]))
transcript.append_lines(b"unsafe\\n", durable=False)
transcript.append_lines(b"unsafe as well\\n", durable=False)
for attempt in (transcript.settle, lambda: transcript.append_lines(b"later\\n", durable=False)):
    try:
        attempt()
    except StoreError as error:
        print(error)
"""


def strace(argv: list[str], log: Path, *words: str) -> str:
    """Run a program under strace, which writes the trace to the log; return its output."""
    call = [*FAST_STRACE, "-qq", "-y", "-o", str(log), *words, "--", *argv]
    return subprocess.run(call, check=True, timeout=60, stdout=subprocess.PIPE, text=True).stdout


def test_a_send_that_the_disk_does_not_confirm_explains_how_to_repeat_it(project: Project) -> None:
    """After a failed sync the next one succeeds without writing anything ("fsyncgate").

    So the sync is not repeated: the line may arrive, and a repeated send with the same id is no
    second message.
    """
    project.enlist("bob")
    call = ("teamctl", "send", "bob", "Hello.", "--id", "a1", "--from", "ci")
    words = ("-qq", "-o", "/dev/null", "-e", "trace=fdatasync")
    failed = project.run(*FAST_STRACE, *words, "-e", "inject=fdatasync:error=EIO", *call)
    assert failed.status == 1
    assert re.fullmatch(
        r"teamctl: the disk failed while \S+/bob.jsonl was written \(Input/output error\): what "
        r"was sent may arrive or not; look after the disk, then send it again with `--id a1`, and "
        r"it arrives once",
        failed.complaint,
    )
    project.do(*call)
    first, *rest = Mailbox(project.paths, "bob").peek()
    assert all(message.is_same_as(first) for message in rest)


def test_a_record_that_was_not_synced_is_removed_from_the_conversation(tmp_path: Path) -> None:
    """Mail is forgotten once it is recorded; a record only in memory would not last."""
    path = tmp_path / "jo.jsonl"
    path.write_bytes(b"old\n")
    argv = script(APPENDS, "append_alone", path)
    words = ("-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO")
    assert "Input/output error" in strace(argv, tmp_path / "trace", *words)
    assert path.read_bytes() == b"old\n"


def test_after_a_failed_sync_all_unsynced_records_are_removed_and_later_writes_fail(
    tmp_path: Path,
) -> None:
    """Otherwise the next process would find a result whose call was never recorded."""
    path = tmp_path / "jo.jsonl"
    path.write_bytes(b"old\n")
    words = ("-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=1")
    said = strace(script(SETTLES, path), tmp_path / "trace", *words)
    assert said.count("Input/output error") == 2
    assert path.read_bytes() == b"old\n"


@pytest.mark.parametrize(("how", "left"), [("append", True), ("append_alone", False)])
def test_a_file_s_name_is_synced_before_its_first_line(
    tmp_path: Path, how: str, left: bool
) -> None:
    """With `left`, a killed writer has created the file without syncing its name."""
    path, log = tmp_path / "team" / "bob.jsonl", tmp_path / "trace"
    path.parent.mkdir()
    if left:
        path.touch()
    trace = ("-e", "trace=fsync,fdatasync,pwrite64")
    strace(script(APPENDS, how, path), log, *trace)
    calls = re.findall(rf"(\w+)\(\d+<{path.parent}(/\S+)?>", log.read_text(encoding="utf-8"))
    assert calls == [
        ("fsync", ""),
        ("pwrite64", "/bob.jsonl"),
        ("fdatasync", "/bob.jsonl"),
    ]
    strace(script(APPENDS, how, path), log, *trace)
    assert "fsync(" not in log.read_text(encoding="utf-8"), "a name is synced once"


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("retval=0", r"locks have no effect in \S+/.team: its file system has no working flock"),
        ("error=ENOLCK", r"the file system of \S+ has no working locks"),
    ],
)
def test_teamd_does_not_start_without_working_locks(
    project: Project, fault: str, sentence: str
) -> None:
    """Some network and FUSE file systems accept every `flock`; everything else relies on it."""
    words = ("-qq", "-o", "/dev/null", "-e", "trace=flock", "-e", f"inject=flock:{fault}")
    refused = project.run(*FAST_STRACE, *words, "teamd", "start", "--foreground")
    assert refused.status == 1
    assert re.search(f"teamd: {sentence}; put the team on a local disk", refused.complaint)
    assert not project.paths.supervisor.exists()
    assert not list(project.paths.root.glob(".teamd-*"))
    looked = project.run(
        *FAST_STRACE, *words, "teamctl", "--team-dir", str(project.paths.root), "doctor"
    )
    assert looked.status == 1
    assert "put the team on a local disk" in looked.stdout
