"""Cost of a tuple of each stream, estimated from the epoch's batches.

A pure function of a committed state and its ruleset. Input is assigned to tasks by it
(``sources.dealing``). Errors only make tasks wait for each other.
"""

from __future__ import annotations

from collections import defaultdict

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_runtime.epochs.layout import routes
from anabranch_runtime.state.manifest import State

#: Seconds per result of phase ``probe`` outside the measured edges.
GIVEN_OUT = 6e-8


def arrival_costs(state: State, ruleset: Ruleset) -> dict[str, float]:
    """Stream -> expected seconds of probing per tuple that is read, of streams that brought some.

    These are the CPU seconds of all probe trees of its labels and of their results, divided by the
    tuples. Edges are counted since the last revision of the ruleset, tuples since the epoch began.
    After a revision probes count for less at first, for all streams alike.

    Args:
        state: as committed.
        ruleset: the ruleset of the state.

    Returns:
        Nothing where no probe has been measured yet.
    """
    found = routes(ruleset)
    seconds: dict[str, float] = defaultdict(float)
    for rule in ruleset.probe_rules:
        measured = state.measured.edges.get(rule.out)
        if measured is not None:
            relation = found.relation_of[rule.start]
            given = GIVEN_OUT * measured.made * len(found.outputs.get(rule.out, ()))
            seconds[found.relations[relation].stream] += measured.seconds + given
    if not any(seconds.values()):
        return {}
    return {
        name: seconds[name] / meter.input
        for name, meter in sorted(state.measured.meters.items())
        if meter.input
    }
