"""The textual app of `teamctl top`: it reads the files of a team, and the screens draw them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, ClassVar, Final, TypeVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.worker import Worker

from teamctl.actions import Outcome, TeamActions
from teamctl.tail import hints
from teamctl.top.drawing import in_a_line, line
from teamctl.top.face import Face
from teamctl.top.screens import TeamScreen
from teamctl.top.sources import Tab
from teamctl.top.widgets import Row, explain
from teamd.command_line.run import TeamOptions
from teamd.files.find_team import all_teams, finish
from teamd.files.paths import TeamPaths
from teamd.overview.members import MemberView
from teamd.overview.overview import Overview, OverviewReader

T = TypeVar("T")

PAUSE_SECONDS: Final = 0.25  # between two reads
_REST_SECONDS: Final = 2.0  # between two reads without changed files, for CPU and memory
_REST_TIMES: Final = 200  # a pause lasts at least this many times as long as the read before it
_MOST_COPIED: Final = 70_000  # characters; terminals refuse much more
_SIGNS: Final = {"slash": "/", "question_mark": "?"}
_TICK_SECONDS: Final = 1.0
_CALM_TICKS: Final = 5
_UNTRUSTED_SECONDS: Final = 10.0
_CALM_SECONDS: Final = 0.5  # a request must keep its place this long before a key answers it


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a thread that does not delay the exit of the program."""
    result: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        with suppress(concurrent.futures.InvalidStateError):  # the app no longer waits
            try:
                result.set_result(work())
            except Exception as error:  # noqa: BLE001 -- raised again for the caller
                result.set_exception(error)

    Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(result)


