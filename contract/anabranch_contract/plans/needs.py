"""Columns that partial results must carry from probe to probe, because later steps read them.

A partial result is sent to another host by value. It carries only the columns of its members that a
later probe, condition, projection or store reads. Event times, and arrival numbers (``#sigma``) of
members that did not arrive last, are sent only if a later step reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from anabranch_contract.plans.routes import Routes
from anabranch_contract.plans.ruleset import KeyPart, OutputRule, ProbeRule, StoreSpec, TimeBound
from anabranch_contract.queries.expressions import Expr, columns, read_by
from anabranch_contract.queries.joins import ARRIVAL, Label, StreamName


@dataclass(frozen=True, slots=True)
class Needed:
    """The columns of a partial result's members that later steps of a ruleset read.

    Attributes:
        columns: (label, stream column) pairs.
        sigmas, taus: labels whose arrival number, or event time, later steps read.
        starts: columns that are read only if their label is that of the tuple that arrived last.
        alike: columns that are read only if their label's stream is that of the last-arrived tuple.
    """

    columns: frozenset[tuple[Label, str]] = frozenset()
    sigmas: frozenset[Label] = frozenset()
    taus: frozenset[Label] = frozenset()
    starts: frozenset[tuple[Label, str]] = frozenset()
    alike: frozenset[tuple[Label, str]] = frozenset()

    def columns_of(
        self, start: Label, stream: Callable[[Label], StreamName]
    ) -> frozenset[tuple[Label, str]]:
        """Return the columns to send with partial results that are completed by tuples of
        ``start``.

        Args:
            stream: function from a label to its stream.
        """
        own = {one for one in self.starts if one[0] == start}
        own |= {one for one in self.alike if stream(one[0]) == stream(start)}
        return self.columns | own

    def __or__(self, other: Needed) -> Needed:
        return Needed(
            self.columns | other.columns,
            self.sigmas | other.sigmas,
            self.taus | other.taus,
            self.starts | other.starts,
            self.alike | other.alike,
        )


@dataclass(slots=True)
class Needs:
    """Columns that partial results must carry on each edge of a ruleset.

    Attributes:
        routes: the ruleset's rules.
        visible: query -> labels whose tuples are visible to it only from a batch or event time on.
        always: columns needed in every partial result (for rations, or for withheld results).
        ranked: query -> columns whose hash decides, under load shedding, which tuples probe.
    """

    routes: Routes
    visible: Mapping[str, Collection[str]] = field(default_factory=dict)
    always: Needed = field(default_factory=Needed)
    ranked: Mapping[str, frozenset[tuple[Label, str]]] = field(default_factory=dict)
    _edges: dict[str, Needed] = field(default_factory=dict)

    def alike(self, other: Needs) -> bool:
        """Whether ``other``, made for the same ruleset, requires the same columns on every edge."""
        mine = self.visible, self.always, self.ranked
        return mine == (other.visible, other.always, other.ranked)

    def edge(self, edge: str) -> Needed:
        """Return the columns that the rules on ``edge`` and later rules read."""
        found = self._edges.get(edge)
        if found is None:
            found = self.always
            for spec in self.routes.inserts.get(edge, ()):
                found |= _stored(spec)
            for output in self.routes.outputs.get(edge, ()):
                found |= self.output(output)
            for rule in self.routes.probes.get(edge, ()):
                found |= self.probe(rule)
            self._edges[edge] = found
        return found

    def keep(self, edge: str, spec: StoreSpec) -> None:
        """Declare that ``edge``, which has no rule, needs all columns of store ``spec``."""
        self._edges[edge] = self.always | _stored(spec)

    def probe(self, rule: ProbeRule) -> Needed:
        """Return the columns that the probe of ``rule`` and later rules read."""
        own = self._probed(rule.key) | _timed(rule.bounds) | _read(rule.residuals)
        if rule.fill:
            own |= self.fill(rule, 0)
        return own | self.edge(rule.out)

    def fill(self, rule: ProbeRule, at: int) -> Needed:
        """Return the columns that the base probes ``rule.fill[at:]``, and later rules, read."""
        found = Needed(sigmas=frozenset(rule.members)) | _timed(rule.bounds) | _read(rule.residuals)
        for step in rule.fill[at:]:
            found |= self._probed(step.key) | _timed(step.bounds)
        return found | self.edge(rule.out)

    def output(self, rule: OutputRule) -> Needed:
        """Return the columns that a query's output rule reads."""
        query = self.routes.queries[rule.query]
        read = read_by(query.projection, query.expansions)
        own = frozenset((Label(c.alias), c.name) for c in read if c.name != ARRIVAL)
        found = Needed(own) | _read(rule.residuals)
        limited = frozenset(Label(name) for name in self.visible.get(rule.query, ()))
        aged = frozenset(label for label, _ in query.freshness)
        found |= _timed(rule.bounds) | Needed(sigmas=limited, taus=limited | aged)
        found |= Needed(alike=self.ranked.get(rule.query, frozenset()))
        labels = frozenset(label for _, label, _ in query.members)
        if query.has_outer_join:
            found |= Needed(sigmas=labels)
        for label in labels:
            stream = self.routes.stream(label)
            kept = self.routes.latest.get(stream)
            if kept is not None and self.routes.has_superseded(query, label):
                keys = frozenset((label, column) for column, _ in kept.key)
                found |= Needed(keys, frozenset([label]), frozenset([label]))
        return found

    def _probed(self, key: Iterable[KeyPart]) -> Needed:
        """Return the columns of a partial result that the join key of a probe reads."""
        found: set[tuple[Label, str]] = set()
        for part in key:
            label, name = part.probe.label, part.probe.attribute
            derived = self.routes.derived(label, name)
            names = [name] if derived is None else [c.name for c in columns(derived)]
            found.update((label, n) for n in names)
        return Needed(frozenset(found))


def _stored(spec: StoreSpec) -> Needed:
    members = frozenset(spec.members)
    return Needed(frozenset(spec.columns), members, members)


def _timed(bounds: Iterable[TimeBound]) -> Needed:
    return Needed(taus=frozenset(label for b in bounds for label in (b.earlier, b.later)))


def _read(expressions: Iterable[Expr]) -> Needed:
    return Needed(
        frozenset((Label(c.alias), c.name) for expr in expressions for c in columns(expr))
    )
