"""Supervision of a pipeline's processes: executes the actions that :mod:`.policy` decides on.

One thread starts and ends all processes, since the kernel ties a child's life to the thread that
started it. Other threads wait for answers of Redis and the service (:mod:`.signs`).
"""

from __future__ import annotations

import shutil
import textwrap
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from anabranch_client.errors import ClientError, ProcessError
from anabranch_client.processes.channel import Channel
from anabranch_client.processes.children import Child, ending, last_line
from anabranch_client.processes.pipeline import (
    PipelineSpec,
    service_url,
    spawn_runtime,
    spawn_service,
)
from anabranch_client.processes.redis_server import RedisServer, prepare
from anabranch_client.supervise.home import TOKEN_VARIABLE, Home
from anabranch_client.supervise.policy import (
    Action,
    AllReady,
    Cause,
    Ended,
    Event,
    GiveUp,
    Heard,
    Kill,
    Member,
    Progressed,
    Promote,
    Say,
    Situation,
    StartProcess,
    Turn,
    handle,
)
from anabranch_client.supervise.signs import Signs

#: Seconds between two turns of the loop.
_TURN = 0.05
#: Maximum seconds that the runtime may take to finish its batch and exit.
_LEAVE_SECONDS = 60.0
#: Maximum characters of a message on the console; logs have the whole message.
_SHORT = 400
#: Free bytes below which a disk counts as full.
_FULL = 1 << 16


