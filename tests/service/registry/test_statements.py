"""Tests that a statement is parsed once; its normal form is cached as long as it is valid, within a
limit.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import pytest

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.syntax import parse_statement
from anabranch_service.registry.describe import describe
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.statements import NormalForms, read_statement, usable_streams
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import CHAIN, PAIR, STREAMS
from tests.service.planning.test_epoch import RECORDS
from tests.support.worlds.service import serving

LINES = "SELECT o.total, i.part FROM orders o JOIN items i ON o.order_id = i.order_id"
#: Number of registered queries; every other one implies the filter of the one before.
COUNT = 6
USABLE = usable_streams(RECORDS.values())


@contextmanager
def parses() -> Iterator[Counter[str]]:
    """Count the statements parsed by threads started within the context, with the interpreter's
    hook.
    """
    counted: Counter[str] = Counter()

    def called(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is parse_statement.__code__:
            counted["statements"] += 1

    threading.setprofile(called)
    try:
        yield counted
    finally:
        threading.setprofile(None)


def taken(counted: Counter[str]) -> int:
    """Return the number of statements parsed since the last call."""
    return counted.pop("statements", 0)


def record(name: str, sql: str, **changes: Any) -> QueryRecord:
    return QueryRecord(
        id=name,
        sequence=1,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        sql=sql,
        normalised=describe(read_statement(sql).normalise(name, USABLE), USABLE),
        **changes,
    )


def test_a_statement_is_parsed_once(settings: ServiceSettings) -> None:
    with parses() as counted:
        with serving(settings) as service:
            for stream in STREAMS:
                service.post("/v1/streams", stream)
            for number in range(COUNT):
                sql = f"{LINES} WHERE o.total > {number}"
                service.post("/v1/queries", {"id": f"q{number}", "sql": sql})
                assert taken(counted) == 1
            for epoch in (-1, 0, 1):
                service.plan(epoch)
            service.post("/v1/plans:dry-run", {"drop": ["q0"]}, 200)
            assert taken(counted) == 0
            service.post("/v1/queries:explain", {"sql": CHAIN}, 200)
            assert taken(counted) == 1
            service.call("PATCH", "/v1/streams/orders", 200, {"retention": {"ttl": "7 days"}})
            assert taken(counted) == COUNT
            service.plan(2)
            assert taken(counted) == 0
            service.post("/v1/streams", {**STREAMS[0], "name": "others"})
            service.plan(3)
            assert taken(counted) == 0
        with serving(settings) as service:
            service.plan(4)
            assert taken(counted) == COUNT


def test_a_normal_form_holds_for_one_record_and_its_streams() -> None:
    forms = NormalForms()
    pair = record("pair", LINES)
    kept = forms.of(pair, USABLE)
    assert forms.of(pair.model_copy(update={"priority": 3}), dict(USABLE)) is kept
    other = forms.of(record("pair", CHAIN), USABLE)
    assert len(other.members) == 3
    narrow = forms.of(pair.model_copy(update={"window": "1 hour"}), USABLE)
    assert narrow.bounds != kept.bounds
    gone = {name: stream for name, stream in USABLE.items() if name != "orders"}
    with pytest.raises(QueryError, match="orders"):
        forms.of(pair, gone)


def test_those_read_longest_ago_are_given_up() -> None:
    pairs = [record(name, PAIR) for name in "abc"]
    forms = NormalForms(most=2 * len(pairs[0].model_dump_json()))
    first, second = (forms.of(pair, USABLE) for pair in pairs[:2])
    assert forms.of(pairs[0], USABLE) is first
    forms.of(pairs[2], USABLE)
    assert forms.of(pairs[0], USABLE) is first
    again = forms.of(pairs[1], USABLE)
    assert again is not second
    assert again == second
    # A normal form larger than the cache is not cached, and displaces nothing.
    small = NormalForms(most=1)
    assert small.of(pairs[0], USABLE) is not small.of(pairs[0], USABLE)
