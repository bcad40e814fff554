"""The changes that a PUT would make to a query, as text to confirm."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

if TYPE_CHECKING:
    from anabranch_contract.rest.planning.plans import DryRunOut
    from anabranch_contract.rest.queries import QueryChange, QueryOut
    from anabranch_contract.rest.streams import StreamOut

#: Name of an action -> its description.
ACTIONS = {
    "created": "register it",
    "changed": "change its settings",
    "replaced": "begin another run of it with the next epoch",
    "none": "nothing to do",
}
_STYLES = {"+": "green", "-": "red", "@": "dim"}


def change_detail(name: str, change: QueryChange, wanted: Mapping[str, Any]) -> Text:
    """The changes of a query, field by field; statements as a diff.

    Args:
        wanted: the body of the PUT.
    """
    found = Text(f"{name}: {ACTIONS.get(str(change.action), str(change.action))}", style="bold")
    if change.query is None:
        return found
    if change.action == "replaced" and wanted.get("cutover") == "when-complete":
        found.append("\n  readers stay with the present run until the new one has caught up")
    before = change.query.document()
    for field in change.fields:
        old, new = _lines(before.get(field)), _lines(wanted.get(field))
        found.append(f"\n  {field}", style="bold")
        for line in [*difflib.unified_diff(old, new, lineterm="", n=3)][3:]:
            found.append(f"\n    {line}", style=_STYLES.get(line[:1], ""))
    return found


def leaving_results(query: QueryOut, past: str, streams: Iterable[StreamOut]) -> str | None:
    """The results that leave a query's table when another run begins, as a line; None: none does.

    Args:
        query: the present run.
        past: ``past`` of the new run.
        streams: all streams.
    """
    if not query.results:
        return None
    if past == "none":
        return (
            f"its table has no results of before the new run: {query.results:,} leave it; "
            "--past stored emits those over stored rows"
        )
    read = {alias.stream for alias in query.normalised.aliases}
    short = [s.name for s in streams if s.name in read and s.kind != "table" and s.retain != "all"]
    if not short:
        return None
    return (
        f"its table has results over stored rows, and rows of {', '.join(short)} stay stored only "
        "while queries need them or as their retention says: older results leave it"
    )


def cost_line(before: float, after: DryRunOut) -> str:
    """The plan's cost before and after a change, as a line."""
    change = after.cost - before
    return (
        f"the plan's cost per unit of time: {before:,.6g} -> {after.cost:,.6g} "
        f"({'+' if change >= 0 else ''}{change:,.6g})"
    )


def _lines(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return value.splitlines()
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False).splitlines()
