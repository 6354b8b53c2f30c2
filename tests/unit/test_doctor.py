"""`teamctl doctor`: its findings on settings, files, sandbox, the model's server, and machines."""

from __future__ import annotations

import errno
import gc
import getpass
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar, NamedTuple, NoReturn

import pytest

from teamctl.doctor import Finding, Level, machine
from teamctl.doctor.hosts import check_hosts
from teamctl.doctor.machine import check_machine, find_conflict_copies
from teamctl.doctor.model import check_model
from teamd.command_line.installation import install_command
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.process_id import Identity
from teamd.sandbox.build import placeholders_of
from teamd.sandbox.placeholders import RunningCommand
from teamd.sandbox.protected_paths import PathState, ProtectedPath
from teamd.settings import Settings
from teamd.settings.schema import HostSettings, ModelSettings
from teamd.settings.trust import TrustStore
from tests.shells import mounted
from tests.strict.server import StrictServer, by_name
from tests.unit.life import call
from tests.unit.screen import add


class Usage(NamedTuple):
    """The space of a disk, as `shutil.disk_usage` returns it."""

    total: int
    used: int
    free: int


def find(word: str, paths: TeamPaths | None = None) -> list[Finding]:
    return [one for one in check_machine(paths) if word in one.what]


@contextmanager
def open_files(limit: int) -> Iterator[None]:
    """Limit this process to file descriptors below this number."""
    gc.collect()  # descriptors that earlier tests left open in reference cycles
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_programs_bash_is_a_failure_and_teamd_is_called_by_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (bash,) = find("bash")
    assert (bash.level, bash.remedy) == (Level.FAIL, "install bash")
    (teamd,) = find("teamd is not on the PATH")
    own = Path(sys.argv[0]).resolve().parent / "teamd"
    assert (teamd.level, teamd.remedy) == (Level.NOTE, f"call it as {own}")


@pytest.mark.parametrize(("limit", "level"), [(255, Level.FAIL), (256, Level.OK)])
def test_a_low_limit_on_open_files_is_a_failure(limit: int, level: Level) -> None:
    with open_files(limit):
        (found,) = find("files may be open")
    assert found.level is level
    assert ("only 255 files" in found.what) == (level is Level.FAIL)


@pytest.mark.parametrize(("free", "level"), [(100 << 20, Level.OK), (99 << 20, Level.FAIL)])
def test_a_full_disk_is_reported_in_mebibytes_with_its_path(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch, free: int, level: Level
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 30, 0, free))
    (found,) = [*find("MiB", paths), *find("space on the disk", paths)]
    assert found.level is level
    full = f"only 99 MiB are free for {paths.root}"
    assert found.what == ("there is space on the disk" if level is Level.OK else full)


def test_a_team_that_never_ran_is_not_a_problem(tmp_path: Path) -> None:
    (tmp_path / ".team").mkdir()
    (found,) = find("no team has run", TeamPaths(tmp_path / ".team"))
    assert found.level is Level.OK


