"""README, topics and help texts name only existing commands, options and settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click
import pytest
import yaml

from teamctl.commands import COMMANDS
from teamctl.commands.help import read_topic, title_of, topics
from teamctl.main import cli as teamctl
from teamd.__main__ import program
from teamd.budget.accounts import Terms
from teamd.budget.prices import Prices
from teamd.files.paths import TeamPaths
from teamd.messages import Message
from teamd.overview.notices import NoticeKind
from teamd.settings import Settings, parse
from teamd.settings.kinds import keys_of
from teamd.settings.known_tools import TOOLS
from teamd.settings.schema import SECTIONS
from teamd.settings.write import init_text
from teamd.team.roster import Roster
from tests import documents
from tests.documents import LONGEST_LINE, README, REPOSITORY

PAGES: Final = documents.pages()
PROGRAMS: Final = {"teamctl": teamctl, "teamd": program}
LANGUAGES: Final = {"sh", "toml", "json", "markdown", "text", "ini", "yaml"}
FOREIGN: Final = {  # commands of other programs
    "--jinja", "--enable-auto-tool-choice", "--tool-call-parser", "--served-model-name",
    "--max-model-len", "--api-key", "-c", "-m",
}  # fmt: skip
# `chat` at a terminal, the unit file's commands and drop-in, the campaigns of the test suite, and
# recipes that need a remote, systemd-inhibit or a desktop.
MOST_NOT_RUN: Final = 10

SILENT: Final = {
    "teamctl": {"__init__", "__pycache__", "__main__"},
    "teamd": {"__init__", "__pycache__"},
}

_CALL: Final = re.compile(r" *(teamctl|teamd) ([^#;|&]*)")
_OPTION: Final = re.compile(r"(?<!\S)--?[a-z][a-z-]*")
_SETTING: Final = re.compile(r"\[(\w+)\](?: (\w+))?")
_FILE: Final = re.compile(r"(?<![\w./~-])(?:tests|teamd|teamctl|systemd)/[\w@./-]*\w")
_MODULES: Final = re.compile(r"^  (\w+/?(?:  \w+/?)*)", re.MULTILINE)
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def subcommand(group: click.Group, name: str) -> click.Command | None:
    return group.get_command(click.Context(group), name)


def options_of(command: click.Command) -> set[str]:
    known = {"--help", "-h"}
    for parameter in command.params:
        known.update((*parameter.opts, *parameter.secondary_opts))
    return known


def all_commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a group and all its commands, each with the words that call it."""
    yield name, group
    for word in group.list_commands(click.Context(group)):
        found = subcommand(group, word)
        if isinstance(found, click.Group):
            yield from all_commands(found, f"{name} {word}")
        elif found is not None:
            yield f"{name} {word}", found


def mistakes_of_call(program: str, arguments: str) -> Iterator[str]:
    """Yield the mistakes in a call: each command or option that does not exist."""
    command: click.Command = PROGRAMS[program]
    known = options_of(command)
    words = [word.strip("[]") for word in _QUOTED.sub("X", arguments).split()]
    before = ""
    for word in words:
        if word.startswith("-") and word != "-":
            if word.partition("=")[0] not in known:
                yield f"{program} {arguments}: no option {word}"
        elif isinstance(command, click.Group) and word.islower() and before != "--team":
            found = subcommand(command, word)
            if found is None:
                yield f"{program} {arguments}: no command {word}"
                return
            command = found
            known |= options_of(command)
        before = word


def mistakes(codes: Iterable[str]) -> list[str]:
    """Return the mistakes in all pieces of code that call one of the programs."""
    calls = filter(None, map(_CALL.match, codes))
    return [wrong for call in calls for wrong in mistakes_of_call(*call.groups())]


def options_everywhere() -> set[str]:
    return {
        option
        for name, program in PROGRAMS.items()
        for _, command in all_commands(program, name)
        for option in options_of(command)
    }


@by_page
def test_the_commands_that_a_page_names_exist(page: Path) -> None:
    shells = [example.text for example in documents.examples(page, "sh")]
    assert mistakes("".join(shells).splitlines()) == []
    assert mistakes(documents.inline_code(documents.prose(page))) == []
    assert mistakes(documents.table_calls(page)) == []


@by_page
def test_the_options_that_a_page_names_exist(page: Path) -> None:
    """An option without its command belongs to one of the commands."""
    spans = [span for span in documents.inline_code(documents.prose(page)) if span[0] == "-"]
    named = {option for span in spans for option in _OPTION.findall(span)}
    assert named - options_everywhere() - FOREIGN == set()


@by_page
def test_the_settings_that_a_page_names_exist(page: Path) -> None:
    for span in documents.inline_code(documents.prose(page)):
        if (named := _SETTING.match(span)) and named[1].islower():
            section, key = named.groups()
            assert section in SECTIONS, span
            assert key is None or key in keys_of(SECTIONS[section]), span


@by_page
def test_the_topics_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"teamctl help ([a-z]+)", documents.read(page))
    assert set(named) <= {*topics(), *COMMANDS}


def test_each_kind_of_notice_and_each_tool_that_a_role_may_list_is_documented() -> None:
    files = documents.read(next(path for path in PAGES if path.name == "files.md"))
    assert [kind for kind in NoticeKind if f"`{kind}`" not in files] == []
    roles = documents.read(next(path for path in PAGES if path.name == "roles.md"))
    grantable = [name for name, tool in TOOLS.items() if tool.grantable]
    assert [name for name in grantable if f"`{name}`" not in roles] == []


