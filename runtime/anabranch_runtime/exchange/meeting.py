"""Coordinator of tasks on several hosts: a server in the driver for all-gather rounds.

Each task of a barrier stage calls it over TCP (Arrow Flight) with its message and the number of the
round, and gets the reply when all tasks have called. Calls need the token that tasks get with their
batch. Spark's own ``allGather`` polls once a second, which is longer than most batches take.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from anabranch_runtime.errors import AnabranchRuntimeError, PipelineError
from anabranch_runtime.exchange.complaints import first_cause, own_version

#: Seconds for which a call may wait for other tasks. If a task fails, Spark ends the waiting tasks
#: long before that.
PATIENCE = 3600.0
#: Seconds between two signs of life (heartbeats) of a task.
EVERY = 1.0
#: Number of ended attempts whose late calls are recognised and rejected.
_REMEMBERED = 100
_HEADER = "authorization"
#: Milliseconds without an answer after which a peer counts as lost.
_KEEPALIVE = 20_000
_OPTIONS = [("grpc.keepalive_time_ms", _KEEPALIVE), ("grpc.keepalive_timeout_ms", _KEEPALIVE)]


@dataclass(frozen=True, slots=True)
class CoordinatorAddress:
    """Address and token of the coordinator; ``version``: version of the driver's package."""

    location: str
    token: str = field(repr=False)
    version: str = field(default_factory=own_version)


class _Gate(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Rejects calls without the token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._wanted = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: dict[str, list[Any]]) -> None:
        given = headers.get(_HEADER, [""])[0]
        given = given.encode() if isinstance(given, str) else given
        if not hmac.compare_digest(given, self._wanted):
            raise flight.FlightUnauthenticatedError("not a task of this pipeline")


def gate(token: str) -> dict[str, flight.ServerMiddlewareFactory]:
    """Return server middleware that rejects calls without ``token``."""
    return {"token": _Gate(token)}


def call_options(token: str, seconds: float) -> flight.FlightCallOptions:
    """Return the options of a call with ``token`` and a timeout in seconds."""
    return flight.FlightCallOptions(
        timeout=seconds, headers=[(_HEADER.encode(), f"Bearer {token}".encode())]
    )


_CLIENTS: dict[str, flight.FlightClient] = {}
_LOCK = threading.Lock()


def client_of(location: str) -> flight.FlightClient:
    """Return this process's connection to ``location``."""
    with _LOCK:
        found = _CLIENTS.get(location)
        if found is None:
            found = _CLIENTS[location] = flight.FlightClient(location, generic_options=_OPTIONS)
        return found


def forget_client(location: str) -> None:
    """Drop the connection to ``location``, so that the next call reconnects."""
    with _LOCK:
        _CLIENTS.pop(location, None)


def keep_clients(locations: Iterable[str]) -> None:
    """Drop the connections to all except ``locations``, as the other servers have ended."""
    wanted = set(locations)
    with _LOCK:
        for location in set(_CLIENTS) - wanted:
            del _CLIENTS[location]


@dataclass(slots=True)
class _Round:
    """One all-gather round: each task's message and group; replies once all have called."""

    messages: dict[int, str] = field(default_factory=dict)
    groups: dict[int, str] = field(default_factory=dict)
    answers: dict[str, bytes] = field(default_factory=dict)

    def answer(self, tasks: int) -> None:
        """Compute the replies after all calls, once per group as they are long for many tasks."""
        for group in set(self.groups.values()):
            told = [self.messages[t] if self.groups[t] == group else "" for t in range(tasks)]
            self.answers[group] = json.dumps(told).encode()