def test_without_free_watches_late_mail_is_reported(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux allows 128 per user, which other tests need too."""

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("teamd.files.watch.Inotify", refuse)
    (found,) = find("the system's watches", paths)
    assert found.level is Level.NOTE
    assert found.what.endswith("mail is seen after half a second")
    assert "max_user_instances" in found.remedy


@pytest.mark.parametrize("lingers", [True, False])
def test_lingering_under_systemd_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, lingers: bool
) -> None:
    monkeypatch.setattr(machine, "_SYSTEMD", tmp_path)
    monkeypatch.setattr(machine, "_LINGER", tmp_path)
    user = getpass.getuser()
    if lingers:
        (tmp_path / user).touch()
    (found,) = find("lingering")
    if lingers:
        assert (found.level, found.what.split(":")[0]) == (Level.OK, "lingering is on")
    else:
        assert (found.level, found.remedy) == (Level.NOTE, f"loginctl enable-linger {user}")


def test_without_systemd_lingering_is_not_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_SYSTEMD", tmp_path / "none")
    assert find("lingering") == []


@pytest.mark.parametrize(
    ("battery", "states", "told"),
    [("BAT0", "freeze mem\n", 1), ("AC", "freeze mem\n", 0), ("BAT0", "\n", 0), ("BAT0", None, 0)],
)
def test_only_a_laptop_that_can_sleep_gets_advice_to_stay_awake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, battery: str, states: str | None, told: int
) -> None:
    (tmp_path / "supply" / battery).mkdir(parents=True)
    if states is not None:
        (tmp_path / "state").write_text(states)
    monkeypatch.setattr(machine, "_BATTERIES", tmp_path / "supply")
    monkeypatch.setattr(machine, "_SLEEP_STATES", tmp_path / "state")
    found = find("may suspend")
    assert len(found) == told
    assert all("systemd-inhibit" in one.remedy for one in found)


class Answers(BaseHTTPRequestHandler):
    """A server that answers each request with the same status and text."""

    given: ClassVar[tuple[int, bytes]]
    location: ClassVar[str] = "/elsewhere"

    def do_GET(self) -> None:
        """Answer."""
        status, text = self.given
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Location", self.location)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base's name
        """Suppress the log."""


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server, and a key for it."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-1")
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "text", "level", "sentence"),
    [
        (200, b'{"id": "m"}', Level.OK, "takes the key and knows m"),
        (200, b'{"models": []}', Level.NOTE, "answers, and does not tell which models it knows"),
        (200, b"[1]", Level.NOTE, "answers, and does not tell which models it knows"),
        (200, b"<html>", Level.NOTE, "answers, and does not tell which models it knows"),
        (403, b"", Level.FAIL, "refuses the key (403)"),
        (402, b"", Level.FAIL, "refuses the account (402)"),
        (404, b"", Level.NOTE, "knows no model 'm', or does not tell"),
        (405, b"", Level.NOTE, "knows no model 'm', or does not tell"),
        (503, b"", Level.NOTE, "answered 503"),
    ],
)
def test_each_answer_of_the_model_server_is_explained_in_a_sentence(
    base: str, status: int, text: bytes, level: Level, sentence: str
) -> None:
    Answers.given = status, text
    settings = Settings(model=ModelSettings(name="m", base_url=base))
    *_, found = check_model(settings, None)
    assert (found.level, found.what) == (level, f"{base} {sentence}")


@pytest.mark.parametrize("status", [404, 405])
@pytest.mark.parametrize(
    ("name", "level", "sentence"),
    [
        ("small", Level.OK, "takes the key and lists small"),
        ("tiny", Level.OK, "takes the key and lists tiny"),  # as `tiny:latest`
        ("big", Level.NOTE, "knows no model 'big'; it lists small, tiny:latest"),
    ],
)
def test_a_model_without_a_page_is_looked_up_in_the_list(
    monkeypatch: pytest.MonkeyPatch, name: str, level: Level, sentence: str, status: int
) -> None:
    models = ("small", "tiny:latest")
    with StrictServer(by_name({}), models=models, no_page_status=status) as server:
        for variable, value in server.environment.items():
            monkeypatch.setenv(variable, value)
        *_, found = check_model(Settings(model=ModelSettings(name=name)), None)
    assert (found.level, found.what) == (level, f"{server.url} {sentence}")


def test_a_redirect_is_not_followed_and_is_a_failure(base: str) -> None:
    """The key would go with it."""
    Answers.given = 307, b""
    Answers.location = "http://me:pass-word@elsewhere.example/v1/models/m"
    settings = Settings(model=ModelSettings(name="m", base_url=base))
    *_, found = check_model(settings, None)
    assert found.level is Level.FAIL
    assert found.what == f"{base} redirects to http://elsewhere.example"


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("ALL_PROXY", "socks://localhost:1080", "ALL_PROXY names a socks:// proxy"),
        ("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem", "REQUESTS_CA_BUNDLE names /nowhere/ca.pem"),
    ],
)
def test_an_environment_that_cannot_reach_a_server_is_a_failure(
    variable: str, value: str, words: str, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    Answers.given = 200, b"{}"
    found = list(check_model(Settings(model=ModelSettings(name="m", base_url=base)), None))
    (failure,) = (one for one in found if one.level is Level.FAIL)
    assert words in failure.what
    assert "unset" in failure.remedy


@pytest.mark.parametrize(
    "key", ["sk-ant-secret\n", "sk-ant-secret\nmore", " sk-ant-secret", "sk-ant-sécret"]
)
def test_a_malformed_key_is_a_failure_and_is_not_shown(
    base: str, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    settings = Settings(model=ModelSettings(base_url=base))
    (finding,) = check_model(settings, None)
    assert finding.level is Level.FAIL
    assert "it holds a space, a line end or a character outside ASCII" in finding.what
    assert "sk-ant" not in finding.what + finding.remedy


def test_a_failing_key_command_is_reported_with_a_remedy() -> None:
    settings = Settings(model=ModelSettings(key_command="exit 3"))
    (found,) = check_model(settings, None)
    assert (found.level, found.remedy) == (Level.FAIL, "mend [model] key_command in team.toml")


def test_hosts_without_their_package_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(hosts=HostSettings(name="h1", servers=("tls://x:4222",)))
    assert list(check_hosts(settings, None)) == []
    monkeypatch.setitem(sys.modules, "nats", None)
    (found,) = check_hosts(settings, None)
    assert (found.level, found.remedy) == (Level.FAIL, install_command("hosts"))


def test_credentials_need_a_package_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nkeys", None)
    hosts = HostSettings(name="h1", servers=("tls://x:4222",))
    assert list(check_hosts(Settings(hosts=hosts), None)) == []
    (found,) = check_hosts(Settings(hosts=replace(hosts, creds=Path("h1.creds"))), None)
    assert (found.level, found.remedy) == (Level.FAIL, install_command("hosts"))


def findings(paths: TeamPaths, settings: str = "") -> tuple[int, dict[str, tuple[str, str]]]:
    """Return the exit status, and the findings with their levels and remedies."""
    (paths.home / "turns.json").write_text('{"turns": {}}')
    file = paths.home / "team.toml"
    file.write_text(f'[model]\nscript = "turns.json"\n{settings}')
    TrustStore().confirm(file, file.read_bytes())
    done = call(paths, "doctor", "--json")
    found = json.loads(done.out)["findings"]
    return done.status, {one["what"]: (one["level"], one["remedy"]) for one in found}


def test_commands_without_a_sandbox_are_noted(paths: TeamPaths) -> None:
    _, found = findings(paths, '[tools]\nsandbox = "off"\n')
    level, _ = found['[tools] sandbox is "off": commands run with your rights']
    assert level == "note"


def test_a_sandbox_that_cannot_be_created_is_a_failure(
    paths: TeamPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    status, found = findings(paths)
    why = "there is no sandbox, so commands are refused: bubblewrap is not installed"
    assert (status, found[why][0]) == (1, "fail")
    assert "apt install bubblewrap" in found[why][1]


def test_damaged_tasks_and_a_damaged_roster_are_failures(paths: TeamPaths) -> None:
    (paths.tasks / "7.json").write_text("{")
    paths.config.write_text("[]")
    status, found = findings(paths)
    failures = " ".join(what for what, (level, _) in found.items() if level == "fail")
    assert status == 1
    assert str(paths.tasks / "7.json") in failures
    assert str(paths.config) in failures


def test_without_a_team_the_other_checks_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    out = call(None, "doctor").out
    assert "there is no team here yet\n      `teamd start` makes one\n" in out
    assert "the settings are right" in out


@pytest.mark.parametrize("below", ["", "new/project/.team"])
def test_a_folder_in_which_no_team_can_be_created_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    """`teamd start` would refuse it."""
    monkeypatch.chdir(tmp_path)
    words = ["--team-dir", str(tmp_path / below)] if below else []
    assert "cannot make a team" not in call(None, *words, "doctor").out
    with mounted(tmp_path, "--bind", str(tmp_path)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(tmp_path)], check=True)
        monkeypatch.chdir(tmp_path)
        done = call(None, *words, "doctor")
    assert done.status == 1
    said = f"FAIL  {tmp_path} may not be written to, so `teamd start` cannot make a team there"
    assert said in done.out


def test_an_invalid_team_name_is_a_failure_and_no_settings_are_read() -> None:
    done = call(None, "--team", "a b", "doctor")
    assert (done.status, done.err) == (1, "")
    assert "FAIL  'a b' cannot be a team's name; " in done.out
    assert "the settings are right" not in done.out


def test_unreadable_mail_is_noted(paths: TeamPaths) -> None:
    """Also mail of the person, who is not in the roster."""
    paths.inbox("lead").write_bytes(b'\xef\xbb\xbf{"content": "a"}\n[{"content": "b"}]\n')
    Mailbox(paths, "lead", durable=False).take()
    status, found = findings(paths)
    (what,) = (one for one in found if "mail" in one and "could not be read" in one)
    assert what == (
        "2 lines of mail to lead could not be read (1: it begins with a byte order mark "
        "(BOM), 1: it is a JSON array; write one object per line): "
        f"send them again in the right form, then remove {paths.rejected('lead')}"
    )
    assert (status, found[what]) == (0, ("note", "`teamctl help files` shows the form"))


@pytest.mark.parametrize(
    "name",
    [
        "config (Ann's conflicted copy 2026-11-28).json",  # Dropbox
        "config (conflicted copy 2026-11-28 101112).json",  # Nextcloud
        "config_conflict-20261128-101112.json",  # ownCloud
        "inbox/bob.sync-conflict-20261128-101112-ABCDEFG.jsonl",  # Syncthing
        "config-LAPTOP.json",  # OneDrive
        "inbox/bob-LAPTOP.jsonl",
        "tasks/7-LAPTOP.json",
        "ledger (1).jsonl",  # Google Drive
        "config 2.json",  # iCloud
        "config.Conflict.json",  # Resilio
    ],
)
def test_a_conflict_copy_of_a_synced_drive_is_a_failure(paths: TeamPaths, name: str) -> None:
    add(paths, "bob")
    for original in ("inbox/bob.jsonl", "tasks/7.json"):
        (paths.root / original).touch()
    copy = paths.root / name
    copy.touch()
    status, found = findings(paths)
    what = f"{copy} is a conflict copy of a synced drive: two machines have written that file"
    assert (status, found[what][0]) == (1, "fail")


def test_files_of_teammates_with_similar_names_are_not_conflict_copies(paths: TeamPaths) -> None:
    for name in ("bob", "bob-2"):
        add(paths, name)
        for path in (paths.inbox(name), paths.rejected(name), paths.transcript(name)):
            path.touch()
    (paths.root / "config.damaged-17.json").touch()
    assert find_conflict_copies(paths, ["bob", "bob-2"]) == []


def test_files_of_a_removed_teammate_are_not_conflict_copies(paths: TeamPaths) -> None:
    """`teamctl rm` keeps them, and removing them would lose its conversation."""
    add(paths, "bob")
    for name in ("bob", "bob-old"):
        for path in (paths.lives / f"{name}.lock", paths.inbox(name), paths.transcript(name)):
            path.touch()
    assert find_conflict_copies(paths, ["bob"]) == []


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (Path.mkdir, "it is a folder; remove it, or name a file of settings"),
        (lambda path: path.symlink_to("gone"), "it is a link to gone, which does not exist; "),
    ],
)
def test_a_settings_path_that_is_not_a_regular_file_is_a_failure(
    paths: TeamPaths, make: Callable[[Path], None], sentence: str
) -> None:
    file = paths.home / "team.toml"
    make(file)
    done = call(paths, "doctor")
    assert done.status == 1
    assert f"FAIL  {file}: {sentence}" in done.out


def test_a_placeholder_of_a_sandbox_is_not_a_settings_file(paths: TeamPaths) -> None:
    """It is an empty folder, and is removed after the last command."""
    file = paths.home / "team.toml"
    placeholders = placeholders_of(paths, paths.home)
    missing = ProtectedPath(file, PathState.MISSING)
    holder = RunningCommand(id="1", team=str(paths.root), process=Identity.own())
    placeholders.hold(lambda _, __: (holder, [] if file.exists() else [missing]))
    assert "the settings are right" in call(paths, "doctor").out
    placeholders.release(holder)
    file.mkdir()
    assert "the settings are right" not in call(paths, "doctor").out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
@pytest.mark.parametrize(("sandbox", "level"), [("auto", "fail"), ("off", None)])
def test_roots_commands_cannot_write_to_another_users_project(
    paths: TeamPaths, sandbox: str, level: str | None
) -> None:
    """In a sandbox root has no rights over the files of others."""
    os.chown(paths.home, 4242, -1)
    _, found = findings(paths, f'[tools]\nsandbox = "{sandbox}"\n')
    what = (
        f"{paths.home} belongs to user 4242, and commands that root starts in the sandbox "
        "cannot write there"
    )
    remedy = "run teamd as that user (in a container: `--user 4242`)"
    assert found.get(what) == (level and (level, remedy))


def test_a_workspace_that_contains_the_home_is_a_failure(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command is refused there, although a sandbox can be created."""
    monkeypatch.setenv("HOME", str(paths.home))
    status, found = findings(paths)
    (failure,) = (what for what in found if "there is no sandbox" in what)
    assert (status, found[failure][0]) == (1, "fail")
    if shutil.which("bwrap"):
        assert f"the workspace {paths.home} holds the person's home" in failure
