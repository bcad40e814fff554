"""Names to columns: aliases and columns are case-insensitive, as in Spark.

A scope also knows the *visible* columns: those that ``*`` stands for and that an unqualified name
may mean. ``JOIN ... USING (k)`` moves the left ``k`` to the front and hides the right one.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from anabranch_planner.errors import QueryError
from anabranch_planner.expr import Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from anabranch_planner.model import Stream


def nearest(name: str, known: Iterable[str]) -> str:
    """A remedy: what ``name`` was probably meant to be, else what there is."""
    listed = sorted(set(known), key=lambda name: (name.lower(), name))
    lowered = {k.lower(): k for k in listed}
    close = difflib.get_close_matches(name.lower(), list(lowered), n=1)
    if close:
        return f"did you mean {lowered[close[0]]!r}?"
    return f"known: {', '.join(listed)}" if listed else "there are none"


def find_stream(name: str, streams: Mapping[str, Stream]) -> Stream:
    """The stream called ``name``, by exact spelling first and any case second.

    Raises:
        QueryError: ``unknown-stream``.
    """
    if name in streams:
        return streams[name]
    found = [s for key, s in sorted(streams.items()) if key.lower() == name.lower()]
    if len(found) != 1:
        raise QueryError(
            "unknown-stream",
            f"there is no stream {name!r}"
            if not found
            else f"{name!r} may mean {' or '.join(repr(str(s.name)) for s in found)}",
            remedy=nearest(name, streams) if not found else "spell it exactly",
        )
    return found[0]


@dataclass(frozen=True, slots=True)
class Scope:
    """The aliases joined so far, in order, and the columns that they show."""

    streams: Mapping[str, Stream] = field(default_factory=dict)
    visible: tuple[Column, ...] = ()

    def joined(self, alias: str, stream: Stream, hidden: Iterable[str] = ()) -> Scope:
        """This scope with one more alias; ``hidden`` are the names of its USING columns.

        Raises:
            QueryError: ``duplicate-alias``, or an unknown or ambiguous USING column.
        """
        if self.find_alias(alias) is not None:
            raise QueryError(
                "duplicate-alias",
                f"alias {alias!r} occurs twice in FROM",
                remedy="give each occurrence an alias of its own: orders AS o2",
            )
        merged = [self.column(name) for name in hidden]
        names = {name.lower() for name in hidden}
        added = [Column(alias, name, kind) for name, kind in stream.columns]
        return replace(
            self,
            streams={**self.streams, alias: stream},
            visible=(
                *merged,
                *(c for c in self.visible if c not in merged),
                *(c for c in added if c.name.lower() not in names),
            ),
        )

    def find_alias(self, name: str) -> str | None:
        """The alias that ``name`` means, as declared; None if there is none."""
        return next((a for a in self.streams if a.lower() == name.lower()), None)

    def alias(self, name: str) -> str:
        """The alias that ``name`` means, as declared.

        Raises:
            QueryError: ``unknown-alias``.
        """
        found = self.find_alias(name)
        if found is None:
            raise QueryError(
                "unknown-alias", f"there is no alias {name!r}", remedy=nearest(name, self.streams)
            )
        return found

    def columns_of(self, alias: str) -> tuple[Column, ...]:
        """Every column of ``alias`` in declared order."""
        return tuple(Column(alias, name, kind) for name, kind in self.streams[alias].columns)

    def column(self, name: str, qualifier: str = "") -> Column:
        """The column that a (possibly qualified) name means.

        Raises:
            QueryError: ``unknown-alias``, ``unknown-column`` or ``ambiguous-column``.
        """
        if qualifier:
            alias = self.alias(qualifier)
            candidates = self.columns_of(alias)
            where = f"stream {str(self.streams[alias].name)!r} (alias {alias!r})"
        else:
            candidates = self.visible
            where = "any of the joined streams"
        found = [c for c in candidates if c.name.lower() == name.lower()]
        if not found:
            raise QueryError(
                "unknown-column",
                f"there is no column {name!r} in {where}",
                remedy=nearest(name, (c.name for c in candidates)),
            )
        if len(found) > 1:
            meant = " or ".join(str(c) for c in found)
            raise QueryError(
                "ambiguous-column",
                f"column {name!r} is ambiguous: it may mean {meant}",
                remedy="put the alias in front of it",
            )
        return found[0]
