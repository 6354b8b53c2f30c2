"""A team's file is opened only if it is regular, private and owned by the user, and no link."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from teamd import control
from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.board.board import Board
from teamd.budget.ledger import Ledger
from teamd.control import ControlReply
from teamd.errors import StoreError, StrangeFile
from teamd.files import directories, files, find_team, locks, pidfile
from teamd.files.paths import TeamPaths
from teamd.files.safe_open import safe_open
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.messages import LEAD, Message
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.tools.background import INTERRUPTED, LOST, Jobs
from teamd.tools.output import OutputFile
from teamd.transcript.file import Transcript
from teamd.transcript.records import TaskBegun
from tests.shells import opened

NOBODY = 65534
READS = os.O_RDONLY
MAKES = os.O_RDWR | os.O_CREAT
PRECIOUS = b"precious\n"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file of the user that does not belong to a team."""
    made = tmp_path / "precious"
    made.write_bytes(PRECIOUS)
    return made


def link(place: Path, outside: Path) -> None:
    place.symlink_to(outside)


def dangling(place: Path, outside: Path) -> None:
    place.symlink_to(outside.with_name("new"))


def hard_link(place: Path, outside: Path) -> None:
    place.hardlink_to(outside)


def fifo(place: Path, _: Path) -> None:
    os.mkfifo(place)


