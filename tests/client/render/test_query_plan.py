"""Tests of the lines with reasons for a query without results."""

from __future__ import annotations

from anabranch_client.render.query_plan import no_results_notes


def test_text_of_reasons_is_never_markup() -> None:
    [note] = no_results_notes(["rows of a (a) match, but fail (a.x[0] = '[bold]')"])
    assert note.plain == "no results: rows of a (a) match, but fail (a.x[0] = '[bold]')"
