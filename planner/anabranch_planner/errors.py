"""Errors of the planner: one base, structured fields, picklable (they cross Spark and REST)."""

from __future__ import annotations


class PlannerError(Exception):
    """Bad input to the planner: what is wrong, where, and what to do about it.

    Attributes:
        code: stable machine-readable kind, e.g. ``"unknown-column"``.
        message: what is wrong (one sentence, no trailing newline).
        field: the input field the complaint is about, e.g. ``"sql"`` or ``"window.o"``.
        remedy: what the user can do.
    """

    def __init__(self, code: str, message: str, *, field: str = "", remedy: str = "") -> None:
        super().__init__(code, message, field, remedy)
        self.code = code
        self.message = message
        self.field = field
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.code, self.message, self.field, self.remedy))

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        hint = f" ({self.remedy})" if self.remedy else ""
        return f"{where}{self.message}{hint}"


class QueryError(PlannerError):
    """A query that can't be planned; never affects any other query."""


class StreamError(PlannerError):
    """A stream definition that can't be used."""


class StatisticsError(PlannerError):
    """Statistics that contradict themselves (a negative rate, say)."""


class RulesetError(PlannerError):
    """A ruleset document that is malformed or of an unknown version."""


def _rebuild(
    kind: type[PlannerError], code: str, message: str, field: str, remedy: str
) -> PlannerError:
    return kind(code, message, field=field, remedy=remedy)
