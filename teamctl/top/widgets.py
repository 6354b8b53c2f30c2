"""The list widget of `top`, and its dialogs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.events import Key, Paste, Resize
from textual.geometry import Region, Size
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input, Static

from teamd.command_line.terminal import plain
from teamd.errors import TeamError

MOST: Final = 2000  # rows kept of a log
# The cursor stays visible without the focus, because keys still act on its row.
_CURSOR: Final = {True: Style(reverse=True, bold=True), False: Style(reverse=True, dim=True)}


class Row:
    """A line of text with a key; it is rendered once for each width."""

    __slots__ = ("_drawn", "_width", "key", "text")

    def __init__(self, key: str, text: Text) -> None:
        self.key = key
        self.text = text
        self.text.end = ""
        self._drawn: list[Strip] = []
        self._width = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row) and (self.key, self.text) == (other.key, other.text)

    __hash__ = None  # type: ignore[assignment] # mutable cache

    def strips(self, view: RowList, width: int) -> list[Strip]:
        """Return the rendered screen lines of the row."""
        if self._width != width:
            console = view.app.console
            parts = self.text.wrap(console, width)  # a line of a table is cut
            self._drawn = [Strip(part.render(console)) for part in parts]
            self._width = width
        return self._drawn


class RowList(ScrollView, can_focus=True):
    """A scrollable list of rows, optionally with a cursor.

    Args:
        chosen: whether there is a cursor.
        following: whether a list that shows its end scrolls on with new rows.
    """

    DEFAULT_CSS: ClassVar[str] = "RowList { overflow-x: hidden; scrollbar-size-vertical: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("up,k", "move(-1)", "up"),
        ("down,j", "move(1)", "down"),
        ("pageup,ctrl+b", "page(-1)", "page up"),
        ("pagedown,space,ctrl+f", "page(1)", "page down"),
        ("home,g", "edge(-1)", "first"),
        ("end,G", "edge(1)", "last"),
    ]

    def __init__(self, *, name: str, chosen: bool = False, following: bool = False) -> None:
        super().__init__(id=name)
        self.chosen = chosen
        self._following = following
        self._rows: list[Row] = []
        self._strips: list[Strip] = []
        self._starts: list[int] = []  # the first screen line of each row
        self._at = 0  # the cursor's row

    @property
    def key(self) -> str | None:
        """The key of the selected row; `None` without one."""
        return self._rows[self._at].key if self.chosen and self._rows else None

    @property
    def height(self) -> int:
        """The number of screen lines of all rows."""
        return len(self._strips)

    def fit_whole(self, most: int) -> int:
        """Return the height of the first rows that fit completely into this many lines."""
        ends = (*self._starts[1:], len(self._strips))
        return max((end for end in ends if end <= most), default=0)

    @property
    def copied(self) -> str:
        """The text of the selected row, or of all rows without a cursor."""
        rows = self._rows[self._at : self._at + 1] if self.chosen else self._rows
        return "\n".join(row.text.plain.rstrip() for row in rows)

    def follow(self) -> None:
        """Scroll to the end."""
        # Forced, because there is no scroll bar yet when rows have just outgrown the screen.
        self.scroll_end(animate=False, immediate=True, force=True)

    def show(self, rows: Sequence[Row]) -> None:
        """Show these rows; the cursor stays at its key."""
        if rows == self._rows:
            return
        key, last = self.key, self._at_end()
        before, self._rows = self._rows, list(rows)
        found = (n for n, row in enumerate(self._rows) if row.key == key)
        self._at = next(found, min(self._at, max(0, len(self._rows) - 1)))
        self._lay_out(before)
        if self._following and last:
            self.follow()

    def choose(self, key: str) -> None:
        """Move the cursor to the row of a key, if it exists."""
        for number, row in enumerate(self._rows):
            if row.key == key:
                self._go(number)

    def shows_whole(self, key: str) -> bool:
        """Return whether a row is completely visible."""
        number = next((n for n, row in enumerate(self._rows) if row.key == key), None)
        if number is None:
            return False
        start, end = self._span(number)
        top, width = round(self.scroll_y), self._width
        inside = top <= start and end <= top + self.size.height
        return inside and all(one.cell_length <= width for one in self._strips[start:end])

    def render_line(self, y: int) -> Strip:
        number = y + round(self.scroll_y)
        base = self.rich_style
        if number >= len(self._strips):
            return Strip.blank(self.size.width, base)
        strip = self._strips[number].crop_extend(0, self.size.width, base)
        start, end = self._span(self._at)
        shown = self.chosen and start <= number < end
        return strip.apply_style(base + _CURSOR[self.has_focus] if shown else base)

    def on_resize(self, _: Resize) -> None:
        self._lay_out(())

    def action_move(self, by: int) -> None:
        if self.chosen:
            self._go(self._at + by)
        else:
            self.scroll_relative(y=by, animate=False, immediate=True)

    def action_page(self, by: int) -> None:
        """Move by one page."""
        self.action_move(by * max(1, self.size.height - 1))

    def action_edge(self, by: int) -> None:
        if self.chosen:
            self._go(0 if by < 0 else len(self._rows) - 1)
        else:
            self.scroll_to(y=0 if by < 0 else len(self._strips), animate=False, immediate=True)

    @property
    def _width(self) -> int:
        """The width of a row; the screen's width before the first layout."""
        return self.scrollable_content_region.width or max(1, self.app.size.width)

    def _go(self, number: int) -> None:
        self._at = max(0, min(number, len(self._rows) - 1))
        self._keep_in_sight()
        self.refresh()

    def _keep_in_sight(self) -> None:
        start, end = self._span(self._at)
        region = Region(0, start, 1, max(1, end - start))
        self.scroll_to_region(region, animate=False, immediate=True, force=True)

    def _lay_out(self, before: Iterable[Row]) -> None:
        known = {row.key: row for row in before}
        width, shown, self._strips, self._starts = self._width, self._strips, [], []
        same = ((known.get(row.key), row) for row in self._rows)
        self._rows = [old if old is not None and old == row else row for old, row in same]
        for row in self._rows:  # unchanged rows are already rendered
            self._starts.append(len(self._strips))
            self._strips += row.strips(self, width)
        self.virtual_size = Size(width, len(self._strips))
        self._refresh_changed(shown)

    def _refresh_changed(self, before: Sequence[Strip]) -> None:
        """Redraw only the screen lines that have changed."""
        if len(before) != len(self._strips):
            self.refresh()
            return
        top = round(self.scroll_y)
        for number in range(top, min(top + self.size.height, len(before))):
            if before[number] is not self._strips[number]:
                self.refresh_line(number)

    def _span(self, number: int) -> tuple[int, int]:
        """Return the first screen line of a row and the one after its last."""
        if number >= len(self._starts):
            return 0, 0
        after = self._starts[number + 1 : number + 2]
        return self._starts[number], after[0] if after else len(self._strips)

    def _at_end(self) -> bool:
        return self.scroll_y >= self.max_scroll_y - 1


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


