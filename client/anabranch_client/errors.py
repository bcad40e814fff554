"""Errors of the client, with one base class; each kind has an exit code of the CLI.

| code | when |
|---|---|
| 0 | success |
| 1 | refused, failed, or a check found problems |
| 2 | an argument or an input file can't be used; nothing has been started or changed |
| 130 | interrupted |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

E = TypeVar("E", bound="ClientError")


class ClientError(Exception):
    """An error for the user: problem, place and remedy.

    Attributes:
        message: the problem, as one sentence.
        field: the faulty input field, e.g. ``"queries.q1.window"``.
        remedy: what the user can do.
        exit_code: exit code of the CLI.
        further: more errors of the same kind; the CLI prints a line for each.
        excerpt: the line of a statement with the error marked; empty for other errors.
    """

    exit_code = 1

    def __init__(self, message: str, *, field: str = "", remedy: str = "") -> None:
        super().__init__(message, field, remedy)
        self.message = message
        self.field = field
        self.remedy = remedy
        self.further: tuple[ClientError, ...] = ()
        self.excerpt = ""

    def __str__(self) -> str:
        """The error as one line; line breaks in its parts become spaces."""
        where = f"{self.field}: " if self.field else ""
        hint = f" ({self.remedy})" if self.remedy else ""
        return " ".join(f"{where}{self.message}{hint}".split())


def all_of(errors: Sequence[E]) -> E:
    """The first of one or more errors, with the others as its ``further`` errors."""
    first, *others = errors
    first.further = tuple(others)
    return first


class UsageError(ClientError):
    """An argument or an input file that can't be used; nothing has been started."""

    exit_code = 2


class ScenarioError(UsageError):
    """A scenario file that can't be used."""


class RefusedError(ClientError):
    """Input that the service would refuse."""


class ProcessError(ClientError):
    """A process that did not start, died, or stopped making progress."""


class ApiError(ClientError):
    """The service refused a request, or could not be reached.

    Attributes:
        status: the HTTP status; 0 without an answer.
        problem: the problem-details document (RFC 9457) as the service sent it.
    """

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        message = str(problem.get("detail") or problem.get("title") or f"HTTP status {status}")
        errors = problem.get("errors") or [{}]
        field = str(errors[0].get("field") or "")
        super().__init__(
            message.removeprefix(f"{field}: ") if field else message,
            field=field,
            remedy=str(problem.get("remedy") or ""),
        )
        self.args = (status, problem)
        self.status = status
        self.problem = problem

    @property
    def position(self) -> tuple[int, int] | None:
        """Line and column in the text of ``field``, from 1; None without a position."""
        first = (self.problem.get("errors") or [{}])[0]
        line, column = first.get("line"), first.get("column")
        return (line, column) if isinstance(line, int) and isinstance(column, int) else None

    @property
    def code(self) -> str:
        """The stable, machine-readable code of the problem; empty if the service gave none."""
        return str(self.problem.get("code") or "")
