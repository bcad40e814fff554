"""Lines: TCP connections between the driver and the tasks of a Spark stage, kept for many batches.

A task connects to the driver's listener. Before either decodes a message of the other, both prove
that they know the pipeline's token. Then the driver sends orders (a batch each), and the task sends
messages about its order: its part of an all-gather round, a sign of life, an error, a report. All
messages have the number of the order, so repeated orders and late messages have no effect.

A lost line is never replaced; its loss ends the stage, and another stage retries the batch.
"""

from __future__ import annotations

import hmac
import pickle
import queue
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from anabranch_runtime.errors import PipelineError
from anabranch_runtime.exchange.complaints import own_version

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds between two signs of life that a task sends.
EVERY = 1.0
#: Seconds for connecting, and for each message of the handshake.
PATIENCE = 30.0
#: Maximum bytes of a handshake message, and of any other message of a line.
_SHORT, LARGEST = 64, 1 << 30
#: Seconds until the first TCP keep-alive probe of a silent connection, seconds between probes,
#: their number, and milliseconds until unacknowledged bytes end the connection.
_TCP_OPTIONS = (
    (socket.TCP_NODELAY, 1),
    (socket.TCP_KEEPIDLE, 20),
    (socket.TCP_KEEPINTVL, 5),
    (socket.TCP_KEEPCNT, 4),
    (socket.TCP_USER_TIMEOUT, 40_000),
)


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """Address of the driver's listener, as tasks reach it, and the pipeline's token."""

    host: str
    port: int
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of a task: its stage and number, its host, the version of its package."""

    stage: str
    task: int
    host: str
    version: str = field(default_factory=own_version)


class MessageKind(Enum):
    """Kinds of messages from tasks: part of an all-gather, sign of life, error, report."""

    GATHER = auto()
    SIGN = auto()
    COMPLAINT = auto()
    REPORT = auto()


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """A task's message about the order (batch) with number ``order``.

    Attributes:
        content: the task's text in an all-gather, an encoded error (``complaints``), or a report.
        round, group: number of the all-gather round, and the task's group in it.
    """

    order: int
    kind: MessageKind
    content: Any = None
    round: int = 0
    group: str = ""


@dataclass(frozen=True, slots=True)
class DriverMessage:
    """The driver's message to a task: an order, or the reply to its all-gather round ``round``.

    Attributes:
        order: number of the order. ``round``: number of the all-gather round; None for an order.
        content: of an order, the batch (None: the task shall end); of a reply, all tasks' messages.
    """

    order: int
    content: Any
    round: int | None = None


@dataclass(slots=True)
class TaskListener:
    """The driver's listener: accepts the connections of tasks in threads of its own.

    Args:
        host: the name by which tasks reach the driver. ``port``: 0: any free port.
        bind: the address to listen on; None: ``host``.

    Attributes:
        address: address and token for tasks.

    Raises:
        PipelineError: ``no-port``: the driver can't listen there.
    """

    host: str
    port: int = 0
    bind: str | None = None
    address: DriverAddress = field(init=False)
    _server: socket.socket = field(init=False)
    _calls: queue.SimpleQueue[tuple[Hello, Connection]] = field(
        init=False, default_factory=queue.SimpleQueue
    )
    _is_closed: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        own = self.bind or self.host
        try:
            family, _, _, _, place = socket.getaddrinfo(own, self.port, type=socket.SOCK_STREAM)[0]
            self._server = socket.create_server(place[:2], family=family)
        except OSError as cause:
            raise PipelineError(
                "no-port",
                f"the driver can't listen on {own}:{self.port or '(any port)'}: {cause}",
                remedy="see that no other process has the port (--meeting-port) and that the "
                "address (spark.driver.bindAddress, else spark.driver.host) is this host's",
            ) from cause
        port = self._server.getsockname()[1]
        self.address = DriverAddress(self.host, port, secrets.token_urlsafe(32))
        threading.Thread(target=self._accept, name="lines", daemon=True).start()

    def take(self, seconds: float) -> tuple[Hello, Connection] | None:
        """Return the next task that has connected; None if none connects within ``seconds``."""
        with suppress(queue.Empty):
            return self._calls.get(timeout=seconds)
        return None

    def close(self) -> None:
        """Accept no further connections, and close connections not returned by :meth:`take`."""
        self._is_closed = True
        with suppress(OSError):
            # Wake the accepting thread, so that it ends.
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._end_untaken()

    def _end_untaken(self) -> None:
        while (called := self.take(0.0)) is not None:
            called[1].close()

    def _accept(self) -> None:
        while True:
            try:
                client = self._server.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._admit, args=(client,), daemon=True).start()

    def _admit(self, client: socket.socket) -> None:
        # An error ends only this connection, whose peer may be unauthenticated.
        with suppress(OSError, EOFError):
            line = _line(client)
            try:
                with _timed(line):
                    _shake_hands(line, self.address.token, b"driver", b"task")
                    hello = pickle.loads(line.recv_bytes(LARGEST))
                self._calls.put((hello, line))
                if self._is_closed:
                    self._end_untaken()
            except BaseException:
                line.close()
                raise


@dataclass(slots=True, eq=False)
class TaskLine:
    """A task's end of its line. Calling it performs an all-gather of the tasks' messages.

    Attributes:
        task: number of this task among ``tasks``.
    """

    address: DriverAddress
    line: Connection
    task: int
    tasks: int
    _order: int = 0
    _round: int = 0
    _next: float = 0.0
    _kept: list[str] | None = None

    def next_order(self) -> Any:
        """Wait for the driver's next order; return its content, or None if the task shall end."""
        while True:
            try:
                found = self._receive()
            except (EOFError, OSError):
                # The connection to the driver is lost, so the driver has ended.
                return None
            if found.round is None and found.order > self._order:
                self._order, self._round = found.order, 0
                self._next = time.monotonic() + EVERY
                return found.content

    def __call__(self, message: str, group: str = "") -> list[str]:
        """Send a message to the driver; once all tasks have sent one, return all messages in task
        order, empty for tasks of other groups.

        Raises:
            PipelineError: ``driver-unreachable``.
        """
        if self.tasks == 1:
            return [message]
        self._send(MessageKind.GATHER, message, group)
        wanted, self._round = (self._order, self._round), self._round + 1
        while True:
            found: DriverMessage = self._guarded(self._receive)
            if (found.order, found.round) == wanted:
                messages: list[str] = found.content
                return messages

    def once(self, message: Callable[[], str]) -> list[str]:
        """Gather messages that stay the same for the stage; only the first call exchanges them.

        Raises:
            PipelineError: ``driver-unreachable``.
        """
        if self._kept is None:
            self._kept = self(message())
        return self._kept

    def sign(self) -> None:
        """Note progress of the task; send the driver a sign of life at most once a second."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY
            self._send(MessageKind.SIGN)

    def complain(self, complaint: dict[str, Any]) -> None:
        """Send the task's error to the driver.

        Raises:
            PipelineError: ``driver-unreachable``.
        """
        self._send(MessageKind.COMPLAINT, complaint)

    def report(self, report: object) -> None:
        """Send the driver the task's report, which ends its order.

        Raises:
            PipelineError: ``driver-unreachable``.
        """
        self._send(MessageKind.REPORT, report)

    def close(self) -> None:
        """Close this task's connection to the driver."""
        self.line.close()

    def _receive(self) -> DriverMessage:
        found: DriverMessage = pickle.loads(self.line.recv_bytes(LARGEST))
        return found

    def _send(self, kind: MessageKind, content: Any = None, group: str = "") -> None:
        text = pickle.dumps(TaskMessage(self._order, kind, content, self._round, group))
        self._guarded(lambda: self.line.send_bytes(text))

    def _guarded(self, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except (EOFError, OSError) as cause:
            raise _unreachable(self.address, cause) from cause


def call_driver(address: DriverAddress, stage: str, task: int, hosts: list[str]) -> TaskLine:
    """Connect a task to the driver; ``hosts``: address of each task's host.

    Raises:
        PipelineError: ``driver-unreachable``: also if either side does not know the token.
    """
    try:
        line = _line(socket.create_connection((address.host, address.port), timeout=PATIENCE))
        with _timed(line):
            _shake_hands(line, address.token, b"task", b"driver")
            line.send_bytes(pickle.dumps(Hello(stage, task, hosts[task])))
    except (EOFError, OSError) as cause:
        raise _unreachable(address, cause) from cause
    return TaskLine(address, line, task, len(hosts))


def _unreachable(address: DriverAddress, cause: Exception) -> PipelineError:
    return PipelineError(
        "driver-unreachable",
        f"a task can't reach the driver at {address.host}:{address.port}: "
        f"{str(cause) or 'the line has ended'}",
        remedy="see that the driver runs and that its host and port can be reached from "
        "the executors (spark.driver.host)",
    )


def _line(client: socket.socket) -> Connection:
    """Return a connection over ``client`` that fails if the peer is silent for long."""
    with client:
        client.settimeout(None)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _TCP_OPTIONS:
            client.setsockopt(socket.IPPROTO_TCP, option, value)
        return Connection(client.detach())


@contextmanager
def _timed(line: Connection) -> Iterator[None]:
    """Limit reads and writes of the line in the ``with`` block to :data:`PATIENCE` seconds each."""

    def limit(seconds: float) -> None:
        with socket.fromfd(line.fileno(), socket.AF_INET, socket.SOCK_STREAM) as same:
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                same.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(seconds), 0))

    limit(PATIENCE)
    yield
    limit(0)


def _shake_hands(line: Connection, token: str, own: bytes, other: bytes) -> None:
    """Prove that this side knows ``token`` and check that the other side does, without sending it.

    Args:
        own, other: roles of both sides, so that a proof can't be sent back to its sender.

    Raises:
        ConnectionRefusedError: the other side does not know the token.
    """
    mine = secrets.token_bytes(32)
    line.send_bytes(mine)
    theirs = line.recv_bytes(_SHORT)
    line.send_bytes(hmac.digest(token.encode(), own + mine + theirs, "sha256"))
    expected = hmac.digest(token.encode(), other + theirs + mine, "sha256")
    if not hmac.compare_digest(line.recv_bytes(_SHORT), expected):
        raise ConnectionRefusedError("not a task of this pipeline, or not its driver")
