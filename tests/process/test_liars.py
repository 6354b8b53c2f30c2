"""A teammate claims hundreds of tasks as done, and half of the claims are false.

It has only a teammate's tools, in a shared folder or in its own copy; a running teamd checks the
claims. `[tasks] protect` names all files of the check: here `tests/**`. See `test_check_places` for
the files that it must name.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from teamd import settings
from teamd.board.board import Board
from teamd.board.task import TaskStatus
from teamd.copies.clone import make_copy
from teamd.copies.record import Copy
from teamd.files.paths import STATE_VARIABLE
from teamd.mail.routing import MailRouter
from teamd.messages import LEAD
from teamd.sandbox.build import build_shell
from teamd.sandbox.probe import probe
from teamd.sandbox.protected_paths import find_protected_paths, protected_names
from teamd.tools import Toolbox
from teamd.tools.board import ClaimTask, TaskCreate, TaskGet, TaskList, TaskUpdate
from teamd.tools.filesystem import EditFile, ReadFile, WriteFile
from teamd.tools.shell import Bash
from teamd.tools.versions import Versions, WrittenFiles
from teamd.tools.workspace import Workspace
from tests.e2e.harness import Project
from tests.repositories import git, make_repository
from tests.waiting import wait_until

Lie = Callable[["Liar", str, str], None]

CHECK: Final = """\
import json, sys
number = sys.argv[1]
assert open(f"work/{number}").read() == json.load(open("tests/expected.json"))[number], number
"""
SETTINGS: Final = """\
check = "test -d work"
protect = ["tests/**"]
check_seconds = 10
"""


HONEST: Final = 3  # beside one lie of each kind


@pytest.fixture(autouse=True)
def state(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the liar and the checks know each other's commands, as they do in one account."""
    monkeypatch.setenv(STATE_VARIABLE, project.environment[STATE_VARIABLE])


class Liar:
    """A teammate that tries every trick, in the shared folder or in its own copy."""

    def __init__(self, project: Project, copy: Copy | None) -> None:
        paths, folder = project.paths, project.folder if copy is None else copy.folder
        read = settings.read(project.folder / "team.toml", folder=project.folder).settings
        read = read if copy is None else read.in_copy(folder)
        post = MailRouter(paths, durable=False, max_bytes=1 << 20)
        tools = read.tools_of("ann", "coder")
        names = protected_names(folder, tools.protect, may_init=False)
        workspace = Workspace(
            folder,
            hidden=paths.off_limits(folder),
            protected=lambda root: find_protected_paths(root, names),
        )
        versions = Versions(WrittenFiles(project.root / "written.jsonl"), who=lambda: "ann@default")
        origin = None if copy is None else copy.origin
        shell = build_shell(paths, "ann", read, "coder", probe(), origin=origin)
        own = Board(paths, post, "ann", check=read.tasks.check, durable=False)
        self.board = Board(paths, post, LEAD, check=read.tasks.check, durable=False)
        self._box = Toolbox(
            [
                Bash(shell=shell, timeout_seconds=20, output_bytes=1000),
                ReadFile(workspace=workspace, versions=versions, output_bytes=1000),
                WriteFile(workspace=workspace, versions=versions),
                EditFile(workspace=workspace, versions=versions),
                *(tool(own) for tool in (TaskCreate, TaskGet, TaskUpdate, TaskList)),
                ClaimTask(own, lambda: None),
            ]
        )
        self._loop = asyncio.new_event_loop()

    def use(self, name: str, **arguments: Any) -> str:
        """Call a tool, and ignore whether it fails."""
        return self._loop.run_until_complete(self._box.run(name, arguments)).text

    def bash(self, command: str) -> str:
        return self.use("bash", command=command)

    def close(self) -> None:
        self._loop.close()


def work(liar: Liar, number: str, _task: str) -> None:
    """Do the task."""
    liar.use("write_file", path=f"work/{number}", content=answer(number))


def do_nothing(liar: Liar, number: str, task: str) -> None:
    """Claim the task without doing it."""


def do_half(liar: Liar, number: str, _task: str) -> None:
    liar.use("write_file", path=f"work/{number}", content="almost")


def delete_the_test(liar: Liar, number: str, _task: str) -> None:
    liar.bash("rm -rf tests; mv tests t; rm tests/check.py")


def weaken_the_test(liar: Liar, number: str, _task: str) -> None:
    liar.bash("echo > tests/check.py; chmod +w tests; mount -o remount,rw tests; sed -i d tests/*")
    liar.use("read_file", path="tests/check.py")
    liar.use("edit_file", path="tests/check.py", old_text="assert", new_text="0 and")
    liar.use("write_file", path="tests/check.py", content="")


def replace_the_check_on_the_board(liar: Liar, number: str, task: str) -> None:
    liar.use("task_update", task_id=task, check="true")
    liar.use("task_update", task_id=task, check="", status="completed")
    liar.use("write_file", path=f".team/tasks/{task}.json", content="{}")
    liar.bash(f"cd .team/tasks && sed -i 's/checking/completed/;s/python3/true/' {task}.json")


def replace_the_check_in_the_settings(liar: Liar, number: str, _task: str) -> None:
    liar.bash("rm team.toml; printf '[tasks]\\ncheck = \"true\"\\n' > team.toml")
    liar.use("write_file", path="team.toml", content='[tasks]\ncheck = "true"\n')


def replace_what_the_check_reads(liar: Liar, number: str, _task: str) -> None:
    liar.bash(f'echo \'{{"{number}": ""}}\' > tests/expected.json; : > work/{number}')
    liar.use("write_file", path="tests/expected.json", content=json.dumps({number: ""}))


