"""The supervisor's inbox: requests, each answered once, and what teammates say of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from teamd import control
from teamd.clocks import Deadline
from teamd.control import ControlReply, ControlRequest
from teamd.errors import ExitCode, NotAMessage, StoreError, TeamError
from teamd.protocol import REQUEST_TYPE, SHUTDOWN_ANSWER_TYPE, STATE_TYPE
from teamd.states import Status

if TYPE_CHECKING:
    from teamd.journal import Journal
    from teamd.protocol import Message
    from teamd.store.mailbox import Mailbox
    from teamd.store.paths import TeamPaths
    from teamd.supervisor.chores import Chores
    from teamd.supervisor.commands import Commands
    from teamd.supervisor.handshakes import Handshakes
    from teamd.supervisor.register import Register
    from teamd.supervisor.teammates import Teammates

_RETRY_SECONDS: Final = 1.0
_REMEMBERED: Final = 1000  # answers, for whoever asks again under the same id
_USUAL_COUNTS: Final = ("turns", "input_tokens", "output_tokens")


class Control:
    """Reads the inbox and does what it says.

    Attributes:
        closing: requests are refused from now on.
    """

    def __init__(
        self,
        *,
        paths: TeamPaths,
        mailbox: Mailbox,
        register: Register,
        teammates: Teammates,
        commands: Commands,
        handshakes: Handshakes,
        chores: Chores,
        journal: Journal,
    ) -> None:
        self.closing = False
        self._paths = paths
        self._mailbox = mailbox
        self._register = register
        self._teammates = teammates
        self._commands = commands
        self._handshakes = handshakes
        self._chores = chores
        self._journal = journal
        self._blocked = Deadline.after(0.0)
        self._given: dict[str, ControlReply] = {}
        self._owed: dict[str, ControlReply] = {}
        self._behind = False

    @property
    def retry_seconds(self) -> float | None:
        """How long until what failed is to be tried again; `None` where nothing has."""
        left = self._blocked.left
        if self._behind:
            return min(left, _RETRY_SECONDS) if left > 0 else _RETRY_SECONDS
        return left if left > 0 else None

    def refuse_leftovers(self) -> None:
        """What a dead supervisor had taken may have been done: say so, and do not do it again."""
        control.sweep(self._paths)
        text = "teamd was restarted meanwhile; `teamctl team` shows whether it was done"
        for message in self._mailbox.leftover():
            if message.type == REQUEST_TYPE and (request := self._read(message)) is not None:
                self._journal.warn(
                    "request of a dead teamd", id=request.id, command=request.command
                )
                given = self._owed[request.id] = ControlReply.of_error(TeamError(text))
                self._mail(request, given)

    def obey(self) -> None:
        """Read what has come."""
        if self._blocked.left > 0:
            return
        try:
            if not self._mailbox.waiting():
                return
            batch = self._mailbox.take()
            self._mailbox.done(batch)  # first, so that no request runs twice, whatever comes
        except StoreError as error:  # a full disk, say: all stays where it is until there is space
            self._journal.error("control inbox not read", error)
            self._blocked = Deadline.after(_RETRY_SECONDS)  # the try itself is a hint: no spin
            return
        for message in batch.messages:
            if message.type == STATE_TYPE:
                self._note_state(message)
            elif message.type == REQUEST_TYPE:
                self._serve(message)
            elif message.type == SHUTDOWN_ANSWER_TYPE:
                self._handshakes.hear(message.sender)
            else:
                self._journal.warn("no request", type=message.type, sender=message.sender)

    def carry_out(self, request: ControlRequest) -> None:
        """Do what is asked and answer it."""
        try:
            self._commands.carry_out(request, lambda given: self._reply(request, given))
        except TeamError as error:
            self._reply(request, ControlReply.of_error(error))
        except OSError as error:  # no descriptors left, say: the machine's trouble, and it passes
            self._journal.error("not done", error, id=request.id)
            text = f"teamd could not do it now: {error.strerror or error}; try again"
            self._reply(request, ControlReply.of_error(TeamError(text)))
        except Exception as error:  # noqa: BLE001 -- one request that nobody foresaw ends no team
            self._journal.error("not done", error, id=request.id)
            text = (
                f"internal error ({type(error).__name__}); `teamctl logs teamd` has it, report it"
            )
            self._reply(request, ControlReply.of_error(TeamError(text)))

    def publish(self) -> None:
        """Write down in the roster what has changed, answer, and see to tasks of who has gone.

        What cannot be written is tried again. The roster comes first: whoever reads an answer
        finds it as the answer says.
        """
        self._behind = False
        try:
            self._register.publish()
        except StoreError as error:
            self._behind = True
            self._journal.error("roster not written", error)
        for request_id, given in list(self._owed.items()):
            try:
                control.reply(self._paths, request_id, given)
            except StoreError as error:
                self._behind = True
                self._journal.error("answer not written", error, id=request_id)
            else:
                del self._owed[request_id]
        self._chores.look(self._register.team)

    def _read(self, message: Message) -> ControlRequest | None:
        try:
            return ControlRequest.decode(message)
        except NotAMessage as error:
            self._journal.warn("no request", sender=message.sender, reason=str(error))
            return None

    def _serve(self, message: Message) -> None:
        request = self._read(message)
        if request is None:
            return
        if request.late and request.id not in self._given:
            self._journal.warn("request came too late", command=request.command, id=request.id)
            self._mail(
                request, ControlReply(text="teamd saw it too late", exit_code=ExitCode.DEADLINE)
            )
            return
        self._journal.note("request", command=request.command, id=request.id, sender=request.sender)
        if (given := self._given.get(request.id)) is not None:
            self._reply(request, given)  # asked again, by one that was killed before it could read
            return
        if self.closing:
            self._reply(
                request, ControlReply.of_error(TeamError("teamd is stopping; start it again"))
            )
            return
        self.carry_out(request)

    def _reply(self, request: ControlRequest, given: ControlReply) -> None:
        self._journal.note("answered", id=request.id, text=given.text, exit_code=given.exit_code)
        self._mail(request, given)
        self._given[request.id] = given
        while len(self._given) > _REMEMBERED:
            del self._given[next(iter(self._given))]
        self._owed[request.id] = given
        self.publish()

    def _mail(self, request: ControlRequest, given: ControlReply) -> None:
        """Tell an agent that collects no answer that nothing of what it asked for was begun."""
        if request.by_mail and given.exit_code is not ExitCode.DONE and not given.data:
            text = f"your request {request.command!r} was not carried out: {given.text}; ask again"
            self._register.tell_lead(text, to=request.sender, key=request.id)

    def _note_state(self, message: Message) -> None:
        """Believe a report if it comes from the process that the teammate has now."""
        said = message.extra
        process = self._teammates.process(message.sender)
        if process is None or (process.pid, process.started) != (
            said.get("pid"),
            said.get("started"),
        ):
            self._journal.note("report of an earlier process", name=message.sender)
            return
        try:
            values: dict[str, Any] = {key: int(said[key]) for key in _USUAL_COUNTS}
            values["status"] = Status(str(said["status"]))
        except (KeyError, ValueError, TypeError):
            self._journal.warn("unreadable report", name=message.sender)
            return
        self._register.change(message.sender, **values, reason=said.get("reason"))
