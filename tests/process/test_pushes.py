"""Work of the team reaches a remote of the person with exactly the commits that were shown.

Plain git in the copy runs the plants of an agent, which proves that they work.
"""

from __future__ import annotations

import asyncio
import os
import re
import struct
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from teamd.copies import push, record
from teamd.copies.push import Push, PushFailed
from teamd.copies.source import Source
from teamd.copies.verified import open_verified
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.settings import Settings
from tests.process.test_copies_hostile import HOOKS, SETTINGS
from tests.repositories import commit, copy_project, git


@dataclass(frozen=True, slots=True)
class Scene:
    """A repository with a remote, and a copy with one commit."""

    paths: TeamPaths
    source: Path
    bare: Path
    copy: Path
    mark: Path

    def prepare(self, own: str = "HEAD", branch: str = "", remote: str = "") -> Push:
        return push.prepare_copy(
            self.paths, "alice", Settings(), remote=remote, own=own, branch=branch
        )

    def push(self, ready: Push) -> str:
        return asyncio.run(push.run_beside(self.paths, Source.of(self.source), ready))

    def at(self, branch: str, folder: Path | None = None) -> str:
        return git(folder or self.bare, "rev-parse", "-q", "--verify", branch, check=False)

    def refs(self) -> list[str]:
        return git(self.bare, "for-each-ref", "--format=%(refname)").split()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    source, bare = tmp_path / "project", tmp_path / "bare.git"
    paths = copy_project(source, "alice")
    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(bare))
    git(source, "remote", "add", "origin", str(bare))
    git(source, "push", "-q", "origin", "main")
    copy = record.get(paths, "alice").folder
    commit(copy, "by alice", a="changed\n")
    return Scene(paths, source, bare, copy, tmp_path / "it-ran")


def test_exactly_the_shown_commit_is_pushed_also_if_more_follow(scene: Scene) -> None:
    first = scene.at("HEAD", scene.copy)
    ready = scene.prepare()
    assert ready.commits == ((first, "by alice"),)
    assert "a.txt | 2 +-" in ready.stat
    assert (ready.remote, ready.branch, ready.url) == ("origin", "team/alice", str(scene.bare))
    commit(scene.copy, "later", a="again\n")
    assert scene.push(ready) == f"pushed 1 commit to team/alice of origin: {first[:12]}"
    assert scene.at("team/alice") == first
    assert scene.refs() == ["refs/heads/main", "refs/heads/team/alice"]
    assert scene.push(ready) == (
        f"team/alice of origin has {first[:12]} already; there was nothing to push"
    )


def plant_hooks(scene: Scene) -> None:
    for name in HOOKS:
        hook = scene.copy / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {scene.mark}\n")
        hook.chmod(0o755)
    git(scene.copy, "config", "remote.origin.url", str(scene.bare))


def plant_settings(scene: Scene) -> None:
    (scene.copy / ".git/info").mkdir(exist_ok=True)
    (scene.copy / ".git/info/attributes").write_text("* filter=x diff=x merge=x\n")
    for name in SETTINGS:
        git(scene.copy, "config", name, f"touch {scene.mark}; cat")
    git(scene.copy, "config", "remote.origin.url", "ssh://localhost/x.git")


def plant_remote_helper(scene: Scene) -> None:
    git(scene.copy, "config", "remote.origin.url", f"ext::touch {scene.mark}")
    git(scene.copy, "config", "protocol.ext.allow", "always")


def plant_addresses(scene: Scene) -> None:
    """Send a push elsewhere in each way that git knows; a push there leaves a mark."""
    other = scene.bare.with_name("other.git")
    git(scene.bare, "init", "-q", "--bare", str(other))
    (other / "hooks/post-receive").write_text(f"#!/bin/sh\ntouch {scene.mark}\n")
    (other / "hooks/post-receive").chmod(0o755)
    for name, value in (
        ("remote.origin.url", str(scene.bare)),
        ("remote.origin.pushurl", str(other)),
        ("remote.origin.push", "+refs/heads/*:refs/heads/*"),
        (f"url.{other}.insteadOf", str(scene.bare)),
        (f"url.{other}.pushInsteadOf", str(scene.bare)),
        ("push.followTags", "true"),
    ):
        git(scene.copy, "config", name, value)
    git(scene.copy, "tag", "-a", "-m", "mine", "v1")


