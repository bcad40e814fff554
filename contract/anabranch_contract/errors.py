"""Structured, picklable errors, which cross Spark and REST, and the errors of the planner."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Self

#: Maximum characters of a message, field or remedy, which may quote long names and literals.
LONGEST = 4000
#: Maximum number of errors of one input that are reported together.
MOST_ERRORS = 10


class StructuredError(Exception):
    """An error that names field, position and remedy; base of each package's base error.

    Attributes:
        code: stable machine-readable kind of error, e.g. ``"unknown-column"``.
        message: the problem (one sentence, no trailing newline).
        field: the subject, e.g. an input field (``"sql"``, ``"window.o"``), a column or a file; may
            be empty.
        remedy: action by which the user can correct the input.
        position: line and column in the text of ``field``, both from 1; None: no position.
        others: further errors of the same input, which do not follow from this one.
    """

    others: tuple[StructuredError, ...] = ()

    def __init__(
        self,
        code: str,
        message: str,
        *,
        field: str = "",
        remedy: str = "",
        position: tuple[int, int] | None = None,
    ) -> None:
        message, field, remedy = map(_shortened, (message, field, remedy))
        super().__init__(code, message, field, remedy)
        self.code = code
        self.message = message
        self.field = field
        self.remedy = remedy
        self.position = position

    def __reduce__(self) -> tuple[object, ...]:
        own = (type(self), self.code, self.message, self.field, self.remedy, self.position)
        return _rebuild, (*own, self.others)

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        hint = f" ({self.remedy})" if self.remedy else ""
        return f"{where}{self.detail}{hint}"

    @property
    def detail(self) -> str:
        """The message, followed by line and column if there is a position."""
        if self.position is None:
            return self.message
        return f"line {self.position[0]}, column {self.position[1]}: {self.message}"

    def moved(self, *, field: str = "", position: tuple[int, int] | None = None) -> Self:
        """Return a copy with another field or position; omitted arguments stay as they are."""
        other = copy.copy(self)
        other.field = field or self.field
        other.position = position or self.position
        other.others = tuple(one.moved(field=field) for one in self.others)
        other.__cause__ = self.__cause__
        return other

    def beside(self, others: Sequence[StructuredError]) -> Self:
        """Return a copy of the error with further errors of the same input."""
        other = copy.copy(self)
        other.others = tuple(others)
        other.__cause__ = self.__cause__
        return other


class PlannerError(StructuredError):
    """The planner's base error: invalid input."""


class QueryError(PlannerError):
    """A query that can't be planned; other queries are never affected."""


class StreamError(PlannerError):
    """A stream definition that can't be used."""


class StatisticsError(PlannerError):
    """Statistics that are contradictory or impossible, such as a negative rate."""


class RulesetError(PlannerError):
    """A ruleset document that is malformed or of an unknown version."""


def _shortened(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]} ... {text[-(LONGEST // 2 - 5) :]}"


def _rebuild(
    kind: type[StructuredError],
    code: str,
    message: str,
    field: str,
    remedy: str,
    position: tuple[int, int] | None = None,
    others: tuple[StructuredError, ...] = (),
) -> StructuredError:
    made = kind(code, message, field=field, remedy=remedy, position=position)
    made.others = others
    return made
