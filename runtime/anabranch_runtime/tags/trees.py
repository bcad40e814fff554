"""Probe trees of a ruleset, and the forms compiled from them, which later rulesets reuse.

A tree is a probe of starting tuples with all probes of its results. Successive rulesets have most
trees in common, and their rules are the same objects (``plans.rows.read_ruleset``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from anabranch_contract.plans.ruleset import ProbeRule, Ruleset
from anabranch_runtime.epochs.layout import routes
from anabranch_runtime.epochs.per_ruleset import per_ruleset

_T = TypeVar("_T")
#: Marks in a tree's facts: before a rule's outputs, its stores, and its labels.
_OUTPUTS, _INSERTS, _LABELS = -1, -2, -3


@dataclass(frozen=True, slots=True, eq=False)
class RuleTree:
    """A probe of starting tuples and the probes after it.

    Attributes:
        rules: the probes, each after the one whose results it receives.
        facts: identities of the rules, of their outputs and stores, and of their labels' streams.
        held: the objects with these identities, so that no others get them.
    """

    rules: tuple[ProbeRule, ...]
    facts: tuple[int, ...]
    held: tuple[object, ...]


@per_ruleset
def rule_trees(ruleset: Ruleset) -> tuple[RuleTree, ...]:
    """Return the probe trees of ``ruleset``."""
    found = routes(ruleset)
    probes, outputs, inserts = dict(found.probes), dict(found.outputs), dict(found.inserts)
    streams = {x: found.streams[found.stream(x)] for x in found.relation_of}
    ranks = found.ranks
    trees = []
    for root in ruleset.probe_rules:
        if root.edge in found.rules:
            continue
        rules, held, facts = list[ProbeRule](), list[object](), list[int]()
        pending = [root]
        while pending:
            rule = pending.pop()
            rules.append(rule)
            facts += (id(rule), _OUTPUTS)
            for some, mark in ((outputs.get(rule.out), _INSERTS), (inserts.get(rule.out), _LABELS)):
                if some:
                    facts += map(id, some)
                    held += some
                facts.append(mark)
            for label in (rule.start, *rule.members):
                stream = streams[label]
                held.append(stream)
                facts += (id(stream), ranks[stream.name])
            pending += probes.get(rule.out, ())
        trees.append(RuleTree(tuple(rules), tuple(facts), tuple(held)))
    return tuple(trees)


class CompiledTrees(Generic[_T]):
    """Forms of the newest ruleset's probe trees."""

    def __init__(self) -> None:
        self._known: Mapping[int, tuple[RuleTree, _T]] = {}

    def of(self, ruleset: Ruleset, compiled: Callable[[RuleTree], _T]) -> list[_T]:
        """Return the form of each probe tree; ``compiled`` makes the form of a new one."""
        known, found = self._known, dict[int, tuple[RuleTree, _T]]()
        for tree in rule_trees(ruleset):
            root = id(tree.rules[0])
            one = known.get(root)
            if one is None or one[0].facts != tree.facts:
                one = tree, compiled(tree)
            found[root] = one
        self._known = found
        return [form for _, form in found.values()]
