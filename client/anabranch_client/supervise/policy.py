"""Decisions of a pipeline's supervisor, as a pure function from events to actions.

A member (process) that ends is restarted: at once after its first failure, and with growing pauses
after further failures in a row. A row of failures ends when the pipeline makes progress or the
member has been up for a while. Too many failures in a row stop the whole pipeline; the cause of the
first one is reported. Permanent causes stop it at once, because a restart would fail again;
transient causes never stop it.

Service and runtime are started when Redis answers. A member that gives no sign of life for too long
is killed, and counts as ended.

A standby is a second runtime that waits for the end of the first. It takes over by itself, and then
counts as the runtime; another standby is started once the runtime works. A pipeline never ends
because of its standby.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum


class Member(StrEnum):
    """A supervised process; the runtime includes the JVM and the Python workers."""

    REDIS = "Redis"
    SERVICE = "service"
    RUNTIME = "runtime"
    STANDBY = "standby"

    def __str__(self) -> str:
        return self.value if self is Member.REDIS else f"the {self.value}"


class Phase(StrEnum):
    """Phase of a member: waiting for its start, starting, or up."""

    WAITING = "waiting"
    STARTING = "starting"
    UP = "up"


@dataclass(frozen=True, slots=True)
class Cause:
    """Reason for the end of a member."""

    code: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


#: Permanent causes: restarts fail until an operator removes the cause.
FATAL = frozenset(
    (
        *("bad-options", "foreign-state", "foreign-ruleset", "foreign-store", "unknown-version"),
        *("state-lost", "state-behind", "store-lost", "store-missing", "store-refused"),
        *("store-taken", "damaged-journal"),
        *("damaged-log", "damaged-identity", "redis-lost", "redis-refused", "not-writable"),
        *("no-cache-directory", "no-package", "other-package"),
    )
)
#: Transient causes: they pass by themselves, so failed starts are not counted.
PATIENT = frozenset(
    ("disk-full", "redis-away", "store-unreachable", "store-in-use", "no-executors")
)
#: Pauses in seconds before the first, second, ... restart in a row.
PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0, 15.0)
#: Maximum number of restarts of a member in a row without progress.
MOST = 8
#: Pause in seconds before a standby is started again that has failed too often.
RARELY = 600.0
#: Seconds of being up that end a row of failures: in general, and after a committed batch.
STABLE, SETTLED = 60.0, 3.0
#: Maximum seconds that a member may take to start. Redis and the runtime may take longer while they
#: report that they are loading (the runtime for at most ten minutes).
STARTS = dict.fromkeys(Member, 120.0)
#: Seconds without a sign of life after which a member counts as hanging. (The runtime's heartbeat
#: is valid for ten seconds more.) A pause of a few seconds on a busy machine must not cause a
#: restart.
SILENCE = {**dict.fromkeys(Member, 30.0), Member.RUNTIME: 20.0}
#: Seconds for which the runtime must have worked before a standby is started.
CALM = 3.0
#: Maximum age in seconds of a standby's last sign of life for it to take over.
ALERT = 5.0
#: Seconds between two turns of its loop above which the supervisor itself was suspended.
LAPSE = 5.0


@dataclass(frozen=True, slots=True)
class Standing:
    """State of a pipeline's member. Times are seconds of a monotonic clock.

    Attributes:
        since: when the phase began. ``due``: when a waiting member is to be started.
        heard: time of the last sign of life.
        failures: number of failures in a row so far; ``first``: cause of the first of them.
        ended: when the member last ended.
        proven: whether the member has ever been up.
    """

    phase: Phase = Phase.WAITING
    since: float = 0.0
    due: float = 0.0
    heard: float = 0.0
    failures: int = 0
    first: Cause | None = None
    ended: float = 0.0
    proven: bool = False


@dataclass(frozen=True, slots=True)
class Situation:
    """State of all members.

    Attributes:
        at: the time of the last turn. ``ready``: whether all members except the standby have been
            up at the same time.
        external: whether Redis is an external server, which others restart.
        standby: whether the runtime has a standby.
    """

    members: dict[Member, Standing] = field(
        default_factory=lambda: {member: Standing() for member in Member}
    )
    at: float | None = None
    ready: bool = False
    external: bool = False
    standby: bool = False

    def put(self, member: Member, standing: Standing) -> Situation:
        """A copy with the state of one member changed."""
        return replace(self, members={**self.members, member: standing})


@dataclass(frozen=True, slots=True)
class Turn:
    """Event: time has passed."""

    at: float


@dataclass(frozen=True, slots=True)
class Ended:
    """Event: a member's process has ended."""

    at: float
    member: Member
    cause: Cause


