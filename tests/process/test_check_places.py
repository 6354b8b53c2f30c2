"""The place of a check: limited in the shared folder, and a clean clone that lies cannot affect."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from teamd.board.task import Attempt
from teamd.checks.commands import (
    KILLED,
    NOT_STARTED,
    OVERDUE,
    CheckKilled,
    Tail,
    run_commands,
)
from teamd.checks.places import CleanClone, NoPlace, OpenPlace, commit_work, empty
from teamd.programs.sandboxed import Bounds
from teamd.sandbox.shells import ClosedShell, Shell
from tests.shells import sandboxed_shell

pytestmark = pytest.mark.slow


CHECK = "python3 -S tests/check.py"
TEST = "import app\nassert app.double(2) == 4, app.double(2)\n"
# The hooks that are planted below must not run here, outside of every sandbox.
OURS = (
    "-c", "user.name=ann", "-c", "user.email=ann@example.org", "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
)  # fmt: skip
FORGE = "forge an object"
FORKS = "for n in 1 2 3 4 5; do sleep 9 & done; wait; exit 1"


def make_shell(aside: Path, folder: Path, lent: Iterable[Path] = ()) -> Shell:
    return sandboxed_shell(folder, aside=aside / folder.name, lent=tuple(lent))


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *OURS, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def check(place: CleanClone | Shell, *commands: str, seconds: float = 30.0) -> tuple[Attempt, str]:
    """Run a check; return its attempt and the end of its output."""
    output = Tail()

    async def run() -> Attempt:
        opened = place.opened() if isinstance(place, CleanClone) else nullcontext(OpenPlace(place))
        async with opened as there:
            return await run_commands(there.shell, commands, seconds=seconds, output=output)

    return asyncio.run(run()), output.text()


@pytest.fixture
def shared(tmp_path: Path) -> Shell:
    (tmp_path / "shared").mkdir()
    return make_shell(tmp_path / "aside", tmp_path / "shared")


def test_a_check_passes_only_if_every_command_exits_with_status_0(shared: Shell) -> None:
    attempt, output = check(shared, "echo one", "echo two; exit 3", "echo three")
    assert (attempt.status, attempt.why, attempt.command) == (3, "", "echo two; exit 3")
    assert output == "one\ntwo"
    assert not attempt.passed
    assert check(shared, "true", "true")[0].passed
    assert check(shared, "true) || (true", "false")[0].status == 2


def test_time_output_and_memory_of_a_check_are_limited(shared: Shell, tmp_path: Path) -> None:
    attempt, _ = check(shared, "sleep 60", seconds=0.5)
    assert attempt.status == OVERDUE
    assert attempt.why == "it took longer than 0.5 s, and was ended"
    attempt, _ = check(shared, "sleep 1", "sleep 1", seconds=1.5)
    assert attempt.why == "it took longer than 1.5 s, and was ended", "the limit is for both"
    attempt, output = check(shared, "yes | head -c 10000000; echo the end; exit 1")
    assert output.endswith("the end")
    assert len(output) <= 4000
    bounds = Bounds(processes=3, memory_bytes=4 << 30, file_bytes=1 << 20)
    (tmp_path / "aside2").mkdir()
    small = sandboxed_shell(tmp_path / "shared", aside=tmp_path / "aside2", bounds=bounds)
    attempt, _ = check(small, FORKS)
    assert attempt.status == KILLED
    assert "it had more than 3 processes" in attempt.why


@pytest.mark.parametrize("command", ["kill -9 $$", "kill -TERM $$", "sh -c 'kill -9 $$'"])
def test_a_killed_check_counts_neither_as_passed_nor_as_failed(shared: Shell, command: str) -> None:
    """The origin of the kill is unknown; kills are counted elsewhere."""
    with pytest.raises(CheckKilled):
        check(shared, command)


def test_without_a_sandbox_a_check_does_not_run_and_says_so() -> None:
    attempt, _ = check(ClosedShell("commands are refused: why"), "true")
    assert (attempt.status, attempt.why) == (NOT_STARTED, "commands are refused: why")
    assert not attempt.passed


class Repositories:
    """The person's repository and a teammate's clone of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.origin, self.work = folder / "origin", folder / "work"
        (self.origin / "tests").mkdir(parents=True)
        git(self.origin, "init", "-q", "--initial-branch=main")
        (self.origin / "app.py").write_text("def double(n):\n    return n\n")
        (self.origin / "tests/check.py").write_text("import sys\nsys.path.append('.')\n" + TEST)
        git(self.origin, "add", "-A")
        git(self.origin, "commit", "-qm", "begin")
        self.base = git(self.origin, "rev-parse", "HEAD")
        git(folder, "clone", "-q", "--shared", str(self.origin), str(self.work))

    def commit(self) -> str:
        git(self.work, "add", "-A")
        git(self.work, "commit", "-qm", "work", "--allow-empty")
        return git(self.work, "rev-parse", "HEAD")

    def clone(self, commit: str, *protect: str) -> CleanClone:
        make = partial(make_shell, self.folder / "aside")
        return CleanClone(
            folder=self.folder / "place",
            make_shell=make,
            make_walled_shell=make,
            commit=commit,
            repository=self.work,
            base=self.base,
            base_objects=self.origin / ".git/objects",
            protect=protect or ("tests/**",),
        )

    def passes(self, *protect: str) -> bool:
        """Commit the teammate's changes; return whether they pass."""
        return check(self.clone(self.commit(), *protect), CHECK)[0].passed


