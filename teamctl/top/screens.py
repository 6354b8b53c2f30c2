"""The two screens of `top`: the team, and one teammate with its tabs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Static

from teamctl.top import drawing
from teamctl.top.face import Face
from teamctl.top.sources import TABS, Tab
from teamctl.top.widgets import Row, RowList
from teamd.overview.members import MemberView

_NUMBERS: Final = "123456789"
_LOW: Final = 20  # lines; a higher screen always shows the notes
_HALF: Final = 2  # focused notes take at most this fraction of a low screen
_LINES_AROUND: Final = 4  # title, request count, headings, keys


class TeamScreen(Face):
    """The screen of the team: one row for each member, and the notes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("enter", "open", "look at the teammate: transcript, mail, log, tasks, diff"),
        ("n", "spawn", "spawn a teammate"),
        *(
            (n, f"app.team({n})", "" if n != "1" else "go to the first team; so with 2 to 9")
            for n in _NUMBERS
        ),
        ("q", "app.quit", "leave; the team goes on"),
    ]

    @property
    def mate(self) -> MemberView | None:
        """The teammate of the selected row."""
        return self.top.find(self.body.key)

    @property
    def notes(self) -> RowList:
        """The list of notes."""
        return self.query_one("#notes", RowList)

    def compose_body(self) -> ComposeResult:
        yield Static(id="header")
        yield RowList(name="list", chosen=True)
        yield RowList(name="notes", wrapped=True)

    def draw_parts(self) -> None:
        """Draw the roster in the space that the other parts leave."""
        seen, width = self.top.seen, self.size.width
        header, *lines = drawing.roster(seen, width)
        self.write("header", header)
        named = zip(seen.members, lines, strict=True)
        self.show([Row(view.name, line) for view, line in named])
        told = drawing.notes(seen)
        self.notes.show([Row(str(n), line) for n, line in enumerate(told)])
        self.draw_asks()
        self._draw_around(len(told))

    def on_descendant_focus(self) -> None:
        """Show focused notes, even on a low screen."""
        self.draw()

    def _draw_around(self, notes: int) -> None:
        """Draw the parts around the roster, folded if a low screen lacks the space."""
        seen, (width, height) = self.top.seen, self.size
        left = height - _LINES_AROUND - self.room_of(self.asks) - len(seen.members)
        shown = self.room_of(self.notes)
        folded = height < _LOW and left < shown
        if folded and self.notes.has_focus:
            shown = self.room_of(self.notes, _HALF)
        elif folded:
            # Title and request count share a line; a cut note would be misread.
            shown = self.notes.fit_whole(min(shown, left + 1))
        title = drawing.folded_title if folded else drawing.title
        self.write("title", title(seen, width, self.top.teams))
        self.notes.styles.height = shown
        unseen = folded and not self.notes.has_focus and shown < self.notes.height
        self.draw_edges(folded=folded, notes=notes if unseen else 0)

    def action_open(self) -> None:
        """Open the selected teammate or request."""
        if self.asks.has_focus:
            self.action_whole()
        elif (mate := self.mate) is not None:
            self.app.push_screen(MateScreen(mate.name))

    def action_spawn(self) -> None:
        if not self.able():
            return
        self.fill(
            "Spawn a teammate",
            ("Name", "Role", "Task"),
            lambda *words: self.top.do(lambda actions: actions.spawn(*words)),
        )


class MateScreen(Face):
    """The screen of one teammate: its state, and tabs for transcript, mail, log, tasks and diff."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("right,l", "turn(1)", "next tab"),
        ("left,h", "turn(-1)", "tab before"),
        ("escape,q", "leave", "go back to the team"),
    ]

    def __init__(self, name: str) -> None:
        super().__init__()
        self._of = name
        self.view = next(iter(TABS))
        self.source: Tab | None = None

    @property
    def mate(self) -> MemberView | None:
        """The teammate, unless it has left the team."""
        return self.top.find(self._of)

    def compose_body(self) -> ComposeResult:
        yield Static(id="tabs")
        yield RowList(name="list", wrapped=True, following=True)

    def on_mount(self) -> None:
        self._open()

    def draw_parts(self) -> None:
        """Draw the state; the tab is drawn once it has been read."""
        self.write("title", _title(self._of, self.mate, self.size.width))
        self.write("tabs", drawing.line(*(_tab(tab, opened=tab == self.view) for tab in TABS)))
        super().draw_parts()

    def take(self, source: Tab, rows: Sequence[Row]) -> None:
        """Show the rows of a tab if it is still open."""
        if source is self.source and self.query("#list"):
            self.show(rows)

    def action_turn(self, by: int) -> None:
        tabs = list(TABS)
        self.view = tabs[(tabs.index(self.view) + by) % len(tabs)]
        self._open()
        self.draw()

    def action_leave(self) -> None:
        self.source = None
        self.dismiss()

    def _open(self) -> None:
        self.source = TABS[self.view](self.top.paths, self._of)
        self.show([])
        self.body.follow()
        self.top.read(self.source)


def _title(name: str, mate: MemberView | None, width: int) -> Text:
    if mate is None:
        return drawing.line((f"{name} has left the team", "bold"))
    facts = (mate.member.role, mate.state, mate.describes, mate.member.reason)
    text = drawing.in_a_line(" · ".join([name, *filter(None, facts)]))
    return drawing.line((text, "bold"), width=width)


def _tab(name: str, *, opened: bool) -> tuple[str, str]:
    return (f"[{name}] ", "bold") if opened else (f" {name}  ", "")
