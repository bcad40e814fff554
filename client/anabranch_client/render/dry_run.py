"""Dry runs on the command line: assumptions, and the answer as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from anabranch_client.errors import UsageError
from anabranch_client.render.maintained import tables_table
from anabranch_client.render.tables import (
    facts_table,
    number,
    numbers,
    percent,
    plan_trees,
    rejections,
    size,
    switching_charge,
    table_of,
)

if TYPE_CHECKING:
    from anabranch_contract.rest.planning.epochs import EpochDiffOut
    from anabranch_contract.rest.planning.insight import (
        DiffRecord,
        ReasonsRecord,
        SharesRecord,
        StepChangeRecord,
        StoreChangeRecord,
    )
    from anabranch_contract.rest.planning.plans import DryRunOut, EffectsOut

#: Maximum lines of a table on a terminal; maximum names in a cell of it.
MAX_LINES, _MAX_NAMES = 30, 4


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Assumed cardinalities per relation, distinct counts per key, selectivities per equality."""

    cardinalities: dict[str, float] = field(default_factory=dict)
    distincts: dict[str, float] = field(default_factory=dict)
    selectivities: dict[str, float] = field(default_factory=dict)


def assumptions(texts: Iterable[str]) -> Assumptions:
    """Parse the values of ``--assume``.

    >>> found = assumptions(["R=100", "R.a=20", "R.a = S.b: 0.01"])
    >>> found.cardinalities, found.distincts, found.selectivities
    ({'R': 100.0}, {'R.a': 20.0}, {'R.a = S.b': 0.01})

    Raises:
        UsageError: a value has none of these forms.
    """
    found = Assumptions()
    for text in texts:
        equality, colon, share = text.rpartition(":")
        if colon and "=" in equality:
            found.selectivities[equality.strip()] = _float(text, share, "--assume")
            continue
        name, value = named_number(text, "--assume")
        (found.distincts if "." in name else found.cardinalities)[name] = value
    return found


def named_number(text: str, option: str) -> tuple[str, float]:
    """Parse ``name=number``.

    Raises:
        UsageError: the text has another form.
    """
    name, _, value = text.rpartition("=")
    return name.strip(), _float(text if name.strip() else "", value, option)


def retentions(texts: Iterable[str]) -> dict[str, dict[str, Any] | None]:
    """Parse the values of ``--ttl``: stream -> retention, or None (no retention).

    >>> retentions(["orders=7 days", "items=none"])
    {'orders': {'ttl': '7 days'}, 'items': None}

    Raises:
        UsageError: a value has another form.
    """
    found: dict[str, dict[str, Any] | None] = {}
    for text in texts:
        name, _, ttl = (part.strip() for part in text.partition("="))
        if not name or not ttl:
            raise UsageError(f"{text!r} is not a ttl", field="--ttl", remedy="write stream=7 days")
        found[name] = None if ttl == "none" else {"ttl": ttl}
    return found


def _float(text: str, value: str, option: str) -> float:
    try:
        if text:
            return float(value)
    except ValueError:
        pass
    raise UsageError(
        f"{text or value!r} is not a figure",
        field=option,
        remedy="write relation=number"
        + (", relation.column=number or 'R.a = S.b: number'" if option == "--assume" else ""),
    )


def dry_run_detail(plan: DryRunOut, most: int | None = MAX_LINES) -> RenderableType:
    """The result of a dry run: cost, cost by query, changes, reasons, and the plan itself.

    Tables have at most ``most`` lines (None: no limit).
    """
    facts: dict[str, object] = {
        "optimizer": plan.optimizer,
        "queries": ", ".join(plan.queries) or "none",
        "cost": number(plan.cost),
        "individually": number(plan.individual_cost),
        "prefixes shared": number(plan.shared_cost),
        **switching_charge(plan.switching_cost),
        "gap": percent(plan.gap),
        "found by": plan.method,
        "solved in": f"{number(plan.solve_ms)} ms",
    }
    if plan.fallback:
        facts["fallback"] = plan.fallback
    parts: list[RenderableType] = [facts_table(facts), *rejections(plan.rejected)]
    if plan.shares is not None and plan.shares.queries:
        parts.append(shares_table(plan.shares, most))
    parts += tables_table(plan.tables, most)
    if plan.effects is not None:
        parts.append(effects_table(plan.effects, most))
    if plan.diff is not None:
        parts.append(diff_tables(plan.diff, most))
    elif plan.diff_reason:
        parts.append(Text(f"nothing to compare with: {plan.diff_reason}", style="dim"))
    if plan.reasons is not None:
        parts.append(reasons_table(plan.reasons, most))
    return Group(*parts, *plan_trees(plan.explain))


def shares_table(shares: SharesRecord, most: int | None = MAX_LINES) -> RenderableType:
    """Cost shares of the queries by every method, the most expensive first."""
    methods = ("standalone", "proportional", "shapley", "marginal", "part")
    table = table_of("query", *methods, right=methods)
    table.title = "cost shares"
    table.title_justify = "left"
    for share in shares.queries[:most]:
        table.add_row(
            escape(share.query), *numbers(*(getattr(share, method) for method in methods))
        )
    omitted = shares.omitted + _left_out(shares.queries, most)
    notes = [f"{omitted} more queries"] if omitted else []
    notes += [shares.note] if shares.note else []
    return Group(table, *(Text(note, style="dim") for note in notes))