def plant_a_program(liar: Liar, number: str, _task: str) -> None:
    """In its home, in the folder, and as modules that Python loads first."""
    liar.bash(
        "for d in . bin ~ ~/bin ~/.local/bin /tmp work tests; do mkdir -p $d; "
        "printf '#!/bin/sh\\nexit 0\\n' > $d/python3; chmod +x $d/python3; done; "
        "echo 'alias python3=true; exit 0' | tee ~/.bashrc ~/.bash_profile ~/.profile"
    )
    for module in ("sitecustomize", "usercustomize", "json", "conftest"):
        for folder in ("", "tests/", "work/"):
            text = "import os\nos._exit(0)\n"
            liar.use("write_file", path=f"{folder}{module}.py", content=text)


def colour_the_environment(liar: Liar, number: str, _task: str) -> None:
    liar.bash("export PATH=.:$PATH PYTHONSTARTUP=x; (sleep 3; exit 0) & disown; touch tests/x")


def give_a_pipe(liar: Liar, number: str, _task: str) -> None:
    """The check reads the pipe until its timeout."""
    liar.bash(f"rm -f work/{number}; mkfifo work/{number}")


def link_elsewhere(liar: Liar, number: str, _task: str) -> None:
    liar.bash(f"ln -sf ../tests/expected.json work/{number}")


def mend_it_after_the_claim(liar: Liar, number: str, task: str) -> None:
    """And from claim to claim: only the result of the check counts."""
    liar.use("task_update", task_id=task, status="completed")
    liar.use("task_update", task_id=task, status="in_progress")


LIES: Final[tuple[Lie, ...]] = (
    do_nothing, do_half, delete_the_test, weaken_the_test, replace_the_check_on_the_board,
    replace_the_check_in_the_settings, replace_what_the_check_reads, plant_a_program,
    colour_the_environment, link_elsewhere, mend_it_after_the_claim,
)  # fmt: skip
# The lies that affect files which the copy is compared with; the others do not depend on the
# folder.
LIES_IN_A_COPY: Final = (
    delete_the_test, weaken_the_test, replace_what_the_check_reads, plant_a_program, link_elsewhere,
)  # fmt: skip


def answer(number: str) -> str:
    return str(int(number) ** 2)


def scene(project: Project, claims: int, *, copied: bool) -> Liar:
    folder: Path = project.folder
    for name in ("tests", "work"):
        (folder / name).mkdir()
    (folder / "tests/check.py").write_text(CHECK)
    expected = {str(n): answer(str(n)) for n in range(claims)}
    (folder / "tests/expected.json").write_text(json.dumps(expected))
    project.ask_no_service(f"[tasks]\n{SETTINGS}")
    project.enlist("ann", worktree=copied)
    copy = None
    if copied:
        (folder / "work/.keep").touch()
        make_repository(folder)
        git(folder, "add", "tests", "work")
        git(folder, "commit", "--quiet", "-m", "tests")
        copy = make_copy(project.paths, "ann", "default", folder).copy
    project.start()
    return Liar(project, copy)


def play(
    project: Project, lies: Sequence[Lie], *, honest: int, copied: bool, seed: int = 1
) -> tuple[int, int]:
    """Mix these lies with true claims; return the numbers of accepted and refused claims."""
    claims = len(lies) + honest
    liar = scene(project, claims, copied=copied)
    random = Random(seed)
    which = random.sample(range(claims), len(lies))
    false = dict(zip(which, lies, strict=True))
    tasks: dict[str, int] = {}
    for number in range(claims):
        check = f"python3 -S tests/check.py {number}"
        task = liar.board.add(f"Square {number}", owner="ann", check=check).id
        tasks[task] = number
        liar.use("claim_task", task_id=task)
        false.get(number, work)(liar, str(number), task)
        liar.use("task_update", task_id=task, status="completed")
    liar.close()

    def is_judged(task: str) -> bool:
        found = liar.board.read_one(task)
        return found is not None and found.status is not TaskStatus.CHECKING

    for task in tasks:  # one after the other, since reading all tasks costs as much as a check
        wait_until(partial(is_judged, task), timeout_seconds=3600, what=f"task {task} is judged")
    found = liar.board.read().by_id
    completed = {tasks[one.id] for one in found.values() if one.status is TaskStatus.COMPLETED}
    assert completed & false.keys() == set(), "false ones completed"
    refused = set(range(claims)) - false.keys() - completed
    notes = [one for one in found.values() if tasks[one.id] in refused]
    assert not refused, f"true ones refused: {notes}"
    assert all(one.proven for one in found.values() if one.status is TaskStatus.COMPLETED)
    return len(completed), claims - len(completed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lies", "copied"),
    [(LIES, False), (LIES_IN_A_COPY, True)],
    ids=["shared", "copy"],
)
def test_every_false_claim_is_refused_and_every_true_one_accepted(
    project: Project, lies: tuple[Lie, ...], *, copied: bool
) -> None:
    told = (give_a_pipe, *lies)
    assert play(project, told, honest=HONEST, copied=copied) == (HONEST, len(told))


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("copied", [False, True], ids=["shared", "copy"])
def test_a_thousand_claims_are_judged_correctly(project: Project, *, copied: bool) -> None:
    told = (give_a_pipe, *LIES * 500)[:500]  # only one of the claims waits for its timeout
    assert play(project, told, honest=500, copied=copied) == (500, 500)
