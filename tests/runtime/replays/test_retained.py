"""Tests of retained streams: which earlier rows a query registered late sees.

``python -m tests.support.scenarios.run --engine local --retained`` runs as many scenarios as one
likes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch_contract.errors import StreamError
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.epochs.ownership import without
from anabranch_runtime.epochs.retention import drop_unused, needed_from
from anabranch_runtime.state.manifest import State
from tests.support.cases.states import MINUTE, RS, R, S, T, rules, stream
from tests.support.scenarios.retained import generate_retained
from tests.support.scenarios.run import assert_exact
from tests.support.scenarios.seeds import RETAINED_FEW, RETAINED_MANY, parts

#: Features that the scenarios must cover.
WANTED = {
    "sees all of the past",
    "sees what has not expired",
    "keeps the latest",
    "restart",
    "MIR",
}


def test_queries_that_come_later_are_exact(redis: str, tmp_path: Path) -> None:
    assert_exact(RETAINED_FEW, tmp_path, redis, generate_retained, WANTED)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(RETAINED_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_queries_that_come_later_are_exact(
    seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    assert_exact(seeds, tmp_path, redis, generate_retained, WANTED)


# --- by hand -----------------------------------------------------------------------------------

ALL = replace(S, retain=None)
FILTERED = "SELECT R.a, S.b FROM R JOIN S ON R.a = S.a WHERE S.b > 3"


def planned(queries: Mapping[str, str], s: object = ALL, window: int | None = None) -> Ruleset:
    """Return a ruleset under which S is retained."""
    return rules(0, queries, streams=(R, s, T), window=window)  # type: ignore[arg-type]


def test_a_stream_is_stored_without_queries() -> None:
    known = planned({})
    assert [s.id for s in known.stores] == ["S/1"]
    assert [(r.edge, r.store) for r in known.store_rules] == [("in:S", "S/1")]
    assert [r.id for r in known.relations] == ["S"]
    assert planned({}, S).stores == ()


def test_a_store_of_a_query_is_enough_if_it_has_all() -> None:
    assert [s.id for s in planned({"q": RS}).stores] == ["R/1", "S/1"]
    found = planned({"q": FILTERED})
    assert {str(s.mir).partition("[")[0] for s in found.stores} == {"R", "S"}
    assert len(found.stores) == 3


@pytest.mark.parametrize("sql", [RS, FILTERED])
def test_a_query_that_fails_takes_nothing_along(sql: str) -> None:
    left = without(planned({"q": sql}), frozenset(["q"]))
    assert [s.id for s in left.stores] == ["S/1"]
    assert [(r.edge, r.store) for r in left.store_rules] == [("in:S", "S/1")]
    assert without(planned({"q": sql}, S), frozenset(["q"])).stores == ()


@pytest.mark.parametrize(
    ("retain", "limit"),
    [(None, None), (0, 90 * MINUTE), (5 * MINUTE, 90 * MINUTE), (40 * MINUTE, 60 * MINUTE)],
)
def test_what_is_retained_is_needed_in_all_stores_of_the_stream(
    retain: int | None, limit: int | None
) -> None:
    """If not retained, rows are needed for ten minutes, by the watermark of the other stream."""
    known = planned({"q": FILTERED}, replace(S, retain=retain), window=10 * MINUTE)
    state = enter_epoch(State(), known, 0)
    marks = {n: replace(s, max_tau=100 * MINUTE) for n, s in state.streams.items()}
    needed = needed_from(replace(state, streams=marks), known)
    assert needed is not None
    filtered = next(s for s in state.stores.values() if s.filter)
    assert needed(filtered) == (limit,)
    assert retain == 0 or needed(state.stores["S/1"]) == (limit,), "the query may read it as well"


def test_a_query_that_comes_later_sees_all() -> None:
    state = enter_epoch(State(), planned({}), 0)
    streams = {n: replace(s, input=9, began=0, max_tau=1) for n, s in state.streams.items()}
    state = replace(state, streams=streams, next_batch=4)
    later = replace(planned({"q": FILTERED}), epoch=1)
    state = drop_unused(enter_epoch(state, later, 1), later, {})
    found = state.queries["q"]
    assert found.visible_from["S"].batch == 0
    assert found.visible_from["R"].batch == 4
    assert found.complete == "never", "R was not retained"
    assert "S/1" in state.stores


def test_a_duration_needs_an_event_time() -> None:
    with pytest.raises(StreamError) as caught:
        replace(stream("P", "a", timed=False), retain=MINUTE)
    assert (caught.value.code, caught.value.field) == ("retain-without-event-time", "retain")
    assert replace(stream("P", "a", timed=False), retain=None).is_retained
