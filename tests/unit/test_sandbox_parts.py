"""The parts of the sandbox that need no process: paths, programs, git's settings, texts."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Callable, Container
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import teamd
from teamd.agent.process import TeammateProcess
from teamd.errors import StoreError
from teamd.files.paths import TeamPaths
from teamd.masking import Mask
from teamd.process_id import Identity
from teamd.sandbox.bubblewrap import build_arguments
from teamd.sandbox.build import build_policy, clear_dead, placeholders_of
from teamd.sandbox.git_repository import keep_harmless, named_by_settings
from teamd.sandbox.placeholders import Placeholders, RunningCommand
from teamd.sandbox.policy import Policy
from teamd.sandbox.probe import Probe, describe, find_program, probe
from teamd.sandbox.protected_paths import (
    PathState,
    ProtectedPath,
    find_protected_paths,
    follow,
    is_protected,
    leads_through,
    protected_names,
    watch_paths,
)
from teamd.settings.schema import Settings, Teammate, ToolOverrides, ToolSettings


def program(folder: Path, name: str = "bwrap") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return folder / name


def test_no_program_is_taken_from_a_folder_that_agents_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If teamd is started in a virtual environment of the workspace, that is on its PATH."""
    workspace = tmp_path / "workspace"
    program(workspace / ".venv/bin")
    mine = program(tmp_path / "bin")
    (tmp_path / "link").symlink_to(workspace / ".venv/bin")
    path = [workspace / ".venv/bin", tmp_path / "link", Path("relative"), tmp_path / "bin"]
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, path)))
    assert find_program("bwrap", [workspace]) == str(mine)
    assert find_program("no-such-program") is None


def test_a_protected_path_is_found_with_its_state(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").touch()
    (tmp_path / "a/link").symlink_to("b")
    found = {
        p.path: p for p in find_protected_paths(tmp_path, ["a/b/file", "a/link", "a/x/y", "a/x/z"])
    }
    states = {str(path.relative_to(tmp_path)): place.state for path, place in found.items()}
    assert states == {
        "a/b": PathState.FOLDER,  # the target of the link
        "a/b/file": PathState.FILE,
        "a/link": PathState.LINK,
        "a/x": PathState.MISSING,
    }
    assert found[tmp_path / "a/b/file"].above == (tmp_path / "a", tmp_path / "a/b")


def test_every_link_on_the_way_to_a_path_is_protected(tmp_path: Path) -> None:
    """Otherwise a command could redirect the second of two links, and the first leads there."""
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "docs").symlink_to(tmp_path / "real")
    (tmp_path / "real/latest").symlink_to("../docs/deep/./")
    (tmp_path / "AGENTS.md").symlink_to("docs/latest/AGENTS.md")
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "out").symlink_to("../elsewhere")
    found = {p.path: p.state for p in find_protected_paths(tmp_path, ["AGENTS.md", "round", "out"])}
    assert {str(path.relative_to(tmp_path)): state for path, state in found.items()} == {
        "AGENTS.md": PathState.LINK,
        "docs": PathState.LINK,
        "real/latest": PathState.LINK,
        "real/deep/AGENTS.md": PathState.MISSING,
        "round": PathState.LINK,
        "out": PathState.LINK,
    }


