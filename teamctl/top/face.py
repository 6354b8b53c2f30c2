"""What both screens of `top` have: who waits for the person, the list, its filter, and copying."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import Input, Static

from teamctl.top import bar, columns
from teamctl.top.columns import Line
from teamctl.top.dialogs import Form, TextDialog
from teamctl.top.lines import Row, RowList

if TYPE_CHECKING:
    from teamctl.top.app import Top
    from teamd.overview.requests import OpenRequest

_PART: Final = 4  # of the screen that requests take at most


class Face(Screen[None]):
    """A screen with the requests above its list, and below it the last answer and the keys.

    Attributes:
        view: names the filter that applies to the list.
    """

    DEFAULT_CSS: ClassVar[str] = """
    Face Static { height: 1; }
    Face #status { height: auto; max-height: 5; }
    Face RowList { height: 1fr; }
    Face #asks, Face #notes { height: 0; }
    Face Input { height: 1; border: none; padding: 0; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("a", "approve", "approve the request that is chosen, at first the oldest"),
        ("r", "reject", "reject it, with a reason"),
        ("e", "whole", "see all of it"),
        ("tab", "turn_focus", "go to the requests, the notes, and back to the list"),
        ("slash", "filter", "filter the list; the filter is kept until it is emptied"),
        ("y", "copy", "copy the request or row that is chosen, or what is shown"),
        ("question_mark", "keys", "show these keys"),
    ]
    AUTO_FOCUS = "#list"

    view = "team"

    def __init__(self) -> None:
        super().__init__()
        self._calm_at = 0.0
        self._rows: Sequence[Row] = ()

    @property
    def top(self) -> Top:
        """The program."""
        return cast("Top", self.app)

    @property
    def asks(self) -> RowList:
        """The requests."""
        return self.query_one("#asks", RowList)

    @property
    def body(self) -> RowList:
        """The list that the screen is about."""
        return self.query_one("#list", RowList)

    def compose(self) -> ComposeResult:
        """Build the lines, from the top of the screen down."""
        yield Static(id="title")
        yield Static(id="waiting")
        yield RowList(name="asks", chosen=True, wrapped=True)
        yield from self.compose_body()
        yield Input(id="filter", compact=True)
        yield Static(id="status")
        yield Static(id="keys")

    def compose_body(self) -> ComposeResult:
        """Build what is between the requests and the filter."""
        raise NotImplementedError

    def draw(self) -> None:
        """Draw the team as it is now; what has not changed is left alone."""
        if len(self.query("#title, #keys")) > 1:  # neither being built nor being left
            self.draw_parts()

    def draw_parts(self) -> None:
        """Draw each part; all are there."""
        self.draw_asks()
        self.draw_edges()

    def draw_asks(self) -> None:
        """Draw the requests."""
        asks, before = self.asks, self.asks.key
        waiting = ((one.approval.id, bar.ask(one)) for one in self.top.seen.waiting)
        asks.show(asks.rows_of(waiting))
        if asks.key != before:  # whoever presses a key now may have meant the one before
            self._calm_at = time.monotonic() + self.top.calm_seconds
        self.fit(asks)

    def draw_edges(self, *, folded: bool = False, notes: int = 0) -> None:
        """Draw the lines above and below; one that says nothing leaves its place to the list.

        Args:
            folded: whether the title says how many requests wait.
            notes: how many notes there are out of sight.
        """
        self.write("waiting", () if folded else bar.waiting(self.top.seen))
        told = " · ".join(filter(None, (self._filtered(), self.top.status)))
        self.write("status", ((told, ""),) if told else ())
        keys = bar.keys(self.size.width, readonly=self.top.readonly, notes=notes)
        self.write("keys", keys)

    def write(self, where: str, line: Line) -> None:
        """Write a line of its own, if it is another one than before."""
        place, text = self.query_one(f"#{where}", Static), Text.assemble(*line)
        if place.content != text:
            place.update(text)
        place.display = bool(line)

    def fit(self, lines: RowList) -> None:
        """Make a list as high as it needs to be, up to a part of the screen."""
        lines.styles.height = self.room_of(lines)

    def room_of(self, lines: RowList, part: int = _PART) -> int:
        """Return how many lines of the screen a list needs: at most such a part of them all."""
        return min(lines.height, max(1, self.size.height // part))

    def show(self, rows: Sequence[Row]) -> None:
        """Show rows in the list, those that the filter lets through."""
        self._rows = rows
        wanted = self.top.filters.get(self.view, "").lower()
        self.body.show([row for row in rows if wanted in row.text.plain.lower()])

    def fill(self, title: str, fields: Sequence[str], use: Callable[..., None]) -> None:
        """Have the person fill in a form, and use what was filled in; not where one only looks."""
        if not self.may():
            return

        def take(words: list[str] | None) -> None:
            if words is not None:
                use(*words)

        self.app.push_screen(Form(columns.in_a_line(title), *fields), take)

    def may(self) -> bool:
        """Return whether anything may be changed; if not, say so."""
        if self.top.readonly:
            self.top.tell("this top only looks (--readonly); start one without it to act")
        return not self.top.readonly

    def action_approve(self) -> None:
        """Approve the request that is chosen, once it was there to be read whole."""
        ask = self._chosen_ask()
        if ask is None or not self.may():
            return
        if not self.asks.shows_whole(ask.approval.id):
            self.action_whole()
        elif time.monotonic() < self._calm_at:
            self.top.tell("the requests have just changed: look, and press the key again")
        else:
            self._answer(ask, "a")

    def action_reject(self) -> None:
        """Reject it, with a reason."""
        ask = self._chosen_ask()
        if ask is not None:
            self._answer(ask, "r")

    def action_whole(self) -> None:
        """Show all of it, and take the answer there as well."""
        ask = self._chosen_ask()
        if ask is not None:
            answers = {} if self.top.readonly else {"a": "approve", "r": "reject"}
            asked = ask.approval
            title = columns.in_a_line(f"{asked.asker} asks: {bar.kind_of(ask)} {asked.id}")
            self.app.push_screen(
                TextDialog(title, asked.content, answers), lambda key: self._answer(ask, key)
            )

    def action_turn_focus(self) -> None:
        """Go to the next list that has something in it."""
        there = [self.body, *(one for one in self.query(RowList) if one is not self.body)]
        filled = [one for one in there if one is self.body or one.height]
        at = next((n for n, one in enumerate(filled) if one.has_focus), -1)
        self.set_focus(filled[(at + 1) % len(filled)])  # at once: the key may be pressed again

    def action_copy(self) -> None:
        """Copy the request or the row that is chosen, or all that is shown, by the terminal."""
        ask = self._chosen_ask() if self.asks.has_focus else None
        self.top.copy(self.body.copied if ask is None else ask.approval.what)

    def action_filter(self) -> None:
        """Ask for the filter, with the one that applies to begin with."""
        field = self.query_one("#filter", Input)
        field.value = self.top.filters.get(self.view, "")
        field.display = True
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter as it is typed."""
        if event.input.display:
            self.top.filters[self.view] = event.value
            self.show(self._rows)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go back to the list."""
        event.input.display = False
        self.body.focus()
        self.draw()

    def action_keys(self) -> None:
        """Show the keys of this screen."""
        keys = {key: what for key, _, what in self.top.keys_of(self)}
        wide = max(map(len, keys))
        text = "\n".join(f"{key:{wide}}  {what}" for key, what in keys.items())
        self.app.push_screen(TextDialog("The keys of this screen", text))

    def on_screen_resume(self) -> None:
        """Draw what has changed while another screen was in front."""
        self.draw()

    def on_resize(self) -> None:
        """Draw it for another size."""
        self.call_after_refresh(self.draw)

    def _answer(self, ask: OpenRequest, key: str | None) -> None:
        """Do what a key says about a request."""
        asked = ask.approval
        if key == "a":
            self.top.do(lambda actions: actions.answer(asked.id, approve=True))
        elif key == "r":
            self.fill(
                f"Reject the {bar.kind_of(ask)} of {asked.asker}",
                ("Reason",),
                lambda why: self.top.do(
                    lambda actions: actions.answer(asked.id, why, approve=False)
                ),
            )

    def _chosen_ask(self) -> OpenRequest | None:
        asks = {one.approval.id: one for one in self.top.seen.waiting}
        return asks.get(self.asks.key or "")

    def _filtered(self) -> str:
        wanted = self.top.filters.get(self.view)
        return f"filter: {wanted} (/ changes it)" if wanted else ""
