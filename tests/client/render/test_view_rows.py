"""Rows of a view as text, with remarks on missing ones."""

from __future__ import annotations

from anabranch_client.render.view_rows import view_remarks, view_rows
from anabranch_contract.rest.queries import PartialOut, ScaledOut, ViewRowsOut

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