class Meeting(flight.FlightServerBase):  # type: ignore[misc]
    """The coordinator in the driver.

    Attributes:
        place: address and token for tasks.
    """

    def __init__(self, host: str, port: int = 0, bind: str | None = None) -> None:
        """Listen on ``port`` (0: any) of ``bind``; tasks connect to the name ``host``.

        Raises:
            PipelineError: ``no-port``.
        """
        token, own = secrets.token_urlsafe(32), bind or host
        try:
            super().__init__(f"grpc://{own}:{port}", middleware=gate(token))
        except (flight.FlightError, OSError, pa.ArrowException) as cause:
            raise PipelineError(
                "no-port",
                f"the driver can't listen on {own}:{port or '(any port)'}: {cause}",
                remedy="see that no other process has the port (--meeting-port) and that the "
                "address (spark.driver.bindAddress, else spark.driver.host) is this host's",
            ) from cause
        self.place = CoordinatorAddress(f"grpc://{host}:{self.port}", token)
        self._changed = threading.Condition()
        self._rounds: dict[str, dict[int, _Round]] = defaultdict(dict)
        #: Ids of the last ended attempts; the tasks of earlier ones have ended too.
        self._over: deque[str] = deque(maxlen=_REMEMBERED)
        self._signs: Counter[str] = Counter()
        self._complaints: dict[str, list[dict[str, Any]]] = {}

    def do_action(self, context: Any, action: flight.Action) -> Iterator[bytes]:
        """Handle a call: ``gather`` (all-gather), ``sign`` (of life) or ``fail`` (task error)."""
        call = json.loads(action.body.to_pybytes())
        attempt = call["attempt"]
        with self._changed:
            if attempt in self._over:
                raise flight.FlightCancelledError(f"the attempt {attempt} is over")
            self._signs[attempt] += 1
            if action.type == "fail":
                self._complaints.setdefault(attempt, []).append(call["complaint"])
                self._changed.notify_all()
            if action.type == "gather":
                return iter([self._gather(context, attempt, call)])
        return iter([])

    def signs(self, attempt: str) -> int:
        """Return the number of calls by tasks of an attempt."""
        return self._signs[attempt]

    def failure(self, attempt: str) -> AnabranchRuntimeError | None:
        """Return the error that caused an attempt's failure, if any."""
        with self._changed:
            return first_cause(self._complaints.get(attempt, ()))

    def over(self, attempt: str) -> None:
        """End an attempt: its waiting tasks fail."""
        with self._changed:
            self._over.append(attempt)
            self._complaints.pop(attempt, None)
            self._rounds.pop(attempt, None)
            self._signs.pop(attempt, None)
            self._changed.notify_all()

    def _gather(self, context: Any, attempt: str, call: dict[str, Any]) -> bytes:
        number, tasks = call["round"], call["tasks"]
        here = self._rounds[attempt].setdefault(number, _Round())
        here.messages[call["task"]] = call["message"]
        here.groups[call["task"]] = call["group"]
        # A call for round n implies that all tasks have had their replies of round n - 2.
        self._rounds[attempt].pop(number - 2, None)
        deadline = time.monotonic() + PATIENCE
        if len(here.messages) == tasks:
            here.answer(tasks)
            self._changed.notify_all()
        while not here.answers:
            self._changed.wait(EVERY)
            failed = attempt in self._over or attempt in self._complaints
            if failed or context.is_cancelled() or time.monotonic() > deadline:
                raise flight.FlightCancelledError(f"the attempt {attempt} is over")
        return here.answers[call["group"]]


@dataclass(slots=True)
class Delegate:
    """A task's client of the coordinator; called with a message, it returns all tasks' messages."""

    place: CoordinatorAddress
    attempt: str
    task: int
    tasks: int
    _round: int = field(init=False, default=0)
    _next: float = field(init=False, default_factory=lambda: time.monotonic() + EVERY)

    def __call__(self, message: str, group: str = "") -> list[str]:
        """Send a message, and return the messages of all tasks in task order, once all have sent
        theirs; the messages of tasks of other groups are empty.

        Raises:
            PipelineError: ``driver-unreachable``.
        """
        number, self._round = self._round, self._round + 1
        if self.tasks == 1:
            return [message]
        (answer,) = self._call(
            "gather", {"round": number, "message": message, "group": group}, PATIENCE
        )
        found: list[str] = json.loads(answer)
        return found

    def fail(self, complaint: dict[str, Any]) -> None:
        """Report a task error; tasks that wait for this task fail.

        Raises:
            PipelineError: ``driver-unreachable``.
        """
        self._call("fail", {"complaint": complaint}, 10 * EVERY)

    def sign(self) -> None:
        """Record progress of the task; sends a sign of life to the driver about once a second."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY
            self._call("sign", {}, 10 * EVERY)

    def _call(self, kind: str, content: dict[str, Any], seconds: float) -> list[bytes]:
        call = {"attempt": self.attempt, "task": self.task, "tasks": self.tasks, **content}
        action = flight.Action(kind, json.dumps(call).encode())
        options = call_options(self.place.token, seconds)
        try:
            answers = client_of(self.place.location).do_action(action, options)
            return [answer.body.to_pybytes() for answer in answers]
        except (pa.ArrowException, OSError) as cause:
            forget_client(self.place.location)
            raise PipelineError(
                "driver-unreachable",
                f"a task can't reach the driver at {self.place.location}: {cause}",
                remedy="see that the driver runs and that its host and port can be reached from "
                "the executors (spark.driver.host)",
            ) from cause
