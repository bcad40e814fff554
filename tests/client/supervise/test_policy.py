"""Tests of the supervisor's policy: events in, actions out, without processes and clock."""

from __future__ import annotations

import pytest

from anabranch_client.supervise.policy import (
    ALERT,
    CALM,
    FATAL,
    MOST,
    PATIENT,
    PAUSES,
    RARELY,
    SETTLED,
    SILENCE,
    STABLE,
    STARTS,
    Action,
    AllReady,
    Cause,
    Ended,
    Event,
    GiveUp,
    Heard,
    Kill,
    Member,
    Phase,
    Progressed,
    Promote,
    Say,
    Situation,
    StartProcess,
    Turn,
    handle,
)

#: All members of a pipeline without a standby.
MEMBERS = [member for member in Member if member is not Member.STANDBY]
KILLED = Cause("killed", "it was killed (signal 9)")


class World:
    """A supervised pipeline with a manual clock and chosen signs of life."""

    def __init__(self, *, external: bool = False) -> None:
        self.now = Situation(external=external)
        self.at = 100.0
        self.done: list[Action] = []

    def send(self, event: Event) -> list[Action]:
        """Handle ``event`` and return the actions."""
        self.now, actions = handle(self.now, event)
        self.done += actions
        return actions

    def turns(self, seconds: float, *well: Member) -> list[Action]:
        """Let time pass while the members ``well`` give signs of life."""
        actions: list[Action] = []
        for _ in range(round(seconds)):
            self.at += 1.0
            for member in well:
                actions += self.send(Heard(self.at, member))
            actions += self.send(Turn(self.at))
        return actions

    def end(self, member: Member, cause: Cause = KILLED) -> list[Action]:
        """End the process of a member."""
        return self.send(Ended(self.at, member, cause))

    def phase(self, member: Member) -> Phase:
        """Return the phase of a member."""
        return self.now.members[member].phase


@pytest.fixture
def world() -> World:
    """A pipeline whose members are all up."""
    world = World()
    world.turns(4, *MEMBERS)
    assert all(world.phase(member) is Phase.UP for member in MEMBERS)
    return world


def kinds(actions: list[Action]) -> list[str]:
    return [type(action).__name__ for action in actions]


def test_redis_comes_first_and_ready_is_said_once() -> None:
    world = World()
    assert world.turns(1) == [StartProcess(Member.REDIS)]
    assert world.turns(3) == []
    assert world.turns(1, Member.REDIS) == [
        StartProcess(Member.SERVICE),
        StartProcess(Member.RUNTIME),
    ]
    assert world.turns(2, Member.REDIS, Member.SERVICE) == []
    assert world.turns(1, *MEMBERS) == [AllReady()]
    assert world.turns(5, *MEMBERS) == []


@pytest.mark.parametrize("member", MEMBERS)
def test_one_that_dies_is_started_again_at_once(world: World, member: Member) -> None:
    kill, say = world.end(member)
    assert kill == Kill(member)
    assert isinstance(say, Say)
    assert "it was killed (signal 9) [killed]; it is started again at once" in say.text
    assert StartProcess(member) in world.turns(1, *(m for m in MEMBERS if m is not member))
    (again,) = world.turns(1, *MEMBERS)
    assert isinstance(again, Say)
    assert again.text == f"{member} works again after 2.0 s"


def test_pauses_grow_and_a_row_ends_with_what_began_it(world: World) -> None:
    first = Cause("query-failed", "the Spark query has ended: no such column", "correct it")
    waited = []
    for turn in range(MOST):
        actions = world.end(Member.RUNTIME, first if turn == 0 else KILLED)
        assert kinds(actions) == ["Kill", "Say"]
        began = world.at
        while StartProcess(Member.RUNTIME) not in world.turns(1, Member.REDIS, Member.SERVICE):
            assert world.at < began + 60
        waited.append(world.at - began)
    expected = [max(p, 1.0) for p in PAUSES]
    assert waited == expected + [PAUSES[-1]] * (MOST - len(PAUSES))
    kill, give_up = world.end(Member.RUNTIME)
    assert kill == Kill(Member.RUNTIME)
    assert isinstance(give_up, GiveUp)
    assert (give_up.cause.code, give_up.cause.remedy) == ("query-failed", "correct it")
    assert f"{MOST + 1} times in a row" in give_up.cause.message
    assert "no such column" in give_up.cause.message


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("way", ["progress", "health"])
def test_a_row_is_over_with_progress_or_health(world: World, member: Member, way: str) -> None:
    for _ in range(3 * MOST):
        assert "GiveUp" not in kinds(world.end(member))
        world.turns(3, *set(MEMBERS) - {member})
        if way == "progress":
            world.turns(SETTLED + 1, *MEMBERS)
            world.send(Progressed(world.at))
        else:
            world.turns(STABLE + 2, *MEMBERS)
        assert world.now.members[member].failures == 0


