"""Columns that a store of an intermediate result keeps for its readers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch_contract.queries.expressions import Expr, columns
from anabranch_contract.queries.joins import (
    AttrRef,
    JoinQuery,
    KeyClass,
    Label,
    RelationId,
    StreamName,
    needed_columns,
)
from anabranch_contract.queries.mirs import Mir

#: An alias within an intermediate result, and a column of its stream that the store keeps.
Kept = tuple["Label", str]


def read_by_query(
    query: JoinQuery,
    mir: Mir,
    stream_of: Mapping[RelationId, StreamName],
    derived: Mapping[tuple[StreamName, str], Expr],
) -> set[Kept]:
    """Columns of the sub-join ``mir`` that ``query`` outputs, filters on, or joins by later."""
    found = {(label, c) for label in mir.members for c in needed_columns(query, label)}
    return found | behind(joined_outside(query.classes, mir), mir, stream_of, derived)


def joined_outside(classes: Iterable[KeyClass], mir: Mir) -> set[AttrRef]:
    """Attributes of ``mir``'s relations that ``classes`` equate with relations outside ``mir``."""
    members = frozenset(mir.members)
    found: set[AttrRef] = set()
    for key_class in classes:
        if not {m.label for m in key_class.members} <= members:
            found.update(key_class.restrict(members))
    return found


def behind(
    refs: Iterable[AttrRef],
    mir: Mir,
    stream_of: Mapping[RelationId, StreamName],
    derived: Mapping[tuple[StreamName, str], Expr],
) -> set[Kept]:
    """Stream columns from which the join attributes ``refs`` of ``mir`` are computed."""
    relation_of = dict(zip(mir.members, mir.relations, strict=True))
    found: set[Kept] = set()
    for ref in refs:
        made = derived.get((stream_of[relation_of[ref.label]], ref.attribute))
        names = [ref.attribute] if made is None else [c.name for c in columns(made)]
        found |= {(ref.label, name) for name in names}
    return found
