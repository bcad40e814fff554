"""Tests of a view's rows as text, with remarks on missing ones."""

from __future__ import annotations

from anabranch_client.render.view_rows import (
    preview_remarks,
    preview_table,
    view_remarks,
    view_rows,
)
from anabranch_contract.rest.queries import PartialOut, ScaledOut, ViewRowsOut
from anabranch_contract.rest.tables import PreviewOut, SampledOut
from tests.client.render.test_tables import text

ROWS = ViewRowsOut(
    version=7, total=2, columns=["k", "n"], rows=[{"k": 1, "n": 5}, {"k": 2, "n": 4}], batch=9
)


def test_rows_of_which_nothing_is_missing() -> None:
    assert list(view_rows(ROWS)) == ROWS.rows
    complete = PartialOut(column=None, code="complete", reason="no joined row is missing")
    asked = ROWS.model_copy(update={"unscaled": complete})
    assert list(view_remarks(asked)) == ["2 of 2 rows, version 7"]


def test_estimates_stand_in_place_of_what_they_estimate() -> None:
    scaled = [
        {"n": ScaledOut(value=8.25, error=1.5)},
        {"n": ScaledOut(value=None, error=None)},
    ]
    mark = PartialOut(column="m", code="max", reason="the greatest that was kept")
    some = ROWS.model_copy(update={"scaled": scaled, "completeness": 0.6, "partial": [mark]})
    assert list(view_rows(some)) == [{"k": 1, "n": "8.25 ± 1.5"}, {"k": 2, "n": "?"}]
    assert list(view_remarks(some)) == [
        "2 of 2 rows, version 7",
        "about 60.00% of the joined rows as of batch 9",
        "m: the greatest that was kept",
    ]


def test_what_can_not_be_scaled_says_why() -> None:
    owed = PartialOut(column=None, code="owed", reason="it will come")
    some = ROWS.model_copy(update={"unscaled": owed, "completeness": 0.5})
    assert list(view_rows(some)) == ROWS.rows
    assert list(view_remarks(some))[-1] == "not scaled: it will come"


def test_a_view_without_reported_rows_has_no_number_of_them() -> None:
    none = ROWS.model_copy(update={"version": None, "total": None, "rows": []})
    assert list(view_remarks(none)) == ["no rows reported yet"]


def test_a_preview_names_the_rows_that_it_has_read() -> None:
    samples = [
        SampledOut(stream="clicks", rows=256, seen=9000),
        SampledOut(stream="pages", rows=7, seen=7),
        SampledOut(stream="users", rows=0, seen=None),
    ]
    rows = [[1, "[b]x[/b]", None], [22, "y", {"a": [1]}]]
    found = PreviewOut(columns=["n", "name", "s"], rows=rows, truncated=True, samples=samples)
    assert list(preview_remarks(found)) == [
        "256 of the latest rows of clicks (9,000 so far)",
        "all rows of pages: 7",
        "no rows of users are known yet",
        "the first 2 rows; --limit shows more",
        "run by DuckDB, whose functions may differ from Spark's; no window is applied",
    ]
    shown = text(preview_table(found))
    assert "[b]x[/b]" in shown
    assert '{"a": [1]}' in shown
    assert "NULL" in shown
