"""The two screens of `top`: the team and one teammate, each with its tabs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType

from teamctl.top import drawing
from teamctl.top.drawing import TEAM, TEAM_TABS, USAGE
from teamctl.top.face import Face, needed
from teamctl.top.sources import TABS, Tab
from teamctl.top.team_tabs import READERS, Listing
from teamctl.top.widgets import Field, Row, RowList, TextDialog
from teamd.errors import TeamError
from teamd.messages import check_name
from teamd.overview.members import MemberView

_NUMBERS: Final = "123456789"
_LOW: Final = 20  # lines; a higher screen always shows the notes
_HALF: Final = 2  # focused notes take at most this fraction of a low screen
_LINES_AROUND: Final = 5  # title, request count, tabs, headings, keys
_YES_NO: Final = {True: "yes", False: "no"}


class TeamScreen(Face):
    """The screen of the team: a tab with a row for each member and the notes, and other tabs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("enter", "open", "look at the teammate, or see all of the row"),
        ("n", "spawn", "spawn a teammate"),
        *(
            (n, f"app.team({n})", "" if n != "1" else "go to the first team; so with 2 to 9")
            for n in _NUMBERS
        ),
        ("escape", "clear", "clear the filter"),
        ("q", "app.quit", "leave; the team goes on"),
    ]
    tabs = TEAM_TABS
    leave = "q quit"

    def __init__(self) -> None:
        super().__init__()
        self._member: str | None = None  # chosen while another tab is open

    @property
    def mate(self) -> MemberView | None:
        """The teammate of the selected row."""
        return self.top.find(self.body.key) if self.tab in {TEAM, USAGE} else None

    @property
    def no_mate(self) -> str:
        there = f"choose a teammate in the tab {TEAM} first"
        return there if self.top.seen.members else self.empty

    @property
    def empty(self) -> str:
        return "nobody is in the team yet; n spawns a teammate"

    @property
    def notes(self) -> RowList:
        """The list of notes."""
        return self.query_one("#notes", RowList)

    def compose_body(self) -> ComposeResult:
        yield RowList(name="list", chosen=True)
        yield RowList(name="notes")

    def draw_list(self) -> None:
        """Draw the members, or the table of another tab."""
        if self.tab != TEAM:
            super().draw_list()
            return
        seen = self.top.seen
        header, *lines = drawing.roster(seen, self.size.width)
        self.write("header", header)
        named = zip(seen.members, lines, strict=True)
        self.show([Row(view.name, line) for view, line in named])

    def draw_edges(self) -> None:
        """Draw the parts around the list, folded if a low screen lacks the space."""
        seen, (width, height) = self.top.seen, self.size
        told = self._notes()
        self.notes.show([Row(str(n), line) for n, line in enumerate(told)])
        left = height - _LINES_AROUND - self.room_of(self.asks) - self.body.height
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
        self.draw_lines(folded=folded, notes=len(told) if unseen else 0)

    def hints(self) -> Sequence[str]:
        look = ("Enter look",) if self.mate else ()
        if self.tab != TEAM:
            return look or (("Enter all of it",) if self.body.key else ())
        return look if self.top.readonly else (*look, "s send", "n spawn")

    def open_tab(self) -> None:
        """Read a table; the members are drawn from the overview."""
        self.source = None
        if self.tab != TEAM:
            reader, empty = READERS[self.tab]
            read = reader(self.top.choice, self.top.paths)
            self.source = Tab(read, self.top.paths.add_team_option(empty))
        super().open_tab()

    def action_turn(self, by: int) -> None:
        """Open another tab; the cursor stays at its member, and begins at the first row."""
        if self.tab == TEAM:
            self._member = self.body.key
        super().action_turn(by)
        self.body.action_edge(-1)
        if self.tab == TEAM and self._member is not None:
            self.body.choose(self._member)

    def on_descendant_focus(self) -> None:
        """Show focused notes, even on a low screen."""
        self.draw()

    def action_open(self) -> None:
        """Open the selected teammate or request, or show all of a row."""
        if self.asks.has_focus:
            self.action_whole()
        elif (mate := self.mate) is not None:
            self.app.push_screen(MateScreen(mate.name))
        elif isinstance(self.found, Listing) and (key := self.body.key) in self.found.details:
            title, _, text = self.found.details[key].partition("\n")
            self.app.push_screen(TextDialog(drawing.in_a_line(title), text))

    def action_spawn(self) -> None:
        """Show the form of a new teammate."""
        if not self.able():
            return
        try:
            settings = self.top.choice.settings(self.top.paths)
            model, own_copy = settings.model.name, _YES_NO[settings.team.worktree]
        except TeamError:  # teamd runs with settings that it has read before
            model, own_copy = "that of the settings", "that of the settings"
        fields = [
            Field("Name", "such as alice", _name),
            Field("Role", "such as tester", needed),
            Field("Prompt", "its first task", needed),
            Field("Model", f"{model}, or as its role says, or as before", _optional),
            Field("Plan", "no, or as before; yes: you approve its plan first", _yes_or_no),
            Field("Working copy", f"{own_copy}, or as before", _yes_or_no),
        ]
        self.fill(
            "Spawn a teammate",
            fields,
            lambda actions, name, role, prompt, model, plan, copy: actions.spawn(
                name, role, prompt, model=model, plan=plan, worktree=copy
            ),
        )

    def _notes(self) -> list[Text]:
        if self.tab == TEAM:
            return drawing.notes(self.top.seen)
        notes = self.found.notes if isinstance(self.found, Listing) else ()
        return [
            drawing.line((self.top.paths.add_team_option(drawing.in_a_line(text)), style))
            for text, style in notes
        ]


