"""What lies behind the edges of a ruleset's probe trees, put together from the leaves."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

from anabranch_contract.plans.ruleset import arrival_edge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch_contract.plans.ruleset import Edge, Ruleset
    from anabranch_contract.queries.joins import Label, QueryId

_T = TypeVar("_T")


def behind(
    ruleset: Ruleset,
    wanted: Callable[[QueryId, Label], _T],
    stored: _T,
    together: Callable[[Sequence[_T]], _T],
) -> dict[Edge, _T]:
    """Edge of a probe -> what is wanted behind it, ``together``.

    Args:
        wanted: by a query of the tuples of a label that begin its results.
        stored: where an intermediate result is kept.
    """
    arrivals = {arrival_edge(r.id) for r in ruleset.relations}
    starts = {rule.out: rule.start for rule in ruleset.probe_rules}
    given: dict[Edge, list[_T]] = defaultdict(list)
    for output in ruleset.output_rules:
        if output.edge in starts:
            given[output.edge].append(wanted(output.query, starts[output.edge]))
    for insert in ruleset.store_rules:
        if insert.edge not in arrivals:
            given[insert.edge].append(stored)
    found: dict[Edge, _T] = {}
    for rule in reversed(ruleset.paths):
        found[rule.out] = together(given[rule.out])
        given[rule.edge].append(found[rule.out])
    return found
