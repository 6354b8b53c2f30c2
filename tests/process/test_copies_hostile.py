"""Files that an agent plants in its working copy never run unsandboxed, for any command.

Each plant assumes full rights in the copy, though sandboxed commands cannot write most of these
places. Plain git runs the plants, which proves that they work.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from teamd.copies import copy_status, record
from teamd.copies.copy_status import opened_diff
from teamd.copies.discard import discard
from teamd.copies.merge import merge
from teamd.copies.record import Copy
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.settings import Settings
from tests.repositories import copy_project, git, make_repository

HOOKS: Final = (
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout",
    "post-commit", "post-index-change", "post-merge", "post-receive", "post-rewrite", "post-update",
    "pre-applypatch", "pre-auto-gc", "pre-commit", "pre-merge-commit", "pre-push", "pre-rebase",
    "pre-receive", "prepare-commit-msg", "proc-receive", "push-to-checkout",
    "reference-transaction", "sendemail-validate", "update",
)  # fmt: skip
SETTINGS: Final = (
    "core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.askPass",
    "core.alternateRefsCommand", "core.gitProxy", "pager.diff", "pager.status", "diff.external",
    "diff.x.command", "diff.x.textconv", "filter.x.clean", "filter.x.smudge", "filter.x.process",
    "merge.x.driver", "credential.helper", "uploadpack.packObjectsHook", "gpg.program",
    "remote.origin.uploadpack", "remote.origin.vcs", "sequence.editor", "interactive.diffFilter",
    "fsmonitor.socketDir", "trailer.x.command", "browser.x.cmd", "man.x.cmd",
)  # fmt: skip
ALIASES: Final = (
    "status", "diff", "rev-parse", "rev-list", "pack-objects", "add", "reset", "clean",
    "symbolic-ref", "update-ref", "ls-files", "write-tree", "commit-tree", "merge",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scene:
    """A repository of the person, and a copy with a commit, uncommitted changes and new files.

    Attributes:
        mark: a file that every planted command creates when it runs outside of a sandbox.
    """

    paths: TeamPaths
    source: Path
    copy: Copy
    mark: Path

    @property
    def trap(self) -> str:
        """A command that creates the mark, if it may write there."""
        return f"touch {self.mark}; cat"

    def plant_script(self, path: Path) -> None:
        """Write the command into a program."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{self.trap}\n")
        path.chmod(0o755)

    def plant_setting(self, name: str, value: str) -> None:
        """Write a line of the copy's own settings."""
        git(self.source, "config", "--file", str(self.copy.folder / ".git/config"), name, value)

    def ask_everything(self) -> list[str]:
        """Run all commands of a person on a copy; return the refusals."""
        refused = []
        for ask in (
            lambda: copy_status.look(self.paths, self.copy),
            lambda: copy_status.to_json(self.paths, self.copy),
            self._diff,
            lambda: merge(self.paths, "alice", Settings()),
            self._commit,
            lambda: merge(self.paths, "alice", Settings()),
            self._change,
            lambda: discard(self.paths, "alice"),
            lambda: discard(self.paths, "alice", force=True),
            lambda: copy_status.look(self.paths, record.get(self.paths, "alice")),
        ):
            try:
                ask()
            except TeamError as error:
                refused.append(str(error))
        return refused

    def _diff(self) -> None:
        with opened_diff(self.paths, self.copy, colour=True) as file:
            file.read()

    def _commit(self) -> None:
        """Commit as the agent would, with a repository of the same files but without plants."""
        plain = self.mark.with_name("plain")
        folder = self.copy.folder / ".git"
        with suppress(OSError):
            shutil.copytree(folder, plain, symlinks=True, dirs_exist_ok=True)
            (plain / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
            shutil.rmtree(plain / "hooks", ignore_errors=True)
            (plain / "commondir").unlink(missing_ok=True)
            words = ("--git-dir", str(plain), "--work-tree", str(self.copy.folder))
            git(self.source, *words, "add", "-A", check=False)
            git(self.source, *words, "commit", "-qm", "all", check=False)
            shutil.copytree(plain / "objects", folder / "objects", dirs_exist_ok=True)
            shutil.copy(plain / "index", folder / "index")
            shutil.copy(plain / "refs/heads/team/alice", folder / "refs/heads/team/alice")

    def _change(self) -> None:
        (self.copy.folder / "again.txt").write_text("again\n")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    source = tmp_path / "project"
    paths = copy_project(source, "alice")
    copy = record.get(paths, "alice")
    (copy.folder / "a.txt").write_text("changed\n")
    git(copy.folder, "commit", "-qam", "by alice")
    (copy.folder / "b.txt").write_text("not committed\n")
    (copy.folder / "new.txt").write_text("new\n")
    return Scene(paths, source, copy, tmp_path / "it-ran")


def plant_hooks(scene: Scene) -> None:
    for name in HOOKS:
        scene.plant_script(scene.copy.folder / ".git/hooks" / name)


def plant_settings(scene: Scene) -> None:
    for name in SETTINGS:
        scene.plant_setting(name, scene.trap)
    scene.plant_setting("commit.gpgSign", "true")
    scene.plant_setting("log.showSignature", "true")
    (scene.copy.folder / ".gitattributes").write_text("* filter=x diff=x merge=x\n")


def plant_fsmonitor(scene: Scene) -> None:
    scene.plant_setting("core.fsmonitor", scene.trap)


def plant_filter(scene: Scene) -> None:
    for kind in ("clean", "smudge", "process"):
        scene.plant_setting(f"filter.x.{kind}", scene.trap)
    scene.plant_setting("filter.x.required", "true")
    (scene.copy.folder / ".git/info").mkdir(exist_ok=True)
    (scene.copy.folder / ".git/info/attributes").write_text("* filter=x diff=x merge=x\n")


def plant_aliases(scene: Scene) -> None:
    for name in ALIASES:
        scene.plant_setting(f"alias.{name}", f"!{scene.trap}")


def plant_include(scene: Scene) -> None:
    (scene.copy.folder / "more").write_text(f"[core]\n\tfsmonitor = {scene.trap!r}\n")
    scene.plant_setting("include.path", "../more")
    scene.plant_setting("core.hooksPath", "own-hooks")
    for name in HOOKS:
        scene.plant_script(scene.copy.folder / "own-hooks" / name)


def plant_submodule(scene: Scene) -> None:
    """Add a submodule whose address is a command, and whose own settings run one."""
    inner = make_repository(scene.copy.folder / "sub")
    git(inner, "config", "core.fsmonitor", scene.trap)
    url = f"ext::sh -c {scene.trap.replace(' ', '% ')}"
    module = f'[submodule "sub"]\n\tpath = sub\n\turl = {url}\n\tupdate = !{scene.trap}\n'
    (scene.copy.folder / ".gitmodules").write_text(module)
    for name, value in (("url", url), ("update", f"!{scene.trap}"), ("active", "true")):
        scene.plant_setting(f"submodule.sub.{name}", value)
    scene.plant_setting("protocol.ext.allow", "always")
    scene.plant_setting("submodule.recurse", "true")
    scene.plant_setting("remote.origin.url", url)
    scene.plant_setting("remote.origin.promisor", "true")


def plant_link_to_source(scene: Scene) -> None:
    """Link the copy's repository to the person's: a reset would hit the person's work."""
    shutil.rmtree(scene.copy.folder / ".git")
    (scene.copy.folder / ".git").symlink_to(scene.source / ".git")


def plant_link_elsewhere(scene: Scene) -> None:
    other = make_repository(scene.mark.with_name("other"))
    git(other, "config", "core.fsmonitor", scene.trap)
    shutil.rmtree(scene.copy.folder / ".git")
    (scene.copy.folder / ".git").symlink_to(other / ".git")


def plant_file(scene: Scene) -> None:
    other = make_repository(scene.mark.with_name("other"))
    git(other, "config", "core.fsmonitor", scene.trap)
    shutil.rmtree(scene.copy.folder / ".git")
    (scene.copy.folder / ".git").write_text(f"gitdir: {other}/.git\n")


def plant_commondir(scene: Scene) -> None:
    other = make_repository(scene.mark.with_name("other"))
    git(other, "config", "core.fsmonitor", scene.trap)
    (scene.copy.folder / ".git/commondir").write_text(f"{other}/.git\n")
    scene.plant_setting("core.worktree", str(scene.source))


def plant_refs(scene: Scene) -> None:
    tip = git(scene.copy.folder, "rev-parse", "HEAD")
    heads = scene.copy.folder / ".git/refs/heads"
    for name in (
        f"--upload-pack=touch {scene.mark.name}",
        f"$(touch${{IFS}}{scene.mark.name})",
        f";touch {scene.mark.name};",
        "-x",
        "\x1b[2J",
        "a\nb",
    ):
        (heads / name).write_text(f"{tip}\n")
    (scene.copy.folder / ".git/HEAD").write_text(f"ref: refs/heads/;touch {scene.mark.name};\n")


def plant_links(scene: Scene) -> None:
    """Replace files that git writes by links to the person's files."""
    for name in ("index", "ORIG_HEAD", "logs/HEAD"):
        (scene.copy.folder / ".git" / name).unlink(missing_ok=True)
        (scene.copy.folder / ".git" / name).symlink_to(scene.source / "a.txt")
    (scene.copy.folder / "a.txt").unlink()
    (scene.copy.folder / "a.txt").symlink_to(scene.source / "a.txt")


def plant_replacements(scene: Scene) -> None:
    """Change the history by replacements and grafts."""
    folder = scene.copy.folder
    other = git(folder, "commit-tree", "HEAD^{tree}", "-m", "other")
    git(folder, "replace", "HEAD", other)
    (folder / ".git/info/grafts").write_text(git(folder, "rev-parse", "HEAD") + "\n")


PLANTS: Final[dict[str, Callable[[Scene], None]]] = {
    name.removeprefix("plant_"): plant
    for name, plant in list(globals().items())
    if name.startswith("plant_")
}


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS)
def test_planted_code_does_not_run_in_any_command_of_the_person(plant: str, scene: Scene) -> None:
    before = git(scene.source, "rev-parse", "HEAD")
    PLANTS[plant](scene)
    refused = scene.ask_everything()
    assert not list(scene.source.parent.rglob(scene.mark.name)), refused
    assert (scene.source / "a.txt").read_text() in ("one\n", "changed\n"), refused
    git(scene.source, "merge-base", "--is-ancestor", before, "HEAD")
    assert git(scene.source, "symbolic-ref", "HEAD") == "refs/heads/main"
    state = copy_status.look(scene.paths, record.get(scene.paths, "alice"))
    assert not state.uncommitted, refused
    assert state.ahead == 0