@dataclass(frozen=True, slots=True)
class Heard:
    """Event: a member has given a sign of life; ``up``: it works, and is not just loading."""

    at: float
    member: Member
    up: bool = True


@dataclass(frozen=True, slots=True)
class Progressed:
    """Event: a batch has been committed."""

    at: float


Event = Turn | Ended | Heard | Progressed


@dataclass(frozen=True, slots=True)
class StartProcess:
    """Action: start a member."""

    member: Member


@dataclass(frozen=True, slots=True)
class Promote:
    """Action: regard the standby as the runtime, because it takes over."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Action: kill all processes in the session of a member at once."""

    member: Member


@dataclass(frozen=True, slots=True)
class Say:
    """Action: write a line to the log, and, if ``aloud``, to the console."""

    text: str
    aloud: bool = True


@dataclass(frozen=True, slots=True)
class AllReady:
    """Action: report that all processes but the standby are up, for the first time."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Action: stop the whole pipeline because of ``cause``, which needs an operator."""

    member: Member
    cause: Cause


Action = StartProcess | Promote | Kill | Say | AllReady | GiveUp


def handle(now: Situation, event: Event) -> tuple[Situation, list[Action]]:
    """The situation after ``event``, and the supervisor's actions."""
    match event:
        case Turn(at):
            return _turn(now, at)
        case Ended(at, member, cause):
            return _ended(now, at, member, cause)
        case Heard(at, member, up):
            return _heard(now, at, member, up)
        case Progressed(at):
            return _progressed(now, at), []


def _progressed(now: Situation, at: float) -> Situation:
    """Reset the failure counts of the runtime, which made progress, and of members long up."""
    for member, standing in now.members.items():
        settled = standing.phase is Phase.UP and at - standing.since >= SETTLED
        if standing.failures and (settled or member is Member.RUNTIME):
            now = now.put(member, replace(standing, failures=0, first=None))
    return now


def _turn(now: Situation, at: float) -> tuple[Situation, list[Action]]:
    lapse = now.at is not None and at - now.at > LAPSE
    now = replace(now, at=at)
    redis = now.members[Member.REDIS]
    reachable = redis.phase is Phase.UP and at - redis.heard < LAPSE
    actions: list[Action] = []
    for member, standing in now.members.items():
        if lapse or (member in (Member.RUNTIME, Member.STANDBY) and not reachable):
            # A paused supervisor could not receive signs of life, so their absence proves nothing.
            starting = standing.phase is Phase.STARTING
            standing = replace(standing, heard=at, since=at if starting else standing.since)
            now = now.put(member, standing)
        if standing.phase is Phase.WAITING:
            if at >= standing.due and _may_start(now, member, at, reachable=reachable):
                actions.append(StartProcess(member))
                now = now.put(member, replace(standing, phase=Phase.STARTING, since=at, heard=at))
            continue
        hung = _hung(member, standing, at)
        if hung is not None and now.external and member is Member.REDIS:
            hung = Cause("redis-away", "it does not answer")
        if hung is not None:
            now, more = _ended(now, at, member, hung)
            actions += more
        elif standing.failures and standing.phase is Phase.UP and at - standing.since > STABLE:
            now = now.put(member, replace(standing, failures=0, first=None))
    return now, actions


