"""Commands of a teammate with a working copy reach nothing else of the project."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import pytest

from teamd.copies import clone, copy_status, record
from teamd.copies.discard import discard
from teamd.copies.record import Copy
from teamd.files.paths import TeamPaths
from teamd.sandbox.build import build_shell
from teamd.sandbox.probe import probe
from teamd.sandbox.shells import Shell
from teamd.settings.schema import Settings, TeamSettings, ToolSettings
from teamd.tools import Result, Toolbox
from teamd.tools.background import BackgroundRun, CheckBackground, Jobs, StopBackground
from teamd.tools.shell import Bash
from tests.repositories import commit, copy_project, git
from tests.waiting import until


@dataclass(frozen=True, slots=True)
class Scene:
    """A repository of the person with copies for alice and carl; bob works in the folder itself."""

    paths: TeamPaths
    alice: Copy
    carl: Copy

    @property
    def source(self) -> Path:
        return self.paths.home

    def shell(self, name: str, **tools: object) -> Shell:
        copies = {"alice": self.alice, "carl": self.carl}
        copy = copies.get(name)
        settings = Settings(
            team=TeamSettings(workspace=copy.folder if copy else self.source),
            tools=ToolSettings(**tools),  # type: ignore[arg-type]
        )
        origin = copy.origin if copy else None
        return build_shell(self.paths, name, settings, "coder", probe(), origin=origin)

    def box(self, name: str, shell: Shell) -> Toolbox:
        jobs = Jobs(self.paths.jobs(name), ring=lambda: None)
        bash = Bash(shell=shell, timeout_seconds=60, output_bytes=9000)
        return Toolbox(
            [
                bash,
                BackgroundRun(jobs, shell),
                CheckBackground(jobs, output_bytes=9000),
                StopBackground(jobs),
            ]
        )

    def run(self, name: str, *commands: str, **tools: object) -> list[str]:
        """Run commands of a teammate; return the model's view of each result."""

        async def run() -> list[str]:
            box = self.box(name, self.shell(name, **tools))
            return [(await box.run("bash", {"command": one})).text for one in commands]

        return asyncio.run(run())


def make_scene(folder: Path) -> Scene:
    paths = copy_project(folder, "alice", "carl")
    return Scene(paths, record.get(paths, "alice"), record.get(paths, "carl"))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return make_scene(tmp_path / "project")


@pytest.fixture
def system_scene() -> Iterator[Scene]:
    """A project in a system folder, which commands may read completely."""
    folder = Path(mkdtemp(prefix="teamd-test-", dir="/opt"))
    folder.chmod(0o755)
    yield make_scene(folder / "project")
    shutil.rmtree(folder)


def test_commands_commit_in_the_copy_in_their_teammate_s_name(scene: Scene) -> None:
    said = scene.run(
        "alice", "echo x > a.txt; git commit -qam mine && git log -1 --format='%an <%ae> %s'"
    )
    assert said == ["alice <alice@default> mine"]
    assert copy_status.look(scene.paths, scene.alice).ahead == 1
    assert git(scene.source, "log", "--format=%s") == "first"


def check_reach(scene: Scene, **tools: object) -> None:
    """Check that alice's commands reach her copy, and read but cannot change the objects."""
    objects = scene.alice.origin.objects
    seen, other, team, read, _, *written = scene.run(
        "alice",
        f"ls -A {scene.source}",
        f"cat {scene.carl.folder}/a.txt",
        f"ls -A {scene.paths.root} {scene.paths.work}",
        f"ls {objects} | wc -l; cat a.txt",
        f"touch {scene.source}/x",  # creates a file only in the sandbox, if at all
        f"touch {objects}/x",
        f"rm -rf {objects}/pack {objects}/??",
        f"mv {objects} {objects}-2",
        f"echo /etc > {scene.alice.folder}/.git/objects/info/alternates",
        **tools,
    )
    assert seen == ".git\n.team"
    assert "No such file" in other
    assert team == f"{scene.paths.root}:\nwork\n\n{scene.paths.work}:\nalice"
    assert read.endswith("one")
    assert read.splitlines()[0] != "0"
    for one in written:
        assert "[exit status 1]" in one, written
    git(scene.source, "fsck", "--strict")
    assert not (scene.source / "x").exists()


@pytest.mark.slow
def test_commands_see_the_copy_and_nothing_else_of_the_project(scene: Scene) -> None:
    check_reach(scene)


@pytest.mark.slow
def test_a_readable_parent_folder_does_not_reveal_the_project(scene: Scene) -> None:
    check_reach(scene, read=(scene.source.parent,))


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes there")
def test_a_project_in_a_system_folder_is_not_revealed(system_scene: Scene) -> None:
    check_reach(system_scene)
    red = TeamPaths(system_scene.source / ".teams/red")
    red.create()
    copy = clone.make_copy(red, "alice", "red", system_scene.source).copy
    of_red = Scene(red, copy, copy)
    assert of_red.run("alice", f"ls -A {red.home} {red.root.parent}; cat a.txt") == [
        f"{red.home}:\n.git\n.teams\n\n{red.root.parent}:\nred\none"
    ]


@pytest.mark.slow
def test_the_repository_of_a_copy_is_protected(scene: Scene) -> None:
    """Git would run its hooks and settings with the rights of any user who uses it there."""
    folder = scene.alice.folder
    said = scene.run(
        "alice",
        "git config core.fsmonitor 'touch /tmp/x'",
        "echo x > .git/hooks/post-checkout",
        "mv .git .g",
        "rm -rf .git/hooks && ln -s /tmp .git/hooks",
        "echo /tmp > .git/commondir",
        "mv .git/objects .git/o",
    )
    for one in said[:-2]:
        assert "exit status" in one, said
    assert "fsmonitor" not in (folder / ".git/config").read_text()
    assert not (folder / ".git/commondir").exists()
    assert sorted(one.name for one in folder.iterdir()) == [".git", "a.txt", "b.txt"]
    assert (folder / ".git/objects/info/alternates").exists()


