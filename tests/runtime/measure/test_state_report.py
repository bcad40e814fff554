"""Tests of reports of stored state: maintained tables beside stores."""

from __future__ import annotations

from anabranch_contract.protocol.state_report import TableReport
from anabranch_runtime.measure.state_report import table_reports
from anabranch_runtime.state.tables import HeldTable, Round, TableCost, TableCounts, TablesState


def test_tables_have_the_rounds_since_their_checkpoint() -> None:
    tables = TablesState(
        rounds=tuple(Round(batch, ()) for batch in (3, 4, 7, 9)),
        held={"new": HeldTable("", 9), "old": HeldTable("pack", 4), "all": HeldTable("pack", 10)},
        counts={"old": TableCounts(5, 8, 40), "ended": TableCounts(1, 1, 1)},
    )
    cost = TableCost(added=90, seconds=0.5, bytes=800, common="new")
    assert list(table_reports(tables, {"old": cost})) == [
        TableReport("all", rows=0, version=-1, changes=0, rounds=0),
        TableReport("new", rows=0, version=-1, changes=0, rounds=1),
        TableReport(
            "old",
            rows=5,
            version=8,
            changes=40,
            rounds=3,
            added=90,
            seconds=0.5,
            bytes=800,
            common="new",
        ),
    ]
