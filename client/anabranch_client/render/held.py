"""The held plan, which waits for an operator's approval, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from anabranch_client.render.dry_run import MAX_LINES, diff_tables, reasons_table
from anabranch_client.render.tables import facts_table, number
from anabranch_client.times import moment

if TYPE_CHECKING:
    from anabranch_contract.rest.planning.epochs import HeldPlanOut

#: State of the held plan -> hint on the next steps.
NEXT = {
    "waiting": "waits: anabranch plan approve, or refuse",
    "approved": "approved: published at the next epoch boundary",
    "refused": "refused: not proposed again until queries, streams or settings change",
}


def held_plan_detail(plan: HeldPlanOut, most: int | None = MAX_LINES) -> RenderableType:
    """The held plan: its times, the queries that wait for it, its changes from the running plan.

    Tables have at most ``most`` lines (None: no limit).
    """
    change = plan.change
    facts: dict[str, object] = {
        "plan": NEXT.get(plan.state, plan.state),
        "waits since": moment(plan.since),
        "proposed": f"{moment(plan.proposed_at)}, for epoch {plan.epoch}",
        "queries that wait": ", ".join(plan.waiting) or "none",
        "cost": f"{number(plan.cost_before)} before, {number(plan.cost_after)} after",
    }
    if change.queries_added or change.queries_removed:
        signs = [f"+{name}" for name in change.queries_added]
        signs += [f"-{name}" for name in change.queries_removed]
        facts["queries"] = " ".join(signs)
    for name, (before, after) in change.settings.items():
        facts[name] = f"{before} before, {after} after"
    if plan.note:
        facts["note"] = plan.note
    parts: list[RenderableType] = [facts_table(facts)]
    if change.diff is not None:
        parts.append(diff_tables(change.diff, most))
    elif change.diff_reason:
        parts.append(Text(f"nothing to compare with: {change.diff_reason}", style="dim"))
    if change.reasons is not None:
        parts.append(reasons_table(change.reasons, most))
    return Group(*parts)
