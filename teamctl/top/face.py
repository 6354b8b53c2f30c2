"""The common part of both screens of `top`: requests, tabs, list, filter, and keys that act."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from rich.text import Text
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input, Static

from teamctl.actions import Outcome
from teamctl.render import output
from teamctl.top import drawing
from teamctl.top.sources import Tab
from teamctl.top.team_tabs import Listing
from teamctl.top.widgets import Confirm, Field, Form, Row, RowList, TextDialog
from teamd.errors import TeamError
from teamd.messages import respawn_command
from teamd.overview.members import MemberView, OpenRequest
from teamd.team.states import Status

if TYPE_CHECKING:
    from teamctl.top.app import Top

_PART: Final = 4  # requests take at most this fraction of the screen
_NO_TEAMD: Final = "no teamd runs; start it with `teamd start`"
_ANSWERS: Final = ("a approve", "r reject", "e all of it")
_FILTER: Final = "type to filter; Enter keeps the filter, Esc clears it"
_READ_ONLY_ANSWERS: Final = ("e all of it",)
_ENDED: Final = {Status.SHUTDOWN: "is shut down", Status.FAILED: "has failed"}


class Face(Screen[None]):
    """A screen with requests and tabs above its list, and the status and keys below it.

    Attributes:
        tabs: the names of the tabs.
        leave: the key that leaves the screen.
        tab: the open tab.
        source: the content of the open tab; `None` if it is the overview.
        found: the content as it was read last; `None` before.
    """

    DEFAULT_CSS: ClassVar[str] = """
    Face Static { height: 1; }
    Face #status { height: auto; max-height: 5; }
    Face RowList { height: 1fr; }
    Face #asks, Face #notes { height: 0; }
    Face Input { height: 1; border: none; padding: 0; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("s", "send", "send mail to the teammate"),
        ("x", "shut_down", "shut the teammate down, once that is confirmed"),
        ("i", "interrupt", "interrupt its turn; a text is what it reads next"),
        ("p", "pause", "pause the teammate, or resume it"),
        ("m", "limits", "raise its limits, and resume it"),
        ("a", "approve", "approve the request that is chosen, at first the oldest"),
        ("r", "reject", "reject it, with a reason"),
        ("e", "whole", "see all of it"),
        ("right,l", "turn(1)", "next tab"),
        ("left,h", "turn(-1)", "tab before"),
        ("tab", "turn_focus(1)", "go to the requests, the notes, and back to the list"),
        ("shift+tab", "turn_focus(-1)", "the same backwards"),
        # At once, so that no key that follows quickly acts on a teammate.
        Binding("slash", "filter", "filter the list; Esc clears the filter", priority=True),
        ("y", "copy", "copy the request or row that is chosen, or what is shown"),
        ("question_mark", "keys", "show these keys"),
    ]
    AUTO_FOCUS = "#list"

    tabs: ClassVar[Sequence[str]]
    leave: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.tab = self.tabs[0]
        self.source: Tab | None = None
        self.found: Listing | list[Row] | None = None
        self._calm_at = 0.0

    @property
    def top(self) -> Top:
        """The app."""
        return cast("Top", self.app)

    @property
    def asks(self) -> RowList:
        """The requests."""
        return self.query_one("#asks", RowList)

    @property
    def body(self) -> RowList:
        """The main list of the screen."""
        return self.query_one("#list", RowList)

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        yield Static(id="waiting")
        yield RowList(name="asks", chosen=True)
        yield Static(id="tabs")
        yield Static(id="header")
        yield from self.compose_body()
        yield Input(id="filter", placeholder=_FILTER, compact=True)
        yield Static(id="status")
        yield Static(id="keys")

    def compose_body(self) -> ComposeResult:
        """Build the part between the requests and the filter."""
        raise NotImplementedError

    def draw(self) -> None:
        """Draw the current state; unchanged parts are not redrawn."""
        if len(self.query("#title, #keys")) > 1:  # the screen is neither being built nor removed
            self.draw_parts()

    def draw_parts(self) -> None:
        """Draw each part of a complete screen."""
        self.write("tabs", drawing.tab_bar(self.tabs, self.tab, self.size.width))
        self.draw_list()
        self.draw_asks()
        self.draw_edges()

    def draw_list(self) -> None:
        """Draw the content of the open tab, and the headings of a table."""
        match self.found:
            case Listing() if self.found.details:
                header, *lines = self.found.table.lines(self.size.width - 1)  # as in `roster`
                self.write("header", header)
                self.show([Row(*one) for one in zip(self.found.details, lines, strict=True)])
            case found:
                self.write("header", None)
                self.show(found if isinstance(found, list) else [])

    def open_tab(self) -> None:
        """Start reading the content of the open tab; the message about the last action is over."""
        self.found = None
        self.top.status = ""
        if self.source is not None:
            self.top.read(self.source)

    def take(self, source: Tab, found: Listing | list[Row]) -> None:
        """Show the content of a tab if it is still open."""
        if source is self.source and self.query("#list"):
            self.found = found
            self.draw()

    def action_turn(self, by: int) -> None:
        """Open another tab."""
        self.tab = self.tabs[(self.tabs.index(self.tab) + by) % len(self.tabs)]
        self.open_tab()
        self.draw()

    def draw_asks(self) -> None:
        asks, before = self.asks, self.asks.key
        asks.show([Row(one.approval.id, drawing.ask(one)) for one in self.top.seen.waiting])
        if asks.key != before:  # a key pressed now may have been meant for the previous request
            self._calm_at = time.monotonic() + self.top.calm_seconds
        asks.styles.height = self.room_of(asks)

    def draw_edges(self) -> None:
        """Draw the parts around the requests and the list."""
        raise NotImplementedError

    def draw_lines(self, *, folded: bool = False, notes: int = 0) -> None:
        """Draw the lines above and below the list; empty ones are hidden.

        Args:
            folded: whether the title counts the open requests.
            notes: the number of notes out of sight.
        """
        self.write("waiting", None if folded else drawing.waiting(self.top.seen))
        told = " · ".join(filter(None, (self._filtered(), self.top.status)))
        self.write("status", Text(told) if told else None)
        there = [f"Tab {notes} note{'' if notes == 1 else 's'}"] if notes else []
        named = [*there, *self._answers(), *self.hints(), "/ filter"]
        self.write("keys", drawing.keys(self.size.width, named, ("? keys", self.leave)))

    def hints(self) -> Sequence[str]:
        """Return the most useful keys of the open tab."""
        raise NotImplementedError

    def _answers(self) -> Sequence[str]:
        if not self.top.seen.waiting:
            return ()
        return _READ_ONLY_ANSWERS if self.top.readonly else _ANSWERS

    def write(self, where: str, line: Text | None) -> None:
        """Update a one-line widget if its text has changed; `None` hides it."""
        place = self.query_one(f"#{where}", Static)
        if line is not None and place.content != line:
            place.update(line)
        place.display = line is not None

    def room_of(self, lines: RowList, part: int = _PART) -> int:
        """Return the height of a list, at most a fraction of the screen."""
        return min(lines.height, max(1, self.size.height // part))

    def show(self, rows: Sequence[Row]) -> None:
        """Show the rows that match the filter; an empty list says why it is empty."""
        wanted = self.top.filters.get(self._filter, "")
        found = rows
        if wanted:
            found = [row for row in rows if wanted.lower() in row.text.plain.lower()]
        if found:
            why = ""
        elif rows:
            why = f"nothing here contains {wanted!r}; Esc clears the filter"
        elif self.source is not None:
            why = "…" if self.found is None else self.source.empty
        else:
            why = self.empty
        self.body.show([Row("", drawing.line((drawing.in_a_line(why), "dim")))] if why else found)

    @property
    def empty(self) -> str:
        """Why the list of the overview is empty."""
        return ""

    def fill(self, title: str, fields: Sequence[Field], act: Callable[..., Outcome]) -> None:
        """Show a form, and act with its values, unless this top is read-only."""
        if not self.may():
            return
        title = drawing.in_a_line(title)
        form = Form(title, fields, self.top.drafts.pop(title, ()))

        def take(values: list[Any] | None) -> None:
            if values is not None:
                self.top.do(lambda actions: act(actions, *values), title, form.texts)

        self.app.push_screen(form, take)

    def may(self) -> bool:
        """Return whether actions are allowed; if not, tell the person."""
        if self.top.readonly:
            self.top.tell("this top only looks (--readonly); start one without it to act")
        return not self.top.readonly

    @property
    def mate(self) -> MemberView | None:
        """The selected teammate, if any."""
        raise NotImplementedError

    @property
    def no_mate(self) -> str:
        """Why no teammate is selected, and the next step."""
        raise NotImplementedError

    def chosen_mate(self) -> MemberView | None:
        """Return the selected teammate; if there is none, tell the person why."""
        if self.mate is None:
            self.top.tell(self.no_mate)
        return self.mate

    def able(self) -> bool:
        """Return whether teamd takes requests; if not, tell the person."""
        if not self.may():
            return False
        if self.top.seen.supervisor is None:
            self.top.tell(self.top.paths.add_team_option(_NO_TEAMD))
        return self.top.seen.supervisor is not None

    def find_running(self, *, failed: bool = False) -> MemberView | None:
        """Return the selected teammate if it runs; otherwise tell the person why not.

        Args:
            failed: whether a failed teammate counts as running.
        """
        if not self.able() or (mate := self.chosen_mate()) is None:
            return None
        ended = _ENDED.get(mate.member.status)
        if ended is None or (failed and mate.member.status is Status.FAILED):
            return mate
        hint = self.top.paths.add_team_option(respawn_command(mate.name))
        self.top.tell(f"{mate.name} {ended}; {hint} starts it again")
        return None

    def action_send(self) -> None:
        if self.may() and (mate := self.chosen_mate()) is not None:
            field = Field("Text", parse=needed)
            self.fill(
                f"Send to {mate.name}", [field], lambda actions, text: actions.send(mate.name, text)
            )

    def action_shut_down(self) -> None:
        """Shut the teammate down after a confirmation."""
        mate = self.find_running(failed=True)
        if mate is None:
            return

        def go_on(meant: bool | None) -> None:  # noqa: FBT001 -- textual's
            if meant:
                self.top.do(lambda actions: actions.shutdown(mate.name))

        self.app.push_screen(Confirm(f"Shut {mate.name} down?"), go_on)

    def action_interrupt(self) -> None:
        """Interrupt the teammate's turn."""
        if (mate := self.find_running()) is not None:
            idle = mate.state == Status.IDLE
            hint = "it is idle, and reads this now" if idle else "it reads this next; may be empty"
            self.fill(
                f"Interrupt {mate.name}",
                [Field("Text", hint)],
                lambda actions, text: actions.interrupt(mate.name, text),
            )

    def action_pause(self) -> None:
        """Pause the teammate, or resume a paused one."""
        mate = self.find_running()
        if mate is None:
            return
        if mate.state == Status.PAUSED:
            self.top.do(lambda actions: actions.resume(mate.name))
        else:
            self.top.do(lambda actions: actions.pause(mate.name))

    def action_limits(self) -> None:
        """Raise the limits that stop the teammate."""
        mate = self.find_running()
        if mate is not None and mate.state != Status.PAUSED:
            self.top.tell(f"no limit stops {mate.name}: it is {mate.state}")
        elif mate is not None:
            used = "?" if mate.account is None else output.cost(mate.account)
            self.fill(
                f"Raise the limits of {mate.name}, which has used {used}",
                [
                    Field("USD more", "may be empty", partial(_number, float)),
                    Field("Tokens more", "may be empty", partial(_number, int)),
                ],
                lambda actions, usd, tokens: actions.resume(mate.name, **_more(usd, tokens)),
            )

    def action_approve(self) -> None:
        """Approve the selected request, but only if all of it was visible."""
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
        ask = self._chosen_ask()
        if ask is not None:
            self._answer(ask, "r")

    def action_whole(self) -> None:
        """Show the whole request in a dialog that also takes the answer."""
        ask = self._chosen_ask()
        if ask is not None:
            answers = {} if self.top.readonly else {"a": "approve", "r": "reject"}
            asked = ask.approval
            title = drawing.in_a_line(f"{asked.asker} asks: {drawing.kind_of(ask)} {asked.id}")
            self.app.push_screen(
                TextDialog(title, asked.content, answers), lambda key: self._answer(ask, key)
            )

    def action_turn_focus(self, by: int) -> None:
        """Focus the next list that is not empty, or the one before."""
        there = [self.body, *(one for one in self.query(RowList) if one is not self.body)]
        filled = [one for one in there if one is self.body or one.height]
        at = next((n for n, one in enumerate(filled) if one.has_focus), -1)
        self.set_focus(
            filled[(at + by) % len(filled)]
        )  # not deferred: the key may be pressed again

    def action_copy(self) -> None:
        """Copy the selected request or row, or all rows."""
        ask = self._chosen_ask() if self.asks.has_focus else None
        self.top.copy(self.body.copied if ask is None else ask.approval.what)

    def action_filter(self) -> None:
        """Show the filter field with the current filter."""
        field = self.query_one("#filter", Input)
        if self.focused is field:
            raise SkipAction  # the field takes the key
        field.value = self.top.filters.get(self._filter, "")
        field.display = True
        self.set_focus(field)  # not deferred: the next key belongs to it

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.display:
            self.top.filters[self._filter] = event.value
            self.draw()

    def on_input_submitted(self) -> None:
        self.body.focus()

    def on_input_blurred(self, event: Input.Blurred) -> None:
        event.input.display = False
        self.draw()

    def action_clear(self) -> None:
        """Clear the filter, or go back without one."""
        if self.top.filters.pop(self._filter, "") or self.query_one("#filter", Input).display:
            self.body.focus()
            self.draw()
        else:
            self.go_back()

    def go_back(self) -> None:
        """Go back to the screen before, if there is one."""

    def action_keys(self) -> None:
        keys = {key: what for key, _, what in self.top.keys_of(self)}
        wide = max(map(len, keys))
        text = "\n".join(f"{key:{wide}}  {what}" for key, what in keys.items())
        self.app.push_screen(TextDialog("The keys of this screen", text))

    def on_screen_resume(self) -> None:
        self.draw()

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def _answer(self, ask: OpenRequest, key: str | None) -> None:
        """Answer a request as the pressed key says."""
        asked = ask.approval
        if key == "a":
            self.top.do(lambda actions: actions.answer(asked.id, approve=True))
        elif key == "r":
            self.fill(
                f"Reject the {drawing.kind_of(ask)} of {asked.asker}",
                [Field("Reason", "may be empty")],
                lambda actions, why: actions.answer(asked.id, why, approve=False),
            )

    def _chosen_ask(self) -> OpenRequest | None:
        asks = {one.approval.id: one for one in self.top.seen.waiting}
        return asks.get(self.asks.key or "")

    @property
    def _filter(self) -> tuple[type, str]:
        return type(self), self.tab

    def _filtered(self) -> str:
        wanted = self.top.filters.get(self._filter)
        return f"filter: {wanted} (/ changes it, Esc clears it)" if wanted else ""


def needed(text: str) -> str:
    """Return the text of a field that must not be empty."""
    if not text.strip():
        raise TeamError("it is empty; type a text")
    return text


def _more(usd: float | None, tokens: float | None) -> dict[str, float]:
    """Return the amounts that were typed."""
    return {unit: most for unit, most in (("usd", usd), ("tokens", tokens)) if most is not None}


def _number(kind: type[int | float], text: str) -> float | None:
    typed = text.strip().removeprefix("$")
    try:
        return kind(typed) if typed else None
    except ValueError as error:
        raise TeamError(f"{typed!r} is not a number; type one such as 5, or nothing") from error
