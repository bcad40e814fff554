"""Views (post-join parts) of queries as pairs of label and text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch_contract.rest.normalised import ViewInfo


def view_facts(view: ViewInfo) -> dict[str, str]:
    """The post-join operators of a query: label -> text."""
    order, ranked = ", ".join(view.order), view.ranking is not None
    place = f"{view.ranking}()" if view.limit is None else f"{view.ranking}() up to {view.limit}"
    if view.partition:
        place += f" of each {', '.join(view.partition)}"
    facts = {
        "view of": ", ".join(view.aggregates) or "joined rows",
        "grouped by": ", ".join(view.keys),
        "grouping sets": ", ".join(f"({', '.join(one)})" for one in view.sets),
        "having": view.having or "",
        "copies": view.copies or "",
        "ordered by": order,
        "limit": "" if view.limit is None or ranked else str(view.limit),
        "ranked by": place if ranked else "",
        "identity": ", ".join(view.identity) or "one row",
    }
    return {label: text for label, text in facts.items() if text}
