"""Join keys: equalities merged into key classes by union-find; expressions become attributes.

Attributes are (alias, text): a column's name, or the text of an expression over one alias. Only
attributes of one type family share a class, so equality within a class is transitive. (An exact
number compared with a float is cast to double.)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import DOUBLE, MAX_PRECISION, integer_digits
from anabranch_contract.queries.expressions import Column, Expr, substitute
from anabranch_contract.queries.types import EXACT, FLOATING, TypeKind, key_type
from anabranch_planner.binding.literals import coerce
from anabranch_planner.binding.typecheck import aliases, compare

#: An attribute of a join key before labels are assigned: (alias, text of a column or expression).
Attribute: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a join equality: an alias, and an expression over its columns."""

    alias: str
    expr: Expr

    @property
    def attribute(self) -> Attribute:
        """The join attribute of this side: alias, and text of the expression."""
        return self.alias, str(self.expr)


@dataclass(frozen=True, slots=True)
class Class:
    """A key class: sides that a query makes equal, and the type in which they are compared."""

    type: str
    sides: tuple[Side, ...]

    @property
    def aliases(self) -> frozenset[str]:
        """The aliases that the class relates."""
        return frozenset(s.alias for s in self.sides)


def key_sides(left: Expr, right: Expr) -> tuple[Side, Side] | None:
    """``left = right`` as an equality of two attributes; None if it has another form.

    Each side must read exactly one alias (both may read the same one).

    Raises:
        QueryError: ``type-mismatch``.
    """
    over = aliases(left), aliases(right)
    if len(over[0]) != 1 or len(over[1]) != 1:
        return None
    kinds = {left.type.kind, right.type.kind}
    if kinds <= EXACT | FLOATING and kinds & EXACT and kinds & FLOATING:
        left = coerce(left, DOUBLE) if left.type.kind in EXACT else left
        right = coerce(right, DOUBLE) if right.type.kind in EXACT else right
    elif key_type([left.type, right.type]) is None:
        compare("eq", left, right)
        return None
    a, b = Side(min(over[0]), _stripped(left)), Side(min(over[1]), _stripped(right))
    return None if a.attribute == b.attribute else (a, b)


def classes_of(equalities: Iterable[tuple[Side, Side]]) -> tuple[Class, ...]:
    """The equalities of a query as key classes, closed transitively, in a canonical order.

    Raises:
        QueryError: ``unsupported-key-types``: no decimal(38,s) can hold all of a class's numbers.
    """
    sides: dict[Attribute, Side] = {}
    parent: dict[Attribute, Attribute] = {}

    def find(attribute: Attribute) -> Attribute:
        while parent[attribute] != attribute:
            parent[attribute] = parent[parent[attribute]]
            attribute = parent[attribute]
        return attribute

    for pair in equalities:
        for side in pair:
            sides[side.attribute] = side
            parent.setdefault(side.attribute, side.attribute)
        parent[find(pair[0].attribute)] = find(pair[1].attribute)
    groups: dict[Attribute, list[Side]] = {}
    for attribute in sorted(sides):
        groups.setdefault(find(attribute), []).append(sides[attribute])
    found = [Class(_common_type(group), tuple(group)) for group in groups.values()]
    return tuple(sorted(found, key=lambda c: [s.attribute for s in c.sides]))


def local_filters(key_class: Class) -> Mapping[str, list[Expr]]:
    """Alias -> conditions that all of its attributes in ``key_class`` are equal."""
    by_alias: dict[str, list[Expr]] = {}
    for side in key_class.sides:
        by_alias.setdefault(side.alias, []).append(side.expr)
    return {
        alias: [compare("eq", a, b) for a, b in itertools.pairwise(exprs)]
        for alias, exprs in by_alias.items()
        if len(exprs) > 1
    }


def relabelled(key_class: Class, labels: Mapping[str, str]) -> Class:
    """``key_class`` with canonical labels instead of the user's aliases."""
    sides = [replace(s, alias=labels[s.alias]) for s in key_class.sides]
    return Class(key_class.type, tuple(sorted(sides, key=lambda s: s.attribute)))


def _stripped(expr: Expr) -> Expr:
    return substitute(expr, lambda c: Column("", c.name, c.type))


def _common_type(sides: Sequence[Side]) -> str:
    types = [s.expr.type for s in sides]
    listed = ", ".join(f"{s.alias}.{s.expr} ({s.expr.type})" for s in sides)
    common = key_type(types)
    if common is None:
        raise QueryError(
            "type-mismatch",
            f"the join keys {listed} have no common type",
            remedy="cast them to one type",
        )
    if any(t.kind is TypeKind.DECIMAL for t in types):
        digits = max(map(integer_digits, types)) + max(t.scale for t in types)
        if digits > MAX_PRECISION:
            raise QueryError(
                "unsupported-key-types",
                f"comparing the join keys {listed} exactly takes {digits} digits,"
                f" {MAX_PRECISION} is the limit",
                remedy="cast them to one decimal type, e.g. CAST(x AS DECIMAL(38,6))",
            )
    return common