class Top(App[None]):
    """The app.

    Args:
        seen: the state that is shown first.
        readonly: whether actions are refused.
        calm_seconds: see `Face.draw`.
    """

    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    Form, Confirm { background: transparent; }
    """
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING: ClassVar[str] = "colon"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", "leave", priority=True),
    ]

    def __init__(
        self,
        choice: TeamOptions,
        seen: Overview,
        *,
        readonly: bool = False,
        calm_seconds: float = _CALM_SECONDS,
    ) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.animation_level = "none"
        self.seen = seen
        self.readonly = readonly
        self.calm_seconds = calm_seconds
        self.filters: dict[tuple[type, str], str] = {}  # by screen and tab
        self.drafts: dict[str, list[str]] = {}  # texts of refused forms, by their titles
        self.status = ""
        self.teams: tuple[str, ...] = ()
        self.paths = choice.existing()
        self.choice = choice
        self._ticks = 0
        self._untrusted: tuple[list[str], str] = [], ""
        self._untrusted_at = 0.0
        self._trouble = ""  # why the team could not be read
        self._rung = _ids(seen)
        self._changed = asyncio.Event()
        self._follower: Worker[None] | None = None

    def get_default_screen(self) -> Screen[None]:
        return TeamScreen()

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            with suppress(ValueError, RuntimeError):  # not in the main thread
                loop.add_signal_handler(number, self.exit)
        self.set_interval(_TICK_SECONDS, self._tick)
        self._follower = self.run_worker(self._follow())

    @property
    def faces(self) -> list[Face]:
        """The screens that show the team, including those behind a dialog."""
        return [screen for screen in self.screen_stack if isinstance(screen, Face)]

    def find(self, name: str | None) -> MemberView | None:
        return self.seen.find(name or "")

    def redraw(self) -> None:
        for face in self.faces[-1:]:
            face.draw()

    def _tick(self) -> None:
        """Redraw each second while anyone works, and every few seconds otherwise."""
        self._ticks += 1
        busy = self.seen.waiting or any(view.doing for view in self.seen.members)
        if busy or self._ticks % _CALM_TICKS == 0:
            self.redraw()

    def tell(self, text: str) -> None:
        """Show a text in the status line until the next one, or until another tab is open."""
        self.status = in_a_line(text)
        self.redraw()

    def do(
        self, action: Callable[[TeamActions], Outcome], form: str = "", texts: Sequence[str] = ()
    ) -> None:
        """Run an action in a thread, so that the screen stays responsive.

        If it is refused, the form shows its texts again when it is opened the next time.
        """
        self.tell("…")
        self.run_worker(self._do(action, TeamActions(self.choice), form, texts))

    def read(self, source: Tab) -> None:
        """Read a tab that is not live, or have a live one read soon."""
        if source.live:
            self._changed.set()
        else:
            self.run_worker(self._read(source))

    def copy(self, text: str) -> None:
        """Copy a text to the clipboard with OSC 52."""
        self.copy_to_clipboard(text[:_MOST_COPIED])
        lines = len(text.splitlines())
        self.tell(f"copied {lines} line{'' if lines == 1 else 's'}")

    def keys_of(self, face: Face) -> Iterator[tuple[str, str, str]]:
        """Yield the keys of a screen with their actions and descriptions."""
        for kind in type(face).__mro__:
            if issubclass(kind, Face):
                for binding in kind.BINDINGS:
                    match binding:
                        case (key, action, what) | Binding(key, action, what) if what:
                            yield _SIGNS.get(key, key), action, what
        yield ":", "app.command_palette", "all of this by name"

    def action_team(self, number: int) -> None:
        """Switch to another team of this project."""
        there = all_teams(self.paths.home)
        if not 0 < number <= len(there):
            self.tell(f"there is no team {number}; there are {len(there)}")
        elif there[number - 1].root != self.paths.root:
            self._go(finish(there[number - 1]))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Yield the entries of the palette: the keys of the screen by their descriptions."""
        if isinstance(screen, Face):
            for key, action, what in self.keys_of(screen):
                if action != "app.command_palette":
                    yield SystemCommand(what, f"key {key}", partial(self._act, screen, action))

    def _act(self, screen: Screen[Any], action: str) -> None:
        self.call_later(screen.run_action, action)

    def _go(self, paths: TeamPaths) -> None:
        if self._follower is not None:
            self._follower.cancel()
        self.paths = paths
        self.choice = TeamOptions(team_dir=str(paths.root), config=self.choice.config)
        self._rung = set()
        self._untrusted_at = 0.0
        for face in self.faces:
            face.open_tab()
        self._follower = self.run_worker(self._follow())

    async def _follow(self) -> None:
        """Read the team and the open tabs after each change, and every few seconds."""
        paths, reader = self.paths, OverviewReader(self.paths)
        folders = (paths.root, paths.inboxes, paths.transcripts, paths.requests, paths.tasks)
        more = (paths.logs, paths.activities)
        with hints((*folders, *more), lambda _: self._changed.set()) as watches:
            while True:
                self._changed.clear()
                began = time.monotonic()
                await self._look(paths, reader)
                took = time.monotonic() - began
                await asyncio.sleep(PAUSE_SECONDS)
                rest = min(_REST_SECONDS, *(one.recheck_seconds for one in watches.values()))
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(rest, _REST_TIMES * took)):
                        await self._changed.wait()

    async def _look(self, paths: TeamPaths, reader: OverviewReader) -> None:
        """Read and draw the team and the open live tabs; ring the bell for each new request."""
        if self.status == self._trouble:
            self.status = ""
        self._trouble = ""
        try:
            names = [one.own_name or "" for one in await in_thread(lambda: all_teams(paths.home))]
            self.teams = tuple(names)
            self.seen = await in_thread(lambda: reader.read(self._read_untrusted(paths)))
        except Exception as error:  # noqa: BLE001 -- an outermost call, like those below
            self._trouble = in_a_line(explain(error))
            self.tell(self._trouble)
        else:
            asked = _ids(self.seen)
            if asked - self._rung:
                self.bell()
            self._rung |= asked
            self.redraw()
        for face in self.faces:
            if face.source is not None and face.source.live:
                await self._read(face.source)

    def _read_untrusted(self, paths: TeamPaths) -> tuple[list[str], str]:
        """Return the untrusted settings; they are read rarely, since that is slow."""
        now = time.monotonic()
        if now >= self._untrusted_at:
            self._untrusted = self.choice.waiting(paths)
            self._untrusted_at = now + _UNTRUSTED_SECONDS
        return self._untrusted

    async def _read(self, source: Tab) -> None:
        try:
            found = await in_thread(source.read)
        except Exception as error:  # noqa: BLE001
            found = [Row("trouble", line((in_a_line(explain(error)), "red")))]
        for face in self.faces:
            face.take(source, found)

    async def _do(
        self,
        action: Callable[[TeamActions], Outcome],
        actions: TeamActions,
        form: str,
        texts: Sequence[str],
    ) -> None:
        try:
            text = (await in_thread(lambda: action(actions))).sentence()
        except Exception as error:  # noqa: BLE001
            text = actions.choice.add_team_option(explain(error))
            self.drafts[form] = list(texts)
        self.tell(text)
        self._changed.set()


def _ids(seen: Overview) -> set[str]:
    return {one.approval.id for one in seen.waiting}