def unix_socket(place: Path, _: Path) -> None:
    folder = os.open(place.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{folder}/{place.name}")  # a socket path must be short
    os.close(folder)


def device(place: Path, _: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a device")
    os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(1, 3))


def of_another_user(place: Path, _: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    place.write_bytes(b"")
    os.chown(place, NOBODY, NOBODY)


STRANGE: dict[Callable[[Path, Path], None], str] = {
    link: "is a symbolic link, which is not followed in a team directory; put the file itself",
    dangling: "is a symbolic link, which is not followed in a team directory; put the file itself",
    hard_link: "is a hard link: the same file has another name as well; put a copy in its place",
    fifo: "is not a regular file; move it away",
    unix_socket: "is not a regular file; move it away",
    device: "is not a regular file; move it away",
    of_another_user: f"is another user's (uid {NOBODY}); move it away, or put a copy",
}
strange = pytest.mark.parametrize("make", STRANGE, ids=lambda make: make.__name__)


@strange
@pytest.mark.parametrize("flags", [READS, MAKES, os.O_WRONLY, MAKES | os.O_TRUNC])
def test_a_foreign_file_is_refused_with_advice(
    make: Callable[[Path, Path], None], flags: int, paths: TeamPaths, outside: Path
) -> None:
    place = paths.inbox("bob")
    make(place, outside)
    with pytest.raises(StrangeFile) as caught:
        safe_open(place, flags)
    assert str(caught.value).startswith(f"{place} {STRANGE[make]}")
    assert outside.read_bytes() == PRECIOUS
    assert not outside.with_name("new").exists()


@pytest.mark.parametrize("flags", [READS, MAKES])
@pytest.mark.parametrize("level", ["jobs", "jobs/bob"])
def test_a_folder_that_is_a_link_is_not_followed(
    paths: TeamPaths, tmp_path: Path, level: str, flags: int
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "bob").mkdir(parents=True)
    (elsewhere / "1.json").touch()
    (elsewhere / "bob/1.json").touch()
    place = paths.root / level
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(elsewhere)
    with pytest.raises(StrangeFile) as caught:
        safe_open(paths.jobs("bob") / "1.json", flags)
    said = "is a symbolic link, which is not followed in a team directory; put the folder itself"
    assert str(caught.value).startswith(f"{place} {said}")
    with pytest.raises(StrangeFile, match=f"{level} is a symbolic link"):
        directories.list_files(paths.jobs("bob"), "*")
    with pytest.raises(StrangeFile, match=f"{level} is a symbolic link"):
        files.remove(paths.jobs("bob") / "1.json")
    assert (elsewhere / "1.json").exists()


USES: dict[str, tuple[str, Callable[[TeamPaths], object]]] = {
    "send": ("inbox/bob.jsonl", lambda paths: Mailbox(paths, "bob").put(mail())),
    "take": ("inbox/bob.jsonl", lambda paths: Mailbox(paths, "bob").take()),
    "peek": ("inbox/bob.jsonl", lambda paths: Mailbox(paths, "bob").peek()),
    "count": ("inbox/bob.jsonl", lambda paths: Mailbox(paths, "bob").queued()),
    "taken": ("inbox/bob.taken.jsonl", lambda paths: Mailbox(paths, "bob").take()),
    "rejected": ("inbox/bob.rejected.jsonl", lambda paths: Mailbox(paths, "bob").rejected()),
    "roster": ("config.json", lambda paths: Roster(paths).read()),
    "roster's lock": ("config.lock", lambda paths: Roster(paths).update(lambda team: team)),
    "ledger": ("ledger.jsonl", lambda paths: Ledger(paths.ledger).read()),
    "spending": ("ledger.jsonl", lambda paths: Ledger(paths.ledger).let_go("bob")),
    "transcript": ("transcripts/bob.jsonl", lambda paths: list(talk(paths).records())),
    "conversation": ("transcripts/bob.jsonl", lambda paths: talk(paths).append(TaskBegun())),
    "board's lock": ("tasks/board.lock", lambda paths: board(paths).add("x")),
    "approval": ("requests/abcd.json", lambda paths: approvals(paths).find("abcd")),
    "reply": ("replies/abcd.json", lambda paths: control.collect(paths, "abcd")),
    "pid file": ("teamd.pid", pidfile.supervisor),
    "claim": ("teamd.pid", pidfile.claim),
    "instance lock": ("lives/bob.lock", lambda paths: locks.InstanceLock(paths.life("bob"))),
    "output": ("jobs/bob/1.out", lambda paths: OutputFile(paths.jobs("bob") / "1.out", 100)),
}


@strange
@pytest.mark.parametrize("use", USES)
def test_every_function_that_uses_a_team_file_refuses_a_foreign_one(
    make: Callable[[Path, Path], None], use: str, paths: TeamPaths, outside: Path
) -> None:
    name, work = USES[use]
    place = paths.root / name
    directories.make_private_directory(place.parent)
    place.unlink(missing_ok=True)
    make(place, outside)
    with pytest.raises(StoreError) as caught:
        work(paths)
    assert str(caught.value).startswith(f"{place} {STRANGE[make]}")
    assert outside.read_bytes() == PRECIOUS
    assert not outside.with_name("new").exists()


@strange
def test_one_foreign_file_does_not_hide_a_task_an_approval_or_a_job(
    make: Callable[[Path, Path], None], paths: TeamPaths, outside: Path
) -> None:
    board(paths).add("x")
    asked = approvals(paths).ask(
        Approval(type=Kind.PLAN, asker="bob", to=LEAD, content="x", asked=1.0)
    )
    directories.make_private_directory(paths.jobs("bob"))
    for place in (paths.task("2"), paths.request("abcd"), paths.jobs("bob") / "7.json"):
        make(place, outside) if place != paths.request("abcd") else link(place, outside)
    tasks = board(paths).read()
    assert (list(tasks.by_id), list(tasks.damaged)) == (["1"], ["2"])
    assert tasks.damaged["2"].startswith(f"{paths.task('2')} {STRANGE[make]}")
    assert [one.id for one in approvals(paths).all()] == [asked.id]
    (job,) = Jobs(paths.jobs("bob"), ring=print).all()
    assert (job.id, job.what, job.state) == ("7", LOST, INTERRUPTED)


@strange
def test_a_log_is_written_only_inside_the_team_directory(
    make: Callable[[Path, Path], None], paths: TeamPaths, outside: Path
) -> None:
    """Its writer neither fails nor blocks."""
    make(paths.log("bob"), outside)
    journal = Journal(paths.log("bob"), "bob")
    journal.note("begins")
    journal.close()
    assert outside.read_bytes() == PRECIOUS
    assert not outside.with_name("new").exists()


@pytest.mark.parametrize("name", ["replies", "requests", "tasks", "inbox", "transcripts"])
def test_nothing_is_written_through_a_linked_folder(
    paths: TeamPaths, tmp_path: Path, name: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (paths.root / name).rename(elsewhere)
    (paths.root / name).symlink_to(elsewhere)
    before = {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")}
    asked = Approval(type=Kind.PLAN, asker="bob", to=LEAD, content="x", asked=1.0)
    work: dict[str, Callable[[], object]] = {
        "replies": lambda: control.reply(paths, "abcd", ControlReply(text="x")),
        "requests": lambda: approvals(paths).ask(asked),
        "tasks": lambda: board(paths).add("x"),
        "inbox": lambda: Mailbox(paths, "bob").put(mail()),
        "transcripts": lambda: talk(paths).append(TaskBegun()),
    }
    with pytest.raises(StrangeFile, match="put the folder itself in its place"):
        work[name]()
    assert {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")} == before
    with pytest.raises(StrangeFile, match="put the folder itself in its place"):
        paths.create()


def test_a_file_that_replaces_the_locked_one_is_not_written_to(
    paths: TeamPaths, outside: Path
) -> None:
    """The checks use the descriptor, and the name is compared with it once more."""
    with locks.locked(paths.inbox("bob")) as fd:
        paths.inbox("bob").rename(paths.root / "kept")
        paths.inbox("bob").symlink_to(paths.root / "kept")
        assert not locks.stands_under(fd, paths.inbox("bob"))


def test_a_team_directory_that_is_a_link_is_refused_unless_named(
    paths: TeamPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder made by someone else may contain a link to any folder of the user."""
    monkeypatch.delenv("TEAMD_DIR", raising=False)
    cloned = tmp_path / "cloned"
    (cloned / ".teams").mkdir(parents=True)
    (cloned / ".team").symlink_to(paths.root)
    (cloned / ".teams" / "web").symlink_to(paths.root)
    monkeypatch.chdir(cloned)
    said = r"/\.team is a symbolic link.*; name the folder that it leads to, with --team-dir or"
    for look in (find_team.existing, find_team.existing_or_here):
        with pytest.raises(StrangeFile, match=said):
            look(None)
    with pytest.raises(StrangeFile, match="/web is a symbolic link"):
        find_team.existing(None, "web")
    assert find_team.all_teams(cloned) == []
    assert find_team.existing(".team") == paths


def test_an_approval_under_another_name_is_ignored(paths: TeamPaths) -> None:
    """Its answer would be written to the path that its id names."""
    asked = Approval(id="../../evil", type=Kind.PLAN, asker="bob", to=LEAD, content="x", asked=1.0)
    paths.request("abcd").write_bytes(asked.encode())
    assert approvals(paths).find("abcd") is None
    assert approvals(paths).all() == []
    assert list(approvals(paths).repeat()) == []
    assert not (paths.home / "evil.json").exists()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277, 0o777])
def test_new_files_are_private_and_fully_accessible_to_their_owner_with_any_umask(
    tmp_path: Path, umask: int
) -> None:
    """With umask 0777 only root could reopen a file before its mode is corrected."""
    paths = TeamPaths(tmp_path / "deep" / "er" / ".team")
    before = os.umask(umask)
    try:
        paths.create()
        Mailbox(paths, "bob").put(mail())
        Mailbox(paths, "bob").take()
        Roster(paths).update(lambda team: team.with_new("bob", role="x", status=Status.IDLE))
        talk(paths).append(TaskBegun())
        board(paths).add("x")
        Ledger(paths.ledger).let_go("bob")
        jobs = paths.jobs("bob")
        directories.make_safe_directory(jobs)
        with OutputFile(jobs / "1.out", 100):
            pass
        journal = Journal(paths.log("bob"), "bob")
        journal.note("begins")
        journal.close()
        locks.InstanceLock(paths.life("bob"))
        control.reply(paths, "abcd", ControlReply(text="x"))
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in paths.root.rglob("*")}
    assert modes == {path: 0o700 if path.is_dir() else 0o600 for path in modes}
    assert len(modes) > 20
    assert stat.S_IMODE(paths.root.stat().st_mode) == 0o700


def test_a_team_directory_that_others_could_read_is_closed_to_them(paths: TeamPaths) -> None:
    for folder in (paths.root, paths.inboxes):
        folder.chmod(0o755)
    paths.create()
    assert [stat.S_IMODE(f.stat().st_mode) for f in (paths.root, paths.inboxes)] == [0o700] * 2


def test_a_named_folder_of_the_user_keeps_its_mode(tmp_path: Path) -> None:
    """With `--team-dir .` in a project, or `--team-dir /` as root, others work there, too."""
    own = tmp_path / "project"
    (own / "logs").mkdir(parents=True)
    for folder in (own, own / "logs"):
        folder.chmod(0o755)
    with pytest.raises(
        StoreError, match="contains something other than a team; name a folder that is"
    ):
        TeamPaths(own).create()
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (own, own / "logs")] == [0o755] * 2


def test_every_foreign_file_is_found(paths: TeamPaths, outside: Path, tmp_path: Path) -> None:
    assert list(directories.find_strange(paths)) == []
    link(paths.inbox("bob"), outside)
    fifo(paths.config, outside)
    (paths.root / "jobs").mkdir()
    link(paths.root / "jobs" / "bob", tmp_path)
    hard_link(paths.task("1"), outside)
    paths.replies.rmdir()
    link(paths.replies, tmp_path)
    (paths.root / "skills").mkdir()
    link(paths.root / "skills" / "mine", tmp_path)  # the person's own, for reading
    found = [str(error).split(" is ")[0] for error in directories.find_strange(paths)]
    there = (paths.config, paths.inbox("bob"), paths.task("1"), paths.replies, paths.jobs("bob"))
    assert set(found) == set(map(str, there))


def test_a_refusal_leaks_no_descriptor(paths: TeamPaths, outside: Path) -> None:
    hard_link(paths.inbox("bob"), outside)
    before = opened()
    for _ in range(3):
        with suppress(StrangeFile):
            files.read(paths.inbox("bob"))
    assert opened() - before == set()


def mail() -> Message:
    return Message(sender="lead", to="bob", content="x")


def talk(paths: TeamPaths) -> Transcript:
    return Transcript(paths.transcript("bob"))


def post(paths: TeamPaths) -> MailRouter:
    return MailRouter(paths, durable=False, max_bytes=10_000)


def board(paths: TeamPaths) -> Board:
    return Board(paths, post(paths), LEAD, durable=False)


def approvals(paths: TeamPaths) -> Approvals:
    return Approvals(paths, post(paths))
