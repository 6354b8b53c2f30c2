"""The tour of a new user, from README to uninstalling: only commands that a screen has named."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from teamd.files.paths import STATE_VARIABLE
from tests.e2e.harness import SIGHTED, Project, opened
from tests.e2e.test_queue import work
from tests.repositories import git, make_repository
from tests.strict.asked import Asked
from tests.strict.replies import Answer, say, use
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900), SIGHTED]

SOURCE: Final = Path(__file__).parents[2]
SHIPPED: Final = ("teamd", "teamctl", "pyproject.toml", "README.md", "LICENSE")
INSTALLERS: Final = {"uv": "uv tool install", "pipx": "pipx install"}
# What pip, uv and pipx need to reach the index that the machine has configured.
OF_INDEX: Final = ("PIP_", "UV_", "SSL_", "HTTP_", "HTTPS_", "NO_PROXY", "http", "no_proxy")
INSTALLERS_OWN: Final = (".cache", ".local/share/uv", ".local/share/pipx", ".local/state/pipx")
SHELLS_OWN: Final = (".bash", ".profile", ".zsh")
CHECK: Final = 'check = "! grep -q bad *.txt"'
RULES: Final = "".join(
    f'\n[[permission]]\ntool = "bash"\ncommand = "touch {name}"\nthen = "ask"\n'
    for name in ("published", "deleted")
)
TEAM: Final = ("ann", "bob", "cay", "dan", "eve")
ENDLESS: Final = "touch eve-begun; sleep 1000"


class Newcomer:
    """A person who knows README and the screens so far, and types nothing else.

    Attributes:
        project: the folder and the model.
        home: the home, empty before the tour.
        clone: a clone of the repository.
        screen: the output of the last command.
    """

    def __init__(self, project: Project, installer: str) -> None:
        self.project = project
        self.home = project.root / "home"
        self.clone = project.root / "teamd"
        self.screen = ""
        self._installer = installer
        self._known = (SOURCE / "README.md").read_text()
        self._copy_source()
        system = [one for one in os.environ["PATH"].split(os.pathsep) if not _has_teamd(one)]
        path = [str(_program_folder(project.root, installer)), *system]
        project.environment |= {"PATH": os.pathsep.join(path), "SHELL": "/bin/bash"}
        project.environment.pop(STATE_VARIABLE)  # it is in the home

    def type(self, line: str, *, status: int = 0, cwd: Path | None = None) -> str:
        """Type a line into the shell; return the screen.

        Fails unless README or a screen has named the command and its options.
        """
        for program, word in re.findall(r"\b(teamctl|teamd|uv|pipx) ([a-z]+)", line):
            named = rf"{program}\s+{word}\b|^  {word} |· `{word}\b"
            assert re.search(named, self._known, re.MULTILINE), f"who says {program} {word}?"
        for option in re.findall(r" (--[a-z-]+)", line):
            assert option in self._known, f"who says {option}?"
        installs = line.startswith(("uv", "pipx"))
        index = {key: value for key, value in os.environ.items() if key.startswith(OF_INDEX)}
        done = self.project.run(
            "bash", "-c", line, timeout_seconds=180, cwd=cwd, env=index if installs else {}
        )
        self.screen = done.stdout + done.stderr
        self._known += self.screen
        assert done.status == status, f"{line}: {done.status}\n{self.screen}"
        return self.screen

    def find_command(self, pattern: str) -> str:
        """Return the command on the last screen that matches."""
        named: list[str] = re.findall(r"`([^`]+)`", self.screen)
        found = next((one for one in named if re.fullmatch(pattern, one)), None)
        assert found is not None, f"no command like {pattern!r} on the screen:\n{self.screen}"
        return found

    def obey(self, pattern: str) -> str:
        """Type the command on the last screen that matches."""
        return self.type(self.find_command(pattern))

    def see(self, words: str, line: str = "teamctl team") -> None:
        """Type a line that only looks, until the screen shows some words."""
        wait_until(
            lambda: re.search(words, self.type(line)), timeout_seconds=60, what=f"{words} in {line}"
        )

    def install_line(self) -> str:
        """Return README's line for this installer."""
        found = re.search(rf"^    ({INSTALLERS[self._installer]}.*)$", self._known, re.MULTILINE)
        assert found is not None
        return found[1]

    def upgrade_line(self) -> str:
        """Return the line for this installer from the last screen."""
        found = re.search(rf"^{INSTALLERS[self._installer]} --.*$", self.screen, re.MULTILINE)
        assert found is not None, self.screen
        return found[0]

    def uninstall_line(self) -> str:
        """Return the line for this installer from the last screen."""
        found = re.search(rf"{self._installer}( tool)? uninstall teamd", self.screen)
        assert found is not None
        return found[0]

    def list_home(self) -> list[str]:
        """Return the files in the home that are not the installer's own."""
        files = (path for path in self.home.rglob("*") if path.is_file())
        names = (str(path.relative_to(self.home)) for path in files)
        return [name for name in names if not name.startswith((*INSTALLERS_OWN, *SHELLS_OWN))]

    def open_terminal(self) -> None:
        """Get the PATH of a new terminal, as the files in the home set it."""
        said = self.project.do("bash", "-c", '. ~/.bashrc; echo "$PATH"')
        self.project.environment["PATH"] = said.strip()

    def pull(self, version: str) -> None:
        """Change the clone as `git pull` would."""
        file = self.clone / "teamd" / "__init__.py"
        text, count = re.subn(r'(__version__.*= ")[^"]+', rf"\g<1>{version}", file.read_text())
        assert count == 1
        file.write_text(text)

    def _copy_source(self) -> None:
        self.clone.mkdir()
        for name in SHIPPED:
            source = SOURCE / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, self.clone / name)


