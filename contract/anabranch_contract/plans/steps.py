"""The steps of a ruleset by what they join, whatever its edges are called.

A probe rule says which labels it fills and by which keys, and so do the rules before it on the
path from the arriving tuple. The keys on a path, closed under equality, are the key classes of the
sub-join that the path has reached, hence its canonical id.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from anabranch_contract.plans.ruleset import substream_counts
from anabranch_contract.queries.joins import AttrRef, KeyClass, Label, RelationId
from anabranch_contract.queries.mirs import MirId, canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from anabranch_contract.plans.ruleset import Edge, ProbeRule, Ruleset

#: The sub-join that a step leads to, and its labels before and in the target.
Step = tuple[MirId, tuple[Label, ...], tuple[Label, ...]]


def steps_of(ruleset: Ruleset) -> dict[str, Step]:
    """Edge -> the step that leads to it."""
    relation_of: dict[Label, RelationId] = {
        label: relation for query in ruleset.queries for _, label, relation in query.members
    }
    reached: dict[Edge, tuple[frozenset[Label], tuple[KeyClass, ...]]] = {}
    found: dict[str, Step] = {}
    for rule in ruleset.paths:
        head, classes = reached.get(rule.edge, (frozenset({rule.start}), ()))
        classes = _closed(classes, _equalities(rule))
        labels = head | frozenset(rule.members)
        reached[rule.out] = labels, classes
        joined = canonical(classes, relation_of, labels).id
        found[rule.out] = (joined, tuple(sorted(head)), tuple(sorted(rule.members)))
    return found


def steps_of_all(ruleset: Ruleset) -> dict[str, Step]:
    """Edge -> its step, without the steps that only some of a start's tuples take.

    What is counted on the others says how selective a step is for their substreams, not for all.
    Where every substream takes a step, be it on edges of their own, their counts add up. Where it
    is asked ahead, those that are left find more than all would, so such a step and all behind it
    are left out, too.
    """
    found = steps_of(ruleset)
    chosen: dict[str, bool] = {}
    for rule in ruleset.paths:
        chosen[rule.out] = bool(rule.ahead) or chosen.get(rule.edge, False)
    counts = substream_counts(ruleset.substreams)
    takers = ruleset.takers
    taken: dict[tuple[Label, Step], set[int]] = defaultdict(set)
    divided = [rule for rule in ruleset.probe_rules if rule.start in counts]
    for rule in divided:
        numbers = takers[rule.out] or range(counts[rule.start])
        taken[rule.start, found[rule.out]].update(numbers)
    partial = {
        rule.out for rule in divided if len(taken[rule.start, found[rule.out]]) < counts[rule.start]
    }
    return {e: step for e, step in found.items() if e not in partial and not chosen[e]}


def _equalities(rule: ProbeRule) -> list[tuple[AttrRef, AttrRef, str]]:
    """Everything that the rule makes equal, in the labels of its goal.

    Inside an MIR that is what the probes would make equal that can take its place.
    """
    only = rule.members[0] if len(rule.members) == 1 else None
    found = [
        (k.probe, k.build if only is None else AttrRef(only, k.build.attribute), k.type)
        for k in rule.key
    ]
    for fill in rule.fill:
        found += [(k.probe, AttrRef(fill.label, k.build.attribute), k.type) for k in fill.key]
    return found


def _closed(
    classes: Sequence[KeyClass], equalities: Iterable[tuple[AttrRef, AttrRef, str]]
) -> tuple[KeyClass, ...]:
    groups = [(c.type, set(c.members)) for c in classes]
    for left, right, kind in equalities:
        touched = [g for g in groups if left in g[1] or right in g[1]]
        groups = [g for g in groups if g not in touched]
        groups.append((kind, {left, right}.union(*(members for _, members in touched))))
    found = [KeyClass(kind, tuple(sorted(members))) for kind, members in groups]
    return tuple(sorted(found, key=lambda c: c.members))
