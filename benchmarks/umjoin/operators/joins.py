"""Definition of a multi-way equi-join: inputs, equalities, bounds between event times.

>>> join = Join(
...     (
...         Input("r", pa.schema([("a", pa.int32())])),
...         Input("s", pa.schema([("a", pa.int64()), ("b", pa.string())])),
...         Input("t", pa.schema([("b", pa.string())])),
...     ),
...     (Equality(("r", "a"), ("s", "a")), Equality(("s", "b"), ("t", "b"))),
... )
>>> [(c.type, sorted(c.members)) for c in join.classes]
[('bigint', [('r', 'a'), ('s', 'a')]), ('string', [('s', 'b'), ('t', 'b')])]
>>> [(part.known, part.column) for part in join.key({"r"}, "s")]
[(('r', 'a'), 'a')]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa

from anabranch_contract.queries.types import key_type
from anabranch_runtime.columns.arrow_types import spark_type
from anabranch_runtime.errors import ArrowTypeError, PipelineError

#: Attribute of a join: (input, column).
Attribute: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a join; ``event_time``: its timestamp column, if event times matter."""

    name: str
    columns: pa.Schema
    event_time: str | None = None


@dataclass(frozen=True, slots=True)
class Equality:
    """Two attributes that are equal in every result."""

    left: Attribute
    right: Attribute


@dataclass(frozen=True, slots=True)
class TimeBound:
    """In every result the event time of ``later`` is at most ``most`` microseconds after that of
    ``earlier`` (and may be before it).
    """

    earlier: str
    later: str
    most: int


@dataclass(frozen=True, slots=True)
class KeyClass:
    """Attributes that are equal in every result, and the type in which they are compared."""

    type: str
    members: frozenset[Attribute]


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A part of a probe's key: an attribute of the tuple, and the column that must equal it."""

    known: Attribute
    column: str
    type: str


@dataclass(frozen=True)
class Join:
    """A multi-way join; equalities connect every input with every other one."""

    inputs: tuple[Input, ...]
    equalities: tuple[Equality, ...]
    bounds: tuple[TimeBound, ...] = ()
    #: Name -> input.
    by_name: Mapping[str, Input] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Raises:
        PipelineError: ``bad-join``: a name is unknown, types can't be compared, or an input is not
            joined.
        """
        object.__setattr__(self, "by_name", {i.name: i for i in self.inputs})
        if len(self.by_name) < len(self.inputs) or len(self.inputs) < 2:
            raise _bad("inputs", "a join needs two inputs at least, each with a name of its own")
        for equality in self.equalities:
            for name, column in (equality.left, equality.right):
                if name not in self.by_name or column not in self.by_name[name].columns.names:
                    raise _bad(f"{name}.{column}", f"there is no column {name}.{column}")
        for bound in self.bounds:
            for name in (bound.earlier, bound.later):
                if name not in self.by_name or self.by_name[name].event_time is None:
                    raise _bad(name, f"a bound needs an event time of {name!r}")
        for one in self.inputs:
            if one.event_time is not None and (
                one.event_time not in one.columns.names
                or not pa.types.is_timestamp(one.columns.field(one.event_time).type)
            ):
                raise _bad(one.name, f"{one.event_time!r} is not a column of timestamps")
        reached = {self.inputs[0].name}
        while more := {n for n in self.by_name if n not in reached and self.key(reached, n)}:
            reached |= more
        if missing := sorted(self.by_name.keys() - reached):
            raise _bad(missing[0], f"no equality joins {missing[0]!r} with the others")

    @cached_property
    def classes(self) -> tuple[KeyClass, ...]:
        """The key classes: the equalities, closed under transitivity."""
        groups: list[set[Attribute]] = []
        for equality in self.equalities:
            both = {equality.left, equality.right}
            joined = [g for g in groups if g & both]
            groups = [g for g in groups if not g & both] + [both.union(*joined)]
        found = []
        for group in sorted(groups, key=sorted):
            types = {a: self.by_name[a[0]].columns.field(a[1]).type for a in group}
            try:
                kind = key_type(spark_type(t) for t in types.values())
            except ArrowTypeError as error:
                raise _bad("equalities", str(error)) from error
            if kind is None:
                told = ", ".join(f"{n}.{c} is {types[n, c]}" for n, c in sorted(group))
                raise _bad("equalities", f"columns of these types can't be compared: {told}")
            found.append(KeyClass(kind, frozenset(group)))
        return tuple(found)

    @cached_property
    def limits(self) -> Mapping[tuple[str, str], int]:
        """(earlier, later) -> greatest difference of event times in microseconds, over
        all bounds.
        """
        found: dict[tuple[str, str], int] = {(n, n): 0 for n in self.by_name}
        for bound in self.bounds:
            pair = bound.earlier, bound.later
            found[pair] = min(bound.most, found.get(pair, bound.most))
        for middle in self.by_name:
            for a in self.by_name:
                for b in self.by_name:
                    if (a, middle) in found and (middle, b) in found:
                        through = found[a, middle] + found[middle, b]
                        found[a, b] = min(through, found.get((a, b), through))
        return found

    def key(self, known: Collection[str], target: str) -> tuple[KeyPart, ...]:
        """Return the key by which tuples over the ``known`` inputs probe ``target``; empty if no
        equality joins them directly.
        """
        return self.key_of(known, {target})

    def key_of(self, known: Collection[str], targets: Collection[str]) -> tuple[KeyPart, ...]:
        """Return the key for a table over several inputs, with columns ``<input>.<column>``."""
        parts = []
        for one in self.classes:
            mine = sorted(a for a in one.members if a[0] in known)
            theirs = sorted(a for a in one.members if a[0] in targets)
            if mine:
                plain = len(targets) == 1
                parts += [KeyPart(mine[0], c if plain else f"{n}.{c}", one.type) for n, c in theirs]
        return tuple(parts)

    def own_equalities(self, name: str) -> list[tuple[str, str, str]]:
        """Yield the columns of one input that must be equal to each other: left, right, type."""
        found = []
        for one in self.classes:
            columns = sorted(c for n, c in one.members if n == name)
            found += [(columns[0], other, one.type) for other in columns[1:]]
        return found

    def needed_from(self, name: str, watermarks: Mapping[str, int]) -> int | None:
        """Return the least event time of tuples of ``name`` that may be in future results.

        A future result has a tuple of another input that has not arrived yet, so its event time is
        not below that input's watermark. None: every tuple may be in one.

        Args:
            name: an input with event time.
            watermarks: input -> event time in microseconds below which no more tuples will arrive.
        """
        limits = []
        for other in self.by_name:
            if other != name:
                if other not in watermarks or (name, other) not in self.limits:
                    return None
                limits.append(watermarks[other] - self.limits[name, other])
        return min(limits)


def _bad(field_: str, message: str) -> PipelineError:
    return PipelineError("bad-join", message, field=field_, remedy="correct the join")