@dataclass(slots=True)
class Supervisor:
    """Supervisor of a pipeline: its start parameters, and the state of its members.

    Attributes:
        spec: start parameters of the pipeline.
        home: the held folder of the pipeline.
        say: function that writes a line to the console.
        ready: function that is called once all members are up.
        stop: event that ends the supervisor when set.
        url: URL of the service; empty before the service listens.
    """

    spec: PipelineSpec
    home: Home
    say: Callable[[str], None]
    ready: Callable[[], None]
    stop: threading.Event
    url: str = ""
    redis_url: str = ""
    _server: RedisServer | None = None
    _children: dict[Member, Child] = field(default_factory=dict)
    _signs: Signs = field(default_factory=Signs)
    _seen: dict[Member, float] = field(default_factory=dict)
    _committed: tuple[str, int] = ("", 0)
    _run: str = ""
    _next_run: str = ""
    _situation: Situation = field(default_factory=Situation)
    _failure: ProcessError | None = None

    def run(self) -> None:
        """Keep the pipeline running until ``stop`` is set; then stop its members in order.

        Raises:
            ProcessError: a failure that restarts can't repair, or did not repair.
        """
        spec = self.spec
        if spec.redis_url is None:
            log = spec.logs / "redis.log"
            self._server = prepare(spec.home / "redis", log, durable=spec.durable)
        self.redis_url = spec.redis_url or ("" if self._server is None else self._server.url)
        self._situation = Situation(external=self._server is None, standby=spec.standby)
        self._signs.listen(self.redis_url, spec.namespace, self._listening)
        try:
            while not self.stop.wait(_TURN) and self._failure is None:
                for event in self._look():
                    self._situation, actions = handle(self._situation, event)
                    for action in actions:
                        self._perform(action)
            if self._failure is None:
                self._leave()
        finally:
            self._signs.close()
            for member in reversed(Member):
                child = self._children.pop(member, None)
                if child is not None:
                    child.stop()
        if self._failure is not None:
            raise self._failure

    # --- observing -----------------------------------------------------------------------------

    def _look(self) -> list[Event]:
        """The events of the pipeline's members since the last turn."""
        now = time.monotonic()
        events: list[Event] = [
            Ended(now, member, self._cause(member, child, code))
            for member in reversed(Member)  # The standby first: a dead one takes over nothing.
            if (child := self._children.get(member)) is not None
            if (code := child.process.poll()) is not None
        ]
        signs, news = self._signs, events.append
        if self._new(Member.REDIS, signs.redis_at):
            news(Heard(now, Member.REDIS))
        elif now - signs.loading_at < 1.0:
            news(Heard(now, Member.REDIS, up=False))
        if self._new(Member.SERVICE, signs.service_at):
            news(Heard(now, Member.SERVICE))
        # The standby may have taken over, or this runtime may be waiting for one elsewhere.
        for beat, waits in ((signs.beat, False), (signs.standby, True)):
            if beat is None:
                continue
            works = beat[1].state != "starting"
            if beat[1].run == self._run and self._new(Member.RUNTIME, beat[0]):
                news(Heard(now, Member.RUNTIME, up=works and not waits))
            elif beat[1].run == self._next_run and self._new(Member.STANDBY, beat[0]):
                news(Heard(beat[0], Member.STANDBY, up=works))
        committed = signs.committed
        if committed[0] == self._run and committed != self._committed:
            if self._committed[0] == self._run and committed[1] > self._committed[1]:
                news(Progressed(now))
            self._committed = committed
        news(Turn(now))
        return events

    def _new(self, member: Member, at: float) -> bool:
        """Whether a sign of life is new, and comes from the member's current process."""
        if at <= self._seen.get(member, 0.0):
            return False
        self._seen[member] = at
        return True

    def _listening(self) -> str:
        """The service's URL, as soon as it listens; it stays the same after restarts."""
        if not self.url and self.spec.port_file.is_file():
            text = self.spec.port_file.read_text().strip()
            if text:
                self.url = service_url(self.spec)
                self.home.listens(self.url)
        return self.url

    def _cause(self, member: Member, child: Child, code: int) -> Cause:
        """Cause of a process's end, from its error report, the signal, or its log's last line."""
        error = child.error()
        if error.get("code"):
            message = textwrap.shorten(error.get("message", ""), _SHORT, placeholder=" ...")
            return Cause(error["code"], message, error.get("remedy", ""))
        if code < 0:
            return Cause("killed", f"it was killed ({ending(code)})", f"its log is {child.log}")
        free = shutil.disk_usage(self.spec.home).free
        if free < _FULL:
            message = f"there is no space left for {self.spec.home} ({free:,} bytes are free)"
            return Cause("disk-full", message, "make room")
        said = f"{ending(code)}: {last_line(child.log)}"
        kind = "bad-options" if code == 2 and member is not Member.REDIS else "ended"
        return Cause(kind, said, f"its log is {child.log}")

    # --- acting --------------------------------------------------------------------------------

    def _perform(self, action: Action) -> None:
        match action:
            case Say(text, aloud):
                self._log(text, aloud=aloud)
            case Kill(member):
                child = self._children.pop(member, None)
                if child is not None:
                    child.kill()
            case StartProcess(member):
                self._start(member)
            case Promote():
                self._children[Member.RUNTIME] = self._children.pop(Member.STANDBY)
                self._run, self._next_run = self._next_run, ""
            case AllReady():
                self.ready()
            case GiveUp(member, cause):
                self._log(f"{member} ended: {cause}; everything is stopped")
                remedy = cause.remedy or f"see the logs in {self.spec.logs}"
                self._failure = ProcessError(f"{member} ended: {cause}", remedy=remedy)

    def _start(self, member: Member) -> None:
        try:
            child = self._spawn(member)
        except (ClientError, OSError) as error:
            # The disk is full, or Redis has just ended.
            event = Ended(time.monotonic(), member, self._refusal(error))
            self._situation, actions = handle(self._situation, event)
            for action in actions:
                self._perform(action)
        else:
            if child is not None:
                self._children[member] = child
            # Earlier signs of life came from another process.
            self._seen[member] = time.monotonic()

    def _refusal(self, error: Exception) -> Cause:
        if shutil.disk_usage(self.spec.home).free < _FULL:
            return Cause("disk-full", f"there is no space left for {self.spec.home}", "make room")
        return Cause("no-start", str(error))

    def _spawn(self, member: Member) -> Child | None:
        extra = {TOKEN_VARIABLE: self.home.holder.token}
        if member is Member.REDIS:
            return None if self._server is None else self._server.start(extra)
        if member is Member.SERVICE:
            port = int(self.url.rpartition(":")[2]) if self.url else self.spec.port
            return spawn_service(self.spec, self.redis_url, port, extra)
        run, options = uuid.uuid4().hex, ("--standby",) if self.spec.standby else ()
        if member is Member.STANDBY:
            self._next_run = run
            return spawn_runtime(self.spec, self.redis_url, run, *options, extra=extra)
        channel = Channel(self.redis_url, self.spec.namespace)
        try:
            channel.clear_stop()
        finally:
            channel.close()
        self._run = run
        return spawn_runtime(self.spec, self.redis_url, run, *options, extra=extra)

    def _leave(self) -> None:
        """Let the runtime finish its batch and exit. Other members may be killed at any time.

        Raises:
            ProcessError: the runtime exited with an error, or did not exit.
        """
        standby = self._children.pop(Member.STANDBY, None)
        if standby is not None:
            standby.kill()
        child = self._children.get(Member.RUNTIME)
        if child is None:
            return
        channel = Channel(self.redis_url, self.spec.namespace)
        try:
            channel.stop()
            code = child.wait(_LEAVE_SECONDS)
        except ClientError:
            return
        finally:
            channel.close()
        if code is None:
            raise ProcessError(
                f"the runtime did not leave within {_LEAVE_SECONDS:.0f} s",
                remedy=f"its log is {child.log}; nothing is lost",
            )
        if code:
            cause = self._cause(Member.RUNTIME, child, code)
            raise ProcessError(f"the runtime ended: {cause}", remedy=cause.remedy)

    def _log(self, text: str, *, aloud: bool = True) -> None:
        """Write a line to the log and the console; failures of either are ignored."""
        moment = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        try:
            with (self.spec.logs / "up.log").open("a") as log:
                log.write(f"{moment} {text}\n")
        except OSError:
            # The disk is full; the console still gets the line.
            pass
        if aloud:
            self.say(f"{moment[11:19]} {text}")