def _has_teamd(folder: str) -> bool:
    return any(Path(folder, name).exists() for name in ("teamctl", "teamd", "uv", "pipx"))


def _program_folder(root: Path, installer: str) -> Path:
    """Install uv or pipx into an environment of its own; return the folder of its program."""
    made = root / "installer"
    subprocess.run([sys.executable, "-m", "venv", made], check=True)
    pip = (made / "bin" / "python", "-m", "pip", "install", "--quiet", installer)
    subprocess.run(pip, check=True, capture_output=True)
    return made / "bin"


def lead(asked: Asked) -> Answer:
    if "Build it." not in asked.last_text:
        return say("I see.")
    spawns = [{"name": name, "role": "coder", "prompt": "Go."} for name in TEAM]
    return use(*(("spawn_teammate", one) for one in spawns))


def eve(asked: Asked) -> Answer:
    return say("I stop.") if asked.last_results else use(("bash", {"command": ENDLESS}))


def play_team(project: Project) -> None:
    """Two write the same file, one asks, one writes too much, and one runs for ever."""
    stage = project.stage
    stage.act("lead", lead)
    stage.act("eve", eve)
    write = "printf '%s\\n' {0} > a.txt; git commit -qam 'by {0}'"
    solve = "git merge origin/team/main || { printf 'ann\\nbob\\n' > a.txt; git commit -qam both; }"
    stage.play("ann", say("I wait."), use(*work("1", write.format("ann"))), say("Done."))
    stage.play(
        "bob",
        say("I wait."),
        use(*work("2", write.format("bob"))),
        say("Done."),
        use(*work("2", solve)),
        say("Solved."),
    )
    touches = (use(("bash", {"command": f"touch {name}"})) for name in ("published", "deleted"))
    stage.play("cay", *touches, say("Done."))
    wordy = use(("write_file", {"path": "b.txt", "content": "x" * 40_000}))
    stage.play("dan", wordy, use(("task_list", {})), say("Done."))


@pytest.fixture(params=INSTALLERS)
def visitor(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Newcomer]:
    with opened(tmp_path, installed=True) as project:
        yield Newcomer(project, request.param)


def test_a_newcomer_installs_works_upgrades_and_uninstalls(visitor: Newcomer) -> None:
    install(visitor)
    take_first_steps(visitor)
    set_up_a_team(visitor)
    answer_the_team(visitor)
    survive_a_kill(visitor)
    upgrade(visitor)
    uninstall(visitor)


def install(visitor: Newcomer) -> None:
    """The folder of the programs is not on the PATH of an empty home, as the screen says."""
    visitor.type(visitor.install_line(), status=127, cwd=visitor.clone)
    visitor.obey("uv tool update-shell|pipx ensurepath")
    visitor.open_terminal()
    assert "All of it happened" in visitor.type("teamctl demo")
    visitor.obey("teamctl doctor")


def take_first_steps(visitor: Newcomer) -> None:
    """The lines of README's first session, and the help that the screens name."""
    project = visitor.project
    make_repository(project.folder)
    visitor.type("teamctl --help")
    visitor.type("teamctl help")
    visitor.type("teamctl init")
    visitor.type("teamd start")
    visitor.obey("teamctl team")
    visitor.type('teamctl spawn alice coder "Add a --json flag to report.py."')
    visitor.type("teamctl wait --all")
    visitor.type("teamctl transcript alice")
    visitor.type("teamctl shutdown alice")
    visitor.type("teamctl rm alice")


