"""Reading the fields of a problem file: a reader checks one kind of value and names the field."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TypeVar

from anabranch_contract.durations import parse_duration
from anabranch_contract.errors import PlannerError
from anabranch_planner.sql.scope import nearest

#: Names of streams, aliases and columns.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
#: Ids of queries.
QUERY_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
#: More than any stream has, and few enough that the product over twenty relations is a number.
MOST = 1e15
_E = TypeVar("_E", bound=StrEnum)


class ProblemError(PlannerError):
    """A problem file that can't be used."""


def refused(message: str, at: str, remedy: str) -> ProblemError:
    """The error that ``message`` is true of the field ``at``."""
    return ProblemError("malformed-problem", message, field=at, remedy=remedy)


@contextmanager
def within(at: str) -> Iterator[None]:
    """Report errors raised inside as errors of the field ``at``.

    >>> from anabranch_contract.errors import QueryError
    >>> with within("queries.q1"):
    ...     raise QueryError("unknown-alias", "there is no alias 'X'", field="predicates[0]")
    Traceback (most recent call last):
    anabranch_planner.documents.fields.ProblemError: queries.q1.predicates[0]: there is no \
alias 'X'
    """
    try:
        yield
    except RecursionError as cause:
        raise refused("the condition is nested too deeply", at, "use fewer parentheses") from cause
    except PlannerError as cause:
        where = ".".join(part for part in (at, cause.field) if part)
        raise ProblemError(cause.code, cause.detail, field=where, remedy=cause.remedy) from cause


def shown(value: Any) -> str:
    """``value`` for an error message: one short line.

    >>> shown("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def mapping(
    value: Any, at: str, keys: Sequence[str] | None, remedy: str = "write key: value pairs"
) -> Mapping[str, Any]:
    """A mapping (nothing is an empty one) whose keys are among ``keys``; None: any text."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise refused(f"expected a mapping, found {shown(value)}", at, remedy)
    for key in value:
        if not isinstance(key, str):
            raise refused(f"the key {shown(key)} is no text", at, "put it in quotes")
        if keys is not None and key not in keys:
            raise refused("there is no such field", f"{at}.{key}".lstrip("."), nearest(key, keys))
    return value


def named(value: Any, at: str, pattern: re.Pattern[str]) -> Mapping[str, Any]:
    """A mapping whose keys are names."""
    found = mapping(value, at, None)
    for key in found:
        if not pattern.fullmatch(key):
            raise refused(f"{shown(key)} is no name", at, "use letters, digits and _, at most 128")
    return found


def amount(value: Any, at: str) -> float:
    """A number of tuples or values: finite, not negative and not absurd."""
    remedy = f"use a number from 0 to {MOST:g}, or leave out what is unknown"
    return _number(value, at, MOST, remedy)


def share(value: Any, at: str) -> float:
    """A number from 0 to 1."""
    return _number(value, at, 1.0, "use matches over the size of the cross product, from 0 to 1")


def _number(value: Any, at: str, most: float, remedy: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused(f"expected a number, found {shown(value)}", at, remedy)
    if not (value >= 0 and value <= most):
        reason = "no number" if math.isnan(value) else "negative" if value < 0 else "too large"
        raise refused(f"{shown(value)} is {reason}", at, remedy)
    return float(value)


def width(value: Any, at: str) -> float:
    """Bytes per tuple: a positive number."""
    found = _number(value, at, MOST, f"use a number above 0, at most {MOST:g}")
    if found == 0:
        raise refused("no tuple is 0 bytes wide", at, "leave the width out where it is unknown")
    return found


def count(value: Any, at: str, least: int = 1) -> int:
    """A whole number from ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 1_000_000:
        remedy = f"use {least}, {least + 1}, ... up to 1000000"
        raise refused(f"{shown(value)} is no such number", at, remedy)
    return value


def flag(value: Any, at: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise refused(f"expected true or false, found {shown(value)}", at, "write true or false")
    return value


def choice(value: Any, kind: type[_E], at: str) -> _E:
    """One of the values of ``kind``."""
    values = [k.value for k in kind]
    if value not in values:
        raise refused(f"there is no {at} {shown(value)}", at, "use " + " or ".join(values))
    return kind(value)


def window(value: Any, at: str, *, per_alias: bool) -> int | dict[str, int] | None:
    """Microseconds, for all aliases or by alias; None: unbounded."""
    if value is None:
        return None
    if per_alias and isinstance(value, Mapping):
        return {
            alias: duration(v, f"{at}.{alias}") for alias, v in mapping(value, at, None).items()
        }
    return duration(value, at)


def duration(value: Any, at: str) -> int:
    """Microseconds, not negative."""
    if not isinstance(value, str):
        raise refused(f"{shown(value)} is no duration", at, "write '10m' or '10 minutes'")
    with within(at):
        micros = parse_duration(value)
    if micros < 0:
        raise refused("the duration is negative", at, "give a duration of zero or more")
    return micros
