"""Attacks that must fail in the sandbox, as root and as an ordinary user.

Each attack is a command that a model could give; each succeeds if its guard is removed from
`teamd/sandbox/bubblewrap.py` or its neighbours.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest

from teamd.errors import StoreError
from teamd.files.paths import TeamPaths
from teamd.programs import JOIN, reaper, run_to_end
from teamd.sandbox.build import build_shell, end_strays, remove_cgroups
from teamd.sandbox.probe import probe
from teamd.sandbox.shells import NoSandbox, SandboxedShell
from teamd.settings.schema import Settings, TeamSettings
from teamd.tools import Toolbox
from teamd.tools.shell import Bash
from tests.children import forked
from tests.process.sandboxed import commands
from tests.shells import opened, sandboxed_shell
from tests.waiting import until, wait_until

REPOSITORY: Final = Path(__file__).resolve().parents[2]
NOBODY: Final = 65534
# Every user may run it; the interpreter of the tests may be in a home closed to other users.
LAUNCHER: Final = REPOSITORY / "teamd/launcher"
PYTHON: Final = f"/usr/bin/python{sysconfig.get_python_version()}"
CANARY: Final = "sk-canary-4711"
IDENTITY: Final = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")


@dataclass(frozen=True, slots=True)
class World:
    """A workspace, its surroundings, and the user who owns them."""

    folder: Path
    uid: int
    others: Others

    @property
    def workspace(self) -> Path:
        """The folder that commands may write."""
        return self.folder / "workspace"

    def run(self, *lines: str, job: str = "", **policy: Any) -> list[str]:
        """Run commands as that user; return the model's view of each result.

        A job runs beside them; after it was stopped the first command runs once more.
        """
        document = {"policy": policy, "commands": lines, "job": job}
        if self.uid != os.geteuid():
            return self.others.run(self, document)
        asked = json.dumps(document)
        with forked(self._run) as process:
            with process.stdin as stdin:
                stdin.write(asked)
            found: list[str] = json.loads(process.stdout.read())
        return found

    def _run(self) -> None:
        given = self.environment
        os.environ.clear()
        os.environ.update(given)
        os.chdir(self.workspace)
        commands.main(self.folder)

    def start(self, asked: str) -> list[str]:
        """Run commands in a separate program, which starts with the person's environment."""
        python = PYTHON if self.uid == NOBODY else sys.executable
        done = self.execute(python, commands.__file__, str(self.folder), text=asked)
        found: list[str] = json.loads(done)
        return found

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "person"),
            "PYTHONPATH": f"{REPOSITORY}:{LAUNCHER}:{sysconfig.get_paths()['purelib']}",
            "ANTHROPIC_API_KEY": CANARY,
        }

    def execute(self, *argv: str, text: str = "") -> str:
        """Run a program outside of the sandbox as that user."""
        user = {} if os.geteuid() == self.uid else {"user": self.uid, "group": self.uid}
        if user:
            user["extra_groups"] = []  # type: ignore[assignment]
        done: subprocess.CompletedProcess[str] = subprocess.run(
            argv, env=self.environment, cwd=self.workspace, input=text, capture_output=True,
            text=True, timeout=100, check=False, **user,  # type: ignore[call-overload]
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def write(self, name: str, content: str = "") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        self.own()
        return path

    def own(self) -> None:
        """Give all files to the user."""
        if os.geteuid() == 0:
            for path in (self.folder, *self.folder.rglob("*")):
                os.lchown(path, self.uid, self.uid)

    def repository(self) -> None:
        """Make the workspace a repository with a commit."""
        self.execute("git", "init", "--quiet")
        self.execute("git", *IDENTITY, "commit", "--quiet", "--allow-empty", "-m", "begin")

    def names(self) -> set[str]:
        return {path.name for path in self.workspace.iterdir()}


class Others:
    """A program that runs commands as other users, started on first use."""

    def __init__(self) -> None:
        self._program: subprocess.Popen[str] | None = None

    def run(self, world: World, asked: dict[str, Any]) -> list[str]:
        """Run commands as the user of a world; return the model's view of each result."""
        if self._program is None:
            argv = (PYTHON, commands.__file__)
            self._program = subprocess.Popen(
                argv,
                env=world.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        stdin, stdout = self._program.stdin, self._program.stdout
        assert stdin is not None
        assert stdout is not None
        line = {"folder": str(world.folder), "user": world.uid, "environment": world.environment}
        stdin.write(json.dumps({**line, "asked": asked}) + "\n")
        stdin.flush()
        found: list[str] | None = json.loads(stdout.readline())
        assert found is not None, "it failed, see standard error"
        return found

    def close(self) -> None:
        if self._program is not None:
            self._program.communicate(timeout=20)


@pytest.fixture(scope="module")
def others() -> Iterator[Others]:
    with contextlib.closing(Others()) as made:
        yield made


def _users() -> list[object]:
    """Return the users that run the commands: an ordinary user, and root in the slow run."""
    if os.geteuid() != 0:
        return ["self"]
    way = [*REPOSITORY.parents, REPOSITORY]
    open_to_all = all(folder.stat().st_mode & stat.S_IXOTH for folder in way)
    if not open_to_all or not Path(PYTHON).exists():
        return ["root"]
    return [pytest.param("root", marks=pytest.mark.slow), "nobody"]


@pytest.fixture(params=_users())
def world(request: pytest.FixtureRequest, others: Others) -> Iterator[World]:
    """A world in a folder that every user may reach; pytest's own folders are for one user."""
    folder = Path(tempfile.mkdtemp(prefix="teamd-sandbox-"))
    made = World(folder, NOBODY if request.param == "nobody" else os.geteuid(), others)
    for name in ("workspace", "person", "aside"):
        (folder / name).mkdir()
    made.own()
    yield made
    shutil.rmtree(folder)


def test_a_command_can_write_only_in_its_workspace_and_its_own_folders(world: World) -> None:
    world.write("neighbour/file", "as it was")
    outside = [str(world.folder / "neighbour"), "/etc", "/usr/local", "/", str(Path.home())]
    planted = f"planted-{world.folder.name}"
    tries = "; ".join(f"echo x > {folder}/{planted}" for folder in outside)
    world.run(f"{tries}; echo x >> {outside[0]}/file; mkdir made && echo fine > made/file")
    assert (world.workspace / "made/file").read_text() == "fine\n"
    assert (world.folder / "neighbour/file").read_text() == "as it was"
    assert [folder for folder in outside if Path(folder, planted).exists()] == []


def test_home_team_and_neighbours_are_not_visible(world: World) -> None:
    secrets = [
        world.write("person/.ssh/id", CANARY),
        world.write("neighbour/notes", CANARY),
        world.write("workspace/.team/config.json", CANARY),
        world.write("workspace/.team/inbox/lead.jsonl", CANARY),
    ]
    hidden = [str(world.workspace / ".team")]
    reads = "; ".join(f"cat {path}" for path in secrets)
    (text,) = world.run(
        f"{reads}; ls -a .team; echo x >> .team/inbox/lead.jsonl;"
        "grep -rs canary /home /tmp /var/tmp; echo looked everywhere",
        hidden=hidden,
    )
    assert CANARY not in text
    assert text.endswith("looked everywhere"), "it has had the time"
    assert all(path.read_text() == CANARY for path in secrets)


def test_commands_of_root_cannot_read_files_that_only_root_may_read(world: World) -> None:
    (text,) = world.run("cat /etc/shadow; cat /etc/passwd | head -1")
    assert "/etc/shadow: Permission denied" in text
    assert "root:" in text.splitlines()[-1]


def test_named_folders_can_be_read(world: World) -> None:
    data = world.write("data/table", "1,2,3\n")
    read, written = world.run(
        f"cat {data}", f"echo x > {data}; rm {data}", readable=[str(data.parent)]
    )
    assert read == "1,2,3"
    assert "Read-only file system" in written
    assert data.read_text() == "1,2,3\n"


def test_a_program_of_a_virtual_environment_in_the_home_can_run(world: World) -> None:
    """As installed by pipx: the PATH has a link into a folder that is otherwise hidden."""
    tool = world.folder / "person/tools/tool"
    world.write("person/tools/tool/pyvenv.cfg", "home = /usr/bin\n")
    world.write("person/tools/secret", CANARY)
    script = f"#!{tool}/bin/python\nimport sys; print(sys.prefix)\n"
    world.write("person/tools/tool/bin/tool", script).chmod(0o755)
    (tool / "bin/python").symlink_to("/usr/bin/python3")
    (world.write("person/bin/other").parent / "tool").symlink_to(tool / "bin/tool")
    path = f"{world.folder}/person/bin:/usr/bin:/bin"
    said, home = world.run("tool", f"ls {tool.parent}", environment={"PATH": path})
    assert (said, home) == (str(tool), "tool")


@pytest.mark.slow
def test_the_key_is_not_in_any_environment_in_the_sandbox(world: World) -> None:
    command = "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; ps axewww"
    (text,) = world.start(json.dumps({"commands": [command]}))
    assert "HOME=/home/teammate" in text
    assert CANARY not in text


def test_the_sandbox_s_own_home_is_kept(world: World) -> None:
    write, read = "echo kept > ~/note; echo kept > $TMPDIR/note", "cat ~/note /tmp/note"
    assert world.run(write, read) == ["(no output)", "kept\nkept"]


@pytest.mark.slow
def test_temporary_files_do_not_use_memory(world: World) -> None:
    (text,) = world.run(
        "echo kept > /dev/shm/note; cat /tmp/note /var/tmp/note; echo x > /dev/note"
    )
    assert text.startswith("kept\nkept\n")
    assert "/dev/note: Read-only file system" in text


def test_a_command_cannot_reach_the_network_or_foreign_sockets(world: World) -> None:
    path = world.folder / "person" / "agent.sock"
    readable = world.write("readable/notes").parent / "an\nagent.sock"
    program = (
        "import socket, sys\n"
        "for kind, address in ((socket.AF_INET, ('127.0.0.1', int(sys.argv[1]))),\n"
        "        (socket.AF_UNIX, sys.argv[2]), (socket.AF_UNIX, sys.argv[3]),\n"
        "        (socket.AF_UNIX, '\\0' + sys.argv[4])):\n"
        "    try:\n"
        "        socket.socket(kind).connect(address)\n"
        "        print('connected to', address)\n"
        "    except OSError as error:\n"
        "        print(type(error).__name__)\n"
    )
    world.write("workspace/reach.py", program)
    abstract = f"teamd-{world.folder.name}"
    with contextlib.ExitStack() as stack:
        kinds = (socket.AF_INET, *[socket.AF_UNIX] * 3)
        sockets = [stack.enter_context(socket.socket(kind)) for kind in kinds]
        addresses: list[Any] = [("127.0.0.1", 0), str(path), str(readable), "\0" + abstract]
        for one, address in zip(sockets, addresses, strict=True):
            one.bind(address)
            one.listen()
        path.chmod(0o777)
        readable.chmod(0o777)
        port = sockets[0].getsockname()[1]
        command = f"python3 reach.py {port} {path} '{readable}' {abstract}"
        read = [str(readable.parent)]
        (without,) = world.run(command, readable=read)
        (shared,) = world.run(command, readable=read, network=True)
    nowhere = "ConnectionRefusedError"
    assert without.split() == [nowhere, "FileNotFoundError", nowhere, nowhere]
    assert shared.splitlines()[0].startswith("connected to")
    assert shared.splitlines()[1:] == ["FileNotFoundError", nowhere, "PermissionError"]


def test_a_linked_folder_gives_no_access_to_its_socket(world: World) -> None:
    named, stands = world.folder / "tools", world.write("person/stands/tool").parent
    named.symlink_to(stands)
    program = (
        "import socket, sys\n"
        "try:\n"
        "    socket.socket(socket.AF_UNIX).connect(sys.argv[1])\n"
        "    print('connected')\n"
        "except OSError as error:\n"
        "    print(type(error).__name__)\n"
    )
    world.write("workspace/reach.py", program)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(stands / "agent.sock"))
        listening.listen()
        (stands / "agent.sock").chmod(0o777)
        command = f"ls {named}; python3 reach.py {named}/agent.sock"
        (text,) = world.run(command, environment={"PATH": f"{named}:/usr/bin:/bin"})
    assert text.split() == ["agent.sock", "tool", "ConnectionRefusedError"]


SERVE: Final = "exec python3 -m http.server --bind 127.0.0.1 8017 2>/dev/null"
REACH: Final = (
    "for _ in {1..200}; do (exec 3<>/dev/tcp/127.0.0.1/8017) 2>/dev/null && echo reached && break;"
    " [ -e tried ] && break; sleep 0.05; done; touch tried;"
    r" echo user $UID with $(grep -cP '^Cap\w+:\s0*[1-9a-f]' /proc/self/status) rights"
)


def test_only_commands_that_start_while_a_job_runs_can_reach_its_server(world: World) -> None:
    """A command that starts while the job runs is in the job's network."""
    inside, after = world.run(REACH, job=SERVE)
    user = f"user {world.uid} with 0 rights"
    assert inside == f"reached\n{user}"
    assert after == user
    with socket.socket() as own:
        assert own.connect_ex(("127.0.0.1", 8017)) != 0


class Page(BaseHTTPRequestHandler):
    """A page of a server on this machine: it returns the requested host."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.headers["Host"].encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.mark.slow
def test_allowed_hosts_can_be_reached_during_a_job_and_after_it(world: World) -> None:
    """Also by an ordinary user, for whom bubblewrap nests two user namespaces."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        named = f"localhost:{server.server_port}"
        fetch = (
            "import sys, urllib.request as u; r = u.Request(sys.argv[1], headers={'Host': 'x'});"
            " print(u.urlopen(r).read().decode())"
        )
        reach = f'python3 -c "{fetch}" http://{named}/'
        other = f'python3 -c "{fetch}" http://example.org/ 2>&1 | tail -1'
        beside, refused, own, after = world.run(reach, other, REACH, job=SERVE, hosts=[named])
        server.shutdown()
    assert [beside, after] == [named, named], "and no other site of the same server"
    assert refused == "urllib.error.HTTPError: HTTP Error 403: Forbidden"
    assert own.startswith("reached\n")


def test_a_command_has_no_capabilities_and_cannot_leave_the_sandbox(world: World) -> None:
    world.repository()
    hook = world.workspace / ".git/hooks/pre-commit"
    planted = Path("/etc", f"planted-{world.folder.name}")
    left, status = world.run(
        "mount -o remount,rw,bind /; mount -o remount,rw,bind .git/hooks; umount .git/hooks;"
        "unshare --user --map-root-user --mount sh -c 'umount -l .git/hooks; umount -l .git;"
        "mount -o remount,rw,bind .git/hooks; echo evil > .git/hooks/pre-commit';"
        "echo evil > .git/hooks/pre-commit; " + f"echo x > {planted}",
        "grep Cap /proc/self/status",
    )
    assert not hook.exists(), left
    assert not planted.exists()
    rights = dict(line.split() for line in status.splitlines())
    assert {rights[f"Cap{kind}:"] for kind in ("Inh", "Prm", "Eff", "Amb", "Bnd")} == {"0" * 16}


# A process outside of the sandbox's mounts could rename the protected paths.
LEAVE: Final = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
workspace = os.open(".", os.O_RDONLY)
os.makedirs("/tmp/root/old")
def succeed(returned):
    if returned:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
succeed(libc.unshare(0x10020000))  # a user namespace, and one of mounts
succeed(libc.mount(b"/tmp/root", b"/tmp/root", None, 0x1000, None))
os.chdir("/tmp/root")
succeed(libc.pivot_root(b".", b"old"))
succeed(libc.umount2(b"/old", 2))
os.rename(".git", "git", src_dir_fd=workspace, dst_dir_fd=workspace)
"""


def test_a_new_namespace_cannot_escape_the_mounts(world: World) -> None:
    world.repository()
    world.write("workspace/leave.py", LEAVE)
    left, threads = world.run(
        "python3 leave.py; bash -c 'unshare --user true'; ls .git",
        # `clone3` is refused, but `clone` still makes a thread.
        "python3 -c 'from threading import *; t = Thread(target=print, args=(1,)); t.start()'",
    )
    assert "PermissionError: [Errno 1] Operation not permitted" in left
    assert "unshare: unshare failed: Operation not permitted" in left
    assert "HEAD\n" in left
    assert world.names() == {".git", "leave.py"}
    assert threads == "1"


def test_the_kernel_keyring_of_the_person_s_session_cannot_be_read(tmp_path: Path) -> None:
    """No namespace covers keyrings: a command is in the session of its caller."""
    add_key, keyctl = 248, 250  # on x86_64
    session, search, read = -3, 10, 11
    libc = ctypes.CDLL(None, use_errno=True)
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers are of x86_64")
    held = libc.syscall(add_key, b"user", b"teamd-test", CANARY.encode(), len(CANARY), session)
    if held < 0:
        pytest.skip(f"no keyrings here: {os.strerror(ctypes.get_errno())}")
    (tmp_path / "workspace").mkdir()
    program = (
        "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True); text = bytes(100)\n"
        f"key = libc.syscall({keyctl}, {search}, {session}, b'user', b'teamd-test', 0)\n"
        f"print(libc.syscall({keyctl}, {read}, {held}, text, 100), key, text.strip(bytes(1)))\n"
        "print(os.strerror(ctypes.get_errno()))\n"
    )
    (tmp_path / "workspace/read.py").write_text(program)
    with contextlib.chdir(tmp_path / "workspace"):
        (said,) = commands.answer(tmp_path, {"commands": ["python3 read.py"]})
    assert said.splitlines() == ["-1 -1 b''", "Operation not permitted"]


def test_a_socket_from_a_virtual_machine_to_its_host_is_refused(world: World) -> None:
    """Network namespaces do not cover these sockets."""
    (said,) = world.run("python3 -c 'import socket; socket.socket(socket.AF_VSOCK)' 2>&1 | tail -1")
    assert said == "OSError: [Errno 97] Address family not supported by protocol"


def test_the_first_process_of_a_sandbox_cannot_be_traced_but_a_child_can(world: World) -> None:
    """Its end kills all others, except for a process that waits for its tracer."""
    seize = "libc.ptrace(0x4206, {}, None, ctypes.c_void_p(0x40))"
    world.write(
        "workspace/trace.py",
        "import ctypes, os, subprocess\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        f"print({seize.format(1)}, os.strerror(ctypes.get_errno()))\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"print({seize.format('child.pid')})\n"
        "child.kill()\n",
    )
    (said,) = world.run("python3 trace.py")
    assert said.splitlines() == ["-1 Operation not permitted", "0"]


def test_a_report_forged_by_a_command_is_ignored(world: World) -> None:
    """The command takes the socket of the first process and ends the report there."""
    world.write(
        "workspace/forge.py",
        "import ctypes, os, socket\n"
        "first, get = os.pidfd_open(1), ctypes.CDLL(None).syscall\n"
        "gate = max(get(438, first, fd, 0) for fd in (9, 10))  # pidfd_getfd; the shell moves it\n"
        "way = socket.socket(fileno=gate)\n"
        "way.send(b'5\\n')\n"
        "way.shutdown(socket.SHUT_WR)\n"
        "print('forged')\n",
    )
    (said,) = world.run("python3 forge.py")
    assert said.splitlines()[0] == "forged"


def test_mounts_of_a_job_stay_even_if_its_workspace_is_in_a_shared_folder(
    world: World,
) -> None:
    """If another command removed the folder, its mounts would go with it."""
    world.repository()
    job = "while [ ! -e go ]; do sleep 0.05; done; mv .git git; touch tried; sleep 60"
    above = str(world.folder)
    moved, gone, _ = world.run(
        f"mv {above} /tmp/moved; mv /dev/shm/{world.folder.name} /tmp/moved",
        "rm -rf /tmp/moved; touch go; while [ ! -e tried ]; do sleep 0.05; done; ls .git",
        job=job,
    )
    assert moved.count("Device or resource busy") == 2
    assert "HEAD\n" in gone
    assert world.names() == {".git", "go", "tried"}


def test_bubblewrap_does_not_create_folders_behind_a_link_made_by_a_command(world: World) -> None:
    """The path to a readable folder leads through a folder that all commands may write."""
    outside = world.write("person/notes").parent
    with tempfile.TemporaryDirectory() as folder:
        shown = Path(folder, "sub/shown")
        shown.mkdir(parents=True)
        Path(folder).chmod(0o755)
        top = f"/tmp/{Path(folder).name}"
        moved, again = world.run(
            f"mv {top} /tmp/moved; mkdir -p {top}; ln -s /oldroot{outside} {top}/sub; ls {top}",
            f"ls {top}/sub",
            readable=[str(shown)],
        )
    assert "Device or resource busy" in moved
    assert again == "shown"
    assert [one.name for one in outside.iterdir()] == ["notes"]


@pytest.mark.parametrize("above", ["/var/tmp", "/dev/shm"])
def test_a_workspace_may_be_in_a_temporary_folder(others: Others, above: str) -> None:
    with tempfile.TemporaryDirectory(dir=above) as folder:
        world = World(Path(folder), os.geteuid(), others)
        world.write("workspace/deep/note", "mine")
        said, beside = world.run(
            "pwd; cat deep/note", f"touch {folder}/x; touch /var/tmp/x; ls /tmp"
        )
    assert said == f"{folder}/workspace\nmine"
    assert f"'{folder}/x': Read-only file system" in beside
    assert "x" in beside.splitlines()[1:]


def test_files_of_a_repository_that_are_run_automatically_cannot_be_changed(world: World) -> None:
    world.repository()
    world.execute("git", "config", "core.hooksPath", "myhooks")
    world.execute("git", "config", "include.path", "../settings")
    world.write("workspace/myhooks/pre-push", "#!/bin/sh\n")
    world.write("workspace/settings")
    config = (world.workspace / ".git/config").read_text()
    texts = world.run(
        "mv .git x; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit",
        "rm -rf .git/hooks; mv .git/hooks h; rm -rf .git/hooks",
        "git config core.fsmonitor evil; echo '[core] pager = evil' >> .git/config; rm .git/config",
        "ln .git/config x && echo evil >> x",
        "mkdir -p .git/info; echo '* filter=evil' > .git/info/attributes; mv .git/info i",
        "mkdir -p .git/modules/m/hooks; echo evil > .git/modules/m/config",
        "mkdir -p .git/remotes; echo URL: /x > .git/remotes/origin; echo /x > .git/branches/up",
        "echo evil > myhooks/pre-commit; mv myhooks y; git config -f settings core.pager evil",
        "echo ../evil > .git/commondir; echo evil > .git/config.worktree; sleep 1",
        "git status && echo hi > a && git add a && git commit -qm done && git log --oneline -1",
    )
    assert (world.workspace / ".git/config").read_text() == config
    assert list((world.workspace / ".git/hooks").glob("*[!e]")) == []
    assert not (world.workspace / ".git/info/attributes").exists()
    assert not (world.workspace / ".git/modules").exists()
    assert not (world.workspace / ".git/remotes/origin").exists()
    assert not (world.workspace / ".git/branches/up").exists()
    assert not (world.workspace / ".git/commondir").exists()
    assert [path.name for path in (world.workspace / "myhooks").iterdir()] == ["pre-push"]
    assert "Read-only file system" in texts[-2] or "Permission denied" in texts[-2]
    assert not (world.workspace / ".git/config.worktree").exists()
    assert texts[-1].splitlines()[-1].endswith(" done")
    assert (world.workspace / "settings").read_text() == ""
    assert world.names() == {".git", "myhooks", "settings", "a", "h", "i"}, "copies are its own"


MOVES: Final = (
    "checkout other", "switch other", "checkout -b new other", "merge other", "rebase other",
    "reset --hard other", "cherry-pick other", "bisect start HEAD other", "-C . switch other",
    "switch adding", "merge adding", "checkout remote-only", "switch remote-only", "co other",
    "checkout -m other", "checkout other --", "checkout :/new", "cherry-pick main~1..other",
    "revert main~1..other", "rebase -m other", "merge", "rebase", "switch --orphan orphan",
    "pull --no-rebase . other", "reset --ha other", "reset --mer other",
    "rebase free reverted", "rebase --onto free main~1 reverted", "rebase --onto=other main~1 free",
)  # fmt: skip
FREE: Final = (
    "checkout free", "switch -", "merge -q --no-edit free", "reset --hard HEAD~1", "rebase free",
    "cherry-pick free2", "bisect start HEAD HEAD~1", "bisect reset", "checkout other -- c",
    "reset --soft other", "reset --soft @{1}", "commit -qm c", "stash", "clean -fdx", "stash -u",
    "clean -fd", "pull -q --no-rebase --no-edit . free",
)  # fmt: skip


def tracked(world: World) -> None:
    """Make branches that change a protected file, add one, and change only other files."""
    world.repository()
    world.write("workspace/AGENTS.md", "old\n")
    lines = (
        "git config user.name ann; git config user.email ann@example.org",
        "git add . && git commit -qm old && git branch -M main",
        "git checkout -qb other && echo new > AGENTS.md && echo c > c",
        "git add . && git commit -qm new && git checkout -q main",
        "git checkout -qb adding && mkdir .vscode && echo x > .vscode/x",
        "git add . && git commit -qm added && git checkout -q main",
        "git checkout -qb free && echo f > f && git add . && git commit -qm f",
        "git checkout -qb free2 && echo g > g && git add . && git commit -qm g",
        "git checkout -qb reverted main && echo new > AGENTS.md && git commit -qam r",
        "git revert --no-edit HEAD > /dev/null",
        "git checkout -q main && echo m > m && git add . && git commit -qm m",
        "git update-ref refs/remotes/origin/remote-only other && git config alias.co checkout",
        "git config remote.origin.url nowhere",
        "git config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*'",
        "git branch -q -u origin/remote-only",
    )
    world.execute("bash", "-ec", "\n".join(lines))


def test_git_refuses_to_change_a_protected_file_before_it_changes_anything(world: World) -> None:
    tracked(world)
    state = "git rev-parse HEAD; git symbolic-ref HEAD; git branch; git status --short; ls"
    before = world.execute("bash", "-c", state)
    for move, said in zip(MOVES, world.run(*(f"git {one}" for one in MOVES)), strict=True):
        assert "which is protected in this folder; nothing was changed" in said, move
        assert said.endswith("[exit status 1]"), move
    assert world.execute("bash", "-c", state) == before
    world.write("workspace/AGENTS.md", "the person's\n")
    said = world.run("echo x >> m; git stash; git status --short")[0]
    assert "git stash would change AGENTS.md" in said
    assert said.endswith(" M AGENTS.md\n M m")
    said = world.run("git rebase --autostash free; git merge --autostash free; git status --short")[
        0
    ]
    assert said.endswith("can do this\n M AGENTS.md\n M m"), "uncommitted work stays where it is"
    world.execute("git", "stash")
    said = world.run(
        "git stash pop -q; git stash apply 0; git stash branch new; git status --short"
    )[0]
    assert said.count("git stash would change AGENTS.md") == 3, said
    assert said.endswith("can do this"), said


def test_git_works_if_it_changes_no_protected_file(world: World) -> None:
    tracked(world)
    for move, said in zip(FREE, world.run(*(f"git {one}" for one in FREE)), strict=True):
        assert "[exit status" not in said, (move, said)
    assert world.execute("git", "status", "--short") == ""


PLANTED: Final = (
    ".envrc", ".mcp.json", ".vscode/tasks.json", ".idea/workspace.xml", ".husky/pre-commit",
    ".claude/settings.json", "team.toml", "AGENTS.md", "CLAUDE.md", "deploy/run.sh",
    ".devcontainer/devcontainer.json", ".pre-commit-config.yaml", ".team/config.json",
)  # fmt: skip


@pytest.mark.parametrize("there", [False, True], ids=["missing", "there"])
def test_files_that_are_run_automatically_stay_unchanged(world: World, there: bool) -> None:
    if there:
        for name in PLANTED[:-1]:
            world.write(f"workspace/{name}", "mine")
    tops = [name.partition("/")[0] for name in PLANTED]
    tries = [f"mkdir -p $(dirname {name}); echo evil > {name}; rm -f {name}" for name in PLANTED]
    tries += [f"mv {top} x; rm -rf {top}; rmdir {top}; ln -s /tmp {top}" for top in tops]
    hidden = [str(world.workspace / ".team")]
    policy: dict[str, Any] = {"hidden": hidden, "protected": ["deploy"]}
    _, read = world.run("\n".join(tries), f"cat {' '.join(PLANTED)} 2>/dev/null; :", **policy)
    nothing = "(no output)"
    assert read == ("mine" * len(PLANTED[:-1]) if there else nothing), "it can be read"
    if there:
        assert {(world.workspace / name).read_text() for name in PLANTED[:-1]} == {"mine"}
    else:
        assert world.names() == set(), "no placeholder stays behind"


def test_missing_include_files_of_git_settings_are_protected_and_git_works(world: World) -> None:
    """A folder as placeholder would break git, which reads the file."""
    world.repository()
    named = ("settings/own", "beside", "linked")
    for name in named:
        world.execute("git", "config", "--add", "include.path", f"../{name}")
    (world.workspace / "linked").symlink_to("target")
    tries = [f"echo '[core] pager = evil' > {name}; rm -f {name}" for name in named]
    said, again, _ = world.run(
        "\n".join([*tries, "mv settings x; git status --short"]),
        "git log --oneline",
        job="sleep 60",
    )
    assert "fatal" not in said
    assert again.endswith(" begin")
    assert world.execute("git", "status", "--short") == "?? linked\n"
    assert world.names() == {".git", "linked"}, "no placeholder stays behind"


def test_hooks_in_the_folder_named_by_the_person_s_own_settings_are_protected(world: World) -> None:
    """They would run at the first commit in the repository that the command makes."""
    world.write("person/.gitconfig", "[core]\n\thooksPath = tools/hooks\n")
    plant = "mkdir -p tools/hooks; echo evil > tools/hooks/post-commit"
    world.run(f"git init --quiet; {plant}; mv tools x", plant)
    assert world.names() == {".git"}


@pytest.mark.parametrize("again", [False, True], ids=["first", "second"])
def test_a_protected_path_below_missing_folders_is_protected_too(world: World, again: bool) -> None:
    """Each missing part has a placeholder; other files in these folders may be written."""
    world.execute("git", "init", "-q", "--template=")
    world.execute("git", "config", "core.hooksPath", "tools/deep/hooks")
    places = (
        "tools/deep/hooks/pre-commit",
        ".git/info/attributes",
        "deploy/prod.yml",
        "deploy/x/y",
    )
    tries = [f"mkdir -p $(dirname {name}); echo evil > {name}" for name in places]
    quick = "; ".join([*tries, "echo fine > tools/other"])
    world.run(*(["true"] * again), quick, protected=["deploy/prod.yml", "deploy/x/y"])
    assert [name for name in places if (world.workspace / name).is_file()] == []
    assert (world.workspace / "tools/other").read_text() == "fine\n"
    assert world.names() == {".git", "tools"}, "no placeholder stays behind"
    assert sorted(os.listdir(world.workspace / "tools")) == ["other"]  # noqa: PTH208


def test_a_replaced_protected_link_is_restored(world: World) -> None:
    world.write("workspace/docs/agents.md", "mine")
    link = world.workspace / "AGENTS.md"
    link.symlink_to("latest/agents.md")
    (world.workspace / "latest").symlink_to("docs")
    first, second = world.run(
        # Each link is replaced in one step: a command that is seen without the link is ended before
        # it can put anything there.
        "echo evil > docs/agents.md; echo evil > evil.md; mv -f evil.md AGENTS.md",
        "mkdir evil; echo evil > evil/agents.md; ln -sfn evil latest",
    )
    assert link.readlink() == Path("latest/agents.md")
    assert link.read_text() == "mine"
    assert "[taken away, since it is protected: AGENTS.md]" in first
    assert "[taken away, since it is protected: latest]" in second


def test_a_newly_created_repository_runs_nothing(
    world: World,
) -> None:
    made, later, done = world.run(
        "git init -q && echo evil > .git/hooks/pre-commit && git config core.fsmonitor evil &&"
        "mkdir -p .git/modules/m && echo '* filter=evil' > .git/info/attributes",
        "echo evil > .git/hooks/pre-commit; git config core.pager evil",
        "echo hi > a; git add a; git commit -qm done; git log --oneline",
    )
    git = world.workspace / ".git"
    assert [hook.name for hook in (git / "hooks").iterdir() if hook.suffix != ".sample"] == []
    assert "evil" not in (git / "config").read_text()
    assert not (git / "info/attributes").exists()
    assert ".git/hooks/pre-commit" in made
    assert "Read-only file system" in later
    assert done.endswith(" done")


@pytest.mark.parametrize(
    "deed",
    [
        "head -c 1100000 /dev/zero | tr '\\0' '\\n' >> .git/config; git config core.pager evil",
        "rm .git/config; mkfifo .git/config",
        "mv .git/objects o; ln -s /elsewhere/.git/objects .git/objects",
        "echo /elsewhere/.git/objects > .git/objects/info/alternates",
    ],
    ids=["large settings", "a pipe for settings", "objects elsewhere", "more objects elsewhere"],
)
def test_a_newly_created_repository_reads_nothing_from_elsewhere(world: World, deed: str) -> None:
    (text,) = world.run(f"git init -q; {deed}")
    git = world.workspace / ".git"
    assert "[taken away, since it is protected: .git" in text
    assert not (git / "objects/info/alternates").exists()
    assert not (git / "objects").is_symlink()
    assert not (git / "config").exists() or "evil" not in (git / "config").read_text()


def test_git_cannot_be_pointed_at_other_settings_while_a_command_runs(world: World) -> None:
    """Not even for a moment: a command sees when a git of another process starts."""
    world.repository()
    lead = "mkdir -p evil; echo ../evil > lead; mv -f lead .git/commondir; cat .git/commondir"
    said, again, _ = world.run(
        f"{lead}; rm -f .git/commondir; git status --short; git commit -q --allow-empty -m x",
        "git log --oneline | wc -l; git gc -q && git worktree list | wc -l",
        job="cp -r .git evil; git -C evil status > seen 2>&1; sleep 60",
    )
    assert ".\n" in said
    assert "evil" not in world.execute("git", "config", "--list")
    assert again.splitlines() == ["2", "1"]
    assert not (world.workspace / ".git/commondir").exists()
    assert [name for name in os.listdir(world.workspace / ".git") if "commondir" in name] == []  # noqa: PTH208


def test_a_repository_cannot_be_replaced_by_a_link_to_another(world: World) -> None:
    """The agent would control the settings of the other repository."""
    (text,) = world.run("mkdir evil; git -C evil init -q; echo 'gitdir: evil/.git' > .git")
    assert "[taken away, since it is protected: .git]" in text
    assert world.names() == {"evil"}


def test_a_repository_elsewhere_is_out_of_reach(world: World) -> None:
    """A working tree of `git worktree` names one, and so could any `.git` file."""
    world.repository()
    tree = world.folder / "tree"
    world.execute("git", "worktree", "add", "--quiet", str(tree))
    world.workspace.rename(world.folder / "main")
    tree.rename(world.workspace)
    main = str(world.folder / "main")
    world.execute("git", "-C", main, "worktree", "repair", str(world.workspace))
    git = f"{main}/.git"
    (text,) = world.run(f"echo x > {git}/hooks/pre-commit; echo x > {git}/commondir; git status")
    assert "not a git repository" in text
    assert not Path(git, "hooks/pre-commit").exists()
    assert not Path(git, "commondir").exists()


def test_root_cannot_change_kernel_settings(world: World) -> None:
    """Root inside is root outside, which is all that the kernel's settings require."""
    name = "/proc/sys/kernel/core_pattern"
    (text,) = world.run(f"[ -w {name} ] && echo open; exec 5>>{name}")
    assert "open" not in text.splitlines()
    assert "Read-only file system" in text or "Permission denied" in text


def test_a_new_repository_without_write_permission_is_disarmed_too(world: World) -> None:
    world.run(
        "git init -q; echo evil > .git/hooks/pre-commit; git config core.fsmonitor evil;"
        "chmod 555 .git .git/hooks; chmod 444 .git/config; chmod 555 .",
    )
    assert "evil" not in (world.workspace / ".git/config").read_text()
    assert not (world.workspace / ".git/hooks/pre-commit").exists()
    assert world.names() == {".git"}


def test_a_repository_made_by_one_of_two_commands_is_disarmed_after_the_last_one(
    world: World,
) -> None:
    if os.geteuid() != world.uid:
        return  # the commands run in this very process

    async def both(box: Toolbox) -> None:
        plant = "echo evil > .git/hooks/pre-commit; git config core.fsmonitor evil; touch planted"
        wait = "touch begun; while [ ! -e made ]; do sleep .01; done"
        last = asyncio.create_task(commands.run_all(box, [f"{wait}; {plant}"]))
        await until((world.workspace / "begun").exists, what="the last one has begun")
        await commands.run_all(box, ["git init -q; mv .git old; cp -r old .git"])
        (world.workspace / "made").touch()
        await last
        assert (world.workspace / "planted").exists()

    asyncio.run(both(commands.toolbox(world.workspace, world.folder / "aside", {})))
    assert "evil" not in (world.workspace / ".git/config").read_text()
    assert not (world.workspace / ".git/hooks/pre-commit").exists()


def test_no_process_of_a_command_survives(world: World) -> None:
    mark = f"10{os.getpid()}"
    (text,) = world.run(f"setsid sleep {mark} & (sleep {mark} &) ; nohup sleep {mark} & echo begun")
    assert text.splitlines()[0] == "begun"
    assert "3 background processes were ended with the command" in text
    wait_until(lambda: mark not in _command_lines(), what="none of them runs")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("f() { f | f & }; f; sleep 3", "more than 60 processes"),
        ("python3 -c 'import time; x = bytearray(2 << 30); time.sleep(20)'", None),
        (
            (
                "for i in 1 2 3 4; do python3 -c 'import time; x = bytearray(60 << 20);"
                " time.sleep(20)' & done; wait"
            ),
            "more than 200 MiB of memory",
        ),
        (
            (
                "python3 -c 'import os, time; x = bytes(1 << 20); time.sleep(bool("
                " [os.write(os.memfd_create(str(n)), x) for n in range(240)]) * 20)'"
            ),
            "more than 200 MiB of memory",
        ),
        ("head -c 20000000 /dev/zero > big; ls -s --block-size=1M big", None),
    ],
    ids=["processes", "memory of one", "memory of all", "memory files", "file"],
)
def test_processes_memory_and_files_of_a_command_are_limited(
    world: World, command: str, sentence: str | None
) -> None:
    bounds = {"processes": 60, "memory_bytes": 200 << 20, "file_bytes": 1 << 20}
    text, after = world.run(command, "echo fine", bounds=bounds)
    if sentence and "Resource temporarily unavailable" not in text:  # the kernel's own limit
        assert f"[all of it was ended: it had {sentence}" in text.replace("it took", "it had")
    elif not sentence:
        assert "MemoryError" in text or text.startswith("1 big") or "File size limit" in text
    assert after == "fine"


