"""Choice of look-ahead filters: a pass over a ruleset that adds the filters that save time.

A look-ahead filter drops tuples before a probe if a later probe cannot match them
(:mod:`anabranch_contract.plans.ahead` describes the possible filters). Let a fraction ``1 - p`` of
the tuples have no partner at the later probe. Without the filter these tuples cost the CPU time of
all probes up to the later one, with their intermediate matches, and a look-up at the later probe
itself; after that they are dropped anyway. The filter costs as much as a probe with ``p`` matches
per tuple: a look-up for every tuple, and a match for each tuple that passes. A filter is added if
it saves :data:`MARGIN` times its cost.

The choice is greedy, from the beginning of a path. At each probe the filter that saves most is
added, then the next one for the tuples that pass (a fraction ``p``), until no filter pays. Filters
are assumed to be independent of each other and of fan-outs. Prices are in seconds
(``cost.statistics.constants``) under every objective, and measured where possible: a filter
produces no tuples, so it has no price in tuples. The cost model estimates ``p`` (``present``) from
rows per value and matches per tuple, which are measured where a step runs. Filters do not test
intermediate results, whose values are unknown. There are no filters if stores are on several hosts,
because workers do not support that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from anabranch_contract.plans.ahead import askable
from anabranch_contract.plans.routes import Routes
from anabranch_contract.plans.ruleset import Edge, Presence, ProbeRule, Ruleset
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label, RelationId
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.steps import SubJoins
from anabranch_planner.plans.traffic import users_of

#: Minimum ratio of a filter's saving to its cost.
MARGIN = 1.1


class LookAheadFilter(NamedTuple):
    """A look-ahead filter that saves more CPU time than it costs.

    Attributes:
        edge: edge of the probe that follows the filter.
        asked: the store in which the filter looks for a match, and the key of the look-up.
        share: fraction of the incoming tuples that pass.
        saved, price: CPU seconds per unit of time.
    """

    edge: Edge
    asked: Presence
    share: float
    saved: float
    price: float


def look_ahead(
    ruleset: Ruleset,
    queries: Sequence[JoinQuery],
    model: CostModel,
    constants: CostConstants | None = None,
) -> Ruleset:
    """``ruleset`` with all profitable look-ahead filters; arguments as for :func:`questions`."""
    return ask(ruleset, questions(ruleset, queries, model, constants))


def ask(ruleset: Ruleset, found: Sequence[LookAheadFilter]) -> Ruleset:
    """Copy of ``ruleset`` with the look-ahead filters ``found`` added."""
    if not found:
        return ruleset
    asked: dict[Edge, list[Presence]] = defaultdict(list)
    for one in found:
        asked[one.edge].append(one.asked)
    probes = (replace(r, ahead=tuple(asked.get(r.out, ()))) for r in ruleset.probe_rules)
    made = replace(ruleset, probe_rules=tuple(probes))
    made.validate()
    return made


def questions_document(ruleset: Ruleset, found: Sequence[LookAheadFilter]) -> list[dict[str, Any]]:
    """Look-ahead filters of ``ruleset`` as JSON, by descending saving (CPU s per unit of time)."""
    rules = {rule.out: rule for rule in ruleset.probe_rules}
    return [
        {
            "start": str(rules[one.edge].start),
            "edge": str(one.edge),
            "probe": str(rules[one.edge].mir),
            "asked": str(one.asked.mir),
            "keys": [f"{part.build} = {part.probe}" for part in one.asked.key],
            "left": one.share,
            "saved": one.saved,
            "price": one.price,
        }
        for one in sorted(found, key=lambda one: (one.price - one.saved, one.edge))
    ]


def questions(
    ruleset: Ruleset,
    queries: Sequence[JoinQuery],
    model: CostModel,
    constants: CostConstants | None = None,
) -> tuple[LookAheadFilter, ...]:
    """Choose the look-ahead filters that save CPU time, along each path of probes.

    Args:
        queries: the queries of ``ruleset``.
        model: estimates probing tuples and the fraction with a match.
        constants: prices, in seconds; None: the defaults.
    """
    if not model.on_one_host:
        return ()
    known = askable(ruleset)
    if not known:
        return ()
    return _FilterChooser(ruleset, queries, model, constants or CostConstants(), known).chosen()


class _FilterChooser:
    def __init__(
        self,
        ruleset: Ruleset,
        queries: Sequence[JoinQuery],
        model: CostModel,
        constants: CostConstants,
        known: dict[Edge, tuple[Presence, ...]],
    ) -> None:
        self.routes, self.subs = Routes(ruleset), SubJoins(queries)
        self.paths = ruleset.paths
        self.model, self.constants, self.known = model, constants, known
        self.users = users_of(self.paths, self.routes, self.subs)
        self.takers = ruleset.takers
        self.heads: dict[Edge, frozenset[Label]] = {}
        for rule in self.paths:
            self.heads[rule.out] = self._head(rule).union(rule.members)

    def chosen(self) -> tuple[LookAheadFilter, ...]:
        """Choose look-ahead filters greedily along each path of probes."""
        found: list[LookAheadFilter] = []
        #: Edge -> fraction of its tuples that earlier filters pass, and the names of these filters.
        left: dict[Edge, float] = {}
        told: dict[Edge, frozenset[object]] = {}
        for rule in self.paths:
            share = left.get(rule.edge, 1.0)
            before = told.get(rule.edge, frozenset())
            options = [p for p in self.known.get(rule.out, ()) if _name(p) not in before]
            while options:
                best = max(
                    (self._question(rule, asked, share) for asked in options),
                    key=lambda one: one.saved - one.price,
                )
                if best.saved <= MARGIN * best.price:
                    break
                found.append(best)
                options.remove(best.asked)
                share *= best.share
                before |= {_name(best.asked)}
            left[rule.out], told[rule.out] = share, before
        return tuple(found)

    def _question(self, rule: ProbeRule, asked: Presence, share: float) -> LookAheadFilter:
        """Saving and cost of the filter ``asked`` before ``rule``, for ``share`` of the tuples."""
        sent = share * self._sent(rule)
        kept = self._present(rule, asked)
        price = self._calls + self._look(asked, sent) + sent * kept * self.constants.match
        saved = (1.0 - kept) * share * self._before(rule, asked)
        return LookAheadFilter(rule.out, asked, kept, saved, price)

    def _before(self, rule: ProbeRule, asked: Presence) -> float:
        """CPU seconds of all probes from ``rule`` to the later probe that ``asked`` anticipates."""
        total, pending = 0.0, [rule]
        while pending:
            step = pending.pop()
            sent = self._sent(step)
            total += self._look(step, sent)
            if _name(step) != _name(asked):
                total += self._over(step, self.heads[step.out]) * self.constants.match
                pending += self.routes.probes.get(step.out, ())
        return total

    @property
    def _calls(self) -> float:
        return self.constants.call * self.constants.calls

    def _look(self, step: ProbeRule | Presence, sent: float) -> float:
        """CPU seconds in which ``sent`` tuples look up a key in the store of ``step``."""
        spec = self.routes.specs[step.store]
        known = any((k.build, k.type) == spec.partition for k in step.key)
        chi = 1 if known else spec.partitions
        return self.constants.step(sent, 0.0, step.mir, chi) - self._calls

    def _present(self, rule: ProbeRule, asked: Presence) -> float:
        """Fraction of ``rule``'s tuples with a match in the store where ``asked`` looks."""
        relation = RelationId(asked.mir)
        if relation not in self.routes.relations:
            return 1.0
        query, head = self.users[rule.out], self._head(rule)
        step = next(r for r in self._behind(rule) if _name(r) == _name(asked))
        before = self.subs.of(query, head)
        after = self.subs.of(query, head.union(step.members))
        names = tuple(sorted({k.build.attribute for k in asked.key}))
        return self.model.present(before, after, relation, names)

    def _behind(self, rule: ProbeRule) -> Iterable[ProbeRule]:
        """All probe rules on the paths that begin with the matches of ``rule``."""
        pending = list(self.routes.probes.get(rule.out, ()))
        while pending:
            step = pending.pop()
            yield step
            pending += self.routes.probes.get(step.out, ())

    def _head(self, rule: ProbeRule) -> frozenset[Label]:
        return self.heads.get(rule.edge, frozenset([rule.start]))

    def _sent(self, rule: ProbeRule) -> float:
        return self._over(rule, self._head(rule))

    def _over(self, rule: ProbeRule, labels: frozenset[Label]) -> float:
        """Partial results over ``labels`` per unit of time, for substreams on the rule's edge."""
        mir = self.subs.of(self.users[rule.out], labels)
        return self.model.probe_of(mir, rule.start, self.takers[rule.out])


def _name(step: ProbeRule | Presence) -> tuple[object, frozenset[tuple[AttrRef, str]]]:
    """Store and stored key attributes of a probe or filter; equal if they look up the same key."""
    return step.store, frozenset((k.build, k.type) for k in step.key)