def set_up_a_team(visitor: Newcomer) -> None:
    """The settings are edited as their comments say."""
    project = visitor.project
    file = project.folder / "team.toml"
    text = file.read_text()
    wanted = {"teammate_tokens": 30_000, "max_tokens": 1000, "worktree": "true", "auto": "true"}
    for key, value in wanted.items():
        old = rf"^# {key} = [^#\n]*"
        text, count = re.subn(old, f"{key} = {value}  ", text, count=1, flags=re.MULTILINE)
        assert count == 1, f"team.toml does not show {key}"
    text = text.replace('# check = ""', CHECK, 1)
    file.write_text(text + RULES)
    git(project.folder, "add", "--all")
    git(project.folder, "commit", "--quiet", "-m", "settings")
    visitor.type("teamd reload")
    visitor.obey("teamctl trust")
    visitor.obey("teamd re(load|start)")
    for subject in ("Say your name", "Say your name, too"):
        visitor.type(f'teamctl task add "{subject}" --check "! grep -q bad a.txt"')
        visitor.find_command(r"teamctl task claim \d --for NAME")


def answer_the_team(visitor: Newcomer) -> None:
    play_team(visitor.project)
    visitor.type('teamctl chat "Build it." --timeout 15', status=4)
    give_permissions(visitor)
    raise_a_limit(visitor)
    visitor.type('teamctl interrupt eve "Leave it."')
    repair_a_conflict(visitor)


def give_permissions(visitor: Newcomer) -> None:
    visitor.obey(r"teamctl approve \w+")
    visitor.see("cay asks to run: bash touch deleted")
    visitor.obey(r"teamctl reject \w+")
    visitor.see("cay +coder +idle")
    copy = visitor.project.paths.copy("cay")
    assert [(copy / name).exists() for name in ("published", "deleted")] == [True, False]


def raise_a_limit(visitor: Newcomer) -> None:
    visitor.see("dan is paused")
    visitor.obey(r"teamctl resume dan --tokens \d+")
    visitor.see("dan +coder +idle")


def repair_a_conflict(visitor: Newcomer) -> None:
    visitor.type("teamctl task claim 1 --for ann")
    visitor.see("merged +ann", "teamctl queue")
    visitor.type("teamctl task claim 2 --for bob")
    visitor.see("conflict +bob", "teamctl queue")
    visitor.see("merged +bob", "teamctl queue")
    visitor.type("teamctl tasks")
    visitor.see("ahead of main")
    visitor.obey("git merge .*")
    assert (visitor.project.folder / "a.txt").read_text() == "ann\nbob\n"


def survive_a_kill(visitor: Newcomer) -> None:
    visitor.type('teamctl send eve "Again."')
    visitor.see(r"eve .*bash touch")
    processes = json.loads(visitor.type("teamctl ps --json"))["processes"]
    for process in processes:
        with suppress(ProcessLookupError):  # a command dies with its teammate
            os.kill(process["pid"], signal.SIGKILL)
    wait_until(lambda: not visitor.project.survivors(), what="all are dead")
    visitor.see("eve +coder +stopped")
    visitor.obey("teamd start")
    visitor.see("eve +coder +idle")
    visitor.type("teamctl transcript eve")


def upgrade(visitor: Newcomer) -> None:
    visitor.pull("99.0")
    visitor.type("teamctl help upgrade")
    visitor.type(visitor.upgrade_line(), cwd=visitor.clone)
    assert visitor.type("teamctl --version") == "teamctl 99.0\n"
    visitor.see("99.0 is installed")
    visitor.obey("teamd restart")
    assert "99.0" not in visitor.type("teamctl team")


def uninstall(visitor: Newcomer) -> None:
    visitor.type("teamctl help uninstall")
    line = visitor.uninstall_line()
    remove = re.search(r"^rm -r ~/\S+", visitor.screen, re.MULTILINE)
    assert remove is not None
    assert str(visitor.project.paths.root) in visitor.type("teamctl teams --all")
    visitor.type("teamd stop")
    visitor.type(line)
    visitor.type("teamctl team", status=127)
    assert visitor.list_home()
    visitor.type(remove[0])
    assert visitor.list_home() == []
    assert {".team", "team.toml"} <= {path.name for path in visitor.project.folder.iterdir()}