def plant_include(scene: Scene) -> None:
    (scene.copy / "more").write_text(f'[remote "origin"]\n\turl = "ext::touch {scene.mark}"\n')
    git(scene.copy, "config", "include.path", "../more")
    git(scene.copy, "config", "protocol.ext.allow", "always")


PLANTS = (plant_hooks, plant_settings, plant_remote_helper, plant_addresses, plant_include)


@pytest.mark.parametrize("plant", PLANTS)
def test_nothing_of_the_copy_decides_where_a_push_goes_or_runs(
    scene: Scene, plant: Callable[[Scene], None]
) -> None:
    tip = scene.at("HEAD", scene.copy)
    plant(scene)
    scene.push(scene.prepare())
    assert not scene.mark.exists()
    assert scene.refs() == ["refs/heads/main", "refs/heads/team/alice"]
    assert scene.at("team/alice") == tip
    commit(scene.copy, "again", a="again\n")
    words = ["git", "-C", str(scene.copy), "-c", "push.default=current", "push", "origin"]
    subprocess.run(words, check=False, capture_output=True, stdin=subprocess.DEVNULL)
    assert scene.mark.exists(), "plain git runs or follows the plant"


def test_a_branch_that_looks_like_an_option_or_a_refspec_is_refused(scene: Scene) -> None:
    tip = scene.at("HEAD", scene.copy)
    for name in ("-x", "--exec=touch", "+x", "HEAD"):
        (scene.copy / ".git/HEAD").write_text(f"ref: refs/heads/{name}\n")
        (scene.copy / ".git/refs/heads" / name).write_text(f"{tip}\n")
        with pytest.raises(TeamError, match=f"'{re.escape(name)}' cannot be pushed to: it must be"):
            scene.prepare()
    for name in ("main:x", "x..y", "a b"):
        with pytest.raises(TeamError, match=f"'{name}' cannot be pushed to: it must be"):
            scene.prepare("team/alice", name)
    assert scene.refs() == ["refs/heads/main"]


def test_a_push_adds_to_a_branch_and_never_replaces_it(scene: Scene) -> None:
    scene.push(scene.prepare())
    there = scene.at("team/alice")
    git(scene.copy, "reset", "-q", "--hard", "HEAD^")
    commit(scene.copy, "instead", b="other\n")
    with pytest.raises(PushFailed, match="has commits that this work lacks, and nothing is forced"):
        scene.push(scene.prepare())
    assert scene.at("team/alice") == there


def test_a_branch_that_moves_while_git_pushes_is_not_replaced(scene: Scene) -> None:
    ready = scene.prepare()
    other = git(scene.bare, "commit-tree", "-m", "other", "main^{tree}")
    move = f"git -C {scene.bare} update-ref refs/heads/team/alice {other}"
    git(scene.source, "config", "remote.origin.receivepack", f"{move}; git-receive-pack")
    with pytest.raises(PushFailed, match="refused the push to team/alice"):
        scene.push(ready)
    assert scene.at("team/alice") == other


def test_settings_of_the_person_push_no_tags_and_no_submodules_instead(scene: Scene) -> None:
    ready = scene.prepare()
    git(scene.source, "tag", "-a", "-m", "mine", "v1", ready.commit)
    git(scene.source, "config", "push.followTags", "true")
    git(scene.source, "config", "push.recurseSubmodules", "only")
    push.run(scene.paths, Source.of(scene.source), ready)
    assert scene.refs() == ["refs/heads/main", "refs/heads/team/alice"]