@pytest.mark.parametrize("member", [Member.REDIS, Member.SERVICE])
def test_the_runtimes_progress_says_nothing_about_one_that_dies_as_soon_as_it_is_up(
    world: World, member: Member
) -> None:
    for failures in range(1, 4):
        world.end(member)
        world.turns(PAUSES[failures] + 1, *set(MEMBERS) - {member})
        world.turns(1, *MEMBERS)
        world.send(Progressed(world.at))
        assert world.now.members[member].failures == failures


@pytest.mark.parametrize("code", sorted(FATAL))
def test_what_a_restart_does_not_mend_ends_all_at_once(world: World, code: str) -> None:
    cause = Cause(code, "no", "restore it")
    assert world.end(Member.RUNTIME, cause) == [
        Kill(Member.RUNTIME),
        GiveUp(Member.RUNTIME, cause),
    ]


@pytest.mark.parametrize("code", sorted(PATIENT))
def test_what_passes_is_waited_for_and_said_once(world: World, code: str) -> None:
    cause = Cause(code, "there is no space left", "make room")
    said = []
    for _ in range(5 * MOST):
        actions = world.end(Member.RUNTIME, cause)
        assert "GiveUp" not in kinds(actions)
        said += [a for a in actions if isinstance(a, Say) and a.aloud]
        actions = world.turns(PAUSES[-1] + 1, Member.REDIS, Member.SERVICE)
        assert StartProcess(Member.RUNTIME) in actions
    assert len(said) == 1
    assert "it is restarted until the cause is gone" in said[0].text
    (over,) = world.turns(1, *MEMBERS)
    assert isinstance(over, Say)
    assert "works again after" in over.text


def test_a_service_that_never_came_up_is_not_tried_for_ever() -> None:
    world = World()
    world.turns(2, Member.REDIS)
    cause = Cause("ended", "exit code 1: address already in use")
    assert world.end(Member.SERVICE, cause) == [
        Kill(Member.SERVICE),
        GiveUp(Member.SERVICE, cause),
    ]


def test_one_that_is_killed_while_it_starts_is_started_again() -> None:
    world = World()
    world.turns(2, Member.REDIS)
    assert kinds(world.end(Member.SERVICE)) == ["Kill", "Say"]


@pytest.mark.parametrize("member", MEMBERS)
def test_a_pause_is_forgiven_and_a_hang_is_not(world: World, member: Member) -> None:
    others = [m for m in MEMBERS if m is not member]
    assert world.turns(SILENCE[member] - 1, *others) == []
    assert world.turns(1, *MEMBERS) == []
    actions = world.turns(SILENCE[member] + 2, *others)
    assert Kill(member) in actions
    (say,) = [a for a in actions if isinstance(a, Say)]
    assert "no sign of life" in say.text
    assert StartProcess(member) in actions


def test_nobody_is_blamed_for_what_could_not_be_heard(world: World) -> None:
    # The supervisor itself was suspended, and all members with it.
    world.at += 3600
    assert world.send(Turn(world.at)) == []
    # The runtime's heartbeat goes through Redis, so Redis is suspected first.
    actions = world.turns(SILENCE[Member.REDIS] - 1, Member.SERVICE)
    assert actions == []
    assert world.turns(3, Member.REDIS, Member.SERVICE) == []


def test_service_and_runtime_wait_for_redis(world: World) -> None:
    for member in MEMBERS:
        world.end(member)
    assert world.turns(2) == [StartProcess(Member.REDIS)]
    (say, *starts) = world.turns(1, Member.REDIS)
    assert isinstance(say, Say)
    assert starts == [StartProcess(Member.SERVICE), StartProcess(Member.RUNTIME)]


def test_a_start_takes_as_long_as_it_takes_but_not_for_ever(world: World) -> None:
    world.end(Member.RUNTIME)
    well = (Member.REDIS, Member.SERVICE)
    assert world.turns(STARTS[Member.RUNTIME], *well) == [StartProcess(Member.RUNTIME)]
    actions = world.turns(2, *well)
    assert Kill(Member.RUNTIME) in actions


