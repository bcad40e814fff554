"""Views over one join share its rows; a failing expression fails the views that read it only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.sinks.joined_rows import JoinedBatch
from anabranch_runtime.task.shared_rows import SHARED
from tests.support.worlds.driven import driver, job, publish
from tests.support.worlds.view_runs import current_rows

ON = "FROM R JOIN S ON R.a = S.a"
#: Batch ``b`` brings ``S.b = b``.
VIEWS = {
    "by": f"SELECT S.b AS b, count(*) AS n {ON} GROUP BY S.b",
    "all": f"SELECT sum(S.b) AS s, max(R.a) AS m {ON}",
    "other": f"SELECT count(*) AS n {ON} AND S.b > 0",
}


def last_round(one: Driver) -> Any:
    return one.state.tables.rounds[-1]


def rows_of(one: Driver, folder: Path, name: str) -> list[tuple[Any, ...]]:
    (query,) = [q for q in one.control.ruleset(one.state.ruleset).queries if q.id == name]
    assert query.view is not None
    return sorted(current_rows(folder / "results" / name, query.view))


def test_rows_of_one_join_are_written_once(url: str, tmp_path: Path) -> None:
    publish(url, 0, VIEWS)
    one = driver(url, tmp_path, every=10)
    for batch in range(3):
        one.run(job(batch))
    found = last_round(one)
    (name, readers), *more = found.feeds.items()
    assert not more
    assert name.startswith(SHARED)
    assert sorted(readers) == ["all", "by"]
    assert sorted(segment.store for segment in found.rows) == ["other", name]
    assert one.state.queries["by"].results == one.state.queries["all"].results == 9
    assert rows_of(one, tmp_path, "by") == [(0, 3), (1, 3), (2, 3)]
    assert rows_of(one, tmp_path, "all") == [(9, 0)]
    assert rows_of(one, tmp_path, "other") == [(6,)]


def test_a_query_that_comes_later_sees_other_rows(url: str, tmp_path: Path) -> None:
    publish(url, 0, {"by": VIEWS["by"]})
    publish(url, 1, {"by": VIEWS["by"], "all": VIEWS["all"]})
    one = driver(url, tmp_path, every=2)
    for batch in range(3):
        one.run(job(batch))
    assert not last_round(one).feeds
    assert rows_of(one, tmp_path, "by") == [(0, 3), (1, 3), (2, 3)]


def test_an_expression_that_fails_fails_its_readers(url: str, tmp_path: Path) -> None:
    bad = f"SELECT sum(10 / (S.b - 1)) AS s {ON}"
    publish(url, 0, {**VIEWS, "bad": bad})
    one = driver(url, tmp_path, every=10)
    for batch in range(3):
        one.run(job(batch))
    failure = one.state.queries["bad"].failure
    assert failure is not None
    assert failure.batch == 1
    assert one.state.queries["bad"].results == 1
    assert rows_of(one, tmp_path, "by") == [(0, 3), (1, 3), (2, 3)]
    assert rows_of(one, tmp_path, "all") == [(9, 0)]


def test_columns_have_the_names_of_the_reader(url: str, tmp_path: Path) -> None:
    publish(url, 0, VIEWS)
    one = driver(url, tmp_path, every=10)
    one.run(job(0))
    found = last_round(one)
    joined = JoinedBatch(str(one.settings.state), found.rows, found.feeds)
    queries = {str(q.id): q for q in one.control.ruleset(one.state.ruleset).queries}
    rows = joined.rows("all", queries["all"])
    assert rows is not None
    assert rows.column_names == [o.name for o in queries["all"].projection]
    assert rows.schema.types == [pa.int64(), pa.int64()]
    assert joined.rows("nobody", queries["all"]) is None
    assert "by" in joined
