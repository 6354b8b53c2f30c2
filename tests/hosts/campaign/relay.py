"""The connection between one host and the broker, which a test can cut, hold and half-close."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from enum import Enum, auto
from typing import Final, Self

from tests.hosts.brokers import free_port

_PART_BYTES: Final = 1 << 16
_AT_ONCE: Final = struct.pack("ii", 1, 0)  # SO_LINGER: the other end gets a reset
_LONGEST_SECONDS: Final = 5.0


class Wire(Enum):
    """How bytes are treated."""

    WHOLE = auto()
    CUT = auto()  # connections end, and new ones end at once
    HALF_OPEN = auto()  # one end stays open, and all data from it is lost
    HELD = auto()  # bytes arrive when the connection is whole again


class Relay:
    """Passes connections on to a broker, in the current state of the wire.

    Attributes:
        port: the loopback port that the host uses as the broker's.

    Args:
        broker: the broker's port.
    """

    def __init__(self, broker: int) -> None:
        self.port = free_port()
        self._broker = broker
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._changed = threading.Condition()
        self._wire = Wire.WHOLE
        self._near: set[socket.socket] = set()  # the host's ends
        self._far: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.turn(Wire.CUT)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(_LONGEST_SECONDS)

    def turn(self, wire: Wire) -> None:
        """Set the state of the wire. Half-open connections stay dead: their end must notice it."""
        with self._changed:
            self._wire = wire
            ends = {Wire.CUT: self._near | self._far, Wire.HALF_OPEN: set(self._far)}
            for end in ends.get(wire, set()):
                self._break(end)
            self._changed.notify_all()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:  # the listener is closed
                return
            with self._changed:
                self._near.add(near)
                if self._wire is Wire.CUT:
                    self._break(near)
                elif self._wire is Wire.HALF_OPEN:
                    self._begin(self._swallow, near)
                else:
                    self._join(near)

    def _join(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(("127.0.0.1", self._broker), _LONGEST_SECONDS)
        except OSError:
            self._break(near)
            return
        far.settimeout(None)
        self._far.add(far)
        self._begin(self._pass, near, far)
        self._begin(self._pass, far, near)

    def _pass(self, source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(_PART_BYTES):
                with self._changed:
                    self._changed.wait_for(lambda: self._wire is not Wire.HELD)
                to.sendall(part)
        with self._changed:
            if source in self._near or self._wire is not Wire.HALF_OPEN:
                self._break(to)
                return
        self._swallow(to)

    def _swallow(self, near: socket.socket) -> None:
        """Receive and drop all data."""
        with suppress(OSError):
            while near.recv(_PART_BYTES):
                pass

    def _break(self, end: socket.socket) -> None:
        self._near.discard(end)
        self._far.discard(end)
        with suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            end.shutdown(socket.SHUT_RDWR)
        end.close()

    def _begin(self, work: object, *ends: socket.socket) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=ends, daemon=True)
        self._threads.append(thread)
        thread.start()