def test_git_in_a_copy_can_change_protected_files_and_does_not_see_placeholders(
    scene: Scene,
) -> None:
    (scene.source / "AGENTS.md").write_text("old\n")
    (scene.source / ".vscode").mkdir()
    (scene.source / ".vscode/tasks.json").write_text("old\n")
    git(scene.source, "add", "--all", "AGENTS.md", ".vscode")
    git(scene.source, "commit", "--quiet", "-m", "old")
    old = git(scene.source, "rev-parse", "HEAD")
    (scene.source / "AGENTS.md").write_text("new\n")
    git(scene.source, "rm", "--quiet", "-r", ".vscode")
    git(scene.source, "commit", "--quiet", "-am", "new")
    new = git(scene.source, "rev-parse", "HEAD")
    shown, *said = scene.run(
        "alice",
        "ls -A",
        f"git merge -q {old} && cat AGENTS.md .vscode/tasks.json",
        f"git merge -q {new} && cat AGENTS.md && ls -A | grep -v team",
        f"git checkout -q {old} && git switch -q - && git stash -q; git status --short",
        "echo mine > AGENTS.md && git stash -q && cat AGENTS.md && git stash drop -q",
        protect=("deploy",),
    )
    assert shown == ".git\n.team\n.teams\na.txt\nb.txt", "the folders of teams stay closed"
    assert said == ["old\nold", "new\n.git\nAGENTS.md\na.txt\nb.txt", "(no output)", "new"]


def test_git_in_a_copy_can_stash_and_remove_new_files(scene: Scene) -> None:
    """Otherwise git would fail to remove the empty folders that hide the team directories."""
    stashed, popped, cleaned = scene.run(
        "alice",
        "echo x >> a.txt; echo n > new; git stash -u && git status --short",
        "git stash pop -q && git status --short",
        "git clean -fdx && git status --short",
    )
    assert stashed.startswith("Saved working directory")
    assert popped == " M a.txt\n?? new"
    assert cleaned == "Removing new\n M a.txt"


def test_git_in_a_copy_explains_how_to_push_and_pushes_within_the_sandbox(scene: Scene) -> None:
    """Also where a script pushes, of which teamd sees nothing before."""
    said, inner = scene.run(
        "alice",
        "git status --short && (echo 'git push' > x.sh; sh x.sh origin HEAD; rm x.sh)",
        "git init -q --bare -b main /tmp/b && git push -q /tmp/b HEAD:main; cd /tmp && "
        "git clone -q b c && cd c && git push",
    )
    assert "teamd: this sandbox reaches no remote; teamd pushes outside of it, when" in said
    assert "call bash with `git push` alone, without other commands, pipes or scripts" in said
    assert inner == "Everything up-to-date"
    git(scene.source, "remote", "add", "origin", "git@example.org:x.git")
    (shared,) = scene.run("bob", "git log -1 --format=%s && git push")
    assert shared.startswith("first\nteamd: this sandbox reaches no remote; ")


def test_a_teammate_in_the_shared_folder_cannot_point_a_copy_at_other_objects(scene: Scene) -> None:
    """The folder at that place is visible to others, and could be a folder of the person."""
    said = scene.run(
        "bob",
        "echo /root > .git/objects/info/alternates",
        "mv .git/objects .git/o",
        "rm -rf .git/objects/info && ln -s /root .git/objects/info",
        "echo x > a.txt && git commit -qam 'by bob' && git gc -q && git log -1 --format=%s",
    )
    assert all("[exit status 1]" in one for one in said[:3]), said
    assert said[3] == "by bob"
    assert not (scene.source / ".git/objects/info/alternates").exists()
    assert scene.run("alice", "git log --format=%s") == ["first"]


def test_a_copy_whose_objects_folder_was_replaced_does_not_reveal_the_replacement(
    scene: Scene,
) -> None:
    objects, secret = scene.alice.origin.objects, scene.source.parent / "secret"
    secret.mkdir()
    (secret / "key").write_text("canary")
    objects.rename(objects.with_name("o"))
    objects.symlink_to(secret)
    (said,) = scene.run("alice", f"cat {objects}/key")
    assert "canary" not in said


def test_a_teammate_can_merge_later_commits_of_the_person(scene: Scene) -> None:
    """As the error about a conflict says: the objects are there."""
    new = commit(scene.source, "since", c="c\n")
    assert scene.run("alice", f"git merge -q {new} && cat c.txt") == ["c"]


def test_discard_works_while_a_command_runs(scene: Scene) -> None:
    async def run() -> tuple[Result, Result]:
        box = scene.box("alice", scene.shell("alice"))
        begun = await box.run(
            "background_run", {"command": "echo x > new.txt; echo begun; sleep 60"}
        )
        assert not begun.is_error, begun.text
        await until((scene.alice.folder / "new.txt").exists, what="it has begun")
        discard(scene.paths, "alice", force=True)
        after = await box.run("bash", {"command": "git status --porcelain; ls *.txt"})
        return after, await box.run("stop_background", {"job_id": "1"})

    after, _ = asyncio.run(run())
    assert after.text == "a.txt\nb.txt"
    assert not copy_status.look(scene.paths, scene.alice).any