@pytest.mark.parametrize("plant", ["hooks", "settings", "fsmonitor", "filter", "include", "file"])
def test_plain_git_would_run_planted_code(plant: str, scene: Scene) -> None:
    PLANTS[plant](scene)
    git(scene.copy.folder, "status", check=False)
    git(scene.copy.folder, "add", "-A", check=False)
    git(scene.copy.folder, "commit", "-qm", "x", check=False)
    assert scene.mark.exists()


@pytest.mark.slow
def test_the_settings_of_the_person_s_own_repository_apply_to_merges(scene: Scene) -> None:
    """Its hooks run as in a merge by the person, and a failing hook changes nothing."""
    git(scene.copy.folder, "add", "-A")
    git(scene.copy.folder, "commit", "-qm", "all")
    hook = scene.source / ".git/hooks/commit-msg"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {scene.mark}\necho 'no such message' >&2\nexit 1\n")
    hook.chmod(0o755)
    before = git(scene.source, "rev-parse", "HEAD")
    for squash in (False, True):
        with pytest.raises(TeamError, match="nothing has changed: no such message"):
            merge(scene.paths, "alice", Settings(), squash=squash)
        assert git(scene.source, "rev-parse", "HEAD") == before
        assert git(scene.source, "status", "--porcelain") == ""
        assert not (scene.source / ".git/MERGE_HEAD").exists()
    assert scene.mark.exists()
    hook.unlink()
    assert merge(scene.paths, "alice", Settings(), squash=True, message="All of it").merged == 2
    assert git(scene.source, "log", "--format=%s", "--no-merges") == "All of it\nfirst"


