"""Tests of catch-up: batches with rations incur debt, which later batches pay, or which is
forgiven.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis as redis_client

from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.rations import Ranking, Ration, RationSchedule
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import Label, QueryId
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.epochs.retention import clocks, expire
from anabranch_runtime.rations import catch_up
from anabranch_runtime.state.coverage import Access, Tile
from anabranch_runtime.state.debt import CatchUpStarts, Debt, OwedBatches, OwedGoal, cut_starts
from anabranch_runtime.state.manifest import State, StreamState
from anabranch_runtime.state.slices import SegmentRows, Throttle
from anabranch_runtime.storage.segment import Segment
from tests.support.cases.states import MINUTE, RS, R, S, base_store, rules, segment
from tests.support.oracles.ledger import read_paid, read_rations
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.driven import KEYS, Killed, die, driver, job, publish, results

BY_TIME = Ranking((("ts", "timestamp"),), by_batch=True)
#: Rations of 0: no arriving tuple probes.
NOTHING = tuple(Ration(QueryId("q"), Label(a), 0.0, BY_TIME) for a in ("R", "S"))


@pytest.fixture
def url() -> Iterator[str]:
    fetch_ruleset.cache_clear()
    with redis_url() as server:
        yield server


def _rationed(one: Driver, batches: dict[int, tuple[Ration, ...]]) -> Driver:
    """Set the rations of ``batches``, under a policy with catch-up."""
    one.rationer.schedule = RationSchedule(0, 0, (), (), catch_up=True)

    def rations(ruleset: Ruleset, never: object = ()) -> tuple[Ration, ...]:
        return batches.get(one.state.next_batch, ())

    one.rationer.rations = rations  # type: ignore[method-assign]
    return one


def test_what_is_withheld_is_made_good_by_the_next_batch(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = _rationed(driver(url, tmp_path, Mode.LIVE, every=99), {1: NOTHING, 2: NOTHING})
    found = []
    for batch in range(5):
        one.run(job(batch))
        found.append(len(results(tmp_path)))

    # After batch b, R and S have b + 1 rows each, and every pair is a result.
    assert found == [1, 1, 1, 16, 25]
    query = one.state.queries["q"]
    assert (query.results, query.caught_up, query.owed, query.withheld) == (25, 8, 0.0, 0.0)
    assert query.blind == 0
    assert [(r.first, r.last) for r in read_rations(tmp_path / "results")] == [(1, 1), (2, 2)]
    paid = read_paid(tmp_path / "results")
    assert [(p.first, p.last, p.goals) for p in paid] == [(1, 2, (("q", "R"), ("q", "S")))]
    assert one.state.debt.batches == ()


def _run_slowly(
    url: str, tmp_path: Path, batch: int, batches: dict[int, tuple[Ration, ...]]
) -> Driver:
    """Run a batch with a new driver that probes with one owed row; every other driver is killed
    first.
    """

    def begun() -> Driver:
        slow = Throttle(first=1, least=1, most=1)
        return _rationed(driver(url, tmp_path, Mode.LIVE, every=99, throttle=slow), batches)

    if batch % 2:
        with pytest.raises(Killed):
            begun().run(die())
    one = begun()
    one.run(job(batch))
    return one


def test_a_debt_is_paid_in_parts_and_survives_restarts(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    batches = {1: NOTHING, 2: NOTHING}
    found = []
    for batch in range(8):
        one = _run_slowly(url, tmp_path, batch, batches)
        found.append(one.state.queries["q"].caught_up)

    # Four rows are owed, two of R and two of S, and each batch probes with one of them. S's tuple
    # counts as the later one: R's rows join earlier batches only, S's rows their own batch too.
    assert found == [0, 0, 0, 1, 3, 5, 8, 8]
    assert len(results(tmp_path)) == 64


def test_a_debt_is_forgiven_with_its_query(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = _rationed(driver(url, tmp_path, Mode.LIVE, every=2), {1: NOTHING})
    for batch in range(2):
        one.run(job(batch))
    assert one.state.debt.queries == {"q"}
    publish(url, 1, {"other": RS})
    one.tick()
    one.run(job(2))

    assert one.state.debt == Debt()
    ended = one.state.queries["q"]
    # For a goal with ration 0 there is no estimate.
    assert (ended.owed, ended.blind, ended.caught_up) == (0.0, 2, 0)
    assert read_paid(tmp_path / "results") == ()


def test_what_is_estimated_moves_from_owed_to_withheld_when_it_is_forgiven() -> None:
    ruleset = rules(0, {"q": RS}, window=MINUTE)
    state = _owing(ruleset, share=0.5)
    known = state.queries["q"]
    state = replace(state, queries={"q": replace(known, owed=7.0)})
    gone = replace(ruleset, queries=())
    after = catch_up.forgive(state, gone)
    assert after.debt.batches == ()
    assert (after.queries["q"].owed, after.queries["q"].withheld) == (0.0, 7.0)
    assert catch_up.forgive(state, ruleset) is state


def test_the_oldest_is_forgiven_where_too_much_is_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "MOST", 3)
    ruleset = rules(0, {"q": RS})
    state = _owing(ruleset, first=2)
    more = replace(state.debt.batches[0], first=5, last=6)
    begun = replace(state.debt.batches[0], starts=())
    state = replace(state, debt=Debt((begun, more)))
    after = catch_up.forgive(state, ruleset)
    assert after.debt.batches == (more,)
    assert after.queries["q"].blind == 2


def test_rows_stay_that_an_owed_batch_needs() -> None:
    ruleset = rules(0, {"q": RS}, window=MINUTE)
    state = _owing(ruleset, first=3)
    late = replace(S, lateness=0)
    state = replace(
        state,
        next_batch=5,
        streams={"R": StreamState(R, 9 * MINUTE), "S": StreamState(late, 9 * MINUTE)},
        stores={
            name: base_store(name, [(0, 4)], segments=[_segment(name, 1, 1), _segment(name, 3, 1)])
            for name in ("R", "S")
        },
    )
    owed = replace(state.debt.batches[0], watermarks={"R": 2 * MINUTE, "S": 3 * MINUTE})
    state = replace(state, debt=Debt((owed,)))
    assert clocks(state) == {"R": 2 * MINUTE, "S": 3 * MINUTE}
    # Rows of the owed batch are kept, though no later row needs them.
    kept = [s.first_batch for s in expire(state, ruleset).stores["R"].segments]
    assert kept == [3]
    paid = replace(state, debt=Debt())
    assert expire(paid, ruleset).stores["R"].segments == ()


def test_equal_rations_are_owed_together() -> None:
    ruleset = rules(0, {"q": RS})
    before = replace(_owing(ruleset, first=4), epoch_starts=((0, 0),), next_batch=5)
    owed = before.debt.batches[0]
    goals = tuple(Ration(QueryId("q"), Label(a), 0.0, BY_TIME) for a in ("R", "S"))
    after = catch_up.incur(before, before, ruleset, goals, {})
    assert after.debt.batches == (replace(owed, last=5),)
    other = (Ration(QueryId("q"), Label("R"), 0.5, BY_TIME), goals[1])
    assert len(catch_up.incur(before, before, ruleset, other, {}).debt.batches) == 2
    # Not across an epoch's beginning: the query may have been activated again.
    fresh = replace(before, epoch_starts=((1, 5),))
    assert len(catch_up.incur(fresh, fresh, ruleset, goals, {}).debt.batches) == 2
    # Nor if its payment has begun.
    begun = replace(before, debt=Debt((replace(owed, starts=()),)))
    assert len(catch_up.incur(begun, begun, ruleset, goals, {}).debt.batches) == 2


def test_queries_over_the_latest_of_a_key_are_not_owed_anything() -> None:
    latest = replace(S, latest=("a",))
    assert catch_up.owing(rules(0, {"q": RS}, streams=(R, latest))) == frozenset()
    assert catch_up.owing(rules(0, {"q": RS, "one": "SELECT R.a FROM R"})) == {"q"}


def test_answers_end_with_the_owed_batch() -> None:
    tiles = (Tile("new", (4, 9)), Tile("old", (0, 3)))
    access = Access(tiles, ((2, 3), (6, 7)), ((Tile("b", (0, 7)),),))
    third = Access((Tile("old", (0, 3)),), ((2, 3),), ((Tile("b", (0, 3)),),))
    assert catch_up.until(access, 3) == third
    assert catch_up.until(access, 1) == Access((Tile("old", (0, 1)),))


def test_starts_are_cut_by_rows() -> None:
    one = CatchUpStarts(
        ((QueryId("q"), "R"),), (SegmentRows("R", _segment("R", 0, 10), (0, 0), 0, 10),)
    )
    other = replace(one, goals=((QueryId("q"), "S"),))
    taken, left = cut_starts((one, other), 15)
    assert [(s.goals, s.rows) for s in taken] == [(one.goals, 10), (other.goals, 5)]
    assert [(s.goals, s.rows) for s in left] == [(other.goals, 5)]
    assert cut_starts((one, other), 20) == ((one, other), ())


def _segment(store: str, batch: int, minutes: int) -> Segment:
    return segment(store, (batch, batch), tau=[(0, minutes * MINUTE)])


def _owing(ruleset: Ruleset, first: int = 1, share: float = 0.0) -> State:
    """Return a state in which one batch is owed to both goals of ``q``."""
    goals = tuple(OwedGoal(QueryId("q"), a, share, BY_TIME) for a in ("R", "S"))
    owed = OwedBatches(first, first, goals, {})
    return State(next_batch=first + 1, queries={"q": Activation(0, {})}, debt=Debt((owed,)))


def _publish(url: str, limits: dict[str, int]) -> None:
    """Publish queries over R and S for all epochs: name -> maximum age of a row of R (0: any)."""
    found = rules(0, dict.fromkeys(limits, RS), streams=(R, S))
    label = {alias: label for alias, label, _ in found.queries[0].members}["R"]
    queries = tuple(
        replace(q, freshness=((label, limits[q.id]),) if limits[q.id] else ())
        for q in found.queries
    )
    connection = redis_client.Redis.from_url(url)
    connection.set(KEYS.ruleset(0), rulesets.dumps(replace(found, queries=queries)))
    connection.zadd(KEYS.published, {"0": 0})


def _nothing(*queries: str) -> tuple[Ration, ...]:
    return tuple(Ration(QueryId(q), Label(a), 0.0, BY_TIME) for q in queries for a in ("R", "S"))


def test_what_goes_stale_first_is_paid_first(url: str, tmp_path: Path) -> None:
    _publish(url, {"any": 0, "late": 200, "soon": 100})
    everybody = _nothing("any", "late", "soon")
    batches = {1: everybody, 5: everybody}
    found = []
    for batch in range(11):
        one = _run_slowly(url, tmp_path, batch, batches)
        found.append(tuple(one.state.queries[q].caught_up for q in ("soon", "late", "any")))
        if batch == 6:
            # The payment of batch 1 to `any` has begun, and waits.
            begun = [(b.first, b.starts is not None) for b in one.state.debt.batches]
            assert begun == [(5, True), (1, True), (5, False)]

    # R and S have one row per batch: the rows of batch 1 have 1 and 2 results, the rows of batch 5
    # have 5 and 6. `any` is paid when no debt is left that may become too old, in order.
    assert found[2:6] == [(1, 1, 0), (3, 3, 0), (3, 3, 1), (3, 3, 1)]
    assert found[6:] == [(8, 8, 1), (14, 14, 1), (14, 14, 3), (14, 14, 8), (14, 14, 14)]
    assert {q.results for q in one.state.queries.values()} == {121}
    assert one.state.debt.batches == ()
    paid = [(p.first, p.goals[0][0]) for p in read_paid(tmp_path / "results")]
    assert sorted(paid) == [(1, "any"), (1, "late"), (5, "any"), (5, "late")]


def test_what_is_stale_is_forgiven_at_once(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catch_up, "LONGEST", 1)
    _publish(url, {"soon": 2})
    one = _rationed(
        driver(url, tmp_path, Mode.LIVE, every=99), dict.fromkeys(range(1, 7), _nothing("soon"))
    )
    owed, marks = list[list[int]](), list[int]()
    for batch in range(10):
        one.run(job(batch))
        owed.append([b.first for b in one.state.debt.batches])
        marks.append(clocks(one.state)["R"])

    # Event times are the numbers of batches, and the present is that of the batch before. So rows
    # of batch b are too old from batch b + 4 on. Batch 7 pays rows of batch 4 in time.
    assert owed[:5] == [[], [1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]
    assert owed[5:] == [[2, 3, 4, 5], [3, 4, 5, 6], [5, 6], [6], []]
    # Watermarks do not wait for forgiven or paid batches.
    assert marks[1:9] == [firsts[0] - 1 for firsts in owed[1:9]]
    query = one.state.queries["soon"]
    # Two goals of each of the batches 1 to 3 had ration 0.
    assert (query.blind, query.owed) == (6, 0.0)
    assert query.caught_up > 0


def test_the_estimate_of_what_is_forgiven_is_its_part_of_what_is_owed() -> None:
    ruleset = rules(0, {"q": RS})
    query = ruleset.queries[0]
    limit = (next(label for alias, label, _ in query.members if alias == "R"), 5)
    ruleset = replace(ruleset, queries=(replace(query, freshness=(limit,)),))
    state = _owing(ruleset, share=0.5)
    old = replace(state.debt.batches[0], reached={"R": 10, "S": 99})
    new = replace(old, first=2, last=4, reached={"R": 20, "S": 99})
    queries = {"q": replace(state.queries["q"], owed=8.0)}
    state = replace(state, debt=Debt((old, new)), queries=queries)

    assert catch_up.forgive(state, ruleset, 15) is state
    after = catch_up.forgive(state, ruleset, 16)
    assert after.debt.batches == (new,)
    assert (after.queries["q"].owed, after.queries["q"].withheld) == (6.0, 2.0)
    last = catch_up.forgive(after, ruleset, 26)
    assert (last.queries["q"].owed, last.queries["q"].withheld) == (0.0, 8.0)
    # Nothing is known about a time that is not recorded.
    unknown = replace(state, debt=Debt((replace(old, reached={}),)))
    assert catch_up.forgive(unknown, ruleset, 10**9) is unknown
