"""The textual app of `teamctl top`: a watcher thread reads the files, the screens draw them."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, ClassVar, Final

from textual.app import App, ScreenStackError, SystemCommand
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen

from teamctl.actions import Outcome, TeamActions
from teamctl.top.columns import in_a_line
from teamctl.top.dialogs import RosterUpdated, StatusMessage, TabLoaded, explain
from teamctl.top.face import Face
from teamctl.top.lines import row_of
from teamctl.top.screens import MateScreen, TeamScreen
from teamctl.top.sources import Tab
from teamd.command_line.run import TeamOptions
from teamd.files.find_team import all_teams, finish
from teamd.files.paths import TeamPaths
from teamd.files.watch import Watch, watch
from teamd.overview.members import MemberView
from teamd.overview.overview import Overview, OverviewReader

PAUSE_SECONDS: Final = 0.25  # between two reads
_REST_SECONDS: Final = 2.0  # between two reads without changed files, for CPU and memory
_REST_TIMES: Final = 200  # a pause lasts at least this many times as long as the read before it


class FolderWatcher(Thread):
    """Calls `look` when files in some folders have changed, and every few seconds.

    Args:
        look: called in this thread, at most four times a second.
    """

    def __init__(self, folders: Iterable[Path], look: Callable[[], None]) -> None:
        super().__init__(name="watcher", daemon=True)  # a slow disk must not delay the exit
        self._folders = tuple(folders)
        self._look = look
        self._ended = Event()
        self._ears, self._bell = os.pipe()
        os.set_blocking(self._bell, False)
        self._closing = Lock()  # prevents a write to a closed, reused descriptor
        self._open = True

    def look_soon(self) -> None:
        """Call `look` soon, even without changes."""
        with self._closing, suppress(BlockingIOError):
            if self._open:
                os.write(self._bell, b"!")

    def end(self) -> None:
        """End the thread without waiting for it."""
        self._ended.set()
        self.look_soon()

    def run(self) -> None:
        try:
            self._watch()
        finally:
            with self._closing:
                self._open = False
                os.close(self._ears)
                os.close(self._bell)

    def _watch(self) -> None:
        with ExitStack() as stack:
            watches = [stack.enter_context(closing(watch(one))) for one in self._folders]
            while not self._ended.is_set():
                began = time.monotonic()
                self._look()
                took = time.monotonic() - began
                self._ended.wait(PAUSE_SECONDS)
                hints = min(_REST_SECONDS, *(one.recheck_seconds for one in watches))
                rest = max(hints, _REST_TIMES * took)
                heard: list[Watch | int] = [*watches, self._ears]
                ready, _, _ = select.select(heard, [], [], rest)
                if self._ears in ready:
                    os.read(self._ears, 1 << 10)
                for one in watches:
                    one.changed()


_MOST_COPIED: Final = 70_000  # characters; terminals refuse much more
_SIGNS: Final = {"slash": "/", "question_mark": "?"}
_TICK_SECONDS: Final = 1.0
_CALM_TICKS: Final = 5
_UNTRUSTED_SECONDS: Final = 10.0
_CALM_SECONDS: Final = 0.5  # a request must keep its place this long before a key answers it


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
        self.filters: dict[str, str] = {}
        self.status = ""
        self.teams: tuple[str, ...] = ()
        self._choice = choice
        self._ticks = 0
        self._untrusted: tuple[list[str], str] = [], ""
        self._untrusted_at = 0.0
        self._trouble = ""  # why the team could not be read
        self._rung = _ids(seen)
        self.paths = choice.existing()
        self._actions = TeamActions(choice)
        self._watcher = self._watch()

    @property
    def sources(self) -> list[Tab]:
        """The open live tabs; the watcher's thread reads this too."""
        sources = [face.source for face in self.faces if isinstance(face, MateScreen)]
        return [source for source in sources if source is not None and source.live]

    def get_default_screen(self) -> Screen[None]:
        return TeamScreen()

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            with suppress(ValueError, RuntimeError):  # not in the main thread
                loop.add_signal_handler(number, self.exit)
        self.set_interval(_TICK_SECONDS, self._tick)
        self._watcher.start()

    def on_unmount(self) -> None:
        self._watcher.end()

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
        """Show a text in the status line until the next one."""
        self.status = in_a_line(text)
        self.redraw()

    def do(self, action: Callable[[TeamActions], Outcome]) -> None:
        """Run an action in a thread, so that the screen stays responsive."""
        self.tell("…")
        Thread(target=self._do, args=(action, self._actions), daemon=True).start()

    def read(self, source: Tab) -> None:
        """Read a tab in a thread; the watcher reads live tabs."""
        if source.live:
            self._watcher.look_soon()
        else:
            Thread(target=self._read, args=(source,), daemon=True).start()

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
                        case (key, action, what) if what:
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

    def on_roster_updated(self, found: RosterUpdated) -> None:
        """Draw the new state; ring the bell once for each new request."""
        if found.paths != self.paths:
            return
        self.teams = found.teams
        if self.status == self._trouble:
            self.status = ""
        self._trouble = in_a_line(found.trouble)
        if found.seen is None:
            self.tell(found.trouble)
            return
        self.seen = found.seen
        asked = _ids(found.seen)
        if asked - self._rung:
            self.bell()
        self._rung |= asked
        self.redraw()

    def on_tab_loaded(self, found: TabLoaded) -> None:
        for face in self.faces:
            if isinstance(face, MateScreen):
                face.take(found.source, found.rows)

    def on_status_message(self, told: StatusMessage) -> None:
        self.tell(told.text)
        self._watcher.look_soon()

    def _act(self, screen: Screen[Any], action: str) -> None:
        self.call_later(screen.run_action, action)

    def _go(self, paths: TeamPaths) -> None:
        self._watcher.end()
        self.paths = paths
        choice = TeamOptions(team_dir=str(paths.root), config=self._choice.config)
        self._actions = TeamActions(choice)
        self._rung = set()
        self._untrusted_at = 0.0
        self._watcher = self._watch()
        self._watcher.start()

    def _watch(self) -> FolderWatcher:
        paths = self.paths
        folders = (paths.root, paths.inboxes, paths.transcripts, paths.requests, paths.tasks)
        return FolderWatcher(
            (*folders, paths.logs, paths.activities),
            partial(self._look, paths, OverviewReader(paths)),
        )

    def _look(self, paths: TeamPaths, reader: OverviewReader) -> None:
        """Read the team and the open tabs; runs in the watcher's thread."""
        seen, trouble = None, ""
        teams: tuple[str, ...] = ()
        try:
            teams = tuple(one.own_name or "" for one in all_teams(paths.home))
            seen = reader.read(self._read_untrusted(paths))
        except Exception as error:  # noqa: BLE001 -- a thread's outermost call, like those below
            trouble = explain(error)
        self._post(RosterUpdated(paths, seen, trouble, teams))
        with suppress(ScreenStackError):  # the app is ending
            for source in self.sources:
                self._read(source)

    def _read_untrusted(self, paths: TeamPaths) -> tuple[list[str], str]:
        """Return the untrusted settings; they are read rarely, since that is slow."""
        now = time.monotonic()
        if now >= self._untrusted_at:
            self._untrusted = self._choice.waiting(paths)
            self._untrusted_at = now + _UNTRUSTED_SECONDS
        return self._untrusted

    def _read(self, source: Tab) -> None:
        try:
            rows = source.read()
        except Exception as error:  # noqa: BLE001
            rows = [row_of("trouble", ((in_a_line(explain(error)), "red"),))]
        self._post(TabLoaded(source, rows))

    def _do(self, action: Callable[[TeamActions], Outcome], actions: TeamActions) -> None:
        try:
            text = action(actions).sentence()
        except Exception as error:  # noqa: BLE001
            text = actions.choice.add_team_option(explain(error))
        self._post(StatusMessage(text))

    def _post(self, message: Message) -> None:
        with suppress(RuntimeError):  # the app has ended
            self.post_message(message)


def _ids(seen: Overview) -> set[str]:
    return {one.approval.id for one in seen.waiting}