def effects_table(effects: EffectsOut, most: int | None = MAX_LINES) -> RenderableType:
    """Share of each query's results kept under the current load, the greatest loss first."""
    figures = ("now", "then", "needs")
    table = table_of("query", *figures, "", right=figures)
    table.title = (
        f"results kept with {percent(effects.budget)} of rationed probes' time now, "
        f"{percent(effects.budget_after)} then"
    )
    table.title_justify = "left"
    for one in effects.queries[:most]:
        table.add_row(
            escape(one.query),
            percent(one.before),
            percent(one.after),
            percent(one.floor),
            Text("broken", style="bold red") if one.floor_broken else "",
        )
    omitted = effects.omitted + _left_out(effects.queries, most)
    return Group(table, *([Text(f"{omitted} more queries", style="dim")] if omitted else []))


def diff_tables(diff: DiffRecord, most: int | None = MAX_LINES) -> RenderableType:
    """Changes of a plan from a published epoch's: ``+`` added, ``-`` removed."""
    head = Text(
        f"against epoch {diff.epoch}: cost {number(diff.cost_before)} before, "
        f"{number(diff.cost_after)} after"
    )
    notes = [Text(f"note: {note}", style="yellow") for note in diff.notes]
    if diff.unchanged:
        return Group(head, Text("nothing changes: the same steps and stores"), *notes)
    totals = {name: total.count for name, total in diff.totals.items()}
    counts = Text(
        f"steps: {totals.get('added', 0)} added, {totals.get('removed', 0)} removed, "
        f"{totals.get('kept', 0)} kept; stores: {totals.get('built', 0)} built, "
        f"{totals.get('dropped', 0)} dropped, {totals.get('retained', 0)} kept"
    )
    table = table_of("", "change", "tuples", "bytes", "cost", right=("tuples", "bytes", "cost"))
    lines = [
        (sign, style, kind, change)
        for sign, style, kind, changes in (
            ("+", "green", "store ", diff.stores.built),
            ("+", "green", "", diff.steps.added),
            ("-", "red", "store ", diff.stores.dropped),
            ("-", "red", "", diff.steps.removed),
        )
        for change in changes
    ]
    for sign, style, kind, change in lines[:most]:
        table.add_row(
            Text(sign, style=style),
            escape(kind + change.label),
            number(change.tuples),
            _bytes(change),
            number(change.cost),
        )
    changes = sum(totals.get(name, 0) for name in ("added", "removed", "built", "dropped"))
    more = changes - len(lines[:most])
    rest = [Text(f"{more} more changes", style="dim")] if more > 0 else []
    return Group(head, counts, table, *rest, *notes)


def epoch_diff_detail(found: EpochDiffOut, most: int | None = MAX_LINES) -> RenderableType:
    """The changes between two epochs' plans: queries, settings, steps and stores, and reasons."""
    facts: dict[str, object] = {
        "queries added": ", ".join(found.queries_added) or "none",
        "queries removed": ", ".join(found.queries_removed) or "none",
        **{name: f"{old} -> {new}" for name, (old, new) in found.settings.items()},
    }
    parts: list[RenderableType] = [facts_table(facts)]
    if found.diff is not None:
        parts.append(diff_tables(found.diff, most))
    else:
        parts.append(Text(f"the plans can't be compared: {found.diff_reason}", style="dim"))
    if found.reasons is not None:
        parts.append(reasons_table(found.reasons, most))
    return Group(*parts)


def reasons_table(reasons: ReasonsRecord, most: int | None = MAX_LINES) -> RenderableType:
    """Shared steps and stores, intermediate results, and their savings."""
    if not reasons.shared and not reasons.kept:
        return Text("nothing is shared, and no intermediate result is kept", style="dim")
    table = table_of("worth it", "for", "saves", right=("saves",))
    lines: list[tuple[str, Sequence[str], float]] = [
        (f"keep {r.label} (upkeep {number(r.upkeep)})", r.users, r.saved) for r in reasons.kept
    ]
    lines += [
        (f"{'store ' if r.kind == 'store' else ''}{r.label}", r.users, r.saved)
        for r in reasons.shared
    ]
    for what, users, saved in lines[:most]:
        table.add_row(
            escape(what), escape(_names(users, None if most is None else _MAX_NAMES)), number(saved)
        )
    omitted = reasons.omitted + _left_out(lines, most)
    return Group(table, *([Text(f"{omitted} more", style="dim")] if omitted else []))


def _left_out(lines: Sequence[object], most: int | None) -> int:
    return 0 if most is None else max(len(lines) - most, 0)


def _names(users: Sequence[str], most: int | None) -> str:
    """Text with at most ``most`` names, and the number of further ones.

    >>> _names(["a", "b"], 4), _names(list("abcdef"), 4), _names(list("abcdef"), None)
    ('a, b', 'a, b, c, d and 2 more', 'a, b, c, d, e, f')
    """
    left = _left_out(users, most)
    return ", ".join(users[:most]) + (f" and {left} more" if left else "")


def _bytes(change: StepChangeRecord | StoreChangeRecord) -> str:
    count = getattr(change, "bytes", None)
    return "" if count is None else size(round(count))
