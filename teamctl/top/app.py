"""The program behind `teamctl top`: one watcher reads the files, the screens draw what it found."""

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

PAUSE_SECONDS: Final = 0.25  # between two looks: at most four a second
_REST_SECONDS: Final = 2.0  # what no file tells, such as CPU and memory, is looked at so often
_REST_TIMES: Final = 200  # and costs at most this part of a core


class FolderWatcher(Thread):
    """Calls `look` when files of some folders have changed, and now and then.

    Args:
        folders: what is watched.
        look: called in this thread, at most four times a second.
    """

    def __init__(self, folders: Iterable[Path], look: Callable[[], None]) -> None:
        super().__init__(name="watcher", daemon=True)  # a slow disk does not keep anybody here
        self._folders = tuple(folders)
        self._look = look
        self._ended = Event()
        self._ears, self._bell = os.pipe()
        os.set_blocking(self._bell, False)
        self._closing = Lock()  # nobody writes to a descriptor that may be another's by now
        self._open = True

    def look_soon(self) -> None:
        """Have it look though nothing has changed."""
        with self._closing, suppress(BlockingIOError):
            if self._open:
                os.write(self._bell, b"!")

    def end(self) -> None:
        """Have it end; does not wait."""
        self._ended.set()
        self.look_soon()

    def run(self) -> None:
        """Look until told to end."""
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
_CALM_SECONDS: Final = 0.5  # a request has to stand in its place so long before a key answers it


class Top(App[None]):
    """The program.

    Args:
        choice: the team that is meant.
        seen: the team, so that there is something to show at once.
        readonly: whether nothing may be changed.
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
        """The tabs that are open and live; also asked by the watcher's thread."""
        sources = [face.source for face in self.faces if isinstance(face, MateScreen)]
        return [source for source in sources if source is not None and source.live]

    def get_default_screen(self) -> Screen[None]:
        """Return the screen of the team."""
        return TeamScreen()

    def on_mount(self) -> None:
        """Begin to watch, and to count the seconds."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            with suppress(ValueError, RuntimeError):  # not in a main thread
                loop.add_signal_handler(number, self.exit)
        self.set_interval(_TICK_SECONDS, self._tick)
        self._watcher.start()

    def on_unmount(self) -> None:
        """Watch no more."""
        self._watcher.end()

    @property
    def faces(self) -> list[Face]:
        """The screens that show the team, also those behind a dialog."""
        return [screen for screen in self.screen_stack if isinstance(screen, Face)]

    def find(self, name: str | None) -> MemberView | None:
        """Return a member of the team, if it is one."""
        return self.seen.find(name or "")

    def redraw(self) -> None:
        """Draw what has changed since."""
        for face in self.faces[-1:]:
            face.draw()

    def _tick(self) -> None:
        """Count on; where all rest, seconds do not matter, and the machine rests as well."""
        self._ticks += 1
        busy = self.seen.waiting or any(view.doing for view in self.seen.members)
        if busy or self._ticks % _CALM_TICKS == 0:
            self.redraw()

    def tell(self, text: str) -> None:
        """Tell the person something, until something else is told."""
        self.status = in_a_line(text)
        self.redraw()

    def do(self, action: Callable[[TeamActions], Outcome]) -> None:
        """Do something to the team, in a thread: the screen goes on, and can be left."""
        self.tell("…")
        Thread(target=self._do, args=(action, self._actions), daemon=True).start()

    def read(self, source: Tab) -> None:
        """Read a tab now, in a thread; the watcher goes on with one that is live."""
        if source.live:
            self._watcher.look_soon()
        else:
            Thread(target=self._read, args=(source,), daemon=True).start()

    def copy(self, text: str) -> None:
        """Copy a text by the terminal (OSC 52)."""
        self.copy_to_clipboard(text[:_MOST_COPIED])
        lines = len(text.splitlines())
        self.tell(f"copied {lines} line{'' if lines == 1 else 's'}")

    def keys_of(self, face: Face) -> Iterator[tuple[str, str, str]]:
        """Yield the keys of a screen, the actions behind them, and what they do."""
        for kind in type(face).__mro__:
            if issubclass(kind, Face):
                for binding in kind.BINDINGS:
                    match binding:
                        case (key, action, what) if what:
                            yield _SIGNS.get(key, key), action, what
        yield ":", "app.command_palette", "all of this by name"

    def action_team(self, number: int) -> None:
        """Go to another team of this project."""
        there = all_teams(self.paths.home)
        if not 0 < number <= len(there):
            self.tell(f"there is no team {number}; there are {len(there)}")
        elif there[number - 1].root != self.paths.root:
            self._go(finish(there[number - 1]))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Yield what the palette offers: the keys of the screen by what they do."""
        if isinstance(screen, Face):
            for key, action, what in self.keys_of(screen):
                if action != "app.command_palette":
                    yield SystemCommand(what, f"key {key}", partial(self._act, screen, action))

    def on_roster_updated(self, found: RosterUpdated) -> None:
        """Draw what the watcher has found; ring once for each new request."""
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
        """Give what was read to the screen that asked for it."""
        for face in self.faces:
            if isinstance(face, MateScreen):
                face.take(found.source, found.rows)

    def on_status_message(self, told: StatusMessage) -> None:
        """Tell it."""
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
        """Look at the team and at the tab that is open; runs in the watcher's thread."""
        seen, trouble = None, ""
        teams: tuple[str, ...] = ()
        try:
            teams = tuple(one.own_name or "" for one in all_teams(paths.home))
            seen = reader.read(self._read_untrusted(paths))
        except Exception as error:  # noqa: BLE001 -- the edge of a thread, as are those below
            trouble = explain(error)
        self._post(RosterUpdated(paths, seen, trouble, teams))
        with suppress(ScreenStackError):  # the program ends
            for source in self.sources:
                self._read(source)

    def _read_untrusted(self, paths: TeamPaths) -> tuple[list[str], str]:
        """Return what waits for trust; to read all settings takes longer than all other looks."""
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
        with suppress(RuntimeError):  # the program has ended meanwhile
            self.post_message(message)


def _ids(seen: Overview) -> set[str]:
    return {one.approval.id for one in seen.waiting}