@pytest.fixture
def both(tmp_path: Path) -> Repositories:
    return Repositories(tmp_path)


def mend(both: Repositories) -> None:
    (both.work / "app.py").write_text("def double(n):\n    return 2 * n\n")


def test_genuine_work_passes_and_the_folder_of_its_check_is_removed(both: Repositories) -> None:
    mend(both)
    (both.work / "README").write_text("new")
    assert both.passes()
    assert not (both.folder / "place").exists()


PYTHON_PREFERS = "printf 'def double(n):\\n    return 4\\n'"  # a module beside the script
HOOK = "#!/bin/sh\\nfind / -name check.py -path '*tests*' -exec cp /dev/null {} ';'\\n"
# Changes of the teammate in its clone, besides true work or none.
LIES = {
    "nothing": ":",
    "delete the test": "git rm -rq tests",
    "weaken the test": ": > tests/check.py",
    "link the tests": "git mv tests others; : > others/check.py; ln -s others tests",
    "put a file in place of the tests": "git rm -rq tests; : > tests",
    "add a module beside the test": f"{PYTHON_PREFERS} > tests/app.py",
    "leave the change untracked": (
        "printf 'hidden\\ntests\\n' > .gitignore; : > tests/check.py; "
        "git update-index --assume-unchanged tests/check.py"
    ),
    "change files by attributes": (
        "echo 'tests/** filter=evil ident working-tree-encoding=UTF-7' > .gitattributes; "
        "git config filter.evil.smudge true; git config filter.evil.clean cat; "
        "echo 'tests/** filter=evil' > .git/info/attributes"
    ),
    "plant hooks": (
        "for name in post-checkout post-index-change reference-transaction; do "
        f'printf "{HOOK}" > .git/hooks/$name; chmod +x .git/hooks/$name; done; '
        "git config core.fsmonitor 'echo > tests/check.py'; "
        "git config uploadpack.packObjectsHook true"
    ),
    FORGE: (  # an empty test under the object name of the true one
        "path() { echo .git/objects/$(echo $1 | cut -c-2)/$(echo $1 | cut -c3-); }; "
        "forged=$(path $(git rev-parse HEAD:tests/check.py)); : > empty; "
        "mkdir -p $(dirname $forged); cp $(path $(git hash-object -w empty)) $forged"
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_changes_to_protected_files_count_neither_for_nor_against_the_work(
    both: Repositories, lie: str
) -> None:
    subprocess.run(["sh", "-ec", LIES[lie]], cwd=both.work, check=True)
    try:
        assert not both.passes()
    except NoPlace:
        assert lie == FORGE, "git cannot clone the broken repository"
        return
    mend(both)
    assert both.passes()


def test_files_that_a_program_loads_implicitly_must_be_protected(both: Repositories) -> None:
    """For example a `conftest.py`: the person must list it, or a false claim passes."""
    for name in ("sitecustomize.py", "conftest.py"):
        (both.work / name).write_text("import os\nos._exit(0)\n")
    liar = "PYTHONPATH=. python3 -c 'import conftest; raise SystemExit(1)'"
    commit = both.commit()
    assert check(both.clone(commit), liar)[0].passed
    assert not check(both.clone(commit, "tests/**", "**/conftest.py", "*.py"), liar)[0].passed


def test_a_planted_program_is_not_on_the_path(both: Repositories) -> None:
    """Neither from the clone nor from the teammate's home: each check has a new home."""
    planted = both.work / "bin"
    planted.mkdir()
    (planted / "pytest-of-ours").write_text("#!/bin/sh\nexit 0\n")
    (planted / "pytest-of-ours").chmod(0o755)
    attempt, _ = check(both.clone(both.commit()), "pytest-of-ours")
    assert attempt.status == 127


def test_work_that_shares_no_history_with_the_base_is_checked_too(both: Repositories) -> None:
    git(both.work, "checkout", "-q", "--orphan", "other")
    mend(both)
    assert both.passes()


def test_the_clone_has_its_history_and_the_base(both: Repositories) -> None:
    mend(both)
    commit = both.commit()
    attempt, output = check(both.clone(commit), "git log --format=%H; git status --porcelain")
    assert attempt.passed, output
    assert output.splitlines()[:2] == [commit, both.base]


def test_work_is_committed_in_the_name_of_its_teammate(both: Repositories, tmp_path: Path) -> None:
    mend(both)
    (both.work / "new").write_text("x")
    shell = make_shell(tmp_path / "other", both.work, [both.origin / ".git/objects"])
    work = partial(
        commit_work, shell, both.work, email="alice@default", branch="main", base=both.base
    )
    commit = asyncio.run(work("Write 'it'", name="alice"))
    said = git(both.work, "log", "-1", "--format=%H|%an|%ae|%s")
    assert said == f"{commit}|alice|alice@default|Write 'it'"
    assert git(both.work, "status", "--porcelain") == ""
    assert asyncio.run(work("x", name="alice")) == commit


def test_work_is_committed_while_its_teammate_still_writes(
    both: Repositories, tmp_path: Path
) -> None:
    (both.work / ".gitattributes").write_text("early filter=vanish\n")
    git(both.work, "config", "filter.vanish.clean", "rm -f late; cat")
    for name in ("early", "late", ".teamd-0123456789abcdef.tmp"):
        (both.work / name).write_text("x")
    shell = make_shell(tmp_path / "other", both.work, [both.origin / ".git/objects"])
    made = commit_work(shell, both.work, "x", name="a", email="a@b", branch="main", base=both.base)
    commit = asyncio.run(made)
    changed = git(both.work, "diff", "--name-only", both.base, commit)
    assert changed.split() == [".gitattributes", "early"]


def test_work_is_committed_even_if_find_cannot_enter_a_folder(
    both: Repositories, tmp_path: Path
) -> None:
    """It also fails if a folder vanishes under it, as those of other claims do."""
    (both.work / "closed").mkdir(mode=0)
    (both.work / "new").write_text("x")
    shell = make_shell(tmp_path / "other", both.work, [both.origin / ".git/objects"])
    made = commit_work(shell, both.work, "x", name="a", email="a@b", branch="main", base=both.base)
    commit = asyncio.run(made)
    (both.work / "closed").rmdir()
    assert git(both.work, "diff", "--name-only", both.base, commit).split() == ["new"]


def test_an_invalid_commit_cannot_be_checked(both: Repositories) -> None:
    with pytest.raises(NoPlace, match="is not a commit id"):
        check(both.clone("HEAD; true"), CHECK)
    with pytest.raises(NoPlace):
        check(both.clone("0" * 40), CHECK)
    assert not (both.folder / "place").exists()


def test_files_of_commands_are_removed_without_following_links(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "c").write_text("x")
    (tmp_path / "kept").write_text("x")
    (deep / "link").symlink_to(tmp_path)
    deep.chmod(0)
    empty(tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
