"""The dialogs of `top`, and the messages that its threads post."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.events import Key
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from teamctl.top.lines import Row, RowList
from teamd.command_line.terminal import plain
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.overview.overview import Overview

if TYPE_CHECKING:
    from teamctl.top.sources import Tab


@dataclass
class RosterUpdated(Message):
    """The watcher has read the team; `seen` is `None` if it could not."""

    paths: TeamPaths
    seen: Overview | None
    trouble: str
    teams: tuple[str, ...]


@dataclass
class TabLoaded(Message):
    """A tab has been read."""

    source: Tab
    rows: Sequence[Row]


@dataclass
class StatusMessage(Message):
    """An action was carried out or refused."""

    text: str


def explain(error: Exception) -> str:
    """Return the sentence about an error in a thread."""
    if isinstance(error, TeamError):
        return error.for_person()
    return f"internal error ({type(error).__name__}: {error}); please report it"


_STYLE: Final = """
{0} {{ align: center bottom; }}
{0} > Vertical {{ height: auto; max-height: 100%; border: round ansi_bright_black; padding: 0 1; }}
{0} Static {{ height: auto; }}
{0} Input {{ height: 1; border: none; padding: 0; }}
"""


class Form(ModalScreen[list[str] | None]):
    """A form of text fields; returns their values, or `None` if the person cancels.

    Args:
        fields: the labels.
        given: the initial values.
    """

    DEFAULT_CSS: ClassVar[str] = _STYLE.format("Form")
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "cancel", "leave it")]

    def __init__(self, title: str, *fields: str, given: Sequence[str] = ()) -> None:
        super().__init__()
        self._title = title
        self._fields = fields
        self._given = (*given, *("" for _ in fields[len(given) :]))

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Text(self._title, style="bold"))
            for field, given in zip(self._fields, self._given, strict=True):
                yield Static(Text(field))
                yield Input(given, compact=True)
            yield Static(Text("Enter: next, and done behind the last   Esc: leave it"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        inputs = list(self.query(Input))
        if event.input is inputs[-1]:
            self.dismiss([one.value for one in inputs])
        else:
            inputs[inputs.index(event.input) + 1].focus()

    def action_cancel(self) -> None:
        self.dismiss(None)


class Confirm(ModalScreen[bool]):
    """A question that only `y` confirms."""

    DEFAULT_CSS: ClassVar[str] = _STYLE.format("Confirm")

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Text(f"{self._question}  y: yes, any other key: no", style="bold"))

    def on_key(self, event: Key) -> None:
        event.stop()
        self.dismiss(event.key == "y")


class TextDialog(ModalScreen[str | None]):
    """Shows a whole text; returns the answer key that closed it, if any.

    Args:
        text: untrusted; control characters are removed.
        answers: the keys that close the dialog, with their descriptions.
    """

    DEFAULT_CSS: ClassVar[str] = "Page Static { height: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q", "leave", "go back"),
        ("y", "copy", "copy"),
    ]

    def __init__(self, title: str, text: str, answers: dict[str, str] | None = None) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._answers = answers or {}

    def compose(self) -> ComposeResult:
        keys = "  ".join(f"{key} {what}" for key, what in self._answers.items())
        yield Static(Text(self._title, style="bold"))
        yield RowList(name="page", wrapped=True)
        yield Static(Text(f"{keys}  y copy  Esc back".strip()))

    def on_mount(self) -> None:
        lines = plain(self._text).splitlines()
        self.query_one(RowList).show([Row(str(n), Text(line)) for n, line in enumerate(lines)])

    def on_key(self, event: Key) -> None:
        if event.key in self._answers:
            event.stop()
            self.dismiss(event.key)

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self._text)
