"""Oracle of retention: event times from which rows are needed, for every query and member."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from anabranch_contract.plans.ruleset import QuerySpec, Ruleset
from anabranch_contract.queries.joins import Relation
from anabranch_runtime.epochs.lifecycle import serves
from anabranch_runtime.epochs.retention import Limits, clocks
from anabranch_runtime.state.manifest import State, StoreState


def thresholds(state: State, ruleset: Ruleset, store: StoreState) -> Limits:
    """Return, per member of ``store``, the event time below which no reader needs its rows."""
    limits = horizons(ruleset, clocks(state), state.debt.past)
    return _readers(ruleset, limits).thresholds(store)


def horizons(
    ruleset: Ruleset, marks: Mapping[str, int], past: Collection[str] = ()
) -> dict[tuple[str, str], int | None]:
    """Return (query, label) -> event time below which its tuples are not needed; None: none are
    needed.

    Args:
        past: queries with pending past results, which need all tuples that they see.
    """
    streams = {r.id: r.stream for r in ruleset.relations}
    found: dict[tuple[str, str], int | None] = {}
    for query in _joins(ruleset):
        for i, (_, label, _) in enumerate(query.members):
            limits: list[int | None] = []
            for j, (_, _, other) in enumerate(query.members):
                if i == j:
                    continue
                mark, bound = marks.get(streams[other]), query.retention[i][j]
                limits.append(None if mark is None or bound is None else mark - bound)
            finite = [x for x in limits if x is not None]
            known = len(finite) == len(limits) and query.id not in past
            found[query.id, label] = min(finite) if known else None
    return found


def _joins(ruleset: Ruleset) -> list[QuerySpec]:
    """Return the queries that need stored rows; rows of a single stream are results at once."""
    return [query for query in ruleset.queries if len(query.members) > 1]


@dataclass(frozen=True, slots=True)
class _Readers:
    """Event times from which readers need rows (None: all rows).

    Attributes:
        relations: each relation with the needs of the labels over it.
        queries: set of labels -> label -> needs of the queries with exactly these labels.
    """

    relations: tuple[tuple[Relation, tuple[int | None, ...]], ...]
    queries: dict[frozenset[str], dict[str, list[int | None]]]

    def thresholds(self, store: StoreState) -> Limits:
        """Return, per member of ``store``, the event time below which no reader needs rows."""
        if store.is_base:
            served = (limits for r, limits in self.relations if serves(store, r))
            return (_least(itertools.chain.from_iterable(served)),)
        members = store.spec.members
        wanted = frozenset(members)
        users = [needs for labels, needs in self.queries.items() if wanted <= labels]
        return tuple(_least(itertools.chain.from_iterable(n[m] for n in users)) for m in members)


def _readers(ruleset: Ruleset, limits: Mapping[tuple[str, str], int | None]) -> _Readers:
    relations: dict[str, list[int | None]] = {r.id: [] for r in ruleset.relations}
    queries: dict[frozenset[str], dict[str, list[int | None]]] = {}
    for query in _joins(ruleset):
        labels = frozenset(label for _, label, _ in query.members)
        needs = queries.setdefault(labels, {label: [] for label in labels})
        for _, label, relation in query.members:
            relations[relation].append(limits[query.id, label])
            needs[label].append(limits[query.id, label])
    return _Readers(tuple((r, tuple(relations[r.id])) for r in ruleset.relations), queries)


def _least(limits: Iterable[int | None]) -> int | None:
    """Return the smallest limit; None if any is None (all rows), or there are no readers."""
    known = list(limits)
    finite = [x for x in known if x is not None]
    return min(finite) if finite and len(finite) == len(known) else None