@pytest.mark.slow
def test_shared_memory_counts_once(world: World) -> None:
    program = (
        "import os, time; x = b'x' * (60 << 20); [os.fork() for _ in range(3)]; time.sleep(.5)"
    )
    bounds = {"processes": 60, "memory_bytes": 200 << 20, "file_bytes": 1 << 20}
    assert world.run(f'python3 -c "{program}"; echo fine', bounds=bounds) == ["fine"]


def test_a_process_outside_can_be_neither_seen_nor_signalled(world: World) -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        try:
            (text,) = world.run(f"kill -9 {sleeping.pid}; ls /proc/{sleeping.pid}; kill -9 -1")
            assert sleeping.poll() is None
        finally:
            sleeping.kill()
    assert "No such process" in text


def _command_lines() -> str:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return "\n".join(found)


def test_a_command_started_just_after_a_job_has_ended_gets_another_network(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    shell, said = sandboxed_shell(tmp_path / "workspace", aside=tmp_path), list[bytes]()

    async def run() -> int:
        with shell.start("sleep 60", said.append, background=True) as job:
            (first,) = reaper.children(job.pid)
            os.kill(first, signal.SIGKILL)
            ended = Path(f"/proc/{first}/ns/net")
            wait_until(lambda: not os.path.lexists(ended), what="the job has ended")
            with shell.start("echo fine", said.append) as program:
                return await program.wait()

    assert asyncio.run(run()) == 0
    *_, told, fine = b"".join(said).splitlines()
    assert (told[:43], fine) == (b"[this command has a network of its own: tha", b"fine")


def test_a_link_that_replaces_a_folder_during_the_mount_is_noticed(tmp_path: Path) -> None:
    """Bubblewrap resolves a path after our check, and another command may change it in between."""
    workspace, victim = tmp_path / "workspace", tmp_path / "victim"
    for folder in (workspace / "deploy", victim):
        folder.mkdir(parents=True)
        (folder / "run.sh").write_text(CANARY)
    policy = {"protected": ("deploy/run.sh",), "readable": (victim,)}
    shell = sandboxed_shell(workspace, aside=tmp_path, **policy)
    quick = tmp_path / "quick"
    swap = "mv deploy old; ln -s ../victim deploy"
    quick.write_text(f'#!/bin/sh\n{swap}; exec {shell.program} "$@"\n')
    quick.chmod(0o755)
    quick_shell = replace(shell, program=str(quick))
    bash = Bash(shell=quick_shell, timeout_seconds=60, output_bytes=2000)
    with contextlib.chdir(workspace):
        result = asyncio.run(
            Toolbox([bash]).run("bash", {"command": "cat deploy/*; touch deploy/x"})
        )
    assert result.text.startswith("bash could not be started in the workspace: ")
    assert [path.name for path in victim.iterdir()] == ["run.sh"]


def test_a_path_that_a_running_command_could_replace_is_not_mounted(tmp_path: Path) -> None:
    """Not even for a moment: bubblewrap creates missing parts of it, wherever it leads."""
    (tmp_path / "workspace/deploy").mkdir(parents=True)
    loose, strict = (
        sandboxed_shell(tmp_path / "workspace", aside=tmp_path, protected=more)
        for more in ((), ("deploy/x/run.sh",))
    )

    async def run() -> int:
        with (
            loose.start("sleep 60", len, background=True),
            pytest.raises(NoSandbox, match=r"^deploy has to be protected now, and another command"),
        ):
            strict.start("echo fine", len)
        with strict.start("echo fine", len) as program:
            return await program.wait()

    assert asyncio.run(run()) == 0


def test_a_link_swapped_by_a_running_command_is_not_recorded_as_the_original(
    tmp_path: Path,
) -> None:
    """It would be restored in that state after both have ended."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    link = workspace / "AGENTS.md"
    link.symlink_to("mine.md")
    shell = sandboxed_shell(workspace, aside=tmp_path)

    async def run() -> None:
        with shell.start("mv evil.md AGENTS.md; sleep 60", len, background=True):
            (workspace / "evil.md").symlink_to("/elsewhere")
            (workspace / "evil.md").rename(link)
            with pytest.raises(NoSandbox, match=r"^AGENTS.md has to be protected now"):
                shell.start("echo fine", len)

    asyncio.run(run())
    assert link.readlink() == Path("mine.md")


def test_a_refused_command_leaves_no_placeholder_behind(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    shell = sandboxed_shell(workspace, aside=tmp_path, protected=(f"deploy/{'x' * 300}",))

    async def run() -> None:
        with pytest.raises(StoreError, match="File name too long"):
            shell.start("echo fine", len)
        await until(lambda: not list(workspace.iterdir()), what="all are removed")

    asyncio.run(run())


def test_the_network_of_an_ended_process_is_not_mistaken_for_another() -> None:
    argv = [*JOIN, str(os.getpid()), "1", "run", "/bin/true"]
    done = run_to_end(argv, timeout_seconds=20, env={})
    assert done.status != 0
    assert done.stderr.decode().splitlines()[-1] == f"ProcessLookupError: {os.getpid()}"


def test_commands_are_refused_in_a_workspace_inside_a_git_folder(tmp_path: Path) -> None:
    """Its hooks would be files like any other."""
    (tmp_path / ".git/hooks").mkdir(parents=True)
    settings = Settings(team=TeamSettings(workspace=tmp_path / ".git/hooks"))
    shell = build_shell(TeamPaths(tmp_path / ".team"), "ann", settings, "coder", probe())
    with pytest.raises(NoSandbox, match="lies in a repository's own folder"):
        shell.start("echo ran", len)


def test_commands_are_refused_in_a_workspace_that_contains_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the home is a link."""
    (tmp_path / "project/me").mkdir(parents=True)
    (tmp_path / "home").symlink_to(tmp_path / "project/me")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    settings = Settings(team=TeamSettings(workspace=tmp_path / "project"))
    paths = TeamPaths(tmp_path / "project/.team")
    shell = build_shell(paths, "ann", settings, "coder", probe())
    bash = Bash(shell=shell, timeout_seconds=60, output_bytes=2000)
    result = asyncio.run(Toolbox([bash]).run("bash", {"command": "echo ran"}))
    assert result.is_error
    assert "holds the person's home, which no sandbox could hide then" in result.text


def test_the_remains_of_a_killed_teammate_are_ended_by_its_control_group(tmp_path: Path) -> None:
    """A traced first process can outlive bubblewrap, but no process leaves its group."""
    paths = TeamPaths(tmp_path / "project/.team")
    settings = Settings(team=TeamSettings(workspace=tmp_path / "project"))
    settings.team.workspace.mkdir()
    shell = build_shell(paths, "ann", settings, "coder", probe())
    assert isinstance(shell, SandboxedShell)
    if shell.cgroup is None:
        pytest.skip("this user may not make control groups")
    group = shell.cgroup
    with subprocess.Popen(["setsid", "sleep", "100"]) as survivor:
        group.add(survivor.pid)
        remove_cgroups(paths, ["ann"])
        assert survivor.wait(10) == -signal.SIGKILL
    wait_until(lambda: not group.path.exists(), what="the group is removed")


def test_a_bubblewrap_killed_during_its_fork_leaves_no_process(tmp_path: Path) -> None:
    """The child has no death signal yet, and waits for a parent that was killed."""
    paths = TeamPaths(tmp_path / ".team")
    argv = ["/usr/bin/bwrap", "-c", "import time; time.sleep(100)", "--bind"]
    words = [*argv, str(paths.home_of("ann")), "/home/teammate"]
    with (
        subprocess.Popen(words, executable=sys.executable) as stray,
        subprocess.Popen(["grep", *words[1:]], executable=sys.executable) as other,
    ):
        try:
            end_strays(paths, ["bob"])
            assert stray.poll() is None
            end_strays(paths, ["ann", "bob"])
            assert stray.wait(10) == -signal.SIGKILL
            assert other.poll() is None, "a program of the person's that only names the home"
        finally:
            stray.kill()
            other.kill()


def test_a_sandbox_that_cannot_start_leaves_no_file_open(tmp_path: Path) -> None:
    """A teammate may try for hours, and its descriptors are limited."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    shell = replace(sandboxed_shell(workspace, aside=tmp_path), program="/nowhere/bwrap")
    shell = replace(shell, policy=replace(shell.policy, hosts=("a.org",)))
    bash = Bash(shell=shell, timeout_seconds=60, output_bytes=2000)
    before = opened()
    result = asyncio.run(Toolbox([bash]).run("bash", {"command": "true"}))
    assert result.text.startswith("bash could not be started in the workspace: No such file")
    assert opened() - before == set()
    assert list(workspace.iterdir()) == []
