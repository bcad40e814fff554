"""The result of a source test, as rich tables; layout only."""

from __future__ import annotations

import json

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from anabranch_client.render.tables import facts_table, shortened, table_of
from anabranch_contract.rest.source_tests import SourceTestOut


def source_test(found: SourceTestOut) -> RenderableType:
    """The outcome of a source test, the rows, and the values that do not fit."""
    facts: dict[str, object] = {"source": found.outcome}
    if found.error is not None:
        error = found.error
        facts |= {"why": f"{error.field}: {error.message}", "remedy": error.remedy}
    facts |= {"not read": "; ".join(found.limits)} if found.limits else {}
    if found.found is not None:
        facts["found"] = f"{found.found:,} {found.unit}"
    if found.rows:
        facts["rows read"] = f"{len(found.rows):,}, of which {found.invalid:,} do not fit"
        facts["from"] = ", ".join(found.places)
    if found.first_event_time is not None:
        facts["event times"] = f"{found.first_event_time} … {found.last_event_time}"
    if found.disorder is not None:
        lateness = f"a lateness of {found.proposed_lateness} covers that"
        facts["out of order"] = f"by up to {found.disorder}; {lateness}"
    parts: list[RenderableType] = [facts_table(facts)]
    if found.rows:
        rows = table_of(*found.rows[0])
        for row in found.rows:
            rows.add_row(*(Text(_shown(v)) for v in row.values()))
        parts.append(rows)
    if found.misfits:
        misfits = table_of("row", "column", "value", "expected", right=("row",))
        for one in found.misfits:
            value = shortened("null" if one.value is None else one.value)
            misfits.add_row(str(one.row), escape(one.column or "all of it"), value, one.expected)
        parts.append(misfits)
    return Group(*parts)


def _shown(value: object) -> str:
    """A value of a sample row: nested ones as JSON."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return "null" if value is None else str(value)
