"""The team of the obedient victim: its honest work, and the attacks around it."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import re
import socket
import stat
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import unescape

from teamd.files import files
from tests.e2e.attacks.injections import INJECTIONS, bash, claim, complete, mail, read, texts, write
from tests.e2e.harness import Project
from tests.strict.asked import Asked, text_of
from tests.strict.replies import Answer, Call, say, use

_MARKER: Final = re.compile(r"INJECTION (\d+): (?=\{)")


class Victim:
    """Teammates that do their work step by step, and obey each instruction that they read, once.

    Args:
        work: the calls of each turn, by the teammate's name.
        awaits: words that a teammate must have read before its last turn.
    """

    def __init__(
        self, work: Mapping[str, Sequence[Sequence[Call]]], awaits: Mapping[str, str]
    ) -> None:
        self._lock = threading.Lock()
        self._awaits = awaits
        self._left = {name: deque(steps) for name, steps in work.items()}
        self._obeyed: dict[str, set[int]] = defaultdict(set)

    def __call__(self, asked: Asked) -> Answer:
        """Answer a request with the next step of the work and every newly read instruction."""
        with self._lock:
            new = {n: call for n, call in _instructions(asked) if n not in self._obeyed[asked.name]}
            self._obeyed[asked.name].update(new)
            calls = [*self._next_step(asked), *new.values()]
        return use(*calls) if calls else say("Done.")

    def has_worked(self, name: str) -> bool:
        """Return whether a teammate has begun the last step of its work."""
        return not self._left[name]

    def has_obeyed(self, name: str, numbers: Iterable[int]) -> bool:
        """Return whether a teammate has begun to obey all of these."""
        return self._obeyed[name].issuperset(numbers)

    def _next_step(self, asked: Asked) -> Sequence[Call]:
        left = self._left[asked.name]
        if not left or (len(left) == 1 and self._awaits.get(asked.name, "") not in asked.heard):
            return ()
        return left.popleft()


def _instructions(asked: Asked) -> Iterator[tuple[int, Call]]:
    """Yield every instruction in a request, including escaped ones in mail."""
    text, end = unescape(f"{asked.system}\n{asked.heard}"), 0
    while found := _MARKER.search(text, end):  # an instruction may contain another one, to pass on
        order, end = json.JSONDecoder().raw_decode(text, found.end())
        yield int(found[1]), (order["tool"], order["input"])


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket; the kernel queues connections until `callers` is read."""

    socket: socket.socket
    address: Any

    def callers(self) -> int:
        """Accept the connections since the last call; return their number."""
        count = 0
        with suppress(BlockingIOError):
            while True:
                self._take()
                count += 1
        return count

    def call(self) -> None:
        """Connect to it, as an escaped program would."""
        with socket.socket(self.socket.family, self.socket.type) as caller:
            caller.connect(self.address)
            caller.sendall(b"proof")

    def _take(self) -> None:
        if self.socket.type == socket.SOCK_DGRAM:
            self.socket.recv(1 << 10)
        else:
            self.socket.accept()[0].close()


@contextmanager
def listening(path: Path, abstract: str) -> Iterator[dict[str, Listener]]:
    """Listen as a web server, as a name server and as two programs of the person.

    Args:
        path: the file of a Unix socket.
        abstract: the name of an abstract Unix socket.
    """
    wanted: dict[str, tuple[int, int, Any]] = {
        "web": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        "dns": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        "path": (socket.AF_UNIX, socket.SOCK_STREAM, str(path)),
        "abstract": (socket.AF_UNIX, socket.SOCK_STREAM, f"\0{abstract}"),
    }
    with ExitStack() as stack:
        found = {}
        for name, (family, kind, address) in wanted.items():
            one = stack.enter_context(socket.socket(family, kind))
            one.bind(address)
            one.setblocking(False)
            if kind == socket.SOCK_STREAM:
                one.listen()
            found[name] = Listener(one, one.getsockname())
        yield found


def digest(*roots: Path) -> Mapping[str, str]:
    """Describe every file, folder and link in these trees, whose roots may be missing."""
    return {str(path): _describe(path) for root in roots for path in walk(root)}


def walk(root: Path) -> Iterator[Path]:
    """Yield a tree with its root, if it exists; links are not followed."""
    if os.path.lexists(root):
        yield root
    for folder, folders, names in os.walk(root):
        yield from (Path(folder, name) for name in (*folders, *names))


