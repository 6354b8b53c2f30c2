"""Each shell example of README and the topics works as shown, in a project per page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from teamd.files import pidfile as supervisors
from tests import documents
from tests.documents import Example, Step
from tests.e2e.harness import Project, opened
from tests.forked.client import server as forks
from tests.repositories import make_repository
from tests.strict.replies import say, use
from tests.waiting import wait_until

KEY_SHOWN: Final = "sk-ant-…"
SERVER_SHOWN: Final = "http://localhost:11434"
REQUEST_SHOWN: Final = "0a1b"
FOLDER_SHOWN: Final = "my-project"
# Pages whose examples start, stop or configure teamd themselves; the others share a running team.
ALONE: Final = (
    "README",
    "copies",
    "hosts",
    "limits",
    "models",
    "permissions",
    "queue",
    "recipes",
    "teams",
)
WITHOUT_EXAMPLES: Final = ("benchmarks",)
TOGETHER: Final = [
    page.stem for page in documents.pages() if page.stem not in (*ALONE, *WITHOUT_EXAMPLES)
]

# The folder and the exported variables persist from step to step, as in one shell.
_STEP: Final = """\
[ ! -f "$STATE" ] || . "$STATE"
{text}
status=$?
{{ export -p; printf 'cd %q\\n' "$PWD"; }} > "$STATE"
exit $status
"""


class Reader:
    """A person who types the examples of one page into one shell, one line at a time.

    The commands in this shell's PATH are forked.
    """

    def __init__(self, project: Project, page: str) -> None:
        self._project = project
        self._state = project.root / f"{page}.shell"

    def follow(self, page: Path) -> int:
        """Write the files of a page, run its steps and return their number."""
        for example in documents.examples(page, "markdown"):
            self._write(example)
        steps = [(e, step) for e in documents.examples(page, "sh") if e.runs for step in e.steps()]
        for example, step in steps:
            self._settle()
            self._run(example, step)
        return len(steps)

    def _write(self, example: Example) -> None:
        """Write a role file or a skill to its place."""
        if role := example.mark("role"):
            self._project.write(f".team/agents/{role}.md", example.text)
        if skill := example.mark("skill"):
            self._project.write(f".team/skills/{skill}/SKILL.md", example.text)

    def _run(self, example: Example, step: Step) -> None:
        script = _STEP.format(text=self._with_facts(step.text))
        path = f"{forks().commands}:{self._project.environment['PATH']}"
        given = {"STATE": str(self._state), "PATH": path}
        ended = self._project.run("bash", "-c", script, env=given)
        what = f"{example.place}: {step.text}\nsaid: {ended.stdout}{ended.stderr}"
        assert ended.status == step.status, f"exit status {ended.status}, not {step.status}: {what}"

    def _with_facts(self, text: str) -> str:
        """Replace the key, the server and the request in the text by those of this test."""
        facts = {KEY_SHOWN: "test-key", SERVER_SHOWN: self._project.server.url}
        if REQUEST_SHOWN in text:
            facts[REQUEST_SHOWN] = self._request()
        for shown, fact in facts.items():
            text = text.replace(shown, fact)
        return text

    def _request(self) -> str:
        """Return the id of the open request, or of the permanent permission."""

        def found() -> list[str]:
            shown = json.loads(self._project.do("teamctl", "requests", "--json"))
            return [one["id"] for one in shown["requests"] or shown["always"]]

        wait_until(found, what="there is a request")
        (request,) = found()
        return request

    def _settle(self) -> None:
        """Wait until every teammate has read its mail and ended its turn."""
        wait_until(lambda: not self._busy(), timeout_seconds=30, what="the team is at rest")

    def _busy(self) -> bool:
        paths = self._project.paths
        if not paths.config.exists() or supervisors.supervisor(paths) is None:
            return False
        members = json.loads(paths.config.read_bytes())["members"]
        states = {member["name"]: member["status"] for member in members}
        idle = [name for name, state in states.items() if state == "idle"]
        return "working" in states.values() or any(map(self._project.mail, idle))


def page_of(stem: str) -> Path:
    return next(page for page in documents.pages() if page.stem == stem)


def prepare_readme(project: Project) -> None:
    (project.root / "home" / FOLDER_SHOWN).symlink_to(project.folder)


def prepare_limits(project: Project) -> None:
    """Pause alice at a limit on money."""
    project.write("team.toml", "[model]\nmax_tokens = 100\n[limits]\nteammate_usd = 0.01\n")
    project.start()
    project.do("teamctl", "spawn", "alice", "coder", "Go.")
    project.wait_for("alice", "paused")


def prepare_permissions(project: Project) -> None:
    """Have alice ask three times."""
    rule = '[[permission]]\ntool = "bash"\ncommand = "git push"\nthen = "ask"\n'
    project.write("team.toml", rule)
    pushes = (use(("bash", {"command": f"git push {name}"})) for name in ("a", "b", "c"))
    project.stage.play("alice", *pushes, say("Done."))
    project.start()
    project.do("teamctl", "spawn", "alice", "coder", "Go.")


def prepare_teams(project: Project) -> None:
    project.enlist("alice")


def prepare_hosts(project: Project) -> None:
    """Add the unreachable host h2 to this host's list."""
    known = 'allow = { spawn = ["h2"] }'
    project.write("team.toml", f'[hosts]\nname = "h1"\n{known}\n')
    project.enlist("alice")


def prepare_copies(project: Project) -> None:
    """Have mona commit a file."""
    make_repository(project.folder)
    committed = "echo Notes > NOTES.md && git add NOTES.md && git commit -qm Notes"
    project.stage.play("mona", use(("bash", {"command": committed})), say("Done."))
    project.start()


def prepare_queue(project: Project) -> None:
    """Have mona commit a file whose check takes long."""
    project.write("team.toml", '[merge]\ncheck = "sleep 100"\n')
    prepare_copies(project)
    project.do("teamctl", "spawn", "mona", "coder", "Go.", "--worktree", "--wait")


def prepare_recipes(project: Project) -> None:
    project.write("team.toml", "[limits]\nteam_usd_per_day = 20.0\n")


PREPARE: Final[dict[str, Callable[[Project], None]]] = {
    "README": prepare_readme,
    "copies": prepare_copies,
    "hosts": prepare_hosts,
    "limits": prepare_limits,
    "permissions": prepare_permissions,
    "queue": prepare_queue,
    "recipes": prepare_recipes,
    "teams": prepare_teams,
}


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A running team: alice and bob have had a turn, and carl will submit a plan."""
    with opened(tmp_path_factory.mktemp("crew")) as project:
        project.start()
        project.stage.play("carl", use(("submit_plan", {"plan": "Two files."})), say("I wait."))
        for name in ("alice", "bob"):
            project.do("teamctl", "spawn", name, "coder", "Say that you are here.", "--wait")
        yield project


@pytest.mark.slow
@pytest.mark.parametrize("page", ALONE)
def test_examples_run_in_a_project_of_their_own(page: str, tmp_path: Path) -> None:
    with opened(tmp_path, keys=("test-key", "ollama")) as project:
        if page in PREPARE:
            PREPARE[page](project)
        assert Reader(project, page).follow(page_of(page)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("page", TOGETHER)
def test_examples_run_in_a_running_team(page: str, crew: Project) -> None:
    assert Reader(crew, page).follow(page_of(page)) > 0
    assert crew.refusals() == []