def test_each_server_of_the_topic_has_settings_that_name_it(tmp_path: Path) -> None:
    page = next(path for path in PAGES if path.name == "models.md")
    text = documents.read(page).partition("## Other servers")[2]
    for name in (
        "OpenRouter", "DeepSeek", "MiniMax", "Ollama", "LM Studio", "vLLM", "llama.cpp", "LiteLLM",
    ):  # fmt: skip
        block = text.partition(f"\n{name}")[2].partition("```toml\n")[2].partition("```")[0]
        settings = parse(block.encode(), path=tmp_path / "team.toml")
        model = settings.model
        priced = Prices(Terms.of(settings).prices).find(model.name)
        assert priced or Terms.of(settings).unpriced_limit is None, f"{name} is refused at spawn"
        assert model.base_url is not None, name
        assert not model.base_url.rstrip("/").endswith("/v1"), name
        assert model.name != Settings().model.name


@by_page
def test_an_example_of_settings_loads_without_a_mistake(page: Path, tmp_path: Path) -> None:
    for example in documents.examples(page, "toml"):
        parse(example.text.encode(), path=tmp_path / "team.toml")


@by_page
def test_an_example_of_json_is_accepted_by_the_program(page: Path, tmp_path: Path) -> None:
    for example in documents.examples(page, "json"):
        if "message" in example.marks:
            assert Message.decode(example.text.encode(), to="bob").content
        else:
            assert example.marks == ("roster",), f"{example.place}: nothing checks this example"
            paths = TeamPaths(tmp_path / ".team")
            paths.create()
            paths.config.write_text(example.text, encoding="utf-8")
            assert Roster(paths).read().members


@by_page
def test_every_example_names_its_format_and_fits_a_terminal(page: Path) -> None:
    for example in documents.examples(page):
        assert example.language in LANGUAGES, example.place
        assert max(map(len, example.text.splitlines())) <= LONGEST_LINE, example.place


@by_page
def test_an_example_of_a_workflow_is_yaml_and_names_commands_that_exist(page: Path) -> None:
    for example in documents.examples(page, "yaml"):
        steps = yaml.safe_load(example.text)["jobs"]["team"]["steps"]
        lines = "; ".join(step.get("run", "") for step in steps).split("; ")
        assert mistakes(lines) == []
        assert any(line.startswith("teamctl ") for line in lines)


def test_only_a_few_examples_are_not_run() -> None:
    """Those that need systemd, a terminal, a remote or a clone of the repository."""
    examples = [example for page in PAGES for example in documents.examples(page)]
    not_run = [one.place for one in examples if not one.runs or one.language == "ini"]
    assert len(not_run) <= MOST_NOT_RUN, not_run


@by_page
def test_links_have_existing_targets(page: Path) -> None:
    """Topics have no links: they are read without the repository."""
    targets = documents.links(page)
    assert page == README or not targets
    assert [target for target in targets if not (REPOSITORY / target).exists()] == []


@by_page
def test_the_files_of_the_repository_that_a_page_names_exist(page: Path) -> None:
    named = set(_FILE.findall(documents.read(page)))
    assert [file for file in named if not (REPOSITORY / file).exists()] == []


@pytest.mark.parametrize("floor", ["teamctl", "teamd"])
def test_readme_shows_every_part(floor: str) -> None:
    (house,) = [e for e in documents.examples(README, "text") if "__main__" in e.text]
    sections = re.split(r"^(\w+)/", house.text, flags=re.MULTILINE)
    section = sections[sections.index(floor) + 1]
    shown = " ".join(_MODULES.findall(section)).replace("/", "").split()
    there = {file.stem for file in (REPOSITORY / floor).iterdir()} - SILENT[floor]
    assert set(shown) <= there
    assert there <= set(re.findall(r"\w+", section))


def test_readme_is_short_and_names_every_command_and_topic() -> None:
    text = documents.read(README)
    assert len(text.splitlines()) <= 180
    words = {word for span in documents.inline_code(text) for word in re.split(r"[ |]", span)}
    assert [name for name in COMMANDS if name not in words] == []
    assert [name for name in program.commands if name not in words] == []
    linked = {target.removeprefix("teamctl/topics/") for target in documents.links(README)}
    assert [name for name in topics() if f"{name}.md" not in linked] == []


def test_readme_says_how_to_install_it_and_how_to_test_it() -> None:
    """`.ci/run` runs the last command; `test_demo` proves the end of the others."""
    *installs, tests = documents.indented(README)
    assert installs == [
        "uv tool install '.[all]' && teamctl demo",
        "pipx install '.[all]' && teamctl demo",
        "python3 -m venv .venv && .venv/bin/pip install '.[all]' && .venv/bin/teamctl demo",
    ]
    assert tests.startswith("python3 -m venv .venv && .venv/bin/pip install ")
    assert tests.endswith(" && .venv/bin/python -m pytest")


def test_each_topic_names_its_subject_in_the_first_line() -> None:
    for name in topics():
        assert read_topic(name).startswith(f"# {name.capitalize()}: "), name
        assert title_of(name), name


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_texts_name_commands_and_options_that_exist(program: str) -> None:
    """Options of a command's own help may be named alone; others follow their command."""
    for name, command in all_commands(PROGRAMS[program], program):
        text = command.get_help(click.Context(command, info_name=name))
        assert mistakes(documents.inline_code(text)) == [], name
        prose = text.partition("Options:")[0].partition("[OPTIONS]")[2]
        alone = set(_OPTION.findall(re.sub(r"`[^`]*`", "", prose)))
        assert alone <= options_of(command), name


def test_the_example_of_all_settings_names_commands_that_exist() -> None:
    assert mistakes(documents.inline_code(init_text())) == []
