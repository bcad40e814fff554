"""Tests of the results that leave a query's table when it is replaced."""

from __future__ import annotations

import pytest

from anabranch_client.render.changes import leaving_results
from anabranch_contract.rest.queries import QueryOut
from anabranch_contract.rest.streams import StreamOut

LISTS = ("classes", "bounds", "unbounded", "residuals", "output")


def query_of(results: int) -> QueryOut:
    aliases = [
        {"alias": a, "stream": s, "relation": s, "label": s, "filter": []}
        for a, s in (("o", "orders"), ("c", "customers"), ("t", "towns"))
    ]
    normalised = {"aliases": aliases, **{name: [] for name in LISTS}}
    given = {"id": "q", "status": "active", "sql": "SELECT 1", "results": results}
    return QueryOut.read({**given, "normalised": normalised})


def streams_of(**retain: str) -> list[StreamOut]:
    kinds = {"towns": "table"}
    return [
        StreamOut.read({"name": n, "retain": r, "kind": kinds.get(n, "stream")})
        for n, r in {"towns": "none", "unread": "none", **retain}.items()
    ]


@pytest.mark.parametrize(
    ("past", "retain", "results", "said"),
    [
        ("none", {"orders": "all", "customers": "all"}, 1234, "1,234 leave it; --past stored"),
        ("none", {}, 0, None),
        ("stored", {"orders": "all", "customers": "all"}, 5, None),
        ("stored", {"orders": "7 days", "customers": "all"}, 5, "rows of orders stay stored only"),
        ("stored", {"orders": "none", "customers": "none"}, 5, "of orders, customers stay"),
        ("stored", {"orders": "none", "customers": "none"}, 0, None),
    ],
)
def test_results_that_leave_the_table(
    past: str, retain: dict[str, str], results: int, said: str | None
) -> None:
    found = leaving_results(query_of(results), past, streams_of(**retain))
    assert found is None if said is None else found is not None and said in found