def _may_start(now: Situation, member: Member, at: float, *, reachable: bool) -> bool:
    if member is Member.STANDBY:
        runtime = now.members[Member.RUNTIME]
        calm = runtime.phase is Phase.UP and at - runtime.since >= CALM
        return now.standby and reachable and calm
    return member is Member.REDIS or reachable


def _hung(member: Member, standing: Standing, at: float) -> Cause | None:
    if standing.phase is Phase.UP and at - standing.heard > SILENCE[member]:
        seconds = at - standing.heard
        return Cause("no-answer", f"it has given no sign of life for {seconds:.0f} s")
    began = standing.since if member is Member.SERVICE else standing.heard
    if standing.phase is Phase.STARTING and at - began > STARTS[member]:
        return Cause("no-start", f"it has not started within {STARTS[member]:.0f} s")
    return None


def _ended(
    now: Situation, at: float, member: Member, cause: Cause
) -> tuple[Situation, list[Action]]:
    before = now.members[member]
    failures, first = before.failures + 1, before.first or cause
    if member is not Member.STANDBY:
        if cause.code in FATAL or (cause.code == "ended" and not before.proven):
            return now, [Kill(member), GiveUp(member, cause)]
        if failures > MOST and cause.code not in PATIENT:
            return now, [Kill(member), GiveUp(member, _row(failures, first))]
    rarely = failures > MOST and member is Member.STANDBY
    pause = RARELY if rarely else PAUSES[min(failures, len(PAUSES)) - 1]
    standing = replace(
        before,
        phase=Phase.WAITING,
        since=at,
        due=at + pause,
        failures=failures,
        first=first,
        ended=at if before.failures == 0 else before.ended,
    )
    successor = now.members[Member.STANDBY]
    if (
        member is Member.RUNTIME
        and successor.phase is not Phase.WAITING
        and at - successor.heard < ALERT
    ):
        # Its next sign of life is due soon, because it has already started.
        standing = replace(standing, phase=Phase.UP, heard=at, proven=True)
        now = now.put(Member.STANDBY, replace(successor, phase=Phase.WAITING, since=at))
        text = f"{member} ended: {cause}; the standby takes over"
        return now.put(member, standing), [Kill(member), Promote(), Say(text)]
    return now.put(member, standing), [Kill(member), _announcement(member, cause, before, pause)]


def _announcement(member: Member, cause: Cause, before: Standing, pause: float) -> Say:
    when = "at once" if pause == 0 else f"in {pause:.0f} s"
    text = f"{member} ended: {cause}; it is started again {when}"
    if cause.code not in PATIENT:
        return Say(text)
    known = before.first is not None and before.first.code == cause.code
    waiting = f"{member} ended: {cause}; it is restarted until the cause is gone"
    return Say(text if known else waiting, aloud=not known)


def _row(failures: int, first: Cause) -> Cause:
    return Cause(
        first.code,
        f"it has ended {failures} times in a row without progress, the first time because: "
        f"{first.message}",
        first.remedy,
    )


def _heard(now: Situation, at: float, member: Member, up: bool) -> tuple[Situation, list[Action]]:
    before = now.members[member]
    if before.phase is Phase.WAITING:
        return now, []
    if before.phase is Phase.UP or not up:
        return now.put(member, replace(before, heard=at)), []
    standing = replace(before, phase=Phase.UP, since=at, heard=at, proven=True)
    now = now.put(member, standing)
    actions: list[Action] = []
    if before.failures:
        actions.append(Say(f"{member} works again after {at - before.ended:.1f} s"))
    needed = (s for m, s in now.members.items() if m is not Member.STANDBY)
    if not now.ready and all(s.phase is Phase.UP for s in needed):
        now = replace(now, ready=True)
        actions.append(AllReady())
    return now, actions
