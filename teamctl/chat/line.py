"""The line that a person types: completed, suggested, and of more than one line where wanted."""

from __future__ import annotations

from collections.abc import Iterator

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggest, Suggestion
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.shortcuts import CompleteStyle

from teamctl.chat import slash
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths

_CONTINUED = "  "


def make_session(paths: TeamPaths) -> PromptSession[str]:
    """Return what reads lines: Enter ends one, Alt-Enter begins another one within it."""
    return PromptSession(
        history=FileHistory(str(paths.chat_history)),
        completer=_SlashCompleter(paths),
        complete_style=CompleteStyle.READLINE_LIKE,  # as in a shell, and without empty lines
        complete_while_typing=False,
        auto_suggest=_SlashSuggestion(paths),
        multiline=True,
        prompt_continuation=_CONTINUED,
        key_bindings=_keys(),
    )


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _found(paths: TeamPaths, typed: str) -> list[str]:
    try:
        return slash.complete(paths, typed)
    except TeamError:  # whoever types wants no error
        return []


class _SlashCompleter(Completer):
    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002 -- prompt_toolkit's
    ) -> Iterator[Completion]:
        typed = document.text_before_cursor
        for word in _found(self._paths, typed):
            yield Completion(word, start_position=-len(typed.rpartition(" ")[2]))


class _SlashSuggestion(AutoSuggest):
    """Shows the rest of the first command that a line may become; the right arrow takes it."""

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths

    def get_suggestion(
        self,
        buffer: Buffer,  # noqa: ARG002 -- prompt_toolkit's
        document: Document,
    ) -> Suggestion | None:
        if len(document.text) < len("/t"):
            return None
        last = document.text.rpartition(" ")[2]
        found = _found(self._paths, document.text)
        return Suggestion(found[0][len(last) :]) if found else None