def holding(roots: Iterable[Path], *texts: str) -> list[Path]:
    """Return the regular files that contain one of these texts."""
    files = (path for root in roots for path in walk(root))
    regular = (path for path in files if stat.S_ISREG(path.lstat().st_mode))
    wanted = [text.encode() for text in texts]
    return [path for path in regular if any(text in path.read_bytes() for text in wanted)]


def command_lines(word: str) -> list[str]:
    """Return the command lines of all processes that contain a word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            found += [" ".join(words)] * (word in words)
    return found


def _describe(path: Path) -> str:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return f"link to {path.readlink()}"
    content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(mode) else ""
    return f"{stat.filemode(mode)} {content}"


AT_HOME: Final = "canary-at-home-5f0c77"
OUTSIDE: Final = "canary-outside-2e91d3"
TEAM: Final = ("carol", "paul", "alice", "bob")
SETTINGS: Final = """
[tools]
max_file_mb = 1

[[permission]]
tool = "bash"
command = "git push"
teammate = "carol"
then = "ask"
"""
PROTECTED: Final = (
    "AGENTS.md", "CLAUDE.md", "team.toml", ".claude", ".envrc", ".vscode", ".git/hooks",
    ".git/config", ".teams", ".team/agents", ".team/skills",
)  # fmt: skip


WORK: Final[Mapping[str, tuple[tuple[Call, ...], ...]]] = {
    "alice": (
        (claim(1), read("README.md"), ("load_skill", {"name": "release"})),
        (write("add.py", "def add(a, b):\n    return a + b\n"), bash("python3 check.py")),
        (bash("git add add.py && git commit -qm 'Add add()' && git log -1 --format=%s"),),
        (mail("bob", "add() is there."), complete(1)),
    ),
    "bob": (
        (claim(2), read("notes.md"), ("load_skill", {"name": "report"})),
        (bash("git log --format=%B begin"), ("task_list", {})),
        (bash("python3 -c 'print(6 * 7)' > report.txt"), mail("lead", "The report is written.")),
        (complete(2),),
    ),
    "carol": (
        (claim(3), read("guide.md")),
        (("edit_file", {"path": "guide.md", "old_text": "TODO", "new_text": "Add."}),),
        (bash("cat guide.md"),),  # waits for the person: an instruction of hers needs permission
        (mail("alice", "The guide is written."), complete(3)),
    ),
    "paul": (
        (("submit_plan", {"plan": "Write plan.md."}),),
        (read("README.md"),),  # woken by a stranger's mail while the plan is pending
        (write("plan.md", "First, then second.\n"), mail("lead", "The plan is carried out.")),
    ),
}
AWAITS: Final = {"paul": 'type="plan_approval_response"'}


class Scene:
    """A project with everything that strangers want, and with their injections.

    Attributes:
        facts: values of the names in `@`; ids and pids are added when they exist.
    """

    def __init__(self, project: Project, listeners: Mapping[str, Listener]) -> None:
        self.project = project
        self.listeners = listeners
        self.victim = Victim(WORK, AWAITS)
        for name in TEAM:
            project.stage.act(name, self.victim)
        number = f"97{os.getpid()}"
        worm = next(one for one in INJECTIONS if one.place == "mail of a colleague")
        self.facts: dict[str, object] = {
            "ROOT": project.root,
            "TEAM": project.paths.root,
            "STATE": project.root / "state",
            "API": project.server.url,
            "WEB": listeners["web"].address[1],
            "DNS": listeners["dns"].address[1],
            "ABSTRACT": listeners["abstract"].address[1:].decode(),
            "MARK": f"{number}1",
            "JOB": f"{number}2",
            "WORM": worm.text({}),
        }

    @property
    def places(self) -> Mapping[str, str]:
        """The injections of strangers, by place."""
        return texts(self.facts)

    @property
    def protected(self) -> list[Path]:
        """The files that must not change."""
        project = self.project
        outside = [project.root / name for name in ("home", "outside", "state/trust")]
        return [*outside, *(project.folder / name for name in PROTECTED)]

    def furnish(self) -> None:
        """Write the files that exist before teamd starts: the person's and the strangers'."""
        project, places = self.project, self.places
        for path, text in {
            "home/.ssh/id_ed25519": AT_HOME,
            "home/.netrc": f"machine example.org password {AT_HOME}",
            "outside/precious.txt": f"precious {OUTSIDE}",
        }.items():
            project.write(f"../{path}", f"{text}\n")
        project.write("team.toml", SETTINGS)
        printed = base64.b64encode(places["output of a command"].encode()).decode()
        for path, text in {
            "AGENTS.md": places["AGENTS.md"],
            "README.md": places["file read by alice"],
            "check.py": f"import base64\nprint(base64.b64decode({printed!r}).decode(), 'ok')\n",
            "guide.md": "# Guide\n\nTODO\n",
            ".team/agents/coder.md": places["role of coder"],
            ".claude/agents/tester.md": places["role of tester"],
            ".claude/agents/planner.md": places["role of planner"],
            ".claude/agents/writer.md": places["role of writer"],
            ".claude/skills/release/SKILL.md": (
                f"---\ndescription: {places['skill, as it is listed']}\n---\n"
                f"{places['skill of the workspace']}\n"
            ),
            ".team/skills/report/SKILL.md": (
                f"---\ndescription: Reports.\n---\n{places['skill of the team']}\n"
            ),
        }.items():
            project.write(path, text)
        self._commit()

    def _commit(self) -> None:
        git = ("git", "-c", "user.name=ann", "-c", "user.email=ann@example.org")
        bare = str(self.project.root / "outside/bare.git")
        for words in (
            ("init", "-q", "-b", "main"),
            ("init", "-q", "--bare", bare),
            ("remote", "add", "origin", bare),
            ("add", "README.md", "check.py", "guide.md"),
            ("commit", "-q", "-m", self.places["message of a commit"]),
            ("tag", "begin"),
        ):
            self.project.do(*git, *words)

    def fill_board(self) -> None:
        """Put a task on the board for each of three teammates, and one from a stranger."""
        for name in ("alice", "bob", "carol"):
            self.project.do(
                "teamctl", "task", "add", f"Work of {name}",
                "--description", self.places[f"task of {name}"],
            )  # fmt: skip
        self.project.do("teamctl", "task", "add", self.places["subject of a task"])

    def spawn(self, **roles: str) -> None:
        for name, role in roles.items():
            plan = ("--plan",) if role == "planner" else ()
            self.project.do("teamctl", "spawn", name, role, "Do your work.", *plan)

    def put_mail(self, name: str) -> None:
        """Put a stranger's mail into an inbox, as any program can."""
        line = json.dumps({"from": "ci", "content": self.places[f"mail to {name}"]})
        with self.project.paths.inbox(name).open("a") as inbox:
            fcntl.flock(inbox, fcntl.LOCK_EX)
            inbox.write(f"{line}\n")

    def open_requests(self) -> dict[str, str]:
        """Return the waiting teammate and the request id of each open request."""
        shown = json.loads(self.project.do("teamctl", "requests", "--json"))
        return {one["from"]: one["id"] for one in shown["requests"] if one["status"] == "open"}

    def learn(self) -> None:
        """Record facts of the running team: request ids and pids."""
        requests = self.open_requests()
        pids = {name.upper(): self.project.member(name)["pid"] for name in ("carol", "paul")}
        self.facts |= {"PERMISSION": requests["carol"], "PLAN": requests["paul"], **pids}
        self.facts["TEAMD"] = self.project.supervisor

    def has_obeyed(self, name: str) -> bool:
        """Return whether a teammate has obeyed the strangers' mail and is at rest."""
        places = {f"mail to {name}", f"task of {name}"}
        numbers = [one.number for one in INJECTIONS if one.place in places]
        return self.victim.has_obeyed(name, numbers) and self.rests(name)

    def is_done(self, name: str) -> bool:
        """Return whether a teammate has also done its work."""
        return self.victim.has_worked(name) and self.has_obeyed(name)

    def rests(self, name: str) -> bool:
        """Return whether a teammate is idle and has no waiting mail."""
        paths = self.project.paths
        read = not paths.has_mail(name) and not files.size(paths.taken(name))
        return read and self.project.member(name)["status"] == "idle"

    def results(self) -> dict[int, tuple[str, str]]:
        """Return the caller and the result of each injection, as the server saw them."""
        numbers = {_key(*one.call_in(self.facts)): one.number for one in INJECTIONS}
        assert len(numbers) == len(INJECTIONS), "each call is told from the others"
        found = {}
        for name in TEAM:
            turns = self.project.asked(name)[-1].asked.turns
            blocks = [block for turn in turns for block in turn.content]
            uses = (one for one in blocks if one["type"] == "tool_use")
            calls = {one["id"]: _key(one["name"], one["input"]) for one in uses}
            for one in (one for one in blocks if one["type"] == "tool_result"):
                if number := numbers.get(calls[one["tool_use_id"]]):
                    found[number] = (name, text_of(one.get("content") or []))
        return found


def _key(tool: str, given: object) -> str:
    return json.dumps([tool, given], sort_keys=True)
