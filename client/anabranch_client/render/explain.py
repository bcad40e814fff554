"""The explanation of a statement (``anabranch query explain``) as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.text import Text

from anabranch_client.render.excerpt import excerpt, excerpt_width
from anabranch_client.render.maintained import table_lines
from anabranch_client.render.tables import missed_notes
from anabranch_client.render.views import view_facts

if TYPE_CHECKING:
    from anabranch_contract.rest.planning.plans import ExplainOut
    from anabranch_contract.rest.queries import ProblemRecord


def explain_detail(found: ExplainOut) -> Group:
    """Sections: the plans with binary and with multi-way joins; the query's part of the joint plan,
    and the cost that it adds."""
    parts: list[Text] = []

    def section(title: str, text: str) -> None:
        parts.append(Text(title, style="bold"))
        parts.append(Text(text.rstrip("\n") + "\n"))

    section("binary joins", found.before.text)
    section("multi-way joins", found.after.text)
    for join in found.multijoins:
        section(f"MultiJoin of {', '.join(join.inputs)} replaces", "\n".join(join.replaces))
    if found.refused is not None:
        refused = found.refused
        section("does not run continuously", "\n".join([
            f"{refused.message} ({refused.remedy})",
            *_refusal_excerpt(found.sql, refused),
        ]))  # fmt: skip
    if found.normalised is not None and found.normalised.view is not None:
        facts = view_facts(found.normalised.view)
        section("view", "\n".join(f"{label}: {text}" for label, text in facts.items()))
    if found.normalised is not None and found.normalised.outer is not None:
        outer = found.normalised.outer
        for one in outer.look_ups:
            how = "as changes" if outer.changes else "a table, as of the tuple's batch"
            nearest = "" if one.nearest is None else f", {one.nearest}"
            section(one.join, f"with {one.partner}{nearest}, {how}")
        if outer.deadline is not None:
            section(f"{outer.kind} join", f"with {outer.partner}, partners until {outer.deadline}")
        if outer.where:
            section("where", " AND ".join(outer.where))
    if found.plan is not None:
        section("probe orders", "\n".join(map(_order, found.orders)))
        section("stores", "\n".join(f"{s['label']}  used by {_names(s)}" for s in found.stores))
        shared = ", ".join(found.shared_with) or "no other query"
        if found.table is not None:
            section("table", "\n".join(table_lines(found.table)))
        section("cost", f"adds {found.added_cost:.6g} per unit of time; shares with {shared}")
    return Group(*parts, *missed_notes(found.missed))


def _refusal_excerpt(sql: str, refused: ProblemRecord) -> list[str]:
    if refused.line is None or refused.column is None:
        return []
    return [excerpt(sql, refused.line, refused.column, excerpt_width(Console()))]


def _order(order: dict[str, object]) -> str:
    steps = order["steps"]
    assert isinstance(steps, list)
    return " → ".join([str(order["start"]), *(str(step["store"]) for step in steps)])


def _names(store: dict[str, object]) -> str:
    users = store["used_by"]
    assert isinstance(users, list)
    return ", ".join(map(str, users)) or "no query"
