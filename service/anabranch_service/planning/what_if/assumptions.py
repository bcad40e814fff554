"""Assumed statistics of a dry run, which override measured ones.

An assumption names a relation (a stream with a filter), or a stream, meaning all its relations.
Only columns that the queries join on are accepted, so that a misspelt name is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from anabranch_contract.queries.joins import AttrRef, Equality, JoinQuery, Label, RelationId
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_service.errors import InvalidInput

#: Maximum number of names listed in a remedy.
MAX_NAMES = 20


class Names:
    """User-facing names of the relations, streams and join attributes of some queries."""

    def __init__(self, queries: Sequence[JoinQuery]) -> None:
        self.stream_of: dict[RelationId, str] = {
            r.id: r.stream for q in queries for r in q.relations
        }
        self._columns: dict[RelationId, set[str]] = {}
        self._equalities: set[tuple[AttrRef, AttrRef]] = set()
        relation_of: dict[Label, RelationId] = {
            m.label: m.relation for q in queries for m in q.members
        }
        for query in queries:
            for key_class in query.classes:
                for member in key_class.members:
                    relation = relation_of[member.label]
                    self._columns.setdefault(relation, set()).add(member.attribute)
                self._equalities |= {
                    (one, other)
                    for one in key_class.members
                    for other in key_class.members
                    if one < other and one.label != other.label
                }
        self._relation_of = relation_of

    def require(self, name: str, where: str) -> None:
        """Refuse a name that is neither a relation nor a stream of the queries.

        Raises:
            InvalidInput: with ``where`` as the field of the request.
        """
        known = {*self.stream_of, *self.stream_of.values()}
        if name not in known:
            raise _unknown(f"no query reads a relation {name!r}", where, known)

    def columns(self, text: str, where: str) -> dict[RelationId, tuple[str, ...]]:
        """Parse ``name.column`` or ``name.column,column``; returns relation -> sorted columns."""
        found = {}
        for relation, known in self._columns.items():
            for name in (relation, self.stream_of[relation]):
                if not text.startswith(f"{name}."):
                    continue
                rest = text[len(name) + 1 :]
                parts = (rest,) if rest in known else tuple(p.strip() for p in rest.split(","))
                if known.issuperset(parts) and len(set(parts)) == len(parts):
                    found[relation] = tuple(sorted(parts))
        if not found:
            raise _unknown(
                f"no join compares {text!r}",
                where,
                {f"{self.stream_of[r]}.{c}" for r, known in self._columns.items() for c in known},
            )
        return found

    def equalities(self, text: str, where: str) -> list[Equality]:
        """Parse ``name.column = name.column``; returns the matching join predicates of queries."""
        wanted = {frozenset(side.strip() for side in text.split("=", 1))}
        found = [
            Equality(*pair) for pair in sorted(self._equalities) if wanted & self._spellings(*pair)
        ]
        if not found:
            raise _unknown(
                f"no query joins on {text!r}",
                where,
                {
                    " = ".join(sorted(self._spell(side, self._streams(side)) for side in pair))
                    for pair in self._equalities
                },
            )
        return found

    def _spellings(self, one: AttrRef, other: AttrRef) -> set[frozenset[str]]:
        return {
            frozenset({self._spell(one, a), self._spell(other, b)})
            for a in (self._relation_of[one.label], self._streams(one))
            for b in (self._relation_of[other.label], self._streams(other))
        }

    def _streams(self, attribute: AttrRef) -> str:
        return self.stream_of[self._relation_of[attribute.label]]

    @staticmethod
    def _spell(attribute: AttrRef, name: str) -> str:
        return f"{name}.{attribute.attribute}"


def assume(
    base: Statistics,
    names: Names,
    cardinality: Mapping[str, float],
    distinct: Mapping[str, float],
    selectivity: Mapping[str, float],
) -> Statistics:
    """Override ``base`` with the assumptions of a request.

    Raises:
        InvalidInput: a name that no query reads or joins on, or contradictory values; the error
            names the wrong entry.
    """
    for name in cardinality:
        names.require(name, f"statistics.{name}")
    distincts: dict[tuple[RelationId, str], float] = {}
    for text, count in distinct.items():
        where = f"distinct.{text}"
        for relation, columns in names.columns(text, where).items():
            size = cardinality.get(relation, cardinality.get(names.stream_of[relation]))
            if size is not None and count > size:
                raise InvalidInput(
                    "contradictory-statistics",
                    f"{relation} can't have {count:g} distinct values in {size:g} tuples",
                    field=where,
                    remedy="state at most as many distinct values as tuples",
                )
            distincts[relation, ",".join(columns)] = count
    selectivities: dict[Equality, float] = {}
    for text, value in selectivity.items():
        for equality in names.equalities(text, f"selectivity.{text}"):
            selectivities[equality] = value
    stated = {
        relation: cardinality[stream]
        for relation, stream in names.stream_of.items()
        if stream in cardinality
    }
    stated |= {RelationId(name): count for name, count in cardinality.items()}
    # Samples would override assumed selectivities; assumed cardinalities cover the whole history.
    return replace(
        base,
        cardinalities={**base.cardinalities, **stated},
        distincts={**base.distincts, **distincts},
        selectivities={**base.selectivities, **selectivities},
        samples=() if selectivities else base.samples,
        ahead=None if cardinality else base.ahead,
    )


def _unknown(message: str, where: str, known: Iterable[str]) -> InvalidInput:
    names = sorted(set(known))
    listed = ", ".join(names[:MAX_NAMES]) or "nothing: no queries"
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return InvalidInput("unknown-relation", message, field=where, remedy=f"there is {listed}{more}")