def test_damaged_or_missing_objects_are_refused(scene: Scene) -> None:
    """A commit whose parent is missing, hidden by a forged shallow file."""
    folder = scene.copy.folder
    blob = git(folder, "hash-object", "-w", "a.txt")
    scene_tree = folder.with_name("listing")
    scene_tree.write_text(f"100644 blob {blob}\tinside\n")
    git(folder, "commit", "-qam", "rest")
    git(folder, "clean", "-qfd")
    git(folder, "rm", "-q", "--cached", "b.txt")
    tree = git(folder, "write-tree")
    gone = "0123456789" * 4
    raw = f"tree {tree}\nparent {gone}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nx\n"
    (folder.with_name("raw")).write_text(raw)
    made = git(
        folder, "hash-object", "-t", "commit", "--literally", "-w", str(folder.with_name("raw"))
    )
    git(folder, "update-ref", "refs/heads/team/alice", made)
    git(folder, "reset", "-q", "--hard", check=False)
    (folder / ".git/shallow").write_text(f"{made}\n")
    before = git(scene.source, "for-each-ref")
    with pytest.raises(TeamError):
        merge(scene.paths, "alice", Settings())
    assert git(scene.source, "for-each-ref") == before
    assert git(scene.source, "status", "--porcelain") == ""