class FormInput(Input):
    """A field of one line; pasted lines are joined, where `Input` would drop all but the first."""

    def on_paste(self, event: Paste) -> None:
        event.text = " ".join(event.text.splitlines())


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form.

    Attributes:
        label: names it, in errors too.
        hint: shown while the field is empty, such as its default.
        parse: returns the value of the typed text, or raises a `TeamError`.
    """

    label: str
    hint: str = ""
    parse: Callable[[str], Any] = str


class Form(ModalScreen[list[Any] | None]):
    """A form of text fields; returns their values, or `None` if the person cancels.

    It stays open while a field is wrong, and names that field.

    Args:
        fields: the fields from top to bottom.
        given: their initial texts.
    """

    DEFAULT_CSS: ClassVar[str] = (
        _STYLE.format("Form")
        + "Form Horizontal { height: 1; } Form Horizontal Static { width: auto; }"
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "cancel", "cancel"),
        ("up", "app.focus_previous", "field before"),
        ("down", "app.focus_next", "next field"),
    ]

    def __init__(self, title: str, fields: Sequence[Field], given: Sequence[str] = ()) -> None:
        super().__init__()
        self._title = title
        self._fields = fields
        self._given = given or [""] * len(fields)

    def compose(self) -> ComposeResult:
        wide = max(len(field.label) for field in self._fields) + 2
        with Vertical():
            yield Static(Text(self._title, style="bold"))
            for field, given in zip(self._fields, self._given, strict=True):
                with Horizontal():
                    yield Static(Text(field.label.ljust(wide)))
                    yield FormInput(given, placeholder=field.hint, compact=True)
            yield Static(id="wrong")
            enter = "next or done" if self._fields[1:] else "done"
            yield Static(Text(f"Enter: {enter}   Esc: cancel"))

    @property
    def texts(self) -> list[str]:
        """The typed texts."""
        return [one.value for one in self.query(Input)]

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Check this field and go to the next one; in the last one check all, and end."""
        inputs = list(self.query(Input))
        at = inputs.index(event.input)
        last = at == len(inputs) - 1
        values = []
        for number in range(len(inputs)) if last else [at]:
            field = self._fields[number]
            try:
                values.append(field.parse(inputs[number].value))
            except TeamError as error:
                self._say(f"{field.label}: {error.for_person()}")
                self.set_focus(inputs[number])
                return
        self._say("")
        if last:
            self.dismiss(values)
        else:
            self.set_focus(inputs[at + 1])  # not deferred: the next key belongs to it

    def action_cancel(self) -> None:
        self.dismiss(None)

    def _say(self, wrong: str) -> None:
        self.query_one("#wrong", Static).update(Text(wrong, style="red"))


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
        yield RowList(name="page")
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
