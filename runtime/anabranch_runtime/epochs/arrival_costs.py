"""What a tuple of each stream costs, from what the epoch's batches have measured.

A pure function of a committed state and its ruleset. Input is dealt to tasks by it
(``sources.dealing``). It need not be right, for nothing but the tasks' waiting hangs on it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from anabranch_runtime.epochs.layout import routes

if TYPE_CHECKING:
    from anabranch_contract.plans.ruleset import Ruleset
    from anabranch_runtime.state.manifest import State

#: Seconds that a tuple takes whatever it is probed with: it is read, checked and stored.
#: ``read`` and ``store`` of TPC-H at SF 1 (docs/performance.md), divided by the tuples.
TAKEN_IN = 1e-6


def arrival_costs(state: State, ruleset: Ruleset) -> dict[str, float]:
    """Stream -> expected seconds per tuple that is read, of streams that have brought some.

    Those are the CPU seconds of all probe trees of its labels, divided by the tuples, and what it
    takes to take a tuple in. Edges are counted since the last revision of the ruleset, tuples since
    the epoch began: after a revision probes count for less at first, for all streams alike.

    Args:
        state: as committed. ``ruleset``: the one that it goes by.

    Returns:
        Nothing where no probe has been measured yet.
    """
    found = routes(ruleset)
    seconds: dict[str, float] = defaultdict(float)
    for rule in ruleset.probe_rules:
        measured = state.edges.get(rule.out)
        if measured is not None:
            relation = found.relation_of[rule.start]
            seconds[found.relations[relation].stream] += measured.seconds
    if not any(seconds.values()):
        return {}
    return {
        name: TAKEN_IN + seconds[name] / meter.input
        for name, meter in sorted(state.meters.items())
        if meter.input
    }
