"""Reasons of a plan: savings by shared elements (probe steps, store copies) and by kept
intermediate results.

**A shared step or store copy** needed by ``n`` queries (as in
:mod:`anabranch_planner.plans.shares`) is paid once. If each query ran the same plan by itself, it
would be paid ``n`` times, so sharing saves ``cost * (n - 1)``. Summed over all elements, this is
the queries' separate costs under *this plan* minus the plan's cost. It is not the saving against
each query's own optimum, which may be smaller, because queries take more expensive orders in order
to share them. For that saving compare the plan's cost with the sum of ``standalone``.

**A kept intermediate result** ``M`` is compared with a plan without it
(:mod:`anabranch_planner.explain.detours`). Each probe of ``M`` is replaced by the cheapest sequence
of probes of other kept stores, so the order continues from the same sub-join; then all elements
that only ``M`` needed are dropped. ``saved`` is that plan's cost minus this one's. Both are valid
plans for the same queries, so ``saved`` is never negative if this plan is proven optimal. It is an
upper bound of the value of ``M``: replanning without ``M`` may find a plan cheaper than these
detours. It is ``detours - upkeep``: the additional cost of the probes, minus the maintenance of
``M`` (its inserts, and steps that nothing else needs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import fsum
from typing import Any

from anabranch_contract.plans.plan import Plan
from anabranch_contract.queries.joins import JoinQuery, QueryId
from anabranch_contract.queries.mirs import MirId
from anabranch_planner.cost.footprint import qualified
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.steps import Trails, trails
from anabranch_planner.explain.detours import DetourCosts
from anabranch_planner.explain.explain import mir_label, store_labels
from anabranch_planner.plans.shares import Game, game


@dataclass(frozen=True, slots=True)
class SharedReason:
    """A probe step or store copy that several queries need and the plan pays for once.

    Attributes:
        kind: ``"step"`` or ``"store"``.
        saved: ``cost * (len(users) - 1)``.
    """

    kind: str
    label: str
    users: tuple[QueryId, ...]
    cost: float
    saved: float


@dataclass(frozen=True, slots=True)
class KeptReason:
    """A kept intermediate result, and the additional cost of the plan without it.

    Attributes:
        users: the queries that need the intermediate result.
        detours: additional cost of the probes that would replace it.
        upkeep: cost of inserts into its copies, and of steps that only its maintenance needs.
        saved: ``detours - upkeep``.
    """

    mir: MirId
    label: str
    users: tuple[QueryId, ...]
    detours: float
    upkeep: float
    saved: float


@dataclass(frozen=True, slots=True)
class Reasons:
    """A plan's shared elements and kept intermediate results, the greatest savings first.

    Attributes:
        omitted: number of kept intermediate results not examined because there are too many.
    """

    shared: tuple[SharedReason, ...]
    kept: tuple[KeptReason, ...]
    omitted: int = 0


def reasons(
    plan: Plan,
    queries: Sequence[JoinQuery],
    model: CostModel,
    *,
    at_most: int | None = None,
    found: Trails | None = None,
    played: Game | None = None,
) -> Reasons:
    """Explain which shared elements and intermediate results save cost in ``plan``, by ``model``.

    Args:
        at_most: number of intermediate results to examine, those with most users first (each takes
            time proportional to the whole plan).
        found, played: the plan's distinct steps and cost-sharing game; None: computed here.
    """
    found = found or trails(plan, queries)
    played = played or game(plan, queries, found)
    labels = store_labels(plan)
    shared = []
    users: dict[tuple[str, MirId], set[QueryId]] = {}
    for element in played.elements:
        if element.step is not None:
            trail = found.steps[element.step]
            store = labels[trail.step.target, trail.step.partition]
            start = qualified(trail.owner, trail.start)
            label = f"from {start}: {mir_label(sorted(trail.head))} probes {store}"
        elif element.copy is not None:
            owner, mir, partition = element.copy
            users.setdefault((owner, mir), set()).update(element.users)
            label = qualified(owner, labels[mir, partition])
        if len(element.users) > 1:
            kind = "store" if element.step is None else "step"
            saved = element.cost * (len(element.users) - 1)
            shared.append(SharedReason(kind, label, element.users, element.cost, saved))
    mirs = {m.id: m for m in plan.mirs}
    candidates = sorted(
        {(c.owner, c.mir) for c in plan.copies if not mirs[c.mir].is_base},
        key=lambda c: (-len(users.get(c, ())), c),
    )
    looked_at = candidates[:at_most]
    ledger = DetourCosts(plan, queries, model, found)
    kept = []
    for owner, mir in looked_at:
        saved, upkeep = ledger.saving(owner, mir)
        kept.append(
            KeptReason(
                mir=mir,
                label=qualified(owner, mir_label(mirs[mir].members)),
                users=tuple(sorted(users.get((owner, mir), ()))),
                detours=saved + upkeep,
                upkeep=upkeep,
                saved=saved,
            )
        )
    return Reasons(
        shared=tuple(sorted(shared, key=lambda r: (-r.saved, r.kind, r.label))),
        kept=tuple(sorted(kept, key=lambda r: (-r.saved, r.label))),
        omitted=len(candidates) - len(looked_at),
    )


def reasons_document(found: Reasons, *, at_most: int | None = None) -> dict[str, Any]:
    """The reasons as JSON, at most ``at_most`` per category; totals include the omitted ones."""
    shared, kept = found.shared[:at_most], found.kept[:at_most]
    return {
        "shared": [asdict(r) for r in shared],
        "kept": [asdict(r) for r in kept],
        "totals": {
            "shared": len(found.shared),
            "saved_by_sharing": fsum(r.saved for r in found.shared),
            "kept": len(found.kept) + found.omitted,
        },
        "omitted": len(found.shared) - len(shared) + len(found.kept) - len(kept) + found.omitted,
    }