def test_the_address_for_pushes_is_asked_what_it_has(scene: Scene) -> None:
    other = scene.bare.with_name("other.git")
    git(scene.source, "clone", "-q", "--bare", str(scene.bare), str(other))
    scene.push(scene.prepare())
    git(scene.source, "remote", "set-url", "--push", "origin", str(other))
    with pytest.raises(PushFailed, match="no longer has 1 commits that were not shown"):
        scene.push(scene.prepare())
    git(scene.source, "remote", "set-url", "--push", "--add", "origin", str(scene.bare))
    with pytest.raises(PushFailed, match="origin has several push addresses; push with git in "):
        scene.prepare()


def test_commits_that_were_not_shown_are_not_pushed(scene: Scene) -> None:
    """The remote has lost its main branch since the person's repository last looked."""
    ready = scene.prepare()
    git(scene.bare, "update-ref", "-d", "refs/heads/main")
    with pytest.raises(PushFailed, match="no longer has 1 commits that were not shown"):
        scene.push(ready)
    assert scene.refs() == []


def test_commits_that_the_remote_loses_while_git_pushes_are_not_sent_anew(scene: Scene) -> None:
    ready = scene.prepare()
    lose = f"git -C {scene.bare} update-ref -d refs/heads/main"
    git(scene.source, "config", "remote.origin.receivepack", f"{lose}; git-receive-pack")
    with pytest.raises(PushFailed, match="unpacker error"):
        scene.push(ready)
    assert scene.refs() == []


def test_a_remote_that_moved_since_is_named(scene: Scene) -> None:
    ready = scene.prepare()
    git(scene.source, "remote", "set-url", "--push", "origin", "/elsewhere.git")
    with pytest.raises(PushFailed, match=r"origin is at /elsewhere.git now, not at "):
        scene.push(ready)


def test_commits_that_a_branch_gets_from_other_branches_are_counted(scene: Scene) -> None:
    """They are not listed: the person has seen them in the push of the other branch."""
    scene.push(scene.prepare())
    assert not scene.prepare().stat.startswith(" and ")
    ready = scene.prepare(branch="main")
    assert (ready.summary, ready.stat.split("\n")[:2]) == (
        "0 commits to main of origin",
        [" and 1 commit of other branches of origin", " a.txt | 2 +-"],
    )
    commit(scene.copy, "more", a="more\n")
    assert len(scene.prepare(branch="main").commits) == 1
    assert scene.prepare(branch="main").stat.startswith(" and 1 commit of other branches")


def test_a_copy_without_commits_of_its_own_can_be_pushed(scene: Scene) -> None:
    git(scene.copy, "reset", "-q", "--hard", "HEAD^")
    ready = scene.prepare()
    assert (ready.commits, ready.stat, ready.known) == ((), "", False)
    assert scene.push(ready).startswith("pushed 0 commits to team/alice of origin: ")


def test_a_long_subject_is_cut_so_that_the_request_fits_into_a_mail(scene: Scene) -> None:
    commit(scene.copy, "x" * 100_000)
    assert [len(subject) for _, subject in scene.prepare().commits] == [200, len("by alice")]


def test_a_submodule_that_the_project_ignores_is_shown(scene: Scene) -> None:
    ignore = '[submodule "lib"]\n\tpath = lib\n\turl = ../lib\n\tignore = all\n'
    (scene.source / ".gitmodules").write_text(ignore)
    for lib in (scene.at("HEAD", scene.source), "1" * 40):
        git(scene.source, "update-index", "--add", "--cacheinfo", f"160000,{lib},lib")
        git(scene.source, "commit", "-qm", "harmless")
    git(scene.source, "update-ref", "refs/remotes/origin/main", "HEAD^")
    assert " lib | 2 +-" in push.prepare_branch(scene.paths, Source.of(scene.source), "HEAD").stat


def test_a_refusal_of_the_server_says_what_its_hook_said(scene: Scene) -> None:
    hook = scene.bare / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho 'ticket\x1b[31m missing' >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(PushFailed) as refused:
        scene.push(scene.prepare())
    assert str(refused.value) == (
        "origin refused the push to team/alice: [remote rejected] (pre-receive hook declined); "
        "remote: ticket [31m missing"
    )


