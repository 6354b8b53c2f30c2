"""Text from others is shown as text: no control sequence in it reaches the terminal."""

from __future__ import annotations

import io
import json
import unicodedata
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamctl.main import cli
from teamctl.render import tables
from teamctl.render.roster_table import member_cells
from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.board.board import Board
from teamd.command_line import terminal
from teamd.command_line.run import TeamOptions, _explain
from teamd.errors import TeamError
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.messages import LEAD, Message
from teamd.overview.members import look_at
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.transcript import records
from teamd.transcript.file import Transcript

# The clipboard, a title, a hidden word, a cleared screen, C1's own CSI, text in reverse order.
ATTACK: Final = (
    "\x1b]52;c;ZXZpbA==\x07 \x1b]0;title\x1b\\ \x1b[8mhidden\x1b[0m \x1b[2J \x9b31m \r\x08 \x7f "
    "\u202etxt.exe\u202c \u2066x\u2069 \u200f \u061c \ufeff \U000e0041"
)
KINDS: Final = {"Cc", "Cf", "Cs"}
JOINERS: Final = "\u200c\u200d"
SHOWN: Final = (
    ("team",), ("inbox", "--peek"), ("inbox", "bob"), ("tasks",), ("task", "show", "1"),
    ("requests",), ("transcript", "bob", "--full"), ("transcript", "bob"),
    ("transcript", "--all", "--since", "2001-01-01"), ("transcript", "bob" + ATTACK),
    ("transcript", "bob", "--since", ATTACK), ("events", "--since", "1970-01-02"), ("logs", "bob"),
    ("trace", "evil"), ("usage",), ("send", "bob@elsewhere" + ATTACK, "x"), ("send", ATTACK, "x"),
    ("task", "show", ATTACK), ("approve", ATTACK), ("frob" + ATTACK,), ("send", "--frob" + ATTACK),
    ("team", ATTACK),
)  # fmt: skip
FAITHFUL: Final = (
    ("team",), ("inbox", "--peek"), ("tasks",), ("task", "show", "1"), ("requests",),
    ("transcript", "bob"), ("trace", "evil"), ("inbox",), ("events", "--since", "1970-01-01"),
)  # fmt: skip


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TeamPaths:
    """A team with an attack in every field that may hold any text."""
    paths = TeamPaths(tmp_path / ".team")
    paths.create()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TEAMD_DIR", raising=False)
    facts: dict[str, Any] = {"role": ATTACK, "reason": ATTACK, "status": Status.PAUSED}
    Roster(paths).update(lambda team: team.with_new("bob", **facts))
    for name in ("bob", LEAD):
        Mailbox(paths, name, durable=False).put(mail(name))
    post = MailRouter(paths, durable=False, max_bytes=10_000)
    Board(paths, post, LEAD, durable=False).add(ATTACK, description=ATTACK, role=ATTACK)
    asked = Approval(type=Kind.PLAN, asker=ATTACK, to=LEAD, content=ATTACK, asked=1.0, sent=True)
    Approvals(paths, post).ask(asked)
    call = {"type": "tool_use", "id": "t", "name": ATTACK, "input": {"command": ATTACK}}
    Transcript(paths.transcript("bob"), durable=False).append(
        records.Opened(name="bob", system=ATTACK),
        records.Delivered(messages=(mail("bob"),)),
        records.Replied(content=[{"type": "text", "text": ATTACK}, call], stop_reason="tool_use"),
        records.CallAnswered(tool_use_id="t", content=ATTACK, is_error=True),
        records.NoteAdded(text=ATTACK),
        records.Summarised(text=ATTACK, restated=ATTACK),
        records.TurnEnded(outcome=ATTACK, text=ATTACK),
    )
    journal = Journal(paths.log("bob"), "bob")
    journal.note(ATTACK, said=ATTACK)
    journal.error(ATTACK, TeamError(ATTACK))
    journal.close()
    torn = paths.log("bob").read_bytes() + ATTACK.encode() + b'\n{"time": 3, "level": []}\n'
    level = b'{"time": "2026-01-01T00:00:00+00:00", "level": [], "event": {}, "traceback": 3}\n'
    files.replace(paths.log("bob"), torn + level, durable=False)
    return paths


def mail(to: str) -> Message:
    extra = {"summary": ATTACK, "request_id": ATTACK, "approve": True}
    name = "evil" + ATTACK
    return Message(type=ATTACK, sender=ATTACK, to=to, content=ATTACK, id=name, extra=extra)


