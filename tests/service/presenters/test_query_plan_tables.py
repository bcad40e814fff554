"""Tests of estimated and measured costs of maintained tables, in a pipeline with the
real runtime.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from anabranch_contract.protocol.state_report import StateReport, TableReport
from anabranch_contract.rest.planning.insight import (
    TableRecord,
    TableShareRecord,
    TablesRecord,
)
from anabranch_runtime.driver.reporting import state_publisher
from anabranch_service.presenters.query_plan import TableCosts
from tests.support.worlds.service import Service
from tests.support.worlds.small_pipeline import run_batches, small_pipeline

_JOIN = "FROM orders o JOIN items i ON o.order_id = i.order_id"
#: Queries by the table that they share.
TABLES = {
    "parts": {
        "counts": f"SELECT i.part, count(*) AS n {_JOIN} GROUP BY i.part",
        "sums": f"SELECT i.part, sum(i.quantity) AS s, count(*) AS n {_JOIN} GROUP BY i.part",
        "means": f"SELECT i.part, avg(o.total) AS m {_JOIN} GROUP BY i.part HAVING count(*) > 1",
    },
    "buyers": {
        "buyers": f"SELECT o.customer_id, sum(o.total) AS s {_JOIN} GROUP BY o.customer_id",
    },
    "medians": {
        "medians": "SELECT i.part, median(o.total) AS m, count(DISTINCT o.customer_id) AS c "
        f"{_JOIN} WHERE i.quantity > 1 GROUP BY i.part",
    },
    "dearest": {
        "dearest": f"SELECT o.order_id, i.part, o.total {_JOIN} ORDER BY o.total DESC LIMIT 10",
    },
    "hours": {
        "hours": f"SELECT window.start, count(*) AS n {_JOIN} GROUP BY window(o.ts, '1 hour')",
    },
}
EVERY, BATCHES = 12, 25


def test_estimates_have_the_magnitude_of_measured_costs(
    shop: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_publisher, "INTERVAL", 0.0)
    names = [name for some in TABLES.values() for name in some]
    for some in TABLES.values():
        for name, sql in some.items():
            shop.post("/v1/queries", {"id": name, "sql": sql})
    pipeline = small_pipeline(shop, tmp_path, every=EVERY)
    run_batches(pipeline, BATCHES, rows=2000)
    pipeline.reporting.interims.require(pipeline.state)
    pipeline.tables.drain()
    measured = pipeline.tables.costs()
    pipeline.tick()
    pipeline.tables.close()
    deadline = time.monotonic() + 60
    plans: dict[str, Any] = {}
    while time.monotonic() < deadline:
        plans = {name: shop.get(f"/v1/queries/{name}/plan") for name in names}
        if all(plan["table"]["estimated"] for plan in plans.values()):
            break
        time.sleep(0.2)
    for some in TABLES.values():
        first, *_ = some
        table, estimated = plans[first]["table"], plans[first]["table"]["estimated"]
        assert sorted([first, *table["shared"]]) == sorted(some)
        assert [share["query"] for share in estimated["queries"]] == sorted(some)
        seconds = sum(measured[name].seconds for name in some)
        ratio = (estimated["seconds"] / EVERY) / (seconds / BATCHES)
        ratios = {
            "seconds": ratio,
            "bytes": estimated["bytes"] / table["bytes"],
            "rows": estimated["rows"] / table["rows"],
        }
        assert all(0.1 < value < 10 for value in ratios.values()), (first, ratios)
        parts = [plans[name]["table"]["cpu"] for name in some]
        assert sum(parts) == pytest.approx(table["cpu_of_table"])
        assert min(parts) > 0
    total = sum(plan["cpu"] for plan in plans.values())
    assert total == pytest.approx(plans["counts"]["cpu_of_plan"])
    # They share a step; `medians` uses only a part of its output.
    rates = {name: plan["results_per_second"] for name, plan in plans.items()}
    shares = {name: rate / rates["counts"] for name, rate in rates.items()}
    assert shares.pop("medians") == pytest.approx(7 / 9, rel=0.05)
    assert all(share == pytest.approx(1, rel=0.05) for share in shares.values()), shares


def _share(query: str, seconds: float) -> TableShareRecord:
    return TableShareRecord(
        query=query, seconds=seconds, bytes=1, alone_seconds=2 * seconds, alone_bytes=2
    )


def _report(*tables: TableReport) -> StateReport:
    return StateReport(1, 0, 0, 0, 0, 0, None, 0, 0, None, (), 0, tables)


def test_the_cost_of_a_common_table_is_that_of_its_queries() -> None:
    report = _report(
        TableReport("a", 3, 1, 9, 0, added=100, seconds=0.75, bytes=50, common="a"),
        TableReport("b", 3, 1, 9, 0, added=100, seconds=0.25, bytes=50, common="a"),
        TableReport("c", 7, 1, 9, 0),
    )
    table = TableRecord(
        grouped=True,
        grouping="k",
        aggregates=["count(*)"],
        rows_in=10,
        touched=3,
        rows=3,
        seconds=4,
        bytes=2,
        queries=[_share("a", 1), _share("b", 3)],
    )
    costs = TableCosts(report, {"a": 10.0, "b": 10.0, "c": 10.0}, TablesRecord.summed([table]))
    first, second, third = costs.of("a"), costs.of("b"), costs.of("c")
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first.cpu, second.cpu, first.cpu_of_table) == pytest.approx((0.075, 0.025, 0.1))
    assert (first.shared, second.shared, third.shared) == (["b"], ["a"], [])
    assert (third.bytes, third.cpu, third.estimated) == (None, 0.0, None)
    assert costs.cpu == pytest.approx(0.1)
    assert costs.of("d") is None
    planned = TableCosts(None, {}, TablesRecord.summed([table])).of("b")
    assert planned is not None
    assert (planned.rows, planned.cpu, planned.share) == (0, 0.0, _share("b", 3))
    assert first.share == _share("a", 1)