def test_a_remote_out_of_reach_is_one_sentence(scene: Scene) -> None:
    git(scene.source, "remote", "set-url", "origin", "/no/such.git")
    with pytest.raises(PushFailed, match=r"not push to origin: .*'/no/such.git' does not"):
        scene.push(scene.prepare())


def test_the_persons_hook_runs_for_the_person_alone(scene: Scene) -> None:
    hook = scene.source / ".git/hooks/pre-push"
    hook.write_text("#!/bin/sh\necho 'tests fail' >&2\nexit 1\n")
    hook.chmod(0o755)
    source, ready = Source.of(scene.source), scene.prepare()
    assert push.skips_hook(source)
    with pytest.raises(PushFailed, match="tests fail"):
        push.run(scene.paths, source, ready)
    assert scene.push(ready).startswith("pushed 1 commit")


def test_a_subject_cannot_hide_a_commit(scene: Scene) -> None:
    """Characters at which Python, but not git, begins a line."""
    commit(scene.copy, "a\u2028commit x\x0bcommit y\rz", b="b\n")
    shown = scene.prepare().commits
    assert [subject for _, subject in shown] == ["a commit x commit y z", "by alice"]


def loose(repository: Path, name: str) -> Path:
    """Return the file of an object, which is named by its id."""
    found = git(repository, "rev-parse", name)
    return repository / ".git/objects" / found[:2] / found[2:]


def forge_commit(scene: Scene, base: str) -> str:
    """Give a commit another parent; return the command that restores it."""
    words = ("commit-tree", "-p", base, "-m", "middle", "HEAD~2^{tree}")
    return _exchange(scene, "HEAD~1", git(scene.source, *words))


def forge_tip(scene: Scene, base: str) -> str:
    words = ("commit-tree", "-p", base, "-m", "tip", "HEAD^{tree}")
    return _exchange(scene, "HEAD", git(scene.source, *words))


def forge_tree(scene: Scene, base: str) -> str:
    """Give the tip the files of the base, so that the hidden change is not in the comparison."""
    return _exchange(scene, "HEAD^{tree}", f"{base}^{{tree}}")


def forge_file(scene: Scene, _: str) -> str:
    harmless = scene.mark.with_name("harmless")
    harmless.write_text("one\ntwo\n")
    return _exchange(scene, "HEAD:a.txt", git(scene.source, "hash-object", "-w", str(harmless)))


def forge_shallow(scene: Scene, _: str) -> str:
    file = scene.source / ".git/shallow"
    file.write_text(git(scene.source, "rev-parse", "HEAD~1") + "\n")
    return f"rm -f {file}"


def _exchange(scene: Scene, name: str, other: str) -> str:
    """Put the content of an object into the file of another one."""
    file, forged = loose(scene.source, name), loose(scene.source, other).read_bytes()
    kept = file.with_name("kept")
    file.rename(kept)
    file.write_bytes(forged)
    return f"test -e {kept} && mv -f {kept} {file}"


FORGERIES = (forge_commit, forge_tree, forge_file, forge_shallow)


@pytest.mark.parametrize("after_the_question", [False, True])
@pytest.mark.parametrize("forge", FORGERIES)
def test_what_an_agent_in_the_shared_folder_forges_is_neither_shown_nor_pushed(
    scene: Scene, forge: Callable[[Scene, str], str], *, after_the_question: bool
) -> None:
    """Git often reads objects without comparing them to their ids, and it heeds .git/shallow.

    An agent sees each read of a file by inotify(7). So it knows when the push itself begins, and
    restores the file then.
    """
    base = scene.at("HEAD", scene.source)
    commit(scene.source, "hidden", a="secret\n")
    commit(scene.source, "middle", b="fine\n")
    commit(scene.source, "tip", b="finer\n")
    honest = push.prepare_branch(scene.paths, Source.of(scene.source), "HEAD", branch="x")
    restore = forge(scene, base)
    git(scene.source, "config", "remote.origin.receivepack", f"{restore}; git-receive-pack")
    with pytest.raises(TeamError, match=r"finds objects that are missing or altered, and `git fe"):
        scene.push(
            honest
            if after_the_question
            else push.prepare_branch(scene.paths, Source.of(scene.source), "HEAD", branch="x")
        )
    assert scene.refs() == ["refs/heads/main"]
    subprocess.run(["/bin/sh", "-c", restore], check=False)
    git(scene.source, "config", "--unset", "remote.origin.receivepack")
    again = push.prepare_branch(scene.paths, Source.of(scene.source), "HEAD", branch="x")
    assert again == honest
    scene.push(again)
    assert [subject for _, subject in again.commits] == ["tip", "middle", "hidden"]
    assert "a.txt | 2 +-" in again.stat