def test_as_many_links_are_followed_as_the_kernel_follows(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}").symlink_to(f"{number + 1}")
    (tmp_path / "40").write_text("mine")
    assert (tmp_path / "0").read_text() == "mine"
    assert [*follow(tmp_path / "0")] == [str(tmp_path / f"{number}") for number in range(41)]
    (tmp_path / "first").symlink_to("0")
    assert [*follow(tmp_path / "first")][-1] == str(tmp_path / "39"), "and no further"


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("[core]\n\thooksPath = tools/hooks\n", ["tools/hooks"]),
        ('[core] hooksPath = "./my hooks/" ; ours\n', ["my hooks"]),
        ("[Core]\nbare = false\nHOOKSPATH=a\\\nb # c\n", ["ab"]),
        ("[include]\n\tpath = ../settings/git\n", ["settings/git"]),
        ('[includeIf "gitdir:/x]/"] path = ../one\n', ["one"]),
        (
            '[submodule "x"]\n\tpath = x\n[core]\n\thooksPath = ~nobody-there/x\n',
            ["~nobody-there/x"],
        ),
        ("[core]\n\thooksPath = .\n\thooksPath = /etc/hooks\n\thooksPath =\n", []),
    ],
)
def test_paths_named_in_git_settings_are_found(
    content: str, named: list[str], tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text(content)
    assert [name for name, _ in named_by_settings(tmp_path, tmp_path / ".git")] == named


def test_included_git_settings_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the person's own, and even if they include each other."""
    workspace = tmp_path / "workspace"
    (workspace / ".git").mkdir(parents=True)
    (tmp_path / ".gitconfig").write_text("[core]\nhooksPath = .githooks.d\n")
    (workspace / ".git/config").write_text("[include]\npath = ../one\n")
    (workspace / "one").write_text("[include]\npath = one\npath = sub/two\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    named = named_by_settings(workspace, workspace / ".git")
    assert dict(named) == {".githooks.d": False, "one": True, "sub/two": True}


@pytest.mark.parametrize("name", ["XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL"])
def test_the_person_s_git_settings_are_found_by_the_environment(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, settings = tmp_path / "workspace", tmp_path / "own/git/config"
    settings.parent.mkdir(parents=True)
    settings.write_text("[core]\nhooksPath = tools/hooks\n")
    monkeypatch.setenv(name, str(settings if name.startswith("GIT") else tmp_path / "own"))
    assert dict(named_by_settings(workspace, None)) == {"tools/hooks": False}


@given(content=st.text(st.sampled_from('[]"\\=;#\n\t corehksPatinlud.~/'), max_size=200))
def test_any_git_settings_give_only_paths_in_the_workspace(
    content: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    workspace = tmp_path_factory.mktemp("odd")
    (workspace / ".git").mkdir()
    (workspace / ".git/config").write_text(content)
    for name, _ in named_by_settings(workspace, workspace / ".git"):
        assert not Path(name).is_absolute()
        assert ".." not in Path(name).parts


def test_teamd_s_own_code_is_protected_if_it_is_in_the_workspace(tmp_path: Path) -> None:
    """Parts of it run outside the sandbox, with the person's rights."""
    project = Path(teamd.__file__).resolve().parents[1]
    policy = build_policy(TeamPaths(tmp_path / ".team"), "ann", ToolSettings(), workspace=project)
    assert "teamd" in policy.protected
    other = build_policy(TeamPaths(tmp_path / ".team"), "ann", ToolSettings(), workspace=tmp_path)
    assert other.protected == ()


@pytest.fixture
def with_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Policy]:
    """Returns a policy whose PATH has these folders, of a workspace beside a team and a home."""

    def make(*folders: str, read: tuple[Path, ...] = ()) -> Policy:
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.setenv("PATH", os.pathsep.join(os.path.join(tmp_path, one) for one in folders))  # noqa: PTH118
        tools, team = ToolSettings(env=("PATH",), read=read), TeamPaths(tmp_path / "team")
        return build_policy(team, "ann", tools, workspace=tmp_path / "projects/mine")

    return make


def made(root: Path, *folders: str, **links: str) -> None:
    """Make folders, and links to other paths; `__` in a link's name is a slash."""
    for folder in folders:
        (root / folder).mkdir(parents=True)
    for name, target in links.items():
        (root / name.replace("__", "/")).symlink_to(target)


def test_no_folder_on_the_path_exposes_the_home_or_the_project(
    tmp_path: Path, with_path: Callable[..., Policy]
) -> None:
    """A PATH may contain `.` by another name, or the folder of all projects."""
    made(tmp_path, "home/bin", "projects/mine", link="projects")
    policy = with_path("projects", "link", "home", "home/bin")
    argv = build_arguments("bwrap", policy, ())
    mounted = [argv[at + 2] for at, word in enumerate(argv) if word.startswith("--ro-bind")]
    shown = [path for path in mounted if path.startswith(str(tmp_path)) and Path(path).exists()]
    assert shown == [f"{tmp_path}/home/bin"]


def test_a_path_that_a_command_could_redirect_is_not_shown(
    tmp_path: Path, with_path: Callable[..., Policy]
) -> None:
    """For example by a link in the workspace, or by an environment in its own home."""
    workspace, secret = tmp_path / "projects/mine", "../../../home/secret"
    folders = (
        "home/python/bin",
        "home/secret",
        "projects/mine/.venv/bin",
        "team/homes/ann/env/bin",
    )
    made(tmp_path, *folders, link="projects/mine")
    made(workspace, data="../../home/secret")
    made(workspace / ".venv", lib=secret, bin__python="../../../../home/python/bin/python")
    (workspace / ".venv/bin/x").symlink_to(tmp_path / "team/homes/ann/env/bin/x")
    for name in ("home/python", "team/homes/ann/env"):
        (tmp_path / name / "pyvenv.cfg").touch()
    read = (tmp_path / "link/data", workspace / "data")
    policy = with_path("link/.venv/bin", "projects/mine/.venv/bin", read=read)
    shown = {path for path in policy.shown if Path(path).exists()}
    assert shown == {f"{tmp_path}/home/python/{name}" for name in ("bin", "pyvenv.cfg")}


def test_a_folder_inside_a_mounted_one_is_not_mounted_again(
    tmp_path: Path, with_path: Callable[..., Policy]
) -> None:
    made(tmp_path, "shims", "versions/3.11/bin", "other/bin", versions__linked="../other")
    shown = with_path("shims", "versions/3.11/bin", "versions/linked/bin").shown
    found = {path.removeprefix(f"{tmp_path}/") for path in shown if Path(path).exists()}
    assert found == {"shims", "versions", "other/bin"}, "no mount point can be below a link"


def test_a_linked_folder_may_contain_the_target_of_another_link(
    tmp_path: Path, with_path: Callable[..., Policy]
) -> None:
    """A link cannot be a mount point, whichever folder of the PATH contains it."""
    made(tmp_path, "real/deep/a/bin", "shims", "versions", real__one="deep/a")
    (tmp_path / "versions/all").symlink_to(tmp_path / "real")
    shown = with_path("real/one/bin", "shims", "versions/all").shown
    assert f"{tmp_path}/real" in shown
    assert not [folder for folder in shown if folder.startswith(f"{tmp_path}/real/")]


def test_a_path_entry_with_dot_dot_is_resolved(
    tmp_path: Path, with_path: Callable[..., Policy]
) -> None:
    """It cannot be a mount point; if a command could redirect it, it is not mounted."""
    made(tmp_path, "a/b", "a/c", "projects/mine")
    (tmp_path / "projects/mine/link").symlink_to(tmp_path / "a/b")
    policy = with_path("a/b/../c", "projects/mine/link/../c", "a/b", f"/{tmp_path}/a")
    straight = [f"{tmp_path}/{one}" for one in ("a/c", "projects/mine/link/../c", "a/b", "a")]
    assert policy.variables["PATH"].split(os.pathsep) == straight
    assert policy.shown == (f"{tmp_path}/a",)


def test_a_link_to_a_path_below_itself_is_not_followed_endlessly(
    tmp_path: Path, with_path: Callable[..., Policy]
) -> None:
    made(tmp_path, "env/bin", env__lib="lib/deeper")
    policy = with_path("env", "env/bin")
    below = replace(policy, readable=(tmp_path / "env", tmp_path / "env/lib"))
    assert f"{tmp_path}/env" in below.shown


def test_a_program_that_is_installed_later_is_shown(
    tmp_path: Path, with_path: Callable[..., Policy]
) -> None:
    made(tmp_path, "programs", "env/bin")
    (tmp_path / "env/pyvenv.cfg").touch()
    policy = with_path("programs").refresh()
    assert policy.shown == (f"{tmp_path}/programs",)
    assert policy.refresh() is policy
    made(tmp_path, programs__tool="../env/bin/tool")
    assert f"{tmp_path}/env/bin" in policy.refresh().shown


def test_a_chain_of_too_many_links_is_assumed_to_lead_anywhere(tmp_path: Path) -> None:
    """Following more links than the kernel does would reveal other files."""
    (tmp_path / "0").mkdir()
    for number in range(1, 50):
        (tmp_path / f"{number}").symlink_to(f"{number - 1}")
    assert not leads_through(tmp_path / "40", [tmp_path / "elsewhere"])
    assert leads_through(tmp_path / "41", [tmp_path / "elsewhere"])


def test_a_protected_path_includes_all_of_its_content(tmp_path: Path) -> None:
    places = find_protected_paths(tmp_path, protected_names(tmp_path, ["deploy"], may_init=False))
    stays = [".git/hooks/pre-push", ".GIT/config", ".vscode/a/b", "team.toml", "deploy/x"]
    assert all(is_protected(tmp_path / name, places) for name in [*stays, "Agents.md"])
    free = ["src/main.py", ".gitignore", "deployed", "docs/AGENTS.md"]
    assert not any(is_protected(tmp_path / name, places) for name in free)


def test_in_a_working_copy_only_the_repository_is_protected(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    names = protected_names(tmp_path, may_init=False, owns_tree=True)
    assert {".git/hooks", ".git/config", ".git/info/attributes"} <= set(names)
    assert all(name.startswith(".git/") for name in names)


def test_instructions_may_be_allowed_and_hooks_may_not(tmp_path: Path) -> None:
    allowed = ["AGENTS.md", ".vscode", ".git/hooks"]
    names = protected_names(tmp_path, allowed=allowed, may_init=False)
    assert "AGENTS.md" not in names
    assert {".vscode", ".git", "CLAUDE.md", "team.toml"} <= set(names)


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        ("[core]\n\tbare = false\n\tfsmonitor = evil\n", "[core]\n\tbare = false\n"),
        ('[include]\n\tpath = evil\n[user]\nname = "x"\n', "[include]\n[user]\n"),
        ('[core "x"]\n\tbare = evil\n', ""),
        ("[core] pager = evil\n\tbare = false\n", ""),
        ("[core]\n\tbare = false \\\n\tfsmonitor = evil\n", "[core]\n"),
    ],
)
def test_git_settings_that_run_programs_are_left_out(content: str, kept: str) -> None:
    assert keep_harmless(content) == kept


@given(st.text(st.sampled_from('[]"\\=;#\n\t corefsmnitpagh. ux'), max_size=200))
def test_only_harmless_settings_of_any_file_are_kept(content: str) -> None:
    section = ""
    for line in keep_harmless(content).splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        else:
            key = line.partition("=")[0].strip().lower()
            assert re.fullmatch(r"core|extensions|user|init", section), (content, line)
            assert not re.search(r"fsmonitor|pager|hookspath|editor|sshcommand", key)


def test_a_protected_path_that_is_replaced_from_outside_is_noticed(tmp_path: Path) -> None:
    """The kernel drops a mount when its mount point is renamed over or removed."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("a")
    standing = watch_paths(tmp_path, find_protected_paths(tmp_path, [".git/config"]))
    (tmp_path / ".git/config").write_text("b")
    assert standing() == ""
    (tmp_path / "new").write_text("c")
    (tmp_path / "new").rename(tmp_path / ".git/config")
    assert standing() == "config"
    other = watch_paths(tmp_path, find_protected_paths(tmp_path, [".git/config"]))
    (tmp_path / ".git/commondir").touch()
    assert other() == "commondir"


def holder(name: str, *, team: str = "/team") -> RunningCommand:
    return RunningCommand(id=name, team=team, process=Identity.own())


@pytest.mark.parametrize("name", ["way/x", "way/info/attributes"])
def test_no_placeholder_is_created_through_a_link(name: str, tmp_path: Path) -> None:
    """A command may create a link on the way after the check."""
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    (outside / "info").mkdir(parents=True)
    workspace.mkdir()
    place = ProtectedPath(workspace / name, PathState.MISSING)
    held = Placeholders(workspace, tmp_path / "state")
    (workspace / "way").symlink_to(outside)
    with pytest.raises(StoreError):
        held.hold(lambda _made, _others: (holder("1"), [place]))
    (outside / "x").touch()
    (outside / "info/attributes").touch()
    held.release(holder("1"))
    assert {path.name for path in outside.rglob("*")} == {"info", "attributes", "x"}


def test_the_last_command_removes_only_the_placeholders(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    (workspace / ".idea").mkdir(parents=True)
    held = Placeholders(workspace, tmp_path / "state")

    def look(name: str) -> Any:
        places = find_protected_paths(workspace, [".vscode", ".idea", ".husky"])
        missing = [place for place in places if place.state is PathState.MISSING]
        return lambda _made, _others: (holder(name), missing)

    one = held.hold(look("1"))
    two = held.hold(look("2"))
    (workspace / ".husky/mine").touch()  # a file of the person
    held.release(one)
    assert {path.name for path in workspace.iterdir()} == {".idea", ".vscode", ".husky"}
    held.release(two)
    assert {path.name for path in workspace.iterdir()} == {".idea", ".husky"}
    assert (workspace / ".husky/mine").exists()


def test_a_refused_command_removes_its_placeholders(tmp_path: Path) -> None:
    held = Placeholders(tmp_path, tmp_path / "state")
    place = ProtectedPath(tmp_path / ".vscode", PathState.MISSING)

    def look(made: Container[str], _others: object) -> tuple[RunningCommand, list[ProtectedPath]]:
        if place.path.exists():
            raise StoreError("refused")
        return holder("1"), [place]

    with pytest.raises(StoreError, match="refused"):
        held.hold(look)
    assert not place.path.exists()


@pytest.mark.parametrize("recorded", [True, False])
def test_the_supervisor_removes_the_placeholders_of_a_killed_teammate(
    tmp_path: Path, recorded: bool
) -> None:
    """It may be killed while it makes them, before its command is recorded."""
    paths, workspace = TeamPaths(tmp_path / ".team"), tmp_path / "workspace"
    workspace.mkdir()
    paths.create()
    held = placeholders_of(paths, workspace)
    place = ProtectedPath(workspace / ".vscode", PathState.MISSING)
    gone = Identity(pid=Identity.own().pid, started=0.0)
    dead = RunningCommand(id="g", team=str(paths.root), process=gone)
    held.hold(lambda _made, _others: (dead, [place]))
    assert place.path.exists()
    if not recorded:
        states = held.state.glob("*.json")
        (state,) = (one for one in states if str(place.path) in one.read_text())
        state.write_text(json.dumps({"made": {str(place.path): "folder"}, "holders": []}))
    assert clear_dead(paths, workspace) == []
    assert not place.path.exists()


def test_only_commands_of_dead_processes_in_the_team_are_found(tmp_path: Path) -> None:
    held = Placeholders(tmp_path, tmp_path / "state")
    assert held.left_by_dead(Path("/team")) == []
    gone = RunningCommand(
        id="g", team="/team", process=Identity(pid=Identity.own().pid, started=0.0)
    )
    others = RunningCommand(id="o", team="/other", process=gone.process)
    for one in (holder("alive"), gone, others):
        held.hold(lambda _made, _others, one=one: (one, []))  # type: ignore[misc] # called at once
    assert held.left_by_dead(Path("/team")) == [gone]


@pytest.mark.parametrize(
    ("tools", "found", "words"),
    [
        (ToolSettings(), Probe(program="bwrap"), "bubblewrap, no network"),
        (ToolSettings(network=True), Probe(), "bubblewrap, with network"),
        (ToolSettings(hosts=("a.org", "b.org")), Probe(), "bubblewrap, hosts: a.org, b.org"),
        (ToolSettings(sandbox="off"), Probe(), "off: commands run with your rights"),
        (
            ToolSettings(),
            Probe(trouble="bubblewrap is not installed", remedy="`apt install bubblewrap`"),
            (
                "none: bubblewrap is not installed, so commands are refused; "
                "`apt install bubblewrap` mends it"
            ),
        ),
    ],
)
def test_the_sandbox_is_described_in_one_line(
    tools: ToolSettings, found: Probe, words: str
) -> None:
    assert describe(tools, found) == words


def test_settings_of_a_teammate_override_those_of_its_role_which_override_the_teams() -> None:
    ann = Teammate(name="Ann", role="tester", prompt=".", hosts=("c.org",), protect=("x",))
    settings = Settings(
        tools=ToolSettings(hosts=("a.org",), network=True, protect=("deploy",)),
        roles={"tester": ToolOverrides(hosts=("b.org",), network=False, protect=())},
        teammates=(ann,),
    )
    of_ann = settings.tools_of("ann", "tester")
    assert (of_ann.hosts, of_ann.network, of_ann.protect) == (("c.org",), False, ("deploy", "x"))
    assert settings.tools_of("bob", "tester").hosts == ("b.org",)
    assert settings.tools_of("bob", "coder") == settings.tools


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
def test_without_a_free_descriptor_the_probe_reports_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setenv("PATH", str(program(tmp_path / "bin").parent))
    monkeypatch.setattr(os, "pipe", refuse)
    assert probe().trouble == "Too many open files"


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
def test_a_sandbox_is_probed_until_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, mine = tmp_path / "tries", program(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(mine.parent))
    paths = TeamPaths(tmp_path / ".team")
    process = TeammateProcess(paths, Settings, lambda: 0, 60, Mask())
    for status in (1, 0):
        mine.write_text(f"#!/bin/sh\necho tried >>'{tries}'\nexit {status}\n")
        assert process.probe_sandbox().works == (status == 0)
    assert process.probe_sandbox().works
    assert tries.read_text().splitlines() == ["tried"] * 2