def call(*argv: str, color: bool = True) -> tuple[str, str]:
    """Run a command as if at a terminal; return the text of both streams."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        choice = TeamOptions()
        try:
            cli.main([*argv], "teamctl", standalone_mode=False, obj=choice, color=color)
        except Exception as error:  # noqa: BLE001 -- as at the edge
            _explain(error, "teamctl", choice)
    return out.getvalue(), err.getvalue()


def obeyed(said: str) -> set[str]:
    """Return the characters that a terminal would obey, except for the colours of this program."""
    left = click.unstyle(said.replace("\x1b[8m", "\x1b"))  # no style of ours hides text
    kinds = {one: unicodedata.category(one) for one in left if one not in f"\n\t{JOINERS}"}
    return {one for one, kind in kinds.items() if kind in KINDS}


@pytest.mark.parametrize("argv", SHOWN, ids=lambda argv: " ".join(argv).encode("unicode_escape"))
def test_no_command_prints_a_terminal_control_sequence(
    argv: tuple[str, ...], paths: TeamPaths
) -> None:
    out, err = call(*argv)
    assert out or err
    assert "internal error" not in err
    assert obeyed(out) | obeyed(err) == set()


@pytest.mark.parametrize("argv", FAITHFUL, ids=" ".join)
def test_json_contains_the_same_text_as_escapes(argv: tuple[str, ...], paths: TeamPaths) -> None:
    out, err = call(*argv, "--json")
    assert obeyed(out) | obeyed(err) == set()
    assert ATTACK in _texts(json.loads(out))


def test_log_lines_as_json_are_escaped_too(paths: TeamPaths) -> None:
    out, _ = call("logs", "bob", "--json")
    assert obeyed(out) == set()
    assert json.loads(out.splitlines()[0])["said"] == ATTACK


def _texts(document: Any) -> set[str]:
    if isinstance(document, dict):
        return set().union(*map(_texts, document.values()))
    if isinstance(document, list):
        return set().union(*map(_texts, document))
    return {document} if isinstance(document, str) else set()


@given(st.text(st.characters(codec=None)))
def test_a_text_shows_its_control_characters(text: str) -> None:
    assert obeyed(terminal.plain(text)) == set()
    assert terminal.plain(terminal.plain(text)) == terminal.plain(text)


@pytest.mark.slow
@given(st.recursive(st.text(st.characters(codec=None)) | st.none(), st.lists))
def test_an_escaped_document_decodes_to_the_same_text(document: Any) -> None:
    escaped = terminal.escape_json(json.dumps(document, ensure_ascii=False))
    assert obeyed(escaped) == set()
    assert json.loads(escaped) == document


def test_ordinary_text_stays_readable_in_json() -> None:
    text = "naïve — 漢字 ✓ 👍"
    assert terminal.escape_json(json.dumps(text, ensure_ascii=False)) == f'"{text}"'


def test_words_and_emoji_with_joiners_stay_whole() -> None:
    """Zero-width joiners are format characters, too, but they neither hide nor reverse text."""
    persian = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    for text in (persian, family):
        assert terminal.plain(text) == text
        assert terminal.escape_json(json.dumps(text, ensure_ascii=False)) == f'"{text}"'
    assert terminal.plain("\u200b\u2060\u200e\ufeff") == r"\u200b\u2060\u200e\ufeff"


def test_each_control_character_has_a_visible_form() -> None:
    assert terminal.plain("\x1b\x9b\u202e\U000e0041\n\t") == r"\x1b\x9b\u202e\ue0041" + "\n\t"
    assert terminal.escape_json('"\x9b\u202e"') == r'"\u009b\u202e"'


def test_a_colour_in_the_roster_cannot_become_a_link(paths: TeamPaths) -> None:
    """A style of rich may be `link URL`, which a terminal follows."""
    Roster(paths).update(
        lambda team: team.with_new("ann", role="x", status=Status.IDLE, reason=None)
    )
    document = json.loads(paths.config.read_bytes())
    document["members"][0]["color"] = "link https://evil.example"
    paths.config.write_text(json.dumps(document))
    member = Roster(paths).read().get("bob")
    assert next(member_cells(look_at(paths, member, None, None, served=True))) == ("bob", "")
    assert obeyed(call("team")[0]) == set()


def test_a_cell_is_not_interpreted_as_markup() -> None:
    assert tables.cell("[link=https://evil.example]x[/link]").plain.startswith("[link=")