def test_what_is_forged_after_the_objects_were_copied_has_no_effect(scene: Scene) -> None:
    commit(scene.source, "middle", b="fine\n")
    tip = commit(scene.source, "tip", b="finer\n")
    source = Source.of(scene.source)
    for forge in (forge_shallow, forge_tip):
        with open_verified(scene.paths, source, tip, []) as store:
            restore = forge(scene, "HEAD~2")
            assert source.do("rev-list", "--count", tip) == "2"
            assert store.do("rev-list", "--count", tip) == "3"
        subprocess.run(["/bin/sh", "-c", restore], check=True)


def test_a_new_branch_is_compared_to_the_newest_commit_that_the_remote_has(scene: Scene) -> None:
    commit(scene.source, "on the remote", c="new\n")
    git(scene.source, "push", "-q", "origin", "main")
    git(scene.copy, "fetch", "-q", str(scene.source), "main")
    git(scene.copy, "merge", "-q", "-m", "with main", "FETCH_HEAD")
    ready = scene.prepare()
    assert [subject for _, subject in ready.commits] == ["with main", "by alice"]
    assert ready.stat.split("\n")[0] == " a.txt | 2 +-"
    assert "c.txt" not in ready.stat


def test_the_changed_files_are_those_of_the_branch_on_the_remote(scene: Scene) -> None:
    """An agent in the shared folder can write the refs from which the first comparison is made.

    Of the two commits on the remote it names one as the branch, and forgets the other.
    """
    base = scene.at("HEAD", scene.source)
    names = ("other", "third")
    tips = [commit(scene.source, name, **{name: "changed\n"}) for name in names]
    for name, tip in zip(names, tips, strict=True):
        git(scene.source, "push", "-q", "origin", f"{tip}:refs/heads/{name}")
    git(scene.source, "reset", "-q", "--hard", base)
    git(scene.source, "merge", "-q", "--no-ff", "-m", "tidy up", tips[-1])
    git(scene.source, "update-ref", "refs/remotes/origin/main", tips[0])
    git(scene.source, "update-ref", "-d", "refs/remotes/origin/third")
    ready = push.prepare_branch(scene.paths, Source.of(scene.source), "HEAD")
    assert "other.txt" not in ready.stat
    with pytest.raises(PushFailed, match="main of origin is not where the changes that were shown"):
        scene.push(ready)
    git(scene.source, "fetch", "-q", "--force", "origin", "+refs/heads/*:refs/remotes/origin/*")
    ready = push.prepare_branch(scene.paths, Source.of(scene.source), "HEAD")
    assert ready.stat.startswith(" and 2 commits of other branches of origin\n other.txt ")
    scene.push(ready)