@pytest.mark.parametrize("member", [Member.REDIS, Member.RUNTIME])
def test_one_that_says_that_it_reads_is_starting(world: World, member: Member) -> None:
    """Redis reads its file, the runtime its state."""
    others = tuple(m for m in MEMBERS if m is not member)
    world.end(member)
    world.turns(1, *others)
    for _ in range(int(3 * STARTS[member])):
        world.at += 1
        assert world.send(Heard(world.at, member, up=False)) == []
        for other in others:
            world.send(Heard(world.at, other))
        assert Kill(member) not in world.send(Turn(world.at))
    actions = world.turns(STARTS[member] + 2, *others)
    assert Kill(member) in actions


def test_somebody_elses_redis_is_waited_for() -> None:
    world = World(external=True)
    world.turns(4, *MEMBERS)
    actions: list[Action] = []
    for _ in range(50):
        actions += world.turns(SILENCE[Member.REDIS], Member.SERVICE)
    assert "GiveUp" not in kinds(actions)
    said = [a.text for a in actions if isinstance(a, Say) and a.aloud]
    assert len(said) == 1
    assert "[redis-away]" in said[0]


def with_standby() -> World:
    """Return a pipeline whose standby is up, too."""
    world = World()
    world.now = Situation(standby=True)
    assert StartProcess(Member.STANDBY) not in world.turns(3, Member.REDIS, Member.SERVICE)
    assert AllReady() in world.turns(1, *MEMBERS)
    assert world.turns(CALM, *MEMBERS) == [StartProcess(Member.STANDBY)]
    world.turns(2, *Member)
    return world


def test_a_standby_takes_over_without_a_start() -> None:
    world = with_standby()
    kill, promote, say = world.end(Member.RUNTIME)
    assert (kill, promote) == (Kill(Member.RUNTIME), Promote())
    assert isinstance(say, Say)
    assert say.text.endswith("[killed]; the standby takes over")
    # Another standby is started after a while.
    assert world.turns(CALM - 1, *MEMBERS) == []
    assert world.turns(1, *MEMBERS) == [StartProcess(Member.STANDBY)]


def test_a_standby_that_takes_over_and_hangs_is_killed() -> None:
    world = with_standby()
    world.end(Member.RUNTIME)
    others = (Member.REDIS, Member.SERVICE)
    actions = world.turns(SILENCE[Member.RUNTIME] + 1, *others)
    assert Kill(Member.RUNTIME) in actions
    assert "GiveUp" not in kinds(actions)


def test_a_standby_without_a_sign_of_life_does_not_take_over() -> None:
    world = with_standby()
    world.turns(ALERT + 1, *MEMBERS)
    assert Promote() not in world.end(Member.RUNTIME)
    assert StartProcess(Member.RUNTIME) in world.turns(1, Member.REDIS, Member.SERVICE)


def test_a_dead_standby_does_not_take_over() -> None:
    world = with_standby()
    world.end(Member.STANDBY)
    assert Promote() not in world.end(Member.RUNTIME)
    assert StartProcess(Member.RUNTIME) in world.turns(1, Member.REDIS, Member.SERVICE)


@pytest.mark.parametrize("code", ["ended", *sorted(FATAL)])
def test_a_standby_never_ends_the_pipeline(code: str) -> None:
    world = with_standby()
    for _ in range(2 * MOST):
        actions = world.end(Member.STANDBY, Cause(code, "no"))
        assert "GiveUp" not in kinds(actions)
        world.turns(PAUSES[-1] + 1, *MEMBERS)
    assert world.phase(Member.STANDBY) is Phase.WAITING
    assert StartProcess(Member.STANDBY) in world.turns(RARELY, *MEMBERS)


def test_a_failure_for_good_ends_the_pipeline_despite_a_standby() -> None:
    world = with_standby()
    cause = Cause("redis-lost", "no", "restore it")
    assert world.end(Member.RUNTIME, cause) == [
        Kill(Member.RUNTIME),
        GiveUp(Member.RUNTIME, cause),
    ]


def test_standbys_that_fail_one_after_the_other_are_counted() -> None:
    """Each standby takes over, and ends before its first commit."""
    world = with_standby()
    for _ in range(MOST):
        assert "GiveUp" not in kinds(world.end(Member.RUNTIME))
        world.turns(PAUSES[-1] + 1, Member.REDIS, Member.SERVICE)
    assert "GiveUp" in kinds(world.end(Member.RUNTIME))