class MateScreen(Face):
    """The screen of one teammate: its state, and tabs for transcript, mail, log, tasks and diff."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "clear", "clear the filter; without one, go back to the team"),
        ("q", "leave", "go back to the team"),
    ]
    tabs = tuple(TABS)
    leave = "q back"

    def __init__(self, name: str) -> None:
        super().__init__()
        self._of = name

    @property
    def mate(self) -> MemberView | None:
        """The teammate, unless it has left the team."""
        return self.top.find(self._of)

    @property
    def no_mate(self) -> str:
        return f"{self._of} has left the team; q goes back to it"

    def compose_body(self) -> ComposeResult:
        yield RowList(name="list", following=True)

    def on_mount(self) -> None:
        self.open_tab()

    def draw_edges(self) -> None:
        self.write("title", _title(self._of, self.mate, self.size.width))
        self.draw_lines()

    def hints(self) -> Sequence[str]:
        return () if self.top.readonly else ("s send", "i interrupt", "p pause")

    def open_tab(self) -> None:
        self.source = TABS[self.tab](self.top.paths, self._of)
        super().open_tab()
        self.body.follow()

    def action_leave(self) -> None:
        self.go_back()

    def go_back(self) -> None:
        self.source = None
        self.top.status = ""
        self.dismiss()


def _title(name: str, mate: MemberView | None, width: int) -> Text:
    if mate is None:
        return drawing.line((f"{name} has left the team", "bold"))
    facts = (mate.member.role, mate.state, mate.describes, mate.member.reason)
    text = drawing.in_a_line(" · ".join([name, *filter(None, facts)]))
    return drawing.line((text, "bold"), width=width)


def _name(text: str) -> str:
    return check_name(needed(text).strip())


def _optional(text: str) -> str | None:
    return text.strip() or None


def _yes_or_no(text: str) -> bool | None:
    typed = text.strip().lower()
    if typed and typed not in {"y", "yes", "n", "no"}:
        raise TeamError(f"{text.strip()!r} is not an answer; type yes or no, or nothing")
    return typed.startswith("y") if typed else None