def test_a_shallow_clone_pushes_what_began_at_its_end(scene: Scene) -> None:
    """Its history ends at a commit of the remote, so nothing is hidden behind that."""
    commit(scene.source, "more", b="more\n")
    git(scene.source, "push", "-q", "origin", "main")
    shallow = scene.source.with_name("shallow")
    words = ("clone", "-q", "--depth", "1", f"file://{scene.bare}", str(shallow))
    git(scene.bare, *words)
    for subject in ("one", "two"):
        commit(shallow, subject, a=f"{subject}\n")
    source = Source.of(shallow)
    for branch in ("x", "main"):
        ready = push.prepare_branch(scene.paths, source, "HEAD", branch=branch)
        assert [subject for _, subject in ready.commits] == ["two", "one"]
        assert ready.stat.endswith("1 file changed, 1 insertion(+), 1 deletion(-)")
        asyncio.run(push.run_beside(scene.paths, source, ready))
    assert scene.at("main") == scene.at("x") == git(shallow, "rev-parse", "HEAD")
    git(scene.bare, "update-ref", "refs/heads/main", "main~3")
    git(scene.bare, "update-ref", "-d", "refs/heads/x")
    for name in ("main", "x"):
        git(shallow, "update-ref", "-d", f"refs/remotes/origin/{name}")
    with pytest.raises(TeamError, match="`git fetch --unshallow` completes a shallow clone"):
        push.prepare_branch(scene.paths, source, "HEAD", branch="x")


def test_a_partial_clone_contacts_nobody_before_the_push(scene: Scene) -> None:
    partial = scene.source.with_name("partial")
    git(scene.bare, "config", "uploadpack.allowFilter", "true")
    commit(scene.source, "long", a="changed\n", c="new\n")
    git(scene.source, "push", "-q", "origin", "main")
    url = f"file://{scene.bare}"
    git(scene.bare, "clone", "-q", "--filter=blob:none", url, str(partial))
    commit(partial, "by the lead", a="mine\n")
    fetch = f"echo x >> {scene.mark}; git-upload-pack"
    git(partial, "config", "remote.origin.uploadpack", fetch)
    source = Source.of(partial)
    ready = push.prepare_branch(scene.paths, source, "HEAD")
    assert [subject for _, subject in ready.commits] == ["by the lead"]
    unknown = git(scene.bare, "commit-tree", "-m", "unknown", "main^{tree}")
    git(scene.bare, "update-ref", "refs/heads/unknown", unknown)
    asyncio.run(push.run_beside(scene.paths, source, ready))
    assert scene.at("main") == ready.commit
    assert scene.mark.read_text() == "x\n", "it is asked for its branches"
    git(partial, "update-ref", "refs/remotes/origin/main", "HEAD~2")  # its a.txt is missing
    with pytest.raises(TeamError, match="finds objects that are missing or altered"):
        push.prepare_branch(scene.paths, source, "HEAD")
    assert scene.mark.read_text() == "x\n"


def test_a_commit_that_a_forged_commit_graph_hides_is_shown(scene: Scene) -> None:
    """An agent in the shared folder can write that file, and git takes parents from it."""
    base = scene.at("HEAD", scene.source)
    hidden = commit(scene.source, "hidden", a="secret\n")
    tip = commit(scene.source, "harmless", a="one\n")
    forge_parent(scene.source, tip, base)
    assert hidden not in git(scene.source, "rev-list", "HEAD"), "plain git believes the file"
    ready = push.prepare_branch(scene.paths, Source.of(scene.source), "HEAD", branch="x")
    assert [subject for _, subject in ready.commits] == ["harmless", "hidden"]


