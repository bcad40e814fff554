"""Test that search words of queries are computed once per record."""

from __future__ import annotations

from datetime import UTC, datetime

from anabranch_contract.rest.normalised import AliasInfo, NormalisedInfo
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.search import Sought, listed


def record(run: str, sequence: int, sql: str | None = "SELECT 1", **given: object) -> QueryRecord:
    streams = given.pop("streams", ("orders",))
    assert isinstance(streams, tuple)
    meaning = NormalisedInfo(
        aliases=[AliasInfo(alias=s, stream=s, relation=s, label=s) for s in streams],
        classes=[],
        bounds=[],
        unbounded=[],
        residuals=[],
        output=[],
    )
    document = {"id": run, "sequence": sequence, "sql": sql, "normalised": meaning, **given}
    return QueryRecord.model_validate({"created_at": datetime(2026, 1, 1, tzinfo=UTC), **document})


def test_each_query_is_listed_by_its_newest_run() -> None:
    records = [record("a", 1), record("b", 2), record("a~2", 3)]
    found = listed(records)
    assert [one.record.id for one in found] == ["b", "a~2"]
    changed = record("b", 2, owner="web")
    again = listed([records[0], changed, records[2]], found)
    assert [one.record for one in again] == [changed, records[2]]
    assert again[1] is found[1]
    assert "web" in again[0].words
    assert listed([], again) == ()


def test_all_that_is_given_has_to_fit() -> None:
    queries = listed(
        [
            record("one", 1, 'SELECT "Straße"', owner="web", tags=("daily", "x"), title="Late"),
            record("two", 2, None, query={"from": {"o": "Orders"}}, streams=("orders", "items")),
        ]
    )

    def names(**sought: object) -> list[str]:
        return [one.query for one in Sought(**sought).among(queries)]  # type: ignore[arg-type]

    assert names() == ["one", "two"]
    assert names(text="STRASSE") == names(text="late") == names(text="DAILY") == ["one"]
    assert names(text="orders") == names(streams=frozenset({"items", "orders"})) == ["two"]
    assert names(text="tw") == ["two"]
    assert names(owner="web") == names(tags=frozenset({"x", "daily"})) == ["one"]
    assert names(owner="w") == names(tags=frozenset({"x", "y"})) == []
    assert names(streams=frozenset({"orders"}), owner="web", text="one") == ["one"]
