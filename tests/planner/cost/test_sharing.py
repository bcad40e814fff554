"""Tests of the choice, by cost, of filters that share one store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

import pytest

from anabranch_contract.queries.joins import JoinQuery, RelationId, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.sharing import Filters, SharedStores
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import parse_sql

pytestmark = pytest.mark.fast

COLUMNS = {"k": "bigint", "v": "int", "w": "int", "category": "string", "text": "string"}
STREAMS: dict[str, Stream] = {
    name: Stream(StreamName(name), tuple((c, parse_type(t)) for c, t in COLUMNS.items()))
    for name in ("a", "b")
}

TIMED = {
    n: replace(s, columns=(*s.columns, ("ts", parse_type("timestamp")))) for n, s in STREAMS.items()
}


def query(name: str, condition: str, relaxed: Filters | None = None) -> JoinQuery:
    sql = f"SELECT a.v FROM a JOIN b ON a.k = b.k WHERE {condition}"
    return parse_sql(name, sql, STREAMS, relaxed=relaxed)


def chosen(
    conditions: Mapping[str, str], known: Statistics | None = None, *running: JoinQuery
) -> dict[str, list[str]]:
    """Return query -> conditions of the shared store of ``a``; absent: it has a separate one."""
    stores = SharedStores(known or Statistics())
    for one in running:
        stores.add(one)
    found = stores.choose([query(name, text) for name, text in conditions.items()])
    return {name: [str(c) for c in some["a"]] for name, some in found.items() if "a" in some}


def counted(rows: float, *conditions: tuple[str, float], calls: float = 1.0) -> Statistics:
    """Return statistics with the rows of ``a``, and of its filtered relations."""
    sizes = {RelationId("a"): rows, RelationId("b"): rows}
    for text, count in conditions:
        sizes[query("x", text).relation_of(query("x", text).members[0].label).id] = count
    return Statistics(cardinalities=sizes, constants=CostConstants(calls=calls))


def test_many_broad_filters_share_the_whole_stream() -> None:
    found = chosen({f"q{n}": f"a.v > {n}" for n in range(20)})
    assert found == {f"q{n}": [] for n in range(20)}


def test_a_few_selective_filters_have_their_own() -> None:
    texts = [f"a.v = {n}" for n in range(5)]
    known = counted(1e7, *((text, 100.0) for text in texts))
    assert not chosen(dict(zip("abcde", texts, strict=True)), known)


def test_fixed_costs_make_selective_filters_share() -> None:
    """With few rows per batch, a store costs more than its rows."""
    texts = {f"q{n}": f"a.v = {n}" for n in range(40)}
    known = counted(1e5, *((text, 10.0) for text in texts.values()), calls=2000.0)
    assert chosen(texts, known) == {key: [] for key in texts}


@pytest.mark.parametrize(("values", "window", "shared"), [
    (1e6, None, True), (100.0, None, False), (100.0, 600, True),
])  # fmt: skip
def test_keys_with_many_rows_keep_selective_filters_apart(
    values: float, window: int | None, shared: bool
) -> None:
    """A probe of a shared store finds all rows with its key within the window of ten minutes, out
    of the ten million rows of a hundred days.
    """
    texts = {f"q{n}": f"a.v = {n} AND b.v = {n}" for n in range(40)}
    sizes = {RelationId("a"): 1e7, RelationId("b"): 1e7}
    known = Statistics(
        cardinalities=sizes,
        distincts={(name, key): n for name in sizes for key, n in (("k", values), ("v", 1e3))},
        history=100 * 86_400e6,
        constants=CostConstants(calls=2e4),
    )
    queries = [
        parse_sql(
            name,
            f"SELECT a.v FROM a JOIN b ON a.k = b.k WHERE {text}",
            {n: replace(s, event_time="ts", lateness=0) for n, s in TIMED.items()},
            None if window is None else window * 1_000_000,
        )
        for name, text in texts.items()
    ]
    assert bool(SharedStores(known).choose(queries)) == shared


def test_a_common_condition_stays_if_it_excludes_much() -> None:
    texts = {f"q{n}": f"a.category = 'c' AND a.v > {n}" for n in range(30)}
    whole = "a.category = 'c'"
    known = counted(1e7, (whole, 1e5), *((text, 5e4) for text in texts.values()))
    assert chosen(texts, known) == {key: ["(category = 'c')"] for key in texts}


def test_a_filter_joins_a_store_that_another_query_has() -> None:
    running = query("r", "b.v > 3")
    assert chosen({"q": "a.v > 3"}, None, running) == {"q": []}


def test_one_query_after_the_other_opens_a_shared_store_in_time() -> None:
    """Running queries keep their stores, whose cost is limited: soon a shared one is created."""
    running, own = list[JoinQuery](), 0
    for n in range(40):
        stores = SharedStores(Statistics())
        for one in running:
            stores.add(one)
        # No filter implies another one.
        text = f"a.v > {n} AND a.w > {100 - n} AND b.v > {n} AND b.w > {100 - n}"
        new = query(f"q{n}", text)
        found = stores.choose([new]).get(f"q{n}")
        own += found is None
        running.append(new if found is None else query(f"q{n}", text, found))
    assert 2 < own < 30
    stored = {r.id for r in chain.from_iterable(q.relations for q in running)}
    assert len(stored) == 2 * own + 2


def test_conditions_that_may_fail_stay_with_the_store() -> None:
    text = "CAST(a.text AS INT) > 3"
    found = chosen({f"q{n}": f"{text} AND a.v > {n}" for n in range(20)})
    assert set(map(tuple, found.values())) == {("(cast(text as int) > 3)",)}
    assert not chosen({f"q{n}": f"CAST(a.text AS INT) > {n}" for n in range(20)})


def test_a_choice_does_not_depend_on_the_order() -> None:
    texts = {f"q{n}": f"a.v > {n} AND a.w < {n % 3}" for n in range(12)}
    reverse = dict(reversed(texts.items()))
    assert chosen(texts) == chosen(reverse)