def forge_parent(repository: Path, one: str, parent: str) -> None:
    """Write a commit-graph in which a commit has another parent, see gitformat-commit-graph(5)."""
    git(repository, "commit-graph", "write", "--reachable")
    file = repository / ".git/objects/info/commit-graph"
    content = bytearray(file.read_bytes())
    chunks = dict(struct.unpack_from(">4sQ", content, 8 + 12 * at) for at in range(content[6]))
    ids, facts = content[chunks[b"OIDL"] :], chunks[b"CDAT"]
    at, to = ((ids.index(bytes.fromhex(each))) // 20 for each in (one, parent))
    struct.pack_into(">I", content, facts + 36 * at + 20, to)
    file.chmod(0o600)
    file.write_bytes(content)


def test_why_objects_are_refused_is_not_lost_in_advice(scene: Scene) -> None:
    facts = git(scene.copy, "cat-file", "commit", "HEAD")
    odd = scene.copy / "odd"
    odd.write_text(f"{facts}\0\n")
    words = ("hash-object", "-t", "commit", "-w", "--literally", str(odd))
    git(scene.copy, "reset", "-q", git(scene.copy, *words))
    with pytest.raises(
        TeamError, match=r"objects were refused in \S+: error: object \w+: nulInCommit"
    ):
        scene.prepare()


def test_work_that_no_teammate_may_change_is_not_pushed(scene: Scene) -> None:
    (scene.copy / ".githooks").mkdir()
    (scene.copy / ".githooks/pre-push").write_text("x\n")
    git(scene.copy, "add", ".githooks")
    git(scene.copy, "commit", "-qm", "hook")
    with pytest.raises(TeamError, match=r"alice's work changes .githooks/pre-push, which no"):
        scene.prepare()
    git(scene.copy, "rm", "-q", ".githooks/pre-push")
    git(scene.copy, "commit", "-qm", "taken back")
    with pytest.raises(TeamError, match=r"alice's history changes .githooks/pre-push, which no"):
        scene.prepare()


def test_a_forged_base_does_not_hide_a_change_of_a_protected_path(scene: Scene) -> None:
    """An agent in the shared folder lets it look as if the project had that file before."""
    for folder in (scene.copy, scene.source):
        (folder / ".githooks").mkdir()
        (folder / ".githooks/pre-push").write_text("x\n")
        git(folder, "add", ".githooks")
    git(scene.copy, "commit", "-qm", "hook")
    git(scene.source, "update-ref", "-d", "refs/remotes/origin/main")  # compare to no files
    _exchange(scene, "HEAD^{tree}", git(scene.source, "write-tree"))
    shown = git(scene.source, "log", "--format=", "--name-only", "--root", "HEAD")
    assert ".githooks/pre-push" in shown, "plain git believes it"
    with pytest.raises(TeamError, match="finds objects that are missing or altered"):
        scene.prepare()


def test_a_server_that_wants_a_password_is_one_sentence_and_nobody_is_asked(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = scene.mark.with_name("asks")  # in a window, on many desktops
    asks.write_text(f"#!/bin/sh\ntouch {scene.mark}\n")
    asks.chmod(0o755)
    monkeypatch.setenv("SSH_ASKPASS", str(asks))

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/x.git"
        git(scene.source, "remote", "set-url", "origin", url.replace("//", "//ann:secret@"))
        ready = scene.prepare()
        assert ready.url == url
        git(scene.source, "remote", "set-url", "origin", url)
        with pytest.raises(PushFailed) as refused:
            scene.push(ready)
        server.shutdown()
    assert str(refused.value).startswith("git could not log in to origin: fatal: could not read U")
    assert not scene.mark.exists()


def test_a_remote_in_a_folder_of_agents_is_refused(scene: Scene) -> None:
    """They could write its hooks, which run with the person's rights."""
    inside = scene.source / "inside.git"
    git(scene.source, "init", "-q", "--bare", str(inside))
    encoded = f"file://{inside}".replace("inside", "in%73ide").replace("project", "pro%6Aect")
    for url in ("inside.git", str(inside), f"file://{inside}", encoded, str(scene.copy)):
        git(scene.source, "remote", "set-url", "origin", url)
        with pytest.raises(TeamError, match="where agents can write, and its hooks would run"):
            scene.prepare()


def test_no_program_of_agents_runs_in_place_of_ssh(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, teamd was started with a virtual environment of the project on its PATH."""
    planted = scene.source / "venv/bin"
    planted.mkdir(parents=True)
    (planted / "ssh").write_text(f"#!/bin/sh\ntouch {scene.mark}\n")
    (planted / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{planted}:{os.environ['PATH']}")
    git(scene.source, "remote", "set-url", "origin", "ssh://127.0.0.1:1/x.git")
    ready = scene.prepare()
    with pytest.raises(PushFailed, match="git could not push to origin"):
        scene.push(ready)
    assert not scene.mark.exists()
    with pytest.raises(PushFailed):
        push.run(scene.paths, Source.of(scene.source), ready)
    assert scene.mark.exists(), "as for every git of the person's"
